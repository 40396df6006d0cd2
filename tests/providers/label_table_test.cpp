#include "providers/label_table.h"

#include "convnet/base/error.h"
#include "tests/catch.h"
#include "tests/temp_folder.h"

using namespace convnet;

namespace {

using Texts = std::vector<std::string>;

const std::vector<PhotoName> table_photos = {{"a.jpg"}, {"b.png"}, {"more/a.png"}, {"more/c.JPEG"}};

PhotoLabels match_table(const std::string& text, LabelKind kind = LabelKind::automatic) {
  return match_labels(parse_label_table("t.csv", text), table_photos, "photos", kind);
}

/// Returns the class of each photo, -1 for photos without a row.
std::vector<int> classes_in(const PhotoLabels& found) {
  CHECK(found.kind == LabelKind::classes);
  std::vector<int> classes;
  for (const PhotoLabel& photo : found.photos) classes.push_back(photo.has_row ? photo.labels.at(0) : -1);
  return classes;
}

std::string table_error_of(const std::string& text, LabelKind kind = LabelKind::automatic) {
  return message_of<InputError>([&] { match_table(text, kind); });
}

using Labels = std::vector<std::int32_t>;

}  // namespace

TEST_CASE("rows name photos by path or name, with or without extension", "[label_table]") {
  const PhotoLabels exact = match_table("more/a.png,dog\na.jpg,cat\n./b.png,cat\n");
  CHECK(exact.names == Texts{"cat", "dog"});
  CHECK(classes_in(exact) == std::vector<int>{0, 0, 1, -1});
  // "a" alone is the photo with this path, not the one in a folder.
  CHECK(classes_in(match_table("more/a,dog\na,cat\nc,cat\n")) == std::vector<int>{0, -1, 1, 0});
  CHECK(classes_in(match_table("c.JPEG, cat \nb\t,dog")) == std::vector<int>{-1, 1, -1, 0});
  CHECK(
      message_of<InputError>([] {
        match_labels(parse_label_table("t.csv", "x,1\nx,2"), {{"p/x.jpg"}, {"q/x.jpg"}, {"x.txt"}}, "photos");
      }) == "t.csv:1: 'x' may be 'p/x.jpg' or 'q/x.jpg'; give the path below the folder with the extension");
}

TEST_CASE("rows name photos in tars with or without the tar", "[label_table]") {
  const std::vector<PhotoName> photos = {
      {"a.tar/1.png", 6}, {"b.tar/1.png", 6}, {"b.tar/p/2.png", 6}, {"c/b.tar/p/3.png", 8}};
  const auto labels = [&](const std::string& text) {
    return classes_in(match_labels(parse_label_table("t.csv", text), photos, "photos"));
  };
  CHECK(labels("b.tar/1.png,cat\na.tar/1,dog\np/2.png,cat\np/3,dog") == std::vector<int>{1, 0, 0, 1});
  CHECK(labels("b.tar/p/2.png,cat\nc/b.tar/p/3,dog") == std::vector<int>{-1, -1, 0, 1});
  CHECK(message_of<InputError>([&] { labels("2,cat\n1.png,dog"); }) ==
        "t.csv:2: '1.png' may be 'a.tar/1.png' or 'b.tar/1.png'; give the path below the folder with the "
        "extension");
}

TEST_CASE("classes that are numbers are ordered as numbers", "[label_table]") {
  CHECK(match_table("a.jpg,10\nb,9\nmore/a,-1\nc,2.5").names == Texts{"-1", "2.5", "9", "10"});
  CHECK(match_table("a.jpg,10\nb,9\nmore/a,x").names == Texts{"10", "9", "x"});
  CHECK(match_table("a.jpg,inf\nb,9").names == Texts{"9", "inf"});
}

TEST_CASE("a header names no photo and no class of another line", "[label_table]") {
  CHECK(match_table("id,label\na,cat\nb,dog").names == Texts{"cat", "dog"});
  CHECK(match_table("id,label\na,cat\nb,dog").header == "t.csv:1: 'id,label'");
  // The first line of these is a row.
  CHECK(match_table("a,label\nb,dog").header.empty());
  CHECK(match_table("a,label\nb,dog").names == Texts{"dog", "label"});
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
        "t.csv:2: has 1 field; a line should be PHOTO,CLASS, or PHOTO and tags or numbers, separated by "
        "commas, not semicolons");
  CHECK_THAT(table_error_of("a\tcat\n"), Catch::EndsWith("separated by commas, not tabs"));
  CHECK_THAT(table_error_of("a cat\n"), Catch::EndsWith("separated by commas"));
  CHECK(table_error_of("a,cat\nb,dog,1\n") == "t.csv:2: has 3 fields, where the lines before have 2");
  CHECK(table_error_of("a,cat\n ,dog\n") == "t.csv:2: has no name of a photo before the comma");
  CHECK(table_error_of("a,cat\nb,\n") == "t.csv:2: gives 'b' no class");
  CHECK(table_error_of("a,\"cat\ndog\"\n") == "t.csv:1: the class 'cat\\x0adog' holds control characters");
  CHECK(table_error_of("\n") == "t.csv: is empty; its lines should be PHOTO,CLASS");
}

