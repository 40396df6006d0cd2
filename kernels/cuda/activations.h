// What kernels over activations share: arguments in matching layouts, and several channels at a time.
#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/cuda/prepare.h"

namespace convnet::cuda {

/// Another activation of an operation, to lie as `main` does.
inline TensorDesc matching(const TensorDesc& main, const Dims& dims, DataType type = DataType::f32) {
  const View view = view_of(main);
  // One channel, or one pixel, lies both ways: then the other is as this backend likes it.
  const bool last = view.last || view.c == 1 || view.spatial() == 1;
  return last ? channels_last(dims, type) : TensorDesc{dims, type, nullptr};
}

/// Neighbours in memory that one thread reads or writes at once.
template <class T, int Lanes>
struct alignas(sizeof(T) * Lanes) Vector {
  T lane[Lanes];
};

constexpr int kLanes = 4;  ///< 16 bytes of floats, the most that a load takes

template <class T, int Lanes>
CONVNET_HD Vector<T, Lanes>* as_vectors(std::byte* memory) {
  return reinterpret_cast<Vector<T, Lanes>*>(memory);
}

/// Vectors of numbers stored as `T`, read and written as floats.
template <class T, int Lanes>
struct Numbers {
  Vector<T, Lanes>* memory;
  CONVNET_HD explicit Numbers(std::byte* at) : memory(as_vectors<T, Lanes>(at)) {}
  CONVNET_DEVICE Vector<float, Lanes> operator[](std::int64_t i) const {
    const Vector<T, Lanes> stored = memory[i];
    Vector<float, Lanes> values;
    CONVNET_UNROLL
    for (int lane = 0; lane < Lanes; ++lane) values.lane[lane] = to_float(stored.lane[lane]);
    return values;
  }
  CONVNET_DEVICE void set(std::int64_t i, const Vector<float, Lanes>& values) const {
    Vector<T, Lanes> stored;
    CONVNET_UNROLL
    for (int lane = 0; lane < Lanes; ++lane) stored.lane[lane] = stored_as<T>(values.lane[lane]);
    memory[i] = stored;
  }
};

/// The activation's view in which neighbouring channels are neighbours in memory where that can be.
inline View channels_view(const TensorDesc& tensor) {
  View view = view_of(tensor);
  view.last = view.last || view.spatial() == 1;
  return view;
}
/// Channels that a thread can work on together: kLanes or 1.
inline int lanes_of(const View& view) { return view.last && view.c % kLanes == 0 ? kLanes : 1; }
/// The same memory as vectors of `lanes` channels.
inline View in_vectors(const View& view, int lanes) {
  return {view.n, view.c / lanes, view.h, view.w, view.last};
}

/// Row and column.
struct Pixel {
  int y, x;
  CONVNET_HD Pixel(const View& view, const View::Place& at) {
    const Quotient row = view.row(at.s);
    y = static_cast<int>(row.value);
    x = static_cast<int>(row.rest);
  }
};

}  // namespace convnet::cuda
