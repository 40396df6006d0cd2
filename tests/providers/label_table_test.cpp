#include "providers/label_table.h"

#include "convnet/base/error.h"
#include "tests/catch.h"
#include "tests/temp_folder.h"

using namespace convnet;

namespace {

using Texts = std::vector<std::string>;

const std::vector<PhotoName> table_photos = {{"a.jpg"}, {"b.png"}, {"more/a.png"}, {"more/c.JPEG"}};

PhotoLabels match_table(const std::string& text) {
  return match_labels(parse_label_table("t.csv", text), table_photos, "photos");
}

std::string table_error_of(const std::string& text) {
  return message_of<InputError>([&] { match_table(text); });
}

}  // namespace

TEST_CASE("rows name photos by path or name, with or without extension", "[label_table]") {
  const PhotoLabels exact = match_table("more/a.png,dog\na.jpg,cat\n./b.png,cat\n");
  CHECK(exact.class_names == Texts{"cat", "dog"});
  CHECK(exact.labels == std::vector<int>{0, 0, 1, -1});
  // "a" alone is the photo with this path, not the one in a folder.
  CHECK(match_table("more/a,dog\na,cat\nc,cat\n").labels == std::vector<int>{0, -1, 1, 0});
  CHECK(match_table("c.JPEG, cat \nb\t,dog").labels == std::vector<int>{-1, 1, -1, 0});
  CHECK(
      message_of<InputError>([] {
        match_labels(parse_label_table("t.csv", "x,1\nx,2"), {{"p/x.jpg"}, {"q/x.jpg"}, {"x.txt"}}, "photos");
      }) == "t.csv:1: 'x' may be 'p/x.jpg' or 'q/x.jpg'; give the path below the folder with the extension");
}

TEST_CASE("rows name photos in tars with or without the tar", "[label_table]") {
  const std::vector<PhotoName> photos = {
      {"a.tar/1.png", 6}, {"b.tar/1.png", 6}, {"b.tar/p/2.png", 6}, {"c/b.tar/p/3.png", 8}};
  const auto labels = [&](const std::string& text) {
    return match_labels(parse_label_table("t.csv", text), photos, "photos").labels;
  };
  CHECK(labels("b.tar/1.png,cat\na.tar/1,dog\np/2.png,cat\np/3,dog") == std::vector<int>{1, 0, 0, 1});
  CHECK(labels("b.tar/p/2.png,cat\nc/b.tar/p/3,dog") == std::vector<int>{-1, -1, 0, 1});
  CHECK(message_of<InputError>([&] { labels("2,cat\n1.png,dog"); }) ==
        "t.csv:2: '1.png' may be 'a.tar/1.png' or 'b.tar/1.png'; give the path below the folder with the "
        "extension");
}

TEST_CASE("classes that are numbers are ordered as numbers", "[label_table]") {
  CHECK(match_table("a.jpg,10\nb,9\nmore/a,-1\nc,2.5").class_names == Texts{"-1", "2.5", "9", "10"});
  CHECK(match_table("a.jpg,10\nb,9\nmore/a,x").class_names == Texts{"10", "9", "x"});
  CHECK(match_table("a.jpg,inf\nb,9").class_names == Texts{"9", "inf"});
}

TEST_CASE("a header names no photo and no class of another line", "[label_table]") {
  CHECK(match_table("id,label\na,cat\nb,dog").class_names == Texts{"cat", "dog"});
  CHECK(match_table("id,label\na,cat\nb,dog").header == "t.csv:1: 'id,label'");
  // The first line of these is a row.
  CHECK(match_table("a,label\nb,dog").header.empty());
  CHECK(match_table("a,label\nb,dog").class_names == Texts{"dog", "label"});
  CHECK(table_error_of("x.jpg,fox\nb,dog") ==
        "t.csv:1: there is no photo 'x.jpg' in photos; photos there are named like 'a.jpg'");
  CHECK(table_error_of("x,dog\nb,dog") ==
        "t.csv:1: there is no photo 'x' in photos; photos there are named like 'a.jpg'");
  CHECK(table_error_of("id,label\n") ==
        "t.csv:1: there is no photo 'id' in photos; photos there are named like 'a.jpg'");
}

TEST_CASE("errors in tables name file and line", "[label_table]") {
  CHECK(table_error_of("id,label\na,cat\nx,cat\nb,dog\ny,dog\nz,dog\n") ==
        "t.csv:3: there is no photo 'x' in photos, nor those of 2 other lines; photos there are named like "
        "'a.jpg'");
  CHECK(table_error_of("a,cat\nb,dog\na.jpg,cat\n") == "t.csv:3: names 'a.jpg', which line 1 names, too");
  CHECK(table_error_of("a,cat\nb;dog\n") ==
        "t.csv:2: has 1 field(s); a line should be PHOTO,CLASS, separated by a comma");
  CHECK(table_error_of("id,label,age\n") ==
        "t.csv:1: has 3 field(s); a line should be PHOTO,CLASS, separated by a comma");
  CHECK(table_error_of("a,cat\n ,dog\n") == "t.csv:2: has no name of a photo before the comma");
  CHECK(table_error_of("a,cat\nb,\n") == "t.csv:2: gives 'b' no class");
  CHECK(table_error_of("a,\"cat\ndog\"\n") == "t.csv:1: the class 'cat\\x0adog' holds control characters");
  CHECK(table_error_of("\n") == "t.csv: is empty; its lines should be PHOTO,CLASS");
}
