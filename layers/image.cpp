// nailbed, blur, href, crop, resize, rscale, rgb2yuv, rgb2lab: operations on images.
#include <cmath>

#include "layers/layer.h"

namespace convnet {
namespace {

/// The keys of all these types; each type declares those it has.
struct ImageParams {
  int channels = 0, stride = 1, filter_size = 0, start_x = 0, start_y = -1, size_x = 0, target = 0;
  double stdev = 1, scale = 1, max_scale = 1;
  bool center = false;
};

ParamSpec channels_spec() {
  return param("channels", &ImageParams::channels,
               {.fallback = "0", .min = 0, .max = 1 << 20, .unit = "maps", .doc = kChannelsDoc});
}

class SamplingLayer : public Layer {
 public:
  SamplingLayer(const Sampling& of_one, bool with_gradient)
      : Layer({of_one.c, of_one.oh, of_one.ow, true}, {.differentiable = with_gradient, .cheap = true}),
        geometry(of_one) {}

  void forward(Lowering& l) const override { l.run(SampleForward{at(l)}, {l.input(0), l.output()}); }
  void backward(Lowering& l) const override {
    l.run(SampleBackward{at(l)}, {l.output_gradient(), l.input_gradient(0)});
  }

 private:
  Sampling at(const Lowering& l) const {
    Sampling p = geometry;
    p.n = l.microbatch().images;
    return p;
  }

  const Sampling geometry;  ///< n is set when lowering
};

/// The geometry of a sampling of `in` with outputs of oh x ow pixels.
Sampling sampling(const FeatureShape& in, std::int64_t oh, std::int64_t ow) {
  Sampling geometry;
  geometry.c = in.c;
  geometry.h = in.h;
  geometry.w = in.w;
  geometry.oh = oh;
  geometry.ow = ow;
  return geometry;
}

/// Makes a layer that takes the pixels start, start + stride, ..., centred.
std::shared_ptr<const Layer> create_nailbed(const LayerType& type, const LayerSource& source) {
  ImageParams p;
  if (!parse_params(type, source, p)) return nullptr;
  const std::optional<FeatureShape> in = as_maps(source, 0, p.channels, "channels");
  if (!in) return nullptr;
  const auto outputs = [&](std::int64_t side) { return (side + p.stride - 1) / p.stride; };
  const auto start = [&](std::int64_t side) { return (side - p.stride * (outputs(side) - 1)) / 2; };
  Sampling geometry = sampling(*in, outputs(in->h), outputs(in->w));
  geometry.step_y = geometry.step_x = p.stride;
  geometry.start_y = start(in->h);
  geometry.start_x = start(in->w);
  return std::make_shared<SamplingLayer>(geometry, true);
}

std::shared_ptr<const Layer> create_href(const LayerType& type, const LayerSource& source) {
  ImageParams p;
  if (!parse_params(type, source, p)) return nullptr;
  const std::optional<FeatureShape> in = as_maps(source, 0, p.channels, "channels");
  if (!in) return nullptr;
  Sampling geometry = sampling(*in, in->h, in->w);
  geometry.start_x = in->w - 1;
  geometry.step_x = -1;
  return std::make_shared<SamplingLayer>(geometry, true);
}

std::shared_ptr<const Layer> create_crop(const LayerType& type, const LayerSource& source) {
  ImageParams p;
  if (!parse_params(type, source, p)) return nullptr;
  const std::optional<FeatureShape> in = as_maps(source, 0, p.channels, "channels");
  if (!in) return nullptr;
  if (p.start_y < 0) p.start_y = p.start_x;
  if (p.start_x + p.size_x > in->w || p.start_y + p.size_x > in->h) {
    source.error("sizeX", "a crop of " + std::to_string(p.size_x) + " pixels from (" +
                              std::to_string(p.start_y) + "," + std::to_string(p.start_x) +
                              ") goes beyond the input '" + source.inputs[0].name + "' (" + in->str() + ")");
    return nullptr;
  }
  Sampling geometry = sampling(*in, p.size_x, p.size_x);
  geometry.start_y = p.start_y;
  geometry.start_x = p.start_x;
  return std::make_shared<SamplingLayer>(geometry, false);
}

class BlurLayer : public Layer {
 public:
  BlurLayer(const FeatureShape& shape, std::int64_t filter_size, float deviation)
      : Layer(shape, {.cheap = true}), size(filter_size), stdev(deviation) {}

  void forward(Lowering& l) const override {
    l.run(Blur{output.dims(l.microbatch().images), size, stdev}, {l.input(0), l.output()});
  }
  void backward(Lowering& l) const override {
    l.run(Blur{output.dims(l.microbatch().images), size, stdev}, {l.output_gradient(), l.input_gradient(0)});
  }

