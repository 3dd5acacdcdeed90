// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/accounting.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "kube/selector.h"
#include "slurm/plan/backup.h"
#include "slurm/plan/config_text.h"
#include "slurm/plan/inputs.h"
#include "slurm/plan/pod_parts.h"
#include "slurm/plan/rest.h"

namespace fairlead::slurm {
namespace {

using api::SlurmCluster;
using kube::Json;

constexpr const char* kStorage = "accounting_storage/slurmdbd";

std::string data_claim(const SlurmCluster& cluster) { return "data-" + database_pod_name(cluster); }
std::string backup_claim(const SlurmCluster& cluster) { return "backup-" + database_pod_name(cluster); }

std::string accounting_service_of(const std::string& cluster) { return cluster + "-accounting-svc"; }
std::string accounting_address_of(const std::string& cluster, int ordinal) { return fmt::format("{}-{}", cluster, accounting_pod_name(ordinal)); }

// Where a slurmdbd of that cluster is asked.
std::string dbd_host(const api::ClusterRef& of, int ordinal, bool addressed, const RenderFacts& facts) {
  const std::string name = addressed ? accounting_address_of(of.name, ordinal) : fmt::format("{}.{}", accounting_pod_name(ordinal), accounting_service_of(of.name));
  return fmt::format("{}.{}.svc.{}", name, of.space, facts.cluster_domain);
}
std::string accounting_host(const SlurmCluster& cluster, int ordinal, const RenderFacts& facts) {
  const auto& accounting = cluster.accounting;
  return accounting.of ? dbd_host(*accounting.of, ordinal, accounting.sharing.addressed, facts) : dbd_host({cluster.space, cluster.name}, ordinal, accounting.addressed, facts);
}

Json companion_command(std::vector<std::string> arguments) {
  Json out = Json::array({Json("/opt/fairlead/bin/fairlead-slurm")});
  for (std::string& argument : arguments) out.push(Json(std::move(argument)));
  return out;
}

Json probe(std::string_view what, int period) {
  return Json::object({{"exec", Json::object({{"command", companion_command({"check", std::string(what)})}})}, {"periodSeconds", period}, {"failureThreshold", 3}, {"timeoutSeconds", 8}});
}

Json items_volume(std::string name, std::string secret, const std::vector<std::pair<std::string, std::string>>& items) {
  Json list = Json::array();
  for (const auto& [key, path] : items) list.push(Json::object({{"key", key}, {"path", path}}));
  return Json::object({{"name", std::move(name)}, {"secret", Json::object({{"secretName", std::move(secret)}, {"defaultMode", 0400}, {"items", std::move(list)}})}});
}

Json service(const SlurmCluster& cluster, std::string name, std::string_view role, int port) {
  return Json::object({{"apiVersion", "v1"},
                       {"kind", "Service"},
                       {"metadata", metadata(cluster, std::move(name), role)},
                       {"spec", Json::object({{"clusterIP", "None"},
                                              {"publishNotReadyAddresses", true},
                                              {"selector", Json::object({{kClusterLabel, cluster.name}, {kRoleLabel, std::string(role)}})},
                                              {"ports", Json::array({Json::object({{"name", std::string(role)}, {"port", port}, {"protocol", "TCP"}})})}})}});
}

// Also of a pod that is not ready: whether a slurmdbd serves, the others find out for themselves. The second takes over when it cannot reach the first, not when a probe of the first fails.
Json address_service(const SlurmCluster& cluster, int ordinal) {
  return Json::object({{"apiVersion", "v1"},
                       {"kind", "Service"},
                       {"metadata", metadata(cluster, accounting_address(cluster, ordinal), kAccountingRole)},
                       {"spec", Json::object({{"publishNotReadyAddresses", true},
                                              {"selector", Json::object({{kClusterLabel, cluster.name}, {kRoleLabel, kAccountingRole}, {kPodLabel, accounting_pod_name(ordinal)}})},
                                              {"ports", Json::array({Json::object({{"name", kAccountingRole}, {"port", cluster.accounting.dbd.port}, {"protocol", "TCP"}})})}})}});
}

Json claim(const SlurmCluster& cluster, std::string name, const Json& spec) {
  Json meta = metadata(cluster, std::move(name), kDatabaseRole);
  meta.erase("ownerReferences");  // records outlive the cluster unless the user removes them
  return Json::object({{"apiVersion", "v1"}, {"kind", "PersistentVolumeClaim"}, {"metadata", std::move(meta)}, {"spec", spec}});
}

Json pod_spec(const SlurmCluster& cluster, std::string hostname, std::string subdomain, const RenderFacts& facts, int grace, Json containers, Json volumes) {
  const std::string searches = fmt::format("{}.{}.svc.{}", accounting_service(cluster), cluster.space, facts.cluster_domain);
  Json spec = Json::object({{"hostname", std::move(hostname)},
                            {"subdomain", std::move(subdomain)},
                            {"restartPolicy", "Always"},
                            {"terminationGracePeriodSeconds", grace},
                            {"enableServiceLinks", false},
                            {"automountServiceAccountToken", false},
                            {"dnsConfig", Json::object({{"searches", Json::array({Json(searches)})}})},
                            {"containers", std::move(containers)},
                            {"volumes", std::move(volumes)}});
  choose_nodes(cluster, cluster.accounting.node_filter, spec);
  return spec;
}

// Half of the container's memory is MariaDB's cache, which it fills; without a limit what Slurm asks for at least.
std::int64_t cache_mib(const SlurmCluster& cluster) {
  const auto& resources = cluster.accounting.db.resources;
  const auto memory = resources.find("memory");
  if (memory == resources.end()) return 256;
  auto quantity = kube::Quantity::parse(memory->second);
  const std::int64_t mib = quantity ? quantity->value() >> 20 : 512;
  return std::clamp<std::int64_t>(mib / 2, 32, 32768);
}

bool role_is(const Json& pod, std::string_view role) { return pod["metadata"]["labels"][kRoleLabel].string() == role; }

const Json* container_status(const Json& pod, std::string_view name) {
  for (const Json& container : pod["status"]["containerStatuses"].items())
    if (container["name"].string() == name) return &container;
  return nullptr;
}
bool container_ready(const Json& pod, std::string_view name) {
  const Json* status = container_status(pod, name);
  return !kube::deleting(pod) && status && (*status)["ready"].boolean();
}
std::string trouble_of(const Json& pod) {
  if (kube::deleting(pod)) return "ending";
  if (const Json* scheduled = kube::find_condition(pod, "PodScheduled"); scheduled && (*scheduled)["status"].string() == "False") return (*scheduled)["message"].string();
  for (const Json& container : pod["status"]["containerStatuses"].items()) {
    const Json& waiting = container["state"]["waiting"];
    if (waiting.is_object() && !waiting["message"].string().empty()) return fmt::format("{}: {}", container["name"].string(), waiting["message"].string());
    if (!container["ready"].boolean()) return fmt::format("{} does not answer yet, it was started {} times", container["name"].string(), container["restartCount"].integer() + 1);
  }
  return pod["status"]["phase"].string_or("Pending");
}

}  // namespace

std::string accounting_service(const SlurmCluster& cluster) { return accounting_service_of(cluster.name); }
std::string accounting_address(const SlurmCluster& cluster, int ordinal) { return accounting_address_of(cluster.name, ordinal); }
std::string database_service(const SlurmCluster& cluster) { return cluster.name + "-acct-db"; }

std::string database_secret(const SlurmCluster& cluster) { return cluster.name + "-acct-db"; }
std::string database_pod_name(const SlurmCluster& cluster) { return cluster.name + "-acct-db-0"; }
std::string accounting_pod_name(int ordinal) { return fmt::format("accounting-{}", ordinal); }
std::string database_host(const SlurmCluster& cluster, const RenderFacts& facts) {
  if (!cluster.accounting.builtin) return cluster.accounting.external.host;
  return fmt::format("{}.{}.{}.svc.{}", database_pod_name(cluster), database_service(cluster), cluster.space, facts.cluster_domain);
}

std::vector<Json> accounting_services(const SlurmCluster& cluster) {
  std::vector<Json> out;
  if (!runs_accounting(cluster)) return out;
  out.push_back(service(cluster, accounting_service(cluster), kAccountingRole, cluster.accounting.dbd.port));
  for (int i = 0; i < cluster.accounting.replicas; ++i) out.push_back(address_service(cluster, i));
  if (cluster.accounting.builtin) out.push_back(service(cluster, database_service(cluster), kDatabaseRole, cluster.accounting.db.port));
  return out;
}

void settle_addresses(const Snapshot& snapshot, SlurmCluster& cluster) {
  for (const auto& [name, pod] : snapshot.pods) {
    if (!owned_by(pod, cluster) || !role_is(pod, kAccountingRole) || pod["metadata"]["labels"].has(kPodLabel)) continue;
    cluster.accounting.addressed = false;
    if (name == accounting_pod_name(0)) cluster.accounting.first_addressed = false;
  }
}

bool has_addresses(const Snapshot& snapshot, const SlurmCluster& cluster) {
  if (cluster.accounting.of || !cluster.accounting.addressed) return false;
  for (int i = 0; i < cluster.accounting.replicas; ++i)
    if (!find(snapshot.services, accounting_address(cluster, i))) return false;
  return true;
}

std::vector<Json> accounting_claims(const SlurmCluster& cluster) {
  std::vector<Json> out;
  const auto& accounting = cluster.accounting;
  if (!runs_accounting(cluster) || !accounting.builtin) return out;
  if (accounting.data.claim_template.is_object()) out.push_back(claim(cluster, data_claim(cluster), accounting.data.claim_template));
  if (accounting.backups.enabled && accounting.backups.volume.source_name.empty() && accounting.backups.volume.claim_template.is_object())
    out.push_back(claim(cluster, backup_claim(cluster), accounting.backups.volume.claim_template));
  return out;
}

std::vector<std::pair<std::string, std::string>> accounting_config(const SlurmCluster& cluster, const RenderFacts& facts, const Confinement& confinement, bool gpus) {
  const auto& accounting = cluster.accounting;
  std::vector<std::pair<std::string, std::string>> out;
  const auto line = [&](std::string_view key, std::string_view value) { out.emplace_back(key, value); };
  // cgroup's gatherer needs the cgroups that steps are confined by.
  const bool takes_asked = accounting.enabled && !accounting.gather_type.empty() && (accounting.gather_type != "jobacct_gather/cgroup" || confinement.cgroups);
  line("JobAcctGatherType", takes_asked ? accounting.gather_type : confinement.cgroups ? "jobacct_gather/cgroup" : "jobacct_gather/linux");
  if (!accounting.enabled) {
    line("AccountingStorageType", "accounting_storage/none");
    return out;
  }
  line("AccountingStorageType", kStorage);
  line("AccountingStorageHost", accounting_host(cluster, 0, facts));
  if ((accounting.of ? accounting.sharing.replicas : accounting.replicas) > 1) line("AccountingStorageBackupHost", accounting_host(cluster, 1, facts));
  line("AccountingStoragePort", std::to_string(accounting.of ? accounting.sharing.port : accounting.dbd.port));
  // What waits in memory while slurmdbd is away; a message takes some hundred bytes. Beyond it records of steps would be dropped first.
  line("MaxDBDMsgs", "200000");
  const auto given = [&](std::string_view key) { return std::any_of(accounting.slurm_conf.begin(), accounting.slurm_conf.end(), [&](const auto& one) { return one.first == key; }); };
  if (gpus && !given("AccountingStorageTRES")) line("AccountingStorageTRES", "gres/gpu");
  for (const auto& [key, value] : accounting.slurm_conf) line(key, value);
  return out;
}

std::string start_settings(const std::string& slurm_conf) {
  std::string out;
  for (const ConfigEntry& entry : read_config_text(slurm_conf).entries)
    if ((same_key(entry.key, "AccountingStorageType") && entry.value == kStorage) || same_key(entry.key, "AuthAltTypes")) out += (out.empty() ? "" : ";") + print_config(entry);
  return out;
}

std::string render_slurmdbd_conf(const SlurmCluster& cluster, int ordinal, const RenderFacts& facts) {
  const auto& accounting = cluster.accounting;
  std::string out;
  const auto line = [&](std::string_view key, std::string_view value) { out += fmt::format("{}={}\n", key, value); };
  line("AuthType", "auth/munge");
  if (wants_rest(cluster))
    for (const auto& [key, value] : token_config()) line(key, value);
  line("DbdHost", accounting_pod_name(0));
  // Only the second asks there. A first one of an earlier release has another line here, so it is made anew, and the second behind it.
  line("DbdAddr", dbd_host({cluster.space, cluster.name}, 0, ordinal == 0 || accounting.first_addressed, facts));
  if (accounting.replicas > 1) {
    line("DbdBackupHost", accounting_pod_name(1));
    // Of the connection by which the second watches the first. The time is also how long it may hang in closing it (SO_LINGER) where the first's end took its network along, 30 s by default; a first one that is silent counts as gone after 8 s instead of 120.
    line("CommunicationParameters", "keepalivetime=2,keepaliveinterval=2,keepaliveprobes=3");
  }
  line("DbdPort", std::to_string(accounting.dbd.port));
  line("SlurmUser", "slurm");
  line("PidFile", "/run/slurm/slurmdbd.pid");
  line("LogTimeFormat", "iso8601_ms");
  line("StorageType", "accounting_storage/mysql");
  line("StorageHost", database_host(cluster, facts));
  line("StoragePort", std::to_string(accounting.builtin ? accounting.db.port : accounting.external.port));
  line("StorageUser", accounting.builtin ? "slurm" : accounting.external.user);
  line("StorageLoc", kDatabaseName);
  if (accounting.builtin || !accounting.external.ca_secret.empty()) line("StorageParameters", "SSL_CA=/run/slurm/database-ca.crt");
  for (const auto& [key, value] : accounting.slurmdbd_conf) line(key, value);
  return out;
}

Json accounting_pod(const SlurmCluster& cluster, int ordinal, const ObjectOptions& options) {
  const auto& accounting = cluster.accounting;
  const std::string name = accounting_pod_name(ordinal);
  Json volumes = Json::array({secret_volume("munge-key", munge_secret(cluster), 0400), memory_volume("munge-socket"), memory_volume("run"), chosen_volume(cluster, "jail", {cluster.jail.wanted() ? cluster.jail.source : cluster.controller.jail.source_name, {}}, "")});
  if (accounting.builtin) volumes.push(items_volume("database", database_secret(cluster), {{"password", "password"}, {"ca.crt", "ca.crt"}}));
  else volumes.push(items_volume("database", accounting.external.password_secret, {{accounting.external.password_key, "password"}}));
  // Users are known by the shared root: rights of coordinators and operators are asked by number.
  std::vector<Json> mounts = {mount("munge-socket", "/run/munge"), mount("run", "/run/slurm"), mount("jail", cluster.jail.wanted() ? api::kJailVolume : "/mnt/jail"), mount("database", "/etc/fairlead/database", true)};
  if (!accounting.builtin && !accounting.external.ca_secret.empty()) {
    volumes.push(items_volume("database-ca", accounting.external.ca_secret, {{accounting.external.ca_key, "ca.crt"}}));
    mounts.push_back(mount("database-ca", "/etc/fairlead/database-ca", true));
  }
  if (wants_rest(cluster)) {
    volumes.push(secret_volume("token-key", token_secret(cluster), 0400));
    mounts.push_back(mount("token-key", kTokenKeyFolder, true));
  }
  push_companion_volume(volumes, options);
  Json environment = Json::array({env("FAIRLEAD_SLURM_CLUSTER", cluster.name), env("FAIRLEAD_SLURMDBD_CONF", render_slurmdbd_conf(cluster, ordinal, options.render))});
  if (cluster.jail.wanted()) environment.push(env("FAIRLEAD_JAIL", "link"));
  if (wants_rest(cluster)) environment.push(env("FAIRLEAD_TOKEN_KEY", options.token_mark));
  Json main = Json::object({{"name", "slurmdbd"},
                            {"image", accounting.dbd.image},
                            {"command", companion_command({"accounting"})},
                            {"env", std::move(environment)},
                            {"ports", Json::array({Json::object({{"name", "accounting"}, {"containerPort", accounting.dbd.port}})})},
                            {"resources", resources_json(accounting.dbd.resources)},
                            {"volumeMounts", with_companion(options, std::move(mounts))},
                            {"readinessProbe", probe("accounting", 5)}});
  Json spec = pod_spec(cluster, name, accounting_service(cluster), options.render, 20, Json::array({munge_container(accounting.munge, options), dressed(std::move(main), accounting.dbd)}), std::move(volumes));
  Json pod = pod_of(cluster, name, kAccountingRole, std::move(spec));
  pod.child("metadata").child("labels").set(kPodLabel, name);
  return pod;
}

Json database_pod(const SlurmCluster& cluster, const ObjectOptions& options) {
  const auto& accounting = cluster.accounting;
  const std::string name = database_pod_name(cluster);
  Json volumes = Json::array({secret_volume("database", database_secret(cluster), 0400), memory_volume("run"), chosen_volume(cluster, "data", accounting.data, data_claim(cluster))});
  push_companion_volume(volumes, options);
  Json main = Json::object({{"name", "mariadb"},
                            {"image", accounting.db.image},
                            {"command", companion_command({"database"})},
                            {"env", Json::array({env("FAIRLEAD_DATABASE_PORT", std::to_string(accounting.db.port)), env("FAIRLEAD_DATABASE_CACHE_MIB", std::to_string(cache_mib(cluster)))})},
                            {"ports", Json::array({Json::object({{"name", "database"}, {"containerPort", accounting.db.port}})})},
                            {"resources", resources_json(accounting.db.resources)},
                            {"volumeMounts", with_companion(options, {mount("database", "/etc/fairlead/database", true), mount("run", "/run/mysqld"), mount("data", "/var/lib/mysql")})},
                            {"readinessProbe", probe("database", 5)}});
  Json containers = Json::array({dressed(std::move(main), accounting.db)});
  if (accounting.backups.enabled) {
    volumes.push(chosen_volume(cluster, "backup", accounting.backups.volume, backup_claim(cluster)));
    std::vector<Json> mounts = {mount("run", "/run/mysqld"), mount("data", "/var/lib/mysql", true), mount("backup", "/var/backups/accounting")};
    if (keeps_sets(cluster) && cluster.backup.database) {  // its part of sets, asked for by files there
      volumes.push(sets_volume(cluster));
      mounts.push_back(mount("sets", kSetsFolder));
    }
    containers.push(dressed(Json::object({{"name", "backup"},
                                  {"image", accounting.db.image},
                                  {"command", companion_command({"backups"})},
                                  {"env", Json::array({env("FAIRLEAD_BACKUP_SECONDS", std::to_string(accounting.backups.interval.count())), env("FAIRLEAD_BACKUP_KEEP", std::to_string(accounting.backups.keep))})},
                                  {"resources", Json::object()},
                                  // Root without a password, by the socket alone: no key is mounted here. How much room the data has is looked at before a backup is tried.
                                  {"volumeMounts", with_companion(options, std::move(mounts))},
                                  {"readinessProbe", probe("backups", 10)}}), {}));
  }
  // A clean end writes what the cache holds.
  Json spec = pod_spec(cluster, name, database_service(cluster), options.render, 60, std::move(containers), std::move(volumes));
  return pod_of(cluster, name, kDatabaseRole, std::move(spec));
}

namespace {

class AccountingPlanner {
 public:
  AccountingPlanner(const Snapshot& snapshot, const SlurmCluster& cluster, const ObjectOptions& options) : snapshot_(snapshot), cluster_(cluster), accounting_(cluster.accounting), options_(options) {}

