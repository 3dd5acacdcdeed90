// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/objects.h"

#include <fmt/format.h>

#include "api/node_identity.h"
#include "api/node_set.h"
#include "base/encoding.h"
#include "kube/selector.h"
#include "slurm/plan/accounting.h"
#include "slurm/plan/gres.h"
#include "slurm/plan/login_service.h"
#include "slurm/plan/pod_parts.h"
#include "slurm/plan/rest.h"
#include "slurm/plan/sharing.h"

namespace fairlead::slurm {

using api::SlurmCluster;
using api::SlurmRole;
using kube::Json;

namespace {

Json labels_of(const SlurmCluster& cluster, std::string_view role) {
  return Json::object({{"app.kubernetes.io/managed-by", "fairlead"}, {kClusterLabel, cluster.name}, {kRoleLabel, std::string(role)}});
}

}  // namespace

Json metadata(const SlurmCluster& cluster, std::string name, std::string_view role) {
  return Json::object({{"name", std::move(name)}, {"namespace", cluster.space}, {"labels", labels_of(cluster, role)}, {"ownerReferences", Json::array({cluster.owner})}});
}

Json resources_json(const std::map<std::string, std::string>& resources) {
  Json list = Json::object();
  for (const auto& [name, value] : resources) list.set(name, value);
  if (list.members().empty()) return Json::object();
  return Json::object({{"requests", list}, {"limits", list}});
}

Json mount(std::string name, std::string path, bool read_only) {
  Json out = Json::object({{"name", std::move(name)}, {"mountPath", std::move(path)}});
  if (read_only) out.set("readOnly", true);
  return out;
}

Json env(std::string name, std::string value) { return Json::object({{"name", std::move(name)}, {"value", std::move(value)}}); }

Json env_of(std::string name, std::string field) {
  return Json::object({{"name", std::move(name)}, {"valueFrom", Json::object({{"fieldRef", Json::object({{"apiVersion", "v1"}, {"fieldPath", std::move(field)}})}})}});
}

Json secret_volume(std::string name, std::string secret, int mode) {
  return Json::object({{"name", std::move(name)}, {"secret", Json::object({{"secretName", std::move(secret)}, {"defaultMode", mode}})}});
}
Json config_volume(std::string name, std::string config_map) {
  return Json::object({{"name", std::move(name)}, {"configMap", Json::object({{"name", std::move(config_map)}})}});
}
Json memory_volume(std::string name, const std::string& limit) {
  Json empty = Json::object({{"medium", "Memory"}});
  if (!limit.empty()) empty.set("sizeLimit", limit);
  return Json::object({{"name", std::move(name)}, {"emptyDir", empty}});
}

// A volume of the user's choice: a named source, a claim of the pod's own, or an emptyDir where none is given.
Json chosen_volume(const SlurmCluster& cluster, const std::string& name, const api::SlurmVolume& volume, const std::string& claim) {
  Json out = Json::object({{"name", name}});
  if (!volume.source_name.empty()) {
    if (const auto found = cluster.volume_sources.find(volume.source_name); found != cluster.volume_sources.end())
      for (const auto& [key, value] : found->second.members()) out.set(key, value);
    return out;
  }
  if (volume.claim_template.is_object()) return out.set("persistentVolumeClaim", Json::object({{"claimName", claim}}));
  return out.set("emptyDir", Json::object());
}

namespace {

std::string claim_name(const SlurmCluster& cluster, std::string_view volume, Role role, int ordinal) { return fmt::format("{}-{}-{}", volume, cluster.name, pod_name(cluster, role, ordinal)); }

const SlurmRole& role_of(const SlurmCluster& cluster, Role role) {
  switch (role) {
    case Role::Controller: return cluster.controller;
    case Role::Worker: return cluster.worker;
    case Role::Login: return cluster.login;
    case Role::Exporter: return cluster.exporter;
    case Role::Rest: return cluster.rest;
  }
  return cluster.worker;
}

// By volume name: what each pod of the role has a claim of its own for.
std::vector<std::pair<std::string, const Json*>> claims_of(const SlurmRole& of) {
  std::vector<std::pair<std::string, const Json*>> out;
  const auto add = [&](std::string name, const std::string& source, const Json& claim) {
    if (source.empty() && claim.is_object()) out.emplace_back(std::move(name), &claim);
  };
  add("spool", of.spool.source_name, of.spool.claim_template);
  add("jail", of.jail.source_name, of.jail.claim_template);
  for (const auto& sub : of.sub_mounts) add("sub-" + sub.name, sub.source_name, sub.claim_template);
  return out;
}
}  // namespace

// The program fairlead-slurm comes from a volume, or lies at the same place in the image.
Json with_companion(const ObjectOptions& options, std::vector<Json> mounts) {
  if (options.companion.is_object()) mounts.insert(mounts.begin(), mount("companion", "/opt/fairlead/bin", true));
  return Json::array(std::move(mounts));
}

// What the user asks of a container beyond image, port and resources. The end of its log is told as the reason when it ends (condition of its role).
Json dressed(Json container, const api::SlurmContainer& of) {
  container.set("terminationMessagePolicy", "FallbackToLogsOnError");
  if (!of.pull_policy.empty()) container.set("imagePullPolicy", of.pull_policy);
  if (of.liveness.is_object()) container.set("livenessProbe", of.liveness);
  if (!of.limits.empty()) container.child("env").push(env("FAIRLEAD_LIMITS", of.limits));
  for (const Json& variable : of.env.items()) container.child("env").push(variable);
  if (!of.app_armor.empty()) {
    Json profile = Json::object({{"type", of.app_armor == "unconfined" ? "Unconfined" : of.app_armor == "runtime/default" ? "RuntimeDefault" : "Localhost"}});
    if (of.app_armor.starts_with("localhost/")) profile.set("localhostProfile", of.app_armor.substr(10));
    container.child("securityContext").set("appArmorProfile", std::move(profile));
  }
  return container;
}

// A login pod mounts the jail's own /proc, /dev and sockets before sshd starts, and sees which processes live in which version; people's sessions are in a chroot below, without rights beyond their own.
Json session_rights() {
  return Json::object({{"capabilities", Json::object({{"add", Json::array({Json("SYS_ADMIN"), Json("SYS_PTRACE")})}})}, {"appArmorProfile", Json::object({{"type", "Unconfined"}})}});
}

// The exporter and slurmrestd begin as root: the companion finds the users' names and goes on as nobody.
Json nobodys_rights() {
  return Json::object({{"runAsUser", 0}, {"runAsGroup", 0}, {"allowPrivilegeEscalation", false}, {"capabilities", Json::object({{"drop", Json::array({Json("ALL")})}, {"add", Json::array({Json("SETGID"), Json("SETUID")})}})}});
}
// Whether it runs. Whether Slurm answers, /metrics says to who reads it: ending the container would not help.
Json exporter_probe(const SlurmCluster& cluster, int failures) {
  return Json::object({{"httpGet", Json::object({{"path", "/healthz"}, {"port", cluster.exporter.main.port}})}, {"periodSeconds", 5}, {"failureThreshold", failures}, {"timeoutSeconds", 5}});
}

void push_companion_volume(Json& volumes, const ObjectOptions& options) {
  if (!options.companion.is_object()) return;
  Json companion = Json::object({{"name", "companion"}});
  for (const auto& [key, value] : options.companion.members()) companion.set(key, value);
  volumes.push(std::move(companion));
}

void choose_nodes(const SlurmCluster& cluster, const std::string& filter_name, Json& spec) {
  const auto filter = cluster.filters.find(filter_name);
  if (filter == cluster.filters.end()) return;
  if (filter->second.node_selector.is_object()) spec.set("nodeSelector", filter->second.node_selector);
  if (filter->second.affinity.is_object()) spec.set("affinity", filter->second.affinity);
  if (filter->second.tolerations.is_array()) spec.set("tolerations", filter->second.tolerations);
}

Json pod_of(const SlurmCluster& cluster, const std::string& name, std::string_view role, Json spec) {
  const std::string hash = hex(sha256(kube::print_json(spec))).substr(0, 16);
  Json meta = metadata(cluster, name, role);
  meta.set("annotations", Json::object({{kTemplateHash, hash}}));
  return Json::object({{"apiVersion", "v1"}, {"kind", "Pod"}, {"metadata", std::move(meta)}, {"spec", std::move(spec)}});
}

Json munge_container(const api::SlurmContainer& munge, const ObjectOptions& options) {
  return dressed(Json::object({{"name", "munge"},
                       {"image", munge.image},
                       {"command", Json::array({Json("/opt/fairlead/bin/fairlead-slurm"), Json("munge")})},
                       {"resources", resources_json(munge.resources)},
                       {"volumeMounts", with_companion(options, {mount("munge-key", "/etc/fairlead/munge", true), mount("munge-socket", "/run/munge")})},
                       {"readinessProbe", Json::object({{"exec", Json::object({{"command", Json::array({Json("/opt/fairlead/bin/fairlead-slurm"), Json("check"), Json("munge")})}})},
                                                        {"periodSeconds", 10}, {"failureThreshold", 3}, {"timeoutSeconds", 5}})}}), munge);
}

constexpr const char* kWitness = "witness";  // its container

std::string_view text(Role role) {
  switch (role) {
    case Role::Controller: return "controller";
    case Role::Worker: return "worker";
    case Role::Login: return "login";
    case Role::Exporter: return "exporter";
    case Role::Rest: return "rest";
  }
  return "worker";
}

std::string pod_name(Role role, int ordinal) { return fmt::format("{}-{}", text(role), ordinal); }
std::string pod_name(const SlurmCluster& cluster, Role role, int ordinal) { return role == Role::Worker ? fmt::format("{}-{}", cluster.worker_set, ordinal) : pod_name(role, ordinal); }
std::string quorum_secret(const SlurmCluster& cluster) { return cluster.name + "-quorum"; }
std::string active_service(const SlurmCluster& cluster) { return cluster.name + "-controller-active"; }
std::string exporter_service(const SlurmCluster& cluster) { return cluster.name + "-exporter-svc"; }
std::string munge_secret(const SlurmCluster& cluster) { return munge_secret_of(cluster.name); }
std::string sshd_keys_secret(const SlurmCluster& cluster) { return cluster.sshd_keys_secret.empty() ? cluster.name + "-sshd-keys" : cluster.sshd_keys_secret; }
std::string client_key_secret(const SlurmCluster& cluster) { return cluster.name + "-ssh-client-key"; }

std::string config_hash(const SlurmCluster& cluster, const RenderFacts& facts) {
  std::string all;
  for (const auto& [name, content] : render_config(cluster, facts)) all += name + '\0' + content + '\0';
  return hex(sha256(all)).substr(0, 16);
}

std::vector<Json> desired_services(const SlurmCluster& cluster) {
  std::vector<Json> out;
  for (const Role role : {Role::Controller, Role::Worker, Role::Login, Role::Exporter}) {
    const auto& of = role_of(cluster, role);
    if (role == Role::Exporter && of.size == 0) continue;
    out.push_back(Json::object({{"apiVersion", "v1"},
                                {"kind", "Service"},
                                {"metadata", metadata(cluster, role == Role::Login ? login_names_service(cluster) : fmt::format("{}-{}-svc", cluster.name, text(role)), text(role))},
                                {"spec", Json::object({{"clusterIP", "None"},
                                                       // Slurm daemons must find one another before they are ready.
                                                       {"publishNotReadyAddresses", true},
                                                       {"selector", Json::object({{kClusterLabel, cluster.name}, {kRoleLabel, std::string(text(role))}})},
                                                       {"ports", Json::array({Json::object({{"name", std::string(text(role))}, {"port", of.main.port}, {"protocol", "TCP"}})})}})}}));
  }
  // Without a selector: who serves is told by the heads, not by readiness, which takes seconds.
  if (elected(cluster))
    out.push_back(Json::object({{"apiVersion", "v1"},
                                {"kind", "Service"},
                                {"metadata", metadata(cluster, active_service(cluster), "controller")},
                                {"spec", Json::object({{"ports", Json::array({Json::object({{"name", "controller"}, {"port", cluster.controller.main.port}, {"protocol", "TCP"}})})}})}}));
  if (cluster.rest.size > 0) out.push_back(rest_service(cluster));
  for (Json& service : accounting_services(cluster)) out.push_back(std::move(service));
  return out;
}

std::vector<Json> desired_config_maps(const SlurmCluster& cluster, const ObjectOptions& options) {
  std::vector<Json> out;
  const auto config_map = [&](std::string name, Json data, Json annotations = {}) {
    Json meta = metadata(cluster, std::move(name), "config");
    if (annotations.is_object()) meta.set("annotations", std::move(annotations));
    out.push_back(Json::object({{"apiVersion", "v1"}, {"kind", "ConfigMap"}, {"metadata", std::move(meta)}, {"data", std::move(data)}}));
  };
  Json files = Json::object();
  for (auto& [name, content] : render_config(cluster, options.render)) files.set(name, content);
  const std::string hash = config_hash(cluster, options.render);
  files.set("generation", hash + "\n");
  // Workers have no such file, since slurmctld gives them the others alone: there the first line tells.
  files.set("slurm.conf", fmt::format("# Generation {}\n{}", hash, files["slurm.conf"].string()));
  config_map(api::config_map_of(cluster.name), std::move(files), Json::object({{kConfigHash, hash}}));
  config_map(cluster.name + "-ssh-configs", Json::object({{"sshd_config", render_sshd_config(cluster)}}));
  if (!cluster.nccl_topology.empty()) config_map(cluster.name + "-nccl-topology", Json::object({{"virtualTopology.xml", cluster.nccl_topology}}));
  std::string keys;
  for (const auto& key : cluster.root_keys) keys += key + "\n";
  config_map(cluster.name + "-ssh-root-keys", Json::object({{"authorized_keys", keys}}));
  return out;
}

std::vector<Json> desired_policies(const SlurmCluster& cluster, const ObjectOptions& options) {
  std::vector<Json> out;
  if (!cluster.isolated) return out;
  std::vector<api::SharingNetwork> sharing;
  for (const auto& partner : cluster.accounting.sharing.partners) sharing.push_back({partner.cluster.name, partner.cluster.space, partner.slurmctld_port, partner.slurmdbd_port, partner.serves});
  for (auto& [name, spec] : api::slurm_network_policies({.cluster = cluster.name,
                                                         .space = cluster.space,
                                                         .slurmctld_port = cluster.controller.main.port,
                                                         .slurmd_port = cluster.worker.main.port,
                                                         .sshd_port = cluster.login.main.port,
                                                         .slurmdbd_port = cluster.accounting.dbd.port,
                                                         .database_port = cluster.accounting.db.port,
                                                         .metrics_port = cluster.exporter.main.port,
                                                         .rest_port = cluster.rest.main.port,
                                                         .accounting = cluster.accounting.enabled && !cluster.accounting.of,
                                                         .database = cluster.accounting.builtin,
                                                         .exporter = cluster.exporter.size > 0,
                                                         .rest = cluster.rest.size > 0,
                                                         .scripts = cluster.has_machines,
                                                         .external_database_port = cluster.accounting.builtin ? 0 : cluster.accounting.external.port,
                                                         .sharing = std::move(sharing),
                                                         .closed_ranges = options.closed_ranges}))
    out.push_back(Json::object({{"apiVersion", "networking.k8s.io/v1"}, {"kind", "NetworkPolicy"}, {"metadata", metadata(cluster, name, "network")}, {"spec", std::move(spec)}}));
  return out;
}

std::vector<Json> desired_claims(const SlurmCluster& cluster, Role role, const std::vector<int>& ordinals) {
  std::vector<Json> out;
  for (const int i : ordinals)
    for (const auto& [name, claim] : claims_of(role_of(cluster, role))) {
      // Owned by nobody: data outlives the cluster unless the user removes it.
      Json meta = metadata(cluster, claim_name(cluster, name, role, i), text(role));
      meta.erase("ownerReferences");
      out.push_back(Json::object({{"apiVersion", "v1"}, {"kind", "PersistentVolumeClaim"}, {"metadata", std::move(meta)}, {"spec", *claim}}));
    }
  return out;
}

std::optional<Json> grown_claim(const Json& have, const Json& wanted) {
  if (kube::labels_of(have)[kClusterLabel] != kube::labels_of(wanted)[kClusterLabel] || kube::deleting(have) || have["status"]["phase"].string() != "Bound") return std::nullopt;
  const Json& size = wanted["spec"]["resources"]["requests"]["storage"];
  const auto asked = kube::Quantity::from_json(size), has = kube::Quantity::from_json(have["spec"]["resources"]["requests"]["storage"]);
  if (!asked || !has || has->value() >= asked->value()) return std::nullopt;
  Json out = have;
  out.child("spec").child("resources").child("requests").set("storage", size);
  return out;
}

// Without these Kubernetes deletes the pods of a machine that is silent for five minutes, and its kubelet ends them with their jobs and sessions when it is heard again.
void tolerate_silence(Json& spec) {
  Json tolerations = spec["tolerations"].is_array() ? spec["tolerations"] : Json::array();
  for (const char* key : {"node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"}) tolerations.push(Json::object({{"key", key}, {"operator", "Exists"}, {"effect", "NoExecute"}}));
  spec.set("tolerations", std::move(tolerations));
}

void push_voters(Json& environment, const SlurmCluster& cluster, int own, const ObjectOptions& options) {
  const auto some = [&](int from, int to) {
    std::string out;
    for (int i = from; i < to; ++i)
      out += fmt::format("{}{}.{}-controller-svc.{}.svc.{}:{}", out.empty() ? "" : ",", pod_name(Role::Controller, i), cluster.name, cluster.space, options.render.cluster_domain, api::kQuorumPort);
    return out;
  };
  environment.push(env("FAIRLEAD_HEADS", some(0, cluster.controller.size)));
  if (voters(cluster) > cluster.controller.size) environment.push(env("FAIRLEAD_WITNESSES", some(cluster.controller.size, voters(cluster))));
  environment.push(env("FAIRLEAD_VOTER", std::to_string(own)));
  environment.push(env("FAIRLEAD_QUORUM_KEY", "/etc/fairlead/quorum/key"));
  // A lone head that was never elected is known by this name of its own, and steps that began under it ask for nobody else.
  if (own == 0 && voters(cluster) > 1) environment.push(env("FAIRLEAD_RELAY_PORT", std::to_string(cluster.controller.main.port)));
}

// Beside two heads: votes under the name that a third head would have, has no state and no work, and is on a third machine where there is one.
Json witness_pod(const SlurmCluster& cluster, int ordinal, const ObjectOptions& options) {
  const auto& of = cluster.controller;
  const std::string name = pod_name(Role::Controller, ordinal);
  Json environment = Json::array({env("FAIRLEAD_SLURM_CLUSTER", cluster.name)});
  push_voters(environment, cluster, ordinal, options);
  Json volumes = Json::array({secret_volume("quorum", quorum_secret(cluster), 0400)});
  push_companion_volume(volumes, options);
  Json container = Json::object({{"name", kWitness},
                                 {"image", of.main.image},
                                 {"command", Json::array({Json("/opt/fairlead/bin/fairlead-slurm"), Json("witness")})},
                                 {"env", std::move(environment)},
                                 {"resources", Json::object({{"requests", Json::object({{"cpu", "10m"}, {"memory", "32Mi"}})}, {"limits", Json::object({{"memory", "128Mi"}})}})},
                                 {"terminationMessagePolicy", "FallbackToLogsOnError"},
                                 {"volumeMounts", with_companion(options, {mount("quorum", "/etc/fairlead/quorum", true)})},
                                 // A voter that begins is silent for a second; nobody is renewed meanwhile.
                                 {"readinessProbe", Json::object({{"exec", Json::object({{"command", Json::array({Json("/opt/fairlead/bin/fairlead-slurm"), Json("version")})}})}, {"initialDelaySeconds", 3}, {"periodSeconds", 10}, {"timeoutSeconds", 5}})}});
  if (!of.main.pull_policy.empty()) container.set("imagePullPolicy", of.main.pull_policy);
  Json spec = Json::object({{"hostname", name},
                            {"subdomain", fmt::format("{}-controller-svc", cluster.name)},
                            {"restartPolicy", "Always"},
                            {"terminationGracePeriodSeconds", 5},
                            {"enableServiceLinks", false},
                            {"automountServiceAccountToken", false},
                            {"containers", Json::array({std::move(container)})},
                            {"volumes", std::move(volumes)}});
  if (!of.priority_class.empty()) spec.set("priorityClassName", of.priority_class);
  if (of.pull_secrets.is_array()) spec.set("imagePullSecrets", of.pull_secrets);
  choose_nodes(cluster, of.node_filter, spec);
  if (!spec["affinity"]["podAntiAffinity"].is_object())
    spec.child("affinity").set("podAntiAffinity", Json::object({{"preferredDuringSchedulingIgnoredDuringExecution",
        Json::array({Json::object({{"weight", 100}, {"podAffinityTerm", Json::object({{"topologyKey", "kubernetes.io/hostname"}, {"labelSelector", Json::object({{"matchLabels", Json::object({{kClusterLabel, cluster.name}, {kRoleLabel, "controller"}})}})}})}})})}}));
  return pod_of(cluster, name, text(Role::Controller), std::move(spec));
}

std::string mounts_mark(const SlurmCluster& cluster, Role role) {
  std::string all;
  for (const auto& sub : role_of(cluster, role).sub_mounts) {
    const auto source = cluster.volume_sources.find(sub.source_name);
    Json claim = sub.claim_template;
    claim.erase("resources");  // a claim grows under its pod
    all += kube::print_json(Json::array({sub.name, sub.path, sub.source_name, sub.sub_path, sub.read_only, claim, source == cluster.volume_sources.end() ? Json() : source->second})) + "\n";
  }
  return all.empty() ? "none" : hex(sha256(all)).substr(0, 16);
}

bool is_witness(const Json& pod) { return pod["spec"]["containers"].items().size() == 1 && pod["spec"]["containers"].items()[0]["name"].string() == kWitness; }

Json desired_pod(const SlurmCluster& cluster, Role role, int ordinal, const ObjectOptions& options) {
  const auto& of = role_of(cluster, role);
  if (role == Role::Controller && ordinal >= of.size && ordinal < voters(cluster)) return witness_pod(cluster, ordinal, options);
  const std::string name = pod_name(cluster, role, ordinal);

  const bool by_munge = role != Role::Rest;  // slurmrestd knows no secret: what it asks is in the name, and by the token, of who asks it
  Json volumes = by_munge ? Json::array({secret_volume("munge-key", munge_secret(cluster), 0400), memory_volume("munge-socket")}) : Json::array();
  volumes.push(memory_volume("run"));
  volumes.push(config_volume("slurm-config", api::config_map_of(cluster.name)));
  volumes.push(chosen_volume(cluster, "jail", cluster.jail.wanted() ? api::SlurmVolume{cluster.jail.source, {}} : of.jail, claim_name(cluster, "jail", role, ordinal)));
  std::vector<Json> common = {mount("run", "/run/slurm"), mount("jail", cluster.jail.wanted() ? api::kJailVolume : "/mnt/jail", role == Role::Exporter || role == Role::Rest)};
  if (by_munge) common.insert(common.begin(), mount("munge-socket", "/run/munge"));
  Json mounts = with_companion(options, std::move(common));
  push_companion_volume(volumes, options);

  Json environment = Json::array({env("FAIRLEAD_SLURM_CLUSTER", cluster.name)});
  Json security = Json::object();
  std::string container = "slurmd", program = "worker";
  switch (role) {
    case Role::Controller:
      container = "slurmctld";
      program = "controller";
      mounts.push(mount("slurm-config", "/etc/slurm", true));
      mounts.push(mount("spool", "/var/spool/slurmctld"));
      // What slurmctld reads at its start alone: another value renews the pod, and its companion waits for files that say so.
      if (!options.conf_needs.empty()) environment.push(env("FAIRLEAD_CONF_NEEDS", options.conf_needs));
      if (takes_tokens(options.conf_needs)) {
        mounts.push(mount("token-key", kTokenKeyFolder, true));
        volumes.push(secret_volume("token-key", token_secret(cluster), 0400));
        environment.push(env("FAIRLEAD_TOKEN_KEY", options.token_mark));  // another key renews the pod
      }
      volumes.push(chosen_volume(cluster, "spool", of.spool, claim_name(cluster, "spool", role, ordinal)));
      if (elected(cluster)) {
        push_voters(environment, cluster, ordinal, options);
        mounts.push(mount("quorum", "/etc/fairlead/quorum", true));
        volumes.push(secret_volume("quorum", quorum_secret(cluster), 0400));
      }
      break;
    case Role::Worker:
      // Not at /etc/slurm: slurmd takes its configuration from the head. The companion needs it to speak to the head before slurmd runs.
      mounts.push(mount("slurm-config", "/etc/fairlead/slurm", true));
      mounts.push(mount("spool", "/var/spool/slurmd"));
      volumes.push(chosen_volume(cluster, "spool", of.spool, claim_name(cluster, "spool", role, ordinal)));
      if (!of.shared_memory.empty()) {
        mounts.push(mount("shared-memory", "/dev/shm"));
        volumes.push(memory_volume("shared-memory", of.shared_memory));
      }
      if (!cluster.nccl_topology.empty()) {
        mounts.push(mount("nccl-topology", "/run/nvidia-topologyd", true));  // where NCCL looks for it by itself
        volumes.push(config_volume("nccl-topology", cluster.name + "-nccl-topology"));
      }
      environment.push(env("FAIRLEAD_CONF_SERVER", fmt::format("{}:{}", controller_address(cluster, options.render), cluster.controller.main.port)));
      environment.push(env("FAIRLEAD_NODE_DEFINITION", worker_definition(cluster)));
      // Whose slurmd it is: it must not speak for a pod that had its name before (plan/failure.h).
      // Where nobody reads Nodes nobody could ever bring the proof that it waits for.
      if (options.reads_machines) {
        environment.push(env_of("FAIRLEAD_POD_UID", "metadata.uid"));
        environment.push(env_of("FAIRLEAD_MACHINE", "spec.nodeName"));
      }
      if (cluster.mock_gpus) environment.push(env("FAIRLEAD_MOCK_GPUS", std::to_string(worker_gpus(cluster))));
      // slurmd makes cgroups, changes users and mounts for its steps.
      security = Json::object({{"privileged", true}});
      break;
    case Role::Login:
      container = "sshd";
      program = "login";
      mounts.push(mount("slurm-config", "/etc/fairlead/slurm", true));  // the companion writes /etc/slurm from it, and where the workers are
      mounts.push(mount("ssh-config", "/etc/fairlead/ssh", true));
      mounts.push(mount("ssh-root-keys", "/etc/fairlead/ssh-root-keys", true));
      mounts.push(mount("ssh-client-key", "/etc/fairlead/ssh-client-key", true));
      mounts.push(mount("sshd-keys", "/etc/fairlead/sshd-keys", true));
      volumes.push(config_volume("ssh-config", cluster.sshd_config_map.empty() ? cluster.name + "-ssh-configs" : cluster.sshd_config_map));
      volumes.push(config_volume("ssh-root-keys", cluster.name + "-ssh-root-keys"));
      // Only the public half of the site's own key goes to the pod.
      volumes.push(Json::object({{"name", "ssh-client-key"},
                                 {"secret", Json::object({{"secretName", client_key_secret(cluster)},
                                                          {"items", Json::array({Json::object({{"key", "ssh_ed25519.pub"}, {"path", "authorized_keys"}})})}})}}));
      volumes.push(secret_volume("sshd-keys", sshd_keys_secret(cluster), 0400));
      break;
    case Role::Exporter:
      container = program = "exporter";
      mounts.push(mount("slurm-config", "/etc/slurm", true));
      security = nobodys_rights();
      break;
    case Role::Rest:
      container = program = "rest";
      mounts.push(mount("slurm-config", "/etc/slurm", true));
      security = nobodys_rights();
      if (!options.conf_needs.empty()) environment.push(env("FAIRLEAD_CONF_NEEDS", options.conf_needs));  // accounting has plug-ins of its own
      environment.push(env_of("FAIRLEAD_POD_IPS", "status.podIPs"));
      environment.push(env("FAIRLEAD_REST_PORT", std::to_string(of.main.port)));
      environment.push(env("FAIRLEAD_REST_THREADS", std::to_string(cluster.rest_threads)));
      environment.push(env("FAIRLEAD_REST_ASKS", rest_asks(cluster, options.render)));  // slurmrestd reads its slurm.conf once: others to ask renew the pod
      break;
  }
  const bool lives_in_jail = cluster.jail.wanted() && (role == Role::Worker || role == Role::Login);
  if (cluster.jail.wanted()) environment.push(env("FAIRLEAD_JAIL", lives_in_jail ? "mount" : "link"));
  if (lives_in_jail && role == Role::Login) security = session_rights();
  std::string jail_mounts;
  for (const auto& sub : of.sub_mounts) {
    // The companion mounts them where they belong in the jail.
    Json at = mount("sub-" + sub.name, lives_in_jail ? "/mnt/jail-mounts/" + sub.name : sub.path, sub.read_only);
    if (!sub.sub_path.empty()) at.set("subPath", sub.sub_path);
    mounts.push(std::move(at));
    jail_mounts += sub.name + "=" + sub.path + "\n";
    volumes.push(chosen_volume(cluster, "sub-" + sub.name, {sub.source_name, sub.claim_template}, claim_name(cluster, "sub-" + sub.name, role, ordinal)));
  }
  if (lives_in_jail && !jail_mounts.empty()) environment.push(env("FAIRLEAD_JAIL_MOUNTS", std::move(jail_mounts)));

  Json command = Json::array({Json("/opt/fairlead/bin/fairlead-slurm"), Json(program)});
  if (role == Role::Exporter)
    for (std::string word : {std::string("--pod"), std::string("--port"), std::to_string(of.main.port), std::string("--interval"), std::to_string(cluster.exporter_interval.count())}) command.push(std::move(word));
  Json main = Json::object({{"name", container},
                            {"image", of.main.image},
                            {"command", std::move(command)},
                            {"env", std::move(environment)},
                            {"ports", Json::array({Json::object({{"name", program == "login" ? "ssh" : program}, {"containerPort", of.main.port}})})},
                            {"resources", resources_json(of.main.resources)},
                            {"volumeMounts", std::move(mounts)},
                            {"readinessProbe", Json::object({{"exec", Json::object({{"command", Json::array({Json("/opt/fairlead/bin/fairlead-slurm"), Json("check"), Json(program)})}})},
                                                             {"periodSeconds", 5}, {"failureThreshold", 3}, {"timeoutSeconds", 8}})}});
  if (role == Role::Exporter) main.set("readinessProbe", exporter_probe(cluster, 3)).set("livenessProbe", exporter_probe(cluster, 12));
  if (role == Role::Rest) {
    Json alive = main["readinessProbe"];
    main.set("livenessProbe", alive.set("periodSeconds", 10).set("failureThreshold", 6));
  }
  if (!security.members().empty()) main.set("securityContext", std::move(security));
  main = dressed(std::move(main), of.main);

  Json spec = Json::object({{"hostname", name},
                            {"subdomain", role == Role::Login ? login_names_service(cluster) : fmt::format("{}-{}-svc", cluster.name, text(role))},
                            {"restartPolicy", "Always"},
                            {"terminationGracePeriodSeconds", 20},
                            {"enableServiceLinks", false},
                            {"automountServiceAccountToken", false},
                            {"dnsConfig", Json::object({{"searches", Json::array({Json(fmt::format("{}-worker-svc.{}.svc.{}", cluster.name, cluster.space, options.render.cluster_domain)),
                                                                                  Json(fmt::format("{}-controller-svc.{}.svc.{}", cluster.name, cluster.space, options.render.cluster_domain))})}})},
                            {"containers", by_munge ? Json::array({munge_container(of.munge, options), std::move(main)}) : Json::array({std::move(main)})},
                            {"volumes", std::move(volumes)}});
  if (role == Role::Rest) spec.erase("subdomain");  // its Service has an address, and no names of pods
  if (!of.priority_class.empty()) spec.set("priorityClassName", of.priority_class);
  if (of.pull_secrets.is_array()) spec.set("imagePullSecrets", of.pull_secrets);
  if (of.init_containers.is_array()) spec.set("initContainers", of.init_containers);
  choose_nodes(cluster, of.node_filter, spec);
  if (role == Role::Worker || role == Role::Login) tolerate_silence(spec);
  Json pod = pod_of(cluster, name, text(role), std::move(spec));
  if (role == Role::Worker && !cluster.set.name.empty()) {
    Json& meta = pod.child("metadata");
    meta.child("labels").set(api::kNodeSetLabel, cluster.set.name);
    for (const auto& [key, value] : cluster.set.annotations)
      if (key != kTemplateHash) meta.child("annotations").set(key, value);
  }
  if (role == Role::Worker) pod.child("metadata").child("annotations").set(kGres, gres_of(cluster));
  if (role == Role::Worker || role == Role::Login) pod.child("metadata").child("annotations").set(kMounts, mounts_mark(cluster, role));
  // They are its nodes; what answers REST or tells metrics is not.
  if (cluster.role_of_instance && (role == Role::Controller || role == Role::Worker || role == Role::Login)) pod.child("metadata").child("annotations").set(api::node_identity::pods_note, "true");
  return pod;
}

}  // namespace fairlead::slurm
