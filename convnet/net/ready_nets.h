// The nets that come with the program, as `convnet nets` lists them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convnet/base/tensor.h"

namespace convnet {

/// The facts about a net that the comments at the top of its definition state:
///
///     # resnet18: residual net of 18 layers (arXiv 1512.03385).
///     # input: 3x224x224, 1000 classes
///     # measured: 30 % top-1 error on ImageNet after 90 epochs
struct NetHeader {
  std::string summary;       ///< the first line behind the name
  Dims image;                ///< channels, height and width that the net is made for
  std::int64_t classes = 0;  ///< number of classes of the data that its numbers are for
  std::string measured;      ///< "" if nothing was measured
};

/// Reads these comments; nullopt if the file has no line "# input:" that is right.
std::optional<NetHeader> read_net_header(std::string_view text);

/// A net with its sizes.
struct ReadyNet {
  std::string name;  ///< as --layer-def takes it
  std::string file;  ///< name of its file in the folder
  NetHeader header;
  std::int64_t parameters = 0;
  double multiply_adds = 0;  ///< of an image, forward: those of convolutions and fully-connected layers
};

/// Returns the nets in installed_nets() that have such comments, in the order of their names. Throws
/// InputError if one of them is wrong.
std::vector<ReadyNet> ready_nets();

/// Reads a net of a folder; nullopt if the file has no such comments. Throws InputError if it is wrong.
std::optional<ReadyNet> ready_net(const std::string& folder, const std::string& file);

}  // namespace convnet
