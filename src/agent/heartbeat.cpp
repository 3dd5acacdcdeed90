// SPDX-License-Identifier: Apache-2.0
#include "agent/heartbeat.h"

#include <fmt/format.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

#include "api/instance_types.h"
#include "api/instance_volume.h"
#include "api/network_interface.h"
#include "api/join.h"
#include "base/encoding.h"
#include "base/files.h"
#include "base/log.h"
#include "base/rng.h"
#include "kube/object.h"
#include "kube/selector.h"
#include "node/cdi_files.h"

namespace fairlead::agent {
namespace {
using kube::Json;
using namespace std::chrono_literals;

constexpr auto period = 10s;
constexpr int lease_seconds = 40;

std::string first_line(const std::string& path) {
  auto text = read_file(path, 64_KiB);
  return text ? std::string(trim(*text)) : "";
}

std::string architecture() {
  utsname names{};
  ::uname(&names);
  const std::string machine = names.machine;
  return machine == "x86_64" ? "amd64" : machine == "aarch64" ? "arm64" : machine;
}

std::map<std::string, std::string> own_labels(const node::NodeConfig& config) {
  std::map<std::string, std::string> out = config.labels;
  // Of a host that joined its Machine gives the others, as they are by now.
  if (config.joined)
    std::erase_if(out, [](const auto& label) { return label.first != api::kHostLabel; });
  for (const char* prefix : {"kubernetes.io/", "beta.kubernetes.io/"}) {
    out.emplace(std::string(prefix) + "os", "linux");
    out.emplace(std::string(prefix) + "arch", architecture());
  }
  out["kubernetes.io/hostname"] = config.node_name;
  return out;
}

bool is_ours(const std::string& condition) {
  return condition == "MemoryPressure" || condition == "DiskPressure" || condition == "PIDPressure" || condition == "Ready";
}

Json strings(const std::map<std::string, std::string>& map) {
  Json out = Json::object();
  for (const auto& [key, value] : map) out.set(key, value);
  return out;
}

Json pod_ranges(const node::NodeConfig& config) {
  Json out = Json::array();
  for (const std::string& range : config.pod_cidrs()) out.push(range);
  return out;
}

}  // namespace

Machine look_at_machine(const node::NodeConfig& config) {
  Machine out;
  // New with every start of the node: its folder is on a tmpfs.
  const std::string boot = config.boot_id_file.empty() ? config.run_dir + "/boot-id" : config.boot_id_file;
  out.boot_id = first_line(boot);
  // A name that is made up counts for a boot only where it is written down.
  if (out.boot_id.empty() && config.boot_id_file.empty()) {
    out.boot_id = random_uuid();
    if (auto written = write_file_atomically(boot, out.boot_id + "\n", 0644); !written)
      log_warn("boot id not written", {{"reason", written.error().message}});
  }
  out.machine_id = hex(sha256(first_line("/etc/machine-id") + "/" + config.node_dir)).substr(0, 32);
  utsname names{};
  ::uname(&names);
  out.kernel = names.release;
  if (auto text = read_file("/etc/os-release", 64_KiB))
    for (const std::string& line : split(*text, '\n'))
      if (line.starts_with("PRETTY_NAME=")) out.os_image = line.substr(12);
  if (out.os_image.size() > 1 && out.os_image.front() == '"') out.os_image = out.os_image.substr(1, out.os_image.size() - 2);
  out.runtime = "crun://1.8";
  struct sysinfo memory{};
  ::sysinfo(&memory);
  out.memory = std::to_string(memory.totalram * memory.mem_unit / 1024) + "Ki";
  out.cpu = std::to_string(get_nprocs());
  struct statvfs disk{};
  if (::statvfs(config.node_dir.c_str(), &disk) == 0) out.storage = std::to_string(disk.f_blocks * disk.f_frsize / 1024) + "Ki";
  return out;
}

std::map<std::string, std::string> device_capacity(const node::NodeConfig& config, const Json& before, std::vector<std::string>& complaints) {
  std::map<std::string, std::string> out = config.capacity;
  if (config.cdi_dirs.empty()) return out;
  for (const node::CdiKind& kind : node::read_cdi(config.cdi_dirs, &complaints)) out.emplace(kind.kind, std::to_string(node::handed_out(kind).size()));
  for (const auto& [resource, amount] : before["status"]["capacity"].members())
    if (resource.find('/') != std::string::npos) out.emplace(resource, "0");
  return out;
}

Json make_node_status(const node::NodeConfig& config, const Machine& machine, const Json& before, Instant now) {
  std::map<std::string, std::string> capacity = config.capacity;
  capacity.emplace("cpu", machine.cpu);
  capacity.emplace("memory", machine.memory);
  capacity.emplace("pods", "110");
  // Of a cluster that Kubernetes orchestrates: as many as its type has. Never more than it had by itself.
  const std::string& most = before["metadata"]["annotations"][api::kMaxPodsNote].string();
  if (const auto asked = kube::Quantity::parse(most), own = kube::Quantity::parse(capacity.at("pods")); asked && own && asked->value() > 0 && asked->value() < own->value()) capacity["pods"] = std::to_string(asked->value());
  if (!machine.storage.empty()) capacity.emplace("ephemeral-storage", machine.storage);
  Json conditions = Json::array();
  struct Row {
    const char *type, *status, *reason, *message;
  };
  for (const Row& row : {Row{"MemoryPressure", "False", "KubeletHasSufficientMemory", "the node has sufficient memory available"},
                         Row{"DiskPressure", "False", "KubeletHasNoDiskPressure", "the node has no disk pressure"},
                         Row{"PIDPressure", "False", "KubeletHasSufficientPID", "the node has sufficient PID available"},
                         Row{"Ready", "True", "KubeletReady", "fairlead-agent is posting ready status"}}) {
    const Json* old = kube::find_condition(before, row.type);
    const bool same = old != nullptr && (*old)["status"].string() == row.status && (*old)["lastTransitionTime"].is_string();
    conditions.push(Json::object({{"type", row.type},
                                  {"status", row.status},
                                  {"reason", row.reason},
                                  {"message", row.message},
                                  {"lastHeartbeatTime", print_time(now)},
                                  {"lastTransitionTime", same ? (*old)["lastTransitionTime"] : Json(print_time(now))}}));
  }
  // Conditions of others stay.
  for (const Json& old : before["status"]["conditions"].items()) {
    const std::string& type = old["type"].string();
    if (!is_ours(type)) conditions.push(old);
  }
  Json addresses = Json::array();
  for (const std::string& ip : split(config.node_ips(), ',')) addresses.push(Json::object({{"type", "InternalIP"}, {"address", ip}}));
  addresses.push(Json::object({{"type", "Hostname"}, {"address", config.node_name}}));
  const std::string version = std::string("v1.30.0-fairlead.") + FAIRLEAD_VERSION;
  return Json::object({{"capacity", strings(capacity)},
                       {"allocatable", strings(capacity)},
                       {"conditions", std::move(conditions)},
                       {"addresses", std::move(addresses)},
                       {"daemonEndpoints", Json::object({{"kubeletEndpoint", Json::object({{"Port", static_cast<int>(config.listen_port)}})}})},
                       {"nodeInfo", Json::object({{"architecture", architecture()},
                                                  {"bootID", machine.boot_id},
                                                  {"containerRuntimeVersion", machine.runtime},
                                                  {"kernelVersion", machine.kernel},
                                                  {"kubeProxyVersion", version},
                                                  {"kubeletVersion", version},
                                                  {"machineID", machine.machine_id},
                                                  {"operatingSystem", "linux"},
                                                  {"osImage", machine.os_image},
                                                  {"systemUUID", machine.machine_id}})}});
}

Json make_status_patch(Json status) {
  // Conditions of others stay as they are, also when they changed since we read them.
  Json ours = Json::array();
  for (const Json& condition : status["conditions"].items())
    if (is_ours(condition["type"].string())) ours.push(condition);
  status.set("conditions", std::move(ours));
  // The API merges addresses by their type, although there may be two of one type.
  Json addresses = status["addresses"];
  addresses.push(Json::object({{"$patch", "replace"}}));
  status.set("addresses", std::move(addresses));
  return status;
}

Json make_node(const node::NodeConfig& config, const Machine& machine, Instant now) {
  Json spec = Json::object({{"podCIDR", config.pod_cidr}, {"podCIDRs", pod_ranges(config)}});
  if (!config.taints.items().empty()) spec.set("taints", config.taints);
  Json metadata = Json::object({{"name", config.node_name}, {"labels", strings(own_labels(config))}});
  if (!config.annotations.empty()) metadata.set("annotations", strings(config.annotations));
  return Json::object({{"apiVersion", "v1"},
                       {"kind", "Node"},
                       {"metadata", std::move(metadata)},
                       {"spec", std::move(spec)},
                       {"status", make_node_status(config, machine, Json::object(), now)}});
}

Heartbeat::Heartbeat(kube::KubeApi& api, const Clock& clock, node::NodeConfig config, Machine machine, VolumeKeeper* volume, Settle settle)
    : api_(api), clock_(clock), config_(std::move(config)), machine_(std::move(machine)), volume_(volume), settle_(std::move(settle)), thread_([this](const std::stop_token& stop) {
        bool fine = false;
        while (!stop.stop_requested()) {
          auto done = beat();
          if (!done)
            log_warn("the node could not report to the API", {{"reason", done.error().message}});
          else if (!fine)
            log_info("the node reports to the API", {{"node", config_.node_name}});
          fine = done.has_value();
          std::unique_lock lock(mutex_);
          // Sooner after a failure: a lease of 40 s survives a few lost beats.
          changed_.wait_for(lock, stop, fine ? std::chrono::milliseconds(period) : std::chrono::milliseconds(2000), [this] { return again_; });
          again_ = false;
        }
      }) {}

std::vector<kube::Controller::Source> WishController::sources() const {
  return {{.resource = kube::resources::nodes, .space = "", .keys = [own = node_name_](const kube::Change& change) { return kube::name_of(change.object()) == own ? std::vector<kube::ObjectKey>{{"", own}} : std::vector<kube::ObjectKey>(); }}};
}

Result<kube::Next> WishController::reconcile(const kube::ObjectKey& key) {
  const auto node = nodes_->get(key);
  if (!node) return kube::Next{};
  const Json& notes = (*node)["metadata"]["annotations"];
  std::string asked = notes[api::kMaxPodsNote].string() + "\n" + notes[api::kVolumeNote].string() + "\n" + notes[api::kInterfacesNote].string();
  if (asked == seen_) return kube::Next{};
  seen_ = std::move(asked);
  look_();
  return kube::Next{};
}

void Heartbeat::look_again() {
  {
    const std::lock_guard lock(mutex_);
    again_ = true;
  }
  changed_.notify_all();
}

Heartbeat::~Heartbeat() {
  thread_.request_stop();
  thread_.join();
}

Result<Json> Heartbeat::ensure_node() {
  const kube::ObjectKey key{"", config_.node_name};
  auto node = api_.get(kube::resources::nodes, key);
  if (!node && node.error().code == Code::NotFound) {
    // Who has no Node has no interface: others may have its addresses by now.
    if (settle_)
      if (auto gone = settle_({}); !gone) return pass(gone.error(), "take network interfaces away before node " + config_.node_name + " registers");
    Json made = make_node(config_, machine_, clock_.now());
    // Whose volume is here is known as soon as the node is: nobody else is to get it before.
    if (const auto state = volume_ == nullptr ? std::nullopt : volume_->state(); state && *state != api::VolumeState()) made.child("metadata").child("annotations").set(api::kVolumeStateNote, api::print_volume_state(*state));
    node = api_.create(kube::resources::nodes, std::move(made));
    if (!node && node.error().code == Code::Exists) node = api_.get(kube::resources::nodes, key);
    if (!node) return pass(std::move(node.error()), "register node " + config_.node_name);
  }
  if (!node) return pass(std::move(node.error()), "read node " + config_.node_name);
  // Labels that the configuration names are kept as it says; others are their owners'.
  Json labels = Json::object();
  for (const auto& [name, value] : own_labels(config_))
    if ((*node)["metadata"]["labels"][name].string() != value) labels.set(name, value);
  Json patch = Json::object();
  if (!labels.members().empty()) patch.set("metadata", Json::object({{"labels", std::move(labels)}}));
  if ((*node)["spec"]["podCIDR"].string().empty())
    patch.set("spec", Json::object({{"podCIDR", config_.pod_cidr}, {"podCIDRs", pod_ranges(config_)}}));
  if (!patch.members().empty()) {
    node = api_.patch(kube::resources::nodes, key, kube::PatchType::Merge, patch);
    if (!node) return pass(std::move(node.error()), "update node " + config_.node_name);
  }
  // A heartbeat by status is needed only now and then, as the Lease tells that we live; anything else that differs is written at once.
  const Json& before = (*node)["status"];
  node::NodeConfig now = config_;
  std::vector<std::string> complaints;
  now.capacity = device_capacity(config_, *node, complaints);
  if (complaints != complaints_)
    for (const std::string& one : complaints) log_warn("a CDI file is left out", {{"file", one}});
  complaints_ = std::move(complaints);
  const Json status = make_node_status(now, machine_, *node, clock_.now());
  bool differs = false;
  for (const char* member : {"capacity", "allocatable", "addresses", "daemonEndpoints", "nodeInfo"})
    if (before[member] != status[member]) differs = true;
  for (const Json& condition : status["conditions"].items()) {
    const Json* old = kube::find_condition(*node, condition["type"].string());
    if (old == nullptr || (*old)["status"] != condition["status"] || (*old)["reason"] != condition["reason"]) differs = true;
    const auto told = old != nullptr ? parse_time((*old)["lastHeartbeatTime"].string()) : Result<Instant>(fail(Code::Invalid, ""));
    if (condition["type"].string() == "Ready" && (!told || clock_.now() - *told > 5min)) differs = true;
  }
  if (!differs) return node;
  auto done = api_.patch(kube::resources::nodes, key, kube::PatchType::Strategic, Json::object({{"status", make_status_patch(status)}}), "status");
  if (!done) return pass(std::move(done.error()), "report status of node " + config_.node_name);
  return done;
}

Result<void> Heartbeat::renew_lease(const Json& node) {
  const kube::ObjectKey key{"kube-node-lease", config_.node_name};
  const Json spec =
      Json::object({{"holderIdentity", config_.node_name}, {"leaseDurationSeconds", lease_seconds}, {"renewTime", print_micro_time(clock_.now())}});
  auto done = api_.patch(kube::resources::leases, key, kube::PatchType::Merge, Json::object({{"spec", spec}}));
  if (done) return {};
  if (done.error().code != Code::NotFound) return pass(std::move(done.error()), "renew the lease");
  Json owner = Json::object({{"apiVersion", "v1"}, {"kind", "Node"}, {"name", config_.node_name}, {"uid", kube::uid_of(node)}});
  Json lease =
      Json::object({{"apiVersion", "coordination.k8s.io/v1"},
                    {"kind", "Lease"},
                    {"metadata", Json::object({{"name", key.name}, {"namespace", key.space}, {"ownerReferences", Json::array({std::move(owner)})}})},
                    {"spec", spec}});
  auto made = api_.create(kube::resources::leases, lease);
  if (!made && made.error().code != Code::Exists) return pass(std::move(made.error()), "make the lease");
  return {};
}

Result<void> Heartbeat::keep_volume(const Json& node) {
  const std::string& note = node["metadata"]["annotations"][api::kVolumeNote].string();
  if (volume_ == nullptr) return {};
  std::optional<api::VolumeOrder> order;
  if (!note.empty()) {
    auto parsed = api::parse_volume_order(note);
    if (!parsed) return std::unexpected(std::move(parsed.error()));
    order = std::move(*parsed);
  }
  volume_->ask(std::move(order));  // no order changes nothing, and what is there is told all the same
  const auto state = volume_->state();
  if (!state || *state == api::read_volume_state(node)) return {};
  auto told = api_.patch(kube::resources::nodes, {"", config_.node_name}, kube::PatchType::Merge, Json::object({{"metadata", Json::object({{"annotations", Json::object({{api::kVolumeStateNote, api::print_volume_state(*state)}})}})}}));
  if (!told) return pass(std::move(told.error()), "tell of the volume of node " + config_.node_name);
  return {};
}

Result<void> Heartbeat::beat() {
  auto node = ensure_node();
  if (!node) return std::unexpected(std::move(node.error()));
  // First of all it lives.
  if (auto done = renew_lease(*node); !done) return done;
  auto interfaces = settle_ ? keep_interfaces(api_, *node, settle_, !settled_) : Result<void>();
  if (!interfaces && interfaces.error().code == Code::Conflict) {  // what is ordered has changed meanwhile
    look_again();
    interfaces = {};
  } else if (interfaces) {
    settled_ = true;
  }
  // One of them that fails holds up no other.
  if (auto volume = keep_volume(*node); !volume) return volume;
  return interfaces;
}

}  // namespace fairlead::agent
