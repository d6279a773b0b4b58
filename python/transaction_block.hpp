// What `with shelf.transaction():` holds. Entering and leaving are native calls, between whose
// steps no Ctrl-C can come. One that is heard while its end waits for others discards it; from the
// freeze on it is heard when that is done.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <utility>

#include <pybind11/pybind11.h>

#include <tensorshelf/shelf.hpp>

#include "session.hpp"

namespace tensorshelf::python {

// All calls need the GIL. The shelf and the session outlive it.
class TransactionBlock {
 public:
  // `before_commit` is called first of all at the end of a block that raised nothing.
  TransactionBlock(Shelf& shelf, Session& session, pybind11::object before_commit)
      : shelf_(shelf), session_(session), before_commit_(std::move(before_commit)) {}

  void enter();
  // Commits where the block raised nothing, and else, or where that fails, discards. What failed is
  // thrown. A second call does nothing.
  void leave(bool raised);
  bool ended() const { return ended_; }  // and was not entered again

  std::optional<std::uint64_t> step;
  std::optional<Commit> commit;  // that it made

 private:
  void try_commit();

  Shelf& shelf_;
  Session& session_;
  pybind11::object before_commit_;
  bool mine_ = false;  // is under way
  bool ended_ = false;
  std::shared_ptr<Transaction> transaction_;
};

}  // namespace tensorshelf::python
