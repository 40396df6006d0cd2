#include "convnet/cli/command_line.h"
#include "convnet/cli/commands.h"
#include "convnet/train/trainer.h"

namespace convnet {

const std::vector<OptionSpec>& train_command_options() { return train_options().specs(); }

void train_command(const std::vector<std::string>& args, const StandardStreams& streams) {
  const OptionTexts texts = parse_command_line(train_command_options(), args);
  StopSignal stop(streams);  // before any thread starts
  Trainer(texts, stop).run();
}

}  // namespace convnet
