// SPDX-License-Identifier: Apache-2.0
// Alarms that are alerting rules of a Prometheus. Source: Prometheus HTTP API v1, GET /api/v1/rules (prometheus.io/docs/prometheus/latest/querying/api); docs/design/065-software-rollback.md.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "api/alarms.h"
#include "base/clock.h"
#include "base/result.h"

namespace fairlead::fleet {

// Of the answer's body (bytes from outside): each of `names`. Of several rules with one name the worst counts: firing, then unknown, then pending. A rule that could not be evaluated, or was not for three of its intervals (a minute at least), is not known to be well, whatever it said last.
// Invalid: no such document.
Result<std::map<std::string, api::Alarm>> read_alert_rules(std::string_view body, const std::vector<std::string>& names, Instant now);

struct PrometheusOptions {
  std::string url;         // "https://prometheus.example.com:9090/prefix"; http, too
  std::string ca_file;     // PEM, read anew each time; empty: the system's authorities
  std::string token_file;  // read anew each time; sent as a bearer token; empty: none
};
// Asks at most every three seconds, by one thread at a time, and waits two for an answer; others are told what was said in the last ten. While there is no answer alarms are Unknown. Invalid: the URL.
Result<std::shared_ptr<const api::Alarms>> make_prometheus_alarms(PrometheusOptions options, const Clock& clock);

}  // namespace fairlead::fleet
