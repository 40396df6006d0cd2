#include "convnet/data/synsets.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <matio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <exception>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "convnet/base/error.h"
#include "convnet/base/file.h"
#include "providers/pickle.h"
#include "providers/pickle_write.h"

namespace convnet {
namespace {

constexpr std::size_t kMaxSynsets = 100'000;
constexpr std::size_t kMaxLetters = 4096;
constexpr std::size_t kMaxAnswerBytes = std::size_t{64} << 20;
constexpr rlim_t kMaxChildBytes = rlim_t{1} << 30;
constexpr rlim_t kMaxChildSeconds = 5;

[[noreturn]] void system_failed(const char* what) {
  throw RunError(fmt::format("{} failed: {}", what, std::generic_category().message(errno)));
}

/// An open file descriptor.
class Descriptor {
 public:
  Descriptor(int descriptor, const char* what) : descriptor_(descriptor) {
    if (descriptor < 0) system_failed(what);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { close(); }
  int get() const { return descriptor_; }
  void close() {
    if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
  }

 private:
  int descriptor_;
};

bool write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::write(descriptor, bytes.data(), bytes.size());
    if (done < 0 && errno != EINTR) return false;
    if (done > 0) bytes.remove_prefix(static_cast<std::size_t>(done));
  }
  return true;
}

// ---- In the child process ----

struct CloseMat {
  void operator()(mat_t* mat) const { Mat_Close(mat); }
};
struct FreeVariable {
  void operator()(matvar_t* variable) const { Mat_VarFree(variable); }
};

struct Wrong : std::exception {
  explicit Wrong(std::string text) : what_wrong(std::move(text)) {}
  std::string what_wrong;
};

std::size_t values_of(const matvar_t& variable) {
  std::size_t count = 1;
  for (int d = 0; d < variable.rank; ++d) count *= variable.dims[d];
  return count;
}

/// The field of a synset; the library gives nothing, or an empty variable, for what is not there.
const matvar_t& field_of(matvar_t* synsets, const char* name, std::size_t index) {
  const matvar_t* field = Mat_VarGetStructFieldByName(synsets, name, index);
  if (field == nullptr || field->data == nullptr || field->dims == nullptr)
    throw Wrong(fmt::format("synset {} has no {}", index + 1, name));
  return *field;
}

int id_of(const matvar_t& field, std::size_t index) {
  double value = std::numeric_limits<double>::quiet_NaN();
  if (values_of(field) == 1) {
    if (field.class_type == MAT_C_DOUBLE && field.data_type == MAT_T_DOUBLE)
      value = *static_cast<const double*>(field.data);
    if (field.class_type == MAT_C_UINT16 && field.data_type == MAT_T_UINT16)
      value = *static_cast<const std::uint16_t*>(field.data);
    if (field.class_type == MAT_C_INT32 && field.data_type == MAT_T_INT32)
      value = *static_cast<const std::int32_t*>(field.data);
  }
  if (!(value >= 1 && value <= static_cast<double>(kMaxSynsets)) || value != std::floor(value))
    throw Wrong(
        fmt::format("synset {}: ILSVRC2012_ID is not a whole number from 1 to {}", index + 1, kMaxSynsets));
  return static_cast<int>(value);
}

std::string text_of(const matvar_t& field, const char* name, std::size_t index) {
  const std::size_t letters = values_of(field);
  if (field.class_type == MAT_C_CHAR && letters <= kMaxLetters) {
    if ((field.data_type == MAT_T_UINT8 || field.data_type == MAT_T_UTF8 || field.data_type == MAT_T_INT8) &&
        field.nbytes >= letters)
      return {static_cast<const char*>(field.data), letters};
    if ((field.data_type == MAT_T_UINT16 || field.data_type == MAT_T_UTF16) && field.nbytes >= 2 * letters) {
      std::string text;
      for (std::size_t i = 0; i < letters; ++i) {
        const auto letter = static_cast<const std::uint16_t*>(field.data)[i];
        // The names in question are English.
        text += letter < 0x80 ? static_cast<char>(letter) : '?';
      }
      return text;
    }
  }
  throw Wrong(fmt::format("synset {}: {} is no text of at most {} letters", index + 1, name, kMaxLetters));
}

/// A pickle: a list of (id, wnid, words), or the text of what is wrong.
std::string answer_of(const std::string& path) {
  try {
    const std::unique_ptr<mat_t, CloseMat> mat(Mat_Open(path.c_str(), MAT_ACC_RDONLY));
    if (!mat || Mat_GetVersion(mat.get()) != MAT_FT_MAT5) throw Wrong("is no MATLAB 5 file");
    const std::unique_ptr<matvar_t, FreeVariable> synsets(Mat_VarRead(mat.get(), "synsets"));
    if (!synsets || synsets->class_type != MAT_C_STRUCT || synsets->data == nullptr ||
        synsets->dims == nullptr)
      throw Wrong("has no struct array 'synsets'");
    const std::size_t count = values_of(*synsets);
    if (count == 0 || count > kMaxSynsets)
      throw Wrong(fmt::format("has {} synsets; 1 to {} are read", count, kMaxSynsets));
    std::vector<std::string> entries;
    for (std::size_t i = 0; i < count; ++i)
      entries.push_back(
          pickles::tuple({pickles::integer(id_of(field_of(synsets.get(), "ILSVRC2012_ID", i), i)),
                          pickles::str(text_of(field_of(synsets.get(), "WNID", i), "WNID", i)),
                          pickles::str(text_of(field_of(synsets.get(), "words", i), "words", i))}));
    return pickles::pickle_file(pickles::list(entries));
  } catch (const Wrong& wrong) {
    return pickles::pickle_file(pickles::str(wrong.what_wrong));
  }
}

/// Prepares the child process for a crash: it must not run handlers of this process or write a core file, and
/// its memory and time are limited.
void prepare_to_crash() {
  for (const int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL}) std::signal(signal, SIG_DFL);
  const auto limit = [](auto resource, rlim_t value) {
    const rlimit both = {value, value};
    setrlimit(resource, &both);
  };
  // The limit includes memory that is mapped already, which is much in a build with sanitizers.
  rlim_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  limit(RLIMIT_AS, pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + kMaxChildBytes);
  limit(RLIMIT_CPU, kMaxChildSeconds);
  limit(RLIMIT_CORE, 0);
}

