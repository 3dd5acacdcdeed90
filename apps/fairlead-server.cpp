// SPDX-License-Identifier: Apache-2.0
// fairlead-server: the API of the embedded engine and the controllers of a site, in one process. Wiring only.
#include <fmt/format.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <condition_variable>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <thread>

#include "api/crds.h"
#include "apiserver/api_controllers.h"
#include "apiserver/embedded.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/log.h"
#include "base/rng.h"
#include "fleet/control/machine_controller.h"
#include "fleet/local_host.h"
#include "kube/controller.h"
#include "placement/control/node_lifecycle_controller.h"
#include "placement/control/placement_controller.h"
#include "slurm/control/slurm_cluster_controller.h"
#include "slurm/keys.h"

namespace fairlead {
namespace {

struct Flags {
  std::string state_dir = "/var/lib/fairlead";
  std::string listen = "127.0.0.1:6443";
  std::string node_range = "10.77.0.0/16", pod_range = "10.78.0.0/16";
  std::string log_level = "info";
  std::string engine = "embedded";
};

int refuse(const std::string& why, int status = 1) {
  fmt::print(stderr, "fairlead-server: {}\n", why);
  return status;
}

Result<std::pair<std::string, unsigned short>> parse_listen(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  const std::string port = colon == std::string::npos ? "" : text.substr(colon + 1);
  const bool digits = !port.empty() && port.size() <= 5 && port.find_first_not_of("0123456789") == std::string::npos;
  if (!digits || std::stoi(port) > 65'535) return fail(Code::Invalid, fmt::format("--listen {}: ADDRESS:PORT is expected, for instance 127.0.0.1:6443", text));
  return std::pair(text.substr(0, colon), static_cast<unsigned short>(std::stoi(port)));
}

// Installs the kinds that are Fairlead's own, or brings them up to date.
Result<void> install_crds(kube::KubeApi& api) {
  for (const kube::Json& crd : api::crds()) {
    const auto created = api.create(kube::resources::crds, crd);
    if (created) continue;
    if (created.error().code != Code::Exists) return pass(created.error(), "install " + kube::name_of(crd));
    auto now = api.get(kube::resources::crds, kube::key_of(crd));
    if (!now) return pass(now.error(), "install " + kube::name_of(crd));
    if ((*now)["spec"] == crd["spec"]) continue;
    const kube::Json patch = kube::Json::object({{"spec", crd["spec"]}});
    if (auto done = api.patch(kube::resources::crds, kube::key_of(crd), kube::PatchType::Merge, patch); !done) return pass(done.error(), "update " + kube::name_of(crd));
  }
  return {};
}

// The folder of this program: its companions lie beside it.
std::string program_folder() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "." : self.parent_path().string();
}

// Copies the program that runs inside Slurm's containers to STATE/bin, from where pods mount it: the build folder may move or be rebuilt under running pods.
Result<void> install_companion(const std::string& folder) {
  auto program = read_file(program_folder() + "/fairlead-slurm", 256_MiB);
  if (!program) return pass(std::move(program.error()), "the program fairlead-slurm must lie beside fairlead-server");
  if (auto made = make_dirs(folder, 0755); !made) return made;
  const std::string target = folder + "/fairlead-slurm";
  if (auto have = read_file(target, 256_MiB); have && *have == *program) return {};
  return write_file_durably(target, *program, 0755);
}

// Tells the runner of nodes that died. The host's threads outlive the runner, so the way between them is cut before it goes.
class ExitRelay {
 public:
  explicit ExitRelay(kube::Runner& runner) : runner_(&runner) {}
  void tell(const std::string& controller, const std::string& node) {
    const std::lock_guard lock(mutex_);
    if (runner_) runner_->wake(controller, {"", node});
  }
  void cut() {
    const std::lock_guard lock(mutex_);
    runner_ = nullptr;
  }

 private:
  std::mutex mutex_;
  kube::Runner* runner_;
};

void add_controllers(kube::Runner& runner, const std::shared_ptr<ExitRelay>& exits, apiserver::EmbeddedServer& server, fleet::LocalHost& host, const Clock& clock, const std::string& state_dir, const fleet::Ranges& ranges) {
  kube::KubeApi& api = server.api();
  for (auto& controller : apiserver::make_api_controllers(server.registry(), api, clock, {.volumes_folder = state_dir + "/volumes"})) runner.add(std::move(controller));
  runner.add(std::make_unique<placement::PlacementController>(api, clock));
  runner.add(std::make_unique<placement::NodeLifecycleController>(api, clock));
  auto machines = std::make_unique<fleet::MachineController>(api, host, clock, fleet::MachineControllerOptions{.ranges = ranges});
  const std::string machine_controller = machines->name();
  host.watch_exits([exits, machine_controller](const std::string& name) { exits->tell(machine_controller, name); });
  runner.add(std::move(machines));
  slurm::SlurmControllerOptions slurm_options;
  slurm_options.objects.companion = kube::Json::object({{"hostPath", kube::Json::object({{"path", state_dir + "/bin"}, {"type", "Directory"}})}});
  runner.add(std::make_unique<slurm::SlurmClusterController>(api, clock, slurm::make_keys, std::move(slurm_options)));
}

// Ends the process if stopping takes longer than promised: the store is safe at any moment.
class StopWatchdog {
 public:
  StopWatchdog() : thread_([this](std::stop_token stop) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, stop, 5s, [] { return false; }) && !stop.stop_requested()) {
      log_warn("stopping took more than 5 s: leaving at once");
      ::_exit(0);
    }
  }) {}

 private:
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::jthread thread_;
};

