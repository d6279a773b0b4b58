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

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "format/format.hpp"
#include "store/manifest/tensor.hpp"
#include "store/manifest/tree.hpp"
#include "store/places/claims.hpp"
#include "store/places/holding.hpp"

namespace tensorshelf {

class Medium;

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

// What the tensor is called there, or null where it is not: by its names, for where it is gone, its
// cells may be another's by now. What is asked for State::structure is held, or the version.
const std::string* name_in(const Names& names, const StoredTensor& tensor);
const Named* named_in(const Names& names, const StoredTensor& tensor);  // or what it is there
// Whether the version has the tensor, and a value of it.
bool has(const Version& version, const StoredTensor& tensor);

// Handles follow their tensors: those that are named now are there, under their names of now and
// where they lie now, those that were named before alone are erased. Takes each tensor's mutex.
void update_handles(const Names& before, const Names& now);
// Those of a version that was loaded, where some of its tensors had others.
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

// Where roots lie, and under which words: what writing one needs to know.
struct Homes {
  using Words = std::array<std::array<std::uint64_t, format::kCopies>, format::kMaxSlots>;
  Words words = {};  // that lie in the homes now: a root is described under the old one

  // The first sequence above `after` for an attempt over that root whose tag is in neither copy of
  // its home: under a word with its own tag it would pass for one that was flipped.
  std::uint64_t next_sequence(const format::Root& over, std::uint64_t incarnation,
                              std::uint64_t after) const;
};

struct Press {  // what a version is written with
  Medium& medium;
  const format::Seeds& seeds;
  std::shared_ptr<Heap> heap;
  Homes& homes;
};

// Writes the changed pages of the manifest to fresh places, and both copies of the root under the
// old word. Returns the last ticket; metadata_bytes receives what it wrote.
std::uint64_t describe(Version& version, const Press& press, std::uint64_t& metadata_bytes);

// Stores the word in both copies of the home: from here on the version is there.
void flip(const Version& version, const Press& press);

}  // namespace tensorshelf
