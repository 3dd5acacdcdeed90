// SPDX-License-Identifier: Apache-2.0
#include "base/quorum.h"

#include <algorithm>

namespace fairlead::quorum {
namespace {
// The first of several heads that see the holder go asks first, the next ones find its question answered.
constexpr Time rank_delay = std::chrono::milliseconds(25);
constexpr Time least_wait = std::chrono::milliseconds(20);
}  // namespace

Message Voter::answer(const Message& ask, Time now) {
  Message out{.kind = Kind::Refuse, .from = self_, .to = ask.from, .incarnation = ask.incarnation, .sequence = ask.sequence};
  if (now < silent_until_) {
    out.left = silent_until_ - now;
    return out;
  }
  if (ask.from < released_.size() && released_[ask.from].incarnation == ask.incarnation && ask.sequence <= released_[ask.from].up_to) return out;
  const bool same = last_.from == ask.from && last_.incarnation == ask.incarnation;
  if (now < until_ && !same) {
    out.holder = last_.from;
    out.left = until_ - now;
    return out;
  }
  if (!same || ask.sequence > last_.sequence) last_ = ask;
  until_ = now + timing_.ttl + timing_.margin;
  out.kind = Kind::Grant;
  return out;
}

void Voter::release(const Message& message) {
  if (released_.size() <= message.from) released_.resize(message.from + 1U);
  Released& mark = released_[message.from];
  // Of an earlier process than the one that is known: it comes too late to say anything.
  if (mark.incarnation == message.incarnation && mark.up_to >= message.sequence) return;
  const bool same = last_.from == message.from && last_.incarnation == message.incarnation;
  if (!same && mark.incarnation != 0 && mark.incarnation != message.incarnation && last_.from == message.from) return;
  mark = {message.incarnation, message.sequence};
  if (same && last_.sequence <= message.sequence) until_ = Time::min();
}

std::optional<Time> Voter::taken_until(Time now) const {
  const Time until = std::max(until_, silent_until_);
  return until > now ? std::optional(until) : std::nullopt;
}

std::optional<std::uint8_t> Voter::promised_to(Time now) const { return until_ > now ? std::optional(last_.from) : std::nullopt; }

Elector::Elector(std::uint8_t self, std::uint8_t voters, Timing timing, std::uint64_t incarnation, Time started)
    : self_(self), voters_(voters), timing_(timing), incarnation_(incarnation), voter_(self, timing, started), peers_(voters) {
  if (voters == 1) voter_.speak_at_once();
}

Time Elector::lease_until() const {
  if (!held_ || lapsed_) return Time::min();
  std::vector<Time> granted;
  for (const Peer& peer : peers_) granted.push_back(peer.granted);
  const auto nth = granted.begin() + (majority() - 1);
  std::nth_element(granted.begin(), nth, granted.end(), std::greater<>());
  return *nth == Time::min() ? Time::min() : *nth + timing_.ttl;
}

// What time alone changes.
void Elector::look(Time now) {
  if (held_ && !lapsed_ && lease_until() <= now) lapsed_ = true;
}

int Elector::refusals() const {
  return static_cast<int>(std::count_if(peers_.begin(), peers_.end(), [&](const Peer& peer) { return peer.refused >= seeking_since_; }));
}

std::vector<Message> Elector::ask(Time now) {
  const Message question{.kind = Kind::Ask, .from = self_, .to = self_, .incarnation = incarnation_, .sequence = ++sequence_, .epoch = epoch_, .serving = serving_};
  std::erase_if(sent_, [&](const auto& sent) { return sent.second + timing_.ttl <= now; });
  sent_.emplace_back(sequence_, now);
  std::vector<Message> out;
  (void)receive(voter_.answer(question, now), now);
  for (std::uint8_t to = 0; to < voters_; ++to) {
    if (to == self_) continue;
    out.push_back(question);
    out.back().to = to;
  }
  return out;
}

std::vector<Message> Elector::tick(Time now, std::uint64_t chance) {
  look(now);
  if (now < next_) return {};
  if (lapsed_) {  // its owner has to stop first
    next_ = now + timing_.renew;
    return {};
  }
  if (held_) {
    next_ = now + timing_.renew;
    return ask(now);
  }
  if (now < wait_until_) {
    next_ = wait_until_;
    return {};
  }
  if (seeking_since_ != Time::min()) {
    if (voters_ - refusals() >= majority() && now - seeking_since_ <= timing_.candidacy) {
      next_ = now + timing_.renew;
      return ask(now);
    }
    // No sooner than a promise of those that refused ends, for before that nothing can have changed.
    Time wait = timing_.ttl;
    for (const Peer& peer : peers_)
      if (peer.refused >= seeking_since_) wait = std::min(wait, peer.free_at - now);
    if (refusals() == 0) wait = Time::zero();
    return give_back(now + std::max(wait, least_wait) + Time(chance % static_cast<std::uint64_t>(Time(std::chrono::milliseconds(60)).count())));
  }
  if (const auto taken = voter_.taken_until(now)) {
    free_since_ = Time::min();
    next_ = std::min(*taken, now + timing_.renew);
    return {};
  }
  if (free_since_ == Time::min()) free_since_ = now;
  if (const Time begin = free_since_ + self_ * rank_delay + handicap_; now < begin) {
    next_ = begin;
    return {};
  }
  free_since_ = Time::min();
  seeking_since_ = now;
  next_ = now + timing_.renew;
  return ask(now);
}

std::vector<Message> Elector::receive(const Message& message, Time now) {
  look(now);
  if (message.from >= voters_ || message.to != self_) return {};
  if (message.kind == Kind::Ask) return {voter_.answer(message, now)};
  if (message.kind == Kind::Release) {
    voter_.release(message);
    if (!held_ && seeking_since_ == Time::min()) next_ = wait_until_ = Time::min();  // what it waited for may have come
    return {};
  }
  if (message.incarnation != incarnation_) return {};
  Peer& peer = peers_[message.from];
  peer.answered = now;
  if (message.sequence <= taken_back_) return {};
  if (message.kind == Kind::Refuse) {
    peer.refused = now;
    peer.free_at = now + message.left;
    // Given up as soon as there can be no majority.
    if (seeking_since_ != Time::min() && voters_ - refusals() < majority()) next_ = now;
    return {};
  }
  for (const auto& [sequence, at] : sent_)
    if (sequence == message.sequence) peer.granted = std::max(peer.granted, at);
  peer.refused = Time::min();
  if (held_ || seeking_since_ == Time::min()) return {};
  held_ = true;
  if (lease_until() <= now) held_ = false;
  else seeking_since_ = Time::min();
  return {};
}

std::vector<Message> Elector::give_back(Time until) {
  held_ = lapsed_ = false;
  seeking_since_ = free_since_ = Time::min();
  taken_back_ = sequence_;
  for (Peer& peer : peers_) peer.granted = peer.refused = Time::min();
  const Message release{.kind = Kind::Release, .from = self_, .to = self_, .incarnation = incarnation_, .sequence = sequence_};
  voter_.release(release);
  wait_until_ = next_ = until;
  std::vector<Message> out;
  for (std::uint8_t to = 0; to < voters_; ++to) {
    if (to == self_) continue;
    out.push_back(release);
    out.back().to = to;
  }
  return out;
}

bool Elector::hears(std::uint8_t voter, Time now) const {
  return voter == self_ || (voter < peers_.size() && peers_[voter].answered != Time::min() && peers_[voter].answered + timing_.ttl > now);
}

int Elector::heard(Time now) const {
  int count = 0;
  for (std::uint8_t voter = 0; voter < voters_; ++voter) count += hears(voter, now);
  return count;
}

}  // namespace fairlead::quorum
