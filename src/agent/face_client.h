// SPDX-License-Identifier: Apache-2.0
// Where a node finds the site's AWS face, and a client of it.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "http/client.h"
#include "http/pki.h"
#include "kube/json.h"

namespace fairlead::agent {

// Where the face is, and whom to believe.
struct FaceAddress {
  std::string host;
  unsigned short port = 443;
  std::string ca_pem;
  friend bool operator==(const FaceAddress&, const FaceAddress&) = default;
};
// Of ConfigMap fairlead-aws. Invalid: it does not say.
Result<FaceAddress> read_face_address(const kube::Json& config_map);

// Thread-safe. One connection pool for all who ask.
class FaceClient {
 public:
  using Find = std::function<Result<FaceAddress>()>;           // asked again after a minute, and when the face does not answer
  using Certificate = std::function<Result<http::KeyPair>()>;  // by which the node proves who it is, read whenever a client is made; null: it shows none
  FaceClient(const Clock& clock, Find find, Certificate certificate = {}) : clock_(clock), find_(std::move(find)), certificate_(std::move(certificate)) {}
  // What `find` says where the face was never known; where it was, it may still be.
  Result<std::shared_ptr<http::Client>> get();
  // It did not answer.
  void forget(const std::shared_ptr<http::Client>& client);

 private:
  const Clock& clock_;
  const Find find_;
  const Certificate certificate_;
  std::mutex mutex_;  // held while the API is asked where the face is: one question is enough
  std::shared_ptr<http::Client> client_;
  FaceAddress known_;
  std::chrono::nanoseconds found_at_{};
};

}  // namespace fairlead::agent
