#include "convnet/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <tuple>

#include "convnet/base/error.h"
#include "convnet/base/file.h"
#include "convnet/base/file_format.h"
#include "convnet/base/mixed_labels.h"
#include "convnet/base/output_file.h"
#include "convnet/base/printable.h"
#include "convnet/checkpoint/json_value.h"
#include "convnet/checkpoint/torch_file.h"

namespace convnet {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
constexpr const char* kExtension = ".safetensors";
constexpr const char* kFormat = "convnet-1";

template <class T>
bool take_number(std::string_view& text, T& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || out < 0) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

json to_json(const CostSums& costs) {
  json sums = json::array();
  for (const auto& [name, values] : costs.sums) sums.push_back({name, values});
  return {{"images", costs.images}, {"sums", sums}};
}

constexpr std::int64_t kMostEpochs = 1'000'000'000, kMostImages = std::int64_t{1} << 40,
                       kMostUpdates = std::int64_t{1} << 53;

/// Reads a number of an epoch or a batch.
int epoch_from(const JsonValue& j) { return static_cast<int>(j.integer(kMostEpochs)); }

CostSums costs_from(const JsonValue& j) {
  CostSums costs;
  costs.images = j.at("images").integer(kMostImages);
  for (const JsonValue& cost : j.at("sums").items()) {
    const std::vector<JsonValue> entry = cost.items(2);
    std::string name = entry[0].text();
    costs.sums.emplace_back(std::move(name), entry[1].numbers());
  }
  return costs;
}

json to_json(const TrainingState& s) {
  json history = json::array();
  for (const HistoryEntry& h : s.history) {
    json entry = to_json(h.costs);
    entry["epoch"] = h.epoch;
    entry["batch"] = h.batch;
    if (h.test_batch >= 0) entry["test_batch"] = h.test_batch;
    if (h.count > 1) entry["count"] = h.count;
    history.push_back(std::move(entry));
  }
  json changes = json::array();
  for (const RateChange& c : s.plateau.changes) changes.push_back({c.epoch, c.batch, c.factor});
  json windows = json::array();
  for (const auto& [matrix, w] : s.windows) windows.push_back({matrix, w.minibatches, w.images, w.updates});
  return {{"position",
           {{"epoch", s.position.epoch},
            {"batch", s.position.batch},
            {"minibatches", s.position.minibatches},
            {"images", s.position.images}}},
          {"iteration", s.iteration},
          {"test_cursor", s.test_cursor},
          {"test_due", s.test_due},
          {"partial", to_json(s.partial)},
          {"partial_seconds", s.partial_seconds},
          {"windows", windows},
          {"best", {s.best.value, s.best.epoch, s.best.batch, s.best.tests_since, s.best.watched}},
          {"plateau", {{"tests_since", s.plateau.tests_since}, {"changes", changes}}},
          {"history", history}};
}

Position position_from(const JsonValue& j) {
  const Position p = {epoch_from(j.at("epoch")), epoch_from(j.at("batch")),
                      j.at("minibatches").integer(kMostImages), j.at("images").integer(kMostImages)};
  if ((p.minibatches == 0) != (p.images == 0))
    j.fail("has minibatches without images, or the other way round");
  return p;
}

UpdateWindows windows_from(const JsonValue& j) {
  UpdateWindows windows;
  for (const JsonValue& window : j.items()) {
    const std::vector<JsonValue> entry = window.items(3);
    // Older checkpoints have no count of updates.
    windows[entry[0].text()] = {entry[1].integer(kMostEpochs), entry[2].integer(kMostImages),
                                entry.size() > 3 ? entry[3].integer(kMostUpdates) : 0};
  }
  return windows;
}

BestTest best_from(const JsonValue& j) {
  const std::vector<JsonValue> entry = j.items(4);
  return {entry[0].number(), epoch_from(entry[1]), epoch_from(entry[2]), entry[3].integer(kMostImages),
          entry.size() > 4 ? entry[4].text() : ""};
}

Plateau plateau_from(const JsonValue& j) {
  Plateau plateau;
  plateau.tests_since = j.at("tests_since").integer(kMostImages);
  for (const JsonValue& change : j.at("changes").items()) {
    const std::vector<JsonValue> entry = change.items(3);
    const double factor = entry[2].number();
    if (!(factor > 0 && factor <= 1)) entry[2].fail("is not a factor of learning rates, which is in (0,1]");
    plateau.changes.push_back({epoch_from(entry[0]), epoch_from(entry[1]), factor});
  }
  return plateau;
}

HistoryEntry history_entry_from(const JsonValue& j) {
  HistoryEntry h;
  h.epoch = epoch_from(j.at("epoch"));
  h.batch = epoch_from(j.at("batch"));
  if (const auto tested = j.find("test_batch")) h.test_batch = epoch_from(*tested);
  h.costs = costs_from(j);
  if (const auto count = j.find("count")) h.count = std::max<std::int64_t>(1, count->integer(kMostImages));
  return h;
}

TrainingState state_from(const JsonValue& j) {
  TrainingState s;
  s.position = position_from(j.at("position"));
  s.iteration = static_cast<std::uint64_t>(j.at("iteration").integer(std::int64_t{1} << 62));
  s.test_cursor = j.at("test_cursor").integer(kMostImages);
  s.test_due = j.at("test_due").truth();
  s.partial = costs_from(j.at("partial"));
  s.partial_seconds = j.at("partial_seconds").number();
  // Older checkpoints lack some of these.
  if (const auto windows = j.find("windows")) s.windows = windows_from(*windows);
  if (const auto best = j.find("best")) s.best = best_from(*best);
  if (const auto plateau = j.find("plateau")) s.plateau = plateau_from(*plateau);
  for (const JsonValue& entry : j.at("history").items()) s.history.push_back(history_entry_from(entry));
  return s;
}

json to_json(const std::vector<MatrixInfo>& matrices) {
  json list = json::array();
  for (const MatrixInfo& m : matrices) {
    list.push_back({{"name", m.name},
                    {"dims", m.dims},
                    {"type", to_string(m.type)},
                    {"classes", m.classes},
                    {"class_names", m.class_names}});
    if (!m.stored.empty()) list.back()["stored"] = m.stored;
    if (m.stored_type) list.back()["stored_type"] = to_string(*m.stored_type);
  }
  return list;
}

Dims dims_from(const JsonValue& list) {
  Dims dims;
  for (const JsonValue& d : list.items()) {
    dims.push_back(d.integer(kMostImages));
    const std::int64_t elements = element_count(dims);
    if (elements < 1 || elements > kMostImages) list.fail("says that there are no or too many elements");
  }
  return dims;
}

DataType matrix_type_from(const JsonValue& j) {
  const std::string text = j.text();
  for (const DataType type : {DataType::u8, DataType::f32, DataType::s32})
    if (text == to_string(type)) return type;
  j.fail("is " + excerpt(text) + ", which is no type of matrices");
}

/// Throws InputError if the matrix is impossible for any provider.
void check_matrix(const MatrixInfo& m, bool first, const JsonValue& j) {
  if (first && (m.type == DataType::s32 || m.classes > 0)) j.fail("holds labels in place of images");
  if ((m.type == DataType::s32) != (m.classes > 0))
    j.fail("is wrong: labels are of type s32 and have classes, and other matrices neither");
  if (m.classes > 0 && m.dims != Dims{1} && m.dims != Dims{kMixedLabelValues})
    j.fail("is wrong: labels of " + to_string(m.dims) + " numbers make no sense");
  const std::int64_t named = m.classes > 0 ? m.classes : element_count(m.dims);
  if (!m.class_names.empty() && std::ssize(m.class_names) != named)
    j.fail("does not have as many names as classes");
}

std::vector<MatrixInfo> matrices_from(const JsonValue& list) {
  std::vector<MatrixInfo> matrices;
  for (const JsonValue& j : list.items()) {
    MatrixInfo m;
    m.name = j.at("name").text();
    m.dims = dims_from(j.at("dims"));
    // Older checkpoints do not say it.
    if (const auto stored = j.find("stored")) m.stored = dims_from(*stored);
    m.type = matrix_type_from(j.at("type"));
    if (const auto type = j.find("stored_type")) m.stored_type = matrix_type_from(*type);
    m.classes = j.at("classes").integer(kMostImages);
    m.class_names = j.at("class_names").texts();
    check_matrix(m, matrices.empty(), j);
    matrices.push_back(std::move(m));
  }
  return matrices;
}

BatchRange range_from(const JsonValue& j) {
  const std::string text = j.text();
  try {
    return BatchRange::parse(text);
  } catch (const InputError& wrong) {
    j.fail(wrong.what());
  }
}

/// Returns the checkpoints in a folder, oldest first; none where there is no folder. `lacking` is what the
/// names of files of another program lack to be those of checkpoints.
std::vector<std::pair<Position, fs::path>> checkpoints_in(const fs::path& folder,
                                                          const std::string& lacking = "") {
  std::vector<std::pair<Position, fs::path>> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (const auto position = Position::of_file_name(at->path().filename().string() + lacking))
      found.emplace_back(*position, at->path());
  }
  // A folder that cannot be looked into may hold checkpoints: a new run must not begin in it.
  if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory)
    throw RunError(
        fmt::format("{}: cannot be searched for checkpoints: {}", folder.string(), error.message()));
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return found;
}

