// SPDX-License-Identifier: Apache-2.0
// Puts the same load on any Kubernetes API in another process, over TLS with the identity that a kubeconfig names. Prints one JSON line per figure.
//   peer_probe KUBECONFIG NAME PID[,PID...] LOAD [SECONDS per cell, 3] [PODS] [WATCHERS, 1000]
// NAME says whose figures these are; PIDs are the server's processes, whose memory is added up. Pods are made in the namespace of the kubeconfig's
// context and stay there. LOAD, each on a server that has just begun:
//   requests  idle memory; memory, GET and LIST with PODS (10,000); fan-out to WATCHERS; creates, last, because of them each server has its own
//   number list      memory and LIST with PODS (100,000), in JSON and as clients in Go ask place     1,000 nodes, then PODS (5,000) that somebody
//   must place: until the last has its node. Needs the rights of an administrator
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <sstream>
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
std::string pod(const std::string& name, std::string_view scheduler = "nobody") {
  std::string environment;
  for (int i = 0; i < 20; ++i)
    environment += fmt::format("{}{{\"name\":\"VARIABLE_{}\",\"value\":\"a value of usual length {}\"}}", i == 0 ? "" : ",", i, i);
  return fmt::format(
      "{{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{{\"name\":\"{}\",\"labels\":{{\"app\":\"bench\"}}}},\"spec\":{{\"schedulerName\":"
      "\"{}\",\"automountServiceAccountToken\":false,"
      "\"containers\":[{{\"name\":\"main\",\"image\":\"slurm\",\"command\":[\"sleep\",\"1000\"],\"env\":[{}],\"resources\":{{\"requests\":{{\"cpu\":"
      "\"100m\",\"memory\":\"64Mi\"}}}}}}]}}}}",
      name, scheduler, environment);
}
std::string node(int number) {
  return fmt::format(
      R"({{"apiVersion":"v1","kind":"Node","metadata":{{"name":"bench-{0}","labels":{{"kubernetes.io/hostname":"bench-{0}","kubernetes.io/os":"linux"}}}},"status":{{)"
      R"("allocatable":{{"cpu":"64","memory":"256Gi","pods":"110"}},"capacity":{{"cpu":"64","memory":"256Gi","pods":"110"}},)"
      R"("conditions":[{{"type":"Ready","status":"True","reason":"KubeletReady"}}]}}}})",
      number);
}

void expect(const Result<http::Response>& response, int status) {
  if (!response) give_up(response.error().message);
  if (response->status != status) give_up(fmt::format("status {} instead of {}: {}", response->status, status, response->body.substr(0, 300)));
}
void post(const Target& target, http::Client& client, const std::string& collection, std::string body) {
  const auto request = asking(target, "POST", collection, std::move(body));
  auto response = client.request(request);
  // A server that protects itself says when to come back; the wait is part of its figure.
  while (response && response->status == 429) {
    std::this_thread::sleep_for(100ms);
    response = client.request(request);
  }
  expect(response, 201);
}
void create(const Target& target, http::Client& client, const std::string& name) { post(target, client, target.collection(), pod(name)); }

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
// Seconds that the server's processes have computed: unlike time, it says the same on a busy machine.
double computed(const Target& target) {
  double ticks = 0;
  for (const int pid : target.pids) {
    std::ifstream file(fmt::format("/proc/{}/stat", pid));
    std::string text;
    std::getline(file, text);
    const std::size_t end = text.rfind(')');
    if (end == std::string::npos) continue;
    std::istringstream fields(text.substr(end + 1));
    std::string skipped;
    for (int i = 0; i < 11; ++i) fields >> skipped;  // state to cmajflt
    double user = 0, system = 0;
    fields >> user >> system;
    ticks += user + system;
  }
  return ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
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
  const double begin = now(), computed_before = computed(target);
  go = true;
  std::this_thread::sleep_for(Seconds(length));
  stop = true;
  for (auto& thread : threads) thread.join();
  const double took = now() - begin, work = computed(target) - computed_before;
  std::vector<double> all;
  for (const auto& part : times) all.insert(all.end(), part.begin(), part.end());
  if (all.empty()) give_up("no request was answered");
  tell(target, fmt::format("{}, {} connection{}", what, connections, connections == 1 ? "" : "s"),
       fmt::format("\"per_second\": {:.2f}, {}, \"server_cpu_ms\": {:.4f}", static_cast<double>(all.size()) / took, spread(all),
                   1e3 * work / static_cast<double>(all.size())));
}

