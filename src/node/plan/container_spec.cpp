// SPDX-License-Identifier: Apache-2.0
#include "node/plan/container_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/encoding.h"
#include "kube/object.h"
#include "kube/selector.h"

namespace fairlead::node {
namespace {
using kube::Json;
using Variables = std::vector<std::pair<std::string, std::string>>;

void put(Variables& variables, const std::string& key, std::string value) {
  for (auto& [name, old] : variables) {
    if (name != key) continue;
    old = std::move(value);
    return;
  }
  variables.emplace_back(key, std::move(value));
}

bool variable_name(std::string_view text) {
  return !text.empty() && text.find_first_of("=\n") == std::string_view::npos && text.find('\0') == std::string_view::npos;
}

// The bytes of one key; Secret data is base64.
Result<std::string> data_of(const Json& object, const std::string& key, bool secret) {
  if (const Json* text = object["data"].find(key)) {
    if (!secret) return text->string();
    return parse_base64(text->string());
  }
  if (!secret)
    if (const Json* bytes = object["binaryData"].find(key)) return parse_base64(bytes->string());
  return fail(Code::NotFound, "couldn't find key " + key + " in " + (secret ? "Secret " : "ConfigMap ") + kube::key_of(object).text());
}

Result<std::optional<std::string>> key_reference(const Json& reference, bool secret, const EnvironmentSources& sources) {
  const bool optional = reference["optional"].boolean();
  auto object = (secret ? sources.secret : sources.config_map)(reference["name"].string());
  if (!object) {
    if (optional && object.error().code == Code::NotFound) return std::optional<std::string>();
    return std::unexpected(std::move(object.error()));
  }
  auto value = data_of(*object, reference["key"].string(), secret);
  if (!value) {
    if (optional && value.error().code == Code::NotFound) return std::optional<std::string>();
    return std::unexpected(std::move(value.error()));
  }
  return std::optional(std::move(*value));
}

Result<void> add_all_of(Variables& variables, const Json& source, const EnvironmentSources& sources) {
  for (const bool secret : {false, true}) {
    const Json& reference = source[secret ? "secretRef" : "configMapRef"];
    if (!reference.is_object()) continue;
    auto object = (secret ? sources.secret : sources.config_map)(reference["name"].string());
    if (!object) {
      if (reference["optional"].boolean() && object.error().code == Code::NotFound) continue;
      return std::unexpected(std::move(object.error()));
    }
    for (const auto& [key, unused] : (*object)["data"].members()) {
      const std::string name = source["prefix"].string() + key;
      if (!variable_name(name)) continue;
      auto value = data_of(*object, key, secret);
      if (!value) return std::unexpected(std::move(value.error()));
      put(variables, name, std::move(*value));
    }
  }
  return {};
}

std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

// Security settings: the container's own, else the pod's.
const Json& setting(const Json& pod, const Json& container, const char* key) {
  const Json& own = container["securityContext"][key];
  return own.is_null() ? pod["spec"]["securityContext"][key] : own;
}

struct User {
  std::int64_t uid = 0, gid = 0;
  std::string name;
};

Result<User> image_user(const std::string& text, const Accounts& accounts) {
  User out;
  const auto colon = text.find(':');
  const std::string user = text.substr(0, colon);
  const std::string group = colon == std::string::npos ? "" : text.substr(colon + 1);
  bool found = false;
  const auto id = number(user);
  for (const std::string& line : split(accounts.passwd, '\n')) {
    const auto fields = split(line, ':');
    if (fields.size() < 4 || found) continue;
    if (id ? number(fields[2]) != id : fields[0] != user) continue;
    out = {.uid = number(fields[2]).value_or(0), .gid = number(fields[3]).value_or(0), .name = fields[0]};
    found = true;
  }
  if (!found && !id && !user.empty()) return fail(Code::Invalid, "the image has no user \"" + user + "\"");
  if (!found && id) out.uid = *id;
  if (!group.empty()) {
    if (const auto gid = number(group)) {
      out.gid = *gid;
    } else {
      bool known = false;
      for (const std::string& line : split(accounts.group, '\n')) {
        const auto fields = split(line, ':');
        if (fields.size() < 3 || fields[0] != group) continue;
        out.gid = number(fields[2]).value_or(0);
        known = true;
      }
      if (!known) return fail(Code::Invalid, "the image has no group \"" + group + "\"");
    }
  }
  return out;
}

const std::vector<std::string>& default_capabilities() {
  static const std::vector<std::string> names{
      "CAP_CHOWN",  "CAP_DAC_OVERRIDE", "CAP_FSETID",  "CAP_FOWNER",           "CAP_MKNOD",      "CAP_NET_RAW", "CAP_SETGID",
      "CAP_SETUID", "CAP_SETFCAP",      "CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT", "CAP_KILL",    "CAP_AUDIT_WRITE"};
  return names;
}

std::string capability_name(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text.starts_with("CAP_") ? text : "CAP_" + text;
}

std::vector<std::string> capabilities_of(const Json& container, bool privileged, const std::vector<std::string>& held) {
  if (privileged) return held;
  std::vector<std::string> names = default_capabilities();
  const Json& asked = container["securityContext"]["capabilities"];
  const auto has_all = [](const Json& list) {
    return std::any_of(list.items().begin(), list.items().end(), [](const Json& item) { return capability_name(item.string()) == "CAP_ALL"; });
  };
  if (has_all(asked["add"])) names = held;
  if (has_all(asked["drop"])) names.clear();
  for (const Json& item : asked["drop"].items()) std::erase(names, capability_name(item.string()));
  for (const Json& item : asked["add"].items()) {
    const std::string name = capability_name(item.string());
    if (name != "CAP_ALL" && std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  std::erase_if(names, [&](const std::string& name) { return std::find(held.begin(), held.end(), name) == held.end(); });
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<kube::Quantity> quantity(const Json& value) {
  if (value.is_null()) return std::nullopt;
  auto parsed = kube::Quantity::from_json(value);
  if (!parsed) return std::nullopt;
  return *parsed;
}

}  // namespace

std::string container_id(const std::string& pod_uid, const std::string& name, int attempt) {
  return hex(sha256(fmt::format("{}/{}/{}", pod_uid, name, attempt))).substr(0, 32);
}

Variables service_variables(const std::vector<Json>& services, const std::string& space, bool links) {
  Variables out;
  for (const Json& service : services) {
    const std::string& name = kube::name_of(service);
    const bool master = name == "kubernetes" && kube::space_of(service) == "default";
    if (!master && (!links || kube::space_of(service) != space)) continue;
    const std::string& address = service["spec"]["clusterIP"].string();
    const auto& ports = service["spec"]["ports"].items();
    if (address.empty() || address == "None" || ports.empty()) continue;
    std::string prefix = name;
    std::transform(prefix.begin(), prefix.end(), prefix.begin(), [](unsigned char c) { return c == '-' ? '_' : static_cast<char>(std::toupper(c)); });
    put(out, prefix + "_SERVICE_HOST", address);
    put(out, prefix + "_SERVICE_PORT", std::to_string(ports[0]["port"].integer()));
    for (const Json& port : ports) {
      std::string port_name = port["name"].string();
      std::transform(port_name.begin(), port_name.end(), port_name.begin(),
                     [](unsigned char c) { return c == '-' ? '_' : static_cast<char>(std::toupper(c)); });
      if (!port_name.empty()) put(out, prefix + "_SERVICE_PORT_" + port_name, std::to_string(port["port"].integer()));
    }
    // The names of links of old container engines, which programs still read.
    for (const Json& port : ports) {
      std::string protocol = port["protocol"].string_or("TCP");
      const std::string number = std::to_string(port["port"].integer());
      std::string lower = protocol;
      std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      const std::string url = fmt::format("{}://{}:{}", lower, address.find(':') == std::string::npos ? address : "[" + address + "]", number);
      const std::string link = fmt::format("{}_PORT_{}_{}", prefix, number, protocol);
      if (&port == &ports[0]) put(out, prefix + "_PORT", url);
      put(out, link, url);
      put(out, link + "_PROTO", lower);
      put(out, link + "_PORT", number);
      put(out, link + "_ADDR", address);
    }
  }
  return out;
}

std::string expand(const std::string& text, const Variables& variables) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] != '$' || i + 1 == text.size()) {
      out += text[i++];
      continue;
    }
    if (text[i + 1] == '$') {  // an escaped dollar
      out += '$';
      i += 2;
      continue;
    }
    const auto close = text[i + 1] == '(' ? text.find(')', i + 2) : std::string::npos;
    if (close == std::string::npos) {
      out += text[i++];
      continue;
    }
    const std::string name = text.substr(i + 2, close - i - 2);
    const auto it = std::find_if(variables.begin(), variables.end(), [&](const auto& variable) { return variable.first == name; });
    out += it == variables.end() ? text.substr(i, close + 1 - i) : it->second;
    i = close + 1;
  }
  return out;
}

