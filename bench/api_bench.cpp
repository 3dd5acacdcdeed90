// SPDX-License-Identifier: Apache-2.0
// How many durable creates a second the API takes over TLS from 1, 16 and 64 connections; how fast it answers GET and LIST of 10,000 pods; what an idle
// fairlead-server weighs. Server and blocking clients share this process and its cores: the figures are those of a busy small machine. Prints JSON.
//   api_bench [SECONDS per cell, 3] [STATE_DIR, a temporary folder]
#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <thread>

#include "apiserver/embedded.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "base/process.h"
#include "http/client.h"
#include "kube/kubeconfig.h"

namespace fairlead {
namespace {

constexpr int pods = 10'000;
const SystemClock clock_of_bench;
using Seconds = std::chrono::duration<double>;

[[noreturn]] void give_up(const std::string& why) {
  fmt::print(stderr, "api_bench: {}\n", why);
  std::exit(1);
}
template <class T>
T need(Result<T> result, const char* what) {
  if (!result) give_up(fmt::format("{}: {}", what, result.error().message));
  return std::move(*result);
}

std::shared_ptr<http::Client> connect(const kube::RestConfig& rest, unsigned short port) {
  return need(http::Client::make({.host = "127.0.0.1", .port = port, .ca_pem = rest.ca_pem, .certificate_pem = rest.certificate_pem, .key_pem = rest.key_pem, .kept_connections = 1}),
              "client");
}

// A pod as an operator writes it: 1.5 kB.
std::string pod(const std::string& name) {
  std::string environment;
  for (int i = 0; i < 20; ++i) environment += fmt::format("{}{{\"name\":\"VARIABLE_{}\",\"value\":\"a value of usual length {}\"}}", i == 0 ? "" : ",", i, i);
  return fmt::format(
      "{{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{{\"name\":\"{}\",\"namespace\":\"default\",\"labels\":{{\"app\":\"bench\"}}}},\"spec\":{{\"containers\":[{{\"name\":\"main\","
      "\"image\":\"slurm\",\"command\":[\"sleep\",\"1000\"],\"env\":[{}],\"resources\":{{\"requests\":{{\"cpu\":\"100m\",\"memory\":\"64Mi\"}}}}}}]}}}}",
      name, environment);
}

struct Cell {
  double per_second = 0, p50_ms = 0, p99_ms = 0;
  std::size_t requests = 0;
};

// `connections` threads, each with one kept connection, call `one` until the time is up.
template <class One>
Cell measure(int connections, Seconds length, const kube::RestConfig& rest, unsigned short port, One one) {
  std::vector<std::vector<double>> times(static_cast<std::size_t>(connections));
  std::vector<std::thread> threads;
  std::atomic<int> ready{0};
  std::atomic<bool> go{false}, stop{false};
  for (int t = 0; t < connections; ++t) {
    threads.emplace_back([&, t] {
      const auto client = connect(rest, port);
      const auto warm = need(client->request({.target = "/version"}), "warm-up");
      if (warm.status != 200) give_up("warm-up was refused");
      ++ready;
      while (!go) std::this_thread::yield();
      for (int i = 0; !stop; ++i) {
        const auto begin = clock_of_bench.monotonic();
        one(*client, t, i);
        times[static_cast<std::size_t>(t)].push_back(Seconds(clock_of_bench.monotonic() - begin).count());
      }
    });
  }
  while (ready < connections) std::this_thread::yield();
  const auto begin = clock_of_bench.monotonic();
  go = true;
  std::this_thread::sleep_for(length);
  stop = true;
  for (auto& thread : threads) thread.join();
  const double took = Seconds(clock_of_bench.monotonic() - begin).count();
  std::vector<double> all;
  for (const auto& part : times) all.insert(all.end(), part.begin(), part.end());
  std::sort(all.begin(), all.end());
  if (all.empty()) give_up("no request was answered");
  const auto at = [&](double share) { return 1e3 * all[static_cast<std::size_t>(share * static_cast<double>(all.size() - 1))]; };
  return {static_cast<double>(all.size()) / took, at(0.5), at(0.99), all.size()};
}

void expect(const Result<http::Response>& response, int status) {
  if (!response) give_up(response.error().message);
  if (response->status != status) give_up(fmt::format("status {} instead of {}: {}", response->status, status, response->body.substr(0, 300)));
}

std::string print(const std::string& name, const Cell& cell) {
  return fmt::format("  {{\"what\": \"{}\", \"per_second\": {:.0f}, \"p50_ms\": {:.2f}, \"p99_ms\": {:.2f}, \"requests\": {}}}", name, cell.per_second, cell.p50_ms, cell.p99_ms, cell.requests);
}

long resident_kb(pid_t pid) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmRSS:", 0) == 0) return std::atol(line.c_str() + 6);
  }
  return 0;
}

