// SPDX-License-Identifier: Apache-2.0
#include "apiserver/job_controller.h"

#include <fmt/format.h>

#include "apiserver/event_recorder.h"
#include "apiserver/job_plan.h"
#include "apiserver/kinds/resources.h"
#include "base/log.h"
#include "kube/selector.h"

namespace fairlead::apiserver {

using kube::Json;

namespace {

constexpr int steps_at_once = 20;
constexpr char orphan_mark = '!';  // no name has it: the key of a pod that lost its Job

// A pod that goes, or lost its owner, while it still carries the finalizer is also looked at by itself: its Job may be gone.
std::vector<kube::ObjectKey> keys_of_pod(const kube::Change& change) {
  const Json& pod = change.object();
  const Json* owner = kube::controller_of(pod);
  std::vector<kube::ObjectKey> out;
  if (owner != nullptr && (*owner)["kind"].string() == "Job") out.push_back({kube::space_of(pod), (*owner)["name"].string()});
  if ((owner == nullptr || kube::deleting(pod)) && kube::has_finalizer(pod, workloads::job_finalizer)) out.push_back({kube::space_of(pod), orphan_mark + kube::name_of(pod)});
  return out;
}

bool gone(const Error& error) { return error.code == Code::NotFound; }

}  // namespace

std::vector<kube::Controller::Source> JobController::sources() const { return {{workloads::jobs, "", kube::key_itself}, {kube::resources::pods, "", keys_of_pod}}; }

Result<std::vector<Json>> JobController::pods_of(const Json& job) {
  const auto selector = kube::LabelSelector::from_object(job["spec"]["selector"]);
  auto list = api_.list(kube::resources::pods, kube::space_of(job), {.label_selector = selector ? selector->text() : std::string()});
  if (!list) return pass(std::move(list.error()), "list pods of job " + kube::key_of(job).text());
  std::vector<Json> out;
  for (Json& pod : list->items)
    if (const Json* owner = kube::controller_of(pod); owner != nullptr && (*owner)["uid"].string() == kube::uid_of(job)) out.push_back(std::move(pod));
  return out;
}

Result<void> JobController::release(const std::string& space, const std::string& name) {
  auto pod = api_.get(kube::resources::pods, {space, name});
  if (!pod && gone(pod.error())) return {};
  if (!pod) return std::unexpected(std::move(pod.error()));
  if (!kube::has_finalizer(*pod, workloads::job_finalizer)) return {};
  kube::remove_finalizer(*pod, workloads::job_finalizer);
  auto written = api_.update(kube::resources::pods, *pod);
  if (!written && !gone(written.error())) return pass(std::move(written.error()), fmt::format("release pod {}/{}", space, name));
  return {};
}

// Unless the Job that controls it is there to count it.
Result<void> JobController::release_orphan(const std::string& space, const std::string& name) {
  const auto pod = api_.get(kube::resources::pods, {space, name});
  if (!pod && gone(pod.error())) return {};
  if (!pod) return std::unexpected(pod.error());
  if (const Json* owner = kube::controller_of(*pod); owner != nullptr && (*owner)["kind"].string() == "Job") {
    const auto job = api_.get(workloads::jobs, {space, (*owner)["name"].string()});
    if (!job && !gone(job.error())) return std::unexpected(job.error());
    if (job && kube::uid_of(*job) == (*owner)["uid"].string()) return {};
  }
  return release(space, name);
}

Result<kube::Next> JobController::reconcile(const kube::ObjectKey& key) {
  if (key.name.front() == orphan_mark) {
    if (auto done = release_orphan(key.space, key.name.substr(1)); !done) return std::unexpected(std::move(done.error()));
    return kube::Next{};
  }
  for (int step_number = 0; step_number < steps_at_once; ++step_number) {
    auto job = api_.get(workloads::jobs, key);
    if (!job && gone(job.error())) return kube::Next{};
    if (!job) return std::unexpected(std::move(job.error()));
    auto pods = pods_of(*job);
    if (!pods) return std::unexpected(std::move(pods.error()));
    const JobStep step = plan_job(*job, *pods, clock_.now());
    const auto tell = [&](bool warning, const std::string& reason, const std::string& message) { record_event(api_, clock_, "job-controller", workloads::jobs, *job, warning, reason, message); };
    if (step.status) {
      Json next = *job;
      next.set("status", *step.status);
      auto written = api_.update_status(workloads::jobs, next);
      if (!written && gone(written.error())) continue;
      if (!written) return pass(std::move(written.error()), "status of job " + key.text());
      for (const JobEvent& event : step.events) tell(event.warning, event.reason, event.message);
    }
    for (const std::string& name : step.release)
      if (auto done = release(key.space, name); !done) return std::unexpected(std::move(done.error()));
    for (const Json& pod : step.create) {
      auto made = api_.create(kube::resources::pods, pod);
      if (!made) {
        tell(true, "FailedCreate", "Error creating: " + made.error().message);
        return pass(std::move(made.error()), "make a pod of job " + key.text());
      }
      tell(false, "SuccessfulCreate", "Created pod: " + kube::name_of(*made));
    }
    for (const std::string& name : step.remove) {
      auto removed = api_.remove(kube::resources::pods, {key.space, name});
      if (!removed && !gone(removed.error())) return pass(std::move(removed.error()), fmt::format("delete pod {} of job {}", name, key.text()));
      if (removed) tell(false, "SuccessfulDelete", "Deleted pod: " + name);
    }
    if (step.remove_job) {
      auto removed = api_.remove(workloads::jobs, key, {.uid = kube::uid_of(*job), .resource_version = kube::version_of(*job), .propagation = kube::DeleteOptions::Propagation::Foreground});
      if (!removed && !gone(removed.error())) return pass(std::move(removed.error()), "remove finished job " + key.text());
      log_info("finished job removed", {{"job", key.text()}});
      return kube::Next{};
    }
    if (!step.idle()) continue;
    if (!step.look_again_at) return kube::Next{};
    return kube::Next{std::max<std::chrono::nanoseconds>(*step.look_again_at - clock_.now(), 1ms)};
  }
  return kube::Next{10ms};
}

}  // namespace fairlead::apiserver