TEST_CASE("a column may hold several tags of each photo, or none", "[label_table]") {
  for (const char* text : {"a.jpg,red; round\nb,\nmore/a,round;red;round\nc,;blue;\n",
                           "image,tags\na.jpg,red|round\nb, \nmore/a, round |red\nc,blue|\n"}) {
    const PhotoLabels found = match_table(text);
    CHECK(found.kind == LabelKind::tags);
    CHECK(found.names == Texts{"blue", "red", "round"});
    CHECK(found.photos[0].labels == Labels{1, 2});
    CHECK((found.photos[1].has_row && found.photos[1].labels.empty()));
    CHECK(found.photos[2].labels == Labels{1, 2});
    CHECK(found.photos[3].labels == Labels{0});
  }
  // Without a separator a field is a class, unless the option says tags; with it, if the option says classes.
  CHECK(match_table("a.jpg,red\nb,\n", LabelKind::tags).photos[0].labels == Labels{0});
  CHECK(match_table("a.jpg,red;x\nb,y\n", LabelKind::classes).names == Texts{"red;x", "y"});
  CHECK(table_error_of("a.jpg,;\nb,|") == "t.csv:1: no photo has a tag");
}

TEST_CASE("columns of a table are tags if all are 0 or 1, else numbers", "[label_table]") {
  const PhotoLabels tags = match_table("id,round,red\na.jpg,1,0\nb,0.0,1.0\nc,0,0\n");
  CHECK(tags.kind == LabelKind::tags);
  CHECK(tags.names == Texts{"round", "red"});
  CHECK(tags.header == "t.csv:1: 'id,round,red'");
  CHECK(tags.photos[0].labels == Labels{0});
  CHECK(tags.photos[1].labels == Labels{1});
  CHECK_FALSE(tags.photos[2].has_row);
  CHECK((tags.photos[3].has_row && tags.photos[3].labels.empty()));
  const PhotoLabels numbers = match_table("id,x,y\na.jpg,1,-0.5\nb,0,1e3\n");
  CHECK(numbers.kind == LabelKind::numbers);
  CHECK(numbers.names == Texts{"x", "y"});
  CHECK(numbers.photos[0].numbers == std::vector<float>{1, -0.5F});
  CHECK(numbers.photos[1].numbers == std::vector<float>{0, 1000});
  CHECK(numbers.photos[2].numbers.empty());
  CHECK(match_table("id,x,y\na,1,0\n", LabelKind::numbers).photos[0].numbers == std::vector<float>{1, 0});
  // A single column of numbers is classes unless the option says otherwise, but may have been meant as
  // numbers.
  CHECK(match_table("photo,age\na,12.5\nb,40\n").kind == LabelKind::classes);
  CHECK(match_table("photo,age\na,12.5\nb,40\n").may_be_numbers);
  CHECK_FALSE(match_table("photo,age\na,12.5\nb,40\n", LabelKind::classes).may_be_numbers);
  CHECK_FALSE(match_table("a,12.5\nb,old\n").may_be_numbers);
  const PhotoLabels ages = match_table("photo,age\na,12.5\nb,40\n", LabelKind::numbers);
  CHECK(ages.names == Texts{"age"});
  CHECK(ages.photos[1].numbers == std::vector<float>{40});
  CHECK(match_table("a,12.5\nb,40\n", LabelKind::numbers).names == Texts{"number"});

  CHECK(table_error_of("id,x,y\na,1,red\n") ==
        "t.csv:2: 'red' in column 'y' is not a number that float32 holds; a table with several columns has 0 "
        "or 1 "
        "for each tag, or numbers");
  CHECK(table_error_of("a,1e39\nb,2\n", LabelKind::numbers) ==
        "t.csv:1: '1e39' in column 'number' is not a number that float32 holds");
  CHECK(table_error_of("id,x,y\na,1,2\n", LabelKind::tags) ==
        "t.csv:2: '2' in column 'y' is neither 0 nor 1");
  CHECK(table_error_of("id,x,x\na,1,2\n") == "t.csv:1: has two columns 'x'");
  CHECK(table_error_of("id,x,\na,1,2\n") == "t.csv:1: column 3 has no name");
  CHECK(table_error_of("a,1,2\nb,1,2\n") ==
        "t.csv:1: the photo is followed by 2 fields, so the first line should name them: PHOTO,TAG,TAG");
  CHECK(table_error_of("id,x,y\na,1,2\n", LabelKind::classes) ==
        "t.csv:1: a class is one column after the photo; --label-kind tags or numbers takes several");
  CHECK(table_error_of("id,x,y\nz,1,2\n") ==
        "t.csv:2: there is no photo 'z' in photos; photos there are named like 'a.jpg'");
}
