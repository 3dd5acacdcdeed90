// SPDX-License-Identifier: Apache-2.0
#include "node/plan/pod_status.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/encoding.h"
#include "kube/object.h"

namespace fairlead::node {
namespace {
using kube::Json;

Json terminated(const Attempt& attempt) {
  Json out = Json::object({{"exitCode", attempt.end->code}});
  if (attempt.end->signal != 0) out.set("signal", attempt.end->signal);
  out.set("reason", attempt.end->reason);
  if (!attempt.end->message.empty()) out.set("message", attempt.end->message);
  if (attempt.started) out.set("startedAt", print_time(*attempt.started));
  out.set("finishedAt", print_time(attempt.end->at));
  out.set("containerID", "crun://" + attempt.id);
  return Json::object({{"terminated", std::move(out)}});
}

Json waiting(const std::string& reason, const std::string& message = {}) {
  Json out = Json::object({{"reason", reason}});
  if (!message.empty()) out.set("message", message);
  return Json::object({{"waiting", std::move(out)}});
}

bool is_ours(const std::string& type) {
  return type == "PodReadyToStartContainers" || type == "Initialized" || type == "Ready" || type == "ContainersReady" || type == "PodScheduled";
}

bool will_restart(const Json& spec, const Attempt& attempt, bool init, bool sidecar = false) {
  if (sidecar) return attempt.end.has_value();
  const std::string& policy = spec["restartPolicy"].string();
  if (policy == "Never") return false;
  return attempt.end && (attempt.end->code != 0 || (!init && policy != "OnFailure"));
}

// "10.1.0.2,fd00::2" as podIP and podIPs.
void set_addresses(Json& out, const std::string& field, const std::string& list) {
  Json all = Json::array();
  for (const std::string& ip : split(list, ',')) all.push(Json::object({{"ip", ip}}));
  out.set(field, list.substr(0, list.find(','))).set(field + "s", std::move(all));
}

class Status {
 public:
  Status(const PodSeen& seen, const PodOutcome& outcome, Instant now)
      : seen_(seen), spec_(seen.pod["spec"]), before_(seen.pod["status"]), outcome_(outcome), now_(now), init_(init_progress(seen)) {}

  Json make() {
    Json inits = Json::array(), mains = Json::array();
    const auto& init_specs = spec_["initContainers"].items();
    for (std::size_t i = 0; i < init_specs.size(); ++i) inits.push(container_status(init_specs[i], true, i));
    for (const Json& container : spec_["containers"].items()) mains.push(container_status(container, false, 0));

    Json out = Json::object({{"phase", phase()}});
    out.set("conditions", conditions());
    if (!outcome_.failed_reason.empty()) out.set("reason", outcome_.failed_reason).set("message", outcome_.failed_message);
    set_addresses(out, "hostIP", seen_.host_ip);
    if (!seen_.ip.empty())
      set_addresses(out, "podIP", seen_.ip);
    else if (before_["podIP"].is_string() && seen_.on_disk && phase_ended())
      out.set("podIP", before_["podIP"]).set("podIPs", before_["podIPs"]);
    else if (spec_["hostNetwork"].boolean() && seen_.on_disk && phase_ended())  // it ended before its first status was written
      set_addresses(out, "podIP", seen_.host_ip);
    const std::string& started = before_["startTime"].string();
    out.set("startTime", started.empty() ? print_time(seen_.accepted) : started);
    if (!init_specs.empty()) out.set("initContainerStatuses", std::move(inits));
    out.set("containerStatuses", std::move(mains));
    out.set("qosClass", qos_class(seen_.pod));
    return out;
  }

 private:
  const ContainerSeen* seen_of(const Json& container) const {
    const auto it = seen_.containers.find(container["name"].string());
    return it == seen_.containers.end() ? nullptr : &it->second;
  }

  bool phase_ended() const { return phase() == "Succeeded" || phase() == "Failed"; }

  // Whether another attempt follows this one.
  bool again(const Json& container, const Attempt& attempt, bool init, bool sidecar = false) const {
    return will_restart(spec_, attempt, init, sidecar) || (attempt.end && (!init || sidecar) && image_changed(seen_.pod, container, attempt));
  }

  bool mains_ended() const {
    const auto& containers = spec_["containers"].items();
    return !containers.empty() && std::all_of(containers.begin(), containers.end(), [&](const Json& container) {
      const ContainerSeen* one = seen_of(container);
      return one != nullptr && one->latest && one->latest->end && !again(container, *one->latest, false);
    });
  }

