// A cfg of Darknet and weights of any bytes, with a NUL between them, are refused, or become a net whose
// graph can be built.
#include <algorithm>
#include <cstdint>
#include <string>

#include "convnet/base/error.h"
#include "convnet/onnx_import/darknet.h"
#include "convnet/onnx_import/import.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(bytes.find('\0'), bytes.size());
  try {
    const convnet::SourceModel source = convnet::parse_darknet_model(
        "fuzz.cfg", bytes.substr(0, end), "fuzz.weights", bytes.substr(std::min(end + 1, bytes.size())));
    convnet::ImportedModel model = convnet::import_model(source, {});
    convnet::checkpoint_of(model, "net.cfg", "net-params.cfg");
  } catch (const convnet::InputError&) {  // what is expected of most inputs
  }
  return 0;
}
