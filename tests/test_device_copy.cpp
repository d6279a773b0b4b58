// The order of copies through a ring of buffers (src/feed/device_copy.hpp), on a device made of
// host memory that notices every misuse: a buffer filled while its bytes are in use or lent, bytes
// used before they are there, a copy still under way at the end.
#include <tensorshelf/shelf.hpp>

#include <algorithm>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "catch.hpp"
#include "feed/device_source.hpp"
#include "media/memory/medium.hpp"

using namespace tensorshelf;

namespace {

constexpr std::uint64_t kBuffer = 4 * kChunkBytes;

std::vector<std::byte> pattern(std::uint64_t size) {
  std::vector<std::byte> bytes(size);
  std::uint32_t word = 12345;
  for (std::byte& byte : bytes)
    byte = static_cast<std::byte>((word = word * 1664525 + 1013904223) >> 24);
  return bytes;
}

// Copies late, at wait(), as a real device may: a source or buffer that is let go too early shows.
class FakeDevice final : public DeviceCopy {
 public:
  explicit FakeDevice(std::span<const std::byte> source, unsigned pieces = 2)
      : source_(source), buffers_(pieces) {
    for (auto& buffer : buffers_) buffer.bytes.resize(kBuffer);
  }

  PieceRing ring() const override {
    return {.pieces = static_cast<unsigned>(buffers_.size()), .piece_bytes = kBuffer};
  }

  void begin(unsigned index, std::uint64_t from, std::uint64_t size_bytes) override {
    Buffer& buffer = buffers_.at(index);
    if (buffer.under_way) misuse("begin() into a buffer whose copy is under way");
    if (buffer.lent) misuse("begin() into a buffer that is lent");
    if (consuming_ == index) misuse("begin() into the buffer that is being consumed");
    if (size_bytes == 0 || size_bytes > kBuffer) misuse("a piece that fits no buffer");
    if (from + size_bytes > source_.size()) misuse("bytes beyond the source");
    if (++begins_ == fail_begin) throw std::runtime_error("begin failed");
    buffer.under_way = true;
    buffer.from = from;
    buffer.size = size_bytes;
    most_under_way = std::max(most_under_way, under_way());
  }

  std::span<const std::byte> wait(unsigned index) override {
    Buffer& buffer = buffers_.at(index);
    if (!buffer.under_way) misuse("wait() for what was not begun");
    if (++waits_ == fail_wait) throw std::runtime_error("wait failed");
    const auto piece = source_.subspan(buffer.from, buffer.size);
    std::copy(piece.begin(), piece.end(), buffer.bytes.begin());
    buffer.under_way = false;
    consuming_ = index;
    return std::span(buffer.bytes).first(buffer.size);
  }

  void settle() noexcept override {
    for (auto& buffer : buffers_) buffer.under_way = false;
    settled = true;
  }

  void consumed() { consuming_.reset(); }
  void lend() { buffers_.at(consuming_.value()).lent = true; }
  void take_back(std::span<const std::byte> bytes) {
    for (Buffer& buffer : buffers_) {
      if (buffer.bytes.data() != bytes.data()) continue;
      if (buffer.under_way) misuse("a piece is back whose buffer is being filled");
      if (bytes.size() != buffer.size) misuse("a piece came back in part");
      buffer.lent = false;
    }
  }
  unsigned under_way() const { return count(&Buffer::under_way); }
  unsigned lent() const { return count(&Buffer::lent); }

  int fail_begin = 0;  // of which call; 0: none
  int fail_wait = 0;
  unsigned most_under_way = 0;
  bool settled = false;
  std::vector<std::string> misuses;

 private:
  struct Buffer {
    std::vector<std::byte> bytes;
    bool under_way = false;
    bool lent = false;
    std::uint64_t from = 0;
    std::uint64_t size = 0;
  };

  unsigned count(bool Buffer::*state) const {
    return static_cast<unsigned>(std::ranges::count(buffers_, true, state));
  }
  void misuse(const char* what) { misuses.emplace_back(what); }

  std::span<const std::byte> source_;
  std::vector<Buffer> buffers_;
  std::optional<unsigned> consuming_;
  int begins_ = 0;
  int waits_ = 0;
};

struct Received {
  std::vector<std::byte> bytes;
  std::vector<std::uint64_t> ends;  // of the pieces, as offsets in the tensor
};

ConsumePiece into(Received& received, FakeDevice& device, std::uint64_t offset) {
  return [&received, &device, offset](std::span<const std::byte> bytes, std::uint64_t from) {
    REQUIRE(from == received.bytes.size());
    received.bytes.insert(received.bytes.end(), bytes.begin(), bytes.end());
    received.ends.push_back(offset + received.bytes.size());
    device.consumed();
  };
}

}  // namespace

