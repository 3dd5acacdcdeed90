// SPDX-License-Identifier: Apache-2.0
#include "node/plan/refusal.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

namespace fairlead::node {
namespace {
using kube::Json;
using Names = std::vector<std::string_view>;

class Check {
 public:
  // Every non-empty member of `object` must be in `known`.
  void members(const Json& object, const std::string& path, const Names& known) {
    for (const auto& [key, value] : object.members()) {
      const bool says_nothing = value.is_null() || (value.is_array() && value.items().empty()) ||
                                (value.is_object() && value.members().empty() && key != "emptyDir") || (value.is_bool() && !value.boolean()) ||
                                (value.is_string() && value.string().empty());
      if (!says_nothing && std::find(known.begin(), known.end(), key) == known.end()) add(path + "." + key);
    }
  }
  void value(const Json& value, const std::string& path, const Names& known) {
    if (value.is_string() && !value.string().empty() && std::find(known.begin(), known.end(), value.string()) == known.end())
      add(path + ": " + value.string());
  }
  void add(std::string what) { found_.push_back(std::move(what)); }
  std::string text() const {
    if (found_.empty()) return {};
    std::string out;
    for (const std::string& one : found_) out += (out.empty() ? "" : ", ") + one;
    return "this node does not support: " + out;
  }

