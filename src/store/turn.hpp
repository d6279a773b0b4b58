// Whose turn it is to freeze or drop the open attempt. A transaction keeps the turn from its begin
// to its end; what its own thread asks for meanwhile is refused, for it would wait for itself.
#pragma once

#include <fmt/format.h>

#include "store/store.hpp"

namespace tensorshelf {

class Store::Turn {
 public:
  explicit Turn(Store& store) : store_(&store) {
    if (store.transacting_.load() == std::this_thread::get_id()) {
      throw Error(Errc::transaction,
                  fmt::format("{} is in a transaction of this thread", store.path_),
                  "Let it end: it commits, or discards, all that was changed within it.");
    }
    store.turns_.lock(*store.room_, store.patience_);
  }
  ~Turn() {
    if (store_ != nullptr) store_->turns_.unlock(*store_->room_);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  // Beyond this scope, until give_back().
  void keep() {
    store_->transacting_ = std::this_thread::get_id();
    store_ = nullptr;
  }
  static void give_back(Store& store) {
    if (store.fork_guard_.in_child()) return;  // where nobody waits
    store.transacting_ = std::thread::id();
    store.turns_.unlock(*store.room_);
  }
  class GiveBack {
   public:
    explicit GiveBack(Store& store) : store_(store) {}
    ~GiveBack() { give_back(store_); }
    GiveBack(const GiveBack&) = delete;
    GiveBack& operator=(const GiveBack&) = delete;

   private:
    Store& store_;
  };

 private:
  Store* store_;
};

}  // namespace tensorshelf
