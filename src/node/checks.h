// SPDX-License-Identifier: Apache-2.0
// What probes and hooks ask of a container over the network: does a port accept, what does GET answer, does it call itself healthy by gRPC. Blocking,
// each with one time limit for all of it; IPv4 and IPv6.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace fairlead::node {

Result<void> check_tcp(const std::string& ip, int port, std::chrono::milliseconds limit);

struct HttpCheck {
  std::string ip;
  int port = 0;
  std::string path = "/";
  std::vector<std::pair<std::string, std::string>> headers;
  bool tls = false;  // the certificate is not verified: who asks is not told anything worth stealing
};
// The status code of the answer.
Result<int> check_http(const HttpCheck& check, std::chrono::milliseconds limit);

// grpc.health.v1.Health/Check over HTTP/2 without TLS. Unavailable: not SERVING, or no such answer.
Result<void> check_grpc(const std::string& ip, int port, const std::string& service, std::chrono::milliseconds limit);

// Reads the answer to check_grpc as it comes: frames of HTTP/2, in them a HealthCheckResponse. Public for tests and fuzzing.
class GrpcHealthReader {
 public:
  enum class State { More, Serving, NotServing, Broken };
  // `reply`: what must be sent back (acknowledged settings and pings).
  State feed(std::string_view bytes, std::string& reply);

 private:
  State message();
  std::string pending_, data_;
  State state_ = State::More;
};
std::string grpc_health_request(const std::string& authority, const std::string& service);

}  // namespace fairlead::node
