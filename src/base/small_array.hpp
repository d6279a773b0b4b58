// An array whose length is chosen once. Up to `Inline` elements it allocates nothing: a shelf of
// many small tensors is opened and closed in a fraction of the time.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

namespace tensorshelf {

template <typename T, std::size_t Inline>
class SmallArray {
 public:
  explicit SmallArray(std::size_t size) : size_(size) {
    if (size > Inline) many_ = std::make_unique<T[]>(size);
  }
  // It stays where it is: others may point into it.
  SmallArray(const SmallArray&) = delete;
  SmallArray& operator=(const SmallArray&) = delete;

  std::size_t size() const { return size_; }
  T& operator[](std::size_t i) { return data()[i]; }
  const T& operator[](std::size_t i) const { return data()[i]; }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }

 private:
  T* data() { return many_ ? many_.get() : few_.data(); }
  const T* data() const { return many_ ? many_.get() : few_.data(); }

  std::size_t size_;
  std::array<T, Inline> few_ = {};
  std::unique_ptr<T[]> many_;
};

}  // namespace tensorshelf
