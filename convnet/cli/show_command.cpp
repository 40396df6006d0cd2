// `convnet show`: pictures and a page of a checkpoint.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "convnet/base/error.h"
#include "convnet/base/notes.h"
#include "convnet/base/output_file.h"
#include "convnet/cli/command_line.h"
#include "convnet/cli/commands.h"
#include "convnet/cli/trained_net.h"
#include "convnet/net/data_set.h"
#include "convnet/net/devices.h"
#include "convnet/net/input_data.h"
#include "convnet/show/cam.h"
#include "convnet/show/curves.h"
#include "convnet/show/filters.h"
#include "convnet/show/image_predictions.h"
#include "convnet/show/page.h"
#include "convnet/show/picture_canvas.h"
#include "convnet/train/options.h"
#include "convnet/train/stored_options.h"
#include "providers/crop.h"
#include "providers/file_images.h"

namespace convnet {
namespace {

struct ShowOptions {
  static constexpr OptionGroup group = OptionGroup::output;
  CheckpointOptions checkpoints;
  std::string show_cost, show_filters, show_preds, cam, cam_layer, cam_class, save_costs, save_preds, html,
      out;
  int cost_idx = 0, input_idx = 0, channels = 0, local_plane = 0;
  bool smooth_test_errors = true, no_rgb = false, norm_filters = false, yuv_to_rgb = false,
       only_errors = false;
  RunOptions run;  ///< those that replace the checkpoint's
};

const OptionTable<ShowOptions>& options_of_show() {
  static const auto table =
      OptionTable<ShowOptions>()
          .add(&ShowOptions::checkpoints, read_checkpoint_option())
          .add({
              unsaved_option("show-cost", &ShowOptions::show_cost,
                             {.fallback = "",
                              .unit = "layer",
                              .doc = "cost layer whose curves of training and tests to draw"}),
              unsaved_option("cost-idx", &ShowOptions::cost_idx,
                             {.fallback = "0",
                              .min = 0,
                              .max = 1 << 24,
                              .doc = "index of the value that the cost prints, from 0"}),
              unsaved_option("smooth-test-errors", &ShowOptions::smooth_test_errors,
                             {.fallback = "1",
                              .doc = "where each test takes one batch of the test range: draw means over as "
                                     "many tests as it has"}),
              unsaved_option("show-filters", &ShowOptions::show_filters,
                             {.fallback = "", .unit = "layer", .doc = "layer whose weights to draw"}),
              unsaved_option("input-idx", &ShowOptions::input_idx,
                             {.fallback = "0",
                              .min = 0,
                              .max = 1 << 20,
                              .doc = "index of the layer's input whose filters to draw, from 0"}),
              unsaved_option(
                  "no-rgb", &ShowOptions::no_rgb,
                  {.fallback = "0", .doc = "a grey tile for each channel, also where there are three"}),
              unsaved_option("norm-filters", &ShowOptions::norm_filters,
                             {.fallback = "0", .doc = "bring each filter to mean 0 and variance 1 first"}),
              unsaved_option("yuv-to-rgb", &ShowOptions::yuv_to_rgb,
                             {.fallback = "0", .doc = "the filters' three channels are Y, U and V"}),
              unsaved_option("channels", &ShowOptions::channels,
                             {.fallback = "0",
                              .min = 0,
                              .max = 1 << 20,
                              .doc = "number of channels of a fully-connected layer's input; 0: three or "
                                     "one, whichever makes squares"}),
              unsaved_option("local-plane", &ShowOptions::local_plane,
                             {.fallback = "0",
                              .min = 0,
                              .max = 1 << 24,
                              .doc = "output map of a local layer whose filters, at all positions, to draw"}),
              unsaved_option(
                  "show-preds", &ShowOptions::show_preds,
                  {.fallback = "",
                   .unit = "layer",
                   .doc = "softmax layer whose five best classes of eight random test images to draw"}),
              unsaved_option("only-errors", &ShowOptions::only_errors,
                             {.fallback = "0", .doc = "only images whose best class is wrong"}),
              unsaved_option(
                  "cam", &ShowOptions::cam,
                  {.fallback = "",
                   .unit = "image",
                   .doc = "photograph to draw with the pixels that spoke for its class (Grad-CAM); an "
                          "image, or x.npy, whose first record is taken"}),
              unsaved_option(
                  "cam-layer", &ShowOptions::cam_layer,
                  {.fallback = "",
                   .unit = "layer",
                   .doc = "layer whose maps --cam weighs; without it the last one with maps of more than "
                          "one pixel"}),
              unsaved_option(
                  "cam-class", &ShowOptions::cam_class,
                  {.fallback = "",
                   .unit = "class",
                   .doc = "name or number of the class for --cam; without it the most probable one"}),
              unsaved_option("save-preds", &ShowOptions::save_preds,
                             {.fallback = "",
                              .unit = "file",
                              .doc = "CSV file for the five best classes of every test image"}),
              unsaved_option("save-costs", &ShowOptions::save_costs,
                             {.fallback = "",
                              .unit = "file",
                              .doc = "CSV file for the costs of every batch and test of the run so far"}),
              unsaved_option(
                  "out", &ShowOptions::out,
                  {.fallback = "",
                   .unit = "file",
                   .doc = "the picture's file instead of cost.png, filters.png, preds.png or cam.png"}),
              unsaved_option(
                  "html", &ShowOptions::html,
                  {.fallback = "",
                   .unit = "file",
                   .doc = "file for a page with curves, predictions, filters, weights and the plan"}),
          })
          .add(&ShowOptions::run, run_options().only({"data-provider", "data-path", "test-range", "mini",
                                                      "seed", "gpu", "device", "threads", "precision"}));
  return table;
}

/// Throws InputError for an option of a picture that is not asked for.
void check_used(const OptionTexts& given) {
  struct Use {
    const char* option;
    std::vector<std::string> needs;  ///< one of these
  };
  const std::vector<std::string> tested = {"show-preds", "save-preds", "html"};
  for (const Use& use : std::vector<Use>{{"cost-idx", {"show-cost"}},
                                         {"smooth-test-errors", {"show-cost", "html"}},
                                         {"input-idx", {"show-filters"}},
                                         {"no-rgb", {"show-filters"}},
                                         {"norm-filters", {"show-filters"}},
                                         {"yuv-to-rgb", {"show-filters"}},
                                         {"channels", {"show-filters"}},
                                         {"local-plane", {"show-filters"}},
                                         {"cam-layer", {"cam"}},
                                         {"cam-class", {"cam"}},
                                         {"only-errors", {"show-preds", "html"}},
                                         {"test-range", tested},
                                         {"mini", tested},
                                         {"seed", tested},
                                         {"data-provider", tested},
                                         {"data-path", tested}}) {
    const auto asked = [&](const std::string& option) { return given.contains(option); };
    if (asked(use.option) && std::none_of(use.needs.begin(), use.needs.end(), asked))
      throw InputError(std::string("--") + use.option + " is for --" + join(use.needs, " and --"));
  }
}

void write(const std::string& path, const std::string& bytes, const std::string& what) {
  write_whole_file(path, bytes);
  fmt::print("Wrote {}: {}\n", path, what);
}

/// Returns how many tests a point of a test curve is the mean of: as many as test the whole range.
int smoothing(const ShowOptions& asked, const DataOptions& data) {
  return asked.smooth_test_errors && data.test_one ? data.test_range.count() : 1;
}

void write_curves(const Run& run, const ShowOptions& asked, const std::string& path) {
  const DataOptions& data = run.options.data;
  const Chart chart = cost_chart(
      run.checkpoint.state, run.graph,
      {asked.show_cost, static_cast<std::size_t>(asked.cost_idx), smoothing(asked, data), data.train_range});
  constexpr int kWidth = 860;
  const int height = 460 + static_cast<int>(legend_height(chart, kWidth));
  PictureCanvas canvas(kWidth, height);
  draw_chart(canvas, chart, kWidth, height);
  write(path, canvas.picture().png(), chart.title);
}

/// Throws InputError for an option of filters that those of `weights` have no use for.
void check_filter_options(const OptionTexts& given, const Run& run, const LayerWeights& weights) {
  constexpr std::size_t kLocalDims = 6;
  const std::size_t dims = weights.values->dims.size();
  const bool maps = dims == 4 || dims == kLocalDims;
  const auto refuse = [&](const std::string& why) {
    throw InputError(run.checkpoint.file + ": tensor '" + weights.tensor + "' " + why);
  };
  if (given.contains("channels") && maps)
    refuse("has filters whose channels are known; --channels is for fully-connected layers");
  if (given.contains("local-plane") && dims != kLocalDims)
    refuse("is of no local layer, and only those have filters of their own at each position (--local-plane)");
}

void write_filters(const Run& run, const ShowOptions& asked, const OptionTexts& given,
                   const std::string& path) {
  const LayerWeights weights = weights_of(run, asked.show_filters, asked.input_idx);
  check_filter_options(given, run, weights);
  const FilterStyle style{!asked.no_rgb, asked.norm_filters, asked.yuv_to_rgb, asked.channels,
                          asked.local_plane};
  std::optional<FilterPicture> filters;
  try {
    filters = draw_filters(*weights.values, style);
  } catch (const InputError& e) {
    throw InputError(run.checkpoint.file + ": tensor '" + weights.tensor + "' " + e.what());
  }
  write(path, filters->picture.png(), weights.tensor + ", " + filters->caption);
}

void write_predictions(const Run& run, const ShowOptions& asked, const ImagePredictions& predictions,
                       const std::string& path) {
  constexpr std::size_t kImages = 8;
  const std::vector<std::size_t> chosen =
      choose_images(predictions, kImages, asked.only_errors, run.options.step.seed);
  if (chosen.empty()) throw InputError("--only-errors: no test image's best class is wrong");
  const Size size = predictions_size(chosen.size());
  PictureCanvas canvas(size.width, size.height);
  draw_predictions(canvas, predictions, chosen, pictures_of(run, predictions, chosen));
  write(path, canvas.picture().png(),
        fmt::format("{} of {} test images", chosen.size(), predictions.images.size()));
}

/// Draws which pixels of the image that --cam names spoke for its class. The data set is not needed.
void write_cam(const ShowOptions& asked, const OptionTexts& given, const std::string& path) {
  OptionTexts own;
  for (const char* const option : {"gpu", "device", "threads"})
    if (const auto text = given.find(option); text != given.end()) own.insert(*text);
  const TrainedNet trained = open_trained_net(given.at("load-file"), own);
  const std::vector<FileImage> images = images_in_file(asked.cam, trained.set);
  if (images.empty()) throw InputError(asked.cam + ": has no image");
  const auto provider = make_files_provider({images[0]}, trained.set, image_options(trained.options.data));
  const Graph graph = graph_of(trained, provider->matrices());
  PixelStatistics statistics = saved_statistics(trained.checkpoint, trained.options.data, *provider);
  CamNet cam(trained.checkpoint, graph, *provider, trained.options.devices, trained.options.step, statistics,
             asked.cam_layer, "");
  const std::int64_t cls = asked.cam_class.empty() ? -1 : class_of(cam.classifier(), asked.cam_class);
  const DataBatch batch = provider->read({1, 0}, statistics);
  std::vector<const std::byte*> matrices;
  for (const auto& matrix : batch.matrices) matrices.push_back(matrix.data());
  const CamMap map = cam.map_of(matrices, cls);
  statistics.mean.clear();  // so that the provider does not subtract it either
  const MatrixInfo& info = provider->matrices()[0];
  const Picture picture = picture_of(seen_pixels(provider->read({1, 0}, statistics), info, 0), info);
  write(path, draw_cam(picture, map).png(),
        fmt::format("Grad-CAM of {} for '{}' ({:.1f} %), by {} of '{}'", images[0].name(),
                    cam.classifier().class_names.at(map.cls), 100 * map.probability, cam.maps_text(),
                    cam.layer()));
  if (std::all_of(map.values.begin(), map.values.end(), [](float value) { return value == 0; }))
    fmt::print(stderr, "warning: no pixel spoke for this class in '{}'\n", cam.layer());
}

/// Writes the page of several runs.
void compare_runs(const std::vector<std::string>& names, OptionTexts given) {
  constexpr std::size_t kMostRuns = 32;
  if (names.size() > kMostRuns)
    throw InputError(fmt::format("{} runs are more than a page shows, {}", names.size(), kMostRuns));
  for (const auto& [key, text] : given) {
    if (key != "html" && key != "load-file" && key != "smooth-test-errors")
      throw InputError("--" + key + " is for one checkpoint; several runs are compared with --html FILE");
  }
  const ShowOptions asked = options_of_show().parse(given);
  if (asked.html.empty()) throw InputError("several runs are compared with --html FILE");
  std::vector<std::string> inputs;
  for (const std::string& name : names) inputs.push_back(find_checkpoint(name));
  check_outputs({{"--html", asked.html, "the page is to be written to", kPageBegins}}, inputs);
  std::vector<std::unique_ptr<Run>> runs;
  std::vector<NamedRun> named;
  for (const std::string& name : names) {
    given["load-file"] = name;
    runs.push_back(std::make_unique<Run>(open_run(read_run_checkpoint(name), given)));
    named.push_back({name, runs.back().get(), smoothing(asked, runs.back()->options.data)});
  }
  write(asked.html, html_page_of_runs(named), fmt::format("{} runs side by side", names.size()));
}

}  // namespace

const std::vector<OptionSpec>& show_command_options() { return options_of_show().specs(); }

void show_command(const std::vector<std::string>& args) {
  // One checkpoint may be --load-file instead.
  const auto [named, options] = split_words(show_command_options(), args);
  OptionTexts given;
  if (!named.empty()) given["load-file"] = named[0];
  given.merge(parse_command_line(show_command_options(), options));
  if (named.size() > 1) return compare_runs(named, given);
  require_options(given, {"load-file"},
                  "; usage: convnet show CHECKPOINT [options], or convnet show RUN1 RUN2 ... --html FILE");
  const ShowOptions asked = options_of_show().parse(given);
  const int pictures =
      !asked.show_cost.empty() + !asked.show_filters.empty() + !asked.show_preds.empty() + !asked.cam.empty();
  if (pictures == 0 && asked.html.empty() && asked.save_preds.empty() && asked.save_costs.empty())
    throw InputError(
        "nothing to show: --show-cost NAME, --show-filters LAYER, --show-preds SOFTMAX or --cam IMAGE draw "
        "a picture, --save-costs, --save-preds and --html write a file");
  if (!asked.out.empty() && pictures != 1)
    throw InputError(fmt::format("--out names one picture, but {} are asked for", pictures));
  if (const std::filesystem::path ending = std::filesystem::path(asked.out).extension();
      !ending.empty() && ending != ".png" && ending != ".PNG")
    throw InputError("--out " + asked.out + ": pictures are PNG files; give it the ending .png");
  const auto picture_name = [&](const char* usual) { return asked.out.empty() ? usual : asked.out; };

  check_used(given);
  // A file that cannot be written is an error now, not after the work.
  check_outputs({{"--out", asked.out, "the picture is to be written to", Picture::png_begins},
                 {"--save-costs", asked.save_costs, "costs are to be written to", kCostsBegin},
                 {"--save-preds", asked.save_preds, "predictions are to be written to", kPredictionsBegin},
                 {"--html", asked.html, "the page is to be written to", kPageBegins}},
                {find_checkpoint(given.at("load-file")), asked.cam});
  if (!asked.cam.empty()) write_cam(asked, given, picture_name("cam.png"));
  if (pictures == !asked.cam.empty() && asked.html.empty() && asked.save_preds.empty() &&
      asked.save_costs.empty())
    return;
  const Run run = open_run(read_run_checkpoint(given.at("load-file")), given);
  print_notes({too_many_threads(run.options.devices)});
  if (!asked.show_cost.empty()) write_curves(run, asked, picture_name("cost.png"));
  if (!asked.save_costs.empty())
    write(asked.save_costs, costs_csv(run.checkpoint.state, run.graph),
          fmt::format("{} batches and tests", run.checkpoint.state.history.size()));
  if (!asked.show_filters.empty()) write_filters(run, asked, given, picture_name("filters.png"));

  PagePredictions tested;
  tested.softmax = asked.show_preds;
  tested.only_errors = asked.only_errors;
  const bool demanded = !asked.show_preds.empty() || !asked.save_preds.empty();
  if (!asked.html.empty()) {
    try {
      tested.scores = score_targets(run);
    } catch (const std::runtime_error& e) {
      fmt::print(stderr, "warning: no scores of tags and numbers: {}\n", e.what());
    }
  }
  // A net of tags or numbers has no predictions of classes.
  const bool has_scores = tested.scores && !tested.scores->empty();
  if (demanded || (!asked.html.empty() && !(has_scores && logreg_costs(run.graph).empty()))) {
    try {
      tested.predictions = predict(run, find_classifier_of(run.graph, run.matrices, asked.show_preds),
                                   run.options.data.test_range);
    } catch (const std::runtime_error& e) {
      if (demanded) throw;
      tested.missing = e.what();
      fmt::print(stderr, "warning: no predictions: {}\n", tested.missing);
    }
  }
  if (!asked.show_preds.empty())
    write_predictions(run, asked, *tested.predictions, picture_name("preds.png"));
  if (!asked.save_preds.empty())
    write(asked.save_preds, predictions_csv(*tested.predictions),
          fmt::format("{} predictions", tested.predictions->images.size()));
  if (!asked.html.empty())
    write(asked.html, html_page(run, tested, smoothing(asked, run.options.data)), "a page of everything");
}

}  // namespace convnet
