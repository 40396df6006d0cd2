#include "convnet/onnx_import/darknet.h"

#include <fmt/format.h>

#include <map>
#include <set>

#include "convnet/base/error.h"
#include "convnet/base/file.h"
#include "convnet/base/names.h"
#include "convnet/base/printable.h"
#include "convnet/config/params.h"
#include "convnet/config/text.h"
#include "convnet/onnx_import/cannot_import.h"
#include "convnet/onnx_import/darknet_source.h"

namespace convnet {
namespace {

/// The most pixels along a side, maps, and pixels along a window.
constexpr std::int64_t kMostDarknetSide = 1 << 14, kMostMaps = 1 << 20, kMostWindow = 4096;

using DarknetInts = std::vector<std::int64_t>;

/// The output of a section.
struct DarknetOutput {
  std::string tensor;
  std::int64_t c = 0, h = 1, w = 1;
  bool is_flat = false;  ///< a vector, not maps
  std::int64_t size() const { return c * h * w; }
};

/// Turns the sections of one net into operators. Throws CannotImport for a section that has none.
class DarknetReader {
 public:
  DarknetReader(SourceModel& model, DarknetWeights& weights) : model_(model), weights_(weights) {}

  void add_net(const DarknetSection& section) {
    start(section);
    DarknetOutput images{"data", number("channels", 3, 1, kMostMaps), side("height"), side("width")};
    model_.inputs.push_back({images.tensor, {1, images.c, images.h, images.w}});
    // Darknet scales photos to the size of the net.
    model_.metadata["image_size"] = std::to_string(images.w);
    current_ = images;
  }

  /// Adds the section of this number, as Darknet counts them.
  void add(const DarknetSection& section, std::size_t index) {
    start(section);
    index_ = index;
    if (const Add read = layers().at(section.type); read != nullptr) (this->*read)();
    check_keys();
    // So no number of pixels overflows.
    if (current_.h > kMostDarknetSide || current_.w > kMostDarknetSide)
      throw CannotImport(fmt::format("makes maps of {}x{} pixels; at most {} along a side are imported",
                                     current_.h, current_.w, kMostDarknetSide));
    outputs_.push_back(current_);
  }

  /// Returns why a section of this type cannot be a layer; "" if it can.
  static std::string why_not(const std::string& type) {
    static const std::set<std::string> detection = {"yolo", "region", "detection", "Gaussian_yolo"};
    if (layers().contains(type)) return "";
    if (detection.contains(type)) return "finds objects; only nets that classify are imported";
    if (type == "crop")
      return "cuts images and scales their pixels; leave it out, give [net] its height and width, and import "
             "with --pixels symmetric, or unit if it says noadjust=1";
    return "is not imported" + did_you_mean(type, names_of(layers()));
  }

  const std::string& output() const { return current_.tensor; }

 private:
  using Add = void (DarknetReader::*)();
  static const std::map<std::string, Add>& layers() {
    using R = DarknetReader;
    static const std::map<std::string, Add> all = {
        {"convolutional", &R::add_conv},    {"connected", &R::add_connected},
        {"maxpool", &R::add_maxpool},       {"avgpool", &R::add_avgpool},
        {"dropout", &R::add_dropout},       {"shortcut", &R::add_shortcut},
        {"route", &R::add_route},           {"softmax", &R::add_softmax},
        {"activation", &R::add_activation}, {"cost", nullptr}};  // nothing is trained here
    return all;
  }

  template <class Map>
  static std::vector<std::string> names_of(const Map& map) {
    std::vector<std::string> names;
    for (const auto& [name, value] : map) names.push_back(name);
    return names;
  }

  void start(const DarknetSection& section) {
    section_ = &section;
    used_.clear();
  }

  std::string text(const std::string& key, const std::string& otherwise) {
    used_.insert(key);
    const auto found = section_->keys.find(key);
    return found == section_->keys.end() ? otherwise : found->second;
  }
  bool has(const std::string& key) const { return section_->keys.contains(key); }

  std::int64_t number(const std::string& key, std::int64_t otherwise, std::int64_t least, std::int64_t most) {
    const std::string given = text(key, std::to_string(otherwise));
    const auto value = to_number<std::int64_t>(given);
    if (!value || *value < least || *value > most)
      throw CannotImport(fmt::format("{}={}; expected {} to {}", key, printable(given), least, most));
    return *value;
  }
  bool flag(const std::string& key) { return number(key, 0, 0, 1) != 0; }
  std::int64_t side(const char* key) {
    if (!has(key)) throw CannotImport(std::string("has no ") + key);
    return number(key, 1, 1, kMostDarknetSide);
  }

