// Injected faults of the device: none is lost, each is sticky through the guard (I8), and what can
// be carried on is carried on.
#include <algorithm>
#include <cerrno>
#include <new>
#include <stdexcept>
#include <thread>

#include "block_fixture.hpp"
#include "denied_memory.hpp"
#include "media/media.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

constexpr std::uint64_t MiB = 1024 * 1024;
constexpr std::uint64_t kSize = 8 * MiB;

struct Rig {
  explicit Rig(bool io_uring = true, unsigned queue_depth = 4) {
    BlockTuning tuning;
    tuning.buffer_bytes = MiB;
    tuning.queue_depth = queue_depth;
    tuning.io_uring = io_uring;
    tuning.zeroed_bytes = kSize;
    medium = make_block_medium(folder.create(), {.block = tuning}, tapped(tap));
    medium->reserve(kSize);
    *tap = Tap{};
  }
  Ticket write_all() {
    Ticket last;
    for (std::uint64_t at = 0; at < kSize; at += MiB) {
      last = medium->write(at, std::span<const std::byte>(data).subspan(at, MiB), 0);
    }
    return last;
  }

  Folder folder;
  std::shared_ptr<Tap> tap = std::make_shared<Tap>();
  std::unique_ptr<Medium> medium;
  Bytes data = pattern(kSize, 1);
};

// Ends what was begun oldest first, one at each call, and what has four pages behind the first.
class PageFirstBackend final : public ForwardingBackend {
 public:
  PageFirstBackend(std::unique_ptr<BlockBackend> inner, std::vector<DeviceWrite>& under_way)
      : ForwardingBackend(std::move(inner)), under_way_(under_way) {}

  DeviceBegun submit(std::span<const DeviceWrite> writes) override {
    under_way_.insert(under_way_.end(), writes.begin(), writes.end());
    return {writes.size(), 0};
  }
  std::optional<DeviceCompletion> complete(bool block) override {
    if (!block) return {};
    DeviceWrite write = under_way_.front();
    under_way_.erase(under_way_.begin());
    if (write.bytes.size() == 4 * kPageBytes) write.bytes = write.bytes.first(kPageBytes);
    return DeviceCompletion{write.buffer, write_now(write.at, write.bytes)};
  }

 private:
  std::vector<DeviceWrite>& under_way_;
};

}  // namespace

TEST_CASE("a failed completion is thrown, with its errno, and again") {
  struct Fault {
    std::int64_t result;
    int os_error;
    const char* text;
  };
  //                                    result    errno    says
  const auto fault = GENERATE(
      Fault{-EIO, EIO, "Input/output error"}, Fault{-ENODATA, ENODATA, "No data available"},
      Fault{-ENOSPC, ENOSPC, "No space left"}, Fault{-EINVAL, EINVAL, "Invalid argument"},
      Fault{0, 0, "only 0 of 1048576 bytes"});
  const unsigned nth = GENERATE(0u, 3u, 7u);
  const bool io_uring = GENERATE(true, false);
  CAPTURE(fault.result, nth, io_uring);
  Rig rig(io_uring);
  rig.tap->complete = [&](unsigned n, std::int64_t real) { return n == nth ? fault.result : real; };

  // Met by a later write or by the wait: whichever comes first must not pass over it.
  try {
    rig.medium->wait(rig.write_all());
    FAIL("the fault was lost");
  } catch (const Error& error) {
    REQUIRE(error.code() == Errc::io);
    REQUIRE(error.os_error() == fault.os_error);
    REQUIRE(std::string(error.what()).find(fault.text) != std::string::npos);
    REQUIRE(std::string(error.what()).find("a.shelf") != std::string::npos);
    REQUIRE_FALSE(error.remedy().empty());
  }
  // Kept: no call that could lead to a commit goes on, and no fdatasync pretends.
  const unsigned syncs = rig.tap->syncs;
  REQUIRE(code_of([&] { rig.medium->wait(Ticket{1, 0}); }) == Errc::io);
  REQUIRE(code_of([&] { rig.medium->barrier(); }) == Errc::io);
  REQUIRE(code_of([&] { rig.medium->write(0, Bytes(8), 0); }) == Errc::io);
  const PageMemory lent(kPageBytes);
  REQUIRE(code_of([&] { rig.medium->write_lent(0, lent.bytes(), 0); }) == Errc::io);
  REQUIRE(code_of([&] { rig.medium->store_word(0, 1); }) == Errc::io);
  REQUIRE(code_of([&] { rig.medium->reserve(2 * kSize); }) == Errc::io);
  REQUIRE(rig.tap->syncs == syncs);
  REQUIRE_NOTHROW(read_back(*rig.medium, 0, kSize));  // what is there stays readable
}

