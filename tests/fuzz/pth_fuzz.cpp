// The reader of torch.save's files on any bytes, in both forms, and the reader of their pickles alone.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "convnet/base/error.h"
#include "convnet/checkpoint/torch_file.h"
#include "providers/pickle.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace convnet;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  try {
    if (is_torch_file(bytes)) {
      read_torch_file(InputFile("fuzz", bytes));
    } else {
      std::size_t at = 0;
      const PickleValue root =
          parse_pickle_at(std::make_shared<const std::string>(bytes), at, "fuzz", PickleNames::tensors);
      for (const auto& [key, value] : root.entries()) {
        value.describe();
        if (const auto attributes = value.attributes()) attributes->describe();
        if (value.kind() == PickleKind::tensor) value.tensor("it").extent();
      }
    }
  } catch (const InputError&) {
    // Refusing bad input is right.
  }
  return 0;
}
