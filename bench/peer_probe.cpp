// SPDX-License-Identifier: Apache-2.0
// Puts the same load on any Kubernetes API in another process, over TLS with the identity that a kubeconfig names: creates, GET, LIST, watch fan-out,
// memory. Prints one JSON line per figure.
//   peer_probe KUBECONFIG NAME PID[,PID...] [SECONDS per cell, 3] [PODS, 10000] [WATCHERS, 1000]
// NAME says whose figures these are; PIDs are the server's processes, whose memory is added up. Pods are made in the namespace of the kubeconfig's
// context and stay there.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "http/client.h"
#include "kube/kubeconfig.h"

namespace fairlead {
namespace {

const SystemClock clock_of_bench;
using Seconds = std::chrono::duration<double>;
double now() { return Seconds(clock_of_bench.monotonic()).count(); }

[[noreturn]] void give_up(const std::string& why) {
  fmt::print(stderr, "peer_probe: {}\n", why);
  std::exit(1);
}
template <class T>
T need(Result<T> result, const char* what) {
  if (!result) give_up(fmt::format("{}: {}", what, result.error().message));
  return std::move(*result);
}

struct Target {
  kube::RestConfig rest;
  std::string space, name, host;
  unsigned short port = 443;
  std::vector<int> pids;
  http::Headers headers;
  std::string collection() const { return fmt::format("/api/v1/namespaces/{}/pods", space); }
};

std::shared_ptr<http::Client> connect(const Target& target) {
  return need(http::Client::make({.host = target.host,
                                  .port = target.port,
                                  .ca_pem = target.rest.ca_pem,
                                  .certificate_pem = target.rest.certificate_pem,
                                  .key_pem = target.rest.key_pem,
                                  .kept_connections = 1}),
              "client");
}

http::ClientRequest asking(const Target& target, std::string method, std::string path, std::string body = "") {
  http::ClientRequest request{.method = std::move(method), .target = std::move(path), .headers = target.headers, .body = std::move(body)};
  if (!request.body.empty()) request.headers.emplace_back("Content-Type", "application/json");
  return request;
}

// A pod as an operator writes it, 1.5 kB; no scheduler looks at it.
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

void expect(const Result<http::Response>& response, int status) {
  if (!response) give_up(response.error().message);
  if (response->status != status) give_up(fmt::format("status {} instead of {}: {}", response->status, status, response->body.substr(0, 300)));
}
void create(const Target& target, http::Client& client, const std::string& name) {
  const auto request = asking(target, "POST", target.collection(), pod(name));
  auto response = client.request(request);
  // A server that protects itself says when to come back; the wait is part of its figure.
  while (response && response->status == 429) {
    std::this_thread::sleep_for(100ms);
    response = client.request(request);
  }
  expect(response, 201);
}

// In MB; `field` is VmRSS or VmHWM, the most since the last reset.
double memory(const Target& target, const std::string& field) {
  double kb = 0;
  for (const int pid : target.pids) {
    std::ifstream status(fmt::format("/proc/{}/status", pid));
    for (std::string line; std::getline(status, line);)
      if (line.rfind(field + ":", 0) == 0) kb += std::atof(line.c_str() + field.size() + 1);
  }
  return kb / 1024;
}
void reset_peak(const Target& target) {
  for (const int pid : target.pids) std::ofstream(fmt::format("/proc/{}/clear_refs", pid)) << "5";
}

void tell(const Target& target, const std::string& what, const std::string& figures) {
  fmt::print("{{\"engine\": \"{}\", \"what\": \"{}\", {}}}\n", target.name, what, figures);
  std::fflush(stdout);
}

std::string spread(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const auto at = [&](double share) { return 1e3 * seconds[static_cast<std::size_t>(share * static_cast<double>(seconds.size() - 1))]; };
  return fmt::format("\"p50_ms\": {:.2f}, \"p99_ms\": {:.2f}, \"requests\": {}", at(0.5), at(0.99), seconds.size());
}

// `connections` threads, each with one kept connection, call `one` until the time is up.
template <class One>
void measure(const Target& target, const std::string& what, int connections, double length, One one) {
  std::vector<std::vector<double>> times(static_cast<std::size_t>(connections));
  std::vector<std::thread> threads;
  std::atomic<int> ready{0};
  std::atomic<bool> go{false}, stop{false};
  for (int t = 0; t < connections; ++t) {
    threads.emplace_back([&, t] {
      const auto client = connect(target);
      expect(client->request(asking(target, "GET", "/version")), 200);
      ++ready;
      while (!go) std::this_thread::sleep_for(1ms);
      for (int i = 0; !stop; ++i) {
        const double begin = now();
        one(*client, t, i);
        times[static_cast<std::size_t>(t)].push_back(now() - begin);
      }
    });
  }
  while (ready < connections) std::this_thread::sleep_for(1ms);
  const double begin = now();
  go = true;
  std::this_thread::sleep_for(Seconds(length));
  stop = true;
  for (auto& thread : threads) thread.join();
  const double took = now() - begin;
  std::vector<double> all;
  for (const auto& part : times) all.insert(all.end(), part.begin(), part.end());
  if (all.empty()) give_up("no request was answered");
  tell(target, fmt::format("{}, {} connection{}", what, connections, connections == 1 ? "" : "s"),
       fmt::format("\"per_second\": {:.0f}, {}", static_cast<double>(all.size()) / took, spread(all)));
}

void fill(const Target& target, int pods) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 16; ++t) {
    threads.emplace_back([&, t] {
      const auto client = connect(target);
      for (int i = t; i < pods; i += 16) create(target, *client, fmt::format("pod-{}", i));
    });
  }
  for (auto& thread : threads) thread.join();
}