TEST_CASE("who lends and finds no buffer is told of the write that failed meanwhile") {
  const Alarm alarm;
  Rig rig(true, 1);
  rig.tap->complete = [](unsigned n, std::int64_t real) { return n == 0 ? -EIO : real; };
  const PageMemory one(MiB);
  const PageMemory other(MiB);
  rig.medium->write_lent(0, one.bytes(), 0);
  CHECK(code_of([&] { rig.medium->write_lent(MiB, other.bytes(), 0); }) == Errc::io);
  rig.medium->await_lent(one.bytes());
  rig.medium->await_lent(other.bytes());
}

TEST_CASE("after a failure nothing more reaches the device") {
  Rig rig;
  rig.tap->complete = [](unsigned n, std::int64_t real) { return n == 0 ? -EIO : real; };
  rig.medium->write(kSize - kPageBytes, Bytes(8, std::byte{1}), 0);  // stays open
  const Bytes full(MiB);
  REQUIRE(code_of([&] {
            for (std::uint64_t i = 0;; i = (i + 1) % 7) rig.medium->write(i * MiB, full, 0);
          }) == Errc::io);
  const std::size_t submitted = rig.tap->submitted.size();
  REQUIRE(code_of([&] { rig.medium->write(0, Bytes(kPageBytes), 0); }) == Errc::io);
  REQUIRE((read_back(*rig.medium, 0, kSize) == Bytes(kSize)));  // the open write was dropped
  rig.medium.reset();
  REQUIRE(rig.tap->submitted.size() == submitted);
}

TEST_CASE("the guard makes a background failure stick as Errc::failed") {
  Rig rig;
  rig.tap->complete = [](unsigned n, std::int64_t real) { return n == 2 ? -ENODATA : real; };
  GuardedMedium guarded(std::move(rig.medium));
  const auto commit = [&] {
    Ticket last;
    for (std::uint64_t at = 0; at < kSize; at += MiB) {
      last = guarded.write(at, std::span<const std::byte>(rig.data).subspan(at, MiB), 0);
    }
    guarded.wait(last);
  };
  REQUIRE(code_of(commit) == Errc::io);
  REQUIRE(guarded.failed());
  REQUIRE(code_of(commit) == Errc::failed);
  REQUIRE(code_of([&] { guarded.barrier(); }) == Errc::failed);
}

TEST_CASE("a short write is carried on until all is there") {
  const std::uint64_t kept =
      GENERATE(std::uint64_t{kPageBytes}, 3 * kPageBytes, 3 * kPageBytes + 512, MiB - 512);
  const bool io_uring = GENERATE(true, false);
  CAPTURE(kept, io_uring);
  Rig rig(io_uring);
  rig.tap->cut = [&](unsigned n, std::uint64_t size_bytes) {
    return n % 3 == 0 ? std::min(kept, size_bytes) : size_bytes;
  };
  rig.medium->wait(rig.write_all());
  // The first device write, of buffer 0, went on where its last whole page ended.
  const std::uint64_t whole_pages = kept / kPageBytes * kPageBytes;
  REQUIRE(std::any_of(rig.tap->submitted.begin(), rig.tap->submitted.end(), [&](const auto& next) {
    return next.at == whole_pages && next.size_bytes == MiB - whole_pages;
  }));
  REQUIRE((bytes_on_disk(rig.folder.file()) == rig.data));
}

