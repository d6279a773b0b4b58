#include "scenarios.hpp"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

#include <tensorshelf/shelf.hpp>

#include "compact_plays.hpp"
#include "feed_plays.hpp"
#include "folder.hpp"
#include "heal_plays.hpp"
#include "interleaved.hpp"
#include "large.hpp"
#include "media_plays.hpp"
#include "memory_plays.hpp"
#include "mirror_plays.hpp"
#include "model.hpp"
#include "name_plays.hpp"
#include "pin_plays.hpp"
#include "prepared_plays.hpp"
#include "recording_medium.hpp"
#include "recovery_plays.hpp"
#include "snapshot_plays.hpp"
#include "tests/asleep.hpp"
#include "tests/forwarding_medium.hpp"
#include "unread_plays.hpp"

namespace tensorshelf::crash {
namespace {

using testing::Waiter;
using Bytes = std::vector<std::byte>;

constexpr std::uint64_t kSmallDiskBytes = 8 * 1024 * 1024;
constexpr std::size_t kSize = 5000;

Bytes value(std::uint64_t serial) {
  Bytes bytes(kSize);
  stamp(bytes, "a", serial, 0);
  return bytes;
}

// Where a play steps in between the store and its medium.
struct Hooks {
  std::function<void()> barrier, write, reserve, look;  // look: a read, a view or a look
};

// Before what the hooks refer to goes.
class ResetHooks {
 public:
  explicit ResetHooks(Hooks& hooks) : hooks_(hooks) {}
  ~ResetHooks() { hooks_ = {}; }
  ResetHooks(const ResetHooks&) = delete;
  ResetHooks& operator=(const ResetHooks&) = delete;

 private:
  Hooks& hooks_;
};

class HookedMedium final : public testing::ForwardingMedium {
 public:
  HookedMedium(Disk& disk, Log& log, std::shared_ptr<Hooks> hooks)
      : ForwardingMedium(std::make_shared<RecordingMedium>(
            disk, log,
            Behaviour{.personality = Personality::pmem, .max_size_bytes = kSmallDiskBytes})),
        hooks_(std::move(hooks)) {}
  Ticket write(std::uint64_t at, std::span<const std::byte> bytes, std::uint64_t seed) override {
    if (hooks_->write) hooks_->write();
    return ForwardingMedium::write(at, bytes, seed);
  }
  void barrier() override {
    if (hooks_->barrier) hooks_->barrier();
    ForwardingMedium::barrier();
  }
  void read(std::uint64_t at, std::span<std::byte> bytes) override {
    if (hooks_->look) hooks_->look();
    ForwardingMedium::read(at, bytes);
  }
  void look(std::uint64_t at, std::span<std::byte> bytes) override {
    if (hooks_->look) hooks_->look();
    ForwardingMedium::look(at, bytes);
  }
  std::span<const std::byte> view(const Extent& extent) override {
    if (hooks_->look) hooks_->look();
    return ForwardingMedium::view(extent);
  }
  std::uint64_t reserve(std::uint64_t size_bytes) override {
    if (hooks_->reserve) hooks_->reserve();
    return ForwardingMedium::reserve(size_bytes);
  }

 private:
  std::shared_ptr<Hooks> hooks_;
};

// A shelf on a simulated medium at version 1, with one tensor, of value(1).
struct HookedPlay {
  Disk disk{kSmallDiskBytes};
  Log log;
  std::shared_ptr<Hooks> hooks = std::make_shared<Hooks>();
  std::optional<Shelf> shelf;
  std::optional<TensorRef> a;