  AccountingPlan run(bool common, bool claims) {
    plan_.state.wanted = accounting_.enabled;
    if (kept_for_guests(cluster_)) return std::move(plan_);
    if (!accounting_.enabled) end_all("accounting is switched off");
    else if (accounting_.of) tell_guest();
    else if (!accounting_.problems.empty()) say(false, "Invalid", fmt::format("{}; no pod of accounting is made or changed until then, the cluster goes on", fmt::join(accounting_.problems, "; ")));
    else if (const std::string missing = missing_secret(); !missing.empty()) say(false, "SecretMissing", missing + "; the cluster goes on");
    else if (plan_.needs_secret || !common || !claims) say(false, "Making", "the keys, claims and services of accounting are being made");
    else run_pods();
    return std::move(plan_);
  }

 private:
  void say(bool available, std::string reason, std::string message) {
    plan_.state.available = available;
    plan_.state.reason = std::move(reason);
    plan_.state.message = std::move(message);
  }

  // Records go to another cluster's slurmdbd (sharing.h); pods of before go once they do.
  void tell_guest() {
    const auto& sharing = accounting_.sharing;
    if (sharing.joined) end_all("another cluster's slurmdbd takes the records");
    if (!sharing.reason.empty()) say(false, sharing.reason, sharing.message + (sharing.joined ? "; the cluster goes on and slurmctld keeps the records until then" : kUnchanged));
    else if (!accounting_.problems.empty()) say(false, "Invalid", fmt::format("{}{}", fmt::join(accounting_.problems, "; "), kUnchanged));
    else say(true, "Shared", fmt::format("slurmdbd of {} takes the records", accounting_.of->text()));
  }
  static constexpr const char* kUnchanged = "; nothing of accounting is made or changed until then";

