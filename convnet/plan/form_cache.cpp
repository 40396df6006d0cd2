#include "convnet/plan/form_cache.h"

#include <bit>
#include <cstdint>
#include <string_view>
#include <utility>

#include "convnet/plan/field_bytes.h"

namespace convnet {
namespace {

/// Layouts are compared by identity, which is faster than what they are: equal ones are asked for twice.
struct KeySink {
  std::string& key;

  void add(std::uint64_t value) { key.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void add(std::string_view text) { key.append(text); }
  void add_layout(const TensorDesc& tensor, FieldBytes<KeySink>&) {
    add(std::uint64_t{std::bit_cast<std::uintptr_t>(tensor.layout.get())});
  }
};

}  // namespace

const FormCache::Formed& FormCache::form(const OpDesc& op, LayoutHints hints) {
  key_.clear();
  KeySink sink{key_};
  FieldBytes<KeySink> fields(sink);
  fields.add(op);
  fields.add(hints.size());
  for (const std::optional<TensorDesc>& hint : hints) {
    fields.add(hint.has_value());
    if (hint) fields.add(*hint);
  }
  if (const auto known = known_.find(key_); known != known_.end()) return known->second.formed;
  Formed formed{op, target_.form(op, hints)};
  return known_.emplace(key_, Known{std::move(formed), std::move(hints)}).first->second.formed;
}

}  // namespace convnet
