// SPDX-License-Identifier: Apache-2.0
// What the two ways to run fairlead-server share. Part of the program, not of a library.
#pragma once
#include <fmt/format.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>
#include <thread>

#include "api/pod_identity.h"
#include "apiserver/admission.h"
#include "apiserver/auth_types.h"
#include "apiserver/waiting_threads.h"
#include "base/encoding.h"
#include "base/files.h"
#include "base/log.h"
#include "base/own_program.h"
#include "fleet/control/join_door.h"
#include "fleet/control/script_store.h"
#include "fleet/plan/addresses.h"
#include "fleet/plan/cluster_plan.h"
#include "fleet/prometheus.h"
#include "governance/decision_log.h"
#include "hyperpod/door.h"
#include "kube/controller.h"
#include "kube/patch.h"

namespace fairlead {

struct Flags {
  std::string state_dir = "/var/lib/fairlead";
  std::string listen = "127.0.0.1:6443";
  std::string node_range = "10.77.0.0/16", pod_range = "10.78.0.0/16";
  std::vector<std::string> service_ranges{"10.79.0.0/16"};
  std::string advertise;         // at which hosts that join reach the API; empty: --listen's, if others reach that
  std::string root_key, old_root_key;  // programs (apiserver/root_key.h)
  std::vector<std::string> closed_ranges;  // api::SlurmNetwork; beside those of local nodes and their pods
  std::string log_level = "info";
  std::string engine = "embedded";
  std::string controllers = "all";
  std::string audit_log;
  int audit_megabytes = 100, audit_backups = 10;
  bool audit_writes_only = false;
  std::string decision_log;        // empty: decisions.log of the state folder; "off"
  int decision_log_megabytes = 32;
  bool notify_local = false;        // notifications may go to this machine and its links
  double client_rate = 20'000;      // requests a second
  std::string aws_listen;          // empty: one port above --listen; "off"
  std::string aws_endpoint, aws_account, aws_region, aws_audit_log, eks_name = "fairlead", eks_endpoint;
  bool aws_relaxed_names = false;
  double aws_rate = 100;           // calls a second of one identity
  std::string machines_socket;   // of fairlead-machines; empty: this process makes local nodes itself
  // --engine=kubernetes
  std::string kubeconfig, context;
  std::string health_listen = "0.0.0.0:8080";
  std::string space;             // of the Lease; empty: the service account's, else fairlead-system
  std::string lease = "fairlead-server";
  std::string identity;
  std::string webhook_listen, webhook_service;
  std::string watch_namespace;
  std::string companion_dir = "/var/lib/fairlead/bin";
  std::string slurm_image = "slurm:22.05";
  std::string cluster_domain = "cluster.local";
  bool local_machines = false;
  std::string cluster_storage_class;
  std::string s3_directory;
  std::string prometheus_url, prometheus_ca, prometheus_token;
  int script_limit = 3600, deep_check = 60, min_count_limit = 10'800;
  bool cluster_machines = true, node_places = true;
  std::string node_ca_cert, node_ca_key, node_api_server;
};

// Where the pods of a SlurmCluster have no business: what the flag names and, with local nodes, these and their pods.
inline std::vector<std::string> closed_ranges(const Flags& flags, const fleet::Ranges* local_nodes) {
  std::vector<std::string> out = flags.closed_ranges;
  if (local_nodes == nullptr) return out;
  for (const std::string& both : {fleet::print_nodes(*local_nodes), fleet::print_pods(*local_nodes)})
    for (std::string& one : split(both, ',')) out.push_back(std::move(one));
  return out;
}

// Of the volume by which pods have Slurm's companion program.
inline kube::Json companion_folder(const std::string& path) { return kube::Json::object({{"hostPath", kube::Json::object({{"path", path}, {"type", "Directory"}})}}); }

inline fleet::ClusterPlanOptions cluster_options(const Flags& flags, const std::string& image, kube::Json companion, bool makes_machines, fleet::KubernetesFacts kubernetes) {
  kubernetes.name = flags.eks_name;
  if (!flags.eks_endpoint.empty()) kubernetes.endpoint = flags.eks_endpoint;
  return {.makes_machines = makes_machines, .storage_class = flags.cluster_storage_class, .scripts = {.kubernetes = std::move(kubernetes), .image = image, .companion = std::move(companion), .limit = std::chrono::seconds(flags.script_limit), .check = std::chrono::seconds(flags.deep_check)}, .minimum = std::chrono::seconds(flags.min_count_limit)};
}

// A folder with a folder for each bucket, where lifecycle scripts lie; empty: there is none. It need not be there yet.
inline std::string s3_folder(const Flags& flags, const std::string& state_dir) {
  if (!flags.s3_directory.empty()) return std::filesystem::absolute(flags.s3_directory).string();
  return flags.engine == "embedded" || flags.local_machines ? state_dir + "/s3" : "";
}
inline std::shared_ptr<const fleet::ScriptStore> scripts_of(const Flags& flags, const std::string& state_dir) {
  const std::string folder = s3_folder(flags, state_dir);
  return folder.empty() ? nullptr : std::make_shared<fleet::ScriptFolder>(folder);
}

// What watches updates of software; null: nothing.
inline Result<std::shared_ptr<const api::Alarms>> alarms_of(const Flags& flags, const Clock& clock) {
  if (!flags.prometheus_url.empty()) return fleet::make_prometheus_alarms({.url = flags.prometheus_url, .ca_file = flags.prometheus_ca, .token_file = flags.prometheus_token}, clock);
  if (!flags.prometheus_ca.empty() || !flags.prometheus_token.empty()) return fail(Code::Invalid, "--prometheus-ca and --prometheus-token-file go with --prometheus-url");
  return std::shared_ptr<const api::Alarms>();
}

// What the engine of task governance is told and decides, written down; null: nowhere.
inline std::unique_ptr<governance::DecisionSink> make_decision_log(const Flags& flags, const std::string& state_dir) {
  if (flags.decision_log == "off") return nullptr;
  const std::string path = flags.decision_log.empty() ? state_dir + "/decisions.log" : std::filesystem::absolute(flags.decision_log).string();
  return std::make_unique<governance::DecisionLogFile>(governance::DecisionLogOptions{.path = path, .limit = Bytes{std::int64_t{flags.decision_log_megabytes} << 20}, .write = {}});
}

// apps/fairlead-server_kubernetes.cpp
int serve_kubernetes(const Flags& flags);

// apps/fairlead-server_aws.cpp: the AWS face.
struct AwsWiring {
  std::string address;
  unsigned short port = 0;
  std::string space;                                                             // of its settings and keys
  std::function<Result<http::KeyPair>(const http::CertificateRequest&)> issue;   // by the site's authority; null: by one of its own, in a Secret
  std::string ca_pem;                                                            // of `issue`
  hyperpod::EksCluster cluster;                                                  // the Kubernetes that this server works with; its name is --eks-name
  kube::PodLog logs;                                                             // of containers
  std::string s3_folder;                                                         // empty: S3 is not served
  std::string audit_log;                                                         // where none is named; empty: the calls are lines of the log
  std::string pod_host;                                                          // DoorOptions::pod_host
  std::optional<hyperpod::DoorOptions::PodHook> pod_hook;                        // DoorOptions::pod_hook
  std::string node_ca_pem = {};                                                  // DoorOptions::node_ca_pem
  std::function<Result<void>(const http::Peer&)> check_node = {};                // DoorOptions::check_node
  std::shared_ptr<const api::Alarms> alarms = nullptr;                           // DoorOptions::alarms
};
// A face that comes later and goes earlier than who asks it. Thread-safe.
class LateFace {
 public:
  void set(hyperpod::Door* door) {
    const std::unique_lock lock(mutex_);
    door_ = door;
    if (door_ != nullptr && !address_.empty()) listen();
  }
  // Pods reach the face there from now on, or from when it is there.
  void also_listen(const std::string& address) {
    const std::unique_lock lock(mutex_);
    address_ = address;
    if (door_ != nullptr) listen();
  }
  // What the engine gives pods that have a role (PodEquipment).
  void equip(const std::string& space, const kube::Json& account, kube::Json& pod, const apiserver::FindObject& look) const {
    const std::shared_lock lock(mutex_);
    if (door_ == nullptr) {
      if (const std::string& role = account["metadata"]["annotations"][api::pod_identity::role_note].string(); !role.empty()) log_warn("a pod has no AWS credentials of its service account: AWS clients are not served, or not yet; delete it, and its controller makes another", {{"account", space + "/" + kube::name_of(account)}, {"role", role}});
      return;
    }
    const auto look_up = [&](const kube::Resource& resource, const kube::ObjectKey& key) -> Result<kube::Json> {
      if (resource.plural == kube::resources::service_accounts.plural) return account;
      auto found = look(resource, key);
      return found ? Result<kube::Json>(std::move(*found)) : Result<kube::Json>(fail(Code::NotFound, key.text()));
    };
    const auto patch = hyperpod::plan_pod_credentials(pod, space, look_up, door_->pod_site());
    if (patch && patch->items().empty()) return;
    auto equipped = patch ? kube::json_patch(pod, *patch) : Result<kube::Json>(std::unexpected(patch.error()));
    if (equipped) pod = std::move(*equipped);
    else log_warn("a pod has no AWS credentials of its service account, should it have any", {{"account", space + "/" + kube::name_of(account)}, {"why", equipped.error().message}});
  }
  hyperpod::Answer<hyperpod::KubernetesUser> user_of(std::string_view token) const {
    const std::shared_lock lock(mutex_);
    if (door_ == nullptr) return hyperpod::refuse("ServiceUnavailable", "AWS clients are not served here", 503);
    return door_->kubernetes_user_of(token);
  }

