// SPDX-License-Identifier: Apache-2.0
// fairlead-volumes: keeps the volumes of one machine. Wiring only.
//   fairlead-volumes run --folder DIR [--image FILE --size SIZE]   the daemon of a pool
//   fairlead-volumes run --ceph-pool POOL [--ceph-conf FILE --ceph-user NAME]   the daemon of a pool in Ceph
//   fairlead-volumes host --ceph-pool POOL --pool NAME                a further machine on which volumes of that pool are shown
//   fairlead-volumes take-over --ceph-pool POOL --yes                 makes a dead machine's pool in Ceph this one's
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

#include "base/files.h"
#include "base/log.h"
#include "base/own_program.h"
#include "kube/health.h"
#include "kube/kubeconfig.h"
#include "kube/rest_client.h"
#include "kube/selector.h"
#include "blocks/staging.h"
#include "volumes/control/host_controllers.h"
#include "volumes/control/pool_controllers.h"
#include "volumes/device_links.h"
#include "volumes/engine_keeper.h"
#include "volumes/file_pool.h"
#include "volumes/keyring.h"
#include "volumes/metrics.h"
#include "volumes/pool_place.h"
#include "volumes/rbd_machine.h"
#include "volumes/rbd_pool.h"

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
  volumes::PoolPlace place{.folder = {}, .image = {}};
  volumes::CephPlace ceph{.program = {}, .conf = {}, .user = "fairlead", .pool = {}, .space = "fairlead", .host = {}};
  std::string engine, name, pool, size, nodes, kubeconfig, context, metrics = "127.0.0.1:0", socket = "/run/fairlead-volumes/engines.sock", shows = "auto";
  int host_silence = static_cast<int>(api::kHostSilence.count());  // seconds
  bool yes = false;
};

Result<void> resolve(Flags& flags) {
  if (!flags.ceph.pool.empty() && (!flags.place.image.empty() || flags.place.sparse)) return fail(Code::Invalid, "--image and --sparse are of a pool of files, --ceph-pool of one in Ceph");
  if (flags.place.folder.empty()) flags.place.folder = flags.ceph.pool.empty() ? "/var/lib/fairlead-volumes/pool" : "/var/lib/fairlead-volumes/ceph";
  if (!flags.ceph.conf.empty()) flags.ceph.conf = std::filesystem::absolute(flags.ceph.conf).lexically_normal().string();
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
  return {};
}
// What the pool, or this machine, is called: of what serves alone, as a machine may have a name that no pool can have.
Result<void> resolve_name(Flags& flags) {
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

// The pool, its journal, and what these need as long as they live.
struct Opened {
  volumes::Host host;
  std::unique_ptr<volumes::StoreProcess> store;
  std::unique_ptr<volumes::Pool> pool;
  std::unique_ptr<volumes::JournalFile> journal;
};
Result<std::string> engine_of(const Flags& flags, const char* name) {
  if (!flags.engine.empty()) return flags.engine == "off" ? "" : flags.engine;
  auto beside = program_beside(name);
  return beside && ::access(beside->c_str(), X_OK) == 0 ? *beside : "";
}
Result<Opened> open_files(const Flags& flags, volumes::Keyring& keyring) {
  if (auto done = volumes::prepare_place(flags.place); !done) return std::unexpected(std::move(done.error()));
  auto files = volumes::open_file_pool(flags.place.folder, engine_of(flags, "fairlead-disk").value_or(""), &keyring, flags.shows);
  if (!files) return std::unexpected(std::move(files.error()));
  auto journal = volumes::open_journal_file(flags.place.folder + "/journal");
  if (!journal) return std::unexpected(std::move(journal.error()));
  return Opened{.host = {}, .store = nullptr, .pool = std::move(*files), .journal = std::move(*journal)};
}
Result<Opened> open_ceph(Flags flags, volumes::Keyring& keyring) {
  flags.ceph.program = engine_of(flags, "fairlead-rbd").value_or("");
  if (flags.ceph.program.empty()) return fail(Code::Unavailable, "fairlead-rbd is not beside this program: a pool in Ceph needs it (package fairlead-volumes-ceph, or --engine)");
  auto host = volumes::claim_host(flags.place.folder);
  if (!host) return std::unexpected(std::move(host.error()));
  flags.ceph.host = host->id;
  auto store = volumes::StoreProcess::start(flags.ceph);
  if (!store) return std::unexpected(std::move(store.error()));
  auto pool = volumes::rbd_pool(**store, flags.place.size, &keyring);
  auto journal = volumes::rbd_journal(**store);
  return Opened{.host = std::move(*host), .store = std::move(*store), .pool = std::move(pool), .journal = std::move(journal)};
}

// What both daemons begin with. Before any thread: all of them inherit the mask, and the main thread waits for the signal.
sigset_t block_signals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGTERM);
  ::sigaddset(&signals, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  ::mallopt(M_ARENA_MAX, 2);
  return signals;
}
// Address and port of --metrics; port -1: off.
Result<std::pair<std::string, int>> metrics_of(const Flags& flags) {
  if (flags.metrics == "off") return std::pair(std::string(), -1);
  const auto colon = flags.metrics.rfind(':');
  const int port = colon == std::string::npos ? -1 : std::atoi(flags.metrics.c_str() + colon + 1);
  if (port < 0 || port > 65535) return fail(Code::Invalid, fmt::format("--metrics {}: ADDRESS:PORT or off is expected", flags.metrics));
  return std::pair(flags.metrics.substr(0, colon), port);
}
Result<std::shared_ptr<kube::RestApi>> open_api(const Flags& flags) {
  auto config = kube::load_config({.kubeconfig = flags.kubeconfig, .context = flags.context, .environment = environment});
  if (!config) return std::unexpected(std::move(config.error()));
  config->rest.user_agent = "fairlead-volumes/" FAIRLEAD_VERSION;
  return kube::RestApi::make(config->rest);
}