TEST_CASE("all of what is lent is awaited to its last page, behind a short write too") {
  const Alarm alarm;
  const Folder folder;
  std::vector<DeviceWrite> under_way;
  BlockSeam seam;
  seam.wrap = [&](std::unique_ptr<BlockBackend> inner) {
    return std::make_unique<PageFirstBackend>(std::move(inner), under_way);
  };
  BlockTuning tuning;
  tuning.io_uring = false;
  const auto medium = make_block_medium(folder.create(), {.block = tuning}, seam);
  medium->reserve(2 * MiB);
  const PageMemory one(4 * kPageBytes);
  const PageMemory other(kPageBytes);
  const Bytes bytes = pattern(4 * kPageBytes, 1);
  std::memcpy(one.bytes().data(), bytes.data(), bytes.size());
  medium->write_lent(0, one.bytes(), 0);
  medium->write_lent(MiB, other.bytes(), 0);
  medium->await_lent(other.bytes());
  REQUIRE(under_way.size() == 1);  // the other three pages
  medium->await_lent(one.bytes().last(kPageBytes));
  CHECK(under_way.empty());
  CHECK((read_back(*medium, 0, bytes.size()) == bytes));
}

TEST_CASE("a write that moves on lands, in however many steps") {
  const unsigned every = GENERATE(1u, 2u, 8u);  // of so many steps one gets through a page
  Rig rig(GENERATE(true, false));
  CAPTURE(every);
  rig.tap->cut = [&](unsigned n, std::uint64_t size_bytes) {
    return std::min(size_bytes, n % every == 0 ? kPageBytes : 512);
  };
  const Bytes data = pattern(64 * kPageBytes, 2);
  rig.medium->wait(rig.medium->write(0, data, 0));
  REQUIRE(rig.tap->submitted.size() >= 64);
  REQUIRE((read_back(*rig.medium, 0, data.size()) == data));
}

TEST_CASE("a device that never gets through a page is an error, not a loop") {
  Rig rig;
  rig.tap->cut = [](unsigned, std::uint64_t) { return std::uint64_t{512}; };
  REQUIRE(code_of([&] { rig.medium->wait(rig.write_all()); }) == Errc::io);
}

TEST_CASE("work that the kernel cancelled unbegun is begun again") {
  const int cause = GENERATE(ECANCELED, EINTR, EAGAIN);
  Rig rig;
  rig.tap->complete = [&](unsigned n, std::int64_t real) { return n % 2 == 0 ? -cause : real; };
  rig.medium->wait(rig.write_all());
  REQUIRE((bytes_on_disk(rig.folder.file()) == rig.data));

  rig.tap->complete = [&](unsigned, std::int64_t) { return -cause; };  // for ever
  REQUIRE(code_of([&] { rig.medium->wait(rig.write_all()); }) == Errc::io);
}

TEST_CASE("a ring that refuses to be entered is an error") {
  Rig rig;
  rig.tap->refuse_submit = [] { return -EBADR; };
  REQUIRE(code_of([&] { rig.medium->wait(rig.write_all()); }) == Errc::io);
  REQUIRE(code_of([&] { rig.medium->barrier(); }) == Errc::io);
}