// ---- In this one ----

/// The child's answer; nothing if it died.
std::optional<std::string> ask_child(const std::string& path) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) system_failed("pipe");
  Descriptor reading(ends[0], "pipe"), writing(ends[1], "pipe");
  const pid_t child = fork();
  if (child < 0) system_failed("fork");
  if (child == 0) {
    prepare_to_crash();
    bool done = false;
    try {
      done = write_all(writing.get(), answer_of(path));
    } catch (...) {  // the exit status tells
    }
    _exit(done ? 0 : 1);
  }
  writing.close();
  std::string answer;
  std::array<char, 4096> buffer{};
  for (;;) {
    const ssize_t got = ::read(reading.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0 || answer.size() > kMaxAnswerBytes) break;
    answer.append(buffer.data(), static_cast<std::size_t>(got));
  }
  reading.close();  // a child that writes too much ends
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return std::nullopt;
  return answer;
}

}  // namespace

std::vector<Synset> read_synsets(std::string_view mat_file, const std::string& name) {
  // The library opens files by name: this one is in memory only.
  const Descriptor file(memfd_create("meta.mat", MFD_CLOEXEC), "memfd_create");
  if (!write_all(file.get(), mat_file)) system_failed("writing to memory");
  const std::optional<std::string> answer = ask_child(fmt::format("/proc/self/fd/{}", file.get()));
  if (!answer) throw InputError(name + ": is damaged: the library that reads MATLAB files failed on it");
  const PickleValue values = parse_pickle(*answer, name);
  if (values.kind() == PickleKind::bytes)
    throw InputError(fmt::format("{}: {}", name, values.string("the answer")));
  std::vector<Synset> synsets;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const PickleValue entry = values[i];
    if (entry.size() != 3) entry.fail("a synset should be three values");
    synsets.push_back({static_cast<int>(entry[0].integer("the id")), std::string(entry[1].string("the WNID")),
                       std::string(entry[2].string("the words"))});
  }
  return synsets;
}

}  // namespace convnet
