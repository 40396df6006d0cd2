// Small nets with most kinds of layers, ways to spread them over devices, and what training makes of them.
#pragma once

#include "convnet/base/error.h"
#include "tests/layers/against_reference.h"
#include "tests/rounding.h"

namespace convnet::test {

const Dims kImage = {3, 12, 12};
constexpr int kClasses = 4;

/// The gpu= lists of layers, by name of the layer.
using Gpus = std::map<std::string, std::string>;

/// A net and the same net on several devices.
struct PlacedNet {
  std::string name;
  NetTexts plain, placed;
  NetOptions options;  ///< options of the placed net
  /// Returns those of them that the plain net on one device has, too.
  NetOptions plain_options() const;
};

/// "0,1,2" of 3.
std::string device_list(int devices);
/// Puts lines of keys at the head of layers' sections. Throws if a layer is not there.
std::string with_keys(std::string text, const std::map<std::string, std::string>& keys);
std::string with_gpus(const std::string& definition, const Gpus& gpus);
/// Gives every layer of the parameter file that learns an updatePeriod.
std::string with_update_period(std::string parameters, int period);

/// `passes`: the updatePeriod of all layers; 0 leaves the parameter file alone.
PlacedNet place(const std::string& name, const NetTexts& plain, int devices, const Gpus& gpus,
                int passes = 0);

/// The place of a bnorm in a net.
enum class Normalised { nowhere, trunk, head };
/// One layer after the other: conv, norms, pools, shared weights, a sum, local, fc, dropout. The trunk is
/// "conv1" to "local1", the heads begin with "fc1" and "fcaux", each with a cost of its own.
NetTexts column_net(Normalised normalised);
/// Two columns, a and b, that read each other's maps or not, and meet in "sum", "cat" and "conv3"; then "fca"
/// and "fcb", which meet in "joined" and "fcaux".
NetTexts two_columns_net(bool crossed);

/// A convolution and "fc1", whose matrix is large enough that its replicas share out its update.
NetTexts wide_matrix_net();

std::vector<PlacedNet> data_parallel_nets();
std::vector<PlacedNet> one_layer_per_device_nets();
std::vector<PlacedNet> column_per_device_nets();
std::vector<PlacedNet> two_tower_nets();
std::vector<PlacedNet> replicated_trunk_nets();
std::vector<PlacedNet> replicated_head_nets();
/// Nets of several stages, each on devices of its own.
std::vector<PlacedNet> pipeline_nets();
/// The net with another option --microbatches.
PlacedNet with_microbatches(PlacedNet net, int microbatches);
/// The net with plans as for GPUs, whose streams run together, and with links that begin at once: every
/// tensor that several devices read, and every sum, takes a route by way of all of them, in chunks.
PlacedNet with_relays(PlacedNet net);
/// The layers of random nets: those whose plans differ most, or all kinds that are smooth.
enum class Kinds { few, all };
/// Random layers and devices, within the rules. `normalised`: with bnorm layers, not for a handful of images.
PlacedNet random_net(std::uint32_t seed, bool normalised, Kinds kinds = Kinds::few);

/// A way to train a net.
struct Way {
  std::string optimizer;
  double clip_norm = 0, ema = 0;
};
std::vector<Way> all_ways();
NetTexts with_optimizer(NetTexts texts, const Way& way);
NetOptions with_way(NetOptions options, const Way& way);

/// A random_net() that learns in a way, in updates of one to three minibatches, on hosts that are drawn by
/// lot, too.
PlacedNet random_training(std::uint32_t seed, Kinds kinds = Kinds::few);

/// A random net of all kinds of layers, on random hosts, which learns in a random way or in
/// microbatches, with random options.
PlacedNet random_run(std::uint32_t seed);

bool has_gpus();

/// Returns n if a test of many nets runs every n-th of them: test::every_case(), which on GPUs is usually 3,
/// because CPU devices, which follow the same plans, run all of them.
std::uint32_t every_net();
/// Returns those of the nets that a test runs.
std::vector<PlacedNet> thinned(const std::vector<PlacedNet>& nets);

/// The results of a run.
struct Trained {
  std::vector<std::vector<double>> costs;  ///< the costs of every training step, then those of a test
  std::map<std::string, NamedTensor> tensors;
};
/// A training step for each of `sizes`, then a test of as many images as the first.
Trained train(SmallNet& net, const std::vector<std::int64_t>& sizes,
              const std::vector<ExtraMatrix>& extra = {});
Trained train(const NetTexts& texts, const NetOptions& options, const std::vector<std::int64_t>& sizes);

/// ||a - b|| / ||b||; infinity where sizes differ or a number is not finite.
double distance(const std::vector<float>& a, const std::vector<float>& b);
/// Checks that OutputReader reads the same from the layers of both nets, with the same weights.
void check_same_outputs(const PlacedNet& net);
/// The largest distance of a tensor.
double distance(const Trained& a, const Trained& b);
/// Sums of gradients over the images and pixels of the largest minibatch are the longest.
inline const double kSumsTolerance = rounding_of(24 * 12 * 12);
/// The answer of several devices is that of one, to the order of sums.
void check_same_answer(const Trained& actual, const Trained& expected, double tolerance = kSumsTolerance);
/// Checks the gradients of the placed net on five images, and that its weights stay as they were.
void check_gradients(const PlacedNet& net);
void check_same_bits(const Trained& actual, const Trained& expected);

}  // namespace convnet::test
