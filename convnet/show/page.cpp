#include "convnet/show/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "convnet/base/error.h"
#include "convnet/graph/whole_layers.h"
#include "convnet/net/costs.h"
#include "convnet/show/cam.h"
#include "convnet/show/curves.h"
#include "convnet/show/filters.h"
#include "convnet/show/net_drawing.h"
#include "convnet/show/score_tables.h"
#include "convnet/show/svg.h"
#include "convnet/show/text.h"

namespace convnet {
namespace {

constexpr double kChartWidth = 860, kChartHeight = 360;
constexpr std::size_t kImages = 8;

/// Follows kPageBegins.
constexpr const char* kHead = R"(
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
constexpr const char* kScript = R"(<div id="tip"></div>
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

std::string note(const std::string& text, const char* classes = "note") {
  return fmt::format("<p class=\"{}\">{}</p>\n", classes, html_escape(text));
}

std::string summary(const Run& run) {
  const Position& at = run.checkpoint.state.position;
  std::string position = fmt::format("epoch {}, batch {}", at.epoch, at.batch);
  if (at.epoch == 0) position = "not trained yet";
  if (at.minibatches > 0) position += fmt::format(", {} minibatches of it", at.minibatches);
  std::string rows;
  const auto row = [&](const std::string& name, const std::string& value) {
    rows += fmt::format("<tr><th>{}</th><td>{}</td></tr>\n", html_escape(name), html_escape(value));
  };
  row("checkpoint", run.checkpoint.file);
  row("position", position);
  row("layers", run.checkpoint.definition_path);
  row("parameters", run.checkpoint.parameters_path);
  std::string options;
  for (const auto& [key, text] : run.checkpoint.options) {
    if (key != "layer-def" && key != "layer-params")
      options += (options.empty() ? "--" : " --") + key + " " + text;
  }
  row("options", options);
  return "<table class=\"summary\">\n" + rows + "</table>\n";
}

/// A table, which can be moved where it is wider than the page.
std::string wide_table(const std::string& rows, const char* classes) {
  return fmt::format("<div class=\"wide\"><table class=\"{}\">\n{}</table></div>\n", classes, rows);
}

/// A chart with what the script needs to say its values.
std::string chart_svg(const Chart& chart) {
  const ChartFrame frame = frame_of(chart, kChartWidth, kChartHeight);
  nlohmann::json data = {{"plot", {frame.plot.x, frame.plot.y, frame.plot.width, frame.plot.height}},
                         {"x", {frame.x.low, frame.x.high}},
                         {"unit", chart.unit},
                         {"series", nlohmann::json::array()}};
  for (const Series& s : chart.series) {
    nlohmann::json points = nlohmann::json::array();
    for (std::size_t i = 0; i < s.points.size(); ++i)
      points.push_back({s.points[i].x, s.points[i].y, s.labels[i]});
    data["series"].push_back({{"name", s.name.substr(0, s.name.find(' '))}, {"points", points}});
  }
  SvgCanvas canvas(kChartWidth, kChartHeight, chart_text(chart),
                   "data-chart=\"" + html_escape(data.dump()) + "\"");
  draw_chart(canvas, chart, kChartWidth, kChartHeight);
  return canvas.str();
}

/// A chart on both scales, of which the page shows one.
std::string chart_element(Chart chart) {
  const std::string linear = chart_svg(chart);
  chart.logarithmic = true;
  return "<div class=\"linear chart\">" + linear + "</div>\n<div class=\"log chart\">" + chart_svg(chart) +
         "</div>\n";
}

constexpr const char* kScaleButton =
    "<p class=\"pointing\"><button class=\"scale\">logarithmic scale</button></p>\n";

/// Returns --epochs of the run; the default if the checkpoint does not have it.
int epochs_of(const Run& run) {
  int epochs = 50000;
  if (const auto given = run.checkpoint.options.find("epochs"); given != run.checkpoint.options.end())
    std::from_chars(given->second.data(), given->second.data() + given->second.size(), epochs);
  return std::max(epochs, 1);
}

/// Returns --rate-factor of the run; 1 if the checkpoint does not have it.
double rate_factor_of(const Run& run) {
  const auto given = run.checkpoint.options.find("rate-factor");
  if (given == run.checkpoint.options.end()) return 1;
  const std::optional<double> factor = to_number<double>(given->second);
  return factor && *factor > 0 && *factor <= 1e9 ? *factor : 1;  // what the option allows
}

std::string curves(const Run& run, int smooth) {
  if (run.checkpoint.state.history.empty()) return note("There is no history yet.");
  std::string body = note("Point at a curve for its values.", "note pointing") + kScaleButton;
  for (const Node& node : run.graph.nodes) {
    if (!node.is_cost() || node.is_child) continue;
    std::vector<std::string> drawn;
    const std::vector<std::string> names = node.layer->cost_names();
    // Precision and recall of every class would be too many.
    for (std::size_t i = 0; i < std::min<std::size_t>(names.size(), 3); ++i) {
      if (std::find(drawn.begin(), drawn.end(), names[i]) != drawn.end()) continue;  // top-1 as top-k
      drawn.push_back(names[i]);
      body += chart_element(
          cost_chart(run.checkpoint.state, run.graph, {node.name, i, smooth, run.options.data.train_range}));
    }
  }
  const Chart rates = rate_chart(run.checkpoint.state, run.graph, run.options.data.train_range,
                                 epochs_of(run), rate_factor_of(run));
  if (!rates.series.empty()) body += chart_element(rates);
  return body;
}

/// The commonest mistakes.
std::string mistakes(const Confusion& confusion, const std::vector<std::string>& classes) {
  struct Mistake {
    std::int64_t images, label, taken_for;
  };
  std::vector<Mistake> all;
  const auto count = static_cast<std::int64_t>(classes.size());
  std::vector<std::int64_t> totals(classes.size());
  for (std::int64_t label = 0; label < count; ++label) {
    for (std::int64_t taken_for = 0; taken_for < count; ++taken_for) {
      const std::int64_t images = confusion.count(label, taken_for);
      totals[static_cast<std::size_t>(label)] += images;
      if (images > 0 && label != taken_for) all.push_back({images, label, taken_for});
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Mistake& a, const Mistake& b) { return a.images > b.images; });
  std::string rows;
  for (std::size_t i = 0; i < std::min<std::size_t>(all.size(), 5); ++i) {
    const auto label = static_cast<std::size_t>(all[i].label);
    rows += fmt::format("<tr><td>{}</td><td>taken for {}</td><td class=\"number\">{} of {}</td></tr>\n",
                        html_escape(classes[label]),
                        html_escape(classes[static_cast<std::size_t>(all[i].taken_for)]), all[i].images,
                        totals[label]);
  }
  if (rows.empty()) return "";
  return wide_table("<tr><th>commonest mistakes</th><th></th><th></th></tr>\n" + rows, "names");
}

/// Says what a card with a prediction shows.
std::string prediction_text(const ImagePredictions& p, std::size_t image) {
  const std::int64_t label = p.images[image].label;
  std::string text = label >= 0 && label < std::ssize(p.classes)
                         ? "image of " + p.classes[static_cast<std::size_t>(label)]
                         : std::string("image without a label");
  constexpr std::size_t kFew = 2;
  for (const std::size_t cls : p.best(image, kFew))
    text += fmt::format(", {} {:.1f} %", p.classes[cls], 100 * p.probability(image, cls));
  return text;
}

/// Returns a drawing for each chosen image: as many stand beside each other as there is room for.
std::string cards(const ImagePredictions& p, const std::vector<std::size_t>& chosen,
                  const std::vector<Picture>& pictures) {
  const Size size = predictions_size(1);
  std::string body = "<div class=\"cards\">\n";
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    SvgCanvas canvas(size.width, size.height, prediction_text(p, chosen[i]));
    draw_predictions(canvas, p, {chosen[i]}, {pictures[i]});
    body += canvas.str();
  }
  return body + "</div>\n";
}

/// Returns the section with the pixels that spoke for the classes of the chosen images.
std::string reasons(const Run& run, const PagePredictions& tested, const std::vector<std::size_t>& chosen,
                    const std::vector<Picture>& pictures) {
  std::string body;
  try {
    const CamPictures drawn = cam_pictures(run, tested.softmax, *tested.predictions, chosen, pictures);
    body = note("The same images. Red and yellow pixels spoke for the most probable class (Grad-CAM), by " +
                drawn.maps + ".") +
           cards(*tested.predictions, chosen, drawn.pictures);
  } catch (const std::runtime_error& e) {  // InputError, RunError, DeviceError
    body = note(e.what());
  }
  return section("What spoke for the classes", body);
}

std::string predictions(const Run& run, const PagePredictions& tested) {
  if (!tested.predictions) return section("Predictions", note(tested.missing));
  const ImagePredictions& p = *tested.predictions;
  const std::vector<std::size_t> chosen =
      choose_images(p, kImages, tested.only_errors, run.options.step.seed);
  std::string body =
      note(tested.only_errors ? "Test images at random whose best class is wrong, with their true "
                                "label and the five best classes."
                              : "Test images at random, with their true label and the five best "
                                "classes; that of the label is green.");
  std::string because;
  if (chosen.empty()) {
    body = note("No test image's best class is wrong.");
  } else {
    const std::vector<Picture> pictures = pictures_of(run, p, chosen);
    body += cards(p, chosen, pictures);
    because = reasons(run, tested, chosen, pictures);
  }
  std::string html = section("Predictions", body) + because;

  const Confusion confusion = p.confusion();
  constexpr std::size_t kMostClasses = 2000;
  if (p.classes.size() > kMostClasses)
    return html +
           section("Confusion matrix", note(fmt::format("{} classes are too many to draw; --confusion of a "
                                                        "test writes the matrix to a file.",
                                                        p.classes.size())));
  const Size matrix = confusion_size(p.classes);
  SvgCanvas drawing(matrix.width, matrix.height,
                    fmt::format("confusion matrix of {} classes", p.classes.size()), "class=\"inverted\"");
  draw_confusion(drawing, confusion, p.classes);
  return html +
         section("Confusion matrix",
                 note(fmt::format(
                     "{} images of the test range, {}. Rows are true classes; the shade is the share "
                     "of the row.",
                     confusion.images(), run.options.data.test_range.str())) +
                     "<div class=\"wide\">" + drawing.str() + "</div>\n" + mistakes(confusion, p.classes));
}

/// Returns a section for each cost that compares tags or numbers.
std::string scores_of_targets(const Run& run, const PagePredictions& tested) {
  if (!tested.scores) return "";
  const std::string range = "Images of the test range, " + run.options.data.test_range.str();
  std::string html;
  for (const auto& [tagger, scores] : tested.scores->tagged())
    html += section("Tags (" + tagger.cost + ")",
                    note(fmt::format("{}. An image is taken to have a tag from a probability of {:g} on.",
                                     range, scores.threshold())) +
                        wide_table(tag_rows(scores), "names"));
  for (const auto& [regressor, scores] : tested.scores->numbered())
    html += section("Numbers (" + regressor.cost + ")",
                    note(range + ".") + wide_table(number_rows(scores), "names"));
  return html;
}

/// A layer's filters for one of its inputs, if they have an extent or are of the images themselves.
std::string filters_of(const Run& run, const Node& node, std::size_t input) {
  const LayerWeights weights = weights_of(run, node.layer_name, static_cast<int>(input));
  const Dims& dims = weights.values->dims;
  FilterStyle style;
  style.side = 900;
  // Transparent, because the page is light or dark.
  style.gaps = {255, 0, 254};
  if (dims.size() == 4 && dims[1] > 3) {  // deep layers: as many as tell something
    style.most_channels = 8;
    style.most_filters = 64;
    style.own_range = true;
  }
  if (dims.size() < 4 || dims.back() < 2) {
    const Node& below = run.graph.nodes[node.inputs[input]];
    const FeatureShape& shape = below.layer->output;
    if (below.role != LayerRole::data || shape.h < 2 || shape.h != shape.w) return "";
    style.channels = static_cast<int>(shape.c);
  }
  try {
    const FilterPicture drawn = draw_filters(*weights.values, style);
    return fmt::format(
        "<figure><figcaption>{}</figcaption>\n<img class=\"filters\" alt=\"{}\" src=\"{}\"></figure>\n",
        html_escape(weights.tensor + ": " + drawn.caption), html_escape("filters " + weights.tensor),
        data_uri(drawn.picture, style.gaps));
  } catch (const InputError& e) {
    return note(weights.tensor + " " + e.what());
  }
}

std::string filters(const Run& run) {
  std::string body;
  for (const Node* layer : whole_layers(run.graph)) {
    for (std::size_t input = 0; input < layer->layer->input_weights(); ++input)
      body += filters_of(run, *layer, input);
  }
  return body.empty() ? note("The net has no filters to draw.") : body;
}

std::string magnitude_table(const Run& run) {
  const std::vector<Magnitude> all = magnitudes(run);
  double largest = 0;
  for (const Magnitude& m : all) largest = std::max({largest, m.weights, m.updates});
  // Six powers of ten below the largest are the width of a bar.
  const auto bar = [&](double value, Color color) {
    const double share =
        value > 0 && largest > 0 ? std::clamp(1 + std::log10(value / largest) / 6, 0.0, 1.0) : 0;
    return fmt::format("<div class=\"bar\" style=\"width:{:.0f}px;background:{}\"></div>", 200 * share,
                       css_color(color));
  };
  std::string rows =
      "<tr><th>matrix</th><th>shape</th><th>mean |weight|</th><th>mean |update|</th><th>ratio</th>"
      "<th>both, logarithmic</th></tr>\n";
  for (const Magnitude& m : all)
    rows += fmt::format(
        "<tr><td>{}</td><td>{}</td><td class=\"number\">{:.2e}</td><td class=\"number\">{:.2e}</td>"
        "<td class=\"number\">{:.1e}</td><td>{}{}</td></tr>\n",
        html_escape(m.tensor), to_string(m.dims), m.weights, m.updates,
        m.weights > 0 ? m.updates / m.weights : 0.0, bar(m.weights, palette::train),
        bar(m.updates, palette::test));
  return wide_table(rows, "names");
}

std::string drawing(const Run& run) {
  const NetDrawing net(run.graph);
  SvgCanvas canvas(net.width(), net.height(), "the layers of the net, and which of them read which",
                   "class=\"net\"");
  net.draw(canvas);
  return "<div class=\"wide\">" + canvas.str() + "</div>\n";
}

std::string plan(const Run& run) {
  try {
    return "<pre>" + html_escape(plan_of(run)) + "</pre>\n";
  } catch (const std::runtime_error& e) {  // a net for another machine: InputError or DeviceError
    return note(e.what());
  }
}

/// Returns the test series of a run's chart, or the training series if there were no tests.
Series series_of(const Chart& chart, const std::string& name, Color color) {
  Series series = chart.series.back();
  series.name = name;
  series.color = color;
  return series;
}

/// The curves of several runs, a chart for each value of a cost that one of them has.
std::string curves_of(const std::vector<NamedRun>& runs) {
  std::string body = note(
                         "Test values over epochs; of runs without tests those of training. Point at a curve "
                         "for its values.",
                         "note") +
                     kScaleButton;
  std::map<std::pair<std::string, std::string>, Chart> charts;
  std::vector<std::pair<std::string, std::string>> order;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const Run& run = *runs[r].run;
    if (run.checkpoint.state.history.empty()) continue;
    for (const Node& node : run.graph.nodes) {
      if (!node.is_cost() || node.is_child) continue;
      const std::vector<std::string> names = node.layer->cost_names();
      for (std::size_t i = 0; i < std::min<std::size_t>(names.size(), 3); ++i) {
        if (repeats_earlier(names, i)) continue;
        const Chart one = cost_chart(run.checkpoint.state, run.graph,
                                     {node.name, i, runs[r].smooth, run.options.data.train_range});
        const auto [chart, fresh] =
            charts.try_emplace({node.name, names[i]}, Chart{one.title, one.x_label, {}, one.unit});
        if (fresh) order.push_back(chart->first);
        chart->second.series.push_back(
            series_of(one, runs[r].name, palette::series[r % std::size(palette::series)]));
      }
    }
  }
  for (const auto& key : order) body += chart_element(charts.at(key));
  return body;
}

