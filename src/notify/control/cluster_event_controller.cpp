// SPDX-License-Identifier: Apache-2.0
#include "notify/control/cluster_event_controller.h"

#include <fmt/format.h>

#include "api/cluster.h"
#include "base/log.h"
#include "notify/plan/eventbridge.h"
#include "notify/plan/topic.h"

namespace fairlead::notify {

using kube::Json;

namespace {
constexpr const char* kMark = "fairlead.dev/notified";  // annotation of a ClusterEvent: every topic that is told of it has it
}

std::vector<kube::Controller::Source> ClusterEventController::sources() const {
  const auto nobody = [](const kube::Change&) { return std::vector<kube::ObjectKey>(); };  // a topic is told of what happens later
  return {{api::kClusterEvents, "", kube::key_itself}, {api::kClusters, "", nobody}, {kTopics, "", nobody}};
}

std::optional<kube::Access> ClusterEventController::access() const {
  return kube::Access().may({"get"}, api::kClusters).may({"get", "update"}, api::kClusterEvents).may({"create"}, kNotifications).may({"update"}, kTopics, "finalizers");
}

Result<kube::Next> ClusterEventController::reconcile(const kube::ObjectKey& key) {
  auto event = caches_->of(api::kClusterEvents).get(key);
  if (!event || kube::deleting(*event) || (*event)["metadata"]["annotations"].has(kMark)) return kube::Next{};
  const std::string& name = (*event)["metadata"]["labels"][api::kClusterLabel].string();
  struct Told {
    Topic topic;
    Json owner;
    DetailType type;
  };
  std::vector<Told> topics;
  std::optional<Json> cluster;
  caches_->of(kTopics).each("", [&](const Json& object) {
    const Topic topic = read_topic(object);
    if (!topic.cluster_events || kube::deleting(object)) return;
    if (!cluster) cluster = caches_->of(api::kClusters).get({"", name}).value_or(Json());
    for (const DetailType type : kDetailTypes)
      if (is_told(topic, type, *event, (*cluster)["spec"]["clusterName"].string_or(name), options_.site_space)) topics.push_back({topic, kube::owner_reference(object), type});
  });
  if (topics.empty()) return kube::Next{};
  if (cluster->is_null() || kube::uid_of(*cluster) != (*event)["spec"]["clusterUid"].string()) {
    auto now = api_.get(api::kClusters, {"", name});
    if (!now && now.error().code != Code::NotFound) return pass(std::move(now.error()), "read Cluster " + name);
    if (!now || kube::uid_of(*now) != (*event)["spec"]["clusterUid"].string()) return kube::Next{};  // of one that is gone
    cluster = std::move(*now);
  }
  bool wanted = false;
  for (const auto& [topic, owner, type] : topics) {
    const auto told = eventbridge_event(type, *event, *cluster);
    if (!told) continue;
    wanted = true;
    Json letter = notification_object(*told, topic.name, owner);
    letter.child("metadata").set("namespace", topic.space);
    auto made = api_.create(kNotifications, letter);
    // There already: made before the mark was written.
    if (made || made.error().code == Code::Exists) continue;
    const bool for_good = made.error().code == Code::Invalid || made.error().code == Code::Forbidden || made.error().code == Code::NotFound;
    log_warn("cluster event not queued", {{"event", key.text()}, {"topic", topic.space + "/" + topic.name}, {"reason", made.error().message}, {"again", for_good ? "no" : "yes"}});
    if (!for_good) return pass(std::move(made.error()), fmt::format("make a notification for {}/{}", topic.space, topic.name));
  }
  if (!wanted) return kube::Next{};
  // Only now: whoever dies before makes the same ones again, under the same names.
  event->child("metadata").child("annotations").set(kMark, "true");
  auto done = api_.update(api::kClusterEvents, *event);
  if (!done && done.error().code != Code::NotFound) return pass(std::move(done.error()), "mark ClusterEvent " + key.text());
  return kube::Next{};
}

}  // namespace fairlead::notify
