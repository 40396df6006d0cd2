#include "kernels/cuda/tuning.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "convnet/base/error.h"
#include "convnet/base/file_lock.h"
#include "convnet/base/output_file.h"
#include "kernels/cuda/runtime.h"

namespace convnet::cuda {
namespace {

constexpr std::int64_t kDelayBytes = std::int64_t{256} << 20;  // too much for caches

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

Delay make_delay(int device) { return Delay(allocate_memory(device, kDelayBytes)); }

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
  choices_[operation] = time();
  write();
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
      const Delay delay = make_delay(device);
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
