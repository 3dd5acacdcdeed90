// SPDX-License-Identifier: Apache-2.0
#include "slurm/control/head_watch.h"

#include <algorithm>
#include <iterator>

#include "base/log.h"

namespace fairlead::slurm {
namespace {
constexpr auto kPatience = std::chrono::milliseconds(1500);  // how long a head waits for something to tell
constexpr auto kFresh = std::chrono::seconds(4);
constexpr auto kPause = std::chrono::milliseconds(300);      // after a question without an answer
}  // namespace

HeadWatch::~HeadWatch() {
  std::vector<std::jthread> threads;
  {
    const std::lock_guard lock(mutex_);
    for (auto& ending : ending_) threads.push_back(std::move(ending.thread));
    ending_.clear();
    for (auto& [cluster, heads] : asked_)
      for (auto& [name, head] : heads) threads.push_back(std::move(head.thread));
    asked_.clear();
  }
  for (auto& thread : threads) thread.request_stop();
  wake_.notify_all();
}

void HeadWatch::watch(const kube::ObjectKey& cluster, const std::vector<kube::ObjectKey>& heads) {
  std::vector<Ending> over;  // joined without the lock
  const std::lock_guard lock(mutex_);
  const auto long_ended = std::stable_partition(ending_.begin(), ending_.end(), [&](const Ending& ending) { return clock_.monotonic() - ending.since < std::chrono::seconds(30); });
  std::move(long_ended, ending_.end(), std::back_inserter(over));
  ending_.erase(long_ended, ending_.end());
  auto& asked = asked_[cluster];
  for (auto at = asked.begin(); at != asked.end();) {
    if (std::any_of(heads.begin(), heads.end(), [&](const auto& head) { return head.name == at->first; })) {
      ++at;
      continue;
    }
    at->second.thread.request_stop();
    ending_.push_back({std::move(at->second.thread), clock_.monotonic()});
    at = asked.erase(at);
  }
  for (const auto& head : heads) {
    const auto [at, added] = asked.try_emplace(head.name);
    if (added) at->second.thread = std::jthread([this, cluster, head](const std::stop_token& stop) { ask(stop, cluster, head); });
  }
  if (asked.empty()) asked_.erase(cluster);
}

std::map<std::string, HeadReport> HeadWatch::reports(const kube::ObjectKey& cluster) const {
  std::map<std::string, HeadReport> out;
  const std::lock_guard lock(mutex_);
  const auto found = asked_.find(cluster);
  if (found == asked_.end()) return out;
  for (const auto& [name, head] : found->second)
    if (head.heard != std::chrono::nanoseconds::min() && clock_.monotonic() - head.heard < kFresh) out[name] = head.report;
  return out;
}

void HeadWatch::ask(const std::stop_token& stop, const kube::ObjectKey& cluster, const kube::ObjectKey& head) {
  std::string known;
  while (!stop.stop_requested()) {
    std::vector<std::string> command = {"/opt/fairlead/bin/fairlead-slurm", "status"};
    if (!known.empty()) command.insert(command.end(), {"--unless", known, "--limit-ms", std::to_string(kPatience.count())});
    auto ran = api_.exec(head, "slurmctld", command, "", kPatience + std::chrono::milliseconds(1000));
    auto report = ran && ran->exit_code == 0 ? read_head_report(ran->out) : Result<HeadReport>(fail(Code::Unavailable, ran ? ran->err : ran.error().message));
    bool news = false;
    {
      std::unique_lock lock(mutex_);
      const auto found = asked_.find(cluster);
      if (found == asked_.end() || !found->second.contains(head.name) || stop.stop_requested()) return;
      Asked& mine = found->second[head.name];
      if (report) {
        news = mine.heard == std::chrono::nanoseconds::min() || !(mine.report == *report);
        mine.report = *report;
        mine.heard = clock_.monotonic();
        known = report->role + ":" + std::to_string(report->term);
      } else {
        known.clear();
        wake_.wait_for(lock, stop, kPause, [] { return false; });
      }
    }
    if (news) changed_(cluster);
  }
}

}  // namespace fairlead::slurm
