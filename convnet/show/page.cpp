#include "convnet/show/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "convnet/base/error.h"
#include "convnet/graph/whole_layers.h"
#include "convnet/net/costs.h"
#include "convnet/show/cam.h"
#include "convnet/show/curves.h"
#include "convnet/show/filters.h"
#include "convnet/show/net_drawing.h"
#include "convnet/show/page_parts.h"
#include "convnet/show/score_tables.h"
#include "convnet/show/svg.h"
#include "convnet/show/text.h"

namespace convnet {
namespace {

constexpr std::size_t kImages = 8;

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
  if (!tested.predictions) return tested.missing.empty() ? "" : section("Predictions", note(tested.missing));
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
  for (const auto& [compared, scores] : tested.scores->tagged())
    html += section("Tags (" + compared.cost + ")",
                    note(fmt::format("{}. An image is taken to have a tag from a probability of {:g} on.",
                                     range, scores.threshold())) +
                        wide_table(tag_rows(scores), "names"));
  for (const auto& [compared, scores] : tested.scores->numbered())
    html += section("Numbers (" + compared.cost + ")",
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

}  // namespace

std::string html_page(const Run& run, const PagePredictions& tested, int smooth) {
  std::string html = std::string(kPageBegins) + kPageHead;
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
  html += kPageScript;
  return html + "</body>\n</html>\n";
}

}  // namespace convnet
