// --find-rate: which rates a search suggests for curves of known form.
#include "convnet/train/rate_search.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "convnet/config/schedule.h"
#include "tests/catch.h"

namespace convnet {
namespace {

/// The cost at a factor of a net that learns best around 0.1 and explodes at 10; `noise` is a deviation.
RateSearch search_of_valley(double noise) {
  std::mt19937 random(1);
  std::normal_distribution<double> normal(0, noise);
  RateSearch search;
  while (!search.ended()) {
    const double decades = std::log10(search.factor());
    const double falls = 2 - 1.5 / (1 + std::exp(-6 * (decades + 1)));
    search.add(decades > 1 ? 100 * std::pow(10, decades) : falls + normal(random));
  }
  return search;
}

TEST_CASE("a search suggests the factor at which the cost falls most steeply") {
  for (const double noise : {0.0, 0.05, 0.1}) {
    INFO(noise);
    const RateSearch search = search_of_valley(noise);
    CHECK(search.exploded());
    const auto found = search.suggestion();
    REQUIRE(found);
    CHECK(found->factor > 0.06);
    CHECK(found->factor < 0.17);
    CHECK(found->slope < -1);
  }
}

TEST_CASE("a search tries factors from 1e-4 to 1e4, sixteen in each decade") {
  RateSearch search;
  CHECK(search.factor() == Approx(1e-4));
  for (int i = 0; i < 16; ++i) search.add(1);
  CHECK(search.factor() == Approx(1e-3));
  while (!search.ended()) search.add(1);
  CHECK(search.minibatches() == static_cast<std::size_t>(RateSearch::most_minibatches()));
  CHECK(search.curve().back().factor == Approx(1e4));
  CHECK_FALSE(search.exploded());
}

TEST_CASE("a search ends when the smoothed cost is above its lowest value by three times the first cost") {
  RateSearch search;
  search.add(2);
  search.add(100);  // the running average is 0.8 · 2 + 0.2 · 100
  CHECK(search.exploded());
  RateSearch below;
  below.add(2);
  below.add(30);
  CHECK_FALSE(below.ended());
  below.add(std::numeric_limits<double>::quiet_NaN());
  CHECK(below.exploded());
  for (const RateSearch::Point& p : below.curve()) CHECK(std::isfinite(p.smoothed));
}

TEST_CASE("a search suggests nothing where the cost does not fall") {
  RateSearch at_once;
  at_once.add(std::numeric_limits<double>::infinity());
  CHECK(at_once.ended());
  CHECK_FALSE(at_once.suggestion());
  CHECK(curve_text(at_once).empty());
  RateSearch flat, rising, noisy;
  std::mt19937 random(2);
  std::normal_distribution<double> normal(0, 0.2);
  while (!flat.ended()) flat.add(2.3);
  while (!rising.ended()) rising.add(2.3 + 0.01 * static_cast<double>(rising.minibatches()));
  while (!noisy.ended()) noisy.add(2.3 + normal(random));
  for (const RateSearch* search : {&flat, &rising, &noisy}) {
    CHECK_FALSE(search->suggestion());
    CHECK(nlohmann::json::parse(rates_json(*search, 16))["rate_factor"].is_null());
  }
}

TEST_CASE("costs below 0 explode upwards") {
  RateSearch search;
  for (int i = 0; i < 20; ++i) search.add(-1 - 0.1 * i);
  CHECK_FALSE(search.ended());
  while (!search.ended()) search.add(50);
  CHECK(search.exploded());
}

TEST_CASE("the curve of a search fits a terminal, and its marks are the points") {
  const std::string text = curve_text(search_of_valley(0.02));
  std::size_t begin = 0, marks = 0;
  for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
    CHECK(end - begin < 80);
  for (const char c : text) marks += c == '*' ? 1 : 0;
  CHECK(marks > 40);
  CHECK(text.find(" o") != std::string::npos);
  CHECK(text.find("0.0001") != std::string::npos);
}

TEST_CASE("JSON of a search has its points") {
  const RateSearch search = search_of_valley(0);
  const nlohmann::json results = nlohmann::json::parse(rates_json(search, 64));
  CHECK(results["minibatch"] == 64);
  CHECK(results["exploded"] == true);
  CHECK(results["rate_factor"].get<double>() == search.suggestion()->factor);
  REQUIRE(results["curve"].size() == search.minibatches());
  CHECK(results["curve"][0]["factor"].get<double>() == Approx(1e-4));
}

TEST_CASE("rates without their warm-up are those at its end") {
  const Schedule schedule = Schedule::parse("cosine[base=0.1;warmup=5]");
  TrainingProgress start;
  CHECK(schedule.at(start) < 0.05);
  start.warmed_up = true;
  CHECK(schedule.at(start) == Approx(0.1));
}

}  // namespace
}  // namespace convnet
