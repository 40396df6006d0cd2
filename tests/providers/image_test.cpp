// The provider of photographs: what is seen of an image, means, colour noise, mixed and bad images.
#include "providers/image.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <filesystem>
#include <map>

#include "convnet/base/philox.h"
#include "providers/augment.h"
#include "providers/color_pca.h"
#include "providers/jpeg.h"
#include "providers/registry.h"
#include "providers/resize.h"
#include "tests/catch.h"
#include "tests/larger.h"
#include "tests/providers/image_sets.h"

using namespace convnet;
using namespace image_sets;
using namespace std::string_literals;

TEST_CASE("pieces of a batch are the batch, whatever their size and the threads", "[image]") {
  const TempFolder folder;
  const std::vector<Item> items = photographs(11, 3, 20);
  write_file(folder / "batches.meta", meta(3, 20, 20));
  write_batch(folder.path(), 5, items, 4);
  const std::size_t image_bytes = 3 * 16 * 16;
  ImageOptions options = sized(0, 16);
  options.decode_threads = 1;
  const auto one = open_images(folder.path(), options);
  REQUIRE(one->matrices().size() == 3);
  CHECK(one->matrices()[0].dims == Dims{3, 16, 16});
  CHECK(one->images_in(5) == 20);  // what the meta says
  for (const int epoch : {0, 1, 2}) {
    const DataBatch whole = one->read({5, epoch}, {});
    CHECK(whole.images == 11);
    CHECK(whole.last);
    CHECK(one->images_in(5) == 11);
    CHECK(whole.matrices[0].size() == 11 * image_bytes);
    CHECK(image_labels_of(whole) == std::vector<std::int32_t>{0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1});
    for (const int threads : {1, 2, 5})
      for (const std::int64_t count : {1, 3, 4, 11, 12}) {
        options.decode_threads = threads;
        const auto provider = open_images(folder.path(), options);
        std::vector<std::byte> images;
        std::int64_t first = 0;
        for (bool last = false; !last; first += count) {
          const DataBatch piece = provider->read({5, epoch, first, count}, {});
          CHECK(piece.first == first);
          CHECK(piece.images == std::min<std::int64_t>(count, 11 - first));
          images.insert(images.end(), piece.matrices[0].begin(), piece.matrices[0].end());
          last = piece.last;
        }
        CHECK(first >= 11);
        CHECK(first < 11 + count);
        CHECK(images == whole.matrices[0]);
      }
    // Reads from the middle, with nothing read before.
    options.decode_threads = 2;
    const DataBatch middle = open_images(folder.path(), options)->read({5, epoch, 6, 2}, {});
    CHECK(image_of(middle, 1) == image_of(whole, 7));
    const DataBatch beyond = open_images(folder.path(), options)->read({5, epoch, 11, 2}, {});
    CHECK(beyond.images == 0);
    CHECK(beyond.last);
  }
  CHECK(one->read({5, 1}, {}).matrices[0] != one->read({5, 2}, {}).matrices[0]);
  CHECK(open_images(folder.path(), options, 2)->read({5, 1}, {}).matrices[0] !=
        one->read({5, 1}, {}).matrices[0]);
}

