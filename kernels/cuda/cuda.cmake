# The CUDA backend, for the A100 (sm_80) and the H100 (sm_90), which has an instruction that waits for earlier
# kernels (launch.h). Newer GPUs compile the PTX themselves.
set(CMAKE_CUDA_ARCHITECTURES 80-real 90 CACHE STRING "GPUs that the CUDA backend is compiled for, as CMake names them")
enable_language(CUDA)
set(CMAKE_CUDA_FLAGS_RELEASE "-O1 -DNDEBUG")  # -O is the level for the host's code, which only starts kernels
find_package(CUDAToolkit REQUIRED)
set(cuda_kernels
  bias concat cost batch_norm batch_norm_sums conv_edges conv_gemm depthwise elementwise eltwise image inner_product load local norm pool
  random softmax update window_norm)
list(TRANSFORM cuda_kernels PREPEND cuda/)
list(TRANSFORM cuda_kernels APPEND .cu)

# Looks for a library that the backend can do without. Sets CONVNET_<name>, an option, to OFF where it is not found.
function(find_optional name library work instead)
  find_path(${name}_INCLUDE_DIR ${library}.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(${name}_LIBRARY ${library} HINTS ${CUDAToolkit_LIBRARY_DIR})
  option(CONVNET_${name} "${work} through ${library}; without it they ${instead}" ON)
  if(CONVNET_${name} AND NOT (${name}_INCLUDE_DIR AND ${name}_LIBRARY))
    message(STATUS "${library} was not found: ${work} ${instead}")
    set(CONVNET_${name} OFF CACHE BOOL "" FORCE)
  endif()
endfunction()

find_optional(CUDNN cudnn "convolutions" "are matrix products")
set(convolutions cuda/no_cudnn.cpp)
if(CONVNET_CUDNN)
  set(convolutions cuda/conv_cudnn.cpp cuda/cudnn_graph.cpp)
endif()

find_optional(NCCL nccl "messages between GPUs of several processes" "pass through the hosts")
set(communicators cuda/no_nccl.cpp)
if(CONVNET_NCCL)
  set(communicators cuda/nccl.cpp)
endif()

add_library(convnet_cuda OBJECT
  ${cuda_kernels} ${convolutions} ${communicators} cuda/backend.cpp cuda/conv.cpp cuda/gemm.cpp cuda/peak.cpp cuda/runtime.cpp cuda/tuning.cpp)
# CMake 3.25 takes the C++ standard for CUDA's, and does not know that nvcc 13 has C++20: it is given as an option.
set_target_properties(convnet_cuda PROPERTIES CUDA_STANDARD_REQUIRED OFF UNITY_BUILD OFF)
target_compile_options(convnet_cuda PRIVATE
  "$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20;--extended-lambda;-Werror=all-warnings;-Xcompiler=-Wall,-Wextra,-Werror>")
target_link_libraries(convnet_cuda
  PUBLIC convnet_targets PRIVATE CUDA::cudart CUDA::cublasLt nlohmann_json::nlohmann_json)
if(CONVNET_CUDNN)
  target_compile_definitions(convnet_cuda PRIVATE CONVNET_CUDNN)
  target_include_directories(convnet_cuda PRIVATE ${CUDNN_INCLUDE_DIR})
  target_link_libraries(convnet_cuda PRIVATE ${CUDNN_LIBRARY})
endif()
if(CONVNET_NCCL)
  set_source_files_properties(cuda/nccl.cpp PROPERTIES INCLUDE_DIRECTORIES "${NCCL_INCLUDE_DIR}")
  target_link_libraries(convnet_cuda PRIVATE ${NCCL_LIBRARY})
endif()
