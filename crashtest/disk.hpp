// The bytes of a simulated medium, with a journal to go back: exploring applies an image, lets the
// recovery write into it, and rolls both back, at the cost of what was written and not of the size.
//
// A length is not room: of a file as it was found not all need be writable (medium.hpp). So the
// disk keeps both, how far there is something to read, and how far somebody was promised room.
//
// The fingerprint changes with every byte, with the size and the room, and does not depend on the
// order of the writes that led to them, so that an image seen before is recognised.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tensorshelf::crash {

class Disk {
 public:
  explicit Disk(std::uint64_t capacity_bytes);
  ~Disk();
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;

  // Addresses are stable: views into bytes() stay valid across grow().
  std::span<const std::byte> bytes() const { return {bytes_.data(), size_bytes_}; }
  std::uint64_t size_bytes() const { return size_bytes_; }
  std::uint64_t room_bytes() const { return room_bytes_; }
  std::uint64_t capacity_bytes() const { return bytes_.size(); }
  std::uint64_t fingerprint() const;

  void write(std::uint64_t at, std::span<const std::byte> source);
  void grow(std::uint64_t size_bytes);  // never shrinks; what is new reads as zero, and is no room
  void make_room(std::uint64_t room_bytes);     // within the size; never shrinks
  void give_up_room(std::uint64_t room_bytes);  // what there is beyond; the bytes stay
  void cut(std::uint64_t size_bytes);  // bytes and room beyond are gone; what grows there is zero

  struct Mark {
    std::size_t entries = 0;
  };
  Mark mark() const { return {journal_.size()}; }
  void rollback(Mark mark);  // marks nest: the newest is rolled back first

 private:
  struct Entry {  // what there was before one write or growth
    std::uint64_t at;
    std::uint64_t old_bytes_at;  // in old_bytes_
    std::uint64_t size_bytes;    // of the medium
    std::uint64_t room_bytes;
    std::uint64_t content_hash;
  };
  void remember(std::uint64_t at, std::uint64_t length);

  const std::span<std::byte> bytes_;  // of zeros, which take memory where they are written to
  std::uint64_t size_bytes_ = 0;
  std::uint64_t room_bytes_ = 0;
  std::uint64_t content_hash_ = 0;
  std::vector<Entry> journal_;
  std::vector<std::byte> old_bytes_;
};

}  // namespace tensorshelf::crash
