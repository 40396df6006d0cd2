// Recognises nets of other programs where a layer file is expected.
#pragma once

#include <string>
#include <string_view>

#include "convnet/config/params.h"

namespace convnet {

/// Returns what a file is if it describes a net or its weights for another program, with what to do about it:
/// "is a cfg of Darknet; …". "" if it is not recognised as such.
std::string foreign_net(std::string_view bytes, CfgFile wanted);

}  // namespace convnet
