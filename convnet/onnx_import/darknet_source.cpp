#include "convnet/onnx_import/darknet_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "convnet/base/error.h"
#include "convnet/base/printable.h"
#include "convnet/base/text_file.h"
#include "convnet/config/text.h"

namespace convnet {
namespace {

/// The most layers of a net.
constexpr std::size_t kMostSections = 10000;

/// Returns the usual name of a section.
std::string long_type(const std::string& type) {
  static const std::map<std::string, std::string> known = {{"network", "net"},    {"conv", "convolutional"},
                                                           {"conn", "connected"}, {"max", "maxpool"},
                                                           {"avg", "avgpool"},    {"soft", "softmax"}};
  const auto found = known.find(type);
  return found == known.end() ? type : found->second;
}

}  // namespace

std::vector<DarknetSection> parse_darknet_sections(const std::string& name, std::string_view text) {
  std::vector<DarknetSection> sections;
  text = without_byte_order_mark(text);
  for (int line = 1; !text.empty(); ++line) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string bare;
    for (const char c : text.substr(0, end))
      if (!is_blank(c)) bare += c;
    text.remove_prefix(std::min(end + 1, text.size()));
    if (bare.empty() || bare[0] == '#' || bare[0] == ';') continue;
    const auto fail = [&](const std::string& why) {
      return InputError(fmt::format("{}:{}: {}", name, line, why));
    };
    if (bare[0] == '[') {
      if (bare.back() != ']' || bare.size() < 3) throw fail("expected [section], not " + excerpt(bare));
      if (sections.size() == kMostSections) throw fail("the net has more than 10000 layers");
      sections.push_back({long_type(bare.substr(1, bare.size() - 2)), line, {}});
      continue;
    }
    const std::size_t equals = bare.find('=');
    if (equals == std::string::npos || equals == 0) throw fail("expected key=value, not " + excerpt(bare));
    if (sections.empty()) throw fail("is above the first section, which is [net]");
    // A key that is given twice keeps its first value, as in Darknet.
    sections.back().keys.emplace(bare.substr(0, equals), bare.substr(equals + 1));
  }
  return sections;
}

DarknetWeights::DarknetWeights(const std::string& name, std::string_view bytes) : name_(name), rest_(bytes) {
  constexpr std::size_t kVersion = 12, kSeen = 4;
  std::array<std::int32_t, 3> version{};  // major, minor, revision
  if (bytes.size() < kVersion + kSeen)
    throw InputError(name + ": is no weights file of Darknet: it is too short for its header");
  std::memcpy(version.data(), bytes.data(), kVersion);
  const std::int64_t major = version[0], minor = version[1];
  constexpr std::int64_t kTransposed = 1000, kMostMajor = 2 * kTransposed;
  if (major < 0 || minor < 0 || major > kMostMajor || minor > kMostMajor)
    throw InputError(fmt::format("{}: is no weights file of Darknet: it says that its version is {}.{}", name,
                                 major, minor));
  transposed = major > kTransposed || minor > kTransposed;
  const bool wide = major * 10 + minor >= 2 && major < kTransposed && minor < kTransposed;
  const std::size_t seen = wide ? 2 * kSeen : kSeen;
  if (bytes.size() < kVersion + seen || (bytes.size() - kVersion - seen) % sizeof(float) != 0)
    throw InputError(name + ": is no weights file of Darknet, or is damaged: its length does not fit");
  rest_.remove_prefix(kVersion + seen);
}

std::vector<float> DarknetWeights::take(const Dims& dims, const std::string& layer) {
  std::size_t count = 1;
  for (const std::int64_t side : dims) {
    if (count > rest_.size() / sizeof(float) / static_cast<std::size_t>(side))
      throw InputError(
          fmt::format("{}: ends within {}, whose next {} numbers it should have; is it the file "
                      "of another net?",
                      name_, layer, to_string(dims)));
    count *= static_cast<std::size_t>(side);
  }
  std::vector<float> numbers(count);
  std::memcpy(numbers.data(), rest_.data(), count * sizeof(float));
  rest_.remove_prefix(count * sizeof(float));
  return numbers;
}

void DarknetWeights::check_end() const {
  if (!rest_.empty())
    throw InputError(
        fmt::format("{}: has {} numbers more than the net has weights; is it the file of another net?", name_,
                    rest_.size() / sizeof(float)));
}

}  // namespace convnet
