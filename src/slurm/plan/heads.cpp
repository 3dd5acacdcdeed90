// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/heads.h"

#include <fmt/format.h>

namespace fairlead::slurm {

using kube::Json;

namespace {

std::uint64_t term_of(const std::string& text) {
  if (text.empty() || text.size() > 18 || text.find_first_not_of("0123456789") != std::string::npos) return 0;
  return std::stoull(text);
}

}  // namespace

Result<HeadReport> read_head_report(const std::string& text) {
  auto json = kube::parse_json(text);
  if (!json) return pass(std::move(json.error()), "status of a head");
  HeadReport report{.role = (*json)["role"].string()};
  const std::int64_t term = (*json)["term"].integer(-1);
  if (report.role.empty() || term < 0) return fail(Code::Invalid, "status of a head: role or term is missing");
  report.term = static_cast<std::uint64_t>(term);
  return report;
}

std::optional<ActiveHead> active_head(const Json* slice) {
  if (!slice || (*slice)["endpoints"].items().empty()) return std::nullopt;
  ActiveHead head{.pod = (*slice)["endpoints"].items()[0]["targetRef"]["name"].string()};
  const auto annotations = kube::annotations_of(*slice);
  if (const auto term = annotations.find(kTerm); term != annotations.end()) head.term = term_of(term->second);
  if (head.pod.empty() || head.term == 0) return std::nullopt;
  return head;
}

std::optional<Json> desired_slice(const api::SlurmCluster& cluster, const std::map<std::string, HeadReport>& reports, const std::map<std::string, Json>& pods, const Json* have) {
  const auto now = active_head(have);
  const std::pair<const std::string, HeadReport>* best = nullptr;
  for (const auto& report : reports)
    if (report.second.role == "active" && report.second.term > 0 && (!best || report.second.term > best->second.term)) best = &report;
  if (!best || (now && best->second.term < now->term)) return std::nullopt;
  const auto pod = pods.find(best->first);
  if (pod == pods.end()) return std::nullopt;
  const std::string& address = pod->second["status"]["podIP"].string();
  if (address.empty()) return std::nullopt;
  Json endpoint = Json::object({{"addresses", Json::array({Json(address)})},
                                {"conditions", Json::object({{"ready", true}, {"serving", true}, {"terminating", false}})},
                                {"targetRef", Json::object({{"kind", "Pod"}, {"name", best->first}, {"namespace", cluster.space}, {"uid", kube::uid_of(pod->second)}})}});
  if (const std::string& node = pod->second["spec"]["nodeName"].string(); !node.empty()) endpoint.set("nodeName", node);
  const Json endpoints = Json::array({std::move(endpoint)});
  const std::string term = std::to_string(best->second.term);
  if (have) {
    if (now && now->term == best->second.term && (*have)["endpoints"] == endpoints) return std::nullopt;
    Json next = *have;
    next.set("endpoints", endpoints);
    next.child("metadata").child("annotations").set(kTerm, term);
    return next;
  }
  return Json::object({{"apiVersion", "discovery.k8s.io/v1"},
                       {"kind", "EndpointSlice"},
                       {"metadata", Json::object({{"name", active_service(cluster)},
                                                  {"namespace", cluster.space},
                                                  {"labels", Json::object({{"app.kubernetes.io/managed-by", "fairlead"}, {kClusterLabel, cluster.name}, {"kubernetes.io/service-name", active_service(cluster)}, {"endpointslice.kubernetes.io/managed-by", "fairlead"}})},
                                                  {"annotations", Json::object({{kTerm, term}})},
                                                  {"ownerReferences", Json::array({cluster.owner})}})},
                       {"addressType", address.find(':') == std::string::npos ? "IPv4" : "IPv6"},
                       {"ports", Json::array({Json::object({{"name", "controller"}, {"port", cluster.controller.main.port}, {"protocol", "TCP"}})})},
                       {"endpoints", endpoints}});
}

}  // namespace fairlead::slurm
