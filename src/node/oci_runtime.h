// SPDX-License-Identifier: Apache-2.0
// Containers by crun under conmon, on overlayfs roots, with namespaces pinned by bind mounts (no pause process).
//
//   state_dir/pods/UID/pod.json                        durable: survives a restart of the node
//                  /containers/NAME/ATTEMPT/record.json, upper/, work/, termination-log
//   logs_dir/SPACE_NAME_UID/CONTAINER/ATTEMPT.log[.1]
//   run_dir/pods/UID/{net,ipc,uts,shm/,sandbox.json}   on a tmpfs of the node: gone when the node restarts
//          /containers/ID/{config.json,rootfs/,pid,conmon.pid,ctl,process.json}
//          /exits/ID                                   written by conmon
//          /crun, /cni
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "node/cgroup.h"
#include "node/cni.h"
#include "node/runtime.h"

namespace fairlead::node {

struct OciRuntimeOptions {
  std::string state_dir, run_dir, logs_dir;
  std::string cgroup_parent;  // "/fairlead-ab12cd/worker-0"
  CniOptions cni;             // state_dir is filled in
  std::string conmon = "/usr/bin/conmon", crun = "/usr/bin/crun";
  Bytes log_file_size = 10_MiB;
  int log_files = 3;
  // Called after each step of a start with its name; a test aborts the process there.
  std::function<void(std::string_view)> at_step;
};

class OciRuntime : public Runtime {
 public:
  static Result<std::unique_ptr<OciRuntime>> open(OciRuntimeOptions options, const Clock& clock);
  Result<PodRecord> accept(const PodRecord& record) override;
  Result<Sandbox> ensure_sandbox(const SandboxSpec& spec) override;
  Result<void> start(const ContainerSpec& spec) override;
  Result<void> signal(const std::string& pod_uid, const std::string& container, int number) override;
  Result<void> release_sandbox(const std::string& pod_uid) override;
  Result<void> forget(const std::string& pod_uid) override;
  Result<PodOnNode> look(const std::string& pod_uid) override;
  Result<PodOnNode> peek(const std::string& pod_uid) override;
  Result<std::vector<std::string>> list() override;
  Result<ExecProcess> exec(const std::string& pod_uid, const std::string& container, const ExecOptions& options) override;
  Result<bool> has_stdin(const std::string& pod_uid, const std::string& container) override;
  Result<Attachment> attach(const std::string& pod_uid, const std::string& container) override;
  std::string log_path(const PodRecord& record, const std::string& container, int attempt) const override;
  std::vector<ContainerUsage> usage() override;

  // The folder in which a file appears for every container that ends: to be watched.
  std::string exits_dir() const { return options_.run_dir + "/exits"; }
  // Moves full log files aside and has conmon open new ones. Called every few seconds.
  void rotate_logs();
  const Cni& cni() const { return cni_; }

 private:
  OciRuntime(OciRuntimeOptions options, const Clock& clock, CgroupTree cgroups);
  std::string pod_dir(const std::string& uid) const { return options_.state_dir + "/pods/" + uid; }
  std::string pod_run_dir(const std::string& uid) const { return options_.run_dir + "/pods/" + uid; }
  std::string bundle(const std::string& id) const { return options_.run_dir + "/containers/" + id; }
  std::string attempt_dir(const std::string& uid, const std::string& container, int number) const;
  std::string pod_cgroup(const std::string& uid) const { return options_.cgroup_parent + "/pod" + uid; }
  void step(std::string_view name) const {
    if (options_.at_step) options_.at_step(name);
  }
  enum class Settling { Yes, No };
  Result<PodOnNode> read_all(const std::string& pod_uid, Settling settling);
  Result<PodRecord> read_pod(const std::string& uid) const;
  Result<Attempt> read_attempt(const std::string& uid, const std::string& container, int number) const;
  Result<void> write_attempt(const std::string& uid, const std::string& container, const Attempt& attempt) const;
  Result<std::vector<std::pair<std::string, std::vector<int>>>> attempts(const std::string& uid) const;  // by container, ascending
  std::string running_attempt(const std::string& uid, const std::string& container) const;  // its id; empty: none runs
  Result<Sandbox> read_sandbox(const std::string& uid) const;
  Result<void> prepare_root(const ContainerSpec& spec, const std::string& dir);
  Result<void> run_conmon(const ContainerSpec& spec, const std::string& log);
  Result<void> wipe_bundle(const std::string& uid, const std::string& container, const std::string& id);
  // Brings the record of an attempt in line with what the kernel and conmon say.
  Result<void> settle(const PodRecord& pod, const std::string& container, Attempt& attempt);
  Result<void> end(const PodRecord& pod, const std::string& container, Attempt& attempt, Attempt::End how);
  std::string termination_message(const PodRecord& pod, const std::string& container, const Attempt& attempt) const;

  OciRuntimeOptions options_;
  const Clock& clock_;
  CgroupTree cgroups_;
  Cni cni_;
};

// Names with CAP_ of what this process may hand on.
std::vector<std::string> held_capabilities();
// Everything in /dev that a privileged container gets.
std::vector<Device> host_devices();

}  // namespace fairlead::node
