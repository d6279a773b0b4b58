// What tensors there are, in the open attempt: made, replaced, erased, renamed, resized, moved to
// other media. The media may grow for them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "store/room/placing.hpp"
#include "store/state/state.hpp"

namespace tensorshelf {

class Stager;

class Tensors {
 public:
  Tensors(State& state, Stager& stager) : state_(state), stager_(stager) {}

  std::shared_ptr<StoredTensor> create(std::string_view name, DType dtype,
                                       std::span<const std::int64_t> shape, Made made,
                                       std::span<const unsigned> media = {});
  // The same in two steps: its value is assigned in between.
  NewTensor make(std::string_view name, DType dtype, std::span<const std::int64_t> shape, Made made,
                 std::span<const unsigned> media = {});
  void add(const NewTensor& tensor);
  void erase(std::string_view name);

  // reshape.cpp
  void rename(std::string_view from, std::string_view to);
  // Another one in its place, with what of its value has room there. Returns the old one where it
  // has so many rows.
  std::shared_ptr<StoredTensor> resize(std::string_view name, std::int64_t rows);
  void reserve(std::uint64_t size_bytes);  // of tensors that are made later
  // Another one in its place, on other media; the old one where it is there.
  std::shared_ptr<StoredTensor> move(std::string_view name, std::span<const unsigned> media);
  void remove_medium(unsigned number);

 private:
  format::TensorLayout check_new(std::string_view name, DType dtype,
                                 std::span<const std::int64_t> shape, Made made);
  std::optional<ClosedGate> close_for_growth();
  // The same where it is chosen on which media one is to lie: anew, where one was removed
  // meanwhile.
  std::optional<ClosedGate> close_over(Where& where, std::string_view name,
                                       std::uint64_t size_bytes, std::span<const unsigned> media);
  // The gate is closed for all of these.
  void check_may_add(std::string_view name, Made made);
  std::shared_ptr<StoredTensor> replaceable(std::string_view name, const char* to);
  NewTensor place(format::TensorLayout layout, Made made, const Where& where);
  std::shared_ptr<StoredTensor> remake(StoredTensor& old, format::TensorLayout layout,
                                       const Where& where);
  void add_behind_gate(const NewTensor& made);
  void take_up_value(const NewTensor& made);
  std::optional<std::string> one_on(unsigned medium) const;  // a tensor that lies there
  bool is_made_on(unsigned medium) const;                    // one whose value is assigned yet
  bool taken_out(unsigned medium);
  void open_for_removal(const Named& named);
  void remove(const Named& named) noexcept;

  State& state_;
  Stager& stager_;
  // By make(), and not yet added. Behind the closed gate; in no list of the attempt's.
  std::vector<std::weak_ptr<StoredTensor>> being_made_;
};

}  // namespace tensorshelf
