// SPDX-License-Identifier: Apache-2.0
#include "notify/control/delivery_controller.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/encoding.h"
#include "base/log.h"
#include "kube/selector.h"
#include "notify/plan/permit.h"

namespace fairlead::notify {

using kube::Json;
namespace resources = kube::resources;

std::vector<kube::Controller::Source> DeliveryController::sources() const {
  const auto of_letter = [](const kube::Change& change) { return std::vector<kube::ObjectKey>{{kube::space_of(change.object()), change.object()["spec"]["topic"].string()}}; };
  return {{kTopics, options_.space, kube::key_itself}, {kNotifications, options_.space, of_letter}};
}

std::optional<kube::Access> DeliveryController::access() const {
  return kube::Access()
      .may({"update"}, kTopics, "status", options_.space)
      .may({"update"}, kNotifications, "status", options_.space)
      .may({"delete"}, kNotifications, "", options_.space)
      .may({"get"}, resources::secrets, "", options_.space);
}

DeliveryController::Memory& DeliveryController::memory_of(const kube::ObjectKey& topic) {
  const std::lock_guard lock(mutex_);
  return memory_[topic];
}

void DeliveryController::forget(const kube::ObjectKey& topic) {
  const std::lock_guard lock(mutex_);
  memory_.erase(topic);
}

std::size_t DeliveryController::remembered() {
  const std::lock_guard lock(mutex_);
  return memory_.size();
}

double DeliveryController::chance() {
  const std::lock_guard lock(mutex_);
  return rng_.fraction();
}

std::vector<Json> DeliveryController::objects_of(const kube::ObjectKey& topic, Memory& memory) const {
  std::vector<Json> out;
  std::set<std::string> seen;
  caches_->of(kNotifications).each(topic.space, [&](const Json& object) {
    if (object["spec"]["topic"].string() != topic.name || kube::deleting(object)) return;
    const auto written = memory.written.find(kube::uid_of(object));
    if (written != memory.written.end() && written->second.superseded.contains(kube::version_of(object))) {
      out.push_back(written->second.object);
      seen.insert(written->first);
    } else {
      out.push_back(object);
    }
  });
  // The cache has caught up with the others, or they are gone.
  std::erase_if(memory.written, [&](const auto& one) { return !seen.contains(one.first); });
  return out;
}

// What carriers told goes into the letter; it stays in the memory until it is written.
void DeliveryController::note(Letter& letter, Memory& memory, Instant now) {
  for (const Done& done : memory.outcomes) {
    if (done.letter_uid != letter.uid) continue;
    for (Delivery& delivery : letter.deliveries) {
      if (delivery.target != done.target || delivery.state != Delivery::State::Waiting) continue;
      ++delivery.attempts;
      delivery.generation = done.generation;
      delivery.next.reset();
      if (done.outcome) {
        delivery.state = Delivery::State::Delivered;
        delivery.since = now;
        delivery.reason.clear();
        log_info("notification delivered", {{"notification", letter.key.text()}, {"target", delivery.target}, {"attempts", std::to_string(delivery.attempts)}});
      } else {
        delivery.reason = done.outcome.error().message.substr(0, 300);
        delivery.next = now + retry_after(delivery.attempts, chance());
        log_info("notification not delivered yet", {{"notification", letter.key.text()}, {"target", delivery.target}, {"attempts", std::to_string(delivery.attempts)}, {"reason", delivery.reason}});
      }
    }
  }
}

Result<void> DeliveryController::write(const Json& object, const Letter& letter, Memory& memory) {
  const Json status = letter_status(letter);
  if (status != object["status"]) {
    Json next = object;
    next.set("status", status);
    auto done = api_.update_status(kNotifications, next);
    if (!done && done.error().code != Code::NotFound) return pass(std::move(done.error()), "write status of Notification " + letter.key.text());
    if (done) {
      auto& written = memory.written[letter.uid];
      written.superseded.insert(kube::version_of(object));
      written.object = std::move(*done);
    }
  }
  std::erase_if(memory.outcomes, [&](const Done& done) { return done.letter_uid == letter.uid; });
  return {};
}

Result<void> DeliveryController::remove(const std::vector<Removal>& removals, Memory& memory) {
  for (const Removal& one : removals) {
    auto done = api_.remove(kNotifications, one.key, {.uid = one.uid, .resource_version = one.version});
    if (!done && done.error().code != Code::NotFound) return pass(std::move(done.error()), "delete Notification " + one.key.text());
    if (!done) continue;
    if (one.undelivered) ++memory.dropped;
    if (one.undelivered) log_warn("notification dropped undelivered", {{"notification", one.key.text()}, {"reason", one.why}});
  }
  return {};
}

Result<void> DeliveryController::write_topic(const Json& topic, const DeliveryPlan& plan, Memory& memory, Instant now) {
  Json next = topic;
  next.set("status", plan.status);
  next.child("status").set("dropped", topic["status"]["dropped"].integer() + memory.dropped);
  kube::set_condition(next, plan.delivered, now);
  if (next["status"] == topic["status"]) return {};
  auto done = api_.update_status(kTopics, next);
  if (!done) return pass(std::move(done.error()), "write status of NotificationTopic " + kube::key_of(topic).text());
  memory.dropped = 0;
  return {};
}

namespace {

// The Secrets that a channel names, each read once and only if it says that it is meant for this.
class SecretReader {
 public:
  SecretReader(kube::KubeApi& api, const std::string& space) : api_(api), space_(space) {}

