// SPDX-License-Identifier: Apache-2.0
#include "apiserver/job_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>

#include "apiserver/kinds/resources.h"

namespace fairlead::apiserver {

using kube::Json;

std::set<int> parse_indexes(const std::string& text, int limit) {
  std::set<int> out;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    const char *first = text.data() + at, *last = text.data() + end;
    int from = 0, to = 0;
    auto read = std::from_chars(first, last, from);
    to = from;
    if (read.ec == std::errc() && read.ptr != last && *read.ptr == '-') read = std::from_chars(read.ptr + 1, last, to);
    if (read.ec == std::errc() && read.ptr == last)
      for (int index = std::max(from, 0); index <= std::min(to, limit - 1); ++index) out.insert(index);
    at = end + 1;
  }
  return out;
}

std::string print_indexes(const std::set<int>& indexes) {
  std::string out;
  for (auto it = indexes.begin(); it != indexes.end();) {
    const int first = *it;
    int last = first;
    while (++it != indexes.end() && *it == last + 1) last = *it;
    out += fmt::format("{}{}", out.empty() ? "" : ",", first);
    if (last > first) out += fmt::format("{}{}", last == first + 1 ? "," : "-", last);
  }
  return out;
}

namespace {

constexpr std::chrono::seconds first_backoff{10}, longest_backoff{600};

struct Pod {
  const Json* json = nullptr;
  std::string name, uid;
  bool succeeded = false, failed = false, deleting = false, tracked = false, ready = false;
  int index = -1;
  std::int64_t restarts = 0;
  Instant ended{};
  bool ended_known = false;
  bool finished() const { return succeeded || failed; }
  bool active() const { return !finished() && !deleting; }
};

Pod read_pod(const Json& json, Instant now) {
  Pod out{.json = &json, .name = kube::name_of(json), .uid = kube::uid_of(json)};
  const std::string& phase = json["status"]["phase"].string();
  out.succeeded = phase == "Succeeded";
  out.failed = phase == "Failed";
  out.deleting = kube::deleting(json);
  // Its node said that it ended: only the finalizer holds it.
  out.failed = out.failed || (out.deleting && !out.succeeded && json["metadata"]["deletionGracePeriodSeconds"].integer(1) == 0);
  out.tracked = kube::has_finalizer(json, workloads::job_finalizer);
  out.ready = kube::condition_is_true(json, "Ready");
  const std::string& index = json["metadata"]["annotations"][workloads::job_index].string();
  if (std::from_chars(index.data(), index.data() + index.size(), out.index).ec != std::errc()) out.index = -1;
  for (const char* list : {"containerStatuses", "initContainerStatuses"}) {
    for (const Json& status : json["status"][list].items()) {
      out.restarts += status["restartCount"].integer();
      const auto at = parse_time(status["state"]["terminated"]["finishedAt"].string());
      if (at && (!out.ended_known || *at > out.ended)) {
        out.ended = *at;
        out.ended_known = true;
      }
    }
  }
  if (!out.ended_known) {
    const auto deleted = parse_time(json["metadata"]["deletionTimestamp"].string());
    out.ended = deleted ? std::min(*deleted, now) : now;
  }
  return out;
}

class Planner {
 public:
  Planner(const Json& job, const std::vector<Json>& pods, Instant now, std::size_t batch) : job_(job), spec_(job["spec"]), now_(now), batch_(batch), next_(job["status"]) {
    if (!next_.is_object()) next_ = Json::object();
    for (const Json& pod : pods) pods_.push_back(read_pod(pod, now));
    std::sort(pods_.begin(), pods_.end(), [](const Pod& a, const Pod& b) { return a.name < b.name; });
    indexed_ = spec_["completionMode"].string() == "Indexed";
    if (!spec_["completions"].is_null()) completions_ = spec_["completions"].integer();
    replace_when_ended_ = spec_["podReplacementPolicy"].string() == "Failed";
  }

