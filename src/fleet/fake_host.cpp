// SPDX-License-Identifier: Apache-2.0
#include "fleet/fake_host.h"

#include <fmt/format.h>

namespace fairlead::fleet {

Result<void> FakeHost::allowed(Step step) {
  int& left = failures_[step];
  if (left == 0) return {};
  --left;
  return fail(Code::Unavailable, fmt::format("{}: made to fail", fleet::name(step)));
}
void FakeHost::tell(const std::string& name, Step step) {
  if (on_step) on_step(name, step);
}

Result<void> FakeHost::ready() { return {}; }

Result<Observation> FakeHost::observe(const std::string& name, const api::Seat&) {
  std::lock_guard lock(mutex_);
  const auto found = nodes_.find(name);
  return found == nodes_.end() ? Observation{} : found->second.seen;
}

Result<ProcessIdentity> FakeHost::start(const api::Machine& machine) {
  ProcessIdentity identity;
  {
    std::lock_guard lock(mutex_);
    if (auto fine = allowed(Step::Start); !fine) {
      nodes_[machine.name].seen.leftovers = true;  // a failed start leaves half of it behind
      return std::unexpected(std::move(fine.error()));
    }
    Node& node = nodes_[machine.name];
    if (node.seen.process) return *node.seen.process;
    identity = {.pid = ++last_pid_, .start_ticks = static_cast<std::uint64_t>(last_pid_)};
    node = {.seen = {.leftovers = true, .process = identity, .started_at = clock_.now(), .wire = Wire::None}, .index = machine.seat.index};
  }
  tell(machine.name, Step::Start);
  return identity;
}

Result<void> FakeHost::connect(const std::string& name, const api::Seat& seat) {
  {
    std::lock_guard lock(mutex_);
    if (auto fine = allowed(Step::Connect); !fine) return fine;
    const auto found = nodes_.find(name);
    if (found == nodes_.end() || !found->second.seen.process) return fail(Code::Unavailable, fmt::format("connect {}: it does not run", name));
    found->second.seen.wire = Wire::Up;
    found->second.index = seat.index;
  }
  tell(name, Step::Connect);
  return {};
}

Result<void> FakeHost::set_link(const api::Seat& seat, api::Link link) {
  const Step step = link == api::Link::Cut ? Step::Cut : Step::Heal;
  std::string changed;
  {
    std::lock_guard lock(mutex_);
    if (auto fine = allowed(step); !fine) return fine;
    for (auto& [name, node] : nodes_)
      if (node.index == seat.index && node.seen.wire != Wire::None) {
        node.seen.wire = link == api::Link::Cut ? Wire::Cut : Wire::Up;
        changed = name;
      }
  }
  if (changed.empty()) return fail(Code::Unavailable, fmt::format("{} link {}: there is none", fleet::name(step), seat.index));
  tell(changed, step);
  return {};
}

Result<void> FakeHost::kill(const std::string& name) {
  {
    std::lock_guard lock(mutex_);
    if (auto fine = allowed(Step::Kill); !fine) return fine;
    const auto found = nodes_.find(name);
    if (found == nodes_.end() || !found->second.seen.process) return {};
    found->second.seen.process.reset();
    found->second.seen.wire = Wire::None;
  }
  tell(name, Step::Kill);
  return {};
}

Result<void> FakeHost::stop(const std::string& name, std::chrono::milliseconds) { return kill(name); }

Result<void> FakeHost::remove(const std::string& name, const api::Seat&) {
  {
    std::lock_guard lock(mutex_);
    if (auto fine = allowed(Step::Remove); !fine) return fine;
    if (const auto found = nodes_.find(name); found != nodes_.end() && found->second.seen.process)
      return fail(Code::Conflict, fmt::format("remove {}: it still runs", name));
    nodes_.erase(name);
  }
  tell(name, Step::Remove);
  return {};
}

void FakeHost::watch_exits(std::function<void(const std::string&)> callback) { exits_ = std::move(callback); }

void FakeHost::crash(const std::string& name) {
  {
    std::lock_guard lock(mutex_);
    const auto found = nodes_.find(name);
    if (found == nodes_.end() || !found->second.seen.process) return;
    found->second.seen.process.reset();
    found->second.seen.wire = Wire::None;
  }
  tell(name, Step::Kill);
  if (exits_) exits_(name);
}

void FakeHost::fail_next(Step step, int times) {
  std::lock_guard lock(mutex_);
  failures_[step] = times;
}

}  // namespace fairlead::fleet
