#include "tests/cuda/both_backends.h"

#include <algorithm>

#include "kernels/cuda/layout.h"

namespace convnet::test {
namespace {

/// Memory of a device for one argument, with what it holds on the host.
class Memory {
 public:
  Memory(const Backend& backend, std::int64_t bytes)
      : backend_(backend), bytes_(bytes), memory_(backend.allocate(test_device(), bytes + 2 * kGuard)) {
    const std::vector<std::byte> poison(static_cast<std::size_t>(bytes + 2 * kGuard), kPoison);
    backend_.copy(memory_->data(), poison.data(), bytes + 2 * kGuard);
  }
  std::byte* data() const { return memory_->data() + kGuard; }
  void set(const std::vector<std::byte>& bytes) const {
    REQUIRE(static_cast<std::int64_t>(bytes.size()) == bytes_);
    backend_.copy(data(), bytes.data(), bytes_);
  }
  std::vector<std::byte> get() const {
    std::vector<std::byte> all(static_cast<std::size_t>(bytes_ + 2 * kGuard));
    backend_.copy(all.data(), memory_->data(), bytes_ + 2 * kGuard);
    for (std::int64_t i = 0; i < kGuard; ++i) {
      REQUIRE(all[static_cast<std::size_t>(i)] == kPoison);
      REQUIRE(all[all.size() - 1 - static_cast<std::size_t>(i)] == kPoison);
    }
    return {all.begin() + kGuard, all.end() - kGuard};
  }

