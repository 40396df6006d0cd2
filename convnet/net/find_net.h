// Finds the files of a net by the names that options give: files of the user's, and nets that come with the
// program.
#pragma once

#include <string>
#include <vector>

#include "convnet/config/options.h"
#include "convnet/config/params.h"

namespace convnet {

/// Returns the path of a file of a net: the definition or the parameters.
///
/// A name stands for the file of that name in `folder` (--layer-path; "" is the current one), or with ".cfg"
/// behind it; of parameters also with "-params.cfg". If there is none, and the name has no folder, it stands
/// for such a file in installed_nets(), whose name may also end in "-imagenet", and may have '-' where the
/// given one has '_', or the other way round. Returns the name in `folder` if there is no file at all.
std::string find_net_file(const std::string& folder, const std::string& name, CfgFile which);

/// Returns the folder of the nets that come with the program: share/convnet/configs beside the folder of the
/// program's file, or configs of the source tree that the program was built in. "" if there is neither.
std::string installed_nets();

/// Returns a phrase that says where a program looks for them and that they are not there.
std::string no_folder_of_nets();

/// Returns whether a file lies in that folder.
bool is_installed(const std::string& file);

/// Gives options that name a net in installed_nets(), but no parameters, those of the net. Throws InputError
/// if there is no such file or net, but one whose name is near.
void add_parameters(OptionTexts& texts);

/// Returns whether options name a net in installed_nets() and leave its parameters to add_parameters().
/// Throws InputError as that does.
bool names_ready_net(OptionTexts texts);

/// Returns the short name of a definition in installed_nets(): "resnet18" of "resnet18-imagenet.cfg".
std::string short_net_name(const std::string& file);

/// Returns the names of the definitions or the parameters in installed_nets(), in order.
std::vector<std::string> installed_net_files(CfgFile which);

}  // namespace convnet
