// SPDX-License-Identifier: Apache-2.0
// fairlead-server on a Kubernetes cluster: the controllers of domains behind an election. No API of its own. Wiring only.
#include <openssl/rand.h>
#include <sys/utsname.h>

#include <cstdlib>

#include "apps/fairlead-server.h"
#include "base/clock.h"
#include "base/encoding.h"
#include "base/rng.h"
#include "fleet/control/cluster_controller.h"
#include "fleet/control/machine_controller.h"
#include "fleet/control/interface_controller.h"
#include "fleet/control/instance_volume_controller.h"
#include "fleet/control/node_place_controller.h"
#include "fleet/control/training_plan_controller.h"
#include "fleet/local_host.h"
#include "governance/control/conversion_controller.h"
#include "governance/control/inquiry_controller.h"
#include "governance/control/job_controller.h"
#include "governance/control/gang_controller.h"
#include "governance/control/place_controller.h"
#include "governance/control/pod_controller.h"
#include "governance/control/queue_controller.h"
#include "governance/control/workload_clock_controller.h"
#include "governance/control/slurm_ledger_controller.h"
#include "governance/control/teams_controller.h"
#include "governance/conversion_point.h"
#include "http/pki.h"
#include "kube/fenced_api.h"
#include "kube/health.h"
#include "kube/kubeconfig.h"
#include "kube/leader.h"
#include "kube/rest_client.h"
#include "notify/control/cluster_event_controller.h"
#include "notify/control/delivery_controller.h"
#include "notify/control/role_change_controller.h"
#include "slurm/control/active_check_controller.h"
#include "slurm/control/head_address_controller.h"
#include "slurm/control/slurm_cluster_controller.h"
#include "slurm/keys.h"
#include "stacks/control/stack_controller.h"
#include "training/control/training_controller.h"

namespace fairlead {
namespace {

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Of this process alone: whoever comes after a restart is somebody else.
std::string make_identity(const Flags& flags) {
  if (!flags.identity.empty()) return flags.identity;
  std::string random(6, '\0');
  INVARIANT(::RAND_bytes(reinterpret_cast<unsigned char*>(random.data()), static_cast<int>(random.size())) == 1);
  std::string name = environment("POD_NAME");
  utsname host{};
  if (name.empty() && ::uname(&host) == 0) name = host.nodename;
  return name + "_" + hex(random);
}

// The election and what it starts. Controllers run once, in the term that we win; a lost term ends the process.
class Term {
 public:
  explicit Term(std::unique_ptr<kube::Runner> runner) : runner_(std::move(runner)) {}
  // `last`: adds what depends on what the cluster is like by now.
  void begin(const std::function<void(kube::Runner&)>& last) {
    const std::lock_guard lock(mutex_);
    if (!runner_) return;
    last(*runner_);
    runner_->start();
  }
  void end() {
    const std::lock_guard lock(mutex_);
    runner_.reset();
  }
  bool synced() {
    const std::lock_guard lock(mutex_);
    return runner_ && runner_->synced();
  }
  std::map<std::string, kube::Runner::Count> counts() {
    const std::lock_guard lock(mutex_);
    return runner_ ? runner_->counts() : std::map<std::string, kube::Runner::Count>();
  }

 private:
  std::mutex mutex_;
  std::unique_ptr<kube::Runner> runner_;
};

// The fence of a leader that is made after the API that it fences.
class LateFence {
 public:
  void set(const kube::Leader* leader) { leader_ = leader; }
  Result<std::int64_t> operator()() const {
    const kube::Leader* const leader = leader_.load();
    if (leader == nullptr) return fail(Code::Unavailable, "this server does not lead yet");
    return leader->epoch();
  }

