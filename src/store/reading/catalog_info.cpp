// What the shelf is, and what it did: its media, its room, its counts.
#include <algorithm>
#include <mutex>

#include "base/planted.hpp"
#include "store/io/medium_headers.hpp"
#include "store/reading/catalog.hpp"

namespace tensorshelf {

namespace {

// Some fallbacks show with the first write only: so each medium is asked each time.
void list_media(const State& state, ShelfInfo& info) {
  const auto capacities = state.versions.retained.back()->capacities();
  const auto add = [&](unsigned number, const std::string& path,
                       const format::ShelfId& id) -> auto& {
    MediumInfo one;
    one.number = number;
    one.path = path;
    one.medium_id = id_text(id);
    one.capacity_bytes = state.heap ? state.heap->capacity_bytes(number) : capacities.end[number];
    one.free_bytes = state.heap ? state.heap->free_bytes(number) : 0;
    one.promises = state.medium->promises_of(number);
    info.capacity_bytes += one.capacity_bytes;
    return info.media.emplace_back(std::move(one));
  };
  add(0, state.path, state.opened.shelf_id);
  for (const AttachedMedium& each : state.further->attached().all()) {
    MediumInfo& one = add(each.index, each.path, each.id);
    one.retired = each.retired;
    one.absent = each.absent;
    one.mirrors = each.mirrors;
  }
  for (MediumInfo& each : info.media) {
    const auto of = std::ranges::find_if(
        info.media, [&](const MediumInfo& other) { return each.mirrors == other.number; });
    // Behind its heads, all of that.
    if (of != info.media.end()) each.capacity_bytes = format::kMirrorAt + of->capacity_bytes;
  }
  for (const MediumInfo& each : info.media) info.free_bytes += each.retired ? 0 : each.free_bytes;
  info.promises = info.media.front().promises;
  for (const MediumInfo& each : info.media) {
    if (each.absent) continue;
    info.promises.survives = std::min(info.promises.survives, each.promises.survives);
  }
}

}  // namespace

ShelfInfo Catalog::info() const {
  const auto lock = state_.lock_usable();
  ShelfInfo info;
  info.path = state_.path;
  info.shelf_id = id_text(state_.opened.shelf_id);
  const format::Root& root = state_.versions.retained.back()->root;
  info.version = state_.versions.retained.back()->number();
  info.step = format::stated_step(root);
  info.incarnation = state_.opened.incarnation;
  info.tensors = state_.names_now().size();
  info.tensor_bytes =
      state_.open ? state_.open->tensor_bytes : state_.versions.retained.back()->tensor_bytes;
  list_media(state_, info);
  info.keep = state_.split.keep;
  info.in_flight = state_.split.in_flight;
  info.placement = state_.placement_on(0);
  info.writable = state_.writable;
  info.recovery = state_.opened.report;
  return info;
}

std::uint64_t Catalog::version() const {
  state_.health.check_usable();
  return state_.version;
}

std::optional<std::uint64_t> Catalog::step() const {
  const auto lock = state_.lock_usable();
  return format::stated_step(state_.versions.retained.back()->root);
}

std::uint64_t Catalog::free_bytes() const {
  const auto lock = state_.lock_usable();
  if (!state_.heap) return 0;
  std::uint64_t free = state_.heap->free_bytes(0);
  const MediumSet used = state_.further->attached().in_use();
  for (unsigned medium = 1; medium < kMaxMedia; ++medium) {
    if (used.has(medium)) free += state_.heap->free_bytes(medium);
  }
  return free;
}

Stats Catalog::stats() const {
  const auto lock = state_.lock_usable();
  const MediumCounters medium = state_.medium->counters();
  Stats stats;
  stats.commits = state_.counters.commits;
  stats.bytes_staged = state_.counters.staged;
  stats.bytes_unchanged = state_.counters.unchanged;
  stats.bytes_copied_forward = state_.counters.forward;
  stats.metadata_bytes = state_.counters.metadata;
  stats.bytes_read = state_.counters.read;
  stats.chunks_verified = state_.counters.verified;
  stats.chunks_healed = state_.counters.healed;
  stats.medium_writes = medium.writes;
  stats.medium_bytes = medium.bytes_written;
  stats.barriers = medium.barriers;
  stats.commit_seconds = static_cast<double>(state_.counters.nanoseconds) * 1e-9;
  return stats;
}

// What is removed, and named by no version from the floor on, may be deleted: whoever holds one
// from before has it open, and no opening finds that version.
void Catalog::check_media(bool lately) const {
  state_.health.check_usable();  // in a child a lock may be held for ever
  if (!state_.further->attached().any()) return;
  MediumSet which = MediumSet::all();
  if (!state_.writable || state_.further->attached().any_retired()) {
    which = state_.writable ? state_.further->attached().in_use() : MediumSet();
    const auto lock = state_.lock_usable();
    for (const auto* list : {&state_.versions.retained, &state_.versions.in_flight}) {
      for (const auto& version : *list) {
        if (version->number() < state_.versions.retained.back()->root.floor) continue;
        for (const auto& medium : version->tree.media()) which.add(medium.index);
      }
    }
  }
  state_.further->attached().check_names(which, lately);
}

}  // namespace tensorshelf
