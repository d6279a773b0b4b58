// The block medium on a real file: joining, order, tails, reading, growing, threads. Faults stand
// in test_block_faults.cpp, fallbacks in test_block_fallbacks.cpp.
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <xxhash.h>

#include <atomic>
#include <thread>

#include "block_fixture.hpp"

using namespace tensorshelf;
using namespace tensorshelf::testing;

namespace {

constexpr std::uint64_t MiB = 1024 * 1024;
using ByteSpan = std::span<const std::byte>;

std::uint64_t reference_hash(ByteSpan bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

// How the same test runs: through io_uring and through pwrite.
BlockTuning tuning_of(bool io_uring) { return {.io_uring = io_uring}; }

}  // namespace

TEST_CASE("10,000 consecutive pages become a few large device writes") {
  const bool io_uring = GENERATE(true, false);
  CAPTURE(io_uring);
  const Folder folder;
  const auto tap = std::make_shared<Tap>();
  const auto medium =
      make_block_medium(folder.create(), {.block = tuning_of(io_uring)}, tapped(tap));
  constexpr std::uint64_t kPages = 10'000;
  medium->reserve(kPages * kPageBytes);
  tap->submitted.clear();

  const Bytes data = pattern(kPages * kPageBytes, 1);
  Ticket last;
  bool hashes_match = true;
  for (std::uint64_t i = 0; i < kPages; ++i) {
    const ByteSpan page = ByteSpan(data).subspan(i * kPageBytes, kPageBytes);
    last = medium->write(i * kPageBytes, page, i);
    hashes_match = hashes_match && last.checksum == reference_hash(page, i);
  }
  medium->wait(last);
  medium->barrier();
  REQUIRE(hashes_match);
  REQUIRE(tap->submitted.size() <=
          round_up(data.size(), BlockTuning{}.buffer_bytes) / BlockTuning{}.buffer_bytes);
  REQUIRE((bytes_on_disk(folder.file()) == data));
}

TEST_CASE("streams that alternate are joined each for itself") {
  const Folder folder;
  const auto tap = std::make_shared<Tap>();
  const auto medium = make_block_medium(folder.create(), {}, tapped(tap));
  constexpr std::uint64_t kStreamBytes = 2 * MiB;
  medium->reserve(3 * kStreamBytes);
  tap->submitted.clear();

  const Bytes data = pattern(3 * kStreamBytes, 2);
  Ticket last;
  for (std::uint64_t at = 0; at < kStreamBytes; at += kPageBytes) {
    for (std::uint64_t stream = 0; stream < 3; ++stream) {
      const std::uint64_t place = stream * kStreamBytes + at;
      last = medium->write(place, ByteSpan(data).subspan(place, kPageBytes), 0);
    }
  }
  medium->wait(last);
  REQUIRE(tap->submitted.size() == 3);
  REQUIRE((bytes_on_disk(folder.file()) == data));
}

TEST_CASE("writes of odd length are padded with zeros to the page") {
  const Folder folder;
  const auto medium = make_block_medium(folder.create(), {});
  const std::uint64_t size_bytes = GENERATE(std::uint64_t{1}, 8, 4095, 4096, 4097, MiB - 1, MiB);
  CAPTURE(size_bytes);
  const std::uint64_t pages_bytes = round_up(size_bytes, kPageBytes);
  medium->reserve(2 * pages_bytes + kPageBytes);
  const Bytes dirt(pages_bytes, std::byte{0xEE});
  medium->wait(medium->write(0, dirt, 0));

  const Bytes first = pattern(size_bytes, 3);
  const Bytes second = pattern(size_bytes, 4);
  REQUIRE(medium->write(0, first, 7).checksum == reference_hash(first, 7));
  medium->wait(medium->write(pages_bytes, second, 7));

  Bytes expected = first;
  expected.resize(pages_bytes);
  expected.insert(expected.end(), second.begin(), second.end());
  expected.resize(2 * pages_bytes + kPageBytes);
  REQUIRE((bytes_on_disk(folder.file()) == expected));
}

TEST_CASE("an empty write is a hash and nothing else") {
  const Folder folder;
  const auto medium = make_block_medium(folder.create(), {});
  medium->reserve(kPageBytes);
  const Ticket ticket = medium->write(0, {}, 5);
  medium->wait(ticket);
  REQUIRE(ticket.checksum == reference_hash({}, 5));
  REQUIRE((bytes_on_disk(folder.file()) == Bytes(kPageBytes)));
}

TEST_CASE("overlapping writes land in program order, whatever the device does") {
  // The device performs newest first; a buffer is 1 MiB, so several are in flight.
  const Folder folder;
  BlockSeam seam;
  seam.wrap = [](std::unique_ptr<BlockBackend> inner) {
    return std::make_unique<NewestFirstBackend>(std::move(inner));
  };
  BlockTuning tuning;
  tuning.buffer_bytes = MiB;
  const bool direct = GENERATE(true, false);
  tuning.direct = direct;
  const auto medium = make_block_medium(folder.create(), {.block = tuning}, seam);
  constexpr std::uint64_t kRegionBytes = 3 * MiB;
  medium->reserve(kRegionBytes);

  const std::uint64_t seed = std::random_device{}();
  CAPTURE(seed, direct);
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t limit) { return random() % limit; };
  Bytes model(kRegionBytes);
  Ticket last;
  for (int i = 0; i < 1500; ++i) {
    const std::uint64_t kind = below(20);
    const std::uint64_t at = below(kRegionBytes / kPageBytes) * kPageBytes;
    const std::uint64_t room = kRegionBytes - at;
    const std::uint64_t size_bytes = std::min(room, kind < 3 ? MiB : 1 + below(5 * kPageBytes));
    if (kind < 16) {
      const Bytes bytes = pattern(size_bytes, random());
      last = medium->write(at, bytes, 0);
      std::memcpy(&model[at], bytes.data(), size_bytes);
      std::memset(&model[at + size_bytes], 0, round_up(size_bytes, kPageBytes) - size_bytes);
    } else if (kind == 16) {
      medium->wait(last);
    } else if (kind == 17) {
      const std::uint64_t word = random();
      medium->store_word(at + 8, word);
      std::memcpy(&model[at + 8], &word, sizeof word);
    } else {
      const std::uint64_t skip = below(std::min(room, kPageBytes));
      const Bytes expected(model.begin() + static_cast<std::ptrdiff_t>(at + skip),
                           model.begin() + static_cast<std::ptrdiff_t>(
                                               std::min(at + skip + size_bytes, kRegionBytes)));
      REQUIRE((read_back(*medium, at + skip, expected.size()) == expected));
    }
  }
  medium->wait(last);
  medium->barrier();
  REQUIRE((bytes_on_disk(folder.file()) == model));
}

