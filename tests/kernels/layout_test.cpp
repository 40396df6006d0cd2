#include "kernels/cpu/layout.h"

#include "tests/catch.h"

#include "convnet/base/error.h"
#include "tests/kernels/op_runner.h"

namespace convnet::layout_test {
namespace {

using cpu::activation_view;
using cpu::blocked_activations;
using cpu::from_dnnl;
using test::Values;
using tag = dnnl::memory::format_tag;
constexpr auto f32 = dnnl::memory::data_type::f32;

TensorDesc tensor(const Dims& dnnl_dims, tag format, const Dims& dims) {
  return from_dnnl({dnnl_dims, f32, format}, dims);
}
TensorDesc tensor(const Dims& dims, tag format) { return tensor(dims, format, dims); }

TEST_CASE("layouts have readable names", "[layout]") {
  CHECK(tensor({2, 20, 5, 7}, tag::nChw16c).layout_name() == "nChw16c");
  CHECK(tensor({2, 20, 5, 7}, tag::nChw8c).layout_name() == "nChw8c");
  CHECK(tensor({2, 20, 5, 7}, tag::nhwc).layout_name() == "nhwc");
  CHECK(tensor({32, 16, 3, 3}, tag::OIhw16i16o).layout_name() == "OIhw16i16o");
  CHECK(tensor({2, 32, 16, 3, 3}, tag::gOIhw16i16o, {64, 16, 3, 3}).layout_name() == "gOIhw16i16o");
  CHECK(tensor({96, 200}, tag::AB16b64a).layout_name() == "AB16b64a");
  CHECK(tensor({96, 200}, tag::ab).layout_name() == "plain");
}

TEST_CASE("a layout with the bytes of the plain one is plain", "[layout]") {
  CHECK(tensor({2, 3, 5, 7}, tag::nchw).plain());
  CHECK(tensor({2, 3, 1, 1}, tag::nhwc).plain());
  CHECK(tensor({4, 32, 1, 1}, tag::nChw16c).plain());
  CHECK(tensor({2, 1, 5, 7}, tag::nhwc).plain());
  CHECK(tensor({2, 8, 4, 3, 3}, tag::goihw, {16, 4, 3, 3}).plain());
  CHECK(from_dnnl({{1, 3, 5, 7}, f32, Dims{999, 35, 7, 1}}, {1, 3, 5, 7}).plain());
  CHECK_FALSE(tensor({4, 20, 1, 1}, tag::nChw16c).plain());
  CHECK_FALSE(tensor({4, 32, 2, 1}, tag::nChw16c).plain());
  CHECK_FALSE(tensor({2, 3, 5, 7}, tag::nhwc).plain());
  CHECK_FALSE(from_dnnl({{2, 3, 5, 7}, f32, Dims{128, 35, 7, 1}}, {2, 3, 5, 7}).plain());
}

TEST_CASE("layouts are equal when every element has the same place", "[layout]") {
  const TensorDesc blocked = tensor({2, 20, 5, 7}, tag::nChw16c);
  CHECK(same_layout(blocked, tensor({2, 20, 5, 7}, tag::nChw16c)));
  CHECK_FALSE(same_layout(blocked, tensor({2, 20, 5, 7}, tag::nChw8c)));
  CHECK_FALSE(same_layout(blocked, tensor({2, 20, 7, 5}, tag::nChw16c)));
  CHECK_FALSE(same_layout(blocked, tensor({2, 21, 5, 7}, tag::nChw16c)));
  CHECK_FALSE(same_layout(blocked, TensorDesc{{2, 20, 5, 7}, DataType::f32, nullptr}));
  // Only the stride of the single image differs.
  CHECK(same_layout(from_dnnl({{1, 3, 5, 7}, f32, Dims{105, 1, 21, 3}}, {1, 3, 5, 7}),
                    from_dnnl({{1, 3, 5, 7}, f32, Dims{500, 1, 21, 3}}, {1, 3, 5, 7})));
}

TEST_CASE("bytes of a layout include its padding", "[layout]") {
  CHECK(blocked_activations({2, 20, 5, 7}, 16).bytes() == 2 * 32 * 5 * 7 * 4);
  CHECK(blocked_activations({2, 20, 5, 7}, 8, DataType::u8).bytes() == 2 * 24 * 5 * 7);
  CHECK(TensorDesc{{2, 20}, DataType::f32, nullptr}.bytes() == 160);
}

TEST_CASE("activation views follow plain and channel-blocked layouts", "[layout]") {
  for (int block : {4, 8, 16}) {
    const auto view = activation_view(blocked_activations({2, 20, 5, 7}, block));
    REQUIRE(view);
    CHECK(view->n == 2);
    CHECK(view->c == 20);
    CHECK(view->spatial == 35);
    CHECK(view->block == block);
    CHECK(view->padded_c == (20 + block - 1) / block * block);
    CHECK(view->size() * 4 == blocked_activations({2, 20, 5, 7}, block).bytes());
  }
  const auto plain = activation_view(TensorDesc{{3, 10}, DataType::f32, nullptr});
  REQUIRE(plain);
  CHECK(plain->block == 1);
  CHECK(plain->padded_c == 10);
  CHECK(plain->spatial == 1);
  CHECK_FALSE(activation_view(tensor({2, 20, 5, 7}, tag::nhwc)));
  CHECK_FALSE(activation_view(tensor({32, 16, 3, 3}, tag::OIhw16i16o)));
  CHECK_FALSE(activation_view(TensorDesc{{3}, DataType::f32, nullptr}));
}

TEST_CASE("reorder puts elements in the places of the block and zeros in the padding", "[layout][reorder]") {
  const TensorDesc plain{{1, 5, 1, 2}, DataType::f32, nullptr};
  const Values blocked =
      test::unpacked(test::reordered(test::packed({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, DataType::f32), plain,
                                     blocked_activations(plain.dims, 4)),
                     DataType::f32);
  CHECK(blocked == Values{1, 3, 5, 7, 2, 4, 6, 8, 9, 0, 0, 0, 10, 0, 0, 0});
}

TEST_CASE("reorder there and back keeps every value", "[layout][reorder]") {
  const auto round_trip = [](const TensorDesc& from, const TensorDesc& to) {
    INFO(to.layout_name());
    const auto bytes = test::packed(test::test_values(from.dims, 7), from.type);
    CHECK(test::reordered(test::reordered(bytes, from, to), to, from) == bytes);
  };
  const auto plain = [](const Dims& dims) { return TensorDesc{dims, DataType::f32, nullptr}; };
  round_trip(plain({3, 20, 5, 7}), blocked_activations({3, 20, 5, 7}, 16));
  round_trip(plain({3, 20, 5, 7}), tensor({3, 20, 5, 7}, tag::nhwc));
  round_trip(plain({50, 20, 3, 3}), tensor({50, 20, 3, 3}, tag::OIhw16i16o));
  round_trip(plain({64, 16, 3, 3}), tensor({2, 32, 16, 3, 3}, tag::gOIhw16i16o, {64, 16, 3, 3}));
  round_trip(plain({100, 70}), tensor({100, 70}, tag::AB16b64a));
  round_trip(plain({3, 20 * 35}), blocked_activations({3, 20, 5, 7}, 16));  // flattened
  round_trip(plain({3, 700}), plain({3, 20, 5, 7}));
  const TensorDesc flat = plain({3, 20, 5, 7}), by16 = blocked_activations(flat.dims, 16),
                   by8 = blocked_activations(flat.dims, 8);
  const auto values16 =
      test::reordered(test::packed(test::test_values(flat.dims, 7), DataType::f32), flat, by16);
  CHECK(test::reordered(values16, by16, by16) == values16);
  CHECK(test::reordered(test::reordered(values16, by16, by8), by8, by16) == values16);
  const TensorDesc bytes{{2, 20, 3, 3}, DataType::u8, nullptr};
  const auto values = test::packed(Values(360, 200.0), DataType::u8);
  const TensorDesc blocked = blocked_activations(bytes.dims, 16, DataType::u8);
  CHECK(test::reordered(test::reordered(values, bytes, blocked), blocked, bytes) == values);
}

TEST_CASE("a reorder between different sizes is refused by name", "[layout][reorder]") {
  const TensorDesc from{{2, 20, 5, 7}, DataType::f32, nullptr};
  CHECK_THROWS_AS(cpu::prepare(Reorder{from, blocked_activations({2, 20, 5, 5}, 16)}, {}), DeviceError);
  CHECK_THROWS_WITH(cpu::prepare(Reorder{from, TensorDesc{{2, 20}, DataType::f32, nullptr}}, {}),
                    Catch::Contains("reorder") && Catch::Contains("2x20x5x7"));
}

}  // namespace
}  // namespace convnet::layout_test
