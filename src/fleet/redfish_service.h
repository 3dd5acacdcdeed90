// SPDX-License-Identifier: Apache-2.0
// A Redfish service over HTTPS, as a host's board has one: for tests and for trials without such a board. What is behind it (a value, a machine made of namespaces) the caller says. Source: DMTF DSP0266 1.20, DSP2046.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "fleet/plan/power_plan.h"
#include "http/server.h"

namespace fairlead::fleet {

struct RedfishServiceOptions {
  std::string address = "127.0.0.1";
  unsigned short port = 0;                 // 0: any free one
  http::TlsFiles tls;
  std::string user = "admin", password;    // by Basic; others get 401
  std::vector<std::string> systems{"1"};   // Ids
  std::vector<std::string> reset_types{"On", "ForceOff", "GracefulShutdown", "ForceRestart"};
  // Of the system with this Id; called on threads of the server, one at a time. An error is answered with 500 and its text.
  std::function<Result<PowerState>(const std::string& system)> state;
  std::function<Result<void>(const std::string& system, const std::string& reset_type)> reset;
};

class RedfishService {
 public:
  // Unavailable: the port is taken.
  static Result<std::unique_ptr<RedfishService>> open(RedfishServiceOptions options);
  unsigned short port() const { return server_->port(); }

 private:
  explicit RedfishService(RedfishServiceOptions options) : options_(std::move(options)) {}
  http::Response answer(const http::Request& request);
  RedfishServiceOptions options_;
  std::mutex mutex_;
  std::unique_ptr<http::Server> server_;  // last: its threads use the rest
};

}  // namespace fairlead::fleet