// `count` times `one(client, i)` by 64 connections.
template <class One>
void many(const Target& target, int count, One one) {
  constexpr int connections = 64;
  std::vector<std::thread> threads;
  for (int t = 0; t < connections; ++t) {
    threads.emplace_back([&, t] {
      const auto client = connect(target);
      for (int i = t; i < count; i += connections) one(*client, i);
    });
  }
  for (auto& thread : threads) thread.join();
}

void settle() { std::this_thread::sleep_for(5s); }  // caches and collectors come to rest; nobody's figure is better without

void fill(const Target& target, int pods) {
  many(target, pods, [&](http::Client& client, int i) { create(target, client, fmt::format("pod-{}", i)); });
  settle();
  tell(target, fmt::format("memory with {} pods", pods), fmt::format("\"mb\": {:.1f}", memory(target, "VmRSS")));
}

void list(const Target& target, int pods, double length, const std::string& accept, const std::string& form) {
  std::atomic<std::size_t> size{0};
  settle();
  const double before = memory(target, "VmRSS");
  reset_peak(target);
  measure(target, fmt::format("LIST of {} pods, {}", pods, form), 1, length, [&](http::Client& client, int, int) {
    auto request = asking(target, "GET", target.collection());
    request.headers.emplace_back("Accept", accept);
    const auto response = client.request(request);
    expect(response, 200);
    size = response->body.size();
  });
  tell(target, fmt::format("LIST of {} pods, {}: body", pods, form), fmt::format("\"mb\": {:.1f}", static_cast<double>(size) / 1e6));
  tell(target, fmt::format("LIST of {} pods, {}: extra memory at its peak", pods, form),
       fmt::format("\"mb\": {:.1f}", memory(target, "VmHWM") - before));
}
void lists(const Target& target, int pods, double length) {
  list(target, pods, length, "application/json", "JSON");
  list(target, pods, length, "application/vnd.kubernetes.protobuf,application/json", "protobuf if spoken");
}

// From `resourceVersion` of a list of one object on.
std::string watch_from_now(const Target& target, http::Client& client) {
  const auto first = client.request(asking(target, "GET", target.collection() + "?limit=1"));
  expect(first, 200);
  const std::size_t at = first->body.find("\"resourceVersion\":\"");
  if (at == std::string::npos) give_up("a list without resourceVersion");
  const std::string version = first->body.substr(at + 19, first->body.find('"', at + 19) - at - 19);
  return fmt::format("{}?watch=true&resourceVersion={}", target.collection(), version);
}

std::unique_ptr<http::BodyReader> watch(const Target& target, http::Client& client, const std::string& path) {
  auto reader = need(client.open(asking(target, "GET", path)), "watch");
  if (reader->status() != 200) give_up(fmt::format("a watch is answered with {}", reader->status()));
  return reader;
}

// Each of `watchers` connections sees each of `events` creates, first one after the other, then all at once.
void fan_out(const Target& target, int watchers, int events) {
  std::vector<std::atomic<int>> seen(static_cast<std::size_t>(watchers));
  std::vector<std::unique_ptr<http::BodyReader>> readers(static_cast<std::size_t>(watchers));
  const auto client = connect(target);
  const std::string path = watch_from_now(target, *client);
  for (auto& reader : readers) reader = watch(target, *client, path);
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
  const auto wait_for = [&](int count, double asked) {
    while (std::any_of(seen.begin(), seen.end(), [&](const auto& have) { return have < count; })) {
      if (now() - asked > 60) give_up("a watcher did not see an event within 60 s");
      std::this_thread::sleep_for(200us);
    }
  };
  std::vector<double> times;
  for (int event = 1; event <= events; ++event) {
    const double asked = now();
    create(target, *client, fmt::format("seen-{}", event));
    wait_for(event, asked);
    times.push_back(now() - asked);
  }
  tell(target, fmt::format("one create until the last of {} watchers has it", watchers), spread(times));
  const double asked = now(), computed_before = computed(target);
  many(target, events, [&](http::Client& one, int i) { create(target, one, fmt::format("burst-{}", i)); });
  wait_for(2 * events, asked);
  tell(target, fmt::format("{} creates at once, {} watchers", events, watchers),
       fmt::format("\"per_second\": {:.0f}, \"server_cpu_ms\": {:.1f}", static_cast<double>(events) * watchers / (now() - asked),
                   1e3 * (computed(target) - computed_before)));
  tell(target, fmt::format("memory with {} watchers", watchers), fmt::format("\"mb\": {:.1f}", memory(target, "VmRSS")));
  for (auto& reader : readers) reader->close();
  for (auto& thread : threads) thread.join();
}

