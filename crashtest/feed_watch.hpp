// Where the thread of a pipeline copies: it is not led (lead.hpp), and something may happen before
// its first copy of a save.
#pragma once

#include <functional>
#include <memory>

#include <tensorshelf/medium.hpp>

namespace tensorshelf::crash {

// Set by the thread that saves, used by the one that copies; the one waits for the other.
struct FeedWatch {
  bool copy_awaited = false;
  bool prepares = false;  // the save under way is prepared, and not launched
  std::function<void()> before_copy = {};
};

std::unique_ptr<Medium> watched(std::unique_ptr<Medium> medium, std::shared_ptr<FeedWatch> watch);

}  // namespace tensorshelf::crash
