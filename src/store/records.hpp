// What is asked of a tensor, and what is said of its chunks.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "store/attempt.hpp"

namespace tensorshelf {

struct State;

// Whose value is asked for: with all that was assigned, the newest committed one's, or that of a
// version that is retained.
class Of {
 public:
  enum class Kind { staged, committed, version };

  static Of staged() { return Of(Kind::staged, 0); }
  static Of committed() { return Of(Kind::committed, 0); }
  static Of version(std::uint64_t number) { return Of(Kind::version, number); }

  Kind kind() const { return kind_; }
  std::uint64_t number() const { return number_; }  // of a version

 private:
  Of(Kind kind, std::uint64_t number) : kind_(kind), number_(number) {}
  Kind kind_;
  std::uint64_t number_;
};

struct Record : format::ChunkRecord {
  std::uint64_t seen_in = 0;  // the version that says so, which a reader's writer may overtake
};
class Records {  // of some chunks of a tensor, as they were at one moment
 public:
  explicit Records(std::uint64_t first) : first_(first) {}
  const Record& operator[](std::uint64_t chunk) const {
    return chunk == first_ ? one_ : more_[chunk - first_ - 1];
  }

 private:
  friend class Reader;
  std::uint64_t first_;
  Record one_ = {};
  std::vector<Record> more_;
};

// What the tensor is called there, or null where it is not: by its names, for where it is gone, its
// cells may be another's by now. What is asked for State::structure is held, or the version.
const std::string* name_in(const Names& names, const StoredTensor& tensor);
const Named* named_in(const Names& names, const StoredTensor& tensor);  // or what it is there
// Whether the version has the tensor, and a value of it.
bool has(const Version& version, const StoredTensor& tensor);

// Before its records are looked up: the version that has an erased tensor may be dropped while it
// is read, and what it owned be another's (I3). The shelf is in use, and the tensor's mutex held.
std::shared_ptr<Holding> keep_places_of(const State& state, const StoredTensor& tensor);

}  // namespace tensorshelf