TEST_CASE("pieces that are in progress together are what they are alone", "[image]") {
  const TempFolder pickles_folder, folders;
  const std::vector<Item> items = photographs(11, 3, 20);
  write_file(pickles_folder / "batches.meta", meta(3, 20, 20));
  write_batch(pickles_folder.path(), 1, items, 4);
  write_batch(pickles_folder.path(), 2, photographs(7, 3, 21), 2);
  write_folders(folders.path(), items);
  for (const bool shuffle : {false, true}) {
    const std::string path = shuffle ? folders.path() : pickles_folder.path();
    const auto open = [&](int threads) {
      ImageOptions options = sized(0, 16);
      options.decode_threads = threads;
      options.mixup = 0.5;
      if (shuffle) return make_provider("image", path, 1, options, BatchRange{1, 1});
      return make_provider("image", path, 1, options);
    };
    // Pieces of several batches, epochs and sizes, so that memory is used again for larger and smaller ones.
    std::vector<LoadRequest> requests;
    const ImageShare share{{2}, {false, true}};
    for (const int epoch : {3, 1, 0, 2})
      for (const int batch : {1, shuffle ? 1 : 2})
        for (const std::int64_t first : {0, 4, 8})
          requests.push_back({batch, epoch, first, 4, first == 4 ? &share : nullptr});
    std::vector<DataBatch> alone;
    for (const LoadRequest& request : requests) alone.push_back(open(1)->read(request, {}));
    for (const int threads : {1, 3}) {
      const auto provider = open(threads);
      const PixelStatistics none;
      for (const std::size_t together : {1, 2, 7}) {
        CAPTURE(shuffle, threads, together);
        std::deque<std::unique_ptr<PieceInProgress>> begun;
        for (std::size_t i = 0, next = 0; i < requests.size(); ++i) {
          for (; next < std::min(requests.size(), i + together); ++next)
            begun.push_back(provider->begin(requests[next], none));
          CHECK(begun.front()->last() == alone[i].last);
          const std::shared_ptr<const DataBatch> piece = begun.front()->wait();
          begun.pop_front();
          CHECK(piece->images == alone[i].images);
          CHECK(piece->first == alone[i].first);
          CHECK(piece->last == alone[i].last);
          CHECK(piece->matrices == alone[i].matrices);
        }
      }
      // Pieces that nobody waits for are given up, and a piece may outlive its provider.
      std::vector<std::unique_ptr<PieceInProgress>> unwanted;
      for (const LoadRequest& request : requests) unwanted.push_back(provider->begin(request, none));
    }
    auto provider = open(2);
    const PixelStatistics none;
    const std::shared_ptr<const DataBatch> piece = provider->begin(requests[0], none)->wait();
    provider.reset();
    CHECK(piece->matrices == alone[0].matrices);
  }
}

TEST_CASE("tests see the centre, ten views their corners, training any place", "[image]") {
  const TempFolder folder;
  const DecodedImage image = test_images::waves(24, 30, 2);
  std::filesystem::create_directories(folder / "only");
  write_file(folder / "only/a.png", test_images::png(image));
  const auto crop = [&](int y, int x, bool mirror) {
    std::vector<std::byte> out;
    for (int c = 0; c < 3; ++c)
      for (int row = 0; row < 16; ++row)
        for (int column = 0; column < 16; ++column)
          out.push_back(static_cast<std::byte>(image.pixels[static_cast<std::size_t>(
              ((y + row) * 30 + x + (mirror ? 15 - column : column)) * 3 + c)]));
    return out;
  };
  ImageOptions options = sized(24, 16);
  CHECK(open_images(folder.path(), options)->read({1, 0}, {}).matrices[0] == crop(4, 7, false));
  options.multiview = true;
  const auto provider = open_images(folder.path(), options);
  CHECK(provider->views() == 10);
  const DataBatch views = provider->read({1, 0}, {});
  REQUIRE(views.images == 10);
  CHECK(image_labels_of(views) == std::vector<std::int32_t>(10, 0));
  for (int m = 0; m < 2; ++m) {
    CHECK(image_of(views, 5 * m) == crop(0, 0, m == 1));
    CHECK(image_of(views, 5 * m + 1) == crop(0, 14, m == 1));
    CHECK(image_of(views, 5 * m + 2) == crop(4, 7, m == 1));
    CHECK(image_of(views, 5 * m + 3) == crop(8, 0, m == 1));
    CHECK(image_of(views, 5 * m + 4) == crop(8, 14, m == 1));
  }
  // Every place of the 9 x 15 is drawn, mirrored or not.
  std::map<std::string, int> places;
  for (int y = 0; y <= 8; ++y)
    for (int x = 0; x <= 14; ++x)
      for (const bool mirror : {false, true}) places[text_of(crop(y, x, mirror))] = 0;
  REQUIRE(places.size() == 270);
  for (int epoch = 1; epoch <= 4000; ++epoch) {
    const auto found = places.find(text_of(provider->read({1, epoch}, {}).matrices[0]));
    REQUIRE(found != places.end());
    ++found->second;
  }
  for (const auto& [pixels, times] : places) {
    CHECK(times > 0);
    CHECK(times < 45);
  }
}

