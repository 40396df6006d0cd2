#include "convnet/net/options.h"

#include <algorithm>
#include <cmath>

#include "convnet/base/error.h"

namespace convnet {
namespace {

template <class T>
OptionSpec option(std::string key, T Options::*field, std::string commands, ParamInfo info,
                  bool saved = true) {
  return {param(std::move(key), field, std::move(info)), std::move(commands), saved, false};
}

OptionSpec choice(std::string key, std::string Options::*field, const std::vector<std::string>& choices,
                  std::string commands, ParamInfo info) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const std::string& c : choices) pairs.emplace_back(c, c);
  return {param_choice(std::move(key), field, pairs, std::move(info)), std::move(commands), true, false};
}

std::vector<OptionSpec> make_specs() {
  return {
      option("layer-def", &Options::layer_def, "tpb", {.doc = "the layer definition file"}),
      option("layer-params", &Options::layer_params, "tpb", {.doc = "the layer parameter file"}),
      option("layer-path", &Options::layer_path, "tpb",
             {.fallback = "", .doc = "folder put before both files' names"}),
      option("data-provider", &Options::data_provider, "tpbs",
             {.doc = "mnist, cifar, cropped-cifar, image, or dummy-CxHxW-K and other dummy-… forms for "
                     "random data"}),
      option("data-path", &Options::data_path, "tpbs", {.fallback = "", .doc = "folder of the data set"}),
      option("inner-size", &Options::inner_size, "tpb",
             {.fallback = "0",
              .min = 0,
              .max = 4096,
              .unit = "pixels",
              .doc = "side of the square that training cuts out at random, and mirrors half the time; tests "
                     "take the centre; 0: "
                     "the whole image"}),
      option("crop-pad", &Options::crop_pad, "t",
             {.fallback = "0",
              .min = 0,
              .max = 1024,
              .unit = "pixels",
              .doc = "zeros around an image before training cuts out its square"}),
      option("pixel-std", &Options::pixel_std, "tpb",
             {.fallback = "0",
              .doc = "divide pixels by their channel's standard deviation over the training range"}),
      option("multiview-test", &Options::multiview_test, "t",
             {.fallback = "0",
              .doc = "tests average the softmax over several crops of each image, at the borders and the "
                     "centre: nine, or ten of provider image, with mirror images"}),
      option("image-size", &Options::image_size, "tpb",
             {.fallback = "0",
              .min = 0,
              .max = 4096,
              .unit = "pixels",
              .doc = "provider image scales the shorter side of its images to this; 0: 8/7 of --inner-size, "
                     "or 256"}),
      option("color-noise", &Options::color_noise, "t",
             {.fallback = "0",
              .min = 0,
              .max = 100,
              .doc = "provider image adds so many standard deviations of random colour to training images, "
                     "along the principal components of the colours"}),
      option("scalar-mean", &Options::scalar_mean, "t",
             {.fallback = "-1",
              .min = -1,
              .max = 255,
              .doc = "subtracted from every pixel instead of the mean image; negative: the mean image"}),
      option("skip-bad-images", &Options::skip_bad_images, "td",
             {.fallback = "0",
              .doc = "go on past images that cannot be read, and name them at the end: provider image takes "
                     "the next readable one instead, make-data leaves them out"},
             false),
      option("decode-threads", &Options::decode_threads, "tb",
             {.fallback = "0",
              .min = 0,
              .max = 1024,
              .unit = "threads",
              .doc = "threads of provider image that decode ahead of training; 0: one for each core"},
             false),
      option("train-range", &Options::train_range, "t", {.doc = "training batches, like 1-5"}),
      option("test-range", &Options::test_range, "ts", {.doc = "test batches, like 6"}),
      option("save-path", &Options::save_path, "t",
             {.fallback = "", .doc = "parent folder for a new ConvNet__YYYY-MM-DD_HH.MM.SS folder"}),
      option("save-file", &Options::save_file, "t",
             {.fallback = "", .doc = "the checkpoint folder itself; resumed from if it holds checkpoints"}),
      option("load-file", &Options::load_file, "ts",
             {.fallback = "",
              .doc = "checkpoint folder (its newest) or file to resume from or test; training from an older "
                     "one moves the later ones aside"},
             false),
      option("init-from", &Options::init_from, "t",
             {.fallback = "",
              .doc = "checkpoint whose weights of equal name and shape a new run starts from (fine-tuning)"},
             false),
      option("gpu", &Options::gpu, "tpbs",
             {.fallback = "0", .doc = "physical devices; index i of a gpu= line is the i-th of this list"}),
      option("mini", &Options::mini, "tpbs",
             {.fallback = "128",
              .min = 1,
              .max = 1 << 24,
              .unit = "images",
              .doc = "minibatch size over all devices together"}),
      option("epochs", &Options::epochs, "t",
             {.fallback = "50000", .min = 0, .max = 1e9, .doc = "passes over the training range"}),
      option("test-freq", &Options::test_freq, "t",
             {.fallback = "57",
              .min = 1,
              .max = 1e9,
              .unit = "batches",
              .doc = "batches between tests with a checkpoint"}),
      option("test-one", &Options::test_one, "t",
             {.fallback = "1", .doc = "each test uses one test batch, in turn; 0: all of them"}),
      option(
          "max-test-err", &Options::max_test_err, "t",
          {.fallback = "0",
           .min = 0,
           .max = 1e9,
           .doc = "largest test error, of the first cost, with which a test is followed by a checkpoint; 0: "
                  "always"}),
      option("test-only", &Options::test_only, "t",
             {.fallback = "0", .doc = "test the loaded model on the whole test range and quit"}, false),
      option(
          "write-features", &Options::write_features, "t",
          {.fallback = "",
           .doc = "layer whose outputs on the test range to write to --feature-path, a data_batch_N.npy and "
                  "labels_N.npy for each batch; then quit, like --test-only"},
          false),
      option("feature-path", &Options::feature_path, "t",
             {.fallback = "", .doc = "folder for the files of --write-features"}, false),
      option("test-out", &Options::test_out, "t",
             {.fallback = "",
              .doc = "folder for the class probabilities on the test range, a probabilities_N.npy and "
                     "labels_N.npy for each batch; then quit, like --test-only"},
             false),
      option("logreg-name", &Options::logreg_name, "t",
             {.fallback = "",
              .doc = "cost.logreg layer of --test-out, --confusion and the errors by class that --test-only "
                     "prints; needed where there are several"},
             false),
      option("confusion", &Options::confusion, "t",
             {.fallback = "",
              .doc = "CSV file for the confusion matrix on the test range, true classes by predictions; then "
                     "quit, like --test-only"},
             false),
      option("tensorboard", &Options::tensorboard, "t",
             {.fallback = "",
              .doc = "folder for TensorBoard's event files: costs and rates after each batch, first filters "
                     "after each test; empty: none from now on"}),
      option("check-grads", &Options::check_grads, "t",
             {.fallback = "0", .doc = "compare every weight matrix's gradient with numeric ones and quit"},
             false),
      option("force-save", &Options::force_save, "t", {.fallback = "0", .doc = "save before quitting"},
             false),
      option("keep", &Options::keep, "t",
             {.fallback = "2", .min = 1, .max = 1e9, .doc = "newest checkpoints to keep"}),
      option(
          "conv-to-local", &Options::conv_to_local, "tp",
          {.fallback = "",
           .doc = "conv layers to make local; with --load-file each position starts with the shared filters"},
          false),
      option("unshare-weights", &Options::unshare_weights, "tp",
             {.fallback = "",
              .doc = "layers, or inputs layer[i], that stop sharing the weights weightSource names"},
             false),
      option(
          "conserve-mem", &Options::conserve_mem, "tpb",
          {.fallback = "0",
           .doc =
               "compute outputs of cheap layers (pools, norms, neurons) again in backward instead of keeping "
               "them: less memory, same numbers, slower"}),
      option("shuffle", &Options::shuffle, "t",
             {.fallback = "0",
              .doc = "shuffle the images of the training range each epoch; holds the range in memory"}),
      choice("device", &Options::device, {"auto", "cpu", "cuda"}, "tpbs",
             {.fallback = "auto", .doc = "where to compute; auto: cuda when built and present, else cpu"}),
      option("threads", &Options::threads, "tpbsd",
             {.fallback = "0",
              .min = 0,
              .max = 4096,
              .unit = "cores",
              .doc = "cores over all CPU devices together; 0: all"}),
      option("seed", &Options::seed, "tpbsd",
             {.fallback = "1", .min = 0, .max = 9007199254740992.0, .doc = "decides every random number"}),
      option("strict", &Options::strict, "tpb",
             {.fallback = "0", .doc = "unknown keys in the layer files are errors, not warnings"}),
      option("verbose", &Options::verbose, "tp",
             {.fallback = "0",
              .doc = "plan: also print every task; training: also print where the time of each batch went"},
             false),
      option(
          "stall-timeout", &Options::stall_timeout, "tb",
          {.fallback = "300",
           .min = 0.1,
           .max = 1e9,
           .unit = "seconds",
           .doc =
               "give up, with a report of what each device waits for, when none has finished a task for so "
               "long"},
          false),
      option("json", &Options::json, "pb", {.fallback = "0", .doc = "print one JSON object and nothing else"},
             false),
      option("steps", &Options::steps, "b",
             {.fallback = "0", .min = 0, .max = 1e6, .doc = "measured steps; 0: for about ten seconds"},
             false),
      option("model", &Options::model, "p",
             {.fallback = "",
              .doc = "predict the time of a step: 'measured' times each operation on this machine, else a "
                     "file of a "
                     "machine's numbers, like bench/models/nvlink-8gpu.json"},
             false),
      option("trace", &Options::trace, "p",
             {.fallback = "", .doc = "file for the predicted timeline (Chrome trace, for ui.perfetto.dev)"},
             false),
      option("profile", &Options::profile, "tb",
             {.fallback = "",
              .doc = "file for the measured timeline of some steps (Chrome trace, for ui.perfetto.dev)"},
             false),
      choice("precision", &Options::precision, {"fp32", "tf32", "bf16"}, "tpbs",
             {.fallback = "",
              .doc = "arithmetic of convolutions and matrix products; bf16 also keeps activations so; the "
                     "default is tf32 on GPUs, fp32 on CPUs"}),
      option("show-cost", &Options::show_cost, "s",
             {.fallback = "", .doc = "cost layer whose curves of training and tests to draw"}, false),
      option("cost-idx", &Options::cost_idx, "s",
             {.fallback = "0", .min = 0, .max = 1 << 24, .doc = "which of the values that the cost prints"},
             false),
      option(
          "smooth-test-errors", &Options::smooth_test_errors, "s",
          {.fallback = "1",
           .doc =
               "where each test takes one batch of the test range: draw means over as many tests as it has"},
          false),
      option("show-filters", &Options::show_filters, "s",
             {.fallback = "", .doc = "layer whose weights to draw"}, false),
      option("input-idx", &Options::input_idx, "s",
             {.fallback = "0", .min = 0, .max = 1 << 20, .doc = "filters of which of the layer's inputs"},
             false),
      option("no-rgb", &Options::no_rgb, "s",
             {.fallback = "0", .doc = "a grey tile for each channel, also where there are three"}, false),
      option("norm-filters", &Options::norm_filters, "s",
             {.fallback = "0", .doc = "bring each filter to mean 0 and variance 1 first"}, false),
      option("yuv-to-rgb", &Options::yuv_to_rgb, "s",
             {.fallback = "0", .doc = "the filters' three channels are Y, U and V"}, false),
      option("channels", &Options::channels, "s",
             {.fallback = "0",
              .min = 0,
              .max = 1 << 20,
              .doc = "of what a fully-connected layer reads; 0: three or one, whichever makes squares"},
             false),
      option("local-plane", &Options::local_plane, "s",
             {.fallback = "0",
              .min = 0,
              .max = 1 << 24,
              .doc = "output map of a local layer whose filters, at all positions, to draw"},
             false),
      option("show-preds", &Options::show_preds, "s",
             {.fallback = "",
              .doc = "softmax layer whose five best classes of eight random test images to draw"},
             false),
      option("only-errors", &Options::only_errors, "s",
             {.fallback = "0", .doc = "only images whose best class is wrong"}, false),
      option("save-preds", &Options::save_preds, "s",
             {.fallback = "", .doc = "CSV file for the five best classes of every test image"}, false),
      option("out", &Options::out, "s",
             {.fallback = "", .doc = "the picture's file instead of cost.png, filters.png or preds.png"},
             false),
      option(
          "html", &Options::html, "s",
          {.fallback = "", .doc = "file for a page with curves, predictions, filters, weights and the plan"},
          false),
      choice("parallel", &Options::parallel, {"cfg", "data"}, "tpb",
             {.fallback = "cfg",
              .doc = "cfg: layers run where the file says; data: every layer on all devices"}),
      option(
          "src", &Options::src, "d",
          {.doc = "folder of the images: CLASS/*.jpg|png, *.tar shards with KEY.jpg and KEY.cls, train/ and "
                  "val/ with either, or the three ILSVRC2012 tars; or a comma list of tars"},
          false),
      option("dst", &Options::dst, "d",
             {.doc = "folder of the data set; one that a run was filling is gone on with"}, false),
      option("size", &Options::size, "d",
             {.fallback = "256",
              .min = 16,
              .max = 1024,
              .unit = "pixels",
              .doc = "of the shorter side, to which images are scaled"},
             false),
      option("crop-to-square", &Options::crop_to_square, "d",
             {.fallback = "1", .doc = "keep the square in the middle; 0: the whole image"}, false),
      option("batch-size", &Options::batch_size, "d",
             {.fallback = "3072", .min = 1, .max = 1 << 24, .unit = "images", .doc = "images of a batch"},
             false),
  };
}

}  // namespace

