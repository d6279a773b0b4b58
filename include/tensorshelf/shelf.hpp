// START HERE. A shelf keeps named tensors on persistent memory or NVMe, and persist() moves all of
// them from one version to the next in one atomic step. After any crash, opening the shelf gives
// the last version that was acknowledged, or the one in flight, whole.
//
//     auto shelf = tensorshelf::Shelf::open("run.shelf");
//     auto w = shelf.create("w", DType::float32, {{1024, 1024}});
//     w.write(std::as_bytes(std::span(weights)));   // staged: `weights` may change again
//     shelf.persist(step);                          // durable, and atomic over all tensors
//
// Thread-safety: threads may assign different tensors at once, and read any. persist() waits for
// assignments under way; those that begin meanwhile belong to the next version, and wait for a
// slot, and while what was not assigned is copied along. Two assignments to one tensor come one
// after the other; which comes first is for the caller's threads to settle. A child after fork()
// may only destroy or close() what it inherited, and ask handles for what never changes: everything
// else throws Errc::forked.
// Lifetime: a TensorRef or Lease keeps the mapping alive past the Shelf; using a TensorRef after
// close() throws Errc::closed (but for its name, dtype and shape), reading a Lease stays valid.
// Errors: tensorshelf::Error (error.hpp). After a failed write or barrier the shelf refuses to
// commit until it is reopened (I8), and the committed version stays readable.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tensorshelf/error.hpp>
#include <tensorshelf/handles.hpp>
#include <tensorshelf/medium.hpp>
#include <tensorshelf/options.hpp>
#include <tensorshelf/report.hpp>
#include <tensorshelf/tensor.hpp>

namespace tensorshelf {

enum class Decision { commit, abandon };

class Shelf {
 public:
  // Opens the shelf, or makes it, as options.mode says. Opening is recovering: what it found is
  // info().recovery. Throws Errc::not_found, exists, not_a_shelf, truncated, newer_format, busy,
  // corrupt, medium_missing, read_only, not_dax, unsupported, pinned, full, stale, bad_argument or
  // io.
  static Shelf open(const std::filesystem::path& path, const OpenOptions& options = {});

  // The same on a medium of one's own (tests, simulators). format() makes an empty shelf at
  // version 0; open() recovers, as every open does. Options that belong to a file (modes that
  // create, tier, size, block) do not matter here.
  static void format(Medium& medium, const OpenOptions& options = {});
  static Shelf open(std::unique_ptr<Medium> medium, const OpenOptions& options = {});
  // `also`: further media of this shelf, or blank ones to be added. `mirrors`: each with the number
  // of the medium that it mirrors.
  static Shelf open(std::unique_ptr<Medium> medium, std::vector<std::unique_ptr<Medium>> also,
                    const OpenOptions& options = {});
  static Shelf open(std::unique_ptr<Medium> medium, std::vector<std::unique_ptr<Medium>> also,
                    std::vector<MirrorMedium> mirrors, const OpenOptions& options = {});

  // A Shelf that was moved from can be assigned to, or destroyed. Assigning closes the one that was
  // open.
  Shelf(Shelf&&) noexcept;
  Shelf& operator=(Shelf&&) noexcept;
  // Closes the shelf and drops what was not persisted. What close() would throw goes to
  // OpenOptions::on_unheard. Like close() it waits until every VersionPin is gone; a thread that
  // keeps one itself waits for ever.
  ~Shelf();

  // ---- tensors

