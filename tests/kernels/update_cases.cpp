#include <cstring>

#include "tests/kernels/op_cases.h"

namespace convnet::test {
namespace {

/// Two entries of the rate table: the first is due after 24 images, the second is not yet.
std::vector<std::byte> rates() { return step_block(5, {{0.1F, 0.9F, 0.05F, 24}, {0.2F, 0.5F, 0.01F, 0}}); }

/// The step block of updates with norms, of AdamW and of averages: an entry of rates is scaled by LARS.
std::vector<std::byte> more_rates(float clip_norm) {
  std::vector<Rates> table = {
      {.epsilon = 0.1F, .momentum = 0.9F, .decay = 0.05F, .images = 24},
      {.epsilon = 0.2F, .momentum = 0.5F, .decay = 0.01F, .images = 0},
      {.epsilon = 0.3F, .momentum = 0.9F, .decay = 0.02F, .images = 16, .trust = 0.01F}};
  for (Rates& r : table) {
    r.second = 0.99F, r.second_share = 0.01F, r.adam_epsilon = 1e-8F;
    r.first_scale = 5.2F, r.second_scale = 7.1F;
  }
  std::vector<std::byte> block = step_block(5, table);
  const StepHeader header{5, 0.25F, clip_norm};
  std::memcpy(block.data(), &header, sizeof header);
  return block;
}

/// A case whose arguments are random but for those that the operation does not size, and the squares, which
/// are not negative.
OpCase with_rates(const OpDesc& op, float clip_norm = 0) {
  OpCase c{op};
  const std::vector<Argument> args = arguments(op);
  c.inputs.resize(args.size());
  c.raw.resize(args.size());
  for (std::size_t k = 0; k < args.size(); ++k) {
    if (args[k].name == "step") c.raw[k] = more_rates(clip_norm);
    if (args[k].name == "non_finite" || args[k].name == "costs") c.raw[k] = doubles({0});
    if (args[k].name != "squares" || args[k].access == Access::write) continue;
    for (std::int64_t i = 0; i < element_count(args[k].dims); ++i)
      c.inputs[k].push_back(0.01 * static_cast<double>(1 + i % 7));
  }
  return c;
}

OpCase update_case(const Update& update, double broken = 0) {
  const std::size_t step = arguments(update).size() - 3;
  OpCase c{update};
  c.raw.resize(step + 3);
  c.raw[step] = rates();
  c.raw[step + 1] = doubles({broken});
  c.raw[step + 2] = doubles({0});
  return c;
}

/// `dims` seen as (outer, groups, inner).
Constrain rows(const Dims& dims, std::int64_t outer, std::int64_t groups, std::int64_t inner) {
  Constrain op;
  op.what = {dims, DataType::f32, nullptr};
  op.outer = outer, op.groups = groups, op.inner = inner;
  return op;
}

}  // namespace

std::vector<Constrain> constraints() {
  return {
      rows({7, 33}, 1, 7, 33),              // fc
      rows({20, 5, 3, 3}, 1, 20, 45),       // conv
      rows({2, 3, 4, 5, 3, 3}, 1, 24, 45),  // local
      rows({3, 6, 10}, 3, 6, 10),           // a row in several places
      rows({1, 1}, 1, 1, 1),                //
      rows({300, 200}, 1, 300, 200),        // several threads
  };
}

std::vector<OpCase> update_cases() {
  std::vector<OpCase> cases;
  cases.push_back(update_case({{{1000, 8}}}));
  cases.push_back(update_case({{{1000, 8}}}, 1));
  cases.push_back(update_case({{{700, 8, 0, 3}}}));
  cases.push_back(update_case({{{700, 8, 0, 2, true}}}));
  cases.push_back(update_case({{{700, 8, 1, 2, true}}}));
  cases.push_back(update_case({{{100, 8}, {50, 0}, {1, 8, 1}, {300, 8, 1, 2, true}, {7, 16, 0, 4}}}));
  // More than the CUDA backend does in one launch.
  Update many;
  for (int i = 0; i < 70; ++i) many.parts.push_back({i % 7 + 1, 8, i % 2, i % 3 + 1});
  cases.push_back(update_case(many));
  Update replicas;
  for (int i = 0; i < 3; ++i) replicas.parts.push_back({10, 8, 0, 100});
  cases.push_back(update_case(replicas));
  // More gradients than in one launch, beside parts of few.
  cases.push_back(
      update_case({{{10, 8, 0, 193}, {5, 8, 0, 3}, {20, 8, 0, 400, true}, {7, 8, 1, 300, true}}}));

  for (const UpdateRule rule :
       {UpdateRule::momentum, UpdateRule::nesterov, UpdateRule::adamw, UpdateRule::rmsprop}) {
    const auto part = [&](std::int64_t count, int gradients, bool accumulates, std::int64_t scale_index,
                          bool rounds = false) {
      return Update::Part{.count = count,
                          .images = 8,
                          .rate_index = accumulates ? 0 : 1,
                          .gradients = gradients,
                          .accumulates = accumulates,
                          .rule = rule,
                          .scale_index = scale_index,
                          .rounds = rounds};
    };
    cases.push_back(with_rates(Update{{part(1000, 1, false, -1)}}));
    cases.push_back(
        with_rates(Update{{part(700, 3, true, 1), part(5, 2, false, 0), part(9, 1, true, -1)}, 2}));
    cases.push_back(with_rates(Update{{part(20, 400, true, 0, true), part(10, 193, false, -1)}, 1}));
    // Weights as bf16: a whole number of vectors and not; not due, and without images.
    Update rounds{{part(1000, 1, false, -1, true), part(703, 2, true, -1, true), part(5, 1, false, -1),
                   part(16, 1, true, -1, true), part(9, 1, false, -1, true)}};
    rounds.parts[3].rate_index = 1;
    rounds.parts[4].images = 0;
    cases.push_back(with_rates(rounds));
    // Gradients of bf16: one, several, after an accumulator, and more than in one launch.
    Update rounded{{part(1000, 1, false, -1, true), part(703, 3, false, 0), part(5, 1, false, -1),
                    part(35, 2, true, -1), part(20, 200, true, -1), part(10, 193, false, -1)},
                   1};
    for (const std::size_t i : {0, 1, 3, 4, 5}) rounded.parts[i].gradient_type = DataType::bf16;
    cases.push_back(with_rates(rounded));
  }
  for (const std::int64_t count : {1, 16384, 16385, 100000}) {
    UpdateSquares squares{{{count}, {7, true}, {count, true}}};
    cases.push_back(with_rates(squares));
    squares.parts[1].gradient_type = squares.parts[2].gradient_type = DataType::bf16;
    cases.push_back(with_rates(squares));
  }
  for (const float clip_norm : {0.0F, 0.001F, 1000.0F}) {
    // More parts than in one launch; a matrix with several; one without images, and one that is not due.
    UpdateScales scales{{3, 80}, {}};
    for (int i = 0; i < 83; ++i) scales.parts.push_back({i % 31, i == 7 ? 0 : 8, i % 3, i % 2 == 1});
    cases.push_back(with_rates(scales, clip_norm));
  }
  cases.push_back(with_rates(Average{{1, 5000, 3}}));
  Average many_averages;
  for (int i = 0; i < 70; ++i) many_averages.counts.push_back(i % 7 + 1);
  cases.push_back(with_rates(many_averages));

  for (const std::size_t broken : {0, 63, 64, 129, 130}) {
    Values flags(130, 0);
    if (broken < flags.size()) flags[broken] = 1;
    std::vector<std::vector<std::byte>> costs;
    for (const double flag : flags) costs.push_back(doubles({flag, 7}));
    cases.push_back({AnyNonFinite{std::ssize(flags)}, {}, costs, {}, 0});
  }
  for (const Values& flags : std::vector<Values>{{0, 0, 0}, {0, 1, 0}, {0, 0, std::nan("")}, {2, 0, 0}}) {
    std::vector<std::vector<std::byte>> costs;
    for (const double flag : flags) costs.push_back(doubles({flag, 7}));
    cases.push_back({AnyNonFinite{std::ssize(flags)}, {}, costs, {}, 0});
  }

  for (Constrain op : constraints())
    for (const float ball : {0.0F, 0.75F})
      for (const bool shrink : {false, true})
        for (const float norm_max : {0.0F, 0.02F}) {
          op.ball = ball, op.shrink = shrink, op.norm_max = norm_max, op.norm_min = 0.01F;
          cases.push_back({op});
        }
  for (const std::int64_t rate_index : {0, 1}) {
    Constrain op = rows({5, 6}, 1, 5, 6);
    op.ball = 2;
    op.when_due = true;
    op.rate_index = rate_index;
    cases.push_back({op, {}, {{}, rates()}});
  }
  return cases;
}

}  // namespace convnet::test
