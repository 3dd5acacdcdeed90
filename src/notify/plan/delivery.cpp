// SPDX-License-Identifier: Apache-2.0
#include "notify/plan/delivery.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace fairlead::notify {

using kube::Json;

namespace {

constexpr std::string_view kStates[] = {"Waiting", "Delivered", "GaveUp"};
std::string text(Delivery::State state) { return std::string(kStates[static_cast<std::size_t>(state)]); }

std::optional<Instant> time_of(const Json& from) {
  auto parsed = parse_time(from.string());
  return parsed ? std::optional(*parsed) : std::nullopt;
}

bool over(const Letter& letter) {
  return !letter.problem.empty() ||
         (!letter.deliveries.empty() && std::all_of(letter.deliveries.begin(), letter.deliveries.end(), [](const Delivery& d) { return d.state != Delivery::State::Waiting; }));
}

bool undelivered(const Letter& letter) {
  if (!letter.problem.empty()) return false;
  return letter.deliveries.empty() || std::any_of(letter.deliveries.begin(), letter.deliveries.end(), [](const Delivery& d) { return d.state == Delivery::State::Waiting; });
}

// What is known of one target, over all letters.
struct Known {
  int waiting = 0, failing = 0;
  std::optional<Instant> last;
  std::string last_event, reason;
};

class Planner {
 public:
  Planner(const Topic& topic, std::vector<Letter> letters, const std::set<std::string>& busy, const Json& before, Instant now) : topic_(topic), busy_(busy), before_(before), now_(now) {
    plan_.letters = std::move(letters);
    std::sort(plan_.letters.begin(), plan_.letters.end(), [](const Letter& a, const Letter& b) { return std::tie(a.made, a.key) < std::tie(b.made, b.key); });
    for (const Target& target : targets_of(topic)) targets_.emplace(target.name(), target);
  }

  DeliveryPlan run() {
    remember();
    for (std::size_t i = 0; i < plan_.letters.size(); ++i) decide(i);
    prune();
    report();
    return std::move(plan_);
  }

 private:
  void remember() {
    for (const Json& one : before_["channels"].items()) {
      Known known{.last = time_of(one["lastDelivered"]), .last_event = one["lastEvent"].string()};
      if (targets_.contains(one["target"].string())) known_[one["target"].string()] = std::move(known);
    }
    for (const auto& [name, target] : targets_) known_[name];
  }

  void decide(std::size_t index) {
    Letter& letter = plan_.letters[index];
    if (!letter.problem.empty()) return;
    // Channels that are added later are told of what happens later.
    if (letter.deliveries.empty())
      for (const auto& [name, target] : targets_) letter.deliveries.push_back({.target = name, .generation = topic_.generation});
    for (Delivery& delivery : letter.deliveries) decide(index, delivery);
  }

  void give_up(Delivery& delivery, std::string why) {
    delivery.state = Delivery::State::GaveUp;
    delivery.reason = std::move(why);
    delivery.since = now_;
    delivery.next.reset();
  }

  void decide(std::size_t index, Delivery& delivery) {
    const Letter& letter = plan_.letters[index];
    const auto target = targets_.find(delivery.target);
    if (delivery.state == Delivery::State::Delivered && target != targets_.end()) {
      Known& known = known_[delivery.target];
      if (!known.last || (delivery.since && *delivery.since >= *known.last)) {
        known.last = delivery.since;
        known.last_event = letter.event.id;
      }
    }
    if (delivery.state != Delivery::State::Waiting) return;
    if (target == targets_.end()) return give_up(delivery, "the topic has no such channel any more");
    const bool busy = busy_.contains(delivery.target);  // perhaps with this one, which is then not given up
    if (!busy && now_ - letter.made > kPatience) {
      return give_up(delivery, fmt::format("{} attempts in {} days: {}", delivery.attempts, std::chrono::duration_cast<std::chrono::hours>(kPatience).count() / 24, delivery.reason));
    }
    Known& known = known_[delivery.target];
    ++known.waiting;
    if (!delivery.reason.empty() && delivery.attempts > 0) {
      ++known.failing;
      known.reason = delivery.reason;
    }
    if (!target->second.channel->problem.empty()) {
      ++known.failing;
      known.reason = target->second.channel->problem;
      return;
    }
    if (busy || sending_.contains(delivery.target)) return;
    const bool edited = delivery.generation != topic_.generation;
    if (delivery.next && *delivery.next > now_ && !edited) return look_at(*delivery.next);
    sending_.insert(delivery.target);
    plan_.sends.push_back({index, delivery.target});
  }

