// SPDX-License-Identifier: Apache-2.0
// fairlead-csi: the CSI driver csi.fairlead.dev. Wiring only.
//   fairlead-csi serve --endpoint unix:///... [--controller] [--node NAME [--register DIR]]   the driver
//   fairlead-csi call METHOD [--endpoint unix:///...]                         one call of any driver: a request in JSON from stdin, its answer to stdout
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>

#include "base/log.h"
#include "csi/server.h"
#include "kube/kubeconfig.h"
#include "kube/rest_client.h"

namespace fairlead {
namespace {

int refuse(const std::string& why, int status = 1) {
  fmt::print(stderr, "fairlead-csi: {}\n", why);
  return status;
}

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

struct Flags {
  std::string endpoint, node, kubeconfig, context, method, registry, seen_as;
  std::vector<std::string> pools;
  bool controller = false, own_pool = false;
  int most_volumes = 128;
  double timeout = 60;
};

int serve(const Flags& flags) {
  // Before any thread: all of them inherit the mask, and the main thread waits for the signal.
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGTERM);
  ::sigaddset(&signals, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  const auto socket = csi::socket_of(flags.endpoint);
  if (!socket) return refuse("--endpoint " + socket.error().message, 2);
  if (!flags.controller && flags.node.empty()) return refuse("say --controller, --node NAME, or both", 2);
  if (!flags.node.empty() && ::geteuid() != 0) return refuse("must be run as root: it mounts file systems");
  if (flags.most_volumes < 1) return refuse("--max-volumes: 1 at least", 2);
  if (!flags.registry.empty() && flags.node.empty()) return refuse("--register: a kubelet knows drivers of its node: say --node, too", 2);
  if (!flags.registry.empty() && !flags.registry.starts_with('/')) return refuse(fmt::format("--register {}: an absolute path is expected", flags.registry), 2);
  const auto seen_as = csi::socket_of(flags.seen_as.empty() ? *socket : flags.seen_as);
  if (!seen_as) return refuse("--seen-as " + seen_as.error().message, 2);
  const SystemClock clock;
  std::shared_ptr<kube::RestApi> api;
  std::unique_ptr<csi::ControllerService> controller;
  if (flags.controller) {
    auto config = kube::load_config({.kubeconfig = flags.kubeconfig, .context = flags.context, .environment = environment});
    if (!config) return refuse(config.error().message);
    config->rest.user_agent = "fairlead-csi/" FAIRLEAD_VERSION;
    config->rest.patience = 5s;
    auto made = kube::RestApi::make(config->rest);
    if (!made) return refuse(made.error().message);
    api = std::move(*made);
    controller = std::make_unique<csi::ControllerService>(*api, clock, csi::ControllerOptions{.most_volumes_per_node = flags.most_volumes});
  }
  std::unique_ptr<csi::NodeService> node;
  std::vector<std::string> pools = flags.pools;
  if (flags.own_pool) pools.insert(pools.begin(), api::pool_name_for(flags.node));
  for (const std::string& pool : pools)
    if (!api::is_volume_name(pool)) return refuse(fmt::format("--pool {}: the name of a pool is expected", pool), 2);
  if (!flags.node.empty()) node = std::make_unique<csi::NodeService>(csi::NodeOptions{.node = flags.node, .pools = std::move(pools), .most_volumes = flags.most_volumes});
  auto server = csi::Server::start({.socket = *socket, .controller = controller.get(), .node = node.get(), .ready = [&] { return !api || api->list(api::kVolumePools, "", {.limit = 1}).has_value(); }});
  if (!server) return refuse(server.error().message);
  log_info("serving CSI", {{"driver", csi::kDriver}, {"socket", *socket}, {"controller", flags.controller ? "yes" : "no"}, {"node", flags.node}, {"version", FAIRLEAD_VERSION}});
  std::unique_ptr<csi::Server> enrolled;
  if (!flags.registry.empty()) {
    auto done = csi::Server::enrol({.folder = flags.registry, .socket = *seen_as});
    if (!done) return refuse("--register: " + done.error().message);
    enrolled = std::move(*done);
    log_info("the kubelet may ask", {{"folder", flags.registry}, {"told", *seen_as}});
  }
  int number = 0;
  ::sigwait(&signals, &number);
  log_info("stopping; mounts stay");
  enrolled.reset();  // first of all: nobody is sent to a driver that is going
  server->reset();
  return 0;
}

int call(const Flags& flags) {
  const auto socket = csi::socket_of(flags.endpoint);
  if (!socket) return refuse("--endpoint " + socket.error().message, 2);
  std::string request;
  if (::isatty(STDIN_FILENO) == 0) {
    char chunk[4096];
    for (ssize_t n; (n = ::read(STDIN_FILENO, chunk, sizeof chunk)) > 0 && request.size() < (8 << 20);) request.append(chunk, static_cast<std::size_t>(n));
  }
  const auto answer = csi::call(*socket, flags.method, request, std::chrono::milliseconds(static_cast<std::int64_t>(flags.timeout * 1000)));
  if (!answer) return refuse(answer.error().message, answer.error().code == Code::NotFound || answer.error().code == Code::Invalid ? 2 : 1);
  if (answer->code == grpc::StatusCode::OK) return fmt::print("{}\n", answer->body), 0;
  // For programs: which of gRPC's codes it is.
  fmt::print("{}\n", fmt::format("{{\"code\":{}}}", static_cast<int>(answer->code)));
  return refuse(fmt::format("{}: {}", flags.method, answer->message), 3);
}

}  // namespace
}  // namespace fairlead

