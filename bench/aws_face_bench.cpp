// SPDX-License-Identifier: Apache-2.0
// Signed calls to the AWS face over TLS: DescribeCluster, GetCallerIdentity and ListClusters (10,000 clusters, pages of 100) from 1, 16 and 64 connections. API, face and blocking clients share this process and its cores: the figures are those of
// a busy small machine. Prints a table.
//   aws_face_bench [SECONDS per cell, 3] [CLUSTERS, 10000]
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "api/crds.h"
#include "apiserver/embedded.h"
#include "base/clock.h"
#include "base/log.h"
#include "http/client.h"
#include "hyperpod/door.h"

namespace fairlead {
namespace {

const SystemClock clock_of_bench;
using Seconds = std::chrono::duration<double>;
using kube::Json;

[[noreturn]] void give_up(const std::string& why) {
  fmt::print(stderr, "aws_face_bench: {}\n", why);
  std::exit(1);
}
template <class T>
T need(Result<T> result, const char* what) {
  if (!result) give_up(fmt::format("{}: {}", what, result.error().message));
  return std::move(*result);
}

struct Call {
  const char* what;
  std::string service, target, body;
};

http::ClientRequest signed_call(const Call& call, const hyperpod::Credentials& who, unsigned short port) {
  http::Request request{.method = "POST", .target = *http::parse_target("/"), .headers = {{"Host", fmt::format("127.0.0.1:{}", port)}}, .body = call.body, .peer = {}};
  request.headers.emplace_back("Content-Type", call.service == "sts" ? "application/x-www-form-urlencoded" : "application/x-amz-json-1.1");
  if (!call.target.empty()) request.headers.emplace_back("X-Amz-Target", call.target);
  hyperpod::sign_request(request, who, "fairlead-1", call.service, clock_of_bench.now());
  std::erase_if(request.headers, [](const auto& header) { return header.first == "Host"; });  // the client sets it
  return {.method = "POST", .target = "/", .headers = std::move(request.headers), .body = std::move(request.body)};
}

void measure(const Call& call, int connections, Seconds length, const hyperpod::Credentials& who, unsigned short port, const std::string& ca) {
  std::vector<std::vector<double>> times(static_cast<std::size_t>(connections));
  std::vector<std::thread> threads;
  std::atomic<int> ready{0};
  std::atomic<bool> go{false}, stop{false};
  for (int t = 0; t < connections; ++t)
    threads.emplace_back([&, t] {
      const auto client = need(http::Client::make({.host = "127.0.0.1", .port = port, .unix_socket = {}, .ca_pem = ca, .certificate_pem = {}, .key_pem = {}, .proxy = {}, .server_name = {}, .may_connect = {}, .kept_connections = 1}), "client");
      const auto warm = need(client->request(signed_call(call, who, port)), "warm-up");
      if (warm.status != 200) give_up(fmt::format("{}: {}", call.what, warm.body));
      ++ready;
      while (!go) std::this_thread::yield();
      while (!stop) {
        const auto begin = clock_of_bench.monotonic();
        if (need(client->request(signed_call(call, who, port)), call.what).status != 200) give_up("a call was refused");
        times[static_cast<std::size_t>(t)].push_back(Seconds(clock_of_bench.monotonic() - begin).count());
      }
    });
  while (ready < connections) std::this_thread::yield();
  const auto begin = clock_of_bench.monotonic();
  go = true;
  std::this_thread::sleep_for(length);
  stop = true;
  for (std::thread& thread : threads) thread.join();
  const double took = Seconds(clock_of_bench.monotonic() - begin).count();
  std::vector<double> all;
  for (const auto& some : times) all.insert(all.end(), some.begin(), some.end());
  std::sort(all.begin(), all.end());
  const auto at = [&](double part) { return all.empty() ? 0 : all[static_cast<std::size_t>(part * static_cast<double>(all.size() - 1))] * 1e3; };
  fmt::print("{:<44} {:>3} connections {:>8.0f}/s   p50 {:>7.2f} ms   p99 {:>7.2f} ms\n", call.what, connections, static_cast<double>(all.size()) / took, at(0.5), at(0.99));
}

int run(double seconds, int clusters) {
  const std::string folder = fmt::format("{}/aws-face-bench-{}", std::filesystem::temp_directory_path().string(), ::getpid());
  int status = 0;
  {
    auto server = need(apiserver::EmbeddedServer::start({.state_dir = folder, .address = "127.0.0.1", .port = 0, .names = {}, .tokens = {}, .limits = {}, .audit = {}, .service_ranges = {}}, clock_of_bench), "server");
    kube::KubeApi& api = server->api();
    for (const Json& crd : api::crds())
      if (crd["spec"]["conversion"].is_null() || crd["spec"]["conversion"]["strategy"].string() == "None") (void)need(api.create(kube::resources::crds, crd), "definition");
    (void)need(api.create(kube::resources::namespaces, Json::object({{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", Json::object({{"name", "bench"}})}})), "namespace");
    for (int i = 0; i < clusters; ++i) {
      const auto made = api.create(kube::resources::slurm_clusters, *kube::parse_json(fmt::format(R"({{"apiVersion": "slurm.nebius.ai/v1", "kind": "SlurmCluster", "metadata": {{"name": "c{}", "namespace": "bench"}}, "spec": {{"slurmNodes": {{"controller": {{"size": 1}}, "login": {{"size": 1}}, "worker": {{"size": 4}}}}}}}})", i)));
      if (!made) give_up("cluster: " + made.error().message);
    }
    // One as CreateCluster makes it, of 1,000 nodes that run.
    const Json cluster = need(api.create(api::kClusters, *kube::parse_json(R"({"apiVersion": "fairlead.dev/v1alpha1", "kind": "Cluster", "metadata": {"name": "made"}, "spec": {"nodeProvisioningMode": "Continuous", "instanceGroups": [
      {"instanceGroupName": "head", "instanceType": "ml.c5.large", "instanceCount": 1, "issued": 1, "slurmConfig": {"nodeType": "Controller"}},
      {"instanceGroupName": "gpu", "instanceType": "ml.p5.48xlarge", "instanceCount": 999, "issued": 999, "slurmConfig": {"nodeType": "Compute", "partitionNames": ["train"]}}]}})")), "cluster");
    std::string node;
    for (int i = 1; i <= 1000; ++i) {
      const bool head = i == 1000;
      const std::string group = head ? "head" : "gpu";
      node = api::instance_id_of(kube::uid_of(cluster), group, head ? 1 : i, 1);
      Json instance = need(api.create(api::kInstances, Json::object({{"apiVersion", api::kInstances.api_version()}, {"kind", api::kInstances.kind}, {"metadata", Json::object({{"name", node}})}, {"spec", Json::object({{"cluster", "made"}, {"clusterUid", kube::uid_of(cluster)}, {"instanceGroupName", group}, {"number", head ? 1 : i}, {"attempt", 1}, {"nodeLogicalId", api::logical_id_of(kube::uid_of(cluster), group, head ? 1 : i)}, {"instanceType", head ? "ml.c5.large" : "ml.p5.48xlarge"}})}})), "instance");
      instance.set("status", Json::object({{"phase", "Running"}, {"node", "node-" + node}, {"address", fmt::format("10.0.{}.{}", i / 250, i % 250)}, {"runningSince", "2026-11-25T12:00:00Z"}}));
      (void)need(api.update_status(api::kInstances, instance), "instance");
    }
    auto certificate = need(server->issue({.common_name = "bench", .ip_addresses = {"127.0.0.1"}, .server = true}), "certificate");
    hyperpod::DoorOptions options{.certificate = std::move(certificate), .authority = {server->ca_pem(), ""}, .endpoint = {}, .account = {}, .region = {}, .front = {}};
    options.front.per_second = 0;
    auto door = need(hyperpod::Door::open(api, clock_of_bench, std::move(options)), "face");
    const Json ada = need(api.create(api::identities::identities, *kube::parse_json(R"({"apiVersion": "fairlead.dev/v1alpha1", "kind": "Identity", "metadata": {"name": "user-ada"}, "spec": {"type": "User", "name": "ada", "policies": [{"name": "all", "document": {"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "sagemaker:*", "Resource": "*"}}}]}})")), "identity");
    const auto key = api::identities::new_key("user-ada", kube::uid_of(ada));
    (void)need(api.create(kube::resources::secrets, api::identities::write_key(key, "fairlead-system")), "key");
    std::this_thread::sleep_for(std::chrono::seconds(1));
    const hyperpod::Credentials who{key.id, key.secret, ""};
    for (const Call& call : {Call{"GetCallerIdentity", "sts", "", "Action=GetCallerIdentity&Version=2011-06-15"}, Call{"DescribeCluster", "sagemaker", "SageMaker.DescribeCluster", fmt::format(R"({{"ClusterName":"c{}"}})", clusters / 2)},
                             Call{"DescribeCluster, made, 1,000 nodes", "sagemaker", "SageMaker.DescribeCluster", R"({"ClusterName":"made"})"}, Call{"DescribeClusterNode", "sagemaker", "SageMaker.DescribeClusterNode", fmt::format(R"({{"ClusterName":"made","NodeId":"{}"}})", node)},
                             Call{"ListClusterNodes, a page of 100", "sagemaker", "SageMaker.ListClusterNodes", R"({"ClusterName":"made","MaxResults":100})"}, Call{"ListClusters, a page of 100", "sagemaker", "SageMaker.ListClusters", R"({"MaxResults":100})"}})
      for (const int connections : {1, 16, 64}) measure(call, connections, Seconds(seconds), who, door->port(), server->ca_pem());
  }
  std::filesystem::remove_all(folder);
  return status;
}

}  // namespace
}  // namespace fairlead

int main(int argc, char** argv) {
  ::signal(SIGPIPE, SIG_IGN);
  fairlead::start_logging("aws_face_bench", "error");
  return fairlead::run(argc > 1 ? std::atof(argv[1]) : 3, argc > 2 ? std::atoi(argv[2]) : 10'000);
}
