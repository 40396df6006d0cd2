#include "convnet/checkpoint/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "convnet/base/error.h"
#include "convnet/base/mixed_labels.h"
#include "convnet/base/output_file.h"

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

/// Reads a whole number from 0 to `max`; get<int>() would truncate larger ones.
std::int64_t whole(const json& j, std::int64_t max) {
  if (!j.is_number_unsigned() || j.get<std::uint64_t>() > static_cast<std::uint64_t>(max))
    throw std::out_of_range("the position makes no sense");
  return j.get<std::int64_t>();
}
constexpr std::int64_t kMostEpochs = 1'000'000'000, kMostImages = std::int64_t{1} << 40,
                       kMostUpdates = std::int64_t{1} << 53;

CostSums costs_from(const json& j) {
  CostSums costs;
  costs.images = whole(j.at("images"), kMostImages);
  for (const json& entry : j.at("sums"))
    costs.sums.emplace_back(entry.at(0).get<std::string>(), entry.at(1).get<std::vector<double>>());
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

TrainingState state_from(const json& j) {
  TrainingState s;
  const json& p = j.at("position");
  s.position = {static_cast<int>(whole(p.at("epoch"), kMostEpochs)),
                static_cast<int>(whole(p.at("batch"), kMostEpochs)), whole(p.at("minibatches"), kMostImages),
                whole(p.at("images"), kMostImages)};
  s.iteration = static_cast<std::uint64_t>(whole(j.at("iteration"), std::int64_t{1} << 62));
  s.test_cursor = whole(j.at("test_cursor"), kMostImages);
  s.test_due = j.at("test_due").get<bool>();
  s.partial = costs_from(j.at("partial"));
  s.partial_seconds = j.at("partial_seconds").get<double>();
  // Older checkpoints have no entry for updates over several minibatches.
  for (const json& entry : j.value("windows", json::array())) {
    // Older ones have no count of updates.
    s.windows[entry.at(0).get<std::string>()] = {whole(entry.at(1), kMostEpochs),
                                                 whole(entry.at(2), kMostImages),
                                                 entry.size() > 3 ? whole(entry.at(3), kMostUpdates) : 0};
  }
  if (j.contains("best")) {
    const json& best = j.at("best");
    s.best = {best.at(0).get<double>(), static_cast<int>(whole(best.at(1), kMostEpochs)),
              static_cast<int>(whole(best.at(2), kMostEpochs)), whole(best.at(3), kMostImages),
              best.size() > 4 ? best.at(4).get<std::string>() : ""};
  }
  if (j.contains("plateau")) {
    const json& plateau = j.at("plateau");
    s.plateau.tests_since = whole(plateau.at("tests_since"), kMostImages);
    for (const json& change : plateau.at("changes")) {
      const double factor = change.at(2).get<double>();
      if (!(factor > 0 && factor <= 1)) throw std::out_of_range("a factor of learning rates makes no sense");
      s.plateau.changes.push_back({static_cast<int>(whole(change.at(0), kMostEpochs)),
                                   static_cast<int>(whole(change.at(1), kMostEpochs)), factor});
    }
  }
  for (const json& entry : j.at("history")) {
    HistoryEntry h;
    h.epoch = static_cast<int>(whole(entry.at("epoch"), kMostEpochs));
    h.batch = static_cast<int>(whole(entry.at("batch"), kMostEpochs));
    if (const json tested = entry.value("test_batch", json(-1)); tested != -1)
      h.test_batch = static_cast<int>(whole(tested, kMostEpochs));
    h.costs = costs_from(entry);
    if (entry.contains("count")) h.count = std::max<std::int64_t>(1, whole(entry.at("count"), kMostImages));
    s.history.push_back(std::move(h));
  }
  if ((s.position.minibatches == 0) != (s.position.images == 0))
    throw std::out_of_range("the position makes no sense");
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

Dims dims_from(const json& list) {
  Dims dims;
  for (const json& d : list) {
    dims.push_back(whole(d, kMostImages));
    const std::int64_t elements = element_count(dims);
    if (elements < 1 || elements > kMostImages)
      throw std::out_of_range("a matrix has no or too many elements");
  }
  return dims;
}

DataType matrix_type_from(const json& text) {
  for (const DataType type : {DataType::u8, DataType::f32, DataType::s32})
    if (text.get<std::string>() == to_string(type)) return type;
  throw std::out_of_range("there is no type of matrices '" + text.get<std::string>() + "'");
}

/// Throws if the matrices are impossible for any provider.
void check_matrices(const std::vector<MatrixInfo>& matrices) {
  if (!matrices.empty() && (matrices[0].type == DataType::s32 || matrices[0].classes > 0))
    throw std::out_of_range("matrix 0 holds labels in place of images");
  for (const MatrixInfo& m : matrices) {
    if ((m.type == DataType::s32) != (m.classes > 0))
      throw std::out_of_range("labels are of type s32 and have classes, and other matrices neither");
    if (m.classes > 0 && m.dims != Dims{1} && m.dims != Dims{kMixedLabelValues})
      throw std::out_of_range("labels of " + to_string(m.dims) + " numbers make no sense");
  }
}

std::vector<MatrixInfo> matrices_from(const json& list) {
  std::vector<MatrixInfo> matrices;
  for (const json& j : list) {
    MatrixInfo m;
    m.name = j.at("name").get<std::string>();
    m.dims = dims_from(j.at("dims"));
    // Older checkpoints do not say it.
    if (j.contains("stored")) m.stored = dims_from(j.at("stored"));
    m.type = matrix_type_from(j.at("type"));
    if (j.contains("stored_type")) m.stored_type = matrix_type_from(j.at("stored_type"));
    m.classes = whole(j.at("classes"), kMostImages);
    m.class_names = j.at("class_names").get<std::vector<std::string>>();
    const std::int64_t named = m.classes > 0 ? m.classes : element_count(m.dims);
    if (!m.class_names.empty() && std::ssize(m.class_names) != named)
      throw std::out_of_range("there are not as many names as classes");
    matrices.push_back(std::move(m));
  }
  check_matrices(matrices);
  return matrices;
}

BatchRange range_from(const json& text) {
  try {
    return BatchRange::parse(text.get<std::string>());
  } catch (const InputError& wrong) {  // it does not name the file
    throw std::out_of_range(wrong.what());
  }
}

/// The checkpoints in a folder, oldest first; none where there is no folder.
std::vector<std::pair<Position, fs::path>> checkpoints_in(const fs::path& folder) {
  std::vector<std::pair<Position, fs::path>> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (const auto position = Position::of_file_name(at->path().filename().string()))
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
    found = checkpoints_in(file.has_parent_path() ? file.parent_path() : ".");
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

/// Returns whether `file` is there and no checkpoint of `position` or before.
bool is_later(const fs::path& file, const Position& position) {
  std::error_code error;
  if (!fs::exists(file, error)) return false;
  try {
    return parse_checkpoint(file.string(), read_safetensors(file.string())).state.position > position;
  } catch (const InputError&) {
    return true;  // nobody can say what it is
  }
}

}  // namespace

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
  std::string warning =
      save_making_room(folder, name, [&] { write_safetensors(checkpoint.file, checkpoint.tensors); });
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

Abandoned move_later_checkpoints(const std::string& folder, const Position& position,
                                 const std::string& best) {
  auto later = checkpoints_in(folder);
  std::erase_if(later, [&](const auto& c) { return c.first <= position; });
  Abandoned left;
  left.best = is_later(fs::path(folder) / best, position);
  if (left.best) later.emplace_back(position, fs::path(folder) / best);
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

std::string find_checkpoint(const std::string& file_or_folder) {
  std::error_code error;
  if (fs::is_directory(file_or_folder, error)) {
    const auto newest = newest_checkpoint(file_or_folder);
    if (!newest)
      throw InputError(file_or_folder + ": holds no checkpoint (files named EPOCH.BATCH" +
                       std::string(kExtension) + ")");
    return *newest;
  }
  if (!fs::exists(file_or_folder, error)) {
    if (error) throw RunError(fmt::format("{}: cannot be read: {}", file_or_folder, error.message()));
    throw InputError(file_or_folder + ": there is no such checkpoint file or folder");
  }
  return file_or_folder;
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

InitialWeights read_initial_weights(const std::string& file_or_folder) {
  const std::string file = find_checkpoint(file_or_folder);
  if (!Position::of_file_name(fs::path(file).filename().string())) {
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
  c.definition_text = meta("layer_def");
  c.definition_path = meta("layer_def_path");
  c.parameters_text = meta("layer_params");
  c.parameters_path = meta("layer_params_path");
  if (c.tensors.metadata.contains("placement")) c.placement = meta("placement");
  const char* key = "options";
  try {
    c.options = json::parse(meta("options")).get<OptionTexts>();
    key = "state";
    c.state = state_from(json::parse(meta("state")));
    key = "algorithms";
    c.algorithms = json::parse(meta("algorithms")).get<std::map<std::string, std::string>>();
    key = "matrices";
    if (c.tensors.metadata.contains(key)) c.matrices = matrices_from(json::parse(meta(key)));
    key = "ranges";
    if (c.tensors.metadata.contains(key)) {
      const json ranges = json::parse(meta(key));
      c.train_range = range_from(ranges.at("train"));
      c.test_range = range_from(ranges.at("test"));
      c.train_images = whole(ranges.value("train_images", json(0)), kMostImages);
    }
  } catch (const std::exception& e) {
    if (dynamic_cast<const InputError*>(&e) != nullptr) throw;
    throw InputError(c.file + ": metadata '" + key + "' is damaged: " + e.what());
  }
  return c;
}

}  // namespace convnet
