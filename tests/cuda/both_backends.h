// Runs an operation on the CUDA backend and on the CPU's, which has been compared with references in double
// precision, from the same values.
#pragma once

#include "kernels/arguments.h"
#include "tests/kernels/op_runner.h"

namespace convnet::test {

/// The device that operations run on: on emulated ones its kernels run in several threads.
int test_device();

/// Values of an argument; nothing: random numbers of [-1,1) by the argument's index.
struct OpCase {
  OpDesc op;
  std::vector<Values> inputs = {};  ///< by argument; may be shorter, and entries empty
  std::vector<std::vector<std::byte>> raw =
      {};  ///< by argument: the bytes of those that the operation does not size
  std::optional<std::size_t> in_place = {};  ///< the last argument is this one's memory
  double tolerance = 1e-5;                   ///< relative to the largest value of an argument
  bool bf16 = false;  ///< the CUDA backend's precision; its four-dimensional arguments come as bf16
};

/// A step block: the header, then `rates`.
std::vector<std::byte> step_block(std::uint64_t iteration, const std::vector<Rates>& rates = {});
/// The values as bytes.
std::vector<std::byte> doubles(const std::vector<double>& values);

/// Checks that the CUDA backend binds `op` in every form that its target gives: its arguments lie as the form
/// says, and it takes no more workspace.
void check_binding(const Backend& backend, const OpDesc& op);

/// Checks the binding and compares all arguments after the operation, in every layout that the CUDA backend
/// may meet: each four-dimensional argument plain or channels last. Running twice must give the same bits.
void check_on_both(const OpCase& c);

}  // namespace convnet::test
