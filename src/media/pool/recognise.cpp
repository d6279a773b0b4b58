// By the signature that a pool file begins with. The kind of a pool set is known from its opening.
#include <unistd.h>

#include <array>
#include <string_view>

#include "media/pool/medium.hpp"

namespace tensorshelf {

bool is_pool(const ShelfFile& file) {
  if (file.kind() == FileKind::pool_set) return true;
  if (file.kind() != FileKind::regular) return false;
  constexpr std::string_view kSignature("PMEMOBJ\0", 8);
  std::array<char, kSignature.size()> begin{};
  const ssize_t got = ::pread(file.fd(), begin.data(), begin.size(), 0);
  return got == static_cast<ssize_t>(begin.size()) &&
         std::string_view(begin.data(), begin.size()) == kSignature;
}

}  // namespace tensorshelf
