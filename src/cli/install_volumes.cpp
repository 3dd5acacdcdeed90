// SPDX-License-Identifier: Apache-2.0
#include "cli/install_volumes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "api/volume.h"
#include "api/volume_access.h"
#include "base/encoding.h"
#include "cli/install_parts.h"
#include "cli/install_plan.h"
#include "kube/object.h"
#include "kube/selector.h"

namespace fairlead::cli {

using kube::Json;

namespace {

constexpr const char* kVolumes = "fairlead-volumes";
constexpr const char* kKeys = "fairlead-volumes-keys";
constexpr const char* kEngineFolder = "/run/fairlead-volumes";
constexpr const char* kController = "fairlead-volumes-controller";
constexpr int kHealthPort = 8080;

Json list(std::initializer_list<const char*> words) {
  Json out = Json::array();
  for (const char* const word : words) out.push(word);
  return out;
}

Json requests() { return Json::object({{"requests", Json::object({{"cpu", "10m"}, {"memory", "32Mi"}})}}); }
Json limits() { return requests().set("limits", Json::object({{"memory", "256Mi"}})); }
Json host_path(const char* name, const std::string& path, const char* type) { return Json::object({{"name", name}, {"hostPath", Json::object({{"path", path}, {"type", type}})}}); }
Json mount(const char* name, const std::string& path) { return Json::object({{"name", name}, {"mountPath", path}}); }
Json selector_of(const char* name) { return Json::object({{"app.kubernetes.io/name", name}, {kPartOf, "fairlead"}}); }
Json account(const char* name, const std::string& space) { return part("v1", "ServiceAccount", part_metadata(name, space, name)); }

Json probe_by_call() { return Json::object({{"exec", Json::object({{"command", list({"/usr/bin/fairlead-csi", "call", "Probe"})}})}, {"initialDelaySeconds", 5}, {"periodSeconds", 30}, {"timeoutSeconds", 10}}); }
Json endpoint() { return Json::object({{"name", "CSI_ENDPOINT"}, {"value", "unix:///csi/csi.sock"}}); }

// Privileged: it makes devices, and mounts where the node sees it. Without a limit: a check of a large ext4 takes the memory that it takes, and one that is killed for it keeps its pod from starting.
Json node_container(const VolumeOptions& options, const char* name, const char* program, std::vector<Json> args) {
  return Json::object({{"name", name},
                       {"image", options.image},
                       {"imagePullPolicy", "IfNotPresent"},
                       {"command", list({program})},
                       {"args", Json::array(std::move(args))},
                       {"resources", requests()},
                       {"securityContext", Json::object({{"privileged", true}, {"runAsUser", 0}, {"readOnlyRootFilesystem", true}})}});
}

Json daemon_set(const char* name, const VolumeOptions& options, const std::string& space, Json update, Json spec) {
  if (!options.nodes.empty()) {
    Json labels = Json::object();
    for (const std::string& one : split(options.nodes, ',')) labels.set(one.substr(0, one.find('=')), one.substr(one.find('=') + 1));
    spec.set("nodeSelector", std::move(labels));
  }
  Json out = part("apps/v1", "DaemonSet", part_metadata(name, space, name));
  return out.set("spec", Json::object({{"selector", Json::object({{"matchLabels", selector_of(name)}})}, {"updateStrategy", std::move(update)}, {"template", Json::object({{"metadata", Json::object({{"labels", selector_of(name)}})}, {"spec", std::move(spec)}})}}));
}

Json node_set(const VolumeOptions& options, const std::string& space) {
  const std::string plugin = fmt::format("{}/plugins/{}", options.kubelet_dir, api::kVolumeDriver);
  std::vector<Json> args = {"run", "--folder=" + options.folder + "/pool"};
  if (options.size != "xfs") {
    args.emplace_back("--image=" + options.folder + "/pool.img");
    args.emplace_back("--size=" + options.size);
  }
  // An engine would end with this container, and its volume with it: another pod keeps it.
  args.emplace_back(options.engines ? fmt::format("--engine=unix://{}/engines.sock", kEngineFolder) : "--engine=off");
  args.emplace_back(fmt::format("--metrics=0.0.0.0:{}", kHealthPort));
  Json pool = node_container(options, "pool", "/usr/bin/fairlead-volumes", std::move(args));
  pool.set("env", Json::array({field_env("NODE_NAME", "spec.nodeName")}));
  pool.set("ports", Json::array({Json::object({{"name", "health"}, {"containerPort", kHealthPort}, {"protocol", "TCP"}})}));
  // Making the pool's file may take minutes before anybody answers.
  pool.set("startupProbe", health_probe("/healthz").set("periodSeconds", 5).set("failureThreshold", 120));
  pool.set("livenessProbe", health_probe("/healthz")).set("readinessProbe", health_probe("/readyz"));
  // Seen by the node: a pool that was mounted in the container alone would go with it.
  pool.set("volumeMounts", Json::array({mount("pool", options.folder).set("mountPropagation", "Bidirectional"), mount("dev", "/dev"), mount("token", "/var/run/secrets/kubernetes.io/serviceaccount").set("readOnly", true)}));
  if (options.engines) pool.child("volumeMounts").push(mount("engines", kEngineFolder).set("mountPropagation", "HostToContainer"));

  Json driver = node_container(options, "driver", "/usr/bin/fairlead-csi", {Json("serve"), Json("--node=$(NODE_NAME)"), Json("--own-pool"), Json("--register=/registration"), Json("--seen-as=unix://" + plugin + "/csi.sock")});
  driver.set("env", Json::array({field_env("NODE_NAME", "spec.nodeName"), endpoint()}));
  driver.set("livenessProbe", probe_by_call());
  driver.set("volumeMounts", Json::array({mount("plugin", "/csi"), mount("registration", "/registration"), mount("kubelet", options.kubelet_dir).set("mountPropagation", "Bidirectional"), mount("dev", "/dev")}));

  // What a pod gets by itself, for the one container that asks the API.
  const Json token = Json::object({{"serviceAccountToken", Json::object({{"path", "token"}, {"expirationSeconds", 3607}})}});
  const Json authority = Json::object({{"configMap", Json::object({{"name", "kube-root-ca.crt"}, {"items", Json::array({Json::object({{"key", "ca.crt"}, {"path", "ca.crt"}})})}})}});
  const Json where = Json::object({{"downwardAPI", Json::object({{"items", Json::array({Json::object({{"path", "namespace"}, {"fieldRef", Json::object({{"apiVersion", "v1"}, {"fieldPath", "metadata.namespace"}})}})})}})}});
  Json volumes = Json::array({host_path("pool", options.folder, "DirectoryOrCreate"), host_path("dev", "/dev", "Directory"), host_path("kubelet", options.kubelet_dir, "Directory"), host_path("plugin", plugin, "DirectoryOrCreate"),
                                    host_path("registration", options.kubelet_dir + "/plugins_registry", "DirectoryOrCreate"), Json::object({{"name", "token"}, {"projected", Json::object({{"sources", Json::array({token, authority, where})}})}})});
  if (options.engines) volumes.push(host_path("engines", kEngineFolder, "DirectoryOrCreate"));
  Json spec = Json::object({{"serviceAccountName", kVolumes},
                            {"automountServiceAccountToken", false},
                            {"priorityClassName", "system-node-critical"},
                            {"terminationGracePeriodSeconds", 15},
                            {"containers", Json::array({pool, driver})},
                            {"volumes", volumes}});
  return daemon_set(kVolumes, options, space, Json::object({{"type", "RollingUpdate"}, {"rollingUpdate", Json::object({{"maxUnavailable", "10%"}})}}), std::move(spec));
}

// Engines, and nothing else: no upgrade replaces these pods, since what uses their volumes would lose its disk.
Json engine_set(const VolumeOptions& options, const std::string& space) {
  Json engines = node_container(options, "engines", "/usr/bin/fairlead-volumes", {Json("engines")});
  engines.set("resources", Json::object({{"requests", Json::object({{"cpu", "10m"}, {"memory", "64Mi"}})}}));
  engines.set("volumeMounts", Json::array({mount("pool", options.folder).set("mountPropagation", "HostToContainer"), mount("engines", kEngineFolder).set("mountPropagation", "Bidirectional"), mount("dev", "/dev")}));
  Json spec = Json::object({{"automountServiceAccountToken", false},
                            {"priorityClassName", "system-node-critical"},
                            {"terminationGracePeriodSeconds", 120},  // for pods to give their volumes back
                            {"containers", Json::array({engines})},
                            {"volumes", Json::array({host_path("pool", options.folder, "DirectoryOrCreate"), host_path("engines", kEngineFolder, "DirectoryOrCreate"), host_path("dev", "/dev", "Directory")})}});
  return daemon_set(kVolumeEngines, options, space, Json::object({{"type", "OnDelete"}}), std::move(spec));
}

Json controller_container(const char* name, const std::string& image, Json args) {
  return Json::object({{"name", name},
                       {"image", image},
                       {"imagePullPolicy", "IfNotPresent"},
                       {"args", std::move(args)},
                       {"resources", limits()},
                       {"securityContext", Json::object({{"allowPrivilegeEscalation", false}, {"readOnlyRootFilesystem", true}, {"capabilities", Json::object({{"drop", list({"ALL"})}})}})},
                       {"volumeMounts", Json::array({mount("socket", "/csi")})}});
}

Json controller(const VolumeOptions& options, const std::string& space) {
  std::vector<Json> containers = {controller_container("driver", options.image, list({"serve", "--controller"})).set("command", list({"/usr/bin/fairlead-csi"})).set("env", Json::array({endpoint()})).set("livenessProbe", probe_by_call())};
  const auto add = [&](const char* name, const std::string& image, std::initializer_list<const char*> more) {
    Json args = list({"--csi-address=/csi/csi.sock", "--leader-election=true"});
    for (const char* const one : more) args.push(one);
    containers.push_back(controller_container(name, image, std::move(args)));
  };
  add("provisioner", options.provisioner_image, {"--feature-gates=Topology=true", "--extra-create-metadata", "--default-fstype=ext4", "--enable-capacity", "--capacity-ownerref-level=2"});
  containers.back().set("env", Json::array({field_env("NAMESPACE", "metadata.namespace"), field_env("POD_NAME", "metadata.name")}));
  add("attacher", options.attacher_image, {});
  add("resizer", options.resizer_image, {});
  if (!options.snapshotter_image.empty()) add("snapshotter", options.snapshotter_image, {"--feature-gates=CSIVolumeGroupSnapshot=false"});  // the driver takes none of groups, and has no rights for them
  const Json apart = Json::object({{"weight", 100}, {"podAffinityTerm", Json::object({{"topologyKey", "kubernetes.io/hostname"}, {"labelSelector", Json::object({{"matchLabels", selector_of(kController)}})}})}});
  const Json spec = Json::object({{"serviceAccountName", kController},
                                  {"securityContext", Json::object({{"runAsNonRoot", true}, {"runAsUser", 65532}, {"runAsGroup", 65532}, {"seccompProfile", Json::object({{"type", "RuntimeDefault"}})}})},
                                  {"terminationGracePeriodSeconds", 15},
                                  {"affinity", Json::object({{"podAntiAffinity", Json::object({{"preferredDuringSchedulingIgnoredDuringExecution", Json::array({apart})}})}})},
                                  {"containers", Json::array(std::move(containers))},
                                  {"volumes", Json::array({Json::object({{"name", "socket"}, {"emptyDir", Json::object({{"medium", "Memory"}, {"sizeLimit", "1Mi"}})}})})}});
  Json out = part("apps/v1", "Deployment", part_metadata(kController, space, kController));
  return out.set("spec", Json::object({{"replicas", 2}, {"selector", Json::object({{"matchLabels", selector_of(kController)}})}, {"template", Json::object({{"metadata", Json::object({{"labels", selector_of(kController)}})}, {"spec", spec}})}}));
}

bool is_folder(const std::string& path) {
  return path.size() > 1 && path[0] == '/' && !path.ends_with('/') && path.find("//") == path.npos && std::ranges::all_of(path, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || std::string_view("/._-").find(c) != std::string_view::npos; });
}

}  // namespace