std::string cell(const std::string& text) { return "<td>" + html_escape(text) + "</td>"; }

/// A row for each run: how far it is, its best and its last test.
std::string table_of(const std::vector<NamedRun>& runs) {
  std::string rows =
      "<tr><th>run</th><th>trained until</th><th>first cost</th><th>best test error</th><th>last test "
      "error</th></tr>\n";
  for (const NamedRun& named : runs) {
    const Run& run = *named.run;
    const Position& at = run.checkpoint.state.position;
    const auto cost = std::find_if(run.graph.nodes.begin(), run.graph.nodes.end(),
                                   [](const Node& node) { return node.is_cost() && !node.is_child; });
    std::string best = "none", last = "none", name = "none";
    if (cost != run.graph.nodes.end() && !run.checkpoint.state.history.empty()) {
      name = cost->name;
      const std::size_t value = std::min<std::size_t>(1, cost->layer->cost_names().size() - 1);
      const Chart chart = cost_chart(run.checkpoint.state, run.graph,
                                     {cost->name, value, named.smooth, run.options.data.train_range});
      for (const Series& series : chart.series) {
        if (!series.name.starts_with("test")) continue;
        const auto least = std::min_element(series.points.begin(), series.points.end(),
                                            [](const Point& a, const Point& b) { return a.y < b.y; });
        best = fmt::format("{:.4g}{} ({})", least->y, chart.unit,
                           series.labels[static_cast<std::size_t>(least - series.points.begin())]);
        last = fmt::format("{:.4g}{}", series.points.back().y, chart.unit);
      }
    }
    rows += "<tr>" + cell(named.name) + cell(fmt::format("epoch {}, batch {}", at.epoch, at.batch)) +
            cell(name) + cell(best) + cell(last) + "</tr>\n";
  }
  return wide_table(rows, "names");
}

