// The tensors of one version, by name.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string_view>

#include "store/places/holding.hpp"

namespace tensorshelf {

struct StoredTensor;

// A tensor of one version.
struct Named {
  std::shared_ptr<StoredTensor> tensor;
  std::shared_ptr<Holding> holding;
  std::uint32_t records_leaf = 0;  // the leaf of the version's manifest that holds its record
};

// By their names in that version, which lie in the tensors themselves (tensor_names.hpp).
using Names = std::map<std::string_view, Named>;

// anew: no tensor has its name; in_place: one has, whose place it takes.
enum class Made { anew, in_place };

// One that is part of no attempt yet: nobody finds it, and no commit has it.
struct NewTensor {
  Named named;
  Made made = Made::anew;
  std::uint64_t staged_bytes = 0;
};

// What the tensor is called there, or null where it is not: by its names, for where it is gone, its
// cells may be another's by now. What is asked for State::structure is held, or the version.
const std::string* name_in(const Names& names, const StoredTensor& tensor);
const Named* named_in(const Names& names, const StoredTensor& tensor);  // or what it is there
// Handles follow their tensors: those that are named now are there, under their names of now and
// where they lie now, those that were named before alone are erased. Takes each tensor's mutex.
void update_handles(const Names& before, const Names& now);
}  // namespace tensorshelf
