// What a tensor is called: now, and in versions that are kept. Versions list their tensors by keys
// that lie here (Names), so a name stays for as long as the tensor does.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace tensorshelf {

// Any thread may look; one at a time may change it.
class TensorNames {
 public:
  // `first` lives for as long as this.
  explicit TensorNames(const std::string& first) noexcept : first_(first), now_(&first) {}
  TensorNames(const TensorNames&) = delete;
  TensorNames& operator=(const TensorNames&) = delete;
  ~TensorNames() {
    for (const Later* name = later_; name != nullptr;) delete std::exchange(name, name->before);
  }

  const std::string& now() const noexcept { return *now_.load(std::memory_order_acquire); }

  // The one of that text, which it has from here on.
  const std::string& keep(std::string_view text) {
    if (const std::string* there = find(text)) return *there;
    auto name = std::make_unique<const Later>(Later{std::string(text), later_});
    later_.store(name.get(), std::memory_order_release);
    return name.release()->text;
  }
  // One that it has.
  void set(std::string_view text) noexcept {
    if (const std::string* there = find(text)) now_.store(there, std::memory_order_release);
  }

  // The first of them for which chosen(name) holds; null where none does.
  template <typename Chosen>
  const std::string* find_if(Chosen chosen) const {
    if (chosen(first_)) return &first_;
    for (const Later* name = later_.load(std::memory_order_acquire); name != nullptr;
         name = name->before) {
      if (chosen(name->text)) return &name->text;
    }
    return nullptr;
  }

 private:
  struct Later {
    std::string text;
    const Later* before;
  };

  const std::string* find(std::string_view text) const {
    return find_if([text](const std::string& name) { return name == text; });
  }

  const std::string& first_;
  std::atomic<const std::string*> now_;
  std::atomic<const Later*> later_ = nullptr;
};

}  // namespace tensorshelf
