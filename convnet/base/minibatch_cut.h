// The cut of a minibatch into microbatches.
#pragma once

#include <algorithm>
#include <cstdint>

namespace convnet {

/// The microbatches of a minibatch, in the order of its images. The layer with most replicas has a microbatch
/// for each of them, with equal numbers of images; the last ones may have fewer, or none. With
/// --microbatches, the images of a pass are cut again, into `per_replica` times as many. The numbers of
/// images in a pass do not depend on that.
struct MinibatchCut {
  int replicas = 1;     ///< largest number of replicas that a layer has
  int passes = 1;       ///< divides `replicas`
  int per_replica = 1;  ///< number of microbatches for each of the `replicas`

  int microbatches() const { return replicas * per_replica; }
  int in_pass() const { return microbatches() / passes; }

  /// Returns the index of the first image of a microbatch in a minibatch of `images`. Of an empty microbatch
  /// it may be any index up to `images`.
  std::int64_t first_image(std::int64_t images, int microbatch) const {
    const int pass = microbatch / in_pass();
    const std::int64_t begin = first_of_pass(images, pass) + microbatch % in_pass() * most(images);
    return std::min(begin, std::min(images, first_of_pass(images, pass + 1)));
  }
  std::int64_t images_of(std::int64_t images, int microbatch) const {
    const std::int64_t end = std::min(images, first_of_pass(images, microbatch / in_pass() + 1));
    return std::min(most(images), end - first_image(images, microbatch));
  }
  /// Returns the microbatch that an image is in.
  int microbatch_of(std::int64_t images, std::int64_t image) const {
    const std::int64_t pass = image / first_of_pass(images, 1);
    return static_cast<int>(pass * in_pass() + image % first_of_pass(images, 1) / most(images));
  }

 private:
  static std::int64_t divided(std::int64_t images, int parts) { return (images + parts - 1) / parts; }
  /// Returns the number of images in the first microbatch, which has most.
  std::int64_t most(std::int64_t images) const { return divided(divided(images, replicas), per_replica); }
  std::int64_t first_of_pass(std::int64_t images, int pass) const {
    return divided(images, replicas) * (replicas / passes) * pass;
  }
};

}  // namespace convnet
