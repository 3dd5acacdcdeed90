// SPDX-License-Identifier: Apache-2.0
#include "node/plan/probe.h"

#include <algorithm>
#include <cstdlib>

namespace fairlead::node {
namespace {
using kube::Json;

int port_of(const Json& container, const Json& port) {
  if (port.is_number()) return static_cast<int>(port.integer());
  for (const Json& item : container["ports"].items())
    if (item["name"].string() == port.string()) return static_cast<int>(item["containerPort"].integer());
  return std::atoi(port.string().c_str());
}

}  // namespace

std::vector<ProbeSpec> probes_of(const Json& container) {
  std::vector<ProbeSpec> out;
  for (const auto& [key, kind] : {std::pair("startupProbe", ProbeKind::Startup), std::pair("readinessProbe", ProbeKind::Readiness),
                                  std::pair("livenessProbe", ProbeKind::Liveness)}) {
    const Json& probe = container[key];
    if (!probe.is_object()) continue;
    ProbeSpec spec{.kind = kind};
    for (const Json& item : probe["exec"]["command"].items()) spec.command.push_back(item.string());
    if (const Json& grpc = probe["grpc"]; grpc.is_object()) {
      spec.grpc = true;
      spec.port = port_of(container, grpc["port"]);
      spec.service = grpc["service"].string();
    }
    for (const char* action : {"tcpSocket", "httpGet"}) {
      if (!probe[action].is_object()) continue;
      spec.port = port_of(container, probe[action]["port"]);
      spec.host = probe[action]["host"].string();
      if (std::string_view(action) == "httpGet") {
        spec.https = probe[action]["scheme"].string() == "HTTPS";
        spec.path = probe[action]["path"].string_or("/");
        if (spec.path.empty() || spec.path[0] != '/') spec.path.insert(0, "/");
        for (const Json& header : probe[action]["httpHeaders"].items()) spec.headers.emplace_back(header["name"].string(), header["value"].string());
      }
    }
    spec.initial_delay = std::chrono::seconds(probe["initialDelaySeconds"].integer(0));
    spec.period = std::chrono::seconds(std::max<std::int64_t>(1, probe["periodSeconds"].integer(10)));
    spec.timeout = std::chrono::seconds(std::max<std::int64_t>(1, probe["timeoutSeconds"].integer(1)));
    spec.successes = kind == ProbeKind::Readiness ? static_cast<int>(std::max<std::int64_t>(1, probe["successThreshold"].integer(1))) : 1;
    spec.failures = static_cast<int>(std::max<std::int64_t>(1, probe["failureThreshold"].integer(3)));
    if (probe["terminationGracePeriodSeconds"].is_number()) spec.grace = std::chrono::seconds(probe["terminationGracePeriodSeconds"].integer());
    out.push_back(std::move(spec));
  }
  return out;
}

ProbeState::ProbeState(std::vector<ProbeSpec> probes) : probes_(std::move(probes)), counts_(probes_.size()) {}

void ProbeState::resume(bool started, bool ready) {
  for (std::size_t i = 0; i < probes_.size(); ++i)
    counts_[i].held = counts_[i].holds = probes_[i].kind == ProbeKind::Startup ? started : probes_[i].kind == ProbeKind::Readiness ? started && ready : counts_[i].holds;
}

std::chrono::seconds ProbeState::pause(std::size_t probe) const {
  constexpr std::chrono::seconds soon{1}, most{10};
  const ProbeSpec& spec = probes_[probe];
  const Count& count = counts_[probe];
  const bool early = spec.kind == ProbeKind::Readiness && !count.held && count.tries * soon < std::min(spec.period, most);
  return early || !wanted(probe) ? std::min(spec.period, soon) : spec.period;
}

bool ProbeState::wanted(std::size_t probe) const {
  if (failed_) return false;
  const bool started = health().started;
  return probes_[probe].kind == ProbeKind::Startup ? !started : started;
}

void ProbeState::record(std::size_t probe, bool success) {
  const ProbeSpec& spec = probes_[probe];
  Count& count = counts_[probe];
  (success ? count.successes : count.failures) += 1;
  (success ? count.failures : count.successes) = 0;
  count.tries += 1;
  if (success && count.successes >= spec.successes) count.holds = count.held = true;
  if (!success && count.failures >= spec.failures) {
    count.holds = false;
    if (spec.kind != ProbeKind::Readiness) {
      failed_ = true;
      failed_grace_ = spec.grace;
    }
  }
}

ProbeHealth ProbeState::health() const {
  ProbeHealth out{.started = true, .ready = true, .failed = failed_, .failed_grace = failed_grace_};
  for (std::size_t i = 0; i < probes_.size(); ++i) {
    if (probes_[i].kind == ProbeKind::Startup) out.started = counts_[i].holds;
    if (probes_[i].kind == ProbeKind::Readiness) out.ready = counts_[i].holds;
  }
  out.ready = out.ready && out.started;
  return out;
}

}  // namespace fairlead::node
