// SPDX-License-Identifier: Apache-2.0
// fairlead-agent: runs the pods of one node. Wiring only.
//   fairlead-agent run --config FILE        the agent
//   fairlead-agent node-init --config FILE  a local node: namespaces whose first process keeps the agent running
//   fairlead-agent companion --to DIR       keeps Slurm's companion program on a node that has a kubelet
#include <fmt/format.h>
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>

#include "agent/agent.h"
#include "agent/companion.h"
#include "agent/node_init.h"
#include "base/files.h"
#include "base/log.h"
#include "base/own_program.h"
#include "kube/rest_client.h"

namespace fairlead {
namespace {

int refuse(const std::string& why) {
  fmt::print(stderr, "fairlead-agent: {}\n", why);
  return 1;
}

int run_agent(const std::string& config_path, const std::string& run_dir) {
  // Before any thread: all of them inherit the mask, and the main thread waits for the signal.
  sigset_t stop_signals;
  sigemptyset(&stop_signals);
  sigaddset(&stop_signals, SIGTERM);
  sigaddset(&stop_signals, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &stop_signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  // One arena: threads are few, and the agent shall stay small.
  ::mallopt(M_ARENA_MAX, 1);
  ::mallopt(M_TRIM_THRESHOLD, 128 * 1024);

  auto config = node::read_node_config(config_path);
  if (!config) return refuse(config.error().message);
  if (!run_dir.empty()) config->run_dir = run_dir;
  if (::geteuid() != 0) return refuse("must be run as root: it makes namespaces, mounts and cgroups");
  kube::RestConfig rest{.server = config->api_server};
  for (const auto& [path, into] : {std::pair(&config->ca_file, &rest.ca_pem), std::pair(&config->cert_file, &rest.certificate_pem),
                                   std::pair(&config->key_file, &rest.key_pem)}) {
    auto text = read_file(*path, 1_MiB);
    if (!text) return refuse(text.error().message);
    *into = std::move(*text);
  }
  auto api = kube::RestApi::make(std::move(rest));
  if (!api) return refuse(api.error().message);
  const SystemClock clock;
  const std::string name = config->node_name;
  auto agent = agent::Agent::start(**api, clock, {.config = std::move(*config), .at_step = {}});
  if (!agent) return refuse(agent.error().message);
  log_info("agent started", {{"node", name}, {"version", FAIRLEAD_VERSION}});
  int number = 0;
  ::sigwait(&stop_signals, &number);
  log_info("agent stops; containers go on", {{"signal", std::to_string(number)}});
  // Not through destructors, which wait for hooks of containers: all state is on disk, and a stop is no different from a crash.
  ::_exit(0);
}

int init_node(const std::string& config_path) {
  if (::geteuid() != 0) return refuse("must be run as root: a node is made of namespaces");
  auto config = node::read_node_config(config_path);
  if (!config) return refuse(config.error().message);
  // The agent is started with another working directory.
  char resolved[4096];
  const std::string absolute = ::realpath(config_path.c_str(), resolved) != nullptr ? resolved : config_path;
  auto self = own_program();
  if (!self) return refuse(self.error().message);
  auto started = agent::start_node(*config, *self, absolute);
  return started ? 0 : refuse(started.error().message);
}

// Looks again every minute: the folder belongs to the node, and people clean up.
int keep_companion(const std::string& folder) {
  sigset_t stop_signals;
  sigemptyset(&stop_signals);
  sigaddset(&stop_signals, SIGTERM);
  sigaddset(&stop_signals, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &stop_signals, nullptr);
  auto source = program_beside("fairlead-slurm");
  if (!source) return refuse(source.error().message);
  while (true) {
    auto placed = agent::place_companion(*source, folder);
    if (!placed) return refuse(placed.error().message);
    if (*placed) log_info("companion placed", {{"folder", folder}, {"version", FAIRLEAD_VERSION}});
    const timespec minute{.tv_sec = 60, .tv_nsec = 0};
    if (::sigtimedwait(&stop_signals, nullptr, &minute) > 0) return 0;
  }
}

}  // namespace
}  // namespace fairlead

int main(int argc, char** argv) {
  CLI::App app("fairlead-agent " FAIRLEAD_VERSION ": runs the pods of one node");
  app.require_subcommand(1);
  std::string config_path, run_dir, log_level = "info";
  app.add_option("--log-level", log_level, "debug, info, warn or error");
  auto* run = app.add_subcommand("run", "run the agent until SIGTERM; containers go on without it");
  run->add_option("--config", config_path, "JSON file")->required();
  run->add_option("--run-dir", run_dir, "folder for state that does not outlive the node (a tmpfs)");
  auto* init = app.add_subcommand("node-init", "make a local node and return");
  init->add_option("--config", config_path, "JSON file")->required();
  std::string companion_folder;
  auto* companion = app.add_subcommand("companion", "put Slurm's companion program into a folder of this node and keep it there, until SIGTERM");
  companion->add_option("--to", companion_folder, "folder that pods mount")->required();
  app.set_version_flag("--version", FAIRLEAD_VERSION);
  CLI11_PARSE(app, argc, argv);
  fairlead::start_logging(init->parsed() ? "node-init" : "agent", log_level);
  if (companion->parsed()) return fairlead::keep_companion(companion_folder);
  return init->parsed() ? fairlead::init_node(config_path) : fairlead::run_agent(config_path, run_dir);
}
