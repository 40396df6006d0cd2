#include "convnet/train/trainer.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <map>
#include <numeric>

#include "convnet/plan/simulate.h"
#include "convnet/train/convert.h"
#include "convnet/train/input_data.h"
#include "convnet/train/progress_line.h"
#include "kernels/error.h"

namespace convnet {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Zeros for every cost of a plan.
CostSums no_costs(const Plan& plan, const Graph& graph) {
  CostSums costs;
  for (const CostSlot& c : plan.costs)
    costs.sums.emplace_back(graph.nodes[static_cast<std::size_t>(c.node)].name,
                            std::vector<double>(static_cast<std::size_t>(c.values), 0.0));
  return costs;
}

bool same_layers(const CostSums& a, const CostSums& b) {
  return std::equal(
      a.sums.begin(), a.sums.end(), b.sums.begin(), b.sums.end(),
      [](const auto& x, const auto& y) { return x.first == y.first && x.second.size() == y.second.size(); });
}

/// Views of an image all have the same costs, those of the mean: each image counts once.
void add_costs(CostSums& into, const Plan& plan, const Graph& graph, const std::vector<double>& costs,
               std::int64_t images) {
  if (into.sums.empty()) into = no_costs(plan, graph);
  for (std::size_t i = 0; i < plan.costs.size(); ++i) {
    for (std::size_t v = 0; v < into.sums[i].second.size(); ++v)
      into.sums[i].second[v] +=
          costs[static_cast<std::size_t>(plan.costs[i].slot) + v] / static_cast<double>(plan.views);
  }
  into.images += images / plan.views;
}

void pool(CostSums& into, const CostSums& from) {
  if (into.sums.empty()) {
    into = from;
    return;
  }
  into.images += from.images;
  for (std::size_t i = 0; i < std::min(into.sums.size(), from.sums.size()); ++i) {
    for (std::size_t v = 0; v < std::min(into.sums[i].second.size(), from.sums[i].second.size()); ++v)
      into.sums[i].second[v] += from.sums[i].second[v];
  }
}

/// "logprob:  7.156030, 1.000000, 0.995768": what each cost layer reports, its children added, these left
/// out.
std::string cost_text(const CostSums& costs, const Graph& graph) {
  std::map<std::string_view, const std::vector<double>*> by_name;
  for (const auto& [name, sums] : costs.sums) by_name[name] = &sums;
  std::vector<std::string> texts;
  for (const auto& [name, sums] : costs.sums) {
    const Node& node = *graph.find(name);
    if (node.is_child) continue;
    std::vector<double> total = sums;
    for (int child : node.children) {
      const std::vector<double>& part = *by_name.at(graph.nodes[static_cast<std::size_t>(child)].name);
      for (std::size_t v = 0; v < total.size(); ++v) total[v] += part[v];
    }
    std::vector<std::string> values;
    for (double v :
         node.layer->cost_report(total, static_cast<double>(std::max<std::int64_t>(1, costs.images))))
      values.push_back(fmt::format("{:.6f}", v));
    texts.push_back(name + ":  " + join(values));
  }
  return join(texts, " ");
}

/// "Devices: cpu:0,1 (1 thread each); minibatches of 256 images in 2 microbatches of 128, 1 pass": what runs
/// where, and how a minibatch is cut.
std::string devices_text(const Net& net, const Options& options) {
  const Graph& graph = net.graph();
  const int devices = net.plans().devices();
  std::vector<std::string> physical;
  for (int d = 0; d < devices; ++d)
    physical.push_back(std::to_string(options.gpus()[static_cast<std::size_t>(d)]));
  std::string text = fmt::format("Devices: {}:{}, {} thread(s)", net.plans().backend().name(),
                                 join(physical, ","), std::max(1, thread_count(options) / devices));
  if (devices > 1) text += " each";
  text += fmt::format("; minibatches of {} images", options.mini);
  if (graph.microbatches > 1)
    text += fmt::format(", {} a replica on {} replicas, in {} pass{}", graph.images_of(options.mini, 0),
                        graph.microbatches, graph.passes, graph.passes == 1 ? "" : "es");
  if (std::string reason; options.device == "auto" && cuda_devices(reason) == 0)
    text += "; no GPU: " + reason;
  return text;
}

/// Throws InputError if no folder can be made or written at `path`: training would fail when it first saves.
void check_writable(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  for (fs::path at = path; !at.empty(); at = at.parent_path()) {
    if (!fs::exists(at, ignored)) continue;
    if (!fs::is_directory(at, ignored))
      throw InputError(at.string() + ": is not a folder; checkpoints are to be saved in " + path);
    if (access(at.c_str(), W_OK) != 0)
      throw InputError(at.string() + ": cannot be written; checkpoints are to be saved in " + path);
    return;
  }
}

/// The definition is the checkpoint's; another --layer-def must be the same logical net.
void check_same_net(const IniFile& saved, const IniFile& given, const std::string& checkpoint) {
  const std::vector<std::string> a = logical_signature(saved);
  const std::vector<std::string> b = logical_signature(given);
  if (a == b) return;
  std::string first = "one has more layers than the other";
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (a[i] == b[i]) continue;
    first = "it has  " + a[i] + "\n  but the file has  " + b[i];
    break;
  }
  throw InputError(given.path + ": is another net than that of checkpoint " + checkpoint + ":\n  " + first +
                   "\n  A resumed run keeps its net; --init-from starts a new one from the weights that fit");
}

}  // namespace

