// SPDX-License-Identifier: Apache-2.0
#include "governance/conversion_server.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "api/queue_crds.h"
#include "base/encoding.h"
#include "base/fd.h"
#include "governance/plan/kueue_convert.h"

namespace fairlead::governance {

using kube::Json;

namespace {

constexpr std::size_t most_connections = 256;
constexpr Bytes largest_review = 512_MiB;  // a whole list comes in one call

// A file that lies in no file system: the root of a pod is read-only, and keys are nobody else's.
Result<Fd> hidden_file(const char* name, std::string_view text) {
  Fd file(::memfd_create(name, MFD_CLOEXEC));
  if (!file) return fail_errno(errno, "make a file in memory");
  while (!text.empty()) {
    const ssize_t written = ::write(file.get(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return fail_errno(errno, "write a file in memory");
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return file;
}

http::Response text(int status, std::string body) { return {.status = status, .headers = {{"Content-Type", "text/plain"}}, .body = std::move(body) + "\n"}; }

Result<http::KeyPair> pair_of(const Json& secret, const kube::ObjectKey& key) {
  auto certificate = parse_base64(secret["data"]["ca.crt"].string()), pem = parse_base64(secret["data"]["ca.key"].string());
  if (!certificate || !pem || certificate->empty() || pem->empty()) return fail(Code::Invalid, fmt::format("the Secret {} holds no ca.crt and ca.key: delete it, and another authority is made", key.text()));
  return http::KeyPair{std::move(*certificate), std::move(*pem)};
}

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
  auto chain = hidden_file("webhook.crt", certificate.certificate_pem);
  if (!chain) return std::unexpected(std::move(chain.error()));
  auto key = hidden_file("webhook.key", certificate.key_pem);
  if (!key) return std::unexpected(std::move(key.error()));
  http::ServerOptions options{.address = address, .port = port, .body_limit = largest_review, .connection_limit = most_connections};
  options.tls = http::TlsFiles{.certificate = fmt::format("/proc/self/fd/{}", chain->get()), .key = fmt::format("/proc/self/fd/{}", key->get()), .client_ca = {}};
  return http::Server::start(std::move(options), [](http::Request request, std::shared_ptr<http::Exchange> exchange) { exchange->respond(answer_conversion_request(request)); });
}

Result<http::KeyPair> webhook_authority(kube::KubeApi& api, const kube::ObjectKey& secret, const Clock& clock) {
  auto now = api.get(kube::resources::secrets, secret);
  if (now) return pair_of(*now, secret);
  if (now.error().code != Code::NotFound) return pass(std::move(now.error()), "the webhook's authority");
  auto made = http::make_ca("fairlead-webhooks", clock.now());
  if (!made) return made;
  const Json object = Json::object({{"apiVersion", "v1"},
                                    {"kind", "Secret"},
                                    {"metadata", Json::object({{"name", secret.name}, {"namespace", secret.space}, {"labels", Json::object({{"app.kubernetes.io/part-of", "fairlead"}})}})},
                                    {"type", "Opaque"},
                                    {"data", Json::object({{"ca.crt", base64(made->certificate_pem)}, {"ca.key", base64(made->key_pem)}})}});
  auto created = api.create(kube::resources::secrets, object);
  if (created) return made;
  if (created.error().code != Code::Exists) return pass(std::move(created.error()), "the webhook's authority");
  now = api.get(kube::resources::secrets, secret);  // another replica was first
  if (!now) return pass(std::move(now.error()), "the webhook's authority");
  return pair_of(*now, secret);
}

}  // namespace fairlead::governance
