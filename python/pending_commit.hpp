// A commit in the background, for whoever waits for it. Not in a forked child: there the thread
// that commits is not, and nothing ever ends (Errc::forked).
#pragma once

#include <future>

#include <tensorshelf/report.hpp>

namespace tensorshelf::python {

// All calls need the GIL.
class PendingCommit {
 public:
  explicit PendingCommit(std::shared_future<Commit> future);

  bool done() const;
  Commit wait() const;  // wakes now and then, so that Ctrl-C is heard; throws what the commit threw

 private:
  void refuse_in_child() const;

  std::shared_future<Commit> future_;
  unsigned forks_;
};

}  // namespace tensorshelf::python
