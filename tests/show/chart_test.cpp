#include "convnet/show/chart.h"

#include "convnet/show/picture_canvas.h"
#include "convnet/show/svg.h"
#include "tests/catch.h"

using namespace convnet;

namespace {

Chart two_curves() {
  return {"logprob: top-1 error",
          "epochs",
          {{"training", palette::train, {{0.5, 0.4}, {1, 0.2}, {1.5, 0.1}}, {"a", "b", "c"}},
           {"test", palette::test, {{1, 0.3}}, {"t"}}}};
}

}  // namespace

TEST_CASE("axes have round numbers around what they show") {
  const Axis error = make_axis(0.03, 0.47, 6, false);
  CHECK(error.low == 0);
  CHECK(error.high == Approx(0.5));
  CHECK(error.step == Approx(0.1));
  REQUIRE(error.ticks.size() == 6);
  CHECK(error.label(error.ticks[3]) == "0.3");
  CHECK(error.label(error.ticks[0]) == "0");

  const Axis narrow = make_axis(2.31, 2.36, 6, false);  // far from 0: it is left out
  CHECK(narrow.low == Approx(2.31));
  CHECK(narrow.label(narrow.ticks[1]) == "2.32");

  const Axis epochs = make_axis(0.2, 10, 10, true);
  CHECK(epochs.low == 0);
  CHECK(epochs.high == 10);
  CHECK(epochs.ticks.size() == 11);
  CHECK(epochs.label(epochs.ticks[10]) == "10");

  const Axis large = make_axis(0, 3.5e9, 6, false);
  CHECK(large.label(large.ticks.back()) == "4e+09");
  const Axis negative = make_axis(-7, -1, 6, false);
  CHECK(negative.low == -8);
  CHECK(negative.high == 0);
}

TEST_CASE("an axis can show a single value, and values that hardly differ") {
  for (const double value : {0.0, 0.25, -3.0, 1e99, -1e99, 1e-300}) {
    const Axis axis = make_axis(value, value, 6, false);
    CHECK(axis.low < axis.high);
    CHECK(axis.low <= value);
    CHECK(axis.high >= value);
    CHECK(axis.ticks.size() >= 2);
    CHECK(axis.ticks.size() < 20);
  }
  const Axis close = make_axis(1, 1 + 1e-15, 6, false);
  CHECK(close.high - close.low >= 1);
}

TEST_CASE("points are drawn where the axes say") {
  constexpr int kWidth = 600, kHeight = 300;
  const Chart chart = two_curves();
  const ChartFrame frame = frame_of(chart, kWidth, kHeight);
  CHECK(frame.place({0, 0}) == Point{frame.plot.x, frame.plot.bottom()});
  CHECK(frame.place({1.5, 0.4}).x == Approx(frame.plot.right()));
  CHECK(frame.place({1.5, 0.4}).y == Approx(frame.plot.y));
  CHECK(frame.plot.right() < kWidth);

  PictureCanvas canvas(kWidth, kHeight);
  draw_chart(canvas, chart, kWidth, kHeight);
  for (const Series& s : chart.series) {
    for (const Point& p : s.points) {
      const Point at = frame.place(p);
      CHECK(canvas.picture().at(static_cast<int>(at.x), static_cast<int>(at.y)) == s.color);
    }
  }
  // Half-way between two points of the curve.
  const Point a = frame.place(chart.series[0].points[1]);
  const Point b = frame.place(chart.series[0].points[2]);
  CHECK(canvas.picture().at(static_cast<int>((a.x + b.x) / 2), static_cast<int>((a.y + b.y) / 2)) ==
        palette::train);
  // Nothing is cut off at the edges.
  for (int y = 0; y < kHeight; ++y) {
    CHECK(canvas.picture().at(0, y) == kWhite);
    CHECK(canvas.picture().at(kWidth - 1, y) == kWhite);
  }

  SvgCanvas svg(kWidth, kHeight, chart_text(chart));
  draw_chart(svg, chart, kWidth, kHeight);
  for (const char* text : {">logprob: top-1 error<", ">epochs<", ">training<", ">test<", ">0.4<", ">1.0<"})
    CHECK(svg.str().find(text) != std::string::npos);
}

TEST_CASE("a long title gives way to the legend") {
  Chart chart = two_curves();
  chart.title = std::string(500, 'M');
  SvgCanvas svg(600, 300, "");
  draw_chart(svg, chart, 600, 300);
  CHECK(svg.str().find("M\xE2\x80\xA6<") != std::string::npos);
  CHECK(svg.str().find(std::string(60, 'M')) == std::string::npos);
}
TEST_CASE("names that do not fit beside the title stand in rows below it") {
  Chart chart = two_curves();
  CHECK(legend_height(chart, 600) == 0);
  const double top = frame_of(chart, 600, 300).plot.y;
  chart.series.resize(1);
  chart.series[0].name = "runs/wrn-16-4 of a long name";
  chart.series.resize(32, chart.series[0]);
  const double rows = legend_height(chart, 600);
  CHECK(rows > 200);
  const ChartFrame frame = frame_of(chart, 600, 300 + rows);
  CHECK(frame.plot.y == Approx(top + rows));
  CHECK(frame.plot.bottom() - frame.plot.y ==
        Approx(300 - top - (300 - frame_of(two_curves(), 600, 300).plot.bottom())));
  // All names are inside the drawing.
  SvgCanvas svg(600, static_cast<int>(300 + rows), "");
  draw_chart(svg, chart, 600, 300 + rows);
  const std::string text = svg.str();
  int names = 0;
  for (std::size_t at = text.find(">runs/"); at != std::string::npos; at = text.find(">runs/", at + 1)) {
    const std::size_t begin = text.rfind("<text x=\"", at);
    REQUIRE(begin != std::string::npos);
    const double x = std::stod(text.substr(begin + 9));
    CHECK(x > 0);
    CHECK(x < 400);
    ++names;
  }
  CHECK(names == 32);
}

TEST_CASE("logarithmic axes have decades, and hold what is not positive at their end") {
  const Axis wide = make_log_axis(0.002, 300);
  std::vector<std::string> labels;
  for (const double tick : wide.ticks) labels.push_back(wide.label(tick));
  CHECK(labels == std::vector<std::string>{"0.01", "0.1", "1", "10", "100"});
  labels.clear();
  const Axis narrow = make_log_axis(0.04, 0.6);
  for (const double tick : narrow.ticks) labels.push_back(narrow.label(tick));
  CHECK(labels == std::vector<std::string>{"0.05", "0.1", "0.2", "0.5"});
  const Chart chart{
      "errors", "epochs", {{"a", palette::train, {{0, 0.1}, {1, 0.01}, {2, 0}}, {"", "", ""}}}, "", true};
  const ChartFrame frame = frame_of(chart, 800, 400);
  CHECK(frame.place({0, 0.1}).y == Approx(frame.plot.y));
  CHECK(frame.place({1, 0.01}).y == Approx(frame.plot.bottom()));
  CHECK(frame.place({2, 0}).y == Approx(frame.plot.bottom()));
  CHECK(frame.place({1, std::sqrt(0.001)}).y == Approx(frame.plot.y + frame.plot.height / 2));
}