  // A new tensor of zeros. It gets its slots now, and with them all room that a later persist()
  // needs: else Errc::full. It can be assigned at once, and is in a version from the next persist()
  // on. Errc::name_taken, bad_name, layout.
  // `media`, by numbers of ShelfInfo::media: one; several, and its chunks go round them; none, and
  // OpenOptions::place decides. Errc::bad_argument for one that is not there.
  TensorRef create(std::string_view name, DType dtype, std::span<const std::int64_t> shape,
                   std::span<const unsigned> media = {});
  // A new tensor under the name of an old one, which stays the committed one until persist().
  TensorRef replace(std::string_view name, DType dtype, std::span<const std::int64_t> shape,
                    std::span<const unsigned> media = {});
  void erase(std::string_view name);
  // create() and replace() with a value. Until the Assignment is done, the name has no tensor, or
  // the old one; then the new one, with all that was written. An Assignment that is let go leaves
  // nothing. Errors as create() and replace(): here, or from done() where another thread took the
  // name, or erased the old tensor, meanwhile.
  [[nodiscard]] Assignment create_with(std::string_view name, DType dtype,
                                       std::span<const std::int64_t> shape,
                                       std::span<const unsigned> media = {});
  [[nodiscard]] Assignment replace_with(std::string_view name, DType dtype,
                                        std::span<const std::int64_t> shape,
                                        std::span<const unsigned> media = {});
  // Gives a tensor another name. Only the manifest is written. Handles and leases stay with the
  // tensor, and older versions have it under its old name. Errc::name_taken, bad_name,
  // unknown_name.
  void rename(std::string_view from, std::string_view to);
  // Gives a tensor another number of rows, its first dimension. Rows that stay keep their value,
  // with what was assigned since the last persist(), and new ones are zeros.
  // - It is a new tensor under the name: old handles throw Errc::unknown_name.
  // - With as many rows as before nothing changes.
  // - What stays is read, checked and written anew, into slots of the new size. Assignments wait
  //   until that is done.
  // - The old slots are free when no retained version has them.
  // Errc::layout for a negative number, or where it has no dimension; Errc::spoiled where it has no
  // value; Errc::corrupt where what is to stay is damaged; Errc::full. Each leaves the tensor as it
  // was.
  TensorRef resize(std::string_view name, std::int64_t rows);
  // Moves a tensor to other media, given as to create(): a new tensor under the name, as by
  // resize(). Where it lies there already, as create() would place it, nothing changes. Errors as
  // resize(), and Errc::bad_argument for a medium that is not there.
  TensorRef move(std::string_view name, std::span<const unsigned> media);
  // Removes a medium beside the first, from the next persist() on. Its tensors are moved, as by
  // move(), to where create() would put them then. Keep the file until no retained version has
  // tensors there. Errors as move(), and Errc::bad_argument where the medium has a mirror, which is
  // to be removed first. On an error the medium stays; what was moved stays moved.
  void remove_medium(unsigned number);
  // Makes room ahead for tensors of so many bytes together, with all their slots, so that the
  // medium grows once, now, and not during a run. Kept from the next commit on. Errc::full where
  // the medium ends: then nothing changed, but that some of several media may have grown.
  void reserve(std::uint64_t size_bytes);
  // Moves what lies far back to where there is room in front, and makes the media as short as that
  // allows: after tensors were erased, above all. A device or a pool keeps its size, and has its
  // free room in one piece then.
  // - Other threads go on meanwhile. What they assign moves by itself, with their commits; what
  //   nobody assigns is copied, a chunk at a time. Handles and leases stay. Its own commits take
  //   the place of the older versions that `keep` had, as any commits do.
  // - Where nobody has changed anything it commits by itself, with the step as it is. Else it waits
  //   for whoever has to commit, for `patience` at most: then Errc::uncommitted.
  // - When all is moved it commits about as often again as a tensor has slots, for a place is free
  //   only when the last version that has it is gone. What leases, pins and snapshots hold stays
  //   where it is.
  // Errc::bad_argument for a patience that is negative or no number; Errc::io where the system does
  // not make a medium shorter, which goes on as it is; else errors as persist(), of which
  // Errc::gone as it begins alone. What was moved before an error stays moved.
  CompactReport compact(std::chrono::duration<double> patience = std::chrono::seconds(30));

  std::optional<TensorRef> find(std::string_view name) const;
  std::vector<std::string> names() const;  // sorted

  // ---- commits

  // Commits everything assigned, created and erased since the last one, as one version.
  // - With no change it still commits, so that a step can be recorded.
  // - Without a step the last one that was given stays. 2^64 - 1 is no step: Errc::bad_argument.
  // - Where the file was deleted, or another took its place, it commits nothing and throws
  //   Errc::gone, for opening the path would not find the version. What was assigned can still be
  //   read, and copied into a new shelf.
  Commit persist(std::optional<std::uint64_t> step = {});
  // The same in the background. It returns when its version is closed to writes.
  // - Later writes go into the version after it. A write waits only where it needs a slot of a
  //   version that is on its way.
  // - Where `in_flight` versions are on their way already, it waits for the first of them.
  // - Where a tensor that is placed whole is damaged in what was not assigned, the call itself
  //   throws: nothing was committed then, and nothing is lost.
  // - What fails later is thrown by the future, and by the next call that changes or closes the
  //   shelf. Where there is no such call, OpenOptions::on_unheard hears of it.
  std::shared_future<Commit> persist_async(std::optional<std::uint64_t> step = {});

  // ---- agreeing with others first

