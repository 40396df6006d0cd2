// Backends that put something between a test's plans and the real devices.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "kernels/backend.h"

namespace convnet::test {

/// Passes everything on to another backend.
class WrappedBackend : public Backend {
 public:
  explicit WrappedBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}

  const Target& target() const override { return inner_->target(); }
  std::shared_ptr<const PreparedOp> bind(const OpDesc& op, const OpForm& form, int device) const override {
    return inner_->bind(op, form, device);
  }
  std::unique_ptr<DeviceMemory> allocate(int device, std::int64_t bytes) const override {
    return inner_->allocate(device, bytes);
  }
  std::int64_t memory_available(int device) const override { return inner_->memory_available(device); }
  bool on_host() const override { return inner_->on_host(); }
  double measure_peak_flops(int device) const override { return inner_->measure_peak_flops(device); }
  double measure_copy_bandwidth(int device) const override { return inner_->measure_copy_bandwidth(device); }
  void enter_worker(int device) const override { inner_->enter_worker(device); }
  std::vector<std::unique_ptr<Queue>> make_queues(int device, std::size_t count) const override {
    return inner_->make_queues(device, count);
  }
  std::unique_ptr<Recording> record(std::span<Queue* const> queues,
                                    const std::function<void()>& submit) const override {
    return inner_->record(queues, submit);
  }
  std::string communicator_key(int device) const override { return inner_->communicator_key(device); }
  std::string new_communicator() const override { return inner_->new_communicator(); }
  std::unique_ptr<Communicator> join_communicator(int device, const std::string& name, int rank, int size,
                                                  double seconds) const override {
    return inner_->join_communicator(device, name, rank, size, seconds);
  }
  std::unique_ptr<DeviceMemory> allocate_staging(std::int64_t bytes) const override {
    return inner_->allocate_staging(bytes);
  }
  bool reaches(int device, int other) const override { return inner_->reaches(device, other); }
  void copy(std::byte* dst, const std::byte* src, std::int64_t bytes) const override {
    inner_->copy(dst, src, bytes);
  }
  void relay(const TensorDesc& from, const std::byte* src, const TensorDesc& to,
             std::byte* dst) const override {
    inner_->relay(from, src, to, dst);
  }

 private:
  std::unique_ptr<Backend> inner_;
};

/// Passes everything on to another target, which must outlive it.
class WrappedTarget : public Target {
 public:
  explicit WrappedTarget(const Target& inner) : inner_(inner) {}

  std::string name() const override { return inner_.name(); }
  std::string precision() const override { return inner_.precision(); }
  OpForm form(const OpDesc& op, const LayoutHints& hints) const override { return inner_.form(op, hints); }
  bool fuses(const OpDesc& op) const override { return inner_.fuses(op); }
  bool runs_streams_together() const override { return inner_.runs_streams_together(); }
  std::int64_t joined_update_bytes() const override { return inner_.joined_update_bytes(); }
  std::int64_t link_delay_bytes() const override { return inner_.link_delay_bytes(); }

 private:
  const Target& inner_;
};

/// A backend whose plans are for a T, a WrappedTarget.
template <class T>
class BackendWithTarget : public WrappedBackend {
 public:
  explicit BackendWithTarget(std::unique_ptr<Backend> inner)
      : WrappedBackend(std::move(inner)), target_(WrappedBackend::target()) {}
  const Target& target() const override { return target_; }

 private:
  T target_;
};

/// Binds tasks that a test has marked (OpForm::algorithm) to operations of the test's own.
class MarkingBackend : public WrappedBackend {
 public:
  using WrappedBackend::WrappedBackend;
  /// Makes the operation of marked tasks; gets the real one, bound.
  using Make = std::function<std::shared_ptr<const PreparedOp>(std::shared_ptr<const PreparedOp>)>;
  /// Returns the mark of tasks that `make` makes the operation of.
  std::string mark(Make make) {
    std::string name = "test's operation " + std::to_string(makers_.size());
    makers_[name] = std::move(make);
    return name;
  }
  /// Returns the mark of tasks that run `op` instead of the real operation, which need not exist.
  std::string mark_given(std::shared_ptr<const PreparedOp> op) {
    std::string name = "given operation " + std::to_string(given_.size());
    given_[name] = std::move(op);
    return name;
  }
  std::shared_ptr<const PreparedOp> bind(const OpDesc& op, const OpForm& form, int device) const override {
    if (const auto found = given_.find(form.algorithm); found != given_.end()) return found->second;
    const auto found = makers_.find(form.algorithm);
    if (found == makers_.end()) return WrappedBackend::bind(op, form, device);
    return found->second(WrappedBackend::bind(op, form, device));
  }

 private:
  std::map<std::string, Make> makers_;
  std::map<std::string, std::shared_ptr<const PreparedOp>> given_;
};

}  // namespace convnet::test
