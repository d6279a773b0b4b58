#include "store/state/state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "base/planted.hpp"
#include "store/recovery/load_root.hpp"
#include "store/state/unknown_pins.hpp"

namespace tensorshelf {

using format::kCopies;

namespace {

Purpose purpose_of(const OpenOptions& options) {
  if (options.mode != Mode::read) return Purpose::write;
  return options.salvage ? Purpose::salvage : Purpose::read;
}

}  // namespace

State::State(const ShelfMedia& on, const OpenOptions& options, std::string named)
    : medium(on.all),
      further(on.further),
      path(std::move(named)),
      asked(options),
      promises(medium->promises()),
      opened(recover(on, purpose_of(options), options.verify, options.progress)),
      seeds(opened.shelf_id),
      writable(options.mode != Mode::read && opened.writes_allowed),
      split(split_of(opened.versions.back()->root, options)),
      rival(*medium, opened, seeds, promises.one_machine, health),
      patience(options.while_waiting),
      homes(opened.homes),
      published(std::make_unique<std::condition_variable_any>()),
      version(opened.version),
      in_doubt(opened.report.degraded) {
  versions.retained = std::move(opened.versions);
  take_names(*versions.retained.back());
  if (writable) {
    take_over();
  } else {
    for (const auto& each : versions.retained) each->claims = {};
  }
}

void State::take_over() {
  await_unknown_pins(*medium, {asked.on_pin, asked.pin_timeout, patience, path},
                     versions.retained.front()->number(), versions.retained.back()->number());
  versions.retained.reserve(format::kMaxSlots + 1);
  versions.in_flight.reserve(format::kMaxSlots);
  if (planted(Bug::floor_by_keep_asked)) {
    while (versions.retained.size() > 1 + split.keep)
      versions.retained.erase(versions.retained.begin());
  }
  next_tensor_id = versions.retained.back()->root.next_tensor_id;
  if (opened.prepared) take_prepared(*std::exchange(opened.prepared, std::nullopt));
  own_places();
  settle_media();
  open = attempt_over(versions.retained.back(), 0);
  heap->reserve_pages(pages_for({}));
}

// It stays as it is, and the shelf too, until it is decided.
void State::take_prepared(const FoundPrepared& found) {
  versions.prepared = PreparedAttempt{found};
  found_prepared = true;
  if (!found.version) return;
  versions.in_flight.push_back(found.version);
  take_places({&versions.in_flight.back(), 1});
  next_tensor_id = std::max(next_tensor_id, found.version->root.next_tensor_id);
}

// From here on what nothing names is given back.
void State::own_places() {
  const bool forgets = planted(Bug::free_space_forgets_root);
  auto named = planted(Bug::retained_places_free) ? std::vector{versions.retained.back()}
                                                  : versions.retained;
  Capacities capacities = versions.retained.back()->capacities();
  for (const auto& one : versions.retained) capacities.raise(one->capacities());
  for (const auto& prepared_one : versions.in_flight) {
    capacities.raise(prepared_one->capacities());
    if (!planted(Bug::prepared_slot_free)) named.push_back(prepared_one);
  }
  Claimed claimed(capacities);
  ClaimList list;
  for (const auto& each : named) {
    if (!forgets) claimed.add(list.add(each));
    each->claims = {};
  }
  heap = std::make_shared<Heap>(*medium, claimed, [this] { wait_until_quiet(patience); });
  for (const auto& each : named) {
    each->tree.each_page([&](const PageNodePtr& page) {
      if (!forgets) page->heap = heap;
    });
    for (const auto& there : std::exchange(each->loaded, {})) {
      if (!forgets) there.holding->adopt(heap);
      StoredTensor& tensor = *there.tensor;
      for (std::uint64_t chunk = 0; tensor.whole() && chunk < tensor.layout.chunk_count();
           ++chunk) {
        const auto record = each->tree.record(tensor.cell(chunk));
        tensor.label(format::chunk_slot(record), chunk) = format::chunk_version(record);
      }
    }
  }
}

// Checked before as well: in a forked child nobody may ever unlock it.
std::unique_lock<FairMutex> State::lock_usable() const {
  health.check_usable();
  std::unique_lock lock(structure);
  health.check_usable();
  return lock;
}

void State::check_writable() {
  check_may_write();
  if (found_prepared) throw_unresolved("nothing can be changed");
}

void State::check_may_write() {
  health.check_usable();
  health.check_background();
  if (!writable) {
    throw Error(Errc::read_only,
                opened.writes_allowed
                    ? fmt::format("{} is open with mode=\"r\"", path)
                    : fmt::format("{} has features that this release can only read", path),
                opened.writes_allowed ? "Open it with mode \"r+\" or \"a\"."
                                      : "Use the tensorshelf release that wrote it.");
  }
  if (health.failed()) throw_failed();
}

const Version& State::version_of(Of which) const {
  if (which.kind() == Of::Kind::staged && open) return *open->base;
  if (which.kind() != Of::Kind::version) return *versions.retained.back();
  const auto& prepared = versions.prepared;
  if (prepared && prepared->version && prepared->version->number() == which.number()) {
    return *prepared->version;
  }
  return retained_version(which.number());
}

const Version& State::retained_version(std::uint64_t number) const {
  if (const Version* const found = versions.find(number)) return *found;
  const std::uint64_t oldest = versions.oldest();
  const std::uint64_t newest = versions.retained.back()->number();
  throw Error(Errc::stale,
              fmt::format("version {} of {} is not retained: there is version {}", number, path,
                          oldest == newest ? std::to_string(newest)
                                           : fmt::format("{} to {}", oldest, newest)),
              "Shelf.versions lists those that can be read; keep= says how many are.");
}

std::shared_ptr<Version> State::newest() const {
  const std::lock_guard lock(structure);
  return versions.retained.back();
}

const Names& State::names_now() const {
  return open ? *open->names : *versions.retained.back()->names;
}

// For every version that can be there at once, each as large as the largest: so that no later
// commit is refused. `cells` are those of a tensor about to be added, which come behind others that
// may belong to none yet.
std::uint64_t State::pages_for(const CellRun& cells) const {
  const std::uint64_t there = planted(Bug::pages_for_own_cells) ? cells.first / format::kPageCells
                                                                : open->tree.cells_page_count();
  const std::uint64_t needed =
      (cells.first + cells.count + format::kPageCells - 1) / format::kPageCells;
  const std::uint64_t leaves = needed - std::min(needed, there) + 1;  // and one of records
  const std::uint64_t names_media =
      further->attached().any() && !open->tree.has_media_page() ? 1 : 0;
  const std::uint64_t more = 4 * names_media + (cells.count == 0 ? 0 : leaves + leaves / 100 + 3);
  std::uint64_t pages = open->tree.page_count();
  {
    std::lock_guard lock(structure);
    for (const auto* list : {&versions.retained, &versions.in_flight}) {
      for (const auto& each : *list) pages = std::max(pages, each->tree.page_count());
    }
  }
  return kCopies * opened.slot_count * (pages + more);
}

void State::throw_unresolved(const std::string& what) const {
  throw Error(Errc::unresolved,
              fmt::format("{}: version {} of {} is prepared, and not decided", what,
                          version.load() + 1, path),
              "resolve() it first: commit it, or abandon it.");
}

void State::check_not_abandoned() const {
  if (open->abandoned == 0 || planted(Bug::abandoned_kept_behind)) return;
  throw Error(Errc::abandoned,
              fmt::format("version {} of {} was abandoned, and with it what was assigned behind it",
                          open->abandoned, path),
              "discard() first, and assign anew what the next version is to have.");
}

// The gate is closed: the version that its home held was published long ago.
std::shared_ptr<Attempt> State::attempt_over(std::shared_ptr<const Version> over,
                                             std::uint64_t after) const {
  const std::uint64_t sequence = homes.next_sequence(over->root, opened.incarnation, after);
  return std::make_shared<Attempt>(std::move(over), sequence);
}

void State::replace_open(std::shared_ptr<Attempt>& next) noexcept {
  open.swap(next);
  further->attached().revive(open->tree);  // of a rollback, or of what was found prepared
  if (!planted(Bug::look_outlives_attempt)) rival.attempt_begun();
}

void State::wait_until_quiet(const Patience& with) {
  std::unique_lock lock(structure);
  with.wait(*published, lock,
            [this] { return versions.in_flight.empty() || versions.undecided(); });
}

Use::Use(State& state) : state_(state) {
  state.health.check_usable();  // in a child nobody would ever leave
  if (state.uses.enter()) return;
  state.health.check_usable();  // says that it is closed
  TENSORSHELF_ASSERT(false);
}

}  // namespace tensorshelf