TEST_CASE("a part of a source comes in its place") {
  const auto source = pattern(2 * kBuffer + 9);
  const std::uint64_t begin = 3;
  const CopyPlan plan = {.size_bytes = source.size() - begin - 1, .offset = 9, .from = begin};
  FakeDevice device(source);
  std::vector<std::byte> received;
  copy_in_pieces(device, plan, [&](std::span<const std::byte> bytes, std::uint64_t from) {
    CHECK(from == begin + received.size());
    received.insert(received.end(), bytes.begin(), bytes.end());
    device.consumed();
  });
  CHECK((received == std::vector(source.begin() + begin, source.end() - 1)));
  CHECK(device.misuses.empty());
  CHECK(device.settled);
}

TEST_CASE("all bytes arrive in order, in pieces that end where chunks end") {
  struct Row {
    std::uint64_t size;
    std::uint64_t offset;
    std::size_t pieces;
  };
  const Row rows[] = {
      {0, 0, 0},
      {1, 0, 1},
      {1, kChunkBytes - 1, 1},
      {kBuffer, 0, 1},
      {kBuffer + 1, 0, 2},
      {kBuffer, 1, 2},      // up to a chunk's end, and one byte
      {kBuffer - 1, 1, 1},  // ends at a chunk
      {3 * kBuffer, 0, 3},  // each buffer more than once
      {2 * kBuffer + 7, kChunkBytes + 5, 3},
      {2 * kBuffer, 17 * kChunkBytes, 2},  // aligned, though not to a buffer
  };
  for (const Row& row : rows) {
    INFO(row.size << " bytes at " << row.offset);
    const auto source = pattern(row.size);
    FakeDevice device(source);
    Received received;
    copy_in_pieces(device, {row.size, row.offset}, into(received, device, row.offset));
    CHECK(received.bytes == source);
    CHECK(received.ends.size() == row.pieces);
    for (std::size_t i = 0; i + 1 < received.ends.size(); ++i) {
      CHECK(received.ends[i] % kChunkBytes == 0);
    }
    CHECK(device.misuses == std::vector<std::string>{});
    CHECK(device.settled);
    CHECK(device.most_under_way == std::min<std::size_t>(row.pieces, 2));
  }
}

TEST_CASE("the copy of the next piece is under way while a piece is consumed") {
  const auto source = pattern(3 * kBuffer);
  FakeDevice device(source);
  std::vector<unsigned> under_way;
  copy_in_pieces(device, {source.size(), 0}, [&](std::span<const std::byte>, std::uint64_t) {
    under_way.push_back(device.under_way());
    device.consumed();
  });
  CHECK(under_way == std::vector<unsigned>{1, 1, 0});
}

TEST_CASE("pieces that are lent are back before they are filled again, and at the end") {
  const auto source = pattern(7 * kBuffer + 5);
  for (const unsigned pieces : {1U, 2U, 3U, 4U, 20U}) {
    for (const int fail_at : {0, 1, 3, 8}) {
      INFO(pieces << " pieces, fails at " << fail_at);
      FakeDevice device(source, pieces);
      std::vector<std::byte> received;
      unsigned most_lent = 0;
      int consumed = 0;
      const auto copied = [&] {
        copy_in_pieces(
            device, {source.size(), 0},
            [&](std::span<const std::byte> bytes, std::uint64_t) {
              device.lend();
              most_lent = std::max(most_lent, device.lent());
              if (++consumed == fail_at) throw std::runtime_error("consume failed");
              received.insert(received.end(), bytes.begin(), bytes.end());
              device.consumed();
            },
            [&](std::span<const std::byte> bytes) { device.take_back(bytes); });
      };
      if (fail_at != 0) {
        CHECK_THROWS_WITH(copied(), "consume failed");
      } else {
        copied();
        CHECK(received == source);
        CHECK(most_lent == std::min(pieces, 8U));  // all, once nothing more comes
        CHECK(device.most_under_way == std::min(pieces, 2U));
      }
      CHECK(device.lent() == 0);
      CHECK(device.under_way() == 0);
      CHECK(device.misuses == std::vector<std::string>{});
    }
  }
}

