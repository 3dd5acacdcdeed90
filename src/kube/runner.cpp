// SPDX-License-Identifier: Apache-2.0
// Threads for controllers: informers fill queues, workers empty them. One queue and one mutex per controller; no call-out happens under a mutex.
#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "kube/controller.h"

namespace fairlead::kube {
namespace {

// A controller with its queue and threads.
class Worker {
 public:
  Worker(std::unique_ptr<Controller> controller, const Clock& clock, Rng rng)
      : controller_(std::move(controller)), name_(controller_->name()), sources_(controller_->sources()), clock_(clock), queue_(rng) {}
  ~Worker() { stop(); }

  const std::string& name() const { return name_; }
  const std::vector<Controller::Source>& sources() const { return sources_; }
  bool watches(const Resource& resource) const {
    return std::ranges::any_of(sources_, [&](const auto& source) { return source.resource == resource; });
  }

  void add(const ObjectKey& key) {
    bool sooner = false;
    {
      const std::lock_guard lock(mutex_);
      const auto before = queue_.next_due();
      queue_.add(key, clock_.monotonic());
      const auto after = queue_.next_due();
      // Whoever takes the first key wakes the next for the second (work()). A key that is being worked on wakes nobody: it is looked at when it comes back.
      sooner = idle_ > 0 && after && (!before || *after < *before);
    }
    if (sooner) changed_.notify_one();
  }
  void tell(const Resource& resource, const Change& change) {
    if (!live_) return;  // start() maps everything that is in the caches by then
    for (const auto& source : sources_) {
      if (source.resource == resource && (source.space.empty() || source.space == space_of(change.object()))) {
        for (const auto& key : source.keys(change)) add(key);
      }
    }
  }
  void start(const Caches& caches, int threads) {
    controller_->start(caches);
    live_ = true;
    for (const auto& source : sources_) {
      caches.of(source.resource).each(source.space, [&](const Json& object) {
        for (const auto& key : source.keys({.after = object})) add(key);
      });
    }
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this](std::stop_token stop) { work(std::move(stop)); });
  }
  Runner::Count count() {
    const std::lock_guard lock(mutex_);
    return {reconciles_, failures_, queue_.size()};
  }
  void request_stop() {
    for (auto& thread : threads_) thread.request_stop();
  }
  void stop() {
    request_stop();
    threads_.clear();  // joins
  }

 private:
  void work(std::stop_token stop);
  Result<Next> reconcile(const ObjectKey& key);

  const std::unique_ptr<Controller> controller_;
  const std::string name_;
  const std::vector<Controller::Source> sources_;
  const Clock& clock_;
  std::atomic<bool> live_{false};
  std::mutex mutex_;
  std::condition_variable_any changed_;
  WorkQueue queue_;  // under mutex_
  int idle_ = 0;     // threads that wait for something to do; under mutex_
  std::uint64_t reconciles_ = 0, failures_ = 0;  // under mutex_
  std::vector<std::jthread> threads_;
};

Result<Next> Worker::reconcile(const ObjectKey& key) {
  try {
    return controller_->reconcile(key);
  } catch (const std::exception& problem) {
    return fail(Code::Internal, problem.what());
  }
}

void Worker::work(std::stop_token stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    const auto now = clock_.monotonic();
    const auto key = queue_.take(now);
    if (!key) {
      // Woken by a change too; then looks again. A second thread that waits for the same moment finds nothing and waits on.
      ++idle_;
      if (const auto due = queue_.next_due()) {
        changed_.wait_for(lock, stop, *due - now, [&] { return queue_.next_due() && *queue_.next_due() < *due; });
      } else {
        changed_.wait(lock, stop, [&] { return queue_.next_due().has_value(); });
      }
      --idle_;
      continue;
    }
    if (idle_ > 0 && queue_.next_due()) changed_.notify_one();
    lock.unlock();
    const Result<Next> outcome = reconcile(*key);
    lock.lock();
    queue_.done(*key, clock_.monotonic(), outcome);
    ++reconciles_;
    if (!outcome && outcome.error().code != Code::Conflict) ++failures_;
    if (!outcome) {
      const std::string failures = std::to_string(queue_.failures(*key));
      lock.unlock();
      if (outcome.error().code == Code::Conflict) {
        log_debug("reconcile again", {{"controller", name_}, {"key", key->text()}, {"reason", outcome.error().message}});
      } else {
        log_warn("reconcile failed", {{"controller", name_}, {"key", key->text()}, {"failures", failures}, {"reason", outcome.error().message}});
      }
      lock.lock();
    }
  }
}

}  // namespace

