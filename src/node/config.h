// SPDX-License-Identifier: Apache-2.0
// The agent's configuration file: JSON, written by whoever makes the node.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "kube/json.h"

namespace fairlead::node {

struct NodeConfig {
  std::string node_name, node_ip, pod_cidr;
  std::string node_ip6{}, pod_cidr6{};  // both or neither: "fd00:77::103", "fd00:78:0:3::/64"; with them pods get addresses of both families
  unsigned short listen_port = 10250;
  std::string api_server, ca_file, cert_file, key_file;
  // What the node serves with. Default: cert_file and key_file. "self-made" as certificate: one is made at each start, which no authority has signed.
  std::string serving_cert_file, serving_key_file;
  std::string client_ca_file;  // who may ask this node proves it by this authority; default: ca_file
  std::string node_dir;  // state that outlives a restart of the node
  std::string run_dir;   // state that does not; default node_dir/run
  std::string images_dir, volumes_dir;
  std::string cgroup_parent;
  std::string fabric_interface = "eth0";  // the link with node_ip
  std::string bridge = "fairlead0";
  bool masquerade = false;
  bool metadata = false;  // answers 169.254.169.254 for its own processes; not where a cloud does. Not said in the file: local machines do, hosts that joined do not
  std::map<std::string, std::string> labels, annotations;
  kube::Json taints;  // as in spec.taints
  std::map<std::string, std::string> capacity;
  std::string cluster_domain = "cluster.local";
  // Of a host that joined: it renews its certificate, reboots when its Machine says so, and keeps Slurm's companion in its place.
  bool joined = false;
  std::string reboot_command = "systemctl reboot";  // words, split at spaces
  std::string companion_dir;                        // empty: somebody else puts it there
  std::vector<std::string> cdi_dirs;                // whose files say which devices pods may have; empty: none, and declared ones are only counted
  std::string boot_id_file;                         // names this boot; empty: a file of run_dir does, which is gone after a reboot
  std::string pods_range;                           // of the site: routes outside of it are nobody's to make; empty: any

  std::string node_ips() const { return node_ip6.empty() ? node_ip : node_ip + "," + node_ip6; }
  std::vector<std::string> pod_cidrs() const { return pod_cidr6.empty() ? std::vector<std::string>{pod_cidr} : std::vector<std::string>{pod_cidr, pod_cidr6}; }
};

// Invalid: names the field.
Result<NodeConfig> parse_node_config(const std::string& text);
Result<NodeConfig> read_node_config(const std::string& path);

}  // namespace fairlead::node