TEST_CASE("a rewrite of bytes that an open buffer holds costs no device write") {
  const Folder folder;
  const auto tap = std::make_shared<Tap>();
  const auto medium = make_block_medium(folder.create(), {}, tapped(tap));
  medium->reserve(MiB);
  tap->submitted.clear();
  const Bytes bytes = pattern(64 * 1024, 5);
  Ticket last = medium->write(0, bytes, 0);
  for (int i = 0; i < 1000; ++i) last = medium->write(kPageBytes, Bytes(8, std::byte{7}), 0);
  medium->wait(last);
  REQUIRE(tap->submitted.size() == 1);
  REQUIRE((read_back(*medium, kPageBytes, 8) == Bytes(8, std::byte{7})));
}

TEST_CASE("reads of any alignment see every write that returned") {
  const Folder folder;
  const auto medium = make_block_medium(folder.create(), {});
  constexpr std::uint64_t kSize = 5 * MiB;
  medium->reserve(kSize);
  const Bytes data = pattern(kSize, 6);
  for (std::uint64_t at = 0; at < kSize; at += MiB) {
    medium->write(at, ByteSpan(data).subspan(at, MiB), 0);
  }
  struct Case {
    std::uint64_t at, size_bytes, shift;  // shift: of the target from page alignment
  };
  const auto c = GENERATE(Case{0, kSize, 0}, Case{0, kSize, 8}, Case{1, kSize - 2, 0},
                          Case{4096, 4096, 0}, Case{4095, 2, 3}, Case{MiB - 1, MiB + 2, 4095},
                          Case{kSize - 1, 1, 0}, Case{kPageBytes, 2 * MiB + 5, 0});
  CAPTURE(c.at, c.size_bytes, c.shift);
  const PageMemory memory(kSize + kPageBytes);
  const std::span<std::byte> target = memory.bytes().subspan(c.shift, c.size_bytes);
  medium->read(c.at, target);
  REQUIRE(std::memcmp(target.data(), &data[c.at], c.size_bytes) == 0);
}

