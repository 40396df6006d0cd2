// The file in which choices that were made by timing are kept, and the memory of trials. Only the latter
// needs a device.
#include "kernels/cuda/tuning.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <thread>

#include "convnet/base/error.h"
#include "kernels/cuda/runtime.h"
#include "tests/catch.h"
#include "tests/cuda/both_backends.h"
#include "tests/environment.h"
#include "tests/temp_folder.h"

using namespace convnet;
using cuda::Tuning;
using test::Setting;
using test::test_device;

namespace {

/// Returns the operation's choice; it is `timed` where nothing is kept.
std::string choice(Tuning& tuning, const std::string& operation, const std::string& timed) {
  std::string taken;
  const auto take = [&](const std::string& kept) {
    taken = kept;
    return true;
  };
  tuning.choose(operation, take, [&] { return taken = timed; });
  return taken;
}

}  // namespace

TEST_CASE("what one has timed is the choice of all who use the file") {
  const TempFolder folder;
  const Setting cache("CONVNET_CACHE", folder / "made/for/it");
  Tuning one("A GPU/80"), other("A GPU/80");
  CHECK(choice(one, "conv 1", "a") == "a");
  CHECK(choice(other, "conv 2", "b") == "b");  // keeps conv 1, which was not there when it was made
  CHECK(choice(other, "conv 1", "slower") == "a");
  CHECK(choice(one, "conv 2", "slower") == "b");
  Tuning later("A GPU/80"), another_kind("A GPU/90");
  CHECK(choice(later, "conv 1", "slower") == "a");
  CHECK(choice(later, "conv 2", "slower") == "b");
  CHECK(choice(another_kind, "conv 1", "c") == "c");
  CHECK(std::filesystem::exists(folder / "made/for/it/tuning-A_GPU_80.json"));
}

TEST_CASE("a choice that the library no longer has is made again") {
  const TempFolder folder;
  const Setting cache("CONVNET_CACHE", folder.path());
  Tuning tuning("x");
  CHECK(choice(tuning, "conv", "old") == "old");
  int asked = 0;
  Tuning later("x");
  later.choose(
      "conv", [&](const std::string& kept) { return ++asked > 0 && kept != "old"; }, [] { return "new"; });
  CHECK(asked == 2);  // of what it has, and of what others may have kept since
  CHECK(choice(tuning, "other", "y") == "y");
  Tuning last("x");
  CHECK(choice(last, "conv", "newest") == "new");
}

TEST_CASE("threads of several nets time each operation once") {
  const TempFolder folder;
  const Setting cache("CONVNET_CACHE", folder.path());
  constexpr int kThreads = 4, kOperations = 20;
  std::atomic<int> timed = 0;
  std::vector<std::vector<std::string>> taken(kThreads, std::vector<std::string>(kOperations));
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Tuning tuning("x");
      for (int i = 0; i < kOperations; ++i) {
        std::string& mine = taken[static_cast<std::size_t>(t)][static_cast<std::size_t>(i)];
        const auto take = [&](const std::string& kept) {
          mine = kept;
          return true;
        };
        tuning.choose("conv " + std::to_string(i), take, [&] { return mine = std::to_string(++timed); });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(timed == kOperations);
  for (const auto& of_thread : taken) CHECK(of_thread == taken[0]);
}

TEST_CASE("choices are made where no file can be read or written") {
  const TempFolder folder;
  const Setting cache("CONVNET_CACHE", folder.path());
  const std::string file = folder / "tuning-x.json";
  for (const std::string text : {"", "[1]", "{\"conv\": 3}", "{\"conv\"", "\xff"}) {
    INFO("the file holds '" << text << "'");
    write_file(file, text);
    Tuning tuning("x");
    CHECK(choice(tuning, "conv", "a") == "a");
    CHECK(choice(tuning, "conv", "b") == "a");
  }
  write_file(folder / "no_folder", "");
  const Setting in_a_file("CONVNET_CACHE", folder / "no_folder");
  Tuning tuning("x");
  CHECK(choice(tuning, "conv", "a") == "a");
  CHECK(choice(tuning, "conv", "b") == "a");
}

TEST_CASE("a failure to time keeps nothing") {
  const TempFolder folder;
  const Setting cache("CONVNET_CACHE", folder.path());
  Tuning tuning("x");
  const auto fails = []() -> std::string { throw DeviceError("no engine"); };
  const auto take = [](const std::string&) { return true; };
  CHECK_THROWS_AS(tuning.choose("conv", take, fails), DeviceError);
  CHECK(choice(tuning, "conv", "a") == "a");
}

TEST_CASE("timing can be switched off") {
  const Setting on("CONVNET_TUNING", "");
  CHECK(Tuning("x").times());
  const Setting off("CONVNET_TUNING", "off");
  CHECK_FALSE(Tuning("x").times());
}

TEST_CASE("trials share one memory, which is freed for others") {
  const TempFolder folder;
  const Setting cache("CONVNET_CACHE", folder.path()), tuning_on("CONVNET_TUNING", "");
  Tuning tuning("x");
  std::byte* const small = tuning.arena(0, 1000);
  CHECK(tuning.arena(0, 1000) == small);
  CHECK(tuning.arena(0, 10) == small);
  if (const int other = test_device(); other != 0) CHECK(tuning.arena(other, 1000) != small);
  std::byte* const large = tuning.arena(0, 1 << 20);
  const std::vector<std::byte> ones(1 << 20, std::byte{1});
  cuda::copy_memory(large, ones.data(), std::ssize(ones));  // all of it is there
  CHECK(tuning.arena(0, 1000) == large);
  const Delay* const delay = &tuning.delay(0);
  CHECK(&tuning.delay(0) == delay);
  tuning.free_memory();
  std::vector<std::byte> fresh(1000, std::byte{1});
  cuda::copy_memory(fresh.data(), tuning.arena(0, 1000), std::ssize(fresh));
  CHECK(fresh == std::vector<std::byte>(1000, std::byte{0}));
}

TEST_CASE("fewer candidates are tried where timing them takes long") {
  const TempFolder folder;
  const Setting cache("CONVNET_CACHE", folder.path()), tuning_on("CONVNET_TUNING", "");
  const Tuning tuning("x");
  CHECK(tuning.most_tried(0) == 16);
  CHECK(tuning.most_tried(1.5) == 8);
  CHECK(tuning.most_tried(4) == 2);
  CHECK(tuning.most_tried(100) == 2);
  const Setting off("CONVNET_TUNING", "off");
  CHECK(Tuning("x").most_tried(0) == 1);
}

TEST_CASE("where nothing is timed, nothing is kept") {
  const TempFolder folder;
  const Setting cache("CONVNET_CACHE", folder.path()), off("CONVNET_TUNING", "off");
  Tuning tuning("x");
  const auto refused = [](const std::string&) -> bool { throw std::logic_error("nothing is kept"); };
  for (int i = 0; i < 2; ++i) {
    bool called = false;
    tuning.choose("conv", refused, [&] {
      called = true;
      return "a";
    });
    CHECK(called);
  }
  CHECK(std::filesystem::is_empty(folder.path()));
}