  void run_pods() {
    if (accounting_.builtin) want(database_pod_name(cluster_), database_pod(cluster_, options_));
    for (int i = 0; i < accounting_.replicas; ++i) want(accounting_pod_name(i), accounting_pod(cluster_, i, options_));
    end_surplus();
    tell();
  }

  // Of the user's own; ours is made.
  std::string missing_secret() {
    if (accounting_.builtin) {
      plan_.needs_secret = !snapshot_.secrets.contains(database_secret(cluster_));
      return "";
    }
    for (const auto& [name, key, what] : {std::tuple{accounting_.external.password_secret, accounting_.external.password_key, "externalDB.passwordSecretKeyRef"},
                                          {accounting_.external.ca_secret, accounting_.external.ca_key, "extensions.accounting.externalTLS.caSecretKeyRef"}}) {
      if (name.empty()) continue;
      const auto secret = snapshot_.secrets.find(name);
      if (secret == snapshot_.secrets.end()) return fmt::format("Secret {} ({}) is not there; create it with key {}", name, what, key);
      if (!secret->second["data"].has(key)) return fmt::format("Secret {} ({}) has no key {}; add it", name, what, key);
    }
    return "";
  }

  const Json* pod(const std::string& name) const { return find(snapshot_.pods, name); }
  bool ready(const std::string& name, std::string_view container) const {
    const Json* have = pod(name);
    return have && owned_by(*have, cluster_) && container_ready(*have, container);
  }