  DarknetInts numbers(const std::string& key) {
    DarknetInts list;
    const std::string given = text(key, "");
    const std::vector<std::string> items = split_list(given);
    for (const std::string& item : items)
      if (const auto one = to_number<std::int64_t>(item); one) list.push_back(*one);
    if (list.empty() || list.size() != items.size())
      throw CannotImport(
          fmt::format("{}={}; expected numbers of layers", key, printable(given.substr(0, 100))));
    constexpr std::size_t most = 64;  // inputs of a layer
    if (list.size() > most)
      throw CannotImport(
          fmt::format("{} names {} layers; layers have up to {} inputs", key, list.size(), most));
    return list;
  }

  /// Throws CannotImport for a key that would change what the layer computes.
  void check_keys() {
    static const std::set<std::string> of_training = {"stopbackward",  "onlyforward",     "train_only_bn",
                                                      "learning_rate", "scale",           "type",
                                                      "noloss",        "label_smooth_eps"};
    static const std::map<std::string, std::string> usual = {{"dilation", "1"},
                                                             {"out_channels", "1"},
                                                             {"weights_normalizion", "none"},
                                                             {"weights_normalization", "none"}};
    for (const auto& [key, value] : section_->keys)
      if (const auto same = usual.find(key); !used_.contains(key) && !of_training.contains(key) &&
                                             value != "0" && (same == usual.end() || same->second != value))
        throw CannotImport(fmt::format("{}={} has no counterpart", printable(key), printable(value)));
  }

  std::string numbered(const char* kind) const { return kind + std::to_string(index_); }

  std::string tensor(const std::string& name, Dims dims, std::vector<float> values) {
    model_.tensors[name].constant =
        std::make_shared<const Constant>(Constant{std::move(dims), std::move(values)});
    return name;
  }

  /// Adds an operator of the current output and of `more`, whose output is the current one then.
  void add_node(const std::string& op, const std::string& name, std::vector<std::string> more = {},
                std::map<std::string, SourceAttribute> attributes = {}) {
    std::vector<std::string> inputs = {current_.tensor};
    inputs.insert(inputs.end(), more.begin(), more.end());
    current_.tensor = fmt::format("{}:{}", name, model_.nodes.size());
    model_.nodes.push_back({op, "", name, std::move(inputs), {current_.tensor}, std::move(attributes)});
  }

  void add_function(const std::string& usual) {
    const std::string name = text("activation", usual), node = numbered(name.c_str());
    static const std::map<std::string, std::string> simple = {
        {"relu", "Relu"}, {"logistic", "Sigmoid"}, {"tanh", "Tanh"}, {"mish", "Mish"}, {"selu", "Selu"}};
    if (name == "linear") return;
    if (const auto found = simple.find(name); found != simple.end()) {
      add_node(found->second, node);
    } else if (name == "leaky") {
      add_node("LeakyRelu", node, {}, {{"alpha", 0.1F}});
    } else if (name == "elu") {
      add_node("Elu", node, {}, {{"alpha", 1.0F}});
    } else if (name == "relu6") {
      add_node("Clip", node, {}, {{"min", 0.0F}, {"max", 6.0F}});
    } else if (name == "swish") {
      const std::string x = current_.tensor;
      add_node("Sigmoid", node);
      add_node("Mul", node, {x});
    } else {
      std::vector<std::string> known = names_of(simple);
      known.insert(known.end(), {"linear", "leaky", "elu", "relu6", "swish"});
      throw CannotImport(
          fmt::format("activation={} has no counterpart; there are {}", printable(name), join(known)));
    }
  }

  std::string of_file() const { return fmt::format("layer {}, [{}]", index_, section_->type); }
  std::string taken(const std::string& name, const Dims& dims) {
    return tensor(name, dims, weights_.take(dims, of_file()));
  }

  /// Reads the scales, means and variances of a batch norm. Returns the inputs of the operator, but for the
  /// data.
  std::vector<std::string> take_batch_norm(std::int64_t maps, const std::string& biases) {
    const std::string name = numbered("bn");
    const std::string scales = taken(name + ".weight", {maps}), means = taken(name + ".running_mean", {maps});
    return {scales, biases, means, taken(name + ".running_var", {maps})};
  }

  /// Throws CannotImport if the layer below has a vector. A vector has no height or width.
  void check_maps() const {
    if (current_.is_flat) throw CannotImport("needs maps, and the layer below it has a vector");
  }

