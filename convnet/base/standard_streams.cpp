#include "convnet/base/standard_streams.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <string_view>
#include <utility>

#include "convnet/base/error.h"
#include "convnet/base/printable.h"

namespace convnet {
namespace {

bool is_unwanted(char c) { return is_control(c) && c != '\n' && c != '\t'; }

/// Writes the text. Returns the errno of the failure; 0 if everything was written.
int write_all(int descriptor, std::string_view text) noexcept {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t count = ::write(descriptor, text.data() + done, text.size() - done);
    if (count > 0) done += static_cast<std::size_t>(count);
    if (count >= 0 || errno == EINTR) continue;
    if (errno != EAGAIN) return errno;
    // Another program has made the terminal that both use non-blocking.
    pollfd writable = {descriptor, POLLOUT, 0};
    poll(&writable, 1, -1);
  }
  return 0;
}

/// Prevents that a file opened later gets the number of a closed stdout (`convnet … >&-`) and with it what is
/// printed.
void open_closed_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(descriptor, F_GETFD) < 0 && open("/dev/null", O_RDWR) != descriptor)
      throw DeviceError("stdin, stdout or stderr is closed, and /dev/null cannot take its place");
}

}  // namespace

bool is_terminal(int descriptor) { return isatty(descriptor) == 1; }

StandardStreams::StandardStreams() {
  open_closed_descriptors();
  replace(stdout, streams_[0], STDOUT_FILENO, _IOFBF);
  replace(stderr, streams_[1], STDERR_FILENO, _IOLBF);
}

StandardStreams::~StandardStreams() {
  const std::array<std::FILE**, 2> standard = {&stdout, &stderr};
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    std::fclose(streams_.at(i).file);  // NOLINT(cppcoreguidelines-owning-memory): Stream owns it
    *standard.at(i) = streams_.at(i).before;
  }
}

void StandardStreams::replace(std::FILE*& stream, Stream& by, int descriptor, int buffering) {
  by.descriptor = descriptor;
  by.terminal = is_terminal(descriptor);
  // C code calls it, which no exception may cross: it takes no memory.
  const auto write = [](void* cookie, const char* bytes, std::size_t count) noexcept {
    auto& to = *static_cast<Stream*>(cookie);
    std::array<char, BUFSIZ> text{};
    for (std::size_t done = 0; done < count && !to.silent; done += text.size()) {
      const std::size_t size = std::min(text.size(), count - done);
      std::replace_copy_if(bytes + done, bytes + done + size, text.begin(), is_unwanted, '?');
      // A full disk may have room again later; the first error is the one to tell.
      int error = to.error == EPIPE ? EPIPE : write_all(to.descriptor, {text.data(), size});
      if (error == EIO && to.terminal) error = EPIPE;  // the terminal was closed
      if (to.error == 0) to.error = error;
    }
    return static_cast<ssize_t>(count);
  };
  by.file = fopencookie(&by, "w", {nullptr, write, nullptr, nullptr});
  if (by.file == nullptr) throw DeviceError("there is no memory for the program's output");
  std::setvbuf(by.file, nullptr, by.terminal ? _IOLBF : buffering, BUFSIZ);
  by.before = std::exchange(stream, by.file);
}

void StandardStreams::silence() {
  for (Stream& stream : streams_) {
    std::fflush(stream.file);
    stream.silent = true;
  }
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere < 0 || dup2(nowhere, STDOUT_FILENO) < 0) throw DeviceError("/dev/null cannot be opened");
  close(nowhere);
}

void StandardStreams::unsilence_errors() { streams_[1].silent = false; }

bool StandardStreams::closed() const { return error() == EPIPE; }

}  // namespace convnet
