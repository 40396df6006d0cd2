// `convnet help --man`: the man page convnet(1).
#include <fmt/format.h>

#include "convnet/cli/build_info.h"
#include "convnet/cli/help.h"

namespace convnet {
namespace {

/// Returns the code of the UTF-8 character at `at`, which is moved behind it.
unsigned next_code(const std::string& text, std::size_t& at) {
  const auto first = static_cast<unsigned char>(text[at++]);
  if (first < 0x80U) return first;
  unsigned code = first & (first >= 0xF0U ? 0x07U : first >= 0xE0U ? 0x0FU : 0x1FU);
  for (; at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U; ++at)
    code = code << 6U | (static_cast<unsigned char>(text[at]) & 0x3FU);
  return code;
}

/// Returns groff input that prints `text`.
std::string groff(const std::string& text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const unsigned code = next_code(text, at);
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
  }
  text += ".SH EXIT STATUS\n" + groff(std::string(kExitCodes)) + "\n";
  return text +
         ".SH FILES\n.TP\n.I /usr/share/convnet/configs\nNets to start from.\n.TP\n.I "
         "/usr/share/doc/convnet\n"
         "Documentation of layers, data, training and devices.\n";
}

}  // namespace convnet
