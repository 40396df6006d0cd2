// Checksums and hashes have the values that are published for them.
#include "convnet/base/checksum.h"

#include "tests/catch.h"

namespace convnet {

TEST_CASE("CRC-32C has the published values") {
  CHECK(crc32c("") == 0);
  CHECK(crc32c("123456789") == 0xE3069283);
  CHECK(crc32c(std::string(32, '\0')) == 0x8A9136AA);
  CHECK(crc32c(std::string(32, '\xFF')) == 0x62A8AB43);
}

TEST_CASE("CRC-32 has the published values, in one piece or several") {
  Crc32 crc;
  crc.add(nullptr, 0);
  CHECK(crc.text() == "00000000");
  crc.add("1234", 4);
  crc.add(nullptr, 0);
  crc.add("56789", 5);
  CHECK(crc.value() == 0xCBF43926);
  CHECK(crc.text() == "cbf43926");
}

TEST_CASE("FNV-1a has the published values") {
  CHECK(Fnv1a().value() == 0xCBF29CE484222325);
  Fnv1a hash;
  hash.add("foo");
  hash.add(static_cast<unsigned char>('b'));
  hash.add("ar");
  CHECK(hash.value() == 0x85944171F73967E8);
}

}  // namespace convnet
