// Reading into device memory (cuda.hpp), over whichever DeviceFill this build has.
#include <tensorshelf/cuda.hpp>

#include "feed/access.hpp"
#include "feed/cuda/copies.hpp"
#include "store/store.hpp"

namespace tensorshelf {
namespace {

template <class Tensor>
void read_of(const Tensor& tensor, Of which, const DeviceTarget& target, std::uint64_t offset) {
  const Reader::Range range = {offset, target.size_bytes, which};
  FeedAccess::store(tensor)->reader().read_parts(
      *FeedAccess::tensor(tensor), range, [&](const Reader::ReadPart& read) {
        if (target.size_bytes == 0) return;
        const auto fill = make_cuda_fill(target);
        fill_in_pieces(
            *fill, {target.size_bytes, offset},
            [&](std::span<std::byte> room, std::uint64_t to) { read(room, offset + to); });
      });
}

}  // namespace

void read_to_device(const TensorRef& tensor, const DeviceTarget& target, std::uint64_t offset) {
  read_of(tensor, Of::staged(), target, offset);
}

void read_to_device(const RetainedTensor& tensor, const DeviceTarget& target,
                    std::uint64_t offset) {
  read_of(tensor, Of::version(FeedAccess::version(tensor)), target, offset);
}

void read_committed_to_device(const TensorRef& tensor, const DeviceTarget& target,
                              std::uint64_t offset) {
  read_of(tensor, Of::committed(), target, offset);
}

}  // namespace tensorshelf
