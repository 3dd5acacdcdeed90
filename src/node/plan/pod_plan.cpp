// SPDX-License-Identifier: Apache-2.0
#include "node/plan/pod_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "kube/object.h"
#include "kube/selector.h"
#include "node/plan/pod_status.h"

namespace fairlead::node {
namespace {
using kube::Json;

void sooner(std::optional<Instant>& at, Instant candidate) {
  if (!at || candidate < *at) at = candidate;
}

const ContainerSeen& seen_of(const PodSeen& seen, const std::string& name) {
  static const ContainerSeen nothing;
  const auto it = seen.containers.find(name);
  return it == seen.containers.end() ? nothing : it->second;
}

enum class Policy { Always, OnFailure, Never };
Policy policy_of(const Json& pod) {
  const std::string& text = pod["spec"]["restartPolicy"].string();
  return text == "Never" ? Policy::Never : text == "OnFailure" ? Policy::OnFailure : Policy::Always;
}

class Planner {
 public:
  Planner(const PodSeen& seen, Instant now) : seen_(seen), spec_(seen.pod["spec"]), now_(now), policy_(policy_of(seen.pod)) {}

  PodPlan run() {
    PodOutcome outcome;
    const std::string& phase = seen_.pod["status"]["phase"].string();
    const bool ended_before = phase == "Succeeded" || phase == "Failed";
    if (kube::deleting(seen_.pod)) {
      plan_deletion();
      outcome.deleting = true;
    } else if (ended_before) {
      // Ended is final, whatever is seen: clean up, and report nothing new.
      if (any_running())
        stop_in_order(now_, "Pod has ended");
      else
        release();
      return std::move(plan_);
    } else if (!seen_.refusal.empty()) {
      outcome.failed_reason = "Unsupported";
      outcome.failed_message = seen_.refusal;
    } else if (!seen_.eviction.empty() || past_deadline()) {
      const bool evicted = !seen_.eviction.empty();
      outcome.failed_reason = evicted ? "Evicted" : "DeadlineExceeded";
      outcome.failed_message = evicted ? seen_.eviction : "Pod was active on the node longer than the specified deadline";
      if (any_running())
        stop_in_order(now_ + grace(), outcome.failed_message);
      else
        release();
      outcome.still_stopping = any_running();
    } else {
      plan_life();
    }
    plan_.status = make_status(seen_, outcome, now_);
    const std::string& next = plan_.status["phase"].string();
    if (!outcome.deleting && (next == "Succeeded" || next == "Failed") && plan_.actions.empty()) release();
    return std::move(plan_);
  }

 private:
  std::chrono::seconds grace() const { return std::chrono::seconds(spec_["terminationGracePeriodSeconds"].integer(30)); }

  bool any_running() const {
    return std::any_of(seen_.containers.begin(), seen_.containers.end(),
                       [](const auto& item) { return item.second.latest && item.second.latest->running(); });
  }

  void release() {
    if (!seen_.sandbox.empty()) plan_.actions.emplace_back(ReleaseSandbox{});
  }

  bool past_deadline() {
    const Json& seconds = spec_["activeDeadlineSeconds"];
    if (!seconds.is_number()) return false;
    Instant start = seen_.accepted;
    if (auto told = parse_time(seen_.pod["status"]["startTime"].string())) start = *told;
    const Instant end = start + std::chrono::seconds(seconds.integer());
    if (now_ < end) sooner(plan_.look_again_at, end);
    return now_ >= end;
  }

  void stop(const std::string& name, const ContainerSeen& container, Instant deadline, const std::string& why) {
    if (!container.latest || !container.latest->running()) return;
    if (!container.stop) {
      plan_.actions.emplace_back(BeginStop{name, deadline, why});
      return;
    }
    // The earlier of the two holds: a deletion with a shorter grace shortens a stop that was begun with a longer one.
    const Instant until = std::min(container.stop->deadline, deadline);
    if (now_ >= until) {
      if (!container.stop->killed)
        plan_.actions.emplace_back(Kill{name});
      else
        sooner(plan_.look_again_at, now_ + std::chrono::seconds(2));
      return;
    }
    const auto& hook_until = container.stop->hook_until;
    if (!container.stop->hook_done && hook_until && now_ < *hook_until) sooner(plan_.look_again_at, *hook_until);
    if ((container.stop->hook_done || (hook_until && now_ >= *hook_until)) && !container.stop->signalled)
      plan_.actions.emplace_back(SendStopSignal{name});
    sooner(plan_.look_again_at, until);
  }

