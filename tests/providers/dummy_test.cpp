#include <algorithm>
#include <cstring>
#include "tests/catch.h"

#include "convnet/base/error.h"
#include "convnet/base/philox.h"
#include "providers/dummy.h"
#include "providers/registry.h"
#include "tests/temp_folder.h"

using namespace convnet;

namespace {

template <class T>
std::vector<T> values_of(const std::vector<std::byte>& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace

TEST_CASE("dummy-CxHxW-K gives uniform images and labels", "[providers]") {
  const auto provider = make_dummy_provider("dummy-3x5x7-11", 42);
  REQUIRE(provider->matrices().size() == 2);
  CHECK(provider->matrices()[0].name == "data");
  CHECK(provider->matrices()[0].dims == Dims{3, 5, 7});
  CHECK(provider->matrices()[0].type == DataType::f32);
  CHECK(provider->matrices()[0].classes == 0);
  CHECK(provider->matrices()[1].name == "labels");
  CHECK(provider->matrices()[1].dims == Dims{1});
  CHECK(provider->matrices()[1].type == DataType::s32);
  CHECK(provider->matrices()[1].classes == 11);
  CHECK(provider->mean_image({0, 1}).empty());
  CHECK(provider->images_in(123456) == 1000);

  const DataBatch batch = provider->load(3);
  CHECK(batch.images == 1000);
  REQUIRE(batch.matrices.size() == 2);
  const auto data = values_of<float>(batch.matrices[0]);
  REQUIRE(data.size() == 1000 * 105);
  double sum = 0;
  for (float value : data) {
    REQUIRE((value >= 0 && value < 1));
    sum += double{value};
  }
  // The mean's standard deviation is 1 / sqrt(12 * 105000) = 0.0009.
  CHECK(sum / 105000 == Approx(0.5).margin(0.004));
  // Positions before, at and after a multiple of the block size, in the last image.
  for (std::uint32_t element : {0U, 63U, 64U, 104U})
    CHECK(data[999 * 105 + element] ==
          uniform01(element_random(philox_key(42, "dummy.data"), 3, 999, element)));

  const auto labels = values_of<std::int32_t>(batch.matrices[1]);
  REQUIRE(labels.size() == 1000);
  std::vector<int> counts(11);
  for (std::int32_t label : labels) {
    REQUIRE((label >= 0 && label < 11));
    ++counts[static_cast<std::size_t>(label)];
  }
  for (int count : counts) CHECK((count > 50 && count < 140));  // 91 expected, standard deviation 9
}

TEST_CASE("Dummy data depends on seed and batch alone", "[providers]") {
  const auto provider = make_dummy_provider("dummy-1x2x3-10", 1);
  const auto first = provider->load(7).matrices;
  CHECK(provider->load(7).matrices == first);
  CHECK(make_dummy_provider("dummy-1x2x3-10", 1)->load(7).matrices == first);
  for (const auto& other :
       {provider->load(8).matrices, make_dummy_provider("dummy-1x2x3-10", 2)->load(7).matrices}) {
    CHECK(other[0] != first[0]);
    CHECK(other[1] != first[1]);
  }
}

TEST_CASE("A process makes its own images of dummy data, and all labels", "[providers]") {
  const auto provider = make_dummy_provider("dummy-1x2x3-10", 1);
  const ImageShare share{{.replicas = 2}, {false, true}};
  // The last minibatch of 300 in a batch of 1,000: 100 images, of which this process computes 50.
  const LoadRequest request{.batch = 7, .epoch = 1, .first = 900, .count = 300, .share = &share};
  const DataBatch own = provider->read(request, {});
  const DataBatch all = piece_of(provider->load(7), 900, 300);
  CHECK(own.images == 100);
  CHECK(own.first == 900);
  CHECK(own.last);
  CHECK(own.matrices[1] == all.matrices[1]);
  const auto data = values_of<float>(own.matrices[0]), expected = values_of<float>(all.matrices[0]);
  REQUIRE(data.size() == 600);
  CHECK(std::all_of(data.begin(), data.begin() + 300, [](float value) { return value == 0; }));
  CHECK(std::equal(data.begin() + 300, data.end(), expected.begin() + 300));
  CHECK(provider->read({.batch = 7, .first = 900, .count = 300}, {}).matrices == all.matrices);
}

TEST_CASE("Flat dummy data has the documented matrices", "[providers]") {
  const auto plain = make_dummy_provider("dummy-5", 0);
  REQUIRE(plain->matrices().size() == 1);
  CHECK(plain->matrices()[0].dims == Dims{5});
  CHECK(plain->load(0).matrices.size() == 1);
  for (const char* name : {"dummy-labeled-5", "dummy-lr-5"}) {
    const auto provider = make_dummy_provider(name, 0);
    REQUIRE(provider->matrices().size() == 2);
    CHECK(provider->matrices()[0].dims == Dims{5});
    CHECK(provider->matrices()[1].classes == 10);
    const DataBatch batch = provider->load(0);
    REQUIRE(batch.matrices.size() == 2);
    CHECK(batch.matrices[0].size() == 1000 * 5 * sizeof(float));
    CHECK(batch.matrices[1].size() == 1000 * sizeof(std::int32_t));
  }
}

TEST_CASE("Further dummy matrices follow after pluses", "[providers]") {
  const auto provider = make_dummy_provider("dummy-3x5x7-11+168+2x4x4+k7", 42);
  const std::vector<MatrixInfo>& infos = provider->matrices();
  REQUIRE(infos.size() == 5);
  CHECK(infos[2].name == "matrix2");
  CHECK(infos[2].dims == Dims{168});
  CHECK(infos[3].dims == Dims{2, 4, 4});
  CHECK(infos[3].type == DataType::f32);
  CHECK(infos[4].classes == 7);
  const DataBatch batch = provider->load(3);
  REQUIRE(batch.matrices.size() == 5);
  for (std::size_t m = 0; m < infos.size(); ++m)
    CHECK(std::ssize(batch.matrices[m]) == 1000 * infos[m].image_bytes());
  // The images do not depend on what follows them.
  const DataBatch alone = make_dummy_provider("dummy-3x5x7-11", 42)->load(3);
  CHECK(batch.matrices[0] == alone.matrices[0]);
  CHECK(batch.matrices[1] == alone.matrices[1]);
  const auto labels = values_of<std::int32_t>(batch.matrices[4]);
  CHECK(*std::min_element(labels.begin(), labels.end()) == 0);
  CHECK(*std::max_element(labels.begin(), labels.end()) == 6);
  CHECK(values_of<float>(batch.matrices[2])[0] != values_of<float>(batch.matrices[3])[0]);
  CHECK(make_dummy_provider("dummy-4+k3", 0)->matrices()[1].classes == 3);
}

TEST_CASE("Dummy data like that of another set has its matrices", "[providers]") {
  const std::vector<MatrixInfo> infos = {{"data", {3, 8, 8}, DataType::u8, 0, {}, {3, 10, 10}},
                                         {"labels", {3}, DataType::s32, 5}};
  const auto provider = make_dummy_provider(infos, true, 1);
  CHECK(provider->has_mean());
  CHECK(provider->mean_image({0, 0}) == std::vector<float>(192, 0.0F));
  const DataBatch batch = provider->load(0);
  CHECK(std::ssize(batch.matrices[0]) == 1000 * 192);
  CHECK(*std::max_element(batch.matrices[0].begin(), batch.matrices[0].end()) == std::byte{255});
  const auto labels = values_of<std::int32_t>(batch.matrices[1]);
  for (std::size_t i = 0; i < labels.size(); i += 3) {
    REQUIRE((labels[i] >= 0 && labels[i] < 5));
    REQUIRE(labels[i + 1] == labels[i]);
    REQUIRE(labels[i + 2] == 0);
  }
}

TEST_CASE("A malformed further matrix is named", "[providers]") {
  for (const char* part : {"", "k", "k0", "0", "x", "3x4", "3x4x5x6", "-5", "k3x3", "5k"})
    CHECK(message_of<InputError>([&] { make_provider("dummy-4+7+" + std::string(part), "", 0); }) ==
          "data provider 'dummy-4+7+" + std::string(part) +
              "': after a plus comes a further matrix: N or CxHxW numbers, or labels of K classes, kK, as in "
              "dummy-3x32x32-10+168+3x64x64+k7; '" +
              part + "' is none of these");
  for (const char* name : {"dummy-4+2147483648", "dummy-1000000+1000000+1000000"})
    CHECK_THAT(message_of<InputError>([&] { make_provider(name, "", 0); }),
               Catch::Contains("too large: a batch of 1000 images would hold over 2147483648 values"));
}

TEST_CASE("Any batch from 0 is in range for dummy data", "[providers]") {
  const auto provider = make_dummy_provider("dummy-5", 0);
  CHECK_NOTHROW(provider->check_range({0, 999'999'999}, "--train-range"));
  CHECK(message_of<InputError>([&] {
          provider->check_range({-1, 3}, "--train-range");
        }) == "--train-range -1-3: batch numbers of dummy data start at 0");
  CHECK_THROWS_AS(provider->load(-1), InputError);
}

TEST_CASE("Malformed dummy names are refused with the allowed forms", "[providers]") {
  for (const char* name : {"dummy-",
                           "dummy-x",
                           "dummy-0",
                           "dummy-+5",
                           "dummy--5",
                           "dummy-3x",
                           "dummy-3x4",
                           "dummy-3x4-5",
                           "dummy-3x4x5",
                           "dummy-3x4x5-",
                           "dummy-3x4x5-0",
                           "dummy-3x0x5-4",
                           "dummy-3x4x5x6-7",
                           "dummy-3x4x5-7-8",
                           "dummy-3x4x5-7x",
                           "dummy-5-10",
                           "dummy-lr-",
                           "dummy-lr-3x4x5",
                           "dummy-labeled-5-10",
                           "dummy-3X4X5-6",
                           "dummy-2147483649",
                           "dummy-1x1x1-2147483649",
                           "dummy-99999999999999999999"})
    CHECK(message_of<InputError>([&] { make_provider(name, "", 0); }) ==
          "data provider '" + std::string(name) +
              "': the dummy providers are dummy-CxHxW-K (like dummy-3x224x224-1000), dummy-n, "
              "dummy-labeled-n and "
              "dummy-lr-n, with numbers from 1 to 2147483648");
}

TEST_CASE("Dummy images that are too large are refused", "[providers]") {
  CHECK_NOTHROW(make_provider("dummy-3x836x836-10", "", 0));
  CHECK_NOTHROW(make_provider("dummy-1x1x1-2147483648", "", 0));
  for (const char* name :
       {"dummy-3x900x900-10", "dummy-2147483648", "dummy-2147483648x2147483648x2147483648-2"})
    CHECK(message_of<InputError>([&] { make_provider(name, "", 0); }) ==
          "data provider '" + std::string(name) +
              "': too large: a batch of 1000 images would hold over 2147483648 values");
}