  std::string phase() const {
    if (!outcome_.failed_reason.empty()) return outcome_.still_stopping ? "Running" : "Failed";
    if (init_.failed) return "Failed";
    bool sidecars_run = false, any_failed = false, all_ended = !spec_["containers"].items().empty(), any_started = false, all_started = true;
    for (const Json& container : spec_["containers"].items()) {
      const ContainerSeen* one = seen_of(container);
      const bool started = one != nullptr && one->latest && (one->latest->started || one->latest->number > 0);
      any_started |= started;
      all_started &= started;
      // A pod that is being deleted restarts nothing.
      if (one == nullptr || !one->latest || !one->latest->end || (!outcome_.deleting && again(container, *one->latest, false)))
        all_ended = false;
      else if (one->latest->end->code != 0)
        any_failed = true;
    }
    // Sidecars are stopped after the main containers, and the pod has ended after them.
    for (const Json& container : spec_["initContainers"].items()) {
      const ContainerSeen* one = seen_of(container);
      if (is_sidecar(container) && one != nullptr && one->latest && one->latest->running()) sidecars_run = true;
    }
    if (all_ended && sidecars_run) return "Running";
    if (all_ended) return any_failed ? "Failed" : "Succeeded";
    if (outcome_.deleting) return before_["phase"].string().empty() ? "Pending" : before_["phase"].string();
    return init_.done() && any_started && all_started ? "Running" : "Pending";
  }

  Json container_status(const Json& container, bool init, std::size_t index) {
    const std::string& name = container["name"].string();
    const ContainerSeen* one = seen_of(container);
    const Attempt* latest = one != nullptr && one->latest ? &*one->latest : nullptr;
    Json state, last = Json::object();
    const bool sidecar = init && is_sidecar(container);
    bool ready = false, started = false;
    if (latest != nullptr && latest->running()) {
      state = Json::object({{"running", Json::object({{"startedAt", print_time(*latest->started)}})}});
      started = one->started;
      ready = (!init || sidecar) && one->ready;
      if (one->previous && one->previous->end) last = terminated(*one->previous);
    } else if (latest != nullptr && latest->end) {
      const bool follows = !outcome_.deleting && outcome_.failed_reason.empty() && !init_.failed && !(sidecar && mains_ended()) &&
                           again(container, *latest, init, sidecar);
      const bool replaced = follows && (!init || sidecar) && image_changed(seen_.pod, container, *latest);
      if (follows && one->trouble) {
        state = waiting(one->trouble->reason, one->trouble->message);
        last = terminated(*latest);
      } else if (replaced) {
        // Not "terminated": an end that was told is one that the change of the image came after.
        state = waiting("ContainerCreating");
        last = terminated(*latest);
      } else if (follows && now_ < latest->end->at + std::chrono::seconds(next_backoff_seconds(*latest))) {
        state = waiting("CrashLoopBackOff", fmt::format("back-off {}s restarting failed container={} pod={}_{}({})", next_backoff_seconds(*latest),
                                                        name, kube::name_of(seen_.pod), kube::space_of(seen_.pod), kube::uid_of(seen_.pod)));
        last = terminated(*latest);
      } else {
        state = terminated(*latest);
        if (one->previous && one->previous->end) last = terminated(*one->previous);
        ready = init && !sidecar && latest->end->code == 0 && index < init_.next;
      }
    } else {
      if (one != nullptr && one->previous && one->previous->end) last = terminated(*one->previous);
      if (one != nullptr && one->trouble)
        state = waiting(one->trouble->reason, one->trouble->message);
      else if (seen_.sandbox_trouble && seen_.sandbox.empty())
        state = waiting(seen_.sandbox_trouble->reason, seen_.sandbox_trouble->message);
      else
        state = waiting(init_.count > 0 && (!init || index > init_.next) ? "PodInitializing" : "ContainerCreating");
    }
    if ((!init || sidecar) && ready) ready_.push_back(name);
    Json out = Json::object({{"name", name},
                             {"state", std::move(state)},
                             {"lastState", std::move(last)},
                             {"ready", ready},
                             {"restartCount", latest ? latest->number : 0}});
    out.set("image", latest != nullptr && !latest->image.empty() ? latest->image : container["image"].string());
    out.set("imageID", latest != nullptr ? latest->image_id : "");
    if (latest != nullptr && latest->started) out.set("containerID", "crun://" + latest->id);
    out.set("started", init && !sidecar ? (latest != nullptr && latest->running()) : started);
    return out;
  }

  Json condition(const char* type, bool holds, const std::string& reason = {}, const std::string& message = {}) const {
    const Json* old = kube::find_condition(seen_.pod, type);
    const char* status = holds ? "True" : "False";
    Json out = Json::object({{"type", type}, {"status", status}, {"lastProbeTime", nullptr}});
    const bool same = old != nullptr && (*old)["status"].string() == status && (*old)["lastTransitionTime"].is_string();
    out.set("lastTransitionTime", same ? (*old)["lastTransitionTime"] : Json(print_time(now_)));
    if (!reason.empty()) out.set("reason", reason);
    if (!message.empty()) out.set("message", message);
    return out;
  }

