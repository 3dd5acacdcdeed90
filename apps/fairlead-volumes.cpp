// SPDX-License-Identifier: Apache-2.0
// fairlead-volumes: keeps the volumes of one machine. Wiring only.
//   fairlead-volumes run --folder DIR [--image FILE --size SIZE]   the daemon of a pool
//   fairlead-volumes release --folder DIR --image FILE                unmounts one that no daemon serves
//   fairlead-volumes destroy --folder DIR --image FILE --yes       deletes a pool with all that is in it
#include <fmt/format.h>
#include <malloc.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/log.h"
#include "base/own_program.h"
#include "kube/health.h"
#include "kube/kubeconfig.h"
#include "kube/rest_client.h"
#include "kube/selector.h"
#include "blocks/staging.h"
#include "volumes/control/pool_controllers.h"
#include "volumes/device_links.h"
#include "volumes/file_pool.h"
#include "volumes/keyring.h"
#include "volumes/metrics.h"
#include "volumes/pool_place.h"

namespace fairlead {
namespace {

int refuse(const std::string& why, int status = 1) {
  fmt::print(stderr, "fairlead-volumes: {}\n", why);
  return status;
}

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::uint64_t random_seed() {
  std::uint64_t out = 0;
  (void)!::getrandom(&out, sizeof out, 0);  // for the jitter of retries: any will do
  return out;
}

struct Flags {
  volumes::PoolPlace place{.folder = "/var/lib/fairlead-volumes/pool", .image = {}};
  std::string engine, name, size, nodes, kubeconfig, context, metrics = "127.0.0.1:0";
  bool yes = false;
};

Result<void> resolve(Flags& flags) {
  for (std::string* path : {&flags.place.folder, &flags.place.image})
    if (!path->empty()) {
      *path = std::filesystem::absolute(*path).lexically_normal().string();
      while (path->size() > 1 && path->ends_with('/')) path->pop_back();
    }
  if (!flags.size.empty()) {
    const auto size = kube::Quantity::parse(flags.size);
    if (!size || size->value() <= 0) return fail(Code::Invalid, fmt::format("--size {}: a quantity is expected, such as 50Gi", flags.size));
    flags.place.size = size->value();
  }
  if (flags.name.empty()) {
    flags.name = environment("NODE_NAME");
    utsname host{};
    if (flags.name.empty() && ::uname(&host) == 0) flags.name = host.nodename;
    flags.name = api::pool_name_for(flags.name);
  }
  if (!api::is_volume_name(flags.name)) return fail(Code::Invalid, fmt::format("--name {}: 1 to 63 of a-z 0-9 and - are expected", flags.name));
  if (const auto parsed = kube::LabelSelector::parse(flags.nodes); !parsed) return pass(parsed.error(), "--nodes");
  return {};
}

int serve(Flags flags) {
  // Before any thread: all of them inherit the mask, and the main thread waits for the signal.
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGTERM);
  ::sigaddset(&signals, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  ::mallopt(M_ARENA_MAX, 2);
  if (auto done = resolve(flags); !done) return refuse(done.error().message, 2);
  const auto colon = flags.metrics.rfind(':');
  const int port = colon == std::string::npos ? -1 : std::atoi(flags.metrics.c_str() + colon + 1);
  if (flags.metrics != "off" && (port < 0 || port > 65535)) return refuse(fmt::format("--metrics {}: ADDRESS:PORT or off is expected", flags.metrics), 2);
  if (::geteuid() != 0) return refuse("must be run as root: it makes loop devices");
  if (auto done = volumes::prepare_place(flags.place); !done) return refuse(done.error().message);
  auto config = kube::load_config({.kubeconfig = flags.kubeconfig, .context = flags.context, .environment = environment});
  if (!config) return refuse(config.error().message);
  config->rest.user_agent = "fairlead-volumes/" FAIRLEAD_VERSION;
  auto api = kube::RestApi::make(config->rest);
  if (!api) return refuse(api.error().message);
  const auto keyring = volumes::api_keyring(**api);
  if (flags.engine.empty())
    if (auto beside = program_beside("fairlead-disk"); beside && ::access(beside->c_str(), X_OK) == 0) flags.engine = std::move(*beside);
  auto files = volumes::open_file_pool(flags.place.folder, flags.engine == "off" ? "" : flags.engine, keyring.get());
  if (!files) return refuse(files.error().message);
  auto journal = volumes::open_journal_file(flags.place.folder + "/journal");
  if (!journal) return refuse(journal.error().message);
  auto pool = volumes::VolumePool::open(**files, std::move(*journal));
  if (!pool) return refuse(pool.error().message + "; nothing is changed, and what is attached goes on");
  const SystemClock clock;
  // Two pools of one name would answer for the same objects.
  if (const auto there = (*api)->get(api::kVolumePools, {"", flags.name}); there)
    if (const auto facts = api::read_pool(*there); !facts.id.empty() && facts.id != (*pool)->id() && facts.heard && clock.now() - *facts.heard < api::kPoolSilence)
      return refuse(fmt::format("another daemon serves a pool called {}: choose another --name", flags.name));
  if (const auto there = (*api)->get(api::kVolumePools, {"", flags.name}); there && !flags.nodes.empty() && (*there)["spec"]["nodeSelector"].string() != flags.nodes)
    log_warn("the VolumePool says which nodes reach it, and --nodes says otherwise: its spec.nodeSelector holds", {{"pool", flags.name}, {"spec", (*there)["spec"]["nodeSelector"].string()}, {"option", flags.nodes}});
  kube::Runner runner(**api, clock, random_seed());
  for (auto& one : volumes::pool_controllers({.api = **api, .clock = clock, .pool = **pool, .name = flags.name, .node_selector = flags.nodes, .link = volumes::link_device, .unlink = volumes::unlink_device, .settle = blocks::settle})) runner.add(std::move(one));
  runner.start();
  runner.wake("volume-pool", {"", flags.name});  // there may be no object yet that says so
  std::unique_ptr<http::Server> health;
  if (flags.metrics != "off") {
    auto served = kube::serve_health(flags.metrics.substr(0, colon), static_cast<unsigned short>(port), {.ready = [&]() -> Result<void> { return runner.synced() ? Result<void>() : fail(Code::Unavailable, "the site's API does not answer yet"); },
                                                                                                        .metrics = [&] { return kube::print_metrics(1, runner.counts()) + volumes::print_pool_metrics(**pool, flags.name, clock); }});
    if (!served) return refuse(served.error().message);
    health = std::move(*served);
  }
  log_info("serving a pool", {{"pool", flags.name}, {"id", (*pool)->id()}, {"folder", flags.place.folder}, {"volumes", std::to_string((*pool)->entries().size())}, {"metrics_port", health ? std::to_string(health->port()) : "off"}, {"version", FAIRLEAD_VERSION}});
  int number = 0;
  for (const timespec second{.tv_sec = 1, .tv_nsec = 0}; number <= 0;) {
    number = ::sigtimedwait(&signals, nullptr, &second);
    // What could not be written may be there, or not: who reads it again knows. Whoever runs this program starts it anew.
    if (auto usable = (*pool)->usable(); !usable) {
      log_error("it ends", {{"why", usable.error().message}});
      std::fflush(nullptr);
      ::_exit(1);
    }
  }
  log_info("stopping; volumes stay attached", {{"signal", std::to_string(number)}});
  // All state is on disk: a stop is no different from a crash, and what is under way need not be waited for.
  std::fflush(nullptr);
  ::_exit(0);
}

int destroy(Flags flags, bool keep) {
  if (auto done = resolve(flags); !done) return refuse(done.error().message, 2);
  if (flags.place.image.empty()) return refuse("say --image FILE: a pool in a folder of somebody's file system is deleted by its owner", 2);
  if (!keep && !flags.yes) return refuse(fmt::format("all volumes and snapshots in {} would be lost: say --yes", flags.place.image), 2);
  if (::geteuid() != 0) return refuse("must be run as root");
  auto done = volumes::destroy_place(flags.place, keep);
  return done ? 0 : refuse(done.error().message);
}

}  // namespace
}  // namespace fairlead