const std::vector<OptionSpec>& option_specs() {
  static const std::vector<OptionSpec> specs = [] {
    std::vector<OptionSpec> made = make_specs();
    for (OptionSpec& spec : made) spec.may_be_empty = spec.param.key == "tensorboard";
    return made;
  }();
  return specs;
}

Options parse_options(const OptionTexts& texts) {
  Options options;
  std::vector<std::string> wrong;
  for (const OptionSpec& spec : option_specs()) {
    const auto given = texts.find(spec.param.key);
    if (given == texts.end()) continue;
    const std::string text = given->second.empty() && spec.param.type == "boolean" ? "1" : given->second;
    if (std::string why = spec.param.assign(&options, text, 1); !why.empty())
      wrong.push_back("--" + spec.param.key + " " + why);
  }
  for (const char* range : {"train-range", "test-range"}) {
    const auto given = texts.find(range);
    if (given == texts.end()) continue;
    try {
      BatchRange::parse(given->second);
    } catch (const InputError& e) {
      wrong.push_back("--" + std::string(range) + " " + e.what());
    }
  }
  if (options.seed != std::floor(options.seed))
    wrong.push_back("--seed expects a whole number, not '" + texts.at("seed") + "'");
  try {
    if (options.gpu != "all") options.gpus();  // that many are not known here
  } catch (const InputError& e) {
    wrong.emplace_back(e.what());
  }
  if (options.write_features.empty() != options.feature_path.empty())
    wrong.emplace_back("--write-features LAYER and --feature-path FOLDER need each other");
  if (!options.logreg_name.empty() && !options.only_tests())
    wrong.emplace_back("--logreg-name is for --test-out, --confusion and --test-only");
  if (!wrong.empty()) throw InputError(join(wrong, "\n"));
  return options;
}

void require_options(const OptionTexts& texts, const std::vector<std::string>& keys,
                     const std::string& hint) {
  std::vector<std::string> missing;
  for (const std::string& key : keys) {
    if (!texts.contains(key)) missing.push_back("--" + key);
  }
  if (!missing.empty()) throw InputError("missing: " + join(missing) + hint);
}

Precision Options::precision_or(Precision fallback) const {
  for (const Precision p : {Precision::fp32, Precision::tf32, Precision::bf16})
    if (precision == to_string(p)) return p;
  return fallback;
}

std::vector<int> Options::gpus() const {
  ParamSpec rules;
  rules.min = 0;
  rules.max = 1023;
  std::vector<int> ids;
  for (const std::string& item : split_list(gpu)) {
    int id = 0;
    if (std::string why = parse_value(item, rules, id); !why.empty()) throw InputError("--gpu " + why);
    ids.push_back(id);
  }
  if (ids.empty()) throw InputError("--gpu expects a comma list of device numbers, like 0,1, or all");
  return ids;
}

}  // namespace convnet
