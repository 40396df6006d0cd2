// `convnet nets` lists the nets that come with the program.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "convnet/base/error.h"
#include "convnet/cli/command_line.h"
#include "convnet/cli/commands.h"
#include "convnet/net/find_net.h"
#include "convnet/net/options.h"
#include "convnet/net/ready_nets.h"
#include "convnet/plan/print.h"

namespace convnet {
namespace {

nlohmann::json nets_json(const std::vector<ReadyNet>& nets) {
  nlohmann::json all = nlohmann::json::array();
  for (const ReadyNet& net : nets)
    all.push_back({{"name", net.name},
                   {"file", net.file},
                   {"parameters", net.parameters},
                   {"multiply_adds", net.multiply_adds},
                   {"image", net.header.image},
                   {"classes", net.header.classes},
                   {"summary", net.header.summary},
                   {"measured", net.header.measured}});
  return all;
}

const OptionTable<ReportOptions>& options_of_nets() {
  static const auto table = report_options().only({"json"});
  return table;
}

}  // namespace

const std::vector<OptionSpec>& nets_command_options() { return options_of_nets().specs(); }

void nets_command(const std::vector<std::string>& args) {
  const ReportOptions options = options_of_nets().parse(parse_command_line(nets_command_options(), args));
  const std::string folder = installed_nets();
  if (folder.empty()) throw InputError(no_folder_of_nets());
  const std::vector<ReadyNet> nets = ready_nets();
  if (options.json) return fmt::print("{}\n", nets_json(nets).dump(2));
  fmt::print("{:<24} {:>10} {:>13} {:>12}  {}\n", "net", "parameters", "multiply-adds", "images",
             "what it is");
  for (const ReadyNet& net : nets) {
    fmt::print("{:<24} {:>10} {:>13} {:>12}  {}\n", net.name, scaled(static_cast<double>(net.parameters)),
               scaled(net.multiply_adds), to_string(net.header.image), net.header.summary);
    if (!net.header.measured.empty()) fmt::print("{:<62}  measured: {}\n", "", net.header.measured);
  }
  fmt::print(
      "\nParameters and multiply-adds are for images of this size and the classes that the file names; other "
      "data may be used, too.\n--layer-def NAME takes a net. Its files are in {}\n",
      folder);
}

}  // namespace convnet
