// Reads event files, sharing nothing with what writes them. Everything unexpected throws.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/temp_folder.h"

namespace convnet::test {

/// The contents of an event: one value of a series, the version, or that a session starts.
struct Event {
  double wall_time = 0;
  std::int64_t step = 0;
  bool start = false;
  std::string version, tag;
  std::optional<float> scalar;
  std::string text;
  std::int64_t width = 0, height = 0;
  std::string png;
};

/// A field of a protocol buffer message.
struct Field {
  std::uint64_t number = 0, value = 0;  ///< the value of numbers: all of their bits
  std::string bytes;                    ///< contents of a string or a message
};

inline std::uint64_t take_varint(const std::string& bytes, std::size_t& at) {
  std::uint64_t value = 0;
  for (unsigned shift = 0;; shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.at(at++));
    value |= static_cast<std::uint64_t>(byte & 0x7FU) << shift;
    if (byte < 0x80) return value;
  }
}

template <class T>
T number_at(const std::string& bytes, std::size_t at) {
  T value{};
  if (at + sizeof value > bytes.size()) throw std::runtime_error("the file ends early");
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

inline std::vector<Field> fields_of(const std::string& message) {
  std::vector<Field> fields;
  for (std::size_t at = 0; at < message.size();) {
    const std::uint64_t key = take_varint(message, at);
    Field field{key >> 3U, 0, {}};
    if ((key & 7U) == 0) {
      field.value = take_varint(message, at);
    } else if ((key & 7U) == 1) {
      field.value = number_at<std::uint64_t>(message, at);
      at += 8;
    } else if ((key & 7U) == 5) {
      field.value = number_at<std::uint32_t>(message, at);
      at += 4;
    } else if ((key & 7U) == 2) {
      const std::uint64_t size = take_varint(message, at);
      if (size > message.size() - at) throw std::runtime_error("a field ends after its message");
      field.bytes = message.substr(at, size);
      at += size;
    } else {
      throw std::runtime_error("unknown wire type");
    }
    fields.push_back(field);
  }
  return fields;
}

/// The only field of that number.
inline Field field_of(const std::string& message, std::uint64_t number) {
  std::optional<Field> found;
  for (const Field& field : fields_of(message)) {
    if (field.number != number) continue;
    if (found) throw std::runtime_error("a field is there twice");
    found = field;
  }
  if (!found) throw std::runtime_error("there is no field " + std::to_string(number));
  return *found;
}

inline float float_of(std::uint64_t bits) {
  const auto low = static_cast<std::uint32_t>(bits);
  float value = 0;
  std::memcpy(&value, &low, sizeof value);
  return value;
}

inline void read_value(const std::string& value, Event& event) {
  for (const Field& field : fields_of(value)) {
    if (field.number == 1) event.tag = field.bytes;
    if (field.number == 2) event.scalar = float_of(field.value);
    if (field.number == 4) {
      event.height = static_cast<std::int64_t>(field_of(field.bytes, 1).value);
      event.width = static_cast<std::int64_t>(field_of(field.bytes, 2).value);
      event.png = field_of(field.bytes, 4).bytes;
    }
    if (field.number == 8) {
      if (field_of(field.bytes, 1).value != 7) throw std::runtime_error("the tensor is no string");
      event.text = field_of(field.bytes, 8).bytes;
    }
    if (field.number == 9 && field_of(field_of(field.bytes, 1).bytes, 1).bytes != "text")
      throw std::runtime_error("another plugin than text");
  }
}

inline Event read_event(const std::string& message) {
  Event event;
  for (const Field& field : fields_of(message)) {
    if (field.number == 1) std::memcpy(&event.wall_time, &field.value, sizeof event.wall_time);
    if (field.number == 2) event.step = static_cast<std::int64_t>(field.value);
    if (field.number == 3) event.version = field.bytes;
    if (field.number == 5) read_value(field_of(field.bytes, 1).bytes, event);
    if (field.number == 7) event.start = field_of(field.bytes, 1).value == 1;
  }
  return event;
}

/// Bit by bit, as it is defined.
inline std::uint32_t slow_crc32c(const std::string& bytes) {
  std::uint32_t crc = 0xFFFFFFFF;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1U) != 0 ? crc >> 1U ^ 0x82F63B78U : crc >> 1U;
  }
  return ~crc;
}

inline std::vector<Event> read_events(const std::string& path) {
  const std::string bytes = read_file(path);
  const auto check = [&](std::size_t at, std::size_t size) {
    const std::uint32_t crc = slow_crc32c(bytes.substr(at, size));
    const std::uint32_t masked = (crc >> 15U | crc << 17U) + 0xA282EAD8U;
    if (number_at<std::uint32_t>(bytes, at + size) != masked) throw std::runtime_error("a wrong checksum");
  };
  std::vector<Event> events;
  for (std::size_t at = 0; at < bytes.size();) {
    const auto size = static_cast<std::size_t>(number_at<std::uint64_t>(bytes, at));
    check(at, 8);
    check(at + 12, size);
    events.push_back(read_event(bytes.substr(at + 12, size)));
    at += 12 + size + 4;
  }
  return events;
}

/// Reads a folder as TensorBoard does: its files in order of their names; a session's start drops what was
/// there of its step and later ones.
inline std::vector<Event> read_folder(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename().string().find("tfevents") != std::string::npos)
      files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  std::vector<Event> all;
  for (const std::string& file : files) {
    for (const Event& event : read_events(file)) {
      if (event.start) {
        all.erase(
            std::remove_if(all.begin(), all.end(), [&](const Event& e) { return e.step >= event.step; }),
            all.end());
      } else if (event.version.empty()) {
        all.push_back(event);
      }
    }
  }
  return all;
}

}  // namespace convnet::test
