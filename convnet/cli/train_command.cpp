#include "convnet/cli/command_line.h"
#include "convnet/cli/commands.h"
#include "convnet/train/trainer.h"

namespace convnet {

void train_command(const std::vector<std::string>& args, const StandardStreams& streams) {
  const OptionTexts texts = parse_command_line('t', args);
  StopSignal stop(streams);  // before any thread starts
  Trainer(texts, stop).run();
}

}  // namespace convnet
