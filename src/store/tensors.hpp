// What tensors there are: made, replaced, erased, in the open attempt. The medium may grow for
// them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "store/state.hpp"

namespace tensorshelf {

class Tensors {
 public:
  explicit Tensors(State& state) : state_(state) {}

  std::shared_ptr<StoredTensor> create(std::string_view name, DType dtype,
                                       std::span<const std::int64_t> shape, bool replace);
  // The same in two steps: its value is assigned in between.
  NewTensor make(std::string_view name, DType dtype, std::span<const std::int64_t> shape,
                 bool replace);
  void add(const NewTensor& made);
  void erase(std::string_view name);
  void reserve(std::uint64_t size_bytes);  // of tensors that are made later

 private:
  format::TensorLayout check_new(std::string_view name, DType dtype,
                                 std::span<const std::int64_t> shape, bool replace);
  std::optional<ClosedGate> close_for_growth();
  // The gate is closed for all of these.
  void check_may_add(std::string_view name, bool replace);
  NewTensor place(format::TensorLayout layout, bool replace);
  void add_behind_gate(const NewTensor& made);
  void take_up_value(const NewTensor& made);
  void open_for_removal(const StoredTensor& tensor);
  void remove(StoredTensor& tensor) noexcept;

  State& state_;
};

}  // namespace tensorshelf
