// libpmemobj opens by path; it is given the open file's, so that it opens the file that was locked
// and looked at. It runs its own recovery then, which writes to the pool.
#include "media/pool/pool.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include <tensorshelf/error.hpp>
#include <tensorshelf/extent.hpp>

#include "base/check.hpp"
#include "base/fault_guard.hpp"
#include "base/shell_quoted.hpp"
#include "base/size_text.hpp"
#include "media/file_lock.hpp"
#include "media/file_room.hpp"
#include "media/own_directory.hpp"
#include "media/path_errors.hpp"
#include "media/pool/recognise.hpp"

namespace tensorshelf {
namespace {

constexpr const char* kLayout = "tensorshelf";
constexpr std::uint64_t kSegmentType = 1;
constexpr std::uint64_t kLeastSegmentBytes = 256 * 1024;  // a unit of libpmemobj's heap
constexpr mode_t kMode = 0644;
constexpr std::string_view kMade = "made a pool";
constexpr std::chrono::seconds kLongestWalk{5};  // over a thousand objects
constexpr std::chrono::seconds kLongestOpening{10};

struct Failure {
  int os_error = 0;
  std::string text;  // libpmemobj's
};

std::string place_of_descriptor(const ShelfFile& file) {
  return fmt::format("/proc/self/fd/{}", file.fd());
}

Failure failure_of(const ShelfFile& file, int os_error) {
  Failure failure{os_error, ::pmemobj_errormsg()};
  const std::string place = place_of_descriptor(file);
  const std::string& name = file.path().native();
  for (std::size_t at = 0; (at = failure.text.find(place, at)) != std::string::npos;) {
    failure.text.replace(at, place.size(), name);
    at += name.size();
  }
  return failure;
}

// Both are the calling thread's in libpmemobj, and it is called on another one.
template <class Call>
PMEMobjpool* call_library(const ShelfFile& file, Failure& failure, Call call) {
  PMEMobjpool* pool = nullptr;
  in_own_directory([&] {
    errno = 0;
    pool = call();
    if (pool == nullptr) failure = failure_of(file, errno);
  });
  return pool;
}

[[noreturn]] void throw_in_use(const ShelfFile& file, const PoolParts& parts) {
  for (const PoolPart& part : parts.parts) {
    struct stat node {};
    const bool own = !is_pool_set(file);
    if ((own ? ::fstat(file.fd(), &node) : ::stat(part.path.c_str(), &node)) != 0) continue;
    const long pid = lock_holder(node);
    if (pid == 0) continue;
    throw Error(Errc::busy,
                fmt::format("{} is open in {}: a pool is open in one place at a time, for reading "
                            "too",
                            file.path().native(),
                            pid == ::getpid() ? "this process" : fmt::format("pid {}", pid)),
                "close it there, or stop that process", pid == ::getpid() ? EDEADLK : EAGAIN);
  }
  throw Error(Errc::busy,
              fmt::format("{} is open in another process: a pool is open in one place at a time, "
                          "for reading too",
                          file.path().native()),
              "stop that process", EAGAIN);
}

[[noreturn]] void throw_failure(const ShelfFile& file, const PoolParts& parts,
                                const Failure& failure, std::string_view verb) {
  const std::string& name = file.path().native();
  const std::string what = fmt::format("{} cannot be {}: {}", name, verb, failure.text);
  switch (failure.os_error) {
    case EAGAIN:
      throw_in_use(file, parts);
    case EACCES:
    case EPERM:
    case EROFS:
      throw Error(Errc::read_only, what,
                  "get permission to write to every part: libpmemobj asks for it, to read too",
                  failure.os_error);
    case ENOSPC:
    case EDQUOT:
      throw Error(Errc::full, what, "free some space there", failure.os_error);
    case EEXIST:
      throw Error(Errc::exists, what,
                  fmt::format("remove what was made of it: `pmempool rm {}`", shell_quoted(name)),
                  EEXIST);
    case ENOENT:
      throw Error(Errc::not_found, what, "make the directories of its parts", ENOENT);
    case ENOMEM:
      throw Error(Errc::io, what, "raise the limit on addresses (ulimit -v)", ENOMEM);
    default:
      break;
  }
  if (failure.text.starts_with("wrong layout")) {
    throw Error(Errc::not_a_shelf,
                fmt::format("{} is a pool of another application: {}", name, failure.text),
                "name another file");
  }
  const bool is_made = verb == kMade;  // else it was cut short
  if (is_made && failure.text.find("smaller than") != std::string::npos) {
    throw Error(Errc::full, what,
                fmt::format("make it {} at least, and each part {}", size_text(PMEMOBJ_MIN_POOL),
                            size_text(PMEMOBJ_MIN_PART)),
                failure.os_error);
  }
  if (failure.text.find("part UUID") != std::string::npos ||
      failure.text.find("replica UUID") != std::string::npos) {
    throw Error(Errc::not_a_shelf,
                fmt::format("{} is one part of several of a pool: {}", name, failure.text),
                "open the pool set file that names them all");
  }
  if (failure.text.starts_with(name)) {  // it could not even be read as a set
    throw Error(Errc::not_a_shelf, what, "correct the pool set file, see poolset(5)");
  }
  throw Error(Errc::corrupt, what, mending(file, parts), failure.os_error);
}

// libpmemobj has one switch for the whole process: opened meanwhile by others, their pools would
// keep nothing either. So it is on for the one call.
class CopyOnWrite {
 public:
  explicit CopyOnWrite(bool wanted) : wanted_(wanted) { set(1); }
  CopyOnWrite(const CopyOnWrite&) = delete;
  CopyOnWrite& operator=(const CopyOnWrite&) = delete;
  ~CopyOnWrite() { set(0); }

