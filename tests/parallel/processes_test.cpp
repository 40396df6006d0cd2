// Several processes give the bits of one process with the same devices: costs, weights, increments, outputs.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <new>
#include <numeric>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "convnet/base/cores.h"
#include "convnet/base/error.h"
#include "convnet/net/devices.h"
#include "convnet/net/net_weights.h"
#include "tests/every_case.h"
#include "tests/parallel/placed_nets.h"
#include "tests/parallel/thread_transport.h"
#include "tests/wrapped_backend.h"

using namespace convnet;
using namespace convnet::test;

namespace {

/// Returns ways to share out the devices over processes.
std::vector<std::vector<int>> ways(int devices) {
  std::vector<std::vector<int>> all = {std::vector<int>(static_cast<std::size_t>(devices), 1)};
  if (devices > 2) all.push_back({devices - devices / 2, devices / 2});
  if (devices > 2) all.push_back({1, devices - 1});
  return all;
}

void check_like_one_process(const PlacedNet& net, const std::vector<std::int64_t>& sizes,
                            std::vector<std::vector<int>> shares = {}) {
  const int devices = static_cast<int>(split_list(net.options.gpu).size());
  if (devices < 2) return;
  INFO(net.name << ", " << sizes[0] << " images a minibatch");
  INFO(net.placed.definition << net.placed.parameters);
  SmallNet alone(net.placed, kImage, kClasses, net.options);
  const int used = alone.graph().gpu_count();
  const Trained expected = train(alone, sizes, net.options.extra);
  const Minibatch batch = random_minibatch(kImage, sizes[0], kClasses, 7, net.options.extra);
  const std::map<std::string, std::vector<float>> outputs = alone.read_outputs(batch);
  if (shares.empty()) shares = ways(devices);
  // GPUs of processes with one GPU each may have a communicator; else messages pass through the hosts.
  std::vector<std::pair<std::vector<int>, bool>> runs;
  for (const std::vector<int>& way : shares) {
    if (has_gpus() && static_cast<int>(way.size()) == devices) runs.emplace_back(way, true);
    runs.emplace_back(way, false);
  }
  for (const auto& [shared, nccl] : runs) {
    const std::vector<int>& way = shared;
    const bool uses_nccl = nccl;
    std::vector<Trained> trained(way.size());
    std::vector<std::map<std::string, std::vector<float>>> read(way.size());
    run_processes(static_cast<int>(way.size()), [&](Processes& processes) {
      processes.set_uses_nccl(uses_nccl);
      NetOptions options = net.options;
      const auto r = static_cast<std::size_t>(processes.rank());
      // Each device that layers use has as many cores as in one process: sums of several threads depend on
      // their number.
      const int before = std::accumulate(way.begin(), way.begin() + processes.rank(), 0);
      options.threads = std::max(1, net.options.threads / used) * std::clamp(used - before, 1, way[r]);
      options.processes = &processes;
      options.devices_of_processes = way;
      SmallNet own(net.placed, kImage, kClasses, options);
      trained[r] = train(own, sizes, net.options.extra);
      read[r] = own.read_outputs(batch);
    });
    for (std::size_t r = 0; r < way.size(); ++r) {
      INFO("rank " << r << " of " << way.size() << (uses_nccl ? ", with a communicator" : ""));
      check_same_bits(trained[r], expected);
      CHECK(read[r] == outputs);
    }
  }
}

void check_like_one_process(const std::vector<PlacedNet>& nets) {
  for (const PlacedNet& net : thinned(nets)) {
    check_like_one_process(net, {24, 13, 24});
    check_like_one_process(net, {2, 1, 3});
  }
}

/// Lets only exchanges pass; the messages of steps end when a test says so. With `receives`, those that are
/// received end at once.
class SlowTransport : public Transport {
 public:
  struct Message {
    std::vector<Piece> pieces;
    std::function<void()> ended;
  };
  SlowTransport(std::unique_ptr<Transport> inner, std::shared_ptr<std::vector<Message>> messages,
                bool receives = false)
      : inner_(std::move(inner)), messages_(std::move(messages)), receives_(receives) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  void send(int to, int channel, std::vector<Piece> pieces, std::function<void()> ended) override {
    if (channel == 0)
      inner_->send(to, channel, std::move(pieces), std::move(ended));
    else
      messages_->push_back({std::move(pieces), std::move(ended)});
  }
  void receive(int from, int channel, std::vector<Piece> pieces, std::function<void()> ended) override {
    if (channel == 0)
      inner_->receive(from, channel, std::move(pieces), std::move(ended));
    else if (receives_)
      ended();
    else
      messages_->push_back({std::move(pieces), std::move(ended)});
  }
  std::string failure() const override { return ""; }
  [[noreturn]] void abort(int) override { std::terminate(); }

