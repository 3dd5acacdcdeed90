// SPDX-License-Identifier: Apache-2.0
// Pods: what Kubernetes demands of one, and what the embedded engine can run.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "apiserver/validation.h"
#include "kube/selector.h"

namespace fairlead::apiserver {

using kube::Json;

namespace {

void one_of(const std::string& path, const Json& value, const std::vector<std::string_view>& supported, FieldErrors& errors) {
  if (value.is_null()) return;
  if (std::find(supported.begin(), supported.end(), value.string()) == supported.end()) errors.unsupported_value(path, value, supported);
}

void not_negative(const std::string& path, const Json& value, FieldErrors& errors) {
  if (value.integer() < 0) errors.invalid(path, value, "must be greater than or equal to 0");
}

void check_env(const std::string& path, const Json& env, FieldErrors& errors) {
  for (std::size_t i = 0; i < env.items().size(); ++i) {
    const Json& entry = env.items()[i];
    const std::string at = fmt::format("{}[{}]", path, i);
    const std::string& name = entry["name"].string();
    if (name.empty()) errors.required(at + ".name");
    if (name.find('=') != std::string::npos) errors.invalid(at + ".name", name, "environment variable names must be printable ASCII characters other than '=' character");
    const Json* from = entry.find("valueFrom");
    if (!from) continue;
    if (!entry["value"].string().empty()) errors.invalid(at + ".valueFrom", "", "may not be specified when `value` is not empty");
    std::size_t sources = 0;
    for (const char* source : {"fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef"}) {
      const Json& reference = (*from)[source];
      if (reference.is_null()) continue;
      ++sources;
      const std::string_view kind = source;
      if ((kind == "configMapKeyRef" || kind == "secretKeyRef") && reference["key"].string().empty()) errors.required(fmt::format("{}.valueFrom.{}.key", at, kind));
      if ((kind == "configMapKeyRef" || kind == "secretKeyRef") && reference["name"].string().empty()) errors.required(fmt::format("{}.valueFrom.{}.name", at, kind));
      if (kind != "fieldRef") continue;
      const std::string& field = reference["fieldPath"].string();
      constexpr std::array known{"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"};
      const bool subscript = (field.starts_with("metadata.labels['") || field.starts_with("metadata.annotations['")) && field.ends_with("']");
      if (field.empty()) errors.required(at + ".valueFrom.fieldRef.fieldPath");
      else if (!subscript && std::find(known.begin(), known.end(), field) == known.end())
        errors.invalid(at + ".valueFrom.fieldRef.fieldPath", field, fmt::format("error converting fieldPath: field label not supported: {}", field));
    }
    if (sources == 0) errors.invalid(at + ".valueFrom", "", "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`");
    if (sources > 1) errors.invalid(at + ".valueFrom", "", "may not have more than one field specified at a time");
  }
}

void check_resources(const std::string& path, const Json& resources, FieldErrors& errors) {
  for (const char* list : {"limits", "requests"}) {
    for (const auto& [name, value] : resources[list].members()) {
      const auto quantity = kube::Quantity::from_json(value);
      const std::string at = fmt::format("{}.{}[{}]", path, list, name);
      if (!quantity) errors.invalid(at, value, "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'");
      else if (quantity->milli_value() < 0) errors.invalid(at, value, "must be greater than or equal to 0");
      if (name.find('/') != std::string::npos && quantity && quantity->milli_value() % 1000 != 0) errors.invalid(at, value, "must be an integer");
    }
  }
  for (const auto& [name, value] : resources["requests"].members()) {
    const Json* limit = resources["limits"].find(name);
    const bool extended = name.find('/') != std::string::npos && name.find("kubernetes.io/") == std::string::npos;
    if (!limit && (extended || name.starts_with("hugepages-"))) errors.required(path + ".limits", "Limit must be set for non overcommitable resources");
    if (!limit) continue;
    const auto asked = kube::Quantity::from_json(value), most = kube::Quantity::from_json(*limit);
    if (asked && most && asked->milli_value() > most->milli_value())
      errors.invalid(path + ".requests", value, fmt::format("must be less than or equal to {} limit of {}", name, most->text()));
  }
  if (!resources["claims"].items().empty()) errors.not_supported_here(path + ".claims", "ask for an extended resource in limits instead");
}

void check_probe(const std::string& path, const Json& probe, FieldErrors& errors) {
  if (probe.is_null()) return;
  std::size_t handlers = 0;
  for (const char* handler : {"exec", "httpGet", "tcpSocket", "grpc"})
    if (probe.has(handler) && ++handlers > 1) errors.forbidden(fmt::format("{}.{}", path, handler), "may not specify more than 1 handler type");
  if (handlers == 0) errors.required(path, "must specify a handler type");
  if (probe.has("grpc") && (probe["grpc"]["port"].integer() < 1 || probe["grpc"]["port"].integer() > 65535)) errors.invalid(path + ".grpc.port", probe["grpc"]["port"], "must be between 1 and 65535, inclusive");
  if (probe.has("exec") && probe["exec"]["command"].items().empty()) errors.required(path + ".exec.command");
  for (const char* handler : {"tcpSocket", "httpGet"})
    if (probe.has(handler) && probe[handler]["port"].is_null()) errors.required(fmt::format("{}.{}.port", path, handler));
  for (const char* field : {"initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"}) not_negative(path + "." + field, probe[field], errors);
}

void check_container(const std::string& path, const Json& container, bool init, bool host_network, const std::set<std::string>& volumes, const std::set<std::string>& claims, std::set<std::string>& names, FieldErrors& errors) {
  const std::string& name = container["name"].string();
  if (name.empty()) errors.required(path + ".name");
  else if (const auto why = kube::check_dns_label(name); !why.empty()) errors.invalid(path + ".name", name, why);
  else if (!names.insert(name).second) errors.duplicate(path + ".name", name);
  const std::string& image = container["image"].string();
  if (image.empty()) errors.required(path + ".image");
  else if (image.front() == ' ' || image.back() == ' ') errors.invalid(path + ".image", image, "must not have leading or trailing whitespace");
  one_of(path + ".imagePullPolicy", container["imagePullPolicy"], {"Always", "IfNotPresent", "Never"}, errors);
  one_of(path + ".terminationMessagePolicy", container["terminationMessagePolicy"], {"FallbackToLogsOnError", "File"}, errors);

  std::set<std::string> port_names;
  for (std::size_t i = 0; i < container["ports"].items().size(); ++i) {
    const Json& port = container["ports"].items()[i];
    const std::string at = fmt::format("{}.ports[{}]", path, i);
    if (port["containerPort"].integer() == 0) errors.required(at + ".containerPort");
    else if (port["containerPort"].integer() < 1 || port["containerPort"].integer() > 65535) errors.invalid(at + ".containerPort", port["containerPort"], "must be between 1 and 65535, inclusive");
    one_of(at + ".protocol", port["protocol"], {"SCTP", "TCP", "UDP"}, errors);
    const std::int64_t host_port = port["hostPort"].integer();
    if (host_port < 0 || host_port > 65535) errors.invalid(at + ".hostPort", port["hostPort"], "must be between 1 and 65535, inclusive");
    else if (host_network && host_port != port["containerPort"].integer()) errors.invalid(at + ".containerPort", port["containerPort"], "must match `hostPort` when `hostNetwork` is true");
    if (const std::string& port_name = port["name"].string(); !port_name.empty() && !port_names.insert(port_name).second) errors.duplicate(at + ".name", port_name);
  }
  check_env(path + ".env", container["env"], errors);
  check_resources(path + ".resources", container["resources"], errors);

  std::set<std::string> mount_paths;
  for (std::size_t i = 0; i < container["volumeMounts"].items().size(); ++i) {
    const Json& mount = container["volumeMounts"].items()[i];
    const std::string at = fmt::format("{}.volumeMounts[{}]", path, i);
    if (mount["name"].string().empty()) errors.required(at + ".name");
    else if (!volumes.contains(mount["name"].string())) errors.not_found(at + ".name", mount["name"]);
    const std::string& where = mount["mountPath"].string();
    if (where.empty()) errors.required(at + ".mountPath");
    else if (!mount_paths.insert(where).second) errors.invalid(at + ".mountPath", where, "must be unique");
    const std::string& sub_path = mount["subPath"].string();
    const std::string below = path + ".volumeMounts.subPath";  // Kubernetes does not say of which mount
    if (sub_path.starts_with('/')) errors.invalid(below, sub_path, "must be a relative path");
    if (("/" + sub_path + "/").find("/../") != std::string::npos) errors.invalid(below, sub_path, "must not contain '..'");
    one_of(at + ".mountPropagation", mount["mountPropagation"], {"None", "HostToContainer", "Bidirectional"}, errors);
  }
  std::set<std::string> devices, device_paths;
  for (std::size_t i = 0; i < container["volumeDevices"].items().size(); ++i) {
    const Json& device = container["volumeDevices"].items()[i];
    const std::string at = fmt::format("{}.volumeDevices[{}]", path, i);
    const std::string &device_name = device["name"].string(), &where = device["devicePath"].string();
    const auto same = [&](const char* field, const std::string& text) { return std::any_of(container["volumeMounts"].items().begin(), container["volumeMounts"].items().end(), [&](const Json& mount) { return mount[field].string() == text; }); };
    if (device_name.empty()) errors.required(at + ".name");
    else if (!volumes.contains(device_name)) errors.not_found(at + ".name", device["name"]);
    else if (!claims.contains(device_name)) errors.invalid(at + ".name", device["name"], "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode");
    if (!device_name.empty() && !devices.insert(device_name).second) errors.invalid(at + ".name", device["name"], "must be unique");
    if (!device_name.empty() && same("name", device_name)) errors.invalid(at + ".name", device["name"], "must not already exist in volumeMounts");
    if (where.empty()) errors.required(at + ".devicePath");
    else if (!device_paths.insert(where).second) errors.invalid(at + ".devicePath", where, "must be unique");
    else if (same("mountPath", where)) errors.invalid(at + ".devicePath", where, "must not already exist as a path in volumeMounts");
    if (("/" + where + "/").find("/../") != std::string::npos) errors.invalid(at + ".devicePath", where, "can not contain backsteps ('..')");
    if (!where.empty() && (where.front() != '/' || where.size() < 2)) errors.not_supported_here(at + ".devicePath", "a path from / is expected: /dev/xvda");
  }

  for (const char* probe : {"livenessProbe", "readinessProbe", "startupProbe"}) {
    if (init && container["restartPolicy"].string() != "Always" && container.has(probe)) errors.forbidden(path + "." + probe, "may not be set for init containers");
    else check_probe(path + "." + probe, container[probe], errors);
  }
  if (container["livenessProbe"].is_object() && container["livenessProbe"]["successThreshold"].integer(1) != 1)
    errors.invalid(path + ".livenessProbe.successThreshold", container["livenessProbe"]["successThreshold"], "must be 1");
  if (container.has("restartPolicy") && (!init || container["restartPolicy"].string() != "Always"))
    errors.not_supported_here(path + ".restartPolicy", "only init containers have one, and it is Always");
}

bool climbs(const std::string& path) { return path == ".." || path.starts_with("../") || path.ends_with("/..") || path.find("/../") != std::string::npos; }

void check_items(const std::string& at, const Json& items, FieldErrors& errors) {
  for (std::size_t i = 0; i < items.items().size(); ++i) {
    const std::string& path = items.items()[i]["path"].string();
    const std::string where = fmt::format("{}.items[{}].path", at, i);
    if (path.empty()) errors.required(where);
    else if (path.front() == '/') errors.invalid(where, path, "must be a relative path");
    else if (climbs(path)) errors.invalid(where, path, "must not contain '..'");
  }
}

constexpr std::array supported_volumes{"configMap", "secret", "emptyDir", "hostPath", "persistentVolumeClaim", "ephemeral", "downwardAPI", "projected"};

void check_token_projection(const std::string& at, const Json& source, FieldErrors& errors) {
  constexpr std::int64_t least = 600, most = std::int64_t{1} << 32;
  const Json& seconds = source["expirationSeconds"];
  if (seconds.integer(least) < least) errors.invalid(at + ".expirationSeconds", seconds, "may not specify a duration less than 10 minutes");
  if (seconds.integer() > most) errors.invalid(at + ".expirationSeconds", seconds, "may not specify a duration larger than 2^32 seconds");
  const std::string& path = source["path"].string();
  if (path.empty()) errors.required(at + ".path");
  else if (path.front() == '/') errors.invalid(at + ".path", path, "must be a relative path");
  else if (climbs(path)) errors.invalid(at + ".path", path, "must not contain '..'");
}

void check_volume(const std::string& path, const Json& volume, FieldErrors& errors) {
  std::size_t types = 0;
  for (const auto& [name, source] : volume.members()) {
    if (name == "name") continue;
    ++types;
    const std::string at = path + "." + name;
    if (types > 1) errors.forbidden(at, "may not specify more than 1 volume type");
    if (std::find(supported_volumes.begin(), supported_volumes.end(), name) == supported_volumes.end())
      errors.not_supported_here(at, "volumes are configMap, secret, emptyDir, hostPath, persistentVolumeClaim, ephemeral, downwardAPI or projected");
    if (name == "configMap" || name == "secret" || name == "downwardAPI") check_items(at, source["items"], errors);
    if (name == "configMap" && source["name"].string().empty()) errors.required(at + ".name");
    if (name == "secret" && source["secretName"].string().empty()) errors.required(at + ".secretName");
    if (name == "persistentVolumeClaim" && source["claimName"].string().empty()) errors.required(at + ".claimName");
    if (name == "ephemeral") {
      const Json& spec = source["volumeClaimTemplate"]["spec"];
      if (!source["volumeClaimTemplate"].is_object()) errors.required(at + ".volumeClaimTemplate");
      else if (spec["accessModes"].items().empty()) errors.required(at + ".volumeClaimTemplate.spec.accessModes", "at least 1 access mode is required");
      else if (!spec["resources"]["requests"].has("storage")) errors.required(at + ".volumeClaimTemplate.spec.resources[storage]");
    }
    if (name == "hostPath") {
      if (source["path"].string().empty()) errors.required(at + ".path");
      else if (climbs(source["path"].string())) errors.invalid(at + ".path", source["path"], "must not contain '..'");
      one_of(at + ".type", source["type"], {"", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice"}, errors);
    }
    if (name == "emptyDir" && !source["medium"].string().empty() && source["medium"].string() != "Memory")
      errors.not_supported_here(at + ".medium", "it is \"\" or \"Memory\"");
    if (name == "projected") {
      for (std::size_t i = 0; i < source["sources"].items().size(); ++i)
        for (const auto& [kind, ignored] : source["sources"].items()[i].members())
          if (kind == "serviceAccountToken") check_token_projection(fmt::format("{}.sources[{}].serviceAccountToken", at, i), source["sources"].items()[i][kind], errors);
          else if (kind != "configMap" && kind != "secret" && kind != "downwardAPI")
            errors.not_supported_here(fmt::format("{}.sources[{}].{}", at, i, kind), "project configMap, secret, downwardAPI or serviceAccountToken");
    }
  }
  if (types == 0) errors.required(path, "must specify a volume type");
}

void check_tolerations(const Json& tolerations, FieldErrors& errors) {
  for (std::size_t i = 0; i < tolerations.items().size(); ++i) {
    const Json& toleration = tolerations.items()[i];
    const std::string at = fmt::format("spec.tolerations[{}]", i);
    one_of(at + ".operator", toleration["operator"], {"Equal", "Exists"}, errors);
    one_of(at + ".effect", toleration["effect"], {"NoSchedule", "PreferNoSchedule", "NoExecute", ""}, errors);
    if (toleration["operator"].string() == "Exists" && !toleration["value"].string().empty())
      errors.invalid(at + ".operator", toleration["value"], "value must be empty when `operator` is 'Exists'");
    if (toleration["key"].string().empty() && toleration["operator"].string() != "Exists")
      errors.invalid(at + ".operator", toleration["operator"], "operator must be Exists when `key` is empty, which means \"match all values and all keys\"");
    if (!toleration["tolerationSeconds"].is_null() && toleration["effect"].string() != "NoExecute")
      errors.invalid(at + ".effect", toleration["effect"], "effect must be 'NoExecute' when `tolerationSeconds` is set");
  }
}

void check_spread(const Json& constraints, FieldErrors& errors) {
  for (std::size_t i = 0; i < constraints.items().size(); ++i) {
    const Json& one = constraints.items()[i];
    const std::string at = fmt::format("spec.topologySpreadConstraints[{}]", i);
    if (one["maxSkew"].integer() < 1) errors.invalid(at + ".maxSkew", one["maxSkew"].is_null() ? Json(0) : one["maxSkew"], "must be greater than zero");
    if (one["topologyKey"].string().empty()) errors.required(at + ".topologyKey", "can not be empty");
    one_of(at + ".whenUnsatisfiable", Json(one["whenUnsatisfiable"].string()), {"DoNotSchedule", "ScheduleAnyway"}, errors);
    if (one.has("minDomains") && one["minDomains"].integer() < 1) errors.invalid(at + ".minDomains", one["minDomains"], "must be greater than zero");
    if (one.has("minDomains") && one["whenUnsatisfiable"].string() != "DoNotSchedule")
      errors.invalid(at + ".minDomains", one["minDomains"], "can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway");
    for (const char* policy : {"nodeAffinityPolicy", "nodeTaintsPolicy"}) one_of(at + "." + policy, one[policy], {"Honor", "Ignore"}, errors);
    if (auto selector = kube::LabelSelector::from_object(one["labelSelector"]); !selector) errors.invalid(at + ".labelSelector", one["labelSelector"], selector.error().message);
  }
}

void check_node_terms(const Json& affinity, FieldErrors& errors) {
  const std::string at = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution";
  const Json& required = affinity["requiredDuringSchedulingIgnoredDuringExecution"];
  const auto check_term = [&](const std::string& where, const Json& term) {
    for (std::size_t i = 0; i < term["matchExpressions"].items().size(); ++i) {
      const Json& one = term["matchExpressions"].items()[i];
      const std::string expression = fmt::format("{}.matchExpressions[{}]", where, i);
      const std::string& op = one["operator"].string();
      const std::size_t values = one["values"].items().size();
      if ((op == "In" || op == "NotIn") && values == 0) errors.required(expression + ".values", "must be specified when `operator` is 'In' or 'NotIn'");
      if ((op == "Exists" || op == "DoesNotExist") && values > 0) errors.forbidden(expression + ".values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
      if ((op == "Gt" || op == "Lt") && values != 1) errors.required(expression + ".values", "must be specified single value when `operator` is 'Lt' or 'Gt'");
      if (op != "In" && op != "NotIn" && op != "Exists" && op != "DoesNotExist" && op != "Gt" && op != "Lt") errors.invalid(expression + ".operator", op, "not a valid selector operator");
      if (const auto why = kube::check_label_key(one["key"].string()); !why.empty()) errors.invalid(expression + ".key", one["key"], why);
    }
  };
  if (required.is_object() && required["nodeSelectorTerms"].items().empty()) errors.required(at + ".nodeSelectorTerms", "must have at least one node selector term");
  for (std::size_t i = 0; i < required["nodeSelectorTerms"].items().size(); ++i) check_term(fmt::format("{}.nodeSelectorTerms[{}]", at, i), required["nodeSelectorTerms"].items()[i]);
  const auto& preferred = affinity["preferredDuringSchedulingIgnoredDuringExecution"].items();
  for (std::size_t i = 0; i < preferred.size(); ++i) {
    const std::string where = fmt::format("spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[{}]", i);
    if (preferred[i]["weight"].integer() < 1 || preferred[i]["weight"].integer() > 100) errors.invalid(where + ".weight", preferred[i]["weight"], "must be in the range 1-100");
    check_term(where + ".preference", preferred[i]["preference"]);
  }
}

void check_pod_terms(const std::string& at, const Json& affinity, FieldErrors& errors) {
  const auto check_term = [&](const std::string& where, const Json& term) {
    if (term["topologyKey"].string().empty()) errors.required(where + ".topologyKey", "can not be empty");
    for (const char* field : {"labelSelector", "namespaceSelector"})
      if (auto selector = kube::LabelSelector::from_object(term[field]); !selector) errors.invalid(where + "." + field, term[field], selector.error().message);
  };
  const auto& required = affinity["requiredDuringSchedulingIgnoredDuringExecution"].items();
  for (std::size_t i = 0; i < required.size(); ++i) check_term(fmt::format("{}.requiredDuringSchedulingIgnoredDuringExecution[{}]", at, i), required[i]);
  const auto& preferred = affinity["preferredDuringSchedulingIgnoredDuringExecution"].items();
  for (std::size_t i = 0; i < preferred.size(); ++i) {
    const std::string where = fmt::format("{}.preferredDuringSchedulingIgnoredDuringExecution[{}]", at, i);
    if (preferred[i]["weight"].integer() < 1 || preferred[i]["weight"].integer() > 100) errors.invalid(where + ".weight", preferred[i]["weight"], "must be in the range 1-100");
    check_term(where + ".podAffinityTerm", preferred[i]["podAffinityTerm"]);
  }
}

void check_who(const std::string& at, const Json& context, FieldErrors& errors) {
  for (const char* field : {"runAsUser", "runAsGroup", "fsGroup"})
    if (context.has(field) && (context[field].integer() < 0 || context[field].integer() > 2147483647)) errors.invalid(fmt::format("{}.{}", at, field), context[field], "must be between 0 and 2147483647, inclusive");
  const bool may_not_rise = context.has("allowPrivilegeEscalation") && !context["allowPrivilegeEscalation"].boolean();
  if (may_not_rise && context["privileged"].boolean()) errors.invalid(at, context, "cannot set `allowPrivilegeEscalation` to false and `privileged` to true");
}

void check_rest(const Json& spec, FieldErrors& errors) {
  check_node_terms(spec["affinity"]["nodeAffinity"], errors);
  check_pod_terms("spec.affinity.podAffinity", spec["affinity"]["podAffinity"], errors);
  check_pod_terms("spec.affinity.podAntiAffinity", spec["affinity"]["podAntiAffinity"], errors);
  check_who("spec.securityContext", spec["securityContext"], errors);
  for (const char* list : {"containers", "initContainers"})
    for (std::size_t i = 0; i < spec[list].items().size(); ++i) check_who(fmt::format("spec.{}[{}].securityContext", list, i), spec[list].items()[i]["securityContext"], errors);
  std::set<std::string> gates;
  for (std::size_t i = 0; i < spec["schedulingGates"].items().size(); ++i) {
    const Json& name = spec["schedulingGates"].items()[i]["name"];
    if (!gates.insert(name.string()).second) errors.duplicate(fmt::format("spec.schedulingGates[{}]", i), name);
  }
  for (std::size_t i = 0; i < spec["hostAliases"].items().size(); ++i) {
    const std::string& ip = spec["hostAliases"].items()[i]["ip"].string();
    std::array<unsigned char, 16> bytes{};
    if (::inet_pton(AF_INET, ip.c_str(), bytes.data()) != 1 && ::inet_pton(AF_INET6, ip.c_str(), bytes.data()) != 1)
      errors.invalid(fmt::format("spec.hostAliases[{}].ip", i), ip, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)");
  }
}

// What this engine does not do, each with what to do instead.
void check_supported(const Json& spec, FieldErrors& errors) {
  if (!spec["ephemeralContainers"].items().empty()) errors.not_supported_here("spec.ephemeralContainers", "use kubectl exec");
  if (!spec["resourceClaims"].items().empty()) errors.not_supported_here("spec.resourceClaims", "ask for an extended resource in limits");
  if (!spec["runtimeClassName"].string().empty()) errors.not_supported_here("spec.runtimeClassName", "there is one runtime");
  if (const std::string& os = spec["os"]["name"].string(); !os.empty() && os != "linux") errors.unsupported_value("spec.os.name", os, {"linux"});
}

}  // namespace

void check_pod(const Json& pod, FieldErrors& errors) {
  const Json& spec = pod["spec"];
  if (!spec.is_object()) {
    errors.required("spec");
    return;
  }
  std::set<std::string> volumes, claims;
  for (std::size_t i = 0; i < spec["volumes"].items().size(); ++i) {
    const Json& volume = spec["volumes"].items()[i];
    const std::string path = fmt::format("spec.volumes[{}]", i);
    const std::string& name = volume["name"].string();
    if (name.empty()) errors.required(path + ".name");
    else if (const auto why = kube::check_dns_label(name); !why.empty()) errors.invalid(path + ".name", name, why);
    else if (!volumes.insert(name).second) errors.duplicate(path + ".name", name);
    if (volume["persistentVolumeClaim"].is_object() || volume["ephemeral"].is_object()) claims.insert(name);
    check_volume(path, volume, errors);
  }
  if (spec["containers"].items().empty()) errors.required("spec.containers");
  std::set<std::string> names;
  const bool host_network = spec["hostNetwork"].boolean();
  for (std::size_t i = 0; i < spec["containers"].items().size(); ++i)
    check_container(fmt::format("spec.containers[{}]", i), spec["containers"].items()[i], false, host_network, volumes, claims, names, errors);
  for (std::size_t i = 0; i < spec["initContainers"].items().size(); ++i)
    check_container(fmt::format("spec.initContainers[{}]", i), spec["initContainers"].items()[i], true, host_network, volumes, claims, names, errors);

  one_of("spec.restartPolicy", spec["restartPolicy"], {"Always", "OnFailure", "Never"}, errors);
  one_of("spec.dnsPolicy", spec["dnsPolicy"], {"ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"}, errors);
  if (!spec["activeDeadlineSeconds"].is_null() && spec["activeDeadlineSeconds"].integer() < 1)
    errors.invalid("spec.activeDeadlineSeconds", spec["activeDeadlineSeconds"], "must be between 1 and 2147483647, inclusive");
  for (const char* field : {"hostname", "subdomain"})
    if (const std::string& text = spec[field].string(); !text.empty())
      if (const auto why = kube::check_dns_label(text); !why.empty()) errors.invalid(fmt::format("spec.{}", field), text, why);
  if (const std::string& node = spec["nodeName"].string(); !node.empty())
    if (const auto why = kube::check_dns_subdomain(node); !why.empty()) errors.invalid("spec.nodeName", node, why);
  for (const auto& [key, value] : spec["nodeSelector"].members()) {
    if (const auto why = kube::check_label_key(key); !why.empty()) errors.invalid("spec.nodeSelector", key, why);
    if (const auto why = kube::check_label_value(value.string()); !why.empty()) errors.invalid("spec.nodeSelector", value, why);
  }
  check_tolerations(spec["tolerations"], errors);
  check_spread(spec["topologySpreadConstraints"], errors);
  check_rest(spec, errors);
  check_supported(spec, errors);
}

namespace {

const Json* spec_member(const Json& pod, const char* name) { return pod["spec"].find(name); }

// Images may change, nothing else of containers. False: so different that nothing more is compared.
bool check_images(const Json& old, const Json& next, const char* list, Json& allowed, FieldErrors& errors) {
  const auto &before = old["spec"][list].items(), &after = next["spec"][list].items();
  if (before.size() != after.size()) {
    errors.forbidden(fmt::format("spec.{}", list), "pod updates may not add or remove containers");
    return false;
  }
  if (before.empty()) return true;
  auto& munged = allowed.child(list).items();
  for (std::size_t i = 0; i < after.size(); ++i)
    if (after[i]["image"].is_string()) munged[i].set("image", after[i]["image"]);
  return true;
}

// It may come, and it may shrink. False: nothing more is compared.
bool check_deadline(const Json& old, const Json& next, Json& allowed, FieldErrors& errors) {
  const std::string at = "spec.activeDeadlineSeconds";
  const Json &before = old["spec"]["activeDeadlineSeconds"], &after = next["spec"]["activeDeadlineSeconds"];
  if (after.is_null()) {
    if (!before.is_null()) errors.invalid(at, Json(), "must not update from a positive integer to nil value");
    return true;
  }
  if (!before.is_null() && before.integer() < after.integer()) {
    errors.invalid(at, after, "must be less than or equal to previous value");
    return false;
  }
  allowed.set("activeDeadlineSeconds", after);
  return true;
}

// Tolerations are only added; how long one lasts may change.
void check_added_tolerations(const Json& old, const Json& next, Json& allowed, FieldErrors& errors) {
  const auto without_time = [](Json toleration) {
    toleration.erase("tolerationSeconds");
    return toleration;
  };
  const auto& after = next["spec"]["tolerations"].items();
  for (const Json& one : old["spec"]["tolerations"].items()) {
    const bool kept = std::any_of(after.begin(), after.end(), [&](const Json& other) { return without_time(other) == without_time(one); });
    if (kept) continue;
    errors.forbidden("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds");
    break;
  }
  if (next["spec"].has("tolerations")) allowed.set("tolerations", next["spec"]["tolerations"]);
  else allowed.erase("tolerations");
}

// Gates are only lifted. As long as one is there, where the pod may go can be narrowed: what lifts gates decides it.
void check_gates(const Json& old, const Json& next, Json& allowed, FieldErrors& errors) {
  const auto &before = old["spec"]["schedulingGates"].items(), &after = next["spec"]["schedulingGates"].items();
  for (const Json& gate : after)
    if (std::find(before.begin(), before.end(), gate) == before.end())
      errors.forbidden("spec.schedulingGates", fmt::format("only deletion is allowed, but found new scheduling gate '{}'", gate["name"].string()));
  if (const Json* gates = spec_member(next, "schedulingGates")) allowed.set("schedulingGates", *gates);
  else allowed.erase("schedulingGates");
  if (before.empty()) return;
  const Json &selected = old["spec"]["nodeSelector"], &selects = next["spec"]["nodeSelector"];
  const bool narrower = std::all_of(selected.members().begin(), selected.members().end(), [&](const auto& member) { return selects[member.first] == member.second; });
  if (!narrower) errors.invalid("spec.nodeSelector", selects, "only additions are allowed (no mutations or deletions)");
  if (!selects.is_null()) allowed.set("nodeSelector", selects);
  if (old["spec"]["affinity"]["nodeAffinity"].is_null() && next["spec"]["affinity"].has("nodeAffinity")) allowed.child("affinity").set("nodeAffinity", next["spec"]["affinity"]["nodeAffinity"]);
}

}  // namespace

void check_pod_change(const Json& old, const Json& next, FieldErrors& errors) {
  Json allowed = old["spec"];
  for (const char* list : {"containers", "initContainers"})
    if (!check_images(old, next, list, allowed, errors)) return;
  if (!check_deadline(old, next, allowed, errors)) return;
  check_added_tolerations(old, next, allowed, errors);
  check_gates(old, next, allowed, errors);
  const Json& grace = next["spec"]["terminationGracePeriodSeconds"];
  if (old["spec"]["terminationGracePeriodSeconds"].integer() < 0 && grace.integer() == 1) allowed.set("terminationGracePeriodSeconds", grace);
  if (allowed == next["spec"]) return;
  std::set<std::string> changed;
  for (const Json* one : {static_cast<const Json*>(&allowed), &next["spec"]})
    for (const auto& [name, value] : one->members())
      if (!(allowed[name] == next["spec"][name])) changed.insert("spec." + name);
  errors.forbidden("spec", fmt::format("pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
                                       "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\nchanged: {}",
                                       fmt::join(changed, ", ")));
}

}  // namespace fairlead::apiserver
