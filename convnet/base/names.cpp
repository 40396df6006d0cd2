#include "convnet/base/names.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>

namespace convnet {
namespace {

/// Number of insertions, deletions, replacements and transpositions of neighbours (optimal string alignment),
/// case-insensitive; limit + 1 stands for anything above `limit`.
std::size_t edit_distance(std::string_view a, std::string_view b, std::size_t limit) {
  if (std::max(a.size(), b.size()) - std::min(a.size(), b.size()) > limit) return limit + 1;
  std::vector<std::size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  const auto same = [&](std::size_t i, std::size_t j) { return lower(a[i]) == lower(b[j]); };
  for (std::size_t i = 0; i < a.size(); ++i) {
    before.swap(above);
    above.swap(row);
    // Cells farther than `limit` from the diagonal would hold larger distances. Only the nearest of them are
    // read.
    const std::size_t first = i < limit ? 0 : i - limit, last = std::min(b.size(), i + limit + 1);
    const auto begin = row.begin() + static_cast<std::ptrdiff_t>(first);
    std::fill(begin, begin + static_cast<std::ptrdiff_t>(std::min(last + 2, row.size()) - first), limit + 1);
    std::size_t smallest = limit + 1;
    if (first == 0) smallest = row[0] = i + 1;
    for (std::size_t j = first; j < last; ++j) {
      row[j + 1] = std::min({above[j] + (same(i, j) ? 0 : 1), row[j] + 1, above[j + 1] + 1});
      if (i > 0 && j > 0 && same(i, j - 1) && same(i - 1, j))
        row[j + 1] = std::min(row[j + 1], before[j - 1] + 1);
      smallest = std::min(smallest, row[j + 1]);
    }
    // No distance in a later row is smaller, whether or not it comes from a transposition.
    if (smallest > limit) return limit + 1;
  }
  return row[b.size()];
}

/// A name in another program, or in an older version, and what has its meaning here. Names that differ only
/// in case, '_' and '-' are the same.
struct OtherName {
  std::string_view other, here;
};

constexpr auto kOtherNames = std::to_array<OtherName>({// Commands of cuda-convnet and cuda-convnet2.
                                                       {"shownet", "show"},
                                                       {"shownet.py", "show"},
                                                       {"convnet.py", "train"},
                                                       {"make-data.py", "make-data"},
                                                       // Keys of layers.
                                                       {"lr", "epsW"},
                                                       {"learning_rate", "epsW"},
                                                       {"momentum", "momW"},
                                                       {"weight_decay", "wc"},
                                                       {"kernelSize", "filterSize"},
                                                       {"kernel_w", "filterSize"},
                                                       {"kernel_h", "filterSizeY"},
                                                       {"stride_w", "stride"},
                                                       {"stride_h", "strideY"},
                                                       {"pad_w", "padding"},
                                                       {"pad_h", "paddingY"},
                                                       {"num_output", "outputs"},
                                                       {"out_channels", "filters"},
                                                       {"in_channels", "channels"},
                                                       {"out_features", "outputs"},
                                                       {"units", "outputs"},
                                                       {"activation", "neuron"},
                                                       {"pad", "padding"},
                                                       // Values.
                                                       {"swish", "silu"},
                                                       {"hardswish", "hswish"},
                                                       {"hardsigmoid", "hsigmoid"},
                                                       {"fp16", "bf16"},
                                                       {"float16", "bf16"},
                                                       {"half", "bf16"},
                                                       {"gpu", "cuda"},
                                                       {"gpus", "cuda"},
                                                       {"float32", "fp32"}});

bool same_word(std::string_view a, std::string_view b) {
  const auto next_letter = [](std::string_view word, std::size_t i) {
    while (i < word.size() && (word[i] == '_' || word[i] == '-')) ++i;
    return i;
  };
  std::size_t i = next_letter(a, 0), j = next_letter(b, 0);
  while (i < a.size() && j < b.size() && lower(a[i]) == lower(b[j])) {
    i = next_letter(a, i + 1);
    j = next_letter(b, j + 1);
  }
  return i == a.size() && j == b.size();
}

}  // namespace

std::string usual_name(std::string_view word, const std::vector<std::string>& candidates) {
  for (const OtherName& name : kOtherNames) {
    if (!same_word(name.other, word)) continue;
    if (std::find(candidates.begin(), candidates.end(), name.here) != candidates.end())
      return std::string(name.here);
  }
  return "";
}

std::string nearest(std::string_view word, const std::vector<std::string>& candidates, int max_edits) {
  if (max_edits > 0) {
    if (std::string usual = usual_name(word, candidates); !usual.empty()) return usual;
  }
  const auto limit = static_cast<std::size_t>(std::max(max_edits, 0));
  std::size_t best = limit + 1;
  std::string found;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(word, candidate, limit);
    if (distance < best) {
      best = distance;
      found = candidate;
    }
  }
  return found;
}

int typing_edits(std::string_view word) { return word.size() < 6 ? 1 : 2; }

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates,
                         const std::string& otherwise, int max_edits) {
  const std::string close = nearest(word, candidates, max_edits);
  if (!close.empty()) return "; did you mean '" + close + "'?";
  return otherwise.empty() ? "" : "; " + otherwise;
}

std::string join(const std::vector<std::string>& words, std::string_view separator) {
  std::string out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) out += separator;
    out += words[i];
  }
  return out;
}

}  // namespace convnet
