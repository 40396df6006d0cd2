// Compiles the functors and the random numbers that CPU and CUDA share for the device, with warnings as
// errors.
#include "kernels/functors.h"
#include "kernels/philox.h"

namespace convnet {

template <class Functor>
__global__ void apply(Functor f, const float* x, const float* dy, float* y, float* dx, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  y[i] = f.forward(x[i]);
  dx[i] = f.backward(y[i], dy[i]);
}

__global__ void random_words(std::uint64_t key, std::uint64_t iteration, std::uint32_t* words,
                             std::uint32_t count) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) words[i] = element_random(key, iteration, 0, i);
}

template __global__ void apply(IdentFunctor, const float*, const float*, float*, float*, int);
template __global__ void apply(ReluFunctor, const float*, const float*, float*, float*, int);
template __global__ void apply(LogisticFunctor, const float*, const float*, float*, float*, int);
template __global__ void apply(TanhFunctor, const float*, const float*, float*, float*, int);

}  // namespace convnet
