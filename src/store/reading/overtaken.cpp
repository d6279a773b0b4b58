#include "store/reading/overtaken.hpp"

#include <fmt/format.h>

#include <mutex>

#include "base/planted.hpp"
#include "media/pins.hpp"

namespace tensorshelf {
namespace {

// A writer that outruns is known while it is there: what it wrote over, and has closed since,
// passes for damage.
bool is_let_be(const State& state, std::uint64_t version) {
  {
    const std::lock_guard lock(state.structure);
    if (!state.versions.holds.lets_be(version)) return false;
  }
  return !state.medium->pins()->is_outrun();
}

}  // namespace

void throw_if_overtaken(const State& state, std::uint64_t version) {
  if (planted(Bug::older_judged_by_newest)) version = state.version;
  if (state.writable || planted(Bug::overtaken_not_noticed) || is_let_be(state, version)) return;
  throw_if_given_up(state, version);
}

void throw_if_given_up(const State& state, std::uint64_t version) {
  const bool overtaken = state.in_doubt
                             ? is_overtaken_in_doubt(*state.medium, state.opened)
                             : is_overtaken(*state.medium, state.opened, state.seeds, version);
  if (!overtaken && !planted(Bug::reader_always_stale)) return;
  throw Error(
      Errc::stale,
      fmt::format("version {} of {} was overwritten by its writer meanwhile", version, state.path),
      "refresh() goes on to the newest version; where its writer is fast, pin() keeps a version as "
      "it is, and keep= there leaves each readable for longer.");
}

}  // namespace tensorshelf
