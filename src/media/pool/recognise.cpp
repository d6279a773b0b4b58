// By what the file begins with; whether the rest can be read, libpmemobj says.
#include "media/pool/recognise.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <string_view>
#include <system_error>

namespace tensorshelf {
namespace {

template <std::size_t kSize>
bool begins_with(int fd, const char (&text)[kSize]) {
  constexpr std::size_t kBytes = kSize - 1;  // without the 0 that ends it
  std::array<char, kBytes> begin{};
  return ::pread(fd, begin.data(), kBytes, 0) == static_cast<ssize_t>(kBytes) &&
         std::string_view(begin.data(), kBytes) == std::string_view(text, kBytes);
}

bool describes_set(int fd) { return begins_with(fd, "PMEMPOOLSET"); }

}  // namespace

bool is_pool(const ShelfFile& file) {
  if (file.kind() != FileKind::regular) return false;
  return begins_with(file.fd(), "PMEMOBJ\0") || describes_set(file.fd());
}

bool is_pool_set(const ShelfFile& file) {
  return file.kind() == FileKind::regular && describes_set(file.fd());
}

bool is_pool_set(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  const bool set = describes_set(fd);
  if (fd >= 0) ::close(fd);
  return set;
}

}  // namespace tensorshelf