TEST_CASE("a word is replaced and its page keeps all else") {
  const Folder folder;
  const auto medium = make_block_medium(folder.create(), {});
  medium->reserve(4 * kPageBytes);
  Bytes data = pattern(4 * kPageBytes, 8);
  medium->write(0, data, 0);  // not waited for: store_word must not overtake it
  const std::uint64_t at = GENERATE(std::uint64_t{0}, 8, 4088, 4096, 2 * 4096 + 512, 4 * 4096 - 8);
  const std::uint64_t word = 0x0123456789ABCDEF;
  medium->store_word(at, word);
  medium->barrier();
  std::memcpy(&data[at], &word, sizeof word);
  REQUIRE((bytes_on_disk(folder.file()) == data));
}

TEST_CASE("many threads write and read at once") {
  const bool io_uring = GENERATE(true, false);
  CAPTURE(io_uring);
  const Folder folder;
  BlockTuning tuning = tuning_of(io_uring);
  tuning.queue_depth = GENERATE(1u, 2u, 8u);
  CAPTURE(tuning.queue_depth);
  tuning.buffer_bytes = MiB;
  const auto medium = make_block_medium(folder.create(), {.block = tuning});
  constexpr unsigned kThreads = 6;
  constexpr std::uint64_t kEach = 3 * MiB;
  medium->reserve(kThreads * kEach);
  const Bytes data = pattern(kThreads * kEach, 9);

  std::vector<std::thread> threads;
  std::vector<int> good(kThreads, 0);
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(t);
      const std::uint64_t start = t * kEach;
      Ticket last;
      for (std::uint64_t at = start; at < start + kEach;) {
        const std::uint64_t size_bytes =
            std::min(start + kEach - at, (1 + random() % 64) * kPageBytes);
        last = medium->write(at, ByteSpan(data).subspan(at, size_bytes), t);
        at += size_bytes;
        if (random() % 8 == 0) medium->wait(last);
      }
      Bytes back(kEach);
      medium->read(start, back);
      good[t] = std::memcmp(back.data(), &data[start], kEach) == 0 ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  REQUIRE(good == std::vector<int>(kThreads, 1));
  medium->wait(Ticket{~std::uint64_t{0}, 0});
  medium->barrier();
  REQUIRE((bytes_on_disk(folder.file()) == data));
}

