// Operations on the pixels of images: crops, mirrors, blur, resizing, colours.
#pragma once

#include "kernels/ops/argument.h"

namespace convnet {

/// dst(y,x) = src(start_y + step_y*y, start_x + step_x*x). All reads must lie inside the image. Layers: crop
/// (step 1), href (step_x = -1 from the last column), nailbed (step = stride).
struct Sampling {
  std::int64_t n = 0, c = 0, h = 0, w = 0, oh = 0, ow = 0;
  std::int64_t start_y = 0, start_x = 0, step_y = 1, step_x = 1;

  Dims src() const { return {n, c, h, w}; }
  Dims dst() const { return {n, c, oh, ow}; }
};
struct SampleForward {
  Sampling p;

  std::string name() const { return "sample.forward"; }
  std::vector<Argument> arguments() const { return args::src_to_dst(p.src(), p.dst()); }
};
/// The gradient; pixels that were not sampled get 0.
struct SampleBackward {
  Sampling p;

  std::string name() const { return "sample.backward"; }
  std::vector<Argument> arguments() const {
    return {args::read("diff_dst", p.dst()), args::write("diff_src", p.src())};
  }
};

/// Separable Gaussian filter of `size` taps (odd), with weights exp(-d^2/(2 stdev^2)) normalised to sum 1;
/// pixels outside the image are 0. The filter is symmetric, so backward is the same operation on the
/// gradient.
struct Blur {
  Dims dims;
  std::int64_t size = 3;
  float stdev = 1;

  std::string name() const { return "blur"; }
  std::vector<Argument> arguments() const { return args::src_to_dst(dims, dims); }
  std::vector<std::int64_t> settings() const { return {size}; }
};

/// Bilinear resizing: output pixel i is the source at coordinate i*scale + (side - outputs*scale)/2, clamped
/// to [0, side - 1.01], or to 0 if the side is one pixel.
struct Resize {
  std::int64_t n = 0, c = 0, h = 0, w = 0, oh = 0, ow = 0;
  float scale = 1;

  Dims src() const { return {n, c, h, w}; }
  Dims dst() const { return {n, c, oh, ow}; }

  std::string name() const { return "resize"; }
  std::vector<Argument> arguments() const { return args::src_to_dst(src(), dst()); }
};

/// Random scaling (layer type rscale). In training each image has its own draw: s in 0...side -
/// floor(side/max_scale) with probability proportional to (s+1)^2, size = target + s, and factor uniform in
/// [max(1, side/(1+size)), side/size]. The image is resized by the factor to floor(side/factor) pixels, and a
/// random crop of target x target pixels is taken. A draw depends only on
/// (key, iteration, image).
struct RandomScale {
  std::int64_t n = 0, c = 0, side = 0, target = 0;
  float max_scale = 1;
  std::uint64_t key = 0;
  std::int64_t first_image = 0;

  Dims src() const { return {n, c, side, side}; }
  Dims dst() const { return {n, c, target, target}; }

  std::string name() const { return "rscale"; }
  std::vector<Argument> arguments() const {
    return {args::read("src", src()), args::write("dst", dst()), args::step()};
  }
};

enum class ColorSpace { yuv, lab };
/// Converts RGB maps (N,3,H,W) to YUV, or, if they are in [0,1], to CIE L*a*b*. `center` subtracts 50 from
/// L*.
struct ColorTransform {
  Dims dims;
  ColorSpace to = ColorSpace::yuv;
  bool center = false;

  std::string name() const { return to == ColorSpace::yuv ? "rgb2yuv" : "rgb2lab"; }
  std::vector<Argument> arguments() const { return args::src_to_dst(dims, dims); }
};

}  // namespace convnet
