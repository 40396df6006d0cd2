#include "providers/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <utility>

#include "kernels/error.h"

namespace convnet {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTemporaryMark = ".tmp-";

/// Repeats a system call that a signal interrupted.
template <class Call>
auto retry(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

/// Must be called while errno is that of the failure.
[[noreturn]] void fail_to_write(const std::string& path) {
  const int code = errno;
  throw RunError(fmt::format("{}: cannot be written: {}{}", path, std::generic_category().message(code),
                             code == EFBIG ? " (ulimit -f says how large files may be)" : ""));
}

/// Linux has closed it even if it says EINTR.
int close_once(int& descriptor) { return descriptor < 0 ? 0 : ::close(std::exchange(descriptor, -1)); }

}  // namespace

OutputFile::OutputFile(std::string path)
    : path_(std::move(path)),
      temporary_(fmt::format("{}{}{}", path_, kTemporaryMark, ::getpid())),
      descriptor_(retry([this] {
        return ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
      })) {
  if (descriptor_ < 0) fail();
}

OutputFile::~OutputFile() {
  close_once(descriptor_);
  if (!published_) ::unlink(temporary_.c_str());
}

void OutputFile::write(const void* bytes, std::size_t count) {
  const char* from = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t done = retry([&] { return ::write(descriptor_, from, count); });
    if (done < 0) fail();
    from += done;
    count -= static_cast<std::size_t>(done);
  }
}

void OutputFile::publish() {
  if (retry([this] { return ::fsync(descriptor_); }) != 0) fail();
  if (close_once(descriptor_) != 0 && errno != EINTR) fail();
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail();
  published_ = true;
  sync_parent_folder(path_);
}

void OutputFile::fail() const { fail_to_write(path_); }

void write_whole_file(const std::string& path, std::string_view bytes) {
  OutputFile file(path);
  file.write(bytes);
  file.publish();
}

std::optional<TemporaryName> parse_temporary_name(const std::string& name) {
  const std::size_t at = name.rfind(kTemporaryMark);
  if (at == std::string::npos) return std::nullopt;
  TemporaryName parsed{name.substr(0, at)};
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + at + kTemporaryMark.size(), end, parsed.process);
  if (error != std::errc() || stop != end || parsed.process <= 0) return std::nullopt;
  return parsed;
}

void sync_parent_folder(const std::string& path) {
  const fs::path parent = fs::path(path).parent_path();
  const std::string name = parent.empty() ? "." : parent.string();
  int folder = retry([&] { return ::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  if (folder < 0) fail_to_write(path);
  // EINVAL: this file system cannot, and does not need to.
  const int result = retry([&] { return ::fsync(folder); });
  const int code = errno;
  close_once(folder);
  errno = code;
  if (result != 0 && code != EINVAL) fail_to_write(path);
}

void check_folder_writable(const std::string& path, const std::string& what) {
  std::error_code ignored;
  for (fs::path at = fs::path(path).empty() ? "." : path; !at.empty(); at = at.parent_path()) {
    if (!fs::exists(at, ignored)) continue;
    if (!fs::is_directory(at, ignored))
      throw InputError(at.string() + ": is not a folder; " + what + " " + path);
    if (access(at.c_str(), W_OK) != 0)
      throw InputError(at.string() + ": cannot be written; " + what + " " + path);
    return;
  }
}

void make_folders(const std::string& path) {
  if (path.empty()) return;
  std::error_code error;
  fs::create_directories(path, error);
  if (error && !fs::is_directory(path)) throw RunError(path + ": cannot be made: " + error.message());
}

}  // namespace convnet