TEST_CASE("the meta's mean image is cut at its centre; a scalar takes its place", "[image]") {
  const TempFolder folder;
  std::vector<float> mean(3 * 20 * 20);
  std::iota(mean.begin(), mean.end(), 0.0F);
  const std::vector<float> axes = {0, 0, 1, 0, 1, 0, 1, 0, 0};
  const std::string pca =
      pickles::array({3}, "f4", floats({3, 2, 1})) + pickles::array({3, 3}, "f4", floats(axes)) + "\x86";
  write_file(
      folder / "batches.meta",
      meta(3, 20, 20, {{"data_mean", pickles::array({1200, 1}, "f4", floats(mean))}, {"color_pca", pca}}));
  write_batch(folder.path(), 1, photographs(3, 3, 20), 4);
  ImageOptions options = sized(0, 16);
  const PixelStatistics cut = open_images(folder.path(), options)->statistics({1, 1});
  REQUIRE(cut.mean.size() == 3 * 16 * 16);
  CHECK(cut.mean[0] == 42);
  CHECK(cut.mean[256] == 442);
  CHECK(cut.color_pca.empty());
  options.scalar_mean = 120.5;
  options.color_noise = 0.1;
  const PixelStatistics scalar = open_images(folder.path(), options)->statistics({1, 1});
  CHECK(scalar.mean == std::vector<float>(3 * 16 * 16, 120.5F));
  CHECK(scalar.color_pca == std::vector<float>{3, 2, 1, 0, 0, 1, 0, 1, 0, 1, 0, 0});
  CHECK(read_error_of(folder.path(), sized(24))
            .starts_with("--image-size 24: batches.meta says that the images are of size 20"));
  CHECK(read_error_of(folder.path(), sized(0, 21)) ==
        "--inner-size 21: the images are of size 20 (their shorter side), and a crop can be at most that; "
        "'convnet make-data --size 24' makes larger ones of the original photos");

  write_file(folder / "batches.meta",
             meta(3, 20, 20, {{"data_mean", pickles::array({3}, "f4", floats({1, 2, 3}))}}));
  CHECK(read_error_of(folder.path()).ends_with("data_mean has 3 numbers; images of size 20 have 1200"));
  write_file(folder / "batches.meta", meta(3, 20, 5000));
  CHECK(read_error_of(folder.path()).ends_with("images of size 5000 (img_size); 1 to 4096 are possible"));
}

TEST_CASE("without img_size the number of pixels says how large images are", "[image]") {
  using Entries = std::vector<std::pair<std::string, std::string>>;
  const TempFolder folder;
  write_batch(folder.path(), 1, photographs(3, 3, 20), 4);
  const auto write_meta = [&](Entries entries) {
    entries.emplace_back("label_names", pickles::list(std::vector<std::string>(3, pickles::str("x"))));
    entries.emplace_back("batch_size", pickles::integer(20));
    write_file(folder / "batches.meta", pickles::pickle_file(pickles::dict(entries)));
  };
  const auto mean = [](std::int64_t numbers) {
    return std::pair("data_mean"s,
                     pickles::array({numbers, 1}, std::vector<float>(static_cast<std::size_t>(numbers), 7)));
  };
  for (const Entries& entries : {Entries{{"num_vis", pickles::integer(1200)}}, Entries{mean(1200)},
                                 Entries{{"num_vis", pickles::integer(1200)}, mean(1200)}}) {
    write_meta(entries);
    const auto provider = open_images(folder.path(), sized(0, 0));
    CHECK(provider->matrices()[0].dims == Dims{3, 20, 20});
    CHECK(provider->read({1, 0}, {}).images == 3);
  }
  write_meta({});
  CHECK_THAT(read_error_of(folder.path()),
             Catch::StartsWith(folder / "batches.meta: byte ") &&
                 Catch::EndsWith("there is no 'img_size'; the keys are label_names, batch_size"));
  write_meta({{"num_vis", pickles::integer(1199)}});
  CHECK_THAT(read_error_of(folder.path()),
             Catch::StartsWith(folder / "batches.meta: byte ") &&
                 Catch::EndsWith("images of 1199 numbers (num_vis) are not square with 3 channels, of side 1 "
                                 "to 4096; img_size may say their side"));
  write_meta({mean(1203)});
  CHECK_THAT(read_error_of(folder.path()),
             Catch::Contains("images of 1203 numbers (data_mean) are not square"));
  write_meta({{"num_vis", pickles::integer(1200)}, mean(300)});
  CHECK_THAT(read_error_of(folder.path()),
             Catch::EndsWith("data_mean has 300 numbers; images of size 20 have 1200"));
}

