// `convnet show`: pictures and a page of a checkpoint.
#include <fmt/format.h>

#include <optional>

#include "convnet/base/error.h"
#include "convnet/base/output_file.h"
#include "convnet/cli/command_line.h"
#include "convnet/cli/commands.h"
#include "convnet/show/curves.h"
#include "convnet/show/filters.h"
#include "convnet/show/page.h"
#include "convnet/show/picture_canvas.h"

namespace convnet {
namespace {

void write(const std::string& path, const std::string& bytes, const std::string& what) {
  write_whole_file(path, bytes);
  fmt::print("Wrote {}: {}\n", path, what);
}

/// How many tests a point of a test curve is the mean of: as many as test the whole range.
int smoothing(const Options& options) {
  return options.smooth_test_errors && options.test_one ? options.test_batches().count() : 1;
}

void write_curves(const Run& run, const std::string& path) {
  const Options& o = run.options;
  const Chart chart =
      cost_chart(run.checkpoint.state, run.graph,
                 {o.show_cost, static_cast<std::size_t>(o.cost_idx), smoothing(o), o.train_batches()});
  constexpr int kWidth = 860, kHeight = 460;
  PictureCanvas canvas(kWidth, kHeight);
  draw_chart(canvas, chart, kWidth, kHeight);
  write(path, canvas.picture().png(), chart.title);
}

void write_filters(const Run& run, const std::string& path) {
  const Options& o = run.options;
  const LayerWeights weights = weights_of(run, o.show_filters, o.input_idx);
  const FilterStyle style{!o.no_rgb, o.norm_filters, o.yuv_to_rgb, o.channels, o.local_plane};
  std::optional<FilterPicture> filters;
  try {
    filters = draw_filters(*weights.values, style);
  } catch (const InputError& e) {
    throw InputError(run.checkpoint.file + ": tensor '" + weights.tensor + "' " + e.what());
  }
  write(path, filters->picture.png(), weights.tensor + ", " + filters->caption);
}

void write_predictions(const Run& run, const ImagePredictions& predictions, const std::string& path) {
  constexpr std::size_t kImages = 8;
  const std::vector<std::size_t> chosen =
      choose_images(predictions, kImages, run.options.only_errors, run.options.seed_value());
  if (chosen.empty()) throw InputError("--only-errors: no test image's best class is wrong");
  const Size size = predictions_size(chosen.size());
  PictureCanvas canvas(size.width, size.height);
  draw_predictions(canvas, predictions, chosen, pictures_of(run, predictions, chosen));
  write(path, canvas.picture().png(),
        fmt::format("{} of {} test images", chosen.size(), predictions.images.size()));
}

}  // namespace

void show_command(const std::vector<std::string>& args) {
  // The checkpoint comes first, or as --load-file.
  std::vector<std::string> options_only = args;
  OptionTexts given;
  if (!args.empty() && !args[0].starts_with("-")) {
    given["load-file"] = args[0];
    options_only.erase(options_only.begin());
  }
  given.merge(parse_command_line('s', options_only));
  require_options(given, {"load-file"}, "; usage: convnet show CHECKPOINT [options]");
  const Options asked = parse_options(given);
  const int pictures = !asked.show_cost.empty() + !asked.show_filters.empty() + !asked.show_preds.empty();
  if (pictures == 0 && asked.html.empty() && asked.save_preds.empty())
    throw InputError(
        "nothing to show: --show-cost NAME, --show-filters LAYER or --show-preds SOFTMAX draw a picture, "
        "--save-preds and --html write a file");
  if (!asked.out.empty() && pictures != 1)
    throw InputError(fmt::format("--out names one picture, but {} are asked for", pictures));
  const auto picture_name = [&](const char* usual) { return asked.out.empty() ? usual : asked.out; };

  // A file that cannot be written is an error now, not after the work.
  for (const std::string& path : {asked.out, asked.save_preds, asked.html}) {
    if (!path.empty()) OutputFile{path};
  }
  const Run run = open_run(given);
  if (const std::string warning = too_many_threads(run.options); !warning.empty())
    fmt::print(stderr, "{}\n", warning);
  if (!asked.show_cost.empty()) write_curves(run, picture_name("cost.png"));
  if (!asked.show_filters.empty()) write_filters(run, picture_name("filters.png"));

  PagePredictions tested;
  tested.only_errors = asked.only_errors;
  const bool demanded = !asked.show_preds.empty() || !asked.save_preds.empty();
  if (demanded || !asked.html.empty()) {
    try {
      tested.predictions = predict(run, classifier_of(run, asked.show_preds), run.options.test_batches());
    } catch (const std::runtime_error& e) {
      if (demanded) throw;
      tested.missing = e.what();
      fmt::print(stderr, "warning: no predictions: {}\n", tested.missing);
    }
  }
  if (!asked.show_preds.empty()) write_predictions(run, *tested.predictions, picture_name("preds.png"));
  if (!asked.save_preds.empty())
    write(asked.save_preds, predictions_csv(*tested.predictions),
          fmt::format("{} predictions", tested.predictions->images.size()));
  if (!asked.html.empty())
    write(asked.html, html_page(run, tested, smoothing(run.options)), "a page of everything");
}

}  // namespace convnet
