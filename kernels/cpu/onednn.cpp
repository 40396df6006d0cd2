#include "kernels/cpu/onednn.h"

#include <omp.h>

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "convnet/base/available_memory.h"

namespace convnet::cpu {

const dnnl::engine& cpu_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

#if DNNL_VERSION_MAJOR >= 3

std::optional<Blocking> blocking_of(const dnnl::memory::desc& desc) {
  if (desc.get_format_kind() != dnnl::memory::format_kind::blocked) return std::nullopt;
  return Blocking{desc.get_dims(), desc.get_padded_dims(), desc.get_strides(), desc.get_inner_blks(),
                  desc.get_inner_idxs()};
}

#else

std::optional<Blocking> blocking_of(const dnnl::memory::desc& desc) {
  const dnnl_memory_desc_t& d = desc.data;
  if (d.format_kind != dnnl_blocked) return std::nullopt;
  const auto& b = d.format_desc.blocking;
  const auto copy = [](const dnnl_dim_t* p, int count) { return std::vector<std::int64_t>(p, p + count); };
  return Blocking{copy(d.dims, d.ndims), copy(d.padded_dims, d.ndims), copy(b.strides, d.ndims),
                  copy(b.inner_blks, b.inner_nblks), copy(b.inner_idxs, b.inner_nblks)};
}

#endif

dnnl::primitive_attr attributes(bool accumulate, bool relu) {
  dnnl::post_ops post;
  if (accumulate) post.append_sum(1.0F);
#if DNNL_VERSION_MAJOR >= 3
  if (relu) post.append_eltwise(dnnl::algorithm::eltwise_relu, 0.0F, 0.0F);
#else
  if (relu) post.append_eltwise(1.0F, dnnl::algorithm::eltwise_relu, 0.0F, 0.0F);
#endif
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  attr.set_post_ops(post);
  return attr;
}

bool is_reference(const dnnl::primitive_desc_base& pd) {
  return std::string_view(pd.impl_info_str()).substr(0, 3) == "ref";
}

std::string describe(const OpDesc& op) {
  std::string text = op_name(op);
  for (const Argument& arg : arguments(op)) text += " " + arg.name + " " + to_string(arg.dims);
  return text;
}

void require_space_for_code() {
  if (has_address_space(kSpaceForCode)) return;
  throw DeviceError("out of memory: the address space of the process is limited (ulimit -v), and " +
                    std::to_string(kSpaceForCode >> 20) + " MiB of it that oneDNN may need are not left");
}

bool multiply(const MatrixProduct& p) {
  if (p.m == 0 || p.n == 0) return true;
  if (p.k == 0) {  // an empty sum
    for (std::int64_t i = 0; i < p.m && !p.accumulate; ++i) std::fill_n(p.c + i * p.ldc, p.n, 0.0F);
    return true;
  }
  return has_address_space(kSpaceForCode) &&
         dnnl_sgemm(p.trans_a, p.trans_b, p.m, p.n, p.k, 1.0F, p.a, p.lda, p.b, p.ldb,
                    p.accumulate ? 1.0F : 0.0F, p.c, p.ldc) == dnnl_success;
}

TeamSize::TeamSize(int threads) : before_(omp_get_max_threads()) { omp_set_num_threads(threads); }
TeamSize::~TeamSize() { omp_set_num_threads(before_); }

DnnlOp::DnnlOp(const OpDesc& op, const dnnl::primitive_desc_base& pd, dnnl::primitive primitive,
               std::vector<int> ids, const std::string& kind)
    : primitive_(std::move(primitive)), ids_(std::move(ids)) {
  if (is_reference(pd) && op_flops(op) >= kSmallFlops)
    throw DeviceError(describe(op) + ": oneDNN has only its slow reference implementation for this shape");
  const std::vector<Argument> arguments_of_op = arguments(op);
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    descs_.push_back(pd.query_md(dnnl::query::exec_arg_md, ids_[i]));
    args_.push_back(from_dnnl(descs_.back(), arguments_of_op[i].dims));
  }
  finish(pd);
  if (!kind.empty()) algorithm_ = kind + ":" + algorithm_;
}

DnnlOp::DnnlOp(std::vector<TensorDesc> args, const dnnl::primitive_desc_base& pd, dnnl::primitive primitive,
               std::vector<int> ids)
    : primitive_(std::move(primitive)), ids_(std::move(ids)) {
  args_ = std::move(args);
  for (int id : ids_) descs_.push_back(pd.query_md(dnnl::query::exec_arg_md, id));
  finish(pd);
}

void DnnlOp::finish(const dnnl::primitive_desc_base& pd) {
  scratchpad_ = pd.scratchpad_desc();
  workspace_bytes_ = static_cast<std::int64_t>(scratchpad_.get_size());
  algorithm_ = pd.impl_info_str();
  threads_ = omp_get_max_threads();
}

void DnnlOp::run(std::span<std::byte* const> pointers, std::byte* workspace, Queue*) const {
  std::call_once(makes_code_, require_space_for_code);
  const TeamSize team(threads_);
  std::unordered_map<int, dnnl::memory> memory;
  for (std::size_t i = 0; i < ids_.size(); ++i)
    memory.emplace(ids_[i], dnnl::memory(descs_[i], cpu_engine(), pointers[i]));
  if (workspace_bytes_ > 0)
    memory.emplace(DNNL_ARG_SCRATCHPAD, dnnl::memory(scratchpad_, cpu_engine(), workspace));
  dnnl::stream stream(cpu_engine());
  primitive_.execute(stream, memory);
  stream.wait();
}

}  // namespace convnet::cpu
