#include "convnet/show/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "convnet/show/font.h"

namespace convnet {
namespace {

constexpr double kTitleSize = 17, kLabelSize = 13;
constexpr double kTop = 54, kBottom = 52, kRight = 28;

/// Both ends of what the points have in one direction.
std::pair<double, double> extent(const Chart& chart, double Point::*direction) {
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  for (const Series& s : chart.series) {
    for (const Point& p : s.points) {
      low = std::min(low, p.*direction);
      high = std::max(high, p.*direction);
    }
  }
  return {low, high};
}

/// The smallest positive value; a fraction of 1 if there is none.
double least_positive(const Chart& chart) {
  double least = std::numeric_limits<double>::infinity();
  for (const Series& s : chart.series) {
    for (const Point& p : s.points)
      if (p.y > 0) least = std::min(least, p.y);
  }
  return std::isfinite(least) ? least : 0.1;
}

constexpr double kSwatch = 22, kSwatchGap = 8, kNameGap = 18, kRow = 22;  // of the legend

/// A series' name and colour in the legend.
struct LegendEntry {
  std::string text;
  Color color;
  double width() const { return kSwatch + kSwatchGap + text_width(text, kLabelSize); }
};

/// Returns the names of the series in rows that are as long as the drawing allows; a single row is short
/// enough to stand beside the title.
std::vector<std::vector<LegendEntry>> legend_rows(const Chart& chart, double width) {
  const double most = width - 2 * kRight;
  std::vector<std::vector<LegendEntry>> rows(1);
  double used = 0;
  for (const Series& s : chart.series) {
    LegendEntry entry{fitted(s.legend(), kLabelSize, most / 2), s.color};
    if (!rows.back().empty() && used + entry.width() > most) {
      rows.emplace_back();
      used = 0;
    }
    used += entry.width() + kNameGap;
    rows.back().push_back(std::move(entry));
  }
  // A row that leaves no room for the title is followed by an empty one: the legend is below the title.
  if (rows.size() == 1 && used > 0.7 * most) rows.emplace_back();
  return rows;
}

void draw_entry(Canvas& canvas, const LegendEntry& entry, Point at) {
  canvas.line({{at.x, at.y - 4}, {at.x + kSwatch, at.y - 4}}, entry.color, 2.5);
  canvas.text({at.x + kSwatch + kSwatchGap, at.y}, entry.text, palette::ink, kLabelSize, Anchor::start);
}

/// Draws the legend at the right of the title's line, which ends at `right`, or in rows below. Returns where
/// the title must end.
double draw_legend(Canvas& canvas, const Chart& chart, double right, double width) {
  constexpr double kTitleLine = 28;
  const std::vector<std::vector<LegendEntry>> rows = legend_rows(chart, width);
  if (rows.size() == 1) {
    double x = right;
    for (auto entry = rows[0].rbegin(); entry != rows[0].rend(); ++entry) {
      x -= entry->width();
      draw_entry(canvas, *entry, {x, kTitleLine});
      x -= kNameGap;
    }
    return x;
  }
  double y = kTitleLine;
  for (const std::vector<LegendEntry>& row : rows) {
    y += kRow;
    double x = kRight;
    for (const LegendEntry& entry : row) {
      draw_entry(canvas, entry, {x, y});
      x += entry.width() + kNameGap;
    }
  }
  return right;
}

}  // namespace

std::string Axis::label(double tick) const {
  if (logarithmic) return fmt::format("{:.3g}", std::pow(10, tick));
  if (std::abs(tick) < step / 2) return "0";
  if (step >= 1e5 || step < 1e-4) return fmt::format("{:.4g}", tick);
  return fmt::format("{:.{}f}", tick, std::max(0, -static_cast<int>(std::floor(std::log10(step) + 1e-9))));
}

Axis make_axis(double low, double high, int ticks, bool tight) {
  Axis axis;
  if (low >= 0 && low <= 0.6 * high) low = 0;
  if (high <= 0 && high >= 0.6 * low) high = 0;
  if (high - low <= 1e-9 * std::max(std::abs(low), std::abs(high))) {
    // All values are the same as far as an axis can show; they are drawn in the middle.
    const double around = low == 0 ? 1 : std::abs(low);
    low -= around;
    high += around;
  }
  const double rough = (high - low) / ticks;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  axis.step = 10 * power;
  for (const double nice : {5, 2, 1}) {
    if (nice * power >= rough * 0.999) axis.step = nice * power;
  }
  const double first = std::floor(low / axis.step + 1e-9);
  const double last = std::ceil(high / axis.step - 1e-9);
  axis.low = tight ? low : first * axis.step;
  axis.high = tight ? high : last * axis.step;
  // Ticks are counted, not added up, because steps may be small relative to the values.
  for (int i = 0; i <= static_cast<int>(last - first); ++i) {
    const double tick = (first + i) * axis.step;
    if (tick >= axis.low - axis.step * 1e-6 && tick <= axis.high + axis.step * 1e-6)
      axis.ticks.push_back(tick);
  }
  return axis;
}

Axis make_log_axis(double low, double high) {
  constexpr double kManyDecades = 3;
  Axis axis;
  axis.logarithmic = true;
  axis.low = std::log10(low);
  axis.high = std::max(std::log10(high), axis.low + 0.3);
  const bool many = axis.high - axis.low > kManyDecades;
  for (int decade = static_cast<int>(std::floor(axis.low)); decade <= static_cast<int>(axis.high); ++decade) {
    for (const double nice : {1.0, 2.0, 5.0}) {
      const double tick = decade + std::log10(nice);
      if (tick >= axis.low - 1e-9 && tick <= axis.high + 1e-9 && (nice == 1 || !many))
        axis.ticks.push_back(tick);
    }
  }
  return axis;
}

Point ChartFrame::place(Point value) const {
  if (y.logarithmic) value.y = value.y > 0 ? std::max(std::log10(value.y), y.low) : y.low;
  return {plot.x + (value.x - x.low) / (x.high - x.low) * plot.width,
          plot.bottom() - (value.y - y.low) / (y.high - y.low) * plot.height};
}

double legend_height(const Chart& chart, double width) {
  const std::vector<std::vector<LegendEntry>> rows = legend_rows(chart, width);
  return rows.size() == 1 ? 0 : kRow * static_cast<double>(rows.size());
}

ChartFrame frame_of(const Chart& chart, double width, double height) {
  ChartFrame frame;
  const auto [left, right] = extent(chart, &Point::x);
  const auto [low, high] = extent(chart, &Point::y);
  frame.x = make_axis(left, right, 10, true);
  frame.y = chart.logarithmic ? make_log_axis(least_positive(chart), high) : make_axis(low, high, 6, false);
  double label = 0;
  for (const double tick : frame.y.ticks)
    label = std::max(label, text_width(frame.y.label(tick), kLabelSize));
  const double margin = label + 24;
  const double top = kTop + legend_height(chart, width);
  frame.plot = {margin, top, width - margin - kRight, height - top - kBottom};
  return frame;
}

std::string chart_text(const Chart& chart) {
  std::string text = chart.title;
  for (const Series& s : chart.series) text += (&s == chart.series.data() ? ": " : ", ") + s.legend();
  return text;
}

void draw_chart(Canvas& canvas, const Chart& chart, double width, double height) {
  const ChartFrame frame = frame_of(chart, width, height);
  const Box& plot = frame.plot;
  const double legend = draw_legend(canvas, chart, plot.right(), width);
  canvas.text({plot.x, 29}, fitted(chart.title, kTitleSize, legend - plot.x), palette::ink, kTitleSize,
              Anchor::start);
  for (const double tick : frame.y.ticks) {
    const double y = frame.place({frame.x.low, frame.y.logarithmic ? std::pow(10, tick) : tick}).y;
    canvas.line({{plot.x, y}, {plot.right(), y}}, palette::rule, 1);
    canvas.text({plot.x - 8, y + 4.5}, frame.y.label(tick), palette::faint, kLabelSize, Anchor::end);
  }
  for (const double tick : frame.x.ticks) {
    const double x = frame.place({tick, 1}).x;
    canvas.line({{x, plot.bottom()}, {x, plot.bottom() + 5}}, palette::faint, 1);
    canvas.text({x, plot.bottom() + 20}, frame.x.label(tick), palette::faint, kLabelSize, Anchor::middle);
  }
  canvas.line({{plot.x, plot.bottom()}, {plot.right(), plot.bottom()}}, palette::faint, 1);
  canvas.text({plot.x + plot.width / 2, plot.bottom() + 42}, chart.x_label, palette::faint, kLabelSize,
              Anchor::middle);
  for (const Series& s : chart.series) {
    std::vector<Point> places;
    for (const Point& p : s.points) places.push_back(frame.place(p));
    if (places.size() > 1) canvas.line(places, s.color, 2);
    // Few enough to be told apart.
    if (static_cast<double>(places.size()) * 8 > plot.width) continue;
    for (const Point& p : places) canvas.dot(p, 3, s.color);
  }
}

}  // namespace convnet
