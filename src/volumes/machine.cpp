// SPDX-License-Identifier: Apache-2.0
#include "volumes/machine.h"

#include <algorithm>

#include "volumes/plan/steps.h"

namespace fairlead::volumes {
namespace {

using Do = Next::Do;
constexpr int most_steps = 16;  // as of a pool's operations

void fill(api::ToldVolume& told, const Sight& seen) {
  if (!seen.devices.empty()) told.device = seen.devices.front().name, told.device_size = seen.devices.front().size, told.used = seen.devices.front().used;
  told.engine = seen.engine.has_value();
  if (!seen.engine) return;
  const EngineSeen& engine = *seen.engine;
  told.failed = engine.failed, told.engine_size = engine.size, told.iops = engine.limits.iops, told.throughput = engine.limits.bytes_per_second;
  told.reads = engine.reads, told.writes = engine.writes, told.read_bytes = engine.read_bytes, told.written_bytes = engine.written_bytes, told.waited_ns = engine.waited_ns;
}

// Exactly the names that are asked for; what another has stays its own, and that is told.
Result<void> call(Machine& machine, const Showing& one, const std::string& device, const std::vector<std::string>& asked, std::vector<api::ToldName>& refused) {
  for (const std::string& name : asked)
    if (auto done = machine.link(one, name, device); !done) refused.push_back({.name = name, .message = std::move(done.error().message)});
  const auto now = machine.names(one);
  if (!now) return std::unexpected(now.error());
  for (const std::string& name : *now)
    if (!std::binary_search(asked.begin(), asked.end(), name))
      if (auto done = machine.unlink(one, name); !done) return done;
  return {};
}
// With those that are refused. An error: which there are is not known.
Result<void> fill_names(Machine& machine, const Showing& one, std::vector<api::ToldName> refused, api::ToldVolume& told) {
  const auto now = machine.names(one);
  if (!now) return std::unexpected(now.error());
  for (const std::string& name : *now)
    if (std::none_of(refused.begin(), refused.end(), [&](const api::ToldName& other) { return other.name == name; })) told.names.push_back({.name = name});
  told.names.insert(told.names.end(), refused.begin(), refused.end());
  return {};
}

Result<void> take(Machine& machine, const api::AskedVolume& asked, const Showing& one, const Next& next) {
  switch (next.what) {
    case Do::StartEngine: return machine.start_engine(asked);
    case Do::StopEngine: return machine.stop_engine(one);
    case Do::GrowEngine: return machine.grow_engine(one);
    case Do::SetLimits: return machine.limit(one, {.iops = asked.iops, .bytes_per_second = asked.throughput});
    case Do::Attach: return machine.attach(one, asked.read_only);
    case Do::GrowDevice: return machine.grow_device(one, next.device);
    case Do::Detach:
      // Once it is gone the kernel may show another volume by it.
      if (auto done = asked.show ? machine.cut(one) : machine.unlink_all(one); !done) return done;
      return machine.detach(one, next.device);
    default: return fail(Code::Internal, "a step that is not this machine's");
  }
}

}  // namespace

api::ToldVolume carry_out(Machine& machine, const api::AskedVolume& asked) {
  const Showing one{asked.id, asked.generation};
  api::ToldVolume out{.id = asked.id, .generation = asked.generation, .heard = true, .show = asked.show};
  std::vector<What> whats{asked.show ? What::Attach : What::Detach};
  if (asked.show) whats.push_back(What::Grow);
  Sight last;
  for (const What what : whats) {
    const Intent intent{.number = 1, .what = what, .id = asked.id, .size = asked.size, .before = 0, .source = {}, .of_snapshot = false, .node = {}, .owner = {}, .read_only = asked.read_only, .generation = asked.generation, .managed = true, .limits = {.iops = asked.iops, .bytes_per_second = asked.throughput}, .key = {}};
    Do before = Do::Nothing;
    for (int steps = 0; steps < most_steps && out.message.empty(); ++steps) {
      auto seen = machine.look(one);
      if (!seen) return {.id = asked.id, .generation = asked.generation, .heard = false, .show = asked.show, .message = seen.error().message};
      last = std::move(*seen);
      last.volume = FileSeen{.size = asked.size};
      // A device went without us: its names lead nowhere, or to what the kernel shows by it now.
      if (last.devices.empty())
        if (auto done = asked.show ? machine.cut(one) : machine.unlink_all(one); !done) {
          out.message = std::move(done.error().message);
          break;
        }
      // To ask is to hold it for a moment: only where it decides.
      if (!asked.show || !last.engine || last.engine->failed)
        for (DeviceSeen& device : last.devices) device.used = machine.is_used(device.name);
      const Next next = next_step(intent, last, false);
      if (next.what == Do::Nothing) break;
      if (next.what == Do::Stop || next.what == Do::Refuse) {
        out.message = next.why;
        break;
      }
      if (next.what == Do::GrowEngine && before == next.what) {
        out.message = "its image has not grown yet";
        break;
      }
      before = next.what;
      if (auto done = take(machine, asked, one, next); !done) out.message = std::move(done.error().message);
    }
    if (!out.message.empty()) break;
  }
  std::vector<api::ToldName> refused;
  if (asked.show && out.message.empty() && !last.devices.empty())
    if (auto done = call(machine, one, last.devices.front().name, asked.names, refused); !done) out.message = std::move(done.error().message);
  // After a step that failed what was seen before it may have changed.
  if (!out.message.empty()) {
    auto seen = machine.look(one);
    if (!seen) return {.id = asked.id, .generation = asked.generation, .heard = false, .show = asked.show, .message = seen.error().message};
    const auto used = last.devices.empty() ? std::nullopt : last.devices.front().used;
    last = std::move(*seen);
    if (!last.devices.empty()) last.devices.front().used = used;
  }
  fill(out, last);
  if (auto done = fill_names(machine, one, std::move(refused), out); !done) return {.id = asked.id, .generation = asked.generation, .heard = false, .show = asked.show, .message = done.error().message};
  return out;
}

api::ToldVolume tell_of(Machine& machine, const Showing& one) {
  api::ToldVolume out{.id = one.id, .generation = one.generation, .heard = false, .show = true};
  const auto seen = machine.look(one);
  if (seen) fill(out, *seen);
  else out.message = seen.error().message;
  if (auto done = fill_names(machine, one, {}, out); !done) out.message = std::move(done.error().message);
  return out;
}

}  // namespace fairlead::volumes
