// SPDX-License-Identifier: Apache-2.0
#include "agent/face_client.h"

#include "kube/rest_client.h"

namespace fairlead::agent {
namespace {
using namespace std::chrono_literals;
constexpr std::chrono::seconds face_is_known{60};
}  // namespace

Result<FaceAddress> read_face_address(const kube::Json& config_map) {
  const kube::Json& data = config_map["data"];
  const std::string& endpoint = data["pod-endpoint"].string().empty() ? data["endpoint"].string() : data["pod-endpoint"].string();
  if (endpoint.empty() || data["ca.crt"].string().empty()) return fail(Code::Invalid, "ConfigMap fairlead-aws has no endpoint, or no ca.crt, yet");
  const auto url = kube::parse_server(endpoint);
  if (!url) return pass(url.error(), "ConfigMap fairlead-aws: endpoint");
  if (!url->tls) return fail(Code::Invalid, "ConfigMap fairlead-aws: endpoint is no https URL");
  return FaceAddress{.host = url->host, .port = url->port, .ca_pem = data["ca.crt"].string()};
}

Result<std::shared_ptr<http::Client>> FaceClient::get() {
  const std::lock_guard lock(mutex_);
  if (client_ && clock_.monotonic() - found_at_ < face_is_known) return client_;
  auto found = find_();
  if (!found && client_) return client_;
  if (!found && !known_.host.empty()) found = known_;
  if (!found) return std::unexpected(std::move(found.error()));
  found_at_ = clock_.monotonic();
  if (client_ && known_ == *found) return client_;
  auto own = certificate_ ? certificate_() : Result<http::KeyPair>(http::KeyPair());
  if (!own) return pass(std::move(own.error()), "read this node's certificate");
  auto made = http::Client::make({.host = found->host, .port = found->port, .unix_socket = {}, .tls = true, .ca_pem = found->ca_pem, .certificate_pem = own->certificate_pem, .key_pem = own->key_pem, .proxy = {}, .server_name = {}, .may_connect = {}, .server_key = {}, .connect_timeout = 1s, .request_timeout = 5s});
  if (!made) return std::unexpected(std::move(made.error()));
  known_ = std::move(*found);
  client_ = std::move(*made);
  return client_;
}

void FaceClient::forget(const std::shared_ptr<http::Client>& client) {
  const std::lock_guard lock(mutex_);
  if (client_ == client) client_.reset();
}

}  // namespace fairlead::agent