TEST_CASE("a backend that throws instead of beginning a write is an error, and nothing waits") {
  const Alarm alarm;
  const bool io_uring = GENERATE(true, false);
  const bool memory = GENERATE(true, false);
  const int nth = GENERATE(0, 3, 7);
  CAPTURE(io_uring, memory, nth);
  Rig rig(io_uring);
  rig.medium->write(kSize - kPageBytes, Bytes(8, std::byte{1}), 0);  // stays open
  int submits = 0;
  rig.tap->refuse_submit = [&] {
    if (submits++ != nth) return 0;
    if (memory) throw std::bad_alloc();
    throw std::runtime_error("out of luck");
  };
  try {
    rig.medium->wait(rig.write_all());
    FAIL("the fault was lost");
  } catch (const Error& error) {
    REQUIRE(error.code() == Errc::io);
    REQUIRE(error.os_error() == (memory ? ENOMEM : EIO));
  }
  REQUIRE(code_of([&] { rig.medium->barrier(); }) == Errc::io);
  REQUIRE(code_of([&] { rig.medium->write(0, Bytes(8), 0); }) == Errc::io);
  REQUIRE_NOTHROW(read_back(*rig.medium, 0, kSize));
  REQUIRE(rig.tap->syncs == 0);
  rig.medium.reset();
}

// What memory cannot be had for the text of is a failure all the same.
TEST_CASE("a failed write is kept whatever memory is denied just then, and nothing waits") {
  const Alarm alarm;
  const bool io_uring = GENERATE(true, false);
  std::int64_t nth = 0;
  for (bool met = true; met; ++nth) {
    CAPTURE(io_uring, nth);
    Rig rig(io_uring);
    rig.tap->complete = [](unsigned n, std::int64_t real) { return n == 2 ? -EIO : real; };
    met = denying(nth, Denial::once, [&] { rig.medium->wait(rig.write_all()); });
    REQUIRE_NOTHROW(read_back(*rig.medium, 0, kSize));
    REQUIRE(code_of([&] { rig.medium->barrier(); }) == Errc::io);
    REQUIRE(code_of([&] { rig.medium->write(0, Bytes(8), 0); }) == Errc::io);
    REQUIRE(rig.tap->syncs == 0);
    rig.medium.reset();
  }
  REQUIRE(nth > 4);
}

TEST_CASE("a growth that fails is kept whatever memory is denied just then") {
  const Alarm alarm;
  std::int64_t nth = 0;
  for (bool met = true; met; ++nth) {
    CAPTURE(nth);
    Rig rig;
    rig.tap->sync = [](int) { return -EIO; };
    const auto grow = [](Medium& medium) { medium.reserve(kSize + MiB); };
    met = denying(nth, Denial::once, [&] { grow(*rig.medium); });
    if (rig.tap->syncs > 0) {  // the medium knows by itself
      REQUIRE(code_of([&] { rig.medium->barrier(); }) == Errc::io);
      REQUIRE(rig.tap->syncs == 1);
      REQUIRE(std::filesystem::file_size(rig.folder.file()) == kSize);
    }

    Rig other;
    other.tap->sync = rig.tap->sync;
    GuardedMedium guarded(std::move(other.medium));
    denying(nth, Denial::once, [&] { grow(guarded); });
    REQUIRE(guarded.failed());
    other.tap->sync = {};
    REQUIRE(code_of([&] { guarded.barrier(); }) == Errc::failed);
    REQUIRE(code_of([&] { grow(guarded); }) == Errc::failed);
    REQUIRE(other.tap->syncs <= 1);
  }
  REQUIRE(nth > 4);
}

TEST_CASE("a backend that can no longer tell ends is an error, and nothing waits for ever") {
  class BrokenBackend final : public ForwardingBackend {
   public:
    using ForwardingBackend::ForwardingBackend;
    DeviceBegun submit(std::span<const DeviceWrite> writes) override { return {writes.size(), 0}; }
    std::optional<DeviceCompletion> complete(bool block) override {
      if (!block) return {};
      return DeviceCompletion{DeviceCompletion::kBroken, -EBADF};
    }
  };
  const Folder folder;
  const auto file = folder.create();
  make_block_medium(file, {})->reserve(MiB);
  BlockSeam seam;
  seam.wrap = [](std::unique_ptr<BlockBackend> inner) {
    return std::make_unique<BrokenBackend>(std::move(inner));
  };
  const auto medium = make_block_medium(file, {}, seam);
  if (GENERATE(false, true)) {  // while it grows, which loses nothing else
    REQUIRE(code_of([&] { medium->reserve(2 * MiB); }) == Errc::io);
  } else {
    const Ticket ticket = medium->write(0, Bytes(MiB), 0);
    REQUIRE(code_of([&] { medium->wait(ticket); }) == Errc::io);
  }
  REQUIRE(code_of([&] { medium->write(0, Bytes(8), 0); }) == Errc::io);
  REQUIRE(code_of([&] { medium->barrier(); }) == Errc::io);
  REQUIRE_NOTHROW(read_back(*medium, 0, MiB));
}

