// SPDX-License-Identifier: Apache-2.0
#include "governance/conversion_server.h"

#include "governance/plan/kueue_convert.h"
#include "http/memory_tls.h"
#include "kube/authority.h"

namespace fairlead::governance {

using kube::Json;

namespace {

constexpr std::size_t most_connections = 256;
constexpr Bytes largest_review = 512_MiB;  // a whole list comes in one call

http::Response text(int status, std::string body) { return {.status = status, .headers = {{"Content-Type", "text/plain"}}, .body = std::move(body) + "\n"}; }

}  // namespace

http::Response answer_conversion_request(const http::Request& request) {
  if (request.target.path != conversion_path) return text(404, "only /convert is here");
  if (request.method != "POST") return text(405, "a ConversionReview is posted");
  auto review = kube::parse_json(request.body);
  if (!review) return text(400, "the body is no JSON: " + review.error().message);
  if ((*review)["apiVersion"].string() != "apiextensions.k8s.io/v1" || (*review)["kind"].string() != "ConversionReview") return text(400, "a ConversionReview of apiextensions.k8s.io/v1 is expected");
  return {.status = 200, .headers = {{"Content-Type", "application/json"}}, .body = kube::print_json(answer_conversion(*review))};
}

Result<std::unique_ptr<http::Server>> serve_conversion(const std::string& address, unsigned short port, const http::KeyPair& certificate) {
  return http::serve_with_certificate({.address = address, .port = port, .unix_socket = {}, .tls = {}, .body_limit = largest_review, .connection_limit = most_connections, .refusal = {}}, certificate,
                                      [](http::Request request, std::shared_ptr<http::Exchange> exchange) { exchange->respond(answer_conversion_request(request)); });
}

Result<http::KeyPair> webhook_authority(kube::KubeApi& api, const kube::ObjectKey& secret, const Clock& clock) { return kube::shared_authority(api, secret, "fairlead-webhooks", clock); }

}  // namespace fairlead::governance
