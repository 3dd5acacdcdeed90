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
constexpr std::chrono::seconds kFresh{3}, kHolds{10}, kPatience{2};

class PrometheusAlarms final : public api::Alarms {
 public:
  PrometheusAlarms(PrometheusOptions options, kube::ServerUrl server, const Clock& clock) : options_(std::move(options)), server_(std::move(server)), clock_(clock) {}

  std::map<std::string, Alarm> look(const std::vector<std::string>& names) const override {
    std::unique_lock lock(mutex_);
    const auto fresh = [&](std::chrono::seconds age) { return asked_ && clock_.now() >= *asked_ && clock_.now() < *asked_ + age; };
    if (!fresh(kFresh) && !asking_) {
      asking_ = true;
      lock.unlock();
      auto answer = ask();
      lock.lock();
      asking_ = false;
      answer_ = std::move(answer);
      asked_ = clock_.now();
    }
    // Somebody else asks: what was said a moment ago holds, and nobody waits for the answer.
    const Result<std::string> answer = fresh(kHolds) ? answer_ : Result<std::string>(fail(Code::Unavailable, "it is being asked"));
    const Instant now = clock_.now();
    lock.unlock();
    std::string problem = answer ? "" : answer.error().message;
    if (answer) {
      if (auto read = read_alert_rules(*answer, names, now)) return std::move(*read);
      else problem = read.error().message;
    }
    std::map<std::string, Alarm> out;
    for (const std::string& name : names) out[name] = {.state = Alarm::State::Unknown, .message = fmt::format("Prometheus at {}: {}", options_.url, problem)};
    return out;
  }

 private:
  // By one thread at a time.
  Result<std::string> ask() const {
    if (auto done = connect(); !done) return std::unexpected(std::move(done.error()));
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

  // A file of authorities that is not there keeps no server from starting, and one that changes is followed.
  Result<void> connect() const {
    std::string pem;
    if (!options_.ca_file.empty()) {
      auto read = read_file(options_.ca_file, 1_MiB);
      if (!read) return pass(std::move(read.error()), "--prometheus-ca");
      pem = std::move(*read);
    }
    if (client_ != nullptr && pem == pem_) return {};
    http::ClientOptions to{.host = server_.host, .port = server_.port, .tls = server_.tls, .ca_pem = pem};
    to.connect_timeout = kPatience;
    to.request_timeout = kPatience;
    to.kept_connections = 1;
    auto client = http::Client::make(std::move(to));
    if (!client) return pass(std::move(client.error()), "--prometheus-ca");
    client_ = std::move(*client);
    pem_ = std::move(pem);
    return {};
  }

  const PrometheusOptions options_;
  const kube::ServerUrl server_;
  const Clock& clock_;
  mutable std::shared_ptr<http::Client> client_;  // these two of who asks
  mutable std::string pem_;
  mutable std::mutex mutex_;
  mutable bool asking_ = false;
  mutable std::optional<Instant> asked_;
  mutable Result<std::string> answer_{std::string()};
};

}  // namespace

Result<std::shared_ptr<const api::Alarms>> make_prometheus_alarms(PrometheusOptions options, const Clock& clock) {
  auto server = kube::parse_server(options.url);
  if (!server) return pass(std::move(server.error()), "--prometheus-url");
  if (!options.token_file.empty() && !server->tls && server->host != "127.0.0.1" && server->host != "localhost" && server->host != "::1") return fail(Code::Invalid, "--prometheus-token-file: the token would be sent in the clear: give an https URL");
  return std::shared_ptr<const api::Alarms>(std::make_shared<PrometheusAlarms>(std::move(options), std::move(*server), clock));
}

}  // namespace fairlead::fleet