 private:
  std::unique_ptr<Transport> inner_;
  std::shared_ptr<std::vector<Message>> messages_;
  bool receives_;
};

/// Counts the bytes that a process sends.
class CountingTransport : public Transport {
 public:
  CountingTransport(std::unique_ptr<Transport> inner, std::atomic<std::int64_t>& bytes)
      : inner_(std::move(inner)), bytes_(bytes) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  void send(int to, int channel, std::vector<Piece> pieces, std::function<void()> ended) override {
    for (const Piece& piece : pieces) bytes_ += piece.bytes;
    inner_->send(to, channel, std::move(pieces), std::move(ended));
  }
  void receive(int from, int channel, std::vector<Piece> pieces, std::function<void()> ended) override {
    inner_->receive(from, channel, std::move(pieces), std::move(ended));
  }
  std::string failure() const override { return inner_->failure(); }
  [[noreturn]] void abort(int) override { std::terminate(); }

 private:
  std::unique_ptr<Transport> inner_;
  std::atomic<std::int64_t>& bytes_;
};

/// Counts the pieces of memory that were freed.
class CountingBackend : public WrappedBackend {
 public:
  CountingBackend(std::unique_ptr<Backend> inner, std::shared_ptr<int> freed)
      : WrappedBackend(std::move(inner)), freed_(std::move(freed)) {}
  std::unique_ptr<DeviceMemory> allocate(int device, std::int64_t bytes) const override {
    return std::make_unique<Memory>(WrappedBackend::allocate(device, bytes), freed_);
  }
  std::unique_ptr<DeviceMemory> allocate_staging(std::int64_t bytes) const override {
    return std::make_unique<Memory>(WrappedBackend::allocate_staging(bytes), freed_);
  }

 private:
  struct Memory : DeviceMemory {
    Memory(std::unique_ptr<DeviceMemory> m, std::shared_ptr<int> f)
        : inner(std::move(m)), freed(std::move(f)) {}
    ~Memory() override { ++*freed; }
    std::byte* data() override { return inner->data(); }
    std::int64_t bytes() const override { return inner->bytes(); }
    std::unique_ptr<DeviceMemory> inner;
    std::shared_ptr<int> freed;
  };

  std::shared_ptr<int> freed_;
};

// Catch2 counts checks in the main thread only.
void expect(bool holds, const std::string& what) {
  if (!holds) throw std::logic_error("expected: " + what);
}

template <class Error>
std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& e) {
    return e.what();
  }
  throw std::logic_error("expected an error");
}

}  // namespace

TEST_CASE("several processes with replicas of a net give the bits of one") {
  check_like_one_process(data_parallel_nets());
}
TEST_CASE("several processes with a layer each give the bits of one") {
  check_like_one_process(one_layer_per_device_nets());
}
TEST_CASE("several processes with a column each give the bits of one") {
  check_like_one_process(column_per_device_nets());
}
TEST_CASE("several processes with two towers give the bits of one") {
  check_like_one_process(two_tower_nets());
}
TEST_CASE("several processes with more replicas below than above give the bits of one") {
  check_like_one_process(replicated_trunk_nets());
}
TEST_CASE("several processes with more replicas above than below give the bits of one") {
  check_like_one_process(replicated_head_nets());
}
TEST_CASE(
    "several processes with stages of a pipeline, or with several microbatches a replica, give the bits of "
    "one") {
  std::vector<PlacedNet> all;
  for (const std::vector<PlacedNet>& nets : {pipeline_nets(), replicated_trunk_nets()}) {
    for (std::size_t i = 0; i < nets.size(); ++i)
      all.push_back(with_microbatches(nets[i], 2 + static_cast<int>(i % 3)));
  }
  check_like_one_process(all);
}
TEST_CASE("several processes with random layers give the bits of one") {
  for (const std::uint32_t seed : seeds(0, 16, every_net()))
    check_like_one_process(random_net(seed, seed % 3 != 2), {13, 24});
}