Result<std::string> field_value(const Json& pod, const std::string& path, const EnvironmentSources& sources) {
  const Json& meta = pod["metadata"];
  for (const char* map : {"labels", "annotations"}) {
    const std::string prefix = std::string("metadata.") + map;
    if (path == prefix) {
      std::string out;
      std::map<std::string, std::string> sorted;
      for (const auto& [key, value] : meta[map].members()) sorted[key] = value.string();
      for (const auto& [key, value] : sorted) out += key + "=" + kube::print_json(Json(value)) + "\n";
      if (!out.empty()) out.pop_back();
      return out;
    }
    if (path.starts_with(prefix + "['") && path.ends_with("']"))
      return meta[map][path.substr(prefix.size() + 2, path.size() - prefix.size() - 4)].string();
  }
  if (path == "metadata.name" || path == "metadata.namespace" || path == "metadata.uid") return meta[path.substr(9)].string();
  if (path == "spec.nodeName") return sources.node_name;
  if (path == "spec.serviceAccountName") return pod["spec"]["serviceAccountName"].string_or("default");
  const auto first = [](const std::string& list) { return list.substr(0, list.find(',')); };
  if (path == "status.hostIP") return first(sources.host_ip);
  if (path == "status.hostIPs") return sources.host_ip;
  if (path == "status.podIP") return first(sources.pod_ip);
  if (path == "status.podIPs") return sources.pod_ip;
  return fail(Code::Invalid, "unsupported fieldPath: " + path);
}