 private:
  static constexpr std::int64_t kGuard = 256;
  static constexpr std::byte kPoison{0xFF};
  const Backend& backend_;
  std::int64_t bytes_;
  std::unique_ptr<DeviceMemory> memory_;
};

std::vector<std::byte> relaid(const Backend& backend, const std::vector<std::byte>& bytes,
                              const TensorDesc& from, const TensorDesc& to) {
  std::vector<std::byte> result(static_cast<std::size_t>(to.bytes()));
  backend.relay(from, bytes.data(), to, result.data());
  return result;
}

using Bytes = std::vector<std::vector<std::byte>>;

/// The arguments' bytes in canonical order after a run; unsized ones as they are.
Bytes results_on(const Backend& backend, const OpCase& c, const LayoutHints& hints, const Bytes& inputs,
                 bool with_queue) {
  const auto prepared =
      backend.bind(c.op, backend.target().form(c.op, hints), with_queue ? test_device() : 0);
  const std::vector<Argument> args = arguments(c.op);
  REQUIRE(prepared->args().size() == args.size());
  std::vector<Memory> memory;
  std::vector<std::byte*> pointers;
  for (std::size_t i = 0; i < args.size(); ++i) {
    const TensorDesc& tensor = prepared->args()[i];
    INFO(op_name(c.op) << " argument " << args[i].name);
    REQUIRE(tensor.dims == args[i].dims);
    REQUIRE(may_be_stored_as(args[i].type, tensor.type));
    memory.emplace_back(backend,
                        sized(tensor) ? tensor.bytes() : static_cast<std::int64_t>(inputs[i].size()));
    if (args[i].access != Access::write)
      memory.back().set(sized(tensor) ? relaid(backend, converted(inputs[i], args[i].type, tensor.type),
                                               plain_of(tensor), tensor)
                                      : inputs[i]);
    pointers.push_back(memory.back().data());
  }
  if (c.in_place) {
    REQUIRE(same_layout(prepared->args()[*c.in_place], prepared->args().back()));
    pointers.back() = pointers[*c.in_place];
  }
  const Memory workspace(backend, prepared->workspace_bytes());
  if (with_queue) {
    const auto queue = backend.make_queue(test_device());
    prepared->run(pointers, workspace.data(), queue.get());
    const auto mark = queue->mark();
    while (!mark->reached()) {
    }
  } else {
    prepared->run(pointers, workspace.data(), nullptr);
  }
  static_cast<void>(workspace.get());
  Bytes results;
  for (std::size_t i = 0; i < args.size(); ++i) {
    const TensorDesc& tensor = prepared->args()[i];
    const bool shared = c.in_place && i + 1 == args.size();
    const std::vector<std::byte> bytes = memory[shared ? *c.in_place : i].get();
    results.push_back(
        sized(tensor) ? converted(relaid(backend, bytes, tensor, plain_of(tensor)), tensor.type, args[i].type)
                      : bytes);
    if (args[i].access == Access::read && tensor.type == args[i].type && !(c.in_place && i == *c.in_place))
      CHECK(results[i] == inputs[i]);
  }
  return results;
}

Values values_of(const std::vector<std::byte>& bytes, DataType type) { return unpacked(bytes, type); }

bool same_form(const OpForm& a, const OpForm& b) {
  const auto same = [](const TensorDesc& x, const TensorDesc& y) {
    return x.dims == y.dims && x.type == y.type && same_layout(x, y);
  };
  return std::equal(a.args.begin(), a.args.end(), b.args.begin(), b.args.end(), same) &&
         a.workspace_bytes == b.workspace_bytes && a.algorithm == b.algorithm;
}

}  // namespace

void check_binding(const Backend& backend, const OpDesc& op) {
  const std::vector<Argument> args = arguments(op);
  std::vector<LayoutHints> all = {{}, LayoutHints(args.size())};
  for (const DataType activation : {DataType::f32, DataType::bf16})
    for (const bool last : {false, true}) {
      LayoutHints& hints = all.emplace_back();
      for (const Argument& arg : args) {
        const DataType type = arg.type == DataType::f32 ? activation : arg.type;
        hints.push_back(last ? cuda::channels_last(arg.dims, type) : TensorDesc{arg.dims, type, nullptr});
      }
    }
  std::vector<OpForm> bound;
  for (const LayoutHints& hints : all) {
    const OpForm form = backend.target().form(op, hints);
    const auto is_form = [&](const OpForm& other) { return same_form(form, other); };
    if (std::any_of(bound.begin(), bound.end(), is_form)) continue;
    bound.push_back(form);
    const auto prepared = backend.bind(op, form, 0);
    INFO(op_name(op) << " in the form for the hints " << &hints - all.data());
    REQUIRE(form.args.size() == args.size());
    REQUIRE(prepared->args().size() == args.size());
    // An operation that gets what it has asked for asks for the same.
    const OpForm again = backend.target().form(op, {form.args.begin(), form.args.end()});
    for (std::size_t i = 0; i < args.size(); ++i) {
      CHECK(form.args[i].dims == args[i].dims);
      CHECK(may_be_stored_as(args[i].type, form.args[i].type));
      for (const TensorDesc& tensor : {prepared->args()[i], again.args[i]}) {
        CHECK(tensor.type == form.args[i].type);
        CHECK(same_layout(tensor, form.args[i]));
      }
    }
    CHECK(again.workspace_bytes == form.workspace_bytes);
    if (form.algorithm == "own")
      CHECK(prepared->workspace_bytes() == form.workspace_bytes);
    else
      CHECK(prepared->workspace_bytes() <= form.workspace_bytes);
  }
}

int test_device() {
  std::string reason;
  return cuda_devices(reason) - 1;
}

std::shared_ptr<const PreparedOp> prepared_for_test(const Backend& backend, const OpDesc& op,
                                                    const LayoutHints& hints) {
  return backend.bind(op, backend.target().form(op, hints), test_device());
}

void BothBackends::check(const OpCase& c) {
  std::unique_ptr<Backend>& cuda = c.bf16 ? cuda_of_bf16_ : cuda_;
  if (!cuda) cuda = make_cuda_backend(c.bf16 ? Precision::bf16 : Precision::fp32);
  check_binding(*cuda, c.op);
  const std::vector<Argument> args = arguments(c.op);
  Bytes inputs;
  for (std::size_t i = 0; i < args.size(); ++i) {
    const bool given = i < c.inputs.size() && !c.inputs[i].empty();
    if (i < c.raw.size() && !c.raw[i].empty())
      inputs.push_back(c.raw[i]);
    else if (args[i].access == Access::write)
      inputs.emplace_back();
    else
      inputs.push_back(packed(
          given ? c.inputs[i] : test_values(args[i].dims, static_cast<std::uint32_t>(i + 1)), args[i].type));
    // Both compute with what bf16 can hold.
    if (c.bf16 && args[i].type == DataType::f32 && !inputs.back().empty())
      inputs.back() =
          converted(converted(inputs.back(), DataType::f32, DataType::bf16), DataType::bf16, DataType::f32);
  }
  const Bytes expected = results_on(*cpu_, c, LayoutHints(args.size()), inputs, false);
  for (const bool last : {false, true}) {
    LayoutHints hints(args.size());
    for (std::size_t i = 0; i < args.size(); ++i)
      if (args[i].dims.size() == 4 || (c.bf16 && args[i].dims.size() == 2)) {
        const DataType type = c.bf16 && args[i].type == DataType::f32 ? DataType::bf16 : args[i].type;
        hints[i] = last ? cuda::channels_last(args[i].dims, type) : TensorDesc{args[i].dims, type, nullptr};
      }
    for (const LayoutHints& given : {hints, LayoutHints(args.size())}) {
      const Bytes actual = results_on(*cuda, c, given, inputs, true);
      for (std::size_t i = 0; i < args.size(); ++i) {
        INFO(op_name(c.op) << " argument " << args[i].name << " " << to_string(args[i].dims)
                           << (last ? " channels last" : " plain"));
        if (args[i].type == DataType::u8 && !sized({args[i].dims, args[i].type, nullptr})) continue;
        CHECK(relative_error(values_of(actual[i], args[i].type), values_of(expected[i], args[i].type)) <=
              c.tolerance);
      }
      CHECK(results_on(*cuda, c, given, inputs, true) == actual);
    }
  }
}

}  // namespace convnet::test
