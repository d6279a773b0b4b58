#include "store/snapshot.hpp"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include <tensorshelf/error.hpp>

#include "base/planted.hpp"
#include "media/media.hpp"
#include "store/commit/assignment.hpp"
#include "store/format_shelf.hpp"
#include "store/open_path.hpp"
#include "store/places/split.hpp"

namespace tensorshelf {
namespace {

// Copies a tensor of a version that is held. Zeros stay zeros, without being written.
void copy_tensor(Store& from, Store& to, const VersionHold& held, std::string_view name,
                 StoredTensor& tensor, std::span<std::byte> room,
                 const std::function<void(std::uint64_t)>& note) {
  const auto& layout = tensor.layout;
  const auto copy = to.tensors().create(name, layout.dtype, layout.shape, Made::anew);
  const auto assignment = to.assign(copy);
  for (std::uint64_t at = 0; at < layout.size_bytes;) {
    const auto [size, bytes] = from.reader().piece(tensor, Of::version(held.version()), at, room);
    if (!bytes.empty()) assignment->write(bytes, at);
    at += size;
    note(size);
  }
  assignment->done();
}

// Returns its step.
std::optional<std::uint64_t> copy_all(Store& from, Store& to, std::optional<std::uint64_t> version,
                                      const Progress& progress) {
  const auto holding = from.follower().hold(version, VersionHold::By::thread);
  const VersionHold& held = *holding;
  const auto room = std::make_unique_for_overwrite<Reader::PieceRoom>();
  std::uint64_t done = 0;
  const auto note = [&](std::uint64_t size) {
    done += size;
    if (progress) progress(done, held.tensor_bytes());
  };
  for (const auto& [name, named] : held.names()) {
    copy_tensor(from, to, held, name, *named.tensor, room->bytes, note);
  }
  return held.step();
}

}  // namespace

// The file has a temporary name until it is whole and durable.
Commit write_snapshot(Store& from, const std::filesystem::path& path, const OpenOptions& options,
                      std::optional<std::uint64_t> version) {
  from.refuse_inside("snapshot() was called");
  std::error_code ignored;  // then creating it says why
  if (std::filesystem::exists(path, ignored)) {
    throw Error(Errc::exists, fmt::format("there is something at {} already", path.string()),
                "Choose another path: a snapshot takes the place of nothing.");
  }
  auto file = std::make_shared<ShelfFile>(ShelfFile::create(path));
  OpenOptions chosen = {
      .mode = Mode::create,
      .tier = options.tier,
      .max_size_bytes = options.max_size_bytes,
      .block = options.block,
      .progress = options.progress,
      .keep = options.keep,
      .in_flight = options.in_flight,
      .placement = options.placement,
  };
  chosen.zero_room = false;  // half of its slots may never be written to
  auto medium = make_medium(file, chosen);
  format_shelf(*medium, split_of(chosen));
  const auto to = open_store(shelf_media(std::move(medium)), chosen, path.string());
  if (planted(Bug::snapshot_named_early)) file->publish(false);
  const auto step = copy_all(from, *to, version, options.progress);
  const Commit commit = to->persist(step);  // nothing is held any more
  to->close();
  if (!planted(Bug::snapshot_named_early)) file->publish(false);
  return commit;
}

}  // namespace tensorshelf
