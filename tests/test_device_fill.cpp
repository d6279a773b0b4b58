// The order of copies to a device (src/feed/device_copy.hpp), on one made of host memory that
// notices every misuse: a buffer filled while a copy reads it, a copy still under way at the end.
#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>
#include <vector>

#include "catch.hpp"
#include "feed/device_copy.hpp"

using namespace tensorshelf;

namespace {

constexpr std::uint64_t kBuffer = 4 * kChunkBytes;

// Copies late, as a real device may: when somebody waits.
class FakeTarget final : public DeviceFill {
 public:
  explicit FakeTarget(std::uint64_t size) : bytes(size) {
    for (auto& buffer : buffers_) buffer.bytes.resize(kBuffer);
  }

  std::uint64_t buffer_bytes() const override { return kBuffer; }

  std::span<std::byte> room(unsigned index, std::uint64_t size_bytes) override {
    if (++rooms_ == fail_room) throw std::runtime_error("room failed");
    REQUIRE(size_bytes <= kBuffer);
    arrive(buffers_.at(index));
    return std::span(buffers_[index].bytes).first(size_bytes);
  }

  void begin(unsigned index, std::uint64_t to, std::uint64_t size_bytes) override {
    if (++begins_ == fail_begin) throw std::runtime_error("begin failed");
    Buffer& buffer = buffers_.at(index);
    REQUIRE_FALSE(buffer.under_way);
    buffer.under_way = true;
    buffer.to = to;
    buffer.size = size_bytes;
    ends.push_back(to + size_bytes);
  }

  void finish() override {
    if (fail_finish) throw std::runtime_error("finish failed");
    for (auto& buffer : buffers_) arrive(buffer);
  }

  void settle() noexcept override {
    for (auto& buffer : buffers_) buffer.under_way = false;
    settled = true;
  }

  unsigned under_way() const { return buffers_[0].under_way + buffers_[1].under_way; }

  int fail_room = 0;  // of which call; 0: none
  int fail_begin = 0;
  bool fail_finish = false;
  bool settled = false;
  std::vector<std::byte> bytes;
  std::vector<std::uint64_t> ends;  // of pieces

 private:
  struct Buffer {
    std::vector<std::byte> bytes;
    bool under_way = false;
    std::uint64_t to = 0;
    std::uint64_t size = 0;
  };

  void arrive(Buffer& buffer) {
    if (!buffer.under_way) return;
    std::copy_n(buffer.bytes.begin(), buffer.size,
                bytes.begin() + static_cast<std::ptrdiff_t>(buffer.to));
    buffer.under_way = false;
  }

  std::array<Buffer, kFillBuffers> buffers_;
  int rooms_ = 0;
  int begins_ = 0;
};

std::byte value_at(std::uint64_t place) { return static_cast<std::byte>(place * 2654435761 >> 13); }

void produce(std::span<std::byte> room, std::uint64_t to) {
  for (std::uint64_t i = 0; i < room.size(); ++i) room[i] = value_at(to + i);
}

}  // namespace

TEST_CASE("a target is filled in pieces that end where chunks end") {
  struct Row {
    std::uint64_t size;
    std::uint64_t offset;
    std::size_t pieces;
  };
  const Row rows[] = {
      {0, 0, 0},
      {1, kChunkBytes - 1, 1},
      {kBuffer, 1, 2},
      {3 * kBuffer, 0, 3},  // each buffer more than once
      {2 * kBuffer + 7, kChunkBytes + 5, 3},
  };
  for (const Row& row : rows) {
    INFO(row.size << " bytes at " << row.offset);
    FakeTarget device(row.size);
    fill_in_pieces(device, {row.size, row.offset}, produce);
    bool same = true;
    for (std::uint64_t i = 0; i < row.size; ++i) same &= device.bytes[i] == value_at(i);
    CHECK(same);
    CHECK(device.ends.size() == row.pieces);
    for (std::size_t i = 0; i + 1 < device.ends.size(); ++i) {
      CHECK((row.offset + device.ends[i]) % kChunkBytes == 0);
    }
    CHECK(device.settled);
  }
}

TEST_CASE("a part of a target is filled, and nothing beside it") {
  const std::uint64_t begin = 3;
  const std::uint64_t end = begin + 2 * kBuffer + 5;
  FakeTarget device(end + 1);
  fill_in_pieces(device, {.size_bytes = end - begin, .offset = 9, .from = begin}, produce);
  bool same = true;
  for (std::uint64_t i = begin; i < end; ++i) same &= device.bytes[i] == value_at(i);
  CHECK(same);
  CHECK((device.bytes[begin - 1] == std::byte{0} && device.bytes[end] == std::byte{0}));
  CHECK(device.ends ==
        std::vector<std::uint64_t>{kBuffer - 9 + begin, 2 * kBuffer - 9 + begin, end});
}

TEST_CASE("a piece is on its way to the device while the next one is produced") {
  FakeTarget device(4 * kBuffer);
  std::vector<unsigned> under_way;
  fill_in_pieces(device, {4 * kBuffer, 0}, [&](std::span<std::byte>, std::uint64_t) {
    under_way.push_back(device.under_way());
  });
  CHECK(under_way == std::vector<unsigned>{0, 1, 1, 1});
}

TEST_CASE("a failure anywhere leaves when nothing is on its way to the device any more") {
  for (int at = 1; at <= 5; ++at) {
    for (const std::string where : {"room", "begin", "produce", "finish"}) {
      INFO(where << " " << at);
      FakeTarget device(5 * kBuffer);
      if (where == "room") device.fail_room = at;
      if (where == "begin") device.fail_begin = at;
      device.fail_finish = where == "finish";
      int produced = 0;
      const auto body = [&](std::span<std::byte>, std::uint64_t) {
        if (++produced == at && where == "produce") throw std::runtime_error("produce failed");
      };
      CHECK_THROWS_WITH(fill_in_pieces(device, {5 * kBuffer, 0}, body), where + " failed");
      CHECK(device.settled);
      CHECK(device.under_way() == 0);
    }
  }
}