void TimeUse::add(const Plan& plan, const std::vector<TaskTime>& times, double wall) {
  const std::vector<DeviceShare> shares = device_shares(plan, times);
  for (const DeviceShare& share : shares) {
    compute += share.compute / static_cast<double>(shares.size());
    communication += share.communication / static_cast<double>(shares.size());
  }
  steps += wall;
}

std::string TimeUse::text(double wall) const {
  const double percent = 100 / std::max(wall, 1e-9);
  return fmt::format(
      "time: {:.1f}% compute, {:.1f}% communication, {:.1f}% devices waiting for each other, {:.1f}% waiting "
      "for "
      "data, {:.1f}% other",
      percent * compute, percent * communication, percent * std::max(0.0, steps - compute - communication),
      percent * data, percent * std::max(0.0, wall - steps - data));
}

struct Trainer::Loaded {
  Options options;
  OptionTexts saved_options;
  NetFiles files;
  std::shared_ptr<const Provider> provider;
  BatchRange train_range, test_range;
  std::string folder;
  Graph graph;
  PixelStatistics statistics;
  std::optional<Checkpoint> checkpoint;
};

Trainer::Loaded Trainer::load(const OptionTexts& given) {
  Loaded l;
  const Options first = parse_options(given);
  std::string resume_from = first.load_file;
  if (resume_from.empty() && !first.save_file.empty() && newest_checkpoint(first.save_file))
    resume_from = first.save_file;
  OptionTexts texts;
  if (!resume_from.empty()) {
    l.checkpoint = read_checkpoint(resume_from);
    texts = l.checkpoint->options;
  } else if (first.test_only) {
    throw InputError("--test-only tests a trained net: --load-file must name its checkpoint");
  }
  for (const auto& [key, text] : given) texts[key] = text;
  std::vector<std::string> required = {"layer-def", "layer-params", "data-provider", "train-range",
                                       "test-range"};
  if (first.load_file.empty() && first.save_file.empty() && first.save_path.empty())
    required.emplace_back("save-path or --save-file");
  require_options(texts, required, "; or --load-file with a checkpoint to resume from");
  l.options = with_devices(parse_options(texts));
  if (l.checkpoint) check_same_images(l.options, *l.checkpoint);
  for (const OptionSpec& spec : option_specs()) {
    if (spec.saved && texts.contains(spec.param.key))
      l.saved_options[spec.param.key] = texts.at(spec.param.key);
  }
  if (!first.load_file.empty()) {
    l.folder = std::filesystem::path(l.checkpoint->file).parent_path().string();
    if (l.folder.empty()) l.folder = ".";
  } else if (!l.options.save_file.empty()) {
    l.folder = l.options.save_file;
  } else {
    l.folder = (std::filesystem::path(l.options.save_path) /
                fmt::format("ConvNet__{:%Y-%m-%d_%H.%M.%S}", fmt::localtime(std::time(nullptr))))
                   .string();
  }
  if (l.folder.size() > 1 && l.folder.back() == '/') l.folder.pop_back();
  if (!l.options.test_only && !l.options.check_grads) check_writable(l.folder);
  if (l.checkpoint && !first.init_from.empty())
    throw InputError("--init-from starts a new run, but " + l.checkpoint->file +
                     " is there to resume from; use one of them");

  Diagnostics diagnostics;
  IniFile unconverted;
  bool converted = false;
  if (!l.checkpoint) {
    l.files = read_net_files(l.options, diagnostics);
  } else {
    // Learning parameters are those on disk now; the definition is the checkpoint's, which was checked when
    // it was written, whatever became of the file.
    Diagnostics checked_before;
    IniFile saved = parse_ini(l.checkpoint->definition_path, l.checkpoint->definition_text, checked_before);
    unconverted = saved;
    convert_definition(saved, l.options, diagnostics);
    converted = saved.text != unconverted.text;
    if (given.contains("layer-def")) {
      l.files = read_net_files(l.options, diagnostics);
      diagnostics.throw_if_errors();
      check_same_net(saved, l.files.definition, l.checkpoint->file);
    } else {
      l.files = {std::move(saved), read_parameters(l.options, diagnostics)};
    }
  }
  l.provider = open_provider(l.options);
  l.train_range = l.options.train_batches();
  l.test_range = l.options.test_batches();
  l.provider->check_range(l.train_range, "--train-range");
  l.provider->check_range(l.test_range, "--test-range");
  l.graph = checked_graph(l.files, *l.provider, l.options, diagnostics);
  for (const std::string& warning : diagnostics.warnings()) fmt::print(stderr, "{}\n", warning);
  if (converted) {
    Diagnostics reported;
    const Graph before = build_graph(unconverted, l.files.parameters, l.provider->matrices(), {}, reported);
    reported.throw_if_errors();
    convert_tensors(l.checkpoint->tensors, before, l.graph);
  }
  l.statistics = l.checkpoint ? saved_statistics(*l.checkpoint, l.options, l.provider->matrices()[0].dims)
                              : l.provider->statistics(l.train_range);
  return l;
}

