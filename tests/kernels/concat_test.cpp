#include <algorithm>
#include <stdexcept>

#include "tests/catch.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/run_op.h"

namespace convnet::concat_test {
using namespace test;

namespace {

using reference::Values;

std::vector<std::int64_t> sizes_of(const ConcatCase& c) {
  std::vector<std::int64_t> sizes;
  for (const Dims& dims : c.from) sizes.push_back(element_count({dims.begin() + 1, dims.end()}));
  return sizes;
}

std::string describe(const ConcatCase& c, int block) {
  return to_string(c.from[0]) + " ... to " + to_string(c.to) + " block " + std::to_string(block);
}

/// A layout as a hint: nothing for tensors that it does not suit.
std::optional<TensorDesc> hint(const Dims& dims, int block) {
  if (dims.size() != 4) return std::nullopt;
  return activations(dims, block);
}

/// Returns whether all arguments lie in the layout of `block`.
bool all_in(const cpu::Prepared& op, int block) {
  return std::all_of(op->args().begin(), op->args().end(),
                     [&](const TensorDesc& arg) { return same_layout(arg, activations(arg.dims, block)); });
}

}  // namespace

TEST_CASE("concat and split: the features of one image after the other", "[concat]") {
  for (const ConcatCase& c : concats())
    for (int block : {1, 8, 16}) {
      INFO(describe(c, block));
      const bool blocked = std::count(c.blocks.begin(), c.blocks.end(), block) > 0;
      const std::vector<std::int64_t> sizes = sizes_of(c);
      std::vector<Floats> inputs;
      for (std::size_t k = 0; k < sizes.size(); ++k)
        inputs.push_back(random_values(c.to[0] * sizes[k], static_cast<unsigned>(k)));
      Floats whole;
      for (std::int64_t n = 0; n < c.to[0]; ++n)
        for (std::size_t k = 0; k < sizes.size(); ++k)
          for (std::int64_t i = 0; i < sizes[k]; ++i)
            whole.push_back(inputs[k][static_cast<std::size_t>(n * sizes[k] + i)]);

      const auto concat = cpu::prepare(Concat{c.from, c.to}, {hint(c.from[0], block)});
      CHECK(all_in(concat, blocked ? block : 1));
      CHECK(results_of(concat, inputs)[0] == whole);
      std::int64_t offset = 0;
      for (std::size_t k = 0; k < sizes.size(); ++k) {
        INFO("part " << k);
        const auto split = cpu::prepare(Split{c.to, {{c.from[k], offset}}}, {hint(c.to, block)});
        if (blocked) CHECK(all_in(split, block));
        CHECK(results_of(split, {whole})[0] == inputs[k]);
        offset += sizes[k];
      }
    }
}

TEST_CASE("split takes features from anywhere", "[concat]") {
  const Dims from{2, 40, 2, 3};
  const auto x = random_values(element_count(from), 1);
  struct Part {
    Dims to;
    std::int64_t offset;
    bool blocked;  ///< the result is blocked, if the source is in blocks of 16
  };
  for (const Part& part :
       std::vector<Part>{{{2, 16, 2, 3}, 96, true},
                         {{2, 8, 2, 3}, 192, true},  // the end, with its padding
                         {{2, 8, 2, 3}, 96, false},  // the rest of the block is not padding
                         {{2, 16, 2, 3}, 48, false},
                         {{2, 16, 3, 2}, 96, false},
                         {{2, 7}, 101, false},
                         {{2, 1, 1, 1}, 239, false}}) {
    INFO(to_string(part.to) << " at " << part.offset);
    const std::int64_t size = element_count(part.to) / 2;
    Floats expected;
    for (std::int64_t i = 0; i < 2 * size; ++i)
      expected.push_back(x[static_cast<std::size_t>(i / size * 240 + part.offset + i % size)]);
    for (int block : {1, 16}) {
      const auto op = cpu::prepare(Split{from, {{part.to, part.offset}}}, {activations(from, block)});
      CHECK(all_in(op, part.blocked ? block : 1));
      CHECK(results_of(op, {x})[0] == expected);
    }
  }
}

TEST_CASE("concat takes the layout that an argument lies in already", "[concat]") {
  const Dims from{2, 16, 3, 3}, to{2, 32, 3, 3};
  const auto blocked = activations(from, 16), plain = activations(from, 1);
  CHECK(all_in(cpu::prepare(Concat{{from, from}, to}, {plain, blocked}), 16));
  CHECK(all_in(cpu::prepare(Concat{{from, from}, to}, {plain, plain}), 1));
  CHECK(all_in(cpu::prepare(Concat{{from, from}, to}, {}), 1));
  CHECK(all_in(cpu::prepare(Split{to, {{from, 0}}}, {std::nullopt, blocked}), 16));
}

TEST_CASE("concat and split that do not fit are bugs", "[concat]") {
  CHECK_THROWS_AS(cpu::prepare(Concat{{{2, 3}, {2, 4}}, {2, 8}}, {}), std::logic_error);
  CHECK_THROWS_AS(cpu::prepare(Split{{2, 8}, {{{2, 3}, 6}}}, {}), std::logic_error);
  CHECK_THROWS_AS(cpu::prepare(Split{{2, 8}, {{{2, 3}, -1}}}, {}), std::logic_error);
}

TEST_CASE("take_maps: maps in another order, and zeros for those that there are not", "[concat]") {
  for (const TakeMaps& op : map_takings()) {
    INFO(to_string(op.from) << " to " << to_string(op.to) << " from map " << op.first << ", " << op.groups
                            << " groups");
    const auto x = random_values(element_count(op.from), 1);
    const std::int64_t maps = op.to[1], in_group = maps / op.groups,
                       pixels = element_count({op.to.begin() + 2, op.to.end()});
    Floats expected;
    for (std::int64_t n = 0; n < op.to[0]; ++n)
      for (std::int64_t k = 0; k < maps; ++k)
        for (std::int64_t s = 0; s < pixels; ++s) {
          const std::int64_t map = op.first + k % op.groups * in_group + k / op.groups;
          const bool exists = map >= 0 && map < op.from[1];
          expected.push_back(exists ? x[static_cast<std::size_t>((n * op.from[1] + map) * pixels + s)] : 0);
        }
    for (int block : {1, 8, 16}) {
      if (block > 1 && op.from.size() != 4) continue;
      const auto prepared = cpu::prepare(op, {activations(op.from, block)});
      CHECK(all_in(prepared, block));
      CHECK(results_of(prepared, {x})[0] == expected);
    }
  }
}

TEST_CASE("a shuffle with the other number of groups puts the maps back", "[concat]") {
  const Dims dims{2, 24, 3, 3};
  const auto x = random_values(element_count(dims), 1);
  for (const std::int64_t groups : {1, 2, 3, 4, 6, 8, 12, 24}) {
    const auto there = cpu::prepare(TakeMaps{dims, dims, 0, groups}, {activations(dims, 16)});
    const auto back = cpu::prepare(TakeMaps{dims, dims, 0, 24 / groups}, {activations(dims, 8)});
    CHECK(results_of(back, results_of(there, {x}))[0] == x);
  }
}

TEST_CASE("take_maps that do not fit are bugs", "[concat]") {
  CHECK_THROWS_AS(cpu::prepare(TakeMaps{{2, 6, 3, 3}, {2, 6, 3, 3}, 0, 4}, {}), std::logic_error);
  CHECK_THROWS_AS(cpu::prepare(TakeMaps{{2, 6, 3, 3}, {2, 6, 3, 3}, 0, 0}, {}), std::logic_error);
  CHECK_THROWS_AS(cpu::prepare(TakeMaps{{2, 6, 3, 3}, {2, 6, 2, 3}}, {}), std::logic_error);
  CHECK_THROWS_AS(cpu::prepare(TakeMaps{{2, 6, 3, 3}, {1, 6, 3, 3}}, {}), std::logic_error);
  CHECK_THROWS_AS(cpu::prepare(TakeMaps{{2, 6, 1, 1}, {2, 6}}, {}), std::logic_error);
}

}  // namespace convnet::concat_test
