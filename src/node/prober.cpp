// SPDX-License-Identifier: Apache-2.0
#include "node/prober.h"

#include "node/checks.h"

namespace fairlead::node {
Prober::Prober(Runtime& runtime, const Clock& clock, OnChange on_change, int threads)
    : runtime_(runtime), clock_(clock), on_change_(std::move(on_change)) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
}

Prober::~Prober() {
  for (auto& thread : threads_) thread.request_stop();
  threads_.clear();
}

void Prober::watch(const std::string& attempt_id, const ProbeTarget& target, const std::vector<ProbeSpec>& probes, Told told, Instant running_since) {
  const std::lock_guard lock(mutex_);
  if (probes.empty() || entries_.contains(attempt_id)) return;
  const std::uint64_t generation = ++generation_;
  Entry& entry = entries_[attempt_id] = Entry{.target = target, .state = ProbeState(probes), .generation = generation};
  entry.state.resume(told.started, told.ready);
  const auto running_for = std::max<std::chrono::nanoseconds>(clock_.now() - running_since, 0ns);  // a wall clock may go back
  for (std::size_t i = 0; i < probes.size(); ++i)
    due_.push({.at = clock_.monotonic() + std::max<std::chrono::nanoseconds>(probes[i].initial_delay - running_for, 0ns), .attempt_id = attempt_id, .probe = i, .generation = generation});
  changed_.notify_all();
}

void Prober::forget(const std::string& attempt_id) {
  const std::lock_guard lock(mutex_);
  entries_.erase(attempt_id);
}

ProbeHealth Prober::health(const std::string& attempt_id) const {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(attempt_id);
  return it == entries_.end() ? ProbeHealth{} : it->second.state.health();
}

bool Prober::probe_once(const ProbeTarget& target, const ProbeSpec& spec) {
  const std::string& ip = spec.host.empty() ? target.ip : spec.host;
  if (!spec.command.empty()) {
    auto output = run_in_container(runtime_, target.pod_uid, target.container, spec.command, spec.timeout, 4096);
    return output && output->exit.code == 0;
  }
  if (spec.grpc) return check_grpc(ip, spec.port, spec.service, spec.timeout).has_value();
  if (spec.path.empty()) return check_tcp(ip, spec.port, spec.timeout).has_value();
  const auto code = check_http({.ip = ip, .port = spec.port, .path = spec.path, .headers = spec.headers, .tls = spec.https}, spec.timeout);
  return code && *code >= 200 && *code < 400;
}

void Prober::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    if (due_.empty()) {
      changed_.wait(lock, stop, [&] { return !due_.empty(); });
      continue;
    }
    const auto now = clock_.monotonic();
    const Due next = due_.top();
    if (next.at > now) {
      changed_.wait_for(lock, stop, next.at - now, [&] { return due_.empty() || due_.top().at < next.at; });
      continue;
    }
    due_.pop();
    const auto it = entries_.find(next.attempt_id);
    if (it == entries_.end() || it->second.generation != next.generation) continue;
    const ProbeSpec spec = it->second.state.probes()[next.probe];
    const bool wanted = it->second.state.wanted(next.probe);
    if (wanted) {
      const ProbeTarget target = it->second.target;
      lock.unlock();
      const bool success = probe_once(target, spec);
      lock.lock();
      const auto again = entries_.find(next.attempt_id);
      if (again == entries_.end() || again->second.generation != next.generation) continue;
      const ProbeHealth before = again->second.state.health();
      again->second.state.record(next.probe, success);
      const ProbeHealth after = again->second.state.health();
      if (before != after) {
        lock.unlock();
        on_change_(next.attempt_id);
        lock.lock();
      }
    }
    const auto same = entries_.find(next.attempt_id);
    if (same == entries_.end() || same->second.generation != next.generation) continue;
    due_.push({.at = clock_.monotonic() + same->second.state.pause(next.probe), .attempt_id = next.attempt_id, .probe = next.probe, .generation = next.generation});
    changed_.notify_one();
  }
}

JobPool::JobPool(int threads, std::size_t limit) : limit_(limit) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this](const std::stop_token& stop) {
      std::unique_lock lock(mutex_);
      while (changed_.wait(lock, stop, [&] { return !jobs_.empty(); }), !stop.stop_requested()) {
        const auto job = std::move(jobs_.front());
        jobs_.pop();
        lock.unlock();
        job();
        lock.lock();
      }
    });
  }
}

JobPool::~JobPool() {
  for (auto& thread : threads_) thread.request_stop();
  threads_.clear();
}

bool JobPool::add(std::function<void()> job) {
  const std::lock_guard lock(mutex_);
  if (jobs_.size() >= limit_) return false;
  jobs_.push(std::move(job));
  changed_.notify_one();
  return true;
}

}  // namespace fairlead::node
