// SPDX-License-Identifier: Apache-2.0
// How a host joins a site: what `fairlead node add` gives out, what the host asks, what it is answered. Both sides read these; docs/design/056. Pure.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kube/json.h"

namespace fairlead::api {

inline constexpr const char* kJoinPath = "/fairlead/join";    // GET: where the server is; POST: a JoinRequest
inline constexpr const char* kRenewPath = "/fairlead/renew";  // POST with the certificate of before: {"request": PEM}; answered by {"certificate": PEM}
inline constexpr const char* kHostsGroup = "fairlead:hosts";  // of certificates that count as long as the Machine names their key
inline constexpr const char* kHostLabel = "fairlead.dev/host"; // of the Node of such a machine: "true"

// One word for a person to carry: "flj1." and base64url of JSON. Whoever has it may become that node, once.
struct JoinToken {
  std::vector<std::string> servers;  // "https://10.0.0.5:6443", in the order in which they are tried
  std::string ca_pem;                // trust this authority alone
  std::string name;                  // of the Machine
  std::string secret;                // 64 hex digits
  friend bool operator==(const JoinToken&, const JoinToken&) = default;
};
std::string print_join_token(const JoinToken& token);
Result<JoinToken> parse_join_token(std::string_view text);  // Invalid: a sentence that does not repeat the token
std::string hash_of_secret(std::string_view secret);        // as the Machine has it

// What a host says that it has. Amounts are what the kernel tells, firmware's share is gone.
struct HostFacts {
  std::int64_t cpus = 0, memory_mib = 0;
  std::map<std::string, std::int64_t> devices;  // "nvidia.com/gpu" -> 8
  std::string devices_text;                     // "8 x NVIDIA H100 80GB HBM3", for people
  std::string address;                          // at which the other nodes and the server reach it
  std::string os, kernel, architecture, version;
  friend bool operator==(const HostFacts&, const HostFacts&) = default;
};
kube::Json to_json(const HostFacts& facts);
// As status.capacity of a Node would tell it.
std::map<std::string, std::string> capacity_of(const HostFacts& facts);

struct JoinRequest {
  std::string name, secret;
  std::string signing_request;  // PEM
  HostFacts facts;
  friend bool operator==(const JoinRequest&, const JoinRequest&) = default;
};
std::string print_join_request(const JoinRequest& request);
Result<JoinRequest> parse_join_request(std::string_view text);  // Invalid: names the field

struct JoinAnswer {
  std::string certificate, ca_pem;
  std::string pod_cidr, cluster_domain;
  std::string pods_range;                  // of the site; pod_cidr is in it
  std::string volumes_dir, companion_dir;  // the same paths on all nodes: a file system that they share; the program that Slurm's pods mount
  std::map<std::string, std::string> labels;
  kube::Json taints = kube::Json::array();
  friend bool operator==(const JoinAnswer&, const JoinAnswer&) = default;
};
std::string print_join_answer(const JoinAnswer& answer);
Result<JoinAnswer> parse_join_answer(std::string_view text);

}  // namespace fairlead::api
