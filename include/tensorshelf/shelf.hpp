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
// assignments under way; those that begin meanwhile belong to the next version, and wait for
// nothing but a slot. Two assignments to one tensor come one after the other; which comes first is
// for the caller's threads to settle. A child after fork() may only destroy what it inherited:
// everything else throws Errc::forked.
// Lifetime: a TensorRef or Lease keeps the mapping alive past the Shelf; using a TensorRef after
// close() throws Errc::closed, reading a Lease stays valid.
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

// Destroying an open Shelf closes it; what was staged and not persisted is dropped. It cannot throw
// what close() would: OpenOptions::on_unheard hears that. It waits for all VersionPins, as close()
// does: in the thread that keeps one, for ever.
class Shelf {
 public:
  static Shelf open(const std::filesystem::path& path, const OpenOptions& options = {});

  // The same on a medium of one's own (tests, simulators). format() makes an empty shelf at
  // version 0; open() recovers, as every open does. What belongs to a file (modes
  // that create, tier, size, block) does not matter here.
  static void format(Medium& medium, const OpenOptions& options = {});
  static Shelf open(std::unique_ptr<Medium> medium, const OpenOptions& options = {});
  // `also`: further media of this shelf, or blank ones to be added. `mirrors`: each with the number
  // of the medium that it mirrors.
  static Shelf open(std::unique_ptr<Medium> medium, std::vector<std::unique_ptr<Medium>> also,
                    const OpenOptions& options = {});
  static Shelf open(std::unique_ptr<Medium> medium, std::vector<std::unique_ptr<Medium>> also,
                    std::vector<MirrorMedium> mirrors, const OpenOptions& options = {});

  // What was moved from can be assigned to, or destroyed. Assigning closes what was open.
  Shelf(Shelf&&) noexcept;
  Shelf& operator=(Shelf&&) noexcept;
  ~Shelf();

  // ---- tensors

  // Reserves slots for a new tensor, reading as zeros, and the room that any later persist() can
  // need for it; throws Errc::full where there is none. Part of the shelf from the next persist().
  // `media`: where it is to lie, by numbers of ShelfInfo::media; several: its chunks go round them,
  // none: as OpenOptions::place says. Errc::bad_argument for one that is not there.
  TensorRef create(std::string_view name, DType dtype, std::span<const std::int64_t> shape,
                   std::span<const unsigned> media = {});
  // A new layout under an old name: the old tensor stays the committed one until persist().
  TensorRef replace(std::string_view name, DType dtype, std::span<const std::int64_t> shape,
                    std::span<const unsigned> media = {});
  void erase(std::string_view name);
  // The same with a value: there is no tensor, or the old one, until the assignment is done, and
  // then the new one with all that was written. One that is let go leaves nothing behind. What
  // create() and replace() throw comes here or, where another thread was faster, from done().
  [[nodiscard]] Assignment create_with(std::string_view name, DType dtype,
                                       std::span<const std::int64_t> shape,
                                       std::span<const unsigned> media = {});
  [[nodiscard]] Assignment replace_with(std::string_view name, DType dtype,
                                        std::span<const std::int64_t> shape,
                                        std::span<const unsigned> media = {});
  // Another name: nothing is written but the manifest, handles and leases stay with the tensor, and
  // older versions have it under its old name. Errc::name_taken, bad_name, unknown_name.
  void rename(std::string_view from, std::string_view to);
  // The tensor with another first dimension, in its place: what has room there of its value, with
  // what was assigned, stays, and what is new reads as zeros. What stays is read, checked and
  // written anew, into slots of the new size, and assignments wait until that is done; the old
  // slots come back with the versions that have them. Handles of before throw Errc::unknown_name;
  // where it has so many rows already, nothing changes. Errc::layout for a negative number, or
  // where it has no dimension; Errc::spoiled where it has no value; Errc::full, and Errc::corrupt
  // where what is to stay is damaged. All of these leave it as it was.
  TensorRef resize(std::string_view name, std::int64_t rows);
  // The tensor on other media, by numbers of ShelfInfo::media, with its value, as resize() makes
  // one of another length; where it lies there already, nothing changes. Errors as resize(), and
  // Errc::bad_argument for a medium that is not there.
  TensorRef move(std::string_view name, std::span<const unsigned> media);
  // Takes a medium beside the first out of the shelf, from the next persist() on: nothing more is
  // placed there, and what lies there is moved, as by move(), to where it would be made now. It is
  // needed as long as a version that is retained has tensors there, and may go then. Errors as
  // move(): it stays, and so does what was moved.
  void remove_medium(unsigned number);
  // Makes room for tensors of so many bytes together, whose slots are so many times as much: those
  // that are created later find it, and the medium grows once, now, and not while a run goes on. It
  // lasts from the next commit on. Errc::full where the medium ends, with nothing changed, but that
  // of several to stripe over some may have got room by then.
  void reserve(std::uint64_t size_bytes);
  // Moves what lies far back to where there is room in front, and makes the media as short as that
  // allows: after tensors were erased, above all. A device or a pool keeps its size, and has its
  // free room in one piece then.
  // - Other threads go on meanwhile. What they assign moves by itself, with their commits; what
  //   nobody assigns is copied, a chunk at a time. Handles, leases and older versions stay.
  // - Where nobody has changed anything it commits by itself, with the step as it is. Else it waits
  //   for whoever has to commit, for `patience` at most: then Errc::uncommitted.
  // - It takes some K commits more than there is to move: a place that was left is free when no
  //   version is left that has it there. What leases, pins and snapshots hold stays meanwhile.
  // Errc::bad_argument for a patience that is negative or no number; Errc::io where the system does
  // not make a medium shorter, which goes on as it is; else errors as persist(). What was moved
  // until then stays so.
  CompactReport compact(std::chrono::duration<double> patience = std::chrono::seconds(30));

