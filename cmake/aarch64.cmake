# Cross build for ARM64 with Debian's g++-aarch64-linux-gnu. Of the libraries it has the C and C++
# ones alone, hence TENSORSHELF_HEADERS_ALONE in the preset. CTest runs what was built under
# qemu-aarch64 (qemu-user) where that is installed. ./run lint does both.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)
