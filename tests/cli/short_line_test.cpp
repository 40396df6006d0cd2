// Command lines that name a net and its data, and leave the rest to the program.
#include "tests/catch.h"
#include "tests/cli/small_net.h"

namespace convnet {
namespace {

/// A command line for a set of write_data(), of batches 1 and 2, whose run ends at once.
Args line_of(const Workshop& shop) {
  return {"--data-path", shop.data_path(), "--layer-def", "small",     "--epochs",
          "1",           "--mini",         "20",          "--threads", "1"};
}

/// Runs the program in the folder of a workshop.
Outcome run_in(const Workshop& shop, const Args& args) {
  return Program(Args{"-c", "cd \"$1\" && shift && exec \"$@\"", "sh", shop.path(), CONVNET_PROGRAM} + args,
                 "/bin/sh")
      .finish();
}

TEST_CASE("a run with a net by its name needs no folder, and keeps the best test") {
  const Workshop shop;
  shop.write_data();
  const Outcome first = run_in(shop, line_of(shop));
  INFO(first.out << first.err);
  REQUIRE(first.code == 0);
  CHECK(first.out.find("Not given, and chosen: --save-file runs/small-set\n") != std::string::npos);
  CHECK(
      first.out.find(
          "Not given, and chosen for a net that is given by its name: --keep-best logprob, --test-freq 0") !=
      std::string::npos);
  for (const char* const next : {"  use it:      convnet predict runs/small-set/best.safetensors FILE...\n",
                                 "  export it:   convnet export runs/small-set/best.safetensors net.onnx\n",
                                 "  look at it:  convnet show runs/small-set --html page.html\n",
                                 "  train on:    convnet --load-file runs/small-set --epochs 2\n"}) {
    INFO(next);
    CHECK(first.out.find(next) != std::string::npos);
  }
  const Args files = files_in(shop / "runs/small-set");
  CHECK(std::count(files.begin(), files.end(), "best.safetensors") == 1);
  // The next run has a folder of its own.
  CHECK(run_in(shop, line_of(shop)).out.find("--save-file runs/small-set_2\n") != std::string::npos);
  CHECK(files_in(shop / "runs/small-set") == files);
  const Outcome resumed = run_in(shop, {"--load-file", "runs/small-set", "--epochs", "2"});
  CHECK(resumed.code == 0);
  CHECK(resumed.out.find("  best test:   logprob") != std::string::npos);
}

TEST_CASE("a run with a net by its name does what its options say") {
  const Workshop shop;
  shop.write_data();
  const Outcome run =
      run_in(shop, line_of(shop) + Args{"--save-file", "own", "--keep-best", "", "--test-freq", "1"});
  INFO(run.out << run.err);
  REQUIRE(run.code == 0);
  const Args files = files_in(shop / "own");
  CHECK(std::count(files.begin(), files.end(), "best.safetensors") == 0);
  CHECK_FALSE(std::filesystem::exists(shop / "runs"));
}

TEST_CASE("a run with a net by its name that cannot begin leaves no folder") {
  const Workshop shop;
  shop.write_data();
  CHECK(run_in(shop, line_of(shop) + Args{"--keep-best", "logprop"}).code == 2);
  CHECK_FALSE(std::filesystem::exists(shop / "runs"));
  // Nor do commands that train nothing.
  CHECK(run_in(shop, line_of(shop) + Args{"--find-rate"}).code == 0);
  CHECK(run_in(shop, Args{"plan"} + line_of(shop)).code == 0);
  CHECK_FALSE(std::filesystem::exists(shop / "runs"));
}

}  // namespace
}  // namespace convnet
