// SPDX-License-Identifier: Apache-2.0
// The port to the machine that local nodes live on. Adapters: make_local_host (Linux namespaces, iproute2, cgroups) and FakeHost (tests, simulation).
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "api/machine.h"
#include "base/result.h"
#include "fleet/plan/addresses.h"
#include "fleet/plan/machine_plan.h"
#include "http/pki.h"

namespace fairlead::fleet {

// Thread-safe; blocks for as long as the commands take (tens of milliseconds; start and stop up to their limits). Every call may be repeated.
class LocalHost {
 public:
  virtual ~LocalHost() = default;
  // The fabric stands: its namespace, bridge, the host's link and routes. Exhausted/Conflict: a range is taken by somebody else's route.
  virtual Result<void> ready() = 0;
  virtual Result<Observation> observe(const std::string& name, const api::Seat& seat) = 0;
  // Ends what half a start may have left, then starts the node's first process. Its link is not there yet.
  virtual Result<ProcessIdentity> start(const api::Machine& machine) = 0;
  virtual Result<void> connect(const std::string& name, const api::Seat& seat) = 0;  // Unavailable: the node is gone
  virtual Result<void> set_link(const api::Seat& seat, api::Link link) = 0;
  virtual Result<void> kill(const std::string& name) = 0;  // a power cut: returns when the first process is dead
  virtual Result<void> stop(const std::string& name, std::chrono::milliseconds grace) = 0;
  virtual Result<void> remove(const std::string& name, const api::Seat& seat) = 0;  // the dead node's folders, cgroups, link and route
  // Called on a thread of the host with a node's name when its first process has ended. Set once, before the first observe.
  virtual void watch_exits(std::function<void(const std::string& name)> callback) = 0;
};

struct LocalHostOptions {
  std::string state_dir;
  std::string agent_program;  // fairlead-agent
  Ranges ranges;
  unsigned short api_port = 6443;  // of the API at the host's address in the fabric
  std::string api_server;          // or where else nodes find it: "https://10.0.0.5:6443"
  unsigned short agent_port = 10250;
  std::string cluster_domain = "cluster.local";
  std::string ca_pem;  // of the API server, and of whom nodes let in
  // Gives out a node's certificate, by the site CA or that of the cluster the nodes join.
  std::function<Result<http::KeyPair>(const http::CertificateRequest&)> issue;
  // Called once, when the host's address in the fabric is there: the moment to listen on it.
  std::function<Result<void>(const std::string& address)> on_address;
};
std::unique_ptr<LocalHost> make_local_host(LocalHostOptions options);

}  // namespace fairlead::fleet
