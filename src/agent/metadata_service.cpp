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
constexpr std::chrono::seconds document_is_fresh{5}, nothing_is_fresh{1}, trouble_is_fresh{2}, trouble_is_borne{10};  // borne: while what is kept is still good

class Service final : public MetadataService {
 public:
  Service(const Clock& clock, MetadataServiceOptions options) : clock_(clock), options_(std::move(options)), tokens_(secret_bytes(32)), face_(clock, options_.find_face, options_.certificate) {}
  ~Service() override {
    server_.reset();
    for (std::jthread* thread : {&worker_, &asker_}) thread->request_stop();
    changed_.notify_all();
    wanted_.notify_all();
    known_.notify_all();
  }
  Result<void> start() {
    worker_ = std::jthread([this](std::stop_token stop) { work(stop); });
    asker_ = std::jthread([this](std::stop_token stop) { keep_asking(stop); });
    auto server = http::Server::start({.address = options_.address, .port = options_.port, .unix_socket = {}, .tls = {}, .threads = 1, .body_limit = 1_KiB, .idle_timeout = 30s, .connection_limit = most_connections, .refusal = {}},
                                      [this](http::Request request, std::shared_ptr<http::Exchange> exchange) { take(request, std::move(exchange)); });
    if (!server) return std::unexpected(std::move(server.error()));
    server_ = std::move(*server);
    return {};
  }
  unsigned short port() const override { return server_->port(); }

 private:
  struct Job {
    std::string path, slurm;  // slurm: whose pod asks; empty: a process of the node
    std::shared_ptr<http::Exchange> exchange;
  };

  static http::Response busy(const std::string& why) { return {.status = 503, .headers = {{"Content-Type", "text/plain"}, {"Cache-Control", "no-store"}}, .body = why + "\n", .parts = {}}; }

  void take(const http::Request& request, std::shared_ptr<http::Exchange> exchange) {
    const std::string& from = request.peer.address;
    const bool own = from == options_.address || from == "127.0.0.1" || options_.own.contains(from);
    std::string slurm = own || !options_.slurm_cluster_of ? "" : options_.slurm_cluster_of(from);
    MetadataQuestion question = read_metadata_question(request, own || !slurm.empty(), tokens_, clock_.now());
    if (question.ask != MetadataAsk::Look) return exchange->respond(std::move(question.answer));
    std::unique_lock lock(mutex_);
    if (waiting_.size() >= most_waiting) {
      lock.unlock();
      return exchange->respond(busy("many ask at once; try again"));
    }
    waiting_.push_back({std::move(question.path), std::move(slurm), std::move(exchange)});
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
      job.exchange->respond(answer(job, stop));
    }
  }

  http::Response answer(const Job& job, const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    if (!fresh()) {
      // A face that does not come back is waited for once.
      const bool hopeless = asking_since_ && std::chrono::steady_clock::now() - *asking_since_ >= options_.patience;
      wanted_now_ = true;
      wanted_.notify_all();
      if (!hopeless) known_.wait_for(lock, stop, options_.patience, [this] { return fresh(); });
    }
    const Instant now = clock_.now();
    if (!looked_at_) return busy("what instance this node is, is being asked; try again");
    if (!trouble_.empty() && !usable(now)) return busy(trouble_);
    // What could not be asked again holds as long as its credentials.
    if (document_ && !usable(now)) return busy("the site's AWS endpoint does not answer; try again");
    if (!job.slurm.empty() && (!document_ || (*document_)["slurmCluster"].string() != job.slurm)) return not_for_pods();
    return answer_metadata(metadata_tree(options_.facts, document_, now), job.path);
  }

  // With mutex_ held, as the next.
  bool usable(Instant now) const { return document_ && (!ends_ || now < *ends_); }
  bool fresh() const {
    if (!looked_at_) return false;
    const auto limit = trouble_.empty() ? (document_ && !(*document_)["credentials"].is_null() ? document_is_fresh : nothing_is_fresh) : usable(clock_.now()) ? trouble_is_borne : trouble_is_fresh;
    return clock_.monotonic() - *looked_at_ < limit;
  }

  // On a thread of its own: a face that is silent keeps nobody from what is known.
  void keep_asking(const std::stop_token& stop) {
    while (true) {
      {
        std::unique_lock lock(mutex_);
        if (!wanted_.wait(lock, stop, [this] { return wanted_now_; })) return;
        wanted_now_ = false;
        asking_since_ = std::chrono::steady_clock::now();
      }
      Told told = ask();
      const std::lock_guard lock(mutex_);
      asking_since_.reset();
      wanted_now_ = false;
      if (!told.trouble.empty() && told.trouble != trouble_) log_warn("what instance this node is cannot be asked", {{"why", told.trouble}});
      if (!told.keep) {
        document_ = std::move(told.document);
        ends_.reset();
        if (document_)
          if (const kube::Json& its = (*document_)["credentials"]; !its.is_null()) ends_ = *parse_time(its["Expiration"].string());
      }
      trouble_ = std::move(told.trouble);
      looked_at_ = clock_.monotonic();
      known_.notify_all();
    }
  }

  struct Told {
    std::string trouble;                    // empty: it is known now, also that there is none
    bool keep = false;                      // what was told before holds
    std::optional<kube::Json> document;
  };
  Told ask() {
    auto client = face_.get();
    if (!client) return {"the site's AWS endpoint is not known on this node: " + client.error().message, true, {}};
    auto answer = (*client)->request({.method = "GET", .target = api::node_identity::document_path, .headers = {{"Accept", "application/json"}}, .body = {}});
    if (!answer) {
      face_.forget(*client);
      return {"the site's AWS endpoint does not answer: " + answer.error().message, true, {}};
    }
    if (answer->status == 404) return {};
    if (answer->status == 403 || answer->status == 401) return {"the site does not believe this node's certificate", false, {}};
    auto read = answer->status == 200 && answer->body.size() <= most_answer_bytes ? kube::parse_json(answer->body, {.depth_limit = 8}) : Result<kube::Json>(fail(Code::Unavailable, fmt::format("status {}", answer->status)));
    if (!read) return {"the site's AWS endpoint answers something else: " + read.error().message, true, {}};
    if (const auto good = check_document(*read); !good) return {good.error().message, true, {}};
    return {{}, false, std::move(*read)};
  }

  const Clock& clock_;
  const MetadataServiceOptions options_;
  const MetadataTokens tokens_;
  FaceClient face_;
  std::optional<kube::Json> document_;
  std::optional<Instant> ends_;
  std::string trouble_;
  std::optional<std::chrono::nanoseconds> looked_at_;
  std::optional<std::chrono::steady_clock::time_point> asking_since_;  // of this process, whatever clock_ is
  bool wanted_now_ = false;
  std::mutex mutex_;  // of all of these
  std::condition_variable_any changed_, wanted_, known_;
  std::deque<Job> waiting_;
  std::jthread worker_, asker_;
  std::unique_ptr<http::Server> server_;
};

}  // namespace

Result<std::unique_ptr<MetadataService>> MetadataService::start(const Clock& clock, MetadataServiceOptions options) {
  auto service = std::make_unique<Service>(clock, std::move(options));
  if (auto done = service->start(); !done) return std::unexpected(std::move(done.error()));
  return service;
}

}  // namespace fairlead::agent
