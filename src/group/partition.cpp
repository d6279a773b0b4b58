#include <tensorshelf/partition.hpp>

#include <fmt/format.h>

#include <algorithm>

#include <tensorshelf/error.hpp>

#include "base/check.hpp"

namespace tensorshelf {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 63;
constexpr std::size_t kMostWriters = std::size_t{1} << 31;  // their squares are numbers, too

void check_split(std::size_t writers, std::uint64_t block_bytes) {
  if (writers < 1 || writers > kMostWriters) {
    throw Error(Errc::bad_argument, fmt::format("{} writers can share no state", writers),
                fmt::format("use 1 to {}", kMostWriters));
  }
  if (block_bytes == 0 || block_bytes % kPageBytes != 0) {
    throw Error(Errc::bad_argument,
                fmt::format("a block of {} bytes is no multiple of {}", block_bytes, kPageBytes),
                fmt::format("use {}, or the block of the drives", kPageBytes));
  }
}

}  // namespace

Partition::Partition(std::span<const std::uint64_t> size_bytes, std::size_t writers,
                     std::uint64_t block_bytes)
    : size_bytes_(size_bytes.begin(), size_bytes.end()),
      writers_(writers),
      block_bytes_(block_bytes) {
  check_split(writers, block_bytes);
  first_block_.reserve(size_bytes_.size() + 1);
  first_block_.push_back(0);
  std::uint64_t left = kMostBytes / block_bytes_;
  for (const std::uint64_t bytes : size_bytes_) {
    const std::uint64_t partial = bytes % block_bytes_ != 0 || bytes == 0 ? 1 : 0;
    const std::uint64_t blocks = bytes / block_bytes_ + partial;
    if (blocks > left) {
      throw Error(Errc::bad_argument, "the tensors to be split have more than 2^63 bytes in all",
                  "give each its size in bytes");
    }
    left -= blocks;
    first_block_.push_back(first_block_.back() + blocks);
  }
}

// floor(blocks * writer / writers), whose product may be no number.
std::uint64_t Partition::begin(std::size_t writer) const {
  TENSORSHELF_ASSERT(writer <= writers_);
  return blocks() / writers_ * writer + blocks() % writers_ * writer / writers_;
}

std::vector<Piece> Partition::of(std::size_t writer) const {
  const std::uint64_t first = begin(writer);
  const std::uint64_t end = begin(writer + 1);
  std::vector<Piece> pieces;
  if (first == end) return pieces;
  const auto behind = std::ranges::upper_bound(first_block_, first);
  auto tensor = static_cast<std::size_t>(behind - first_block_.begin()) - 1;
  for (; tensor < size_bytes_.size() && first_block_[tensor] < end; ++tensor) {
    const std::uint64_t from = std::max(first, first_block_[tensor]) - first_block_[tensor];
    const std::uint64_t to = std::min(end, first_block_[tensor + 1]) - first_block_[tensor];
    const std::uint64_t offset = from * block_bytes_;
    const std::uint64_t end_bytes = std::min(to * block_bytes_, size_bytes_[tensor]);
    pieces.push_back({tensor, offset, end_bytes - offset});
  }
  return pieces;
}

std::size_t Partition::writer_of(std::size_t tensor, std::uint64_t offset) const {
  TENSORSHELF_ASSERT(tensor < size_bytes_.size());
  TENSORSHELF_ASSERT(offset < std::max<std::uint64_t>(size_bytes_[tensor], 1));
  const std::uint64_t block = first_block_[tensor] + offset / block_bytes_;
  std::size_t least = 0;  // the last writer that begins at the block or before it
  std::size_t beyond = writers_;
  while (beyond - least > 1) {
    const std::size_t middle = least + (beyond - least) / 2;
    (begin(middle) <= block ? least : beyond) = middle;
  }
  return least;
}

}  // namespace tensorshelf