 private:
  std::atomic<const kube::Leader*> leader_{nullptr};
};

// Where machines reach the API, which may be this one's loopback for us. Local machines find it at this machine's address among them.
std::string api_for_nodes(const Flags& flags, const kube::RestConfig& rest, const fleet::Ranges& ranges) {
  if (!flags.node_api_server.empty()) return flags.node_api_server;
  const auto url = kube::parse_server(rest.server);
  const bool own = url && (url->host == "localhost" || url->host.starts_with("127.") || url->host == "::1");
  return own && flags.local_machines ? fmt::format("https://{}:{}", fleet::host_address(ranges), url->port) : rest.server;
}

Result<std::unique_ptr<fleet::LocalHost>> make_host(const Flags& flags, const kube::RestConfig& rest, const std::string& state_dir, const fleet::Ranges& ranges, const Clock& clock, const std::shared_ptr<LateFace>& late) {
  if (flags.node_ca_cert.empty() || flags.node_ca_key.empty()) return fail(Code::Invalid, "--local-machines needs --node-ca-cert and --node-ca-key: the cluster must know the nodes' certificates");
  auto certificate = read_file(flags.node_ca_cert, 1_MiB);
  if (!certificate) return pass(std::move(certificate.error()), "--node-ca-cert");
  auto key = read_file(flags.node_ca_key, 1_MiB);
  if (!key) return pass(std::move(key.error()), "--node-ca-key");
  const auto url = kube::parse_server(rest.server);
  if (!url) return std::unexpected(url.error());
  const http::KeyPair authority{std::move(*certificate), std::move(*key)};
  return fleet::make_local_host({.state_dir = state_dir,
                                 .agent_program = program_folder() + "/fairlead-agent",
                                 .ranges = ranges,
                                 .api_server = api_for_nodes(flags, rest, ranges),
                                 .cluster_domain = flags.cluster_domain,
                                 .ca_pem = rest.ca_pem,
                                 .issue = [authority, &clock](const http::CertificateRequest& request) { return http::issue(authority, request, clock.now()); },
                                 .on_address = [late](const std::string& address) -> Result<void> {
                                   late->also_listen(address);
                                   return {};
                                 }});
}

void add_declared(kube::Runner& runner, std::unique_ptr<kube::Controller> controller) {
  INVARIANT(controller->access());  // the roles of this server are made from it
  runner.add(std::move(controller));
}

}  // namespace

int serve_kubernetes(const Flags& flags) {
  const auto health_at = parse_listen("--health-listen", flags.health_listen);
  if (!health_at) return refuse(health_at.error().message, 2);
  const auto webhook_at = flags.webhook_listen.empty() ? Result<std::pair<std::string, unsigned short>>() : parse_listen("--webhook-listen", flags.webhook_listen);
  if (!webhook_at) return refuse(webhook_at.error().message, 2);
  const auto aws_at = flags.aws_listen.empty() || flags.aws_listen == "off" ? Result<std::pair<std::string, unsigned short>>() : parse_listen("--aws-listen", flags.aws_listen);
  if (!aws_at) return refuse(aws_at.error().message, 2);
  const auto ranges = fleet::parse_ranges(flags.node_range, flags.pod_range);
  if (!ranges) return refuse(ranges.error().message, 2);
  const sigset_t signals = prepare_process();
  static const SystemClock clock;
  const auto alarms = alarms_of(flags, clock);
  if (!alarms) return refuse(alarms.error().message, 2);

  auto config = kube::load_config({.kubeconfig = flags.kubeconfig, .context = flags.context, .environment = environment});
  if (!config) return refuse(config.error().message);
  config->rest.user_agent = "fairlead-server/" FAIRLEAD_VERSION;
  auto api = kube::RestApi::make(config->rest);
  if (!api) return refuse(api.error().message);
  // The election has a connection of its own whose answers come soon or not at all.
  kube::RestConfig quick = config->rest;
  quick.connect_timeout = 3s;
  quick.request_timeout = 4s;
  quick.patience = 2s;
  auto election = kube::RestApi::make(std::move(quick));
  if (!election) return refuse(election.error().message);

  // Destroyed in reverse: controllers first, then the host's threads.
  const auto fence = std::make_shared<LateFence>();
  kube::FencedApi fenced(**api, [fence] { return (*fence)(); });
  std::unique_ptr<fleet::LocalHost> host;
  std::string state_dir = std::filesystem::absolute(flags.state_dir).lexically_normal().string();
  while (state_dir.size() > 1 && state_dir.back() == '/') state_dir.pop_back();

  const std::uint64_t seed = static_cast<std::uint64_t>(clock.now().time_since_epoch().count()) ^ static_cast<std::uint64_t>(::getpid());
  auto runner = std::make_unique<kube::Runner>(fenced, clock, Rng(seed).next());
  const auto exits = std::make_shared<ExitRelay>(*runner);
  const auto late = std::make_shared<LateFace>();
  std::string companion_dir = flags.companion_dir;
  if (flags.local_machines) {
    auto made = make_host(flags, config->rest, state_dir, *ranges, clock, late);
    if (!made) return refuse(made.error().message, 2);
    host = std::move(*made);
    companion_dir = state_dir + "/bin";
    if (auto done = install_companion(companion_dir); !done) return refuse(done.error().message);
    auto machines = std::make_unique<fleet::MachineController>(fenced, *host, clock, fleet::MachineControllerOptions{.ranges = *ranges, .hosts_join = false});
    host->watch_exits([exits, name = machines->name()](const std::string& node) { exits->tell(name, node); });
    add_declared(*runner, std::move(machines));
  }
  slurm::SlurmControllerOptions slurm_options{.default_image = flags.slurm_image, .space = flags.watch_namespace};
  slurm_options.objects.closed_ranges = closed_ranges(flags, flags.local_machines ? &*ranges : nullptr);
  slurm_options.objects.render.cluster_domain = flags.cluster_domain;
  if (!companion_dir.empty()) slurm_options.objects.companion = companion_folder(companion_dir);
  const auto changed = [exits](const kube::ObjectKey& cluster) { exits->tell(slurm::HeadAddressController::kName, cluster); };
  add_declared(*runner, std::make_unique<slurm::HeadAddressController>(fenced, std::make_unique<slurm::HeadWatch>(fenced, clock, changed), slurm::HeadAddressController::Options{.default_image = flags.slurm_image, .space = flags.watch_namespace}));
  add_declared(*runner, std::make_unique<slurm::ActiveCheckController>(fenced, clock, flags.watch_namespace));
  add_declared(*runner, std::make_unique<slurm::SlurmClusterController>(fenced, clock, slurm::make_keys, std::move(slurm_options)));
  add_declared(*runner, std::make_unique<notify::RoleChangeController>(fenced, clock, notify::RoleChangeController::Options{.space = flags.watch_namespace}));
  const auto carried = [exits](const kube::ObjectKey& topic) { exits->tell(notify::DeliveryController::kName, topic); };
  add_declared(*runner, std::make_unique<notify::DeliveryController>(fenced, clock, std::make_unique<notify::ThreadCourier>(notify::make_carrier(clock, flags.notify_local ? notify::Reach::AlsoLocal : notify::Reach::World), carried), notify::DeliveryController::Options{.space = flags.watch_namespace, .seed = Rng(seed + 1).next()}));
  const std::string space = !flags.space.empty() ? flags.space : config->context == "in-cluster" ? config->space : "fairlead-system";
  // Clusters are of the whole site; without machines of ours they are for those who come by the AWS face.
  if (flags.watch_namespace.empty() && (flags.local_machines || (!flags.aws_listen.empty() && flags.aws_listen != "off"))) {
    add_declared(*runner, std::make_unique<fleet::ClusterController>(fenced, clock, cluster_options(flags, flags.slurm_image, companion_dir.empty() ? kube::Json() : companion_folder(companion_dir), flags.local_machines && flags.cluster_machines, {.name = {}, .endpoint = api_for_nodes(flags, config->rest, *ranges), .authority = config->rest.ca_pem, .service_range = {}}), scripts_of(flags, state_dir), *alarms));
    add_declared(*runner, std::make_unique<fleet::TrainingPlanController>(fenced, clock));
    add_declared(*runner, std::make_unique<fleet::InterfaceController>(fenced, clock));
    add_declared(*runner, std::make_unique<fleet::InstanceVolumeController>(fenced, clock));
    if (flags.node_places) add_declared(*runner, std::make_unique<fleet::NodePlaceController>(fenced, fleet::NodePlaceOptions{.id_changes = false, .space = space}));
    add_declared(*runner, std::make_unique<stacks::StackController>(fenced, clock));
    add_declared(*runner, std::make_unique<notify::ClusterEventController>(fenced, notify::ClusterEventController::Options{.site_space = space}));
  }
  Term term(std::move(runner));

  // On every replica, whoever leads: without it nobody reads v1beta1 of queues.
  std::unique_ptr<governance::ConversionPoint> conversion;
  if (!flags.webhook_listen.empty() && flags.watch_namespace.empty())
    conversion = std::make_unique<governance::ConversionPoint>(**election, clock, governance::ConversionPoint::Options{.address = webhook_at->first.empty() ? "0.0.0.0" : webhook_at->first, .port = webhook_at->second, .service = flags.webhook_service, .secret = {space, api::queue_webhook_name}});

  // On every replica, too: it stores nothing.
  std::unique_ptr<hyperpod::Door> face;
  if (!flags.aws_listen.empty() && flags.aws_listen != "off") {
    const auto said = (*election)->get_raw("/version", "application/json");
    const auto version = said ? kube::parse_json(*said) : Result<kube::Json>(kube::Json());
    // A cluster's own API finds Services, and no names of the cluster's.
    const std::string inside = fmt::format(".{}.svc", space), named = flags.aws_endpoint.starts_with("https://") ? flags.aws_endpoint.substr(8) : "";
    hyperpod::DoorOptions::PodHook hook;
    if (named.ends_with(inside)) hook.service = named.substr(0, named.size() - inside.size());
    // Of its nodes only those have an agent of ours whose certificates are signed here.
    auto node_ca = flags.node_ca_cert.empty() ? Result<std::string>(std::string()) : read_file(flags.node_ca_cert, 1_MiB);
    if (!node_ca) return refuse("--node-ca-cert: " + node_ca.error().message);
    // Of tokens of its accounts, as trust policies name it; without the right to know it, it is not told, and holds all the same.
    const auto discovery = (*election)->get_raw("/.well-known/openid-configuration", "application/json");
    const auto openid = discovery ? kube::parse_json(*discovery) : Result<kube::Json>(kube::Json());
    const std::string minor = version ? (*version)["minor"].string() : "";
    auto opened = open_aws(flags, **election, clock, {.address = aws_at->first, .port = aws_at->second, .space = space, .issue = {}, .ca_pem = {},
                                                      .cluster = {.endpoint = config->rest.server, .ca_pem = config->rest.ca_pem, .version = minor.empty() ? "" : (*version)["major"].string() + "." + minor.substr(0, minor.find_first_not_of("0123456789")), .issuer = openid ? (*openid)["issuer"].string() : ""}, .logs = kube::pod_log_of(*api), .s3_folder = s3_folder(flags, state_dir), .audit_log = "",
                                                      .pod_host = flags.aws_endpoint.empty() && flags.local_machines ? fleet::host_address(*ranges) : "", .pod_hook = flags.watch_namespace.empty() ? std::optional(hook) : std::nullopt, .node_ca_pem = *node_ca, .alarms = *alarms});
    if (!opened) return refuse(opened.error().message);
    face = std::move(*opened);
    late->set(face.get());
    log_info("AWS clients are served", {{"port", std::to_string(face->port())}, {"account", face->site().account}, {"region", face->site().region}});
  }

  const std::string identity = make_identity(flags);
  // Queues are of the whole cluster, and need definitions of a group that is Kueue's.
  auto queues = training::TrainingController::Queues::None;
  const auto add_governance = [&](kube::Runner& to) {
    if (!flags.watch_namespace.empty()) return;
    const auto off = governance::why_governance_is_off(**election);
    if (!off && off.error().code != Code::Forbidden && off.error().code != Code::Unauthorized) {
      log_error("cannot tell whether task governance may run: this server ends, its supervisor starts it again", {{"why", off.error().message}});
      ::_exit(1);
    }
    if (!off || !off->empty()) return log_warn("task governance is off", {{"why", off ? *off : off.error().message}});
    queues = training::TrainingController::Queues::Ours;
    if (conversion) add_declared(to, std::make_unique<governance::ConversionController>(fenced, [&conversion] { return conversion->where(0ms); }));
    const auto decided = [exits](const kube::ObjectKey& key) { exits->tell(governance::QueueController::kName, key); };
    const bool nowhere = flags.decision_log.empty() && !exists(state_dir);
    if (nowhere) log_info("no decision log is written: there is no state folder, and no --decision-log", {{"folder", state_dir}});
    governance::QueueControllerOptions queue_options{.books = {}, .log_by = "fairlead-server " FAIRLEAD_VERSION ", " + identity};
    add_declared(to, std::make_unique<governance::QueueController>(fenced, clock, decided, std::move(queue_options), nowhere ? nullptr : make_decision_log(flags, state_dir)));
    add_declared(to, std::make_unique<governance::JobController>(fenced, clock));
    add_declared(to, std::make_unique<governance::PodController>(fenced, clock));
    add_declared(to, std::make_unique<governance::PlaceController>(fenced, clock));
    add_declared(to, std::make_unique<governance::GangKindsController>(fenced, clock, seed));
    add_declared(to, std::make_unique<governance::WorkloadClockController>(fenced, clock));
    add_declared(to, std::make_unique<governance::SlurmLedgerController>(fenced, clock));
    add_declared(to, std::make_unique<governance::TeamsController>(fenced, clock));
    add_declared(to, std::make_unique<governance::InquiryController>(fenced, clock));
  };

  // The definition of training jobs may be that of SageMaker's own operator.
  const auto add_training = [&](kube::Runner& to) {
    if (!flags.watch_namespace.empty()) return;
    const auto off = training::why_training_is_off(**election);
    if (!off && off.error().code != Code::Forbidden && off.error().code != Code::Unauthorized) {
      log_error("cannot tell whether training jobs may be run: this server ends, its supervisor starts it again", {{"why", off.error().message}});
      ::_exit(1);
    }
    if (!off || !off->empty()) return log_warn("training jobs are left alone", {{"why", off ? *off : off.error().message}});
    add_declared(to, std::make_unique<training::TrainingController>(fenced, clock, training::make_http_agents(), queues));
  };
  auto leader = std::make_unique<kube::Leader>(
      **election, clock, kube::LeaderOptions{.lease = {space, flags.lease}, .identity = identity, .times = {}, .seed = seed}, [&term, &add_governance, &add_training](std::int64_t) {
        term.begin([&](kube::Runner& to) {
          add_governance(to);
          add_training(to);
        });
      },
      [](const std::string& why) {
        // Nothing of what it believed holds any more; a fresh process stands by. Everything it did is in the API.
        log_error("no longer leading: this server ends, its supervisor starts it again as a stand-by", {{"why", why}});
        ::_exit(1);
      });
  fence->set(leader.get());

  auto health = kube::serve_health(health_at->first.empty() ? "0.0.0.0" : health_at->first, health_at->second,
                                   {.ready = [&]() -> Result<void> {
                                      if (leader->epoch()) return term.synced() ? Result<void>() : fail(Code::Unavailable, "leading; the caches are not filled yet (are the CRDs installed?)");
                                      if (clock.monotonic() - leader->last_answer() < 15s) return {};
                                      return fail(Code::Unavailable, "the cluster's API does not answer");
                                    },
                                    .metrics = [&] { return kube::print_metrics(leader->epoch().value_or(0), term.counts()); }});
  if (!health) {
    const std::string why = health.error().message;
    fence->set(nullptr);
    late->set(nullptr);
    term.end();
    return refuse(why);
  }
  log_info("running on a cluster", {{"server", config->rest.server}, {"context", config->context}, {"identity", identity}, {"lease", space + "/" + flags.lease}, {"health_port", std::to_string((*health)->port())}});

  int signal = 0;
  ::sigwait(&signals, &signal);
  log_info("stopping", {{"signal", signal == SIGTERM ? "TERM" : "INT"}});
  static const StopWatchdog watchdog;
  health->reset();
  exits->cut();
  late->set(nullptr);
  term.end();      // while we still lead: what is under way may end
  fence->set(nullptr);
  leader.reset();  // gives the lease back
  return 0;
}

}  // namespace fairlead
