// SPDX-License-Identifier: Apache-2.0
// The port to what runs containers. Drivers: OciRuntime (crun under conmon); CRI later. One caller per pod at a time; different pods in parallel.
// Every operation is repeatable, and all state is on disk or in the kernel: a new process finds everything by list().
#pragma once
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/process.h"
#include "base/result.h"
#include "node/plan/container_spec.h"
#include "node/plan/pod_plan.h"

namespace fairlead::node {

struct PodRecord {
  std::string uid, space, name;
  Instant accepted{};
};

struct SandboxSpec {
  std::string pod_uid;
  std::string hostname;  // empty with the node's network: the node's own
  bool host_network = false, host_ipc = false;
  bool share_processes = false;  // one process namespace for all containers, held by a process that only reaps
  Limits limits;  // of the whole pod
};
struct Sandbox {
  std::string id;
  std::string ip;  // empty with the node's network
};

struct PodOnNode {
  PodRecord record;
  std::optional<Sandbox> sandbox;
  struct Container {
    std::optional<Attempt> latest, previous;
    std::vector<Attempt> held;  // of which something may still be there: processes, mounts; what they alone have is not free
  };
  std::map<std::string, Container> containers;
};

struct ExecOptions {
  std::vector<std::string> argv;
  bool in = false, terminal = false;
};
// A command in a container. With a terminal only `terminal` is set, else out, err and, if asked, in. Dropping it kills the command.
struct ExecProcess {
  Child child;
  Fd in, out, err, terminal;
  std::string stem;  // of its files: STEM.pid holds the command's number on this node
  ExecProcess(Child c) : child(std::move(c)) {}
  ExecProcess(ExecProcess&&) noexcept = default;
  ~ExecProcess();
  void kill();  // the command itself, not only the runtime's process that waits for it
};

// The stdin of a running container and its output from now on, shared with whoever else is attached. Who holds one must read it: output that waits
// holds up the container and its log. Dropping it, or ending its writing half, ends the container's stdin if that is for one client (stdinOnce, and no
// terminal); else it leaves the container as it is.
struct Attachment {
  Fd socket;  // packets: 2 or 3 (out, err) and the bytes; what is written goes to the container's stdin
  // A pipe that takes "HEIGHT WIDTH\n" of a terminal; empty: none. One line in it at a time: of several that conmon (2.1.6, ctrl.c) reads at once it does
  // the first again and again. Not its pipe `ctl`, whose lines it hands on to this one without looking whether the last was read.
  Fd window;
};

struct ContainerUsage {
  std::string pod_uid, container;
  std::int64_t memory_bytes = 0, cpu_nanoseconds = 0, pids = 0;
};

class Runtime {
 public:
  virtual ~Runtime() = default;
  // Writes the pod down before anything of it exists. Returns the record as first written.
  virtual Result<PodRecord> accept(const PodRecord& record) = 0;
  // Namespaces, network, cgroup. Unavailable: try again.
  virtual Result<Sandbox> ensure_sandbox(const SandboxSpec& spec) = 0;
  // Starts this attempt; leftovers of a cut-off start of the same attempt are cleaned first. Invalid: the container cannot start as asked
  // (no such command, ...); the attempt then has ended with reason StartError.
  virtual Result<void> start(const ContainerSpec& spec) = 0;
  virtual Result<void> signal(const std::string& pod_uid, const std::string& container, int number) = 0;  // its first process. NotFound: not running
  virtual Result<void> release_sandbox(const std::string& pod_uid) = 0;  // kills what runs; frees network, mounts and cgroup; keeps records and logs
  virtual Result<void> forget(const std::string& pod_uid) = 0;           // and removes all the rest
  // What there is. Containers found ended are settled: exit code, reason and message are read and their bundle is freed.
  virtual Result<PodOnNode> look(const std::string& pod_uid) = 0;  // NotFound: nothing of it
  // The same without settling, from any thread.
  virtual Result<PodOnNode> peek(const std::string& pod_uid) = 0;
  virtual Result<std::vector<std::string>> list() = 0;  // uids
  virtual Result<ExecProcess> exec(const std::string& pod_uid, const std::string& container,
                                   const ExecOptions& options) = 0;  // NotFound: not running
  virtual Result<bool> has_stdin(const std::string& pod_uid, const std::string& container) = 0;  // NotFound: not running
  // NotFound: not running. Unsupported: it has no stdin; its output alone is read from its log.
  virtual Result<Attachment> attach(const std::string& pod_uid, const std::string& container) = 0;
  virtual std::string log_path(const PodRecord& record, const std::string& container, int attempt) const = 0;
  virtual std::vector<ContainerUsage> usage() = 0;
};

// Runs a command in a container to its end. Unavailable: not finished within `limit`; it was killed.
Result<Output> run_in_container(Runtime& runtime, const std::string& pod_uid, const std::string& container, const std::vector<std::string>& argv,
                                std::chrono::milliseconds limit, std::size_t limit_bytes = 64 << 10);

}  // namespace fairlead::node
