// Collecting votes, and deciding: Coordinator and Relay.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include <tensorshelf/error.hpp>
#include <tensorshelf/group.hpp>

#include "base/planted.hpp"

namespace tensorshelf {

using Kind = GroupMessage::Kind;

namespace {

bool is_vote(const GroupMessage& message) {
  return message.kind == Kind::yes || message.kind == Kind::no;
}

std::vector<char> nobody(std::uint32_t members) {
  if (members == 0) {
    throw Error(Errc::bad_argument, "a group of 0 members", "Give the number of ranks, 1 or more.");
  }
  return std::vector<char>(members);
}

bool all(const std::vector<char>& said_yes) {
  return std::ranges::find(said_yes, 0) == said_yes.end();
}

std::vector<std::uint32_t> silent(const std::vector<char>& said_yes) {
  std::vector<std::uint32_t> ranks;
  for (std::uint32_t rank = 0; rank < said_yes.size(); ++rank) {
    if (said_yes[rank] == 0) ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace

Coordinator::Coordinator(std::uint32_t members, Epoch last)
    : said_yes_(nobody(members)), decided_(last) {}

std::optional<GroupMessage> Coordinator::receive(const GroupMessage& vote) {
  if (!is_vote(vote) || vote.rank >= said_yes_.size()) return std::nullopt;
  const bool ours = vote.epoch.generation == decided_.generation;
  if (!ours && !planted(Bug::group_old_vote_counted)) return std::nullopt;
  const std::uint64_t number = vote.epoch.number;
  if (number <= decided_.number) return decided_before(vote);
  if (number != decided_.number + 1) return std::nullopt;  // of nobody who follows the protocol
  if (vote.kind == Kind::no && !planted(Bug::group_no_overheard)) {
    return decide({Kind::abort, vote.epoch, vote.rank, vote.cause});
  }
  said_yes_[vote.rank] = 1;
  const auto yes = static_cast<std::size_t>(std::ranges::count(said_yes_, 1));
  const bool most = planted(Bug::group_majority_decides) && 2 * yes > said_yes_.size();
  if (!all(said_yes_) && !most) return std::nullopt;
  return decide({Kind::commit, vote.epoch, vote.rank, ""});
}

// Each member votes on one epoch after the other, and none is committed without its yes. So who
// still asks for an older one than the last committed asks for one that was aborted.
GroupMessage Coordinator::decided_before(const GroupMessage& vote) const {
  if (planted(Bug::group_decision_forgotten)) {
    return {Kind::abort, vote.epoch, vote.rank, "it is not known any more"};
  }
  for (const auto& last : {committed_, aborted_}) {
    if (last && last->epoch == vote.epoch) return *last;
  }
  return {Kind::abort, vote.epoch, vote.rank, "it was aborted before others that were"};
}

GroupMessage Coordinator::decide(GroupMessage decision) {
  decided_ = decision.epoch;
  (decision.kind == Kind::commit ? committed_ : aborted_) = decision;
  if (!planted(Bug::group_votes_kept)) std::ranges::fill(said_yes_, 0);
  return decision;
}

std::vector<std::uint32_t> Coordinator::awaited() const { return silent(said_yes_); }

// ---- relay --------------------------------------------------------------------------------------

Relay::Relay(std::uint32_t members_below, std::uint32_t rank_above, Epoch last)
    : rank_(rank_above), decided_(last), said_yes_(nobody(members_below)) {}

Relay::Step Relay::receive_vote(const GroupMessage& vote) {
  if (!is_vote(vote) || vote.rank >= said_yes_.size()) return {};
  if (vote.epoch.generation != decided_.generation) return {};
  // What was decided before only those above know by heart.
  if (vote.epoch.number <= decided_.number) {
    if (last_ && last_->epoch == vote.epoch) return {{}, last_};
    return {GroupMessage{vote.kind, vote.epoch, rank_, vote.cause}, {}};
  }
  if (vote.epoch.number != decided_.number + 1) return {};
  if (vote_) return {vote_, {}};  // sent before, and perhaps lost
  if (vote.kind == Kind::yes) {
    said_yes_[vote.rank] = 1;
    if (!all(said_yes_) && !planted(Bug::group_relay_early)) return {};
  }
  vote_ = GroupMessage{vote.kind, vote.epoch, rank_, vote.cause};
  return {vote_, {}};
}

Relay::Step Relay::receive_decision(const GroupMessage& decision) {
  if (decision.kind != Kind::commit && decision.kind != Kind::abort) return {};
  if (decision.epoch.generation != decided_.generation) return {};
  if (decision.epoch.number > decided_.number) {
    decided_ = decision.epoch;
    last_ = decision;
    vote_.reset();
    std::ranges::fill(said_yes_, 0);
  }
  return {{}, decision};
}

std::optional<GroupMessage> Relay::again() const { return vote_; }

std::vector<std::uint32_t> Relay::awaited() const {
  if (vote_) return {};
  return silent(said_yes_);
}

}  // namespace tensorshelf