Trainer::Trainer(const OptionTexts& given, StopSignal& stop) : Trainer(load(given), stop) {}

Trainer::Trainer(Loaded loaded, StopSignal& stop)
    : options_(std::move(loaded.options)),
      saved_options_(std::move(loaded.saved_options)),
      files_(std::move(loaded.files)),
      provider_(std::move(loaded.provider)),
      train_range_(loaded.train_range),
      test_range_(loaded.test_range),
      statistics_(std::move(loaded.statistics)),
      stop_(stop),
      folder_(std::move(loaded.folder)),
      net_(std::move(loaded.graph), *provider_, options_, statistics_.mean, !options_.test_only),
      prefetcher_(make_loader(provider_, statistics_, net_.graph()),
                  provider_->streams() ? pieces_ahead : 1) {
  // The largest plans first, so that a run that cannot fit is refused now.
  const auto largest = [&](const BatchRange& range, std::int64_t minibatch, std::int64_t views) {
    std::int64_t images = 0;
    for (int b = range.first; b <= range.last; ++b)
      images = std::max(images, provider_->images_in(b) * views);
    return std::min(minibatch, images);
  };
  if (!options_.test_only) net_.prepare(Phase::train, largest(train_range_, options_.mini, 1));
  const Plan& test_plan =
      net_.prepare(Phase::test, largest(test_range_, test_minibatch(), provider_->views()));
  if (loaded.checkpoint) {
    net_.load(loaded.checkpoint->tensors, loaded.checkpoint->file, loaded.checkpoint->state.windows);
    state_ = std::move(loaded.checkpoint->state);
    last_checkpoint_ = loaded.checkpoint->file;
    const Position& at = state_.position;
    if (at.minibatches > 0 && !same_layers(state_.partial, no_costs(test_plan, net_.graph())))
      throw InputError(last_checkpoint_ +
                       ": metadata 'state' is damaged: its sums are not those of this net's costs");
    if (at.minibatches > 0)
      fmt::print("Loaded {}: epoch {}, batch {}, {} minibatches of it\n", last_checkpoint_, at.epoch,
                 at.batch, at.minibatches);
    else
      fmt::print("Loaded {}: epoch {}, batch {} finished\n", last_checkpoint_, at.epoch, at.batch);
  } else {
    net_.init_weights(options_.seed_value());
    if (!options_.init_from.empty()) net_.init_from(options_.init_from);
  }
  // A file that cannot be written is an error now, not after the first steps.
  if (!options_.profile.empty()) trace_.write(options_.profile);
  fmt::print("{}\n", devices_text(net_, options_));
  if (const std::string unused = unused_devices(net_.graph(), options_); !unused.empty())
    fmt::print(stderr, "{}\n", unused);
  std::fflush(stdout);
}

