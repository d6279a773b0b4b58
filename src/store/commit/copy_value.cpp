// The value of one tensor into another, which takes its place.
#include <algorithm>
#include <memory>

#include "base/planted.hpp"
#include "store/commit/stager.hpp"

namespace tensorshelf {
namespace {

// For what is thrown away whole: nothing of it is undone.
struct NoUndo final : UndoLog {
  void begin(std::span<const std::byte>, std::uint64_t, const FoundSlot&) override {}
  void touch(std::uint64_t) override {}
  void keep(std::uint64_t) override {}
};

}  // namespace

std::uint64_t Stager::copy_value(StoredTensor& from, StoredTensor& to) {
  const std::uint64_t end = std::min(from.layout.size_bytes, to.layout.size_bytes);
  const auto room = std::make_unique_for_overwrite<Reader::PieceRoom>();
  const auto which = planted(Bug::resized_without_staged) ? Of::committed() : Of::staged();
  std::uint64_t written = 0;
  NoUndo none;
  for (std::uint64_t at = 0; at < end;) {
    const auto [size, bytes] = reader_.piece(from, which, at, room->bytes);
    const std::uint64_t kept = std::min<std::uint64_t>(bytes.size(), end - at);
    if (kept > 0) write(to, bytes.first(kept), at, none);
    written += kept;
    at += size;
  }
  return written;
}

}  // namespace tensorshelf
