// Where a new tensor lies: on which media, and how it chooses its slots there.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "store/places/heap.hpp"
#include "store/state/state.hpp"

namespace tensorshelf {

struct Where {
  StripeOrder media;  // several: striped over them, in this order
  Placement placement = Placement::whole;
};

// As `asked`, where anything is; else as OpenOptions::place says; else small ones on the first and
// large ones striped over all media that are not mapped. Errc::bad_argument for one that is not
// there.
Where choose_where(State& state, std::string_view name, std::uint64_t size_bytes,
                   std::span<const unsigned> asked);
// Where one lies that there is, and whether that is there.
Where where_of(const format::TensorLayout& layout);
bool is_on(const format::TensorLayout& layout, const Where& where);
// Errc::bad_argument where that is none of those beside the first on which anything may be placed.
void check_medium(const State& state, unsigned number);

// What a tensor is, wherever it lies.
format::TensorLayout unplaced(const StoredTensor& tensor);

}  // namespace tensorshelf
