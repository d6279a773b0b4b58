// Bytes of a slot as they lie there. Nobody vouches for them: they may be rotten, and where they
// are mapped they may be gone a moment later (the file was cut short by someone else, a line is
// poisoned), also when they were compared with their checksum before. So they can be hashed, copied
// out, or handed to a medium, which copes with the same, and nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace tensorshelf {

class UntrustedBytes {
 public:
  explicit UntrustedBytes(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::uint64_t size() const { return bytes_.size(); }
  bool lie_in(std::span<const std::byte> room) const { return bytes_.data() == room.data(); }
  UntrustedBytes part(std::uint64_t offset, std::uint64_t size) const {
    return UntrustedBytes(bytes_.subspan(offset, size));
  }

  // XXH3-64. Nothing, or false, where they are gone: Medium::read() then says why.
  std::optional<std::uint64_t> hash(std::uint64_t seed) const;
  [[nodiscard]] bool copy_into(std::span<std::byte> target) const;  // of the same size

  // As the source of a Medium::write(), whose checksum is that of what was copied.
  std::span<const std::byte> for_write() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace tensorshelf
