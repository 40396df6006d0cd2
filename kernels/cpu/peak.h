#pragma once

namespace convnet::cpu {

/// FLOP/s of fp32 fused multiply-adds on `threads` cores: best of five short loops, about a tenth of a
/// second.
double measure_peak_flops(int threads);
/// Bytes a second, read and written together, of a copy of 128 MiB.
double measure_copy_bandwidth(int threads);

}  // namespace convnet::cpu
