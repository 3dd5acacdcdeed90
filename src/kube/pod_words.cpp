// SPDX-License-Identifier: Apache-2.0
#include "kube/pod_words.h"

#include <fmt/format.h>

#include "base/encoding.h"
#include "kube/object.h"

namespace fairlead::kube {
namespace {

// "Init:ExitCode:2", "Signal:9" when a finished container gives no reason.
std::string exit_text(const Json& terminated) {
  if (const auto signal = terminated["signal"].integer(); signal != 0) return fmt::format("Signal:{}", signal);
  return fmt::format("ExitCode:{}", terminated["exitCode"].integer());
}

void count_restarts(const Json& status, PodWords& pod) {
  pod.restarts += status["restartCount"].integer();
  const auto finished = parse_time(status["lastState"]["terminated"]["finishedAt"].string());
  if (finished && (!pod.last_restart || *finished > *pod.last_restart)) pod.last_restart = *finished;
}

// What the first unfinished init container says; empty: all are done.
std::string init_text(const Json& object, PodWords& pod) {
  const auto& statuses = object["status"]["initContainerStatuses"].items();
  for (std::size_t i = 0; i < statuses.size(); ++i) {
    count_restarts(statuses[i], pod);
    const Json& state = statuses[i]["state"];
    const Json& terminated = state["terminated"];
    if (terminated.is_object() && terminated["exitCode"].integer() == 0) continue;
    if (terminated.is_object()) return "Init:" + (terminated["reason"].string().empty() ? exit_text(terminated) : terminated["reason"].string());
    const std::string& waiting = state["waiting"]["reason"].string();
    if (!waiting.empty() && waiting != "PodInitializing") return "Init:" + waiting;
    return fmt::format("Init:{}/{}", i, object["spec"]["initContainers"].items().size());
  }
  return {};
}

// What the containers say, the last one first: so the first one's word stays. They are counted anew.
void add_containers(const Json& object, PodWords& pod) {
  pod.restarts = 0;
  pod.last_restart.reset();
  bool running = false;
  const auto& statuses = object["status"]["containerStatuses"].items();
  for (auto it = statuses.rbegin(); it != statuses.rend(); ++it) {
    count_restarts(*it, pod);
    const Json& state = (*it)["state"];
    const Json& terminated = state["terminated"];
    if (!state["waiting"]["reason"].string().empty()) {
      pod.status = state["waiting"]["reason"].string();
    } else if (terminated.is_object()) {
      pod.status = terminated["reason"].string().empty() ? exit_text(terminated) : terminated["reason"].string();
    } else if ((*it)["ready"].boolean() && state.has("running")) {
      running = true;
      ++pod.ready;
    }
  }
  if (pod.status == "Completed" && running) pod.status = condition_is_true(object, "Ready") ? "Running" : "NotReady";
}

}  // namespace

PodWords words_of_pod(const Json& object) {
  PodWords pod;
  const Json& status = object["status"];
  pod.total = static_cast<std::int64_t>(object["spec"]["containers"].items().size());
  const std::string phase = status["phase"].string();
  pod.status = status["reason"].string().empty() ? phase : status["reason"].string();

  const std::string initializing = init_text(object, pod);
  if (initializing.empty() || condition_is_true(object, "Initialized"))
    add_containers(object, pod);
  else
    pod.status = initializing;
  const bool terminal = phase == "Succeeded" || phase == "Failed";
  if (deleting(object)) {
    if (status["reason"].string() == "NodeLost") pod.status = "Unknown";
    else if (!terminal) pod.status = "Terminating";
  }
  return pod;
}

}  // namespace fairlead::kube
