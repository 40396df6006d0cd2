#include "convnet/base/notes.h"

#include <fmt/format.h>

#include <cstdio>

namespace convnet {

void print_notes(const std::vector<std::string>& notes) {
  std::fflush(stdout);  // a file that has both outputs keeps their order
  for (const std::string& note : notes) {
    if (!note.empty()) fmt::print(stderr, "{}\n", note);
  }
}

}  // namespace convnet
