// SPDX-License-Identifier: Apache-2.0
// What one request costs within the API server: routing, a service account's token, RBAC, audit log, admission, validation, managedFields, encoding;
// without wire, TLS and disk.
//   request_bench                          CPU time of this thread for each operation
//   request_bench OPERATION ROUNDS         that one alone, `bench/instructions.sh` counts the instructions of it
// OPERATION: create, get, list (of 1,000 pods), patch (of a pod's status), watch (a create seen by 1,000 watchers).
#include <fmt/format.h>
#include <stdlib.h>
#include <time.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "apiserver/api_handler.h"
#include "apiserver/rbac_defaults.h"
#include "apiserver/store/store.h"
#include "base/encoding.h"
#include "base/files.h"
#include "base/log.h"
#include "kube/json.h"

using namespace fairlead;
using namespace fairlead::apiserver;

namespace {

constexpr int listed = 1'000, watchers = 1'000;

double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Counts what it is told and forgets it.
class CountedStream final : public http::Stream {
 public:
  explicit CountedStream(std::size_t& pieces) : pieces_(pieces) {}
  bool write(http::Buffer) override {
    ++pieces_;
    return true;
  }
  std::size_t waiting() const override { return 0; }
  bool open() const override { return true; }
  void on_close(std::function<void()>) override {}

 private:
  std::size_t& pieces_;
};
class CountedExchange final : public http::Exchange {
 public:
  CountedExchange(http::Response& into, std::size_t& pieces) : into_(into), pieces_(pieces) {}
  void respond(http::Response response) override { into_ = std::move(response); }
  std::shared_ptr<http::Stream> stream(int status, http::Headers) override {
    into_.status = status;
    return std::make_shared<CountedStream>(pieces_);
  }
  Result<std::shared_ptr<http::WebSocket>> accept_websocket(std::string_view) override { return fail(Code::Invalid, "none here"); }

 private:
  http::Response& into_;
  std::size_t& pieces_;
};

// The pod of peer_probe.
std::string pod(const std::string& name) {
  std::string environment;
  for (int i = 0; i < 20; ++i)
    environment += fmt::format("{}{{\"name\":\"VARIABLE_{}\",\"value\":\"a value of usual length {}\"}}", i == 0 ? "" : ",", i, i);
  return fmt::format(
      "{{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{{\"name\":\"{}\",\"labels\":{{\"app\":\"bench\"}}}},\"spec\":{{\"schedulerName\":"
      "\"nobody\",\"automountServiceAccountToken\":false,"
      "\"containers\":[{{\"name\":\"main\",\"image\":\"slurm\",\"command\":[\"sleep\",\"1000\"],\"env\":[{}],\"resources\":{{\"requests\":{{\"cpu\":"
      "\"100m\",\"memory\":\"64Mi\"}}}}}}]}}}}",
      name, environment);
}

class Site {
 public:
  Site() {
    char name[] = "/tmp/request_bench.XXXXXX";
    INVARIANT(::mkdtemp(name) != nullptr);
    dir_ = name;
    auto opened = Registry::open(*store_, clock_, {.secret_key = std::string(32, 'k')});
    INVARIANT(opened.has_value());
    registry_ = std::move(*opened);
    INVARIANT(reconcile_default_objects(*registry_).has_value());
    auto key = make_token_key();
    INVARIANT(key.has_value());
    auto keys = TokenKeys::make(*key, {});
    INVARIANT(keys.has_value());
    auto audit = AuditLog::open({.path = dir_ + "/audit.jsonl"});
    INVARIANT(audit.has_value());
    HandlerOptions options{.token_keys = std::move(*keys), .limits = {.per_second = 0}, .audit = std::move(*audit)};
    options.tokens = {{sha256("admin-token"), "admin", {"system:masters"}}};
    handler_ = ApiHandler::make(*registry_, clock_, std::move(options));
    token_ = "admin-token";
    const std::string rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/bench/";
    need(201, "POST", "/api/v1/namespaces", R"({"metadata":{"name":"bench"}})");
    need(201, "POST", "/api/v1/namespaces/bench/serviceaccounts", R"({"metadata":{"name":"load"}})");
    need(
        201, "POST", rbac + "roles",
        R"({"metadata":{"name":"load"},"rules":[{"apiGroups":[""],"resources":["pods","pods/status"],"verbs":["get","list","watch","create","patch"]}]})");
    need(
        201, "POST", rbac + "rolebindings",
        R"({"metadata":{"name":"load"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"load"},"subjects":[{"kind":"ServiceAccount","name":"load","namespace":"bench"}]})");
    const auto answer = need(201, "POST", "/api/v1/namespaces/bench/serviceaccounts/load/token", R"({"spec":{"expirationSeconds":7200}})");
    const auto parsed = kube::parse_json(answer.body);
    INVARIANT(parsed.has_value());
    token_ = (*parsed)["status"]["token"].string();
  }
  ~Site() {
    handler_.reset();
    registry_.reset();
    std::filesystem::remove_all(dir_);
  }