TEST_CASE("a failure anywhere leaves when nothing is under way any more") {
  const auto source = pattern(5 * kBuffer);
  for (int at = 1; at <= 5; ++at) {
    for (const std::string where : {"begin", "wait", "consume"}) {
      INFO(where << " " << at);
      FakeDevice device(source);
      if (where == "begin") device.fail_begin = at;
      if (where == "wait") device.fail_wait = at;
      int consumed = 0;
      const auto consume = [&](std::span<const std::byte>, std::uint64_t) {
        if (++consumed == at && where == "consume") throw std::runtime_error("consume failed");
        device.consumed();
      };
      CHECK_THROWS_WITH(copy_in_pieces(device, {source.size(), 0}, consume), where + " failed");
      CHECK(device.settled);
      CHECK(device.under_way() == 0);
      CHECK(device.misuses == std::vector<std::string>{});
      // What was consumed is a front part of the source.
      const int whole = where == "begin" ? std::max(0, at - 2) : at - 1;
      CHECK(consumed == (where == "consume" ? at : whole));
    }
  }
}

TEST_CASE("a ring has as many pieces, as large, as were asked for") {
  struct Row {
    bool lent;
    unsigned pieces;
    std::uint64_t piece_bytes;
    PieceRing ring;
  };
  const std::uint64_t usual = 8 * kChunkBytes;
  const Row row = GENERATE_COPY(  //
      Row{false, 0, 0, {2, usual}}, Row{true, 0, 0, {4, usual}}, Row{true, 1, 0, {1, usual}},
      Row{true, 20, 0, {20, usual}}, Row{false, 3, 0, {3, usual}},
      Row{true, 0, kChunkBytes, {4, kChunkBytes}}, Row{false, 1, kChunkBytes, {1, kChunkBytes}});
  CAPTURE(row.lent, row.pieces, row.piece_bytes);
  CHECK((ring_for(row.lent, row.pieces, row.piece_bytes) == row.ring));
}

TEST_CASE("a limit on the rate is told each byte once") {
  auto medium = make_memory_medium(64 * kChunkBytes, 256 * kChunkBytes);
  Shelf::format(*medium);
  Shelf shelf = Shelf::open(std::move(medium));
  const std::vector<std::byte> memory = pattern(3 * kBuffer + 17);
  const std::int64_t shape[] = {static_cast<std::int64_t>(memory.size())};
  TensorRef tensor = shelf.create("x", DType::uint8, shape);
  Assignment assignment = tensor.assign();
  FakeDevice device(memory);
  std::vector<std::uint64_t> told;
  assign_in_pieces(assignment, device, memory.size(), 0, [&](std::uint64_t bytes) {
    told.push_back(bytes);
    device.consumed();
  });
  assignment.done();
  CHECK(told == std::vector<std::uint64_t>{kBuffer, kBuffer, kBuffer, 17});
}

TEST_CASE("into a tensor: whole, in part, and a failure in the middle") {
  auto medium = make_memory_medium(64 * kChunkBytes, 256 * kChunkBytes);
  Shelf::format(*medium);
  Shelf shelf = Shelf::open(std::move(medium));
  const std::uint64_t size = 2 * kBuffer + kChunkBytes / 2;
  const std::int64_t shape[] = {static_cast<std::int64_t>(size)};
  auto tensor = shelf.create("x", DType::uint8, shape);
  const auto copy_in = [&](FakeDevice& device, std::uint64_t length, std::uint64_t offset) {
    Assignment assignment = tensor.assign();
    copy_in_pieces(device, {length, offset},
                   [&](std::span<const std::byte> bytes, std::uint64_t from) {
                     assignment.write(bytes, offset + from);
                     device.consumed();
                   });
    assignment.done();
  };
  std::vector<std::byte> expected = pattern(size);
  FakeDevice whole(expected);
  copy_in(whole, size, 0);
  shelf.persist(1);

  const std::uint64_t offset = kChunkBytes + 3;
  const auto part = std::vector<std::byte>(kBuffer + 100, std::byte{0x5A});
  FakeDevice device(part);
  copy_in(device, part.size(), offset);
  std::copy(part.begin(), part.end(), expected.begin() + static_cast<std::ptrdiff_t>(offset));
  std::vector<std::byte> found(size);
  tensor.read(found);
  REQUIRE(found == expected);
  shelf.persist(2);
  REQUIRE(shelf.verify().damage.empty());

  // The pieces before the failure are undone, and a new assignment goes on.
  const auto late = std::vector<std::byte>(size, std::byte{0x11});
  FakeDevice broken(late);
  broken.fail_wait = 2;
  CHECK_THROWS(copy_in(broken, size, 0));
  tensor.read_committed(found);
  CHECK(found == expected);
  tensor.read(found);
  CHECK(found == expected);
  FakeDevice again(late);
  copy_in(again, size, 0);
  shelf.persist(3);
  tensor.read_committed(found);
  CHECK(found == late);
}
