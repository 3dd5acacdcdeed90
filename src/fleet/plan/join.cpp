// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/join.h"

#include <fmt/format.h>

#include "api/instance_types.h"
#include "base/encoding.h"

namespace fairlead::fleet {

using kube::Json;

namespace {

JoinPlan refuse(int status, std::string why) { return {.status = status, .why = std::move(why), .record = {}}; }

// What the type has and the facts have not; empty: it is of that type, or is to be of none.
std::string lie(const std::string& type_name, const api::HostFacts& facts) {
  const api::InstanceType* type = type_name.empty() ? nullptr : api::find_instance_type(type_name);
  if (type == nullptr) return "";
  if (!facts.architecture.empty() && (facts.architecture == "aarch64") != type->arm) return fmt::format("{} has processors of {}; this machine has {}", type->name, type->arm ? "aarch64" : "x86_64", facts.architecture);
  Json capacity = Json::object();
  for (const auto& [resource, amount] : api::capacity_of(facts)) capacity.set(resource, amount);
  return api::why_not_of_type(*type, Json::object({{"status", Json::object({{"capacity", std::move(capacity)}})}}));
}

// Labels by which others decide what comes to a node, or what it is sold as.
bool is_decisive(const std::string& key) {
  const std::string domain = key.substr(0, key.find('/'));
  const auto within = [&](const std::string& parent) { return domain == parent || domain.ends_with("." + parent); };
  return key == api::kInstanceTypeLabel || (key.find('/') != std::string::npos && (within("fairlead.dev") || within("sagemaker.amazonaws.com")));
}

}  // namespace

bool is_token_of(const std::optional<api::Machine>& machine, const std::string& secret) {
  const bool open = machine && machine->spec.host && !machine->deleting && !machine->spec.host->token_hash.empty();
  return equal_in_constant_time(open ? machine->spec.host->token_hash : "", api::hash_of_secret(secret)) && open;
}

JoinPlan plan_join(const JoinView& view, const api::JoinRequest& request, const std::string& key, Instant now) {
  if (!is_token_of(view.machine, request.secret))
    return refuse(401, "this token is not known here: another was made after it, its machine was deleted, or it is of another site; `fairlead node add NAME` makes one");
  const api::Machine& machine = *view.machine;
  const std::string hash = api::hash_of_secret(request.secret), &address = request.facts.address;
  const api::HostSpec& wanted = *machine.spec.host;
  const api::HostRecord& there = machine.host;
  if (there.token_hash == hash && there.key != key)
    return refuse(409, fmt::format("this token was used before: at {} by a host at {}. If that was not you, somebody else has it: `fairlead node remove {} --force` shuts that host out", there.joined, there.address, machine.name));
  if (!wanted.token_expires || now >= *wanted.token_expires) return refuse(401, fmt::format("this token has ended{}: `fairlead node add {}` makes another", wanted.token_expires ? " at " + print_time(*wanted.token_expires) : "", machine.name));
  if (!machine.problems.empty()) return refuse(422, fmt::format("machine {} is not in order: {}", machine.name, machine.problems.front()));
  if (view.node && (*view.node)["metadata"]["labels"][api::kHostLabel].string() != "true") return refuse(409, fmt::format("there is a node {} that did not join by a token: choose another name", machine.name));
  if (const std::string why = lie(wanted.instance_type, request.facts); !why.empty()) return refuse(422, why + fmt::format("; `fairlead node add {} --type` names another", machine.name));
  if (!wanted.address.empty() && wanted.address != address) return refuse(422, fmt::format("machine {} is to have the address {}, not {}", machine.name, wanted.address, address));
  // Its certificate is one of a server at that address, which nobody may get for an address that he does not have.
  if (wanted.address.empty() && address != view.from) return refuse(422, fmt::format("this request comes from {}, not from {}: `fairlead node add {} --address {}` lets it come by another way", view.from, address, machine.name, address));
  if (wanted.address.empty() && !view.address_trouble.empty()) return refuse(422, fmt::format("{}; if this host is meant to have it: `fairlead node add {} --address {}`", view.address_trouble, machine.name, address));
  for (const api::Machine& other : view.others)
    if (other.name != machine.name && (other.seat.address == address || other.host.address == address)) return refuse(409, fmt::format("machine {} has the address {} already", other.name, address));
  if (machine.seat.index == 0) return refuse(503, fmt::format("machine {} gets its addresses for pods in a moment", machine.name));
  JoinPlan out;
  const bool same = there.key == key && there.token_hash == hash && there.address == address;
  if (!same) out.record = Json::object({{"key", key}, {"token", hash}, {"address", address}, {"joined", print_time(now)}, {"facts", to_json(request.facts)}});
  return out;
}

std::string why_not_host(const std::optional<api::Machine>& machine, std::string_view key) {
  if (!machine || !machine->spec.host || machine->deleting) return "its machine is not of this site any more";
  if (key.empty() || !equal_in_constant_time(machine->host.key, key)) return "its machine has joined anew since, by another key";
  return "";
}

std::string why_not_own_node(const api::Machine& machine, const Json* old, const Json& next) {
  static const Json none = Json::object();
  const Json& before = old == nullptr ? none : *old;
  std::vector<std::string> ranges{next["spec"]["podCIDR"].string()};
  for (const Json& range : next["spec"]["podCIDRs"].items()) ranges.push_back(range.string());
  for (const std::string& range : ranges)
    if (!range.empty() && range != machine.seat.pod_cidr) return fmt::format("the range of its pods is {}, not {}", machine.seat.pod_cidr, range);
  for (const Json& address : next["status"]["addresses"].items())
    if (address["type"].string() == "InternalIP" && address["address"].string() != machine.host.address) return fmt::format("its address is {}, not {}", machine.host.address, address["address"].string());
  const auto given = [&](const std::string& key, const std::string& value) {
    if (key == api::kHostLabel) return value == "true";
    if (key == api::kInstanceTypeLabel && machine.spec.host && !machine.spec.host->instance_type.empty()) return value == machine.spec.host->instance_type;
    const auto found = machine.spec.labels.find(key);
    return found != machine.spec.labels.end() && found->second == value;
  };
  for (const auto& [key, value] : next["metadata"]["labels"].members())
    if (is_decisive(key) && !(before["metadata"]["labels"][key] == value) && !given(key, value.string())) return fmt::format("label {} is given by its Machine (spec.labels)", key);
  for (const auto& [key, value] : before["metadata"]["labels"].members())
    if (is_decisive(key) && !next["metadata"]["labels"].has(key)) return fmt::format("label {} is not its own to take away", key);
  return "";
}

}  // namespace fairlead::fleet
