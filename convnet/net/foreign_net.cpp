#include "convnet/net/foreign_net.h"

#include <algorithm>
#include <array>

#include "convnet/base/file_format.h"
#include "convnet/base/text_file.h"
#include "convnet/config/text.h"

namespace convnet {
namespace {

/// Calls `use` for each line of the text, without blanks at its ends, until it returns true. Returns whether
/// it did.
template <class Use>
bool any_line(std::string_view text, const Use& use) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (use(trim(text.substr(0, end)))) return true;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return false;
}

/// Returns whether a line begins with the word, and `next` follows it, perhaps after blanks.
bool begins(std::string_view line, std::string_view word, char next) {
  return line.starts_with(word) && trim(line.substr(word.size())).starts_with(next);
}

bool has_line(std::string_view text, std::string_view word, char next) {
  return any_line(text, [&](std::string_view line) { return begins(line, word, next); });
}

/// Returns whether the sections are Darknet's, whose names are types of layers.
bool is_darknet(std::string_view text) {
  constexpr std::array<std::string_view, 13> layers = {
      "[convolutional]", "[connected]", "[maxpool]", "[avgpool]", "[shortcut]", "[route]",   "[local]",
      "[softmax]",       "[dropout]",   "[crop]",    "[yolo]",    "[region]",   "[upsample]"};
  const bool has_net = has_line(text, "[net", ']') || has_line(text, "[network", ']');
  return has_net && !has_line(text, "type", '=') && any_line(text, [&](std::string_view line) {
           return std::find(layers.begin(), layers.end(), line) != layers.end();
         });
}

bool is_prototxt(std::string_view text) {
  return has_line(text, "layer", '{') || has_line(text, "layers", '{') || has_line(text, "node", '{');
}

bool is_caffe_solver(std::string_view text) {
  return has_line(text, "base_lr", ':') &&
         (has_line(text, "net", ':') || has_line(text, "train_net", ':') || has_line(text, "lr_policy", ':'));
}

bool is_json(std::string_view text) {
  const std::string_view start = trim(text);
  return start.starts_with("{\"") || (start.starts_with('{') && trim(start.substr(1)).starts_with('"'));
}

bool is_python(std::string_view text) {
  return any_line(text, [](std::string_view line) {
    return line.starts_with("import torch") || line.starts_with("from torch") ||
           line.starts_with("import tensorflow") || line.starts_with("import keras") ||
           line.starts_with("from keras") || line.starts_with("from tensorflow");
  });
}

/// Says how the net gets here, for a section of coming-from.md.
std::string translated(const std::string& section, CfgFile wanted) {
  return std::string("; ") +
         (wanted == CfgFile::parameters ? "a parameter file here has sections of layers with keys"
                                        : "a definition file here has a section with type= for each layer") +
         ", and docs/coming-from.md" + (section.empty() ? "" : "#" + section) + " lists what corresponds";
}

}  // namespace

std::string foreign_net(std::string_view bytes, CfgFile wanted) {
  bytes = without_byte_order_mark(bytes);
  if (const FileFormat* format = find_binary_format(bytes);
      format != nullptr && (format->kind == FileKind::model || format->kind == FileKind::importable ||
                            format->kind == FileKind::arrays || format->kind == FileKind::archive)) {
    const std::string cure = format->cure;
    const bool of_weights = format->kind == FileKind::model && !cure.empty();
    return std::string("is ") + format->name + ", not a layer file" +
           (format->kind == FileKind::importable ? "" : translated("", wanted)) +
           (format->kind == FileKind::importable || of_weights ? "; " + cure : "");
  }
  if (is_darknet(bytes))
    return "is a cfg of Darknet; convnet import FILE.cfg --weights FILE.weights makes a net of it "
           "(docs/import.md)" +
           translated("darknet", wanted);
  if (is_prototxt(bytes)) return "is a prototxt, as of Caffe" + translated("caffe", wanted);
  if (is_caffe_solver(bytes)) return "is a solver of Caffe" + translated("caffe", wanted);
  if (is_json(bytes)) return "is JSON, as of Keras" + translated("", wanted);
  if (is_python(bytes)) return "is a Python program" + translated("pytorch", wanted);
  return "";
}

}  // namespace convnet
