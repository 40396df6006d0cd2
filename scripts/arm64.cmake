# Toolchain for 64-bit ARM, by Debian's cross compiler and the libraries that scripts/arm64 unpacks into
# build/arm64-sysroot. What the build itself runs, and tests, run under qemu-user.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CONVNET_LD /usr/bin/aarch64-linux-gnu-ld.bfd CACHE FILEPATH "")
set(CONVNET_OBJCOPY /usr/bin/aarch64-linux-gnu-objcopy CACHE FILEPATH "")

cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH source_dir)
set(CMAKE_SYSROOT ${source_dir}/build/arm64-sysroot)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
# It has the instructions of a Raspberry Pi 5, which are fewer than those of newer servers (no SVE, no bf16).
set(CMAKE_CROSSCOMPILING_EMULATOR "qemu-aarch64;-cpu;cortex-a76;-L;${CMAKE_SYSROOT}" CACHE STRING "")
