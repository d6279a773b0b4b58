// A mirror is filled with what its medium has and it lacks.
//
// What is written on a medium is written on its mirror by the same call, and settled by the same
// barrier, before the flip and after it. So a mirror that the newest version names, and whose
// headers and roots are those of its medium, byte for byte, has all that these name: who commits
// without it does not name it. Where it does not, or they differ (a power loss between two words,
// an older copy, a new mirror), or its end is lost, the mirror is filled: what versions name first,
// and behind a barrier the headers. Each page and chunk is compared with its checksum on both, so
// that rot on either is not taken for the value. What is there already is not written again, unless
// an earlier filling came to no end: then it may be there in a cache alone, its flush having failed
// (I12). The mirror's stamp says so.
#pragma once

#include <cstdint>
#include <string>

#include "format/format.hpp"
#include "media/media.hpp"
#include "store/media_set/further_media.hpp"

namespace tensorshelf {

// As far as a medium's headers and roots reach.
std::uint64_t head_bytes(unsigned medium);

// Durable when it returns: what was copied, in words; "" where nothing lacked. The newest of
// `versions` is the last. Before anything but settle_lone() writes.
std::string fill_mirror(GuardedMedium& media, const AttachedMedium& mirror,
                        const format::Seeds& seeds, const Versions& versions);

// The same of what lies behind the headers and roots, for one that alone has some of those: its end
// may be lost. The next opening fills it.
void fill_behind_heads(GuardedMedium& media, const AttachedMedium& mirror,
                       const format::Seeds& seeds, const Versions& versions);

// Says of one that is not attached that what it has goes: durable when it returns.
void give_for_filling(Medium& mirror, const format::ShelfId& medium_id);
// Whether that is said there. `index` 0: it is not attached.
bool is_given_for_filling(Medium& medium, unsigned index, const format::ShelfId& medium_id);

}  // namespace tensorshelf
