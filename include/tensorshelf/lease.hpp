// Bytes that stay as they are for as long as somebody looks at them.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

namespace tensorshelf {

// Read-only bytes of one tensor. On mapped media they are the slot itself, which no write touches
// while a Lease lives (a write that would need it throws Errc::leased, or that of a writer in
// another process Errc::pinned); elsewhere a copy, and of a shelf that is open for reading, of a
// version that nobody holds.
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
