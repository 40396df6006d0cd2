#include "convnet/show/page_parts.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "convnet/show/svg.h"
#include "convnet/show/text.h"

namespace convnet {

const char* const kPageHead = R"(
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<style>
body { font: 15px/1.5 "DejaVu Sans", Verdana, sans-serif; color: #262b33; background: #fff; max-width: 980px; margin: 0 auto; padding: 24px; }
h1 { font-size: 24px; font-weight: 600; overflow-wrap: anywhere; }
h2 { font-size: 18px; font-weight: 600; margin: 36px 0 8px; border-bottom: 1px solid #e1e4e8; padding-bottom: 4px; }
svg { max-width: 100%; height: auto; display: block; font-family: inherit; margin: 12px 0; }
svg image, .filters { image-rendering: pixelated; }
.note { color: #6b7280; }
.pointing { display: none; }
.scripted .pointing { display: block; }
table { border-collapse: collapse; }
.lines td { white-space: pre-wrap; vertical-align: top; font-family: "DejaVu Sans Mono", Consolas, monospace; font-size: 12px; }
td, th { text-align: left; padding: 3px 16px 3px 0; font-weight: normal; vertical-align: middle; }
.summary td { overflow-wrap: anywhere; }
.lines td { min-width: 150px; overflow-wrap: anywhere; }
.names td { white-space: nowrap; }
th { color: #6b7280; white-space: nowrap; vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.bar { height: 8px; border-radius: 2px; margin: 2px 0; }
pre { overflow-x: auto; background: #f6f7f9; padding: 12px; font: 12px/1.45 "DejaVu Sans Mono", Consolas, monospace; }
figure { margin: 12px 0; }
.filters { max-width: 100%; }
.log { display: none; }
.logarithmic .log { display: block; }
.logarithmic .linear { display: none; }
button { font: inherit; color: inherit; background: none; border: 1px solid #9aa3af; border-radius: 4px; padding: 2px 10px; }
.wide { overflow-x: auto; }
.wide svg { max-width: none; }
.chart { overflow-x: auto; }
.chart svg { min-width: 720px; }
.cards { display: flex; flex-wrap: wrap; }
.cards svg { max-width: 25%; margin: 0; }
@media (max-width: 700px) {
  body { padding: 12px; }
  .cards svg { max-width: 50%; }
}
@media (prefers-color-scheme: dark) {
  body { color: #dfe3e8; background: #15181d; }
  h2 { border-color: #343a43; }
  .note, th { color: #9aa3af; }
  pre { background: #20242b; }
  svg:not(.inverted) [fill="#262b33"] { fill: #dfe3e8; }
  svg:not(.inverted) [fill="#6b7280"] { fill: #9aa3af; }
  svg:not(.inverted) [stroke="#6b7280"] { stroke: #9aa3af; }
  svg:not(.inverted) [stroke="#e1e4e8"] { stroke: #343a43; }
  svg:not(.inverted) [fill="#f2f4f6"] { fill: #272c34; }
  svg:not(.inverted) [fill="#a7d7b8"] { fill: #2d6b48; }
  svg:not(.inverted) [fill="#f6bea0"] { fill: #85492c; }
  .inverted { filter: invert(1) hue-rotate(180deg); }
}
#tip { position: absolute; display: none; pointer-events: none; background: #262b33; color: #fff; padding: 6px 10px; border-radius: 4px; font-size: 13px; white-space: pre; }
</style>
)";

// Shows the values that are nearest to the pointer.
const char* const kPageScript = R"(<div id="tip"></div>
<script>
const tip = document.getElementById('tip');
for (const svg of document.querySelectorAll('svg[data-chart]')) {
  const chart = JSON.parse(svg.dataset.chart), [left, top, width, height] = chart.plot, [low, high] = chart.x;
  const rule = document.createElementNS(svg.namespaceURI, 'line');
  rule.setAttribute('y1', top);
  rule.setAttribute('y2', top + height);
  svg.append(rule);
  const leave = () => { tip.style.display = 'none'; rule.removeAttribute('stroke'); };
  svg.addEventListener('pointerleave', leave);
  svg.addEventListener('pointermove', event => {
    const box = svg.getBoundingClientRect();
    const at = (event.clientX - box.left) * svg.viewBox.baseVal.width / box.width;
    if (at < left || at > left + width) return leave();
    const x = low + (at - left) / width * (high - low), lines = [];
    let place = 0;
    for (const series of chart.series) {
      let a = 0, b = series.points.length - 1;
      while (a < b) { const m = a + b >> 1; if (series.points[m][0] < x) a = m + 1; else b = m; }
      if (a > 0 && x - series.points[a - 1][0] < series.points[a][0] - x) --a;
      const [px, value, label] = series.points[a];
      if (!lines.length) place = left + (px - low) / (high - low) * width;
      lines.push(series.name + ' ' + value.toPrecision(4) + chart.unit + '  (' + label + ')');
    }
    rule.setAttribute('x1', place);
    rule.setAttribute('x2', place);
    rule.setAttribute('stroke', '#6b7280');
    tip.textContent = lines.join('\n');
    tip.style.display = 'block';
    const flip = event.clientX + tip.offsetWidth + 24 > document.documentElement.clientWidth;
    tip.style.left = event.pageX + (flip ? -tip.offsetWidth - 12 : 12) + 'px';
    tip.style.top = event.pageY + 12 + 'px';
  });
}
for (const button of document.querySelectorAll('button.scale'))
  button.addEventListener('click', () => {
    const log = document.body.classList.toggle('logarithmic');
    for (const each of document.querySelectorAll('button.scale')) each.textContent = log ? 'linear scale' : 'logarithmic scale';
  });
document.body.classList.add('scripted');
</script>
)";

std::string section(const std::string& title, const std::string& body) {
  return "<h2>" + html_escape(title) + "</h2>\n" + body;
}

std::string note(const std::string& text, const char* classes) {
  return fmt::format("<p class=\"{}\">{}</p>\n", classes, html_escape(text));
}

std::string wide_table(const std::string& rows, const char* classes) {
  return fmt::format("<div class=\"wide\"><table class=\"{}\">\n{}</table></div>\n", classes, rows);
}

namespace {

constexpr double kChartWidth = 860, kChartHeight = 360;

/// A chart with what the script needs to say its values.
std::string chart_svg(const Chart& chart) {
  const double height = kChartHeight + legend_height(chart, kChartWidth);
  const ChartFrame frame = frame_of(chart, kChartWidth, height);
  nlohmann::json data = {{"plot", {frame.plot.x, frame.plot.y, frame.plot.width, frame.plot.height}},
                         {"x", {frame.x.low, frame.x.high}},
                         {"unit", chart.unit},
                         {"series", nlohmann::json::array()}};
  for (const Series& s : chart.series) {
    nlohmann::json points = nlohmann::json::array();
    for (std::size_t i = 0; i < s.points.size(); ++i)
      points.push_back({s.points[i].x, s.points[i].y, s.labels[i]});
    data["series"].push_back({{"name", s.name}, {"points", points}});
  }
  // A name of a run may hold bytes that are no UTF-8.
  const std::string text = data.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  SvgCanvas canvas(kChartWidth, height, chart_text(chart), "data-chart=\"" + html_escape(text) + "\"");
  draw_chart(canvas, chart, kChartWidth, height);
  return canvas.str();
}

}  // namespace

std::string chart_element(Chart chart) {
  const std::string linear = chart_svg(chart);
  chart.logarithmic = true;
  return "<div class=\"linear chart\">" + linear + "</div>\n<div class=\"log chart\">" + chart_svg(chart) +
         "</div>\n";
}

}  // namespace convnet