  JobStep run() {
    if (kube::deleting(job_)) return release_all();
    if (finished()) return after_the_end();
    count();
    decide();
    if (write_status()) return std::move(step_);
    if (release_counted()) return std::move(step_);
    if (ending()) {
      remove_active(false);
      if (step_.idle()) look_again({});
      return std::move(step_);
    }
    if (spec_["suspend"].boolean()) {
      remove_active(true);
      return std::move(step_);
    }
    manage();
    return std::move(step_);
  }

 private:
  const Json* condition(std::string_view type) const {
    for (const Json& one : next_["conditions"].items())
      if (one["type"].string() == type) return &one;
    return nullptr;
  }
  bool is_true(std::string_view type) const {
    const Json* found = condition(type);
    return found != nullptr && (*found)["status"].string() == "True";
  }
  bool finished() const { return is_true("Complete") || is_true("Failed"); }
  bool ending() const { return is_true("SuccessCriteriaMet") || is_true("FailureTarget"); }

  void set_condition(const std::string& type, const std::string& status, const std::string& reason, const std::string& message) {
    const std::string time = print_time(now_);
    Json made = Json::object({{"type", type}, {"status", status}, {"lastProbeTime", time}, {"lastTransitionTime", time}, {"reason", reason}, {"message", message}});
    Json& all = next_.child("conditions");
    for (Json& one : all.items()) {
      if (one["type"].string() != type) continue;
      if (one["status"].string() != status || one["reason"].string() != reason) one = std::move(made);
      return;
    }
    all.push(std::move(made));
  }

  JobStep release_all() {
    for (const Pod& pod : pods_)
      if (pod.tracked) step_.release.push_back(pod.name);
    return std::move(step_);
  }

  JobStep after_the_end() {
    for (const Pod& pod : pods_)
      if (pod.tracked) step_.release.push_back(pod.name);
    if (!step_.release.empty() || spec_["ttlSecondsAfterFinished"].is_null()) return std::move(step_);
    Instant end{};
    for (const char* type : {"Complete", "Failed"})
      if (const Json* found = condition(type); found != nullptr && is_true(type))
        if (const auto at = parse_time((*found)["lastTransitionTime"].string())) end = std::max(end, *at);
    const Instant due = end + std::chrono::seconds(spec_["ttlSecondsAfterFinished"].integer());
    if (due <= now_) step_.remove_job = true;
    else step_.look_again_at = due;
    return std::move(step_);
  }

  // Does this pod count as failed now? One that is being deleted does, unless its replacement waits for its end.
  bool counts_as_failed(const Pod& pod) const { return pod.failed || (pod.deleting && !pod.succeeded && !replace_when_ended_ && !spec_["suspend"].boolean()); }