/// Removes all but the newest `keep` checkpoints, but never `written`, which may be older than others if a
/// run saves without having trained.
void remove_old(const std::string& folder, std::size_t keep, const std::string& written) {
  const auto found = checkpoints_in(folder);
  for (std::size_t i = 0; i + keep < found.size(); ++i) {
    std::error_code ignored;
    if (found[i].second.filename() != written) fs::remove(found[i].second, ignored);
  }
}

bool is_readable(const std::string& file) {
  try {
    parse_checkpoint(file, read_safetensors(file));
    return true;
  } catch (const InputError&) {
    return false;
  }
}

/// The newest checkpoint before `file` in its folder that can be read; "" if there is none.
std::string sound_checkpoint_before(const fs::path& file) {
  const auto position = Position::of_file_name(file.filename().string());
  if (!position) return "";
  std::vector<std::pair<Position, fs::path>> found;
  try {
    found = checkpoints_in(folder_of(file));
  } catch (const RunError&) {
    return "";  // the folder cannot be listed: the damaged file is the error to report
  }
  for (auto before = found.rbegin(); before != found.rend(); ++before) {
    if (before->first >= *position) continue;
    std::string path = (file.parent_path() / before->second.filename()).string();
    if (is_readable(path)) return path;
  }
  return "";
}

