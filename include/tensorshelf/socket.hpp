// Which socket of its machine a thread runs on: for choose_writers() (partition.hpp).
#pragma once

#include <cstdint>
#include <optional>

namespace tensorshelf {

// The socket that has all CPUs which the calling thread may run on, counted from 0 as hwloc counts
// packages. All processes of a machine count alike, also where each sees only some of its CPUs.
// None where the thread may run on several sockets, where hwloc cannot tell, and in a build without
// hwloc (build_parts()). hwloc looks through the machine at each call, which takes milliseconds.
// Any thread. HWLOC_XMLFILE, HWLOC_SYNTHETIC and HWLOC_THISSYSTEM of the environment hold.
std::optional<std::uint32_t> own_socket();

}  // namespace tensorshelf