/// The options that differ, and the lines of both files that not all runs have.
std::string differences(const std::vector<NamedRun>& runs) {
  std::set<std::string> keys;
  for (const NamedRun& named : runs)
    for (const auto& [key, text] : named.run->checkpoint.options) keys.insert(key);
  const auto option = [](const Run& run, const std::string& key) -> std::string {
    const auto found = run.checkpoint.options.find(key);
    return found == run.checkpoint.options.end() ? "" : found->second;
  };
  std::string rows;
  const auto row = [&](const std::string& name, const auto& value) {
    std::set<std::string> different;
    for (const NamedRun& named : runs) different.insert(value(*named.run));
    if (different.size() < 2) return;
    rows += "<tr><th>" + html_escape(name) + "</th>";
    for (const NamedRun& named : runs) rows += cell(value(*named.run));
    rows += "</tr>\n";
  };
  for (const std::string& key : keys) {
    if (key != "save-file" && key != "save-path")
      row("--" + key, [&](const Run& run) { return option(run, key); });
  }
  const auto lines_not_shared = [&](std::string Checkpoint::*text) {
    std::map<std::string, std::set<const Run*>> having;
    const auto for_lines = [text](const Run& run, const auto& use) {
      const std::string& all = run.checkpoint.*text;
      for (std::size_t at = 0; at < all.size();) {
        const std::size_t end = std::min(all.find('\n', at), all.size());
        use(all.substr(at, end - at));
        at = end + 1;
      }
    };
    for (const NamedRun& named : runs)
      for_lines(*named.run, [&](const std::string& line) { having[line].insert(named.run); });
    return [&runs, for_lines, having](const Run& run) {
      constexpr std::size_t kMost = 12;
      std::string lines;
      std::size_t count = 0;
      for_lines(run, [&](const std::string& line) {
        if (line.empty() || having.at(line).size() == runs.size()) return;
        if (++count <= kMost) lines += (lines.empty() ? "" : "\n") + line;
      });
      return count > kMost ? lines + fmt::format("\nand {} more lines", count - kMost) : lines;
    };
  };
  row("layers", lines_not_shared(&Checkpoint::definition_text));
  row("parameters", lines_not_shared(&Checkpoint::parameters_text));
  if (rows.empty()) return note("The runs have the same options and files.");
  std::string head = "<tr><th></th>";
  for (const NamedRun& named : runs) head += "<th>" + html_escape(named.name) + "</th>";
  return wide_table(head + "</tr>\n" + rows, "lines");
}

}  // namespace