/// Throws RunError if the checkpoint `file` could not be read again.
void check_readable(const std::string& file, const TensorFile& contents) {
  for (const auto& [name, tensor] : contents.tensors) {
    if (!all_finite(tensor.values))
      throw RunError(file + ": cannot be saved: tensor '" + name +
                     "' holds numbers that are not finite (NaN or infinity)");
  }
  try {
    parse_checkpoint(file, {{}, contents.metadata});
  } catch (const InputError& e) {
    throw RunError(std::string("cannot be saved, because it could not be read again: ") + e.what());
  }
}

#ifdef CONVNET_CHECKS
/// Throws std::logic_error unless the file has these contents.
void check_written(const std::string& file, const TensorFile& contents) {
  const TensorFile found = read_checkpoint(file).tensors;
  const auto same = [](const auto& a, const auto& b) {
    return a.first == b.first && a.second.dims == b.second.dims && a.second.values == b.second.values;
  };
  if (found.metadata != contents.metadata || !std::ranges::equal(found.tensors, contents.tensors, same))
    throw std::logic_error(file + ": is read otherwise than it was written");
}
#endif

}  // namespace

std::string folder_of(const std::string& file) {
  const std::string folder = fs::path(file).parent_path().string();
  return folder.empty() ? "." : folder;
}

std::string Position::file_name() const {
  if (minibatches == 0) return fmt::format("{}.{}{}", epoch, batch, kExtension);
  return fmt::format("{}.{}-{:04}{}", epoch, batch, minibatches, kExtension);
}

