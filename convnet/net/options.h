// What the command line says about a run.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "convnet/config/params.h"
#include "kernels/backend.h"
#include "providers/provider.h"

namespace convnet {

/// Options of training, testing, planning, benchmarks and making data sets; each command takes some of them.
/// Names and defaults are declared once, in option_specs().
struct Options {
  std::string layer_def, layer_params, layer_path;
  std::string data_provider, data_path;
  std::string train_range, test_range;
  std::string save_path, save_file, load_file, init_from;
  std::string gpu = "0";
  std::string device = "auto";
  int mini = 128, epochs = 50000, test_freq = 57, threads = 0, keep = 2;
  double stall_timeout = 300, max_test_err = 0;
  double seed = 1;
  bool test_one = true, test_only = false, force_save = false, shuffle = false, strict = false;
  bool check_grads = false, conserve_mem = false;
  int inner_size = 0, crop_pad = 0, image_size = 0, decode_threads = 0;
  double color_noise = 0, scalar_mean = -1;
  bool pixel_std = false, multiview_test = false, skip_bad_images = false;
  std::string write_features, feature_path, test_out, logreg_name, confusion;
  std::string tensorboard;
  std::string conv_to_local, unshare_weights;
  bool verbose = false, json = false;
  int steps = 0;
  std::string precision, parallel = "cfg";
  std::string model, trace, profile;
  std::string show_cost, show_filters, show_preds, save_preds, html, out;
  int cost_idx = 0, input_idx = 0, channels = 0, local_plane = 0;
  bool smooth_test_errors = true, no_rgb = false, norm_filters = false, yuv_to_rgb = false,
       only_errors = false;
  std::string src, dst;
  int size = 256, batch_size = 3072;
  bool crop_to_square = true;

  /// --precision, or `fallback` where it is not given.
  Precision precision_or(Precision fallback) const;
  std::uint64_t seed_value() const { return static_cast<std::uint64_t>(seed); }
  BatchRange train_batches() const { return BatchRange::parse(train_range); }
  BatchRange test_batches() const { return BatchRange::parse(test_range); }
  ImageOptions image_options() const {
    return {inner_size,    crop_pad,   pixel_std,   multiview_test && !check_grads,
            scalar_mean,   image_size, color_noise, skip_bad_images,
            decode_threads};
  }
  /// Whether this run tests a finished net and does nothing else.
  bool only_tests() const {
    return test_only || !write_features.empty() || !test_out.empty() || !confusion.empty();
  }
  /// Physical device numbers in the order of --gpu; one may be there several times; "all" is
  /// resolved by with_devices(). Throws InputError.
  std::vector<int> gpus() const;
};

/// One option of the command line: "--mini".
struct OptionSpec {
  ParamSpec param;  ///< key without the dashes
  std::string
      commands;       ///< letters of the commands that take it: t(rain) p(lan) b(ench) s(how) d(ata to make)
  bool saved = true;  ///< stored in checkpoints: part of the run, not of one invocation
  bool may_be_empty = false;  ///< an empty value takes back what a checkpoint says
};
const std::vector<OptionSpec>& option_specs();

/// Throws InputError listing those of `keys` that are absent; `hint` ends the message.
void require_options(const OptionTexts& texts, const std::vector<std::string>& keys, const std::string& hint);

/// Parses and checks all texts; throws InputError with everything that is wrong, one line each ("--mini
/// expects …").
Options parse_options(const OptionTexts& texts);

}  // namespace convnet
