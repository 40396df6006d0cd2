#include "convnet/base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "convnet/base/error.h"

namespace convnet {
namespace {

const char* kind_of(const struct stat& status) {
  if (S_ISDIR(status.st_mode)) return "a folder";
  if (S_ISFIFO(status.st_mode)) return "a pipe";
  if (S_ISSOCK(status.st_mode)) return "a socket";
  return "a device";
}

}  // namespace

void check_name(const std::string& path) {
  if (path.find('\0') != std::string::npos)
    throw InputError(path + ": no such file: a name has no NUL (zero byte)");
}

std::size_t read_at(int descriptor, const std::string& path, std::uint64_t offset, void* to,
                    std::size_t count) {
  std::size_t done = 0;
  while (done < count) {
    const ssize_t got =
        pread(descriptor, static_cast<char*>(to) + done, count - done, static_cast<off_t>(offset + done));
    if (got == 0) break;
    if (got < 0 && errno != EINTR)
      throw RunError(fmt::format("{}: cannot be read: {}", path, error_text(errno)));
    if (got > 0) done += static_cast<std::size_t>(got);
  }
  return done;
}

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  check_name(path_);
  struct stat status = {};
  // Before it is opened: opening a pipe would wait for a writer.
  if (stat(path_.c_str(), &status) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) throw InputError(path_ + ": no such file");
    throw RunError(fmt::format("{}: cannot be read: {}", path_, error_text(errno)));
  }
  if (!S_ISREG(status.st_mode))
    throw InputError(fmt::format("{}: is {}; only regular files can be read here", path_, kind_of(status)));
  descriptor_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) throw RunError(fmt::format("{}: cannot be opened: {}", path_, error_text(errno)));
  size_ = static_cast<std::uint64_t>(status.st_size);
}

InputFile::InputFile(std::string name, std::string contents)
    : path_(std::move(name)), contents_(std::move(contents)), size_(contents_.size()) {}

InputFile::~InputFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

std::string InputFile::read(std::uint64_t offset, std::uint64_t bytes) const {
  if (offset > size_ || bytes > size_ - offset)
    throw InputError(
        fmt::format("{}: bytes {} to {} are beyond its end at {}", path_, offset, offset + bytes, size_));
  if (descriptor_ < 0)
    return contents_.substr(static_cast<std::size_t>(offset), static_cast<std::size_t>(bytes));
  std::string out(static_cast<std::size_t>(bytes), '\0');
  if (read_at(descriptor_, path_, offset, out.data(), out.size()) < out.size())
    throw InputError(path_ + ": the file was changed while it was in use");
  return out;
}

std::string read_whole_file(const std::string& path) {
  const InputFile file(path);
  return file.read(0, file.size());
}

std::filesystem::path canonical_path(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  // weakly_canonical() leaves a relative path relative if its first folder is not there.
  std::error_code none;
  return fs::weakly_canonical(fs::absolute(path, none), none);
}

bool lies_in(const std::string& path, const std::string& folder) {
  namespace fs = std::filesystem;
  const fs::path inside = canonical_path(path).lexically_relative(canonical_path(folder));
  return !inside.empty() && *inside.begin() != "..";
}

bool is_file_called(const std::string& path, int descriptor) {
  struct stat open_one = {}, named = {};
  return fstat(descriptor, &open_one) == 0 && stat(path.c_str(), &named) == 0 &&
         open_one.st_ino == named.st_ino && open_one.st_dev == named.st_dev;
}

bool natural_less(std::string_view a, std::string_view b) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto digits = [&](std::string_view text, std::size_t& at) {
    while (at < text.size() && text[at] == '0') ++at;
    const std::size_t begin = at;
    while (at < text.size() && is_digit(text[at])) ++at;
    return text.substr(begin, at - begin);
  };
  std::size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      const std::string_view x = digits(a, i), y = digits(b, j);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
    } else {
      if (a[i] != b[j]) return static_cast<unsigned char>(a[i]) < static_cast<unsigned char>(b[j]);
      ++i;
      ++j;
    }
  }
  if (a.size() - i != b.size() - j) return a.size() - i < b.size() - j;
  return a < b;  // as 01 and 1
}

std::string error_text(int error) { return std::generic_category().message(error); }

}  // namespace convnet
