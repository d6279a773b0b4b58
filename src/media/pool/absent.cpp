// libpmemobj in a build without it: says so.
#include <fmt/format.h>

#include <tensorshelf/error.hpp>

#include "media/pool/medium.hpp"

namespace tensorshelf {

bool pool_supported() { return false; }

std::unique_ptr<Medium> make_pool_medium(std::shared_ptr<ShelfFile> file, const OpenOptions&,
                                         std::string) {
  throw Error(Errc::unsupported,
              fmt::format("{} cannot be opened as a pool: this build of tensorshelf has no "
                          "libpmemobj",
                          file->path().native()),
              "install libpmemobj-dev and build again, or use another tier on another file");
}

std::unique_ptr<Medium> make_pool_medium_of(std::shared_ptr<ShelfFile> file,
                                            const OpenOptions& options, std::string note,
                                            std::uint64_t) {
  return make_pool_medium(std::move(file), options, std::move(note));
}

}  // namespace tensorshelf
