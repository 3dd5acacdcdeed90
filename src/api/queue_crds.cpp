// SPDX-License-Identifier: Apache-2.0
#include "api/queue_crds.h"

#include <algorithm>

#include "base/encoding.h"

namespace fairlead::api {

using kube::Json;

namespace {

constexpr const char* kQueueCrds =
#include "api/queue_crds.inc"
    ;

}  // namespace

std::vector<Json> queue_crds() {
  auto parsed = kube::parse_json(kQueueCrds);
  INVARIANT(parsed.has_value() && parsed->is_array());
  return std::move(parsed->items());
}

bool is_queue_crd(const Json& crd) { return crd["spec"]["group"].string() == queue_group; }

bool is_our_queue_crd(const Json& crd) {
  const auto labels = kube::labels_of(crd);
  const auto part = labels.find("app.kubernetes.io/part-of");
  return is_queue_crd(crd) && part != labels.end() && part->second == "fairlead";
}

const Json* foreign_queue_crd(const std::vector<Json>& crds) {
  const auto found = std::ranges::find_if(crds, [](const Json& crd) { return is_queue_crd(crd) && !is_our_queue_crd(crd); });
  return found == crds.end() ? nullptr : &*found;
}

Json queue_conversion(const QueueWebhook& webhook) {
  Json config = Json::object({});
  if (!webhook.url.empty()) config.set("url", webhook.url);
  else config.set("service", Json::object({{"namespace", webhook.space}, {"name", webhook.service}, {"path", "/convert"}, {"port", 443}}));
  if (!webhook.ca_pem.empty()) config.set("caBundle", base64(webhook.ca_pem));
  return Json::object({{"strategy", "Webhook"}, {"webhook", Json::object({{"clientConfig", std::move(config)}, {"conversionReviewVersions", Json::array({Json("v1")})}})}});
}

Json conversion_change(const Json& crd, const QueueWebhook& webhook) {
  const auto ours = queue_crds();
  const auto made = std::ranges::find_if(ours, [&](const Json& one) { return kube::name_of(one) == kube::name_of(crd); });
  if (made == ours.end() || (*made)["spec"]["conversion"].is_null()) return {};
  Json wanted = queue_conversion(webhook);
  const Json &is = crd["spec"]["conversion"], &config = wanted["webhook"]["clientConfig"];
  const Json& has = is["webhook"]["clientConfig"];
  const bool same = is["strategy"].string() == "Webhook" && has["url"].string() == config["url"].string() && has["service"] == config["service"] && has["caBundle"].string() == config["caBundle"].string() &&
                    is["webhook"]["conversionReviewVersions"] == wanted["webhook"]["conversionReviewVersions"];
  if (same) return {};
  // Exactly one of the two may be there.
  wanted.child("webhook").child("clientConfig").set(webhook.url.empty() ? "url" : "service", Json());
  return Json::object({{"metadata", Json::object({{"resourceVersion", kube::version_of(crd)}})}, {"spec", Json::object({{"conversion", std::move(wanted)}})}});
}

kube::Access queue_webhook_access(const std::string& space) {
  return kube::Access().may({"create"}, kube::resources::secrets, "", space).may({"get"}, kube::resources::secrets, "", space, {queue_webhook_name});
}

namespace queues {
const kube::Resource flavors{std::string(queue_group), "v1beta2", "resourceflavors", "ResourceFlavor", false};
const kube::Resource topologies{std::string(queue_group), "v1beta2", "topologies", "Topology", false};
const kube::Resource priority_classes{std::string(queue_group), "v1beta2", "workloadpriorityclasses", "WorkloadPriorityClass", false};
const kube::Resource checks{std::string(queue_group), "v1beta2", "admissionchecks", "AdmissionCheck", false};
const kube::Resource cohorts{std::string(queue_group), "v1beta2", "cohorts", "Cohort", false};
const kube::Resource cluster_queues{std::string(queue_group), "v1beta2", "clusterqueues", "ClusterQueue", false};
const kube::Resource local_queues{std::string(queue_group), "v1beta2", "localqueues", "LocalQueue", true};
const kube::Resource workloads{std::string(queue_group), "v1beta2", "workloads", "Workload", true};
}  // namespace queues

}  // namespace fairlead::api
