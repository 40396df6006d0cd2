#include "convnet/net/options.h"

#include <cmath>
#include <numeric>
#include <string_view>

#include "convnet/base/error.h"

namespace convnet {
namespace {

std::string parse_range(const std::string& text, const ParamSpec&, BatchRange& out) {
  try {
    out = BatchRange::parse(text);
    return "";
  } catch (const InputError& e) {
    return e.what();
  }
}

std::string parse_seed(const std::string& text, const ParamSpec& rules, std::uint64_t& out) {
  double value = 0;
  if (std::string why = parse_value(text, rules, value); !why.empty()) return why;
  if (value != std::floor(value)) return "expects a whole number, not '" + text + "'";
  out = static_cast<std::uint64_t>(value);
  return "";
}

std::string parse_ids(const std::string& text, std::vector<int>& ids) {
  ParamSpec rules;
  rules.min = 0;
  rules.max = 1023;
  if (std::string why = parse_number_list(text, rules, ids); !why.empty()) return why;
  return ids.empty() ? "expects a comma list of device numbers, like 0,1 or 0-3, or all, auto or local" : "";
}

std::string parse_gpu(const std::string& text, const ParamSpec&, std::string& out) {
  out = text;
  std::vector<int> ids;
  // How many there are is not known here.
  if (DeviceOptions::is_word(text)) return "";
  if (!text.empty() && std::isalpha(static_cast<unsigned char>(text.front())) != 0)
    return "expects device numbers, like 0,1 or 0-3, or all, auto or local, not '" + text + "'";
  return parse_ids(text, ids);
}

/// "8x4": hosts, and devices of each; or "4,4,2": the devices of each host.
std::string parse_hosts(const std::string& text, const ParamSpec&, std::vector<int>& devices_of_hosts) {
  constexpr int kMostDevices = 1024;
  devices_of_hosts.clear();
  const std::vector<std::string> list = split_list(text);
  const std::size_t x = text.find('x');
  if (list.size() > 1) {
    int sum = 0;
    for (const std::string& number : list) {
      const auto devices = to_number<int>(number);
      if (!devices || *devices < 1 || *devices > kMostDevices - sum) break;
      devices_of_hosts.push_back(*devices);
      sum += *devices;
    }
    if (devices_of_hosts.size() == list.size()) return "";
  } else if (x != std::string::npos) {
    const auto hosts = to_number<int>(text.substr(0, x)), devices = to_number<int>(text.substr(x + 1));
    if (hosts && devices && *hosts >= 1 && *devices >= 1 && *hosts <= kMostDevices / *devices) {
      devices_of_hosts.assign(static_cast<std::size_t>(*hosts), *devices);
      return "";
    }
  }
  return "expects the numbers of hosts and of devices on each, like 8x4, or the number of devices of each "
         "host, like 4,4,2, at most " +
         std::to_string(kMostDevices) + " devices together, not '" + text + "'";
}

}  // namespace

const OptionTable<NetFileOptions>& net_file_options() {
  OptionSpec set = parsed_option(
      kSetOption, &NetFileOptions::set, parse_settings,
      {.fallback = "",
       .unit = "layer.key=value",
       .doc =
           "gives a key of a layer, or of DEFAULT, another value than its file does, for all of the run; may "
           "be given several times, or as a list: a comma before LAYER.KEY= begins the next one, and any "
           "other belongs to the value"});
  set.repeats = set.may_be_empty = true;
  static const OptionTable<NetFileOptions> table({
      option("layer-def", &NetFileOptions::layer_def,
             {.unit = "file",
              .doc = "the layer definition file; a name of a net that comes with the program, like "
                     "resnet18, will do (convnet nets lists them)"}),
      option("layer-params", &NetFileOptions::layer_params,
             {.unit = "file",
              .doc = "the layer parameter file; lenet-params, or lenet, stands for that of the net lenet; a "
                     "net that comes with the program brings its own"}),
      of_original(option("layer-path", &NetFileOptions::layer_path,
                         {.fallback = "",
                          .unit = "folder",
                          .doc = "folder put before both files' names, unless they are absolute"})),
      of_original(unsaved_option(
          "conv-to-local", &NetFileOptions::conv_to_local,
          {.fallback = "",
           .unit = "layers",
           .doc =
               "conv layers to make local; with --load-file each position starts with the shared filters"})),
      of_original(unsaved_option(
          "unshare-weights", &NetFileOptions::unshare_weights,
          {.fallback = "",
           .unit = "layers",
           .doc = "layers, or inputs layer[i], that stop sharing the weights weightSource names"})),
      option("strict", &NetFileOptions::strict,
             {.fallback = "0", .doc = "unknown keys in the layer files are errors, not warnings"}),
      std::move(set),
  });
  return table;
}

const OptionTable<DataOptions>& data_options() {
  OptionSpec labels = option(
      "labels", &DataOptions::labels,
      {.fallback = "",
       .unit = "file",
       .doc =
           "CSV file with a line PHOTO,CLASS for each photo of provider image, or of make-data's --src, or "
           "with several tags or numbers (--label-kind); PHOTO is a path below the folder or a file's name, "
           "with or without its extension; empty: folders are the classes"});
  labels.may_be_empty = true;
  OptionSpec cache = of_output(option(
      "cache-images", &DataOptions::cache_images,
      {.fallback = "",
       .unit = "folder",
       .doc = "provider image keeps decoded pictures, whose shorter side is at most the image size, in this "
              "folder, for later epochs, runs and other processes; empty: it decodes photos whenever it "
              "needs them. A run that goes on needs the option again"}));
  cache.may_be_empty = true;
  static const OptionTable<DataOptions> table({
      option("data-provider", &DataOptions::provider,
             {.unit = "provider",
              .doc = "mnist, cifar, cifar-cropped, image, npy, or dummy-CxHxW-K and other dummy-… forms "
                     "for random data"}),
      option("data-path", &DataOptions::path,
             {.fallback = "", .unit = "folder", .doc = "folder of the data set"}),
      std::move(labels),
      choice_option(
          "label-kind", &DataOptions::label_kind,
          {{"auto", LabelKind::automatic},
           {"classes", LabelKind::classes},
           {"tags", LabelKind::tags},
           {"numbers", LabelKind::numbers}},
          {.fallback = "auto",
           .doc = "what the file of --labels says of each photo: a class; tags, separated by ; or |, or as "
                  "a column of 0 and 1 for each; or numbers (regression); auto: tags if there are such "
                  "separators or "
                  "columns, numbers if there are several columns with others, else classes"}),
      parsed_option("train-range", &DataOptions::train_range, parse_range,
                    {.unit = "batches", .doc = "training batches, like 1-5"}),
      parsed_option("test-range", &DataOptions::test_range, parse_range,
                    {.unit = "batches", .doc = "test batches, like 6"}),
      of_original(option("test-one", &DataOptions::test_one,
                         {.fallback = "1",
                          .doc = "each test uses one test batch, in turn; 0: all of them, which is the "
                                 "default with --patience, --plateau or --keep-best, and for folders and "
                                 "tars of images"})),
      option("shuffle", &DataOptions::shuffle,
             {.fallback = "0",
              .doc = "shuffle the images of the training range each epoch; holds the range in memory, unless "
                     "they are folders or tars of provider image"}),
      option("balance", &DataOptions::balance,
             {.fallback = "0",
              .doc = "draw the images of each epoch so that all classes are equally frequent: those of small "
                     "classes several times, not all of large ones; shuffles, too"}),
      option(
          "inner-size", &DataOptions::inner_size,
          {.fallback = "0",
           .min = 0,
           .max = 4096,
           .unit = "pixels",
           .doc = "side of the square that training cuts out at random, and mirrors half the time (--flip); "
                  "tests take the centre; 0: the whole image"}),
      option("crop-pad", &DataOptions::crop_pad,
             {.fallback = "0",
              .min = 0,
              .max = 1024,
              .unit = "pixels",
              .doc = "zeros around an image before training cuts out its square"}),
      choice_option(
          "flip", &DataOptions::flip, {{"auto", Flip::automatic}, {"0", Flip::off}, {"1", Flip::on}},
          {.fallback = "auto",
           .doc = "mirror training images left to right half the time; auto: where they are cropped, "
                  "and always for provider image"}),
      option("mixup", &DataOptions::mixup,
             {.fallback = "0",
              .min = 0,
              .max = 100,
              .doc = "blend each training image with another one, and its label, by a weight from "
                     "Beta(mixup, mixup), like 0.2; 0: off"}),
      option("cutmix", &DataOptions::cutmix,
             {.fallback = "0",
              .min = 0,
              .max = 100,
              .doc = "put a rectangle of another image into each training image, of an area from "
                     "Beta(cutmix, cutmix), like 1, by which labels are mixed; with --mixup a coin chooses "
                     "for each image; 0: off"}),
      option("trivial-augment", &DataOptions::trivial_augment,
             {.fallback = "0",
              .doc = "change each training image in one of 14 ways (TrivialAugment): shift, shear, rotation, "
                     "colours, contrast and others, by a random magnitude"}),
      option("color-jitter", &DataOptions::color_jitter,
             {.fallback = "0",
              .min = 0,
              .max = 10,
              .doc = "multiply brightness, contrast and saturation of each training image by numbers between "
                     "1 - color-jitter, but at least 0, and 1 + color-jitter, like 0.4; 0: off"}),
      option("random-erasing", &DataOptions::random_erasing,
             {.fallback = "0",
              .min = 0,
              .max = 1,
              .doc = "probability that a training image has a rectangle of 2 to 33 % of its area replaced by "
                     "the mean image"}),
      option("random-resized-crop", &DataOptions::random_resized_crop,
             {.fallback = "0",
              .min = 0,
              .max = 1,
              .doc = "training with provider image scales a random rectangle of each image, of at least this "
                     "part of its area, to --inner-size, like 0.08; 0: squares of the scaled image"}),
      option("pixel-std", &DataOptions::pixel_std,
             {.fallback = "0",
              .doc = "divide pixels by their channel's standard deviation over the training range"}),
      of_original(
          option("multiview-test", &DataOptions::multiview_test,
                 {.fallback = "0",
                  .doc = "tests average the softmax over several crops of each image, at the borders and the "
                         "centre: nine, or ten of provider image, with mirror images"})),
      option("grey", &DataOptions::grey,
             {.fallback = "0",
              .doc = "photographs of provider image have one channel, their luma, instead of three: for "
                     "X-rays, scans and digits"}),
      option("image-size", &DataOptions::image_size,
             {.fallback = "0",
              .min = 0,
              .max = 4096,
              .unit = "pixels",
              .doc = "provider image scales the shorter side of its images to this; 0: 8/7 of --inner-size, "
                     "or 256"}),
      option("color-noise", &DataOptions::color_noise,
             {.fallback = "0",
              .min = 0,
              .max = 100,
              .doc = "provider image adds random colour to training images, scaled by this many standard "
                     "deviations, along the principal components of the colours"}),
      of_original(
          option("scalar-mean", &DataOptions::scalar_mean,
                 {.fallback = "-1",
                  .min = -1,
                  .max = 255,
                  .doc = "subtracted from every pixel instead of the mean image; negative: the mean image"})),
      option("skip-bad-images", &DataOptions::skip_bad_images,
             {.fallback = "0",
              .doc = "go on past images that cannot be read, and name them at the end: provider image takes "
                     "the next readable one instead, make-data leaves them out"}),
      option("decode-threads", &DataOptions::decode_threads,
             {.fallback = "0",
              .min = 0,
              .max = 1024,
              .unit = "threads",
              .doc = "threads of provider image that decode ahead of training; 0: one for each core"}),
      std::move(cache),
  });
  return table;
}

OptionTable<DataOptions> planned_data_options() {
  return data_options().without(
      {"test-one", "shuffle", "balance", "skip-bad-images", "decode-threads", "cache-images"});
}

const OptionTable<DeviceOptions>& device_options() {
  static const OptionTable<DeviceOptions> table({
      parsed_option(
          "gpu", &DeviceOptions::gpu, parse_gpu,
          {.fallback = "0",
           .unit = "devices",
           .doc =
               "device numbers, like 0,1 or 0-3; i in a gpu= line means the i-th of them, from 0; all: all "
               "devices of the machine; auto: all GPUs, or a CPU device for each NUMA node; local: one "
               "device, numbered by the process's rank on its host. With "
               "several processes the list is that of each of them, and the lists are joined in the order "
               "of ranks"}),
      parsed_option(
          "hosts", &DeviceOptions::devices_of_hosts, parse_hosts,
          {.fallback = "",
           .unit = "hosts",
           .doc =
               "hosts x devices of each, like 8x4, or the devices of each host, like 4,4,2: gradients are "
               "summed on each host before they go to others, which fixes the order of the sums and so the "
               "last bits of the results; --gpu then lists all devices, host by host, or those of the "
               "largest host, the first of which stand for those of each; by default one host, or the hosts "
               "that the "
               "processes are on"}),
      choice_option(
          "device", &DeviceOptions::device,
          {{"auto", DeviceKind::automatic}, {"cpu", DeviceKind::cpu}, {"cuda", DeviceKind::cuda}},
          {.fallback = "auto", .doc = "where to compute; auto: cuda when built and present, else cpu"}),
      option("threads", &DeviceOptions::threads,
             {.fallback = "0",
              .min = 0,
              .max = 4096,
              .unit = "cores",
              .doc = "cores over all CPU devices of a process together; 0: all that it may use"}),
      choice_option(
          "precision", &DeviceOptions::precision,
          {{"fp32", Precision::fp32}, {"tf32", Precision::tf32}, {"bf16", Precision::bf16}},
          {.fallback = "",
           .doc = "arithmetic of convolutions and matrix products; bf16 also keeps activations so; the "
                  "default is tf32 on GPUs, fp32 on CPUs"}),
      choice_option(
          "parallel", &DeviceOptions::parallel,
          {{"cfg", Parallel::cfg}, {"data", Parallel::data}, {"auto", Parallel::automatic}},
          {.fallback = "cfg",
           .doc = "cfg: layers run where the file says; data: every layer on all devices; auto: where "
                  "a step is predicted to be fastest (convnet place shows the candidates)"}),
      unsaved_option(
          "model", &DeviceOptions::model,
          {.fallback = "measured",
           .unit = "file",
           .doc = "with --parallel auto the machine that steps are predicted for: 'measured' times each "
                  "operation here, else a device model file, like bench/models/nvlink-8gpu.json"}),
      option(
          "nccl", &DeviceOptions::nccl,
          {.fallback = "1",
           .doc =
               "GPUs of several processes exchange data by NCCL where each process has one GPU of its own; "
               "0: through the hosts' memory"}),
      unsaved_option(
          "shared-memory", &DeviceOptions::shared_memory,
          {.fallback = "1",
           .doc = "processes of one host exchange data through memory that they share, where the system "
                  "allows it; 0: by MPI, like processes of different hosts"}),
      option(
          "stall-timeout", &DeviceOptions::stall_timeout,
          {.fallback = std::to_string(kStallSeconds),
           .min = 0.1,
           .max = 1e9,
           .unit = "seconds",
           .doc =
               "give up, with a report of what each device waits for, when none has finished a task for so "
               "long, or when another process has not started"}),
  });
  return table;
}

namespace {

std::string parse_mini(const std::string& text, const ParamSpec& rules, int& mini) {
  if (text == "auto") {
    mini = kAutoMini;
    return "";
  }
  constexpr std::string_view kExpects = "expects ";
  std::string wrong = parse_value(text, rules, mini);
  if (wrong.starts_with(kExpects)) wrong.insert(kExpects.size(), "auto, or ");
  return wrong;
}

/// Makes the table of StepOptions around its first option.
OptionTable<StepOptions> step_table(OptionSpec mini) {
  return OptionTable<StepOptions>({
      std::move(mini),
      option("microbatches", &StepOptions::microbatches,
             {.fallback = "1",
              .min = 1,
              .max = 1024,
              .doc = "cut the images of each replica into so many microbatches, which it works on one after "
                     "the other: less memory for activations, and layers on different devices work as a "
                     "pipeline; weights are updated as often as without, but a bnorm's statistics are those "
                     "of a microbatch"}),
      parsed_option(
          "seed", &StepOptions::seed, parse_seed,
          {.fallback = "1", .min = 0, .max = 9007199254740992.0, .doc = "decides every random number"}),
      option(
          "conserve-mem", &StepOptions::conserve_mem,
          {.fallback = "0",
           .doc =
               "compute outputs of cheap layers (pools, norms, neurons) again in backward instead of keeping "
               "them: less memory, same numbers, slower"}),
      option(
          "clip-norm", &StepOptions::clip_norm,
          {.fallback = "0",
           .min = 0,
           .unit = "norm",
           .doc =
               "scale the gradient of all weights together down to this norm where it is longer; 0: never"}),
      option("ema", &StepOptions::ema,
             {.fallback = "0",
              .min = 0,
              .max = 0.9999999,
              .doc = "keep exponential running averages of the weights (EMA), which tests and checkpoints "
                     "use; the decay of a minibatch, like 0.999; 0: none"}),
  });
}

}  // namespace

const OptionTable<StepOptions>& step_options() {
  static const OptionTable<StepOptions> table =
      step_table(option("mini", &StepOptions::mini,
                        {.fallback = "128",
                         .min = 1,
                         .max = 1 << 24,
                         .unit = "images",
                         .doc = "minibatch size over all devices together"}));
  return table;
}

const OptionTable<StepOptions>& step_options_with_auto() {
  static const OptionTable<StepOptions> table = step_table(parsed_option(
      "mini", &StepOptions::mini, parse_mini,
      {.fallback = "128",
       .min = 1,
       .max = 1 << 24,
       .unit = "images",
       .doc = "minibatch size over all devices together; auto: as large as the free memory and the batches "
              "of the data set allow, a power of two for each device"}));
  return table;
}

const OptionTable<ReportOptions>& report_options() {
  static const OptionTable<ReportOptions> table({
      unsaved_option("verbose", &ReportOptions::verbose,
                     {.fallback = "0",
                      .doc = "plan: also print every task; training: also print how each batch's time was "
                             "spent and the learning rates, and after a test the magnitudes of weights"}),
      unsaved_option("json", &ReportOptions::json,
                     {.fallback = "0", .doc = "print one JSON object and nothing else"}),
      of_output(unsaved_option(
          "profile", &ReportOptions::profile,
          {.fallback = "",
           .unit = "file",
           .doc = "file for the measured timeline of some steps (Chrome trace, for ui.perfetto.dev)"})),
  });
  return table;
}

std::vector<int> DeviceOptions::gpus() const {
  std::vector<int> ids;
  if (const std::string why = parse_ids(gpu, ids); !why.empty()) throw InputError("--gpu " + why);
  return ids;
}

std::vector<int> DeviceOptions::gpus_of(int rank) const {
  if (devices_of_processes.empty()) return gpus();
  const std::vector<int> all = gpus();
  const auto count = devices_of_processes.begin() + rank;
  const auto begin = all.begin() + std::accumulate(devices_of_processes.begin(), count, 0);
  return {begin, begin + *count};
}

Topology DeviceOptions::topology() const { return {devices_of_hosts, devices_of_processes}; }

}  // namespace convnet
