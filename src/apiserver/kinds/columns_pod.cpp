// SPDX-License-Identifier: Apache-2.0
// The columns of pods and nodes, whose STATUS is computed from many fields.
#include <fmt/format.h>

#include <algorithm>

#include "apiserver/columns.h"
#include "apiserver/kinds/kinds.h"
#include "kube/pod_words.h"

namespace fairlead::apiserver {

using kube::Json;

namespace {

std::string or_none(const std::string& text) { return text.empty() ? "<none>" : text; }

Column column(std::string name, std::function<Json(const Json&, Instant)> cell, int priority = 0) {
  return {.name = std::move(name), .priority = priority, .cell = std::move(cell)};
}

std::string node_status(const Json& node) {
  const Json* ready = kube::find_condition(node, "Ready");
  std::string text = "Unknown";
  if (ready) text = (*ready)["status"].string() == "True" ? "Ready" : "NotReady";
  if (node["spec"]["unschedulable"].boolean()) text += ",SchedulingDisabled";
  return text;
}

std::string node_roles(const Json& node) {
  constexpr std::string_view prefix = "node-role.kubernetes.io/";
  std::vector<std::string> roles;
  for (const auto& [key, value] : kube::labels_of(node)) {
    if (key.starts_with(prefix) && key.size() > prefix.size()) roles.push_back(key.substr(prefix.size()));
    if (key == "kubernetes.io/role" && !value.empty()) roles.push_back(value);
  }
  std::sort(roles.begin(), roles.end());
  roles.erase(std::unique(roles.begin(), roles.end()), roles.end());
  std::string text;
  for (const std::string& role : roles) text += (text.empty() ? "" : ",") + role;
  return or_none(text);
}

std::string node_address(const Json& node, std::string_view type) {
  for (const Json& address : node["status"]["addresses"].items())
    if (address["type"].string() == type) return address["address"].string();
  return "<none>";
}

std::string node_info(const Json& node, const char* field) {
  const std::string& text = node["status"]["nodeInfo"][field].string();
  return text.empty() ? "<unknown>" : text;
}

}  // namespace

std::vector<Column> pod_columns() {
  return {
      name_column(),
      column("Ready", [](const Json& o, Instant) { const auto pod = kube::words_of_pod(o); return Json(fmt::format("{}/{}", pod.ready, pod.total)); }),
      column("Status", [](const Json& o, Instant) { return Json(kube::words_of_pod(o).status); }),
      column("Restarts", [](const Json& o, Instant now) {
        const auto pod = kube::words_of_pod(o);
        if (pod.restarts != 0 && pod.last_restart) return Json(fmt::format("{} ({} ago)", pod.restarts, print_age(now - *pod.last_restart)));
        return Json(std::to_string(pod.restarts));
      }),
      age_column(),
      column("IP", [](const Json& o, Instant) { return Json(or_none(o["status"]["podIP"].string())); }, 1),
      column("Node", [](const Json& o, Instant) { return Json(or_none(o["spec"]["nodeName"].string())); }, 1),
      column("Nominated Node", [](const Json& o, Instant) { return Json(or_none(o["status"]["nominatedNodeName"].string())); }, 1),
      column("Readiness Gates", [](const Json&, Instant) { return Json("<none>"); }, 1),
  };
}

std::vector<Column> node_columns() {
  return {
      name_column(),
      column("Status", [](const Json& o, Instant) { return Json(node_status(o)); }),
      column("Roles", [](const Json& o, Instant) { return Json(node_roles(o)); }),
      age_column(),
      column("Version", [](const Json& o, Instant) { return Json(o["status"]["nodeInfo"]["kubeletVersion"].string()); }),
      column("Internal-IP", [](const Json& o, Instant) { return Json(node_address(o, "InternalIP")); }, 1),
      column("External-IP", [](const Json& o, Instant) { return Json(node_address(o, "ExternalIP")); }, 1),
      column("OS-Image", [](const Json& o, Instant) { return Json(node_info(o, "osImage")); }, 1),
      column("Kernel-Version", [](const Json& o, Instant) { return Json(node_info(o, "kernelVersion")); }, 1),
      column("Container-Runtime", [](const Json& o, Instant) { return Json(node_info(o, "containerRuntimeVersion")); }, 1),
  };
}

}  // namespace fairlead::apiserver
