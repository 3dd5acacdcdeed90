// SPDX-License-Identifier: Apache-2.0
#include "fleet/prometheus.h"

#include <fmt/format.h>

#include <mutex>

#include "base/encoding.h"
#include "base/files.h"
#include "http/client.h"
#include "kube/rest_client.h"

namespace fairlead::fleet {
namespace {

using api::Alarm;
constexpr std::chrono::seconds kFresh{3}, kPatience{2};

class PrometheusAlarms final : public api::Alarms {
 public:
  PrometheusAlarms(PrometheusOptions options, kube::ServerUrl server, std::shared_ptr<http::Client> client, const Clock& clock) : options_(std::move(options)), server_(std::move(server)), client_(std::move(client)), clock_(clock) {}

  std::map<std::string, Alarm> look(const std::vector<std::string>& names) const override {
    const std::lock_guard lock(mutex_);  // who asks meanwhile waits for the same answer
    const Instant now = clock_.now();
    if (!asked_ || now < *asked_ || now >= *asked_ + kFresh) {
      answer_ = ask();
      asked_ = clock_.now();
    }
    std::string problem = answer_ ? "" : answer_.error().message;
    if (answer_) {
      if (auto read = read_alert_rules(*answer_, names, now)) return std::move(*read);
      else problem = read.error().message;
    }
    std::map<std::string, Alarm> out;
    for (const std::string& name : names) out[name] = {.state = Alarm::State::Unknown, .message = fmt::format("Prometheus at {}: {}", options_.url, problem)};
    return out;
  }

 private:
  Result<std::string> ask() const {
    http::ClientRequest request{.target = server_.prefix + "/api/v1/rules?type=alert", .headers = {{"Accept", "application/json"}}};
    if (!options_.token_file.empty()) {
      auto token = read_file(options_.token_file, 64_KiB);
      if (!token) return std::unexpected(std::move(token.error()));
      while (!token->empty() && static_cast<unsigned char>(token->back()) <= ' ') token->pop_back();
      for (const char c : *token)
        if (c <= ' ' || c >= 0x7f) return fail(Code::Invalid, options_.token_file + " holds no token");
      request.headers.emplace_back("Authorization", "Bearer " + *token);
    }
    auto answer = client_->request(request);
    if (!answer) return std::unexpected(std::move(answer.error()));
    if (answer->status != 200) return fail(Code::Unavailable, fmt::format("it answers with status {}{}", answer->status, answer->status == 401 || answer->status == 403 ? ": see --prometheus-token-file" : ""));
    return std::move(answer->body);
  }

  const PrometheusOptions options_;
  const kube::ServerUrl server_;
  const std::shared_ptr<http::Client> client_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  mutable std::optional<Instant> asked_;
  mutable Result<std::string> answer_{std::string()};
};

}  // namespace

Result<std::shared_ptr<const api::Alarms>> make_prometheus_alarms(PrometheusOptions options, const Clock& clock) {
  auto server = kube::parse_server(options.url);
  if (!server) return pass(std::move(server.error()), "--prometheus-url");
  http::ClientOptions to{.host = server->host, .port = server->port, .tls = server->tls};
  if (!options.ca_file.empty()) {
    auto pem = read_file(options.ca_file, 1_MiB);
    if (!pem) return pass(std::move(pem.error()), "--prometheus-ca");
    to.ca_pem = std::move(*pem);
  }
  if (!options.token_file.empty() && !server->tls && server->host != "127.0.0.1" && server->host != "localhost" && server->host != "::1") return fail(Code::Invalid, "--prometheus-token-file: the token would be sent in the clear: give an https URL");
  to.connect_timeout = kPatience;
  to.request_timeout = kPatience;
  to.kept_connections = 1;
  auto client = http::Client::make(std::move(to));
  if (!client) return pass(std::move(client.error()), "--prometheus-ca");
  return std::shared_ptr<const api::Alarms>(std::make_shared<PrometheusAlarms>(std::move(options), std::move(*server), std::move(*client), clock));
}

}  // namespace fairlead::fleet
