// A value that many objects share until one of them changes its own.
#pragma once

#include <memory>
#include <utility>

namespace convnet {

/// A T that copies share. Reading takes -> or *; change() gives this object a value of its own first.
template <class T>
class Shared {
 public:
  Shared() : Shared(T{}) {}
  Shared(T value) : value_(std::make_shared<T>(std::move(value))) {}  // NOLINT(google-explicit-constructor)

  const T& operator*() const { return *value_; }
  const T* operator->() const { return value_.get(); }
  T& change() {
    if (value_.use_count() != 1) value_ = std::make_shared<T>(*value_);
    return *value_;
  }

 private:
  std::shared_ptr<T> value_;
};

}  // namespace convnet