int main(int argc, char** argv) {
  fairlead::Flags flags;
  std::string log_level = "info";
  CLI::App app("fairlead-volumes " FAIRLEAD_VERSION ": keeps the volumes of one machine, in a pool on XFS");
  app.require_subcommand(1);
  app.set_version_flag("--version", FAIRLEAD_VERSION);
  app.add_option("--log-level", log_level, "debug, info, warn or error")->capture_default_str()->check(CLI::IsMember({"debug", "info", "warn", "error"}));
  auto* run = app.add_subcommand("run", "run the daemon until SIGTERM; volumes stay attached without it");
  auto* destroy = app.add_subcommand("destroy", "delete a pool's image with all that is in it");
  auto* release = app.add_subcommand("release", "unmount a pool's image that no daemon serves; it stays, with all that is in it");
  for (CLI::App* one : {run, destroy, release}) {
    one->add_option("--folder", flags.place.folder, "folder of the pool, on XFS with reflink")->capture_default_str();
    one->add_option("--image", flags.place.image, "file that holds the pool's file system; made if it is not there, and mounted at the folder");
  }
  run->add_option("--size", flags.size, "of an image that is made now, such as 50Gi");
  run->add_flag("--sparse", flags.place.sparse, "set no room aside for the image: its disk may be full before the pool is");
  run->add_option("--name", flags.name, "of the pool (default: $NODE_NAME, then this machine's name)");
  run->add_option("--nodes", flags.nodes, "labels of the nodes on this machine, as kubectl -l takes them (default: the node with the pool's name)");
  run->add_option("--engine", flags.engine, "program that serves volumes of class local-managed, or off: none is made here (default: fairlead-disk beside this program)");
  run->add_option("--kubeconfig", flags.kubeconfig, "of the site (default: $KUBECONFIG, then the pod's service account)");
  run->add_option("--context", flags.context, "of the kubeconfig");
  run->add_option("--metrics", flags.metrics, "address and port of /healthz, /readyz and /metrics, or off; port 0: any")->capture_default_str();
  release->add_flag("--yes", flags.yes, "nothing is deleted: it need not be said");
  destroy->add_flag("--yes", flags.yes, "do it");
  CLI11_PARSE(app, argc, argv);
  fairlead::start_logging("fairlead-volumes", log_level);
  return !run->parsed() ? fairlead::destroy(std::move(flags), release->parsed()) : fairlead::serve(std::move(flags));
}