TEST_CASE("several processes with random optimisers, hosts and layers give the bits of one") {
  for (const std::uint32_t seed : seeds(1000, 12, every_net())) {
    const PlacedNet net = random_training(seed);
    std::vector<std::vector<int>> shares;
    // A process has devices of one host.
    if (const std::vector<int>& hosts = net.options.devices_of_hosts; !hosts.empty())
      shares = {ways(std::accumulate(hosts.begin(), hosts.end(), 0))[0], hosts};
    check_like_one_process(net, {24, 13, 24}, shares);
  }
}

TEST_CASE("several processes with random layers of all kinds and random options give the bits of one") {
  for (const std::uint32_t seed : seeds(5000, 8, every_net())) {
    PlacedNet net = random_run(seed);
    if (seed % 4 == 3) net.options.precision = Precision::bf16;
    std::vector<std::vector<int>> shares;
    if (const std::vector<int>& hosts = net.options.devices_of_hosts; !hosts.empty()) shares = {hosts};
    check_like_one_process(net, {24, 13, 24}, shares);
  }
}

TEST_CASE("several processes whose tensors are relayed give the bits of one") {
  for (const std::uint32_t seed : seeds(3000, 12, every_net())) {
    const PlacedNet net = with_relays(random_training(seed));
    std::vector<std::vector<int>> shares;
    if (const std::vector<int>& hosts = net.options.devices_of_hosts; !hosts.empty()) shares = {hosts};
    check_like_one_process(net, {24, 13, 24}, shares);
  }
}

TEST_CASE("several processes in bf16 give the bits of one") {
  PlacedNet wide = place("wide matrix", wide_matrix_net(), 4, {});
  wide.options.data_parallel = true;
  std::vector<PlacedNet> nets = replicated_trunk_nets();
  nets.push_back(wide);
  for (PlacedNet net : thinned(nets)) {
    net.options.precision = Precision::bf16;
    check_like_one_process(net, {24, 13, 24});
  }
  wide.options.precision = Precision::bf16;
  wide.options.devices_of_hosts = {2, 2};
  check_like_one_process(wide, {24, 13, 24}, {{1, 1, 1, 1}, {2, 2}});
}

TEST_CASE("several processes on two hosts give the bits of one process with these hosts") {
  for (PlacedNet net : thinned(data_parallel_nets())) {
    const std::size_t devices = split_list(net.options.gpu).size();
    if (devices % 2 != 0) continue;
    net.options.devices_of_hosts.assign(2, static_cast<int>(devices / 2));
    const std::vector<int> each(devices, 1);
    check_like_one_process(net, {24, 13, 24}, {each, net.options.devices_of_hosts});
    check_like_one_process(net, {2, 1, 3}, {each});
  }
}

TEST_CASE("memory that a message is under way to outlives a step that fails, and its net") {
  const auto messages = std::make_shared<std::vector<SlowTransport::Message>>();
  const auto freed = std::make_shared<int>(0);
  std::vector<std::unique_ptr<Transport>> transports = thread_transports(2);
  transports[0] = std::make_unique<SlowTransport>(std::move(transports[0]), messages);
  std::string error;
  const auto process = [&](std::size_t rank) {
    Processes processes(std::move(transports[rank]), 60);
    processes.set_uses_nccl(false);
    NetOptions options;
    options.gpu = "0,1";
    options.data_parallel = true;
    options.processes = &processes;
    options.devices_of_processes = {1, 1};
    options.wrap = [&](std::unique_ptr<Backend> backend) {
      return std::make_unique<CountingBackend>(std::move(backend),
                                               rank == 0 ? freed : std::make_shared<int>(0));
    };
    SmallNet net(column_net(Normalised::nowhere), kImage, kClasses, options);
    const Plan& plan = net.prepare(Phase::train, 8);
    processes.exchange("ready");
    if (rank > 0) return;  // it never begins the step, so nothing of it arrives
    const Minibatch batch = random_minibatch(kImage, 8, kClasses, 7);
    error = error_of<std::runtime_error>([&] {
      net.net().run(plan, net.inputs_of(batch, 0), nullptr, [&](TaskId) {
        if (!messages->empty()) throw std::runtime_error("broken");
      });
    });
  };
  std::thread other([&] { process(1); });
  process(0);
  other.join();
  CHECK(error == "broken");
  CHECK_FALSE(messages->empty());
  CHECK(*freed == 0);
  // Another process's part arrives.
  for (const SlowTransport::Message& message : *messages) {
    for (const Transport::Piece& piece : message.pieces)
      std::fill_n(piece.data, static_cast<std::size_t>(piece.bytes), std::byte{0});
    message.ended();
  }
}

