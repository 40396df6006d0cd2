// Tables of labels of any bytes are read or refused, and so are their matches with photos.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "convnet/base/error.h"
#include "providers/label_table.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace convnet;
  try {
    const LabelTable table =
        parse_label_table("fuzz.csv", std::string_view(reinterpret_cast<const char*>(data), size));
    const auto kind = static_cast<LabelKind>(size % 4);
    const PhotoLabels found =
        match_labels(table, {{"a.jpg"}, {"b/a.png"}, {"t.tar/c.jpg", 6}, {"c/d.bmp"}}, "photos", kind);
    for (const PhotoLabel& photo : found.photos) {
      for (const std::int32_t label : photo.labels)
        if (label < 0 || label >= static_cast<std::int32_t>(found.names.size())) __builtin_trap();
      const bool has_numbers = photo.has_row && found.kind == LabelKind::numbers;
      if (photo.numbers.size() != (has_numbers ? found.names.size() : 0)) __builtin_trap();
    }
  } catch (const InputError&) {  // what is expected of most inputs
  }
  return 0;
}
