// Checkpoints that cannot be read or written are refused with the reason.
#include <nlohmann/json.hpp>

#include "convnet/checkpoint/safetensors.h"
#include "tests/catch.h"
#include "tests/cli/small_net.h"

namespace convnet {
namespace {

TEST_CASE("a checkpoint that is another program's file is called what it is") {
  const Workshop shop;
  const std::string file = shop / "net.bin", rest(200, '\0');
  for (const auto& [first, message] : std::vector<std::pair<std::string, std::string>>{
           {std::string("\x80\2}q\1(U\4", 8),
            ": is a pickle, as cuda-convnet2's checkpoints are; scripts/weights-from-cuda-convnet"},
           {"(dp1\nS'model'\n",
            ": is a pickle, as cuda-convnet2's checkpoints are; scripts/weights-from-cuda-convnet writes its "
            "weights for --init-from (docs/coming-from.md)\n"},
           {std::string("PK\3\4\24\0\0\0", 8),
            ": is a zip archive, not a safetensors file; unpack it with unzip"},
           {std::string("PK\3\4\24\0\0\0", 8) + std::string(22, '\0') + "archive/data.pkl",
            ": is a zip archive, as torch.save (.pth) writes, not a safetensors file; a new run "
            "takes its weights with --init-from"},
           {"\x89HDF\r\n\x1a\n", ": is an HDF5 file, not a safetensors file; "},
           {"\x08\x07\x12\x07pytorch",
            ": is an ONNX model, not a safetensors file; convnet import makes a net and a checkpoint of "
            "it"}}) {
    write_file(file, first + rest);
    check_refused({"predict", file, "a.png"}, file + message);
    check_refused({"--load-file", file, "--test-only", "1"}, file + message);
  }
}

TEST_CASE("a place where no checkpoint can be written is refused before training") {
  const Workshop shop;
  for (const char* option : {"--save-file", "--save-path"})
    check_refused(shop.dummy() + Args{option, shop.definition_path()},
                  shop.definition_path() + ": is not a folder");
  check_refused(shop.dummy() + Args{"--save-file", shop.definition_path() + "/deep/out"},
                shop.definition_path() + ": is not a folder");
}

TEST_CASE("a checkpoint that is damaged or of another net is refused") {
  const Workshop shop;
  const std::string folder = shop / "out";
  REQUIRE(run_program(shop.dummy() + Args{"--save-file", folder, "--epochs", "1"}).code == 0);
  const std::string good = folder + "/1.2.safetensors";
  const std::string bad = shop / "bad.safetensors";
  const auto check_bytes = [&](const std::string& bytes, const std::string& message) {
    write_file(bad, bytes);
    check_refused({"--load-file", bad, "--test-only"}, bad + ": " + message);
  };
  const std::string bytes = read_file(good);
  check_bytes("", "it has 0 bytes; a safetensors file has at least 8");
  check_bytes(std::string(64, '\xff'), "not a safetensors file: a header of 18446744073709551615 bytes");
  check_bytes(bytes.substr(0, 50), "truncated: a header of ");
  check_bytes(bytes.substr(0, bytes.size() - 1),
              "tensor 'fc10.weightsInc.pool1' ends at byte 1680 of the data, but the file holds 1679: it is "
              "truncated");
  check_bytes(replaced(bytes, "{\"", "[\""), "the header is not a JSON object");
  check_bytes(bytes + "x", "the tensors end at byte 1680 of the data, but the file holds 1681: too long");

  const auto check_changed = [&](const std::string& message, const std::function<void(TensorFile&)>& change) {
    TensorFile file = read_safetensors(good);
    change(file);
    write_safetensors(bad, file);
    check_refused({"--load-file", bad, "--epochs", "2"}, bad + ": " + message);
  };
  const auto metadata = [](const char* key, const std::string& text) {
    return [=](TensorFile& f) { f.metadata[key] = text; };
  };
  check_changed("is not a checkpoint of convnet; a new run can take",
                [](TensorFile& f) { f.metadata.clear(); });
  check_changed("is not a checkpoint of convnet; a new run can take", [](TensorFile& f) {
    f.metadata = {{"format", "pt"}};
  });
  check_changed("is not a checkpoint of convnet: its metadata has no 'format'",
                [](TensorFile& f) { f.metadata.erase("format"); });
  check_changed("is a checkpoint of format 'pt'; this program reads 'convnet-1'", metadata("format", "pt"));
  check_changed("is not a checkpoint of convnet: its metadata has no 'state'",
                [](TensorFile& f) { f.metadata.erase("state"); });
  check_changed("has no tensor 'conv1.weights.data', which this net needs",
                [](TensorFile& f) { f.tensors.erase("conv1.weights.data"); });
  check_changed("tensor 'fc10.biases' is 5, but this net needs 10", [](TensorFile& f) {
    f.tensors["fc10.biases"] = {{5}, std::vector<float>(5)};
  });
  check_changed("metadata 'state' is damaged: ", metadata("state", "{"));
  check_changed("metadata 'state' is damaged: ", metadata("state", "[]"));
  check_changed("metadata 'options' is damaged: ", metadata("options", "{\"mini\":3}"));
  check_changed("metadata 'algorithms' is damaged: ", metadata("algorithms", ""));

  // Numbers that would lead beyond what the program can count, or into memory that is not there.
  const nlohmann::json state = nlohmann::json::parse(read_safetensors(good).metadata.at("state"));
  const auto check_state = [&](const std::string& pointer, const nlohmann::json& value,
                               const std::string& message) {
    nlohmann::json changed = state;
    changed[nlohmann::json::json_pointer(pointer)] = value;
    check_changed(message, metadata("state", changed.dump()));
  };
  check_state("/position/epoch", -1,
              "metadata 'state' is damaged: position.epoch is not a whole number from 0 to ");
  check_state("/position/epoch", 2147483647,
              "metadata 'state' is damaged: position.epoch is not a whole number from 0 to ");
  check_state("/position/epoch", 1e30,
              "metadata 'state' is damaged: position.epoch is not a whole number from 0 to ");
  check_state("/position/batch", 4294967297,
              "metadata 'state' is damaged: position.batch is not a whole number from 0 to ");
  check_state("/position/images", 7, "metadata 'state' is damaged: position has minibatches without images");
  check_state("/position/epoch", "one", "metadata 'state' is damaged: ");
  for (const char* key : {"epoch", "batch", "test_batch"}) {
    for (const nlohmann::json& damage : std::vector<nlohmann::json>{4294967297, 1.5, -2, 1e30})
      check_state(std::string("/history/0/") + key, damage,
                  std::string("metadata 'state' is damaged: history[0].") + key +
                      " is not a whole number from 0 to ");
  }
  check_state("/test_cursor", -1,
              "metadata 'state' is damaged: test_cursor is not a whole number from 0 to ");
  const std::string many = nlohmann::json(std::vector<double>(100000, 1.0)).dump();
  for (const std::string& sums : {std::string("[]"), std::string(R"([["logprob",[1,2]]])"),
                                  std::string(R"([["other",[1,2,3]]])"), R"([["logprob",)" + many + "]]"}) {
    nlohmann::json changed = state;
    changed["position"] = {{"epoch", 1}, {"batch", 2}, {"minibatches", 1}, {"images", 128}};
    changed["partial"] = {{"images", 128}, {"sums", nlohmann::json::parse(sums)}};
    check_changed("metadata 'state' is damaged: its sums are not those of this net's costs",
                  metadata("state", changed.dump()));
    nlohmann::json history = state;
    history["history"][0]["sums"] = nlohmann::json::parse(sums);
    check_changed("metadata 'state' is damaged: its sums are not those of this net's costs",
                  metadata("state", history.dump()));
  }
}

TEST_CASE("a checkpoint that is not there, or not one of ours, is refused") {
  const Workshop shop;
  const std::string empty = shop / "empty";
  std::filesystem::create_directory(empty);
  check_refused({"--load-file", shop / "none"},
                (shop / "none") + ": there is no such checkpoint file or folder");
  check_refused({"--load-file", empty},
                empty + ": holds no checkpoint (files named EPOCH.BATCH.safetensors)\n");
  // The folder of --save-path holds those of runs.
  run_well(shop.dummy() + Args{"--epochs", "1", "--save-file", empty + "/ConvNet__1"});
  std::filesystem::create_directory(empty + "/zzz");
  check_refused({"--load-file", empty}, "safetensors); the run in it is " + empty + "/ConvNet__1\n");
  // Their names say nothing about which one is the last.
  const std::string later = empty + "/ConvNet__0";
  std::filesystem::copy(empty + "/ConvNet__1", later, std::filesystem::copy_options::recursive);
  for (const auto& entry : std::filesystem::directory_iterator(later))
    std::filesystem::last_write_time(entry.path(),
                                     std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
  check_refused({"--load-file", empty}, "safetensors); the last of the runs in it is " + later + "\n");
  const std::string theirs = shop / "ConvNet__theirs";
  std::filesystem::create_directory(theirs);
  for (const char* name : {"9.5", "10.2", "notes.txt"}) write_file(theirs + "/" + name, "\x80\2}q\1(U");
  check_refused(
      {"--load-file", theirs},
      "safetensors), but 10.2, which is a pickle, as cuda-convnet2's checkpoints are; "
      "scripts/weights-from-cuda-convnet writes its weights for --init-from (docs/coming-from.md)\n");
  check_refused(shop.dummy() + Args{"--save-file", theirs}, theirs +
                                                                ": holds no checkpoint of this program to "
                                                                "go on from, but 10.2, which is a pickle");
  // The user has removed the numbered checkpoints of a folder.
  const std::string only_best = shop / "only-best", best = only_best + "/best.safetensors";
  run_well(shop.dummy() + Args{"--epochs", "1", "--save-file", only_best, "--keep-best", "logprob"});
  std::filesystem::remove(only_best + "/1.2.safetensors");
  const std::string instead =
      ", but best.safetensors, the checkpoint of the best test: name that file "
      "(--load-file " +
      best + " goes on from it)\n";
  check_refused({"--load-file", only_best},
                only_best + ": holds no checkpoint (files named EPOCH.BATCH.safetensors)" + instead);
  check_refused(shop.dummy() + Args{"--epochs", "2", "--save-file", only_best},
                only_best + ": holds no checkpoint of this program to go on from" + instead);
  run_well({"--load-file", best, "--epochs", "2"});
  check_refused({"--load-file", shop.definition_path()}, shop.definition_path() + ": ");
  TensorFile foreign;
  foreign.tensors["model.layers.0.weight"] = {{2, 2}, {1, 2, 3, 4}};
  const std::string file = shop / "model.safetensors";
  write_safetensors(file, foreign);
  check_refused({"--load-file", file},
                file + ": is not a checkpoint of convnet; a new run can take the weights");
}

}  // namespace
}  // namespace convnet
