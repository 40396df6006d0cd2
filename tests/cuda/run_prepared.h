// Runs an operation that a test has prepared itself.
#pragma once

#include <algorithm>

#include "kernels/cuda/layout.h"
#include "tests/cuda/both_backends.h"

namespace convnet::test {

/// Hints of every four-dimensional argument: channels last, or plain.
inline LayoutHints hints_for(const OpDesc& op, bool last) {
  LayoutHints hints;
  for (const Argument& arg : arguments(op)) {
    hints.emplace_back();
    if (arg.dims.size() == 4)
      hints.back() = last ? cuda::channels_last(arg.dims, arg.type) : TensorDesc{arg.dims, arg.type, nullptr};
  }
  return hints;
}

/// Returns test_values() for the arguments that the operation reads, rounded to the types in which it has
/// them; nothing for the others.
inline std::vector<Values> stored_inputs(const OpDesc& op, const PreparedOp& prepared) {
  std::vector<Values> inputs;
  for (const Argument& arg : arguments(op)) {
    const TensorDesc& tensor = prepared.args()[inputs.size()];
    const Values values = test_values(tensor.dims, static_cast<std::uint32_t>(inputs.size() + 1));
    inputs.push_back(arg.access == Access::write ? Values{}
                                                 : unpacked(packed(values, tensor.type), tensor.type));
  }
  return inputs;
}

/// Runs an operation and returns the values of all its arguments. Those that it reads held `inputs` before,
/// or where these end test_values() of their index; its workspace held NaN. They begin `skipped` elements
/// behind the beginning of their memory; the function checks that the memory before and behind them is
/// untouched.
inline Results run_prepared(const Backend& backend, const OpDesc& op, const PreparedOp& prepared,
                            const std::vector<Values>& inputs = {}, std::int64_t skipped = 0) {
  constexpr std::int64_t kBehind = 64;
  const std::vector<Argument> args = arguments(op);
  std::vector<std::unique_ptr<DeviceMemory>> memory;
  std::vector<std::byte*> pointers;
  for (std::size_t i = 0; i < args.size(); ++i) {
    const TensorDesc& tensor = prepared.args()[i];
    const std::int64_t before = skipped * size_of(tensor.type);
    const std::vector<std::byte> all(static_cast<std::size_t>(before + tensor.bytes() + kBehind),
                                     std::byte{0xFF});
    std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.bytes()), std::byte{0xFF});
    if (args[i].access != Access::write) {
      const Values values =
          i < inputs.size() ? inputs[i] : test_values(tensor.dims, static_cast<std::uint32_t>(i + 1));
      backend.relay(plain_of(tensor), packed(values, tensor.type).data(), tensor, bytes.data());
    }
    memory.push_back(backend.allocate(test_device(), std::ssize(all)));
    backend.copy(memory.back()->data(), all.data(), std::ssize(all));
    pointers.push_back(memory.back()->data() + before);
    backend.copy(pointers.back(), bytes.data(), tensor.bytes());
  }
  // Allocates at least one byte, because an empty allocation has no address.
  const std::vector<std::byte> poison(static_cast<std::size_t>(prepared.workspace_bytes() + 1),
                                      std::byte{0xFF});
  const auto workspace = backend.allocate(test_device(), std::ssize(poison));
  backend.copy(workspace->data(), poison.data(), std::ssize(poison));
  const auto queue = backend.make_queue(test_device());
  prepared.run(pointers, workspace->data(), queue.get());
  const auto mark = queue->mark();
  while (!mark->reached()) {
  }
  Results results;
  for (std::size_t i = 0; i < args.size(); ++i) {
    const TensorDesc& tensor = prepared.args()[i];
    const std::int64_t before = skipped * size_of(tensor.type);
    std::vector<std::byte> all(static_cast<std::size_t>(before + tensor.bytes() + kBehind));
    backend.copy(all.data(), memory[i]->data(), std::ssize(all));
    const auto untouched = [](std::byte b) { return b == std::byte{0xFF}; };
    REQUIRE(std::all_of(all.begin(), all.begin() + before, untouched));
    REQUIRE(std::all_of(all.end() - kBehind, all.end(), untouched));
    const std::vector<std::byte> bytes(all.begin() + before, all.end() - kBehind);
    std::vector<std::byte> plain(bytes.size());
    backend.relay(tensor, bytes.data(), plain_of(tensor), plain.data());
    results.push_back(unpacked(plain, tensor.type));
  }
  return results;
}

}  // namespace convnet::test