int serve(Flags flags) {
  const sigset_t signals = block_signals();
  if (auto done = resolve(flags); !done) return refuse(done.error().message, 2);
  if (auto done = resolve_name(flags); !done) return refuse(done.error().message, 2);
  const auto metrics = metrics_of(flags);
  if (!metrics) return refuse(metrics.error().message, 2);
  if (::geteuid() != 0) return refuse("must be run as root: it makes loop devices");
  auto api = open_api(flags);
  if (!api) return refuse(api.error().message);
  const auto keyring = volumes::api_keyring(**api);
  auto opened = flags.ceph.pool.empty() ? open_files(flags, *keyring) : open_ceph(flags, *keyring);
  if (!opened) return refuse(opened.error().message);
  const SystemClock clock;
  volumes::HostBoard hosts(clock, std::chrono::seconds(flags.host_silence));
  volumes::HostBoard* const further = opened->pool->is_distributed() ? &hosts : nullptr;
  auto pool = volumes::VolumePool::open(*opened->pool, std::move(opened->journal), further);
  if (!pool) return refuse(pool.error().message + "; nothing is changed, and what is attached goes on");
  // Two pools of one name would answer for the same objects.
  if (const auto there = (*api)->get(api::kVolumePools, {"", flags.name}); there)
    if (const auto facts = api::read_pool(*there); !facts.id.empty() && facts.id != (*pool)->id() && facts.heard && clock.now() - *facts.heard < api::kPoolSilence)
      return refuse(fmt::format("another daemon serves a pool called {}: choose another --name", flags.name));
  if (const auto there = (*api)->get(api::kVolumePools, {"", flags.name}); there && !flags.nodes.empty() && (*there)["spec"]["nodeSelector"].string() != flags.nodes)
    log_warn("the VolumePool says which nodes reach it, and --nodes says otherwise: its spec.nodeSelector holds", {{"pool", flags.name}, {"spec", (*there)["spec"]["nodeSelector"].string()}, {"option", flags.nodes}});
  kube::Runner runner(**api, clock, random_seed());
  const auto settle = [&pool](const std::string& volume) {
    const auto entry = (*pool)->entry(volume);
    return entry && entry->places.contains("") ? blocks::settle(volume, entry->places.at("").device) : blocks::settle(volume);
  };
  for (auto& one : volumes::pool_controllers({.api = **api, .clock = clock, .pool = **pool, .name = flags.name, .node_selector = flags.nodes, .link = volumes::link_device, .unlink = volumes::unlink_device, .hosts = further, .settle = settle})) runner.add(std::move(one));
  hosts.on_ask([&](const std::string& host) { runner.wake("volume-host", {"", api::volume_host_name(flags.name, host)}); });
  runner.start();
  runner.wake("volume-pool", {"", flags.name});  // there may be no object yet that says so
  std::unique_ptr<http::Server> health;
  if (metrics->second >= 0) {
    auto served = kube::serve_health(metrics->first, static_cast<unsigned short>(metrics->second), {.ready = [&]() -> Result<void> { return runner.synced() ? Result<void>() : fail(Code::Unavailable, "the site's API does not answer yet"); },
                                                                                                        .metrics = [&] { return kube::print_metrics(1, runner.counts()) + volumes::print_pool_metrics(**pool, flags.name, clock); }});
    if (!served) return refuse(served.error().message);
    health = std::move(*served);
  }
  log_info("serving a pool", {{"pool", flags.name}, {"id", (*pool)->id()}, {"folder", flags.place.folder}, {"ceph_pool", flags.ceph.pool}, {"volumes", std::to_string((*pool)->entries().size())}, {"metrics_port", health ? std::to_string(health->port()) : "off"}, {"version", FAIRLEAD_VERSION}});
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

int host(Flags flags) {
  const sigset_t signals = block_signals();
  if (flags.ceph.pool.empty() || flags.pool.empty()) return refuse("say --ceph-pool POOL, and --pool NAME: the VolumePool that its daemon serves (fairlead volume pools)", 2);
  if (flags.place.folder.empty()) flags.place.folder = "/var/lib/fairlead-volumes/host";
  if (auto done = resolve(flags); !done) return refuse(done.error().message, 2);
  if (auto done = resolve_name(flags); !done) return refuse(done.error().message, 2);
  if (!api::is_volume_name(flags.pool)) return refuse(fmt::format("--pool {}: the name of a VolumePool is expected", flags.pool), 2);
  const auto metrics = metrics_of(flags);
  if (!metrics) return refuse(metrics.error().message, 2);
  if (::geteuid() != 0) return refuse("must be run as root: it makes loop devices");
  auto api = open_api(flags);
  if (!api) return refuse(api.error().message);
  flags.ceph.program = engine_of(flags, "fairlead-rbd").value_or("");
  if (flags.ceph.program.empty()) return refuse("fairlead-rbd is not beside this program: a pool in Ceph needs it (package fairlead-volumes-ceph, or --engine)");
  auto own = volumes::claim_host(flags.place.folder);
  if (!own) return refuse(own.error().message);
  flags.ceph.host = own->id;
  const SystemClock clock;
  const std::string name = api::volume_host_name(flags.pool, flags.name);
  if (const auto there = (*api)->get(api::kVolumeHosts, {"", name}); there) {
    const auto facts = api::read_volume_host(*there);
    const auto heard = parse_time(facts.heard);
    if (!facts.id.empty() && facts.id != own->id && heard && clock.now() - *heard < 2 * api::kHostSilence) return refuse(fmt::format("another machine serves as {} of pool {}: choose another --name, or wait a minute if it is gone", flags.name, flags.pool));
    if (!flags.nodes.empty() && facts.node_selector != flags.nodes) log_warn("the VolumeHost says which nodes are on this machine, and --nodes says otherwise: its spec.nodeSelector holds", {{"name", name}, {"spec", facts.node_selector}, {"option", flags.nodes}});
  }
  const auto keyring = volumes::api_keyring(**api);
  kube::Runner runner(**api, clock, random_seed(), {.threads_per_controller = 8});
  for (auto& one : volumes::host_controllers({.api = **api, .clock = clock, .pool = flags.pool, .host = flags.name, .id = own->id, .node_selector = flags.nodes, .machine = [&](const std::string& pool_id) { return volumes::rbd_machine(flags.ceph, pool_id, *keyring); }, .report = [&] { runner.wake("volume-report", {"", name}); }})) runner.add(std::move(one));
  runner.start();
  runner.wake("volume-report", {"", name});  // there may be no object yet that says so
  std::unique_ptr<http::Server> health;
  if (metrics->second >= 0) {
    auto served = kube::serve_health(metrics->first, static_cast<unsigned short>(metrics->second), {.ready = [&]() -> Result<void> { return runner.synced() ? Result<void>() : fail(Code::Unavailable, "the site's API does not answer yet"); }, .metrics = [&] { return kube::print_metrics(1, runner.counts()); }});
    if (!served) return refuse(served.error().message);
    health = std::move(*served);
  }
  log_info("showing volumes of a pool", {{"pool", flags.pool}, {"host", flags.name}, {"id", own->id}, {"ceph_pool", flags.ceph.pool}, {"metrics_port", health ? std::to_string(health->port()) : "off"}, {"version", FAIRLEAD_VERSION}});
  int number = 0;
  while ((number = ::sigwaitinfo(&signals, nullptr)) <= 0) {}
  log_info("stopping; volumes stay attached", {{"signal", std::to_string(number)}});
  std::fflush(nullptr);
  ::_exit(0);
}

// Of a container: what ends it ends all of its engines, so it waits until there are none.
int engines(const Flags& flags) {
  const sigset_t signals = block_signals();
  if (::geteuid() != 0) return refuse("must be run as root: engines mount file systems");
  const auto program = engine_of(flags, "fairlead-disk");
  if (!program || !program->starts_with('/') || ::access(program->c_str(), X_OK) != 0) return refuse("fairlead-disk is not beside this program: say --engine with an absolute path", 2);
  if (auto made = make_dirs(flags.socket.substr(0, flags.socket.rfind('/')), 0700); !made) return refuse(made.error().message);
  auto keeper = volumes::EngineKeeper::start(flags.socket, *program);
  if (!keeper) return refuse(keeper.error().message);
  log_info("keeping engines", {{"socket", flags.socket}, {"program", *program}, {"version", FAIRLEAD_VERSION}});
  int number = 0;
  while ((number = ::sigwaitinfo(&signals, nullptr)) <= 0) {}
  (*keeper)->close();
  if ((*keeper)->keeps()) log_warn("engines serve volumes still: it ends when they are detached, or at the next signal", {{"signal", std::to_string(number)}});
  for (const timespec second{.tv_sec = 1, .tv_nsec = 0}; (*keeper)->keeps() && ::sigtimedwait(&signals, nullptr, &second) <= 0;) {}
  log_info("stopping", {{"engines", (*keeper)->keeps() ? "some serve still" : "none"}});
  std::fflush(nullptr);
  ::_exit(0);
}

int take_over(Flags flags) {
  if (flags.ceph.pool.empty()) return refuse("say --ceph-pool POOL", 2);
  if (auto done = resolve(flags); !done) return refuse(done.error().message, 2);
  if (!flags.yes) return refuse(fmt::format("volumes that are attached on the machine that has {}/{} give errors there from then on: say --yes if it is dead, or has stopped for good", flags.ceph.pool, flags.ceph.space), 2);
  if (::geteuid() != 0) return refuse("must be run as root");
  auto program = engine_of(flags, "fairlead-rbd");
  auto host = volumes::claim_host(flags.place.folder);
  if (!program || program->empty()) return refuse("fairlead-rbd is not beside this program (package fairlead-volumes-ceph)");
  if (!host) return refuse(host.error().message);
  flags.ceph.program = *program, flags.ceph.host = host->id, flags.ceph.take_over = true;
  const auto store = volumes::StoreProcess::start(flags.ceph);
  if (!store) return refuse(store.error().message);
  fmt::print("pool {} is this machine's\n", (*store)->pool_id());
  return 0;
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
  CLI::App app("fairlead-volumes " FAIRLEAD_VERSION ": keeps the volumes of one machine, in a pool on XFS or in Ceph");
  app.require_subcommand(1);
  app.set_version_flag("--version", FAIRLEAD_VERSION);
  app.add_option("--log-level", log_level, "debug, info, warn or error")->capture_default_str()->check(CLI::IsMember({"debug", "info", "warn", "error"}));
  auto* run = app.add_subcommand("run", "run the daemon until SIGTERM; volumes stay attached without it");
  auto* destroy = app.add_subcommand("destroy", "delete a pool's image with all that is in it");
  auto* take_over = app.add_subcommand("take-over", "make a pool in Ceph this machine's, as the one that had it is dead: that one is shut out by Ceph, with all that is attached there");
  auto* host = app.add_subcommand("host", "on a further machine: show volumes of a pool in Ceph to the nodes there, as the pool's daemon asks by the site's API; they stay attached without it");
  auto* engines = app.add_subcommand("engines", "start engines for a daemon in another container (run --engine unix://SOCKET), and keep them: they end with this process' container, and not with the daemon's");
  engines->add_option("--socket", flags.socket, "where the daemon asks")->capture_default_str()->check(CLI::Validator([](std::string& text) { return text.starts_with('/') ? std::string() : "an absolute path is expected"; }, "PATH"));
  engines->add_option("--engine", flags.engine, "fairlead-disk by another path (default: beside this program)");
  auto* release = app.add_subcommand("release", "unmount a pool's image that no daemon serves; it stays, with all that is in it");
  for (CLI::App* one : {run, destroy, release, take_over}) {
    one->add_option("--folder", flags.place.folder, "folder of the pool, on XFS with reflink (default: /var/lib/fairlead-volumes/pool); of one in Ceph, where it is kept that it is this machine's (default: /var/lib/fairlead-volumes/ceph)");
    if (one != take_over) one->add_option("--image", flags.place.image, "file that holds the pool's file system; made if it is not there, and mounted at the folder");
  }
  run->add_option("--size", flags.size, "of an image that is made now, such as 50Gi; of a pool in Ceph: the most of it that is promised to volumes (default: what Ceph has left)");
  run->add_flag("--sparse", flags.place.sparse, "set no room aside for the image: its disk may be full before the pool is");
  run->add_option("--name", flags.name, "of the pool (default: $NODE_NAME, then this machine's name)");
  host->add_option("--name", flags.name, "of this machine (default: $NODE_NAME, then its own)");
  host->add_option("--pool", flags.pool, "name of the VolumePool")->required();
  host->add_option("--folder", flags.place.folder, "where it is kept which machine this is (default: /var/lib/fairlead-volumes/host)");
  for (CLI::App* one : {run, host}) one->add_option("--nodes", flags.nodes, "labels of the nodes on this machine, as kubectl -l takes them (default: the node with its name)");
  run->add_option("--host-silence", flags.host_silence, "seconds without a word after which a further machine counts as silent; each tells every 10")->capture_default_str()->check(CLI::Range(12, 3600));
  host->add_option("--engine", flags.engine, "fairlead-rbd by another path (default: beside this program)");
  run->add_option("--engine", flags.engine, "program that serves volumes of class local-managed, or unix://SOCKET of `fairlead-volumes engines`, or off: none is made here (default: fairlead-disk beside this program); of a pool in Ceph: fairlead-rbd");
  run->add_option("--engine-shows", flags.shows, "what engines that are started show their volumes by: auto (a block device of ublk where the kernel has what that needs, else as file) or file (a loop device on a file of FUSE); not of a pool in Ceph")->capture_default_str()->check(CLI::IsMember({"auto", "file"}));
  for (CLI::App* one : {run, take_over, host}) {
    one->add_option("--ceph-pool", flags.ceph.pool, "pool of Ceph in which the volumes lie, with class distributed");
    one->add_option("--ceph-conf", flags.ceph.conf, "ceph.conf, which names the monitors and the user's keyring (default: as Ceph's programs look for it)");
    one->add_option("--ceph-user", flags.ceph.user, "of Ceph, without \"client.\"")->capture_default_str();
    one->add_option("--ceph-namespace", flags.ceph.space, "of the Ceph pool: nothing outside of it is touched")->capture_default_str();
  }

  for (CLI::App* one : {run, host}) {
    one->add_option("--kubeconfig", flags.kubeconfig, "of the site (default: $KUBECONFIG, then the pod's service account)");
    one->add_option("--context", flags.context, "of the kubeconfig");
    one->add_option("--metrics", flags.metrics, "address and port of /healthz, /readyz and /metrics, or off; port 0: any")->capture_default_str();
  }
  release->add_flag("--yes", flags.yes, "nothing is deleted: it need not be said");
  destroy->add_flag("--yes", flags.yes, "do it");
  take_over->add_flag("--yes", flags.yes, "do it");
  CLI11_PARSE(app, argc, argv);
  fairlead::start_logging("fairlead-volumes", log_level);
  if (engines->parsed()) return fairlead::engines(flags);
  if (host->parsed()) return fairlead::host(std::move(flags));
  if (take_over->parsed()) return fairlead::take_over(std::move(flags));
  return !run->parsed() ? fairlead::destroy(std::move(flags), release->parsed()) : fairlead::serve(std::move(flags));
}
