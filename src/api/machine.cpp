// SPDX-License-Identifier: Apache-2.0
#include "api/machine.h"

#include <fmt/format.h>

#include "api/instance_types.h"
#include "kube/selector.h"

namespace fairlead::api {

using kube::Json;

namespace {

void read_quantity(Machine& out, const std::string& resource, const Json& value, const std::string& path) {
  auto quantity = kube::Quantity::from_json(value);
  if (!quantity || quantity->milli_value() < 0) {
    out.problems.push_back(fmt::format("{}: \"{}\" is not an amount such as 2, 500m or 4Gi", path, value.is_string() ? value.string() : kube::print_json(value)));
    return;
  }
  out.spec.capacity[resource] = quantity->text();
}

}  // namespace

namespace {

void read_local(Machine& out, const Json& local) {
  if (!local.is_object()) out.problems.push_back("spec.local: say how much of this machine it declares, e.g. {cpu: \"2\", memory: 4Gi}; or spec.host: {}, for a host that joins (fairlead node add)");
  read_quantity(out, "cpu", local.has("cpu") ? local["cpu"] : Json("1"), "spec.local.cpu");
  read_quantity(out, "memory", local.has("memory") ? local["memory"] : Json("2Gi"), "spec.local.memory");
  for (const auto& [resource, amount] : local["resources"].members()) {
    if (resource == "cpu" || resource == "memory") continue;  // said above, once
    read_quantity(out, resource, amount, "spec.local.resources." + resource);
  }
}

void read_host(Machine& out, const Json& spec) {
  const Json& host = spec["host"];
  HostSpec& into = out.spec.host.emplace();
  into.instance_type = host["instanceType"].string();
  if (!into.instance_type.empty() && find_instance_type(into.instance_type) == nullptr) out.problems.push_back(fmt::format("spec.host.instanceType: the API has no type {}", into.instance_type));
  into.token_hash = host["join"]["tokenHash"].string();
  if (auto end = parse_time(host["join"]["expires"].string())) into.token_expires = *end;
  into.address = host["address"].string();
  into.gone = host["gone"].boolean();
  // A common name has 64 characters at most (RFC 5280), and "system:node:" is 12 of them.
  if (out.name.size() > kLongestHostName) out.problems.push_back(fmt::format("metadata.name: of a host, {} characters at most", kLongestHostName));
  if (spec["local"].is_object()) out.problems.push_back("spec.host, spec.local: one of them");
  if (spec["link"].string() == "Cut") out.problems.push_back("spec.link: the network of a host is not ours to cut");
  if (spec["power"].string() == "Off") out.problems.push_back("spec.power: this host's power is not ours to switch: do it by its own means");
}

}  // namespace

Machine read_machine(const Json& object) {
  Machine out;
  out.name = kube::name_of(object);
  out.uid = kube::uid_of(object);
  out.generation = object["metadata"]["generation"].integer();
  out.deleting = kube::deleting(object);
  out.finalizer = kube::has_finalizer(object, kMachineFinalizer);

  if (const std::string wrong = kube::check_dns_label(out.name); !wrong.empty()) out.problems.push_back(fmt::format("metadata.name: a machine's name is a host name: {}", wrong));

  const Json& spec = object["spec"];
  if (spec["host"].is_object()) read_host(out, spec);
  else read_local(out, spec["local"]);
  for (const auto& [key, value] : spec["labels"].members()) {
    std::string wrong = kube::check_label_key(key);
    if (wrong.empty()) wrong = kube::check_label_value(value.string());
    if (wrong.empty())
      out.spec.labels[key] = value.string();
    else
      out.problems.push_back(fmt::format("spec.labels.{}: {}", key, wrong));
  }
  if (spec["taints"].is_array()) out.spec.taints = spec["taints"];
  out.spec.power = spec["power"].string() == "Off" ? Power::Off : Power::On;
  out.spec.link = spec["link"].string() == "Cut" ? Link::Cut : Link::Connected;

  // It is compared, kept and told of, no more.
  if (const Json& reboot = spec["reboot"]; !reboot.is_null()) {
    const std::string& id = reboot["id"].string();
    if (id.empty() || id.size() > 64) out.problems.push_back("spec.reboot.id: of 1 to 64 characters, another one for each reboot");
    else out.spec.reboot = id;
  }

  const Json& status = object["status"];
  const Json& noted = status["reboot"];
  out.reboot = RebootRecord{.id = noted["id"].string(), .phase = noted["phase"].string(), .message = noted["message"].string(), .pid = noted["was"]["pid"].integer(), .start_ticks = static_cast<std::uint64_t>(noted["was"]["startTicks"].integer())};
  out.seat = Seat{.index = static_cast<int>(status["index"].integer()), .address = status["address"].string(), .pod_cidr = status["podCIDR"].string()};
  // Both lists are there only where the site has two families, IPv4 first.
  const auto second = [](const Json& list) { return list.items().size() > 1 ? list.items()[1].string() : std::string(); };
  out.seat.address6 = second(status["addresses"]);
  out.seat.pod_cidr6 = second(status["podCIDRs"]);
  out.phase = status["phase"].string();
  const Json& host = status["host"];
  out.host = HostRecord{.key = host["key"].string(), .token_hash = host["token"].string(), .address = host["address"].string(), .joined = host["joined"].string()};
  out.reboot.boot = noted["was"]["boot"].string();
  if (auto began = parse_time(noted["began"].string())) out.reboot.began = *began;
  return out;
}

}  // namespace fairlead::api