TEST_CASE("a step after one that failed sends none of its messages") {
  if (!has_gpus()) return;  // workers keep no list of messages
  const auto messages = std::make_shared<std::vector<SlowTransport::Message>>();
  std::vector<std::unique_ptr<Transport>> transports = thread_transports(2);
  transports[0] = std::make_unique<SlowTransport>(std::move(transports[0]), messages, true);
  std::vector<std::size_t> sent;
  const auto process = [&](std::size_t rank) {
    Processes processes(std::move(transports[rank]), 60);
    processes.set_uses_nccl(false);
    NetOptions options;
    options.gpu = "0,1";
    options.data_parallel = true;
    options.processes = &processes;
    options.devices_of_processes = {1, 1};
    SmallNet net(column_net(Normalised::nowhere), kImage, kClasses, options);
    const Plan& plan = net.prepare(Phase::train, 8);
    processes.exchange("ready");
    if (rank > 0) return;
    const Minibatch batch = random_minibatch(kImage, 8, kClasses, 7);
    for (int step = 0; step < 2; ++step) {
      const std::string error = error_of<std::runtime_error>([&] {
        net.net().run(plan, net.inputs_of(batch, 0), nullptr, [&](TaskId t) {
          // The message is on the host, and not yet with the transport.
          if (plan.tasks[t].kind == TaskKind::send) throw std::runtime_error("broken");
        });
      });
      expect(error == "broken", error);
      sent.push_back(messages->size());
      for (const SlowTransport::Message& message : std::exchange(*messages, {})) message.ended();
    }
  };
  std::thread other([&] { process(1); });
  process(0);
  other.join();
  CHECK(sent == std::vector<std::size_t>{0, 0});
}

