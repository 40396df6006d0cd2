#include "providers/csv.h"

#include <fmt/format.h>

#include <cstddef>

#include "convnet/base/error.h"
#include "convnet/base/text_file.h"

namespace convnet {
namespace {

/// Reads a text from its beginning to its end.
class CsvParser {
 public:
  CsvParser(const std::string& file, std::string_view text) : file_(file), text_(text) {}

  bool at_end() const { return at_ == text_.size(); }
  /// Skips a line break, if there is one here.
  bool skip_line_break();
  CsvRecord record();

 private:
  bool sees(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  bool ends_field() const { return at_end() || sees(",") || sees("\n"); }
  std::string field();
  std::string quoted_field();
  [[noreturn]] void fail(std::int64_t line, const char* what) const {
    throw InputError(fmt::format("{}:{}: {}", file_, line, what));
  }

  const std::string& file_;
  std::string_view text_;
  std::size_t at_ = 0;
  std::int64_t line_ = 1;
};

bool CsvParser::skip_line_break() {
  if (!sees("\n")) return false;
  ++at_;
  ++line_;
  return true;
}

CsvRecord CsvParser::record() {
  CsvRecord record{line_, {field()}};
  while (sees(",")) {
    ++at_;
    record.fields.push_back(field());
  }
  return record;
}

std::string CsvParser::field() {
  if (sees("\"")) return quoted_field();
  const std::size_t begin = at_;
  for (; !ends_field(); ++at_)
    if (text_[at_] == '"')
      fail(line_,
           "a quote in the middle of a field; the whole field should be in quotes, and the quote doubled");
  return std::string(text_.substr(begin, at_ - begin));
}

std::string CsvParser::quoted_field() {
  const std::int64_t begin = line_;
  std::string field;
  for (++at_; !at_end(); ++at_) {
    const char c = text_[at_];
    if (c == '"' && !sees("\"\"")) {
      ++at_;
      if (!ends_field())
        fail(line_, "a field goes on after its closing quote; quotes within it should be doubled");
      return field;
    }
    if (c == '"') ++at_;
    if (c == '\n') ++line_;
    field += c;
  }
  fail(begin, "a field in quotes begins here, and has no closing quote");
}

}  // namespace

std::vector<CsvRecord> parse_csv(const std::string& file, std::string_view text) {
  const std::string plain = text_of(file, text, NotUtf8::is_error);
  CsvParser parser(file, plain);
  std::vector<CsvRecord> records;
  while (!parser.at_end()) {
    if (parser.skip_line_break()) continue;
    records.push_back(parser.record());
    parser.skip_line_break();
  }
  return records;
}

}  // namespace convnet