TEST_CASE("mean image, deviations and colours are measured where no meta has them", "[image]") {
  const TempFolder folder;
  std::vector<Item> items;
  double sum = 0;
  for (int i = 0; i < 40; ++i) {
    DecodedImage image{16, 16, {}};
    for (int p = 0; p < 256; ++p)
      for (const int v : {10 + 4 * i, 20 + 2 * i, 50}) image.pixels.push_back(static_cast<std::uint8_t>(v));
    sum += 10 + 4 * i;
    items.push_back({test_images::png(image), 0});
  }
  write_folders(folder.path(), items);
  ImageOptions options = sized(16);
  options.color_noise = 0.5;
  const PixelStatistics measured = open_images(folder.path(), options)->statistics({1, 1});
  CHECK(measured.mean[0] == Approx(sum / 40));
  CHECK(measured.mean[767] == 50);
  REQUIRE(measured.color_pca.size() == 12);
  // All colours lie on one line, in the direction (2, 1, 0).
  CHECK(measured.color_pca[0] == Approx(std::sqrt(20) * std::sqrt((40 * 40 - 1) / 12.0)).epsilon(1e-3));
  CHECK(measured.color_pca[1] == Approx(0).margin(1e-3));
  CHECK(measured.color_pca[3] == Approx(2 / std::sqrt(5)).epsilon(1e-4));
  CHECK(measured.color_pca[6] == Approx(1 / std::sqrt(5)).epsilon(1e-4));
  CHECK(measured.color_pca[9] == Approx(0).margin(1e-4));

  // Training sees (pixel - mean + noise) / (1 + scale), tests pixel - mean.
  const auto provider = open_images(folder.path(), options);
  CHECK(provider->matrices()[0].type == DataType::f32);
  const std::vector<float> plain = floats_of(provider->read({1, 0}, measured).matrices[0]);
  std::vector<double> reds;
  for (int epoch = 1; epoch <= 20; ++epoch) {
    const std::vector<float> noisy = floats_of(provider->read({1, epoch}, measured).matrices[0]);
    for (std::size_t i = 0; i < 40; ++i) {
      std::array<double, 3> noise = {};
      for (std::size_t c = 0; c < 3; ++c) {
        const std::size_t at = (i * 3 + c) * 256;
        noise[c] = 1.5 * noisy[at] - plain[at];
      }
      CHECK(noise[1] == Approx(noise[0] / 2).margin(1e-3));
      CHECK(noise[2] == Approx(0).margin(1e-3));
      reds.push_back(noise[0] / (measured.color_pca[0] * 0.5 * 2 / std::sqrt(5)));
    }
  }
  double mean = 0, square = 0;
  for (const double z : reds) {
    mean += z / 800;
    square += z * z / 800;
  }
  CHECK(std::abs(mean) < 0.12);
  CHECK(std::abs(square - 1) < 0.2);

  options.color_noise = 0;
  options.pixel_std = true;
  const PixelStatistics scaled = open_images(folder.path(), options)->statistics({1, 1});
  CHECK(scaled.deviations[0] == Approx(4 * std::sqrt((40 * 40 - 1) / 12.0)).epsilon(1e-4));
  CHECK(scaled.deviations[2] == 1);
  CHECK(scaled.mean[0] == Approx(sum / 40 / scaled.deviations[0]));
  CHECK(floats_of(open_images(folder.path(), options)->read({1, 0}, scaled).matrices[0])[0] ==
        Approx((plain[0] + measured.mean[0]) / scaled.deviations[0]));
}

