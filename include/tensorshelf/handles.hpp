// What a shelf gives out: its tensors, assignments to them, older versions, transactions.
// Each holds the shelf's store, and throws Errc::closed once that is closed, but for what it says
// without the store, such as a name or a shape.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tensorshelf/lease.hpp>
#include <tensorshelf/report.hpp>
#include <tensorshelf/tensor.hpp>

namespace tensorshelf {

class ShelfFile;
class Store;
struct StoredTensor;
struct NewTensor;
class Medium;
class StoredAssignment;
class VersionHold;
struct FeedAccess;  // of the pipeline, and of copies to a device

class Assignment;

// A light handle on one tensor. Copyable; stays valid across persist().
class TensorRef {
 public:
  // The same tensor of the same opened shelf. A tensor that later took its name is another.
  bool operator==(const TensorRef&) const = default;

  TensorInfo info() const;
  // Its present name; the text lives as long as this handle.
  std::string_view name() const noexcept;
  // These never change, cost nothing, and live as long as this handle. The id is the tensor's own
  // within the shelf, whatever it is called.
  std::uint64_t id() const noexcept;
  DType dtype() const noexcept;
  std::span<const std::int64_t> shape() const noexcept;
  // Whether it was erased, replaced, moved or resized: then assigning and reading it throw
  // Errc::unknown_name. Its committed value can be read until the next persist().
  bool is_gone() const;

  // An assignment of one write: stages all of `bytes` at byte `offset` of the tensor. When it
  // returns they are copied and hashed, and the source may change; they are durable with the next
  // persist(). Throws Errc::layout past the end.
  void write(std::span<const std::byte> bytes, std::uint64_t offset = 0);
  // Begins an assignment of any number of writes.
  [[nodiscard]] Assignment assign();

  // Copies out from byte `offset`: what was written last, persisted or not. read_committed() gives
  // the durable value (Errc::unknown_name for a tensor that was never persisted).
  void read(std::span<std::byte> bytes, std::uint64_t offset = 0) const;
  void read_committed(std::span<std::byte> bytes, std::uint64_t offset = 0) const;

  Lease lease() const;
  Lease lease_committed() const;

 private:
  friend class Shelf;
  friend struct FeedAccess;
  TensorRef(std::shared_ptr<Store> store, std::shared_ptr<StoredTensor> tensor)
      : store_(std::move(store)), tensor_(std::move(tensor)) {}
  std::shared_ptr<Store> store_;
  std::shared_ptr<StoredTensor> tensor_;
};

// Several writes to a tensor that are in a version whole or not at all (I13):
//
//     Assignment assignment = w.assign();
//     for (...) assignment.write(piece, at);
//     assignment.done();
//
// Let go without done(), it is undone, and the tensor is as it was. Where it had written over what
// another assignment gave the tensor since the last commit, that value cannot be had back, and the
// tensor is spoiled:
// - Reading it, and any commit, throw Errc::spoiled.
// - That ends with an assignment of all its bytes, or with discard().
// - Its committed value can be read meanwhile.
//
// While it lives:
// - Other threads that assign the same tensor, commit, discard, roll back, create, erase or close
//   wait for its end. Any thread may read the tensor, and sees what is written so far.
// - In the thread that began it those calls, and another assignment to the shelf, would wait for
//   themselves: Errc::unsupported. It ends in that thread, too.
class Assignment {
 public:
  ~Assignment();  // undoes what is not done
  Assignment(const Assignment&) = delete;
  Assignment& operator=(const Assignment&) = delete;

  // As TensorRef::write(). Where it throws, the assignment can only be undone.
  void write(std::span<const std::byte> bytes, std::uint64_t offset = 0);
  // The same of bytes that are lent: until await_lent() of them has returned nobody changes or
  // frees them, also where this throws. A drive takes whole chunks from there that lie at whole
  // pages, and nothing copies them; all else is copied as by write().
  void write_lent(std::span<const std::byte> bytes, std::uint64_t offset = 0);
  // Waits for the drive, and makes nothing durable. Also behind done(), and behind close(), which
  // has waited. In a forked child it does nothing: what is lent are its parent's pages.
  void await_lent(std::span<const std::byte> bytes) const noexcept;
  bool takes_lent() const;  // false: the tensor lies on mapped media, which copy what is lent
  void done();              // once, and nothing can be written after it

  std::uint64_t tensor_id() const noexcept;  // TensorRef::id() of what it assigns, or makes

