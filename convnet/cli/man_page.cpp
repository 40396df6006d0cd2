// `convnet help --man`: the man page convnet(1).
#include <fmt/format.h>

#include "convnet/base/utf8.h"
#include "convnet/cli/build_info.h"
#include "convnet/cli/help.h"

namespace convnet {
namespace {

/// Returns groff input that prints `text`.
std::string groff(const std::string& text) {
  std::string out;
  for (std::string_view rest = text; !rest.empty();) {
    const auto code = static_cast<unsigned>(*take_code_point(rest));
    if (code == '-')
      out += "\\-";
    else if (code == '\\')
      out += "\\e";
    else if (code == '\'')
      out += "\\(aq";
    else if (code == '"')
      out += "\\(dq";
    else if (code == 0x2026U)
      out += "...";  // groff has no ellipsis in ASCII
    else if (code < 0x80U)
      out += static_cast<char>(code);
    else
      out += fmt::format("\\[u{:04X}]", code);
  }
  return out.starts_with('.') ? "\\&" + out : out;
}

std::string section_text(const HelpSection& section) {
  std::string text = ".PP\n" + groff(section.title) + ":\n";
  for (const OptionSpec* spec : section.options)
    text += fmt::format(".TP\n.BI \"{} \" \"{}\"\n{}\n", groff("--" + spec->param.key),
                        groff(value_form(spec->param)), groff(option_meaning(spec->param)));
  text += ".PP\nExamples:\n.nf\n";
  for (const std::string& example : section.examples) text += groff(example) + "\n";
  return text + ".fi\n";
}

}  // namespace

std::string man_page() {
  std::string text = fmt::format(
      ".TH CONVNET 1 \"\" \"convnet {}\" \"User Commands\"\n.SH NAME\nconvnet \\- train convolutional "
      "networks that are described by two text files\n.SH SYNOPSIS\n",
      build_info::version);
  for (const Command& command : commands())
    text += fmt::format(".B convnet {}\n{}\n.br\n", groff(command.name), groff(command.arguments));
  text += ".SH DESCRIPTION\nThe word train may be left out. In the examples, $NET stands for\n.nf\n" +
          groff(std::string(kExampleNet)) + "\n.fi\n.SH COMMANDS\n";
  for (const Command& command : commands()) {
    text += fmt::format(".SS convnet {}\n{}\n", groff(command.name), groff(command.summary));
    for (const HelpSection& section : help_sections(command)) text += section_text(section);
    if (const std::string left_aside = left_aside_text(command); !left_aside.empty())
      text += ".PP\n" + groff(left_aside) + "\n";
  }
  text += ".SH EXIT STATUS\n" + groff(std::string(kExitCodes)) + "\n";
  return text +
         ".SH FILES\n.TP\n.I /usr/share/convnet/configs\nNets to start from, which are found by their "
         "names.\n.TP\n"
         ".I /usr/share/doc/convnet\nDocumentation of layers, data, training and devices.\n";
}

}  // namespace convnet
