// Tests over several views of each image.
#include "tests/catch.h"
#include "tests/cli/small_net.h"

namespace convnet {
namespace {

/// The last line of averages; fails unless the run went well.
std::string tested(const Args& args) {
  const Outcome run = run_program(args);
  INFO(run.out << run.err);
  REQUIRE(run.code == 0);
  const std::size_t rule = run.out.rfind("-Averages-");
  REQUIRE(rule != std::string::npos);
  const std::size_t begin = run.out.find('\n', rule) + 1;
  return run.out.substr(begin, run.out.find('\n', begin) - begin);
}

}  // namespace

TEST_CASE("a multiview test averages the softmax, however it is cut and placed") {
  const Workshop shop;
  shop.write_data();
  const Args run = shop.mnist() + Args{"--epochs", "2", "--test-freq", "1"};
  tested(run + Args{"--save-file", shop / "crops", "--inner-size", "6"});
  const Args test = {"--load-file", shop / "crops", "--test-only", "1"};
  const std::string single = tested(test), views = tested(test + Args{"--multiview-test", "1"});
  CHECK(views != single);
  // The mean probability's cost is at most the mean cost of the views; errors stay fractions of images.
  CHECK(std::stod(views.substr(views.find(':') + 1)) < 3);
  // 20 images: minibatches of one, of all but the last, and on several devices of some, one of which may have
  // none.
  for (const char* mini : {"1", "9", "171", "1000"})
    CHECK(tested(test + Args{"--multiview-test", "1", "--mini", mini}) == views);
  for (const char* mini : {"16", "45", "1000"})
    CHECK(tested(test + Args{"--multiview-test", "1", "--mini", mini, "--parallel", "data", "--gpu",
                             "0,1,2"}) == views);

  // A run that tests so from the beginning, also all batches at once.
  CHECK(tested(run + Args{"--save-file", shop / "multi", "--inner-size", "6", "--multiview-test", "1",
                          "--test-one", "0"}) == views);

  // Nine equal views are one.
  tested(run + Args{"--save-file", shop / "whole", "--inner-size", "8"});
  const Args whole = {"--load-file", shop / "whole", "--test-only", "1"};
  CHECK(tested(whole + Args{"--multiview-test", "1"}) == tested(whole));
}

TEST_CASE("rscale leaves views of its output's size as they are") {
  const Workshop shop;
  shop.write_data();
  const auto tests_with = [&](const std::string& scale) {
    shop.write(
        "[data]\ntype=data\ndataIdx=0\n[labels]\ntype=data\ndataIdx=1\n"
        "[scaled]\ntype=rscale\ninputs=data\nchannels=1\ntgtSize=6\nmaxScale=" +
            scale +
            "\n[fc10]\ntype=fc\ninputs=scaled\noutputs=10\ninitW=0.01\n[probs]\ntype=softmax\ninputs=fc10\n"
            "[logprob]\ntype=cost.logreg\ninputs=labels,probs\n",
        "[fc10]\nepsW=0\nepsB=0\nmomW=0\nmomB=0\n[logprob]\ncoeff=1\n");
    tested(shop.mnist() +
           Args{"--save-file", shop / scale, "--inner-size", "6", "--epochs", "1", "--test-freq", "1"});
    const Args test = {"--load-file", shop / scale, "--test-only", "1"};
    return std::pair{tested(test), tested(test + Args{"--multiview-test", "1"})};
  };
  const auto [centre, views] = tests_with("1");
  const auto [scaled_centre, scaled_views] = tests_with("1.4");
  CHECK(scaled_centre != centre);
  CHECK(scaled_views == views);
}

TEST_CASE("multiview tests need crops") {
  const Workshop shop;
  shop.write_data();
  check_refused(shop.mnist() + Args{"--save-file", shop / "run", "--multiview-test", "1"},
                "--multiview-test needs --inner-size, the side of the views");
}

TEST_CASE("a multiview test of a run without crops is not advised to add them") {
  const Workshop shop;
  shop.write_data();
  run_well(shop.mnist() + Args{"--save-file", shop / "run", "--epochs", "1"});
  const Args test = {"--load-file", shop / "run", "--test-only", "1", "--multiview-test", "1"};
  for (const Args& args : {test, test + Args{"--inner-size", "6"}})
    check_refused(args, (shop / "run/1.1.safetensors") +
                            ": --multiview-test averages over crops of each image, but this run sees whole "
                            "images: it has no --inner-size, and keeps that for all of its life; test it "
                            "without --multiview-test, or train a new run with --inner-size");
}

}  // namespace convnet
