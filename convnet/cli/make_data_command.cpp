// `convnet make-data`: cuda-convnet2's batches of JPEGs from folders and tars of images.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>

#include "convnet/base/error.h"
#include "convnet/base/file.h"
#include "convnet/base/notes.h"
#include "convnet/base/output_file.h"
#include "convnet/base/printable.h"
#include "convnet/base/progress_line.h"
#include "convnet/cli/command_line.h"
#include "convnet/cli/commands.h"
#include "convnet/data/ilsvrc.h"
#include "convnet/data/make_data.h"
#include "convnet/net/net.h"

namespace convnet {
namespace {

struct MakeDataCommandOptions {
  static constexpr OptionGroup group = OptionGroup::data;
  std::string src, dst;
  int size = 256, batch_size = 3072;
  bool crop_to_square = true, hold_out = true;
  DataOptions data;
  DeviceOptions devices;
  StepOptions step;
};

const OptionTable<MakeDataCommandOptions>& options_of_make_data() {
  static const auto table =
      OptionTable<MakeDataCommandOptions>()
          .add({
              unsaved_option("src", &MakeDataCommandOptions::src,
                             {.unit = "folder",
                              .doc = "folder of the images: CLASS/*.jpg (or png, bmp, webp), *.tar shards "
                                     "with KEY.jpg and KEY.cls, train/ and val/ with either, "
                                     "or the three ILSVRC2012 tars; or a comma list of tars; with --labels "
                                     "photos in folders or tars of any form"}),
              unsaved_option("dst", &MakeDataCommandOptions::dst,
                             {.unit = "folder",
                              .doc = "folder for the data set; if an interrupted make-data began it, the "
                                     "command continues there"}),
              unsaved_option("size", &MakeDataCommandOptions::size,
                             {.fallback = "256",
                              .min = 16,
                              .max = 1024,
                              .unit = "pixels",
                              .doc = "length of the shorter side to which images are scaled"}),
              unsaved_option("crop-to-square", &MakeDataCommandOptions::crop_to_square,
                             {.fallback = "1", .doc = "keep the square in the middle; 0: the whole image"}),
              unsaved_option("batch-size", &MakeDataCommandOptions::batch_size,
                             {.fallback = "3072",
                              .min = 1,
                              .max = 1 << 24,
                              .unit = "images",
                              .doc = "images of a batch"}),
              unsaved_option(
                  "hold-out", &MakeDataCommandOptions::hold_out,
                  {.fallback = "1",
                   .doc = "of images without a folder for tests, make a tenth validation images, chosen by a "
                          "hash of their names; 0: all are training images"}),
          })
          .add(&MakeDataCommandOptions::data,
               data_options().only({"labels", "label-kind", "skip-bad-images"}))
          .add(&MakeDataCommandOptions::devices, device_options().only({"threads"}))
          .add(&MakeDataCommandOptions::step, step_options().only({"seed"}));
  return table;
}

namespace fs = std::filesystem;

constexpr const char* ilsvrc_training = "ILSVRC2012_img_train.tar";
constexpr const char* ilsvrc_validation = "ILSVRC2012_img_val.tar";
constexpr const char* ilsvrc_devkit = "ILSVRC2012_devkit_t12.tar.gz";

/// ILSVRC-2012, if one of its tars is in the list; then all three must be.
std::optional<LabelledImages> find_ilsvrc(const std::vector<std::string>& tars) {
  std::map<std::string, std::string> by_name;
  for (const std::string& tar : tars) by_name[fs::path(tar).filename().string()] = tar;
  const std::array<const char*, 3> names = {ilsvrc_training, ilsvrc_validation, ilsvrc_devkit};
  const auto missing = [&](const char* name) { return !by_name.contains(name); };
  if (std::all_of(names.begin(), names.end(), missing)) return std::nullopt;
  if (std::any_of(names.begin(), names.end(), missing) || tars.size() != names.size())
    throw InputError(fmt::format("--src: ILSVRC-2012 is {}, {} and {}, all three and nothing else", names[0],
                                 names[1], names[2]));
  return find_ilsvrc_images({by_name[ilsvrc_training], by_name[ilsvrc_validation], by_name[ilsvrc_devkit]});
}

/// Finds the images in what --src names: a folder, or a comma list of tars.
LabelledImages find_images(const std::string& src, const DataOptions& data) {
  const std::string& labels = data.labels;
  std::error_code ignored;
  std::vector<std::string> tars;
  if (fs::is_directory(src, ignored)) {
    if (!labels.empty()) return find_photos(src, labels, data.label_kind);
    for (const char* name : {ilsvrc_training, ilsvrc_validation, ilsvrc_devkit})
      if (fs::exists(fs::path(src) / name, ignored)) tars.push_back((fs::path(src) / name).string());
    if (auto ilsvrc = find_ilsvrc(tars)) return std::move(*ilsvrc);
    return find_labelled_images(src);
  }
  tars = fs::exists(src, ignored) ? std::vector<std::string>{src} : split_list(src);
  if (!labels.empty()) return find_photos(tars, labels, data.label_kind);
  if (auto ilsvrc = find_ilsvrc(tars)) return std::move(*ilsvrc);
  return find_labelled_images(tars);
}

/// Throws InputError if `dst` lies in `src`: the next time its images would be found, too.
void refuse_inside(const std::string& dst, const std::string& src) {
  std::error_code ignored;
  if (!fs::is_directory(src, ignored)) return;
  if (lies_in(dst, src))
    throw InputError(fmt::format("--dst {}: lies in --src; choose a folder outside", dst));
}

std::string range_text(int first, int count) {
  return count == 1 ? std::to_string(first) : fmt::format("{}-{}", first, first + count - 1);
}

/// Holds a tenth of the images out if none are for validation. Returns whether it did.
bool hold_out(LabelledImages& images, const std::string& src) {
  try {
    return hold_out_tenth(images, src);
  } catch (const InputError& e) {
    throw InputError(std::string(e.what()) + "; --hold-out 0 makes it a training image");
  }
}

/// Returns what to type to train on the data set.
std::string next_steps(const std::string& folder, const MakeDataResult& made) {
  std::string text = fmt::format(
      "train on it: convnet train {} --layer-def NET.cfg --layer-params NET-params.cfg --epochs 90 "
      "--test-freq 0 --test-one 0 --save-file RUN\n",
      shell_word(folder));
  if (made.validation_batches == 0 && made.training_batches == 1)
    text += fmt::format(
        "             it has one batch, and none to test with: --hold-out 1, or a --batch-size of at most "
        "{}, "
        "makes one\n",
        std::max<std::int64_t>(1, made.training_images / 2));
  return text;
}

}  // namespace

const std::vector<OptionSpec>& make_data_command_options() { return options_of_make_data().specs(); }

void make_data_command(const std::vector<std::string>& args) {
  const OptionTexts texts = parse_command_line(make_data_command_options(), args);
  const MakeDataCommandOptions options = options_of_make_data().parse(texts);
  require_options(texts, {"src", "dst"}, "");
  check_label_kind_used(texts, options.data);
  refuse_inside(options.dst, options.src);
  check_folder_writable(options.dst, "the data set is to be written to");
  LabelledImages images = find_images(options.src, options.data);
  if (images.kind == LabelKind::numbers)
    throw InputError(
        options.data.labels +
        ": holds numbers, and cuda-convnet2's batches have classes or tags; training reads the photos "
        "themselves: convnet train " +
        shell_word(options.src) + " --labels " + shell_word(options.data.labels) +
        " --cache-images FOLDER decodes and scales each only once");
  MakeDataOptions make;
  make.held_out = options.hold_out && hold_out(images, options.src);
  print_notes({too_many_threads(options.devices), left_out_text(images.left_out)});
  fmt::print("{}: {} training images, {} validation images{}, {} {}\n", options.src, images.training.size(),
             images.validation.size(), make.held_out ? " (a tenth, held out by a hash of their names)" : "",
             images.class_names.size(), to_string(images.kind));
  std::fflush(stdout);

  make.folder = options.dst;
  make.size = options.size;
  make.crop_to_square = options.crop_to_square;
  make.batch_size = options.batch_size;
  make.seed = options.step.seed;
  make.threads = options.devices.threads;
  make.skip_bad_images = options.data.skip_bad_images;
  MakeDataResult made;
  {
    ProgressLine line("make-data");
    bool first = true;
    made = make_data(images, make, [&](const MakeDataProgress& progress) {
      if (first && progress.before > 0) fmt::print("{} images are done already\n", progress.before);
      first = false;
      if (!progress.finished.empty()) {
        line.clear();
        fmt::print("{}: {} of {} images are done\n", progress.finished, progress.done, progress.total);
        std::fflush(stdout);
      }
      line.show(progress.done, progress.total, progress.done - progress.before);
    });
  }

  fmt::print("{}: {} training images (--train-range {})", options.dst, made.training_images,
             range_text(0, made.training_batches));
  if (made.validation_batches > 0)
    fmt::print(", {} validation images (--test-range {})", made.validation_images,
               range_text(made.first_validation_batch, made.validation_batches));
  fmt::print("\n{}", next_steps(options.dst, made));
  std::fflush(stdout);
  if (made.bad_images.empty()) return;
  fmt::print(stderr, "{} images were left out:\n", made.bad_images.size());
  for (const std::string& image : made.bad_images) fmt::print(stderr, "  {}\n", image);
}

}  // namespace convnet