// Starts the real program beside this one and weighs it when it has served its first request and rested.
std::string idle_memory(const std::string& dir) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").parent_path().string() + "/fairlead-server";
  if (!exists(program)) return "  {\"what\": \"idle RSS\", \"note\": \"fairlead-server is not built\"}";
  Child child = need(Child::start({.argv = {program, "--state-dir", dir, "--listen", "127.0.0.1:0", "--log-level", "error"}}), "fairlead-server");
  const std::string config = dir + "/pki/admin.kubeconfig";
  const auto end = clock_of_bench.monotonic() + 20s;
  while (!exists(dir + "/run/server.pid") || !exists(config)) {
    if (clock_of_bench.monotonic() > end) give_up("fairlead-server did not start");
    std::this_thread::sleep_for(20ms);
  }
  std::this_thread::sleep_for(2s);
  const long kb = resident_kb(child.pid());
  if (kb == 0) return "  {\"what\": \"idle RSS of fairlead-server\", \"note\": \"it ended at once: is fairlead-slurm built beside it?\"}";
  (void)child.signal(SIGTERM).has_value();
  (void)child.wait(10s).has_value();
  return fmt::format("  {{\"what\": \"idle RSS of fairlead-server\", \"mb\": {:.1f}}}", static_cast<double>(kb) / 1024);
}

int bench(int argc, char** argv) {
  const Seconds length(argc > 1 ? std::atof(argv[1]) : 3.0);
  std::string dir = argc > 2 ? argv[2] : "";
  if (dir.empty()) {
    char name[] = "/tmp/api_bench.XXXXXX";
    if (::mkdtemp(name) == nullptr) give_up("no temporary folder");
    dir = name;
  }
  start_logging("api_bench", "error");
  std::vector<std::string> lines;
  {
    auto server = need(apiserver::EmbeddedServer::start({.state_dir = dir + "/bench", .port = 0}, clock_of_bench), "server");
    const auto rest = need(kube::read_kubeconfig(server->admin_kubeconfig()), "kubeconfig").rest;
    const unsigned short port = server->port();
    const std::string collection = "/api/v1/namespaces/default/pods";

    // Exactly `pods` objects first, so that GET and LIST do not depend on how fast creates were.
    std::vector<std::thread> fill;
    for (int t = 0; t < 16; ++t) {
      fill.emplace_back([&, t] {
        const auto client = connect(rest, port);
        for (int i = t; i < pods; i += 16) {
          expect(client->request({.method = "POST", .target = collection, .headers = {{"Content-Type", "application/json"}}, .body = pod(fmt::format("pod-{}", i))}), 201);
        }
      });
    }
    for (auto& thread : fill) thread.join();
    lines.push_back(fmt::format("  {{\"what\": \"RSS of server and clients with {} pods\", \"mb\": {:.1f}}}", pods, static_cast<double>(resident_kb(::getpid())) / 1024));

    for (const int connections : {1, 16, 64}) {
      lines.push_back(print(fmt::format("GET of one pod, {} connections", connections), measure(connections, length, rest, port, [&](http::Client& client, int t, int i) {
                              expect(client.request({.target = fmt::format("{}/pod-{}", collection, (t * 7919 + i) % pods)}), 200);
                            })));
    }
    std::atomic<std::size_t> size{0};
    lines.push_back(print(fmt::format("LIST of {} pods, 1 connection", pods), measure(1, length, rest, port, [&](http::Client& client, int, int) {
                            const auto response = client.request({.target = collection});
                            expect(response, 200);
                            size = response->body.size();
                          })));
    lines.push_back(fmt::format("  {{\"what\": \"size of that list\", \"mb\": {:.1f}}}", static_cast<double>(size) / 1e6));
    lines.push_back(print("LIST of 500 pods as a Table, 1 connection", measure(1, length, rest, port, [&](http::Client& client, int, int) {
                            expect(client.request({.target = collection + "?limit=500", .headers = {{"Accept", "application/json;as=Table;v=v1;g=meta.k8s.io"}}}), 200);
                          })));
    for (const int connections : {1, 16, 64}) {
      lines.push_back(print(fmt::format("durable create, {} connections", connections), measure(connections, length, rest, port, [&](http::Client& client, int t, int i) {
                              const std::string body = pod(fmt::format("new-{}-{}-{}", connections, t, i));
                              expect(client.request({.method = "POST", .target = collection, .headers = {{"Content-Type", "application/json"}}, .body = body}), 201);
                            })));
    }
  }
  lines.push_back(idle_memory(dir + "/idle"));
  fmt::print("[\n");
  for (std::size_t i = 0; i < lines.size(); ++i) fmt::print("{}{}\n", lines[i], i + 1 < lines.size() ? "," : "");
  fmt::print("]\n");
  if (argc <= 2) std::filesystem::remove_all(dir);
  return 0;
}

}  // namespace
}  // namespace fairlead

int main(int argc, char** argv) { return fairlead::bench(argc, argv); }
