// What CUDA forbids while work is recorded is an error on emulated devices, too, and recorded work is done
// with the arguments that it had then.
#if defined(CONVNET_CUDA_EMULATED)
#include <vector>

#include "kernels/cuda/conv_edges.h"
#include "kernels/cuda/launch.h"
#include "tests/catch.h"
#include "tests/cuda/both_backends.h"

using namespace convnet;
using Catch::Matchers::Contains;

namespace {

struct SetTo {
  float* memory;
  float value;
  void operator()(std::int64_t i) const { memory[i] = value; }
};

/// Two queues of a device, and a number in its memory.
struct Devices {
  std::unique_ptr<Backend> backend = make_cuda_backend(Precision::fp32);
  std::unique_ptr<Queue> first = backend->make_queue(0), second = backend->make_queue(0);
  std::unique_ptr<DeviceMemory> memory = backend->allocate(0, sizeof(float));
  std::vector<Queue*> queues = {first.get(), second.get()};

  float value() const { return *reinterpret_cast<const float*>(memory->data()); }
  void set(Queue& queue, float to) const {
    cuda::for_each(cuda::stream_of(&queue), 1, SetTo{reinterpret_cast<float*>(memory->data()), to});
  }
  std::unique_ptr<Recording> record(const std::function<void()>& submit) const {
    return backend->record(queues, submit);
  }
  /// Checks that `submit` cannot be recorded, and that the queues work as before.
  void check_refused(const std::string& why, const std::function<void()>& submit) const {
    CHECK_THROWS_WITH(record(submit), Contains(why));
    set(*first, 1);
    CHECK(value() == 1);
    set(*second, 2);
    CHECK(value() == 2);
  }
};

}  // namespace

TEST_CASE("recorded work keeps its arguments, and is done when it is played") {
  const Devices d;
  float next = 1;
  const auto recording = d.record([&] {
    d.set(*d.first, next);
    d.second->wait(*d.first->mark());
    d.set(*d.second, next + 1);
    d.first->wait(*d.second->mark());
  });
  CHECK(d.value() == 0);
  next = 10;
  for (int i = 0; i < 2; ++i) {
    recording->play(*d.first);
    CHECK(d.value() == (i == 0 ? 0 : 3));  // nobody has waited
    const auto played = d.first->mark();
    d.set(*d.first, 3);  // comes after it
    CHECK(played->reached());
    CHECK(d.value() == 2);
    CHECK(d.first->mark()->reached());
    CHECK(d.value() == 3);
  }
}

TEST_CASE("what cannot be recorded is refused") {
  const Devices d;
  const auto before = d.first->mark();
  d.check_refused("memory is allocated", [&] { d.backend->allocate(0, 4); });
  d.check_refused("memory is allocated", [&] { d.backend->allocate_staging(4); });
  d.check_refused("a copy is waited for", [&] {
    float there = 0;
    d.backend->copy(reinterpret_cast<std::byte*>(&there), d.memory->data(), sizeof there);
  });
  d.check_refused("a mark is asked for", [&] { before->reached(); });
  d.check_refused("a mark is asked for", [&] { d.first->mark()->reached(); });
  d.check_refused("recorded work waits for work outside", [&] { d.first->wait(*before); });
  d.check_refused("into a queue that is not recorded", [&] { d.set(*d.second, 5); });
  d.check_refused("a recording in a recording", [&] { d.record([] {}); });
  d.check_refused("ends before all of its work", [&] {
    d.second->wait(*d.first->mark());
    d.set(*d.second, 5);
  });
  std::shared_ptr<const Mark> recorded;
  d.record([&] { recorded = d.first->mark(); });
  CHECK_THROWS_WITH(recorded->reached(), Contains("a mark of recorded work"));
  CHECK_THROWS_WITH(before->seconds_since(*recorded), Contains("recorded work is timed"));
  CHECK_THROWS_WITH(d.second->wait(*recorded), Contains("a recording that has ended"));
}

TEST_CASE("kernels are started on the current device alone") {
  const Devices d;
  const auto elsewhere = d.backend->make_queue(1);
  const cuda::Stream stream = cuda::stream_of(d.first.get());
  cuda::stream_of(elsewhere.get());
  CHECK_THROWS_WITH(cuda::for_each(stream, 1, SetTo{reinterpret_cast<float*>(d.memory->data()), 1}),
                    Contains("a kernel for device 0 is started while device 1"));
}
#endif