  void look_at(Instant when) {
    const auto wait = std::max<std::chrono::nanoseconds>(when - now_, std::chrono::milliseconds(10));
    if (!plan_.look_again || wait < *plan_.look_again) plan_.look_again = wait;
  }

  void prune() {
    std::size_t left = plan_.letters.size();
    std::set<std::size_t> gone;
    const auto remove = [&](std::size_t i, const char* why) {
      const Letter& letter = plan_.letters[i];
      plan_.removals.push_back({letter.key, letter.uid, letter.version, why, undelivered(letter)});
      gone.insert(i);
      --left;
    };
    for (std::size_t i = 0; i < plan_.letters.size(); ++i)
      if (over(plan_.letters[i]) && now_ - plan_.letters[i].made > kPatience) remove(i, "it is over and old");
    for (const bool finished : {true, false})
      for (std::size_t i = 0; i < plan_.letters.size() && left > kKept; ++i)
        if (!gone.contains(i) && over(plan_.letters[i]) == finished) remove(i, "there are too many");
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < plan_.letters.size(); ++i) bytes += gone.contains(i) ? 0 : plan_.letters[i].bytes;
    for (std::size_t i = 0; i < plan_.letters.size() && bytes > kKeptBytes; ++i) {
      if (gone.contains(i) || !over(plan_.letters[i]) || plan_.letters[i].bytes == 0) continue;
      bytes -= plan_.letters[i].bytes;
      remove(i, "it is over and large");
    }
    std::erase_if(plan_.sends, [&](const Send& send) { return gone.contains(send.letter); });
    if (!plan_.letters.empty() && !plan_.look_again) plan_.look_again = std::chrono::hours(1);
  }

  void report() {
    int waiting = 0;
    std::optional<Instant> last;
    std::vector<std::string> failing;
    Json channels = Json::array();
    for (const auto& [name, known] : known_) {
      waiting += known.waiting;
      if (known.last && (!last || *known.last > *last)) last = known.last;
      Json one = Json::object({{"target", name}, {"state", known.failing > 0 ? "Failing" : known.waiting > 0 ? "Waiting" : known.last ? "Delivered" : "Idle"}, {"waiting", known.waiting}});
      if (known.last) one.set("lastDelivered", print_time(*known.last)).set("lastEvent", known.last_event);
      if (known.failing > 0) one.set("reason", known.reason);
      if (known.failing > 0) failing.push_back(fmt::format("{}: {}", name, known.reason));
      channels.push(std::move(one));
    }
    for (const auto& [name, target] : targets_)
      if (!target.channel->problem.empty() && known_[name].failing == 0) failing.push_back(fmt::format("{}: {}", name, target.channel->problem));
    Json status = before_.is_object() ? before_ : Json::object();
    status.set("observedGeneration", topic_.generation).set("waiting", waiting).set("channels", std::move(channels));
    if (last) status.set("lastDelivered", print_time(*last));
    plan_.status = std::move(status);
    if (!topic_.problem.empty()) plan_.delivered = {"Delivered", "False", "SpecInvalid", topic_.problem};
    else if (!failing.empty()) plan_.delivered = {"Delivered", "False", "ChannelFailing", fmt::format("{}", fmt::join(failing, "; "))};
    else if (waiting > 0) plan_.delivered = {"Delivered", "Unknown", "Sending", "events are on their way"};
    else plan_.delivered = {"Delivered", "True", "NothingWaits", "every event is delivered"};
  }