bool all_placed(const Target& target, http::Client& client) {
  const auto waiting = client.request(asking(target, "GET", target.collection() + "?fieldSelector=spec.nodeName%3D&limit=1"));
  expect(waiting, 200);
  return waiting->body.find("\"uid\"") == std::string::npos;
}

void place(const Target& target, int nodes, int pods) {
  many(target, nodes, [&](http::Client& client, int i) {
    post(target, client, "/api/v1/nodes", node(i));
    // A new node is tainted until a controller has seen that it is ready; where only the API runs there is none.
    http::ClientRequest request{
        .method = "PATCH", .target = fmt::format("/api/v1/nodes/bench-{}", i), .headers = target.headers, .body = R"({"spec":{"taints":null}})"};
    request.headers.emplace_back("Content-Type", "application/merge-patch+json");
    expect(client.request(request), 200);
  });
  settle();
  const auto client = connect(target);
  const double begin = now(), computed_before = computed(target);
  many(target, pods,
       [&](http::Client& one, int i) { post(target, one, target.collection(), pod(fmt::format("placed-{}", i), "default-scheduler")); });
  const double created = now() - begin;
  // Asked for rather than watched: a watcher that the busy machine delays is cut off by kube-apiserver.
  while (!all_placed(target, *client)) {
    if (now() - begin > 300) give_up("not all pods were placed within 300 s");
    std::this_thread::sleep_for(100ms);
  }
  const double took = now() - begin;
  tell(target, fmt::format("{} pods created and placed on {} nodes", pods, nodes),
       fmt::format("\"per_second\": {:.0f}, \"creating_them_seconds\": {:.2f}, \"server_cpu_ms\": {:.3f}", pods / took, created,
                   1e3 * (computed(target) - computed_before) / pods));
}

void requests(const Target& target, double length, int pods, int watchers) {
  settle();
  tell(target, "idle memory", fmt::format("\"mb\": {:.1f}", memory(target, "VmRSS")));
  fill(target, pods);
  for (const int connections : {1, 16, 64})
    measure(target, "GET of one pod", connections, length, [&](http::Client& client, int t, int i) {
      expect(client.request(asking(target, "GET", fmt::format("{}/pod-{}", target.collection(), (t * 7919 + i) % pods))), 200);
    });
  lists(target, pods, length);
  fan_out(target, watchers, 50);
  for (const int connections : {1, 16, 64})
    measure(target, "durable create", connections, length,
            [&](http::Client& client, int t, int i) { create(target, client, fmt::format("new-{}-{}-{}", connections, t, i)); });
}

int bench(int argc, char** argv) {
  const std::string load = argc > 4 ? argv[4] : "";
  if (load != "requests" && load != "list" && load != "place")
    give_up("usage: peer_probe KUBECONFIG NAME PID[,PID...] requests|list|place [SECONDS] [PODS] [WATCHERS]");
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
  if (load == "place") target.space = "bench";  // an administrator's kubeconfig names none
  const double length = argc > 5 ? std::atof(argv[5]) : 3;
  const int pods = argc > 6 ? std::atoi(argv[6]) : load == "requests" ? 10'000 : load == "list" ? 100'000 : 5'000;
  const int watchers = argc > 7 ? std::atoi(argv[7]) : 1'000;
  if (load == "requests") requests(target, length, pods, watchers);
  if (load == "list") {
    fill(target, pods);
    lists(target, pods, length);
  }
  constexpr int nodes = 1'000;
  if (load == "place") place(target, nodes, pods);
  return 0;
}

}  // namespace
}  // namespace fairlead

int main(int argc, char** argv) { return fairlead::bench(argc, argv); }
