#include "convnet/show/curves.h"

#include "convnet/base/error.h"
#include "convnet/net/costs.h"
#include "tests/catch.h"
#include "tests/temp_folder.h"

using namespace convnet;

namespace {

/// A net with two costs of a softmax: one printed, the other its child.
struct SmallGraph {
  Graph graph;

  SmallGraph() {
    Diagnostics diagnostics;
    const IniFile definition = parse_ini("net.cfg",
                                         "[data]\ntype=data\ndataIdx=0\n[labels]\ntype=data\ndataIdx=1\n"
                                         "[fc]\ntype=fc\ninputs=data\noutputs=10\n"
                                         "[probs]\ntype=softmax\ninputs=fc\n"
                                         "[child]\ntype=cost.logreg\ninputs=labels,probs\n"
                                         "[logprob]\ntype=cost.logreg\ninputs=labels,probs\nchildren=child\n"
                                         "[l2]\ntype=cost.sum2\ninputs=fc\n",
                                         diagnostics);
    const IniFile parameters = parse_ini("params.cfg",
                                         "[fc]\nepsW=0.1\nepsB=0.1\nmomW=0\nmomB=0\n[child]\ncoeff=1\n"
                                         "[logprob]\ncoeff=1\ntopk=5\n[l2]\ncoeff=0.1\n",
                                         diagnostics);
    graph = build_graph(definition, parameters,
                        {{"data", {1, 2, 2}, DataType::u8, 0}, {"labels", {1}, DataType::s32, 10}}, {},
                        diagnostics);
    diagnostics.throw_if_errors();
  }

  Chart chart(const TrainingState& state, const CurveRequest& request) const {
    return cost_chart(state, graph, request);
  }
};

/// A batch of ten images, or a test after it.
HistoryEntry entry(int epoch, int batch, double top1_errors, int test_batch = -1) {
  HistoryEntry e;
  e.epoch = epoch;
  e.batch = batch;
  e.test_batch = test_batch;
  e.costs.images = 10;
  e.costs.sums = {{"child", {10, top1_errors, 1}}, {"logprob", {20, 0, 2}}, {"l2", {5}}};
  return e;
}

TrainingState four_batches() {
  TrainingState state;
  state.history = {entry(1, 3, 8), entry(1, 4, 6), entry(1, 4, 5, 9),
                   entry(2, 3, 4), entry(2, 4, 2), entry(2, 4, 3, 10)};
  return state;
}

}  // namespace

TEST_CASE("history becomes points over epochs, values of children added") {
  const SmallGraph net;
  const Chart chart = net.chart(four_batches(), {"logprob", 1, 1, {3, 4}});
  CHECK(chart.title == "logprob: top-1 error in %");
  CHECK(chart.unit == " %");
  CHECK(chart_text(chart) == "logprob: top-1 error in %: training 20 %, test 30 %");
  CHECK(chart.x_label == "epochs");
  REQUIRE(chart.series.size() == 2);
  CHECK(chart.series[0].points == std::vector<Point>{{0.5, 80}, {1, 60}, {1.5, 40}, {2, 20}});
  CHECK(chart.series[0].labels[1] == "epoch 1, batch 4");
  CHECK(chart.series[0].legend() == "training 20 %");
  CHECK(chart.series[1].points == std::vector<Point>{{1, 50}, {2, 30}});
  CHECK(chart.series[1].legend() == "test 30 %");
  // Other costs are no fractions.
  const Chart log_p = net.chart(four_batches(), {"logprob", 0, 1, {3, 4}});
  CHECK(log_p.series[0].points[0].y == 3);
  CHECK(chart_text(log_p) == "logprob: -log p: training 3, test 3");
}

TEST_CASE("the chart of learning rates shows the drops of --plateau") {
  const SmallGraph net;
  TrainingState state = four_batches();
  state.position = {2, 4};
  state.plateau.changes = {{1, 4, 0.5}, {2, 4, 0.25}};
  const Chart chart = rate_chart(state, net.graph, {3, 4}, 10);
  REQUIRE(chart.series.size() == 1);
  for (const Point& point : chart.series[0].points)
    CHECK(point.y == Approx(point.x < 1 ? 0.1 : point.x < 2 ? 0.05 : 0.025));
  CHECK(chart.series[0].points.back().x == 2);
}

TEST_CASE("the history as CSV has a line for each value") {
  const SmallGraph net;
  TrainingState state = four_batches();
  // Two batches of ten images.
  state.history[0].count = 2;
  state.history[0].costs.images = 20;
  state.history.resize(3);
  CHECK(costs_csv(state, net.graph) ==
        "epoch,batch,phase,images,layer,value name,value\n"
        "1,3,train,20,logprob,-log p,1.5\n"
        "1,3,train,20,logprob,top-1 error,0.4\n"
        "1,3,train,20,logprob,top-5 error,0.15\n"
        "1,3,train,20,l2,sum of squares,0.25\n"
        "1,4,train,10,logprob,-log p,3\n"
        "1,4,train,10,logprob,top-1 error,0.6\n"
        "1,4,train,10,logprob,top-5 error,0.3\n"
        "1,4,train,10,l2,sum of squares,0.5\n"
        "1,4,test,10,logprob,-log p,3\n"
        "1,4,test,10,logprob,top-1 error,0.5\n"
        "1,4,test,10,logprob,top-5 error,0.3\n"
        "1,4,test,10,l2,sum of squares,0.5\n");
  CHECK(message_of<InputError>([&] { costs_csv({}, net.graph); }) ==
        "there is no history yet: the checkpoint was written before a batch was trained");
  state.history[1].costs.sums[2].second[0] = std::numeric_limits<double>::infinity();
  CHECK(message_of<InputError>([&] { costs_csv(state, net.graph); }) ==
        "the history is damaged: it holds numbers that are not finite");
  state.history[1].costs.sums.pop_back();
  CHECK(message_of<InputError>([&] { costs_csv(state, net.graph); }) ==
        "the history is damaged: epoch 1, batch 4 has other costs than the net");
}

