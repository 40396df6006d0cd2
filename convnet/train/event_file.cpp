#include "convnet/train/event_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <vector>

#include "convnet/base/checksum.h"
#include "convnet/base/error.h"
#include "convnet/base/output_file.h"
#include "convnet/base/protobuf.h"

namespace convnet {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStem = "events.out.tfevents.";

using protobuf::bytes, protobuf::little_endian, protobuf::number, protobuf::real32, protobuf::real64;

// --- Records: the length, its checksum, the bytes, their checksum -------------------------------

std::string masked_crc(std::string_view bytes) { return little_endian(masked_crc32c(bytes)); }

std::string record(std::string_view message) {
  const std::string length = little_endian(static_cast<std::uint64_t>(message.size()));
  return length + masked_crc(length) + std::string(message) + masked_crc(message);
}

// Field numbers of the messages Event, Summary, Summary.Value, Summary.Image, TensorProto, ....
namespace event_field {
constexpr int wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7;
}
namespace value_field {
constexpr int tag = 1, simple_value = 2, image = 4, tensor = 8, metadata = 9;
}
namespace image_field {
constexpr int height = 1, width = 2, colorspace = 3, encoded = 4;
}

/// The summary of one value of a series.
std::string summary(const std::string& tag, const std::string& value) {
  return bytes(event_field::summary, bytes(1, bytes(value_field::tag, tag) + value));
}

/// Returns the names of the event files in a folder, none if it does not exist. Throws RunError.
std::vector<std::string> event_files(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with(kStem)) names.push_back(name);
  }
  if (error && error != std::errc::no_such_file_or_directory)
    throw RunError(folder + ": cannot be searched for event files: " + error.message());
  return names;
}

/// The files' names hold a second; they are read in order of names.
std::int64_t next_number(const std::string& folder) {
  using std::chrono::system_clock;
  std::int64_t next =
      std::chrono::duration_cast<std::chrono::seconds>(system_clock::now().time_since_epoch()).count();
  for (const std::string& name : event_files(folder)) {
    std::int64_t number = 0;
    const char* const first = name.data() + kStem.size();
    const auto [stop, wrong] = std::from_chars(first, name.data() + name.size(), number);
    if (wrong == std::errc() && number >= next && number < 9'999'999'999) next = number + 1;
  }
  return next;
}

}  // namespace

bool has_event_files(const std::string& folder) { return !event_files(folder).empty(); }

EventFile::EventFile(const std::string& folder, std::int64_t first_step) {
  make_folders(folder);
  path_ = (fs::path(folder) / fmt::format("{}{:010}.convnet", kStem, next_number(folder))).string();
  errno = 0;
  file_.open(path_, std::ios::binary | std::ios::app);
  if (!file_) fail(errno);
  event(0, bytes(event_field::file_version, "brain.Event:2"));
  constexpr int kStatus = 1, kStart = 1;
  event(first_step, bytes(event_field::session_log, number(kStatus, kStart)));
  try {
    flush();
  } catch (const RunError&) {
    std::error_code ignored;
    fs::remove(path_, ignored);
    throw;
  }
}

void EventFile::scalar(const std::string& tag, std::int64_t step, double value) {
  event(step, summary(tag, real32(value_field::simple_value, static_cast<float>(value))));
}

void EventFile::text(const std::string& tag, std::int64_t step, const std::string& text) {
  constexpr int kDtype = 1, kShape = 2, kStrings = 8, kString = 7, kDim = 2, kSize = 1;
  const std::string tensor =
      number(kDtype, kString) + bytes(kShape, bytes(kDim, number(kSize, 1))) + bytes(kStrings, text);
  constexpr int kPluginData = 1, kPluginName = 1;
  const std::string metadata = bytes(kPluginData, bytes(kPluginName, "text"));
  event(step, summary(tag, bytes(value_field::tensor, tensor) + bytes(value_field::metadata, metadata)));
}

void EventFile::image(const std::string& tag, std::int64_t step, int width, int height,
                      const std::string& png) {
  constexpr int kRgb = 3;
  const std::string image = number(image_field::height, height) + number(image_field::width, width) +
                            number(image_field::colorspace, kRgb) + bytes(image_field::encoded, png);
  event(step, summary(tag, bytes(value_field::image, image)));
}

void EventFile::event(std::int64_t step, std::string_view fields) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  const std::string message =
      real64(event_field::wall_time, now.count()) + number(event_field::step, step) + std::string(fields);
  file_ << record(message);
}

void EventFile::flush() {
  errno = 0;
  file_.flush();
  if (!file_) fail(errno);
}

void EventFile::fail(int code) const {
  throw RunError(path_ + ": cannot be written" +
                 (code == 0 ? "" : ": " + std::generic_category().message(code)));
}

}  // namespace convnet