  // The first half of a commit, for those who must agree with others before they commit: returns
  // when the version is durable, and not yet the shelf's. resolve() is the second half.
  // - `id`, of at most 256 bytes, tells whoever opens the shelf after a crash whose decision it
  //   waits for.
  // - One is prepared at a time, behind all that is on its way.
  // - What is assigned meanwhile belongs to the version after it. An assignment that needs one of
  //   its slots throws Errc::unresolved, and so does persist().
  // - A close, or a crash, leaves it prepared, and opening decides nothing (I14): then every change
  //   throws Errc::unresolved until resolve().
  // Errc::bad_argument for a longer id; Errc::gone as persist().
  Prepared prepare(std::optional<std::uint64_t> step = {}, std::string_view id = {});
  // The attempt that waits for a decision. Of a shelf that is open for reading, the one that
  // opening found, until refresh() shows a version of its number. It hears of none that is
  // abandoned, or prepared later.
  std::optional<Prepared> prepared() const;
  // The second half.
  // - Committed, it is the newest version when this returns. One that was found by opening the
  //   shelf is read and checked first: Errc::corrupt where it is damaged, and it stays prepared.
  // - Abandoned, it never was, and what was assigned after it is dropped. Where anything was, every
  //   change throws Errc::abandoned until discard(), so that nobody commits the later part of his
  //   changes alone.
  // Any thread may decide, but not within an assignment of its own. Errc::bad_argument where
  // nothing is prepared; to commit, Errc::gone as persist().
  Resolved resolve(Decision decision);

  // ---- all or nothing

  // Drops what was assigned, created and erased since the last commit, durable or on its way.
  // - It waits for assignments under way.
  // - Leases keep what they show.
  // - Tensors created since are gone: their handles throw Errc::unknown_name. Erased ones are back.
  void discard();

  // All changes from here to commit(), of whatever thread, become one version, or none: a
  // Transaction that is destroyed before commit() discards them. Errc::uncommitted where something
  // was changed already.
  // Within it this thread's persist(), prepare(), discard(), rollback(), compact(), heal() and
  // transaction(), and a pipeline's save(), are refused (Errc::transaction); those of others wait
  // until it ends.
  [[nodiscard]] Transaction transaction();

  // ---- versions

  // The versions that can be read, the oldest first: the newest, and as many before it as are kept.
  std::vector<VersionInfo> versions() const;
  // One of them, to be read; else Errc::stale. What is prepared can be read, too, by the number
  // that it is to have, until it is abandoned: then another version may get that number.
  RetainedVersion at(std::uint64_t version) const;
  // Keeps a version as it is until the pin goes (VersionPin): it stays among versions(). Without a
  // number the newest; of a shelf that is open for reading, after a refresh(). Errc::stale where
  // the version is not among versions(), or its writer has given it up already, or outruns its
  // readers; for reading also Errc::io where the file system has no locks on parts of a file, and
  // Errc::unsupported of a mirror that is opened by itself.
  VersionPin pin(std::optional<std::uint64_t> version = {}, PinnedFor what = PinnedFor::user) const;
  // What `to` has otherwise than `from`; either may be the older. Chunk records are compared, and
  // no data is read. Errors as at().
  VersionDiff diff(std::uint64_t from, std::uint64_t to) const;
  // Copies a version, the newest where none is given, into a new shelf at `path`, as its version 1
  // and with its step.
  // - Every chunk is checked on its way: Errc::corrupt, and no file, where one is damaged, and no
  //   mirror has it.
  // - The file appears at `path` when it is whole and durable. A crash leaves a hidden one beside
  //   it, .NAME.PID.*.tmp, which the next shelf of that name removes.
  // - Other threads go on meanwhile. An assignment that needs a slot of the version waits until the
  //   copy is made, and so does a commit that would need more versions than the shelf has slots.
  // - Of `options` it takes tier, max_size_bytes, block, keep, in_flight, placement and progress,
  //   which may read the shelf, and not change it. It is made as with zero_room = false.
  // Errc::exists where there is something at `path`; Errc::stale where there is no such version;
  // Errc::closed where another thread closes the shelf meanwhile, whose close() waits for the end
  // of this.
  Commit snapshot(const std::filesystem::path& path, const OpenOptions& options = {},
                  std::optional<std::uint64_t> version = {}) const;
  // Makes that version the newest again, by a commit of its own that copies no data.
  // - Chunks that differ from the newest version are read first: Errc::corrupt where one is
  //   damaged, and nothing changed.
  // - Errc::uncommitted while something is changed, or on its way.
  // - A handle throws where that version lacks its tensor, and works again where it has it back.
  Commit rollback(std::uint64_t version);

