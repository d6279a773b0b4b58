#include "store/records.hpp"

#include "base/planted.hpp"

namespace tensorshelf {

using format::ChunkKind;

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

bool has(const Version& version, const StoredTensor& tensor) {
  if (name_in(*version.names, tensor) == nullptr) return false;
  return format::chunk_kind(version.tree.record(tensor.cell(0))) != ChunkKind::none;
}

std::shared_ptr<Holding> hold(const StoredTensor& tensor) {
  return planted(Bug::read_holds_nothing) ? nullptr : tensor.holding.lock();
}

}  // namespace tensorshelf
