#include "kernels/cuda/tuning.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "convnet/base/clock.h"
#include "convnet/base/error.h"
#include "convnet/base/file_lock.h"
#include "convnet/base/output_file.h"
#include "kernels/cuda/runtime.h"

namespace convnet::cuda {
namespace {

constexpr std::int64_t kDelayBytes = std::int64_t{256} << 20;  // too much for caches

// Limits of most_tried(): seconds of an operation, and of all operations of a process, and what is then
// tried.
constexpr double kLong = 1, kTooLong = 3, kLongInAll = 90;
constexpr int kMost = 16, kFewer = 8, kFewest = 2;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string cache_folder() {
  if (std::string folder = environment("CONVNET_CACHE"); !folder.empty()) return folder;
  if (std::string folder = environment("XDG_CACHE_HOME"); !folder.empty()) return folder + "/convnet";
  if (const std::string home = environment("HOME"); !home.empty()) return home + "/.cache/convnet";
  return "";
}

std::string file_name(std::string device) {
  for (char& ch : device) {
    if (std::isalnum(static_cast<unsigned char>(ch)) == 0 && ch != '.' && ch != '-') ch = '_';
  }
  return "tuning-" + device + ".json";
}

}  // namespace

Tuning::Tuning(const std::string& device) : times_(environment("CONVNET_TUNING") != "off") {
  if (const std::string folder = cache_folder(); !folder.empty()) path_ = folder + "/" + file_name(device);
  read();
}

void Tuning::choose(const std::string& operation, const std::function<bool(const std::string& choice)>& take,
                    const std::function<std::string()>& time) {
  const auto accepted = [&] {
    const auto found = choices_.find(operation);
    return found != choices_.end() && take(found->second);
  };
  const std::lock_guard lock(choosing_);
  if (!times_) {
    time();
    return;
  }
  if (accepted()) return;
  std::optional<FileLock> others;
  if (!path_.empty()) {
    std::error_code ignored;  // what cannot be written is not kept
    std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), ignored);
    // If the lock cannot be taken, the choice is made without it.
    others.emplace(path_ + ".lock", FileLock::Kind::file, FileLock::Wait::yes);
    read();
    if (accepted()) return;
  }
  const auto start = Clock::now();
  const std::string chosen = time();
  seconds_ += seconds_since(start);
  choices_[operation] = chosen;
  write();
}

int Tuning::most_tried(double seconds) const {
  if (!times_) return 1;
  if (seconds_ + seconds > kLongInAll) return kFewest;
  return seconds < kLong ? kMost : seconds < kTooLong ? kFewer : kFewest;
}

const Delay& Tuning::delay(int device) {
  const auto found = delays_.find(device);
  if (found != delays_.end()) return found->second;
  return delays_.emplace(device, Delay(allocate_memory(device, kDelayBytes))).first->second;
}

std::byte* Tuning::arena(int device, std::int64_t bytes) {
  std::unique_ptr<DeviceMemory>& memory = arenas_[device];
  if (!memory || memory->bytes() < bytes) {
    memory.reset();
    memory = allocate_memory(device, bytes);
  }
  return memory->data();
}

void Tuning::free_memory() {
  const std::lock_guard lock(choosing_);
  delays_.clear();
  arenas_.clear();
}

std::shared_ptr<const ChosenConvolution> Tuning::convolution(const std::string& key) const {
  const std::lock_guard lock(keeping_);
  const auto found = convolutions_.find(key);
  return found == convolutions_.end() ? nullptr : found->second;
}

void Tuning::keep(const std::string& key, std::shared_ptr<const ChosenConvolution> chosen) {
  const std::lock_guard lock(keeping_);
  convolutions_[key] = std::move(chosen);
}

Queue& Tuning::queue(int device) {
  const std::lock_guard lock(making_queues_);
  std::unique_ptr<Queue>& queue = queues_[device];
  if (!queue) {
    auto made = make_stream_queue(device);
    if (times_) {
      constexpr int kWarmUp = 100;
      const Delay delay(allocate_memory(device, kDelayBytes));
      for (int i = 0; i < kWarmUp; ++i) delay.put_into(*made);
      wait_for(*made->mark());
    }
    queue = std::move(made);
  }
  return *queue;
}

/// Adds the choices of the file, which all processes share.
void Tuning::read() {
  if (path_.empty()) return;
  std::ifstream in(path_);
  const auto json = nlohmann::json::parse(in, nullptr, false);
  if (!json.is_object()) return;
  for (const auto& [operation, choice] : json.items()) {
    if (choice.is_string()) choices_[operation] = choice.get<std::string>();
  }
}

void Tuning::write() const {
  if (path_.empty()) return;
  try {
    // The file is replaced at once, because a reader without lock must find a whole file.
    write_whole_file(path_, nlohmann::json(choices_).dump(1) + "\n");
  } catch (const RunError&) {  // what cannot be written is not kept
  }
}

}  // namespace convnet::cuda