TEST_CASE("many threads fill the same staging buffers at once") {
  const bool io_uring = GENERATE(true, false);
  CAPTURE(io_uring);
  const Folder folder;
  BlockTuning tuning = tuning_of(io_uring);
  tuning.buffer_bytes = MiB;
  tuning.queue_depth = 4;
  const auto medium = make_block_medium(folder.create(), {.block = tuning});
  constexpr std::uint64_t kSize = 64 * MiB;
  constexpr std::uint64_t kPiece = 16 * 1024;
  medium->reserve(kSize);
  const Bytes data = pattern(kSize, 12);

  // Whoever closes a buffer, others may still be copying into it.
  std::atomic<std::uint64_t> next = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&] {
      for (std::uint64_t at; (at = next.fetch_add(kPiece)) < kSize;) {
        medium->write(at, ByteSpan(data).subspan(at, kPiece), 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  medium->wait(Ticket{~std::uint64_t{0}, 0});
  medium->barrier();
  REQUIRE((read_back(*medium, 0, kSize) == data));  // too long to print
}

TEST_CASE("what is lent goes to the file from where it lies, between what is copied") {
  const bool io_uring = GENERATE(true, false);
  CAPTURE(io_uring);
  constexpr std::uint64_t kPieces = 4;
  const Folder folder;
  BlockTuning tuning = tuning_of(io_uring);
  tuning.buffer_bytes = MiB;
  tuning.queue_depth = static_cast<unsigned>(GENERATE(1, 3));
  const auto medium = make_block_medium(folder.create(), {.block = tuning});
  medium->reserve(40 * MiB);
  const PageMemory memory(kPieces * MiB);
  Bytes expected(40 * MiB);
  for (std::uint64_t at = 0; at < 40; ++at) {  // each buffer has its turn before, and is registered
    const Bytes bytes = pattern(MiB, at + 1);
    std::memcpy(&expected[at * MiB], bytes.data(), MiB);
    Ticket ticket;
    if (at % 3 == 0) {
      ticket = medium->write(at * MiB, bytes, 5);
    } else {
      const auto piece = memory.bytes().subspan(at % kPieces * MiB, MiB);
      medium->await_lent(piece);
      std::memcpy(piece.data(), bytes.data(), MiB);
      ticket = medium->write_lent(at * MiB, piece, 5);
    }
    REQUIRE(ticket.checksum == reference_hash(bytes, 5));
    if (at % 5 != 4) continue;
    REQUIRE(same(read_back(*medium, at * MiB, MiB), bytes));  // waits for it
  }
  medium->await_lent(memory.bytes());
  std::memset(memory.bytes().data(), 0, memory.bytes().size());
  medium->wait(Ticket{~std::uint64_t{0}, 0});
  REQUIRE(same(bytes_on_disk(folder.file()), expected));
}

TEST_CASE("what is no whole pages is copied, though it was to be lent") {
  const Folder folder;
  const auto medium = make_block_medium(folder.create(), {.block = tuning_of(true)});
  medium->reserve(MiB);
  const PageMemory memory(2 * kPageBytes);
  const auto [from, size] = GENERATE(table<std::size_t, std::size_t>(
      {{0, 1536}, {0, kPageBytes + 512}, {512, kPageBytes}, {512, 1536}, {0, 0}}));
  CAPTURE(from, size);
  const Bytes bytes = pattern(size, 1);
  const auto piece = memory.bytes().subspan(from, size);
  if (size != 0) std::memcpy(piece.data(), bytes.data(), size);
  const Ticket ticket = medium->write_lent(0, piece, 3);
  std::memset(memory.bytes().data(), 0, memory.bytes().size());  // before anybody waited
  CHECK(ticket.checksum == reference_hash(bytes, 3));
  CHECK(same(read_back(*medium, 0, size), bytes));
}

TEST_CASE("buffers that threads still copy into are waited for by who lends") {
  const Alarm alarm;
  const Folder folder;
  BlockTuning tuning = tuning_of(GENERATE(true, false));
  tuning.buffer_bytes = MiB;
  tuning.queue_depth = 1;
  const auto medium = make_block_medium(folder.create(), {.block = tuning});
  medium->reserve(3 * MiB);
  const Bytes copied = pattern(MiB, 1);
  const auto lend = [&](std::uint64_t at) {  // over what is being copied, and elsewhere
    const PageMemory memory(kPageBytes);
    std::memset(memory.bytes().data(), 7, kPageBytes);
    for (unsigned round = 0; round < rounds(400); ++round) {
      medium->write_lent(at, memory.bytes(), 0);
      medium->await_lent(memory.bytes());
    }
  };
  std::thread over([&] { lend(kPageBytes); });
  std::thread elsewhere([&] { lend(2 * MiB); });
  for (unsigned round = 0; round < rounds(400); ++round) medium->write(0, copied, 0);
  over.join();
  elsewhere.join();
  CHECK(same(read_back(*medium, 2 * MiB, kPageBytes), Bytes(kPageBytes, std::byte{7})));
  CHECK(same(read_back(*medium, 0, kPageBytes), std::span(copied).first(kPageBytes)));
}

TEST_CASE("a forked child waits for nothing that its parent lent, and takes none of its ends") {
  const bool io_uring = GENERATE(true, false);
  CAPTURE(io_uring);
  const Folder folder;
  BlockTuning tuning = tuning_of(io_uring);
  const auto medium = make_block_medium(folder.create(), {.block = tuning});
  medium->reserve(4 * MiB);
  const PageMemory memory(MiB);
  std::memset(memory.bytes().data(), 7, memory.bytes().size());
  medium->write_lent(MiB, memory.bytes(), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    medium->await_lent(memory.bytes());
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  const Bytes there = bytes_on_disk(folder.file());
  if (!io_uring) CHECK(there[MiB] == std::byte{0});  // to write it is its parent's
  ::alarm(60);
  medium->await_lent(memory.bytes());
  ::alarm(0);
  CHECK(bytes_on_disk(folder.file())[MiB] == std::byte{7});
}

TEST_CASE("a thread may exit while its writes are under way") {
  const Folder folder;
  const auto medium =
      make_block_medium(folder.create(), {.block = {.direct = GENERATE(true, false)}});
  constexpr std::uint64_t kSize = 16 * MiB;
  medium->reserve(kSize);
  const Bytes data = pattern(kSize, 10);
  std::thread([&] {
    for (std::uint64_t at = 0; at < kSize; at += MiB) {
      medium->write(at, ByteSpan(data).subspan(at, MiB), 0);
    }
  }).join();
  medium->wait(Ticket{~std::uint64_t{0}, 0});
  REQUIRE((bytes_on_disk(folder.file()) == data));
}

TEST_CASE("new room reads as zero, is allocated, and is written where it is small") {
  const Folder folder;
  const auto file = folder.create();
  const BlockTuning tuning{.direct = GENERATE(true, false)};
  const bool zero_room = GENERATE(true, false);
  const std::uint64_t more = GENERATE(1 * MiB, 1 * MiB + kPageBytes);
  const std::uint64_t size = kPageBytes + more;
  CAPTURE(tuning.direct, zero_room, more);
  const auto medium = make_block_medium(file, {.zero_room = zero_room, .block = tuning});
  REQUIRE(medium->size() == 0);
  REQUIRE(medium->reserve(1) == kPageBytes);
  const Bytes data = pattern(kPageBytes, 11);
  medium->write(0, data, 0);  // open while the file grows
  REQUIRE(medium->reserve(size) == size);
  REQUIRE(medium->reserve(MiB) == size);
  REQUIRE((read_back(*medium, 0, kPageBytes) == data));
  REQUIRE((read_back(*medium, kPageBytes, size - kPageBytes) == Bytes(size - kPageBytes)));

  constexpr unsigned kExtents = 64;
  std::vector<std::byte> room(sizeof(fiemap) + kExtents * sizeof(fiemap_extent));
  auto* const map = reinterpret_cast<fiemap*>(room.data());
  map->fm_length = FIEMAP_MAX_OFFSET;
  map->fm_flags = FIEMAP_FLAG_SYNC;
  map->fm_extent_count = kExtents;
  if (::ioctl(file->fd(), FS_IOC_FIEMAP, map) != 0) {
    WARN("skipped: extents, which this file system does not list");
    return;
  }
  std::uint64_t mapped_bytes = 0;
  std::uint64_t unwritten_bytes = 0;
  for (unsigned i = 0; i < map->fm_mapped_extents; ++i) {
    const fiemap_extent& extent = map->fm_extents[i];
    mapped_bytes += extent.fe_length;
    if ((extent.fe_flags & FIEMAP_EXTENT_UNWRITTEN) != 0) unwritten_bytes += extent.fe_length;
  }
  REQUIRE(mapped_bytes == size);
  REQUIRE((unwritten_bytes == 0) == (zero_room && more == 1 * MiB));
}

TEST_CASE("new room reads as zero, whatever the buffers that write it held before") {
  const bool io_uring = GENERATE(true, false);
  CAPTURE(io_uring);
  const Folder folder;
  BlockTuning tuning = tuning_of(io_uring);
  tuning.buffer_bytes = MiB;
  tuning.queue_depth = 4;
  const auto medium = make_block_medium(folder.create(), {.block = tuning});
  constexpr std::uint64_t kSize = 16 * MiB;  // every buffer's turn comes
  medium->reserve(kSize);
  const Bytes data(MiB, std::byte{0xAA});
  Ticket last;
  for (std::uint64_t at = 0; at < kSize; at += MiB) last = medium->write(at, data, 0);
  medium->wait(last);
  REQUIRE(medium->reserve(2 * kSize) == 2 * kSize);
  REQUIRE((read_back(*medium, kSize, kSize) == Bytes(kSize)));
}

TEST_CASE("a read-only medium reads, and sees the writer's growth") {
  const Folder folder;
  const auto writer = make_block_medium(folder.create(), {});
  writer->reserve(MiB);
  const auto reader =
      make_block_medium(std::make_shared<ShelfFile>(ShelfFile::open(folder.file(), false)), {});
  REQUIRE(reader->size() == MiB);
  const Bytes data = pattern(MiB, 12);
  writer->reserve(2 * MiB);
  writer->wait(writer->write(MiB, data, 0));
  REQUIRE(reader->size() == 2 * MiB);
  REQUIRE((read_back(*reader, MiB, MiB) == data));
  REQUIRE(reader->promises().detail.find("read-only") != std::string::npos);
}

TEST_CASE("opening changes no byte of a file that is there") {
  const Folder folder;
  const std::uint64_t size_bytes = GENERATE(std::uint64_t{0}, 100, 4096, 4097, 100'000);
  CAPTURE(size_bytes);
  const Bytes data = pattern(size_bytes, 13);
  const int fd = ::open(folder.file().c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  REQUIRE(::write(fd, data.data(), data.size()) == static_cast<ssize_t>(data.size()));
  ::close(fd);
  const auto medium =
      make_block_medium(std::make_shared<ShelfFile>(ShelfFile::open(folder.file(), true)), {});
  REQUIRE(medium->size() == size_bytes / kPageBytes * kPageBytes);
  REQUIRE((bytes_on_disk(folder.file()) == data));
}

bool is_open_here(const std::filesystem::path& path) {
  for (const auto& fd : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;  // the one that reads the folder is closed by then
    if (std::filesystem::read_symlink(fd.path(), ignored) == path) return true;
  }
  return false;
}

TEST_CASE("a forked child may destroy the medium, and the parent goes on") {
  const Folder folder;
  auto medium = make_block_medium(folder.create(), {});
  medium->reserve(8 * MiB);
  const Bytes data = pattern(8 * MiB, 14);
  for (std::uint64_t at = 0; at < 8 * MiB; at += MiB) {
    medium->write(at, ByteSpan(data).subspan(at, MiB), 0);
  }
  const pid_t child = ::fork();
  if (child == 0) {
    medium.reset();
    ::_exit(is_open_here(folder.file()) ? 1 : 0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  REQUIRE(is_open_here(folder.file()));
  medium->wait(Ticket{~std::uint64_t{0}, 0});
  REQUIRE((bytes_on_disk(folder.file()) == data));
}

TEST_CASE("a forked child keeps what memory it has where its parent's was") {
  auto memory = std::make_unique<PageMemory>(4 * MiB);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(memory_of_a_child(std::move(memory)));
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK((WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 2));
}

TEST_CASE("tuning that cannot work is refused") {
  const Folder folder;
  const auto file = folder.create();
  const auto tuning = GENERATE(BlockTuning{.buffer_bytes = 0}, BlockTuning{.buffer_bytes = 4096},
                               BlockTuning{.buffer_bytes = MiB + 4096},
                               BlockTuning{.queue_depth = 0}, BlockTuning{.queue_depth = 5000});
  REQUIRE(code_of([&] { make_block_medium(file, {.block = tuning}); }) == Errc::bad_argument);
}

TEST_CASE("growing a file as it was found fills what lay in it as holes") {
  const Folder folder;
  folder.create();
  std::filesystem::resize_file(folder.file(), 8 * MiB);
  const auto file = std::make_shared<ShelfFile>(ShelfFile::open(folder.file(), true));
  const auto medium = make_block_medium(file, {});
  REQUIRE(medium->size() == 8 * MiB);
  medium->reserve(16 * MiB);
  struct stat node {};
  REQUIRE(::stat(folder.file().c_str(), &node) == 0);
  REQUIRE(node.st_size >= static_cast<off_t>(16 * MiB));
  REQUIRE(node.st_blocks * 512 >= node.st_size);
}

TEST_CASE("a word behind where a file was cut, and grew again, lies among zeros") {
  const Folder folder;
  const auto medium = make_block_medium(folder.create(), {});
  constexpr std::uint64_t kAt = 8 * kPageBytes;
  medium->reserve(2 * kAt);
  medium->store_word(kAt, 77);
  medium->barrier();
  medium->shrink(kAt);
  medium->reserve(2 * kAt);
  medium->store_word(kAt + 8, 5);
  medium->barrier();
  const Bytes page = read_back(*medium, kAt, kPageBytes);
  CHECK(page[0] == std::byte{0});
  CHECK(page[8] == std::byte{5});
}
