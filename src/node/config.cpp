// SPDX-License-Identifier: Apache-2.0
#include "node/config.h"

#include <arpa/inet.h>

#include "base/files.h"
#include "kube/selector.h"

namespace fairlead::node {
using kube::Json;

Result<NodeConfig> parse_node_config(const std::string& text) {
  auto json = kube::parse_json(text);
  if (!json) return std::unexpected(std::move(json.error()));
  NodeConfig out;
  bool metadata_said = false;
  const std::map<std::string, std::string*> required{
      {"node_name", &out.node_name},   {"node_ip", &out.node_ip},         {"pod_cidr", &out.pod_cidr},          {"api_server", &out.api_server},
      {"ca_file", &out.ca_file},       {"cert_file", &out.cert_file},     {"key_file", &out.key_file},          {"node_dir", &out.node_dir},
      {"images_dir", &out.images_dir}, {"volumes_dir", &out.volumes_dir}, {"cgroup_parent", &out.cgroup_parent}};
  const std::map<std::string, std::string*> optional{
      {"run_dir", &out.run_dir},
      {"node_ip6", &out.node_ip6},
      {"pod_cidr6", &out.pod_cidr6},
      {"bridge", &out.bridge},
      {"fabric_interface", &out.fabric_interface},
      {"cluster_domain", &out.cluster_domain},
      {"serving_cert_file", &out.serving_cert_file},
      {"serving_key_file", &out.serving_key_file},
      {"client_ca_file", &out.client_ca_file},
      {"reboot_command", &out.reboot_command},
      {"companion_dir", &out.companion_dir},
      {"boot_id_file", &out.boot_id_file},
      {"pods_range", &out.pods_range}};
  for (const auto& [key, value] : json->members()) {
    const auto is = required.find(key), may = optional.find(key);
    if (is != required.end() || may != optional.end()) {
      if (!value.is_string() || value.string().empty()) return fail(Code::Invalid, key + ": a text is expected");
      *(is != required.end() ? is->second : may->second) = value.string();
    } else if (key == "listen_port") {
      if (value.integer() < 1 || value.integer() > 65535) return fail(Code::Invalid, "listen_port: not a port");
      out.listen_port = static_cast<unsigned short>(value.integer());
    } else if (key == "labels" || key == "annotations" || key == "capacity") {
      if (!value.is_object()) return fail(Code::Invalid, key + ": an object is expected");
      for (const auto& [name, item] : value.members()) {
        if (key == "capacity")
          if (auto amount = kube::Quantity::from_json(item); !amount) return pass(std::move(amount.error()), "capacity." + name);
        const std::string text_value = item.is_string() ? item.string() : kube::print_json(item);
        (key == "labels" ? out.labels : key == "annotations" ? out.annotations : out.capacity)[name] = text_value;
      }
    } else if (key == "cdi_dirs") {
      for (const Json& folder : value.items()) {
        if (!folder.string().starts_with('/')) return fail(Code::Invalid, "cdi_dirs: paths of folders are expected");
        out.cdi_dirs.push_back(folder.string());
      }
    } else if (key == "taints") {
      out.taints = value;
    } else if (key == "masquerade" || key == "joined" || key == "metadata") {
      (key == "joined" ? out.joined : key == "metadata" ? out.metadata : out.masquerade) = value.boolean();
      metadata_said = metadata_said || key == "metadata";
    } else {
      return fail(Code::Invalid, key + ": not a setting of the agent");
    }
  }
  for (const auto& [key, value] : required)
    if (value->empty()) return fail(Code::Invalid, key + ": missing");
  if (out.node_ip6.empty() != out.pod_cidr6.empty()) return fail(Code::Invalid, "node_ip6 and pod_cidr6: both families need both");
  const auto is_six = [](const std::string& value) {
    in6_addr address{};
    return ::inet_pton(AF_INET6, value.c_str(), &address) == 1;
  };
  if (!out.node_ip6.empty() && !is_six(out.node_ip6)) return fail(Code::Invalid, "node_ip6: an IPv6 address is expected");
  if (!out.pod_cidr6.empty() && (!out.pod_cidr6.ends_with("/64") || !is_six(out.pod_cidr6.substr(0, out.pod_cidr6.size() - 3)))) return fail(Code::Invalid, "pod_cidr6: an IPv6 range of 64 bits is expected");
  if (out.client_ca_file.empty()) out.client_ca_file = out.ca_file;
  if (out.serving_cert_file.empty()) {
    out.serving_cert_file = out.cert_file;
    out.serving_key_file = out.key_file;
  } else if (out.serving_cert_file == "self-made") {
    out.serving_key_file.clear();
  } else if (out.serving_key_file.empty()) {
    return fail(Code::Invalid, "serving_key_file: missing");
  }
  if (!metadata_said) out.metadata = !out.joined;
  if (out.run_dir.empty()) out.run_dir = out.node_dir + "/run";
  if (out.cgroup_parent[0] != '/') return fail(Code::Invalid, "cgroup_parent: must begin with a slash");
  if (out.joined && (out.cgroup_parent.size() < 2 || out.cgroup_parent.ends_with('/') || out.cgroup_parent.find("/..") != std::string::npos || out.cgroup_parent.find("//") != std::string::npos)) return fail(Code::Invalid, "cgroup_parent: the path of a group of its own is expected, such as /fairlead");
  return out;
}

Result<NodeConfig> read_node_config(const std::string& path) {
  auto text = read_file(path, 1_MiB);
  if (!text) return std::unexpected(std::move(text.error()));
  auto config = parse_node_config(*text);
  if (!config) return pass(std::move(config.error()), path);
  return config;
}

}  // namespace fairlead::node
