// The product with which the speed of a GPU is measured.
#pragma once

#include <memory>

#include "kernels/cuda/prepare.h"

namespace convnet::cuda {

class PreparedGemm;

/// c = a b, of square matrices. The factors hold random numbers from 0.5 to 1 of both signs.
class PeakProduct {
 public:
  /// `queue` must outlive this.
  PeakProduct(Queue& queue, int device, Precision precision, std::int64_t side);
  /// Puts a product into the queue.
  void run() const;
  double flops() const {
    const auto side = static_cast<double>(side_);
    return 2 * side * side * side;
  }
  DataType type() const { return type_; }
  std::byte* a() const { return memory_->data() + a_; }
  std::byte* b() const { return memory_->data() + b_; }
  std::byte* c() const { return memory_->data() + c_; }

 private:
  Queue& queue_;
  std::int64_t side_;
  DataType type_;
  std::int64_t a_ = 0, b_ = 0, c_ = 0;  ///< offsets in the memory
  std::unique_ptr<DeviceMemory> memory_, workspace_;
  std::shared_ptr<const PreparedGemm> product_;
};

}  // namespace convnet::cuda