  http::Response need(int status, const std::string& method, const std::string& path, std::string body = "",
                      std::string_view media = "application/json") {
    http::Response response;
    auto target = http::parse_target(path);
    INVARIANT(target.has_value());
    http::Request request{.method = method, .target = std::move(*target), .body = std::move(body)};
    request.headers = {
        {"Host", "127.0.0.1:6443"}, {"User-Agent", "bench/1 (linux/amd64)"}, {"Accept", "application/json"}, {"Authorization", "Bearer " + token_}};
    if (!request.body.empty()) request.headers.emplace_back("Content-Type", media);
    request.peer.address = "127.0.0.1";
    handler_->handle(std::move(request), std::make_shared<CountedExchange>(response, pieces_));
    if (response.status != status) {
      fmt::print(stderr, "{} {}: {} {}\n", method, path, response.status, response.body.substr(0, 300));
      std::exit(1);
    }
    return response;
  }
  void create(const std::string& name) { need(201, "POST", pods, pod(name)); }
  std::size_t pieces() const { return pieces_; }

  static constexpr const char* pods = "/api/v1/namespaces/bench/pods";

 private:
  SystemClock clock_;
  std::string dir_, token_;
  std::unique_ptr<Store> store_ = make_memory_store({.events = 1'000});
  std::unique_ptr<Registry> registry_;
  std::size_t pieces_ = 0;  // outlives the handler, which holds streams
  std::unique_ptr<ApiHandler> handler_;
};

struct Operation {
  std::string_view name, what;
  std::function<void(Site&)> prepare;
  std::function<void(Site&, int)> one;
  int rounds;
};

const std::vector<Operation>& operations() {
  static const auto fill = [](Site& site) {
    for (int i = 0; i < listed; ++i) site.create(fmt::format("pod-{}", i));
  };
  static const std::vector<Operation> all{
      {"create", "create of a pod", [](Site&) {}, [](Site& site, int i) { site.create(fmt::format("new-{}", i)); }, 10'000},
      {"get", "GET of a pod", fill, [](Site& site, int i) { site.need(200, "GET", fmt::format("{}/pod-{}", Site::pods, i % listed)); }, 50'000},
      {"list", "LIST of 1,000 pods", fill, [](Site& site, int) { INVARIANT(site.need(200, "GET", Site::pods).parts.size() > listed); }, 500},
      {"patch", "merge patch of a pod's status", fill,
       [](Site& site, int i) {
         site.need(200, "PATCH", fmt::format("{}/pod-{}/status", Site::pods, i % listed),
                   fmt::format(R"({{"status":{{"phase":"Running","podIP":"10.78.1.{}"}}}})", i / listed % 250), "application/merge-patch+json");
       },
       10'000},
      {"watch", "create of a pod that 1,000 watchers see",
       [](Site& site) {
         for (int i = 0; i < watchers; ++i) site.need(200, "GET", std::string(Site::pods) + "?watch=true&allowWatchBookmarks=true");
       },
       [](Site& site, int i) {
         const std::size_t before = site.pieces();
         site.create(fmt::format("seen-{}", i));
         INVARIANT(site.pieces() == before + watchers);
       },
       1'000}};
  return all;
}

void run(const Operation& operation, int rounds) {
  Site site;
  operation.prepare(site);
  const double start = cpu_seconds();
  for (int i = 0; i < rounds; ++i) operation.one(site, i);
  fmt::print("{}: {:.2f} us CPU each ({} times)\n", operation.what, (cpu_seconds() - start) / std::max(rounds, 1) * 1e6, rounds);
}

}  // namespace

int main(int argc, char** argv) {
  start_logging("request_bench", "error");
  for (const Operation& operation : operations()) {
    if (argc > 1 && operation.name != argv[1]) continue;
    run(operation, argc > 2 ? std::atoi(argv[2]) : operation.rounds);
  }
  return 0;
}