 private:
  std::vector<std::string> found_;
};

void check_probe(Check& check, const Json& probe, const std::string& path) {
  if (!probe.is_object()) return;
  check.members(probe, path,
                {"exec", "httpGet", "tcpSocket", "grpc", "initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold",
                 "failureThreshold", "terminationGracePeriodSeconds"});
  check.value(probe["httpGet"]["scheme"], path + ".httpGet.scheme", {"HTTP", "HTTPS"});
}

void check_handler(Check& check, const Json& handler, const std::string& path) {
  if (handler.is_object()) check.members(handler, path, {"exec", "sleep", "httpGet"});
}

enum class Role { Init, Main };

void check_container(Check& check, const Json& container, const std::string& path, Role role) {
  Names known{"name",
              "image",
              "command",
              "args",
              "workingDir",
              "ports",
              "env",
              "envFrom",
              "resources",
              "volumeMounts",
              "volumeDevices",
              "securityContext",
              "imagePullPolicy",
              "terminationMessagePath",
              "terminationMessagePolicy",
              "stdin",
              "stdinOnce",
              "tty",
              "resizePolicy"};
  if (role == Role::Init) known.emplace_back("restartPolicy");
  const bool sidecar = role == Role::Init && container["restartPolicy"].string() == "Always";
  if (role == Role::Main || sidecar) known.insert(known.end(), {"livenessProbe", "readinessProbe", "startupProbe", "lifecycle"});
  check.members(container, path, known);
  check.members(container["securityContext"], path + ".securityContext",
                {"runAsUser", "runAsGroup", "runAsNonRoot", "privileged", "capabilities", "readOnlyRootFilesystem", "allowPrivilegeEscalation",
                 "seccompProfile", "procMount", "appArmorProfile"});
  check.value(container["securityContext"]["seccompProfile"]["type"], path + ".securityContext.seccompProfile.type",
              {"RuntimeDefault", "Unconfined"});
  check.value(container["securityContext"]["appArmorProfile"]["type"], path + ".securityContext.appArmorProfile.type", {"Unconfined"});
  check.value(container["securityContext"]["procMount"], path + ".securityContext.procMount", {"Default", "Unmasked"});
  for (const char* probe : {"livenessProbe", "readinessProbe", "startupProbe"}) check_probe(check, container[probe], path + "." + probe);
  check.members(container["lifecycle"], path + ".lifecycle", {"preStop", "postStart"});
  check_handler(check, container["lifecycle"]["preStop"], path + ".lifecycle.preStop");
  check_handler(check, container["lifecycle"]["postStart"], path + ".lifecycle.postStart");
  for (const Json& mount : container["volumeMounts"].items()) {
    check.members(mount, path + ".volumeMounts",
                  {"name", "mountPath", "readOnly", "subPath", "subPathExpr", "mountPropagation", "recursiveReadOnly"});
    check.value(mount["recursiveReadOnly"], path + ".volumeMounts.recursiveReadOnly", {"Disabled"});
  }
  check.members(container["resources"], path + ".resources", {"limits", "requests"});
}

void check_volume(Check& check, const Json& volume) {
  const std::string path = "spec.volumes[" + volume["name"].string() + "]";
  check.members(volume, path, {"name", "configMap", "secret", "emptyDir", "hostPath", "persistentVolumeClaim", "ephemeral", "projected", "downwardAPI"});
  check.value(volume["hostPath"]["type"], path + ".hostPath.type",
              {"Directory", "DirectoryOrCreate", "File", "FileOrCreate", "CharDevice", "BlockDevice", "Socket"});
  check.value(volume["emptyDir"]["medium"], path + ".emptyDir.medium", {"Memory"});
  for (const Json& source : volume["projected"]["sources"].items()) {
    check.members(source, path + ".projected.sources", {"configMap", "secret", "downwardAPI", "serviceAccountToken"});
  }
}

}  // namespace

std::string refusal_of(const Json& pod) {
  Check check;
  const Json& spec = pod["spec"];
  // Fields that say how the pod is placed or billed concern other programs.
  check.members(spec, "spec",
                {"containers",
                 "initContainers",
                 "volumes",
                 "restartPolicy",
                 "terminationGracePeriodSeconds",
                 "activeDeadlineSeconds",
                 "dnsPolicy",
                 "dnsConfig",
                 "nodeSelector",
                 "nodeName",
                 "serviceAccountName",
                 "serviceAccount",
                 "automountServiceAccountToken",
                 "hostNetwork",
                 "hostPID",
                 "hostIPC",
                 "shareProcessNamespace",
                 "setHostnameAsFQDN",
                 "securityContext",
                 "hostname",
                 "subdomain",
                 "affinity",
                 "schedulerName",
                 "tolerations",
                 "priorityClassName",
                 "priority",
                 "preemptionPolicy",
                 "readinessGates",
                 "enableServiceLinks",
                 "topologySpreadConstraints",
                 "hostAliases",
                 "imagePullSecrets",
                 "os",
                 "schedulingGates",
                 "overhead",
                 "hostUsers"});
  // The one switch whose "no" asks for something: a user namespace.
  if (spec["hostUsers"].is_bool() && !spec["hostUsers"].boolean()) check.add("spec.hostUsers: false");
  check.value(spec["os"]["name"], "spec.os.name", {"linux"});
  check.members(spec["securityContext"], "spec.securityContext",
                {"runAsUser", "runAsGroup", "runAsNonRoot", "supplementalGroups", "fsGroup", "fsGroupChangePolicy", "seccompProfile", "sysctls",
                 "appArmorProfile"});
  check.value(spec["securityContext"]["seccompProfile"]["type"], "spec.securityContext.seccompProfile.type", {"RuntimeDefault", "Unconfined"});
  check.value(spec["securityContext"]["appArmorProfile"]["type"], "spec.securityContext.appArmorProfile.type", {"Unconfined"});
  for (const Json& sysctl : spec["securityContext"]["sysctls"].items()) {
    const std::string& name = sysctl["name"].string();
    const bool net = name.starts_with("net."),
               ipc = name.starts_with("kernel.shm") || name.starts_with("kernel.msg") || name == "kernel.sem" || name.starts_with("fs.mqueue.");
    if (!net && !ipc) check.add("sysctl " + name);
    if (net && spec["hostNetwork"].boolean()) check.add("sysctl " + name + " with hostNetwork");
    if (ipc && spec["hostIPC"].boolean()) check.add("sysctl " + name + " with hostIPC");
  }
  for (const Json& volume : spec["volumes"].items()) check_volume(check, volume);
  for (const Json& container : spec["initContainers"].items())
    check_container(check, container, "spec.initContainers[" + container["name"].string() + "]", Role::Init);
  for (const Json& container : spec["containers"].items())
    check_container(check, container, "spec.containers[" + container["name"].string() + "]", Role::Main);
  return check.text();
}

}  // namespace fairlead::node