Position Trainer::next_batch() const {
  Position work = state_.position;
  if (work.epoch == 0) return {1, train_range_.first};
  // A changed range that no longer holds the batch starts at its first one.
  if (!train_range_.holds(work.batch)) return {work.epoch, train_range_.first};
  if (work.minibatches > 0) return work;
  if (work.batch < train_range_.last) return {work.epoch, work.batch + 1};
  return {work.epoch + 1, train_range_.first};
}

double Trainer::progress(const Position& work) const {
  const double finished = (work.epoch - 1.0) * train_range_.count() + work.batch - train_range_.first;
  return std::min(1.0, finished / (static_cast<double>(options_.epochs) * train_range_.count()));
}

std::int64_t Trainer::test_minibatch() const {
  const std::int64_t views = provider_->views();
  return std::max<std::int64_t>(1, options_.mini / views) * views;
}

bool Trainer::test_follows(const Position& work) const {
  const std::int64_t done =
      std::int64_t{work.epoch - 1} * train_range_.count() + work.batch - train_range_.first + 1;
  return done % options_.test_freq == 0 || (work.epoch == options_.epochs && work.batch == train_range_.last);
}

LoadRequest Trainer::request(int batch, int epoch, std::int64_t first) const {
  if (!provider_->streams()) return {batch, epoch};
  return {batch, epoch, first, epoch > 0 ? options_.mini : test_minibatch() / provider_->views()};
}

LoadRequest Trainer::test_request(std::int64_t cursor) const {
  return request(test_range_.first + static_cast<int>(cursor % test_range_.count()), 0);
}

std::shared_ptr<const DataBatch> Trainer::take(const LoadRequest& wanted) {
  const auto start = Clock::now();
  std::shared_ptr<const DataBatch> data = prefetcher_.take(wanted);
  time_use_.data += seconds_since(start);
  return data;
}

void Trainer::run() {
  run_all();
  const std::vector<std::string> skipped = provider_->skipped_images();
  if (skipped.empty()) return;
  fmt::print(stderr, "warning: {} image(s) could not be read, and others took their places:\n",
             skipped.size());
  for (const std::string& name : skipped) fmt::print(stderr, "  {}\n", name);
}

