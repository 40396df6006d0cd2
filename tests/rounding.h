// How far apart fp32 computations may be that differ only in the order of their sums.
#pragma once

#include <cmath>

namespace convnet::test {

/// The most that two computations in fp32 may differ by, relative to the largest result, if the longest sums
/// that a result is made of have `terms` terms, which either adds up in an order of its own: two engines of a
/// library, a fused operation and plain ones, one device and several. A sum rounds `terms` times, each time
/// by at most 2^-24 of what it has come to; such errors go in both directions, so that together they stay
/// below 8 sqrt(terms) 2^-24 (Higham and Mary, SIAM J. Sci. Comput. 41 (2019), A2815, with lambda = 8). Both
/// computations round.
inline double rounding_of(double terms) { return 2 * 8 * std::sqrt(terms) * 0x1p-24; }

}  // namespace convnet::test
