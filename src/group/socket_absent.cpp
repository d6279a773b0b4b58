// Sockets in a build without hwloc: none is known.
#include <tensorshelf/socket.hpp>

namespace tensorshelf {

std::optional<std::uint32_t> own_socket() { return std::nullopt; }

}  // namespace tensorshelf