  bool running(const std::string& name) const {
    const ContainerSeen& one = seen_of(seen_, name);
    return one.latest && one.latest->running();
  }

  // Main containers and plain init containers together, then sidecars one after the other, the last one first; at the deadline all that is left.
  void stop_in_order(Instant deadline, const std::string& why) {
    const auto& inits = spec_["initContainers"].items();
    std::vector<std::string> sidecars;
    for (const Json& container : inits)
      if (is_sidecar(container)) sidecars.push_back(container["name"].string());
    bool others_run = false;
    for (const auto& [name, container] : seen_.containers) {
      if (std::find(sidecars.begin(), sidecars.end(), name) != sidecars.end()) continue;
      others_run |= running(name);
      stop(name, container, deadline, why);
    }
    for (auto it = sidecars.rbegin(); it != sidecars.rend(); ++it) {
      if (others_run && now_ < deadline) break;
      if (!running(*it)) continue;
      stop(*it, seen_of(seen_, *it), deadline, why);
      others_run = true;  // the one before it waits for this one
    }
    if (any_running() && now_ < deadline) sooner(plan_.look_again_at, deadline);
  }

  void plan_deletion() {
    if (any_running()) {
      // The API adds the grace period to the moment of the request and cuts off the fraction of the second. Counted from when we see it, but not
      // again from the start by an agent that was restarted.
      const Json& asked = seen_.pod["metadata"]["deletionGracePeriodSeconds"];
      Instant deadline = now_ + (asked.is_number() ? std::chrono::seconds(asked.integer()) : grace());
      if (const auto told = parse_time(seen_.pod["metadata"]["deletionTimestamp"].string()))
        deadline = std::min(deadline, *told + std::chrono::seconds(1));
      stop_in_order(deadline, "Stopping container");
      return;
    }
    if (!seen_.sandbox.empty()) plan_.actions.emplace_back(ReleaseSandbox{});
    if (seen_.on_disk) plan_.actions.emplace_back(Forget{});
    plan_.actions.emplace_back(ConfirmDeletion{});
  }

  // Whether `attempt` is to be followed by another one.
  bool restarts(const Json& container, const Attempt& attempt, Policy policy) const {
    if (!attempt.end) return false;
    if (image_changed(seen_.pod, container, attempt)) return true;
    return policy == Policy::Always || (policy == Policy::OnFailure && attempt.end->code != 0);
  }

  // Starts the container if nothing speaks against it now.
  void start(const Json& item, const ContainerSeen& container) {
    const std::string& name = item["name"].string();
    if (container.trouble && now_ < container.trouble->retry_at) {
      sooner(plan_.look_again_at, container.trouble->retry_at);
      return;
    }
    if (!container.latest) {
      plan_.actions.emplace_back(StartContainer{name, 0, 0});
      return;
    }
    if (!container.latest->started && !container.latest->end) {  // its start was cut off: the same attempt again
      plan_.actions.emplace_back(StartContainer{name, container.latest->number, container.latest->backoff_seconds});
      return;
    }
    // Another image is another program: what the last one did is no reason to wait.
    const int backoff = image_changed(seen_.pod, item, *container.latest) ? 0 : next_backoff_seconds(*container.latest);
    const Instant at = container.latest->end->at + std::chrono::seconds(backoff);
    if (now_ < at)
      sooner(plan_.look_again_at, at);
    else
      plan_.actions.emplace_back(StartContainer{name, container.latest->number + 1, backoff});
  }

  void stop_if_unhealthy(const std::string& name, const ContainerSeen& container) {
    if (!container.latest || !container.latest->running()) return;
    if (container.failed_liveness || container.stop)
      stop(name, container, container.stop ? container.stop->deadline : now_ + container.failed_grace.value_or(grace()),
           "failed its liveness or startup probe, will be restarted");
  }

