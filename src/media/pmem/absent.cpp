// libpmem2 in a build without it: says so.
#include <fmt/format.h>

#include <tensorshelf/error.hpp>

#include "media/pmem/medium.hpp"

namespace tensorshelf {

bool pmem_supported() { return false; }

std::unique_ptr<Medium> make_pmem_medium(std::shared_ptr<ShelfFile> file, const OpenOptions&,
                                         std::string) {
  throw Error(Errc::unsupported,
              fmt::format("{} cannot be mapped: this build of tensorshelf has no libpmem2",
                          file->path().native()),
              "install libpmem2-dev and build again, or use tier=\"block\" on a file");
}

}  // namespace tensorshelf
