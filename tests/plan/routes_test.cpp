#include "convnet/plan/routes.h"

#include "convnet/plan/links.h"
#include "tests/catch.h"

using convnet::BufferId;
using convnet::DeviceId;
using convnet::Exchange;
using convnet::Transfer;

TEST_CASE("a broadcast keeps no link much longer busy than the root's") {
  // Pairs of devices in two groups, of four and of three. All pairs and devices have links of equal speed.
  const std::vector<std::vector<int>> pairs = {{0, 0, 1, 1, 2, 2, 3}};
  const Exchange exchange(7, pairs, {std::vector<double>(7, 25), {{30, 30, 30, 30}}});
  convnet::DeviceModel model;
  model.link_bandwidth = {25};
  model.switches = {{{2}, {30}}, {{4}, {80}}};
  std::vector<BufferId> buffers;
  for (int d = 0; d < 7; ++d) buffers.emplace_back(d);
  constexpr std::int64_t bytes = 7 << 20;
  std::vector<Transfer> transfers;
  for (const auto& stage : broadcast_route(exchange, buffers, 0, bytes)) {
    for (const convnet::RouteStep& step : stage)
      transfers.push_back({DeviceId(step.to.buffer.value()), DeviceId(step.from[0].buffer.value()),
                           static_cast<double>(step.to.bytes)});
  }
  CHECK(transfer_seconds(model, transfers, 7) < 1.11 * static_cast<double>(bytes) / 25);
}
