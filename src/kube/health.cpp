// SPDX-License-Identifier: Apache-2.0
#include "kube/health.h"

#include <fmt/format.h>

namespace fairlead::kube {
namespace {

constexpr const char* text_type = "text/plain; charset=utf-8";
constexpr const char* metrics_type = "text/plain; version=0.0.4; charset=utf-8";

http::Response answer_text(int status, std::string body) { return {.status = status, .headers = {{"Content-Type", text_type}}, .body = std::move(body), .parts = {}}; }

}  // namespace

Result<std::unique_ptr<http::Server>> serve_health(const std::string& address, unsigned short port, HealthAnswers answers) {
  auto handler = [answers = std::move(answers)](const http::Request& request, const std::shared_ptr<http::Exchange>& exchange) {
    const std::string& path = request.target.path;
    if (request.method != "GET") return exchange->respond(answer_text(405, "GET only\n"));
    if (path == "/healthz" || path == "/livez") return exchange->respond(answer_text(200, "ok\n"));
    if (path == "/readyz") {
      const auto ready = answers.ready();
      return exchange->respond(ready ? answer_text(200, "ok\n") : answer_text(503, ready.error().message + "\n"));
    }
    if (path == "/metrics") return exchange->respond({.status = 200, .headers = {{"Content-Type", metrics_type}}, .body = answers.metrics(), .parts = {}});
    exchange->respond(answer_text(404, "/healthz, /readyz and /metrics are here\n"));
  };
  return http::Server::start({.address = address, .port = port, .threads = 1, .body_limit = 4_KiB, .connection_limit = 100}, std::move(handler));
}

std::string print_metrics(std::int64_t epoch, const std::map<std::string, Runner::Count>& controllers) {
  std::string out = fmt::format("# TYPE fairlead_build_info gauge\nfairlead_build_info{{version=\"{}\"}} 1\n", FAIRLEAD_VERSION);
  out += fmt::format("# TYPE fairlead_leader gauge\nfairlead_leader {}\n# TYPE fairlead_leader_epoch gauge\nfairlead_leader_epoch {}\n", epoch > 0 ? 1 : 0, epoch);
  const auto table = [&](const char* metric, const char* type, auto value) {
    out += fmt::format("# TYPE {} {}\n", metric, type);
    for (const auto& [name, count] : controllers) out += fmt::format("{}{{controller=\"{}\"}} {}\n", metric, name, value(count));
  };
  table("fairlead_controller_reconciles_total", "counter", [](const auto& count) { return count.reconciles; });
  table("fairlead_controller_failures_total", "counter", [](const auto& count) { return count.failures; });
  table("fairlead_controller_waiting_keys", "gauge", [](const auto& count) { return count.waiting; });
  return out;
}

}  // namespace fairlead::kube
