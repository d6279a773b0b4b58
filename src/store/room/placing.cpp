#include "store/room/placing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include <tensorshelf/error.hpp>

#include "base/copy_hash.hpp"

namespace tensorshelf {
namespace {

constexpr std::uint64_t kLargeBytes = kChunkBytes;  // from which on a tensor is placed as bulk

std::vector<unsigned> numbers(const State& state) {
  std::vector<unsigned> there = {0};
  for (const AttachedMedium& each : state.further->attached().all()) {
    if (!each.retired && !each.mirrors) there.push_back(each.index);
  }
  return there;
}

void check(const State& state, std::string_view name, const std::vector<unsigned>& media) {
  const auto there = numbers(state);
  for (auto one = media.begin(); one != media.end(); ++one) {
    if (std::ranges::find(there, *one) == there.end()) {
      throw Error(Errc::bad_argument,
                  fmt::format("'{}' is to lie on medium {}, and tensors of {} lie on {}", name,
                              *one, state.path, fmt::join(there, ", ")),
                  "info() lists them; also= adds one when the shelf is opened.");
    }
    if (std::find(media.begin(), one, *one) == one) continue;
    throw Error(Errc::bad_argument,
                fmt::format("'{}' is to be striped over medium {} twice", name, *one),
                "Name each medium once.");
  }
}

// Bulk goes where it costs no persistent memory.
std::vector<unsigned> by_size(const State& state, std::uint64_t size_bytes) {
  auto there = numbers(state);
  if (there.size() == 1 || size_bytes < kLargeBytes) return {0};
  std::vector<unsigned> unmapped;
  for (const unsigned one : there) {
    if (!state.medium->is_mapped(place_on(one, 0))) unmapped.push_back(one);
  }
  if (!unmapped.empty()) return unmapped;
  return {there[1]};
}

}  // namespace

void check_medium(const State& state, unsigned number) {
  std::vector<unsigned> there = {0};
  for (const AttachedMedium& each : state.further->attached().all()) {
    if (each.retired || each.absent) continue;
    there.push_back(each.index);
    if (each.mirrors != number || number == 0) continue;
    throw Error(Errc::bad_argument,
                fmt::format("medium {} of {} cannot be removed: medium {} mirrors it", number,
                            state.path, each.index),
                "Remove its mirror first.");
  }
  if (number > 0 && std::ranges::find(there, number) != there.end()) return;
  throw Error(Errc::bad_argument,
              fmt::format("medium {} of {} cannot be removed: there are media {}", number,
                          state.path, fmt::join(there, ", ")),
              "info() lists them; the first stays.");
}

Where choose_where(State& state, std::string_view name, std::uint64_t size_bytes,
                   std::span<const unsigned> asked) {
  std::vector<unsigned> media(asked.begin(), asked.end());
  const bool by_rule = media.empty() && state.asked.place;
  if (by_rule) media = state.asked.place(name, size_bytes);
  const Use use(state);  // close() takes the media away
  for (const AttachedMedium& each : state.further->attached().all()) {
    if (by_rule && each.retired) std::erase(media, each.index);  // it was removed since
  }
  if (media.empty()) media = by_size(state, size_bytes);
  check(state, name, media);
  if (size_bytes == 0) media = {0};
  // One chunk on each at least; whose is the first, names spread.
  const std::uint64_t chunks = (size_bytes + kChunkBytes - 1) / kChunkBytes;
  const std::uint64_t spread = hash_bytes(std::as_bytes(std::span(name)), 0);
  const auto turn = static_cast<std::ptrdiff_t>(spread % media.size());
  std::rotate(media.begin(), media.begin() + turn, media.end());
  media.resize(std::clamp<std::uint64_t>(chunks, 1, media.size()));
  Where where;
  where.media.assign(media.begin(), media.end());
  where.placement =
      media.size() > 1 ? Placement::by_chunk : state.placement_on(place_on(media[0], 0));
  return where;
}

Where where_of(const format::TensorLayout& layout) {
  Where where{.media = {}, .placement = layout.placement};
  for (unsigned i = 0; i < layout.stripes; ++i) {
    where.media.push_back(medium_of(layout.slot_at[i]));
  }
  return where;
}

bool is_on(const format::TensorLayout& layout, const Where& where) {
  MediumSet media;
  for (const unsigned one : where.media) media.add(one);
  return layout.media() == media && layout.placement == where.placement;
}

format::TensorLayout unplaced(const StoredTensor& tensor) {
  format::TensorLayout layout;
  layout.name = tensor.name();
  layout.dtype = tensor.layout.dtype;
  layout.shape = tensor.layout.shape;
  layout.size_bytes = tensor.layout.size_bytes;
  return layout;
}

}  // namespace tensorshelf
