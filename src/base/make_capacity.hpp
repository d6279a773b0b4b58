// Capacity of a list ahead of its use, so that what follows cannot fail half-way.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace tensorshelf {

// After it, `more` elements can be appended without memory. Grows as push_back() does.
template <typename T>
void make_capacity(std::vector<T>& list, std::size_t more = 1) {
  const std::size_t wanted = list.size() + more;
  if (list.capacity() < wanted) list.reserve(std::max(wanted, 2 * list.capacity()));
}

}  // namespace tensorshelf
