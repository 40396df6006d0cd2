// A library to preload: each opening of a JPEG takes 20 ms, as if its disk were slow.
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdarg>
#include <string_view>

namespace {

int open_slowly(const char* function, const char* path, int flags, mode_t mode) {
  if (std::string_view(path).ends_with(".jpg")) usleep(20'000);
  using Open = int(const char*, int, ...);
  return reinterpret_cast<Open*>(dlsym(RTLD_NEXT, function))(path, flags, mode);
}

}  // namespace

// NOLINTBEGIN(cert-dcl50-cpp,cppcoreguidelines-pro-type-vararg,readability-inconsistent-declaration-parameter-name)
extern "C" int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const auto mode = va_arg(arguments, mode_t);  // garbage if the caller gives none, and then nobody reads it
  va_end(arguments);
  return open_slowly("open", path, flags, mode);
}
extern "C" int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const auto mode = va_arg(arguments, mode_t);
  va_end(arguments);
  return open_slowly("open64", path, flags, mode);
}
// NOLINTEND(cert-dcl50-cpp,cppcoreguidelines-pro-type-vararg,readability-inconsistent-declaration-parameter-name)
