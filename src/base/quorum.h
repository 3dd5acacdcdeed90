// SPDX-License-Identifier: Apache-2.0
// Who may act: leases that a majority of voters hold in memory. Pure: time and messages come in, messages and a deadline go out.
//
// A candidate asks every voter again and again; a voter promises itself to one candidate at a time. The candidate counts a promise from when it *sent* the question, for `ttl`; the voter keeps it from when it *received* it, for
// `ttl + margin`. So as long as clocks run at nearly the same pace (margin per ttl), nobody else can have a majority before the first one's lease is over, whatever is lost, late, twice or out of order, and no clocks are compared.
// After Gray and Cheriton, Leases (SOSP 1989); the voter's silence after its start as in Trencseni, Gazso, Reinhardt, PaxosLease (2012).
#pragma once
#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

namespace fairlead::quorum {

// Since some moment of this machine, by a clock that never goes back and counts while the machine sleeps. Means nothing elsewhere.
using Time = std::chrono::nanoseconds;

struct Timing {
  Time ttl = std::chrono::milliseconds(800);
  Time margin = std::chrono::milliseconds(200);  // for the pace of clocks, and for killing what the lease allowed
  Time renew = std::chrono::milliseconds(50);
  Time candidacy = std::chrono::milliseconds(150);  // without a majority for so long: everything is given back
};

enum class Kind : std::uint8_t { Ask = 1, Grant = 2, Refuse = 3, Release = 4 };

struct Message {
  Kind kind = Kind::Ask;
  std::uint8_t from = 0, to = 0;   // numbers of voters
  std::uint64_t incarnation = 0;   // of the candidate's process, by chance: in answers too
  std::uint64_t sequence = 0;      // of the question; of a Release: the last that it takes back
  // Refuse: who has the promise (same as `from` of its questions; 255: nobody, the voter is silent after its start), and for how much longer.
  std::uint8_t holder = 255;
  Time left{};
  // Ask of a holder: what it holds, for those who look on.
  std::uint64_t epoch = 0;
  bool serving = false;
  friend bool operator==(const Message&, const Message&) = default;
};

class Voter {
 public:
  Voter(std::uint8_t self, Timing timing, Time started) : self_(self), timing_(timing), silent_until_(started + timing.ttl + timing.margin) {}
  // For the only voter there is: nobody else can have a majority without it.
  void speak_at_once() { silent_until_ = Time::min(); }

  Message answer(const Message& ask, Time now);
  void release(const Message& message);
  // Is it promised to somebody (or silent), and until when?
  std::optional<Time> taken_until(Time now) const;
  std::optional<std::uint8_t> promised_to(Time now) const;
  const Message& last_ask() const { return last_; }  // of the one that it is or was promised to

 private:
  struct Released { std::uint64_t incarnation = 0, up_to = 0; };
  const std::uint8_t self_;
  const Timing timing_;
  Time silent_until_;
  Time until_ = Time::min();
  Message last_;
  std::vector<Released> released_;  // by candidate: questions up to here were taken back, one that comes late promises nothing
};

// One candidate, with its own voter inside. Its owner acts while `holds`, and has stopped by `lease_until()`: that is kept by a timer, and not by asking again.
class Elector {
 public:
  // `self` below `voters`. Witnesses have the highest numbers and no Elector.
  Elector(std::uint8_t self, std::uint8_t voters, Timing timing, std::uint64_t incarnation, Time started);

  // What is to be sent now. To be called at each `next()`. `chance`: any number; spreads candidates that failed together.
  std::vector<Message> tick(Time now, std::uint64_t chance);
  // What came; what is to be sent for it.
  std::vector<Message> receive(const Message& message, Time now);
  Time next() const { return next_; }

  // Time::min(): no lease. A lease that ran out stays lost until `give_back`, also when late promises arrive.
  Time lease_until() const;
  bool holds(Time now) const { return lease_until() > now; }
  bool lapsed(Time now) const { return held_ && !holds(now); }
  // Takes back every question, and asks nothing before `until`. Only when what acted under the lease is known to have ended.
  std::vector<Message> give_back(Time until);

  // Lets others be first: it asks this much later than it would when nobody is promised to. Never keeps it from asking where nobody else does.
  void handicap(Time by) { handicap_ = by; }
  void tell(std::uint64_t epoch, bool serving) { epoch_ = epoch, serving_ = serving; }
  const Voter& voter() const { return voter_; }
  // Voters whose answer came within the last ttl, itself among them.
  int heard(Time now) const;
  bool hears(std::uint8_t voter, Time now) const;

 private:
  std::vector<Message> ask(Time now);
  void look(Time now);
  int refusals() const;  // in this candidacy
  int majority() const { return voters_ / 2 + 1; }

  struct Peer {
    Time granted = Time::min();   // when the newest question that it granted was sent
    Time answered = Time::min();  // when its last answer came
    Time refused = Time::min();   // when it last refused
    Time free_at = Time::min();   // when the promise that it spoke of then ends
  };
  const std::uint8_t self_, voters_;
  const Timing timing_;
  const std::uint64_t incarnation_;
  Voter voter_;
  std::vector<Peer> peers_;
  std::uint64_t sequence_ = 0, taken_back_ = 0;
  std::vector<std::pair<std::uint64_t, Time>> sent_;  // questions of the last ttl
  Time handicap_{}, next_ = Time::min(), wait_until_ = Time::min(), seeking_since_ = Time::min(), free_since_ = Time::min();
  bool held_ = false, lapsed_ = false;
  std::uint64_t epoch_ = 0;
  bool serving_ = false;
};

}  // namespace fairlead::quorum