Result<std::string> resource_value(const Json& pod, const std::string& own_container, const Json& reference, const EnvironmentSources& sources) {
  const std::string name = reference["containerName"].string_or(own_container);
  const std::string& resource = reference["resource"].string();
  const auto divisor = quantity(reference["divisor"]);
  for (const char* list : {"containers", "initContainers"}) {
    for (const Json& container : pod["spec"][list].items()) {
      if (container["name"].string() != name) continue;
      const auto dot = resource.find('.');
      const std::string kind = resource.substr(0, dot), what = dot == std::string::npos ? "" : resource.substr(dot + 1);
      if ((kind != "limits" && kind != "requests") ||
          (what != "cpu" && what != "memory" && what != "ephemeral-storage" && !what.starts_with("hugepages-")))
        return fail(Code::Invalid, "unsupported resource: " + resource);
      auto amount = quantity(container["resources"][kind][what]);
      // As Kubernetes: a limit that is not set is what the node has.
      std::int64_t units = 0;
      if (what == "cpu") {
        const std::int64_t milli = amount ? amount->milli_value() : kind == "limits" ? sources.node_cpu.value : 0;
        const std::int64_t by = divisor && divisor->milli_value() > 0 ? divisor->milli_value() : 1000;
        units = (milli + by - 1) / by;
      } else {
        const std::int64_t bytes = amount                                            ? amount->value()
                                   : kind == "limits" && what == "memory"            ? sources.node_memory.value
                                   : kind == "limits" && what == "ephemeral-storage" ? sources.node_storage.value
                                                                                     : 0;
        const std::int64_t by = divisor && divisor->value() > 0 ? divisor->value() : 1;
        units = (bytes + by - 1) / by;
      }
      return std::to_string(units);
    }
  }
  return fail(Code::Invalid, "container " + name + " not found");
}

