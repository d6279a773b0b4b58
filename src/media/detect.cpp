// Which medium a file or device gets. Only the automatic tier chooses; an explicit one is obeyed or
// refused. The one fallback there is (no libpmem2 in this build) is named in the promises.
#include <fmt/format.h>

#include <utility>

#include <tensorshelf/error.hpp>

#include "media/file_system.hpp"
#include "media/media.hpp"

namespace tensorshelf {
namespace {

// A medium with a note of how it came to be chosen; all else is the inner one's.
class NotedMedium final : public Medium {
 public:
  NotedMedium(std::unique_ptr<Medium> inner, std::string note)
      : inner_(std::move(inner)), note_(std::move(note)) {}

  Ticket write(std::uint64_t at, std::span<const std::byte> bytes, std::uint64_t seed) override {
    return inner_->write(at, bytes, seed);
  }
  void wait(const Ticket& ticket) override { inner_->wait(ticket); }
  void barrier() override { inner_->barrier(); }
  void store_word(std::uint64_t at, std::uint64_t word) override { inner_->store_word(at, word); }
  void read(std::uint64_t at, std::span<std::byte> bytes) override { inner_->read(at, bytes); }
  std::span<const std::byte> view(const Extent& extent) override { return inner_->view(extent); }
  std::uint64_t reserve(std::uint64_t size_bytes) override { return inner_->reserve(size_bytes); }
  Promises promises() const override {
    Promises promises = inner_->promises();
    promises.notes.push_back(note_);
    return promises;
  }

 private:
  std::unique_ptr<Medium> inner_;
  std::string note_;
};

std::unique_ptr<Medium> choose_for_file(std::shared_ptr<ShelfFile> file,
                                        const OpenOptions& options) {
  const FileSystem system = probe_file_system(file->fd());
  const bool mappable = system.dax || system.tmpfs;
  if (mappable && pmem_supported()) {
    return make_pmem_medium(std::move(file), options.max_size_bytes);
  }
  auto block = make_block_medium(std::move(file), options.max_size_bytes, options.block);
  if (!mappable) return block;
  return std::make_unique<NotedMedium>(
      std::move(block),
      fmt::format("the file could be mapped ({}{}), but this build has no libpmem2: install "
                  "libpmem2-dev and build again",
                  system.name, system.dax ? ", DAX" : ""));
}

}  // namespace

std::unique_ptr<Medium> make_medium(std::shared_ptr<ShelfFile> file, const OpenOptions& options) {
  const bool dax_device = file->kind() == FileKind::dax_device;
  switch (options.tier) {
    case Tier::pmem:
      return make_pmem_medium(std::move(file), options.max_size_bytes);
    case Tier::block:
      if (dax_device) {
        throw Error(
            Errc::unsupported,
            fmt::format("{} is a DevDAX device, which can only be mapped", file->path().native()),
            "leave the tier automatic, or use tier=\"pmem\"");
      }
      break;
    case Tier::automatic:
      if (dax_device) return make_pmem_medium(std::move(file), 0);
      if (file->kind() == FileKind::regular) return choose_for_file(std::move(file), options);
      break;
  }
  return make_block_medium(std::move(file), options.max_size_bytes, options.block);
}

}  // namespace tensorshelf
