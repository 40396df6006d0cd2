#include "convnet/base/error.h"

namespace convnet {
namespace {

std::string escape_nul(const std::string& text) {
  std::string escaped;
  for (const char c : text) c == '\0' ? escaped += "\\x00" : escaped += c;
  return escaped;
}

}  // namespace

Error::Error(const std::string& text) : std::runtime_error(escape_nul(text)) {}

}  // namespace convnet
