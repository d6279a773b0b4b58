#include "store/manifest/named.hpp"

#include <mutex>
#include <string>

#include "base/planted.hpp"
#include "store/manifest/tensor.hpp"

namespace tensorshelf {

const std::string* name_in(const Names& names, const StoredTensor& tensor) {
  return tensor.names.find_if([&](const std::string& name) {
    const auto there = names.find(name);
    return there != names.end() && there->second.tensor.get() == &tensor;
  });
}

const Named* named_in(const Names& names, const StoredTensor& tensor) {
  const std::string* const called = name_in(names, tensor);
  return called == nullptr ? nullptr : &names.find(*called)->second;
}

void update_handles(const Names& before, const Names& now) {
  for (const auto& [name, named] : before) {
    if (name_in(now, *named.tensor) != nullptr) continue;
    std::lock_guard lock(named.tensor->mutex);
    named.tensor->erased = true;
  }
  for (const auto& [name, named] : now) {
    std::lock_guard lock(named.tensor->mutex);
    named.tensor->erased = false;
    named.tensor->lie_at(named.holding);
    if (!planted(Bug::renamed_name_kept)) named.tensor->names.set(name);
  }
}

}  // namespace tensorshelf
