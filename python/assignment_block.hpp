// One assignment of several writes, as `with` holds it: done where its block ends well, undone
// where an exception leaves it. Entering and leaving are native calls: Ctrl-C, which strikes
// between two steps of Python code, cannot come between beginning an assignment and entering its
// block.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "session.hpp"
#include "shared.hpp"

namespace tensorshelf::python {

class AssignmentBlock {
 public:
  using Begin = std::function<Assignment()>;

  // No tensor where it makes one, no session where there is nothing to note.
  AssignmentBlock(Begin begin, std::optional<TensorRef> tensor, Session* session);

  void enter();
  void leave(bool raised);
  void write(pybind11::handle source, std::uint64_t offset);
  void write_from_device(const DeviceBytes& source, std::uint64_t offset);
  void read_into(pybind11::handle target, std::uint64_t offset) const;

 private:
  Assignment& under_way() const;

  Begin begin_;
  std::optional<TensorRef> tensor_;
  Session* session_;
  std::unique_ptr<Assignment> assignment_;
};

}  // namespace tensorshelf::python
