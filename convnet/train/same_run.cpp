#include "convnet/train/same_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "convnet/base/checksum.h"
#include "convnet/base/error.h"
#include "convnet/base/file.h"
#include "convnet/plan/hash.h"

namespace convnet {
namespace {

const std::string kOption = "the option --", kBatches = "the data set's batches ";

std::string sum_of(const std::string& text) {
  Crc32 sum;
  sum.add(text.data(), text.size());
  return sum.text();
}

std::string sum_of(const Checkpoint& checkpoint) {
  Crc32 sum;
  for (const auto& [name, tensor] : checkpoint.tensors.tensors) {
    sum.add(name.data(), name.size());
    sum.add(tensor.values.data(), tensor.values.size() * sizeof(float));
  }
  return sum.text();
}

std::string sum_of_images(const LoadedRun& run, const BatchRange& range) {
  Crc32 sum;
  for (int batch = range.first; batch <= range.last; ++batch) {
    const std::int64_t images = run.provider->images_in(batch);
    sum.add(&images, sizeof images);
    if (batch != range.first && batch != range.last) continue;
    const std::int64_t first = batch == range.first ? 0 : std::max<std::int64_t>(0, images - 1);
    for (const auto& matrix : run.provider->read({batch, 0, first, 1}, run.statistics).matrices)
      sum.add(matrix.data(), matrix.size());
  }
  run.provider->add_labels(range, sum);
  return sum.text();
}

/// Says of what was measured over all training images whether it is the same.
std::string sum_of(const PixelStatistics& statistics) {
  Crc32 sum;
  for (const std::vector<float>* values : {&statistics.mean, &statistics.deviations, &statistics.color_pca})
    sum.add(values->data(), values->size() * sizeof(float));
  return sum.text();
}

}  // namespace

RunFacts facts_of(const OptionTexts& given) {
  RunFacts facts;
  for (const auto& [key, value] : given) {
    // Hosts may differ in what they let processes do, and processes in when they began.
    if (key != "shared-memory" && key != "time-limit") facts.emplace_back(kOption + key, value);
  }
  return facts;
}

RunFacts facts_of(const LoadedRun& run) {
  RunFacts facts = {{"the program", sum_of(read_whole_file("/proc/self/exe"))}};
  for (const auto& [key, value] : run.saved_options) facts.emplace_back(kOption + key, value);
  facts.emplace_back("the layer definition " + run.files.definition.path, sum_of(run.files.definition.text));
  facts.emplace_back("the parameter file " + run.files.parameters.path, sum_of(run.files.parameters.text));
  if (run.checkpoint) facts.emplace_back("the checkpoint " + run.checkpoint->file, sum_of(*run.checkpoint));
  const DataOptions& data = run.options.data;
  if (!run.options.tests.only_tests())
    facts.emplace_back(kBatches + data.train_range.str(),
                       sum_of_images(run, data.train_range) + sum_of(run.statistics));
  facts.emplace_back(kBatches + data.test_range.str(), sum_of_images(run, data.test_range));
  return facts;
}

RunFacts facts_of(const std::vector<std::pair<std::string, const Plan*>>& plans) {
  RunFacts facts;
  for (const auto& [name, plan] : plans) facts.emplace_back(name, hash_text(plan_hash(*plan)));
  return facts;
}

namespace {

/// Returns the value of a fact; null if there is none of that name.
const std::string* find_fact(const RunFacts& facts, const std::string& name) {
  const auto found = std::find_if(facts.begin(), facts.end(), [&](const auto& f) { return f.first == name; });
  return found == facts.end() ? nullptr : &found->second;
}

/// Says in which fact a process differs from the first one; "" if in none.
std::string difference_of(const RunFacts& first, const RunFacts& other) {
  const auto shown = [](const std::string* value) {
    return value == nullptr ? "not given" : "'" + *value + "'";
  };
  for (const RunFacts* facts : {&first, &other}) {
    for (const auto& [name, value] : *facts) {
      const std::string *here = find_fact(first, name), *there = find_fact(other, name);
      if (here != nullptr && there != nullptr && *here == *there) continue;
      if (name.starts_with(kBatches)) return name + " differ";
      if (!name.starts_with(kOption)) return name + " differs";
      return fmt::format("{} is {} instead of {}", name, shown(there), shown(here));
    }
  }
  return "";
}

}  // namespace

void check_same(Processes& processes, const RunFacts& facts) {
  using nlohmann::json;
  const json mine(facts);
  const std::vector<std::string> all =
      processes.exchange(mine.dump(-1, ' ', true, json::error_handler_t::replace));
  processes.run_collectively([&] {
    const auto facts_in = [&](int rank) {
      const json there = json::parse(all[static_cast<std::size_t>(rank)], nullptr, false);
      if (!there.is_array())  // an exchange about something else
        throw InputError(
            fmt::format("{} does something else at this point; give all processes the same "
                        "command line, files and data",
                        processes.name(rank)));
      return there.get<RunFacts>();
    };
    const RunFacts first = facts_in(0);
    for (int r = 1; r < processes.count(); ++r) {
      const std::string difference = difference_of(first, facts_in(r));
      if (difference.empty()) continue;
      throw InputError(fmt::format("{} would not do the same as {}: {}", processes.name(r), processes.name(0),
                                   difference));
    }
  });
}

}  // namespace convnet