 private:
  void listen() {
    if (auto done = door_->also_listen(address_); !done) log_warn("pods do not reach the AWS face", {{"why", done.error().message}});
    address_.clear();
  }
  mutable std::shared_mutex mutex_;
  hyperpod::Door* door_ = nullptr;
  std::string address_;  // where it is not listened at yet
};
// The door for hosts, likewise; its work waits for the disk, so it has a thread of its own.
class LateJoinDoor {
 public:
  void set(fleet::JoinDoor* door) {
    const std::unique_lock lock(mutex_);
    door_ = door;
  }
  bool take(const http::Request& request, const std::shared_ptr<http::Exchange>& exchange) {
    if (!fleet::JoinDoor::serves(request.target.path)) return false;
    const bool room = threads_.post([this, request, exchange] {
      const std::shared_lock lock(mutex_);
      exchange->respond(door_ == nullptr ? http::Response{.status = 503, .body = "{\"message\": \"the server starts or stops: try again\"}\n"} : door_->answer(request));
    });
    if (!room) exchange->respond({.status = 503, .body = "{\"message\": \"many hosts join at once: try again\"}\n"});
    return true;
  }
  Result<void> check(const http::Peer& peer) {
    const std::shared_lock lock(mutex_);
    // Before the door is there nobody can be asked.
    if (door_ == nullptr) return std::ranges::find(peer.organizations, api::kHostsGroup) == peer.organizations.end() ? Result<void>() : fail(Code::Unavailable, "the server starts or stops: try again");
    return door_->check(peer);
  }
  Result<void> check_node(const apiserver::User& user, const kube::Json* old, const kube::Json& next) {
    if (!user.in(api::kHostsGroup)) return {};
    const std::shared_lock lock(mutex_);
    return door_ == nullptr ? fail(Code::Unavailable, "the server starts or stops: try again") : door_->check_node(user.name, user.groups, old, next);
  }

