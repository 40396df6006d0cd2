#include "convnet/cli/predict_inputs.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "convnet/base/error.h"
#include "convnet/base/file.h"
#include "convnet/base/notes.h"
#include "convnet/base/text_file.h"
#include "convnet/net/data_set.h"
#include "providers/image_parts.h"

namespace convnet {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStdin = "-";

/// The first bytes of a kind of file; '?' stands for any byte.
struct Signature {
  std::string_view bytes;
  bool is_array = false;

  /// Returns whether `read` begins so, as far as it goes.
  bool agrees(std::string_view read) const {
    const std::size_t count = std::min(read.size(), bytes.size());
    for (std::size_t i = 0; i < count; ++i)
      if (bytes[i] != '?' && bytes[i] != read[i]) return false;
    return true;
  }
};

using namespace std::string_view_literals;
constexpr std::array kSignatures = {Signature{"\xFF\xD8\xFF"sv}, Signature{"\x89PNG\r\n\x1A\n"sv},
                                    Signature{"RIFF????WEBP"sv}, Signature{"BM????\0\0\0\0"sv},
                                    Signature{"\x93NUMPY"sv, true}};

/// Returns what a folder without files of images has instead, and what to type for that with a net that was
/// trained on `like`; "" if it has nothing that is known.
std::string hint_of_data_set(const std::string& folder, const LikeSet& like) {
  if (const std::vector<std::string> providers = providers_that_read(folder); !providers.empty())
    return fmt::format(
        ", but a data set: 'convnet --load-file CHECKPOINT --test-out FOLDER --data-provider {} --data-path "
        "{} --test-range BATCHES' writes the probabilities of its images",
        providers[0], shell_word(folder));
  std::error_code error;
  const bool takes_arrays = like.provider != "image";
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (takes_arrays && entry.path().extension() == ".npy")
      return ", but an array: " + entry.path().string() + " in place of the folder takes the images in it";
  }
  return "";
}

/// Returns the images in a folder, for a net that was trained on `like`. Warns of what the folder has
/// besides.
std::vector<std::string> image_files_in(const std::string& folder, const LikeSet& like) {
  auto [found, left_out] = image_files_below(folder);
  print_notes({left_out_text(left_out)});
  if (found.empty())
    throw InputError(fmt::format("{}: there is no image in this folder ({}){}", folder, kImageExtensions,
                                 hint_of_data_set(folder, like)));
  std::sort(found.begin(), found.end(), natural_less);
  for (std::string& name : found) name = (fs::path(folder) / name).string();
  return found;
}

}  // namespace

bool StdinReader::read_more() {
  if (ended_) return false;
  std::array<char, 65536> piece;
  ssize_t count = 0;
  do {
    count = ::read(STDIN_FILENO, piece.data(), piece.size());
  } while (count < 0 && errno == EINTR);
  if (count < 0) throw RunError("stdin cannot be read: " + error_text(errno));
  ended_ = count == 0;
  read_.erase(0, begin_);
  begin_ = 0;
  read_.append(piece.data(), static_cast<std::size_t>(count));
  return !ended_;
}

bool StdinReader::is_file() {
  const auto may_be_file = [&] {
    return std::any_of(kSignatures.begin(), kSignatures.end(),
                       [&](const Signature& s) { return s.agrees(read_); });
  };
  const auto is_whole = [&] {
    return std::any_of(kSignatures.begin(), kSignatures.end(),
                       [&](const Signature& s) { return s.agrees(read_) && read_.size() >= s.bytes.size(); });
  };
  while (may_be_file() && !is_whole() && read_more()) {
  }
  return may_be_file() && is_whole();
}

std::string StdinReader::whole() {
  while (read_more()) {
  }
  return std::move(read_);
}

bool StdinReader::is_ready() {
  while (read_.find('\n', begin_) == std::string::npos && !ended_) {
    pollfd readable = {STDIN_FILENO, POLLIN, 0};
    if (::poll(&readable, 1, 0) <= 0) return false;
    read_more();
  }
  return true;
}