Result<void> check_volumes(const VolumeOptions& options) {
  if (options.size != "xfs") {
    const auto size = kube::Quantity::parse(options.size);
    if (!size || size->value() < (std::int64_t{1} << 30)) return fail(Code::Invalid, fmt::format("usage: --volumes {}: the size of each node's pool is expected, 1Gi at least, or xfs where --volumes-folder is on XFS with reflink", options.size));
  }
  for (const auto& [flag, path] : {std::pair("--volumes-folder", &options.folder), std::pair("--kubelet-dir", &options.kubelet_dir)})
    if (!is_folder(*path)) return fail(Code::Invalid, fmt::format("usage: {} {}: an absolute path is expected", flag, *path));
  for (const std::string& one : split(options.nodes, ','))
    if (!options.nodes.empty() && (one.find('=') == one.npos || one.starts_with('='))) return fail(Code::Invalid, fmt::format("usage: --volumes-nodes {}: NAME=VALUE is expected, several by comma", options.nodes));
  if (options.encryption && !options.engines) return fail(Code::Invalid, "usage: --volumes-encryption: encrypted volumes take engines: leave --no-volumes-engines out");
  for (const auto& [name, image] : {std::pair("provisioner", &options.provisioner_image), std::pair("attacher", &options.attacher_image), std::pair("resizer", &options.resizer_image)})
    if (image->empty()) return fail(Code::Invalid, fmt::format("usage: --csi-{0}-image: say where the standard sidecar csi-{0} was pushed to; --volumes needs it", name));
  return {};
}

