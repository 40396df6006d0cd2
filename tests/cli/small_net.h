// A net and a data set so small that a run takes some hundredths of a second.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <regex>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/cli/run_program.h"
#include "tests/temp_folder.h"

namespace convnet {

/// A net for images of 1x8x8 in 10 classes. Tests of messages count its lines.
inline const std::string kDefinition =
    "[data]\n"                // 1
    "type=data\n"             // 2
    "dataIdx=0\n"             // 3
    "[labels]\n"              // 4
    "type=data\n"             // 5
    "dataIdx=1\n"             // 6
    "[conv1]\n"               // 7
    "type=conv\n"             // 8
    "inputs=data\n"           // 9
    "channels=1\n"            // 10
    "filters=2\n"             // 11
    "filterSize=3\n"          // 12
    "neuron=relu\n"           // 13
    "[pool1]\n"               // 14
    "type=pool\n"             // 15
    "inputs=conv1\n"          // 16
    "pool=max\n"              // 17
    "channels=2\n"            // 18
    "sizeX=2\n"               // 19
    "stride=2\n"              // 20
    "[fc10]\n"                // 21
    "type=fc\n"               // 22
    "inputs=pool1\n"          // 23
    "outputs=10\n"            // 24
    "dropout=0.25\n"          // 25
    "[probs]\n"               // 26
    "type=softmax\n"          // 27
    "inputs=fc10\n"           // 28
    "[logprob]\n"             // 29
    "type=cost.logreg\n"      // 30
    "inputs=labels,probs\n";  // 31

inline const std::string kParameters =
    "[conv1]\n"    // 1
    "epsW=0.01\n"  // 2
    "epsB=0.02\n"  // 3
    "momW=0.9\n"   // 4
    "momB=0.8\n"   // 5
    "[fc10]\n"     // 6
    "epsW=0.01\n"  // 7
    "epsB=0.02\n"  // 8
    "momW=0.9\n"   // 9
    "momB=0.8\n"   // 10
    "wc=0.001\n"   // 11
    "[logprob]\n"  // 12
    "coeff=1\n"    // 13
    "topk=2\n";    // 14

/// kParameters for pixels of 0 to 255.
inline const std::string kPixelParameters =
    std::regex_replace(kParameters, std::regex("eps(.)=0.0"), "eps$1=0.00000");

/// `text` with its first `from` replaced.
inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  if (at == std::string::npos) throw std::invalid_argument("the text has no '" + from + "'");
  return text.replace(at, from.size(), to);
}

/// The names in a folder, sorted.
inline std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// Returns how often `part` occurs in `text`.
inline int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size()))
    ++found;
  return found;
}

/// Bytes of an IDX file of unsigned bytes; `dims` begins with the number of records.
inline std::string idx_file(const std::vector<std::uint32_t>& dims, const std::string& values) {
  std::string bytes{'\0', '\0', '\x08', static_cast<char>(dims.size())};
  for (std::uint32_t d : dims) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(d >> shift & 0xFF);
  }
  return bytes + values;
}

/// Bytes of a file of NumPy: `descr` is its type, like |u1, and `shape` its sides, like "20, 1, 8, 8".
inline std::string npy_file(const std::string& descr, const std::string& shape, const std::string& values) {
  std::string header = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  header.resize(117, ' ');
  return std::string("\x93NUMPY\x01\0\x76\0", 10) + header + "\n" + values;
}

/// A run that was ended by --time-limit, and the limit.
struct LimitedRun {
  Outcome outcome;
  std::string limit;
};

/// Returns what `run` returns for a limit of two seconds, or of a minute if a busy machine could not train by
/// then. `folder` is the run's.
inline LimitedRun run_limited(const std::string& folder, const std::function<Outcome(std::string)>& run) {
  LimitedRun limited{run("0:02"), "0:02"};
  if (limited.outcome.code != 0) {
    std::filesystem::remove_all(folder);
    limited = {run("1:00"), "1:00"};
  }
  INFO(limited.outcome.out << limited.outcome.err);
  REQUIRE(limited.outcome.code == 0);
  return limited;
}

/// A folder with the net's files, net.cfg and params.cfg, and on wish a data set.
class Workshop {
 public:
  Workshop() { write(kDefinition, kParameters); }

  void write(const std::string& definition, const std::string& parameters) const {
    write_file(definition_path(), definition);
    write_file(parameters_path(), parameters);
  }

  /// A MNIST-like set of 8x8 images: batch 1 has 40 for training, batch 2 has 20 for tests.
  std::string write_data() const {
    std::filesystem::create_directory(data_path());
    for (const auto& [stem, count] : {std::pair<std::string, std::uint32_t>{"train", 40}, {"t10k", 20}}) {
      std::string pixels;
      std::string labels;
      for (std::uint32_t i = 0; i < count; ++i) {
        labels += static_cast<char>(i * 7 % 10);
        for (std::uint32_t p = 0; p < 64; ++p)
          pixels += static_cast<char>((p * (i * 7 % 10 + 3) + i * 31) % 256);
      }
      write_file(data_path() + "/" + stem + "-images-idx3-ubyte", idx_file({count, 8, 8}, pixels));
      write_file(data_path() + "/" + stem + "-labels-idx1-ubyte", idx_file({count}, labels));
    }
    return data_path();
  }

  /// Arrays of 8x8 images: batches 1 and 2 of 1000 images each, batch 3 of 100. Without ranges 1 and 2 train,
  /// and 3 is for tests.
  std::string write_arrays() const {
    std::filesystem::create_directory(data_path());
    constexpr int kImages = 2100;
    std::string pixels, labels;
    for (int i = 0; i < kImages; ++i) {
      labels += static_cast<char>(i * 7 % 10);
      for (int p = 0; p < 64; ++p) pixels += static_cast<char>((p * (i * 7 % 10 + 3) + i * 31) % 256);
    }
    write_file(data_path() + "/images.npy", npy_file("|u1", std::to_string(kImages) + ", 1, 8, 8", pixels));
    write_file(data_path() + "/labels.npy", npy_file("|u1", std::to_string(kImages) + ",", labels));
    return data_path();
  }

  std::string definition_path() const { return folder_ / "net.cfg"; }
  std::string parameters_path() const { return folder_ / "params.cfg"; }
  std::string path() const { return folder_.path(); }
  std::string data_path() const { return folder_ / "set"; }
  std::string operator/(const std::string& name) const { return folder_ / name; }

  /// Options of the net's files.
  Args net() const {
    return {"--layer-def", definition_path(), "--layer-params", parameters_path(), "--threads", "1"};
  }
  /// Two training batches of 1000 random images, one for tests.
  Args dummy() const {
    return net() + Args{"--data-provider", "dummy-1x8x8-10", "--train-range", "1-2", "--test-range", "3"};
  }
  /// The data set of write_data(), in minibatches of 16, 16 and 8 images.
  Args mnist() const {
    return net() + Args{"--data-provider", "mnist", "--data-path", data_path(), "--train-range", "1",
                        "--test-range",    "2",     "--mini",      "16"};
  }

 private:
  TempFolder folder_;
};

/// Returns the command line that plans the net of a workshop for a data set that fits.
inline Args planning(const Workshop& shop, const Args& more = {}) {
  return Args{"plan", "--data-provider", "dummy-1x8x8-10"} + shop.net() + more;
}
/// Returns what that command does.
inline Outcome plan(const Workshop& shop, const Args& more = {}) { return run_program(planning(shop, more)); }

}  // namespace convnet
