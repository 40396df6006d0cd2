// `convnet plan`: what a net needs, without running it.
#include <fmt/format.h>

#include "convnet/cli/command_line.h"
#include "convnet/cli/commands.h"
#include "convnet/plan/print.h"
#include "convnet/train/net.h"
#include "kernels/error.h"

namespace convnet {

void plan_command(const std::vector<std::string>& args) {
  const OptionTexts texts = parse_command_line('p', args);
  require_options(texts, {"layer-def", "layer-params", "data-provider"}, "");
  const Options options = parse_options(texts);
  Diagnostics diagnostics;
  const NetFiles files = read_net_files(options, diagnostics);
  const auto provider = make_provider(options.data_provider, options.data_path, options.seed_value());
  const Graph graph = checked_graph(files, *provider, options, diagnostics);
  for (const std::string& warning : diagnostics.warnings()) fmt::print(stderr, "{}\n", warning);
  const auto backend = make_backend(options, graph.gpu_count());
  PlanSet plans(graph, provider->matrices(), *backend,
                {options.seed_value(), provider->subtracts_mean(), true, options.conserve_mem});
  const Plan& train = plans.plan(Phase::train, options.mini);
  const Plan& test = plans.plan(Phase::test, options.mini);
  verify(train, graph);
  verify(test, graph);
  const nlohmann::json plan = plan_json(plans, train, test, options.verbose);
  fmt::print("{}\n", options.json ? plan.dump(2) : plan_text(plan));
}

}  // namespace convnet
