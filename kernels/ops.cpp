#include "kernels/ops.h"

namespace convnet {

OpDesc::OpDesc() = default;
OpDesc::OpDesc(const OpDesc& other) = default;
OpDesc::OpDesc(OpDesc&& other) noexcept = default;
OpDesc& OpDesc::operator=(const OpDesc& other) = default;
OpDesc& OpDesc::operator=(OpDesc&& other) noexcept = default;
OpDesc::~OpDesc() = default;

std::vector<Argument> arguments(const OpDesc& desc) {
  return std::visit([](const auto& op) { return op.arguments(); }, desc);
}

std::string op_name(const OpDesc& desc) {
  return std::visit([](const auto& op) { return op.name(); }, desc);
}

double op_flops(const OpDesc& desc) {
  return std::visit(
      [](const auto& op) -> double {
        if constexpr (requires { op.flops(); }) {
          return op.flops();
        } else {
          return 0;
        }
      },
      desc);
}

bool is_fused(const OpDesc& desc) {
  return std::visit(
      []<class Op>(const Op& op) {
        bool fused = false;
        if constexpr (requires { op.sum; }) fused = op.sum;
        if constexpr (requires { op.moments; }) fused = fused || op.moments;
        if constexpr (requires { op.track; }) fused = fused || op.track;
        if constexpr (requires { op.mask; }) fused = fused || op.mask;
        return fused;
      },
      desc);
}

std::vector<std::int64_t> op_settings(const OpDesc& desc) {
  return std::visit(
      [](const auto& op) -> std::vector<std::int64_t> {
        if constexpr (requires { op.settings(); }) {
          return op.settings();
        } else {
          return {};
        }
      },
      desc);
}

}  // namespace convnet
