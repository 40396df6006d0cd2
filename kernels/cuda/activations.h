// Helpers of kernels that work on several channels of activations at a time.
#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/cuda/prepare.h"

namespace convnet::cuda {

/// Consecutive elements in memory that one thread reads or writes at once.
template <class T, int Lanes>
struct alignas(sizeof(T) * Lanes) Vector {
  T lane[Lanes];
};

template <class T, int Lanes>
CONVNET_HD Vector<T, Lanes>* as_vectors(std::byte* memory) {
  return reinterpret_cast<Vector<T, Lanes>*>(memory);
}

/// Vectors of numbers stored as `T`, read and written as floats.
template <class T, int Lanes>
struct Numbers {
  Vector<T, Lanes>* memory;
  CONVNET_HD explicit Numbers(std::byte* at) : memory(as_vectors<T, Lanes>(at)) {}
  CONVNET_DEVICE Vector<float, Lanes> operator[](std::int64_t i) const { return as_floats(memory[i]); }
  CONVNET_DEVICE static Vector<float, Lanes> as_floats(const Vector<T, Lanes>& stored) {
    Vector<float, Lanes> values;
    CONVNET_UNROLL
    for (int lane = 0; lane < Lanes; ++lane) values.lane[lane] = to_float(stored.lane[lane]);
    return values;
  }
  CONVNET_DEVICE static Vector<T, Lanes> as_stored(const Vector<float, Lanes>& values) {
    Vector<T, Lanes> stored;
    CONVNET_UNROLL
    for (int lane = 0; lane < Lanes; ++lane) stored.lane[lane] = stored_as<T>(values.lane[lane]);
    return stored;
  }
  CONVNET_DEVICE void set(std::int64_t i, const Vector<float, Lanes>& values) const {
    memory[i] = as_stored(values);
  }
};

/// Returns a view of the same memory whose elements are vectors of `lanes` channels.
inline View in_vectors(const View& view, int lanes) {
  return {view.n, view.c / lanes, view.h, view.w, view.last};
}

/// The row and the column of a place.
struct Pixel {
  int y, x;
  CONVNET_HD Pixel(const View& view, const View::Place& at) {
    const Quotient row = view.row(at.s);
    y = static_cast<int>(row.value);
    x = static_cast<int>(row.rest);
  }
};

}  // namespace convnet::cuda
