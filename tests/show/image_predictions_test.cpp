#include "convnet/show/image_predictions.h"

#include <algorithm>

#include "convnet/show/picture_canvas.h"
#include "convnet/show/svg.h"
#include "tests/catch.h"

using namespace convnet;

namespace {

/// Three images of three classes: right, wrong, and without a label.
ImagePredictions three_images() {
  ImagePredictions p;
  p.classes = {"cat", "dog, \"big\"", "<owl>"};
  p.images = {{6, 0, 1}, {6, 1, 0}, {7, 0, -1}};
  p.probabilities = {0.25F, 0.5F, 0.25F, 0.125F, 0.125F, 0.75F, 1, 0, 0};
  return p;
}

}  // namespace

TEST_CASE("the best classes come first, of equal ones the first") {
  const ImagePredictions p = three_images();
  CHECK(p.best(0, 5) == std::vector<std::size_t>{1, 0, 2});
  CHECK(p.best(1, 2) == std::vector<std::size_t>{2, 0});
  CHECK(p.confusion().images() == 2);
  CHECK(p.confusion().count(0, 2) == 1);
  CHECK(p.confusion().count(1, 1) == 1);
}

TEST_CASE("images are chosen by the seed, none twice") {
  ImagePredictions p;
  p.classes = {"a", "b"};
  for (int i = 0; i < 100; ++i) {
    p.images.push_back({1, i, i % 4 == 0 ? 1 : 0});  // class a is the best of all
    p.probabilities.insert(p.probabilities.end(), {0.75F, 0.25F});
  }
  const std::vector<std::size_t> chosen = choose_images(p, 8, false, 1);
  CHECK(chosen.size() == 8);
  CHECK(choose_images(p, 8, false, 1) == chosen);
  CHECK(choose_images(p, 8, false, 2) != chosen);
  std::vector<std::size_t> all = choose_images(p, 1000, false, 1);
  std::sort(all.begin(), all.end());
  REQUIRE(all.size() == 100);
  for (std::size_t i = 0; i < all.size(); ++i) CHECK(all[i] == i);
  const std::vector<std::size_t> wrong = choose_images(p, 1000, true, 1);
  CHECK(wrong.size() == 25);
  for (const std::size_t i : wrong) CHECK(i % 4 == 0);
}

TEST_CASE("predictions become a table that spreadsheets read") {
  CHECK(predictions_csv(three_images()) ==
        "batch,image,label,class 1,probability 1,class 2,probability 2,class 3,probability 3\n"
        "6,0,\"dog, \"\"big\"\"\",\"dog, \"\"big\"\"\",0.500000,cat,0.250000,<owl>,0.250000\n"
        "6,1,cat,<owl>,0.750000,cat,0.125000,\"dog, \"\"big\"\"\",0.125000\n"
        "7,0,,cat,1.000000,\"dog, \"\"big\"\"\",0.000000,<owl>,0.000000\n");
}

TEST_CASE("an image stands above its label and bars as long as the probabilities") {
  const ImagePredictions p = three_images();
  constexpr Color kRed = {255, 0, 0};
  const Size size = predictions_size(2);
  PictureCanvas canvas(size.width, size.height);
  draw_predictions(canvas, p, {0, 1}, {Picture(2, 2, kRed), Picture(4, 2, kRed)});
  const Picture& picture = canvas.picture();
  const auto row_of = [&](int y, Color color) {
    int count = 0;
    for (int x = 0; x < picture.width() / 2; ++x) count += picture.at(x, y) == color ? 1 : 0;
    return count;
  };
  CHECK(row_of(20, kRed) == 128);
  CHECK(row_of(16 + 127, kRed) == 128);
  CHECK(row_of(16 + 128, kRed) == 0);
  // At the top of the first two bars, above their text: half of 214 pixels, and a quarter.
  const Color right = picture.at(17, 16 + 128 + 31);
  const Color wrong = picture.at(17, 16 + 128 + 31 + 22);
  CHECK(right.g > right.r);
  CHECK(wrong.r > wrong.g);
  CHECK(row_of(16 + 128 + 31, right) == 107);
  CHECK(row_of(16 + 128 + 31 + 22, wrong) == 53);
  // The second image is wide: it keeps its form.
  CHECK(picture.at(246 + 107, 16 + 64) == kRed);
  CHECK(picture.at(246 + 107, 16 + 20) == kWhite);

  SvgCanvas svg(size.width, size.height, "");
  draw_predictions(svg, p, {2}, {Picture(2, 2)});
  CHECK(svg.str().find(">no label<") != std::string::npos);
  CHECK(svg.str().find("&lt;owl&gt;") != std::string::npos);
}

TEST_CASE("a confusion matrix has numbers and errors, and shades of its rows") {
  Confusion confusion({"cat", "dog"});
  for (int i = 0; i < 9; ++i) confusion.add(0, 0);
  confusion.add(0, 1);
  confusion.add(1, 1);
  const std::vector<std::string> names = {"cat", "dog"};
  const Size size = confusion_size(names);
  SvgCanvas svg(size.width, size.height, "");
  draw_confusion(svg, confusion, names);
  for (const char* text : {">9<", ">1<", ">10.0 %<", ">0.0 %<", ">cat 0<", ">dog 1<", ">taken for<"})
    CHECK(svg.str().find(text) != std::string::npos);
  // The whole of a row has the full colour.
  CHECK(svg.str().find("fill=\"" + css_color(palette::train) + "\"") != std::string::npos);

  // Many classes are pixels.
  std::vector<std::string> many;
  for (int c = 0; c < 200; ++c) many.push_back(std::to_string(c));
  Confusion large(many);
  large.add(150, 20);
  const Size large_size = confusion_size(many);
  PictureCanvas canvas(large_size.width, large_size.height);
  draw_confusion(canvas, large, many);
  CHECK(canvas.picture().at(8 + 20 * 2, 8 + 150 * 2) == palette::test);
  CHECK(canvas.picture().at(8 + 21 * 2, 8 + 150 * 2) != palette::test);
}
