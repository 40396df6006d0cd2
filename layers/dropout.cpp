// dropout, dropout2: random masks in training.
#include "layers/layer.h"

namespace convnet {
namespace {

struct DropoutParams {
  bool enable = true;
  double keep = 0.5;
  DropUnit unit = DropUnit::value;
};

/// Computes x*mask*train_scale in training and x*test_scale in tests.
class DropoutLayer : public Layer {
 public:
  struct Factors {
    bool mask = true;
    double keep = 1, train_scale = 1, test_scale = 1;
    DropUnit unit = DropUnit::value;
  };

  /// For a part of a layer `begin` is the index of its first element in the whole layer.
  DropoutLayer(const FeatureShape& shape, const Factors& factors, std::int64_t begin = 0)
      : Layer(shape,
              {.division = Division::as_inputs, .in_place = true, .backward_in_place = true, .cheap = true}),
        p(factors),
        first(begin) {}

  std::shared_ptr<const Layer> part(std::int64_t begin, std::int64_t count) const override {
    return std::make_shared<DropoutLayer>(FeatureShape{count, 1, 1, false}, p, begin);
  }

  void forward(Lowering& l) const override {
    const Dims dims = output.dims(l.microbatch().images);
    if (l.microbatch().random && p.mask) {
      l.run(masked(l, dims), {l.input(0), l.output(), l.step()});
      return;
    }
    const double factor = unmasked_factor(l);
    if (factor == 1) return l.forward_unchanged();
    l.run(Scale{dims, static_cast<float>(factor)}, {l.input(0), l.output()});
  }

  void backward(Lowering& l) const override {
    const Dims dims = output.dims(l.microbatch().images);
    if (l.microbatch().random && p.mask) {
      // The same counters give the same mask: it is made again, not stored.
      l.run(masked(l, dims), {l.output_gradient(), l.input_gradient(0), l.step()});
      return;
    }
    const double factor = unmasked_factor(l);
    if (factor == 1) return l.backward_unchanged();
    l.run(Scale{dims, static_cast<float>(factor)}, {l.output_gradient(), l.input_gradient(0)});
  }

 private:
  /// Returns the factor if there is no mask. During gradient checks, which allow no masks, the layer does
  /// what it does in tests.
  double unmasked_factor(const Lowering& l) const {
    return l.microbatch().training && !p.mask ? p.train_scale : p.test_scale;
  }
  Dropout masked(const Lowering& l, const Dims& dims) const {
    // A map of one pixel is a value.
    const bool is_value = p.unit == DropUnit::map && output.h * output.w == 1;
    return {dims,
            static_cast<float>(p.keep),
            static_cast<float>(p.train_scale),
            l.microbatch().random_key,
            l.microbatch().first_image,
            first,
            is_value ? DropUnit::value : p.unit};
  }

  const Factors p;
  const std::int64_t first;
};

/// dropout: train x*mask/keep, test x.
std::shared_ptr<const Layer> create_dropout(const LayerType& type, const LayerSource& source) {
  DropoutParams p;
  if (!parse_params(type, source, p)) return nullptr;
  const bool mask = p.enable && p.keep < 1;
  return std::make_shared<DropoutLayer>(
      source.inputs[0].shape, DropoutLayer::Factors{mask, p.keep, mask ? 1 / p.keep : 1, 1, p.unit});
}

/// dropout2: train x*mask, test x*keep; with enable=0 x*keep always.
std::shared_ptr<const Layer> create_dropout2(const LayerType& type, const LayerSource& source) {
  DropoutParams p;
  if (!parse_params(type, source, p)) return nullptr;
  return std::make_shared<DropoutLayer>(
      source.inputs[0].shape,
      DropoutLayer::Factors{p.enable && p.keep < 1, p.keep, p.enable ? 1 : p.keep, p.keep, p.unit});
}

std::vector<ParamSpec> params() {
  return {param("enable", &DropoutParams::enable,
                {.fallback = "1", .doc = "0 switches the mask off", .file = CfgFile::parameters}),
          param("keep", &DropoutParams::keep,
                {.fallback = "0.5",
                 .min = 1e-6,
                 .max = 1,
                 .doc = "probability of keeping a value, map or image (drops)",
                 .file = CfgFile::parameters}),
          param_choice(
              "drops", &DropoutParams::unit,
              {{"values", DropUnit::value}, {"maps", DropUnit::map}, {"images", DropUnit::image}},
              {.fallback = "values",
               .doc = "what is kept or set to 0 together: single values, whole maps (spatial dropout), or "
                      "whole images (stochastic depth, on a residual branch below its eltsum)",
               .file = CfgFile::parameters})};
}

}  // namespace

std::shared_ptr<const Layer> make_dropout_layer(double drop, const FeatureShape& input) {
  return std::make_shared<DropoutLayer>(input, DropoutLayer::Factors{drop > 0, 1 - drop, 1, 1 - drop});
}

LayerType dropout_type() {
  LayerType type;
  type.name = "dropout";
  type.doc =
      "Sets random values, or maps or images (drops), to 0 in training and scales the others up, so that "
      "tests need nothing.";
  type.formula = "train x*mask/keep, test x; mask is 1 with probability keep";
  type.example = "[drop1]\ntype=dropout\ninputs=fc1\n\n; parameter file\n[drop1]\nkeep=0.5";
  type.params = params();
  type.create = create_dropout;
  return type;
}

LayerType dropout2_type() {
  LayerType type;
  type.name = "dropout2";
  type.doc =
      "Sets random values, or maps or images (drops), to 0 in training and scales all values down in tests.";
  type.formula = "train x*mask, test x*keep; with enable=0 x*keep always";
  type.example = "[drop1]\ntype=dropout2\ninputs=fc1\n\n; parameter file\n[drop1]\nkeep=0.5";
  type.params = params();
  type.create = create_dropout2;
  return type;
}

}  // namespace convnet
