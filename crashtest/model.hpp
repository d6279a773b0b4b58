// What a shelf must hold in one version, kept beside the shelf and never on its medium, and the
// comparison of the two. Tensor bytes come from stamp(), so that bytes of another version, another
// tensor or another place never compare equal.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tensorshelf/shelf.hpp>

namespace tensorshelf::crash {

struct Model {
  std::uint64_t version = 0;
  std::optional<std::uint64_t> step;
  std::map<std::string, std::vector<std::byte>> tensors;  // all of dtype uint8, one-dimensional
  std::vector<std::shared_ptr<const Model>> older;  // that are retained beside it, the oldest first
  unsigned keep = 0;                                // as its root says
  unsigned in_flight = 1;

  std::uint64_t floor() const { return older.empty() ? version : older.front()->version; }
  std::shared_ptr<const Model> find(std::uint64_t version) const;  // among the older; null: none
  // What is retained beside the version after this one, where the shelf keeps so many.
  std::vector<std::shared_ptr<const Model>> retained_by_next(unsigned keep) const;
};

// What buffers hold before bytes are read into them: no stamp, and not the zeros of a new tensor.
inline constexpr std::byte kUnread{0xAA};

// Fills bytes [offset, offset + size) of a tensor as its assignment number `serial` does.
void stamp(std::span<std::byte> bytes, std::string_view tensor, std::uint64_t serial,
           std::uint64_t offset);
// All bytes of a tensor "a", as its assignment of that number fills them.
std::vector<std::byte> stamped(std::int64_t size_bytes, std::uint64_t serial);

// Empty when the shelf holds exactly the model: version, step, names, layouts, every byte, of each
// version that is retained.
std::string difference(const Model& model, const Shelf& shelf);
// The same of the newest version alone, and of one that is retained.
std::string newest_difference(const Model& model, const Shelf& shelf);
std::string retained_difference(const Model& model, const RetainedVersion& version);
// Which versions are offered: all that the model has, or the newest alone where recovery had to go
// back to it.
std::string offered_difference(const Model& model, const Shelf& shelf);

std::string summary(const Model& model);  // "version 3, step 30, 2 tensors"

}  // namespace tensorshelf::crash
