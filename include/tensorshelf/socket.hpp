// Which socket of its machine a thread runs on: for choose_writers() (partition.hpp).
#pragma once

#include <cstdint>
#include <optional>

namespace tensorshelf {

// The socket that has all CPUs which the calling thread may run on, counted from 0 as hwloc counts
// packages: alike in all processes of a machine, also where each sees some of its CPUs alone. None
// where that may be one of several, where hwloc cannot tell, and in a build without hwloc, of which
// build_parts() says so. hwloc looks through the machine at each call, which takes milliseconds.
// Any thread. HWLOC_XMLFILE, HWLOC_SYNTHETIC and HWLOC_THISSYSTEM of the environment hold.
std::optional<std::uint32_t> own_socket();

}  // namespace tensorshelf