 private:
  void set(int on) const {
    if (wanted_) ::pmemobj_ctl_set(nullptr, "copy_on_write.at_open", &on);
  }
  bool wanted_;
};

// A fault left the library in the midst of a call: its own locks may be held for good.
std::atomic<bool> library_faulted = false;

[[noreturn]] void throw_fault(const ShelfFile& file, const PoolParts& parts) {
  library_faulted = true;
  throw Error(Errc::corrupt,
              fmt::format("{} is damaged in what libpmemobj keeps there, which it does not check",
                          file.path().native()),
              mending(file, parts) + ". This process keeps the pool locked until it ends.", EFAULT);
}

void refuse_after_fault(const ShelfFile& file) {
  if (!library_faulted) return;
  throw Error(Errc::unsupported,
              fmt::format("{}: libpmemobj met a damaged pool in this process, and may wait for its "
                          "own locks since",
                          file.path().native()),
              "Open pools in a new process, and leave the damaged one out.", EFAULT);
}

std::mutex& one_opening() {  // of ours at a time, so that the switch is not another's
  static std::mutex mutex;
  return mutex;
}

}  // namespace

std::unique_ptr<Pool> Pool::open(const ShelfFile& file, const PoolParts& parts, Access access) {
  refuse_after_fault(file);
  check_parts(file, parts);
  if (file.writable()) file.release_lock();
  Failure failure;
  PMEMobjpool* opened = nullptr;
  bool alive = true;
  const std::string place = place_of_descriptor(file);
  {
    const std::lock_guard lock(one_opening());
    const CopyOnWrite copy_on_write(access == Access::read);
    // A chunk of its heap that has no size keeps the library going round in heap_verify_zone(),
    // which holds nothing that is missed; all else of an opening takes milliseconds.
    opened = call_library(file, failure, [&] {
      PMEMobjpool* pool = nullptr;
      alive =
          outlives_faults([&] { pool = ::pmemobj_open(place.c_str(), kLayout); }, kLongestOpening);
      return pool;
    });
  }
  if (!alive) throw_fault(file, parts);
  if (opened == nullptr) throw_failure(file, parts, failure, "opened as a pool");
  std::unique_ptr<Pool> pool(new Pool(opened));
  file.check_name();  // the lock was free for a moment, and somebody may have replaced the file
  std::unique_ptr<const PoolTable> found;
  const auto read = [&] {
    found = pool->read_table(file);
    pool->check_table(*found, file, parts);
  };
  if (!outlives_faults(read)) {
    static_cast<void>(pool.release());  // closing it touches the same
    throw_fault(file, parts);
  }
  pool->map_stretches(*found);
  return pool;
}

std::unique_ptr<Pool> Pool::create(const ShelfFile& file, const PoolParts& parts,
                                   std::uint64_t largest_object_bytes) {
  refuse_after_fault(file);
  file.release_lock();
  Failure failure;
  PMEMobjpool* made = nullptr;
  {
    const std::lock_guard lock(one_opening());
    made = call_library(file, failure, [&] {
      return ::pmemobj_create(place_of_descriptor(file).c_str(), kLayout, 0, kMode);
    });
  }
  if (made == nullptr) throw_failure(file, parts, failure, kMade);
  std::unique_ptr<Pool> pool(new Pool(made));
  struct stat node {};
  if (::fstat(file.fd(), &node) == 0 && node.st_nlink == 0) {  // taken for abandoned meanwhile
    throw Error(Errc::busy, fmt::format("{} is made by another process too", file.path().native()),
                "try again");
  }
  pool->take_all_room(file, largest_object_bytes);
  pool->map_stretches(pool->table());
  return pool;
}

// As far as it goes, where the pool is damaged.
Pool::~Pool() {
  if (library_faulted) return;
  if (!outlives_faults([this] { ::pmemobj_close(pool_); })) library_faulted = true;
}

PoolTable& Pool::table() const { return *static_cast<PoolTable*>(::pmemobj_direct(root_)); }

void Pool::set(std::uint64_t& field, std::uint64_t value) const {
  field = value;
  // `whole` vouches for segments that are there (I15), and `in_use` is there before replicas can
  // differ, and until they surely do not (I12).
  persist(&field, sizeof field);
}

void Pool::set_in_use(bool in_use) const { set(table().in_use, in_use ? 1 : 0); }

// The largest object that there is room for, in steps of the heap's unit. Reservations alone: they
// change nothing in the pool.
std::uint64_t Pool::largest_free(std::uint64_t most_bytes) const {
  std::uint64_t fits = 0;
  std::uint64_t beyond = most_bytes / kLeastSegmentBytes + 1;
  while (fits + 1 < beyond) {
    const std::uint64_t tried = fits + (beyond - fits) / 2;
    pobj_action reserved;
    const PMEMoid object =
        ::pmemobj_reserve(pool_, &reserved, tried * kLeastSegmentBytes - kPageBytes, kSegmentType);
    if (OID_IS_NULL(object)) {
      beyond = tried;
    } else {
      ::pmemobj_cancel(pool_, &reserved, 1);
      fits = tried;
    }
  }
  return fits == 0 ? 0 : fits * kLeastSegmentBytes - kPageBytes;
}

// Larger than what is used of it, so that its pages are pages of the mapping.
void Pool::add_segment(std::uint64_t size_bytes) const {
  PoolSegment& segment = table().segment[table().segments];
  const int code = ::pmemobj_xalloc(pool_, &segment.object, size_bytes, kSegmentType,
                                    POBJ_XALLOC_ZERO, nullptr, nullptr);
  TENSORSHELF_ASSERT(code == 0);  // that much was free, and nobody else has the pool
  const std::uint64_t from = round_up(segment.object.off, kPageBytes);
  set(segment.skipped_bytes, from - segment.object.off);
  set(segment.size_bytes, (size_bytes - segment.skipped_bytes) / kPageBytes * kPageBytes);
  set(table().segments, table().segments + 1);
}

void Pool::take_all_room(const ShelfFile& file, std::uint64_t largest_object_bytes) {
  root_ = ::pmemobj_root(pool_, sizeof(PoolTable));
  if (OID_IS_NULL(root_)) {
    throw Error(Errc::full, fmt::format("{} is too small for a pool", file.path().native()),
                fmt::format("make it {} at least", size_text(PMEMOBJ_MIN_POOL)), ENOSPC);
  }
  set(table().magic, PoolTable::kMagic);
  const std::uint64_t most =
      largest_object_bytes == 0 ? PMEMOBJ_MAX_ALLOC_SIZE : largest_object_bytes;
  while (table().segments < PoolTable::kMostSegments) {
    const std::uint64_t room = largest_free(most);
    if (room == 0) break;
    add_segment(room);
  }
  set(table().whole, 1);
}

std::unique_ptr<const PoolTable> Pool::read_table(const ShelfFile& file) {
  if (::pmemobj_root_size(pool_) != sizeof(PoolTable)) {
    throw Error(Errc::not_a_shelf,
                fmt::format("{} is a pool, and holds no shelf", file.path().native()),
                "remove it (`pmempool rm`), and make the shelf anew");
  }
  root_ = ::pmemobj_root(pool_, sizeof(PoolTable));
  return std::make_unique<const PoolTable>(table());
}

// Where its heap is damaged, the library may go round in it for ever.
std::vector<PMEMoid> Pool::objects(const ShelfFile& file, const PoolParts& parts) const {
  std::vector<PMEMoid> found;
  found.reserve(PoolTable::kMostSegments + 1);
  const auto walk = [&] {
    for (PMEMoid each = ::pmemobj_first(pool_); !OID_IS_NULL(each); each = ::pmemobj_next(each)) {
      if (found.size() == found.capacity()) return;
      found.push_back(each);
    }
  };
  if (!outlives_faults(walk, kLongestWalk)) throw_fault(file, parts);
  return found;
}

// The pool may have been written by anybody.
void Pool::check_table(const PoolTable& found, const ShelfFile& file,
                       const PoolParts& parts) const {
  const auto refuse = [&](std::string_view what) {
    throw Error(Errc::corrupt,
                fmt::format("{}: the table of its segments {}", file.path().native(), what),
                mending(file, parts));
  };
  if (found.magic != PoolTable::kMagic || found.whole != 1) {
    throw Error(Errc::not_a_shelf,
                fmt::format("{} is a pool that was not made to the end", file.path().native()),
                "remove it (`pmempool rm`), and make the shelf anew");
  }
  if (found.segments > PoolTable::kMostSegments) refuse("is longer than itself");
  const std::vector<PMEMoid> there = objects(file, parts);
  std::vector<Extent> taken;
  for (std::uint64_t i = 0; i < found.segments; ++i) {
    const PoolSegment& segment = found.segment[i];
    // As an object of the pool, as large at least.
    const bool known = std::ranges::any_of(there, [&](const PMEMoid& each) {
      return OID_EQUALS(each, segment.object) &&
             ::pmemobj_alloc_usable_size(each) >= segment.skipped_bytes &&
             ::pmemobj_alloc_usable_size(each) - segment.skipped_bytes >= segment.size_bytes;
    });
    const std::uint64_t from = segment.object.off + segment.skipped_bytes;
    if (!known || from % kPageBytes != 0 || segment.size_bytes % kPageBytes != 0) {
      refuse(fmt::format("does not agree with the pool, at {}", i));
    }
    taken.push_back({from, segment.size_bytes});
  }
  std::ranges::sort(taken, {}, &Extent::at);
  for (std::size_t i = 1; i < taken.size(); ++i) {
    if (taken[i].at < taken[i - 1].end()) refuse("names a place twice");
  }
}

void Pool::map_stretches(const PoolTable& checked) {
  std::uint64_t at = 0;
  for (std::uint64_t i = 0; i < checked.segments; ++i) {
    const PoolSegment& segment = checked.segment[i];
    auto* const base = static_cast<std::byte*>(::pmemobj_direct(segment.object));
    stretches_.push_back({at, base + segment.skipped_bytes, segment.size_bytes});
    at += segment.size_bytes;
  }
}

}  // namespace tensorshelf