TEST_CASE("with one channel photographs are the luma of what they are in colour", "[image]") {
  const TempFolder folder;
  write_folders(folder.path(), photographs(6, 2, 20));
  ImageOptions color = sized(20, 16), grey = color;
  grey.grey = true;
  for (const double least_area : {0.0, 0.3})
    for (const bool multiview : {false, true}) {
      color.random_resized_crop = grey.random_resized_crop = least_area;
      color.multiview = grey.multiview = multiview;
      const auto in_color = open_images(folder.path(), color), in_grey = open_images(folder.path(), grey);
      CHECK(in_grey->matrices()[0].dims == Dims{1, 16, 16});
      CHECK(in_grey->matrices()[0].stored == Dims{1, 20, 20});
      for (const int epoch : {0, 1, 2}) {
        const DataBatch rgb = in_color->read({1, epoch}, {}), one = in_grey->read({1, epoch}, {});
        REQUIRE(3 * one.matrices[0].size() == rgb.matrices[0].size());
        CHECK(image_labels_of(one) == image_labels_of(rgb));
        std::vector<std::byte> wanted;
        for (std::int64_t i = 0; i < rgb.images; ++i) {
          const std::vector<std::byte> image = image_of(rgb, i);
          for (std::size_t p = 0; p < 256; ++p) {
            const auto value = [&](std::size_t c) { return std::to_integer<int>(image[c * 256 + p]); };
            wanted.push_back(
                static_cast<std::byte>((299 * value(0) + 587 * value(1) + 114 * value(2) + 500) / 1000));
          }
        }
        CHECK(one.matrices[0] == wanted);
      }
    }
}

TEST_CASE("mean image and deviation of grey photographs are those of what is seen", "[image]") {
  const TempFolder folder;
  write_folders(folder.path(), photographs(6, 2, 16));
  ImageOptions options = sized(16);
  options.grey = true;
  const DataBatch seen = open_images(folder.path(), options)->read({1, 0}, {});
  std::vector<double> mean(256);
  double sum = 0, squares = 0;
  for (std::size_t i = 0; i < seen.matrices[0].size(); ++i) {
    const double value = std::to_integer<int>(seen.matrices[0][i]);
    mean[i % 256] += value / 6;
    sum += value;
    squares += value * value;
  }
  const double count = 6 * 256, deviation = std::sqrt(squares / count - sum / count * (sum / count));
  options.pixel_std = true;
  const auto provider = open_images(folder.path(), options);
  const PixelStatistics measured = provider->statistics({1, 1});
  REQUIRE(measured.mean.size() == 256);
  REQUIRE(measured.deviations.size() == 1);
  CHECK(measured.deviations[0] == Approx(deviation));
  for (const std::size_t p : {0, 17, 255}) CHECK(measured.mean[p] == Approx(mean[p] / deviation));
  CHECK(floats_of(provider->read({1, 0}, measured).matrices[0])[3] ==
        Approx(std::to_integer<int>(seen.matrices[0][3]) / deviation));
  options.pixel_std = false;
  options.scalar_mean = 7;
  CHECK(open_images(folder.path(), options)->statistics({1, 1}).mean == std::vector<float>(256, 7.0F));
  // A mean image of a meta is one of colours.
  const TempFolder pickles;
  std::vector<float> colors(3 * 16 * 16, 10);
  std::fill(colors.begin() + 256, colors.begin() + 512, 20.0F);
  std::fill(colors.begin() + 512, colors.end(), 30.0F);
  write_file(pickles / "batches.meta",
             meta(2, 6, 16, {{"data_mean", pickles::array({3 * 16 * 16, 1}, colors)}}));
  write_batch(pickles.path(), 1, photographs(6, 2, 16), 6);
  options = sized(0, 12);
  options.grey = true;
  const std::vector<float> of_meta = open_images(pickles.path(), options)->statistics({1, 1}).mean;
  REQUIRE(of_meta.size() == 144);
  CHECK(of_meta[0] == Approx(0.299 * 10 + 0.587 * 20 + 0.114 * 30));
}

namespace {

/// Computes the colour noise of an image of `batch` in double precision, by channel.
std::array<double, 3> noise_of(const std::vector<float>& pca, double scale, std::uint32_t image,
                               std::uint32_t batch, std::uint32_t epoch, std::uint64_t seed) {
  const std::uint64_t key = philox_key(seed, "image.color");
  const Philox4x32 a = philox(key, image, batch, epoch, 0), b = philox(key + 1, image, batch, epoch, 0);
  const auto gauss = [](std::uint32_t x, std::uint32_t y) {
    return std::sqrt(-2 * std::log(1 - double{uniform01(x)})) *
           std::cos(2 * std::acos(-1.0) * double{uniform01(y)});
  };
  const std::array<double, 3> lots = {gauss(a.value[0], a.value[1]), gauss(a.value[2], a.value[3]),
                                      gauss(b.value[0], b.value[1])};
  std::array<double, 3> noise = {};
  for (std::size_t c = 0; c < 3; ++c)
    for (std::size_t k = 0; k < 3; ++k) noise[c] += scale * pca[3 + 3 * c + k] * pca[k] * lots[k];
  return noise;
}

}  // namespace

