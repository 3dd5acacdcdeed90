// SPDX-License-Identifier: Apache-2.0
// What to do next for one pod, and what to report about it: a function of what the API says, what was seen on this node, and the time.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "kube/json.h"
#include "node/plan/container_spec.h"

namespace fairlead::node {

// One run of a container. Attempt 0 is the first; the number is what Kubernetes calls restartCount.
struct Attempt {
  int number = 0;
  std::string id;       // of the runtime: unique for pod, container and attempt
  std::string sandbox;  // the sandbox it ran in
  std::string image, image_id;  // the image as the pod named it then
  Instant created{};
  std::optional<Instant> started;  // empty: its start was begun and not finished
  int backoff_seconds = 0;         // that was waited before it
  Granted devices{};               // its own until nothing of it is left
  struct End {
    int code = 0, signal = 0;
    Instant at{};
    std::string reason;   // Completed, Error, OOMKilled, ContainerStatusUnknown, StartError
    std::string message;  // its termination message
    friend bool operator==(const End&, const End&) = default;
  };
  std::optional<End> end;
  friend bool operator==(const Attempt&, const Attempt&) = default;
  bool running() const { return started.has_value() && !end.has_value(); }
};

// Something that keeps a container or a sandbox from starting; tried again at `retry_at`.
struct Trouble {
  std::string reason;  // ErrImageNeverPull, CreateContainerConfigError, ...
  std::string message;
  Instant retry_at{};
  friend bool operator==(const Trouble&, const Trouble&) = default;
};

// A stop that was begun: preStop, then the stop signal, then SIGKILL at the deadline.
struct Stop {
  Instant deadline{};
  bool hook_done = false;
  std::optional<Instant> hook_until;  // a preStop hook that only sleeps ends by itself
  bool signalled = false;
  bool killed = false;
  friend bool operator==(const Stop&, const Stop&) = default;
};

struct ContainerSeen {
  std::optional<Attempt> latest, previous;
  std::optional<Trouble> trouble;
  std::optional<Stop> stop;
  // Probe results of the running attempt; the defaults hold while nothing was probed. A container without such a probe is ready, started, alive.
  bool ready = false, started = false, failed_liveness = false;
  std::optional<std::chrono::seconds> failed_grace;  // of the probe that failed, if it has one
};

struct PodSeen {
  kube::Json pod;                          // as in the API
  std::string sandbox;                     // id of the sandbox that is there; empty: none
  std::string ip;                          // of the sandbox
  std::optional<Trouble> sandbox_trouble;  // network, volumes
  std::map<std::string, ContainerSeen> containers;
  bool on_disk = false;  // anything of this pod is kept on this node
  std::string refusal;   // not empty: the pod asks for what we do not do
  std::string eviction;  // not empty: it took more than it may; it is stopped and has failed
  std::string host_ip;  // as `ip`: the first one, then that of the other family after a comma
  Instant accepted{};  // when this node first saw it
};

struct EnsureSandbox {
  friend bool operator==(const EnsureSandbox&, const EnsureSandbox&) = default;
};
struct StartContainer {
  std::string name;
  int attempt = 0;
  int backoff_seconds = 0;
  friend bool operator==(const StartContainer&, const StartContainer&) = default;
};
struct BeginStop {
  std::string name;
  Instant deadline{};
  std::string why;  // for the event
  friend bool operator==(const BeginStop&, const BeginStop&) = default;
};
struct SendStopSignal {
  std::string name;
  friend bool operator==(const SendStopSignal&, const SendStopSignal&) = default;
};
struct Kill {
  std::string name;
  friend bool operator==(const Kill&, const Kill&) = default;
};
struct ReleaseSandbox {
  friend bool operator==(const ReleaseSandbox&, const ReleaseSandbox&) = default;
};  // network and volumes; records and logs stay
struct Forget {
  friend bool operator==(const Forget&, const Forget&) = default;
};  // everything on this node
struct ConfirmDeletion {
  friend bool operator==(const ConfirmDeletion&, const ConfirmDeletion&) = default;
};  // DELETE with grace 0
using Action = std::variant<EnsureSandbox, StartContainer, BeginStop, SendStopSignal, Kill, ReleaseSandbox, Forget, ConfirmDeletion>;

struct PodPlan {
  std::vector<Action> actions;  // in this order; after them the pod is looked at again
  kube::Json status;            // null: nothing to report
  std::optional<Instant> look_again_at;
};

// Equal arguments give equal plans. Never starts a container while an earlier attempt of it runs, never starts anything of a pod that is being
// deleted or has ended, and starts main containers only after every init container has succeeded in the present sandbox. Init containers with
// restartPolicy Always (sidecars) count as done once they have started, are restarted for as long as main containers run, and are stopped after those, the
// last one first.
PodPlan plan_pod(const PodSeen& seen, Instant now);

// The pause before the next attempt: none before the first restart, then 10 s doubling to 300 s; a run of ten minutes starts over; an end that came
// with the node's is no reason to wait.
int next_backoff_seconds(const Attempt& ended);

// Whether the pod names another image by now than when this attempt was started. Such a container is stopped and started anew whatever the restart policy, as a kubelet
// does it; one whose end was told before the change is not.
bool image_changed(const kube::Json& pod, const kube::Json& container, const Attempt& attempt);

// An init container with restartPolicy Always.
bool is_sidecar(const kube::Json& init_container);

// Guaranteed, Burstable or BestEffort.
std::string qos_class(const kube::Json& pod);

}  // namespace fairlead::node
