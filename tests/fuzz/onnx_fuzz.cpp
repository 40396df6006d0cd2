// ONNX models of any bytes are refused, or become a net whose graph can be built; their weights can be read
// in any case.
#include <cstdint>
#include <string>

#include "convnet/base/error.h"
#include "convnet/onnx_import/import.h"
#include "convnet/onnx_import/weights.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const convnet::SourceModel source =
        convnet::parse_source_model("fuzz.onnx", std::string(reinterpret_cast<const char*>(data), size));
    convnet::onnx_weights(source, {3, 8, 8});
    convnet::ImportedModel model = convnet::import_model(source, {});
    convnet::checkpoint_of(model, "net.cfg", "net-params.cfg");
  } catch (const convnet::InputError&) {  // what is expected of most inputs
  }
  return 0;
}
