// slice, shuffle: layers that take maps of their input, in another order or only some of them.
#include <fmt/format.h>

#include "layers/layer.h"

namespace convnet {
namespace {

struct MapsParams {
  int channels = 0, start = 0, maps = 0, groups = 0;
};

/// Returns the input as maps; the numbers of a vector are maps of one pixel unless channels= says how many
/// maps it is. Returns nullopt after an error.
std::optional<FeatureShape> maps_of_input(const LayerSource& source, int channels) {
  const FeatureShape& shape = source.inputs[0].shape;
  return shape.image || channels > 0 ? as_maps(source, 0, channels, "channels") : shape;
}

/// A layer whose maps are some of its input's. Both directions are the same operation.
class MapsLayer : public Layer {
 public:
  /// `taken_groups` and `returned_groups`: MapOrder::groups of the output and of the input's gradient.
  MapsLayer(const FeatureShape& input, std::int64_t maps, std::int64_t start, std::int64_t taken_groups,
            std::int64_t returned_groups)
      : Layer({maps, input.h, input.w, input.image}, {.cheap = true}),
        in(input),
        first(start),
        forward_groups(taken_groups),
        backward_groups(returned_groups) {}

  void forward(Lowering& l) const override {
    const std::int64_t n = l.microbatch().images;
    l.run(TakeMaps{in.dims(n), output.dims(n), first, forward_groups}, {l.input(0), l.output()});
  }
  void backward(Lowering& l) const override {
    const std::int64_t n = l.microbatch().images;
    l.run(TakeMaps{output.dims(n), in.dims(n), -first, backward_groups},
          {l.output_gradient(), l.input_gradient(0)});
  }

 private:
  const FeatureShape in;  ///< the input as maps; channels= may read a flat vector as such
  const std::int64_t first, forward_groups, backward_groups;
};

std::shared_ptr<const Layer> create_slice(const LayerType& type, const LayerSource& source) {
  MapsParams p;
  if (!parse_params(type, source, p)) return nullptr;
  const std::optional<FeatureShape> in = maps_of_input(source, p.channels);
  if (!in) return nullptr;
  const char* const unit = in->image ? "maps" : "numbers";
  const std::string input =
      fmt::format("input '{}' ({})", source.inputs[0].name, source.inputs[0].shape.str());
  if (p.start >= in->c) {
    source.error("start", fmt::format("start={} is behind the {} {} of {}", p.start, in->c, unit, input));
    return nullptr;
  }
  const std::int64_t rest = in->c - p.start, maps = p.maps > 0 ? p.maps : rest;
  if (maps > rest) {
    source.error("maps", fmt::format("maps={} from start={} goes beyond the {} {} of {}; use at most {}",
                                     maps, p.start, in->c, unit, input, rest));
    return nullptr;
  }
  return std::make_shared<MapsLayer>(*in, maps, p.start, 1, 1);
}

std::shared_ptr<const Layer> create_shuffle(const LayerType& type, const LayerSource& source) {
  MapsParams p;
  if (!parse_params(type, source, p)) return nullptr;
  const std::optional<FeatureShape> in = maps_of_input(source, p.channels);
  if (!in) return nullptr;
  if (in->c % p.groups != 0) {
    source.error("groups", fmt::format("groups={} does not divide the {} {} of input '{}'", p.groups, in->c,
                                       in->image ? "maps" : "numbers", source.inputs[0].name));
    return nullptr;
  }
  // A shuffle makes m groups of g maps of g groups of m maps, so shuffling by m puts them back.
  return std::make_shared<MapsLayer>(*in, in->c, 0, p.groups, in->c / p.groups);
}

ParamSpec input_channels_spec() {
  return param("channels", &MapsParams::channels,
               {.fallback = "0",
                .min = 0,
                .max = 1 << 20,
                .unit = "maps",
                .doc = "maps of the input; 0: as many as it has, each number of a vector being one"});
}

}  // namespace

LayerType slice_type() {
  LayerType type;
  type.name = "slice";
  type.doc = "Some of the input's maps, which lie one behind the other; with a vector, some of its numbers.";
  type.formula = "y_k = x_(start+k) for k < maps";
  type.example = "[half]\ntype=slice\ninputs=conv2\nstart=32\nmaps=32";
  type.params = {
      input_channels_spec(),
      param("start", &MapsParams::start,
            {.fallback = "0", .min = 0, .max = 1 << 24, .doc = "the first map, counted from 0"}),
      param("maps", &MapsParams::maps,
            {.fallback = "0", .min = 0, .max = 1 << 24, .doc = "number of maps; 0: all from start on"})};
  type.create = create_slice;
  return type;
}

LayerType shuffle_type() {
  LayerType type;
  type.name = "shuffle";
  type.doc =
      "The input's maps in another order: the first of each group, then the second of each, and so on, so "
      "that a grouped convolution above reads maps of all groups (channel shuffle, Zhang et al., arXiv "
      "1707.01083).";
  type.formula = "y_(k*groups+g) = x_(g*maps/groups+k)";
  type.example = "[mixed]\ntype=shuffle\ninputs=conv2\ngroups=2";
  type.params = {input_channels_spec(),
                 param("groups", &MapsParams::groups,
                       {.min = 1, .max = 1 << 20, .doc = "groups of maps; must divide the number of maps"})};
  type.create = create_shuffle;
  return type;
}

}  // namespace convnet