  Result<void> read(const std::string& name, const std::string& key, std::string& into) {
    auto secret = open(name);
    if (!secret) return std::unexpected(std::move(secret.error()));
    const Json* value = (**secret)["data"].find(key);
    if (!value) return fail(Code::Invalid, fmt::format("Secret {} has no key {}", name, key));
    auto bytes = parse_base64(value->string());
    if (!bytes) return fail(Code::Invalid, fmt::format("Secret {}, key {}: not base64", name, key));
    into = std::move(*bytes);
    return {};
  }
  Result<void> may_go_to(const std::string& host) const {
    for (const auto& [name, secret] : opened_)
      if (auto fit = meant_for_host(secret, host); !fit) return fit;
    return {};
  }

 private:
  Result<const Json*> open(const std::string& name) {
    if (const auto have = opened_.find(name); have != opened_.end()) return &have->second;
    if (!kube::check_dns_subdomain(name).empty()) return fail(Code::Invalid, fmt::format("\"{}\" is no name of a Secret", name.substr(0, 64)));
    auto secret = api_.get(resources::secrets, {space_, name});
    if (!secret) return fail(secret.error().code, fmt::format("Secret {}: {}", name, secret.error().code == Code::NotFound ? "it is not there" : "it cannot be read"));
    if (auto meant = meant_for_notifications(*secret); !meant) return std::unexpected(std::move(meant.error()));
    return &opened_.emplace(name, std::move(*secret)).first->second;
  }

  kube::KubeApi& api_;
  const std::string& space_;
  std::map<std::string, Json> opened_;
};

}  // namespace

Result<Secrets> DeliveryController::read_secrets(const std::string& space, const Channel& channel) {
  SecretReader reader(api_, space);
  Secrets out;
  Result<void> done;
  if (channel.url_from) done = reader.read(channel.url_from->name, channel.url_from->key, out.url);
  if (done && channel.hmac) done = reader.read(channel.hmac->name, channel.hmac->key, out.hmac_key);
  if (done && channel.ca) done = reader.read(channel.ca->name, channel.ca->key, out.ca_pem);
  if (done && !channel.credentials.empty()) done = reader.read(channel.credentials, "username", out.username);
  if (done && !channel.credentials.empty()) done = reader.read(channel.credentials, "password", out.password);
  // Hands put a line end at the end of files.
  for (std::string* one : {&out.url, &out.username, &out.password})
    while (!one->empty() && (one->back() == '\n' || one->back() == '\r')) one->pop_back();
  if (done) done = reader.may_go_to(host_of(channel, out.url));
  if (!done) return std::unexpected(std::move(done.error()));
  return out;
}

Result<kube::Next> DeliveryController::reconcile(const kube::ObjectKey& key) {
  Memory& memory = memory_of(key);
  for (Done& done : courier_->take(key)) memory.outcomes.push_back(std::move(done));
  const Instant now = clock_.now();
  const auto object = caches_->of(kTopics).get(key);
  const std::vector<Json> objects = objects_of(key, memory);
  std::vector<Letter> letters;
  std::map<std::string, const Json*> stored;
  for (const Json& one : objects) {
    letters.push_back(read_letter(one));
    stored[letters.back().uid] = &one;
  }
  if (!object || kube::deleting(*object)) {
    if (auto done = remove(plan_orphans(letters, now), memory); !done) return std::unexpected(std::move(done.error()));
    if (!letters.empty()) return kube::Next{std::chrono::hours(1)};
    // Names of topics cost nothing to make up: nothing is kept of those that are not there.
    forget(key);
    return kube::Next{};
  }
  for (Letter& letter : letters) note(letter, memory, now);
  const Topic topic = read_topic(*object);
  DeliveryPlan plan = plan_delivery(topic, std::move(letters), courier_->busy(key), (*object)["status"], now);
  std::set<std::string> leaving;
  for (const Removal& one : plan.removals) leaving.insert(one.uid);
  for (const Letter& letter : plan.letters)
    if (auto done = leaving.contains(letter.uid) ? Result<void>() : write(*stored.at(letter.uid), letter, memory); !done) return std::unexpected(std::move(done.error()));
  std::erase_if(memory.outcomes, [&](const Done& done) { return !stored.contains(done.letter_uid); });
  if (auto done = remove(plan.removals, memory); !done) return std::unexpected(std::move(done.error()));

  bool again = false;
  const auto targets = targets_of(topic);
  for (const Send& send : plan.sends) {
    const Letter& letter = plan.letters[send.letter];
    const auto target = std::find_if(targets.begin(), targets.end(), [&](const Target& one) { return one.name() == send.target; });
    INVARIANT(target != targets.end());
    Topic of{.name = topic.name, .space = topic.space, .uid = topic.uid, .generation = topic.generation};
    auto secrets = read_secrets(key.space, *target->channel);
    if (!secrets) {
      memory.outcomes.push_back({letter.uid, send.target, topic.generation, std::unexpected(std::move(secrets.error()))});
      again = true;
      continue;
    }
    const bool sent = courier_->send({.topic = key, .letter_uid = letter.uid, .target = send.target, .of = std::move(of), .channel = *target->channel, .recipient = target->recipient, .event = letter.event, .secrets = std::move(*secrets)});
    if (!sent) plan.look_again = plan.look_again ? std::min<std::chrono::nanoseconds>(*plan.look_again, 1s) : 1s;
  }
  if (auto done = write_topic(*object, plan, memory, now); !done) return std::unexpected(std::move(done.error()));
  if (again) return kube::Next{10ms};
  return kube::Next{plan.look_again};
}

}  // namespace fairlead::notify