Result<Variables> make_environment(const Json& pod, const Json& container, const EnvironmentSources& sources) {
  Variables out = sources.services;
  for (const Json& source : container["envFrom"].items())
    if (auto added = add_all_of(out, source, sources); !added) return std::unexpected(std::move(added.error()));
  for (const Json& item : container["env"].items()) {
    const std::string& name = item["name"].string();
    const Json& from = item["valueFrom"];
    if (!from.is_object()) {
      put(out, name, expand(item["value"].string(), out));
      continue;
    }
    Result<std::optional<std::string>> value = std::optional<std::string>();
    if (const Json& reference = from["configMapKeyRef"]; reference.is_object()) {
      value = key_reference(reference, false, sources);
    } else if (const Json& secret = from["secretKeyRef"]; secret.is_object()) {
      value = key_reference(secret, true, sources);
    } else {
      auto text = from["fieldRef"].is_object() ? field_value(pod, from["fieldRef"]["fieldPath"].string(), sources)
                                               : resource_value(pod, container["name"].string(), from["resourceFieldRef"], sources);
      if (!text) return std::unexpected(std::move(text.error()));
      value = std::optional(std::move(*text));
    }
    if (!value) return std::unexpected(std::move(value.error()));
    if (*value) put(out, name, std::move(**value));
  }
  return out;
}

Limits container_limits(const Json& container) {
  Limits out;
  const Json& limits = container["resources"]["limits"];
  const Json& requests = container["resources"]["requests"];
  const auto cpu = quantity(limits["cpu"]);
  const auto requested = quantity(requests["cpu"].is_null() ? limits["cpu"] : requests["cpu"]);
  if (cpu && cpu->milli_value() > 0) out.cpu = MilliCpu{cpu->milli_value()};
  out.cpu_shares = std::clamp<std::int64_t>((requested ? requested->milli_value() : 0) * 1024 / 1000, 2, 262144);
  if (const auto memory = quantity(limits["memory"]); memory && memory->value() > 0) out.memory = Bytes{memory->value()};
  return out;
}

Limits pod_limits(const Json& pod, std::int64_t pids) {
  // Absent: without a limit, which spreads to every sum that it is part of.
  struct Sum {
    std::int64_t shares = 0;
    std::optional<MilliCpu> cpu = MilliCpu{0};
    std::optional<Bytes> memory = Bytes{0};
    void add(const Limits& one) {
      shares += one.cpu_shares.value_or(0);
      if (cpu && one.cpu) cpu->value += one.cpu->value;
      if (memory && one.memory) memory->value += one.memory->value;
      if (!one.cpu) cpu.reset();
      if (!one.memory) memory.reset();
    }
    void at_least(const Sum& other) {
      shares = std::max(shares, other.shares);
      if (cpu && other.cpu) cpu->value = std::max(cpu->value, other.cpu->value);
      if (memory && other.memory) memory->value = std::max(memory->value, other.memory->value);
      if (!other.cpu) cpu.reset();
      if (!other.memory) memory.reset();
    }
  };
  // Init containers run one by one, beside the sidecars that were started before them; main containers beside all sidecars.
  Sum sidecars, most;
  for (const Json& container : pod["spec"]["initContainers"].items()) {
    Sum now = sidecars;
    now.add(container_limits(container));
    if (container["restartPolicy"].string() == "Always") sidecars = now;
    most.at_least(now);
  }
  Sum mains = sidecars;
  for (const Json& container : pod["spec"]["containers"].items()) mains.add(container_limits(container));
  most.at_least(mains);
  Limits out{.cpu_shares = std::clamp<std::int64_t>(most.shares, 2, 262144), .cpu = most.cpu, .memory = most.memory, .pids = pids};
  if (out.cpu && out.cpu->value == 0) out.cpu.reset();
  if (out.memory && out.memory->value == 0) out.memory.reset();
  return out;
}