  void plan_life() {
    const InitProgress init = init_progress(seen_);
    if (init.failed) {
      if (any_running()) stop_in_order(now_ + grace(), "Init container failed");
      return;
    }
    const bool all_ended = init.done() && !spec_["containers"].items().empty() &&
                           std::all_of(spec_["containers"].items().begin(), spec_["containers"].items().end(), [&](const Json& container) {
                             const auto& one = seen_of(seen_, container["name"].string());
                             return one.latest && one.latest->end && !restarts(container, *one.latest, policy_);
                           });
    if (all_ended) {
      if (any_running()) stop_in_order(sidecar_deadline(), "Stopping container");
      return;
    }
    if (seen_.sandbox.empty()) {
      if (seen_.sandbox_trouble && now_ < seen_.sandbox_trouble->retry_at)
        sooner(plan_.look_again_at, seen_.sandbox_trouble->retry_at);
      else
        plan_.actions.emplace_back(EnsureSandbox{});
      return;
    }
    // Those sidecars that are up already stay up.
    const auto& inits = spec_["initContainers"].items();
    for (std::size_t i = 0; i < std::min(init.next + 1, inits.size()); ++i)
      if (is_sidecar(inits[i])) keep_running(inits[i], Policy::Always);
    if (!init.done()) {
      const std::string& name = inits[init.next]["name"].string();
      if (!is_sidecar(inits[init.next]) && !running(name)) start(inits[init.next], seen_of(seen_, name));
      return;
    }
    for (const Json& item : spec_["containers"].items()) keep_running(item, policy_);
  }

  void keep_running(const Json& item, Policy policy) {
    const std::string& name = item["name"].string();
    const ContainerSeen& container = seen_of(seen_, name);
    if (container.latest && container.latest->running() && image_changed(seen_.pod, item, *container.latest))
      stop(name, container, container.stop ? container.stop->deadline : now_ + grace(), "definition changed, will be restarted");
    else if (container.latest && container.latest->running())
      stop_if_unhealthy(name, container);
    else if (!container.latest || !container.latest->end || restarts(item, *container.latest, policy))
      start(item, container);
  }

  // Counted from the end of the last main container: the same whenever it is asked.
  Instant sidecar_deadline() const {
    Instant last = seen_.accepted;
    for (const Json& container : spec_["containers"].items())
      if (const auto& one = seen_of(seen_, container["name"].string()); one.latest && one.latest->end) last = std::max(last, one.latest->end->at);
    return last + grace();
  }

  const PodSeen& seen_;
  const Json& spec_;
  Instant now_;
  Policy policy_;
  PodPlan plan_;
};

}  // namespace

PodPlan plan_pod(const PodSeen& seen, Instant now) { return Planner(seen, now).run(); }

int next_backoff_seconds(const Attempt& ended) {
  // The node went down, not the container.
  if (ended.end && ended.end->reason == "ContainerStatusUnknown") return 0;
  if (ended.number == 0 && ended.backoff_seconds == 0) return 0;
  if (ended.started && ended.end && ended.end->at - *ended.started >= std::chrono::minutes(10)) return 0;
  return ended.backoff_seconds == 0 ? 10 : std::min(ended.backoff_seconds * 2, 300);
}

bool image_changed(const Json& pod, const Json& container, const Attempt& attempt) {
  if (attempt.image.empty() || attempt.image == container["image"].string()) return false;
  if (!attempt.end) return true;
  const std::string id = "crun://" + attempt.id;
  for (const char* list : {"initContainerStatuses", "containerStatuses"})
    for (const Json& status : pod["status"][list].items())
      if (status["state"]["terminated"]["containerID"].string() == id) return false;
  return true;
}

bool is_sidecar(const Json& init_container) { return init_container["restartPolicy"].string() == "Always"; }

std::string qos_class(const Json& pod) {
  bool any = false, all = true;
  const auto look_at = [&](const Json& containers) {
    for (const Json& container : containers.items()) {
      for (const char* resource : {"cpu", "memory"}) {
        const Json& limit = container["resources"]["limits"][resource];
        const Json& request = container["resources"]["requests"][resource];
        if (!limit.is_null() || !request.is_null()) any = true;
        const auto limit_amount = kube::Quantity::from_json(limit);
        const auto request_amount = request.is_null() ? kube::Quantity::from_json(limit) : kube::Quantity::from_json(request);
        if (limit.is_null() || !limit_amount || !request_amount || !(*limit_amount == *request_amount)) all = false;
      }
    }
  };
  look_at(pod["spec"]["initContainers"]);
  look_at(pod["spec"]["containers"]);
  return !any ? "BestEffort" : all ? "Guaranteed" : "Burstable";
}

}  // namespace fairlead::node