TEST_CASE("with colour noise read() subtracts the mean; without, the step does", "[image]") {
  const TempFolder folder;
  write_file(folder / "batches.meta", meta(3, 12, 20));
  write_batch(folder.path(), 5, photographs(12, 3, 20), 4);
  constexpr std::size_t plane = 16 * 16;
  ImageOptions options = sized(0, 16);
  CHECK(open_images(folder.path(), options)->has_mean());
  CHECK(open_images(folder.path(), options)->step_subtracts_mean());
  const auto pixels_of = [&](int epoch, bool multiview) {
    ImageOptions plain = sized(0, 16);
    plain.multiview = multiview;
    return open_images(folder.path(), plain)->read({5, epoch}, {}).matrices[0];
  };
  options.color_noise = 0.3;
  for (const bool pixel_std : {false, true})
    for (const int epoch : {0, 1, 7})
      for (const bool multiview : {false, true}) {
        CAPTURE(pixel_std, epoch, multiview);
        options.pixel_std = pixel_std;
        options.multiview = multiview;
        const auto provider = open_images(folder.path(), options);
        CHECK(provider->has_mean());
        CHECK_FALSE(provider->step_subtracts_mean());
        const PixelStatistics statistics = provider->statistics({5, 5});
        const std::vector<float> seen = floats_of(provider->read({5, epoch}, statistics).matrices[0]);
        const std::vector<std::byte> pixels = pixels_of(epoch, multiview);
        REQUIRE(seen.size() == 12 * 3 * plane * (epoch == 0 && multiview ? 10 : 1));
        REQUIRE(pixels.size() == seen.size());
        const std::size_t views = seen.size() / (12 * 3 * plane);
        double worst = 0;
        for (std::size_t at = 0; at < seen.size(); ++at) {
          const std::size_t c = at / plane % 3;
          const double deviation = pixel_std ? double{statistics.deviations[c]} : 1;
          double expected = std::to_integer<int>(pixels[at]) / deviation - statistics.mean[at % (3 * plane)];
          if (epoch > 0) {
            const auto image = static_cast<std::uint32_t>(at / (3 * plane * views));
            const auto noise =
                noise_of(statistics.color_pca, 0.3, image, 5, static_cast<std::uint32_t>(epoch), 1);
            expected = (expected + noise[c] / deviation) / 1.3;
          }
          // In units of the rounding of the brightest pixel.
          worst = test::larger(worst, std::abs(seen[at] - expected) * deviation / (255 * 0x1p-24));
        }
        CHECK(worst < 4);
        // Without a mean none is subtracted: this is how pictures of images are drawn.
        if (epoch > 0) continue;
        PixelStatistics no_mean = statistics;
        no_mean.mean.clear();
        const std::vector<float> whole = floats_of(provider->read({5, 0}, no_mean).matrices[0]);
        for (std::size_t at = 0; at < whole.size(); at += 97) {
          const float deviation = pixel_std ? statistics.deviations[at / plane % 3] : 1;
          CHECK(whole[at] == static_cast<float>(std::to_integer<int>(pixels[at])) / deviation);
        }
      }
}

TEST_CASE("an unreadable image stops the run, or the next one takes its place", "[image]") {
  const TempFolder folder;
  std::vector<Item> items = photographs(6, 6, 16);
  items[2].bytes = items[2].bytes.substr(0, items[2].bytes.size() / 2);
  items[5].bytes = "no image";
  write_file(folder / "batches.meta", meta(6, 6, 16));
  write_batch(folder.path(), 1, items, 2);
  const std::string file = folder / "data_batch_1/data_batch_1.";
  CHECK(read_error_of(folder.path()).starts_with(file + "1: image 0 (counted from 0): a damaged JPEG: "));
  ImageOptions options;
  options.skip_bad_images = true;
  const auto provider = open_images(folder.path(), options);
  CHECK(provider->skipped_images().empty());
  CHECK(image_labels_of(provider->read({1, 0}, {})) == std::vector<std::int32_t>{0, 1, 3, 3, 4, 0});
  CHECK(image_labels_of(provider->read({1, 0, 4, 2}, {})) == std::vector<std::int32_t>{4, 0});
  CHECK(provider->skipped_images() ==
        std::vector<std::string>{file + "1: image 0 (counted from 0)", file + "2: image 1 (counted from 0)"});
  for (Item& item : items) item.bytes = "no image";
  write_batch(folder.path(), 1, items, 2);
  CHECK(message_of<InputError>([&] {
          open_images(folder.path(), options)->read({1, 0}, {});
        }) == folder.path() + ": none of the images of batch 1 can be read");
  const TempFolder thin;
  write_folders(thin.path(), {{encode_jpeg(test_images::waves(4, 500, 1)), 0}});
  CHECK_THAT(read_error_of(thin.path()),
             Catch::Contains("500 x 4 pixels; one side is more than 100 times the other"));
}

