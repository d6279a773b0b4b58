// What the Python face remembers of an open shelf: which thread assigned what last, so that a
// handle can tell an assignment that came after it, the edits and the transaction under way. It
// locks nothing: the GIL guards it, and what has to wait does so in the store. What Python makes of
// what the store did is decided here, and not in the bindings (bind_*.cpp), which convert.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>

#include <pybind11/pybind11.h>

#include <tensorshelf/shelf.hpp>

namespace tensorshelf::python {

// All calls need the GIL, and are for what the store has accepted.
class Session {
 public:
  Session() = default;
  ~Session() { end(transaction_); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Assignments are numbered, in the order in which they are noted.
  // Tensors are told apart by their ids: a name may be another's by the time it is noted.
  std::uint64_t note(std::uint64_t tensor);  // its number
  std::uint64_t assignments() const { return assignments_; }
  // True when the last assignment to the tensor was made after that number, and by this thread:
  // what another thread does has no order with what this one looks up.
  bool assigned_since(std::uint64_t tensor, std::uint64_t number) const;
  void forget(std::uint64_t tensor);                       // which is gone
  std::size_t remembered() const { return last_.size(); }  // how many tensors

  // What became of the assignments so far. Where values come back, that is an assignment of theirs
  // by this thread, and an edit() under way finds out that its tensor has changed.
  void persisted();
  void discarded();
  void rolled_back();
  void saved();  // by a pipeline, which assigns what it is given
  // An attempt that was prepared; `found` at opening: then the tensors do not show it yet.
  void resolved(Decision decision, bool found);

  // By the ids of their tensors.
  pybind11::dict edits() const { return edits_; }

  // Assigns all of the tensor and notes it. Gives its number, or 0 where an edit() is under way,
  // with nothing done; it is looked for within the assignment, for whose end one that begins waits.
  std::uint64_t assign_whole(TensorRef& tensor, std::span<const std::byte> bytes);

  // The short way of an assignment, for what training does most: a whole tensor from a contiguous
  // array of its own layout. Gives the number of the assignment, or 0 where it is something else,
  // or the session will not have it: nothing was done, and Python code goes the long way, which
  // says what is wrong, or takes it.
  std::uint64_t assign_array(TensorRef& tensor, pybind11::handle array, std::string_view dtype);

  // Puts another tensor with that value in the place of what has the name, if anything has.
  void replace(Shelf& shelf, const std::string& name, DType dtype,
               std::span<const std::int64_t> shape, std::span<const std::byte> bytes);

  // Kept here, so that a block that is dropped within it does not end it. end() discards what was
  // not committed; by then another thread may have begun the next.
  void begin(std::shared_ptr<Transaction> transaction) {
    transaction_ = std::move(transaction);
    transacting_ = std::this_thread::get_id();
  }
  // Whether this thread is within it: what it asks to be committed is refused.
  bool in_transaction() const { return transaction_ && transacting_ == std::this_thread::get_id(); }
  void end(std::shared_ptr<Transaction> transaction);

 private:
  struct Assigned {
    std::uint64_t number = 0;
    std::thread::id thread = {};
    bool gone = false;  // deleted since, and not persisted so
  };

  std::shared_ptr<Transaction> transaction_;
  std::thread::id transacting_;
  pybind11::dict edits_;
  std::uint64_t assignments_ = 0;
  std::uint64_t persisted_ = 0;                       // of which these are in a version, or dropped
  Assigned all_;                                      // a rollback
  std::unordered_map<std::uint64_t, Assigned> last_;  // by ids of tensors
  bool some_gone_ = false;
};

}  // namespace tensorshelf::python