  std::optional<TensorRef> find(std::string_view name) const;
  std::vector<std::string> names() const;  // sorted

  // ---- commits

  // Commits everything assigned, created and erased since the last one, as one version.
  // - With no change it still commits, so that a step can be recorded.
  // - Without a step the last one stated stays. 2^64 - 1 is none: Errc::bad_argument.
  // - Where the file was deleted, or another took its place, it commits nothing and throws
  //   Errc::gone, for opening the path would not find the version. What was assigned can still be
  //   read, and copied into a new shelf.
  Commit persist(std::optional<std::uint64_t> step = {});
  // The same in the background. It returns when its version is closed to writes.
  // - Later writes go into the version after it. A write waits only where it needs a slot of a
  //   version that is on its way.
  // - It waits itself where `in_flight` versions are on their way.
  // - Damage that it finds before it returns, of a tensor that is placed whole, it throws. Then
  //   nothing was committed, and nothing is lost.
  // - What fails later the future tells, and so does the next call that changes or closes the
  //   shelf. Where there is no such call, OpenOptions::on_unheard hears it.
  std::shared_future<Commit> persist_async(std::optional<std::uint64_t> step = {});

  // ---- agreeing with others first

  // The first half of a commit, for those who must agree with others before they commit: returns
  // when the version is durable, and not yet the shelf's. resolve() is the second half.
  // - `id`, of at most 256 bytes, tells whoever opens the shelf after a crash whose decision it
  //   waits for.
  // - One is prepared at a time, behind all that is on its way.
  // - What is assigned meanwhile belongs to the version after it. Where that needs one of its
  //   slots, Errc::unresolved; persist() throws that as well.
  // - A close, or a crash, leaves it prepared, and opening decides nothing (I14): until resolve()
  //   every change is Errc::unresolved.
  // Errc::bad_argument for a longer id; Errc::gone as persist().
  Prepared prepare(std::optional<std::uint64_t> step = {}, std::string_view id = {});
  // The attempt that waits for a decision.
  std::optional<Prepared> prepared() const;
  // The second half.
  // - Committed, it is the newest version when this returns. One that was found by opening the
  //   shelf is read and checked first: Errc::corrupt where it is damaged, and it stays prepared.
  // - Abandoned, it was never there, and what was assigned behind it is dropped. Where something
  //   was, every change is Errc::abandoned until discard(), so that nobody commits the rest of it.
  // Any thread may decide, but not within an assignment of its own. Errc::bad_argument where
  // nothing is prepared; to commit, Errc::gone as persist().
  Resolved resolve(Decision decision);

  // ---- all or nothing

  // Drops what was assigned, created and erased since the last commit, durable or on its way.
  // - It waits for assignments under way.
  // - Leases keep what they show.
  // - Tensors created since are gone: their handles throw Errc::unknown_name. Erased ones are back.
  void discard();

  // All changes from here to commit(), of whatever thread, become one version, or none: discarded
  // where the Transaction goes first. Errc::uncommitted where something was changed already.
  // Within it this thread's persist(), prepare(), discard(), rollback() and transaction() are
  // refused (Errc::transaction); those of others wait until it ends.
  [[nodiscard]] Transaction transaction();

  // ---- versions