struct Runner::State final : Caches {
  State(KubeApi& a, const Clock& c, std::uint64_t s, RunnerOptions o) : api(a), clock(c), seeds(s), options(o) {}
  const Reader& of(const Resource& resource) const override {
    const auto at = informers.find(resource);
    INVARIANT(at != informers.end());
    return at->second->cache();
  }
  bool all_synced() const {
    return std::ranges::all_of(informers, [](const auto& entry) { return entry.second->synced(); });
  }
  std::string space_for(const Resource& resource) const;
  void coordinate(std::stop_token stop);

  KubeApi& api;
  const Clock& clock;
  Rng seeds;
  const RunnerOptions options;
  std::vector<std::unique_ptr<Worker>> workers;             // fixed from start() on
  std::map<Resource, std::unique_ptr<Informer>> informers;  // fixed from start() on
  std::mutex mutex;
  std::condition_variable_any synced_one;
  std::size_t not_synced = 0;  // under mutex
  std::jthread coordinator;
};

// "" as soon as two sources differ.
std::string Runner::State::space_for(const Resource& resource) const {
  std::optional<std::string> space;
  for (const auto& worker : workers) {
    for (const auto& source : worker->sources()) {
      if (source.resource != resource) continue;
      if (space && *space != source.space) return "";
      space = source.space;
    }
  }
  return space.value_or("");
}

void Runner::State::coordinate(std::stop_token stop) {
  {
    std::unique_lock lock(mutex);
    synced_one.wait(lock, stop, [&] { return not_synced == 0; });
  }
  for (auto& worker : workers) {
    if (stop.stop_requested()) return;
    worker->start(*this, std::max(1, options.threads_per_controller));
  }
}

Runner::Runner(KubeApi& api, const Clock& clock, std::uint64_t seed, RunnerOptions options) : state_(std::make_unique<State>(api, clock, seed, options)) {}

Runner::~Runner() {
  // Workers first: they read the caches. Then informers: they add to the workers' queues, which end last.
  if (state_->coordinator.joinable()) {
    state_->coordinator.request_stop();
    state_->coordinator.join();
  }
  for (auto& worker : state_->workers) worker->request_stop();
  for (auto& worker : state_->workers) worker->stop();
  state_->informers.clear();
}

void Runner::add(std::unique_ptr<Controller> controller) {
  INVARIANT(!state_->coordinator.joinable());
  state_->workers.push_back(std::make_unique<Worker>(std::move(controller), state_->clock, Rng(state_->seeds.next())));
}

void Runner::start() {
  State& state = *state_;
  INVARIANT(!state.coordinator.joinable());
  std::set<Resource> wanted;
  for (const auto& worker : state.workers) {
    for (const auto& source : worker->sources()) wanted.insert(source.resource);
  }
  {
    const std::lock_guard lock(state.mutex);
    state.not_synced = wanted.size();
  }
  for (const auto& resource : wanted) {
    std::vector<Worker*> listeners;
    for (const auto& worker : state.workers) {
      if (worker->watches(resource)) listeners.push_back(worker.get());
    }
    auto tell = [resource, listeners](const Change& change) {
      for (Worker* const worker : listeners) worker->tell(resource, change);
    };
    auto synced = [&state] {
      const std::lock_guard lock(state.mutex);
      --state.not_synced;
      state.synced_one.notify_all();
    };
    state.informers.emplace(resource, std::make_unique<Informer>(state.api, resource, state.space_for(resource), tell, synced, state.seeds.next()));
  }
  state.coordinator = std::jthread([&state](std::stop_token stop) { state.coordinate(std::move(stop)); });
}

bool Runner::synced() const { return state_->coordinator.joinable() && state_->all_synced(); }

std::map<std::string, Runner::Count> Runner::counts() const {
  std::map<std::string, Count> out;
  for (const auto& worker : state_->workers) out[worker->name()] = worker->count();
  return out;
}

void Runner::wake(const std::string& controller, const ObjectKey& key) {
  for (auto& worker : state_->workers) {
    if (worker->name() == controller) return worker->add(key);
  }
  log_warn("nobody to wake", {{"controller", controller}, {"key", key.text()}});
}

}  // namespace fairlead::kube
