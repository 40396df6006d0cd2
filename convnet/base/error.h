// The errors of the program and the exit code each one means. Libraries throw; only main() catches.
#pragma once

#include <stdexcept>
#include <string>

namespace convnet {

/// The errors of this file. Their texts may hold names and pieces of files that have any bytes: a NUL, at
/// which what() would end, becomes \x00.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& text);
};

/// The user's input is wrong: options, cfg files, data, checkpoints. Exit code 2.
class InputError : public Error {
 public:
  using Error::Error;
};

/// The run failed: a cost became NaN, a write failed, a device stalled. Exit code 1.
class RunError : public Error {
 public:
  using Error::Error;
};

/// A file cannot be written because the disk, or the user's share of it, is full. Exit code 1.
class DiskFullError : public RunError {
 public:
  using RunError::RunError;
};

/// The environment cannot do it: no such device, out of memory. Exit code 3.
class DeviceError : public Error {
 public:
  using Error::Error;
};

}  // namespace convnet
