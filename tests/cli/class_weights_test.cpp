// classWeights=balanced: weights of classes from the labels of the training images.
#include "convnet/train/class_weights.h"

#include <cstring>

#include "convnet/net/data_set.h"
#include "tests/catch.h"
#include "tests/cli/equal_tensors.h"
#include "tests/cli/small_net.h"

namespace convnet {
namespace {

/// Returns the weights that a checkpoint's parameters have.
std::string weights_in(const std::string& run) {
  const std::string text = read_checkpoint(run).parameters_text;
  const std::size_t begin = text.find("classWeights=balanced[");
  REQUIRE(begin != std::string::npos);
  const std::size_t from = begin + std::strlen("classWeights=balanced[");
  return text.substr(from, text.find(']', from) - from);
}

const std::string kBalanced = kParameters + "classWeights=balanced\n";

}  // namespace

TEST_CASE("balanced weights are those of scikit-learn") {
  // compute_class_weight("balanced", classes=[0, 1, 2], y=[0] * 6 + [1] * 3 + [2])
  const std::vector<double> weights = balanced_weights({6, 3, 1});
  REQUIRE(weights.size() == 3);
  CHECK(weights[0] == Approx(0.55555556));
  CHECK(weights[1] == Approx(1.11111111));
  CHECK(weights[2] == Approx(3.33333333));
  // Classes without images do not count.
  CHECK(balanced_weights({3, 0, 1}) == std::vector<double>{4.0 / 6, 1, 2});
  CHECK(balanced_weights({0, 0}) == std::vector<double>{1, 1});
}

TEST_CASE("labels are counted in the training range, whatever is done to the images") {
  DataOptions data;
  data.provider = "dummy-1x8x8-10";
  data.train_range = {1, 2};
  std::vector<std::int64_t> expected(10);
  const auto plain = open_provider(data, 3);
  for (const int batch : {1, 2}) {
    const DataBatch all = plain->read({batch, 0}, {});
    for (std::size_t i = 0; i < 1000; ++i) {
      std::int32_t label = 0;
      std::memcpy(&label, all.matrices[1].data() + i * sizeof label, sizeof label);
      ++expected[static_cast<std::size_t>(label)];
    }
  }
  CHECK(count_labels(*plain, {1, 2}, 1) == expected);
  data.inner_size = 4;
  data.multiview_test = data.pixel_std = data.shuffle = true;
  data.mixup = 0.2;
  CHECK(count_labels(*open_provider(data, 3), {1, 2}, 1) == expected);
}

TEST_CASE("a run measures balanced weights once and keeps them") {
  const Workshop shop;
  shop.write(kDefinition, kBalanced);
  const Args to = {"--test-freq", "2", "--epochs"};
  CHECK_THAT(run_well(shop.dummy() + to + Args{"2", "--save-file", shop / "whole"}).out,
             Catch::Contains("classWeights=balanced of 'logprob': ") &&
                 Catch::Contains(", from the labels of batches 1-2\n"));
  run_well(shop.dummy() + to + Args{"1", "--save-file", shop / "run"});
  const std::string weights = weights_in(shop / "run");
  CHECK(count(weights, ",") == 9);
  // A resumed run keeps them, though it trains on other batches, and sees no change in the file.
  const std::string resumed = run_well({"--load-file", shop / "run", "--epochs", "2"}).out;
  CHECK_THAT(resumed, !Catch::Contains("has changed since") && !Catch::Contains("classWeights=balanced of"));
  check_equal_tensors(shop / "run/2.2.safetensors", shop / "whole/2.2.safetensors");
  run_well({"--load-file", shop / "run", "--epochs", "3", "--train-range", "1"});
  CHECK(weights_in(shop / "run") == weights);
  // They are the same as if the file had them.
  shop.write(kDefinition, kParameters + "classWeights=" + weights + "\n");
  run_well(shop.dummy() + to + Args{"2", "--save-file", shop / "written"});
  check_equal_tensors(shop / "written/2.2.safetensors", shop / "whole/2.2.safetensors");
  // And they are not the weights 1.
  shop.write(kDefinition, kParameters);
  run_well(shop.dummy() + to + Args{"2", "--save-file", shop / "plain"});
  CHECK(read_safetensors(shop / "plain/2.2.safetensors").tensors.at("fc10.biases").values !=
        read_safetensors(shop / "whole/2.2.safetensors").tensors.at("fc10.biases").values);
}

TEST_CASE("tests report the plain cost, whatever weighs or smooths that of training") {
  const Workshop shop;
  const Args to = {"--test-freq", "2", "--epochs", "1", "--save-file"};
  shop.write(kDefinition, kParameters + "classWeights=1,2,3,4,5,6,7,8,9,0\nsmoothing=0.3\n");
  run_well(shop.dummy() + to + Args{shop / "weighted"});
  const auto costs_of_test = [&](const Args& more) {
    return nlohmann::json::parse(
        run_well(Args{"--load-file", shop / "weighted", "--test-only", "1", "--json", "1"} + more)
            .out)["costs"];
  };
  const nlohmann::json weighted = costs_of_test({});
  shop.write(kDefinition, kParameters);
  CHECK(costs_of_test({"--layer-params", shop.net().at(3)}) == weighted);
  // The cost of training is another one.
  run_well(shop.dummy() + to + Args{shop / "plain"});
  const auto first = [&](const char* run) {
    return read_checkpoint(shop / run).state.history.at(0).costs.sums;
  };
  CHECK(first("weighted") != first("plain"));
}

TEST_CASE("balanced weights of --set and of all layers are kept, too") {
  const Workshop shop;
  const Args set = {"--set", "logprob.classWeights=balanced"};
  run_well(shop.dummy() + set + Args{"--epochs", "1", "--save-file", shop / "set"});
  const std::string weights = weights_in(shop / "set");
  CHECK_THAT(run_well({"--load-file", shop / "set", "--epochs", "2"}).out,
             !Catch::Contains("has changed since"));
  CHECK(weights_in(shop / "set") == weights);
  CHECK_THAT(run_well({"--load-file", shop / "set", "--test-only", "1"}).out,
             Catch::Contains("Errors by class"));

  shop.write(kDefinition, "[DEFAULT]\nclassWeights=balanced\n" + kParameters);
  run_well(shop.dummy() + Args{"--epochs", "1", "--save-file", shop / "all"});
  CHECK(weights_in(shop / "all") == weights);
  CHECK_THAT(run_well({"--load-file", shop / "all", "--epochs", "2"}).out,
             !Catch::Contains("has changed since"));
  CHECK(weights_in(shop / "all") == weights);
}

TEST_CASE("commands that do not train take balanced weights without a data set") {
  const Workshop shop;
  shop.write(kDefinition, kBalanced);
  run_well(Args{"plan", "--data-provider", "dummy-1x8x8-10", "--layer-def", shop.definition_path(),
                "--layer-params", shop.parameters_path()});
  shop.write(kDefinition, kParameters + "classWeights=balance\n");
  const Outcome wrong = run_program(shop.dummy() + Args{"--save-file", shop / "run"});
  CHECK(wrong.code == 2);
  CHECK_THAT(wrong.err, Catch::Contains("classWeights expects a number") &&
                            Catch::Contains("not 'balance', or balanced"));
}

}  // namespace convnet