std::optional<Position> Position::of_file_name(const std::string& name) {
  Position p;
  std::string_view rest = name;
  if (!rest.ends_with(kExtension)) return std::nullopt;
  rest.remove_suffix(std::string_view(kExtension).size());
  if (!take_number(rest, p.epoch) || !rest.starts_with('.')) return std::nullopt;
  rest.remove_prefix(1);
  if (!take_number(rest, p.batch)) return std::nullopt;
  if (rest.starts_with('-')) {
    rest.remove_prefix(1);
    if (!take_number(rest, p.minibatches) || p.minibatches == 0) return std::nullopt;
  }
  return rest.empty() ? std::optional(p) : std::nullopt;
}

std::strong_ordering Position::operator<=>(const Position& other) const {
  const auto key = [](const Position& p) {
    return std::tuple(p.epoch, p.batch,
                      p.minibatches == 0 ? std::numeric_limits<std::int64_t>::max() : p.minibatches);
  };
  return key(*this) <=> key(other);
}

std::string write_checkpoint(const std::string& folder, Checkpoint& checkpoint, int keep) {
  std::map<std::string, std::string>& meta = checkpoint.tensors.metadata;
  meta["format"] = kFormat;
  meta["layer_def"] = checkpoint.definition_text;
  meta["layer_def_path"] = checkpoint.definition_path;
  meta["layer_params"] = checkpoint.parameters_text;
  meta["layer_params_path"] = checkpoint.parameters_path;
  if (!checkpoint.placement.empty()) meta["placement"] = checkpoint.placement;
  meta["options"] = json(checkpoint.options).dump();
  meta["state"] = to_json(checkpoint.state).dump();
  if (checkpoint.train_range && checkpoint.test_range)
    meta["ranges"] = json{{"train", checkpoint.train_range->str()},
                          {"test", checkpoint.test_range->str()},
                          {"train_images", checkpoint.train_images}}
                         .dump();
  meta["algorithms"] = json(checkpoint.algorithms).dump();
  // Names of classes come from data sets and may have any encoding.
  meta["matrices"] = to_json(checkpoint.matrices).dump(-1, ' ', false, json::error_handler_t::replace);
  const std::string name = checkpoint.state.position.file_name();
  make_folders(folder);
  checkpoint.file = (fs::path(folder) / name).string();
  check_readable(checkpoint.file, checkpoint.tensors);
  std::string warning =
      save_making_room(folder, name, [&] { write_safetensors(checkpoint.file, checkpoint.tensors); });
#ifdef CONVNET_CHECKS
  check_written(checkpoint.file, checkpoint.tensors);
#endif
  remove_old(folder, static_cast<std::size_t>(keep), name);
  return warning;
}

std::string save_making_room(const std::string& folder, const std::string& file,
                             const std::function<void()>& save) {
  std::optional<std::vector<std::pair<Position, fs::path>>> there;  // looked up only when the disk is full
  std::vector<std::string> removed;
  std::string newest;
  while (true) {
    try {
      save();
      break;
    } catch (const DiskFullError& full) {
      if (!there) {
        there = checkpoints_in(folder);
        while (!there->empty() && !is_readable(there->back().second.string())) there->pop_back();
        if (!there->empty()) {
          newest = there->back().second.string();
          there->pop_back();
        }
        std::erase_if(*there, [&](const auto& c) { return c.second.filename() == file; });
      }
      if (there->empty())
        throw RunError(newest.empty() ? full.what()
                                      : fmt::format("{}\nthe newest checkpoint that is left is {}",
                                                    full.what(), newest));
      const fs::path oldest = there->front().second;
      there->erase(there->begin());
      std::error_code ignored;
      if (fs::remove(oldest, ignored)) removed.push_back(oldest.filename().string());
    }
  }
  if (removed.empty()) return "";
  return fmt::format(
      "the disk is full: there was room for {} only after older checkpoints, which --keep would "
      "have kept, were removed: {}",
      (fs::path(folder) / file).string(), join(removed));
}

void set_window(UpdateWindows& windows, const std::string& matrix, const UpdateWindow& window) {
  if (window.open() || window.updates > 0)
    windows[matrix] = window;
  else
    windows.erase(matrix);
}

std::optional<std::string> newest_checkpoint(const std::string& folder) {
  const auto found = checkpoints_in(folder);
  if (found.empty()) return std::nullopt;
  return found.back().second.string();
}

