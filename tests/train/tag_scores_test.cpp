// Average precision and F1 of tags.
#include "convnet/net/tag_scores.h"

#include "tests/catch.h"

namespace convnet {
namespace {

TEST_CASE("a threshold is printed so that an option takes it") {
  for (const float threshold : {0.0F, 1e-7F, 0.00133F, 0.1F, 0.5F, 0.99999988F, 1.0F}) {
    const double printed = std::stod(threshold_text(threshold));
    CHECK(printed <= threshold);
    CHECK(printed >= threshold * (1 - 1e-7));
  }
}

TEST_CASE("average precision and F1 of tags are those of scikit-learn", "[tags]") {
  TagScores scores({"sun", "sea", "never"}, 0.5);
  const std::vector<std::vector<float>> probabilities = {
      {0.9F, 0.2F, 0.1F}, {0.8F, 0.6F, 0.6F}, {0.7F, 0.6F, 0.2F}, {0.4F, 0.1F, 0.3F}, {0.1F, 0.6F, 0.0F}};
  const std::vector<std::vector<float>> targets = {{1, 0, 0}, {0, 1, 0}, {1, 0, 0}, {1, 1, 0}, {0, 1, 0}};
  for (std::size_t i = 0; i < probabilities.size(); ++i) scores.add(probabilities[i], targets[i]);
  const std::vector<TagScore> tags = scores.results().tags;
  REQUIRE(tags.size() == 2);  // nothing can be said of a tag that no image has
  // sun, by probability: 1 0 1 1 0: (1 + 2/3 + 3/4) / 3
  CHECK(tags[0].average_precision == Approx((1 + 2.0 / 3 + 3.0 / 4) / 3));
  CHECK(tags[0].images == 3);
  CHECK(tags[0].taken == 3);
  CHECK(tags[0].precision() == Approx(2.0 / 3));
  CHECK(tags[0].recall() == Approx(2.0 / 3));
  CHECK(tags[0].f1() == Approx(2.0 / 3));
  CHECK(tags[0].best_threshold == Approx(0.4));
  CHECK(tags[0].best_f1 == Approx(6.0 / 7));
  // sea: three of equal probability count together, two of them have it; the last one is the third.
  CHECK(tags[1].average_precision == Approx(2.0 / 3 * 2 / 3 + 1.0 / 3 * 3 / 5));
  CHECK(tags[1].taken == 3);
  CHECK(tags[1].right == 2);
  const TagMeans means = scores.results().means;
  CHECK(means.tags == 2);
  CHECK(means.average_precision == Approx((tags[0].average_precision + tags[1].average_precision) / 2));
  CHECK(means.f1 == Approx(2.0 / 3));
  CHECK(means.pooled_f1 == Approx(2.0 * 4 / (6 + 7)));
  const std::string table = scores.table(1);
  INFO(table);
  CHECK(table.find("  sea") != std::string::npos);
  CHECK(table.find("  and 1 more tags; --json 1 has all\n") != std::string::npos);
  CHECK(table.find("Means over 2 tags: average precision (mAP)") != std::string::npos);
}

TEST_CASE("scores of no images, and thresholds at the ends", "[tags]") {
  CHECK(TagScores({"a"}, 0.5).results().means.tags == 0);
  CHECK(TagScores({"a"}, 0.5).table(9).find("Means over 0 tags: average precision (mAP) 0.0000") !=
        std::string::npos);
  TagScores all({"a"}, 0);
  all.add(std::vector<float>{0}, std::vector<float>{1});
  all.add(std::vector<float>{1}, std::vector<float>{0});
  CHECK(all.results().tags.at(0).taken == 2);
  CHECK(all.results().tags.at(0).average_precision == Approx(0.5));
}

}  // namespace
}  // namespace convnet