 private:
  friend class TensorRef;
  friend class Shelf;
  Assignment(std::shared_ptr<Store> store, std::shared_ptr<StoredTensor> tensor);
  Assignment(std::shared_ptr<Store> store, NewTensor made);
  StoredAssignment& under_way() const;
  std::shared_ptr<Store> store_;
  std::unique_ptr<NewTensor> made_;  // none where the tensor was there before
  std::shared_ptr<StoredTensor> tensor_;
  std::unique_ptr<StoredAssignment> assignment_;  // none when it has ended
  std::weak_ptr<Medium> medium_;                  // of the shelf, until that is closed
};

// A tensor as a retained version has it.
class RetainedTensor {
 public:
  TensorInfo info() const;
  // As those of TensorRef; they throw Errc::stale once the version is no longer retained. Of a
  // shelf that is open for reading, whose writer may have given the version up, they return what
  // still has its checksum.
  void read(std::span<std::byte> bytes, std::uint64_t offset = 0) const;
  Lease lease() const;

 private:
  friend class RetainedVersion;
  friend struct FeedAccess;
  RetainedTensor(std::shared_ptr<Store> store, std::shared_ptr<StoredTensor> tensor,
                 std::uint64_t version)
      : store_(std::move(store)), tensor_(std::move(tensor)), version_(version) {}
  std::shared_ptr<Store> store_;
  std::shared_ptr<StoredTensor> tensor_;
  std::uint64_t version_;
};

// One version of the shelf, to be read. It holds nothing: the writer goes on. Once the version is
// no longer retained every call throws Errc::stale; of a shelf that is open for reading, once the
// writer has written over what is read. What a Lease of it shows stays.
class RetainedVersion {
 public:
  VersionInfo info() const;
  std::optional<RetainedTensor> find(std::string_view name) const;
  std::vector<std::string> names() const;  // sorted

 private:
  friend class Shelf;
  RetainedVersion(std::shared_ptr<Store> store, std::uint64_t version)
      : store_(std::move(store)), version_(version) {}
  std::shared_ptr<Store> store_;
  std::uint64_t version_;
};

// Who ends a pin: a user, at any time; or what copies the version out, when it is done, for which
// the writer of this process waits however long that takes.
enum class PinnedFor { user, copy };

// A version that stays as it is: see Shelf::pin(). Nothing of that is on the medium. Any thread may
// let it go; close() waits for that, for ever in a thread that keeps one itself.
//
//                     open for writing              open for reading
//     what waits      an assignment that needs one  the writer, in whatever process, where it
//                     of its slots, and a commit    has no slot to spare; or it outruns this
//                     with which there would be     reader: OpenOptions::on_pin
//                     more versions than slots
//     how long        until the pin goes; where     until the pin goes; after its pin_timeout
//                     nothing but pins for users    the writer gets Errc::pinned
//                     is left to wait for, for
//                     OpenOptions::pin_timeout:
//                     then Errc::pinned
//     what ends it    ~VersionPin()                 that, or the end of the process; but a
//                                                   forked child keeps the pin as well
//
// In a shelf that is open for reading, besides:
// - Give the shelf one in_flight more for each reader that holds a version: then the writer has a
//   slot to spare.
// - What is read of the version by at() is never Errc::stale. On mapped media a lease of it shows
//   the slot itself, and keeps the version when the pin is gone. Beside a writer that outruns its
//   readers both are as without a pin.
// - The first pin waits for two milliseconds, for the writer to hear of it.
// - On a medium of your own, and of a shelf that was salvaged, no writer hears of it: only what is
//   in memory is kept, and reading may be Errc::stale.
class VersionPin {
 public:
  VersionPin(VersionPin&&) noexcept;
  VersionPin& operator=(VersionPin&&) = delete;
  ~VersionPin();

  std::uint64_t version() const;  // not of one that was moved from

 private:
  friend class Shelf;
  VersionPin(std::shared_ptr<Store> store, std::optional<std::uint64_t> version, PinnedFor what);
  std::shared_ptr<Store> store_;
  std::unique_ptr<VersionHold> hold_;
};

// Several changes as one version, or none: see Shelf::transaction().
class Transaction {
 public:
  Transaction(Transaction&&) noexcept = default;
  Transaction& operator=(Transaction&&) = delete;
  ~Transaction();  // discards what was not committed

  // Once (else Errc::transaction). Where it throws before anything is written, what was changed is
  // still there, to be committed again or discarded.
  Commit commit(std::optional<std::uint64_t> step = {});
  void discard();  // does nothing where it has ended

 private:
  friend class Shelf;
  Transaction(std::shared_ptr<Store> store, std::weak_ptr<const ShelfFile> file)
      : store_(std::move(store)), file_(std::move(file)) {}
  std::shared_ptr<Store> store_;  // none when it has ended
  std::weak_ptr<const ShelfFile> file_;
};

}  // namespace tensorshelf
