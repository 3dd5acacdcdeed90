// SPDX-License-Identifier: Apache-2.0
#include "kube/leader.h"

#include <fmt/format.h>

#include "base/log.h"

namespace fairlead::kube {
namespace {

std::string showing(const Json& lease) {
  const Json& spec = lease["spec"];
  return fmt::format("{} {} {}", spec["holderIdentity"].string(), spec["renewTime"].string(), spec["leaseTransitions"].integer());
}

Json record(const ObjectKey& key, const Json& lease, const std::string& identity, const LeaderTimes& times, std::int64_t epoch, const std::string& acquired, Instant now) {
  Json out = lease.is_object() ? lease
                               : Json::object({{"apiVersion", "coordination.k8s.io/v1"}, {"kind", "Lease"}, {"metadata", Json::object({{"name", key.name}, {"namespace", key.space}})}});
  out.set("spec", Json::object({{"holderIdentity", identity},
                                {"leaseDurationSeconds", std::chrono::ceil<std::chrono::seconds>(times.lease).count()},
                                {"acquireTime", acquired},
                                {"renewTime", print_micro_time(now)},
                                {"leaseTransitions", epoch}}));
  return out;
}

}  // namespace

bool leads(const Candidate& candidate, const LeaderTimes& times, std::chrono::nanoseconds monotonic) {
  return candidate.epoch && monotonic < candidate.proved_at + times.deadline;
}

LeaderStep step_leader(const Json& lease, Candidate candidate, const ObjectKey& key, const LeaderTimes& times, Instant now, std::chrono::nanoseconds monotonic) {
  const Json& spec = lease["spec"];
  const std::string& holder = spec["holderIdentity"].string();
  const std::int64_t epoch = spec["leaseTransitions"].integer();
  if (const std::string shows = showing(lease); shows != candidate.seen) {
    candidate.seen = shows;
    candidate.seen_at = monotonic;
  }
  if (candidate.epoch) {
    if (!leads(candidate, times, monotonic)) return {LeaderMove::Lost, {}, std::move(candidate), "the lease was not renewed in time"};
    if (holder != candidate.identity || epoch != *candidate.epoch)
      return {LeaderMove::Lost, {}, std::move(candidate), holder.empty() ? "the lease is gone" : fmt::format("{} holds the lease", holder)};
    Json renewed = record(key, lease, candidate.identity, times, epoch, spec["acquireTime"].string(), now);
    return {LeaderMove::Renew, std::move(renewed), std::move(candidate), "ours"};
  }
  const auto take = [&](std::string why) {
    Json taken = record(key, lease, candidate.identity, times, epoch + 1, print_micro_time(now), now);
    return LeaderStep{LeaderMove::Take, std::move(taken), std::move(candidate), std::move(why)};
  };
  if (lease.is_null()) return take("there is no lease");
  if (holder.empty()) return take("nobody holds it");
  if (holder == candidate.identity) return take("ours, though we never heard so");  // the answer to our write was lost: a new epoch makes it certain
  const auto duration = spec["leaseDurationSeconds"].integer() > 0 ? std::chrono::seconds(spec["leaseDurationSeconds"].integer()) : std::chrono::ceil<std::chrono::seconds>(times.lease);
  if (monotonic - candidate.seen_at >= duration) return take(fmt::format("{} has been silent for {} s", holder, duration.count()));
  return {LeaderMove::Wait, {}, std::move(candidate), fmt::format("{} leads", holder)};
}

Access leader_access(const ObjectKey& lease) {
  return Access().may({"create"}, resources::leases, "", lease.space).may({"get", "update"}, resources::leases, "", lease.space, {lease.name});
}

Leader::Leader(KubeApi& api, const Clock& clock, LeaderOptions options, std::function<void(std::int64_t)> on_lead, std::function<void(const std::string&)> on_lost)
    : api_(api), clock_(clock), options_(std::move(options)), on_lead_(std::move(on_lead)), on_lost_(std::move(on_lost)), rng_(options_.seed) {
  candidate_.identity = options_.identity;
  thread_ = std::jthread([this](std::stop_token stop) { run(std::move(stop)); });
}

Leader::~Leader() {
  thread_.request_stop();
  thread_.join();
  give_back();
}

Result<std::int64_t> Leader::epoch() const {
  const std::lock_guard lock(mutex_);
  if (!leads(candidate_, options_.times, clock_.monotonic())) return fail(Code::Unavailable, "this server does not lead (any more)");
  return *candidate_.epoch;
}

std::string Leader::holder() const {
  const std::lock_guard lock(mutex_);
  return holder_;
}

void Leader::run(std::stop_token stop) {
  while (!stop.stop_requested()) {
    if (!turn()) return;
    // A fifth of jitter, as client-go: candidates do not come in step.
    const auto pause = options_.times.retry + std::chrono::nanoseconds(rng_.below(static_cast<std::uint64_t>(options_.times.retry.count() / 5 + 1)));
    std::unique_lock lock(mutex_);
    stopped_.wait_for(lock, stop, pause, [] { return false; });
  }
}

bool Leader::turn() {
  auto lease = api_.get(resources::leases, options_.lease);
  if (lease || lease.error().code == Code::NotFound) last_answer_ = clock_.monotonic();
  std::unique_lock lock(mutex_);
  const bool led = candidate_.epoch.has_value();
  const auto lost = [&](const std::string& why) {
    candidate_.epoch.reset();
    lock.unlock();
    on_lost_(why);
    return false;
  };
  if (!lease && lease.error().code != Code::NotFound) {
    if (led && !leads(candidate_, options_.times, clock_.monotonic())) return lost("the lease could not be read in time: " + lease.error().message);
    lock.unlock();
    log_warn("cannot read the lease", {{"lease", options_.lease.text()}, {"reason", lease.error().message}});
    return true;
  }
  const auto sent_at = clock_.monotonic();
  LeaderStep step = step_leader(lease ? *lease : Json(), candidate_, options_.lease, options_.times, clock_.now(), sent_at);
  candidate_ = step.candidate;
  holder_ = lease ? (*lease)["spec"]["holderIdentity"].string() : "";
  if (step.move == LeaderMove::Lost) return lost(step.why);
  if (step.move == LeaderMove::Wait) return true;
  lock.unlock();
  const bool fresh = version_of(step.lease).empty();
  auto written = fresh ? api_.create(resources::leases, step.lease) : api_.update(resources::leases, step.lease);
  if (!written) {
    // Somebody else was quicker: the next look tells who. Anything else is for people (no such namespace, no rights).
    const bool race = written.error().code == Code::Conflict || written.error().code == Code::Exists;
    (race ? log_debug : log_warn)("lease not written", {{"lease", options_.lease.text()}, {"reason", written.error().message}});
    return true;
  }
  last_answer_ = clock_.monotonic();
  const std::int64_t epoch = step.lease["spec"]["leaseTransitions"].integer();
  lock.lock();
  candidate_.epoch = epoch;
  candidate_.proved_at = sent_at;
  holder_ = candidate_.identity;
  lock.unlock();
  if (!led) {
    log_info("leading", {{"lease", options_.lease.text()}, {"epoch", std::to_string(epoch)}, {"why", step.why}});
    on_lead_(epoch);
  }
  return true;
}

void Leader::give_back() {
  if (!epoch()) return;
  auto lease = api_.get(resources::leases, options_.lease);
  if (!lease || (*lease)["spec"]["holderIdentity"].string() != candidate_.identity) return;
  lease->child("spec").set("holderIdentity", "").set("leaseDurationSeconds", 1).set("renewTime", print_micro_time(clock_.now()));
  candidate_.epoch.reset();
  if (auto done = api_.update(resources::leases, *lease); !done) log_warn("lease not given back", {{"reason", done.error().message}});
}

}  // namespace fairlead::kube
