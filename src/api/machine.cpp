// SPDX-License-Identifier: Apache-2.0
#include "api/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

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

bool is_fingerprint(std::string_view text) { return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == text.npos; }

void read_bmc(Machine& out, const Json& bmc) {
  auto read = read_bmc_address(bmc["address"].string());
  if (!read) {
    out.problems.push_back("spec.host.bmc.address: " + read.error().message);
    return;
  }
  read->system = bmc["system"].string();
  read->secret = bmc["secret"].string();
  read->ca_pem = bmc["certificateAuthority"].string();
  read->server_key = bmc["key"].string();
  if (read->secret.empty()) out.problems.push_back("spec.host.bmc.secret: the name of a Secret that holds username and password of its BMC");
  if (!read->server_key.empty() && !is_fingerprint(read->server_key)) out.problems.push_back("spec.host.bmc.key: SHA-256 of a public key, 64 hexadecimal digits");
  if (read->kind == Bmc::Kind::Ipmi && !(read->system.empty() && read->ca_pem.empty() && read->server_key.empty())) out.problems.push_back("spec.host.bmc: system, key and certificateAuthority are Redfish's; IPMI has none of them");
  if (!read->server_key.empty() && !read->ca_pem.empty()) out.problems.push_back("spec.host.bmc: key, or certificateAuthority: one of them says whom to trust");
  out.spec.host->bmc = std::move(*read);
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
  if (host["bmc"].is_object()) read_bmc(out, host["bmc"]);
  into.shutdown = std::chrono::seconds(std::clamp<std::int64_t>(host["shutdownSeconds"].integer(), 0, 3600));
  if (spec["power"].string() == "Off" && !host["bmc"].is_object()) out.problems.push_back("spec.power: this host's power is not ours to switch: do it by its own means, or say where its BMC is (fairlead node bmc)");
}

PowerRecord read_power(const Json& from) {
  const auto time = [&](const char* member) -> std::optional<Instant> {
    auto parsed = parse_time(from[member].string());
    return parsed ? std::optional(*parsed) : std::nullopt;
  };
  return {.state = from["state"].string(), .want = from["want"].string(), .since = time("since"), .done = from["done"].boolean(), .act = from["act"].string(), .acted = time("acted"), .tries = static_cast<int>(from["tries"].integer()), .off_since = time("offSince"), .off_lease = from["offLease"].string(), .off_looked = time("offLooked"), .disbelieved = from["disbelieved"].boolean(), .proven = from["proven"].boolean(), .restart = from["restart"].string(), .restart_began = time("restartBegan"), .restarts = static_cast<int>(from["restarts"].integer()), .failed = from["failed"].string(), .board = from["board"].string(), .generation = from["generation"].integer(), .message = from["message"].string()};
}

}  // namespace

Result<Bmc> read_bmc_address(std::string_view text) {
  Bmc out;
  if (text.starts_with("https://")) text.remove_prefix(8);
  else if (text.starts_with("ipmi://")) text.remove_prefix(7), out.kind = Bmc::Kind::Ipmi, out.port = 623;
  else return fail(Code::Invalid, "https://ADDRESS (Redfish) or ipmi://ADDRESS is expected; without TLS the password would be seen by others");
  if (text.ends_with('/')) text.remove_suffix(1);
  std::string_view port;
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == text.npos || (end + 1 < text.size() && text[end + 1] != ':')) return fail(Code::Invalid, "an address of IPv6 stands in [ ]");
    if (end + 1 < text.size()) port = text.substr(end + 2);
    if (port.empty() && end + 1 < text.size()) return fail(Code::Invalid, "a port is expected after \":\"");
    out.host = text.substr(1, end - 1);
  } else {
    const std::size_t colon = text.find(':');
    out.host = text.substr(0, colon);
    if (colon != text.npos) {
      port = text.substr(colon + 1);
      if (port.empty()) return fail(Code::Invalid, "a port is expected after \":\"");
    }
  }
  if (out.host.empty() || out.host.size() > 253 || out.host.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-:") != out.host.npos || out.host.front() == '-') return fail(Code::Invalid, "a name or an address is expected, and nothing after it but a port");
  if (!port.empty()) {
    int number = 0;
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
    if (error != std::errc() || end != port.data() + port.size() || number < 1 || number > 65'535) return fail(Code::Invalid, "a port is a number from 1 to 65535");
    out.port = static_cast<unsigned short>(number);
  }
  return out;
}

Json power_json(const PowerRecord& record) {
  Json out = Json::object();
  const auto text = [&](const char* member, const std::string& value) { if (!value.empty()) out.set(member, value); };
  const auto time = [&](const char* member, const std::optional<Instant>& value) { if (value) out.set(member, print_time(*value)); };
  const auto number = [&](const char* member, int value) { if (value != 0) out.set(member, value); };
  const auto flag = [&](const char* member, bool value) { if (value) out.set(member, true); };
  text("state", record.state), text("want", record.want), time("since", record.since), flag("done", record.done), text("act", record.act), time("acted", record.acted), number("tries", record.tries);
  time("offSince", record.off_since), text("offLease", record.off_lease), time("offLooked", record.off_looked), flag("disbelieved", record.disbelieved), flag("proven", record.proven), text("restart", record.restart), time("restartBegan", record.restart_began), number("restarts", record.restarts);
  text("failed", record.failed), text("board", record.board), text("message", record.message);
  out.set("generation", record.generation);
  return out;
}

bool is_run_by_agent(const Json& node) { return node["status"]["nodeInfo"]["kubeletVersion"].string().find("-fairlead.") != std::string::npos; }

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
  out.reboot.silent = noted["was"]["silent"].boolean();
  out.power = read_power(status["power"]);
  if (auto began = parse_time(noted["began"].string())) out.reboot.began = *began;
  return out;
}

}  // namespace fairlead::api
