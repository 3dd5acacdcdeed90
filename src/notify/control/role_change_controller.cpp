// SPDX-License-Identifier: Apache-2.0
#include "notify/control/role_change_controller.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "api/network_ways.h"
#include "api/slurm_cluster.h"
#include "base/log.h"
#include "notify/plan/roles.h"
#include "notify/plan/topic.h"

namespace fairlead::notify {

using kube::Json;
namespace resources = kube::resources;

namespace {
const kube::Resource kSlices{"discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", true};
constexpr const char* kCondition = "NotificationsDelivered";
}  // namespace

std::vector<kube::Controller::Source> RoleChangeController::sources() const {
  const auto of_heads = [](const kube::Change& change) {
    std::vector<kube::ObjectKey> keys;
    const Json& labels = change.object()["metadata"]["labels"];
    const std::string& cluster = labels[api::kSlurmClusterLabel].string();
    if (!cluster.empty() && labels[api::kSlurmRoleLabel].string_or("controller") == "controller") keys.push_back({kube::space_of(change.object()), cluster});
    return keys;
  };
  const auto of_topic = [this](const kube::Change& change) {
    std::vector<kube::ObjectKey> keys;
    if (!caches_) return keys;
    for (const Json& cluster : caches_->of(resources::slurm_clusters).list(kube::space_of(change.object()))) keys.push_back(kube::key_of(cluster));
    return keys;
  };
  return {{resources::slurm_clusters, options_.space, kube::key_itself}, {resources::pods, options_.space, of_heads}, {kSlices, options_.space, of_heads}, {kTopics, options_.space, of_topic}};
}

std::optional<kube::Access> RoleChangeController::access() const {
  return kube::Access()
      .may({"get"}, resources::slurm_clusters, "", options_.space)
      .may({"update"}, resources::slurm_clusters, "status", options_.space)
      .may({"create"}, kNotifications, "", options_.space)
      // Owner references that block deletion need this where that admission check is on (OwnerReferencesPermissionEnforcement).
      .may({"update"}, kTopics, "finalizers", options_.space);
}

kube::Condition RoleChangeController::delivered(const api::SlurmCluster& cluster, const Queued& queued) const {
  std::vector<std::string> refused = cluster.notification_problems, missing, failing, sending;
  const std::string& space = cluster.space;
  for (const auto& name : cluster.notification_topics) {
    if (const auto no = queued.refused.find(name); no != queued.refused.end()) refused.push_back(fmt::format("{}: the API refused {} events: {}", name, no->second.events, no->second.why));
    const auto topic = caches_->of(kTopics).get({space, name});
    const Json* condition = topic ? kube::find_condition(*topic, "Delivered") : nullptr;
    if (!topic) missing.push_back(name);
    else if (!condition || (*condition)["status"].string() == "Unknown") sending.push_back(name);
    else if ((*condition)["status"].string() != "True") failing.push_back(fmt::format("{}: {}", name, (*condition)["message"].string()));
  }
  // What is wrong with one topic does not hide what is wrong with another.
  std::vector<std::string> said = refused;
  if (!missing.empty()) said.push_back(fmt::format("NotificationTopics that are not there: {}; their events wait for a week", fmt::join(missing, ", ")));
  said.insert(said.end(), failing.begin(), failing.end());
  const char* const reason = !refused.empty() ? "TopicRefused" : !missing.empty() ? "TopicMissing" : "ChannelFailing";
  if (!said.empty()) return {kCondition, "False", reason, fmt::format("{}", fmt::join(said, "; "))};
  if (queued.passing) return {kCondition, "Unknown", "NotQueued", "events wait for the API: " + queued.passing->message.substr(0, 300)};
  if (!sending.empty()) return {kCondition, "Unknown", "Sending", "events are on their way"};
  return {kCondition, "True", "NothingWaits", "every event is delivered"};
}

RoleChangeController::Queued RoleChangeController::queue(const std::vector<Event>& events, const api::SlurmCluster& cluster, Refusals refused) {
  const auto& topics = cluster.notification_topics;
  std::erase_if(refused, [&](const auto& one) { return std::find(topics.begin(), topics.end(), one.first) == topics.end(); });
  Queued out{.refused = std::move(refused), .passing = {}};
  std::set<std::string> refused_now;
  for (const Event& event : events) {
    for (const auto& name : topics) {
      const auto topic = caches_->of(kTopics).get({cluster.space, name});
      auto made = api_.create(kNotifications, notification_object(event, name, topic ? kube::owner_reference(*topic) : Json()));
      // There already: made before the record could be written.
      if (made || made.error().code == Code::Exists) {
        if (!refused_now.contains(name)) out.refused.erase(name);
        continue;
      }
      const bool for_good = made.error().code == Code::Invalid || made.error().code == Code::Forbidden;
      log_warn("notification not queued", {{"cluster", cluster.space + "/" + cluster.name}, {"topic", name}, {"event", event.id}, {"reason", made.error().message}, {"again", for_good ? "no" : "yes"}});
      if (!for_good) {
        if (!out.passing) out.passing = pass(std::move(made.error()), fmt::format("make a notification of {} for {}", text(event.type), name)).error();
        continue;
      }
      refused_now.insert(name);
      ++out.refused[name].events;
      out.refused[name].why = made.error().message.substr(0, 300);
    }
  }
  return out;
}

Result<kube::Next> RoleChangeController::reconcile(const kube::ObjectKey& key) {
  auto object = caches_->of(resources::slurm_clusters).get(key);
  if (!object || kube::deleting(*object)) return kube::Next{};
  const auto cluster = api::read_slurm_cluster(*object, "");
  if (cluster.notification_topics.empty() && cluster.notification_problems.empty()) {
    if (!(*object)["status"].is_object() || !(*object)["status"].has("notifications")) return kube::Next{};
    object->child("status").erase("notifications");
    auto& conditions = object->child("status").child("conditions");
    if (conditions.is_array()) std::erase_if(conditions.items(), [](const Json& one) { return one["type"].string() == kCondition; });
    auto done = api_.update_status(resources::slurm_clusters, *object);
    if (!done) return pass(std::move(done.error()), "write status of SlurmCluster " + key.text());
    return kube::Next{};
  }
  std::map<std::string, Json> pods;
  for (int i = 0; i < api::kMaxHeads; ++i)
    if (auto pod = caches_->of(resources::pods).get({key.space, fmt::format("controller-{}", i)})) pods[kube::name_of(*pod)] = std::move(*pod);
  const auto slice = caches_->of(kSlices).get({key.space, cluster.name + "-controller-active"});
  const HeadsNow now = read_heads(cluster, pods, slice ? &*slice : nullptr);
  const Instant time = clock_.now();
  RolePlan plan = plan_events(cluster, read_record(*object), now, time);
  if (!plan.events.empty()) {
    // What was told of is known to the API alone: of a record that is behind, events would be made again under new ids.
    auto fresh = api_.get(resources::slurm_clusters, key);
    if (!fresh) return pass(std::move(fresh.error()), "read SlurmCluster " + key.text());
    if (kube::uid_of(*fresh) != cluster.uid) return fail(Code::Conflict, "SlurmCluster " + key.text() + " is another one");
    object = std::move(*fresh);
    plan = plan_events(cluster, read_record(*object), now, time);
  }
  const Queued queued = queue(plan.events, cluster, read_refusals(*object));
  for (const Event& event : plan.events)
    log_info("slurm head changed its role", {{"cluster", key.text()}, {"head", event.head}, {"from", event.old_state}, {"to", event.new_state}, {"event", event.id}});
  bool news = false;
  // Only now, and only if nothing is left to make: whoever dies before has the same events, with the same ids, made again.
  if (!queued.passing) {
    Json record = Json::object({{"heads", record_json(plan.record)}});
    if (!queued.refused.empty()) record.set("refused", refusals_json(queued.refused));
    news = (*object)["status"]["notifications"] != record;
    if (news) object->child("status").set("notifications", std::move(record));
  }
  const bool said = kube::set_condition(*object, delivered(cluster, queued), time);
  if (news || said) {
    auto done = api_.update_status(resources::slurm_clusters, *object);
    if (!done) return pass(std::move(done.error()), "write status of SlurmCluster " + key.text());
  }
  if (queued.passing) return std::unexpected(*queued.passing);
  return kube::Next{};
}

}  // namespace fairlead::notify
