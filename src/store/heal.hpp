// Chunks that are damaged, written anew from where they are sound, by a commit of its own.
#pragma once

#include <optional>

#include <tensorshelf/options.hpp>
#include <tensorshelf/report.hpp>

#include "store/commit/freezer.hpp"
#include "store/commit/sealer.hpp"
#include "store/commit/stager.hpp"
#include "store/reading/reader.hpp"
#include "store/state/state.hpp"

namespace tensorshelf {

class Healing {
 public:
  Healing(State& state, Reader& reader, Stager& stager, Freezer& freezer, Sealer& sealer)
      : state_(state), reader_(reader), stager_(stager), freezer_(freezer), sealer_(sealer) {}

  // Errors as Shelf::heal(). All of the newest version is looked at, or what was found before.
  VerifyReport heal(const Progress& progress);
  VerifyReport heal(VerifyReport found);

 private:
  void check_may_heal();
  std::optional<Flight> freeze_healed(VerifyReport& report);

  State& state_;
  Reader& reader_;
  Stager& stager_;
  Freezer& freezer_;
  Sealer& sealer_;
};

}  // namespace tensorshelf
