// The links of a machine, and the time of transfers that share them.
#pragma once

#include <cstddef>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "convnet/plan/device_model.h"

namespace convnet {

/// A number of bytes that one device reads from another.
struct Transfer {
  DeviceId to, from;
  double bytes = 0;
};

/// The links of a machine: each device sends and receives over a link of its own, both at the same time, and
/// so does each group of devices behind a switch.
class Links {
 public:
  Links(const DeviceModel& model, int devices);

  std::size_t count() const { return bandwidth_.size(); }
  /// Returns the bytes/s that programs reach on a link.
  double bandwidth(std::size_t link) const { return bandwidth_[link]; }
  /// Returns the links that bytes pass on their way between two different devices.
  std::vector<std::size_t> path(DeviceId from, DeviceId to) const;

 private:
  bool shared_bus_ = false;
  std::vector<double> bandwidth_;  ///< sending and receiving of each device, then of each group by level
  std::vector<SwitchLevel> levels_;
  std::vector<std::size_t> first_of_level_;  ///< the first link of each level
};

/// Transfers in the course of time. Those that pass a link at the same time get equal shares of it; what a
/// transfer cannot use, because another link is slower, goes to the others.
class LinkTraffic {
 public:
  /// `links` must outlive the traffic.
  explicit LinkTraffic(const Links& links)
      : links_(links), on_link_(links.count()), share_(links.count()), link_shared_out_(links.count()) {}

  /// Starts a transfer of a number of bytes above 0. Times must not go back. Returns its number.
  std::size_t start(const Transfer& transfer, double now);
  /// Returns when the next transfer ends if no other starts; infinity if there is none.
  double next_end();
  /// Ends a transfer that ends at next_end(), and returns its number.
  std::size_t end_next();

 private:
  struct Moving {
    std::vector<std::size_t> path;
    double left = 0;             ///< bytes at the time `since`
    double since = 0;            ///< seconds
    double rate = 0;             ///< bytes/s from then on
    double next_rate = 0;        ///< `rate`, or what it becomes while new shares are found
    std::size_t shared_out = 0;  ///< the last share_out() that concerned it
  };
  struct End {
    double time;
    std::size_t transfer, version;
    bool operator>(const End& other) const {
      return std::pair(time, transfer) > std::pair(other.time, other.transfer);
    }
  };

  void share_out();
  void find_rates(const std::vector<std::size_t>& transfers);

  const Links& links_;
  double now_ = 0;
  std::vector<Moving> moving_;                     ///< by number, also those that have ended
  std::vector<std::vector<std::size_t>> on_link_;  ///< by link: the transfers that pass it
  std::vector<double> share_;                      ///< by link: of each of its transfers, for find_rates()
  std::vector<std::size_t> link_shared_out_;       ///< by link: the last share_out() that concerned it
  std::size_t shared_out_ = 0;                     ///< counts the calls of share_out()
  std::vector<std::size_t> version_;               ///< by transfer: counts the changes of its rate
  std::vector<std::size_t> changed_;               ///< links whose transfers must get new shares
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;  ///< those of older versions are void
};

/// Returns the seconds until all of these transfers, which begin together, have ended, without latency, if
/// the busiest link never waits: no schedule is faster.
double transfer_seconds(const DeviceModel& model, const std::vector<Transfer>& transfers, int devices);

}  // namespace convnet