  // The versions that can be read, the oldest first: the newest, and as many before it as are kept.
  std::vector<VersionInfo> versions() const;
  // Errc::stale where it is not among them. What is prepared can be read by its number, too, until
  // it is abandoned: then another may get that number.
  RetainedVersion at(std::uint64_t version) const;
  // Keeps a version, the newest where none is said, as it is until the pin goes: it stays among
  // versions(). Nothing of that is on the medium. Errc::stale where it is not among them.
  //
  // Of a shelf that is open for writing: an assignment that needs a slot of it waits for the pin to
  // go, and so does a commit with which there would be more versions than the shelf has slots:
  // Errc::pinned after OpenOptions::pin_timeout, where the pin is of the very thread that waits.
  //
  // Of a shelf that is open for reading it keeps the writer, in whatever process, from the version:
  // - The writer goes on in its other slots. Give the shelf one in_flight more for each reader that
  //   holds a version; OpenOptions::on_pin says what the writer does without a slot to spare.
  // - What is read of the version by at() is never Errc::stale. On mapped media a lease of it shows
  //   the slot itself, and holds that on. Beside a writer that outruns its readers both are as
  //   without a pin.
  // - The first pin waits for two milliseconds, for the writer to hear of it.
  // - It goes with its process, however that ends. A forked child keeps it as well.
  // - Where no version is said, the shelf goes on to the newest first, as by refresh().
  // - Errc::stale also where the writer has given the version up already, or outruns its readers;
  //   Errc::io where the file system has no locks on parts of a file. On a medium of your own
  //   without Medium::pins() it holds what is in memory alone, and reading may be Errc::stale.
  VersionPin pin(std::optional<std::uint64_t> version = {}) const;
  // What changed from the one to the other, which may be the older one, by what the versions say of
  // their chunks: no data is read. Errc::stale where one is not, or no more, among them.
  VersionDiff diff(std::uint64_t from, std::uint64_t to) const;
  // Copies a version, the newest where none is said, into a new shelf at `path`, as its version 1
  // and with its step.
  // - Every chunk is checked on its way: Errc::corrupt, and no file, where one is damaged.
  //   (Not where a mirror has it.)
  // - The file appears at `path` when it is whole and durable. A crash leaves a hidden one beside
  //   it, .NAME.PID.*.tmp, which the next shelf of that name removes.
  // - Other threads go on meanwhile. An assignment that needs a slot of the version waits until the
  //   copy is made, and so does a commit that would need more versions than the shelf has slots.
  // - Of `options` it takes tier, max_size_bytes, block, keep, in_flight, placement and progress,
  //   which is a function that may read the shelf, and not change it. Room is not zeroed ahead.
  // Errc::exists where there is something at `path`; Errc::stale where there is no such version;
  // Errc::closed where another thread closes the shelf meanwhile, which waits until this has ended.
  Commit snapshot(const std::filesystem::path& path, const OpenOptions& options = {},
                  std::optional<std::uint64_t> version = {}) const;
  // Makes that version the newest again, by a commit of its own that copies no data.
  // - What it has otherwise than the newest is read first: Errc::corrupt where that is damaged, and
  //   nothing changed.
  // - Errc::uncommitted while something is changed, or on its way.
  // - Handles stay with their tensors: of one that the version lacks they throw, and of one that it
  //   has again they are good again.
  Commit rollback(std::uint64_t version);

  // ---- following a writer

  // Of a shelf that is open with Mode::read: shows the newest version that its writer has made.
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
  // - Handles follow their tensors; of one that was erased they throw Errc::unknown_name. So may
  //   others: where a version was lost, and where no version is left that was shown, and the writer
  //   opened the shelf anew, renamed or moved tensors. Nothing tells these from that.
  // - What other threads read meanwhile is of the one version or the other, tensor by tensor: where
  //   several must be of one version, read them through at().
  // - Nothing new costs a look at the version words. Else the changed pages of the manifest are
  //   read, all of it is validated, and with Verify::on_open every chunk of the new version.
  bool refresh();
  // Refreshes until `version` or a newer one is shown; where none is said, until another is.
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

  // Reads and checks every chunk of the committed version. Of what is damaged it says what still
  // holds. Both callbacks may use the shelf, wait for as long as they like, and throw, which ends
  // it: nothing is held meanwhile, and commits go on.
  VerifyReport verify(const Progress& progress = {}, const OnDamage& on_damage = {}) const;
  // The same, and what is damaged and healable is restored, as one version with the step of the one
  // before: bytes that another slot has, or the mirror, with the very checksum, are written anew;
  // so is what a mirror alone lacks.
  // - What nothing has stays as it is, and damaged. A tensor that is placed whole is healed whole
  //   or not at all.
  // - The slot that is damaged is not written: older versions that name it stay damaged.
  // - With nothing to heal nothing is committed.
  // - Other threads go on while it verifies, and wait while it restores. What commits meanwhile
  //   replace, it leaves alone.
  // Refused as transaction() and rollback() are, also where something is changed meanwhile:
  // Errc::uncommitted, unresolved, transaction, read_only, unsupported; Errc::leased where a lease
  // is in the way; Errc::gone as persist(); Errc::corrupt where more is damaged by then. Then
  // nothing was restored.
  VerifyReport heal(const Progress& progress = {});
  // The second half alone, for what verify() found a while ago.
  VerifyReport heal(VerifyReport found);

  ShelfInfo info() const;
  // The same one by one, for loops that ask often.
  std::uint64_t version() const;
  std::optional<std::uint64_t> step() const;
  std::uint64_t free_bytes() const;

  Stats stats() const;
  // Whether closing would drop something: assigned, created or erased, and in no version, nor in
  // one on its way. Waits for assignments under way.
  bool has_uncommitted() const;
  // Why a commit in the background failed, where no call has thrown it yet; else nothing. Throws
  // nothing itself: for whoever lets a shelf go that nobody closed.
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
