// Assignments that several threads copy, in an order that comes again: here small ones do too, and
// the parts are dealt out one after the other.
#pragma once

#include <functional>

#include "base/side_by_side.hpp"

namespace tensorshelf::crash {

// To its end, in a thread that is not led (lead.hpp); throws what it throws.
void in_another_thread(const std::function<void()>& call);

// While it lives. The calling thread copies the first half of the chunks, another one the rest.
class DealtCopies {
 public:
  DealtCopies();
  ~DealtCopies() { sharing = before_; }
  DealtCopies(const DealtCopies&) = delete;
  DealtCopies& operator=(const DealtCopies&) = delete;

 private:
  const Sharing before_ = sharing;
};

}  // namespace tensorshelf::crash