  const Topic& topic_;
  const std::set<std::string>& busy_;
  const Json& before_;
  const Instant now_;
  std::map<std::string, Target> targets_;
  std::map<std::string, Known> known_;
  std::set<std::string> sending_;
  DeliveryPlan plan_;
};

}  // namespace

Letter read_letter(const Json& notification) {
  Letter out{.key = kube::key_of(notification), .uid = kube::uid_of(notification), .version = kube::version_of(notification)};
  out.made = time_of(notification["metadata"]["creationTimestamp"]).value_or(Instant{});
  auto event = read_event(notification["spec"]["event"]);
  if (event) out.event = std::move(*event);
  else out.problem = event.error().message;
  for (const char* part : {"text", "subject"}) out.bytes += out.event.message[part].string().size();
  for (const char* part : {"attributes", "texts"}) out.bytes += out.event.message.has(part) ? kube::print_json(out.event.message[part]).size() : 0;
  // A hand that made one with an old time would have it given up at once; without a time it would be.
  if (out.made == Instant{}) out.made = out.event.time;
  for (const Json& one : notification["status"]["deliveries"].items()) {
    Delivery delivery{.target = one["target"].string(), .attempts = static_cast<int>(std::clamp<std::int64_t>(one["attempts"].integer(), 0, 1'000'000)), .next = time_of(one["next"]), .since = time_of(one["since"]),
                      .reason = one["reason"].string(), .generation = one["generation"].integer()};
    const auto* const state = std::find(std::begin(kStates), std::end(kStates), one["state"].string());
    if (state != std::end(kStates)) delivery.state = static_cast<Delivery::State>(state - std::begin(kStates));
    out.deliveries.push_back(std::move(delivery));
  }
  return out;
}

Json letter_status(const Letter& letter) {
  if (!letter.problem.empty()) return Json::object({{"state", "Invalid"}, {"reason", letter.problem}});
  Json deliveries = Json::array();
  bool waiting = false, gave_up = false;
  for (const Delivery& one : letter.deliveries) {
    waiting = waiting || one.state == Delivery::State::Waiting;
    gave_up = gave_up || one.state == Delivery::State::GaveUp;
    Json out = Json::object({{"target", one.target}, {"state", text(one.state)}, {"attempts", one.attempts}, {"generation", one.generation}});
    if (one.next) out.set("next", print_micro_time(*one.next));
    if (one.since) out.set("since", print_time(*one.since));
    if (!one.reason.empty()) out.set("reason", one.reason);
    deliveries.push(std::move(out));
  }
  return Json::object({{"state", waiting || letter.deliveries.empty() ? "Waiting" : gave_up ? "GaveUp" : "Delivered"}, {"deliveries", std::move(deliveries)}});
}

std::chrono::nanoseconds retry_after(int attempts, double chance) {
  const std::int64_t seconds = std::min<std::int64_t>(std::int64_t{1} << std::clamp(attempts - 1, 0, 20), 300);
  return std::chrono::nanoseconds(static_cast<std::int64_t>(static_cast<double>(seconds) * 1e9 * (1.0 - std::clamp(chance, 0.0, 1.0) / 2)));
}

DeliveryPlan plan_delivery(const Topic& topic, std::vector<Letter> letters, const std::set<std::string>& busy, const Json& before, Instant now) { return Planner(topic, std::move(letters), busy, before, now).run(); }

std::vector<Removal> plan_orphans(const std::vector<Letter>& letters, Instant now) {
  std::vector<const Letter*> sorted;
  for (const auto& letter : letters) sorted.push_back(&letter);
  std::sort(sorted.begin(), sorted.end(), [](const Letter* a, const Letter* b) { return std::tie(a->made, a->key) < std::tie(b->made, b->key); });
  std::vector<Removal> out;
  const std::size_t beyond = sorted.size() > kKept ? sorted.size() - kKept : 0;
  for (std::size_t i = 0; i < sorted.size(); ++i)
    if (i < beyond || now - sorted[i]->made > kPatience) out.push_back({sorted[i]->key, sorted[i]->uid, sorted[i]->version, "its topic is not there", undelivered(*sorted[i])});
  return out;
}

}  // namespace fairlead::notify