int serve(const Flags& flags) {
  if (flags.engine == "kubernetes") return refuse("--engine=kubernetes is not there yet: this version runs the embedded engine only", 2);
  if (flags.engine != "embedded") return refuse(fmt::format("--engine={}: embedded or kubernetes is expected", flags.engine), 2);
  const auto listen = parse_listen(flags.listen);
  if (!listen) return refuse(listen.error().message, 2);
  const auto ranges = fleet::parse_ranges(flags.node_range, flags.pod_range);
  if (!ranges) return refuse(ranges.error().message, 2);

  // Before any thread: signals are taken by sigwait below, in this thread alone.
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGTERM);
  ::sigaddset(&signals, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  ::mallopt(M_ARENA_MAX, 2);  // idle memory matters more here than allocation races of a few threads
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
  }

  static const SystemClock clock;
  apiserver::EmbeddedOptions options{.state_dir = std::filesystem::absolute(flags.state_dir).lexically_normal().string(), .address = listen->first, .port = listen->second};
  while (options.state_dir.size() > 1 && options.state_dir.back() == '/') options.state_dir.pop_back();
  options.names = {fleet::host_address(*ranges)};
  const std::string pid_file = options.state_dir + "/run/server.pid";
  auto server = apiserver::EmbeddedServer::start(options, clock);
  if (!server) return refuse(server.error().message);
  if (auto done = install_crds((*server)->api()); !done) return refuse(done.error().message);

  if (auto done = install_companion(options.state_dir + "/bin"); !done) return refuse(done.error().message);
  if (auto done = write_file_durably(pid_file, fmt::format("{}\n", ::getpid()), 0644); !done) return refuse(done.error().message);

  // Destroyed in reverse: controllers first, then the host's threads, the server last.
  auto host = fleet::make_local_host({.state_dir = options.state_dir,
                                      .agent_program = program_folder() + "/fairlead-agent",
                                      .ranges = *ranges,
                                      .api_port = (*server)->port(),
                                      .ca_pem = (*server)->ca_pem(),
                                      .issue = [&server](const http::CertificateRequest& request) { return (*server)->issue(request); },
                                      .on_address = [&server](const std::string& address) { return (*server)->also_listen(address); }});
  kube::Runner runner((*server)->api(), clock, Rng(static_cast<std::uint64_t>(clock.now().time_since_epoch().count())).next());
  const auto exits = std::make_shared<ExitRelay>(runner);
  add_controllers(runner, exits, **server, *host, clock, options.state_dir, *ranges);
  runner.start();
  log_info("serving", {{"address", fmt::format("{}:{}", options.address, (*server)->port())}, {"state", options.state_dir}, {"kubeconfig", (*server)->admin_kubeconfig()}});

  int signal = 0;
  ::sigwait(&signals, &signal);
  log_info("stopping", {{"signal", signal == SIGTERM ? "TERM" : "INT"}});
  static const StopWatchdog watchdog;  // static: it watches over the destructors of this function, too
  exits->cut();
  ::unlink(pid_file.c_str());
  return 0;
}

}  // namespace
}  // namespace fairlead

int main(int argc, char** argv) {
  fairlead::Flags flags;
  CLI::App app{"The API server of Fairlead's embedded engine and the controllers of a site."};
  app.set_version_flag("--version", std::string("fairlead-server ") + FAIRLEAD_VERSION);
  app.add_option("--state-dir", flags.state_dir, "folder that holds everything of this site")->capture_default_str();
  app.add_option("--listen", flags.listen, "address and port of the API; port 0 takes any free one")->capture_default_str();
  app.add_option("--node-range", flags.node_range, "addresses of local nodes, a /16 that no route of this machine uses")->capture_default_str();
  app.add_option("--pod-range", flags.pod_range, "addresses of pods on local nodes, a /16 that no route of this machine uses")->capture_default_str();
  app.add_option("--log-level", flags.log_level, "debug, info, warn or error")->capture_default_str()->check(CLI::IsMember({"debug", "info", "warn", "error"}));
  app.add_option("--engine", flags.engine, "embedded, or kubernetes (not there yet)")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  fairlead::start_logging("fairlead-server", flags.log_level);
  return fairlead::serve(flags);
}