TEST_CASE("a failed fdatasync is kept and never repeated") {
  Rig rig;
  rig.medium->wait(rig.write_all());
  rig.tap->sync = [](int) { return -EIO; };
  REQUIRE(code_of([&] { rig.medium->barrier(); }) == Errc::io);
  rig.tap->sync = {};
  REQUIRE(code_of([&] { rig.medium->barrier(); }) == Errc::io);
  REQUIRE(code_of([&] { rig.medium->store_word(0, 1); }) == Errc::io);
  REQUIRE(rig.tap->syncs == 1);
}

TEST_CASE("a read that the device fails carries its errno, also behind a short one") {
  const int cause = GENERATE(EIO, ENODATA, EREMOTEIO);
  const std::uint64_t bad = GENERATE(std::uint64_t{0}, 512, kPageBytes, 3 * kPageBytes + 1024);
  const std::uint64_t from = GENERATE(std::uint64_t{0}, 100);
  CAPTURE(cause, bad, from);
  Rig rig;
  rig.medium->wait(rig.write_all());
  // As the kernel does it: what lies before the bad sector is read, and then the error is told.
  rig.tap->read_now = [&](std::uint64_t at, std::int64_t real) {
    const bool meets = at <= bad && bad < at + static_cast<std::uint64_t>(real);
    return !meets ? real : at < bad ? static_cast<std::int64_t>(bad - at) : -cause;
  };
  const auto error = error_of([&] { read_back(*rig.medium, from, MiB); });
  REQUIRE(error);
  REQUIRE(error->code() == Errc::io);
  REQUIRE(error->os_error() == cause);
  REQUIRE(contains(error->what(), "a.shelf"));
  rig.tap->read_now = {};
  REQUIRE((read_back(*rig.medium, from, MiB) ==
           Bytes(rig.data.begin() + static_cast<long>(from),
                 rig.data.begin() + static_cast<long>(from + MiB))));
}

TEST_CASE("a read that the device gives in small pieces goes on") {
  Rig rig;
  rig.medium->wait(rig.write_all());
  rig.tap->read_now = [](std::uint64_t, std::int64_t real) {
    return std::min<std::int64_t>(real, 512);
  };
  REQUIRE((read_back(*rig.medium, 0, 64 * 1024) ==
           Bytes(rig.data.begin(), rig.data.begin() + 64 * 1024)));
}

TEST_CASE("a read beyond the end of a file that was cut short is no device's failure") {
  const std::uint64_t length = GENERATE(std::uint64_t{0}, 100, 512, kPageBytes, kSize - 512);
  CAPTURE(length);
  Rig rig;
  rig.medium->wait(rig.write_all());
  std::filesystem::resize_file(rig.folder.file(), length);
  const auto error = error_of([&] { read_back(*rig.medium, 0, kSize); });
  REQUIRE(error);
  INFO(error->what());
  REQUIRE(error->code() == Errc::truncated);
  REQUIRE(contains(error->what(), "ends"));
  REQUIRE_FALSE(error->remedy().empty());
  if (length >= kPageBytes) REQUIRE_NOTHROW(read_back(*rig.medium, 0, kPageBytes));
}