  HookedPlay() {
    HookedMedium medium(disk, log, hooks);
    Shelf::format(medium);
    open();
    a = create("a");
    a->write(value(1));
    shelf->persist(1);
  }
  void open() {
    a.reset();
    shelf.reset();
    shelf = Shelf::open(std::make_unique<HookedMedium>(disk, log, hooks), {.mode = Mode::update});
    a = shelf->find("a");
  }
  TensorRef create(std::string_view name, std::int64_t size = kSize) {
    return shelf->create(name, DType::uint8, std::array{size});
  }
};

bool shows(const Lease& lease, const Bytes& expected) {
  return std::equal(expected.begin(), expected.end(), lease.bytes().begin(), lease.bytes().end());
}

Bytes read(const TensorRef& tensor) {
  Bytes bytes(tensor.info().size_bytes);
  tensor.read(bytes);
  return bytes;
}

std::string leased_slot_is_not_written() {
  HookedPlay stage;
  const Lease lease = stage.a->lease();
  if (!lease.in_place()) return "a lease on a mapped medium is a copy";
  stage.a->write(value(2));  // the other slot
  stage.shelf->persist(2);
  try {
    stage.a->write(value(3));
  } catch (const Error& error) {
    if (error.code() != Errc::leased) throw;
  }
  return shows(lease, value(1)) ? "" : "a write changed what a lease shows";
}

std::string leased_slot_is_not_reused() {
  HookedPlay stage;
  const Lease lease = stage.a->lease();
  stage.shelf->erase("a");
  stage.shelf->persist(2);
  for (int i = 0; i < 6; ++i) stage.create(fmt::format("b{}", i)).write(value(10));
  stage.shelf->persist(3);
  return shows(lease, value(1)) ? "" : "another tensor came to lie where a lease looks";
}

// While it is read, versions go on, and the last one that has it goes.
std::string erased_tensor_is_read_to_its_end() {
  HookedPlay stage;
  stage.shelf->erase("a");
  bool begun = false;
  const ResetHooks reset(*stage.hooks);
  stage.hooks->look = [&] {
    if (std::exchange(begun, true)) return;
    Waiter other([&] {
      stage.shelf->persist(2);
      for (int i = 0; i < 6; ++i) stage.create(fmt::format("b{}", i)).write(value(10));
      stage.shelf->persist(3);
    });
    other.join();
  };
  Bytes bytes(kSize);
  stage.a->read_committed(bytes);
  return begun && bytes == value(1) ? "" : "another tensor came to lie where one is being read";
}

// A writer that begins while the attempt is being frozen comes too late for it. (What was not
// assigned of a tensor that is placed whole is copied forward then.)
std::string snapshot_is_of_one_moment() {
  HookedPlay stage;
  TensorRef b = stage.create("b", static_cast<std::int64_t>(2 * kChunkBytes));
  b.write(Bytes(2 * kChunkBytes));
  stage.shelf->persist(2);
  b.write(Bytes(8));
  stage.a->write(value(2));
  std::optional<Waiter> late;
  const ResetHooks reset(*stage.hooks);
  stage.hooks->write = [&] {
    if (late) return;
    late.emplace([&] { stage.a->write(value(3)); });
    late->waits();  // or has written, which it must not
  };
  stage.shelf->persist(3);
  late->join();
  if (read(*stage.a) != value(3)) return "a write that waited for a commit is lost";
  stage.open();
  return read(*stage.a) == value(2) ? ""
                                    : "a version holds bytes that were written after its moment";
}

std::string growth_waits_for_writers() {
  HookedPlay stage;
  std::atomic<bool> writing = false;
  std::atomic<bool> beside = false;
  std::optional<Waiter> creator;
  const ResetHooks reset(*stage.hooks);
  stage.hooks->reserve = [&] { beside = beside || writing; };
  stage.hooks->write = [&] {
    if (creator) return;
    writing = true;
    creator.emplace([&] { stage.create("large", 1'000'000); });
    creator->waits();  // or has grown the medium, which it must not
    writing = false;
  };
  stage.a->write(value(2));
  creator->join();
  if (beside) return "the medium was grown while a write to it was under way";
  stage.shelf->persist(2);
  stage.open();
  return read(*stage.a) == value(2) && stage.shelf->find("large") ? "" : "growth lost something";
}

// Where the tensor's committed value lies on the disk.
std::uint64_t place_of(const Disk& disk, const Bytes& bytes) {
  const auto all = disk.bytes();
  const auto there = std::search(all.begin(), all.end(), bytes.begin(), bytes.begin() + 64);
  if (there == all.end()) throw std::runtime_error("the value is not on the disk");
  return static_cast<std::uint64_t>(there - all.begin());
}

// A chunk rots after it was read and found good; a part of it is assigned.
std::string rot_stays_rot() {
  HookedPlay stage;
  read(*stage.a);
  const std::uint64_t at = place_of(stage.disk, value(1)) + 1000;
  const std::array flipped = {stage.disk.bytes()[at] ^ std::byte{4}};
  stage.disk.write(at, flipped);
  try {
    stage.a->write(Bytes(8));
    stage.shelf->persist(2);
  } catch (const Error& error) {
    if (error.code() != Errc::corrupt) throw;
    return "";
  }
  stage.open();
  return stage.shelf->verify().damage.empty() ? "rot became part of a version that verifies" : "";
}

// While one thread waits for the medium, others look up names; callbacks hold nothing.
std::string names_do_not_wait_for_reads() {
  HookedPlay stage;
  std::optional<Waiter> other;
  const ResetHooks reset(*stage.hooks);
  bool waited = false;
  stage.hooks->look = [&] {
    if (other) return;
    other.emplace([&] { static_cast<void>(stage.shelf->find("a")); });
    waited = other->waits();
  };
  read(*stage.a);
  other->join();
  return waited ? "looking up a name waits for another thread's read" : "";
}

std::string callbacks_hold_nothing() {
  HookedPlay stage;
  std::optional<Waiter> other;
  bool waited = false;
  static_cast<void>(stage.shelf->verify([&](std::uint64_t, std::uint64_t) {
    if (other) return;
    stage.a->write(value(2));
    other.emplace([&] { stage.shelf->persist(2); });
    waited = other->waits();
  }));
  other->join();
  return waited ? "a commit waits for a callback to return" : "";
}

bool is_busy(const std::filesystem::path& path) {
  try {
    Shelf::open(path, {.mode = Mode::update, .tier = "block"});
  } catch (const Error& error) {
    if (error.code() == Errc::busy) return true;
    throw;
  }
  return false;
}

int exit_code_of_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    int code = 2;
    try {
      code = body();
    } catch (const std::exception&) {
    }
    ::_exit(code);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) throw std::runtime_error("waitpid failed");
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 3;
}

