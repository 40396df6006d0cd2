// The table of commands.
#include <algorithm>

#include "convnet/cli/commands.h"

namespace convnet {
namespace {

/// Runs a command that needs no standard streams.
template <void (*command)(const std::vector<std::string>&)>
void plain(const std::vector<std::string>& args, StandardStreams&) {
  command(args);
}

}  // namespace

const std::vector<Command>& commands() {
  static const std::vector<Command> all = {
      {"train",
       "DATA-SET|--data-provider PROVIDER --layer-def FILE --layer-params FILE --save-file FOLDER "
       "[--data-path FOLDER --train-range A-B --test-range C-D] [options]",
       "Trains a net, on a folder of images or another data set; --load-file CHECKPOINT alone resumes.",
       Operands::files, train_command_options, "convnet $NET --save-file run", InProcesses::all,
       train_command},
      {"plan", "--layer-def FILE --layer-params FILE --data-provider PROVIDER [options]",
       "Prints shapes, memory and work of a net, without running it.", Operands::none, plan_command_options,
       "convnet plan $NET", InProcesses::refused, plain<plan_command>, true},
      {"place",
       "--layer-def FILE --layer-params FILE --data-provider PROVIDER --model FILE --gpu 0,1,... [options]",
       "Finds the fastest devices for each layer, and writes them as .cfg files.", Operands::none,
       place_command_options, "convnet place $NET --gpu 0,1 --model measured", InProcesses::refused,
       plain<place_command>, true},
      {"bench", "--layer-def FILE --layer-params FILE --data-provider PROVIDER [options]",
       "Measures the speed of a training step, by layer.", Operands::none, bench_command_options,
       "convnet bench $NET", InProcesses::refused, plain<bench_command>, true},
      {"show",
       "CHECKPOINT... [--show-cost LAYER | --show-filters LAYER | "
       "--show-preds LAYER | --cam IMAGE | --html FILE] [options]",
       "Draws curves, filters, predictions and what they rest on (Grad-CAM) as pictures or a page.",
       Operands::files, show_command_options, "convnet show run --html page.html", InProcesses::refused,
       plain<show_command>},
      {"predict", "CHECKPOINT FILE|FOLDER|-... [options]",
       "Prints the classes of images (files, stdin, or arrays in .npy files), or the outputs of layers.",
       Operands::files, predict_command_options, "convnet predict run photo.jpg", InProcesses::refused,
       plain<predict_command>},
      {"export", "CHECKPOINT FILE.onnx|FILE.safetensors [--output LAYER,...]",
       "Writes a trained net as an ONNX model, for other programs to run, or its weights with PyTorch's "
       "names.",
       Operands::files, export_command_options, "convnet export run net.onnx", InProcesses::refused,
       plain<export_command>},
      {"import",
       "FILE.onnx|FILE.cfg [--layer-def FILE] [--layer-params FILE] [--checkpoint FOLDER] [options]",
       "Makes an ordinary net of an ONNX model, or of a .cfg file of Darknet: the two .cfg files, and a "
       "checkpoint with its weights.",
       Operands::files, import_command_options, "convnet import model.onnx", InProcesses::refused,
       plain<import_command>},
      {"make-data", "--src FOLDER --dst FOLDER [options]",
       "Makes a data set for provider image (cuda-convnet2's "
       "batches of JPEGs) from folders or tars of images.",
       Operands::none, make_data_command_options, "convnet make-data --src images --dst batches",
       InProcesses::refused, plain<make_data_command>},
      {"nets", "[--json]", "Lists the nets that --layer-def takes by name, with their sizes.", Operands::none,
       nets_command_options, "convnet nets", InProcesses::first, plain<nets_command>},
      {"layers", "[TYPE | --markdown]", "Lists the layer types, or the keys of one.", Operands::layer_types,
       nullptr, "", InProcesses::first, plain<layers_command>},
      {"help", "[WORD | --man]",
       "Describes a command, a layer type, a key, a neuron, an option, a net or `schedule`, or prints the "
       "man page (groff).",
       Operands::topics, nullptr, "", InProcesses::first, plain<help_command>},
      {"completion", "bash|zsh|fish", "Prints the completion script of a shell.", Operands::shells, nullptr,
       "", InProcesses::first, plain<completion_command>},
  };
  return all;
}

const Command* find_command(const std::string& name) {
  const auto found = std::find_if(commands().begin(), commands().end(),
                                  [&](const Command& command) { return name == command.name; });
  return found == commands().end() ? nullptr : &*found;
}

}  // namespace convnet
