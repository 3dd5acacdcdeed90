// SPDX-License-Identifier: Apache-2.0
#include "agent/agent.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <thread>

#include "agent/access_review.h"
#include "agent/credentials_relay.h"
#include "agent/heartbeat.h"
#include "agent/metadata_service.h"
#include "api/identity_crds.h"
#include "api/join.h"
#include "api/pod_identity.h"
#include "base/encoding.h"
#include "base/files.h"
#include "base/log.h"
#include "base/rng.h"
#include "http/pki.h"
#include "http/server.h"
#include "kube/controller.h"
#include "kube/selector.h"
#include "node/control/network_controller.h"
#include "node/control/pod_controller.h"
#include "node/control/route_controller.h"
#include "node/dns_server.h"
#include "node/events.h"
#include "node/netlink.h"
#include "node/node_api.h"
#include "node/pod_access.h"

namespace fairlead::agent {
namespace {
using namespace std::chrono_literals;

// Tells about every exit file, and keeps logs from growing: one thread for both.
class ExitWatcher {
 public:
  ExitWatcher(Fd watch, std::function<void(const std::string&)> on_exit, std::function<void()> every_few_seconds)
      : watch_(std::move(watch)),
        wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        on_exit_(std::move(on_exit)),
        now_and_then_(std::move(every_few_seconds)),
        thread_([this] { work(); }) {}
  ~ExitWatcher() {
    const std::uint64_t one = 1;
    (void)!::write(wake_.get(), &one, sizeof one);
    thread_.join();
  }
  static Result<Fd> watch(const std::string& folder) {
    Fd fd(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
    if (!fd || ::inotify_add_watch(fd.get(), folder.c_str(), IN_MOVED_TO | IN_CLOSE_WRITE) < 0) return fail_errno(errno, "watch " + folder);
    return fd;
  }

 private:
  void work() {
    while (true) {
      pollfd waits[2] = {{.fd = wake_.get(), .events = POLLIN, .revents = 0}, {.fd = watch_.get(), .events = POLLIN, .revents = 0}};
      const int ready = ::poll(waits, 2, 5'000);
      if (waits[0].revents != 0) return;
      if (ready == 0) now_and_then_();
      alignas(inotify_event) char buffer[16 * 1024];
      for (ssize_t n; (n = ::read(watch_.get(), buffer, sizeof buffer)) > 0;) {
        for (ssize_t at = 0; at < n;) {
          const auto* event = reinterpret_cast<const inotify_event*>(buffer + at);
          at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
          // conmon writes "ID.XXXXXX" and renames it.
          if (event->len > 0) on_exit_(event->name);
        }
      }
    }
  }
  Fd watch_, wake_;
  std::function<void(const std::string&)> on_exit_;
  std::function<void()> now_and_then_;
  std::thread thread_;
};

// Who asks for a pod to be looked at may outlive the queue by a moment at the end.
struct Waker {
  std::mutex mutex;
  kube::Runner* runner = nullptr;
  void wake(const kube::ObjectKey& key) {
    const std::lock_guard lock(mutex);
    if (runner != nullptr) runner->wake(node::PodController::controller_name, key);
  }
};

// The heartbeat comes last and goes first: who wakes it before or after finds nobody.
struct Pulse {
  std::mutex mutex;
  Heartbeat* heartbeat = nullptr;
  void look_again() {
    const std::lock_guard lock(mutex);
    if (heartbeat != nullptr) heartbeat->look_again();
  }
};

class RunningAgent final : public Agent {
 public:
  ~RunningAgent() override {
    {
      const std::lock_guard lock(pulse_->mutex);
      pulse_->heartbeat = nullptr;
    }
    const std::lock_guard lock(waker_->mutex);
    waker_->runner = nullptr;
  }
  RunningAgent(kube::KubeApi& api, const Clock& clock, AgentOptions options)
      : api_(api),
        clock_(clock),
        options_(std::move(options)),
        own_api_(api, options_.config.node_name),
        reviews_(api, clock, options_.config.node_name) {}

  Result<void> start() {
    const node::NodeConfig& config = options_.config;
    for (const std::string& folder : {config.node_dir, config.run_dir, config.volumes_dir})
      if (auto made = make_dirs(folder, 0711); !made) return made;
    // Before any pod is started that finds its place empty.
    volume_ = std::make_unique<VolumeKeeper>(VolumePlaces{.folder = config.node_dir + "/instance-volume"}, [pulse = pulse_] { pulse->look_again(); });
    auto runtime = node::OciRuntime::open({.state_dir = config.node_dir,
                                           .run_dir = config.run_dir,
                                           .logs_dir = config.node_dir + "/logs",
                                           .cgroup_parent = config.cgroup_parent,
                                           .cni = {.pod_cidr = config.pod_cidr, .pod_cidr6 = config.pod_cidr6, .state_dir = {}},
                                           .at_step = options_.at_step},
                                          clock_);
    if (!runtime) return std::unexpected(std::move(runtime.error()));
    runtime_ = std::move(*runtime);
    auto gateway = runtime_->cni().gateway();
    if (!gateway) return std::unexpected(std::move(gateway.error()));
    if (auto made = node::ensure_bridge(config.bridge, *gateway + config.pod_cidr.substr(config.pod_cidr.find('/'))); !made) return made;
    std::vector<std::string> gateways{*gateway};
    if (!config.pod_cidr6.empty()) {
      if (auto done = node::route_ipv6(); !done) return done;
      auto gateway6 = runtime_->cni().gateway6();
      if (!gateway6) return std::unexpected(std::move(gateway6.error()));
      if (auto made = node::ensure_bridge(config.bridge, *gateway6 + config.pod_cidr6.substr(config.pod_cidr6.find('/'))); !made) return made;
      gateways.push_back(*gateway6);
    }

    const auto book = node::DnsController::make_book(config.cluster_domain);
    if (options_.answer_names) {
      auto names =
          node::DnsServer::start(*gateway, 53, [book](const node::DnsQuestion& question) { return node::DnsController::resolve(*book, question); });
      if (!names) return std::unexpected(std::move(names.error()));
      names_ = std::move(*names);
    }
    events_ = std::make_unique<node::Events>(api_, clock_, config.node_name);
    runner_ = std::make_unique<kube::Runner>(own_api_, clock_, seed(), kube::RunnerOptions{.threads_per_controller = 3});
    // Pods run also where the API lets the node see nothing but its own things: what the network needs is watched apart.
    whole_api_ = node::without_missing_kinds(api_);
    network_ = std::make_unique<kube::Runner>(*whole_api_, clock_, seed(), kube::RunnerOptions{.threads_per_controller = 1});
    waker_->runner = runner_.get();
    auto resolv = read_file("/etc/resolv.conf", 1_MiB);
    const Machine machine = look_at_machine(config);
    const auto amount = [&](const char* resource, const std::string& otherwise) -> kube::Quantity {
      const auto it = config.capacity.find(resource);
      return kube::Quantity::parse(it != config.capacity.end() ? it->second : otherwise).value_or(kube::Quantity());
    };
    auto pods = std::make_unique<node::PodController>(
        node::PodController::Ports{.api = api_,
                                   .runtime = *runtime_,
                                   .clock = clock_,
                                   .events = *events_,
                                   .config = options_.config,
                                   .dns_server = *gateway,
                                   .node_resolv = resolv ? *resolv : "",
                                   .capabilities = node::held_capabilities(),
                                   .wake = [waker = waker_](const kube::ObjectKey& key) { waker->wake(key); },
                                   .services = [book] { return node::DnsController::services(*book); },
                                   .node_cpu = MilliCpu{amount("cpu", machine.cpu).milli_value()},
                                   .node_memory = Bytes{amount("memory", machine.memory).value()},
                                   .node_storage = Bytes{amount("ephemeral-storage", machine.storage).value()}});
    node::PodController* controller = pods.get();
    auto watch = ExitWatcher::watch(runtime_->exits_dir());
    if (!watch) return std::unexpected(std::move(watch.error()));
    runner_->add(std::move(pods));
    network_->add(std::make_unique<node::RouteController>(config.node_name, node::RouteScope{.label = api::kHostLabel, .joined = config.joined, .within = config.pods_range}));
    network_->add(std::make_unique<WishController>(config.node_name, [pulse = pulse_] { pulse->look_again(); }));
    network_->add(std::make_unique<node::DnsController>(book));
    network_->add(std::make_unique<node::NetworkController>(
        node::NetworkOptions{
            .node_name = config.node_name, .own_ranges = config.pod_cidrs(), .own_gateways = gateways, .metadata = config.metadata, .masquerade = config.masquerade, .with_role = with_role_},
        clock_));
    runner_->start();
    network_->start();
    exits_ = std::make_unique<ExitWatcher>(
        std::move(*watch), [controller](const std::string& id) { controller->container_ended(id); }, [this] { runtime_->rotate_logs(); });
    if (options_.answer_credentials)
      if (auto relayed = relay_credentials(config); !relayed) log_warn("pods of this node get no container credentials", {{"why", relayed.error().message}});
    auto told = config.metadata ? tell_metadata(config) : Result<void>();
    if (!told) log_warn("processes of this node have no metadata service", {{"why", told.error().message}});
    // Of an agent of before: where nobody answers, the address may be a cloud's.
    if (!metadata_)
      if (auto gone = node::drop_address(config.bridge, std::string(api::node_identity::metadata_host) + "/32"); !gone) log_warn("the address of a metadata service stays", {{"why", gone.error().message}});
    if (options_.serve)
      if (auto serving = serve(config); !serving) return serving;
    heartbeat_ = std::make_unique<Heartbeat>(api_, clock_, config, machine, volume_.get(), [](const api::InterfaceOrders& orders) { return settle_interfaces(orders); });
    {
      const std::lock_guard lock(pulse_->mutex);
      pulse_->heartbeat = heartbeat_.get();
    }
    pulse_->look_again();  // what was asked before it was there
    return {};
  }

 private:
  // On the pods' bridge, which is ours: an address of the loopback would be everybody's.
  Result<void> relay_credentials(const node::NodeConfig& config) {
    const std::string address = api::pod_identity::credentials_host;
    if (auto done = node::ensure_bridge(config.bridge, address + "/32"); !done) return done;
    auto relay = CredentialsRelay::start(clock_, {.address = address, .find_face = [this] { return find_face(); }});
    if (!relay) return std::unexpected(std::move(relay.error()));
    relay_ = std::move(*relay);
    return {};
  }

  Result<FaceAddress> find_face() {
    const auto settings = api_.get(kube::resources::config_maps, {api::identities::default_space, api::identities::settings_name});
    if (!settings) return pass(settings.error(), "read ConfigMap fairlead-aws");
    return read_face_address(*settings);
  }

  // On the bridge too: it goes when the bridge does.
  Result<void> tell_metadata(const node::NodeConfig& config) {
    const std::string address = api::node_identity::metadata_host;
    if (auto done = node::ensure_bridge(config.bridge, address + "/32"); !done) return done;
    utsname machine{};
    ::uname(&machine);
    MetadataServiceOptions options{.address = address, .facts = {.name = config.node_name, .address = config.node_ip, .address6 = config.node_ip6, .architecture = machine.machine == std::string_view("aarch64") ? "arm64" : machine.machine}, .own = {config.node_ip}, .slurm_cluster_of = [pods = with_role_](const std::string& from) { return pods->of(from); }, .find_face = [this] { return find_face(); }, .certificate = {}};
    options.certificate = [certificate = config.cert_file, key = config.key_file]() -> Result<http::KeyPair> {
      auto own = read_file(certificate, 1_MiB);
      auto its = own ? read_file(key, 1_MiB) : Result<std::string>(std::string());
      if (!own || !its) return std::unexpected(own ? its.error() : own.error());
      return http::KeyPair{std::move(*own), std::move(*its)};
    };
    auto service = MetadataService::start(clock_, std::move(options));
    if (!service) return std::unexpected(std::move(service.error()));
    metadata_ = std::move(*service);
    return {};
  }

  Result<void> serve(const node::NodeConfig& config) {
    access_ =
        std::make_unique<node::PodAccess>(*runtime_, clock_, config.node_name, [this](const http::Peer& peer) { return reviews_.allows(peer); });
    http::TlsFiles tls{.certificate = config.serving_cert_file, .key = config.serving_key_file, .client_ca = config.client_ca_file};
    if (config.serving_cert_file == "self-made") {
      auto own = http::make_ca("fairlead-agent " + config.node_name, clock_.now());
      if (!own) return pass(std::move(own.error()), "make a serving certificate");
      auto pair = http::issue(*own,
                              {.common_name = "system:node:" + config.node_name,
                               .organizations = {"system:nodes"},
                               .dns_names = {config.node_name},
                               .ip_addresses = split(config.node_ips(), ','),
                               .server = true},
                              clock_.now());
      if (!pair) return pass(std::move(pair.error()), "make a serving certificate");
      tls.certificate = config.run_dir + "/serving.crt";
      tls.key = config.run_dir + "/serving.key";
      if (auto written = write_file_atomically(tls.certificate, pair->certificate_pem, 0644); !written) return written;
      if (auto written = write_file_atomically(tls.key, pair->key_pem, 0600); !written) return written;
    }
    auto server = http::Server::start(
        {.address = config.node_ip, .port = config.listen_port, .unix_socket = {}, .tls = tls, .connection_limit = 500},
        [this](http::Request request, std::shared_ptr<http::Exchange> exchange) { access_->handle(std::move(request), std::move(exchange)); });
    if (!server) return pass(std::move(server.error()), "serve logs and exec");
    server_ = std::move(*server);
    return {};
  }

  static std::uint64_t seed() {
    std::uint64_t out = 0;
    for (const char c : secret_bytes(8)) out = out << 8 | static_cast<unsigned char>(c);
    return out;
  }

  // Destroyed from the last to the first: whoever calls goes before whom it calls.
  kube::KubeApi& api_;
  const Clock& clock_;
  const AgentOptions options_;
  node::NodeApi own_api_;
  AccessReview reviews_;
  const std::shared_ptr<Waker> waker_ = std::make_shared<Waker>();
  const std::shared_ptr<Pulse> pulse_ = std::make_shared<Pulse>();
  std::unique_ptr<VolumeKeeper> volume_;
  std::unique_ptr<node::OciRuntime> runtime_;
  std::unique_ptr<node::Events> events_;
  std::unique_ptr<kube::KubeApi> whole_api_;
  std::unique_ptr<kube::Runner> runner_, network_;
  std::unique_ptr<node::DnsServer> names_;
  std::unique_ptr<ExitWatcher> exits_;
  std::unique_ptr<CredentialsRelay> relay_;
  const std::shared_ptr<node::PodsWithRole> with_role_ = std::make_shared<node::PodsWithRole>();
  std::unique_ptr<MetadataService> metadata_;
  std::unique_ptr<node::PodAccess> access_;
  std::unique_ptr<http::Server> server_;
  std::unique_ptr<Heartbeat> heartbeat_;
};

}  // namespace

Result<std::unique_ptr<Agent>> Agent::start(kube::KubeApi& api, const Clock& clock, AgentOptions options) {
  auto agent = std::make_unique<RunningAgent>(api, clock, std::move(options));
  if (auto started = agent->start(); !started) return std::unexpected(std::move(started.error()));
  return agent;
}

}  // namespace fairlead::agent