std::string one_writer_at_a_time() {
  const Folder folder;
  const Shelf shelf = Shelf::open(folder.shelf(), {.tier = "block"});
  if (!is_busy(folder.shelf())) return "a second writer was let in";
  const int code = exit_code_of_child([&] { return is_busy(folder.shelf()) ? 0 : 1; });
  return code == 0 ? "" : "another process was let in as a second writer";
}

std::string child_leaves_the_lock() {
  const Folder folder;
  std::optional<Shelf> shelf(Shelf::open(folder.shelf(), {.tier = "block"}));
  const int code = exit_code_of_child([&] {
    shelf.reset();
    return 0;
  });
  if (code != 0) return "a forked child cannot destroy what it inherited";
  if (!is_busy(folder.shelf())) return "a forked child dropped the lock of its parent";
  shelf.reset();
  return is_busy(folder.shelf()) ? "the lock outlives its holder" : "";
}

}  // namespace

const std::vector<Scenario>& scenarios() {
  static const std::vector<Scenario> table = [] {
    std::vector<Scenario> all = {
        {"lease-write", "I3", leased_slot_is_not_written},
        {"lease-erase", "I3", leased_slot_is_not_reused},
        {"erased-read", "I3", erased_tensor_is_read_to_its_end},
        {"fed-eager", "I9", eager_sources_are_copied_first},
        {"fed-staged", "I9", sources_stay_until_staged},
        {"fed-torn", "I9", late_change_is_noticed},
        {"fed-beside", "I13", nobody_commits_half_a_save},
        {"fed-unheard", "-", failed_save_is_told},
        {"fed-apart", "I9", drained_is_apart},
        {"fed-closed-under", "-", closing_tells_of_the_save_it_ends},
        {"fed-and-failed", "-", both_failures_are_told},
        {"fed-let-go", "-", failed_save_is_told_by_the_shelf},
        {"let-go-unheard", "-", failure_is_heard_of_a_shelf_let_go},
        {"fed-closed", "-", save_beside_closing_is_refused},
        {"fed-drained", "-", closing_drains},
        {"fed-durable", "I2", durable_is_behind_the_barrier},
        {"fed-prepared", "I14", prepared_save_is_left_for_its_decision},
        {"fed-behind-prepared", "-", save_behind_a_prepared_one_waits},
        {"fed-abandoned", "-", abandoning_tears_no_save},
        {"late-writer", "I9", snapshot_is_of_one_moment},
        {"interleaved", "I9", interleaved_writers},
        {"contending", "I9", contending_writers},
        {"second-writer", "I10", one_writer_at_a_time},
        {"forked-child", "I10", child_leaves_the_lock},
        {"growth", "-", growth_waits_for_writers},
        {"rot-merge", "-", rot_stays_rot},
        {"names-beside-read", "-", names_do_not_wait_for_reads},
        {"callback", "-", callbacks_hold_nothing},
        {"failed-flush", "I12", accepted_version_is_made_durable},
        {"unread-version", "I11", unread_version_stays_away},
        {"unread-mark", "I14", unread_mark_stays_away},
        {"out-of-sight", "I11", version_out_of_sight_is_kept},
        {"failed-open", "I12", incarnation_is_made_durable},
        {"failed-format", "I12", formatting_is_made_durable},
        {"unreadable-page", "-", one_unreadable_copy_is_no_loss},
        {"rival", "I10", older_writer_is_refused},
        {"rival-again", "I10", older_writer_looks_again},
        {"lost-word", "I11", lost_word_is_a_loss},
        {"prepared-twice-damaged", "I14", prepared_survives_damage_before_and_after},
        {"older-root", "I14", prepared_survives_beside_an_older_root},
        {"failed-first-repair", "I12", repair_of_the_first_version_is_made_durable},
        {"unread-chunk", "I11", chunk_out_of_sight_costs_no_version},
        {"shared-page", "-", bad_copy_of_a_shared_page_is_mended},
        {"cells-behind", "-", pages_are_there_for_every_commit},
        {"free-slot-rots", "-", rot_in_a_free_slot_is_not_built_on},
        {"same-heals", "-", assigning_the_same_bytes_heals},
        {"another-name", "-", what_comes_after_a_lost_version_is_another},
        {"rot-resized", "-", rot_is_not_resized},
        {"older-medium", "-", older_copy_of_a_medium_is_refused},
        {"mirror-abandoned", "-", [] { return mirror_of_another_attempt_is_filled(false); }},
        {"mirror-number-again", "-", [] { return mirror_of_another_attempt_is_filled(true); }},
        {"mirror-refilled", "I12", what_a_failed_filling_wrote_is_written_again},
        {"mirror-part-filled", "I1", part_of_a_filling_shows_what_was_there_before},
        {"mirror-marked", "I12", filling_is_marked_before_anything_is_copied},
        {"mirror-accepted", "-", rot_of_what_is_accepted_is_read_from_the_mirror},
        {"prepared-root-lost", "I14", lost_root_of_what_is_prepared_is_told},
        {"prepared-root-repaired", "-", lost_root_of_what_is_prepared_is_given_up},
        {"mirror-committed", "-", copy_from_before_a_commit_is_refused},
        {"mirror-only-root", "-", short_mirror_with_the_only_root_is_filled},
        {"mirror-forward", "-", commit_copies_forward_from_the_mirror},
        {"mirror-of-another", "-", mirror_of_another_history_is_not_shown},
        {"mirror-held", "I3", mirror_by_itself_is_not_held},
        {"mirror-cut", "-", mirror_that_was_cut_short_is_filled},
        {"mirror-newer", "-", newer_mirror_is_not_written_over},
        {"mirror-torn", "I6", torn_flip_of_a_new_mirror_goes},
        {"mirror-metadata", "I6", damaged_metadata_is_read_from_the_mirror},
        {"mirror-rot", "-", rot_of_a_mirror_is_mended},
        {"mirror-roots", "I6", damaged_roots_are_read_from_the_mirror},
        {"mirror-twice", "I6", interrupted_openings_keep_what_the_mirror_has},
        {"mirror-forked", "-", mirror_of_another_history_shows_nothing},
        {"mirror-behind", "-", mirror_that_was_given_up_shows_nothing},
        {"mirror-short", "-", short_mirror_keeps_nobody_out},
        {"mirror-prepared", "-", what_is_prepared_is_filled_in},
        {"mirror-passing", "-", passing_error_of_a_mirror_is_no_damage},
        {"mirror-given-up", "-", mirror_that_was_given_up_is_not_needed},
        {"mirror-needed", "-", mirror_that_was_added_is_needed},
        {"grown-medium", "I3", what_a_medium_grew_by_stays_taken},
        {"made-beside-removal", "-", made_beside_a_removal_lies_elsewhere},
        {"carried-no-change", "-", what_is_carried_is_no_change},
        {"carried-over", "-", what_is_assigned_over_it_is_one},
        {"carried-rot", "-", rot_is_left_where_it_is},
        {"lease-moved", "I3", lease_holds_what_was_moved_and_erased},
        {"lease-held", "I3", lease_holds_the_places_of_its_version},
        {"removed-compacted", "-", removed_medium_is_not_named_again},
        {"cut-beside", "I11", no_root_reaches_beyond_the_end},
        {"rot-healed", "-", rot_is_healed_or_stays_rot},
        {"healed-unflushed", "I1", what_is_healed_is_durable},
        {"healed-apart", "I3", damaged_slot_is_not_written},
        {"healed-whole", "-", rot_does_not_come_in_with_what_is_healed},
        {"heals-after-commit", "-", refused_commit_leaves_it_healable},
        {"healed-alone", "-", healing_commits_nobodys_assignment},
        {"rot-rolled-back", "-", damaged_version_is_not_rolled_back_to},
        {"mirror-pieces", "-", rot_is_copied_from_the_mirror},
        {"healed-crash", "I2", crash_within_healing_costs_nothing},
        {"same-again", "I13", old_bytes_come_back_over_staged_ones},
        {"same-discarded", "I3", discarded_label_is_no_versions},
        {"copied-slots", "I3", version_stays_while_it_is_copied},
        {"copied-pages", "-", commits_wait_for_what_is_copied},
        {"named-new", "I2", new_shelf_is_named_whole},
        {"named-over", "I2", replaced_shelf_is_the_old_or_the_new},
        {"named-empty", "I2", shelf_in_an_empty_file_is_named_whole},
        {"named-snapshot", "I2", snapshot_is_named_whole},
        {"named-set", "I2", shelf_of_several_media_is_named_whole},
        {"named-set-over", "I2", replaced_media_can_be_replaced_again},
        {"named-medium", "I2", added_medium_is_named_whole},
        {"named-mirror", "I2", added_mirror_is_named_whole},
        {"named-by-another", "I12", found_name_is_made_durable},
        {"named-left", "-", what_an_adding_left_takes_no_place},
        {"held-late", "I3", what_is_given_up_is_not_held},
        {"held-twice", "-", what_is_held_can_be_held_twice},
        {"own-pin", "-", own_pins_are_waited_for_so_long},
        {"copy-pin", "-", what_copies_is_waited_for},
        {"held-newest", "-", newest_is_held_where_none_is_said},
        {"restless", "I3", what_is_held_beside_a_restless_writer_stays},
        {"outrun", "I3", nothing_is_shown_in_place_to_who_is_outrun},
        {"outrun-refused", "I3", who_was_refused_once_outruns_at_last},
        {"lost-view", "-", lost_view_costs_no_other_chunk},
        {"mark-settled", "I12", mark_is_made_durable},
        {"overtaken", "-", overtaken_reader_is_stale},
        {"early-look", "-", early_look_costs_no_version},
        {"moved-chunks", "-", moved_chunks_are_no_damage},
        {"verify-beside", "-", what_is_overtaken_in_verify_is_no_damage},
        {"older-root-long", "-", older_root_stays_within_the_medium},
        {"stale-mark", "I14", mark_dies_with_its_version},
        {"given-up", "-", given_up_version_stays_so},
        {"healed", "I11", lost_version_stays_so},
        {"lost-number", "I10", repair_gives_a_new_number},
        {"failed-repair", "I12", repair_is_made_durable},
    };
    all.insert(all.end(), large_scenarios().begin(), large_scenarios().end());
    return all;
  }();
  return table;
}

std::string violation_of(const Scenario& scenario) {
  try {
    return scenario.play();
  } catch (const std::exception& error) {
    return error.what();
  }
}

}  // namespace tensorshelf::crash