 private:
  const std::int64_t size;
  const float stdev;
};

std::shared_ptr<const Layer> create_blur(const LayerType& type, const LayerSource& source) {
  ImageParams p;
  if (!parse_params(type, source, p)) return nullptr;
  const std::optional<FeatureShape> in = as_maps(source, 0, p.channels, "channels");
  if (!in) return nullptr;
  if (p.filter_size % 2 == 0) {
    source.error("filterSize",
                 "filterSize expects 3, 5, 7 or 9, not '" + std::to_string(p.filter_size) + "'");
    return nullptr;
  }
  return std::make_shared<BlurLayer>(*in, p.filter_size, static_cast<float>(p.stdev));
}

class ResizeLayer : public Layer {
 public:
  ResizeLayer(const FeatureShape& shape, const FeatureShape& input, float factor)
      : Layer(shape, {.differentiable = false}), in(input), scale(factor) {}

  void forward(Lowering& l) const override {
    l.run(Resize{l.microbatch().images, in.c, in.h, in.w, output.h, output.w, scale},
          {l.input(0), l.output()});
  }
  void backward(Lowering&) const override {}

 private:
  const FeatureShape in;
  const float scale;
};

std::shared_ptr<const Layer> create_resize(const LayerType& type, const LayerSource& source) {
  ImageParams p;
  if (!parse_params(type, source, p)) return nullptr;
  const std::optional<FeatureShape> in = as_maps(source, 0, p.channels, "channels");
  if (!in) return nullptr;
  const auto side = [&](std::int64_t img) {
    return static_cast<std::int64_t>(std::floor(static_cast<double>(img) / p.scale));
  };
  const FeatureShape output{in->c, side(in->h), side(in->w), true};
  if (output.h > 0 && output.w > 0)
    return std::make_shared<ResizeLayer>(output, *in, static_cast<float>(p.scale));
  source.error("scale", "nothing is left of the input '" + source.inputs[0].name + "' (" + in->str() + ")");
  return nullptr;
}

class RscaleLayer : public Layer {
 public:
  RscaleLayer(const FeatureShape& shape, std::int64_t input_side, float largest)
      : Layer(shape, {.differentiable = false}), side(input_side), max_scale(largest) {}

  void forward(Lowering& l) const override {
    // Views are crops of their own, which are not cropped again where they have the output's size.
    if (l.microbatch().views > 1 && side == output.h) return l.forward_unchanged();
    const Microbatch& m = l.microbatch();
    if (m.random)
      l.run(RandomScale{m.images, output.c, side, output.h, max_scale, m.random_key, m.first_image},
            {l.input(0), l.output(), l.step()});
    else
      l.run(Resize{m.images, output.c, side, side, output.h, output.w, max_scale}, {l.input(0), l.output()});
  }
  void backward(Lowering&) const override {}

 private:
  const std::int64_t side;
  const float max_scale;
};

std::shared_ptr<const Layer> create_rscale(const LayerType& type, const LayerSource& source) {
  ImageParams p;
  if (!parse_params(type, source, p)) return nullptr;
  const std::optional<FeatureShape> in = as_maps(source, 0, p.channels, "channels");
  if (!in) return nullptr;
  if (in->h != in->w) {
    source.error("channels",
                 "rscale takes square images; the input '" + source.inputs[0].name + "' is " + in->str());
    return nullptr;
  }
  const auto least = static_cast<std::int64_t>(std::floor(static_cast<double>(in->h) / p.max_scale));
  if (p.target < least || p.target > in->h) {
    source.error("tgtSize", "tgtSize expects an integer from " + std::to_string(least) +
                                " (the image at maxScale) to " + std::to_string(in->h) + ", not '" +
                                std::to_string(p.target) + "'");
    return nullptr;
  }
  return std::make_shared<RscaleLayer>(FeatureShape{in->c, p.target, p.target, true}, in->h,
                                       static_cast<float>(p.max_scale));
}

class ColorLayer : public Layer {
 public:
  ColorLayer(const FeatureShape& shape, ColorSpace space, bool centred)
      : Layer(shape, {.differentiable = false}), to(space), center(centred) {}

  void forward(Lowering& l) const override {
    l.run(ColorTransform{output.dims(l.microbatch().images), to, center}, {l.input(0), l.output()});
  }
  void backward(Lowering&) const override {}