void Trainer::run_all() {
  if (options_.test_only) return test_only();
  if (options_.check_grads) return check_gradients();
  if (state_.test_due) {
    const bool finished = test();
    save();
    if (!finished) return;
  }
  bool trained = false;
  for (Position work = next_batch(); work.epoch <= options_.epochs; work = next_batch()) {
    trained = true;
    bool going_on = train_batch(work);
    if (going_on && test_follows(work)) {
      state_.test_due = true;
      going_on = test();
      save();
      if (!going_on) return;
    }
    if (!going_on || stop_.arrived()) return save();
  }
  if (trained) return;
  fmt::print("Nothing to train: {} of {} epochs are done\n",
             std::min(next_batch().epoch - 1, options_.epochs), options_.epochs);
  if (options_.force_save) save();
}

bool Trainer::train_batch(const Position& work) {
  const auto start = Clock::now();
  time_use_ = {};
  LoadRequest wanted = request(work.batch, work.epoch, work.images);
  std::shared_ptr<const DataBatch> data = take(wanted);
  if (test_follows(work)) {
    prefetcher_.start(test_request(options_.test_one ? state_.test_cursor : 0));
  } else {
    const int batch = work.batch < train_range_.last ? work.batch + 1 : train_range_.first;
    prefetcher_.start(request(batch, batch == train_range_.first ? work.epoch + 1 : work.epoch));
  }
  if (work.minibatches == 0) {
    state_.partial = {};
    state_.partial_seconds = 0;
  }
  const double done = progress(work);
  const std::string title = fmt::format("{}.{} ({:.2f}%)...", work.epoch, work.batch, 100 * done);
  std::int64_t minibatches = work.minibatches;
  std::int64_t first = std::min(work.images, data->first + data->images);
  const std::int64_t resumed_at = first;
  {
    ProgressLine line(title);
    while (true) {
      if (first == data->first + data->images) {
        if (data->last) break;
        wanted.first += wanted.count;
        data = take(wanted);
      }
      // A whole minibatch is done, or none of this batch: what is saved then is a place to resume from.
      if (stop_.arrived()) {
        state_.partial_seconds += seconds_since(start);
        return false;
      }
      const std::int64_t images = std::min<std::int64_t>(options_.mini, data->first + data->images - first);
      step(Phase::train, wanted, *data, first - data->first, images, done, state_.partial);
      ++state_.iteration;
      first += images;
      state_.position = {work.epoch, work.batch, ++minibatches, first};
      line.show(first, std::max(first, provider_->images_in(work.batch)), first - resumed_at);
    }
  }
  state_.position = {work.epoch, work.batch};
  fmt::print("{} {} ({:.3f} sec)\n", title, cost_text(state_.partial, net_.graph()),
             state_.partial_seconds + seconds_since(start));
  if (options_.verbose) fmt::print("  {}\n", time_use_.text(seconds_since(start)));
  std::fflush(stdout);
  state_.history.push_back({work.epoch, work.batch, -1, std::exchange(state_.partial, {})});
  state_.partial_seconds = 0;
  return true;
}

StepInputs Trainer::inputs_of(const DataBatch& data, std::int64_t first, double progress) const {
  StepInputs inputs;
  const std::vector<MatrixInfo>& infos = provider_->matrices();
  for (std::size_t m = 0; m < infos.size(); ++m) {
    const std::int64_t image_bytes = element_count(infos[m].dims) * size_of(infos[m].type);
    inputs.matrices.push_back(data.matrices[m].data() + first * image_bytes);
  }
  inputs.iteration = state_.iteration;
  inputs.rates = net_.rates(progress);
  return inputs;
}

