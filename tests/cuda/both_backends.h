// Runs an operation on the CUDA backend and on the CPU's, which has been compared with references in double
// precision, from the same values.
#pragma once

#include <memory>

#include "kernels/arguments.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_runner.h"

namespace convnet::test {

/// The device that operations run on: on emulated ones its kernels run in several threads.
int test_device();
/// Prepares an operation for test_device(), on which it is to run: libraries choose for one GPU.
std::shared_ptr<const PreparedOp> prepared_for_test(const Backend& backend, const OpDesc& op,
                                                    const LayoutHints& hints);

/// Checks that the CUDA backend binds `op` in every distinct form that its target gives: its arguments lie as
/// the form says, and it takes no more workspace.
void check_binding(const Backend& backend, const OpDesc& op);

/// The backends on which cases of operations are compared. Making one takes milliseconds on a GPU, so it is
/// for many cases.
class BothBackends {
 public:
  /// Checks the binding and compares all arguments after the operation, in every layout that the CUDA backend
  /// may meet: each four-dimensional argument plain or channels last. Running twice must give the same bits.
  void check(const OpCase& c);

 private:
  std::unique_ptr<Backend> cpu_ = make_cpu_backend(1);
  std::unique_ptr<Backend> cuda_, cuda_of_bf16_;  ///< made when a case needs them
};

}  // namespace convnet::test