bool is_later(const std::string& file, const Position& position) {
  std::error_code error;
  if (!fs::exists(file, error)) return false;
  try {
    return parse_checkpoint(file, read_safetensors(file)).state.position > position;
  } catch (const InputError&) {
    return true;  // nobody can say what it is
  }
}

Abandoned move_later_checkpoints(const std::string& folder, const Position& position) {
  auto later = checkpoints_in(folder);
  std::erase_if(later, [&](const auto& c) { return c.first <= position; });
  Abandoned left;
  const fs::path best = fs::path(folder) / kBestFile;
  left.best = is_later(best.string(), position);
  if (left.best) later.emplace_back(position, best);
  if (later.empty()) return left;
  const std::string stem = fs::path(position.file_name()).stem().string();
  left.folder = make_numbered_folder((fs::path(folder) / ("abandoned-after-" + stem)).string());
  left.checkpoints = later.size();
  // The newest are moved first, so that the others are a run without a gap if this is interrupted.
  for (auto checkpoint = later.rbegin(); checkpoint != later.rend(); ++checkpoint) {
    const fs::path& from = checkpoint->second;
    std::error_code error;
    fs::rename(from, fs::path(left.folder) / from.filename(), error);
    if (error) throw RunError(from.string() + ": cannot be moved to " + left.folder + ": " + error.message());
  }
  sync_parent_folder((fs::path(left.folder) / "moved").string());
  sync_parent_folder(left.folder);
  return left;
}

namespace {

/// Returns the text that names the folder in `folder` with the checkpoint that was written last; "" if none
/// holds checkpoints.
std::string runs_in(const std::string& folder) {
  constexpr int kMost = 10000;
  std::string last;
  fs::file_time_type written = fs::file_time_type::min();
  int runs = 0;
  std::error_code error;
  fs::directory_iterator at(folder, error);
  for (int seen = 0; !error && at != fs::directory_iterator() && seen < kMost; at.increment(error), ++seen) {
    std::error_code none;
    const std::string path = at->path().string();
    if (!at->is_directory(none)) continue;
    const std::optional<std::string> newest = newest_checkpoint(path);
    if (!newest) continue;
    ++runs;
    const fs::file_time_type time = fs::last_write_time(*newest, none);
    if (!last.empty() && std::tie(time, path) < std::tie(written, last)) continue;
    written = time;
    last = path;
  }
  if (runs == 0) return "";
  return (runs == 1 ? "; the run in it is " : "; the last of the runs in it is ") + last;
}

}  // namespace

std::string instead_of_checkpoints(const std::string& folder) {
  const std::string best = (fs::path(folder) / kBestFile).string();
  std::error_code error;
  if (fs::is_regular_file(best, error))
    return fmt::format(
        ", but {}, the checkpoint of the best test: name that file (--load-file {} goes on from it)",
        kBestFile, best);
  auto found = checkpoints_in(folder, kExtension);
  std::erase_if(found, [](const auto& c) {
    std::error_code none;
    return !fs::is_regular_file(c.second, none);
  });
  if (found.empty()) return "";
  const fs::path& newest = found.back().second;
  return is_pickle(format_bytes(InputFile(newest.string())))
             ? ", but " + newest.filename().string() + ", which " + kIsPickle
             : "";
}

std::string find_checkpoint(const std::string& file_or_folder) {
  std::error_code error;
  if (fs::is_directory(file_or_folder, error)) {
    const auto newest = newest_checkpoint(file_or_folder);
    if (!newest) {
      throw InputError(file_or_folder + ": holds no checkpoint (files named EPOCH.BATCH" +
                       std::string(kExtension) + ")" + instead_of_checkpoints(file_or_folder) +
                       runs_in(file_or_folder));
    }
    return *newest;
  }
  if (!fs::exists(file_or_folder, error)) {
    if (error) throw RunError(fmt::format("{}: cannot be read: {}", file_or_folder, error.message()));
    throw InputError(file_or_folder + ": there is no such checkpoint file or folder");
  }
  return file_or_folder;
}

std::string moved_data_text(const Checkpoint& checkpoint, const std::string& path,
                            const std::string& option) {
  std::error_code none;
  if (path.empty() || fs::exists(path, none)) return "";
  return fmt::format(
      "\n{} is in the options of {}; if it has moved, or you are in another folder, name it with {}", path,
      checkpoint.file, option);
}

