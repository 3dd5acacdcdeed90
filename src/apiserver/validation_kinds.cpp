// SPDX-License-Identifier: Apache-2.0
// Built-in kinds other than Pod and CustomResourceDefinition.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "apiserver/admission_priority.h"
#include "apiserver/crd.h"
#include "apiserver/go_text.h"
#include "apiserver/policy_kinds.h"
#include "apiserver/quota_kinds.h"
#include "apiserver/rbac_kinds.h"
#include "apiserver/validation.h"
#include "apiserver/workload_kinds.h"
#include "base/encoding.h"
#include "kube/selector.h"

namespace fairlead::apiserver {

using kube::Json;

namespace {

constexpr std::size_t data_limit = 1024 * 1024;

void check_data_key(const std::string& path, const std::string& key, FieldErrors& errors) {
  const bool characters = std::all_of(key.begin(), key.end(), [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_' || c == '.'; });
  if (key.empty() || key.size() > 253 || !characters || key == "." || key.starts_with(".."))
    errors.invalid(fmt::format("{}[{}]", path, key), key,
                   "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')");
}

void check_base64(const std::string& path, const Json& data, std::size_t& total, FieldErrors& errors) {
  for (const auto& [key, value] : data.members()) {
    check_data_key(path, key, errors);
    const auto bytes = parse_base64(value.string());
    if (!bytes || !value.is_string()) errors.invalid(fmt::format("{}[{}]", path, key), "<hidden>", "illegal base64 data");
    else total += bytes->size();
  }
}

void check_config_map(const Json& object, FieldErrors& errors) {
  std::size_t total = 0;
  for (const auto& [key, value] : object["data"].members()) {
    check_data_key("data", key, errors);
    if (object["binaryData"].has(key)) errors.invalid(fmt::format("data[{}]", key), key, "duplicate of key present in binaryData");
    total += value.string().size();
  }
  check_base64("binaryData", object["binaryData"], total, errors);
  if (total > data_limit) errors.too_long("", data_limit);
}

void check_secret(const Json& object, FieldErrors& errors) {
  std::size_t total = 0;
  check_base64("data", object["data"], total, errors);
  if (total > data_limit) errors.too_long("data", data_limit);
  const std::string& type = object["type"].string();
  constexpr const char* account = "kubernetes.io/service-account.name";
  if (type == "kubernetes.io/service-account-token" && object["metadata"]["annotations"][account].string().empty()) errors.required(fmt::format("metadata.annotations[{}]", account));
  std::vector<const char*> needed;
  if (type == "kubernetes.io/tls") needed = {"tls.crt", "tls.key"};
  if (type == "kubernetes.io/dockerconfigjson") needed = {".dockerconfigjson"};
  if (type == "kubernetes.io/basic-auth" && !object["data"].has("username") && !object["data"].has("password")) needed = {"username", "password"};
  if (type == "kubernetes.io/ssh-auth") needed = {"ssh-privatekey"};
  for (const char* key : needed)
    if (!object["data"].has(key)) errors.required(fmt::format("data[{}]", key));
}

void check_affinity(const Json& spec, FieldErrors& errors) {
  constexpr std::int64_t longest = 86400;
  const std::string at = "spec.sessionAffinityConfig";
  const Json &config = spec["sessionAffinityConfig"], &seconds = config["clientIP"]["timeoutSeconds"];
  if (spec["sessionAffinity"].string() == "None" && !config.is_null()) errors.forbidden(at, "must not be set when session affinity is None");
  if (spec["sessionAffinity"].string() != "ClientIP") return;
  if (config.is_null()) errors.required(at, "when session affinity type is ClientIP");
  else if (seconds.is_null()) errors.required(at + ".clientIP.timeoutSeconds", "when session affinity type is ClientIP");
  else if (seconds.integer() <= 0 || seconds.integer() > longest)
    errors.invalid(at + ".clientIP.timeoutSeconds", seconds, fmt::format("must be greater than 0 and less than {}", longest));
}

void check_service(const Json& object, FieldErrors& errors) {
  const Json& spec = object["spec"];
  const std::string& type = spec["type"].string();
  const bool headless = spec["clusterIP"].string() == "None";
  if (type != "ClusterIP" && type != "ExternalName" && type != "LoadBalancer" && type != "NodePort")
    errors.unsupported_value("spec.type", type, {"ClusterIP", "ExternalName", "LoadBalancer", "NodePort"});
  else if (type != "ClusterIP" && type != "NodePort")
    errors.not_supported_here("spec.type", fmt::format("type {} needs a real cluster: use type ClusterIP or NodePort", type));
  if (type == "NodePort" && headless) errors.invalid("spec.clusterIPs[0]", "None", "may not be set to 'None' for NodePort services");
  if ((type == "ClusterIP" || type == "NodePort") && !headless && spec["ports"].items().empty()) errors.required("spec.ports");
  const std::string& affinity = spec["sessionAffinity"].string();
  if (affinity != "None" && affinity != "ClientIP") errors.unsupported_value("spec.sessionAffinity", affinity, {"ClientIP", "None"});
  check_affinity(spec, errors);
  const std::string &outside = spec["externalTrafficPolicy"].string(), &inside = spec["internalTrafficPolicy"].string();
  if (type == "ClusterIP" && !outside.empty()) errors.invalid("spec.externalTrafficPolicy", outside, "may only be set for externally-accessible services");
  if (type == "NodePort" && outside != "Cluster" && outside != "Local") errors.unsupported_value("spec.externalTrafficPolicy", outside, {"Cluster", "Local"});
  if (inside != "Cluster" && inside != "Local") errors.unsupported_value("spec.internalTrafficPolicy", inside, {"Cluster", "Local"});
  for (const char* field : {"externalIPs", "loadBalancerSourceRanges"})
    if (!spec[field].items().empty()) errors.not_supported_here(fmt::format("spec.{}", field), "");
  std::set<std::string> names;
  const auto& ports = spec["ports"].items();
  for (std::size_t i = 0; i < ports.size(); ++i) {
    const std::string at = fmt::format("spec.ports[{}]", i);
    const Json& port = ports[i];
    const std::string& name = port["name"].string();
    if (ports.size() > 1 && name.empty()) errors.required(at + ".name");
    if (!name.empty()) {
      if (const auto why = kube::check_dns_label(name); !why.empty()) errors.invalid(at + ".name", name, why);
      else if (!names.insert(name).second) errors.duplicate(at + ".name", name);
    }
    if (port["port"].integer() < 1 || port["port"].integer() > 65535) errors.invalid(at + ".port", port["port"], "must be between 1 and 65535, inclusive");
    if (port["targetPort"].is_number() && (port["targetPort"].integer() < 1 || port["targetPort"].integer() > 65535))
      errors.invalid(at + ".targetPort", port["targetPort"], "must be between 1 and 65535, inclusive");
    if (type == "ClusterIP" && port["nodePort"].integer() != 0) errors.forbidden(at + ".nodePort", "may not be used when `type` is 'ClusterIP'");
    const std::string& protocol = port["protocol"].string();
    if (protocol != "TCP" && protocol != "UDP" && protocol != "SCTP") errors.unsupported_value(at + ".protocol", protocol, {"SCTP", "TCP", "UDP"});
    for (std::size_t j = 0; j < i; ++j)
      if (ports[j]["port"] == port["port"] && ports[j]["protocol"] == port["protocol"]) {
        errors.duplicate_as(at, go_port_key(port));
        break;
      }
  }
  for (const auto& [key, value] : spec["selector"].members()) {
    if (const auto why = kube::check_label_key(key); !why.empty()) errors.invalid("spec.selector", key, why);
    if (const auto why = kube::check_label_value(value.string()); !why.empty()) errors.invalid("spec.selector", value, why);
  }
}

void check_claim(const Json& object, FieldErrors& errors) {
  const Json& spec = object["spec"];
  if (spec["accessModes"].items().empty()) errors.required("spec.accessModes", "at least 1 access mode is required");
  for (const Json& mode : spec["accessModes"].items()) {
    const std::string& text = mode.string();
    if (text != "ReadWriteOnce" && text != "ReadOnlyMany" && text != "ReadWriteMany" && text != "ReadWriteOncePod")
      errors.unsupported_value("spec.accessModes", mode, {"ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"});
  }
  if (const auto& modes = spec["accessModes"].items(); modes.size() > 1 && std::any_of(modes.begin(), modes.end(), [](const Json& one) { return one.string() == "ReadWriteOncePod"; }))
    errors.forbidden("spec.accessModes", "may not use ReadWriteOncePod with other access modes");
  const Json* storage = spec["resources"]["requests"].find("storage");
  const auto size = storage ? kube::Quantity::from_json(*storage) : Result<kube::Quantity>(fail(Code::Invalid, ""));
  if (!storage) errors.required("spec.resources[storage]");
  else if (!size || size->value() <= 0) errors.invalid("spec.resources[storage]", *storage, "must be greater than zero");
  const std::string& mode = spec["volumeMode"].string();
  if (mode != "Filesystem" && mode != "Block") errors.unsupported_value("spec.volumeMode", mode, {"Block", "Filesystem"});
  // A copy of another claim's volume, or what a Snapshot of this project holds; a site without CSI's snapshot controller has no VolumeSnapshots.
  for (const char* field : {"dataSource", "dataSourceRef"}) {
    if (!spec.has(field)) continue;
    const Json& source = spec[field];
    const std::string at = fmt::format("spec.{}", field);
    const std::string &group = source["apiGroup"].string(), &kind = source["kind"].string();
    if (source["name"].string().empty()) errors.required(at + ".name");
    if (!source["namespace"].string().empty() && source["namespace"].string() != kube::space_of(object)) errors.not_supported_here(at + ".namespace", "only what is of the claim's own namespace is copied");
    if (!(group.empty() && kind == "PersistentVolumeClaim") && !(group == "fairlead.dev" && kind == "Snapshot")) errors.not_supported_here(at, "kind PersistentVolumeClaim, or kind Snapshot of apiGroup fairlead.dev");
  }
  if (spec.has("dataSource") && spec.has("dataSourceRef") && (spec["dataSource"]["kind"] != spec["dataSourceRef"]["kind"] || spec["dataSource"]["name"] != spec["dataSourceRef"]["name"]))
    errors.invalid("spec", spec["dataSource"]["name"], "must match dataSourceRef");
}

void check_event(const Json& object, FieldErrors& errors) {
  const std::string& space = object["involvedObject"]["namespace"].string();
  if (!space.empty() && space != kube::space_of(object)) errors.invalid("involvedObject.namespace", space, "does not match event.namespace");
}

void check_lease(const Json& object, FieldErrors& errors) {
  const Json& spec = object["spec"];
  if (!spec["leaseDurationSeconds"].is_null() && spec["leaseDurationSeconds"].integer() <= 0) errors.invalid("spec.leaseDurationSeconds", spec["leaseDurationSeconds"], "must be greater than 0");
  if (spec["leaseTransitions"].integer() < 0) errors.invalid("spec.leaseTransitions", spec["leaseTransitions"], "must be greater than or equal to 0");
}

void check_node(const Json& object, FieldErrors& errors) {
  const auto& taints = object["spec"]["taints"].items();
  for (std::size_t i = 0; i < taints.size(); ++i) {
    const std::string at = fmt::format("metadata.taints[{}]", i);  // as Kubernetes calls it
    if (const auto why = kube::check_label_key(taints[i]["key"].string()); !why.empty()) errors.invalid(at + ".key", taints[i]["key"], why);
    const std::string& effect = taints[i]["effect"].string();
    if (effect != "NoSchedule" && effect != "PreferNoSchedule" && effect != "NoExecute") errors.unsupported_value(at + ".effect", effect, {"NoSchedule", "PreferNoSchedule", "NoExecute"});
    for (std::size_t j = 0; j < i; ++j)
      if (taints[j]["key"] == taints[i]["key"] && taints[j]["effect"] == taints[i]["effect"]) {
        errors.duplicate_as(at, go_taint(taints[i]), "taints must be unique by key and effect pair");
        break;
      }
  }
}

void check_immutable_data(const Json& old, const Json& next, FieldErrors& errors) {
  if (!old["immutable"].boolean()) return;
  if (!next["immutable"].boolean()) errors.forbidden("immutable", "field is immutable when `immutable` is set");
  for (const char* field : {"data", "binaryData"})
    if (!(old[field] == next[field])) errors.forbidden(field, "field is immutable when `immutable` is set");
}

void check_service_change(const Json& old, const Json& next, FieldErrors& errors) {
  const Json &before = old["spec"]["clusterIPs"], &after = next["spec"]["clusterIPs"];
  if (before.items().empty()) return;
  if (after.items().empty() || !(before.items()[0] == after.items()[0])) errors.invalid("spec.clusterIPs[0]", after, "may not change once set");
}

void check_claim_change(const Json& old, const Json& next, FieldErrors& errors) {
  Json allowed = old["spec"];
  const Json& storage = next["spec"]["resources"]["requests"]["storage"];
  const auto before = kube::Quantity::from_json(old["spec"]["resources"]["requests"]["storage"]), after = kube::Quantity::from_json(storage);
  if (before && after && after->value() < before->value())
    errors.forbidden("spec.resources.requests.storage", "field can not be less than previous value");
  if (!storage.is_null()) allowed.child("resources").child("requests").set("storage", storage);
  if (old["spec"]["volumeName"].is_null() && next["spec"].has("volumeName")) allowed.set("volumeName", next["spec"]["volumeName"]);
  const std::string &old_class = old["spec"]["volumeAttributesClassName"].string(), &new_class = next["spec"]["volumeAttributesClassName"].string();
  if (next["spec"].has("volumeAttributesClassName")) allowed.set("volumeAttributesClassName", next["spec"]["volumeAttributesClassName"]);
  else allowed.erase("volumeAttributesClassName");
  if (!old_class.empty() && new_class.empty()) errors.forbidden("spec.volumeAttributesClassName", next["spec"].has("volumeAttributesClassName") ? "update from non-nil value to an empty string is forbidden" : "update from non-nil value to nil is forbidden");
  if (!(allowed == next["spec"])) errors.forbidden("spec", "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims");
}

}  // namespace

void check_object(const kube::Resource& resource, const Json& object, FieldErrors& errors) {
  if (is_workload(resource)) return check_workload(resource, object, errors);
  if (resource.group == kube::resources::crds.group) return check_crd(object, errors);
  if (resource.group == kube::resources::leases.group) return check_lease(object, errors);
  if (resource.group == rbac_resources::roles.group) return check_rbac(resource, object, errors);
  if (resource.group == priority_classes.group) return check_priority_class(object, errors);
  if (is_policy_kind(resource)) return check_policy(resource, object, errors);
  if (!resource.group.empty()) return;
  if (resource.plural == "pods") return check_pod(object, errors);
  if (resource.plural == "services") return check_service(object, errors);
  if (resource.plural == "configmaps") return check_config_map(object, errors);
  if (resource.plural == "secrets") return check_secret(object, errors);
  if (resource.plural == "persistentvolumeclaims") return check_claim(object, errors);
  if (resource.plural == "events") return check_event(object, errors);
  if (resource.plural == "nodes") return check_node(object, errors);
  if (resource.plural == "resourcequotas") return check_quota(object, errors);
}

void check_change(const kube::Resource& resource, const Json& old, const Json& next, FieldErrors& errors) {
  if (is_workload(resource)) return check_workload_change(resource, old, next, errors);
  if (resource.group == kube::resources::crds.group) return check_crd_change(old, next, errors);
  if (resource.group == rbac_resources::roles.group) return check_rbac_change(resource, old, next, errors);
  if (resource.group == priority_classes.group) return check_priority_class_change(old, next, errors);
  if (!resource.group.empty()) return;
  if (resource.plural == "pods") return check_pod_change(old, next, errors);
  if (resource.plural == "persistentvolumeclaims") return check_claim_change(old, next, errors);
  if (resource.plural == "services") return check_service_change(old, next, errors);
  if (resource.plural == "resourcequotas") return check_quota_change(old, next, errors);
  if (resource.plural == "configmaps" || resource.plural == "secrets") check_immutable_data(old, next, errors);
  if (resource.plural == "secrets" && !(old["type"] == next["type"])) errors.invalid("type", next["type"], "field is immutable");
}

}  // namespace fairlead::apiserver
