#include "providers/temporary_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <utility>

#include "kernels/error.h"

namespace convnet {
namespace {

constexpr std::string_view temporary_mark = ".tmp-";

/// Repeats a system call that a signal interrupted.
template <class Call>
auto retry(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

/// Must be called while errno is that of the failure.
[[noreturn]] void cannot_write(const std::string& path) {
  const int code = errno;
  throw RunError(fmt::format("{}: cannot be written: {}", path, std::generic_category().message(code)));
}

}  // namespace

TemporaryFile::TemporaryFile(const std::string& path)
    : path_(path),
      temporary_(fmt::format("{}{}{}", path, temporary_mark, ::getpid())),
      descriptor_(retry([this] {
        return ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
      })) {
  if (descriptor_ < 0) cannot_write(path_);
}

TemporaryFile::~TemporaryFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!published_) ::unlink(temporary_.c_str());
}

void TemporaryFile::write(const void* bytes, std::size_t count) {
  const char* from = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t done = retry([&] { return ::write(descriptor_, from, count); });
    if (done < 0) cannot_write(path_);
    from += done;
    count -= static_cast<std::size_t>(done);
  }
}

void TemporaryFile::publish() {
  if (retry([this] { return ::fsync(descriptor_); }) != 0) cannot_write(path_);
  // Linux has closed it even if it says EINTR.
  if (::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR) cannot_write(path_);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) cannot_write(path_);
  published_ = true;
  sync_parent_folder(path_);
}

void write_whole_file(const std::string& path, std::string_view bytes) {
  TemporaryFile file(path);
  file.write(bytes.data(), bytes.size());
  file.publish();
}

void sync_parent_folder(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  const std::string name = parent.empty() ? "." : parent.string();
  const int folder = retry([&] { return ::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (folder < 0) cannot_write(path);
  const int wrong = retry([&] { return ::fsync(folder); }) == 0 ? 0 : errno;
  ::close(folder);
  // EINVAL: this file system cannot, and does not need to.
  errno = wrong;
  if (wrong != 0 && wrong != EINVAL) cannot_write(path);
}

std::optional<TemporaryName> parse_temporary_name(const std::string& name) {
  const std::size_t at = name.rfind(temporary_mark);
  if (at == std::string::npos) return std::nullopt;
  TemporaryName parsed{name.substr(0, at)};
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + at + temporary_mark.size(), end, parsed.process);
  if (error != std::errc() || stop != end || parsed.process <= 0) return std::nullopt;
  return parsed;
}

}  // namespace convnet