  void add_conv() {
    check_maps();
    const std::int64_t filters = number("filters", 1, 1, kMostMaps), size = number("size", 1, 1, kMostWindow);
    const std::int64_t stride = number("stride", 1, 1, kMostWindow),
                       groups = number("groups", 1, 1, kMostMaps);
    const std::int64_t given = number("padding", 0, 0, kMostWindow), pad = flag("pad") ? size / 2 : given;
    const bool normalises = flag("batch_normalize");
    if (filters % groups != 0 || current_.c % groups != 0)
      throw CannotImport(
          fmt::format("{} filters and {} maps do not fit {} groups", filters, current_.c, groups));
    const std::int64_t maps = current_.c / groups;
    const auto count = [&](std::int64_t pixels) {
      if (pixels + 2 * pad < size)
        throw CannotImport(fmt::format("its filters of {} pixels are larger than the {}x{} maps", size,
                                       current_.h, current_.w));
      return (pixels + 2 * pad - size) / stride + 1;
    };
    const std::string name = numbered("conv");
    const DarknetOutput out{"", filters, count(current_.h), count(current_.w)};
    const std::string biases = taken(numbered(normalises ? "bn" : "conv") + ".bias", {filters});
    std::vector<std::string> norm;
    if (normalises) norm = take_batch_norm(filters, biases);
    std::vector<std::string> inputs = {taken(name + ".weight", {filters, maps, size, size})};
    if (!normalises) inputs.push_back(biases);
    add_node("Conv", name, inputs,
             {{"kernel_shape", DarknetInts{size, size}},
              {"strides", DarknetInts{stride, stride}},
              {"pads", DarknetInts{pad, pad, pad, pad}},
              {"group", groups}});
    current_ = {current_.tensor, out.c, out.h, out.w};
    if (normalises) add_node("BatchNormalization", numbered("bn"), norm);
    add_function("logistic");
  }

  void flatten() {
    if (current_.is_flat) return;
    add_node("Flatten", numbered("flatten"));
    current_ = {current_.tensor, current_.size(), 1, 1, true};
  }

  void add_connected() {
    const std::int64_t outputs = number("output", 1, 1, kMostMaps), inputs = current_.size();
    const bool normalises = flag("batch_normalize");
    const std::string name = numbered("fc");
    const std::string biases = taken(numbered(normalises ? "bn" : "fc") + ".bias", {outputs});
    const Dims dims = weights_.transposed ? Dims{inputs, outputs} : Dims{outputs, inputs};
    std::vector<std::string> more = {tensor(name + ".weight", dims, weights_.take(dims, of_file()))}, norm;
    if (normalises) norm = take_batch_norm(outputs, biases);
    if (!normalises) more.push_back(biases);
    flatten();
    add_node("Gemm", name, more, {{"transB", std::int64_t{weights_.transposed ? 0 : 1}}});
    current_ = {current_.tensor, outputs, 1, 1, true};
    if (normalises) add_node("BatchNormalization", numbered("bn"), norm);
    add_function("logistic");
  }

  void add_maxpool() {
    check_maps();
    const std::int64_t stride = number("stride", 1, 1, kMostWindow),
                       size = number("size", stride, 1, kMostWindow);
    const std::int64_t padding = number("padding", size - 1, 0, kMostWindow);  // of both sides together
    const auto count = [&](std::int64_t pixels) {
      if (pixels + padding < size) throw CannotImport("its windows are larger than the maps");
      return (pixels + padding - size) / stride + 1;
    };
    const DarknetOutput out{"", current_.c, count(current_.h), count(current_.w)};
    const std::int64_t before = padding / 2, behind = padding - before;
    add_node("MaxPool", numbered("pool"), {},
             {{"kernel_shape", DarknetInts{size, size}},
              {"strides", DarknetInts{stride, stride}},
              {"pads", DarknetInts{before, before, behind, behind}}});
    current_ = {current_.tensor, out.c, out.h, out.w};
  }

  void add_avgpool() {
    check_maps();
    add_node("GlobalAveragePool", numbered("pool"));
    current_ = {current_.tensor, current_.c};
  }

  void add_dropout() {
    const std::string given = text("probability", "0.5");
    const auto probability = to_number<float>(given);
    if (!probability || *probability < 0 || *probability >= 1)
      throw CannotImport(fmt::format("probability={}; expected 0 to 1", printable(given)));
    add_node("Dropout", numbered("dropout"), {}, {{"ratio", *probability}});
  }

  /// Returns the output of a layer that a key names: by its number, or if that is negative, counted back.
  const DarknetOutput& layer(std::int64_t given) const {
    const auto count = std::ssize(outputs_);
    const std::int64_t at = given < 0 ? count + given : given;
    if (at < 0 || at >= count)
      throw CannotImport(fmt::format("there is no layer {} below it, which is layer {}", given, count));
    return outputs_[static_cast<std::size_t>(at)];
  }

  /// Throws CannotImport if one output is a vector and the other is maps, even of one pixel.
  static void check_same_form(const char* does, const DarknetOutput& a, const DarknetOutput& b) {
    if (a.is_flat != b.is_flat)
      throw CannotImport(std::string(does) + " a vector and maps; only outputs of one form are imported");
  }