TEST_CASE("smoothed tests are means over as many as there are") {
  const SmallGraph net;
  const Chart chart = net.chart(four_batches(), {"logprob", 1, 2, {3, 4}});
  CHECK(chart.series[1].points == std::vector<Point>{{1, 50}, {2, 40}});
  CHECK(chart.series[1].legend() == "test 40 %, mean of 2 tests");
  CHECK(chart.series[0].points[0].y == 80);
}

TEST_CASE("entries of several batches or tests are their means, and count as so many") {
  const SmallGraph net;
  TrainingState state = four_batches();
  // Two batches of ten images with six wrong; then tests of one and of three, with 5 and 9 of 10 and 30
  // wrong.
  state.history[1].count = 2;
  state.history[1].costs.images = 20;
  state.history[5].count = 3;
  state.history[5].costs.images = 30;
  state.history[5].costs.sums[1].second[1] = 9 - 1;
  state.history[5].costs.sums[0].second[1] = 1;
  const Chart chart = net.chart(state, {"logprob", 1, 3, {3, 4}});
  CHECK(chart.series[0].points[1] == Point{1, 30});
  CHECK(chart.series[0].labels[1] == "epoch 1, batch 4, mean of 2 batches");
  // Three tests are wanted, and the last entry is three.
  CHECK(chart.series[1].points == std::vector<Point>{{1, 50}, {2, 30}});
  CHECK(chart.series[1].labels[1] == "epoch 2, batch 4, mean of 3 tests");
  CHECK(net.chart(state, {"logprob", 1, 4, {3, 4}}).series[1].points[1] == Point{2, 35});
}

TEST_CASE("values of costs have names") {
  const SmallGraph net;
  CHECK(net.graph.find("logprob")->layer->cost_names() ==
        std::vector<std::string>{"-log p", "top-1 error", "top-5 error"});
  CHECK(net.graph.find("l2")->layer->cost_names() == std::vector<std::string>{"sum of squares"});
}

TEST_CASE("a cost or value that is not there is an error that says what is") {
  const SmallGraph net;
  const auto error = [&](const CurveRequest& request) {
    return message_of<InputError>([&] { net.chart(four_batches(), request); });
  };
  CHECK(error({"logprop", 0, 1, {3, 4}}) ==
        "--show-cost: the net has no cost 'logprop'; did you mean 'logprob'?");
  CHECK(error({"child", 0, 1, {3, 4}}) ==
        "--show-cost: the net has no cost 'child'; its costs are logprob, l2");
  CHECK(error({"l2", 1, 1, {3, 4}}) == "--cost-idx 1: 'l2' has 1 value: 0 (sum of squares)");
  CHECK(error({"logprob", 3, 1, {3, 4}}) ==
        "--cost-idx 3: 'logprob' has 3 values: 0 (-log p), 1 (top-1 error), 2 (top-5 error)");
  CHECK(message_of<InputError>([&] {
          net.chart({}, {"logprob", 0, 1, {3, 4}});
        }) == "there is no history yet: the checkpoint was written before a batch was trained");
}

TEST_CASE("a history of other costs, or of no numbers, is refused") {
  const SmallGraph net;
  const auto error = [&](const HistoryEntry& bad) {
    TrainingState state = four_batches();
    state.history.push_back(bad);
    return message_of<InputError>([&] { net.chart(state, {"logprob", 0, 1, {3, 4}}); });
  };
  const std::string other = "the history is damaged: epoch 3, batch 3 has other costs than the net";
  HistoryEntry bad = entry(3, 3, 1);
  bad.costs.sums[0].first = "nobody";
  CHECK(error(bad) == other);
  bad = entry(3, 3, 1);
  bad.costs.sums[1].second.pop_back();
  CHECK(error(bad) == other);
  bad = entry(3, 3, 1);
  bad.costs.sums.pop_back();
  CHECK(error(bad) == other);
  bad = entry(3, 3, 1);
  bad.costs.sums[0] = bad.costs.sums[1];
  CHECK(error(bad) == other);
  bad = entry(3, 3, 1);
  bad.costs.sums[1].second[0] = 1e200;
  CHECK(error(bad) == "the history is damaged: it holds numbers that are not finite");
}

TEST_CASE("positions outside of the range stay within their epoch") {
  const SmallGraph net;
  TrainingState state;
  state.history = {entry(1, -2147483647 - 1, 1), entry(1, 3, 1), entry(2, 2147483647, 1)};
  const Chart chart = net.chart(state, {"logprob", 0, 1, {3, 4}});
  CHECK(chart.series[0].points[0].x == 0);
  CHECK(chart.series[0].points[2].x == 2);
}
