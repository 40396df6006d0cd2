// Small photographs in each form of image data sets, and a net that trains on them.
#pragma once

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "convnet/checkpoint/safetensors.h"
#include "tests/cli/small_net.h"
#include "tests/providers/image_sets.h"

namespace convnet {

/// 3x16x16 crops, four classes.
inline const std::string kColorNet =
    "[data]\ntype=data\ndataIdx=0\n[labels]\ntype=data\ndataIdx=1\n"
    "[conv1]\ntype=conv\ninputs=data\nchannels=3\nfilters=4\nfilterSize=5\nstride=2\nneuron=relu\ninitW=0."
    "001\n"
    "[fc4]\ntype=fc\ninputs=conv1\noutputs=4\ndropout=0.25\n"
    "[probs]\ntype=softmax\ninputs=fc4\n[logprob]\ntype=cost.logreg\ninputs=labels,probs\n";
inline const std::string kColorParameters =
    "[conv1]\nepsW=0.0001\nepsB=0.0001\nmomW=0.9\nmomB=0.9\n"
    "[fc4]\nepsW=0.001\nepsB=0.001\nmomW=0.9\nmomB=0.9\n[logprob]\ncoeff=1\n";

/// A folder with the same photographs as batches of pickles, as tars and as folders of classes.
class Photographs {
 public:
  Photographs() {
    write_file(folder / "net.cfg", kColorNet);
    write_file(folder / "params.cfg", kColorParameters);
    const std::vector<image_sets::Item> items = image_sets::photographs(47, 4, 20);
    write_file_in("pickles/batches.meta", image_sets::meta(4, 30, 20));
    image_sets::write_batch(folder / "pickles", 1, {items.begin(), items.begin() + 20}, 7);
    image_sets::write_batch(folder / "pickles", 2, {items.begin() + 20, items.begin() + 37}, 7);
    image_sets::write_batch(folder / "pickles", 1000, {items.begin() + 37, items.end()}, 7);
    write_file_in("tars/a-1.tar", image_sets::tar_of({items.begin(), items.begin() + 20}));
    write_file_in("tars/a-2.tar", image_sets::tar_of({items.begin() + 20, items.begin() + 37}));
    write_file_in("tars/a-3.tar", image_sets::tar_of({items.begin() + 37, items.end()}));
    image_sets::write_folders(folder / "folders/train", {items.begin(), items.begin() + 37});
    image_sets::write_folders(folder / "folders/val", {items.begin() + 37, items.end()});
  }

  /// Trains on `set` with crops of 16 of images of 20, and colour noise.
  Args train(const std::string& set, const std::string& into) const {
    const std::string test = set == "pickles" ? "1000" : set == "tars" ? "3" : "2";
    Args args = {"--layer-def",     folder / "net.cfg",
                 "--layer-params",  folder / "params.cfg",
                 "--data-provider", "image",
                 "--data-path",     folder / set,
                 "--train-range",   set == "folders" ? "1" : "1-2",
                 "--test-range",    test,
                 "--inner-size",    "16",
                 "--mini",          "8",
                 "--color-noise",   "0.1",
                 "--epochs",        "2",
                 "--test-freq",     "1",
                 "--threads",       "2",
                 "--save-file",     folder / into};
    if (set != "pickles") args = args + Args{"--image-size", "20"};
    return args;
  }

  TempFolder folder;

 private:
  void write_file_in(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories(std::filesystem::path(folder / name).parent_path());
    write_file(folder / name, bytes);
  }
};

/// Returns the arguments with another value of an option.
inline Args with(Args args, const std::string& option, const std::string& value) {
  *std::next(std::find(args.begin(), args.end(), option)) = value;
  return args;
}

/// Reads the checkpoint in a folder whose name comes last.
inline TensorFile newest(const std::string& folder) {
  std::string last;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    last = std::max(last, entry.path().string());
  return read_safetensors(last);
}

}  // namespace convnet
