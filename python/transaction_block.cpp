#include "transaction_block.hpp"

#include "shared.hpp"

namespace py = pybind11;

namespace tensorshelf::python {

void TransactionBlock::enter() {
  transaction_ = std::make_shared<Transaction>(without_gil([&] { return shelf_.transaction(); }));
  session_.begin(transaction_);
  session_.persisted();  // there was nothing to persist
  commit.reset();
  mine_ = true;
  ended_ = false;
}

void TransactionBlock::leave(bool raised) {
  if (!std::exchange(mine_, false)) return;
  ended_ = true;
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
  commit = without_gil([&] { return transaction_->commit(step); });
  session_.persisted();
}

}  // namespace tensorshelf::python
