// SPDX-License-Identifier: Apache-2.0
#include "api/slurm_accounting.h"

#include <fmt/format.h>

#include <algorithm>

#include "kube/selector.h"

namespace fairlead::api {
namespace {

using kube::Json;
using Lines = std::vector<std::pair<std::string, std::string>>;
constexpr const char* kPath = "spec.slurmNodes.accounting";
constexpr const char* kExtensions = "spec.extensions.accounting";

// Whatever stands in a configuration file must not be able to begin another line, a comment or a second setting.
bool is_word(const std::string& text) {
  return !text.empty() && text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./,:=%*+-@") == std::string::npos;
}

void take(const Json& from, const char* name, const char* key, const std::string& where, Lines& lines, std::vector<std::string>& problems) {
  const Json& value = from[name];
  if (value.is_null() || (value.is_string() && value.string().empty())) return;
  const std::string text = value.is_string() ? value.string() : value.is_number() ? std::to_string(value.integer()) : "";
  if (is_word(text)) lines.emplace_back(key, text);
  else problems.push_back(fmt::format("{}.{}: {} is not one word of letters, digits and _./,:=%*+-@", where, name, kube::print_json(value)));
}

void read_lines(const Json& accounting, const Json& extensions, SlurmAccounting& out) {
  const Json& conf = accounting["slurmConfig"];
  const std::string where = std::string(kPath) + ".slurmConfig";
  for (const auto& [name, key] : {std::pair<const char*, const char*>{"accountingStorageTRES", "AccountingStorageTRES"},
                                  {"accountingStoreFlags", "AccountingStoreFlags"},
                                  {"acctGatherFilesystemType", "AcctGatherFilesystemType"},
                                  {"acctGatherInterconnectType", "AcctGatherInterconnectType"},
                                  {"acctGatherProfileType", "AcctGatherProfileType"},
                                  {"jobAcctGatherFrequency", "JobAcctGatherFrequency"},
                                  {"jobAcctGatherParams", "JobAcctGatherParams"}})
    take(conf, name, key, where, out.slurm_conf, out.problems);
  take(extensions, "enforce", "AccountingStorageEnforce", kExtensions, out.slurm_conf, out.problems);
  Lines weights;
  for (const auto& [name, key] : {std::pair<const char*, const char*>{"priorityWeightAge", "PriorityWeightAge"}, {"priorityWeightFairshare", "PriorityWeightFairshare"}}) {
    const std::int64_t weight = conf[name].integer();
    if (weight < 0 || weight > 0xffff'fffe) out.problems.push_back(fmt::format("{}.{}: {} is not a weight from 0 to 4294967294", where, name, weight));
    else if (weight > 0) weights.emplace_back(key, std::to_string(weight));
  }
  if (!weights.empty()) out.slurm_conf.emplace_back("PriorityType", "priority/multifactor");
  for (auto& line : weights) out.slurm_conf.push_back(std::move(line));
  const std::string& gather = conf["jobAcctGatherType"].string();
  if (gather.empty() || gather == "jobacct_gather/linux" || gather == "jobacct_gather/cgroup" || gather == "jobacct_gather/none") out.gather_type = gather;
  else out.problems.push_back(fmt::format("{}.jobAcctGatherType: \"{}\" is none of jobacct_gather/linux, jobacct_gather/cgroup, jobacct_gather/none", where, gather));
  const Json& dbd = accounting["slurmdbdConfig"];
  for (const auto& [name, key] : {std::pair<const char*, const char*>{"debugFlags", "DebugFlags"}, {"debugLevel", "DebugLevel"}, {"privateData", "PrivateData"}, {"tcpTimeout", "TCPTimeout"}})
    take(dbd, name, key, std::string(kPath) + ".slurmdbdConfig", out.slurmdbd_conf, out.problems);
}

std::int64_t storage_of(const Json& claim) {
  auto quantity = kube::Quantity::from_json(claim["resources"]["requests"]["storage"]);
  return quantity ? quantity->value() : 0;
}

Json claim_of(const Json& storage) {
  if (const Json& given = storage["volumeClaimTemplate"]; given.is_object()) return given.has("spec") ? given["spec"] : given;
  Json claim = Json::object({{"accessModes", Json::array({Json("ReadWriteOnce")})},
                             {"resources", Json::object({{"requests", Json::object({{"storage", storage["size"].is_null() ? Json("10Gi") : storage["size"]}})}})}});
  if (const std::string& name = storage["storageClassName"].string(); !name.empty()) claim.set("storageClassName", name);
  return claim;
}

void read_builtin(const Json& from, const std::string& default_image, SlurmAccounting& out) {
  const std::string where = std::string(kPath) + ".mariadbOperator";
  // Beside Slurm's image: registry/slurm:22.05 has registry/mariadb:10.11 with it.
  const auto slash = default_image.rfind('/');
  out.db = read_container(from, where, 3306, (slash == std::string::npos ? "" : default_image.substr(0, slash + 1)) + "mariadb:10.11", out.problems);
  if (const std::int64_t replicas = from["replicas"].integer(1); replicas != 1) out.ignored.push_back("spec.slurmNodes.accounting.mariadbOperator.replicas");
  const Json& storage = from["storage"];
  if (storage["ephemeral"].boolean()) return;
  out.data.claim_template = claim_of(storage);
  if (storage_of(out.data.claim_template) < kSmallestDatabase)
    out.problems.push_back(fmt::format("{}.storage: a claim of {} is too small for a database; give it {} MiB or more", where,
                                       kube::print_json(out.data.claim_template["resources"]["requests"]["storage"]), kSmallestDatabase >> 20));
}

void read_external(const Json& from, const Json& tls, SlurmAccounting& out) {
  const std::string where = std::string(kPath) + ".externalDB";
  auto& external = out.external;
  external.host = from["host"].string();
  external.user = from["user"].string();
  const std::int64_t port = from["port"].integer(3306);
  if (port < 1 || port > 65535) out.problems.push_back(fmt::format("{}.port: {} is not a port (1-65535)", where, port));
  else external.port = static_cast<int>(port);
  external.password_secret = from["passwordSecretKeyRef"]["name"].string();
  external.password_key = from["passwordSecretKeyRef"]["key"].string_or("password");
  if (!is_word(external.host)) out.problems.push_back(where + ".host: name the database server");
  if (!is_word(external.user)) out.problems.push_back(where + ".user: name the database's user for slurmdbd");
  if (external.password_secret.empty()) out.problems.push_back(where + ".passwordSecretKeyRef: name the Secret with that user's password, and its key");
  const std::string mode = tls["mode"].string_or("Required");
  if (mode != "Required" && mode != "Disabled") out.problems.push_back(fmt::format("{}.externalTLS.mode: \"{}\" is none of Required, Disabled", kExtensions, mode));
  if (mode == "Disabled") return;
  external.ca_secret = tls["caSecretKeyRef"]["name"].string();
  external.ca_key = tls["caSecretKeyRef"]["key"].string_or("ca.crt");
  if (external.ca_secret.empty())
    out.problems.push_back(fmt::format("{}.externalTLS.caSecretKeyRef: name the Secret with the certificate authority of the database server, or say externalTLS.mode: Disabled to send records and the login unencrypted", kExtensions));
}

void read_backups(const Json& from, SlurmAccounting& out) {
  const std::string where = std::string(kExtensions) + ".backup";
  out.backups.enabled = from["enabled"].boolean(true);
  if (const Json* interval = from.find("interval"); interval && !interval->is_null()) {
    const auto duration = read_duration(interval->string());
    if (duration && *duration >= std::chrono::seconds(10)) out.backups.interval = *duration;
    else out.problems.push_back(fmt::format("{}.interval: \"{}\" is not a duration of 10s or more, like 30m or 24h", where, interval->string()));
  }
  const std::int64_t keep = from["keep"].is_null() ? out.backups.keep : from["keep"].integer(-1);
  if (keep < 1 || keep > 1000) out.problems.push_back(fmt::format("{}.keep: {} is not a number of backups from 1 to 1000", where, kube::print_json(from["keep"])));
  else out.backups.keep = static_cast<int>(keep);
  out.backups.volume = {from["volumeSourceName"].string(), from["volumeClaimTemplateSpec"]};
  if (out.backups.volume.source_name.empty() && !out.backups.volume.claim_template.is_object()) out.backups.volume.claim_template = out.data.claim_template;
}

std::optional<ClusterRef> read_ref(const Json& from, const std::string& where, const std::string& own_space, std::vector<std::string>& problems) {
  const ClusterRef ref{from["namespace"].string(), from["name"].string()};
  if (ref.space.empty() || ref.name.empty()) problems.push_back(where + ": name a SlurmCluster by namespace and name, such as {namespace: research, name: alpha}");
  else if (const auto bad = kube::check_dns_label(ref.space); !bad.empty()) problems.push_back(fmt::format("{}.namespace: \"{}\" {}", where, ref.space, bad));
  else if (const auto wrong = kube::check_dns_label(ref.name); !wrong.empty()) problems.push_back(fmt::format("{}.name: \"{}\" {}", where, ref.name, wrong));
  else if (ref.space == own_space) problems.push_back(fmt::format("{}.namespace: {} is this cluster's own namespace; accounting is shared with clusters of other namespaces", where, own_space));
  else return ref;
  return std::nullopt;
}

void read_sharing(const Json& extensions, const std::string& own_space, SlurmAccounting& out) {
  const std::string where = std::string(kExtensions) + ".sharedWith";
  const Json& list = extensions["sharedWith"];
  if (!list.is_null() && !list.is_array()) out.problems.push_back(where + ": a list is expected, such as [{namespace: research, name: alpha}]");
  if (list.items().size() > kMostGuests) out.problems.push_back(fmt::format("{}: {} clusters; up to {} can share one accounting", where, list.items().size(), kMostGuests));
  for (std::size_t i = 0; i < std::min(list.items().size(), kMostGuests); ++i) {
    const auto ref = read_ref(list.items()[i], fmt::format("{}[{}]", where, i), own_space, out.problems);
    if (ref && std::find(out.shared_with.begin(), out.shared_with.end(), *ref) == out.shared_with.end()) out.shared_with.push_back(*ref);
  }
}

// Records go elsewhere: what would make a slurmdbd and a database here contradicts that.
void read_guest(const Json& accounting, const Json& extensions, const std::string& own_space, SlurmAccounting& out) {
  const std::string where = std::string(kExtensions) + ".of";
  out.builtin = false;
  out.backups.enabled = false;
  out.of = read_ref(extensions["of"], where, own_space, out.problems);
  if (!out.of) out.of.emplace();  // asked for, and nobody knows whose
  for (const char* database : {"mariadbOperator", "externalDB"})
    if (accounting[database]["enabled"].boolean())
      out.problems.push_back(fmt::format("{}: records go to another cluster's slurmdbd, and {}.{} names a database of this one; switch one of them off", where, kPath, database));
  if (!out.shared_with.empty()) out.problems.push_back(fmt::format("{}: a cluster that uses another's slurmdbd has none to share; name these clusters in {}.sharedWith of {}", where, kExtensions, out.of->text()));
  for (const char* path : {"replicas", "externalTLS", "backup"})
    if (!extensions[path].is_null()) out.ignored.push_back(fmt::format("{}.{}", kExtensions, path));
  if (!out.slurmdbd_conf.empty()) out.ignored.push_back(std::string(kPath) + ".slurmdbdConfig");
}

}  // namespace

SlurmAccounting read_slurm_accounting(const Json& spec, const std::string& default_image, const std::string& own_space) {
  SlurmAccounting out;
  const Json& accounting = spec["slurmNodes"]["accounting"];
  const Json& extensions = spec["extensions"]["accounting"];
  out.enabled = accounting["enabled"].boolean();
  out.dbd = read_container(accounting["slurmdbd"], std::string(kPath) + ".slurmdbd", 6819, default_image, out.problems);
  out.munge = read_container(accounting["munge"], std::string(kPath) + ".munge", 0, out.dbd.image, out.problems);
  read_sharing(extensions, own_space, out);  // of accounting that is switched off, too: others may use it still
  if (!out.enabled) {
    out.db.port = 3306;
    return out;
  }
  out.node_filter = accounting["k8sNodeFilterName"].string();
  if (out.dbd.port < 1) out.problems.push_back(fmt::format("{}.slurmdbd.port: {} is not a port (1-65535)", kPath, out.dbd.port));
  const std::int64_t replicas = extensions["replicas"].is_null() ? 1 : extensions["replicas"].integer(-1);
  if (replicas != 1 && replicas != 2) out.problems.push_back(fmt::format("{}.replicas: {} is neither 1 nor 2", kExtensions, kube::print_json(extensions["replicas"])));
  else out.replicas = static_cast<int>(replicas);

  if (!extensions["of"].is_null()) {
    read_lines(accounting, extensions, out);
    read_guest(accounting, extensions, own_space, out);
    return out;
  }
  const bool builtin = accounting["mariadbOperator"]["enabled"].boolean(), external = accounting["externalDB"]["enabled"].boolean();
  out.builtin = !external;
  if (builtin == external)
    out.problems.push_back(fmt::format("{}: {} of mariadbOperator (a database of the cluster's own) and externalDB enabled; enable one", kPath, builtin ? "both" : "none"));
  read_builtin(accounting["mariadbOperator"], default_image, out);
  if (!out.builtin) {
    out.data = {};
    read_external(accounting["externalDB"], extensions["externalTLS"], out);
  } else {
    read_backups(extensions["backup"], out);
  }
  if (!out.builtin || !out.backups.enabled) out.backups.enabled = false;
  read_lines(accounting, extensions, out);
  // Purged records would first be archived, and there is no place for archives yet: nothing is ever purged, and the FieldsIgnored condition says so.
  return out;
}

}  // namespace fairlead::api