  void add_shortcut() {
    std::vector<std::string> others;
    for (const std::int64_t from : numbers("from")) {
      const DarknetOutput& other = layer(from);
      check_same_form("adds", current_, other);
      if (other.c != current_.c || other.h != current_.h || other.w != current_.w)
        throw CannotImport(
            fmt::format("adds layers of {}x{}x{} and {}x{}x{}, and only equal ones can be added", current_.c,
                        current_.h, current_.w, other.c, other.h, other.w));
      others.push_back(other.tensor);
    }
    if (text("weights_type", "none") != "none") throw CannotImport("weights_type has no counterpart");
    add_node("Sum", numbered("sum"), others);
    add_function("linear");
  }

  void add_route() {
    const std::int64_t groups = number("groups", 1, 1, kMostMaps);
    const std::int64_t group = number("group_id", 0, 0, groups - 1);
    DarknetOutput out;
    std::vector<std::string> parts;
    for (const std::int64_t from : numbers("layers")) {
      const DarknetOutput& part = layer(from);
      if (!parts.empty()) check_same_form("joins", out, part);
      if (!parts.empty() && (part.h != out.h || part.w != out.w))
        throw CannotImport(
            fmt::format("puts maps of {}x{} and {}x{} together", out.h, out.w, part.h, part.w));
      if (part.c % groups != 0)
        throw CannotImport(fmt::format("{} maps do not fit {} groups", part.c, groups));
      const std::int64_t maps = part.c / groups;
      out = {"", out.c + maps, part.h, part.w, part.is_flat};
      if (out.c > kMostMaps) throw CannotImport("puts too many maps together");
      current_ = part;
      if (groups > 1)
        add_node("Slice", numbered("slice"), {},
                 {{"starts", DarknetInts{group * maps}},
                  {"ends", DarknetInts{(group + 1) * maps}},
                  {"axes", DarknetInts{1}}});
      parts.push_back(current_.tensor);
    }
    current_.tensor = parts[0];
    if (parts.size() > 1)
      add_node("Concat", numbered("concat"), {parts.begin() + 1, parts.end()}, {{"axis", std::int64_t{1}}});
    current_ = {current_.tensor, out.c, out.h, out.w, out.is_flat};
  }

  void add_softmax() {
    if (number("groups", 1, 1, kMostMaps) != 1) throw CannotImport("has several groups");
    if (to_number<float>(text("temperature", "1")) != 1) throw CannotImport("has a temperature");
    flatten();
    add_node("Softmax", numbered("softmax"), {}, {{"axis", std::int64_t{1}}});
  }

  void add_activation() { add_function("linear"); }

  SourceModel& model_;
  DarknetWeights& weights_;
  const DarknetSection* section_ = nullptr;
  std::size_t index_ = 0;
  std::set<std::string> used_;
  std::vector<DarknetOutput> outputs_;  ///< by section, without [net]
  DarknetOutput current_;               ///< of the last one
};

}  // namespace

SourceModel parse_darknet_model(const std::string& cfg_name, const std::string& cfg,
                                const std::string& weights_name, const std::string& weights) {
  const std::vector<DarknetSection> sections = parse_darknet_sections(cfg_name, cfg);
  if (sections.empty() || sections[0].type != "net")
    throw InputError(cfg_name + ": is no net of Darknet: its first section is not [net]");
  DarknetWeights file(weights_name, weights);
  SourceModel model;
  model.file = cfg_name;
  model.producer = kDarknet;
  model.opset = 9;
  DarknetReader reader(model, file);
  const auto problem = [&](const DarknetSection& section, const std::string& why) {
    return fmt::format("{}:{}: [{}] {}", cfg_name, section.line, printable(section.type), why);
  };
  std::vector<std::string> problems;
  for (std::size_t i = 1; i < sections.size(); ++i)
    if (const std::string why = DarknetReader::why_not(sections[i].type); !why.empty())
      problems.push_back(problem(sections[i], why));
  if (!problems.empty()) throw InputError(join(problems, "\n"));
  for (std::size_t i = 0; i < sections.size(); ++i) {
    try {
      if (i == 0)
        reader.add_net(sections[i]);
      else
        reader.add(sections[i], i - 1);
    } catch (const CannotImport& why) {
      throw InputError(problem(sections[i], why.what()));
    }
  }
  file.check_end();
  if (model.nodes.empty()) throw InputError(cfg_name + ": has no layers");
  model.outputs = {reader.output()};
  return model;
}

SourceModel read_darknet_model(const std::string& cfg, const std::string& weights) {
  return parse_darknet_model(cfg, read_whole_file(cfg), weights, read_whole_file(weights));
}

}  // namespace convnet
