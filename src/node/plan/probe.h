// SPDX-License-Identifier: Apache-2.0
// How probe results become "started", "ready" and "alive". Pure.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "kube/json.h"

namespace fairlead::node {

enum class ProbeKind { Startup, Readiness, Liveness };

struct ProbeSpec {
  ProbeKind kind = ProbeKind::Readiness;
  std::vector<std::string> command;  // exec
  int port = 0;                      // tcpSocket, httpGet
  std::string host, path;            // path not empty: httpGet
  bool https = false;                // of httpGet; the certificate is not verified, as Kubernetes does
  bool grpc = false;                 // grpc.health.v1.Health/Check of `service`, without TLS
  std::string service;
  std::vector<std::pair<std::string, std::string>> headers;
  std::chrono::seconds initial_delay{0}, period{10}, timeout{1};
  int successes = 1, failures = 3;
  std::optional<std::chrono::seconds> grace;  // of the stop that follows; empty: the pod's
  friend bool operator==(const ProbeSpec&, const ProbeSpec&) = default;
};
// The probes of a container; named ports are looked up in it.
std::vector<ProbeSpec> probes_of(const kube::Json& container);

struct ProbeHealth {
  bool started = true, ready = true, failed = false;  // failed: to be restarted
  std::optional<std::chrono::seconds> failed_grace;   // of the probe that failed, if it has one
  friend bool operator==(const ProbeHealth&, const ProbeHealth&) = default;
};

// One running attempt.
class ProbeState {
 public:
  ProbeState() = default;
  explicit ProbeState(std::vector<ProbeSpec> probes);
  // Verdicts that an earlier agent told of the same attempt: they hold until a probe of ours says otherwise, `failures` times.
  void resume(bool started, bool ready);
  const std::vector<ProbeSpec>& probes() const { return probes_; }
  // Whether the probe is to run now: the others wait until the startup probe has succeeded; it stops then.
  bool wanted(std::size_t probe) const;
  void record(std::size_t probe, bool success);
  // How long until it is looked at again: its period. One that waits for the startup probe is asked about each second; so is the readiness of a container that was never ready, for the first of its periods
  // (ten seconds at most): what is up after a second need not wait for the rest of a period.
  std::chrono::seconds pause(std::size_t probe) const;
  ProbeHealth health() const;

 private:
  struct Count {
    int successes = 0, failures = 0;
    bool holds = false;  // the last verdict
    bool held = false;   // ever
    int tries = 0;       // until it held
  };
  std::vector<ProbeSpec> probes_;
  std::vector<Count> counts_;
  bool failed_ = false;
  std::optional<std::chrono::seconds> failed_grace_;
};

}  // namespace fairlead::node
