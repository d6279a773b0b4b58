// A save of a pipeline's, for whoever waits for it, as PendingCommit is a commit.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include <tensorshelf/pipeline.hpp>

#include <pybind11/pybind11.h>

namespace tensorshelf::python {

// All calls need the GIL. Waits wake now and then, so that Ctrl-C is heard; they throw what the
// save failed with.
class SavePending {
 public:
  explicit SavePending(SaveTicket ticket) : ticket_(std::move(ticket)) {}

  bool staged() const { return ticket_.staged(); }
  bool done() const { return ticket_.done(); }
  void wait_staged() const;
  Commit wait() const;
  void wait_prepared() const;     // of one with an id
  pybind11::dict times() const;   // by name, in seconds of time.monotonic(); those that came
  pybind11::list copies() const;  // (number of the source, thread, begin, end) each

 private:
  SaveTicket ticket_;
};

}  // namespace tensorshelf::python
