// START HERE. A shelf keeps named tensors on persistent memory or NVMe, and persist() moves all of
// them from one version to the next in one atomic step. After any crash, opening the shelf gives
// the last version that was acknowledged, or the one in flight, whole.
//
//     auto shelf = tensorshelf::Shelf::open("run.shelf");
//     auto w = shelf.create("w", DType::float32, {{1024, 1024}});
//     w.write(std::as_bytes(std::span(weights)));   // staged: `weights` may change again
//     shelf.persist(step);                          // durable, and atomic over all tensors
//
// Thread-safety: threads may write different tensors at once, and read any. persist() waits for
// writes under way, and writes that begin meanwhile wait for it. Writing one tensor from two
// threads at once is safe but the order is theirs to decide. A child after fork() may only destroy
// what it inherited: everything else throws Errc::forked.
// Lifetime: a TensorRef or Lease keeps the mapping alive past the Shelf; using a TensorRef after
// close() throws Errc::closed, reading a Lease stays valid.
// Errors: tensorshelf::Error (error.hpp). After a failed write or barrier the shelf refuses to
// commit until it is reopened (I8), and the committed version stays readable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tensorshelf/error.hpp>
#include <tensorshelf/extent.hpp>
#include <tensorshelf/medium.hpp>
#include <tensorshelf/tensor.hpp>

namespace tensorshelf {

class ShelfFile;
class Store;
struct StoredTensor;

enum class Mode {
  read,     // "r":  must exist; nothing is written, no lock is taken
  update,   // "r+": must exist
  append,   // "a":  opened, or created where there is none, or a file of 0 bytes
  replace,  // "w":  a new shelf, in place of any there was
  create,   // "x":  a new shelf; it is an error if there is one
};

enum class Tier { automatic, pmem, block };

// When chunk checksums are checked: never, when a chunk is read (the default; on a mapped medium
// that is open for writing, when it is first read), or all at
// open. Metadata is always checked.
enum class Verify { never, on_load, on_open };

// Called with work done and work in all, in bytes, from the thread that called into the shelf.
using Progress = std::function<void(std::uint64_t done, std::uint64_t total)>;

struct BlockTuning {
  std::uint64_t buffer_bytes = 2 * 1024 * 1024;  // of one registered buffer; a multiple of 1 MiB
  unsigned queue_depth = 16;                     // buffers, and writes in flight at most
  bool io_uring = true;                          // false: pwrite, as if io_uring were refused
  bool direct = true;                            // false: buffered, as if O_DIRECT were refused
};

struct OpenOptions {
  Mode mode = Mode::append;
  Tier tier = Tier::automatic;
  std::uint64_t max_size_bytes = 0;  // cap on a file's growth; 0: none. A device decides itself.
  Verify verify = Verify::on_load;
  BlockTuning block = {};
  Progress progress = {};
  // With Mode::read and Verify::on_load alone: the newest version whose manifest is whole, in spite
  // of signs that a newer one is lost, and of chunks that are damaged. Reading those throws
  // Errc::corrupt as ever, verify() lists them. See repair.hpp for how to write to it again.
  bool salvage = false;
};

// What opening found. Nothing here is an error: a shelf that cannot be opened whole throws.
struct Recovery {
  std::uint64_t version = 0;
  std::optional<std::uint64_t> step;
  bool interrupted = false;           // an attempt beyond this version was left incomplete
  bool degraded = false;              // the newest version was damaged; this older one was verified
  bool salvaged = false;              // degraded, and not verified: chunks may be damaged
  std::vector<std::uint64_t> lost;    // newer versions, which may have been acknowledged
  std::uint64_t repaired_copies = 0;  // second copies of metadata written anew
  std::vector<std::string> notes;     // a sentence each, for a log
};

struct Commit {
  std::uint64_t version = 0;
  std::optional<std::uint64_t> step;
  std::uint64_t data_bytes = 0;      // tensor bytes staged for this version
  std::uint64_t metadata_bytes = 0;  // manifest pages and roots
  double seconds = 0;                // inside persist(); staging before it is not counted
};

struct Damage {
  std::string tensor;
  std::uint64_t version = 0;  // that last wrote it
  unsigned slot = 0;
  std::uint64_t chunk = 0;
  Extent extent;
};

struct VerifyReport {
  std::uint64_t version = 0;
  std::uint64_t tensors = 0;
  std::uint64_t chunks = 0;
  std::uint64_t bytes = 0;
  std::vector<Damage> damage;  // empty: every byte of the committed version is as it was written
};

struct ShelfInfo {
  std::string path;
  std::string shelf_id;  // 32 hexadecimal digits
  std::uint64_t version = 0;
  std::optional<std::uint64_t> step;
  std::uint64_t incarnation = 0;
  std::uint64_t tensors = 0;
  std::uint64_t tensor_bytes = 0;
  std::uint64_t capacity_bytes = 0;
  std::uint64_t free_bytes = 0;
  bool writable = false;
  bool created = false;  // this opening made it: there was none, or it was replaced
  Promises promises;
  Recovery recovery;
};

struct Stats {
  std::uint64_t commits = 0;
  std::uint64_t bytes_staged = 0;          // copied from callers
  std::uint64_t bytes_copied_forward = 0;  // from the committed slot, for partial writes
  std::uint64_t metadata_bytes = 0;
  std::uint64_t bytes_read = 0;
  std::uint64_t chunks_verified = 0;
  std::uint64_t medium_writes = 0;
  std::uint64_t medium_bytes = 0;
  std::uint64_t barriers = 0;
  double commit_seconds = 0;
};

// Read-only bytes of one tensor. On mapped media they are the slot itself, which no write touches
// while a Lease lives (a write that would need it throws Errc::leased); elsewhere a copy.
class Lease {
 public:
  std::span<const std::byte> bytes() const { return bytes_; }
  bool in_place() const { return in_place_; }