int main(int argc, char** argv) {
  fairlead::Flags flags;
  std::string log_level = "info";
  CLI::App app("fairlead-csi " FAIRLEAD_VERSION ": the CSI driver csi.fairlead.dev");
  app.require_subcommand(1);
  app.set_version_flag("--version", FAIRLEAD_VERSION);
  app.add_option("--log-level", log_level, "debug, info, warn or error")->capture_default_str()->check(CLI::IsMember({"debug", "info", "warn", "error"}));
  flags.endpoint = fairlead::environment("CSI_ENDPOINT");
  auto* serve = app.add_subcommand("serve", "serve the driver until SIGTERM; mounts stay without it");
  auto* call = app.add_subcommand("call", "call a method of any driver: a request in JSON from stdin, its answer to stdout. Exit status 3: the driver refused");
  for (CLI::App* one : {serve, call}) one->add_option("--endpoint", flags.endpoint, "unix:///PATH (default: $CSI_ENDPOINT)");
  serve->add_flag("--controller", flags.controller, "the Controller service, over the site's API");
  serve->add_option("--node", flags.node, "the Node service, of the node of this name");
  serve->add_option("--pool", flags.pools, "that this node reaches: its topology; more than once for several");
  serve->add_flag("--own-pool", flags.own_pool, "the node reaches the pool that fairlead-volumes names after it, before those of --pool");
  serve->add_option("--register", flags.registry, "folder in which the node's kubelet looks for drivers, such as /var/lib/kubelet/plugins_registry: no node-driver-registrar is needed");
  serve->add_option("--seen-as", flags.seen_as, "the endpoint as the kubelet sees it, where that is another path (default: --endpoint)");
  serve->add_option("--max-volumes", flags.most_volumes, "of one node")->capture_default_str();
  serve->add_option("--kubeconfig", flags.kubeconfig, "of the site (default: $KUBECONFIG, then the pod's service account)");
  serve->add_option("--context", flags.context, "of the kubeconfig");
  call->add_option("method", flags.method, "such as NodeGetInfo, or Controller/CreateVolume")->required()->check(CLI::Validator([](std::string& text) {
    for (const std::string& one : fairlead::csi::methods())
      if (one == text || one.substr(one.find('/') + 1) == text) return std::string();
    return "CSI has no method " + text;
  }, "METHOD"));
  call->add_option("--timeout", flags.timeout, "seconds")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  fairlead::start_logging("fairlead-csi", log_level);
  return serve->parsed() ? fairlead::serve(flags) : fairlead::call(flags);
}