std::string html_page(const Run& run, const PagePredictions& tested, int smooth) {
  std::string html = std::string(kPageBegins) + kHead;
  html += "<title>" + html_escape(run.checkpoint.file) + "</title>\n</head>\n<body>\n<h1>" +
          html_escape(run.checkpoint.definition_path) + "</h1>\n";
  html += summary(run);
  html += section("Training", curves(run, smooth));
  html += predictions(run, tested);
  html += scores_of_targets(run, tested);
  html += section("Net", drawing(run));
  html += section("Filters", filters(run));
  html +=
      section("Weights and updates",
              note("Mean absolute values; an update is what the last step added.") + magnitude_table(run));
  html += section("Plan", plan(run));
  html += kScript;
  return html + "</body>\n</html>\n";
}

std::string html_page_of_runs(const std::vector<NamedRun>& runs) {
  std::string html = std::string(kPageBegins) + kHead;
  html += "<title>" + std::to_string(runs.size()) + " runs</title>\n</head>\n<body>\n<h1>" +
          std::to_string(runs.size()) + " runs</h1>\n";
  html += table_of(runs);
  html += section("Tests", curves_of(runs));
  html += section("Differences", differences(runs));
  html += kScript;
  return html + "</body>\n</html>\n";
}

}  // namespace convnet