 private:
  const ColorSpace to;
  const bool center;
};

std::shared_ptr<const Layer> create_color(const LayerType& type, const LayerSource& source) {
  ImageParams p;
  if (!parse_params(type, source, p)) return nullptr;
  const FeatureShape& input = source.inputs[0].shape;
  if (input.image && input.c != 3) {
    source.error("inputs",
                 type.name + " takes images of 3 maps; '" + source.inputs[0].name + "' is " + input.str());
    return nullptr;
  }
  const std::optional<FeatureShape> in = as_maps(source, 0, 3, "inputs");
  if (!in) return nullptr;
  return std::make_shared<ColorLayer>(*in, type.name == "rgb2yuv" ? ColorSpace::yuv : ColorSpace::lab,
                                      p.center);
}

}  // namespace

LayerType nailbed_type() {
  LayerType type;
  type.name = "nailbed";
  type.doc = "Takes every stride-th pixel of every map.";
  type.formula = "output: maps of side ceil(side/stride), from floor((side - stride*(outputs-1))/2)";
  type.example = "[nails]\ntype=nailbed\ninputs=conv1\nchannels=32\nstride=2";
  type.params = {channels_spec(),
                 param("stride", &ImageParams::stride,
                       {.min = 1, .max = 4096, .unit = "pixels", .doc = "step between the pixels taken"})};
  type.create = create_nailbed;
  return type;
}

LayerType blur_type() {
  LayerType type;
  type.name = "blur";
  type.doc = "Separable Gaussian filter; zeros surround the image.";
  type.formula =
      "weights exp(-d^2/(2 stdev^2)), of sum 1 over the whole filter, not renormalised at the border";
  type.example = "[blur1]\ntype=blur\ninputs=data\nchannels=3\nfilterSize=5\nstdev=1";
  type.params = {channels_spec(),
                 param("filterSize", &ImageParams::filter_size,
                       {.min = 3, .max = 9, .unit = "pixels", .doc = "side of the filter: 3, 5, 7 or 9"}),
                 param("stdev", &ImageParams::stdev,
                       {.min = 1e-3, .unit = "pixels", .doc = "standard deviation of the Gaussian"})};
  type.create = create_blur;
  return type;
}

LayerType href_type() {
  LayerType type;
  type.name = "href";
  type.doc = "Mirrors every map left to right.";
  type.formula = "y(r, c) = x(r, side - 1 - c)";
  type.example = "[mirror]\ntype=href\ninputs=data\nchannels=3";
  type.params = {channels_spec()};
  type.create = create_href;
  return type;
}

LayerType crop_type() {
  LayerType type;
  type.name = "crop";
  type.doc = "A square part of every map. Has no gradient.";
  type.formula = "output: maps of side sizeX";
  type.example = "[crop1]\ntype=crop\ninputs=data\nchannels=3\nstartX=4\nsizeX=24";
  type.params = {
      channels_spec(),
      param("startX", &ImageParams::start_x,
            {.min = 0, .max = 1 << 20, .unit = "pixels", .doc = "first column"}),
      param(
          "startY", &ImageParams::start_y,
          {.fallback = "-1", .min = -1, .max = 1 << 20, .unit = "pixels", .doc = "first row; -1: as startX"}),
      param("sizeX", &ImageParams::size_x,
            {.min = 1, .max = 1 << 20, .unit = "pixels", .doc = "side of the part"})};
  type.create = create_crop;
  return type;
}

LayerType resize_type() {
  LayerType type;
  type.name = "resize";
  type.doc = "Resizes every map by bilinear interpolation. Has no gradient.";
  type.formula =
      "output: maps of side floor(side/scale); pixel i reads i*scale "
      "+ (side - outputs*scale)/2, clamped to [0, side - 1.01]";
  type.example = "[half]\ntype=resize\ninputs=data\nchannels=3\nscale=2";
  type.params = {channels_spec(), param("scale", &ImageParams::scale,
                                        {.min = 0.5, .max = 2, .doc = "input pixels per output pixel"})};
  type.create = create_resize;
  return type;
}

LayerType rscale_type() {
  LayerType type;
  type.name = "rscale";
  type.doc =
      "Random scaling in training, another for each image, and a random crop "
      "of tgtSize; in tests the image at maxScale; in tests of several views "
      "(--multiview-test) images of side tgtSize as they are. Has no gradient.";
  type.formula =
      "size = tgtSize + s, s in 0...side - floor(side/maxScale) with P(s) proportional to (s+1)^2; scale "
      "uniform in [max(1, side/(1+size)), side/size]; where size exceeds side, the image is not scaled";
  type.example = "[scale1]\ntype=rscale\ninputs=data\nchannels=3\nmaxScale=1.25\ntgtSize=26";
  type.params = {
      channels_spec(),
      param("maxScale", &ImageParams::max_scale, {.min = 1, .max = 2, .doc = "largest shrinking factor"}),
      param("tgtSize", &ImageParams::target,
            {.min = 1, .max = 1 << 20, .unit = "pixels", .doc = "side of the output"})};
  type.create = create_rscale;
  return type;
}

LayerType rgb2yuv_type() {
  LayerType type;
  type.name = "rgb2yuv";
  type.doc = "From RGB to YUV, pixel by pixel. Has no gradient.";
  type.formula = "rows (.2126, .7152, .0722), (-.09991, -.33609, .436), (.615, -.55861, -.05639)";
  type.example = "[yuv]\ntype=rgb2yuv\ninputs=data";
  type.create = create_color;
  return type;
}

LayerType rgb2lab_type() {
  LayerType type;
  type.name = "rgb2lab";
  type.doc = "From RGB in 0-1 to CIE L*a*b*, pixel by pixel. Has no gradient.";
  type.formula = "X=.49R+.31G+.2B, Y=.17697R+.8124G+.01063B, Z=.01G+.99B, then the CIE formulas";
  type.example = "[lab]\ntype=rgb2lab\ninputs=data\ncenter=1";
  type.params = {param("center", &ImageParams::center, {.fallback = "0", .doc = "1: subtracts 50 from L*"})};
  type.create = create_color;
  return type;
}

}  // namespace convnet
