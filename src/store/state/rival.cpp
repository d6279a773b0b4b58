#include "store/state/rival.hpp"

#include <tensorshelf/error.hpp>

namespace tensorshelf {

void RivalWatch::look() {
  if (looked_ || one_machine_) return;
  look_here();
  looked_ = true;
}

void RivalWatch::look_again() {
  if (one_machine_) return;
  try {
    look_here();
  } catch (const Error& error) {
    if (error.code() == Errc::busy) health_.fail(error.what());
    throw;
  }
}

}  // namespace tensorshelf