  void count() {
    std::set<std::string> uncounted_ok, uncounted_failed, tracked;
    for (const Json& uid : next_["uncountedTerminatedPods"]["succeeded"].items()) uncounted_ok.insert(uid.string());
    for (const Json& uid : next_["uncountedTerminatedPods"]["failed"].items()) uncounted_failed.insert(uid.string());
    for (const Pod& pod : pods_)
      if (pod.tracked) tracked.insert(pod.uid);
    std::int64_t counted_ok = next_["succeeded"].integer(), counted_failed = next_["failed"].integer();
    // Whose finalizer went is counted for good.
    counted_ok += static_cast<std::int64_t>(std::erase_if(uncounted_ok, [&](const std::string& uid) { return !tracked.contains(uid); }));
    counted_failed += static_cast<std::int64_t>(std::erase_if(uncounted_failed, [&](const std::string& uid) { return !tracked.contains(uid); }));
    if (indexed_) completed_ = parse_indexes(next_["completedIndexes"].string(), static_cast<int>(completions_.value_or(0)));
    for (const Pod& pod : pods_) {
      if (!pod.tracked) continue;
      if (pod.succeeded && indexed_) {
        if (pod.index >= 0 && pod.index < completions_.value_or(0)) completed_.insert(pod.index);
      } else if (pod.succeeded) {
        uncounted_ok.insert(pod.uid);
      } else if (counts_as_failed(pod) && !is_true("SuccessCriteriaMet")) {
        uncounted_failed.insert(pod.uid);
      }
    }
    succeeded_ = indexed_ ? static_cast<std::int64_t>(completed_.size()) : counted_ok + static_cast<std::int64_t>(uncounted_ok.size());
    failed_ = counted_failed + static_cast<std::int64_t>(uncounted_failed.size());
    written_ok_ = uncounted_ok;
    written_failed_ = uncounted_failed;

    set_number("succeeded", indexed_ ? succeeded_ : counted_ok);
    set_number("failed", counted_failed);
    Json uncounted = Json::object();
    const auto list = [&](const char* name, const std::set<std::string>& uids) {
      if (uids.empty()) return;
      Json all = Json::array();
      for (const std::string& uid : uids) all.push(uid);
      uncounted.set(name, std::move(all));
    };
    list("succeeded", uncounted_ok);
    list("failed", uncounted_failed);
    next_.set("uncountedTerminatedPods", std::move(uncounted));
    if (indexed_ && !completed_.empty()) next_.set("completedIndexes", print_indexes(completed_));

    std::int64_t ready = 0, terminating = 0;
    for (const Pod& pod : pods_) {
      if (pod.active()) ++active_;
      if (pod.active() && pod.ready) ++ready;
      if (pod.deleting && !pod.finished()) ++terminating;
      if (pod.active() || (pod.deleting && !pod.finished())) restarts_ += pod.restarts;
    }
    terminating_ = terminating;
    set_number("active", active_);
    next_.set("ready", ready);
    next_.set("terminating", terminating);
  }

  void set_number(const char* name, std::int64_t value) {
    if (value == 0) next_.erase(name);
    else next_.set(name, value);
  }

  void decide() {
    const bool suspend = spec_["suspend"].boolean();
    if (next_["startTime"].is_null() && !suspend) next_.set("startTime", print_time(now_));
    if (!ending()) {
      if (std::string why = failure(); !why.empty()) fail_with(why);
      else if (complete()) succeed();
    }
    if (!ending()) suspend_or_resume(suspend);
    // The end is told when nothing runs any more and everything is counted.
    const bool settled = active_ == 0 && terminating_ == 0 && written_ok_.empty() && written_failed_.empty();
    if (ending() && settled) finish();
  }

  std::string failure() {
    const std::int64_t limit = spec_["backoffLimit"].integer(6);
    if (failed_ > limit) return "BackoffLimitExceeded";
    if (spec_["template"]["spec"]["restartPolicy"].string() == "OnFailure" && restarts_ > 0 && (limit == 0 || restarts_ >= limit)) return "BackoffLimitExceeded";
    const auto start = parse_time(next_["startTime"].string());
    if (!spec_["activeDeadlineSeconds"].is_null() && start && !spec_["suspend"].boolean()) {
      const Instant due = *start + std::chrono::seconds(spec_["activeDeadlineSeconds"].integer());
      if (due <= now_) return "DeadlineExceeded";
      look_again(due);
    }
    return {};
  }

  void look_again(std::optional<Instant> at) {
    if (at) step_.look_again_at = std::min(step_.look_again_at.value_or(*at), *at);
  }

  bool complete() const {
    if (completions_) return succeeded_ >= *completions_;
    return succeeded_ > 0 && active_ == 0;  // a work queue: one is done, so all are when nobody works any more
  }

  void fail_with(const std::string& reason) {
    set_condition("FailureTarget", "True", reason, reason == "DeadlineExceeded" ? "Job was active longer than specified deadline" : "Job has reached the specified backoff limit");
  }
  void succeed() { set_condition("SuccessCriteriaMet", "True", "CompletionsReached", "Reached expected number of succeeded pods"); }

