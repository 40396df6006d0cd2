// .npy files: headers of any bytes are read or refused, and so are the numbers and labels behind them.
#include <algorithm>
#include <cstdint>
#include <string>

#include "convnet/base/error.h"
#include "providers/npy_array.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const convnet::NpyArray array("fuzz.npy", std::string(reinterpret_cast<const char*>(data), size));
    // A few at a time, from the end too.
    const std::int64_t count = std::min<std::int64_t>(array.records(), 3);
    if (array.is_labels()) {
      array.labels(0, count);
      array.labels(array.records() - count, count);
    }
    array.record_dims();
    array.numbers(0, count);
    array.numbers(array.records() - count, count);
  } catch (const convnet::InputError&) {  // what is expected of most inputs
  }
  return 0;
}
