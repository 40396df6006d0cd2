// Hashes of the weights after some steps, recorded once: a change of the program's structure must not change
// a bit. Kernels are chosen by the processor's instructions and caches, so the recorded values belong to one
// model of processor and one instruction set each.
#include <cstdint>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "convnet/base/checksum.h"
#include "kernels/cpu/instruction_set.h"
#include "tests/catch.h"
#include "tests/layers/small_net.h"
#include "tests/source_dir.h"

using namespace convnet;
using namespace convnet::test;

namespace {

/// Returns vendor, family and model from /proc/cpuinfo, and the instruction set: "GenuineIntel 6 106 AVX2".
std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  std::map<std::string, std::string> first;
  for (std::string line; std::getline(file, line) && !line.empty();) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos || colon + 2 > line.size()) continue;
    first[line.substr(0, line.find_last_not_of(" \t:", colon) + 1)] = line.substr(colon + 2);
  }
  return first["vendor_id"] + " " + first["cpu family"] + " " + first["model"] + " " +
         name_of(instruction_set());
}

struct HashedNet {
  std::string name;   ///< name in the table of recorded hashes
  std::string files;  ///< path of the cfg file, without ".cfg"
  Dims image;
  NetOptions options;
};

/// Returns FNV-1a over names and bytes of all tensors after three minibatches of 12, 12 and 7 images.
std::string hash_of(const HashedNet& hashed) {
  SmallNet net({source_text(hashed.files + ".cfg"), source_text(hashed.files + "-params.cfg")}, hashed.image,
               10, hashed.options);
  std::uint64_t iteration = 0;
  for (const std::int64_t images : {12, 12, 7}) {
    net.step(Phase::train, random_minibatch(hashed.image, images, 10, iteration), iteration);
    ++iteration;
  }
  Fnv1a hash;
  for (const auto& [name, tensor] : net.tensors()) {
    hash.add(name);
    hash.add({reinterpret_cast<const char*>(tensor.values.data()), tensor.values.size() * sizeof(float)});
  }
  std::ostringstream text;
  text << std::hex << hash.value();
  return text.str();
}

std::vector<HashedNet> hashed_nets() {
  NetOptions two_devices;
  two_devices.gpu = "0,1";
  NetOptions replicas = two_devices;
  replicas.data_parallel = true;
  return {{"lenet", "configs/lenet", {1, 28, 28}, {}},
          {"hybrid", "tests/nets/seed-hybrid", {3, 24, 24}, two_devices},
          {"bnorm", "configs/wrn-16-4", {3, 32, 32}, replicas}};
}

}  // namespace

TEST_CASE("training twice gives the same weights, to the bit") {
  for (const HashedNet& net : hashed_nets()) {
    INFO(net.name);
    CHECK(hash_of(net) == hash_of(net));
  }
}

TEST_CASE("weights after some steps are those of earlier versions, to the bit") {
  using Hashes = std::map<std::string, std::string>;  // by net
  const std::map<std::string, Hashes> recorded = {
      {"AuthenticAMD 26 2 AVX512_CORE_BF16",
       {{"lenet", "8665120661a0892b"}, {"hybrid", "becf719b55a7f3f4"}, {"bnorm", "e4a2c93da740cfb3"}}},
      {"GenuineIntel 6 207 AVX512_CORE_BF16",
       {{"lenet", "8665120661a0892b"}, {"hybrid", "becf719b55a7f3f4"}, {"bnorm", "e4a2c93da740cfb3"}}},
      {"AuthenticAMD 26 2 AVX2",
       {{"lenet", "1d6303e3186ff7e9"}, {"hybrid", "7268aceb8d688b07"}, {"bnorm", "ae138cfce7b648d4"}}},
      {"AuthenticAMD 23 1 AVX2",
       {{"lenet", "1d6303e3186ff7e9"}, {"hybrid", "7268aceb8d688b07"}, {"bnorm", "ae138cfce7b648d4"}}},
  };
#if defined(NDEBUG) && !defined(CONVNET_CHECKS)
  const auto known = recorded.find(processor());
#else
  const auto known = recorded.end();  // other builds vectorise sums in another order
#endif
  if (known == recorded.end())
    return skip("no hashes are recorded for builds like this one on this processor, " + processor());
  for (const HashedNet& net : hashed_nets()) {
    INFO(net.name << " on " << processor());
    CHECK(hash_of(net) == known->second.at(net.name));
  }
}