  // slurmctld keeps what slurmdbd does not take, and slurmdbd waits for its database: each may be made anew at any time, but of two slurmdbd one at a time.
  void want(const std::string& name, Json wanted) {
    const Json* have = pod(name);
    if (!have) {
      plan_.create.push_back(std::move(wanted));
      return;
    }
    if (!owned_by(*have, cluster_)) {
      foreign_.push_back(name);
      return;
    }
    if (kube::deleting(*have)) return;
    if (pod_over(*have)) {
      plan_.end.emplace_back(have, "it has ended");
      return;
    }
    if ((*have)["metadata"]["annotations"][kTemplateHash] == wanted["metadata"]["annotations"][kTemplateHash]) return;
    const bool slurmdbd = role_is(*have, kAccountingRole);
    // One that serves goes when the other serves or is not there to serve.
    const Json* other = slurmdbd && accounting_.replicas == 2 ? pod(accounting_pod_name(name == accounting_pod_name(0) ? 1 : 0)) : nullptr;
    if (slurmdbd && renewing_) return;
    if (slurmdbd && accounting_.replicas == 2 && container_ready(*have, "slurmdbd") && (!other || !container_ready(*other, "slurmdbd"))) return;
    renewing_ = renewing_ || slurmdbd;
    plan_.end.emplace_back(have, "its template has changed");
  }