std::vector<Json> volume_manifests(const VolumeOptions& options, const std::string& space) {
  std::vector<Json> out;
  out.push_back(account(kVolumes, space).set("automountServiceAccountToken", false));
  out.push_back(account(kController, space));
  kube::Access all = api::driver_access();
  all.add(api::sidecar_access(space));
  if (!options.snapshotter_image.empty()) all.add(api::snapshotter_access(space));
  // Pods of nodes have the pools' rights, and none of the controller's.
  out.push_back(role(kVolumes, "", kube::role_rules(api::pool_access(), "")));
  out.push_back(binding(kVolumes, "", kVolumes, space));
  if (options.encryption) {
    // Not marked as ours: nothing of it is ever taken away.
    out.push_back(part("v1", "Namespace", Json::object({{"name", api::kVolumeKeySpace}})));
    for (const char* const where : {"", api::kVolumeKeySpace}) {
      out.push_back(role(kKeys, where, kube::role_rules(api::pool_keys_access(), where)));
      out.push_back(binding(kKeys, where, kVolumes, space));
    }
  }
  for (const std::string& where : {std::string(), space}) {
    out.push_back(role(kController, where, kube::role_rules(all, where)));
    out.push_back(binding(kController, where, kController, space));
  }
  out.push_back(part("storage.k8s.io/v1", "CSIDriver", part_metadata(api::kVolumeDriver, "", kVolumes)).set("spec", Json::object({{"attachRequired", true}, {"podInfoOnMount", false}, {"fsGroupPolicy", "File"}, {"storageCapacity", true}, {"volumeLifecycleModes", list({"Persistent"})}})));
  if (options.storage_class) {
    Json one = part("storage.k8s.io/v1", "StorageClass", part_metadata("fairlead", "", kVolumes));
    one.set("provisioner", api::kVolumeDriver).set("volumeBindingMode", "WaitForFirstConsumer").set("allowVolumeExpansion", true).set("reclaimPolicy", "Delete");
    out.push_back(one.set("parameters", Json::object({{"csi.storage.k8s.io/fstype", "xfs"}})));
  }
  out.push_back(controller(options, space));
  if (options.engines) out.push_back(engine_set(options, space));
  out.push_back(node_set(options, space));
  return out;
}

std::vector<std::string> served_by_engines(const std::vector<Json>& volumes, const std::vector<Json>& attachments) {
  std::map<std::string, std::string> classes;
  for (const Json& one : volumes) classes[kube::name_of(one)] = one["spec"]["class"].string();
  std::vector<std::string> out;
  for (const Json& one : attachments) {
    const std::string& volume = one["spec"]["volume"].string();
    const auto found = classes.find(volume);
    if (found == classes.end() || found->second == api::kLocalManaged) out.push_back(fmt::format("{} on {}", volume, one["spec"]["node"].string()));
  }
  std::ranges::sort(out);
  return out;
}

}  // namespace fairlead::cli
