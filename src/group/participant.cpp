// A rank's side of the protocol: from its vote to what it has to do.
#include <utility>

#include <tensorshelf/group.hpp>

#include "base/check.hpp"
#include "base/planted.hpp"

namespace tensorshelf {

using Kind = GroupMessage::Kind;

Epoch Participant::begin() {
  TENSORSHELF_ASSERT(ended());
  ++epoch_.number;
  state_ = State::saving;
  cause_.clear();
  aborted_.reset();
  return epoch_;
}

GroupMessage Participant::prepared() {
  TENSORSHELF_ASSERT(state_ == State::saving);
  state_ = State::said_yes;
  return again().value();
}

GroupMessage Participant::refused(std::string_view cause) {
  TENSORSHELF_ASSERT(state_ == State::saving);
  state_ = State::said_no;
  cause_ = cause.substr(0, kMostCauseBytes);
  return again().value();
}

Todo Participant::receive(const GroupMessage& decision) {
  if (decision.kind != Kind::commit && decision.kind != Kind::abort) return Todo::nothing;
  const bool ours = planted(Bug::group_generation_ignored) ? decision.epoch.number == epoch_.number
                                                           : decision.epoch == epoch_;
  if (!ours && !planted(Bug::group_epoch_ignored)) return Todo::nothing;
  const bool commit = decision.kind == Kind::commit;
  const bool overtaken = state_ == State::saving && planted(Bug::group_vote_overtaken);
  if (state_ == State::said_yes || overtaken) {
    end(decision);
    return commit ? Todo::commit : Todo::abandon;
  }
  if (state_ == State::said_no && !commit) end(decision);
  return Todo::nothing;  // who has not voted hears of an abort when it has
}

void Participant::end(const GroupMessage& decision) {
  state_ = State::ended;
  if (decision.kind == Kind::abort) aborted_ = decision;
}

std::optional<GroupMessage> Participant::again() const {
  if (state_ != State::said_yes && state_ != State::said_no) return std::nullopt;
  const bool yes = state_ == State::said_yes;
  return GroupMessage{yes ? Kind::yes : Kind::no, epoch_, rank_, cause_};
}

}  // namespace tensorshelf
