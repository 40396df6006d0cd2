// CONVNET_HD marks functions that are compiled for the host and, by nvcc, for GPUs as well.
#pragma once

#if defined(__CUDACC__)
#define CONVNET_HD __host__ __device__
#else
#define CONVNET_HD
#endif
