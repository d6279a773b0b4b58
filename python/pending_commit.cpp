#include "pending_commit.hpp"

#include <pthread.h>

#include <chrono>
#include <new>
#include <utility>

#include "shared.hpp"

namespace py = pybind11;

namespace tensorshelf::python {
namespace {

unsigned forks = 0;

// How often this process is the child of a fork, counted as it happens.
unsigned forks_so_far() {
  static const int counting = ::pthread_atfork(nullptr, nullptr, [] { ++forks; });
  if (counting != 0) throw std::bad_alloc();
  return forks;
}

}  // namespace

PendingCommit::PendingCommit(std::shared_future<Commit> future)
    : future_(std::move(future)), forks_(forks_so_far()) {}

bool PendingCommit::done() const {
  refuse_in_child();
  return future_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

Commit PendingCommit::wait() const {
  refuse_in_child();
  wait_and_hear([&](std::chrono::milliseconds time) {
    return future_.wait_for(time) == std::future_status::ready;
  });
  return future_.get();
}

void PendingCommit::refuse_in_child() const {
  if (forks_so_far() == forks_) return;
  throw Error(Errc::forked, "the commit was begun by the parent of this process",
              "Wait for it there.");
}

}  // namespace tensorshelf::python
