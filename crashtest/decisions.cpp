// The runner's part with prepared attempts: prepare, resolve, abandon, and what is refused between.
#include <fmt/format.h>

#include <stdexcept>

#include "runner.hpp"

namespace tensorshelf::crash {

std::string prepared_id(std::size_t index) { return fmt::format("attempt {}", index); }

std::string prepared_difference(const Recording& recording, std::optional<std::size_t> index,
                                const std::optional<Prepared>& shown) {
  if (!index || !shown) {
    if (index) return "a prepared attempt is lost (I14)";
    return shown ? fmt::format("'{}' is prepared, and should not be", shown->id) : "";
  }
  const Model& model = recording.prepared[*index];
  if (shown->version != model.version || shown->step != model.step ||
      shown->id != prepared_id(*index)) {
    return fmt::format("'{}' is prepared as version {}, in place of '{}' as {}", shown->id,
                       shown->version, prepared_id(*index), model.version);
  }
  return {};
}

std::string resolved_difference(const Model& prepared, const Model& before, Shelf& shelf,
                                bool unreadable_once) {
  try {
    shelf.resolve(Decision::commit);
  } catch (const Error& error) {
    return error.code() == Errc::corrupt || error.code() == Errc::io ? "" : error.what();
  }
  if (shelf.version() != prepared.version) return "what was prepared became another version";
  if (shelf.names().size() != prepared.tensors.size()) return "what was prepared lacks tensors";
  for (const auto& [name, expected] : prepared.tensors) {
    const TensorRef tensor = shelf.find(name).value();
    std::vector<std::byte> bytes(expected.size(), kUnread);
    try {
      tensor.read(bytes);
    } catch (const Error& error) {
      const auto there = before.tensors.find(name);
      const bool written = there == before.tensors.end() || there->second != expected;
      if (error.code() == Errc::corrupt && (!written || unreadable_once)) continue;
      return fmt::format("of what was prepared, {}: {}", name, error.what());
    }
    if (bytes != expected) return fmt::format("of what was prepared, {} has wrong bytes", name);
  }
  return {};
}

void Runner::expect(Errc code, const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    if (error.code() == code) return;
    throw;
  }
  throw std::runtime_error(fmt::format("a call is not refused ({})", code_name(code)));
}

// Whether the operation changes the shelf, which waits for a decision: then it is refused.
bool Runner::refused(const Op& op) {
  if (!found_) return false;
  switch (op.verb) {
    case Verb::lease:
    case Verb::hold:
    case Verb::drop:
    case Verb::reopen:
    case Verb::resolve:
    case Verb::abandon:
      return false;
    default:
      expect(Errc::unresolved, [this] { shelf_->persist(); });
      return true;
  }
}

void Runner::prepare() {
  land_all();
  if (prepared_) return expect(Errc::unresolved, [this] { shelf_->prepare(); });
  prepare_by([this](auto step, const std::string& id) { return shelf_->prepare(step, id); });
}

void Runner::prepare_by(const Preparing& call) {
  const std::size_t index = recording_.prepared.size();
  const Model next = next_version(true);
  mark(recording_.log, Mark::preparing, index);
  recording_.prepared.push_back(next);
  const Prepared made = call(next.step, prepared_id(index));
  mark(recording_.log, Mark::prepared, index);
  if (made.version != next.version || made.step != next.step) {
    throw std::runtime_error(fmt::format("prepare() returned version {}", made.version));
  }
  under_ = working_;
  under_.tensors = recording_.history.back().tensors;
  under_.step = recording_.history.back().step;
  prepared_ = index;
  working_ = next;
  changed_ = false;
}

void Runner::resolve() {
  if (!prepared_) return expect(Errc::bad_argument, [this] { shelf_->resolve(Decision::commit); });
  const std::size_t index = recording_.history.size();
  mark(recording_.log, Mark::began, index);
  const Model model = recording_.prepared[*prepared_];
  recording_.history.push_back(model);
  const auto commit = shelf_->resolve(Decision::commit).commit;
  mark(recording_.log, Mark::acked, index);
  mark(recording_.log, Mark::decided, *prepared_);
  acked_ = index;
  if (!commit || commit->version != model.version || commit->step != model.step) {
    throw std::runtime_error("resolve() returned another version");
  }
  if (found_) working_ = model;
  found_ = false;
  prepared_.reset();
  if (const std::string text = offered_difference(model, *shelf_); !text.empty()) {
    throw std::runtime_error("resolved: " + text);
  }
}

void Runner::abandon() {
  if (!prepared_) return expect(Errc::bad_argument, [this] { shelf_->resolve(Decision::abandon); });
  mark(recording_.log, Mark::abandoning, *prepared_);
  shelf_->resolve(Decision::abandon);
  mark(recording_.log, Mark::decided, *prepared_);
  prepared_.reset();
  found_ = false;
  working_ = under_;
  if (changed_ && transaction_) {
    expect(Errc::abandoned, [this] { transaction_->commit(1); });
  } else if (changed_) {
    expect(Errc::abandoned, [this] { shelf_->persist(); });
    shelf_->discard();
  }
  changed_ = false;
}

// While an attempt is prepared nothing is committed behind it.
bool Runner::refused_commit(const std::function<void()>& call) {
  if (!prepared_) return false;
  expect(Errc::unresolved, call);
  return true;
}

// After an opening: what was prepared is, and waits.
void Runner::note_prepared() {
  const auto shown = shelf_->prepared();
  const std::string text = prepared_difference(recording_, prepared_, shown);
  if (!text.empty()) throw std::runtime_error("after opening, without a crash: " + text);
  found_ = prepared_.has_value();
  under_ = working_;
  if (prepared_) mark(recording_.log, Mark::prepared, *prepared_);
  if (!prepared_) mark(recording_.log, Mark::decided, 0);
}

}  // namespace tensorshelf::crash
