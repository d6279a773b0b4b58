// What the pipeline, and copies to a device, see of a shelf and its handles: the store behind them.
#pragma once

#include <cstdint>
#include <memory>

#include <tensorshelf/shelf.hpp>

namespace tensorshelf {

struct FeedAccess {
  static const std::shared_ptr<Store>& store(const Shelf& shelf) { return shelf.store_; }
  static const std::weak_ptr<const ShelfFile>& file(const Shelf& shelf) { return shelf.file_; }
  static const std::shared_ptr<Store>& store(const TensorRef& tensor) { return tensor.store_; }
  static const std::shared_ptr<StoredTensor>& tensor(const TensorRef& tensor) {
    return tensor.tensor_;
  }
  static const std::shared_ptr<Store>& store(const RetainedTensor& tensor) { return tensor.store_; }
  static const std::shared_ptr<StoredTensor>& tensor(const RetainedTensor& tensor) {
    return tensor.tensor_;
  }
  static std::uint64_t version(const RetainedTensor& tensor) { return tensor.version_; }
};

}  // namespace tensorshelf
