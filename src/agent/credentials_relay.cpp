// SPDX-License-Identifier: Apache-2.0
#include "agent/credentials_relay.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "api/pod_identity.h"
#include "base/encoding.h"
#include "base/log.h"
#include "http/client.h"
#include "http/server.h"

namespace fairlead::agent {
namespace {
using namespace std::chrono_literals;

constexpr std::size_t most_waiting = 64, most_connections = 256, most_answer_bytes = 64 << 10, most_token_bytes = 20'000;
// From one pod: nobody who asks all the time takes the turns of others. SDKs ask once an hour.
constexpr double per_pod_per_second = 5, per_pod_at_once = 20;
constexpr std::size_t most_pods = 4096;

http::Response refuse(int status, const std::string& code, const std::string& message) {
  return {.status = status, .headers = {{"Content-Type", "application/json"}, {"Cache-Control", "no-store"}}, .body = kube::print_json(kube::Json::object({{"code", code}, {"message", message}})), .parts = {}};
}

class Relay final : public CredentialsRelay {
 public:
  Relay(const Clock& clock, CredentialsRelayOptions options) : clock_(clock), options_(std::move(options)), face_(clock, options_.find_face) {}
  ~Relay() override {
    server_.reset();
    for (std::jthread& worker : workers_) worker.request_stop();
    changed_.notify_all();
    workers_.clear();
  }
  Result<void> start() {
    for (int i = 0; i < options_.threads; ++i) workers_.emplace_back([this](std::stop_token stop) { work(stop); });
    auto server = http::Server::start({.address = options_.address, .port = options_.port, .unix_socket = {}, .tls = {}, .threads = 1, .body_limit = 1_KiB, .idle_timeout = 30s, .connection_limit = most_connections, .refusal = {}},
                                      [this](http::Request request, std::shared_ptr<http::Exchange> exchange) { take(request, std::move(exchange)); });
    if (!server) return std::unexpected(std::move(server.error()));
    server_ = std::move(*server);
    return {};
  }
  unsigned short port() const override { return server_->port(); }

 private:
  struct Job {
    RelayedQuestion question;
    std::shared_ptr<http::Exchange> exchange;
  };

  void take(const http::Request& request, std::shared_ptr<http::Exchange> exchange) {
    RelayDecision decision = decide_relay(request);
    if (!decision.forward) return exchange->respond(std::move(decision.refusal));
    std::unique_lock lock(mutex_);
    if (!spend(request.peer.address)) {
      lock.unlock();
      return exchange->respond(refuse(429, "ThrottlingException", "this pod asks too often; try again"));
    }
    if (waiting_.size() >= most_waiting) {
      lock.unlock();
      return exchange->respond(refuse(503, "ServiceUnavailable", "many pods of this node ask at once; try again"));
    }
    waiting_.push_back({std::move(decision.question), std::move(exchange)});
    changed_.notify_one();
  }

  // With mutex_ held.
  bool spend(const std::string& pod) {
    const auto now = clock_.monotonic();
    if (pods_.size() >= most_pods && !pods_.contains(pod)) pods_.clear();
    auto [found, added] = pods_.try_emplace(pod, Allowance{per_pod_at_once, now});
    Allowance& its = found->second;
    its.left = std::min(per_pod_at_once, its.left + std::chrono::duration<double>(now - its.at).count() * per_pod_per_second);
    its.at = now;
    if (its.left < 1) return false;
    its.left -= 1;
    return true;
  }

  void work(const std::stop_token& stop) {
    while (true) {
      Job job;
      {
        std::unique_lock lock(mutex_);
        if (!changed_.wait(lock, stop, [this] { return !waiting_.empty(); })) return;
        job = std::move(waiting_.front());
        waiting_.pop_front();
      }
      job.exchange->respond(ask(job.question));
    }
  }

  http::Response ask(const RelayedQuestion& question) {
    auto client = face_.get();
    if (!client) return refuse(503, "ServiceUnavailable", "the site's AWS endpoint is not known on this node: " + client.error().message);
    auto answer = (*client)->request({.method = "GET", .target = api::pod_identity::credentials_path, .headers = {{"Authorization", question.token}, {"Accept", "application/json"}}, .body = {}});
    if (!answer) {
      face_.forget(*client);
      log_warn("the AWS face does not answer", {{"why", answer.error().message}});
      return refuse(503, "ServiceUnavailable", "the site's AWS endpoint does not answer; try again");
    }
    if (answer->body.size() > most_answer_bytes) return refuse(503, "ServiceUnavailable", "the site's AWS endpoint answers something else");
    http::Response out{.status = answer->status, .headers = {{"Content-Type", "application/json"}, {"Cache-Control", "no-store"}}, .body = std::move(answer->body), .parts = {}};
    if (const auto id = http::find(answer->headers, "x-amzn-requestid"); !id.empty()) out.headers.emplace_back("x-amzn-RequestId", std::string(id));
    return out;
  }

  struct Allowance {
    double left;
    std::chrono::nanoseconds at;
  };

  const Clock& clock_;
  const CredentialsRelayOptions options_;
  FaceClient face_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Job> waiting_;
  std::map<std::string, Allowance> pods_;  // by address
  std::vector<std::jthread> workers_;
  std::unique_ptr<http::Server> server_;
};

}  // namespace

RelayDecision decide_relay(const http::Request& request) {
  const auto no = [](int status, const char* code, std::string message) { return RelayDecision{.forward = false, .question = {}, .refusal = refuse(status, code, std::move(message))}; };
  if (request.target.path != api::pod_identity::credentials_path || !request.target.query.empty()) return no(404, "ResourceNotFoundException", fmt::format("{} alone is served here", api::pod_identity::credentials_path));
  if (request.method != "GET") return no(405, "InvalidRequestException", "GET is expected");
  const std::string_view token = trim(http::find(request.headers, "authorization"));
  // A JSON web token: nothing that could begin another header or be a password of another service.
  if (token.empty() || token.size() > most_token_bytes || token.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.") != token.npos) return no(401, "AccessDeniedException", "the Authorization header is the token of the pod, as it stands in its file");
  return {.forward = true, .question = {.token = std::string(token)}, .refusal = {}};
}

Result<std::unique_ptr<CredentialsRelay>> CredentialsRelay::start(const Clock& clock, CredentialsRelayOptions options) {
  auto relay = std::make_unique<Relay>(clock, std::move(options));
  if (auto done = relay->start(); !done) return std::unexpected(std::move(done.error()));
  return relay;
}

}  // namespace fairlead::agent