StepResult Trainer::step(Phase phase, const LoadRequest& piece, const DataBatch& data, std::int64_t first,
                         std::int64_t images, double progress, CostSums& sums) {
  const Plan& plan = net_.prepare(phase, images);
  StepInputs inputs = inputs_of(data, first, progress);
  std::shared_ptr<const DataBatch> following;  // stays in the line until it is taken
  if (first + 2 * images <= data.images) {
    inputs.next = inputs_of(data, first + images, progress).matrices;
  } else if (first + images == data.images && !data.last) {
    following = prefetcher_.peek({piece.batch, piece.epoch, piece.first + piece.count, piece.count});
    if (following && following->images >= images) inputs.next = inputs_of(*following, 0, progress).matrices;
  }
  const auto start = Clock::now();
  std::vector<TaskTime> times;
  const bool look = options_.verbose || !options_.profile.empty() || !net_.executor().times_cost();
  StepResult result = net_.run(plan, inputs, look ? &times : nullptr);
  if (look) time_use_.add(plan, times, seconds_since(start));
  if (phase == Phase::train && !options_.profile.empty()) profile(plan, times);
  if (!result.finite()) {
    std::string where;
    try {
      where = net_.first_non_finite(phase, images, inputs);
    } catch (const DeviceError&) {
      where = "there is not enough memory to look for the layer";
    }
    throw RunError(
        fmt::format("a cost or weight is not finite (NaN or infinity) in {} after {} minibatches, images "
                    "{}-{} of the batch{}{}",
                    phase == Phase::train ? "training" : "a test", state_.iteration, data.first + first,
                    data.first + first + images - 1, where.empty() ? "" : "; " + where,
                    last_checkpoint_.empty() ? "" : "\nthe last good checkpoint is " + last_checkpoint_));
  }
  add_costs(sums, plan, net_.graph(), result.costs, images);
  return result;
}

void Trainer::profile(const Plan& plan, const std::vector<TaskTime>& times) {
  // The first step touches memory for the first time.
  constexpr int kFirst = 1, kLast = 5;
  if (++traced_ <= kFirst || traced_ > kLast) return;
  trace_.add_step(plan, net_.graph(), times);
  trace_.write(options_.profile);
}

bool Trainer::test_batch(LoadRequest piece, CostSums& sums) {
  ProgressLine line(fmt::format("test {}...", piece.batch));
  for (std::int64_t done = 0;; piece.first += piece.count) {
    const std::shared_ptr<const DataBatch> data = take(piece);
    for (std::int64_t first = 0; first < data->images;) {
      if (stop_.arrived()) return false;
      const std::int64_t images = std::min(test_minibatch(), data->images - first);
      step(Phase::test, piece, *data, first, images, 0, sums);
      first += images;
      done += images;
      line.show(done, std::max(done, provider_->images_in(piece.batch) * provider_->views()), done);
    }
    if (data->last) return true;
  }
}

bool Trainer::test() {
  const auto start = Clock::now();
  CostSums sums;
  const int first = test_request(options_.test_one ? state_.test_cursor : 0).batch;
  const int batches = options_.test_one ? 1 : test_range_.count();
  for (int i = 0; i < batches; ++i) {
    prefetcher_.start(request(first + i, 0));
    if (i + 1 < batches) prefetcher_.start(request(first + i + 1, 0));
    if (!test_batch(request(first + i, 0), sums)) return false;
  }
  if (const Position next = next_batch(); next.epoch <= options_.epochs)
    prefetcher_.start(request(next.batch, next.epoch));
  fmt::print("======================Test output======================\n{} ({:.3f} sec)\n",
             cost_text(sums, net_.graph()), seconds_since(start));
  state_.history.push_back({state_.position.epoch, state_.position.batch, first, std::move(sums)});
  if (options_.test_one) ++state_.test_cursor;
  state_.test_due = false;

  CostSums pooled;
  int left = test_range_.count();
  for (auto entry = state_.history.rbegin(); entry != state_.history.rend() && left > 0; ++entry) {
    if (entry->test_batch < 0) continue;
    pool(pooled, entry->costs);
    --left;
  }
  fmt::print("----------------------Averages-------------------------\n{}\n",
             cost_text(pooled, net_.graph()));
  print_weights();
  std::fflush(stdout);
  return true;
}

void Trainer::test_only() {
  fmt::print("======================Test output======================\n");
  CostSums pooled;
  for (int batch = test_range_.first; batch <= test_range_.last; ++batch) {
    CostSums sums;
    prefetcher_.start(request(batch, 0));
    if (batch < test_range_.last) prefetcher_.start(request(batch + 1, 0));
    if (!test_batch(request(batch, 0), sums)) return;
    fmt::print("{}... {}\n", batch, cost_text(sums, net_.graph()));
    std::fflush(stdout);
    pool(pooled, sums);
  }
  fmt::print("----------------------Averages-------------------------\n{}\n",
             cost_text(pooled, net_.graph()));
}

