// Options that several commands share, in groups by purpose. Names, defaults and documentation of each group
// are declared once, in its table.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "convnet/config/options.h"
#include "convnet/graph/settings.h"
#include "convnet/plan/topology.h"
#include "convnet/runtime/processes.h"
#include "kernels/backend.h"
#include "providers/provider.h"

namespace convnet {

/// The option of NetFileOptions::set, without dashes.
inline constexpr const char* kSetOption = "set";

/// The files of a net, and changes to them.
struct NetFileOptions {
  static constexpr OptionGroup group = OptionGroup::data;
  std::string layer_def, layer_params, layer_path;
  std::string conv_to_local, unshare_weights;
  std::vector<Setting> set;
  bool strict = false;
  bool operator==(const NetFileOptions&) const = default;
};
const OptionTable<NetFileOptions>& net_file_options();

/// The data set, the batches of it that are used, and how its images are prepared.
struct DataOptions {
  static constexpr OptionGroup group = OptionGroup::data;
  std::string provider, path, labels, cache_images;
  LabelKind label_kind = LabelKind::automatic;
  BatchRange train_range, test_range;
  bool hold_out = false;  ///< ImageOptions::hold_out; set by choose_ranges()
  bool test_one = true, shuffle = false, balance = false;
  bool grey = false;
  int inner_size = 0, crop_pad = 0, image_size = 0, decode_threads = 0;
  double color_noise = 0, scalar_mean = -1;
  bool pixel_std = false, multiview_test = false, skip_bad_images = false;
  Flip flip = Flip::automatic;
  double mixup = 0, cutmix = 0, random_erasing = 0, random_resized_crop = 0, color_jitter = 0;
  bool trivial_augment = false;
  bool operator==(const DataOptions&) const = default;
};
const OptionTable<DataOptions>& data_options();
/// Returns the data options that a plan depends on.
OptionTable<DataOptions> planned_data_options();

/// How the devices of layers are chosen: by the file, each layer on all devices, or by a search for the
/// fastest step.
enum class Parallel { cfg, data, automatic };

/// The kind of the devices. automatic: GPUs if the program can use one here, else CPU devices.
enum class DeviceKind { automatic, cpu, cuda };

/// The devices, and how they compute.
struct DeviceOptions {
  static constexpr OptionGroup group = OptionGroup::devices;
  /// A list of device numbers, or "all", "auto" or "local", which with_devices() replaces by lists.
  std::string gpu = "0";
  DeviceKind device = DeviceKind::automatic;
  std::optional<Precision> precision;  ///< nullopt: the usual one of the devices
  int threads = 0;
  Parallel parallel = Parallel::cfg;
  std::string model = "measured";  ///< the machine for which Parallel::automatic predicts steps
  bool nccl = true;
  bool shared_memory = true;
  double stall_timeout = kStallSeconds;
  /// The devices of each host, in the order of --gpu; empty for one host.
  std::vector<int> devices_of_hosts;
  /// The devices of each process, in the order of --gpu; empty for one process. Set by with_devices().
  std::vector<int> devices_of_processes;
  /// The devices of the processes that have the same cores as this one, and those of them that come before
  /// this process's. Set by with_devices() if there are several processes.
  int devices_on_cores = 0, devices_before = 0;
  /// The cores of this process, where those of a host share out its cores. Set by with_devices() if there are
  /// several processes.
  int cores = 0;
  bool operator==(const DeviceOptions&) const = default;

  /// Returns whether `gpu` is a word that with_devices() replaces.
  static bool is_word(const std::string& gpu) { return gpu == "all" || gpu == "auto" || gpu == "local"; }
  /// Returns physical device numbers in the order of --gpu; several hosts or processes may have the same
  /// ones. with_devices() must have replaced words. Throws InputError.
  std::vector<int> gpus() const;
  /// Returns the numbers of the devices of process `rank`.
  std::vector<int> gpus_of(int rank) const;
  Topology topology() const;
};
const OptionTable<DeviceOptions>& device_options();

/// StepOptions::mini for --mini auto, until choose_minibatch() has chosen one.
inline constexpr int kAutoMini = 0;

/// The minibatch of a step, and how it is computed.
struct StepOptions {
  static constexpr OptionGroup group = OptionGroup::training;
  int mini = 128;
  int microbatches = 1;  ///< for each replica of the layer with most replicas
  std::uint64_t seed = 1;
  bool conserve_mem = false;
  double clip_norm = 0;  ///< largest norm of the gradient of all weights; 0: no bound
  double ema = 0;        ///< decay of the weights' running averages; 0: none are kept
  bool operator==(const StepOptions&) const = default;
};
const OptionTable<StepOptions>& step_options();
/// Returns the table of commands that know what a minibatch takes: their --mini may be auto.
const OptionTable<StepOptions>& step_options_with_auto();

/// How much a command prints about its work.
struct ReportOptions {
  static constexpr OptionGroup group = OptionGroup::output;
  bool verbose = false, json = false;
  std::string profile;
  bool operator==(const ReportOptions&) const = default;
};
const OptionTable<ReportOptions>& report_options();

}  // namespace convnet
