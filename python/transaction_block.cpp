#include "transaction_block.hpp"

#include "bindings.hpp"

namespace py = pybind11;

namespace tensorshelf::python {

void TransactionBlock::enter() {
  std::optional<Transaction> begun;
  {
    Unlocked unlocked;
    begun.emplace(shelf_.transaction());
  }
  transaction_ = std::make_shared<Transaction>(std::move(*begun));
  session_.begin(transaction_);
  session_.persisted();  // there was nothing to persist
  commit.reset();
  mine_ = true;
}

void TransactionBlock::leave(bool raised) {
  if (!std::exchange(mine_, false)) return;
  std::exception_ptr failure;
  try {
    if (!raised) try_commit();
  } catch (const std::exception&) {
    failure = std::current_exception();
  }
  session_.end(std::move(transaction_));
  if (commit) return;
  session_.discarded();
  if (failure) std::rethrow_exception(failure);
}

void TransactionBlock::try_commit() {
  call_python(before_commit_, py::tuple());
  std::optional<Commit> made;
  {
    Unlocked unlocked;
    made = transaction_->commit(step);
  }
  commit = made;
  session_.persisted();
}

}  // namespace tensorshelf::python