Checkpoint read_checkpoint(const std::string& file_or_folder) {
  const std::string file = find_checkpoint(file_or_folder);
  try {
    return parse_checkpoint(file, read_safetensors(file));
  } catch (const InputError& damaged) {
    const std::string before = sound_checkpoint_before(file);
    if (before.empty()) throw;
    throw InputError(
        fmt::format("{}\nthe checkpoint before it can be read; name that one: {}", damaged.what(), before));
  }
}

void save_statistics(const PixelStatistics& statistics, const std::string& provider, const Dims& image,
                     TensorFile& into) {
  const auto put = [&](const char* name, const Dims& dims, const std::vector<float>& values) {
    if (!values.empty()) into.tensors[provider + name] = {dims, values};
  };
  put(".mean", image, statistics.mean);
  put(".deviations", {image[0]}, statistics.deviations);
  put(".colorPca", {4, 3}, statistics.color_pca);
}

InitialWeights read_initial_weights(const std::string& file_or_folder) {
  const std::string file = find_checkpoint(file_or_folder);
  if (!Position::of_file_name(fs::path(file).filename().string())) {
    const InputFile input(file);
    if (is_torch_file(format_bytes(input))) {
      TorchWeights weights = read_torch_file(input);
      return {file, std::move(weights.tensors), false, {}, std::move(weights.place)};
    }
    TensorFile contents = read_any_safetensors(file);
    if (!contents.metadata.contains("layer_def")) return {file, std::move(contents), false};
  }
  Checkpoint checkpoint = read_checkpoint(file);
  TensorFile tensors = std::exchange(checkpoint.tensors, {});
  const std::string found = checkpoint.file;
  return {found, std::move(tensors), true, std::move(checkpoint)};
}

Checkpoint parse_checkpoint(const std::string& file, TensorFile tensors) {
  Checkpoint c;
  c.file = file;
  c.tensors = std::move(tensors);
  const auto meta = [&](const char* key) -> const std::string& {
    const auto found = c.tensors.metadata.find(key);
    if (found == c.tensors.metadata.end())
      throw InputError(c.file + ": is not a checkpoint of convnet: its metadata has no '" + key +
                       "'; a new run can take the weights of another program's file with --init-from");
    return found->second;
  };
  if (!c.tensors.metadata.contains("layer_def"))  // other programs have a 'format', too
    throw InputError(c.file + ": is not a checkpoint of convnet; a new run can take the weights of another " +
                     "program's file with --init-from");
  if (meta("format") != kFormat)
    throw InputError(c.file + ": is a checkpoint of format '" + meta("format") + "'; this program reads '" +
                     kFormat + "'");
  const auto path = [&](const char* key) {
    if (meta(key).find('\0') == std::string::npos) return meta(key);
    throw InputError(fmt::format("{}: metadata '{}' is damaged: a path has no NUL", c.file, key));
  };
  c.definition_text = meta("layer_def");
  c.definition_path = path("layer_def_path");
  c.parameters_text = meta("layer_params");
  c.parameters_path = path("layer_params_path");
  if (c.tensors.metadata.contains("placement")) c.placement = meta("placement");
  const auto read = [&](const char* key, const auto& take) {
    const std::string& text = meta(key);
    try {
      take(JsonValue::parse(text));
    } catch (const InputError& wrong) {
      throw InputError(fmt::format("{}: metadata '{}' is damaged: {}", c.file, key, wrong.what()));
    }
  };
  read("options", [&](const JsonValue& j) { c.options = j.text_members(); });
  read("state", [&](const JsonValue& j) { c.state = state_from(j); });
  read("algorithms", [&](const JsonValue& j) { c.algorithms = j.text_members(); });
  if (c.tensors.metadata.contains("matrices"))
    read("matrices", [&](const JsonValue& j) { c.matrices = matrices_from(j); });
  if (c.tensors.metadata.contains("ranges")) {
    read("ranges", [&](const JsonValue& j) {
      c.train_range = range_from(j.at("train"));
      c.test_range = range_from(j.at("test"));
      if (const auto images = j.find("train_images")) c.train_images = images->integer(kMostImages);
    });
  }
  return c;
}

}  // namespace convnet
