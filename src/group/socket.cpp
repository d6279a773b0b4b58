// Sockets, by hwloc.
#include <tensorshelf/socket.hpp>

#include <hwloc.h>

#include <memory>

namespace tensorshelf {
namespace {

struct Free {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
  void operator()(hwloc_bitmap_s* bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Topology = std::unique_ptr<hwloc_topology, Free>;
using CpuSet = std::unique_ptr<hwloc_bitmap_s, Free>;

// Null where hwloc cannot tell. With what a cgroup keeps from this process: without that a socket's
// number would depend on who asks.
Topology whole_machine() {
  hwloc_topology_t made = nullptr;
  if (hwloc_topology_init(&made) != 0) return nullptr;
  Topology topology(made);
  if (hwloc_topology_set_flags(made, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED) != 0 ||
      hwloc_topology_load(made) != 0) {
    return nullptr;
  }
  return topology;
}

}  // namespace

std::optional<std::uint32_t> own_socket() {
  const Topology topology = whole_machine();
  const CpuSet cpus(hwloc_bitmap_alloc());
  if (topology == nullptr || cpus == nullptr ||
      hwloc_get_cpubind(topology.get(), cpus.get(), HWLOC_CPUBIND_THREAD) != 0) {
    return std::nullopt;
  }
  for (hwloc_obj_t socket = nullptr; (socket = hwloc_get_next_obj_by_type(
                                          topology.get(), HWLOC_OBJ_PACKAGE, socket)) != nullptr;) {
    if (hwloc_bitmap_isincluded(cpus.get(), socket->cpuset) != 0) return socket->logical_index;
  }
  return std::nullopt;
}

}  // namespace tensorshelf
