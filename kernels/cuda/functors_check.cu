// Compiles the functors, the random numbers and the image arithmetic that CPU and CUDA share for the device,
// with warnings as errors.
#include "convnet/base/philox.h"
#include "kernels/functors.h"
#include "kernels/image_math.h"

namespace convnet {

template <class Functor>
__global__ void apply(Functor f, const float* x, const float* dy, float* y, float* dx, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  y[i] = f.forward(x[i]);
  dx[i] = f.backward(y[i], dy[i]);
}

__global__ void random_words(std::uint64_t key, std::uint64_t iteration, std::uint32_t* words, float* normals,
                             std::uint32_t count) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  words[i] = element_random(key, iteration, 0, i);
  normals[i] = element_normal(key, iteration, 0, i);
}

__global__ void draw_scales(std::uint64_t key, std::uint64_t iteration, ScaleDraw* draws,
                            std::uint32_t count) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) draws[i] = draw_scale(32, 28, 1.2F, key, iteration, i);
}

__global__ void resample(const float* from, float* to, std::int64_t side, std::int64_t outputs,
                         double scale) {
  const std::int64_t i = threadIdx.x;
  if (i >= outputs) return;
  const BilinearTap tap = bilinear_tap(i, side, outputs, scale);
  to[i] = (1 - tap.weight) * from[tap.first] + tap.weight * from[tap.second];
}

__global__ void convert_colors(const float* rgb, Color* yuv, Color* lab, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  yuv[i] = rgb_to_yuv(rgb[3 * i], rgb[3 * i + 1], rgb[3 * i + 2]);
  lab[i] = rgb_to_lab(rgb[3 * i], rgb[3 * i + 1], rgb[3 * i + 2], true);
}

template __global__ void apply(IdentFunctor, const float*, const float*, float*, float*, int);
template __global__ void apply(ReluFunctor, const float*, const float*, float*, float*, int);
template __global__ void apply(LogisticFunctor, const float*, const float*, float*, float*, int);
template __global__ void apply(TanhFunctor, const float*, const float*, float*, float*, int);
template __global__ void apply(AbsFunctor, const float*, const float*, float*, float*, int);
template __global__ void apply(SoftReluFunctor, const float*, const float*, float*, float*, int);
template __global__ void apply(SquareFunctor, const float*, const float*, float*, float*, int);
template __global__ void apply(SqrtFunctor, const float*, const float*, float*, float*, int);
template __global__ void apply(LogFunctor, const float*, const float*, float*, float*, int);
template __global__ void apply(BoundedReluFunctor, const float*, const float*, float*, float*, int);
template __global__ void apply(LinearFunctor, const float*, const float*, float*, float*, int);
template __global__ void apply(DampedReluFunctor, const float*, const float*, float*, float*, int);
template __global__ void apply(AbsTanhFunctor, const float*, const float*, float*, float*, int);

}  // namespace convnet
