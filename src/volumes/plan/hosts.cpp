// SPDX-License-Identifier: Apache-2.0
#include "volumes/plan/hosts.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/volume.h"
#include "kube/selector.h"

namespace fairlead::volumes {
namespace {

const api::ToldVolume* told_of(const api::VolumeHostFacts& host, const api::AskedVolume& asked) {
  for (const api::ToldVolume& one : host.told)
    if (one.id == asked.id && one.generation == asked.generation) return &one;
  return nullptr;
}
bool answers(const api::ToldVolume& told, const api::AskedVolume& asked) { return told.heard && told.show == asked.show; }

// Unavailable: it is not known, silent, or has not answered.
Result<const api::ToldVolume*> answer_of(const std::optional<HostSeen>& host, const Asked& asked, const std::string& pool_id) {
  if (!host) return fail(Code::Unavailable, fmt::format("{} is on the machine {}, which is not known: start `fairlead-volumes host` there", asked.volume.id, asked.host));
  if (host->silent) return fail(Code::Unavailable, fmt::format("the machine {} is silent since {}: what it has of {} is not known, and is left as it is", asked.host, *host->silent, asked.volume.id));
  const api::ToldVolume* const told = host->facts.told_pool_id == pool_id ? told_of(host->facts, asked.volume) : nullptr;
  if (told == nullptr || !answers(*told, asked.volume)) return std::unexpected(not_yet(host, asked));
  return told;
}

}  // namespace

std::vector<Asked> asked_for(const std::string& id, const Entry& entry, const std::map<std::int64_t, Intent>& under_way, const std::set<std::string>& leaving) {
  std::map<std::string, Asked> out;
  const auto at = [&](const std::string& host, std::int64_t generation, bool read_only) -> Asked& {
    const auto [one, fresh] = out.try_emplace(host);
    if (fresh) one->second = {.host = host, .volume = {.id = id, .generation = generation, .show = true, .read_only = read_only, .encrypted = !entry.key.empty(), .size = entry.size, .iops = entry.limits.iops, .throughput = entry.limits.bytes_per_second}, .nodes = entry.nodes_on(host)};
    return one->second;
  };
  for (const auto& [host, place] : entry.places)
    if (!host.empty()) at(host, place.shown, entry.read_only);
  for (const auto& [number, one] : under_way) {
    if (one.id != id || one.what != What::Attach || one.host.empty()) continue;
    Asked& asked = at(one.host, one.generation, one.read_only);
    asked.nodes.insert(one.node);
    if (!entry.places.contains(one.host)) asked.volume.show = !leaving.contains(one.host);
  }
  for (const auto& [number, one] : under_way) {
    if (one.id != id) continue;
    if (one.what == What::Detach)
      if (const auto found = out.find(entry.host_of(one.node)); found != out.end()) found->second.volume.show = false;
    if (one.what == What::Limit)
      for (auto& [host, asked] : out) asked.volume.iops = one.limits.iops, asked.volume.throughput = one.limits.bytes_per_second;
  }
  std::vector<Asked> all;
  for (auto& [host, asked] : out) {
    if (!asked.volume.show) asked.volume = {.id = id, .generation = asked.volume.generation, .show = false};
    all.push_back(std::move(asked));
  }
  return all;
}

std::vector<api::AskedVolume> all_asked(std::vector<api::AskedVolume> wanted, const api::VolumeHostFacts& host, const std::string& pool_id) {
  for (const api::ToldVolume& told : host.told)
    if (told.there() && host.told_pool_id == pool_id && std::none_of(wanted.begin(), wanted.end(), [&](const api::AskedVolume& one) { return one.id == told.id && one.generation == told.generation; })) wanted.push_back({.id = told.id, .generation = told.generation, .show = false});
  std::sort(wanted.begin(), wanted.end(), [](const api::AskedVolume& a, const api::AskedVolume& b) { return std::tie(a.id, a.generation) < std::tie(b.id, b.generation); });
  return wanted;
}

Result<Sight> seen_there(const std::optional<HostSeen>& host, const Asked& asked, const std::string& pool_id) {
  const auto answer = answer_of(host, asked, pool_id);
  if (!answer) return std::unexpected(answer.error());
  const api::ToldVolume* const told = *answer;
  // What is gone has no names: they go first.
  if (!asked.volume.show && !told->names.empty()) return std::unexpected(not_yet(host, asked));
  Sight out;
  if (!told->device.empty()) out.devices.push_back({.name = told->device, .size = told->device_size, .used = told->used});
  if (told->engine) out.engine = EngineSeen{.size = told->engine_size, .limits = {.iops = told->iops, .bytes_per_second = told->throughput}, .failed = told->failed, .reads = told->reads, .writes = told->writes, .read_bytes = told->read_bytes, .written_bytes = told->written_bytes, .waited_ns = told->waited_ns};
  return out;
}

Error not_yet(const std::optional<HostSeen>& host, const Asked& asked) {
  const api::ToldVolume* const told = host ? told_of(host->facts, asked.volume) : nullptr;
  if (told != nullptr && answers(*told, asked.volume) && !told->message.empty()) return {Code::Unavailable, fmt::format("on the machine {}: {}", asked.host, told->message)};
  return {Code::Unavailable, fmt::format("the machine {} is asked to {} {}, and has not yet", asked.host, asked.volume.show ? "show" : "take away", asked.volume.id)};
}

Result<void> has_name(const std::optional<HostSeen>& host, const Asked& asked, const std::string& name, const std::string& pool_id) {
  const auto told = answer_of(host, asked, pool_id);
  if (!told) return std::unexpected(told.error());
  for (const api::ToldName& one : (*told)->names)
    if (one.name == name) return one.message.empty() ? Result<void>() : Result<void>(fail(Code::Exists, fmt::format("on the machine {}: {}", asked.host, one.message)));
  return fail(Code::Unavailable, fmt::format("the machine {} is asked to call {} {}, and has not yet", asked.host, asked.volume.id, name));
}

Result<void> has_not_name(const std::optional<HostSeen>& host, const Asked& asked, const std::string& name, const std::string& pool_id) {
  const auto told = answer_of(host, asked, pool_id);
  if (!told) return std::unexpected(told.error());
  for (const api::ToldName& one : (*told)->names)
    if (one.name == name && one.message.empty()) return fail(Code::Unavailable, fmt::format("the machine {} is asked to call {} {} no more, and has not yet", asked.host, asked.volume.id, name));
  return {};
}

Result<std::string> host_of(const std::string& node, const std::map<std::string, std::string>& labels, const std::vector<api::VolumeHostFacts>& hosts) {
  std::string out;
  for (const api::VolumeHostFacts& one : hosts) {
    const auto parsed = kube::LabelSelector::parse(one.node_selector);
    if (!parsed || !(one.node_selector.empty() ? api::pool_name_for(node) == one.host : parsed->matches(labels))) continue;
    if (!out.empty()) return fail(Code::Conflict, fmt::format("node {} is on one machine, and the selectors of {} and {} both have it (VolumeHost)", node, out, one.host));
    out = one.host;
  }
  return out;
}

}  // namespace fairlead::volumes
