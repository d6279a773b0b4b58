#include "store/recovery/find_damage.hpp"

#include <fmt/format.h>

#include <mutex>

#include "base/planted.hpp"
#include "store/io/chunk_io.hpp"

namespace tensorshelf {

using format::ChunkRecord;

std::optional<DamagedChunk> find_damage(GuardedMedium& medium, const format::Seeds& seeds,
                                        const Version& version, const Progress& progress,
                                        const Version* over) {
  std::uint64_t done = 0;
  for (const auto& [name, named] : *version.names) {
    StoredTensor& tensor = *named.tensor;
    const auto before = over == nullptr ? version.names->end() : over->names->find(name);
    const bool shared =
        over != nullptr && before != over->names->end() && before->second.tensor == named.tensor;
    for (std::uint64_t chunk = 0; chunk < tensor.layout.chunk_count(); ++chunk) {
      const ChunkRecord record = version.tree.record(tensor.cell(chunk));
      if (shared && over->tree.record(tensor.cell(chunk)) == record) continue;
      std::lock_guard lock(tensor.mutex);  // others may read it by now
      int os_error = 0;
      const Holding* const lies =
          planted(Bug::damage_looked_for_elsewhere) ? nullptr : named.holding.get();
      const RecordedChunk recorded{tensor, record, chunk, lies};
      const bool intact = chunk_intact(medium, seeds, recorded, &os_error);
      const bool mirrored = !planted(Bug::damaged_though_mirrored) && !intact &&
                            read_mirror(medium, seeds, recorded, chunk_scratch());
      if (!intact && !mirrored) {
        return DamagedChunk{
            fmt::format("chunk {} of '{}' v{} slot {} {}", chunk, name,
                        format::chunk_version(record), slot_name(format::chunk_slot(record)),
                        os_error == 0 ? "fails its checksum" : "cannot be read"),
            os_error};
      }
      if (intact && recorded.is_stored()) {
        tensor.set_verified(format::chunk_slot(record), chunk);
      }
      done += tensor.chunk_bytes(chunk);
      if (progress) progress(done, version.tensor_bytes);
    }
  }
  return std::nullopt;
}

}  // namespace tensorshelf