void list(const Target& target, int pods, double length) {
  std::atomic<std::size_t> size{0};
  const double before = memory(target, "VmRSS");
  reset_peak(target);
  measure(target, fmt::format("LIST of {} pods", pods), 1, length, [&](http::Client& client, int, int) {
    const auto response = client.request(asking(target, "GET", target.collection()));
    expect(response, 200);
    size = response->body.size();
  });
  tell(target, "that list",
       fmt::format("\"body_mb\": {:.1f}, \"extra_memory_mb\": {:.0f}", static_cast<double>(size) / 1e6, memory(target, "VmHWM") - before));
}

// Each of `watchers` connections sees each of `events` creates; a create's time ends when the last has it.
void fan_out(const Target& target, int watchers, int events) {
  std::vector<std::atomic<int>> seen(static_cast<std::size_t>(watchers));
  std::vector<std::unique_ptr<http::BodyReader>> readers(static_cast<std::size_t>(watchers));
  const auto client = connect(target);
  const auto first = client->request(asking(target, "GET", target.collection() + "?limit=1"));
  expect(first, 200);
  const std::size_t at = first->body.find("\"resourceVersion\":\"");
  if (at == std::string::npos) give_up("a list without resourceVersion");
  const std::string version = first->body.substr(at + 19, first->body.find('"', at + 19) - at - 19);
  for (auto& reader : readers) {
    reader = need(client->open(asking(target, "GET", fmt::format("{}?watch=true&resourceVersion={}", target.collection(), version))), "watch");
    if (reader->status() != 200) give_up(fmt::format("a watch is answered with {}", reader->status()));
  }
  std::vector<std::thread> threads;
  for (std::size_t w = 0; w < seen.size(); ++w) {
    threads.emplace_back([&, w] {
      for (;;) {
        const auto part = readers[w]->read(60s);
        if (!part || !*part || (*part)->empty()) return;
        seen[w] += static_cast<int>(std::count((*part)->begin(), (*part)->end(), '\n'));
      }
    });
  }
  std::vector<double> times;
  const double begin = now();
  for (int event = 1; event <= events; ++event) {
    const double asked = now();
    create(target, *client, fmt::format("seen-{}", event));
    while (std::any_of(seen.begin(), seen.end(), [&](const auto& count) { return count < event; })) {
      if (now() - asked > 60) give_up("a watcher did not see an event within 60 s");
      std::this_thread::sleep_for(200us);
    }
    times.push_back(now() - asked);
  }
  const double took = now() - begin;
  tell(target, fmt::format("create until the last of {} watchers has it", watchers),
       fmt::format("{}, \"events_per_second\": {:.0f}, \"memory_mb\": {:.0f}", spread(times), static_cast<double>(events) * watchers / took,
                   memory(target, "VmRSS")));
  for (auto& reader : readers) reader->close();
  for (auto& thread : threads) thread.join();
}

int bench(int argc, char** argv) {
  if (argc < 4) give_up("usage: peer_probe KUBECONFIG NAME PID[,PID...] [SECONDS] [PODS] [WATCHERS]");
  start_logging("peer_probe", "error");
  auto config = need(kube::read_kubeconfig(argv[1]), "kubeconfig");
  Target target{.rest = config.rest, .space = config.space, .name = argv[2], .host = {}, .pids = {}, .headers = {}};
  std::string server = target.rest.server.substr(target.rest.server.find("//") + 2);
  const std::size_t colon = server.rfind(':');
  target.host = server.substr(0, colon);
  target.port = static_cast<unsigned short>(std::atoi(server.c_str() + colon + 1));
  if (!target.rest.token.empty()) target.headers.emplace_back("Authorization", "Bearer " + target.rest.token);
  for (const char* text = argv[3]; *text != '\0';) {
    char* end = nullptr;
    target.pids.push_back(static_cast<int>(std::strtol(text, &end, 10)));
    text = *end == ',' ? end + 1 : end;
  }
  const double length = argc > 4 ? std::atof(argv[4]) : 3;
  const int pods = argc > 5 ? std::atoi(argv[5]) : 10'000, watchers = argc > 6 ? std::atoi(argv[6]) : 1'000;

  tell(target, "idle memory", fmt::format("\"mb\": {:.1f}", memory(target, "VmRSS")));
  fill(target, pods);
  tell(target, fmt::format("memory with {} pods", pods), fmt::format("\"mb\": {:.1f}", memory(target, "VmRSS")));
  for (const int connections : {1, 16, 64})
    measure(target, "GET of one pod", connections, length, [&](http::Client& client, int t, int i) {
      expect(client.request(asking(target, "GET", fmt::format("{}/pod-{}", target.collection(), (t * 7919 + i) % pods))), 200);
    });
  list(target, pods, length);
  for (const int connections : {1, 16, 64})
    measure(target, "durable create", connections, length,
            [&](http::Client& client, int t, int i) { create(target, client, fmt::format("new-{}-{}-{}", connections, t, i)); });
  fan_out(target, watchers, 30);
  tell(target, "loaded memory", fmt::format("\"mb\": {:.1f}", memory(target, "VmRSS")));
  return 0;
}

}  // namespace
}  // namespace fairlead

int main(int argc, char** argv) { return fairlead::bench(argc, argv); }
