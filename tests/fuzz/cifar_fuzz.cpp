// The reader of CIFAR's batches on any bytes. Input: a byte that says which form, the length of batches.meta
// (two bytes, the lower one first), batches.meta, and the batch.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "convnet/base/error.h"
#include "providers/cifar.h"
#include "tests/temp_folder.h"

namespace {

using namespace convnet;

void read_all(const std::string& folder) {
  try {
    const auto provider = make_cifar_provider(folder);
    provider->images_in(1);
    const DataBatch batch = provider->load(1);
    static_cast<void>(provider->mean_image({1, 1}));
  } catch (const InputError&) {
    // Refusing bad input is right.
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) return 0;
  const std::string rest(reinterpret_cast<const char*>(data) + 3, size - 3);
  const std::size_t meta = std::min<std::size_t>(rest.size(), data[1] + 256U * data[2]);
  const TempFolder folder;
  if (data[0] % 2 == 0) {
    write_file(folder / "batches.meta", rest.substr(0, meta));
    write_file(folder / "data_batch_1", rest.substr(meta));
  } else {
    write_file(folder / "data_batch_1.bin", rest);
  }
  read_all(folder.path());
  return 0;
}
