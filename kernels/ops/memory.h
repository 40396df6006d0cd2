// Operations that bring data to a device, copy it, add it up or clear it.
#pragma once

#include "convnet/base/crop.h"
#include "kernels/ops/argument.h"

namespace convnet {

/// Copies images from the host to the device: dst = float(src) - mean, for the features [offset, offset +
/// size of dst) of the visible part of each image.
struct LoadImages {
  Dims from;  ///< (N,C,H,W) or (N,C) of the visible part of src; mean has the same dims, but N = 1
  Dims dims;  ///< dims of dst
  std::int64_t offset = 0;
  DataType source = DataType::u8;
  bool mean = false;
  /// (C,H,W) of images that are copied whole, each with its Crop (crop.h): src holds their bytes, and the
  /// visible part has the size of `from`. Empty: src holds the visible parts alone.
  Dims uncropped = {};

  std::string name() const { return "load"; }
  std::vector<Argument> arguments() const {
    std::vector<Argument> all;
    if (uncropped.empty())
      all.push_back(args::read("src", from, source));
    else
      all.push_back(args::read(
          "src", {from[0], cropped_image_bytes(element_count(uncropped) * size_of(source))}, DataType::u8));
    if (mean) {
      Dims one = from;
      one[0] = 1;
      all.push_back(args::read("mean", one));
    }
    all.push_back(args::write("dst", dims));
    return all;
  }
};
/// Copies integer labels from the host to the device, `values` for each image.
struct LoadLabels {
  std::int64_t n = 0, values = 1;

  std::string name() const { return "load"; }
  std::vector<Argument> arguments() const {
    return {args::read("src", {n, values}, DataType::s32), args::write("dst", {n, values}, DataType::s32)};
  }
};

/// Converts a tensor from one layout and type to another.
struct Reorder {
  TensorDesc from, to;

  std::string name() const { return "reorder"; }
  std::vector<Argument> arguments() const {
    return {args::read("src", from.dims, from.type), args::write("dst", to.dims, to.type)};
  }
};
/// Copies runs of floats, run i from source i to destination i. The arguments are all sources, all
/// destinations, and then a second destination for each run that is also written as bf16.
struct CopyRuns {
  struct Run {
    std::int64_t count = 0;  ///< floats
    bool rounds = false;     ///< writes the floats a second time, rounded to bf16
  };
  std::vector<Run> runs;

  std::string name() const { return "copy"; }
  std::vector<Argument> arguments() const {
    std::vector<Argument> all;
    for (const Run& run : runs) all.push_back(args::read("src", {run.count}));
    for (const Run& run : runs) all.push_back(args::write("dst", {run.count}));
    for (const Run& run : runs)
      if (run.rounds) all.push_back(args::write("rounded", {run.count}, DataType::bf16));
    return all;
  }
};
/// Sums runs of floats: each destination becomes the sum of its sources, added in their order. It may be one
/// of these sources.
struct SumRuns {
  struct Run {
    std::int64_t count = 0;  ///< floats
    int sources = 1;
  };
  std::vector<Run> runs;

  std::string name() const { return "sum"; }
  std::vector<Argument> arguments() const {
    std::vector<Argument> all;
    for (const Run& run : runs) {
      all.push_back(args::write("dst", {run.count}));
      for (int i = 0; i < run.sources; ++i) all.push_back(args::read("src", {run.count}));
    }
    return all;
  }
};
/// dst += src. Both have the layout that dst has already.
struct Accumulate {
  Dims dims;

  std::string name() const { return "accumulate"; }
  std::vector<Argument> arguments() const { return {args::read("src", dims), args::read_write("dst", dims)}; }
};
/// dst = 0.
struct FillZero {
  TensorDesc what;

  std::string name() const { return "zero"; }
  std::vector<Argument> arguments() const { return {args::write("dst", what.dims, what.type)}; }
};

}  // namespace convnet
