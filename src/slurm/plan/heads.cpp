// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/heads.h"

#include <fmt/format.h>

#include "slurm/plan/inputs.h"

namespace fairlead::slurm {

using kube::Json;

namespace {

std::uint64_t term_of(const std::string& text) {
  if (text.empty() || text.size() > 18 || text.find_first_not_of("0123456789") != std::string::npos) return 0;
  return std::stoull(text);
}

// Of a program's message, at most 300 bytes and no control characters.
std::string one_line(std::string text) {
  std::erase_if(text, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f; });
  if (text.size() <= 300) return text;
  std::size_t end = 300;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end);
}

// Empty: nobody is in trouble, or one serves or is about to. The first by name speaks, so that the words stay while heads try in turn.
std::string why_nobody_serves(const std::map<std::string, HeadReport>& reports) {
  std::string why;
  for (const auto& [pod, report] : reports) {
    if (report.role == "active") return "";
    if (why.empty() && !report.trouble.empty()) why = fmt::format("{}: {}", pod, report.trouble);
  }
  return why;
}

Json with_trouble(Json slice, const std::string& trouble) {
  Json& annotations = slice.child("metadata").child("annotations");
  if (trouble.empty()) annotations.erase(kTrouble);
  else annotations.set(kTrouble, trouble);
  return slice;
}

Json new_slice(const api::SlurmCluster& cluster, const std::string& address, Json endpoints) {
  return Json::object({{"apiVersion", "discovery.k8s.io/v1"},
                       {"kind", "EndpointSlice"},
                       {"metadata", Json::object({{"name", active_service(cluster)},
                                                  {"namespace", cluster.space},
                                                  {"labels", Json::object({{"app.kubernetes.io/managed-by", "fairlead"}, {kClusterLabel, cluster.name}, {"kubernetes.io/service-name", active_service(cluster)}, {"endpointslice.kubernetes.io/managed-by", "fairlead"}})},
                                                  {"annotations", Json::object({})},
                                                  {"ownerReferences", Json::array({cluster.owner})}})},
                       {"addressType", address.find(':') == std::string::npos ? "IPv4" : "IPv6"},
                       {"ports", Json::array({Json::object({{"name", "controller"}, {"port", cluster.controller.main.port}, {"protocol", "TCP"}})})},
                       {"endpoints", std::move(endpoints)}});
}

// Nobody serves, as far as is known: the endpoint stays, and what a head says of it is written down.
std::optional<Json> slice_of_nobody(const api::SlurmCluster& cluster, const std::map<std::string, HeadReport>& reports, const std::map<std::string, Json>& pods, const Json* have) {
  const std::string trouble = why_nobody_serves(reports);
  if (reports.empty() || trouble == head_trouble(have)) return std::nullopt;
  if (have) return with_trouble(*have, trouble);
  for (const auto& [pod, report] : reports)
    if (const auto found = pods.find(pod); found != pods.end() && !found->second["status"]["podIP"].string().empty()) return with_trouble(new_slice(cluster, found->second["status"]["podIP"].string(), Json::array()), trouble);
  return std::nullopt;
}

}  // namespace

Result<HeadReport> read_head_report(const std::string& text) {
  auto json = kube::parse_json(text);
  if (!json) return pass(std::move(json.error()), "status of a head");
  HeadReport report{.role = (*json)["role"].string()};
  const std::int64_t term = (*json)["term"].integer(-1);
  if (report.role.empty() || term < 0) return fail(Code::Invalid, "status of a head: role or term is missing");
  report.term = static_cast<std::uint64_t>(term);
  report.trouble = one_line((*json)["trouble"].string());
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

std::string head_trouble(const Json* slice) {
  if (!slice) return "";
  const auto annotations = kube::annotations_of(*slice);
  const auto found = annotations.find(kTrouble);
  return found == annotations.end() ? "" : found->second;
}

std::optional<Json> desired_slice(const api::SlurmCluster& cluster, const std::map<std::string, HeadReport>& reports, const std::map<std::string, Json>& pods, const Json* have) {
  const auto now = active_head(have);
  const std::pair<const std::string, HeadReport>* best = nullptr;
  for (const auto& report : reports)
    if (report.second.role == "active" && report.second.term > 0 && (!best || report.second.term > best->second.term)) best = &report;
  if (!best) return slice_of_nobody(cluster, reports, pods, have);
  if (now && best->second.term < now->term) return std::nullopt;
  const auto pod = pods.find(best->first);
  if (pod == pods.end()) return std::nullopt;
  const std::string& address = pod->second["status"]["podIP"].string();
  if (address.empty()) return std::nullopt;
  Json endpoint = Json::object({{"addresses", Json::array({Json(address)})},
                                {"conditions", Json::object({{"ready", true}, {"serving", true}, {"terminating", false}})},
                                {"targetRef", Json::object({{"kind", "Pod"}, {"name", best->first}, {"namespace", cluster.space}, {"uid", kube::uid_of(pod->second)}})}});
  if (const std::string& node = pod->second["spec"]["nodeName"].string(); !node.empty()) endpoint.set("nodeName", node);
  const Json endpoints = Json::array({std::move(endpoint)});
  if (have && now && now->term == best->second.term && (*have)["endpoints"] == endpoints && head_trouble(have).empty()) return std::nullopt;
  Json next = have ? *have : new_slice(cluster, address, endpoints);
  next.set("endpoints", endpoints);
  next.child("metadata").child("annotations").set(kTerm, std::to_string(best->second.term));
  return with_trouble(std::move(next), "");
}

std::optional<std::string> votes_apart(const Json& wanted, const Json& there) {
  const auto alone = [](const Json& pod) { return (setting_of_pod(pod, "FAIRLEAD_HEADS") + setting_of_pod(pod, "FAIRLEAD_WITNESSES")).find(',') == std::string::npos; };
  if (kube::name_of(wanted) == kube::name_of(there) || (!alone(wanted) && !alone(there))) return std::nullopt;
  return fmt::format("{} is there, which counts other votes than {} would: both could have a majority", kube::name_of(there), kube::name_of(wanted));
}

}  // namespace fairlead::slurm