TEST_CASE("photographs are distorted after the crop", "[image]") {
  const TempFolder folder;
  write_file(folder / "batches.meta", meta(11, 20, 20));
  write_batch(folder.path(), 1, photographs(11, 11, 20), 4);
  ImageOptions options = sized(0, 16);
  // Half of them are mirrored before they are distorted.
  const auto plain = open_images(folder.path(), options)->read({1, 2}, {});
  options.trivial_augment = true;
  options.color_jitter = 0.4;
  const auto provider = open_images(folder.path(), options);
  const DataBatch distorted = provider->read({1, 2}, {});
  const Augmentation augmentation(options, provider->matrices(), 1);
  int changed = 0;
  for (std::int64_t i = 0; i < 11; ++i) {
    std::vector<std::byte> expected = image_of(plain, i);
    augmentation.distort({2, 1, i}, {}, expected.data());
    CHECK(image_of(distorted, i) == expected);
    if (expected != image_of(plain, i)) ++changed;
  }
  CHECK(changed == 11);
  CHECK(provider->read({1, 0}, {}).matrices[0] ==
        open_images(folder.path(), sized(0, 16))->read({1, 0}, {}).matrices[0]);
}

TEST_CASE("mixed photographs are blends of what is seen of two", "[image]") {
  const TempFolder folder;
  write_file(folder / "batches.meta", meta(11, 20, 20));
  write_batch(folder.path(), 1, photographs(11, 11, 20), 4);
  ImageOptions options = sized(0, 16);
  const auto plain = open_images(folder.path(), options)->read({1, 2}, {});
  options.mixup = 1;
  const auto open = [&](int threads) {
    options.decode_threads = threads;
    return open_images(folder.path(), options);
  };
  const DataBatch mixed = open(1)->read({1, 2}, {});
  CHECK(open(1)->matrices()[1].dims == Dims{3});
  const std::vector<std::int32_t> labels = image_labels_of(mixed);
  const std::vector<float> classes = floats_of(mixed.matrices[2]);
  REQUIRE(labels.size() == 33);
  for (std::size_t i = 0; i < 11; ++i) {
    const std::int32_t other = labels[3 * i + 1], weight = labels[3 * i + 2];
    CAPTURE(i, other, weight);
    CHECK(labels[3 * i] == static_cast<std::int32_t>(i));
    REQUIRE(weight > 0);
    CHECK(other != labels[3 * i]);
    CHECK(classes[11 * i + static_cast<std::size_t>(other)] == static_cast<float>(weight) / 65536);
    CHECK(classes[12 * i] == 1 - static_cast<float>(weight) / 65536);
    const auto own = image_of(plain, static_cast<std::int64_t>(i)), from = image_of(plain, other),
               blend = image_of(mixed, static_cast<std::int64_t>(i));
    bool right = true;
    for (std::size_t p = 0; p < own.size(); ++p)
      right = right && std::to_integer<int>(blend[p]) == (std::to_integer<int>(own[p]) * (65536 - weight) +
                                                          std::to_integer<int>(from[p]) * weight + 32768) /
                                                             65536;
    CHECK(right);
  }
  // Whatever the threads, pieces, where a run goes on, and the process.
  for (const std::int64_t count : {1, 4, 11}) {
    std::vector<std::byte> images;
    for (std::int64_t first = 0; first < 11; first += count) {
      const DataBatch piece = open(2)->read({1, 2, first, count}, {});
      CHECK(piece.first == first);
      CHECK(piece.last == (first + count >= 11));
      images.insert(images.end(), piece.matrices[0].begin(), piece.matrices[0].end());
    }
    CHECK(images == mixed.matrices[0]);
  }
  CHECK(open(1)->read({1, 2, 11, 4}, {}).images == 0);
  const ImageShare share{{2}, {false, true}};
  const DataBatch piece = open(3)->read({1, 2, 2, 6, &share}, {});
  for (std::int64_t i = 3; i < 6; ++i) CHECK(image_of(piece, i) == image_of(mixed, i + 2));
  CHECK(image_of(piece, 0) == std::vector<std::byte>(3 * 16 * 16));
  // Tests see each image alone.
  const DataBatch test = open(1)->read({1, 0}, {});
  CHECK(test.matrices[0] == open_images(folder.path(), sized(0, 16))->read({1, 0}, {}).matrices[0]);
  CHECK(std::vector<std::int32_t>{image_labels_of(test)[15], image_labels_of(test)[16],
                                  image_labels_of(test)[17]} == std::vector<std::int32_t>{5, 5, 0});
}

