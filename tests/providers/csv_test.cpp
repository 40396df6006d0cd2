#include "providers/csv.h"

#include "convnet/base/error.h"
#include "tests/catch.h"
#include "tests/temp_folder.h"

using namespace convnet;

namespace {

using Fields = std::vector<std::string>;

std::vector<Fields> csv_fields_of(const std::string& text) {
  std::vector<Fields> all;
  for (const CsvRecord& record : parse_csv("t.csv", text)) all.push_back(record.fields);
  return all;
}

std::string csv_error_of(const std::string& text) {
  return message_of<InputError>([&] { parse_csv("t.csv", text); });
}

}  // namespace

TEST_CASE("CSV fields stand between commas and line ends", "[csv]") {
  CHECK(csv_fields_of("a,b\nc,d\n") == std::vector<Fields>{{"a", "b"}, {"c", "d"}});
  CHECK(csv_fields_of("a,b\r\nc,d") == std::vector<Fields>{{"a", "b"}, {"c", "d"}});
  CHECK(csv_fields_of("\xEF\xBB\xBF"
                      "a,,b\n,\n") == std::vector<Fields>{{"a", "", "b"}, {"", ""}});
  CHECK(csv_fields_of(" a , b\r\r\n") == std::vector<Fields>{{" a ", " b\r"}});
  CHECK(csv_fields_of("").empty());
  CHECK(csv_fields_of("\n\r\n\n").empty());
}

TEST_CASE("CSV fields in quotes hold commas, quotes and line ends", "[csv]") {
  CHECK(csv_fields_of("\"a,1\",\"b \"\"c\"\"\"\r\n\"\",\"d\r\ne\"\n") ==
        std::vector<Fields>{{"a,1", "b \"c\""}, {"", "d\ne"}});
  CHECK(csv_fields_of("\"a\"") == std::vector<Fields>{{"a"}});
  const std::vector<CsvRecord> records = parse_csv("t.csv", "\n\"a\n\nb\",c\r\n\nd,e");
  REQUIRE(records.size() == 2);
  CHECK(records[0].line == 2);
  CHECK(records[1].line == 6);
}

TEST_CASE("CSV errors name the line", "[csv]") {
  CHECK(csv_error_of("a,b\n\"a\nb") == "t.csv:2: a field in quotes begins here, and has no closing quote");
  CHECK(csv_error_of("\"a\n\"b,c") ==
        "t.csv:2: a field goes on after its closing quote; quotes within it should be doubled");
  CHECK(csv_error_of("a,b\nc,d \"e\"\n") ==
        "t.csv:2: a quote in the middle of a field; the whole field should be in quotes, and the quote "
        "doubled");
  CHECK(csv_error_of("a,b\nc,\xE9\nd,e") ==
        "t.csv:2: holds bytes that are no UTF-8 (perhaps Latin-1); save it in UTF-8");
  CHECK(csv_error_of(std::string("\xFF\xFE") + "a") == "t.csv: is a text in UTF-16; save it in UTF-8");
  CHECK(csv_error_of(std::string("PK\3\4") + std::string(26, '\0') + "[Content_Types].xml") ==
        "t.csv: is an Office document, not a text file; save it as CSV in UTF-8");
  CHECK(csv_error_of(std::string("a,b\nc,\0d\n", 9)) == "t.csv:2: holds a NUL byte; this is not a text file");
}
