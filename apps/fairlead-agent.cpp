// SPDX-License-Identifier: Apache-2.0
// fairlead-agent: runs the pods of one node. Wiring only.
//   fairlead-agent run --config FILE        the agent
//   fairlead-agent node-init --config FILE  a local node: namespaces whose first process keeps the agent running
//   fairlead-agent join TOKEN|-             makes this host a node of a site; `leave` undoes it, `renew` renews its certificate now
//   fairlead-agent companion --to DIR       keeps Slurm's companion program on a node that has a kubelet
#include <fmt/format.h>
#include <malloc.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "agent/agent.h"
#include "agent/companion.h"
#include "agent/heartbeat.h"
#include "agent/host_duty.h"
#include "agent/host_facts.h"
#include "agent/join.h"
#include "agent/node_init.h"
#include "base/encoding.h"
#include "base/files.h"
#include "base/log.h"
#include "base/own_program.h"
#include "base/process.h"
#include "http/pki.h"
#include "kube/rest_client.h"
#include "node/netlink.h"

namespace fairlead {

static std::vector<std::string> own_words;  // what this program was called with; set once, at its begin

namespace {

int refuse(const std::string& why) {
  fmt::print(stderr, "fairlead-agent: {}\n", why);
  return 1;
}

// The same program with the same arguments, in this process: nobody else need be there who starts it.
void start_anew() {
  auto self = own_program();
  std::vector<std::string> words = own_words;
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execv(self ? self->c_str() : "/proc/self/exe", argv.data());
  log_error("the agent cannot start anew; whoever looks after it does", {{"reason", std::strerror(errno)}});
  ::_exit(1);
}

int run_agent(const std::string& config_path, const std::string& run_dir) {
  // Before any thread: all of them inherit the mask, and the main thread waits for the signal.
  sigset_t stop_signals;
  sigemptyset(&stop_signals);
  sigaddset(&stop_signals, SIGTERM);
  sigaddset(&stop_signals, SIGINT);
  sigaddset(&stop_signals, SIGHUP);
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
  const node::NodeConfig own = *config;
  Fd alone;
  if (own.joined) {
    auto locked = agent::lock_agent(own.run_dir);
    if (!locked) return refuse(locked.error().message);
    alone = std::move(*locked);
    if (auto done = node::route_ipv4(); !done) return refuse(done.error().message);
  }
  auto agent = agent::Agent::start(**api, clock, {.config = std::move(*config), .at_step = {}});
  if (!agent) return refuse(agent.error().message);
  log_info("agent started", {{"node", name}, {"version", FAIRLEAD_VERSION}});
  std::unique_ptr<agent::HostDuty> duty;
  if (own.joined) {
    agent::HostDutyPorts ports{.renew = [own] { return agent::renew_certificate(own); }, .restart = [] { start_anew(); }, .reboot = [own]() -> Result<void> {
                                 auto done = run_checked({.argv = split(own.reboot_command, ' ')}, 60s);
                                 return done ? Result<void>() : std::unexpected(std::move(done.error()));
                               }};
    duty = std::make_unique<agent::HostDuty>(**api, clock, own, agent::look_at_machine(own).boot_id, std::move(ports));
  }
  int number = 0;
  ::sigwait(&stop_signals, &number);
  if (number == SIGHUP) {
    log_info("agent starts anew; containers go on", {{"signal", "HUP"}});
    start_anew();
  }
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

// Token from the command line or, with "-", from stdin; what it was is taken out of the arguments that others can read.
Result<api::JoinToken> read_token(const std::string& given, int argc, char** argv) {
  std::string text = given;
  if (given == "-") {
    char chunk[4096];
    text.clear();
    for (ssize_t n; (n = ::read(STDIN_FILENO, chunk, sizeof chunk)) > 0 && text.size() < 65'536;) text.append(chunk, static_cast<std::size_t>(n));
  } else {
    for (int i = 1; i < argc; ++i)
      if (given == argv[i]) std::fill_n(argv[i], std::strlen(argv[i]), 'x');
  }
  return api::parse_join_token(text);
}

bool has_systemd() { return exists("/run/systemd/system"); }
bool has_unit() { return exists("/usr/lib/systemd/system/fairlead-agent.service") || exists("/lib/systemd/system/fairlead-agent.service") || exists("/etc/systemd/system/fairlead-agent.service"); }

// The unit reads the usual place; a configuration elsewhere is somebody's own.
bool ours_to_start(const agent::JoinPlaces& places) { return has_systemd() && has_unit() && places.config_dir == agent::JoinPlaces().config_dir; }

struct JoinFlags {
  agent::JoinOptions options;
  std::string token, output = "text";
  bool start = true;
};

int join_site(const JoinFlags& flags, int argc, char** argv) {
  static const SystemClock clock;
  agent::JoinOptions options = flags.options;
  auto token = read_token(flags.token, argc, argv);
  if (!token) return refuse(token.error().message);
  options.token = std::move(*token);
  const bool json = flags.output == "json";
  if (!options.dry_run && ::geteuid() != 0) return refuse("joining needs root: this host is to run containers");
  const auto lacks = agent::what_host_lacks();
  for (const agent::Lack& one : lacks) fmt::print(stderr, "fairlead-agent: {}: {}\n", one.what, one.remedy);
  if (!lacks.empty()) return refuse(fmt::format("this host cannot be a node yet: {} above", lacks.size() == 1 ? "the reason is" : "the reasons are"));
  options.tell = [](const std::string& what) { fmt::print(stderr, "{}\n", what); };
  auto joined = agent::join(options, clock);
  if (!joined) return refuse(joined.error().message);
  const api::HostFacts& facts = joined->facts;
  const bool begins = !options.dry_run && flags.start && ours_to_start(options.places);
  if (begins) {
    // It may run already, by the key of before.
    for (const char* const what : {"enable", "restart"})
      if (auto done = run_checked({.argv = {"systemctl", what, "fairlead-agent.service"}}, 60s); !done) return refuse(fmt::format("this host has joined, but its agent does not start: {}", done.error().message));
  }
  if (json) {
    kube::Json out = kube::Json::object({{"name", joined->name}, {"server", joined->server}, {"address", joined->address}, {"podCIDR", joined->pod_cidr}, {"facts", to_json(facts)}, {"dryRun", options.dry_run}, {"before", joined->before}, {"started", begins}});
    fmt::print("{}\n", kube::print_json_indented(out));
    return 0;
  }
  const std::string has = fmt::format("{} CPUs, {:.1f} GiB{}{}", facts.cpus, static_cast<double>(facts.memory_mib) / 1024, facts.devices_text.empty() ? "" : ", ", facts.devices_text);
  if (options.dry_run) {
    fmt::print("would join {} as {} at {}: {}\nnothing was asked or written\n", joined->server, joined->name, joined->address, has);
    return 0;
  }
  if (joined->before) fmt::print("had joined {} as {} at {}; --again joins anew, by another key\n", joined->server, joined->name, joined->address);
  else fmt::print("joined {} as {} at {}: {}\n", joined->server, joined->name, joined->address, has);
  fmt::print("its pods get addresses of {}\n", joined->pod_cidr);
  if (begins) fmt::print("its agent runs (systemctl status fairlead-agent)\n");
  else fmt::print("start its agent: fairlead-agent run --config {}\n", options.places.config());
  return 0;
}

int leave_site(const agent::JoinPlaces& places, bool yes) {
  if (::geteuid() != 0) return refuse("leaving needs root");
  if (!yes) return refuse("all containers on this host would end: say --yes");
  if (ours_to_start(places))
    if (auto done = run_checked({.argv = {"systemctl", "disable", "--now", "fairlead-agent.service"}}, 60s); !done) return refuse(fmt::format("the agent does not stop: {}", done.error().message));
  auto done = agent::leave(places, [](const std::string& what) { fmt::print("{}\n", what); });
  return done ? 0 : refuse(done.error().message);
}

int renew(const std::string& config_path) {
  auto config = node::read_node_config(config_path);
  if (!config) return refuse(config.error().message);
  if (!config->joined) return refuse(config_path + " is not of a host that joined");
  if (auto done = agent::renew_certificate(*config); !done) return refuse(done.error().message);
  auto text = read_file(config->cert_file, 1_MiB);
  auto end = text ? http::expiry(*text) : Result<Instant>(std::unexpected(text.error()));
  if (!end) return refuse(end.error().message);
  fmt::print("the certificate holds until {}; the agent takes it up when it starts anew (systemctl reload fairlead-agent, or kill -HUP)\n", print_time(*end));
  return 0;
}

}  // namespace
}  // namespace fairlead

int main(int argc, char** argv) {
  fairlead::own_words.assign(argv, argv + argc);
  CLI::App app("fairlead-agent " FAIRLEAD_VERSION ": runs the pods of one node");
  app.require_subcommand(1);
  std::string config_path, run_dir, log_level = "info";
  app.add_option("--log-level", log_level, "debug, info, warn or error");
  auto* run = app.add_subcommand("run", "run the agent until SIGTERM; containers go on without it. SIGHUP: it reads its files anew");
  run->add_option("--config", config_path, "JSON file")->required();
  run->add_option("--run-dir", run_dir, "folder for state that does not outlive the node (a tmpfs)");
  auto* init = app.add_subcommand("node-init", "make a local node and return");
  init->add_option("--config", config_path, "JSON file")->required();
  std::string companion_folder;
  auto* companion = app.add_subcommand("companion", "put Slurm's companion program into a folder of this node and keep it there, until SIGTERM");
  companion->add_option("--to", companion_folder, "folder that pods mount")->required();
  fairlead::JoinFlags join_flags;
  fairlead::agent::JoinPlaces& places = join_flags.options.places;
  auto* join = app.add_subcommand("join", "make this host a node of a site, by a token of `fairlead node add`");
  join->add_option("token", join_flags.token, "the token, or - to read it from stdin")->required();
  join->add_option("--address", join_flags.options.address, "at which the server and other nodes reach this host (default: the one by which it reaches the server)")->type_name("ADDRESS");
  join->add_flag("--metadata", join_flags.options.metadata, "answer 169.254.169.254 on this host, so that its processes have the role of their instance group; not on a cloud's machine, which has a service of its own there");
  join->add_flag("--again", join_flags.options.again, "it has joined before: join anew, by a new key");
  join->add_flag("--dry-run", join_flags.options.dry_run, "look at this host, ask and write nothing");
  join->add_flag("--start,!--no-start", join_flags.start, "start the agent by systemd, where it runs (default)");
  join->add_option("-o,--output", join_flags.output, "text or json")->check(CLI::IsMember({"text", "json"}))->capture_default_str();
  bool yes = false;
  auto* leave = app.add_subcommand("leave", "end what runs here and stop being a node; images and volumes stay");
  leave->add_flag("--yes", yes, "do not ask");
  for (auto* sub : {join, leave}) sub->add_option("--config-dir", places.config_dir, "where certificate and configuration lie")->capture_default_str()->type_name("DIR");
  join->add_option("--state-dir", places.state_dir, "what is kept of pods, and images")->capture_default_str()->type_name("DIR");
  join->add_option("--run-dir", places.run_dir, "what is gone after a reboot: a folder on a tmpfs")->capture_default_str()->type_name("DIR");
  join->add_option("--cgroup", places.cgroup_parent, "a group of its own, below which containers are")->capture_default_str()->type_name("PATH");
  join->add_option("--reboot-command", places.reboot_command, "how this host is rebooted")->capture_default_str()->type_name("WORDS");
  join->add_option("--cdi-dir", places.cdi_dirs, "folders of CDI files, which say which devices pods may have")->capture_default_str()->type_name("DIR");
  join->add_option("--boot-id-file", places.boot_id_file, "file whose first line names this boot")->capture_default_str()->type_name("FILE");
  auto* renewal = app.add_subcommand("renew", "renew this host's certificate now; the agent does it by itself when two thirds of its time are over");
  std::string renew_config = places.config();
  renewal->add_option("--config", renew_config, "JSON file")->capture_default_str();
  app.set_version_flag("--version", FAIRLEAD_VERSION);
  CLI11_PARSE(app, argc, argv);
  fairlead::start_logging(init->parsed() ? "node-init" : "agent", log_level);
  if (join->parsed()) return fairlead::join_site(join_flags, argc, argv);
  if (leave->parsed()) return fairlead::leave_site(places, yes);
  if (renewal->parsed()) return fairlead::renew(renew_config);
  if (companion->parsed()) return fairlead::keep_companion(companion_folder);
  return init->parsed() ? fairlead::init_node(config_path) : fairlead::run_agent(config_path, run_dir);
}
