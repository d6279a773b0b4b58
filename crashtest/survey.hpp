// What lies where on a medium that holds a shelf, and whether both copies of everything are whole.
// Found by walking the format, with none of the store's code between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tensorshelf::crash {

struct Place {
  enum class What { metadata, older_root, data };
  What what = What::metadata;
  std::uint64_t at = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t object = 0;  // metadata: the same for both copies, and only for them
  std::size_t tensor = 0;    // data: index in Survey::tensors
};

struct Survey {
  std::vector<Place> places;  // of all that the newest root stands on, and the
                              // metadata of the versions that are retained beside it
  std::vector<std::string> tensors;
  // Whether the second medium, a mirror, can be read by itself: as its stamp says.
  bool second_serves = false;
  bool second_filled = false;  // and has all that the first has
  std::string damage;          // the first copy that does not verify; empty: all are whole

  const Place* find(std::uint64_t page) const;        // that lies in this page, or null
  const Place* other_copy(const Place& place) const;  // null: it has none
};

// Of a shelf that takes all of the disk but what its second medium does, below it.
Survey survey(std::span<const std::byte> disk, std::uint64_t second_bytes = 0);

}  // namespace tensorshelf::crash
