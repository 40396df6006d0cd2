// Curves over axes.
#pragma once

#include "convnet/show/canvas.h"

namespace convnet {

struct Series {
  std::string name;
  Color color;
  std::vector<Point> points;        ///< values, by x
  std::vector<std::string> labels;  ///< text for each point, shown under the pointer: "epoch 3, batch 2"
};

/// Some series, at least one with a point. Values are finite, none beyond 1e100.
struct Chart {
  std::string title, x_label;
  std::vector<Series> series;
  bool logarithmic = false;  ///< the y axis; values that are not positive stand at its lower end
};

/// The range of values on an axis, and the positions of its numbers.
struct Axis {
  double low = 0, high = 1, step = 1;
  std::vector<double> ticks;
  bool logarithmic = false;  ///< low, high and ticks are decimal logarithms
  std::string label(double tick) const;
};
/// Makes an axis that begins at 0 if that costs little, with about `ticks` numbers. `tight`: ends at `high`,
/// else at a tick.
Axis make_axis(double low, double high, int ticks, bool tight);

/// Makes a logarithmic axis from the smallest to the largest positive number.
Axis make_log_axis(double low, double high);

/// The positions of a chart's values in a drawing.
struct ChartFrame {
  Box plot;  ///< inside the axes
  Axis x, y;
  Point place(Point value) const;
};
ChartFrame frame_of(const Chart& chart, double width, double height);

void draw_chart(Canvas& canvas, const Chart& chart, double width, double height);

}  // namespace convnet
