#include "providers/provider.h"

#include "tests/catch.h"

#include "convnet/base/error.h"
#include "providers/registry.h"
#include "tests/temp_folder.h"

using namespace convnet;

TEST_CASE("Batch ranges are read and printed", "[providers]") {
  const BatchRange range = BatchRange::parse("1-5");
  CHECK(range.first == 1);
  CHECK(range.last == 5);
  CHECK(range.count() == 5);
  CHECK(range.str() == "1-5");
  CHECK(range.holds(5));
  CHECK_FALSE(range.holds(6));
  CHECK(BatchRange::parse("6").first == 6);
  CHECK(BatchRange::parse("6").last == 6);
  CHECK(BatchRange::parse("6-6").str() == "6");
  CHECK(BatchRange::parse("0-999999999").count() == 1'000'000'000);
}

TEST_CASE("Wrong batch ranges are refused", "[providers]") {
  for (const char* text :
       {"", "-", "-1", "-1-5", "1-", "1--5", "1-5-7", "a", "1-b", "1x", "+1", "1-+5", " 1", "1 ", "1,2"})
    CHECK(message_of<InputError>([&] { BatchRange::parse(text); }) ==
          "'" + std::string(text) +
              "' is not a range of batches; give a number (6) or the first and the last one (1-5)");
  for (const char* text : {"1000000000", "99999999999999999999", "1-1000000000", "1-99999999999999999999"})
    CHECK(message_of<InputError>([&] { BatchRange::parse(text); }) ==
          "'" + std::string(text) + "': batch numbers are 0 to 999999999");
  CHECK(message_of<InputError>([] { BatchRange::parse("5-1"); }) ==
        "'5-1' is empty: the first batch comes before the last one, as in 1-5");
}

TEST_CASE("A shuffled set that does not fit into memory is refused once its first batch tells",
          "[providers]") {
  const auto provider = make_provider("dummy-1x32x32-10", "", 0, {}, BatchRange{1, 10'000'000});
  const std::string message = message_of<DeviceError>([&] { provider->read({1, 1}, {}); });
  CHECK(message.starts_with("--shuffle 1 keeps all images of batches 1-10000000 in memory: "));
}

TEST_CASE("Loading a shuffled range stops when asked, and begins again at the first read", "[providers]") {
  for (const double mixup : {0.0, 0.2}) {
    ImageOptions options;
    options.mixup = mixup;
    const auto provider = make_provider("dummy-1x4x4-10", "", 0, options, BatchRange{1, 3});
    const auto whole = make_provider("dummy-1x4x4-10", "", 0, options, BatchRange{1, 3});
    int asked = 0;
    provider->load_training_data([&] { return ++asked == 3; });
    CHECK(asked == 3);
    whole->load_training_data([] { return false; });
    CHECK(provider->read({3, 1}, {}).matrices == whole->read({3, 1}, {}).matrices);
  }
}

TEST_CASE("An unknown provider is refused with the known names", "[providers]") {
  for (const char* name : {"", "mn", "imagenet", "dummy", "dummi-n"})
    CHECK(message_of<InputError>([&] { make_provider(name, "", 0); }) ==
          "data provider '" + std::string(name) +
              "' is not known; the known ones are image, mnist, cifar, cifar-cropped, npy, dummy-CxHxW-K, "
              "dummy-n, "
              "dummy-labeled-n, "
              "dummy-lr-n");
}

TEST_CASE("A misspelt provider is refused with the name that was meant", "[providers]") {
  for (const auto& [name, meant] : std::vector<std::pair<std::string, std::string>>{
           {"Mnist", "mnist"}, {"minst", "mnist"}, {"cifar10", "cifar"}, {"imgae", "image"}, {"npz", "npy"}})
    CHECK(message_of<InputError>([&, given = name] { make_provider(given, "", 0); }) ==
          "data provider '" + name + "' is not known; did you mean '" + meant + "'?");
}