void Trainer::check_gradients() {
  LoadRequest wanted = request(train_range_.first, 0);
  if (provider_->streams()) wanted.count = options_.mini;
  const std::shared_ptr<const DataBatch> data = prefetcher_.take(wanted);
  const std::int64_t images = std::min<std::int64_t>(options_.mini, data->images);
  const std::vector<GradientReport> reports = net_.check_gradients(images, inputs_of(*data, 0, 0));
  constexpr std::array<const char*, 3> kVerdicts = {"right", "unclear", "WRONG"};
  std::array<int, 3> count = {};
  for (const GradientReport& r : reports) {
    fmt::print("{:<40} {:<8} relative error {:.1e}\n", r.name, kVerdicts[static_cast<std::size_t>(r.verdict)],
               r.error);
    ++count[static_cast<std::size_t>(r.verdict)];
  }
  if (count[2] > 0) throw RunError(fmt::format("{} of {} gradients are wrong", count[2], reports.size()));
  if (count[1] == 0) {
    fmt::print("All {} gradients are right\n", count[0]);
  } else {
    fmt::print(
        "{} gradients are right; of {} the costs' differences do not tell in fp32, for rounding and "
        "kinks: larger initial weights help\n",
        count[0], count[1]);
  }
}

void Trainer::print_weights() const {
  // Parts of a matrix on several devices count as one.
  struct Sums {
    double weights = 0, increments = 0, count = 0;
  };
  std::map<std::string, Sums> sums;
  const auto magnitude = [](const std::vector<float>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0,
                           [](double sum, float v) { return sum + std::abs(static_cast<double>(v)); });
  };
  for (const WeightBuffers& w : net_.plans().weights()) {
    Sums& s = sums[w.name];
    const std::vector<float> values = net_.executor().read_weights(w);
    s.weights += magnitude(values);
    s.count += static_cast<double>(values.size());
    if (!w.shards.empty()) s.increments += magnitude(net_.increment(w));
  }
  for (const WeightBuffers& w : net_.plans().weights()) {
    const Node& node = net_.graph().nodes[static_cast<std::size_t>(w.node)];
    const WeightSpec& spec = net_.graph().weight({w.node, w.index});
    if (spec.first_output > 0) continue;
    const double count = std::max(1.0, sums[w.name].count);
    const double weights = sums[w.name].weights / count, increments = sums[w.name].increments / count;
    if (w.shards.empty()) {
      fmt::print("Layer '{}' {}: {:e}\n", node.whole, spec.name, weights);
    } else if (spec.name == "biases" || spec.name == "shift") {
      fmt::print("Layer '{}' biases: {:e} [{:e}]\n", node.whole, weights, increments);
    } else {
      fmt::print("Layer '{}' weights[{}]: {:e} [{:e}] [{:e}]\n", node.whole, w.index, weights, increments,
                 weights > 0 ? increments / weights : 0.0);
    }
  }
}

void Trainer::save() {
  Checkpoint c;
  net_.store(c.tensors);
  state_.windows = net_.windows();
  const Dims& image = provider_->matrices()[0].dims;
  save_statistics(statistics_, options_, image, c.tensors);
  c.state = state_;
  c.options = saved_options_;
  c.definition_path = files_.definition.path;
  c.definition_text = files_.definition.text;
  c.parameters_path = files_.parameters.path;
  c.parameters_text = files_.parameters.text;
  c.algorithms = net_.plans().algorithms();
  write_checkpoint(folder_, c, options_.keep);
  last_checkpoint_ = c.file;
  fmt::print("Saved checkpoint to {}\n", folder_);
  std::fflush(stdout);
}

}  // namespace convnet
