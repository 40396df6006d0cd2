// The six ImageNet nets of cuda-convnet2 in small (tests/nets/imagenet-…), written in its way: they train on
// the devices that their gpu= lines name, and where these do not change the answer it is that of one device.
#include <regex>

#include "convnet/plan/verify.h"
#include "tests/parallel/placed_nets.h"
#include "tests/source_dir.h"

using namespace convnet;
using namespace convnet::test;

namespace {

const Dims kPhoto = {3, 64, 64};
constexpr int kPhotoClasses = 20;

struct ImageNet {
  std::string name;
  int devices = 1, passes = 1;
};
const std::vector<ImageNet> kNets = {{"imagenet-1gpu", 1, 1},       {"imagenet-2gpu-data", 2, 1},
                                     {"imagenet-2gpu-model", 2, 1}, {"imagenet-2gpu-data-model", 2, 2},
                                     {"imagenet-4gpu-data", 4, 1},  {"imagenet-4gpu-data-model", 4, 4}};

NetTexts texts_of(const ImageNet& net) {
  const std::string path = "tests/nets/" + net.name;
  return {source_text(path + ".cfg"), source_text(path + "-params.cfg")};
}

NetOptions on(int devices) {
  NetOptions options;
  options.gpu = device_list(devices);
  return options;
}

/// A few minibatches, the last of them short, and a test.
Trained train_photos(const NetTexts& texts, int devices) {
  SmallNet net(texts, kPhoto, kPhotoClasses, on(devices));
  Trained trained;
  std::uint64_t iteration = 0;
  for (const std::int64_t images : {8, 8, 5}) {
    const Minibatch batch = random_minibatch(kPhoto, images, kPhotoClasses, iteration);
    REQUIRE_NOTHROW(verify(net.prepare(Phase::train, images), net.graph()));
    trained.costs.push_back(net.step(Phase::train, batch, iteration++).costs);
  }
  trained.costs.push_back(
      net.step(Phase::test, random_minibatch(kPhoto, 6, kPhotoClasses, 77), iteration).costs);
  trained.tensors = net.tensors();
  return trained;
}

}  // namespace

TEST_CASE("small forms of cuda-convnet2's ImageNet nets train where their files put them") {
  for (const ImageNet& net : kNets) {
    INFO(net.name);
    const NetTexts texts = texts_of(net);
    const Built built = build_net(texts, ShapeOnlyProvider(kPhoto, kPhotoClasses));
    CAPTURE(built.errors, built.warnings);
    REQUIRE(built.errors.empty());
    CHECK(built.warnings.empty());
    CHECK(built.graph.gpu_count() == net.devices);
    CHECK(built.graph.passes == net.passes);

    const Trained trained = train_photos(texts, net.devices);
    for (const std::vector<double>& costs : trained.costs)
      for (double cost : costs) CHECK(std::isfinite(cost));
    CHECK(trained.costs.front().at(0) > 0);
    for (const auto& [name, tensor] : trained.tensors) {
      INFO(name);
      const bool moved =
          std::any_of(tensor.values.begin(), tensor.values.end(), [](float v) { return v != 0; });
      CHECK(moved);
    }

    // With one update a minibatch the answer is that of one device.
    NetTexts once = texts;
    once.parameters = std::regex_replace(once.parameters, std::regex("updatePeriod=1\n"),
                                         "updatePeriod=" + std::to_string(net.passes) + "\n");
    CHECK((once.parameters == texts.parameters) == (net.passes == 1));
    NetTexts plain = once;
    plain.definition = std::regex_replace(plain.definition, std::regex("\ngpu=[0-9,]*"), "");
    plain.parameters = std::regex_replace(plain.parameters, std::regex("updatePeriod=[0-9]+\n"), "");
    if (net.devices > 1) CHECK(plain.definition != texts.definition);
    check_same_answer(net.passes == 1 ? trained : train_photos(once, net.devices), train_photos(plain, 1));
  }
}