  void finish() {
    if (const Json* target = condition("FailureTarget"); target != nullptr && is_true("FailureTarget")) {
      const Json copy = *target;
      set_condition("Failed", "True", copy["reason"].string(), copy["message"].string());
      step_.events.push_back({true, copy["reason"].string(), copy["message"].string()});
      return;
    }
    set_condition("Complete", "True", "CompletionsReached", "Reached expected number of succeeded pods");
    next_.set("completionTime", print_time(now_));
    step_.events.push_back({false, "Completed", "Job completed"});
  }

  void suspend_or_resume(bool suspend) {
    if (suspend && !is_true("Suspended")) {
      set_condition("Suspended", "True", "JobSuspended", "Job suspended");
      step_.events.push_back({false, "Suspended", "Job suspended"});
    }
    if (suspend) next_.erase("startTime");
    if (!suspend && is_true("Suspended")) {
      set_condition("Suspended", "False", "JobResumed", "Job resumed");
      next_.set("startTime", print_time(now_));
      step_.events.push_back({false, "Resumed", "Job resumed"});
    }
  }

  bool write_status() {
    if (next_ == job_["status"]) {
      step_.events.clear();
      return false;
    }
    step_.status = next_;
    return true;
  }

  // What is written down loses its finalizer.
  bool release_counted() {
    const bool done = is_true("SuccessCriteriaMet"), suspended = spec_["suspend"].boolean();
    for (const Pod& pod : pods_) {
      if (!pod.tracked) continue;
      const bool counted = written_ok_.contains(pod.uid) || written_failed_.contains(pod.uid) || (indexed_ && pod.succeeded) || (done && (pod.deleting || pod.finished())) || (suspended && pod.deleting && !pod.finished());
      if (counted) step_.release.push_back(pod.name);
    }
    return !step_.release.empty();
  }

  // Takes down what runs. Those that nobody shall count lose their finalizer first.
  void remove_active(bool uncounted) {
    std::vector<std::string> names;
    for (const Pod& pod : pods_)
      if (pod.active()) names.push_back(pod.name);
    remove(std::move(names), uncounted);
  }
  void remove(std::vector<std::string> names, bool uncounted) {
    if (uncounted) {
      for (const Pod& pod : pods_)
        if (pod.tracked && std::find(names.begin(), names.end(), pod.name) != names.end()) step_.release.push_back(pod.name);
      if (!step_.release.empty()) return;
    }
    step_.remove = std::move(names);
  }

  void manage() {
    const std::int64_t parallelism = spec_["parallelism"].integer(1);
    std::int64_t want = parallelism;
    if (!completions_) want = succeeded_ > 0 ? std::min(active_, parallelism) : parallelism;
    else want = std::min(parallelism, *completions_ - succeeded_);
    want = std::max<std::int64_t>(want, 0);
    if (std::vector<std::string> doubles = surplus(want); !doubles.empty()) return remove(std::move(doubles), true);
    // Those that still end keep their place where the replacement waits for it.
    const std::int64_t there = active_ + (replace_when_ended_ ? terminating_ : 0);
    if (there >= want) return;
    if (const Instant due = backoff_ends(); due > now_) return look_again(due);
    const auto missing = std::min<std::size_t>(static_cast<std::size_t>(want - there), batch_);
    if (!indexed_) {
      for (std::size_t i = 0; i < missing; ++i) step_.create.push_back(new_pod(-1));
      return;
    }
    std::set<int> busy = completed_;
    for (const Pod& pod : pods_)
      if (pod.active() || (replace_when_ended_ && pod.deleting && !pod.finished())) busy.insert(pod.index);
    for (int index = 0; index < *completions_ && step_.create.size() < missing; ++index)
      if (!busy.contains(index)) step_.create.push_back(new_pod(index));
  }

