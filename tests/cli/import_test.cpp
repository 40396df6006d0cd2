// convnet import as a user meets it: what it writes and prints, and what it refuses. tests/onnx computes the
// nets.
#include <filesystem>

#include "tests/catch.h"
#include "tests/cli/small_net.h"

namespace convnet {
namespace {

namespace fs = std::filesystem;

/// A run of one epoch on images of the provider mnist, and its model.
class ExportedShop : public Workshop {
 public:
  ExportedShop() {
    write_data();
    run_well(mnist() + Args{"--save-file", *this / "run", "--epochs", "1"});
    run_well({"export", *this / "run", model()});
  }
  std::string model() const { return *this / "net.onnx"; }
  /// The options for the files that an import writes.
  Args outputs() const {
    return {"--layer-def",           *this / "in.cfg", "--layer-params",
            *this / "in-params.cfg", "--checkpoint",   *this / "in"};
  }
  Args import() const { return Args{"import", model()} + outputs(); }
};

}  // namespace

TEST_CASE("import writes a net that tests as the exported one did, and trains on") {
  const ExportedShop shop;
  const Outcome done = run_well(shop.import());
  CHECK_THAT(done.out,
             Catch::StartsWith(shop / "in.cfg: 7 layers, from images (1x8x8) to 10 classes\n" +
                               (shop / "in-params.cfg\n") + (shop / "in/0.0.safetensors\n") +
                               "Pixels as the model takes them: 0 to 255; --pixels says otherwise\n"));
  CHECK(files_in(shop / "in") == std::vector<std::string>{"0.0.safetensors"});
  const auto tested = [&](const std::string& run) {
    const Outcome test = run_well({"--load-file", run, "--test-only", "1", "--data-provider", "mnist",
                                   "--data-path", shop.data_path(), "--test-range", "2"});
    return test.out.substr(test.out.find("logprob:"), 30);
  };
  CHECK(tested(shop / "in") == tested(shop / "run"));
  // A new run of its files begins with its weights.
  const Outcome trained = run_well(Args{"--layer-def",     shop / "in.cfg",
                                        "--layer-params",  shop / "in-params.cfg",
                                        "--init-from",     shop / "in",
                                        "--data-provider", "mnist",
                                        "--data-path",     shop.data_path(),
                                        "--train-range",   "1",
                                        "--test-range",    "2",
                                        "--epochs",        "1",
                                        "--test-freq",     "1",
                                        "--save-file",     shop / "again"});
  CHECK_THAT(trained.out, Catch::Contains(" copied, 0 newly made; 0 tensors of the file skipped\n"));
  // It may be written again.
  run_well(shop.import());
}

TEST_CASE("import names its files by the model") {
  const ExportedShop shop;
  const fs::path before = fs::current_path();
  fs::current_path(shop.path());
  run_well({"import", "net.onnx", "--layer-def", "other.cfg"});
  CHECK(fs::exists("other-params.cfg"));
  CHECK(fs::exists("net/0.0.safetensors"));
  fs::current_path(before);
}

TEST_CASE("import replaces no files of others") {
  const ExportedShop shop;
  // The net of the workshop was written by hand.
  check_refused({"import", shop.model(), "--layer-def", shop.definition_path(), "--checkpoint", shop / "in"},
                "--layer-def " + shop.definition_path());
  check_refused({"import", shop.model(), "--layer-def", shop / "in.cfg", "--layer-params", shop / "in.cfg"},
                "--layer-params");
  check_refused({"import", shop.model(), "--layer-def", shop.model()}, "--layer-def " + shop.model());
  check_refused({"import", shop.model(), "--layer-def", shop / "in.cfg", "--checkpoint", shop / "run"},
                "--checkpoint " + (shop / "run") + ": has checkpoints of a run, like " +
                    (shop / "run/1.1.safetensors") + "; name another folder");
  CHECK_FALSE(fs::exists(shop / "in.cfg"));
}

TEST_CASE("import replaces its files unless the user has edited them") {
  const ExportedShop shop;
  run_well(shop.import());
  const std::string definition = read_file(shop / "in.cfg"), parameters = read_file(shop / "in-params.cfg");
  for (const auto& [file, text, option] :
       {std::tuple{"in.cfg", replaced(definition, "filters=2", "filters=4"), "--layer-def"},
        std::tuple{"in-params.cfg", parameters + "# mine\n", "--layer-params"}}) {
    const std::string before = read_file(shop / file);
    write_file(shop / file, text);
    check_refused(shop.import(), std::string(option) + " " + (shop / file) +
                                     ": there is another kind of file of that name, or one of another "
                                     "program or that was edited; remove it or name another file");
    CHECK(read_file(shop / file) == text);
    write_file(shop / file, before);
  }
  // An import that writes another text replaces that of the one before.
  shop.write(replaced(kDefinition, "neuron=relu", "neuron=abs"), kParameters);
  run_well(shop.mnist() + Args{"--save-file", shop / "other", "--epochs", "1"});
  run_well({"export", shop / "other", shop.model()});
  run_well(shop.import());
  CHECK_THAT(read_file(shop / "in.cfg"), Catch::Contains("neuron=abs"));
  fs::remove_all(shop / "in");
  run_well(shop.import());
  CHECK(fs::exists(shop / "in/0.0.safetensors"));
}

TEST_CASE("import refuses what it does not read") {
  const ExportedShop shop;
  check_refused({"import"}, "usage: convnet import FILE.onnx");
  check_refused({"import", shop.model(), shop.model()}, "usage: convnet import FILE.onnx");
  check_refused(Args{"import", shop / "none.onnx"} + shop.outputs(), shop / "none.onnx: no such file");
  check_refused(Args{"import", shop / "run/1.1.safetensors"} + shop.outputs(),
                shop / "run/1.1.safetensors: is a safetensors file, not an ONNX model");
  check_refused(shop.import() + Args{"--input-dims", "3x"},
                "--input-dims expects the dims of an image, like 3x224x224, not '3x'");
  check_refused(shop.import() + Args{"--input-dims", "3xhuge"}, "--input-dims expects");
  check_refused(shop.import() + Args{"--output", "fc1"},
                "no operator makes the output 'fc1'; did you mean 'fc10'?");
  check_refused(shop.import() + Args{"--pixels", "imagenet"},
                "--pixels imagenet is for 3 channels, and the net reads 1");
  check_refused(shop.import() + Args{"--pixels", "bytes"}, "--pixels");
  write_file(shop / "cut.onnx", read_file(shop.model()).substr(0, 200));
  check_refused(Args{"import", shop / "cut.onnx"} + shop.outputs(),
                shop / "cut.onnx: is no ONNX model, or is damaged");
}

}  // namespace convnet
