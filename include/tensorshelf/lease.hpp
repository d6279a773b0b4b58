// Bytes that stay as they are for as long as somebody looks at them.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

namespace tensorshelf {

// Read-only bytes of one tensor: the slot itself, or a copy. On mapped media, where the tensor is
// placed whole, they are the slot. Of a shelf that is open for reading they are that only while
// Shelf::pin() holds the version. No write touches that slot while the Lease lives: one that needs
// it throws Errc::leased; a writer in another process waits, and then throws Errc::pinned.
class Lease {
 public:
  std::span<const std::byte> bytes() const { return bytes_; }
  bool in_place() const { return in_place_; }

 private:
  friend class Reader;
  Lease(std::span<const std::byte> bytes, bool in_place, std::shared_ptr<const void> keep)
      : bytes_(bytes), in_place_(in_place), keep_(std::move(keep)) {}
  std::span<const std::byte> bytes_;
  bool in_place_;
  std::shared_ptr<const void> keep_;
};

}  // namespace tensorshelf
