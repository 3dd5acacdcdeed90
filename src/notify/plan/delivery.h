// SPDX-License-Identifier: Apache-2.0
// What is sent now, what waits and what is given up, of everything on its way to one topic. Pure.
#pragma once
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "notify/plan/event.h"
#include "notify/plan/topic.h"

namespace fairlead::notify {

// One event's way to one target, kept in status.deliveries of its Notification.
struct Delivery {
  enum class State { Waiting, Delivered, GaveUp };
  std::string target;
  State state = State::Waiting;
  int attempts = 0;              // that have ended
  std::optional<Instant> next;   // not before; nothing: at once
  std::optional<Instant> since;  // Delivered, GaveUp: when
  std::string reason;            // of the last attempt that failed; no secrets
  std::int64_t generation = 0;   // of the topic at the last attempt: an edited topic is tried at once
  friend bool operator==(const Delivery&, const Delivery&) = default;
};

struct Letter {
  kube::ObjectKey key;
  std::string uid, version;
  Instant made{};
  Event event;
  std::string problem;               // the event cannot be read: nobody made it that way but a hand
  std::vector<Delivery> deliveries;  // empty: just made
  std::size_t bytes = 0;             // of a published message
};
Letter read_letter(const kube::Json& notification);
kube::Json letter_status(const Letter& letter);  // {state: Waiting|Delivered|GaveUp|..., deliveries: [...]}

// After `attempts` failures: 1 s doubling to 5 minutes, of which `chance` in [0, 1) takes up to a half away, so that many do not come at once.
std::chrono::nanoseconds retry_after(int attempts, double chance);

inline constexpr std::size_t kKept = 200;            // Notifications of a topic; beyond it the oldest go, those that are delivered first
inline constexpr std::size_t kKeptBytes = 512 << 10;  // of published messages of a topic; beyond it the oldest of those that are over go
inline constexpr auto kPatience = std::chrono::hours(24 * 7);  // then a delivery is given up, and one that is over is forgotten

struct Send {
  std::size_t letter = 0;  // of DeliveryPlan::letters
  std::string target;
};
struct Removal {
  kube::ObjectKey key;
  std::string uid, version, why;
  bool undelivered = false;
};
struct DeliveryPlan {
  std::vector<Letter> letters;       // oldest first, with what was decided now: each whose letter_status differs from what is stored is to be written before anything is sent
  std::vector<Send> sends;           // one for a target at a time
  std::vector<Removal> removals;
  kube::Json status;                 // of the topic, but for conditions and `dropped`, which counts removals that were carried out undelivered
  kube::Condition delivered;         // condition Delivered
  std::optional<std::chrono::nanoseconds> look_again;
};
// `busy`: targets that something is being sent to at this moment. `before`: the topic's status.
DeliveryPlan plan_delivery(const Topic& topic, std::vector<Letter> letters, const std::set<std::string>& busy, const kube::Json& before, Instant now);

// For Notifications whose topic is not there: they wait for it as long as for a channel.
std::vector<Removal> plan_orphans(const std::vector<Letter>& letters, Instant now);

}  // namespace fairlead::notify
