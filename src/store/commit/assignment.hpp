// One assignment, of any number of writes (I13). From begin to end it holds `assigning` of its
// tensor, so that no other comes in between, and the commit gate as a writer: it is in one attempt.
// It remembers which chunks it wrote, which is enough to undo it: the attempt is as if they had not
// been written in it, and where they had been before, the tensor is spoiled.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "store/commit/stager.hpp"

namespace tensorshelf {

// Which bytes were written, as disjoint runs.
class WrittenBytes {
 public:
  void add(std::uint64_t begin, std::uint64_t end);
  bool are_all(std::uint64_t size) const {
    return runs_.size() == 1 && runs_.begin()->first == 0 && runs_.begin()->second == size;
  }

 private:
  std::map<std::uint64_t, std::uint64_t> runs_;  // ends, by begins
};

// For one thread, in which it ends; store and tensor must outlive it. A forked child that inherits
// it undoes nothing.
class StoredAssignment final : private UndoLog {
 public:
  StoredAssignment(Stager& stager, const std::shared_ptr<StoredTensor>& tensor);
  StoredAssignment(Stager& stager, const NewTensor& made);
  ~StoredAssignment();  // undoes what is not done
  StoredAssignment(const StoredAssignment&) = delete;
  StoredAssignment& operator=(const StoredAssignment&) = delete;

  void write(std::span<const std::byte> bytes, std::uint64_t offset,
             Handing handing = Handing::copy);
  void done();
  // One write, and done: after a failure it is let go.
  void write_once(std::span<const std::byte> bytes, std::uint64_t offset);
  void done_apart(NewTensor& made);  // the same for the value of one, which is no attempt's yet

  // An assignment to that shelf which this thread is inside of; null where there is none.
  static const StoredAssignment* around(const State& state);
  const StoredTensor& tensor() const { return *tensor_; }
  const std::shared_ptr<GuardedMedium>& medium() const { return state_.medium; }
  bool takes_lent() const;  // some of the tensor lies on a medium that is not mapped

 private:
  void finish();
  static State& may_begin(State& state);
  void begin(std::span<const std::byte> bytes, std::uint64_t offset,
             const FoundSlot& found) override;
  void touch(std::uint64_t chunk) override {
    if (tensor_->touched.contains(chunk)) return;
    over_own_value_ |= is_own_value(chunk);
    tensor_->touched.insert(chunk);
    first_ = std::min(first_, chunk);
    end_ = std::max(end_, chunk + 1);
  }
  void keep(std::uint64_t size_bytes) override {
    staged_bytes_ -= size_bytes;
    state_.open->staged_bytes -= size_bytes;
  }
  // What was carried is no value of the attempt's own: without it, its base's is there.
  bool is_own_value(std::uint64_t chunk) const {
    if (!tensor_->written.contains(chunk)) return false;
    return planted(Bug::carried_is_own) ||
           format::chunk_version(tensor_->staged[chunk]) == state_.open->version();
  }
  void forget_touched() noexcept;
  void undo() noexcept;
  void unlink() noexcept;

  Stager& stager_;
  State& state_;
  const std::shared_ptr<StoredTensor>& tensor_;
  QueueScope alone_;  // before the gate: who waits for it keeps no one from closing
  WriterScope inside_;
  bool in_part_ = false;  // a write did not come to its end
  bool done_ = false;
  bool carried_ = false;                     // what was in the attempt of it nobody had assigned
  bool began_ = false;                       // nothing of the tensor was in the attempt before
  bool over_own_value_ = false;              // of the same attempt
  std::uint64_t first_ = ~std::uint64_t{0};  // of the chunks that were touched
  std::uint64_t end_ = 0;
  std::uint64_t staged_bytes_ = 0;
  WrittenBytes bytes_;  // where the tensor is spoiled: one that has them all heals it

  inline static constinit thread_local StoredAssignment* innermost_ = nullptr;
  StoredAssignment* outer_ = nullptr;  // of the same thread, to another shelf
};

// Whether this thread is inside an assignment, or called by a wait of its own.
bool is_inside(const State& state);
// Errc::unsupported where it is, or where it holds a version (version_hold.hpp): it would wait for
// itself. `what` says what was called.
void refuse_inside(const State& state, const char* what);

}  // namespace tensorshelf