  void end_surplus() {
    for (const auto& [name, one] : snapshot_.pods) {
      if (!owned_by(one, cluster_) || kube::deleting(one)) continue;
      const bool dbd = role_is(one, kAccountingRole), db = role_is(one, kDatabaseRole);
      bool wanted = db && accounting_.builtin && name == database_pod_name(cluster_);
      for (int i = 0; i < accounting_.replicas; ++i) wanted = wanted || (dbd && name == accounting_pod_name(i));
      if ((dbd || db) && !wanted) plan_.end.emplace_back(&one, "accounting does without it");
    }
  }
  void end_all(const char* why) {
    for (const auto& [name, one] : snapshot_.pods)
      if (owned_by(one, cluster_) && !kube::deleting(one) && (role_is(one, kAccountingRole) || role_is(one, kDatabaseRole))) plan_.end.emplace_back(&one, why);
  }

  void tell() {
    int serving = 0;
    std::vector<std::string> trouble;
    const auto look = [&](const std::string& name, std::string_view container) {
      const Json* have = pod(name);
      if (!have) trouble.push_back(name + " is being made");
      else if (!owned_by(*have, cluster_)) return false;
      else if (container_ready(*have, container)) return true;
      else trouble.push_back(fmt::format("{}: {}", name, trouble_of(*have)));
      return false;
    };
    const bool database = !accounting_.builtin || look(database_pod_name(cluster_), "mariadb");
    for (int i = 0; i < accounting_.replicas; ++i) serving += look(accounting_pod_name(i), "slurmdbd");
    tell_backups(database);
    const std::string kept = "; the cluster goes on and slurmctld keeps the records until then";
    if (!foreign_.empty()) say(false, "PodOfSomebodyElse", fmt::format("pods of these names belong to somebody else; remove or rename them: {}", fmt::join(foreign_, ", ")));
    else if (!database) say(false, "DatabaseAway", fmt::format("{}{}", fmt::join(trouble, "; "), kept));
    else if (serving == 0 && !accounting_.builtin)
      say(false, "NotReady", fmt::format("{}; does the database at {}:{} take user {} with the password and certificate given?{}", fmt::join(trouble, "; "), accounting_.external.host, accounting_.external.port, accounting_.external.user, kept));
    else if (serving == 0) say(false, "NotReady", fmt::format("{}{}", fmt::join(trouble, "; "), kept));
    else if (serving < accounting_.replicas) say(true, "Degraded", fmt::format("{} of {} slurmdbd: {}", serving, accounting_.replicas, fmt::join(trouble, "; ")));
    else say(true, "Ready", fmt::format("{} of {} slurmdbd, {}", serving, accounting_.replicas, accounting_.builtin ? "the cluster's own database by TLS" : accounting_.external.ca_secret.empty() ? "the site's database, not encrypted" : "the site's database by TLS"));
  }

