// `convnet show`: pictures and the page of a checkpoint, and what it says to wrong wishes.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "convnet/checkpoint/safetensors.h"
#include "tests/catch.h"
#include "tests/cli/small_net.h"
#include "tests/show/decode.h"

namespace convnet {
namespace {

using nlohmann::json;

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

void train(const Workshop& shop, int epochs, const Args& more = {}) {
  run_well(shop.mnist() +
           Args{"--save-file", shop / "run", "--epochs", std::to_string(epochs), "--test-freq", "1", "--keep",
                "9"} +
           more);
}

/// The message of `convnet show` with these arguments, which are wrong.
std::string error(const Args& args, int code = 2) {
  const Outcome run = run_program(Args{"show"} + args);
  INFO(run.out << run.err);
  CHECK(run.code == code);
  CHECK(run.out.empty());
  return run.err;
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

/// The data that the page's charts give to its script.
std::vector<json> charts_of(const std::string& page) {
  const std::string begin = "data-chart=\"";
  std::vector<json> charts;
  for (std::size_t at = page.find(begin); at != std::string::npos; at = page.find(begin, at + 1)) {
    const std::size_t from = at + begin.size();
    std::string text = page.substr(from, page.find('"', from) - from);
    for (const auto& [entity, character] : {std::pair<std::string, std::string>{"&quot;", "\""},
                                            {"&lt;", "<"},
                                            {"&gt;", ">"},
                                            {"&#39;", "'"},
                                            {"&amp;", "&"}})
      replace_all(text, entity, character);
    charts.push_back(json::parse(text));
  }
  return charts;
}

/// Changes a checkpoint's metadata entry, which is JSON.
template <class Change>
void change_metadata(const std::string& file, const std::string& key, const Change& change) {
  TensorFile contents = read_safetensors(file);
  json value = json::parse(contents.metadata.at(key));
  change(value);
  contents.metadata[key] = value.dump();
  write_safetensors(file, contents);
}

TEST_CASE("show draws curves, filters and predictions, and writes predictions and a page") {
  const Workshop shop;
  shop.write_data();
  train(shop, 2);
  const std::string run = shop / "run";

  const Outcome drawn =
      run_well({"show", run, "--show-cost", "logprob", "--cost-idx", "1", "--out", shop / "c.png"});
  CHECK(drawn.out == "Wrote " + shop / "c.png" + ": logprob: top-1 error in %\n");
  const Picture curve = decode_png(read_file(shop / "c.png"));
  CHECK(curve.width() == 860);
  CHECK(curve.height() == 460);

  const Outcome preds = run_well({"show", "--load-file", run, "--show-preds", "probs", "--out",
                                  shop / "p.png", "--save-preds", shop / "p.csv"});
  CHECK(holds(preds.out, "p.png: 8 of 20 test images\n"));
  CHECK(decode_png(read_file(shop / "p.png")).width() == 4 * 230 + 16);
  const std::string csv = read_file(shop / "p.csv");
  CHECK(csv.starts_with("batch,image,label,class 1,probability 1,class 2,"));
  CHECK(std::count(csv.begin(), csv.end(), '\n') == 21);
  CHECK(holds(csv, "\n2,3,1,"));  // the fourth image of the test batch is of class 3 * 7 % 10

  const Outcome page = run_well({"show", run, "--html", shop / "page.html"});
  const std::string html = read_file(shop / "page.html");
  for (const char* part :
       {"<title>", "Training", "Predictions", "Confusion matrix", "20 images of the test range, 2.",
        "conv1.weights.data: 2 filters of 1x3x3", "<td>fc10.weights.pool1</td>", "parameters; ",
        "memory, MiB", "src=\"data:image/png;base64,", "href=\"data:image/png;base64,"})
    CHECK(holds(html, part));
  // Nothing is fetched from anywhere.
  std::string without = html;
  replace_all(without, "http://www.w3.org/2000/svg", "");
  CHECK_FALSE(holds(without, "http:"));
  CHECK_FALSE(holds(without, "https:"));
  CHECK_FALSE(holds(without, "url("));

  // The seed decides the images.
  const auto bytes = [&](const Args& more) {
    run_well(Args{"show", run, "--show-preds", "probs", "--out", shop / "q.png"} + more);
    return read_file(shop / "q.png");
  };
  CHECK(bytes({}) == read_file(shop / "p.png"));
  CHECK(bytes({"--seed", "5"}) != read_file(shop / "p.png"));
  CHECK(bytes({"--only-errors"}) != read_file(shop / "p.png"));
}

TEST_CASE("show writes the costs of a run as CSV") {
  const Workshop shop;
  shop.write_data();
  train(shop, 2);
  const Outcome written = run_well({"show", shop / "run", "--save-costs", shop / "costs.csv"});
  CHECK(written.out == "Wrote " + shop / "costs.csv" + ": 4 batches and tests\n");
  const std::string csv = read_file(shop / "costs.csv");
  CHECK(csv.starts_with("epoch,batch,phase,images,layer,value name,value\n1,1,train,40,logprob,-log p,"));
  CHECK(count(csv, "\n") == 1 + 4 * 3);
  for (const char* part : {"\n1,1,train,40,logprob,top-1 error,", "\n1,1,test,20,logprob,top-2 error,",
                           "\n2,1,test,20,logprob,-log p,"})
    CHECK(count(csv, part) == 1);
  // Neither the data set nor the net's files are needed, and the other files are as ever.
  std::filesystem::remove_all(shop.data_path());
  run_well({"show", shop / "run", "--save-costs", shop / "again.csv", "--show-cost", "logprob", "--out",
            shop / "cost.png"});
  CHECK(read_file(shop / "again.csv") == csv);
}

TEST_CASE("show draws the filters that the checkpoint holds") {
  const Workshop shop;
  shop.write_data();
  train(shop, 1);
  const std::string file = shop / "run/1.1.safetensors";
  TensorFile contents = read_safetensors(file);
  NamedTensor& conv1 = contents.tensors.at("conv1.weights.data");
  REQUIRE(conv1.dims == Dims{2, 1, 3, 3});
  conv1.values.assign(18, 0.5F);
  conv1.values[4] = 1.5F;    // the middle of filter 0
  conv1.values[17] = -0.5F;  // the last corner of filter 1
  write_safetensors(file, contents);
  const Outcome run = run_well({"show", file, "--show-filters", "conv1", "--out", shop / "f.png"});
  CHECK(run.out == "Wrote " + shop / "f.png" + ": conv1.weights.data, 2 filters of 1x3x3\n");
  const Picture picture = decode_png(read_file(shop / "f.png"));
  // One above the other: borders and gap are a weight wide.
  REQUIRE(picture.width() == 5 * 16);
  REQUIRE(picture.height() == 9 * 16);
  const auto weight = [&](int x, int y) { return picture.at(x * 16 + 8, y * 16 + 8); };
  CHECK(weight(2, 2) == kWhite);
  CHECK(weight(1, 1) == Color{128, 128, 128});
  CHECK(weight(3, 7) == Color{0, 0, 0});
  CHECK(weight(3, 4) == kWhite);  // the gap

  // The options of filters arrive.
  run_well(
      {"show", file, "--show-filters", "fc10", "--channels", "2", "--norm-filters", "--out", shop / "g.png"});
  run_well({"show", file, "--show-filters", "fc10", "--channels", "2", "--out", shop / "h.png"});
  CHECK(read_file(shop / "g.png") != read_file(shop / "h.png"));
  CHECK(holds(error({file, "--show-filters", "conv1", "--yuv-to-rgb", "--out", shop / "x.png"}),
              "tensor 'conv1.weights.data' has filters of 1 channels; YUV ones have 3"));
  CHECK(holds(error({file, "--show-filters", "fc10", "--channels", "5", "--out", shop / "x.png"}),
              "tensor 'fc10.weights.pool1' has filters of 18 weights"));
  CHECK(holds(error({file, "--show-filters", "conv1", "--channels", "1", "--out", shop / "x.png"}),
              file + ": tensor 'conv1.weights.data' has filters whose channels are known; --channels is for "
                     "fully-connected layers"));
  for (const char* layer : {"conv1", "fc10"})
    CHECK(holds(error({file, "--show-filters", layer, "--local-plane", "0", "--out", shop / "x.png"}),
                "' is of no local layer, and only those have filters of their own at each position"));

  conv1.values[0] = std::numeric_limits<float>::quiet_NaN();
  write_safetensors(file, contents);
  CHECK(holds(error({file, "--show-filters", "conv1", "--out", shop / "x.png"}),
              "tensor 'conv1.weights.data' holds numbers that are not finite"));
  CHECK_FALSE(std::filesystem::exists(shop / "x.png"));
  run_well({"show", file, "--html", shop / "page.html"});
  CHECK(holds(read_file(shop / "page.html"),
              "<p class=\"note\">conv1.weights.data holds numbers that are not finite"));
}

TEST_CASE("the page of a net with shared weights, batch normalisation and a layer on two devices") {
  const Workshop shop;
  shop.write_data();
  const std::string conv = "type=conv\nchannels=2\nfilters=2\nfilterSize=3\npadding=1\n";
  std::string definition =
      replaced(kDefinition, "[pool1]\n",
               "[bn]\ntype=bnorm\ninputs=conv1\n[conv2]\ninputs=bn\n" + conv +
                   "[conv3]\ninputs=conv2\nweightSource=conv2[0]\n" + conv + "[pool1]\n");
  definition = replaced(definition, "pool\ninputs=conv1\n", "pool\ninputs=conv3\n");
  definition = replaced(definition, "outputs=10\n", "outputs=10\nparallel=model\ngpu=0,1\n");
  const std::string rates = "epsW=0.01\nepsB=0.01\nmomW=0.9\nmomB=0.9\n";
  shop.write(definition, kParameters + "[bn]\n" + rates + "[conv2]\n" + rates + "[conv3]\n" + rates);
  train(shop, 1, {"--gpu", "0,1"});
  const Outcome page = run_well({"show", shop / "run", "--html", shop / "page.html"});
  CHECK(page.err.empty());
  const std::string html = read_file(shop / "page.html");
  CHECK(holds(html, "conv2.weights.bn: 2 filters of 2x3x3, a channel beside the other"));
  CHECK(holds(html, "<td>fc10.weights.pool1</td><td>10x18</td>"));
  CHECK_FALSE(holds(html, "<td>fc10/"));
  CHECK(holds(html, "<td>bn.scale</td>"));
  CHECK(holds(html, "Confusion matrix"));
  const Outcome shared = run_well({"show", shop / "run", "--show-filters", "conv3", "--out", shop / "f.png"});
  CHECK(holds(shared.out, "conv2.weights.bn, 2 filters"));
}

TEST_CASE("show of a net for another machine says so, and what helps") {
  const Workshop shop;
  shop.write_data();
  train(shop, 1);
  const std::string file = shop / "run/1.1.safetensors";
  change_metadata(file, "options", [](json& o) { o["precision"] = "tf32"; });
  const Outcome page = run_well({"show", file, "--html", shop / "page.html", "--device", "cpu"});
  CHECK(holds(page.err, "warning: no predictions: --precision tf32 needs a GPU"));
  CHECK(
      holds(read_file(shop / "page.html"), "<h2>Plan</h2>\n<p class=\"note\">--precision tf32 needs a GPU"));
  run_well({"show", file, "--show-preds", "probs", "--precision", "fp32", "--device", "cpu", "--out",
            shop / "p.png"});
}

TEST_CASE("a resumed run's curves have all of its points, each once") {
  const Workshop shop;
  shop.write_data();
  train(shop, 2);
  run_well({"--load-file", shop / "run", "--epochs", "5"});
  run_well({"show", shop / "run", "--html", shop / "page.html"});
  std::vector<json> charts = charts_of(read_file(shop / "page.html"));
  REQUIRE(charts.size() == 8);  // -log p, top-1 and top-2 error, learning rates: each on two scales
  charts.resize(6);
  for (const json& chart : charts) {
    for (const json& series : chart["series"]) {
      std::vector<double> epochs;
      for (const json& point : series["points"]) epochs.push_back(point[0].get<double>());
      CHECK(epochs == std::vector<double>{1, 2, 3, 4, 5});
    }
    CHECK(chart["series"].size() == 2);
  }
  CHECK(charts[0]["series"][0]["points"][4][2] == "epoch 5, batch 1");
}

TEST_CASE("without its data set a checkpoint still shows the rest") {
  const Workshop shop;
  shop.write_data();
  train(shop, 1);
  std::filesystem::rename(shop.data_path(), shop / "elsewhere");
  run_well({"show", shop / "run", "--show-cost", "logprob", "--out", shop / "c.png"});
  run_well({"show", shop / "run", "--show-filters", "conv1", "--out", shop / "f.png"});
  const Outcome page = run_well({"show", shop / "run", "--html", shop / "page.html"});
  CHECK(holds(page.err, "warning: no predictions: "));
  const std::string html = read_file(shop / "page.html");
  CHECK(holds(html, "<h2>Predictions</h2>\n<p class=\"note\">--data-path " + shop.data_path()));
  CHECK(holds(html, "memory, MiB"));
  CHECK_FALSE(holds(html, "Confusion"));
  CHECK(holds(error({shop / "run", "--show-preds", "probs", "--out", shop / "p.png"}),
              shop.data_path() + " is in the options of " + shop / "run/1.1.safetensors; if it has moved"));
  CHECK(holds(error({shop / "run", "--save-preds", shop / "p.csv"}), shop.data_path()));
  CHECK_FALSE(std::filesystem::exists(shop / "p.png"));
  run_well({"show", shop / "run", "--show-preds", "probs", "--data-path", shop / "elsewhere", "--out",
            shop / "p.png"});

  // Another data set is not what the net was made for.
  CHECK(holds(error({shop / "run", "--show-preds", "probs", "--data-provider", "dummy-1x9x9-10"}),
              "the data set does not fit: its 'data' are 1x9x9, but the net was trained on 1x8x8"));
  CHECK(holds(error({shop / "run", "--show-preds", "probs", "--data-provider", "dummy-1x8x8-10"}),
              "the data set does not fit: its 'data' are of type f32, but the net was trained on u8"));
  CHECK(holds(error({shop / "run", "--show-preds", "probs", "--data-provider", "dummy-1x8x8-11"}),
              "it has 11 classes, but the net was trained on 10"));
  CHECK(holds(
      error({shop / "run", "--show-preds", "probs", "--data-path", shop / "elsewhere", "--test-range", "3"}),
      "--test-range"));
}

TEST_CASE("checkpoints that do not say what their data looked like need the data set") {
  const Workshop shop;
  shop.write_data();
  train(shop, 1);
  const std::string file = shop / "run/1.1.safetensors";
  TensorFile contents = read_safetensors(file);
  REQUIRE(contents.metadata.erase("matrices") == 1);
  write_safetensors(file, contents);
  run_well({"show", file, "--show-cost", "logprob", "--out", shop / "c.png"});
  std::filesystem::rename(shop.data_path(), shop / "elsewhere");
  CHECK(holds(error({file, "--show-cost", "logprob", "--out", shop / "c.png"}),
              file + ": does not say what the data looked like, and the data set cannot be read: "));
}

TEST_CASE("damaged descriptions of the data and damaged histories are errors") {
  const Workshop shop;
  shop.write_data();
  train(shop, 1);
  const std::string file = shop / "run/1.1.safetensors";
  const TensorFile good = read_safetensors(file);
  const auto damaged = [&](const std::string& key, const auto& change) {
    write_safetensors(file, good);
    change_metadata(file, key, change);
    return error({file, "--show-cost", "logprob", "--out", shop / "c.png"});
  };
  const std::string matrices = file + ": metadata 'matrices' is damaged: ";
  CHECK(holds(damaged("matrices", [](json& m) { m[0]["dims"][0] = -1; }), matrices));
  CHECK(holds(damaged("matrices", [](json& m) { m[0]["dims"] = {1 << 30, 1 << 30, 1 << 30}; }), matrices));
  CHECK(holds(damaged("matrices", [](json& m) { m[0]["type"] = "f16"; }), matrices));
  CHECK(holds(damaged("matrices", [](json& m) { m[1]["class_names"] = {"one"}; }), matrices));
  CHECK(holds(damaged("matrices", [](json& m) { m[1].erase("classes"); }), matrices));
  CHECK(holds(damaged("matrices", [](json& m) { m = 7; }), matrices));
  // Types and sizes that no provider makes.
  CHECK(holds(damaged("matrices", [](json& m) { m[0]["type"] = "s32"; }), matrices + "[0] holds labels"));
  CHECK(holds(damaged("matrices", [](json& m) { m[1]["type"] = "f32"; }),
              matrices + "[1] is wrong: labels are of type s32"));
  CHECK(holds(damaged("matrices", [](json& m) { m[1]["dims"] = {1 << 30}; }),
              matrices + "[1] is wrong: labels of 1073741824 numbers make no sense"));
  write_safetensors(file, good);
  change_metadata(file, "matrices", [](json& m) { m[0]["dims"] = {1, 18, 18}; });
  CHECK(holds(error({file, "--show-filters", "fc10", "--out", shop / "c.png"}),
              file + ": tensor 'fc10.weights.pool1' is 10x18, but the net needs 10x128"));
  CHECK(holds(damaged("state", [](json& s) { s["history"][0]["sums"][0][0] = "nobody"; }),
              "the history is damaged: epoch 1, batch 1 has other costs than the net"));
}

TEST_CASE("wrong wishes get an answer that helps") {
  const Workshop shop;
  shop.write_data();
  train(shop, 1);
  const std::string run = shop / "run";
  CHECK(holds(error({}), "missing: --load-file; usage: convnet show CHECKPOINT [options]"));
  CHECK(holds(error({run}), "nothing to show: --show-cost NAME, --show-filters LAYER"));
  CHECK(holds(error({shop / "nowhere", "--show-cost", "logprob"}),
              "there is no such checkpoint file or folder"));
  CHECK(holds(error({run, "--show-cost", "logprop"}), "did you mean 'logprob'?"));
  CHECK(count(run_well({"show", "--help"}).out, "checkpoint folder (its newest) or file of a trained net") ==
        1);
  CHECK(holds(error({run, "--show-cost", "logprob", "--cost-idx", "3"}),
              "--cost-idx 3: 'logprob' has 3 values: 0 (-log p), 1 (top-1 error), 2 (top-2 error)"));
  CHECK(
      holds(error({run, "--show-filters", "conf1"}), "the net has no layer 'conf1'; did you mean 'conv1'?"));
  CHECK(holds(error({run, "--show-filters", "somewhere"}),
              "the net has no layer 'somewhere'; layers with filters are conv1, fc10"));
  CHECK(holds(error({run, "--show-filters", "pool1"}), "layer 'pool1' of type 'pool' has no filters; "));
  CHECK(holds(error({run, "--show-filters", "conv1", "--input-idx", "1"}),
              "--input-idx 1: layer 'conv1' has inputs 0 to 0"));
  CHECK(holds(error({run, "--show-preds", "prob"}),
              "the net has no softmax layer 'prob' below a cost.logreg; did you mean 'probs'?"));
  CHECK(holds(error({run, "--show-cost", "logprob", "--show-filters", "conv1", "--out", "x.png"}),
              "--out names one picture, but 2 are asked for"));
  CHECK(holds(error({run, "--html", shop / "page.html", "--out", "x.png"}),
              "--out names one picture, but 0 are asked for"));
  CHECK(holds(error({run, "--show-filtres", "conv1"}), "did you mean '--show-filters'?"));
  CHECK(holds(error({run, "run2", "--show-cost", "logprob"}),
              "--show-cost is for one checkpoint; several runs"));
  CHECK(holds(error({run, "--show-cost", "logprob", "--out", shop.definition_path() + "/x.png"}),
              shop.definition_path() + ": is not a folder; the picture is to be written to"));
  const std::string checkpoint = run + "/1.1.safetensors";
  for (const char* const option : {"--html", "--save-preds", "--save-costs"})
    CHECK(holds(error({run, option, checkpoint}), checkpoint + ": is a file that the command reads"));
  CHECK(holds(error({run, run, "--html", checkpoint}), checkpoint + ": is a file that the command reads"));
  CHECK(holds(error({run, "--html", shop / "page", "--save-preds", shop / "page"}),
              "--save-preds and --html name the same file"));
  CHECK(holds(error({run, run, "--save-costs", shop / "c.csv"}), "--save-costs is for one checkpoint"));
  CHECK(holds(error({run, "--html", shop / "page", "--no-rgb"}), "--no-rgb is for --show-filters"));
  CHECK(holds(error({run, "--show-cost", "logprob", "--only-errors"}),
              "--only-errors is for --show-preds and --html"));
  CHECK(holds(error({run, "--html", shop / "new/page"}), (shop / "new") + ": no such folder"));
  // Files of the same kind are written again.
  std::filesystem::create_directory(shop / "new");
  const Args again = {"show",         run,
                      "--html",       shop / "new/page.html",
                      "--save-preds", shop / "new/p.csv",
                      "--save-costs", shop / "new/c.csv",
                      "--show-cost",  "logprob",
                      "--out",        shop / "new/cost.png"};
  run_well(again);
  run_well(again);
  run_well({"export", run, shop / "new/net.onnx"});
  run_well({"export", run, shop / "new/net.onnx"});
  for (int i = 0; i < 2; ++i)
    run_well({"--load-file", run, "--test-only", "1", "--confusion", shop / "new/m.csv"});
  CHECK(std::filesystem::exists(shop / "new/page.html"));
  std::filesystem::remove_all(shop / "new");

  run_well(shop.mnist() + Args{"--save-file", shop / "new", "--epochs", "0", "--force-save", "1"});
  CHECK(holds(error({shop / "new", "--show-cost", "logprob"}), "there is no history yet"));
  CHECK(holds(error({shop / "new", "--save-costs", shop / "costs.csv"}), "there is no history yet"));
  CHECK_FALSE(std::filesystem::exists(shop / "costs.csv"));
  run_well({"show", shop / "new", "--html", shop / "page.html"});
  CHECK(holds(read_file(shop / "page.html"), "There is no history yet."));
  CHECK(holds(read_file(shop / "page.html"), "not trained yet"));
}

TEST_CASE("names of layers, costs and classes are text on the page, not markup") {
  const Workshop shop;
  shop.write_data();
  const std::string layer = "<img src=x onerror='alert(1)'>";
  const std::string hostile_cost = "</svg><script>alert(2)</script>&\"";
  std::string definition = kDefinition;
  std::string parameters = kParameters;
  for (std::string* text : {&definition, &parameters}) {
    replace_all(*text, "conv1", layer);
    replace_all(*text, "logprob", hostile_cost);
  }
  shop.write(definition, parameters);
  train(shop, 1);
  const std::string file = shop / "run/1.1.safetensors";
  change_metadata(file, "matrices", [](json& m) {
    for (int c = 0; c < 10; ++c) m[1]["class_names"].push_back("<b onclick=alert(3)>" + std::to_string(c));
  });
  run_well({"show", file, "--html", shop / "page.html"});
  const std::string html = read_file(shop / "page.html");
  CHECK(holds(html, "&lt;img src=x onerror=&#39;alert(1)&#39;&gt;.weights.data"));
  CHECK(holds(html, "&lt;/svg&gt;&lt;script&gt;alert(2)&lt;/script&gt;&amp;&quot;: -log p"));
  CHECK(holds(html, "&lt;b onclick=alert(3)&gt;0"));
  for (const char* markup : {"<img src=x", "<script>alert", "<b onclick", "onerror='"})
    CHECK_FALSE(holds(html, markup));
  run_well({"show", file, "--show-cost", hostile_cost, "--out", shop / "c.png"});
  run_well({"show", file, "--show-filters", layer, "--out", shop / "f.png"});
}

TEST_CASE("option --cam draws which pixels spoke for a class, without the data set") {
  const Workshop shop;
  shop.write_arrays();
  shop.write(kDefinition, kPixelParameters);
  run_well(shop.net() + Args{"--data-provider", "npy", "--data-path", shop.data_path(), "--epochs", "1",
                             "--mini", "100", "--save-file", shop / "run"});
  std::filesystem::rename(shop.data_path() + "/images.npy", shop / "x.npy");
  std::filesystem::remove_all(shop.data_path());
  const Args cam = {"show", shop / "run", "--cam", shop / "x.npy", "--out", shop / "cam.png"};
  const Outcome drawn = run_well(cam);
  CHECK(drawn.out.find("by 2 maps of 3x3 of 'pool1'\n") != std::string::npos);
  CHECK(read_file(shop / "cam.png").starts_with("\x89PNG"));
  const Outcome other = run_well(cam + Args{"--cam-layer", "conv1", "--cam-class", "7"});
  CHECK(other.out.find(" for '7' (") != std::string::npos);
  CHECK(other.out.find("by 2 maps of 6x6 of 'conv1'\n") != std::string::npos);
  check_refused(cam + Args{"--cam-class", "10"}, "there is no class '10'");
  check_refused(cam + Args{"--cam-layer", "conv2"}, "the net has no layer 'conv2'; did you mean 'conv1'?");
  check_refused(cam + Args{"--cam", shop / "none.jpg"}, "none.jpg");
  check_refused(cam + Args{"--out", shop / "x.npy"}, "x.npy");
  check_refused(cam + Args{"--out", shop / "x.jpg"}, "give it the ending .png");
  check_refused({"show", shop / "run", "--show-filters", "conv1", "--cam-class", "1"},
                "--cam-class is for --cam");
}

}  // namespace
TEST_CASE("the page has both scales, learning rates and a drawing of the net") {
  const Workshop shop;
  shop.write_data();
  train(shop, 2);
  run_well({"show", shop / "run", "--html", shop / "page.html"});
  const std::string page = read_file(shop / "page.html");
  CHECK(holds(page, "prefers-color-scheme: dark"));
  // Two values of the cost and the rates, each linear and logarithmic.
  CHECK(count(page, "<div class=\"linear chart\">") == 4);
  CHECK(count(page, "<div class=\"log chart\">") == 4);
  // Every drawing says what it shows, and errors are in percent everywhere.
  CHECK(count(page, "<svg ") == count(page, " role=\"img\" aria-label=\""));
  CHECK(count(page, "<img ") == count(page, " alt=\"filters "));
  CHECK_THAT(page, Catch::Contains("aria-label=\"logprob: top-1 error in %: training ") &&
                       Catch::Contains("aria-label=\"confusion matrix of 10 classes\"") &&
                       Catch::Contains("aria-label=\"image of "));
  CHECK(holds(page, ">learning rates</text>"));
  std::vector<std::string> series;
  for (const json& chart : charts_of(page))
    for (const json& s : chart["series"]) series.push_back(s["name"]);
  CHECK(std::count(series.begin(), series.end(), "conv1.weights.data") == 2);
  // Every layer of the file has a box with its output.
  const std::string drawing = page.substr(page.find("class=\"net\""));
  for (const std::string text :
       {">conv1<", ">conv 2x6x6 +neuron<", ">pool1<", ">fc10<", ">probs<", ">logprob<"})
    CHECK(holds(drawing.substr(0, drawing.find("</svg>")), text));
}

TEST_CASE("several runs are shown side by side") {
  const Workshop shop;
  shop.write_data();
  train(shop, 2);
  run_well(shop.mnist() +
           Args{"--save-file", shop / "<other>", "--epochs", "3", "--test-freq", "1", "--mini", "10"});
  run_well({"show", shop / "run", shop / "<other>", "--html", shop / "runs.html"});
  const std::string page = read_file(shop / "runs.html");
  CHECK_FALSE(holds(page, "<other>"));
  CHECK(holds(page, "/&lt;other&gt;"));
  const std::vector<json> charts = charts_of(page);
  REQUIRE(!charts.empty());
  for (const json& chart : charts) CHECK(chart["series"].size() == 2);
  CHECK(charts[0]["series"][0]["points"].size() == 2);
  CHECK(charts[0]["series"][1]["points"].size() == 3);
  CHECK(holds(page, "<th>--mini</th>"));
  CHECK(holds(page, "<td>10</td>"));
  CHECK(holds(page, "<th>--epochs</th><td>2</td><td>3</td>"));
  CHECK_FALSE(holds(page, "<th>--threads</th>"));
  // A file that was edited between them shows its lines.
  shop.write(kDefinition, replaced(kParameters, "epsW=0.01", "epsW=0.005"));
  train(shop, 3);
  run_well({"show", shop / "run", shop / "<other>", "--html", shop / "runs.html"});
  CHECK(holds(read_file(shop / "runs.html"), "<th>parameters</th><td>epsW=0.005</td>"));
  CHECK(holds(error({shop / "run", shop / "<other>"}), "several runs are compared with --html FILE"));
  CHECK(holds(error({shop / "run", shop / "<other>", "--html", shop / "a", "--show-cost", "logprob"}),
              "--show-cost is for one checkpoint"));
}

TEST_CASE("curves keep their epochs where options name no ranges and the data set has moved") {
  const Workshop shop;
  shop.write(kDefinition, kPixelParameters);
  const std::string data = shop.write_arrays();
  run_well(shop.net() + Args{"--data-provider", "npy", "--data-path", data, "--save-file", shop / "run",
                             "--epochs", "2", "--test-freq", "1", "--mini", "500"});
  const auto epochs_of_training = [&](const Args& more) {
    run_well(Args{"show", shop / "run", "--html", shop / "page.html"} + more);
    const json chart = charts_of(read_file(shop / "page.html")).at(0);
    std::vector<double> epochs;
    for (const json& point : chart.at("series").at(0).at("points"))
      epochs.push_back(point.at(0).get<double>());
    return epochs;
  };
  const std::vector<double> expected = {0.5, 1, 1.5, 2};
  CHECK(epochs_of_training({}) == expected);
  CHECK(epochs_of_training({"--test-range", "1"}) == expected);
  std::filesystem::rename(data, shop / "elsewhere");
  CHECK(epochs_of_training({}) == expected);
}

}  // namespace convnet
