// The pickle reader on any bytes; what it reads is then looked at, as deep as a data set is.
#include <cstddef>
#include <cstdint>
#include <string>

#include "convnet/base/error.h"
#include "providers/pickle.h"

namespace {

using namespace convnet;

void look_at(const PickleValue& value, int depth) {
  value.describe();
  value.keys();
  value.find("data");
  const auto ask = [](const auto& question) {
    try {
      question();
    } catch (const InputError&) {
      // Another kind of value.
    }
  };
  ask([&] { value.integer("it"); });
  ask([&] { value.number("it"); });
  ask([&] { value.string("it"); });
  ask([&] { value.integers("it"); });
  ask([&] { value.numbers("it"); });
  if (depth == 0 || value.kind() == PickleKind::array) return;
  for (std::size_t i = 0; i < value.size() && i < 8; ++i) look_at(value[i], depth - 1);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    look_at(parse_pickle({reinterpret_cast<const char*>(data), size}, "fuzz"), 3);
  } catch (const InputError&) {
    // Refusing bad input is right.
  }
  return 0;
}
