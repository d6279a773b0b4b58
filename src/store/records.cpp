#include "store/records.hpp"

#include "base/planted.hpp"

namespace tensorshelf {

using format::ChunkKind;

// By its name: where it is gone, its cells may be another's by now.
bool has(const Version& version, const StoredTensor& tensor) {
  const auto there = version.names->find(tensor.layout.name);
  if (there == version.names->end() || there->second.tensor.get() != &tensor) return false;
  return format::chunk_kind(version.tree.record(tensor.cell(0))) != ChunkKind::none;
}

std::shared_ptr<Holding> hold(const StoredTensor& tensor) {
  return planted(Bug::read_holds_nothing) ? nullptr : tensor.holding.lock();
}

}  // namespace tensorshelf
