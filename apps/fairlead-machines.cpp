// SPDX-License-Identifier: Apache-2.0
// fairlead-machines: the part of a site that needs root. Makes local nodes (namespaces, links, cgroups) for a fairlead-server that runs as a user of its own. Wiring only.
#include <fmt/format.h>
#include <pwd.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>

#include "base/files.h"
#include "base/log.h"
#include "base/own_program.h"
#include "fleet/host_socket.h"

namespace fairlead {
namespace {

int refuse(const std::string& why) {
  fmt::print(stderr, "fairlead-machines: {}\n", why);
  return 1;
}

struct Flags {
  std::string state_dir = "/var/lib/fairlead", socket = "/run/fairlead/machines.sock", user = "fairlead", agent;
};

int serve(Flags flags) {
  // Before any thread: all of them inherit the mask, and the main thread waits for the signal.
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGTERM);
  ::sigaddset(&signals, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  if (::geteuid() != 0) return refuse("must be run as root: it makes namespaces, links and cgroups");
  const passwd* user = ::getpwnam(flags.user.c_str());
  if (user == nullptr) return refuse(fmt::format("there is no user {}", flags.user));
  if (flags.agent.empty()) {
    auto beside = program_beside("fairlead-agent");
    if (!beside) return refuse(beside.error().message);
    flags.agent = std::move(*beside);
  }
  const std::string state_dir = std::filesystem::absolute(flags.state_dir).lexically_normal().string();
  auto service = fleet::MachinesService::start(
      {.socket = flags.socket, .user = user->pw_uid, .group = user->pw_gid, .make_host = [&](const fleet::SiteFacts& site, auto issue) {
         auto ranges = fleet::parse_ranges(site.node_range, site.pod_range);
         INVARIANT(ranges.has_value());  // the request was checked
         return fleet::make_local_host({.state_dir = state_dir, .agent_program = flags.agent, .ranges = *ranges, .api_port = site.api_port, .ca_pem = site.ca_pem, .issue = std::move(issue)});
       }});
  if (!service) return refuse(service.error().message);
  log_info("serving machines", {{"socket", flags.socket}, {"state", state_dir}, {"user", flags.user}, {"version", FAIRLEAD_VERSION}});
  int number = 0;
  ::sigwait(&signals, &number);
  log_info("stopping; nodes go on");
  return 0;
}

}  // namespace
}  // namespace fairlead

int main(int argc, char** argv) {
  fairlead::Flags flags;
  std::string log_level = "info";
  CLI::App app("fairlead-machines " FAIRLEAD_VERSION ": makes local nodes for a fairlead-server that is not root");
  app.add_option("--state-dir", flags.state_dir, "folder of the site")->capture_default_str();
  app.add_option("--socket", flags.socket, "where fairlead-server asks")->capture_default_str();
  app.add_option("--user", flags.user, "who may ask, beside root")->capture_default_str();
  app.add_option("--agent", flags.agent, "the program fairlead-agent (default: beside this one)");
  app.add_option("--log-level", log_level, "debug, info, warn or error")->capture_default_str()->check(CLI::IsMember({"debug", "info", "warn", "error"}));
  app.set_version_flag("--version", FAIRLEAD_VERSION);
  CLI11_PARSE(app, argc, argv);
  fairlead::start_logging("fairlead-machines", log_level);
  return fairlead::serve(std::move(flags));
}
