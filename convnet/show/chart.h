// Curves over axes.
#pragma once

#include "convnet/show/canvas.h"

namespace convnet {

/// A curve of a chart.
struct Series {
  std::string name;
  Color color;
  std::vector<Point> points;        ///< values in the chart's units, by ascending x
  std::vector<std::string> labels;  ///< a text for each point, shown under the pointer: "epoch 3, batch 2"
  std::string note = {};            ///< follows the name in the legend: "0.23", "and 3 more"; or ""

  std::string legend() const { return note.empty() ? name : name + " " + note; }
};

/// A chart of several series, at least one of which has a point. All values are finite and below 1e100.
struct Chart {
  std::string title, x_label;
  std::vector<Series> series;
  std::string unit = {};     ///< follows values: " %", or ""
  bool logarithmic = false;  ///< the y axis is logarithmic; values that are not positive are at its lower end
};

/// The range of values on an axis, and the positions of its numbers.
struct Axis {
  double low = 0, high = 1, step = 1;
  std::vector<double> ticks;
  bool logarithmic = false;  ///< low, high and ticks are decimal logarithms
  std::string label(double tick) const;
};
/// Makes an axis with about `ticks` numbers. It begins at 0 if that leaves little room unused. It ends at
/// `high` if it is `tight`, else at a tick.
Axis make_axis(double low, double high, int ticks, bool tight);

/// Makes a logarithmic axis from the smallest to the largest positive number.
Axis make_log_axis(double low, double high);

/// Maps the values of a chart to positions in a drawing.
struct ChartFrame {
  Box plot;  ///< inside the axes
  Axis x, y;
  Point place(Point value) const;
};
/// Returns the height of the rows below the title that show the names of the series, in a drawing of this
/// width: 0 if they fit beside it.
double legend_height(const Chart& chart, double width);

/// Returns where draw_chart() draws the values of a chart, in a drawing of this size.
ChartFrame frame_of(const Chart& chart, double width, double height);

/// Returns a text in place of a chart, for who cannot see it: its title, and its series with their last
/// values.
std::string chart_text(const Chart& chart);

/// Draws a chart with its title, legend and axes. It fills a drawing of this size.
void draw_chart(Canvas& canvas, const Chart& chart, double width, double height);

}  // namespace convnet
