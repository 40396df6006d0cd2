// Pickles that this program writes, read back.
#include "providers/pickle_write.h"

#include <limits>

#include "convnet/base/error.h"
#include "providers/pickle.h"
#include "tests/catch.h"

using namespace convnet;

namespace {

PickleValue read(const std::string& value) { return parse_pickle(pickles::pickle_file(value), "file"); }

}  // namespace

TEST_CASE("written values are read back", "[pickle_write]") {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t value :
       {std::int64_t{0}, std::int64_t{-1}, std::int64_t{2147483647}, std::int64_t{2147483648},
        std::int64_t{-2147483648}, std::int64_t{-2147483649}, most, -most - 1}) {
    CAPTURE(value);
    CHECK(read(pickles::integer(value)).integer("it") == value);
  }
  for (const std::size_t size : {0U, 1U, 255U, 256U, 70000U}) {
    const PickleValue text = read(pickles::str(std::string(size, '\xff')));
    CHECK(text.kind() == PickleKind::bytes);
    CHECK(text.string("it") == std::string(size, '\xff'));
  }
  CHECK(read(pickles::list({})).describe() == "a list of 0 values");
  CHECK(read(pickles::integers({3, 1, 2})).integers("it") == std::vector<std::int64_t>{3, 1, 2});
  CHECK(read(pickles::tuple({pickles::integer(7), pickles::str("x")})).describe() == "a tuple of 2 values");
  const PickleValue dict =
      read(pickles::dict({{"a", pickles::integer(1)}, {"b", pickles::list({pickles::str("c")})}}));
  CHECK(dict.keys() == std::vector<std::string>{"a", "b"});
  CHECK(dict.find("b").value()[0].string("it") == "c");
}

TEST_CASE("written arrays are read back", "[pickle_write]") {
  const PickleValue floats = read(pickles::array({2, 2}, std::vector<float>{1.5F, -2, 3, 4}));
  CHECK(floats.describe() == "an array of 2x2 numbers of type f4");
  CHECK(floats.numbers("it") == std::vector<double>{1.5, -2, 3, 4});
  const PickleValue doubles = read(pickles::array({3}, std::vector<double>{0.1, -1e300, 0}));
  CHECK(doubles.describe() == "an array of 3 numbers of type f8");
  CHECK(doubles.numbers("it") == std::vector<double>{0.1, -1e300, 0});
  const PickleValue words = read(pickles::array({2}, std::vector<std::uint64_t>{1, 1ULL << 62}));
  CHECK(words.describe() == "an array of 2 numbers of type u8");
  CHECK(words.integers("it") == std::vector<std::int64_t>{1, std::int64_t{1} << 62});
  const PickleValue bytes = read(pickles::array({1, 3}, "u1", "abc"));
  CHECK(bytes.array("it").is_bytes());
  CHECK(bytes.array("it").data == "abc");
}