TEST_CASE("random resized crops are rectangles of the image", "[image]") {
  const TempFolder folder;
  // Red is twice the column, green twice the row.
  DecodedImage ramp{100, 100, {}};
  for (int i = 0; i < 100 * 100; ++i)
    for (const int value : {i % 100 * 2, i / 100 * 2, 0})
      ramp.pixels.push_back(static_cast<std::uint8_t>(value));
  std::filesystem::create_directories(folder / "only");
  write_file(folder / "only/a.png", test_images::png(ramp));
  ImageOptions options = sized(40, 16);
  const auto plain = open_images(folder.path(), options);
  options.random_resized_crop = 0.1;
  const auto provider = open_images(folder.path(), options);
  CHECK(provider->read({1, 0}, {}).matrices == plain->read({1, 0}, {}).matrices);
  double least = 1, most = 0;
  int mirrored = 0;
  for (int epoch = 1; epoch <= 200; ++epoch) {
    const std::vector<std::byte> seen = provider->read({1, epoch}, {}).matrices[0];
    const auto at = [&](std::size_t c, std::size_t y, std::size_t x) {
      return std::to_integer<int>(seen[(c * 16 + y) * 16 + x]);
    };
    // From the second pixel to the last but one, 13 pixels on: the border has no part in these.
    const double wide = (at(0, 8, 14) - at(0, 8, 1)) / 2.0 * 16 / 13,
                 high = (at(1, 14, 8) - at(1, 1, 8)) / 2.0 * 16 / 13;
    if (wide < 0) ++mirrored;
    const double area = std::abs(wide) * high / 1e4, ratio = std::abs(wide) / high;
    CAPTURE(epoch, wide, high);
    CHECK(area > 0.08);
    CHECK(area < 1.05);
    CHECK(ratio > 0.7);
    CHECK(ratio < 1.43);
    least = std::min(least, area);
    most = std::max(most, area);
  }
  CHECK(least < 0.2);
  CHECK(most > 0.85);
  CHECK(mirrored > 65);
  CHECK(mirrored < 135);
  // No rectangle but the image itself has its area; of one that is too long, the middle is taken.
  options.random_resized_crop = 1;
  options.flip = Flip::off;
  const auto squeezed = [&](const DecodedImage& image, const ImageWindow& window) {
    const DecodedImage small = resize_image(cut_window(image, window), {16, 16});
    std::vector<std::byte> out;
    for (std::size_t c = 0; c < 3; ++c)
      for (std::size_t p = 0; p < 256; ++p) out.push_back(std::byte{small.pixels[3 * p + c]});
    return out;
  };
  const DecodedImage wide = test_images::waves(30, 90, 1), high = test_images::waves(90, 30, 1);
  write_file(folder / "only/a.png", test_images::png(wide));
  CHECK(open_images(folder.path(), options)->read({1, 1}, {}).matrices[0] == squeezed(wide, {0, 25, 30, 40}));
  write_file(folder / "only/a.png", test_images::png(high));
  CHECK(open_images(folder.path(), options)->read({1, 1}, {}).matrices[0] == squeezed(high, {25, 0, 40, 30}));
}