Result<ContainerSpec> make_container_spec(const Json& pod, const Json& container, int attempt, const ImageConfig& image, const Accounts& accounts,
                                          const EnvironmentSources& sources, const std::vector<std::string>& held) {
  ContainerSpec out;
  out.pod_uid = kube::uid_of(pod);
  out.name = container["name"].string();
  out.attempt = attempt;
  out.id = container_id(out.pod_uid, out.name, attempt);
  out.image = image;

  auto variables = make_environment(pod, container, sources);
  if (!variables) return std::unexpected(std::move(variables.error()));
  Variables all;
  put(all, "PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
  if (container["tty"].boolean()) put(all, "TERM", "xterm");
  put(all, "HOSTNAME", pod["spec"]["hostname"].string_or(kube::name_of(pod)));
  for (const std::string& item : image.env) {
    const auto equals = item.find('=');
    if (equals != std::string::npos) put(all, item.substr(0, equals), item.substr(equals + 1));
  }
  for (const auto& [key, value] : *variables) put(all, key, value);

  for (const Json& item : container["command"].items()) out.argv.push_back(expand(item.string(), *variables));
  if (out.argv.empty()) {
    out.argv = image.entrypoint;
    if (container["args"].items().empty()) out.argv.insert(out.argv.end(), image.cmd.begin(), image.cmd.end());
  }
  for (const Json& item : container["args"].items()) out.argv.push_back(expand(item.string(), *variables));
  if (out.argv.empty()) return fail(Code::Invalid, "neither the container nor its image " + image.reference + " names a command");

  out.cwd = container["workingDir"].string_or(image.working_dir);
  if (out.cwd.empty()) out.cwd = "/";

  // The user: securityContext before the image's.
  auto user = image_user(image.user, accounts);
  if (!user) return std::unexpected(std::move(user.error()));
  const Json& as_user = setting(pod, container, "runAsUser");
  if (as_user.is_number()) {
    auto known = image_user(std::to_string(as_user.integer()), accounts);
    if (!known) return std::unexpected(std::move(known.error()));
    *user = *known;
  }
  if (const Json& as_group = setting(pod, container, "runAsGroup"); as_group.is_number()) user->gid = as_group.integer();
  out.uid = user->uid;
  out.gid = user->gid;
  if (setting(pod, container, "runAsNonRoot").boolean() && out.uid == 0)
    return fail(Code::Invalid, "container has runAsNonRoot and would run as root (uid 0)");
  const auto add_group = [&](std::int64_t gid) {
    if (std::find(out.groups.begin(), out.groups.end(), gid) == out.groups.end()) out.groups.push_back(gid);
  };
  // The primary group is among the others, as a login has it: file modes that deny a group must not be got around by lacking it.
  add_group(out.gid);
  if (!user->name.empty()) {
    for (const std::string& line : split(accounts.group, '\n')) {
      const auto fields = split(line, ':');
      if (fields.size() < 4) continue;
      const auto members = split(fields[3], ',');
      if (std::find(members.begin(), members.end(), user->name) != members.end())
        if (const auto gid = number(fields[2])) add_group(*gid);
    }
  }
  const Json& pod_security = pod["spec"]["securityContext"];
  for (const Json& gid : pod_security["supplementalGroups"].items()) add_group(gid.integer());
  if (pod_security["fsGroup"].is_number()) add_group(pod_security["fsGroup"].integer());
  if (std::none_of(all.begin(), all.end(), [](const auto& item) { return item.first == "HOME"; })) {
    std::string home = out.uid == 0 ? "/root" : "/";
    for (const std::string& line : split(accounts.passwd, '\n')) {
      const auto fields = split(line, ':');
      if (fields.size() >= 6 && number(fields[2]) == out.uid) {
        home = fields[5];
        break;
      }
    }
    put(all, "HOME", home);
  }
  for (const auto& [key, value] : all) out.env.push_back(key + "=" + value);

  const Json& security = container["securityContext"];
  out.privileged = security["privileged"].boolean();
  out.capabilities = capabilities_of(container, out.privileged, held);
  // Kubernetes: privileged and CAP_SYS_ADMIN imply escalation.
  out.no_new_privileges = !security["allowPrivilegeEscalation"].boolean(true) && !out.privileged;
  out.read_only_root = security["readOnlyRootFilesystem"].boolean();
  out.seccomp = !out.privileged && setting(pod, container, "seccompProfile")["type"].string() != "Unconfined";
  out.unmasked_proc = out.privileged || security["procMount"].string() == "Unmasked";
  out.host_network = pod["spec"]["hostNetwork"].boolean();
  out.host_pid = pod["spec"]["hostPID"].boolean();
  out.host_ipc = pod["spec"]["hostIPC"].boolean();
  for (const Json& item : pod_security["sysctls"].items()) out.sysctls[item["name"].string()] = item["value"].string();
  out.limits = container_limits(container);
  out.in = container["stdin"].boolean();
  out.in_once = container["stdinOnce"].boolean();
  out.terminal = container["tty"].boolean();
  out.share_processes = pod["spec"]["shareProcessNamespace"].boolean() && !out.host_pid;
  out.termination_path = container["terminationMessagePath"].string_or("/dev/termination-log");
  out.termination_from_log = container["terminationMessagePolicy"].string() == "FallbackToLogsOnError";
  return out;
}

}  // namespace fairlead::node
