// Messages as bytes, little-endian:
//
//     magic 4  kind 1  reserved 1  cause bytes 2  rank 4  generation 8  number 8  cause
#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <limits>

#include <tensorshelf/error.hpp>
#include <tensorshelf/group.hpp>

#include "base/copy_hash.hpp"

namespace tensorshelf {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::uint32_t kMagic = 0x31475354;  // "TSG1"

struct Head {
  std::uint32_t magic = kMagic;
  std::uint8_t kind = 0;
  std::uint8_t reserved = 0;
  std::uint16_t cause_bytes = 0;
  std::uint32_t rank = 0;
  std::uint32_t generation_low = 0;  // in halves: no padding
  std::uint32_t generation_high = 0;
  std::uint32_t number_low = 0;
  std::uint32_t number_high = 0;
};
static_assert(sizeof(Head) == 28);

std::uint32_t low(std::uint64_t number) { return static_cast<std::uint32_t>(number); }
std::uint32_t high(std::uint64_t number) { return static_cast<std::uint32_t>(number >> 32); }
std::uint64_t joined(std::uint32_t low, std::uint32_t high) {
  return std::uint64_t{high} << 32 | low;
}

}  // namespace

std::uint64_t next_generation(std::uint64_t seen, std::uint32_t random) {
  if (high(seen) == std::numeric_limits<std::uint32_t>::max()) {
    throw Error(Errc::full, fmt::format("generation {} of the group is the last", seen),
                "Begin a new group, with new shelves.");
  }
  return joined(random, high(seen) + 1);
}

std::string encode(const GroupMessage& message) {
  const std::string_view cause = std::string_view(message.cause).substr(0, kMostCauseBytes);
  Head head;
  head.kind = static_cast<std::uint8_t>(message.kind);
  head.cause_bytes = static_cast<std::uint16_t>(cause.size());
  head.rank = message.rank;
  head.generation_low = low(message.epoch.generation);
  head.generation_high = high(message.epoch.generation);
  head.number_low = low(message.epoch.number);
  head.number_high = high(message.epoch.number);
  std::string bytes(sizeof head, '\0');
  std::memcpy(bytes.data(), &head, sizeof head);
  return bytes += cause;
}

GroupMessage decode_group_message(std::string_view bytes) {
  Head head;
  const bool whole = bytes.size() >= sizeof head;
  if (whole) std::memcpy(&head, bytes.data(), sizeof head);
  const bool known = head.kind >= static_cast<std::uint8_t>(GroupMessage::Kind::yes) &&
                     head.kind <= static_cast<std::uint8_t>(GroupMessage::Kind::abort);
  if (!whole || head.magic != kMagic || !known || head.reserved != 0 ||
      head.cause_bytes > kMostCauseBytes || bytes.size() != sizeof head + head.cause_bytes) {
    throw Error(Errc::corrupt, fmt::format("{} bytes are no message of a group", bytes.size()),
                "Give the group a store, or a prefix in it, of its own; and all ranks the same "
                "tensorshelf release.");
  }
  return {static_cast<GroupMessage::Kind>(head.kind),
          {joined(head.generation_low, head.generation_high),
           joined(head.number_low, head.number_high)},
          head.rank,
          std::string(bytes.substr(sizeof head))};
}

std::uint64_t checksum(std::span<const std::byte> bytes, std::uint64_t seed) {
  return hash_bytes(bytes, seed);
}

}  // namespace tensorshelf
