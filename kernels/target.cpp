#include "kernels/target.h"

namespace convnet {

const char* to_string(Precision precision) {
  switch (precision) {
    case Precision::tf32: return "tf32";
    case Precision::bf16: return "bf16";
    case Precision::fp32: break;
  }
  return "fp32";
}

}  // namespace convnet
