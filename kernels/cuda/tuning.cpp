#include "kernels/cuda/tuning.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "kernels/cuda/runtime.h"

namespace convnet::cuda {
namespace {

constexpr std::int64_t kDelayBytes = std::int64_t{128} << 20;  // too much for caches

std::string cache_folder() {
  const auto setting = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (std::string folder = setting("CONVNET_CACHE"); !folder.empty()) return folder;
  if (std::string folder = setting("XDG_CACHE_HOME"); !folder.empty()) return folder + "/convnet";
  if (const std::string home = setting("HOME"); !home.empty()) return home + "/.cache/convnet";
  return "";
}

std::string file_name(std::string device) {
  for (char& ch : device) {
    if (std::isalnum(static_cast<unsigned char>(ch)) == 0 && ch != '.' && ch != '-') ch = '_';
  }
  return "tuning-" + device + ".json";
}

}  // namespace

Delay::Delay() : memory_(allocate_memory(0, 2 * kDelayBytes)) {}

void Delay::put_into(Queue& queue) const {
  std::byte *here = memory_->data(), *there = here + kDelayBytes;
  queue.copy(there, here, kDelayBytes);
  queue.copy(here, there, kDelayBytes);
}

Tuning::Tuning(const std::string& device) {
  const std::string folder = cache_folder();
  if (folder.empty()) return;
  path_ = folder + "/" + file_name(device);
  std::ifstream in(path_);
  const auto json = nlohmann::json::parse(in, nullptr, false);
  if (!json.is_object()) return;
  for (const auto& [operation, choice] : json.items()) {
    if (choice.is_string()) choices_[operation] = choice.get<std::string>();
  }
}

std::optional<std::string> Tuning::find(const std::string& operation) const {
  const std::lock_guard lock(mutex_);
  const auto found = choices_.find(operation);
  if (found == choices_.end()) return std::nullopt;
  return found->second;
}

void Tuning::keep(const std::string& operation, const std::string& choice) {
  const std::lock_guard lock(mutex_);
  choices_[operation] = choice;
  write();
}

Queue& Tuning::queue() {
  const std::lock_guard lock(mutex_);
  if (!queue_) {
    constexpr int kWarmUp = 100;
    queue_ = make_stream_queue(0);
    const Delay delay;
    for (int i = 0; i < kWarmUp; ++i) delay.put_into(*queue_);
    wait_for(*queue_->mark());
  }
  return *queue_;
}

void Tuning::write() const {
  if (path_.empty()) return;
  // Other runs may write at the same time: every file is whole, and the last one stays.
  const std::string temporary = path_ + "." + std::to_string(getpid());
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), error);
  {
    std::ofstream out(temporary);
    out << nlohmann::json(choices_).dump(1) << "\n";
    if (!out.flush()) error = std::make_error_code(std::errc::io_error);
  }
  if (!error) std::filesystem::rename(temporary, path_, error);
  if (error) std::filesystem::remove(temporary, error);
}

}  // namespace convnet::cuda
