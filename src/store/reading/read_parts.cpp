// Reading for who takes the bytes elsewhere, part by part (feed/device_source.cpp).
#include <mutex>

#include "base/check.hpp"
#include "store/reading/reader.hpp"
#include "store/state/kept_places.hpp"

namespace tensorshelf {

void Reader::read_parts(StoredTensor& tensor, const Range& range,
                        const std::function<void(const ReadPart&)>& body) {
  tensor.check_range(range.offset, range.size_bytes);
  const Use use(state_);
  std::lock_guard lock(tensor.mutex);
  const auto holding = keep_places_of(state_, tensor);
  const RecordedChunks now = records(tensor, range.offset, range.size_bytes, range.which);
  body([&](std::span<std::byte> bytes, std::uint64_t offset) {
    TENSORSHELF_ASSERT(offset >= range.offset && bytes.size() <= range.size_bytes &&
                       offset - range.offset <= range.size_bytes - bytes.size());
    read_locked(now, offset, bytes);
  });
}

}  // namespace tensorshelf