 private:
  friend class Store;
  Lease(std::span<const std::byte> bytes, bool in_place, std::shared_ptr<const void> keep)
      : bytes_(bytes), in_place_(in_place), keep_(std::move(keep)) {}
  std::span<const std::byte> bytes_;
  bool in_place_;
  std::shared_ptr<const void> keep_;
};

// A light handle on one tensor. Copyable; stays valid across persist().
class TensorRef {
 public:
  TensorInfo info() const;

  // Stages bytes[0..] at byte `offset` of the tensor: copied and hashed when it returns, so the
  // source may change. Takes effect at the next persist(). Throws Errc::layout past the end.
  void write(std::span<const std::byte> bytes, std::uint64_t offset = 0);

  // Copies out from byte `offset`. Own writes are seen; read_committed() gives the durable value
  // (Errc::unknown_name for a tensor that was never persisted).
  void read(std::span<std::byte> bytes, std::uint64_t offset = 0) const;
  void read_committed(std::span<std::byte> bytes, std::uint64_t offset = 0) const;

  Lease lease() const;
  Lease lease_committed() const;

 private:
  friend class Shelf;
  TensorRef(std::shared_ptr<Store> store, std::shared_ptr<StoredTensor> tensor)
      : store_(std::move(store)), tensor_(std::move(tensor)) {}
  std::shared_ptr<Store> store_;
  std::shared_ptr<StoredTensor> tensor_;
};

// Destroying an open Shelf closes it; what was staged and not persisted is dropped.
class Shelf {
 public:
  static Shelf open(const std::filesystem::path& path, const OpenOptions& options = {});

  // The same on a medium of one's own (tests, simulators). format() makes an empty shelf at
  // version 0; open() recovers, as every open does. Only verify and a read mode matter here.
  static void format(Medium& medium);
  static Shelf open(std::unique_ptr<Medium> medium, const OpenOptions& options = {});

  Shelf(Shelf&&) noexcept;
  Shelf& operator=(Shelf&&) noexcept;
  ~Shelf();

  // Reserves slots for a new tensor, reading as zeros, and the room that any later persist() can
  // need for it; throws Errc::full where there is none. Part of the shelf from the next persist().
  TensorRef create(std::string_view name, DType dtype, std::span<const std::int64_t> shape);
  // A new layout under an old name: the old tensor stays the committed one until persist().
  TensorRef replace(std::string_view name, DType dtype, std::span<const std::int64_t> shape);
  void erase(std::string_view name);

  std::optional<TensorRef> find(std::string_view name) const;
  std::vector<std::string> names() const;  // sorted

  // Commits everything assigned, created and erased since the last one, as one version. With no
  // change it still commits, so that a step can be recorded. Without a step, the last one stated
  // stays; 2^64 - 1 is none (Errc::bad_argument). Where the file has lost its name (deleted, or
  // another took its place) it commits nothing and throws Errc::gone: opening the path would not
  // find the version. What was assigned can still be read, and copied into a new shelf.
  Commit persist(std::optional<std::uint64_t> step = {});
  // The same in the background: returns when the next version is closed to further writes, which
  // wait until it is durable. A failure is thrown by the future, and besides by
  // the next call that changes the shelf or closes it.
  std::shared_future<Commit> persist_async(std::optional<std::uint64_t> step = {});

  // Reads and checks every chunk of the committed version.
  VerifyReport verify(const Progress& progress = {}) const;

  ShelfInfo info() const;
  // The same one by one, for loops that ask often.
  std::uint64_t version() const;
  std::optional<std::uint64_t> step() const;
  std::uint64_t free_bytes() const;

  Stats stats() const;
  void close();  // waits for a commit in flight, throws what it threw; closing twice is allowed
  bool closed() const;

 private:
  explicit Shelf(std::shared_ptr<Store> store, std::weak_ptr<const ShelfFile> file = {},
                 bool created = false);
  void check_commit(std::optional<std::uint64_t> step) const;
  std::shared_ptr<Store> store_;
  std::weak_ptr<const ShelfFile> file_;  // lives as long as the medium on it
  bool created_ = false;
};

}  // namespace tensorshelf
