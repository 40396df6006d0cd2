// Tar files for tests of the code that reads them.
#pragma once

#include <cstdint>
#include <string>

namespace convnet::tars {

inline std::string octal(std::uint64_t value, int digits) {
  std::string out;
  for (int i = 0; i < digits; ++i) out.insert(out.begin(), static_cast<char>('0' + (value >> (3 * i) & 7)));
  return out;
}

/// Puts the right checksum into a header block.
inline void seal(std::string& header) {
  header.replace(148, 8, 8, ' ');
  unsigned int sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  header.replace(148, 8, octal(sum, 6) + std::string("\0 ", 2));
}

/// A ustar header; `size` as text, of twelve bytes at most.
inline std::string header(const std::string& name, const std::string& size, char type = '0') {
  std::string out(512, '\0');
  out.replace(0, name.size(), name);
  out.replace(100, 7, "0000644");
  out.replace(124, size.size(), size);
  out.replace(136, 11, "00000000000");
  out[156] = type;
  out.replace(257, 8, std::string("ustar\0", 6) + "00");
  seal(out);
  return out;
}

/// A member with its data, padded.
inline std::string member(const std::string& name, const std::string& data, char type = '0') {
  return header(name, octal(data.size(), 11), type) + data +
         std::string((512 - data.size() % 512) % 512, '\0');
}

inline std::string end() { return std::string(1024, '\0'); }

/// "LENGTH KEY=VALUE\n".
inline std::string pax_record(const std::string& key, const std::string& value) {
  const std::string rest = " " + key + "=" + value + "\n";
  std::size_t length = rest.size() + 1;
  while (std::to_string(length).size() + rest.size() != length) ++length;
  return std::to_string(length) + rest;
}

}  // namespace convnet::tars
