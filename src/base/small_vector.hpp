// A vector of plain values. Up to `Inline` of them it allocates nothing, as SmallArray does, but it
// may be copied, and its length may change.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <type_traits>
#include <utility>
#include <vector>

namespace tensorshelf {

template <typename T, std::size_t Inline>
requires std::is_trivially_copyable_v<T>
class SmallVector {
 public:
  using value_type = T;

  SmallVector() = default;
  explicit SmallVector(std::size_t size) { resize(size); }
  SmallVector(const SmallVector&) = default;
  SmallVector& operator=(const SmallVector&) = default;
  SmallVector(SmallVector&& other) noexcept
      : size_(std::exchange(other.size_, 0)), few_(other.few_), many_(std::move(other.many_)) {}
  SmallVector& operator=(SmallVector&& other) noexcept {
    size_ = std::exchange(other.size_, 0);
    few_ = other.few_;
    many_ = std::move(other.many_);
    return *this;
  }

  // Those that are new are zero.
  void resize(std::size_t size) {
    if (size > Inline && size_ <= Inline) many_.assign(few_.begin(), few_.begin() + size_);
    if (size > Inline) many_.resize(size);
    if (size <= Inline && size_ > Inline) std::copy_n(many_.begin(), size, few_.begin());
    if (size <= Inline && size > size_) std::fill(few_.begin() + size_, few_.begin() + size, T{});
    size_ = size;
  }
  template <typename Iterator>
  void assign(Iterator first, Iterator last) {
    resize(static_cast<std::size_t>(std::distance(first, last)));
    std::copy(first, last, begin());
  }
  void push_back(const T& value) {
    const T added = value;
    resize(size_ + 1);
    data()[size_ - 1] = added;
  }
  void pop_back() { resize(size_ - 1); }

  std::size_t size() const { return size_; }
  T* data() { return size_ > Inline ? many_.data() : few_.data(); }
  const T* data() const { return size_ > Inline ? many_.data() : few_.data(); }
  T& operator[](std::size_t i) { return data()[i]; }
  const T& operator[](std::size_t i) const { return data()[i]; }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }

  friend bool operator==(const SmallVector& a, const SmallVector& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  std::size_t size_ = 0;
  std::array<T, Inline> few_ = {};
  std::vector<T> many_;
};

}  // namespace tensorshelf