  void tell_backups(bool database) {
    if (!accounting_.builtin) return;
    auto& state = plan_.state;
    state.tells_backups = true;
    if (!accounting_.backups.enabled) {
      state.backup_reason = "TurnedOff";
      state.backup_message = "the accounting database is not backed up: spec.extensions.accounting.backup.enabled is false";
      return;
    }
    state.backup_fresh = ready(database_pod_name(cluster_), "backup");
    state.backup_reason = state.backup_fresh ? "Fresh" : database ? "NotYet" : "DatabaseAway";
    const auto seconds = accounting_.backups.interval.count();
    state.backup_message = state.backup_fresh ? fmt::format("the newest backup was read back and is younger than {} s", seconds * 2)
                                              : fmt::format("no backup younger than {} s has been read back; look at the log of container backup of pod {}", seconds * 2, database_pod_name(cluster_));
  }

  const Snapshot& snapshot_;
  const SlurmCluster& cluster_;
  const api::SlurmAccounting& accounting_;
  const ObjectOptions& options_;
  bool renewing_ = false;
  std::vector<std::string> foreign_;
  AccountingPlan plan_;
};

}  // namespace

AccountingPlan plan_accounting(const Snapshot& snapshot, const SlurmCluster& cluster, const ObjectOptions& options, bool common, bool claims) {
  return AccountingPlanner(snapshot, cluster, options).run(common, claims);
}

}  // namespace fairlead::slurm