  // Active pods that are too many: twice the same index, an index that is done or out of range, then those that got least far.
  std::vector<std::string> surplus(std::int64_t want) const {
    std::vector<const Pod*> keep;
    std::vector<std::string> out;
    std::set<int> seen = completed_;
    for (const Pod& pod : pods_) {
      if (!pod.active()) continue;
      if (indexed_ && (pod.index < 0 || pod.index >= *completions_ || !seen.insert(pod.index).second)) out.push_back(pod.name);
      else keep.push_back(&pod);
    }
    std::stable_sort(keep.begin(), keep.end(), [](const Pod* a, const Pod* b) {
      const auto rank = [](const Pod* pod) { return std::tuple(!(*pod->json)["spec"]["nodeName"].string().empty(), (*pod->json)["status"]["phase"].string() == "Running", pod->ready); };
      return rank(a) > rank(b);
    });
    for (std::size_t i = static_cast<std::size_t>(want); i < keep.size(); ++i) out.push_back(keep[i]->name);
    return out;
  }

  // After the n-th failure since the last success: 10 s, 20 s, ... up to 10 min from the last one's end.
  Instant backoff_ends() const {
    Instant last_ok{}, last{};
    for (const Pod& pod : pods_)
      if (pod.succeeded) last_ok = std::max(last_ok, pod.ended);
    int failures = 0;
    for (const Pod& pod : pods_) {
      if (!counts_as_failed(pod) || pod.ended < last_ok) continue;
      ++failures;
      last = std::max(last, pod.ended);
    }
    if (failures == 0) return Instant{};
    auto wait = first_backoff;
    for (int i = 1; i < failures && wait < longest_backoff; ++i) wait *= 2;
    return last + std::min(wait, longest_backoff);
  }

  Json new_pod(int index) const {
    const Json& form = spec_["template"];
    Json metadata = Json::object();
    for (const char* field : {"labels", "annotations"})
      if (form["metadata"].has(field)) metadata.set(field, form["metadata"][field]);
    metadata.set("namespace", kube::space_of(job_));
    std::string prefix = kube::name_of(job_) + "-";
    Json spec = form["spec"];
    if (index >= 0) {
      const std::string number = std::to_string(index), key(workloads::job_index);
      metadata.child("annotations").set(key, number);
      metadata.child("labels").set(key, number);
      prefix += number + "-";
      spec.set("hostname", fmt::format("{}-{}", kube::name_of(job_), index));
      const Json variable = Json::object({{"name", "JOB_COMPLETION_INDEX"}, {"valueFrom", Json::object({{"fieldRef", Json::object({{"fieldPath", fmt::format("metadata.labels['{}']", key)}})}})}});
      for (const char* list : {"initContainers", "containers"}) {
        if (!spec.has(list)) continue;
        for (Json& container : spec.child(list).items()) {
          const auto& env = container["env"].items();
          if (std::none_of(env.begin(), env.end(), [](const Json& one) { return one["name"].string() == "JOB_COMPLETION_INDEX"; })) container.child("env").push(variable);
        }
      }
    }
    metadata.set("generateName", prefix);
    metadata.set("finalizers", Json::array({workloads::job_finalizer}));
    metadata.set("ownerReferences", Json::array({kube::owner_reference(job_)}));
    return Json::object({{"apiVersion", "v1"}, {"kind", "Pod"}, {"metadata", std::move(metadata)}, {"spec", std::move(spec)}});
  }

  const Json& job_;
  const Json& spec_;
  const Instant now_;
  const std::size_t batch_;
  Json next_;  // the status
  JobStep step_;
  std::vector<Pod> pods_;
  bool indexed_ = false, replace_when_ended_ = false;
  std::optional<std::int64_t> completions_;
  std::set<int> completed_;
  std::set<std::string> written_ok_, written_failed_;
  std::int64_t succeeded_ = 0, failed_ = 0, active_ = 0, terminating_ = 0, restarts_ = 0;
};

}  // namespace

JobStep plan_job(const Json& job, const std::vector<Json>& pods, Instant now, std::size_t batch) { return Planner(job, pods, now, batch).run(); }

}  // namespace fairlead::apiserver
