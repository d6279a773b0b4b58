// What an open store knows of its media beside the first.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/planted.hpp"
#include "store/state/state.hpp"

namespace tensorshelf {

void State::settle_media() {
  Versions used(versions.in_flight.begin(), versions.in_flight.end());
  used.insert(used.end(), versions.retained.begin(), versions.retained.end());
  // What older versions alone name was removed.
  MediumSet now;
  const auto note = [&](const Version& one) {
    for (const auto& named : one.tree.media()) now.add(named.index);
  };
  note(*versions.retained.back());
  for (const auto& each : versions.in_flight) note(*each);
  for (const AttachedMedium& each : further->attached().all()) {
    if (!each.offered && !now.has(each.index)) further->attached().retire(each.index);
  }
  further->settle({used, *heap, seeds});
  for (std::string& text : further->take_notes()) opened.report.notes.push_back(std::move(text));
}

Placement State::placement_on(std::uint64_t at) const {
  return asked.placement.value_or(medium->is_mapped(at) ? Placement::whole : Placement::by_chunk);
}

namespace {

// A version names a mirror only while that gets what is written, and of a medium that it names.
void drop_unserved_mirrors(format::MediaTable& named, const std::vector<AttachedMedium>& attached) {
  const auto has = [was = named](unsigned index) {
    return index == 0 || std::ranges::find(was, index, &format::MediumLayout::index) != was.end();
  };
  std::erase_if(named, [&](const format::MediumLayout& one) {
    if (!one.mirrors) return false;
    const auto there = std::ranges::find(attached, one.index, &AttachedMedium::index);
    return there == attached.end() || !there->tied || !has(*one.mirrors);
  });
}

}  // namespace

void State::name_media(MediumSet which) {
  if (which.has_further()) name_media(which, open->tree);
}

void State::name_media(MediumSet which, Tree& tree) const {
  if (planted(Bug::medium_not_named)) return;
  auto named = tree.media();
  const auto before = named;
  for (const AttachedMedium& each : further->attached().all()) {
    if (!which.has(each.index)) continue;
    auto there = std::ranges::find(named, each.index, &format::MediumLayout::index);
    if (there == named.end()) {
      there = named.insert(there, {each.index, each.id, 0, {}, each.mirrors});
    }
    if (!planted(Bug::medium_capacity_forgotten) || there->capacity_bytes == 0) {
      there->capacity_bytes = heap->capacity_bytes(each.index);
    }
    there->path = each.path;
  }
  // What was given up: a medium that is missing is none that anything lies on.
  for (const AttachedMedium& each : further->attached().all()) {
    if (each.absent) std::erase_if(named, [&](auto& one) { return one.index == each.index; });
  }
  drop_unserved_mirrors(named, further->attached().all());
  std::ranges::sort(named, {}, &format::MediumLayout::index);
  if (named == before && tree.path_hash() == further->path_hash()) return;
  tree.set_media(named, further->path_hash());
}

// Each version names what there is, also where no tensor lies there yet, where all are now, and
// which mirrors which.
void State::name_attached(Tree& tree) {
  if (!further->attached().any()) return;
  const auto leaf = tree.media_leaf();
  const std::uint64_t changes = further->attached().changes();
  if (leaf && leaf == named_leaf_.lock() && named_as_ == changes) return;
  MediumSet which;
  for (const AttachedMedium& each : further->attached().all()) {
    if (each.mirrors && planted(Bug::mirror_not_named)) continue;
    if (!each.retired && !each.absent) which.add(each.index);
  }
  name_media(which, tree);
  named_leaf_ = tree.media_leaf();
  named_as_ = changes;
}

}  // namespace tensorshelf