  Json conditions() const {
    Json out = Json::array();
    const bool completed = phase() == "Succeeded";
    const bool whole_failure = !outcome_.failed_reason.empty();
    std::string unready;
    for (const Json& container : spec_["initContainers"].items()) {
      const std::string& name = container["name"].string();
      if (is_sidecar(container) && std::find(ready_.begin(), ready_.end(), name) == ready_.end()) unready += (unready.empty() ? "" : " ") + name;
    }
    for (const Json& container : spec_["containers"].items()) {
      const std::string& name = container["name"].string();
      if (std::find(ready_.begin(), ready_.end(), name) == ready_.end()) unready += (unready.empty() ? "" : " ") + name;
    }
    std::string uninitialized;
    for (std::size_t i = init_.next; i < init_.count; ++i)
      uninitialized += (uninitialized.empty() ? "" : " ") + spec_["initContainers"].items()[i]["name"].string();

    out.push(condition("PodReadyToStartContainers", !seen_.sandbox.empty() && !phase_ended()));
    if (completed)
      out.push(condition("Initialized", true, "PodCompleted"));
    else if (init_.done())
      out.push(condition("Initialized", true));
    else
      out.push(condition("Initialized", false, "ContainersNotInitialized", "containers with incomplete status: [" + uninitialized + "]"));

    std::string gate_message;
    for (const Json& gate : spec_["readinessGates"].items())
      if (!kube::condition_is_true(seen_.pod, gate["conditionType"].string()))
        gate_message += (gate_message.empty() ? "" : ", ") + gate["conditionType"].string();
    const std::string not_ready = "containers with unready status: [" + unready + "]";
    const auto ready = [&](const char* type, bool with_gates) {
      if (completed) return condition(type, false, "PodCompleted");
      if (whole_failure && !outcome_.still_stopping) return condition(type, false, "PodFailed");
      if (!unready.empty()) return condition(type, false, "ContainersNotReady", not_ready);
      if (with_gates && !gate_message.empty())
        return condition(type, false, "ReadinessGatesNotReady", "conditions that are not true: " + gate_message);
      return condition(type, true);
    };
    out.push(ready("Ready", true));
    out.push(ready("ContainersReady", false));
    const Json* scheduled = kube::find_condition(seen_.pod, "PodScheduled");
    out.push(scheduled != nullptr ? *scheduled : condition("PodScheduled", true));
    // Conditions of others (readiness gates) stay as they are.
    for (const Json& old : before_["conditions"].items()) {
      const std::string& type = old["type"].string();
      if (!is_ours(type)) out.push(old);
    }
    return out;
  }

  const PodSeen& seen_;
  const Json& spec_;
  const Json& before_;
  const PodOutcome& outcome_;
  Instant now_;
  InitProgress init_;
  std::vector<std::string> ready_;
};

}  // namespace

InitProgress init_progress(const PodSeen& seen) {
  const Json& spec = seen.pod["spec"];
  const auto& containers = spec["initContainers"].items();
  InitProgress out{.next = 0, .count = containers.size(), .failed = false};
  // Once a main container has begun in this sandbox, all of this is behind the pod; sidecars come and go from then on.
  for (const Json& container : spec["containers"].items()) {
    const auto it = seen.containers.find(container["name"].string());
    if (it == seen.containers.end() || !it->second.latest) continue;
    if (seen.sandbox.empty() ? it->second.latest->end.has_value() : it->second.latest->sandbox == seen.sandbox) out.next = out.count;
  }
  if (out.done()) return out;
  for (const Json& container : containers) {
    const auto it = seen.containers.find(container["name"].string());
    if (it == seen.containers.end() || !it->second.latest) return out;
    if (is_sidecar(container)) {
      const Attempt& sidecar = *it->second.latest;
      if (!sidecar.running() || sidecar.sandbox != seen.sandbox || !it->second.started) return out;
      ++out.next;
      continue;
    }
    if (!it->second.latest->end) return out;
    const Attempt& latest = *it->second.latest;
    // What an init container did in an earlier sandbox (memory volumes, addresses) is gone. Without a sandbox the pod has ended or will get a new
    // one.
    const bool here = seen.sandbox.empty() || latest.sandbox == seen.sandbox;
    if (latest.end->code == 0 && here) {
      ++out.next;
      continue;
    }
    out.failed = latest.end->code != 0 && spec["restartPolicy"].string() == "Never";
    return out;
  }
  return out;
}

Json make_status(const PodSeen& seen, const PodOutcome& outcome, Instant now) { return Status(seen, outcome, now).make(); }

Json status_patch(const Json& pod, Json status) {
  const Json& before = pod["status"];
  // Only what this node decides: the others may have changed since they were read.
  Json ours = Json::array();
  for (const Json& condition : status["conditions"].items())
    if (is_ours(condition["type"].string())) ours.push(condition);
  status.set("conditions", std::move(ours));
  for (const char* member : {"reason", "message", "podIP", "podIPs", "initContainerStatuses"})
    if (!status.has(member) && before.has(member)) status.set(member, nullptr);
  // These lists merge by address: what is gone must be named.
  for (const char* list : {"podIPs", "hostIPs"}) {
    Json* now = status.find(list);
    if (now == nullptr || !now->is_array()) continue;
    for (const Json& old : before[list].items()) {
      const auto& items = now->items();
      if (std::none_of(items.begin(), items.end(), [&](const Json& item) { return item["ip"] == old["ip"]; }))
        now->push(Json::object({{"$patch", "delete"}, {"ip", old["ip"]}}));
    }
  }
  return Json::object({{"metadata", Json::object({{"uid", kube::uid_of(pod)}})}, {"status", std::move(status)}});
}

}  // namespace fairlead::node
