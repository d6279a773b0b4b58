#include "store/recovery/find_damage.hpp"

#include <fmt/format.h>

#include <mutex>

#include "base/planted.hpp"
#include "store/io/chunk_io.hpp"

namespace tensorshelf {

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
      RecordedChunk recorded = recorded_in(version, tensor, chunk);
      if (shared && over->tree.record(tensor.cell(chunk)) == recorded.record) continue;
      std::lock_guard lock(tensor.mutex);  // others may read it by now
      int os_error = 0;
      if (!planted(Bug::damage_looked_for_elsewhere)) recorded.holding = named.holding.get();
      const bool intact = chunk_intact(medium, seeds, recorded, &os_error);
      const bool mirrored = !planted(Bug::damaged_though_mirrored) && !intact &&
                            read_mirror(medium, seeds, recorded, chunk_scratch());
      if (!intact && !mirrored) {
        return DamagedChunk{fmt::format("chunk {} of '{}' v{} slot {} {}", chunk, name,
                                        recorded.version(), slot_name(recorded.slot()),
                                        os_error == 0 ? "fails its checksum" : "cannot be read"),
                            os_error};
      }
      if (intact && recorded.is_stored()) {
        tensor.set_verified(recorded.slot(), chunk);
      }
      done += tensor.chunk_bytes(chunk);
      if (progress) progress(done, version.tensor_bytes);
    }
  }
  return std::nullopt;
}

}  // namespace tensorshelf
