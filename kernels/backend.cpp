#include "kernels/backend.h"

#include <chrono>
#include <stdexcept>
#include <thread>

#include "convnet/base/error.h"

namespace convnet {

void Mark::rest() const { std::this_thread::sleep_for(std::chrono::microseconds(50)); }

void Queue::call(std::function<void()>) { throw std::logic_error("this device calls no functions"); }
std::shared_ptr<const Mark> Queue::start(std::function<void(std::function<void()>)>) {
  throw std::logic_error("this device calls no functions");
}

void check_form(const OpDesc& op, const OpForm& form, const PreparedOp& prepared) {
  const auto fail = [&](const std::string& what) {
    throw DeviceError("binding " + op_name(op) + ": " + what);
  };
  if (prepared.args().size() != form.args.size()) fail("the number of arguments differs from the plan's");
  for (std::size_t i = 0; i < form.args.size(); ++i) {
    const TensorDesc &planned = form.args[i], &bound = prepared.args()[i];
    if (planned.type != bound.type || !same_layout(planned, bound))
      fail("argument " + std::to_string(i) + " is " + to_string(bound.type) + " " + bound.layout_name() +
           ", planned as " + to_string(planned.type) + " " + planned.layout_name());
  }
  if (prepared.workspace_bytes() > form.workspace_bytes)
    fail("it wants " + std::to_string(prepared.workspace_bytes()) + " bytes of workspace, planned are " +
         std::to_string(form.workspace_bytes));
}

}  // namespace convnet
