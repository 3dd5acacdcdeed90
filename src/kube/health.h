// SPDX-License-Identifier: Apache-2.0
// The three questions that a cluster asks of a program: /healthz (does it run), /readyz (is it of use), /metrics (Prometheus text).
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "http/server.h"
#include "kube/controller.h"

namespace fairlead::kube {

struct HealthAnswers {
  std::function<Result<void>()> ready;     // an error is 503 with its message
  std::function<std::string()> metrics;
};
// Plain HTTP, no secrets. The callbacks run on a server thread and must not block. Unavailable: the address is taken.
Result<std::unique_ptr<http::Server>> serve_health(const std::string& address, unsigned short port, HealthAnswers answers);

// What every server of ours tells of its controllers; `epoch` 0: a stand-by.
std::string print_metrics(std::int64_t epoch, const std::map<std::string, Runner::Count>& controllers);

}  // namespace fairlead::kube