  // ---- following a writer

  // In a shelf that is open with Mode::read: shows the newest version that its writer has made.
  //
  //     a newer one is there                      true
  //     the one that is shown was lost, and the   true: what is shown then may have the same
  //     writer went on from an older one          number, or a lower one
  //     nothing new; also of a shelf that is      false
  //     open for writing
  //     a newer one may be there, damaged         Errc::corrupt
  //     the file was deleted or replaced          Errc::gone
  //     the writer is always faster, or a         Errc::stale
  //     medium was exchanged
  //     the shelf was salvaged                    Errc::unsupported
  //
  // Where it throws, what is shown stays.
  // - Handles follow their tensors; of one that was erased they throw Errc::unknown_name. Those of
  //   other tensors may throw it, too, where a version was lost. They may also where nobody can
  //   tell whether one was: the version shown before is no longer retained, and the writer has
  //   reopened the shelf and renamed or moved tensors since.
  // - What other threads read meanwhile is of the one version or the other, tensor by tensor: where
  //   several must be of one version, read them through at().
  // - Where there is nothing new, it costs a look at the version words. Else the changed pages of
  //   the manifest are read, and all of it is validated; with Verify::on_open every chunk of the
  //   new version is, too.
  bool refresh();
  // Refreshes until `version` or a newer one is shown; without a number, until another one is.
  //
  //     it is shown                               true
  //     not within `timeout`, and the look that   false
  //     is under way then
  //     open for writing, and no such version     Errc::unsupported
  //     a timeout below 0                         Errc::bad_argument
  //     anything else                             as refresh()
  //
  // The version words are looked at every 10 ms at least, so that a new version is seen some
  // milliseconds after its flip. OpenOptions::while_waiting is called meanwhile; another thread may
  // close the shelf.
  bool wait_for(std::optional<std::uint64_t> version = {},
                std::optional<std::chrono::duration<double>> timeout = {});

  // ---- looking

  // Reads and checks every chunk of the committed version. Damage says of each damaged one
  // what can still be had. Commits go on meanwhile, and nothing is locked during the callbacks:
  // both may use the shelf, wait for as long as they like, and throw, which ends it.
  VerifyReport verify(const Progress& progress = {}, const OnDamage& on_damage = {}) const;
  // Verifies, and restores what is healable, as one version with the step of the one before. Where
  // another slot, or the mirror, has bytes with the right checksum, these are written anew; so is
  // what a mirror alone lacks.
  // - What is to be had nowhere stays damaged. A tensor that is placed whole is healed whole or not
  //   at all.
  // - The slot that is damaged is not written: older versions that name it stay damaged.
  // - With nothing to heal nothing is committed.
  // - Other threads go on while it verifies, and wait while it restores. What a commit replaces
  //   meanwhile, it leaves alone.
  // Errc::uncommitted where something was changed and not committed, also meanwhile; unresolved,
  // transaction, read_only and unsupported as rollback(); Errc::leased where a lease is in the way;
  // Errc::gone as persist(); Errc::corrupt where more is damaged by then. With each of them nothing
  // was restored.
  VerifyReport heal(const Progress& progress = {});
  // Restores, and does not verify: for what verify() found a while ago.
  VerifyReport heal(VerifyReport found);

  ShelfInfo info() const;
  // What info() tells, one by one, for loops that ask often.
  std::uint64_t version() const;
  std::optional<std::uint64_t> step() const;
  std::uint64_t free_bytes() const;

  Stats stats() const;
  // Whether closing would drop something: what was assigned, created or erased, and is in no
  // version, nor in one on its way. Waits for assignments under way.
  bool has_uncommitted() const;
  // Why a commit in the background failed, or a save was lost, where no call has thrown that yet;
  // else empty. Throws nothing itself: for whoever is about to destroy a shelf that nobody closed.
  std::string unheard_failure() const;
  void close();  // waits for a commit in flight, throws what it threw; closing twice is allowed
  bool closed() const;

 private:
  friend struct FeedAccess;
  explicit Shelf(std::shared_ptr<Store> store, std::weak_ptr<const ShelfFile> file = {},
                 bool created = false);
  // Errc::gone where the file of a medium was deleted, or another took its place. `lately`: one
  // beside the first that nothing was written to is not asked again within a millisecond.
  void check_still_there(bool lately = false) const;

  std::shared_ptr<Store> store_;
  std::weak_ptr<const ShelfFile> file_;  // lives as long as the medium on it
  bool created_ = false;
};

}  // namespace tensorshelf
