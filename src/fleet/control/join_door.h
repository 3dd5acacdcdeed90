// SPDX-License-Identifier: Apache-2.0
// Where hosts come in: asks the plan (fleet/plan/join.h), signs, writes down whose key counts, then answers. And who shows a host's certificate: does it still count?
#pragma once
#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "api/join.h"
#include "api/machine.h"
#include "base/clock.h"
#include "fleet/plan/join.h"
#include "http/message.h"
#include "http/pki.h"
#include "http/server.h"
#include "kube/kube_api.h"

namespace fairlead::fleet {

struct JoinDoorOptions {
  std::vector<std::string> servers;  // where hosts find the API, "https://10.0.0.5:6443"; empty: nowhere, which `why_nowhere` explains
  std::string why_nowhere;
  std::string ca_pem;
  std::string cluster_domain = "cluster.local";
  std::string pods_range, volumes_dir, companion_dir;  // api::JoinAnswer
  // Why no host may have this address unless an administrator names it: the server's own, one of the site's ranges. Empty: it may.
  std::function<std::string(const std::string& address)> why_not_address;
  std::chrono::hours valid{24 * 90};  // of a certificate; agents renew it when two thirds are over
  // Signs for the key of a signing request, by the site's authority.
  std::function<Result<std::string>(const std::string& signing_request, const http::CertificateRequest&)> sign;
};

inline constexpr std::size_t kLongestJoin = 64 << 10;  // bytes of a request

// Thread-safe. Of the API: machines are read and listed, nodes are read, the status of machines is updated.
class JoinDoor {
 public:
  JoinDoor(kube::KubeApi& api, const Clock& clock, JoinDoorOptions options) : api_(api), clock_(clock), options_(std::move(options)) {}

  // Is this path its own? Then answer() takes it; it blocks for as long as a write takes. Answers are JSON; a refusal has {"message"}.
  static bool serves(std::string_view path) { return path == api::kJoinPath || path == api::kRenewPath; }
  http::Response answer(const http::Request& request);
  // Of a verified client certificate: Unauthorized if it is a host's and counts no more. Others pass.
  Result<void> check(const http::Peer& peer);
  // Of what a host writes of its own Node (fleet/plan/join.h); of others nothing is asked.
  Result<void> check_node(const std::string& user, const std::vector<std::string>& groups, const kube::Json* old, const kube::Json& next);

 private:
  http::Response join(const http::Request& request);
  http::Response renew(const http::Request& request);
  void tell_refusal(const api::JoinRequest& asked, const std::string& from, const JoinPlan& plan);
  Result<std::optional<api::Machine>> machine(const std::string& name, kube::Json* object = nullptr);
  Result<std::string> certify(const std::string& signing_request, const std::string& name, const std::string& address) const;

  kube::KubeApi& api_;
  const Clock& clock_;
  const JoinDoorOptions options_;
  std::mutex deciding_;  // one at a time: what two of them may not both have (an address) is seen by the second
  std::mutex telling_;
  std::optional<std::chrono::nanoseconds> told_;  // refusals are logged once a second at most: anybody may ask
};

}  // namespace fairlead::fleet
