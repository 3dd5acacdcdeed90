// SPDX-License-Identifier: Apache-2.0
#include "notify/plan/event.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/encoding.h"

namespace fairlead::notify {

using kube::Json;

namespace {

constexpr EventType kTypes[] = {EventType::PrimaryOn, EventType::PrimaryOff, EventType::BackupReady, EventType::BackupLost, EventType::ClusterEvent, EventType::Message, EventType::Test};

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

bool is_id(const std::string& text) { return text.size() == 36 && text.starts_with("evt-") && text.find_first_not_of("0123456789abcdef", 4) == std::string::npos; }

}  // namespace

std::string_view text(DetailType type) {
  switch (type) {
    case DetailType::ClusterEvent: return "ClusterEvent";
    case DetailType::StateChange: return "ClusterStateChange";
    case DetailType::NodeHealth: return "NodeHealth";
  }
  return "ClusterEvent";
}

std::string_view text(EventType type) {
  switch (type) {
    case EventType::PrimaryOn: return "PrimaryOn";
    case EventType::PrimaryOff: return "PrimaryOff";
    case EventType::BackupReady: return "BackupReady";
    case EventType::BackupLost: return "BackupLost";
    case EventType::ClusterEvent: return "ClusterEvent";
    case EventType::Message: return "Message";
    case EventType::Test: return "Test";
  }
  return "Test";
}

std::string event_id(std::string_view cluster_uid, std::string_view head, std::int64_t seq, std::string_view old_state, std::string_view new_state) {
  // Lengths keep the parts apart, whatever is in them.
  std::string all;
  for (const std::string_view part : {cluster_uid, head, old_state, new_state}) all += fmt::format("{}:{}", part.size(), part);
  return "evt-" + hex(sha256(fmt::format("{}#{}", all, seq))).substr(0, 32);
}

std::string uuid_of(const std::string& event_id) {
  const std::string digits = is_id(event_id) ? event_id.substr(4) : hex(sha256(event_id)).substr(0, 32);
  return fmt::format("{}-{}-{}-{}-{}", digits.substr(0, 8), digits.substr(8, 4), digits.substr(12, 4), digits.substr(16, 4), digits.substr(20));
}

std::string summary(const Event& event) {
  const Json& detail = event.envelope["detail"];
  std::string out = event.type == EventType::ClusterEvent && detail.has("ClusterStatus") ? fmt::format("Cluster {} is {}", event.cluster, detail["ClusterStatus"].string())
                    : event.type == EventType::ClusterEvent && detail.has("HealthSummary") ? fmt::format("Cluster {}: instance {} is {}: {}", event.cluster, detail["InstanceId"].string(), detail["HealthSummary"]["HealthStatus"].string(), detail["HealthSummary"]["HealthStatusReason"].string())
                    : event.type == EventType::ClusterEvent ? fmt::format("Cluster {}: {}: {}", event.cluster, upper(detail["EventDetails"]["EventLevel"].string()), detail["EventDetails"]["Description"].string())
                    : event.type == EventType::Message ? event.message["subject"].string_or(fmt::format("Message to a topic of namespace {}", event.space))
                    : event.type == EventType::Test ? fmt::format("Test of notifications for topic in namespace {}", event.space)
                                                  : fmt::format("Slurm cluster {}/{}: {} {} is {} (was {})", event.space, event.cluster, event.witness ? "witness" : "head", event.head, upper(event.new_state), upper(event.old_state));
  std::replace_if(out.begin(), out.end(), [](unsigned char c) { return c < ' ' || c >= 0x7f; }, '?');
  return out;
}

Json event_json(const Event& event) {
  Json out = Json::object({{"id", event.id}, {"type", std::string(text(event.type))}, {"time", print_time(event.time)}, {"summary", summary(event)}});
  Json cluster = Json::object({{"namespace", event.space}});
  if (!event.cluster.empty()) cluster.set("name", event.cluster).set("uid", event.cluster_uid);
  out.set("cluster", std::move(cluster));
  if (!event.head.empty()) {
    out.set("head", event.head).set("oldState", event.old_state).set("newState", event.new_state);
    if (event.witness) out.set("witness", true);
    out.set("redundancy", Json::object({{"ready", event.ready}, {"wanted", event.wanted}}));
  }
  if (event.type == EventType::ClusterEvent) return out.set("cause", event.cause).set("envelope", event.envelope);
  if (event.type == EventType::Message) return out.set("message", event.message);
  if (event.term > 0) out.set("term", static_cast<std::int64_t>(event.term));
  out.set("cause", event.cause).set("nextStep", event.next_step);
  return out;
}

std::string message_text(const Event& event, std::string_view protocol) {
  const Json& own = event.message["texts"][protocol];
  return own.is_string() ? own.string() : event.message["text"].string();
}

Json body_of(const Event& event) { return event.type == EventType::ClusterEvent ? event.envelope : event_json(event); }

Result<Event> read_event(const Json& from) {
  Event out{.id = from["id"].string()};
  const std::string& type = from["type"].string();
  const auto* const found = std::find_if(std::begin(kTypes), std::end(kTypes), [&](EventType one) { return text(one) == type; });
  if (!is_id(out.id)) return fail(Code::Invalid, "spec.event.id is not one of Fairlead's");
  if (found == std::end(kTypes)) return fail(Code::Invalid, "spec.event.type is unknown");
  out.type = *found;
  auto time = parse_time(from["time"].string());
  if (!time) return pass(std::move(time.error()), "spec.event.time");
  out.time = *time;
  out.space = from["cluster"]["namespace"].string();
  out.cluster = from["cluster"]["name"].string();
  out.cluster_uid = from["cluster"]["uid"].string();
  out.head = from["head"].string();
  out.witness = from["witness"].boolean();
  out.old_state = from["oldState"].string();
  out.new_state = from["newState"].string();
  out.cause = from["cause"].string();
  out.next_step = from["nextStep"].string();
  out.envelope = from["envelope"];
  if (out.type == EventType::ClusterEvent && !out.envelope.is_object()) return fail(Code::Invalid, "spec.event.envelope is none");
  out.message = from["message"];
  if (out.type == EventType::Message && !out.message["text"].is_string()) return fail(Code::Invalid, "spec.event.message.text is none");
  out.ready = static_cast<int>(std::clamp<std::int64_t>(from["redundancy"]["ready"].integer(), 0, 1000));
  out.wanted = static_cast<int>(std::clamp<std::int64_t>(from["redundancy"]["wanted"].integer(), 0, 1000));
  out.term = static_cast<std::uint64_t>(std::max<std::int64_t>(from["term"].integer(), 0));
  return out;
}

Json notification_object(const Event& event, const std::string& topic, const Json& owner) {
  Json meta = Json::object({{"name", event.id + "." + topic}, {"namespace", event.space}, {"labels", Json::object({{"app.kubernetes.io/managed-by", "fairlead"}})}});
  if (owner.is_object()) meta.set("ownerReferences", Json::array({owner}));
  return Json::object({{"apiVersion", "fairlead.dev/v1alpha1"}, {"kind", "Notification"}, {"metadata", std::move(meta)}, {"spec", Json::object({{"topic", topic}, {"event", event_json(event)}})}});
}

}  // namespace fairlead::notify
