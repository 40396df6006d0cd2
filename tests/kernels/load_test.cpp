#include <stdexcept>

#include "tests/kernels/run_op.h"

using namespace convnet;
using namespace convnet::test;

TEST_CASE("load converts images and subtracts the mean", "[load]") {
  for (const Dims& dims : std::vector<Dims>{{2, 3, 5, 7}, {1, 1, 1, 1}, {3, 19}, {5, 3, 40, 40}})
    for (bool mean : {false, true}) {
      const auto count = static_cast<std::size_t>(element_count(dims));
      const std::size_t per_image = count / static_cast<std::size_t>(dims[0]);
      const auto mean_values = random_values(static_cast<std::int64_t>(per_image), 1, 100, 150);
      std::vector<std::uint8_t> bytes(count);
      std::vector<float> floats, from_bytes, from_floats;
      for (std::size_t i = 0; i < count; ++i) {
        bytes[i] = static_cast<std::uint8_t>(i * 37 % 256);
        floats.push_back(static_cast<float>(i) * 0.25F);
        const float subtracted = mean ? mean_values[i % per_image] : 0.0F;
        from_bytes.push_back(static_cast<float>(bytes[i]) - subtracted);
        from_floats.push_back(floats[i] - subtracted);
      }
      const std::size_t dst = mean ? 2 : 1;
      OpRun u8(cpu::prepare(LoadImages{dims, DataType::u8, mean}, {}));
      u8.set_raw(0, bytes);
      if (mean) u8.set_raw(1, mean_values);
      u8.run();
      CHECK(u8.get(dst) == from_bytes);
      OpRun f32(cpu::prepare(LoadImages{dims, DataType::f32, mean}, {}));
      f32.set_raw(0, floats);
      if (mean) f32.set_raw(1, mean_values);
      f32.run();
      CHECK(f32.get(dst) == from_floats);
    }
  CHECK_THROWS_AS(cpu::prepare(LoadImages{{1, 1, 1, 1}, DataType::s32, false}, {}), std::logic_error);
}

TEST_CASE("load copies labels", "[load]") {
  const std::vector<std::int32_t> labels{3, 0, 99, -1, 5};
  OpRun op(cpu::prepare(LoadLabels{5}, {}));
  op.set_raw(0, labels);
  op.run();
  CHECK(op.raw<std::int32_t>(1, 5) == labels);
}
