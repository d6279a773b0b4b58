#include "media/block/reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <tensorshelf/extent.hpp>

#include "base/huge_pages.hpp"

namespace tensorshelf {
namespace {

constexpr std::uint64_t kBounceBytes = kHugePageBytes;
constexpr std::uint64_t kLargeReadBytes = 256 * 1024;
constexpr std::size_t kBouncesKept = 8;  // more readers at once allocate their own

bool page_aligned(std::uint64_t at, std::span<const std::byte> bytes) {
  return at % kPageBytes == 0 && reinterpret_cast<std::uintptr_t>(bytes.data()) % kPageBytes == 0;
}

}  // namespace

BlockReader::BlockReader(BlockBackend& backend, std::filesystem::path path)
    : backend_(backend), path_(std::move(path)) {}

void BlockReader::read(std::uint64_t at, std::span<std::byte> bytes) {
  if (page_aligned(at, bytes)) {
    const std::uint64_t whole_pages = bytes.size() / kPageBytes * kPageBytes;
    read_pages(at, bytes.first(whole_pages));
    at += whole_pages;
    bytes = bytes.subspan(whole_pages);
  }
  if (bytes.empty()) return;
  Bounce bounce = take_bounce();
  if (bytes.size() >= kLargeReadBytes && !bounce.huge) {
    prefer_huge_pages(bounce.memory.bytes());  // of what nothing has touched
    make_huge_pages(bounce.memory.bytes());    // of the rest
    bounce.huge = true;
  }
  while (!bytes.empty()) {
    const std::uint64_t skip = at % kPageBytes;
    const std::uint64_t piece = std::min<std::uint64_t>(kBounceBytes - skip, bytes.size());
    read_pages(at - skip, bounce.memory.bytes().first(round_up(skip + piece, kPageBytes)));
    std::memcpy(bytes.data(), bounce.memory.bytes().data() + skip, piece);
    at += piece;
    bytes = bytes.subspan(piece);
  }
  give_bounce(std::move(bounce));
}

void BlockReader::read_pages(std::uint64_t at, std::span<std::byte> pages) {
  while (!pages.empty()) {
    const std::int64_t got = backend_.read_now(at, pages);
    if (got < 0) throw transfer_error(path_, {"read", at, pages.size(), got});
    // A short read goes on at a page boundary.
    std::uint64_t whole_pages = static_cast<std::uint64_t>(got) / kPageBytes * kPageBytes;
    if (whole_pages == 0) {
      finish_page(at, pages.first(kPageBytes), static_cast<std::uint64_t>(got));
      whole_pages = kPageBytes;
    }
    at += whole_pages;
    pages = pages.subspan(whole_pages);
  }
}

// Less than a page came: a bad sector lies in it, whose error the kernel tells only where a read
// begins, or the file ends there. (Through O_DIRECT, a read from an end that is no whole sector is
// EINVAL.)
void BlockReader::finish_page(std::uint64_t at, std::span<std::byte> page, std::uint64_t done) {
  while (done < page.size()) {
    const std::int64_t got = backend_.read_now(at + done, page.subspan(done));
    if (got == 0 || got == -EINVAL) {
      throw Error(Errc::truncated,
                  fmt::format("{}: the file ends at {}, and the page at {} was to be read",
                              path_.string(), at + done, at),
                  "the file was cut short: restore it from a copy");
    }
    if (got < 0) throw transfer_error(path_, {"read", at, page.size(), got});
    done += static_cast<std::uint64_t>(got);
  }
}

BlockReader::Bounce BlockReader::take_bounce() {
  {
    const std::lock_guard lock(mutex_);
    if (!bounces_.empty()) {
      Bounce bounce = std::move(bounces_.back());
      bounces_.pop_back();
      return bounce;
    }
  }
  return {PageMemory(kBounceBytes)};
}

void BlockReader::give_bounce(Bounce bounce) {
  const std::lock_guard lock(mutex_);
  if (bounces_.size() < kBouncesKept) bounces_.push_back(std::move(bounce));
}

}  // namespace tensorshelf