TEST_CASE("processes send sums of magnitudes, not weights") {
  const NetTexts texts = wide_matrix_net();
  const Minibatch batch = random_minibatch(kImage, 8, kClasses, 7);
  const auto magnitudes_of = [&](NetOptions options, const std::function<void()>& trained) {
    options.gpu = "0,1,2,3";
    options.data_parallel = true;
    SmallNet net(texts, kImage, kClasses, options);
    net.step(Phase::train, batch, 0);
    trained();
    return magnitudes(net.net().executor(), net.net().plans());
  };
  const std::map<std::string, Magnitudes> expected = magnitudes_of({}, [] {});
  double elements = 0;
  for (const auto& [name, one] : expected) elements += one.count;
  std::atomic<std::int64_t> bytes = 0;
  std::vector<std::unique_ptr<Transport>> transports = thread_transports(4);
  std::vector<std::map<std::string, Magnitudes>> found(4);
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < 4; ++rank)
    threads.emplace_back([&, rank] {
      Processes processes(std::make_unique<CountingTransport>(std::move(transports[rank]), bytes), 60);
      processes.set_uses_nccl(false);
      NetOptions options;
      options.processes = &processes;
      options.devices_of_processes = {1, 1, 1, 1};
      found[rank] = magnitudes_of(options, [&] {
        processes.exchange("");
        if (rank == 0) bytes = 0;
        processes.exchange("");
      });
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(static_cast<double>(bytes) < elements * sizeof(float) / 10);
  for (const auto& of_process : found) {
    REQUIRE(of_process.size() == expected.size());
    for (const auto& [name, one] : of_process) {
      INFO(name);
      CHECK(one.weights == Approx(expected.at(name).weights).epsilon(1e-12));
      CHECK(one.increments == Approx(expected.at(name).increments).epsilon(1e-12));
      CHECK(one.count == expected.at(name).count);
    }
  }
}

TEST_CASE("GPUs of processes with one GPU each have a communicator") {
  const NetTexts texts = column_net(Normalised::nowhere);
  const auto has_communicator = [&](const std::string& gpus, const std::vector<int>& way, bool uses_nccl) {
    std::vector<char> has(way.size());
    run_processes(static_cast<int>(way.size()), [&](Processes& processes) {
      processes.set_uses_nccl(uses_nccl || processes.rank() > 0);
      NetOptions options;
      options.data_parallel = true;
      options.gpu = gpus;
      options.processes = &processes;
      options.devices_of_processes = way;
      SmallNet own(texts, kImage, kClasses, options);
      has[static_cast<std::size_t>(processes.rank())] = own.net().executor().has_communicator() ? 1 : 0;
    });
    CHECK(std::count(has.begin(), has.end(), has[0]) == static_cast<int>(has.size()));
    return has[0] == 1;
  };
  CHECK(has_communicator("0,1", {1, 1}, true) == has_gpus());
  CHECK(has_communicator("2,1", {1, 1}, true) == has_gpus());
  CHECK_FALSE(has_communicator("0,1", {1, 1}, false));  // one process does not want it
  CHECK_FALSE(has_communicator("1,1", {1, 1}, true));   // they share a GPU
  CHECK_FALSE(has_communicator("0,1,2", {2, 1}, true));
}

TEST_CASE("processes must have the devices that --hosts counts, each on one host") {
  const auto refusal = [](const std::string& gpu, const std::vector<int>& devices_of_hosts) {
    std::string message;
    run_processes(2, [&](Processes& processes) {
      DeviceOptions options;
      options.gpu = gpu;
      options.devices_of_hosts = devices_of_hosts;
      const std::string error = error_of<InputError>([&] { with_devices(options, &processes); });
      if (processes.rank() == 0) message = error;
    });
    return message;
  };
  CHECK(refusal("0,1,2", {2, 2, 2}) ==
        "rank 0 has 3 devices, but by --hosts 3x2 they are on several hosts; a process may have devices of "
        "one host only, at most 2");
  CHECK(refusal("0,1", {4, 4}) ==
        "--hosts 2x4 needs 8 devices, host by host, but --gpu lists 4 over all processes");
}

TEST_CASE("the devices of processes that have the same cores are counted in the order of ranks") {
  std::vector<DeviceOptions> found(3);
  run_processes(3, [&](Processes& processes) {
    DeviceOptions options;
    options.gpu = processes.rank() == 1 ? "0" : "0-1";
    found[static_cast<std::size_t>(processes.rank())] = with_devices(options, &processes);
  });
  for (const DeviceOptions& options : found) CHECK(options.devices_on_cores == 5);
  CHECK(found[0].devices_before == 0);
  CHECK(found[1].devices_before == 2);
  CHECK(found[2].devices_before == 3);
}

TEST_CASE("a warning names the first process that has more CPU devices than cores") {
  const auto warning = [](const std::vector<int>& devices_of_processes) {
    std::string text;
    run_processes(2, [&](Processes& processes) {
      DeviceOptions options;
      options.devices_of_processes = devices_of_processes;
      const std::string own = too_few_cores(options, processes);
      if (processes.rank() == 0) text = own;
    });
    return text;
  };
  CHECK(warning({1, 1}).empty());
  const std::string text = warning({1, 100000});
  CHECK_THAT(text, Catch::StartsWith("warning: rank 1 on host "));
  CHECK_THAT(
      text,
      Catch::EndsWith(" core(s) for 100000 CPU devices, which take turns; where mpirun binds "
                      "processes to cores, --bind-to none lets them use all cores of their host; --gpu lists "
                      "the devices of each process"));
}

TEST_CASE("a warning says how many threads the processes of a host may have each") {
  const auto warning = [](int threads) {
    std::string text;
    run_processes(2, [&](Processes& processes) {
      DeviceOptions options;
      options.gpu = "0";
      options.threads = threads;
      const std::string own = too_many_threads(with_devices(options, &processes));
      if (processes.rank() == 0) text = own;
    });
    return text;
  };
  CHECK(warning(1).empty());
  const int more = usable_cores() + 1;
  const std::string each = std::to_string(std::max(1, usable_cores() / 2));
  CHECK(warning(more).starts_with("warning: --threads " + std::to_string(more) +
                                  ": each process of this host may use " + each +
                                  " core(s); more threads take"));
}

TEST_CASE("what each process brings comes to all") {
  for (const int count : {2, 3, 4, 5, 8}) {
    run_processes(count, [&](Processes& processes) {
      for (int round = 0; round < 3; ++round) {
        const auto block = [&](int r) { return std::string(static_cast<std::size_t>(r * round), 'x') + "!"; };
        std::vector<std::string> expected;
        for (int r = 0; r < count; ++r) expected.push_back(block(r));
        expect(processes.exchange(block(processes.rank())) == expected, "all blocks, by rank");
      }
    });
  }
}

TEST_CASE("an error of one process is thrown by all") {
  run_processes(3, [&](Processes& processes) {
    const std::string error = error_of<InputError>([&] {
      processes.run_collectively([&] {
        if (processes.rank() == 1) throw InputError("no such file");
      });
    });
    expect(error.starts_with("rank 1 on host ") && error.ends_with(": no such file"), error);
    expect(processes.all_know(), "all know");
  });
}

TEST_CASE("an error that all processes find is told without ranks") {
  run_processes(3, [&](Processes& processes) {
    const std::string error =
        error_of<RunError>([&] { processes.run_collectively([] { throw RunError("the disk is full"); }); });
    expect(error == "the disk is full", error);
    expect(processes.all_know(), "all know");
  });
}

TEST_CASE("a process that fails elsewhere answers the others' next exchange") {
  run_processes(2, [&](Processes& processes) {
    if (processes.rank() == 1)
      processes.fail(DeviceError("out of memory"));
    else
      expect(error_of<DeviceError>([&] { processes.exchange("costs"); }).ends_with(": out of memory"),
             "the other's error");
    expect(processes.all_know(), "all know");
  });
}

TEST_CASE("a process that does not answer is given up") {
  const auto process = [](Processes& processes) {
    if (processes.rank() == 0) processes.exchange("hello");
  };
  const std::string error = error_of<RunError>([&] { run_processes(2, process, 0.3); });
  CHECK(error.starts_with("rank 1 on host "));
  CHECK(error.find("has not answered") != std::string::npos);
}

TEST_CASE("what the first process does alone is waited for without a limit, and its error is everybody's") {
  const auto slow = [](Processes& processes) {
    bool done = false;
    processes.run_on_first([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(1500));
      done = true;
    });
    expect(done == (processes.rank() == 0), "the first one works");
    expect(processes.stall_seconds() == 0.5, "the limit is back");
    processes.exchange("");
    const std::string error =
        error_of<InputError>([&] { processes.run_on_first([] { throw InputError("the disk is full"); }); });
    expect(error == "the disk is full", "the same error");
  };
  for (const int count : {2, 3, 5}) run_processes(count, slow, 0.5);
}

TEST_CASE("want of memory and of threads are errors of the device in all processes") {
  run_processes(3, [](Processes& processes) {
    const auto work = [&] {
      if (processes.rank() == 1) throw std::bad_alloc();
    };
    expect(error_of<DeviceError>([&] { processes.run_collectively(work); }).ends_with(": out of memory"),
           "everybody's error");
  });
  const auto text_of = [](const std::exception& error) {
    std::string text;
    with_own_error(error, [&](const std::exception& own) {
      if (dynamic_cast<const DeviceError*>(&own) != nullptr) text = own.what();
    });
    return text;
  };
  CHECK(text_of(std::bad_alloc()) == "out of memory");
  CHECK(text_of(std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again)))
            .starts_with("no more threads can be started; "));
  CHECK(text_of(RunError("another")).empty());
}

TEST_CASE("when one process is asked to stop, all stop") {
  run_processes(3, [&](Processes& processes) {
    const bool asked = processes.rank() == 2;
    processes.exchange("");
    expect(!processes.stop(), "nobody was asked");
    processes.set_asked_to_stop([asked] { return asked; });
    processes.exchange("");
    expect(processes.stop(), "one was asked");
  });
}
