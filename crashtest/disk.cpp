#include "disk.hpp"

#include <sys/mman.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "base/check.hpp"
#include "rng.hpp"

namespace tensorshelf::crash {
namespace {

constexpr std::uint64_t kLine = 64;

std::uint64_t hash_line(const std::byte* line, std::uint64_t at) {
  return XXH3_64bits_withSeed(line, kLine, at);
}

std::span<std::byte> zeros(std::uint64_t size_bytes) {
  void* const at = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  return {static_cast<std::byte*>(at), size_bytes};
}

}  // namespace

// Many a disk is made to replay a log of a few pages.
Disk::Disk(std::uint64_t capacity_bytes) : bytes_(zeros(capacity_bytes)) {
  TENSORSHELF_ASSERT(capacity_bytes % kLine == 0);
}

Disk::~Disk() { ::munmap(bytes_.data(), bytes_.size()); }

std::uint64_t Disk::fingerprint() const {
  return content_hash_ ^ mixed(size_bytes_ ^ mixed(room_bytes_));
}

void Disk::remember(std::uint64_t at, std::uint64_t length) {
  journal_.push_back({at, old_bytes_.size(), size_bytes_, room_bytes_, content_hash_});
  old_bytes_.insert(old_bytes_.end(), bytes_.begin() + static_cast<std::ptrdiff_t>(at),
                    bytes_.begin() + static_cast<std::ptrdiff_t>(at + length));
}

void Disk::write(std::uint64_t at, std::span<const std::byte> source) {
  TENSORSHELF_ASSERT(at + source.size() <= size_bytes_);
  if (source.empty()) return;
  const std::uint64_t first = at / kLine * kLine;
  const std::uint64_t last = (at + source.size() + kLine - 1) / kLine * kLine;
  remember(first, last - first);
  std::memcpy(bytes_.data() + at, source.data(), source.size());
  const std::byte* old = old_bytes_.data() + journal_.back().old_bytes_at;
  for (std::uint64_t line = first; line < last; line += kLine, old += kLine) {
    // Most of a page that is written anew is as it was.
    if (std::memcmp(old, &bytes_[line], kLine) == 0) continue;
    content_hash_ ^= hash_line(old, line) ^ hash_line(&bytes_[line], line);
  }
}

void Disk::grow(std::uint64_t size_bytes) {
  TENSORSHELF_ASSERT(size_bytes <= bytes_.size());
  if (size_bytes <= size_bytes_) return;
  remember(0, 0);
  size_bytes_ = size_bytes;
}

void Disk::make_room(std::uint64_t room_bytes) {
  TENSORSHELF_ASSERT(room_bytes <= size_bytes_);
  if (room_bytes <= room_bytes_) return;
  remember(0, 0);
  room_bytes_ = room_bytes;
}

void Disk::give_up_room(std::uint64_t room_bytes) {
  if (room_bytes >= room_bytes_) return;
  remember(0, 0);
  room_bytes_ = room_bytes;
}

void Disk::cut(std::uint64_t size_bytes) {
  TENSORSHELF_ASSERT(size_bytes % kLine == 0);
  if (size_bytes >= size_bytes_) return;
  write(size_bytes, std::vector<std::byte>(size_bytes_ - size_bytes));
  give_up_room(size_bytes);
  remember(0, 0);
  size_bytes_ = size_bytes;
}

void Disk::rollback(Mark mark) {
  while (journal_.size() > mark.entries) {
    const Entry& entry = journal_.back();
    std::copy(old_bytes_.begin() + static_cast<std::ptrdiff_t>(entry.old_bytes_at),
              old_bytes_.end(), bytes_.begin() + static_cast<std::ptrdiff_t>(entry.at));
    old_bytes_.resize(entry.old_bytes_at);
    size_bytes_ = entry.size_bytes;
    room_bytes_ = entry.room_bytes;
    content_hash_ = entry.content_hash;
    journal_.pop_back();
  }
}

}  // namespace tensorshelf::crash
