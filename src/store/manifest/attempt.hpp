// One try to make a version, as a value. While it is open it takes what is assigned, created and
// erased; frozen it is a Version, of which nothing changes any more but that it becomes durable:
//
//   open -> frozen -> described -> (prepared ->) flipped -> published
//
// An open one may be dropped; those that are frozen are published in their order, or fail together;
// a prepared one may be abandoned by whoever asked for it (I14).
//
// An attempt is over its predecessor, which may itself be in flight, and is named by (incarnation,
// sequence), which is never used again (I5).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "format/format.hpp"
#include "store/manifest/named.hpp"
#include "store/manifest/records.hpp"
#include "store/manifest/tensor.hpp"
#include "store/manifest/tree.hpp"
#include "store/places/claims.hpp"

namespace tensorshelf {

// What a root says and what it names, in memory. Read by any number of threads.
struct Version {
  format::Root root = {};
  Tree tree;
  std::shared_ptr<const Names> names;
  std::uint64_t tensor_bytes = 0;
  bool renames = false;  // when it was loaded, a tensor of it had another name
  bool moved = false;    // or lay elsewhere
  struct Loaded {        // one of those in `names`
    StoredTensor* tensor;
    Holding* holding;
  };
  std::vector<Loaded> loaded = {};  // as their records lie, until the store owns their places
  Claims claims = {};               // all that it names, as long

  std::uint64_t number() const { return format::word_version(root.word); }
  Capacities capacities() const;
};

inline RecordedChunk recorded_in(const Version& version, StoredTensor& tensor,
                                 std::uint64_t chunk) {
  return {tensor, chunk, version.tree.record(tensor.cell(chunk)), version.number()};
}

struct Attempt {
  Attempt(std::shared_ptr<const Version> over, std::uint64_t sequence_number);

  std::uint64_t version() const { return base->number() + 1; }

  // The tensors of the version, for a change.
  Names& change_names();
  // Whether it has another value than its base, and not merely lies elsewhere. The gate is closed.
  bool changed() const { return names_changed || dirty.size() > carried; }

  const std::uint64_t sequence;
  const std::shared_ptr<const Version> base;
  Tree tree;
  std::shared_ptr<const Names> names;
  std::shared_ptr<Names> own_names;  // where those are no other attempt's or version's
  bool names_changed = false;
  bool moved = false;  // some of their slots lie elsewhere now
  std::uint64_t tensor_bytes;
  std::uint64_t abandoned = 0;     // the version whose abandoning took some of these changes with
                                   // it, and only discard() is allowed; 0: none
  bool removed_committed = false;  // a tensor that a version still has
  std::vector<std::shared_ptr<StoredTensor>> dirty;
  std::size_t carried = 0;  // of these: nobody assigned them (carry.cpp)
  std::atomic<std::uint64_t> staged_bytes = 0;
};

// Whether the version has the tensor, and a value of it.
bool has(const Version& version, const StoredTensor& tensor);

// Handles of a version that was loaded have its names, where some of its tensors had others.
void take_names(const Version& loaded) noexcept;
// Where the tensors of these lie, as the newest that has each says; they are in rising order. Takes
// each tensor's mutex.
void take_places(std::span<const std::shared_ptr<Version>> loaded) noexcept;

// An attempt that is frozen: a version on its way.
struct Flight {
  std::shared_ptr<Version> version;
  std::uint64_t data_bytes = 0;
  std::uint64_t last_ticket = 0;  // of what was staged
  MediumSet media = {};           // to which it wrote
};

}  // namespace tensorshelf
