// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include "http/client.h"
#include "training/agents.h"

namespace fairlead::training {
namespace {

using namespace std::chrono_literals;
constexpr std::size_t kAtOnce = 32, kAnswerLimit = 64 << 10;
constexpr std::chrono::milliseconds kAnswer{4'000}, kLook{8'000};

bool is_local(const std::string& address) {
  in_addr four{};
  if (::inet_pton(AF_INET, address.c_str(), &four) == 1) {
    const std::uint32_t bits = ntohl(four.s_addr);
    return bits >> 24 == 127 || bits >> 24 == 0 || bits >> 16 == 0xa9fe || bits >> 28 >= 0xe;
  }
  in6_addr six{};
  if (::inet_pton(AF_INET6, address.c_str(), &six) != 1) return true;  // not an address at all
  return IN6_IS_ADDR_LOOPBACK(&six) || IN6_IS_ADDR_UNSPECIFIED(&six) || IN6_IS_ADDR_LINKLOCAL(&six) || IN6_IS_ADDR_V4MAPPED(&six) || IN6_IS_ADDR_MULTICAST(&six);
}

Result<std::string> ask(const AgentAt& at, const char* method, const std::string& path, std::string body) {
  const auto client = http::Client::make({.host = at.address, .port = at.port, .tls = false, .connect_timeout = 2s, .request_timeout = kAnswer, .kept_connections = 0});
  if (!client) return std::unexpected(client.error());
  http::ClientRequest request{.method = method, .target = path, .headers = {{"Accept", "application/json"}}, .body = std::move(body)};
  if (!request.body.empty()) request.headers.emplace_back("Content-Type", "application/json");
  // Piece by piece: a container may answer without an end.
  auto answer = (*client)->open(request);
  if (!answer) return fail(Code::Unavailable, std::move(answer.error().message));
  if ((*answer)->status() != 200) return fail(Code::Invalid, fmt::format("{} {} of {}:{}: HTTP {}", method, path, at.address, at.port, (*answer)->status()));
  std::string out;
  const auto until = std::chrono::steady_clock::now() + kAnswer;
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    if (left <= 0ms) return fail(Code::Unavailable, "its answer takes too long");
    auto piece = (*answer)->read(left);
    if (!piece) return fail(Code::Unavailable, std::move(piece.error().message));
    if (!*piece) return fail(Code::Unavailable, "its answer takes too long");
    if ((*piece)->empty()) return out;
    out += **piece;
    if (out.size() > kAnswerLimit) return fail(Code::Invalid, "its answer is longer than an agent's");
  }
}

// f(0) ... f(count - 1), side by side.
template <class F>
void side_by_side(std::size_t count, const F& f) {
  std::atomic<std::size_t> next{0};
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < std::min(count, kAtOnce); ++i)
    threads.emplace_back([&] {
      for (std::size_t at = next++; at < count; at = next++) {
        try {
          f(at);
        } catch (const std::exception&) {  // no memory for an answer: it stays unanswered
        }
      }
    });
}

class HttpAgents final : public Agents {
 public:
  explicit HttpAgents(AgentReach reach) : reach_(reach) {}
  std::vector<Result<AgentReport>> status(const std::vector<AgentAt>& agents) override {
    std::vector<Result<AgentReport>> out(agents.size(), fail(Code::Unavailable, ""));
    const auto until = std::chrono::steady_clock::now() + kLook;
    side_by_side(agents.size(), [&](std::size_t i) {
      if (std::chrono::steady_clock::now() > until) {
        out[i] = fail(Code::Exhausted, "not asked: the others took too long");
        return;
      }
      auto body = ask_at(agents[i], "GET", "/status", "");
      if (body) out[i] = parse_agent_report(*body);
      else out[i] = std::unexpected(std::move(body.error()));
    });
    return out;
  }
  std::vector<Result<void>> tell(const std::vector<Order>& orders) override {
    std::vector<Result<void>> out(orders.size(), Result<void>());
    const auto until = std::chrono::steady_clock::now() + kLook;
    side_by_side(orders.size(), [&](std::size_t i) {
      const Order& one = orders[i];
      if (std::chrono::steady_clock::now() > until) {
        out[i] = fail(Code::Exhausted, "not told: the others took too long");
        return;
      }
      auto done = one.what == Order::What::Start ? ask_at(one.at, "POST", "/start", body_of(one.start)) : one.what == Order::What::Stop ? ask_at(one.at, "POST", "/stop", body_of(one.stop)) : ask_at(one.at, "POST", "/shutdown", "");
      if (!done) out[i] = std::unexpected(std::move(done.error()));
    });
    return out;
  }

 private:
  Result<std::string> ask_at(const AgentAt& at, const char* method, const std::string& path, std::string body) const {
    if (reach_ == AgentReach::Pods && is_local(at.address)) return fail(Code::Invalid, at.address + " is no address of a pod");
    return ask(at, method, path, std::move(body));
  }
  const AgentReach reach_;
};

}  // namespace

std::unique_ptr<Agents> make_http_agents(AgentReach reach) { return std::make_unique<HttpAgents>(reach); }

}  // namespace fairlead::training
