// A library to preload: the nth call of one kind that the program makes fails, and the calls of that kind are
// counted. Variables of the environment say which:
//   FAIL_KIND   malloc, write (also pwrite and writev; to regular files only), fsync, rename or link
//   FAIL_AT     n, from 1; 0: none fails
//   FAIL_ERRNO  the number that errno gets
//   FAIL_COUNT  a file to which each process writes its number of calls at its end
// Allocations count from main() on: what libraries do before cannot be caught by the program. None fails
// while oneDNN is at work, not even within the C++ library, but the next one of the program instead:
// version 2.6 writes to address 0 if an allocation of its own fails.
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

// The allocator of glibc, under the names that nobody replaces.
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
}

namespace {

// NOLINTBEGIN(cppcoreguidelines-avoid-non-const-global-variables)
std::atomic<bool> in_main = false;
std::atomic<long> calls = 0;
std::atomic<bool> has_failed = false;  ///< an allocation has
const char* kind = "";
long fail_at = 0;
int fail_errno = 0;
int (*program_main)(int, char**, char**) = nullptr;
// NOLINTEND(cppcoreguidelines-avoid-non-const-global-variables)

/// Counts a call. Returns whether it is to fail, and sets errno then.
bool fails(const char* what) {
  if (!in_main || std::strcmp(what, kind) != 0 || ++calls != fail_at) return false;
  errno = fail_errno;
  return true;
}

/// Returns whether the code at an address is oneDNN's.
bool is_in_onednn(const void* address) {
  // dladdr() would look for the nearest symbol, too, which takes longer than all else that a run does.
  dl_find_object library = {};
  return _dl_find_object(const_cast<void*>(address), &library) == 0 &&
         std::strstr(library.dlfo_link_map->l_name, "libdnnl") != nullptr;
}

/// Returns whether oneDNN has called what runs now.
bool onednn_runs() {
  static thread_local bool asking = false;  // backtrace() may allocate
  if (asking) return true;
  asking = true;
  void* frames[64];
  const int count = backtrace(frames, 64);
  asking = false;
  for (int i = 0; i < count; ++i)
    if (is_in_onednn(frames[i])) return true;
  return false;
}

/// Counts an allocation for the code at `caller` and returns whether it is to fail.
bool allocation_fails(const void* caller) {
  if (!in_main || std::strcmp("malloc", kind) != 0 || is_in_onednn(caller)) return false;
  const long n = ++calls;
  if (fail_at == 0 || n < fail_at || has_failed || onednn_runs() || has_failed.exchange(true)) return false;
  errno = fail_errno;
  return true;
}

bool is_regular(int descriptor) {
  struct stat status = {};
  return fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
}

void write_count() {
  const char* file = std::getenv("FAIL_COUNT");
  if (file == nullptr) return;
  in_main = false;
  const int descriptor = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  char digits[20];
  int size = 0;
  for (long rest = calls; rest > 0 || size == 0; rest /= 10)
    digits[size++] = static_cast<char>('0' + rest % 10);
  while (size > 0) syscall(SYS_write, descriptor, &digits[--size], 1);
  close(descriptor);
}

int counted_main(int argc, char** argv, char** environment) {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  kind = variable("FAIL_KIND");
  fail_at = std::atol(variable("FAIL_AT"));
  fail_errno = std::atoi(variable("FAIL_ERRNO"));
  std::atexit(write_count);
  void* frame = nullptr;
  backtrace(&frame, 1);  // which loads a library
  in_main = true;
  return program_main(argc, argv, environment);
}

}  // namespace

extern "C" {

int __libc_start_main(int (*main)(int, char**, char**), int argc, char** argv, void (*init)(), void (*fini)(),
                      void (*rtld_fini)(), void* stack_end) {
  program_main = main;
  using Start = int (*)(int (*)(int, char**, char**), int, char**, void (*)(), void (*)(), void (*)(), void*);
  const auto start = reinterpret_cast<Start>(dlsym(RTLD_NEXT, "__libc_start_main"));
  return start(counted_main, argc, argv, init, fini, rtld_fini, stack_end);
}

void* malloc(std::size_t size) {
  return allocation_fails(__builtin_return_address(0)) ? nullptr : __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) {
  return allocation_fails(__builtin_return_address(0)) ? nullptr : __libc_calloc(count, size);
}
void* realloc(void* old, std::size_t size) {
  return allocation_fails(__builtin_return_address(0)) ? nullptr : __libc_realloc(old, size);
}
void* memalign(std::size_t alignment, std::size_t size) {
  return allocation_fails(__builtin_return_address(0)) ? nullptr : __libc_memalign(alignment, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  return allocation_fails(__builtin_return_address(0)) ? nullptr : __libc_memalign(alignment, size);
}
int posix_memalign(void** out, std::size_t alignment, std::size_t size) {
  void* const made =
      allocation_fails(__builtin_return_address(0)) ? nullptr : __libc_memalign(alignment, size);
  if (made == nullptr) return ENOMEM;
  *out = made;
  return 0;
}

ssize_t write(int descriptor, const void* bytes, std::size_t count) {
  if (is_regular(descriptor) && fails("write")) return -1;
  return syscall(SYS_write, descriptor, bytes, count);
}
ssize_t writev(int descriptor, const iovec* parts, int count) {
  if (is_regular(descriptor) && fails("write")) return -1;
  return syscall(SYS_writev, descriptor, parts, count);
}
ssize_t pwrite64(int descriptor, const void* bytes, std::size_t count, off64_t offset) {
  if (is_regular(descriptor) && fails("write")) return -1;
  return syscall(SYS_pwrite64, descriptor, bytes, count, offset);
}
ssize_t pwrite(int descriptor, const void* bytes, std::size_t count, off_t offset) {
  return pwrite64(descriptor, bytes, count, offset);
}
int fsync(int descriptor) { return fails("fsync") ? -1 : static_cast<int>(syscall(SYS_fsync, descriptor)); }
int rename(const char* from, const char* to) {
  return fails("rename") ? -1 : static_cast<int>(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
int link(const char* from, const char* to) {
  return fails("link") ? -1 : static_cast<int>(syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0));
}

}  // extern "C"