std::optional<std::string> StdinReader::line() {
  std::size_t end = read_.find('\n', begin_);
  while (end == std::string::npos && read_more()) end = read_.find('\n', begin_);
  if (end == std::string::npos && begin_ == read_.size()) return std::nullopt;
  std::string line = read_.substr(begin_, end - begin_);
  begin_ = end == std::string::npos ? read_.size() : end + 1;
  return line;
}

PredictInputs::PredictInputs(std::vector<std::string> named, const std::string& paths, const LikeSet& like)
    : named_(named.begin(), named.end()), like_(like), paths_(paths) {
  if (paths_ == kStdin && std::find(named.begin(), named.end(), kStdin) != named.end())
    throw InputError("--paths - reads names from stdin, and so does the argument -; leave one of them out");
  if (!paths_.empty() && paths_ != kStdin) list_.emplace(read_whole_file(paths_));
  while (!named_.empty() && named_.front() != kStdin) {
    list(named_.front());
    named_.pop_front();
  }
}

std::vector<std::string> PredictInputs::names() const {
  std::vector<std::string> names;
  for (const FileImage& image : images_) names.push_back(image.name());
  return names;
}

PredictInputs::Piece PredictInputs::next(std::size_t most) {
  while (images_.size() < most && (in_stdin_ || !named_.empty() || !paths_.empty())) {
    const bool has_some = !images_.empty() || !left_out_.empty();
    if (in_stdin_) {
      if (has_some && !stdin_.is_ready()) break;
      list_line();
    } else if (named_.empty()) {
      in_stdin_ = true;
      lines_ = 0;
      if (list_) stdin_ = StdinReader(std::move(*list_));
      lines_of_ = std::exchange(paths_, "");
      no_lines_ = lines_of_ + ": has no names of files or folders, a line each";
    } else {
      if (has_some && named_.front() == kStdin) break;
      list(named_.front());
      named_.pop_front();
    }
  }
  // If more may come, a power of two, so that there are few sizes, each of which needs a plan.
  std::size_t count = std::min(most, images_.size());
  if (in_stdin_ && count > 0 && count < most) count = std::bit_floor(count);
  Piece piece = {{}, std::exchange(left_out_, {})};
  for (; count > 0; --count) {
    piece.images.push_back(std::move(images_.front()));
    images_.pop_front();
  }
  return piece;
}

void PredictInputs::list(const std::string& name) {
  if (name == kStdin)
    open_stdin();
  else
    list_file(name);
}

void PredictInputs::list_file(const std::string& path) {
  try {
    check_name(path);
    std::error_code none;
    const bool is_folder = fs::is_directory(path, none);
    for (const std::string& file : is_folder ? image_files_in(path, like_) : std::vector<std::string>{path}) {
      for (FileImage& image : images_in_file(file, like_)) images_.push_back(std::move(image));
    }
  } catch (const std::runtime_error& e) {  // InputError, RunError
    leave_out(path, e.what());
  }
}

void PredictInputs::open_stdin() {
  if (!stdin_.is_file()) {
    in_stdin_ = true;
    lines_of_ = kStdin;
    no_lines_ = "-: stdin is empty; it should have names of files or folders, a line each, or an image";
    return;
  }
  const std::string bytes = stdin_.whole();
  if (std::any_of(kSignatures.begin(), kSignatures.end(),
                  [&](const Signature& s) { return s.is_array && s.agrees(bytes); }))
    return leave_out(kStdin, "-: stdin is an array; only an image or names are read there: save it as x.npy");
  try {
    images_.push_back(image_in_bytes(kStdin, bytes, like_));
  } catch (const InputError& e) {
    leave_out(kStdin, e.what());
  }
}

void PredictInputs::list_line() {
  std::optional<std::string> line = stdin_.line();
  if (!line) {
    in_stdin_ = false;
    if (lines_ == 0) leave_out(lines_of_, no_lines_);
    return;
  }
  // Lists that were made on Windows may begin with a mark, and have lines that end with CR and LF.
  if (lines_ == 0) line = std::string(without_byte_order_mark(*line));
  std::error_code none;
  if (line->ends_with('\r') && !fs::exists(*line, none)) line->pop_back();
  if (line->empty()) return;
  ++lines_;
  list_file(*line);
}

void PredictInputs::leave_out(const std::string& name, const std::string& why) {
  left_out_.push_back({name, why, {}});
}

}  // namespace convnet
