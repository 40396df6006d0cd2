// Parses CSV files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace convnet {

/// A record of a CSV file.
struct CsvRecord {
  std::int64_t line = 0;            ///< line on which the record begins, from 1
  std::vector<std::string> fields;  ///< at least one
};

/// Parses the text of a CSV file as RFC 4180 describes it: fields are separated by commas; a field in quotes
/// may hold commas, line breaks and doubled quotes. Lines end with LF or CRLF. A UTF-8 byte order mark and
/// empty lines are skipped. Throws InputError naming `file` and the line for quotes that do not enclose a
/// whole field, and for files that are not UTF-8.
std::vector<CsvRecord> parse_csv(const std::string& file, std::string_view text);

}  // namespace convnet