 private:
  std::shared_mutex mutex_;
  fleet::JoinDoor* door_ = nullptr;
  apiserver::WaitingThreads threads_{2, 64};  // first to go: it does what was posted
};
// The door while it is there, whichever way the program leaves.
class OpenJoinDoor {
 public:
  OpenJoinDoor(std::shared_ptr<LateJoinDoor> late, fleet::JoinDoor& door) : late_(std::move(late)) { late_->set(&door); }
  OpenJoinDoor(const OpenJoinDoor&) = delete;
  OpenJoinDoor& operator=(const OpenJoinDoor&) = delete;
  ~OpenJoinDoor() { late_->set(nullptr); }

 private:
  const std::shared_ptr<LateJoinDoor> late_;
};
Result<std::unique_ptr<hyperpod::Door>> open_aws(const Flags& flags, kube::KubeApi& api, const Clock& clock, const AwsWiring& wiring);

inline int refuse(const std::string& why, int status = 1) {
  fmt::print(stderr, "fairlead-server: {}\n", why);
  return status;
}

inline Result<std::pair<std::string, unsigned short>> parse_listen(const std::string& option, const std::string& text) {
  const std::size_t colon = text.rfind(':');
  const std::string port = colon == std::string::npos ? "" : text.substr(colon + 1);
  const bool digits = !port.empty() && port.size() <= 5 && port.find_first_not_of("0123456789") == std::string::npos;
  if (!digits || std::stoi(port) > 65'535) return fail(Code::Invalid, fmt::format("{} {}: ADDRESS:PORT is expected, for instance 127.0.0.1:6443", option, text));
  return std::pair(text.substr(0, colon), static_cast<unsigned short>(std::stoi(port)));
}

// The folder of this program: its companions lie beside it.
inline std::string program_folder() {
  const auto self = own_program();
  return self ? self->substr(0, self->rfind('/')) : ".";
}

// Copies the program that runs inside Slurm's containers to STATE/bin, from where pods mount it: the build folder may move or be rebuilt under running pods.
inline Result<void> install_companion(const std::string& folder) {
  auto program = read_file(program_folder() + "/fairlead-slurm", 256_MiB);
  if (!program) return pass(std::move(program.error()), "the program fairlead-slurm must lie beside fairlead-server");
  if (auto made = make_dirs(folder, 0755); !made) return made;
  const std::string target = folder + "/fairlead-slurm";
  if (auto have = read_file(target, 256_MiB); have && *have == *program) return {};
  return write_file_durably(target, *program, 0755);
}

// Tells the runner of what others saw first: nodes that died, heads that took over. The host's threads outlive the runner, so the way between them is cut before it goes.
class ExitRelay {
 public:
  explicit ExitRelay(kube::Runner& runner) : runner_(&runner) {}
  void tell(const std::string& controller, const std::string& node) { tell(controller, kube::ObjectKey{"", node}); }
  void tell(const std::string& controller, const kube::ObjectKey& key) {
    const std::lock_guard lock(mutex_);
    if (runner_) runner_->wake(controller, key);
  }
  void cut() {
    const std::lock_guard lock(mutex_);
    runner_ = nullptr;
  }

 private:
  std::mutex mutex_;
  kube::Runner* runner_;
};

// Ends the process if stopping takes longer than promised: the store is safe at any moment.
class StopWatchdog {
 public:
  StopWatchdog() : thread_([this](std::stop_token stop) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, stop, 5s, [] { return false; }) && !stop.stop_requested()) {
      log_warn("stopping took more than 5 s: leaving at once");
      ::_exit(0);
    }
  }) {}

 private:
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::jthread thread_;
};

// Before any thread: signals are taken by sigwait, in the main thread alone.
inline sigset_t prepare_process() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGTERM);
  ::sigaddset(&signals, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  // Few, because each keeps what its threads gave back; with two, threads that parse and print wait for one another all the time (a fifth of the time under load).
  ::mallopt(M_ARENA_MAX, 8);
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
  }
  return signals;
}

}  // namespace fairlead
