// SPDX-License-Identifier: Apache-2.0
#include "agent/metadata_service.h"

#include <fmt/format.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "base/log.h"
#include "base/rng.h"
#include "http/server.h"

namespace fairlead::agent {
namespace {
using namespace std::chrono_literals;

constexpr std::size_t most_waiting = 256, most_connections = 256, most_answer_bytes = 64 << 10;
constexpr std::chrono::seconds document_is_fresh{60}, trouble_is_fresh{2};

class Service final : public MetadataService {
 public:
  Service(const Clock& clock, MetadataServiceOptions options) : clock_(clock), options_(std::move(options)), tokens_(secret_bytes(32)), face_(clock, options_.find_face, options_.certificate) {}
  ~Service() override {
    server_.reset();
    worker_.request_stop();
    changed_.notify_all();
  }
  Result<void> start() {
    worker_ = std::jthread([this](std::stop_token stop) { work(stop); });
    auto server = http::Server::start({.address = options_.address, .port = options_.port, .unix_socket = {}, .tls = {}, .threads = 1, .body_limit = 1_KiB, .idle_timeout = 30s, .connection_limit = most_connections, .refusal = {}},
                                      [this](http::Request request, std::shared_ptr<http::Exchange> exchange) { take(request, std::move(exchange)); });
    if (!server) return std::unexpected(std::move(server.error()));
    server_ = std::move(*server);
    return {};
  }
  unsigned short port() const override { return server_->port(); }

 private:
  struct Job {
    std::string path;
    std::shared_ptr<http::Exchange> exchange;
  };

  static http::Response busy(const std::string& why) { return {.status = 503, .headers = {{"Content-Type", "text/plain"}, {"Cache-Control", "no-store"}}, .body = why + "\n", .parts = {}}; }

  void take(const http::Request& request, std::shared_ptr<http::Exchange> exchange) {
    const std::string& from = request.peer.address;
    const bool own = from == options_.address || from == "127.0.0.1" || options_.own.contains(from);
    MetadataQuestion question = read_metadata_question(request, own, tokens_, clock_.now());
    if (question.ask != MetadataAsk::Look) return exchange->respond(std::move(question.answer));
    std::unique_lock lock(mutex_);
    if (waiting_.size() >= most_waiting) {
      lock.unlock();
      return exchange->respond(busy("many ask at once; try again"));
    }
    waiting_.push_back({std::move(question.path), std::move(exchange)});
    changed_.notify_one();
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
      look_anew();
      const Instant now = clock_.now();
      if (!trouble_.empty() && !usable(now)) {
        job.exchange->respond(busy(trouble_));
        continue;
      }
      job.exchange->respond(answer_metadata(metadata_tree(options_.facts, document_, now), job.path));
    }
  }

  // What was told before holds while the face does not answer, until its credentials end.
  bool usable(Instant now) const { return document_ && (!ends_ || now < *ends_); }

  // On the worker alone, as are the fields that it sets.
  void look_anew() {
    const auto now = clock_.monotonic();
    if (looked_at_ && now - *looked_at_ < (trouble_.empty() ? document_is_fresh : trouble_is_fresh)) return;
    std::string trouble = ask();
    if (!trouble.empty() && trouble != trouble_) log_warn("what instance this node is cannot be asked", {{"why", trouble}});
    trouble_ = std::move(trouble);
    looked_at_ = clock_.monotonic();
  }

  // Empty: it is known now, also that there is none.
  std::string ask() {
    auto client = face_.get();
    if (!client) return "the site's AWS endpoint is not known on this node: " + client.error().message;
    auto answer = (*client)->request({.method = "GET", .target = api::node_identity::document_path, .headers = {{"Accept", "application/json"}}, .body = {}});
    if (!answer) {
      face_.forget(*client);
      return "the site's AWS endpoint does not answer: " + answer.error().message;
    }
    if (answer->status == 404 || answer->status == 403 || answer->status == 401) {
      document_.reset(), ends_.reset();
      return answer->status == 404 ? "" : "the site does not believe this node's certificate";
    }
    auto read = answer->status == 200 && answer->body.size() <= most_answer_bytes ? kube::parse_json(answer->body, {.depth_limit = 8}) : Result<kube::Json>(fail(Code::Unavailable, fmt::format("status {}", answer->status)));
    if (!read) return "the site's AWS endpoint answers something else: " + read.error().message;
    if (const auto good = check_document(*read); !good) return good.error().message;
    document_ = std::move(*read);
    ends_.reset();
    if (const kube::Json& its = (*document_)["credentials"]; !its.is_null()) ends_ = *parse_time(its["Expiration"].string());
    return "";
  }

  const Clock& clock_;
  const MetadataServiceOptions options_;
  const MetadataTokens tokens_;
  FaceClient face_;
  std::optional<kube::Json> document_;
  std::optional<Instant> ends_;
  std::string trouble_;
  std::optional<std::chrono::nanoseconds> looked_at_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Job> waiting_;
  std::jthread worker_;
  std::unique_ptr<http::Server> server_;
};

}  // namespace

Result<std::unique_ptr<MetadataService>> MetadataService::start(const Clock& clock, MetadataServiceOptions options) {
  auto service = std::make_unique<Service>(clock, std::move(options));
  if (auto done = service->start(); !done) return std::unexpected(std::move(done.error()));
  return service;
}

}  // namespace fairlead::agent
