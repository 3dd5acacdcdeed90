// SPDX-License-Identifier: Apache-2.0
// Container credentials on a node: pods ask http://169.254.170.23/v1/credentials with their token, as on EKS, since SDKs take plain HTTP from no other host; the question goes on to the site's AWS face by HTTPS. The node decides nothing and keeps nothing:
// whose token it is and what it is good for, the face says. docs/design/061-credentials.md.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "agent/face_client.h"
#include "base/clock.h"
#include "base/result.h"
#include "http/message.h"

namespace fairlead::agent {

// The question that goes on: method, path and token alone. An answer instead: what no SDK sends.
struct RelayedQuestion {
  std::string token;
};
struct RelayDecision {
  bool forward = false;
  RelayedQuestion question;
  http::Response refusal;
};
RelayDecision decide_relay(const http::Request& request);  // pure

struct CredentialsRelayOptions {
  std::string address = "169.254.170.23";
  unsigned short port = 80;                              // 0: any free one
  std::function<Result<FaceAddress>()> find_face;        // asked again after a minute, and when the face does not answer
  int threads = 4;
};

class CredentialsRelay {
 public:
  // Unavailable: the port is taken. The address has to be there.
  static Result<std::unique_ptr<CredentialsRelay>> start(const Clock& clock, CredentialsRelayOptions options);
  virtual ~CredentialsRelay() = default;
  virtual unsigned short port() const = 0;
};

}  // namespace fairlead::agent