TEST_CASE("a word that did not land whole is an error") {
  const std::int64_t result = GENERATE(std::int64_t{-EIO}, -ENODATA, 0, 512);
  Rig rig;
  const unsigned syncs = rig.tap->syncs;
  rig.tap->complete = [&](unsigned, std::int64_t) { return result; };
  const auto store_durably = [&] {
    rig.medium->store_word(8, 1);
    rig.medium->barrier();
  };
  REQUIRE(code_of(store_durably) == Errc::io);
  rig.tap->complete = {};
  REQUIRE(code_of([&] { rig.medium->store_word(8, 1); }) == Errc::io);
  REQUIRE(code_of([&] { rig.medium->barrier(); }) == Errc::io);
  REQUIRE(rig.tap->syncs == syncs);
}

TEST_CASE("running full while growing loses nothing, and growing may be tried again") {
  Rig rig;
  rig.medium->wait(rig.write_all());
  const int cause = GENERATE(ENOSPC, EDQUOT);
  rig.tap->complete = [&](unsigned n, std::int64_t real) { return n == 10 ? -cause : real; };
  REQUIRE(code_of([&] { rig.medium->reserve(2 * kSize); }) == Errc::full);
  REQUIRE(rig.medium->size() == kSize);
  REQUIRE((bytes_on_disk(rig.folder.file()) == rig.data));
  rig.tap->complete = {};
  REQUIRE(rig.medium->reserve(2 * kSize) == 2 * kSize);
  rig.medium->wait(rig.write_all());
  rig.medium->barrier();
}

TEST_CASE("a failed barrier of the growth leaves the old size") {
  Rig rig;
  rig.tap->sync = [](int) { return -EIO; };
  REQUIRE(code_of([&] { rig.medium->reserve(2 * kSize); }) == Errc::io);
  REQUIRE(rig.medium->size() == kSize);
  REQUIRE(std::filesystem::file_size(rig.folder.file()) == kSize);
}

TEST_CASE("a write that fails as the room under it is given back is not lost") {
  Rig rig;
  rig.tap->complete = [](unsigned, std::int64_t) { return -EIO; };
  rig.medium->write(kSize - MiB, std::span<const std::byte>(rig.data).first(100 * 1024), 0);
  REQUIRE(code_of([&] { rig.medium->shrink(kSize / 2); }) == Errc::io);
  REQUIRE(std::filesystem::file_size(rig.folder.file()) == kSize);
  REQUIRE(rig.medium->size() == kSize);
  rig.tap->complete = {};
  REQUIRE(code_of([&] { rig.medium->barrier(); }) == Errc::io);
}

TEST_CASE("what was given back costs its zeros and a flush when it is reserved anew") {
  Rig rig;
  rig.medium->wait(rig.write_all());
  rig.medium->barrier();
  REQUIRE(rig.medium->shrink(kSize / 2) == kSize / 2);
  *rig.tap = Tap{};
  REQUIRE(rig.medium->reserve(kSize / 2) == kSize / 2);  // there already
  REQUIRE(rig.tap->syncs == 0);
  REQUIRE(rig.medium->reserve(kSize) == kSize);
  REQUIRE(rig.tap->syncs == 1);
  std::uint64_t zeros = 0;
  for (const Tap::Range& range : rig.tap->submitted) {
    REQUIRE(range.at >= kSize / 2);
    zeros += range.size_bytes;
  }
  REQUIRE(zeros == kSize / 2);
  REQUIRE((read_back(*rig.medium, kSize / 2, kSize / 2) == Bytes(kSize / 2)));
}

TEST_CASE("one of many threads meets the fault, and none goes on", "[threads]") {
  Rig rig;
  rig.tap->complete = [](unsigned n, std::int64_t real) { return n == 4 ? -EIO : real; };
  std::vector<int> failed(4, 0);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      try {
        for (;;) {
          for (std::uint64_t i = 0; i < 2; ++i) {
            const std::uint64_t at = (t * 2 + i) * MiB;
            rig.medium->write(at, std::span<const std::byte>(rig.data).subspan(at, MiB), 0);
          }
        }
      } catch (const Error& error) {
        failed[t] = error.code() == Errc::io ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  REQUIRE(failed == std::vector<int>(4, 1));
}
