// SPDX-License-Identifier: Apache-2.0
// fairlead-server: the API of the embedded engine and the controllers of a site, in one process. Wiring only.
#include "apps/fairlead-server.h"

#include <CLI/CLI.hpp>
#include <tuple>

#include "api/crds.h"
#include "api/network_ways.h"
#include "api/queue_crds.h"
#include "api/training_crd.h"
#include "api/user_roles.h"
#include "apiserver/api_controllers.h"
#include "apiserver/embedded.h"
#include "apiserver/service_addresses.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "fleet/control/cluster_controller.h"
#include "fleet/control/machine_controller.h"
#include "fleet/control/power_controller.h"
#include "fleet/control/interface_controller.h"
#include "fleet/control/instance_volume_controller.h"
#include "fleet/control/node_place_controller.h"
#include "fleet/control/training_plan_controller.h"
#include "fleet/host_socket.h"
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
#include "governance/conversion_server.h"
#include "kube/controller.h"
#include "node/control/route_controller.h"
#include "node/netlink.h"
#include "notify/control/cluster_event_controller.h"
#include "notify/control/delivery_controller.h"
#include "notify/control/role_change_controller.h"
#include "placement/control/node_lifecycle_controller.h"
#include "placement/control/placement_controller.h"
#include "slurm/control/active_check_controller.h"
#include "slurm/control/head_address_controller.h"
#include "slurm/control/slurm_cluster_controller.h"
#include "stacks/control/stack_controller.h"
#include "storage/control/claim_volume_controller.h"
#include "storage/control/ephemeral_claim_controller.h"
#include "storage/control/pod_attach_controller.h"
#include "training/control/training_controller.h"
#include "slurm/keys.h"

namespace fairlead {
namespace {

// Installs the kinds that are Fairlead's own, or brings them up to date. Queues that somebody else defined stay his.
Result<void> install_crds(kube::KubeApi& api, const api::QueueWebhook& webhook) {
  auto there = api.list(kube::resources::crds, "");
  if (!there) return pass(there.error(), "list definitions");
  const kube::Json* foreign = api::foreign_queue_crd(there->items);
  if (foreign != nullptr) log_warn("task governance is off: its definitions belong to somebody else", {{"definition", kube::name_of(*foreign)}, {"group", std::string(api::queue_group)}});
  for (kube::Json& crd : api::crds()) {
    if (foreign != nullptr && api::is_queue_crd(crd)) continue;
    // Somebody's own operator works with it, as on a cluster that is SageMaker's.
    if (api::is_training_crd(crd) && std::ranges::any_of(there->items, [](const kube::Json& one) { return api::is_training_crd(one) && !api::is_our_training_crd(one); })) continue;
    if (api::is_queue_crd(crd) && !crd["spec"]["conversion"].is_null()) crd.child("spec").set("conversion", api::queue_conversion(webhook));
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

// ClusterRoles for people; whoever has changed the rules of one by hand gets ours back.
Result<void> install_roles(kube::KubeApi& api) {
  for (const kube::Json& role : api::user_roles()) {
    const auto created = api.create(api::rbac::cluster_roles, role);
    if (created) continue;
    if (created.error().code != Code::Exists) return pass(created.error(), "install ClusterRole " + kube::name_of(role));
    const kube::Json patch = kube::Json::object({{"metadata", kube::Json::object({{"labels", role["metadata"]["labels"]}})}, {"rules", role["rules"]}});
    if (auto done = api.patch(api::rbac::cluster_roles, kube::key_of(role), kube::PatchType::Merge, patch); !done) return pass(done.error(), "update ClusterRole " + kube::name_of(role));
  }
  return {};
}

// At which other machines reach the API: what was said, else the listening address if it is one of a machine. Empty: they do not.
std::string reached_address(const Flags& flags) {
  if (!flags.advertise.empty()) return flags.advertise;
  const auto listen = parse_listen("--listen", flags.listen);
  const std::string address = listen ? listen->first : "";
  const bool reachable = !address.empty() && address.find_first_not_of("0123456789.") == std::string::npos && address != "0.0.0.0" && !address.starts_with("127.");
  return reachable ? address : "";
}

// Where pods find the API: at the listening address if it is one that others reach, else at this machine's address among the local nodes.
apiserver::ApiServiceOptions api_service(const Flags& flags, const fleet::Ranges& ranges, int port) {
  const std::string reached = reached_address(flags);
  return {.service_address = apiserver::api_service_address(flags.service_ranges), .address = reached.empty() ? fleet::host_address(ranges) : reached, .port = port};
}

// Where hosts that join find it.
// As machines that become nodes find it.
fleet::KubernetesFacts of_this_kubernetes(const Flags& flags, const fleet::Ranges& ranges, const apiserver::EmbeddedServer& server) {
  const std::string host = api_service(flags, ranges, server.port()).address;
  return {.name = {}, .endpoint = fmt::format("https://{}:{}", host.find(':') == std::string::npos ? host : "[" + host + "]", server.port()), .authority = server.ca_pem(), .service_range = flags.service_ranges.empty() ? "" : flags.service_ranges.front()};
}

fleet::JoinDoorOptions join_options(const Flags& flags, const apiserver::EmbeddedServer& server, const std::string& state_dir, const fleet::Ranges& ranges) {
  fleet::JoinDoorOptions out{.ca_pem = server.ca_pem(), .pods_range = fleet::print_network(ranges.pods), .volumes_dir = state_dir + "/volumes", .companion_dir = state_dir + "/bin", .sign = [&server](const std::string& request, const http::CertificateRequest& about) { return server.sign(request, about); }};
  std::vector<std::pair<fleet::Network, std::string>> closed{{ranges.nodes, "addresses of local machines"}, {ranges.pods, "addresses of pods"}};
  for (const std::string& both : flags.service_ranges)
    for (const std::string& one : split(both, ','))
      if (const auto range = fleet::parse_network(one)) closed.emplace_back(*range, "addresses of services");
  out.why_not_address = [closed = std::move(closed), own = std::vector<std::string>{reached_address(flags), parse_listen("--listen", flags.listen).value_or(std::pair<std::string, unsigned short>()).first}](const std::string& text) -> std::string {
    const auto address = fleet::parse_network(text);
    if (!address) return text + " is not an IPv4 address";
    const auto here = node::own_addresses();
    if (std::ranges::find(own, text) != own.end() || !here || here->contains(text)) return text + " is an address of the server's machine";
    for (const auto& [range, what] : closed)
      if (fleet::overlap(range, *address)) return fmt::format("{} is one of the {}", text, what);
    return "";
  };
  if (const std::string address = reached_address(flags); !address.empty()) out.servers.push_back(fmt::format("https://{}:{}", address, server.port()));
  else out.why_nowhere = fmt::format("this server listens at {}, which no other machine reaches: run `fairlead up --advertise-address ADDRESS` with one of this machine's (or start fairlead-server with --listen 0.0.0.0:{} and that option)", flags.listen, server.port());
  return out;
}

// The AWS face beside the API, on the next port; a port that is taken is told and harms nothing, unless it was asked for.
Result<std::unique_ptr<hyperpod::Door>> open_face(const Flags& flags, apiserver::EmbeddedServer& server, const Clock& clock, const std::string& state_dir, const std::string& address, const fleet::Ranges& ranges, const std::shared_ptr<const api::Alarms>& alarms, std::function<Result<void>(const http::Peer&)> check_node) {
  if (flags.aws_listen == "off") return nullptr;
  // Clients elsewhere are told the address that hosts are told, unless the listening address says more.
  const bool everywhere = address.empty() || address == "0.0.0.0" || address == "::";
  const std::string host = !everywhere ? address : flags.advertise.empty() ? "127.0.0.1" : flags.advertise;
  AwsWiring wiring{.address = address, .port = static_cast<unsigned short>(flags.listen.ends_with(":0") || server.port() == 65'535 ? 0 : server.port() + 1), .space = api::identities::default_space, .issue = [&server](const http::CertificateRequest& request) { return server.issue(request); }, .ca_pem = server.ca_pem(), .cluster = {.endpoint = fmt::format("https://{}:{}", host.find(':') == std::string::npos ? host : "[" + host + "]", server.port()), .ca_pem = server.ca_pem(), .version = "1.33", .issuer = apiserver::TokenSite().issuer}, .logs = server.logs(), .s3_folder = s3_folder(flags, state_dir), .audit_log = state_dir + "/aws-audit.log", .pod_host = {}, .pod_hook = {}, .node_ca_pem = server.ca_pem(), .check_node = std::move(check_node), .alarms = alarms};
  if (!flags.aws_listen.empty()) {
    const auto listen = parse_listen("--aws-listen", flags.aws_listen);
    if (!listen) return std::unexpected(listen.error());
    std::tie(wiring.address, wiring.port) = *listen;
  }
  // Pods go where they find the API, unless it was said how clients come.
  const std::string reached = reached_address(flags);
  if (flags.aws_endpoint.empty()) wiring.pod_host = reached.empty() ? fleet::host_address(ranges) : reached;
  Flags told = flags;
  if (told.aws_endpoint.empty() && everywhere && !flags.advertise.empty() && flags.aws_listen.empty() && wiring.port != 0) told.aws_endpoint = fmt::format("https://{}:{}", host, wiring.port);
  auto door = open_aws(told, server.api(), clock, wiring);
  if (!door && flags.aws_listen.empty() && door.error().code == Code::Unavailable) {
    log_warn("the AWS face is off: give it another port by --aws-listen", {{"why", door.error().message}});
    return nullptr;
  }
  if (!door) return door;
  // Nodes have to find it for their pods.
  for (const kube::Json& one : api::identities::node_settings_role(wiring.space)) {
    const bool role = one["kind"].string() == "Role";
    const auto made = server.api().create(role ? kube::Resource{"rbac.authorization.k8s.io", "v1", "roles", "Role", true} : api::rbac::role_bindings, one);
    if (!made && made.error().code != Code::Exists) return pass(made.error(), "let nodes read the AWS settings");
  }
  return door;
}

std::uint64_t random_seed() {
  const std::string bytes = secret_bytes(8);
  std::uint64_t seed = 0;
  for (const unsigned char byte : bytes) seed = seed << 8 | byte;
  return seed;
}

void add_controllers(kube::Runner& runner, const std::shared_ptr<ExitRelay>& exits, apiserver::EmbeddedServer& server, fleet::LocalHost& host, fleet::PowerControl& power, const Clock& clock, const std::string& state_dir, const fleet::Ranges& ranges, const Flags& flags, const std::shared_ptr<const api::Alarms>& alarms) {
  kube::KubeApi& api = server.api();
  runner.add(std::make_unique<storage::ClaimVolumeController>(api, clock));
  runner.add(std::make_unique<storage::PodAttachController>(api, clock));
  runner.add(std::make_unique<storage::EphemeralClaimController>(api, clock));
  for (auto& controller : apiserver::make_api_controllers(server.registry(), api, clock, {.ca_pem = server.ca_pem(), .volumes_folder = state_dir + "/volumes", .service = api_service(flags, ranges, server.port())})) runner.add(std::move(controller));
  // Every binding waits until it is durable: many at once share the disk's work.
  runner.add(std::make_unique<placement::PlacementController>(api, clock, placement::PlacementOptions{.writers = 64, .claims = true, .pools = true, .events_aside = true}));
  runner.add(std::make_unique<placement::NodeLifecycleController>(api, clock));
  auto machines = std::make_unique<fleet::MachineController>(api, host, clock, fleet::MachineControllerOptions{.ranges = ranges});
  const std::string machine_controller = machines->name();
  host.watch_exits([exits, machine_controller](const std::string& name) { exits->tell(machine_controller, name); });
  runner.add(std::move(machines));
  runner.add(std::make_unique<fleet::PowerController>(api, power, clock, fleet::PowerControllerOptions{.space = api::identities::default_space}));
  if (::geteuid() == 0) runner.add(std::make_unique<node::HostRouteController>(api::kHostLabel, fleet::print_network(ranges.pods)));
  if (flags.controllers != "all") return;
  slurm::SlurmControllerOptions slurm_options;
  slurm_options.objects.companion = companion_folder(state_dir + "/bin");
  slurm_options.objects.closed_ranges = closed_ranges(flags, &ranges);
  const auto changed = [exits](const kube::ObjectKey& cluster) { exits->tell(slurm::HeadAddressController::kName, cluster); };
  runner.add(std::make_unique<slurm::HeadAddressController>(api, std::make_unique<slurm::HeadWatch>(api, clock, changed), slurm::HeadAddressController::Options{}));
  runner.add(std::make_unique<slurm::ActiveCheckController>(api, clock));
  runner.add(std::make_unique<slurm::SlurmClusterController>(api, clock, slurm::make_keys, std::move(slurm_options)));
  runner.add(std::make_unique<fleet::ClusterController>(api, clock, cluster_options(flags, slurm::SlurmControllerOptions().default_image, companion_folder(state_dir + "/bin"), flags.cluster_machines, of_this_kubernetes(flags, ranges, server)), scripts_of(flags, state_dir), alarms));
  runner.add(std::make_unique<fleet::TrainingPlanController>(api, clock));
  runner.add(std::make_unique<fleet::InterfaceController>(api, clock));
  runner.add(std::make_unique<fleet::InstanceVolumeController>(api, clock));
  if (flags.node_places) runner.add(std::make_unique<fleet::NodePlaceController>(api, fleet::NodePlaceOptions{.id_changes = true, .space = api::identities::default_space}));
  runner.add(std::make_unique<stacks::StackController>(api, clock));
  auto queues = training::TrainingController::Queues::None;
  if (const auto off = governance::why_governance_is_off(api); !off) {
    log_warn("task governance is off until the server starts again: its definitions cannot be read", {{"why", off.error().message}});
  } else if (off->empty()) {
    queues = training::TrainingController::Queues::Ours;
    const auto decided = [exits](const kube::ObjectKey& key) { exits->tell(governance::QueueController::kName, key); };
    runner.add(std::make_unique<governance::QueueController>(api, clock, decided, governance::QueueControllerOptions{.books = {}, .log_by = "fairlead-server " FAIRLEAD_VERSION}, make_decision_log(flags, state_dir)));
    runner.add(std::make_unique<governance::JobController>(api, clock));
    runner.add(std::make_unique<governance::PodController>(api, clock));
    runner.add(std::make_unique<governance::PlaceController>(api, clock));
    runner.add(std::make_unique<governance::GangKindsController>(api, clock, random_seed()));
    runner.add(std::make_unique<governance::WorkloadClockController>(api, clock));
    runner.add(std::make_unique<governance::SlurmLedgerController>(api, clock));
    runner.add(std::make_unique<governance::TeamsController>(api, clock));
    runner.add(std::make_unique<governance::InquiryController>(api, clock));
  }
  if (const auto off = training::why_training_is_off(api); !off || !off->empty()) log_warn("training jobs are left alone", {{"why", off ? *off : off.error().message}});
  else runner.add(std::make_unique<training::TrainingController>(api, clock, training::make_http_agents(), queues));
  runner.add(std::make_unique<notify::ClusterEventController>(api, notify::ClusterEventController::Options{}));
  runner.add(std::make_unique<notify::RoleChangeController>(api, clock, notify::RoleChangeController::Options{}));
  const auto carried = [exits](const kube::ObjectKey& topic) { exits->tell(notify::DeliveryController::kName, topic); };
  runner.add(std::make_unique<notify::DeliveryController>(api, clock, std::make_unique<notify::ThreadCourier>(notify::make_carrier(clock, flags.notify_local ? notify::Reach::AlsoLocal : notify::Reach::World), carried), notify::DeliveryController::Options{.seed = random_seed()}));
}

// The machine that local nodes live on: by our own hands where we are root, else by those of the helper.
std::unique_ptr<fleet::LocalHost> make_host(const Flags& flags, const std::string& state_dir, const fleet::Ranges& ranges, apiserver::EmbeddedServer& server, const std::shared_ptr<LateFace>& face) {
  const auto issue = [&server](const http::CertificateRequest& request) { return server.issue(request); };
  const auto on_address = [&server, face](const std::string& address) {
    auto done = server.also_listen(address);
    if (done) face->also_listen(address);  // of its own failure it warns: machines do not need it
    return done;
  };
  if (!flags.machines_socket.empty())
    return fleet::make_remote_host({.socket = flags.machines_socket, .ranges = ranges, .api_port = server.port(), .ca_pem = server.ca_pem(), .issue = issue, .on_address = on_address});
  return fleet::make_local_host({.state_dir = state_dir,
                                 .agent_program = program_folder() + "/fairlead-agent",
                                 .ranges = ranges,
                                 .api_port = server.port(),
                                 .ca_pem = server.ca_pem(),
                                 .issue = issue,
                                 .on_address = on_address});
}

int serve(Flags flags) {
  if (flags.engine == "kubernetes" && !(flags.root_key + flags.old_root_key).empty()) return refuse("--root-key-command: with --engine=kubernetes Secrets are the cluster's, and so is their encryption (--encryption-provider-config of kube-apiserver)", 2);
  if (flags.engine == "kubernetes") return serve_kubernetes(flags);
  if (flags.engine != "embedded") return refuse(fmt::format("--engine={}: embedded or kubernetes is expected", flags.engine), 2);
  const auto listen = parse_listen("--listen", flags.listen);
  if (!listen) return refuse(listen.error().message, 2);
  if (!flags.advertise.empty() && (listen->first.starts_with("127.") || listen->first == "localhost" || listen->first == "::1"))
    return refuse(fmt::format("--advertise-address {}: nobody listens there with --listen {}; --listen 0.0.0.0:{} does", flags.advertise, flags.listen, listen->second), 2);
  const auto ranges = fleet::parse_ranges(flags.node_range, flags.pod_range);
  if (!ranges) return refuse(ranges.error().message, 2);
  auto service_ranges = apiserver::parse_service_ranges(flags.service_ranges);
  if (!service_ranges) return refuse(service_ranges.error().message, 2);
  flags.service_ranges = std::move(*service_ranges);

  const sigset_t signals = prepare_process();
  static const SystemClock clock;
  const auto alarms = alarms_of(flags, clock);
  if (!alarms) return refuse(alarms.error().message, 2);
  apiserver::EmbeddedOptions options{.state_dir = std::filesystem::absolute(flags.state_dir).lexically_normal().string(), .address = listen->first, .port = listen->second};
  options.limits.per_second = flags.client_rate;
  options.limits.burst = 2 * flags.client_rate;
  if (!flags.audit_log.empty()) {
    options.audit = {.path = std::filesystem::absolute(flags.audit_log).string(), .size_limit = {std::int64_t{flags.audit_megabytes} << 20}, .backups = flags.audit_backups,
                     .writes_only = flags.audit_writes_only};
  }
  while (options.state_dir.size() > 1 && options.state_dir.back() == '/') options.state_dir.pop_back();
  options.names = {fleet::host_address(*ranges)};
  if (!flags.advertise.empty()) options.names.push_back(flags.advertise);
  options.service_ranges = flags.service_ranges;
  if (const std::string address = apiserver::api_service_address(flags.service_ranges); !address.empty()) options.names.push_back(address);
  for (const auto& [program, key] : {std::pair(flags.root_key, &options.root_key), {flags.old_root_key, &options.old_root_key}}) {
    if (program.empty() || (key == &options.old_root_key && !exists(options.state_dir + "/pki/root.json"))) continue;  // nothing was ever under it
    auto holder = apiserver::program_root_key(program);
    if (!holder) return refuse(holder.error().message, 2);
    *key = std::move(*holder);
  }
  const std::string pid_file = options.state_dir + "/run/server.pid";
  const auto late = std::make_shared<LateFace>();
  options.foreign_tokens = [late](std::string_view token) -> Result<apiserver::User> {
    auto user = late->user_of(token);
    if (!user) return fail(Code::Unauthorized, user.error().message);
    apiserver::User out{.name = user->name, .groups = std::move(user->groups), .uid = user->uid, .extra = {{"arn", {user->arn}}}};
    if (!user->session.empty()) out.extra.push_back({"sessionName", {user->session}});
    return out;
  };
  options.equip_pod = [late](const std::string& space, const kube::Json& account, kube::Json& pod, const apiserver::FindObject& look) { late->equip(space, account, pod, look); };
  const auto hosts = std::make_shared<LateJoinDoor>();
  options.beside = [hosts](const http::Request& request, const std::shared_ptr<http::Exchange>& exchange) { return hosts->take(request, exchange); };
  options.check_node = [hosts](const apiserver::User& user, const kube::Json* old, const kube::Json& next) { return hosts->check_node(user, old, next); };
  options.brief_watches = {api::kHostsGroup, std::chrono::minutes(2)};
  options.check_peer = [hosts](const http::Peer& peer) { return hosts->check(peer); };
  auto server = apiserver::EmbeddedServer::start(options, clock);
  if (!server) return refuse(server.error().message);
  // The API asks it by its URL, as any other.
  auto certificate = (*server)->issue({.common_name = "fairlead-webhooks", .ip_addresses = {"127.0.0.1"}, .server = true, .valid = std::chrono::hours(24 * 365 * 10)});
  if (!certificate) return refuse(certificate.error().message);
  const auto webhook = governance::serve_conversion("127.0.0.1", 0, *certificate);
  if (!webhook) return refuse(webhook.error().message);
  const api::QueueWebhook at{.url = fmt::format("https://127.0.0.1:{}{}", (*webhook)->port(), governance::conversion_path), .space = {}, .service = {}, .ca_pem = (*server)->ca_pem()};
  // As the server itself: no admission policy keeps it from starting.
  const auto first = apiserver::make_local_api((*server)->registry(), {}, apiserver::server_user);
  if (auto done = install_crds(*first, at); !done) return refuse(done.error().message);
  if (auto done = install_roles(*first); !done) return refuse(done.error().message);

  // No leader's fence: it is the API's own, and writes by the version that it has read.
  fleet::JoinDoor join_door((*server)->api(), clock, join_options(flags, **server, options.state_dir, *ranges));
  const OpenJoinDoor open_door(hosts, join_door);
  if (auto done = install_companion(options.state_dir + "/bin"); !done) return refuse(done.error().message);
  if (auto done = write_file_durably(pid_file, fmt::format("{}\n", ::getpid()), 0644); !done) return refuse(done.error().message);

  // Destroyed in reverse: controllers first, then the host's threads, the server last.
  const auto power = fleet::make_power_control();
  auto host = make_host(flags, options.state_dir, *ranges, **server, late);
  kube::Runner runner((*server)->api(), clock, Rng(static_cast<std::uint64_t>(clock.now().time_since_epoch().count())).next());
  const auto exits = std::make_shared<ExitRelay>(runner);
  add_controllers(runner, exits, **server, *host, *power, clock, options.state_dir, *ranges, flags, *alarms);
  runner.add(std::make_unique<governance::ConversionController>((*server)->api(), [at] { return std::optional(at); }));
  const auto face = open_face(flags, **server, clock, options.state_dir, listen->first, *ranges, *alarms, options.check_peer);
  if (!face) return refuse(face.error().message);
  late->set(face->get());
  runner.start();
  if (*face != nullptr) log_info("AWS clients are served", {{"address", fmt::format("{}:{}", options.address, (*face)->port())}, {"account", (*face)->site().account}, {"region", (*face)->site().region}});
  log_info("serving", {{"address", fmt::format("{}:{}", options.address, (*server)->port())}, {"state", options.state_dir}, {"kubeconfig", (*server)->admin_kubeconfig()}});

  int signal = 0;
  ::sigwait(&signals, &signal);
  log_info("stopping", {{"signal", signal == SIGTERM ? "TERM" : "INT"}});
  static const StopWatchdog watchdog;  // static: it watches over the destructors of this function, too
  exits->cut();
  late->set(nullptr);
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
  app.add_option("--advertise-address", flags.advertise, "at which hosts that join, and their pods, reach the API (default: --listen's, if other machines reach that)")->type_name("ADDRESS")->check([](const std::string& text) {
    return !text.empty() && text.find_first_not_of("0123456789.") == std::string::npos && text != "0.0.0.0" && !text.starts_with("127.") ? std::string() : "\"" + text + "\" is not an IPv4 address at which other machines reach this one";
  });
  app.add_option("--root-key-command", flags.root_key, "a program that holds the root key (a TPM, a KMS), under which the keys of the state folder are sealed; `PROGRAM wrap` and `PROGRAM unwrap` (docs/root-key.md)")->type_name("PROGRAM");
  app.add_option("--old-root-key-command", flags.old_root_key, "the program that held it before: the keys are brought under the new one, or opened if there is none")->type_name("PROGRAM");
  app.add_option("--node-range", flags.node_range, "addresses of local nodes, a /16 that no route of this machine uses; for both families a comma and an IPv6 range, such as 10.77.0.0/16,fd00:77::/64 (/112 or larger; default where pods have one)")->capture_default_str();
  app.add_option("--pod-range", flags.pod_range, "addresses of pods on local nodes, a /16 that no route of this machine uses; for both families a comma and an IPv6 range, such as 10.78.0.0/16,fd00:78::/56 (/56 or larger: each node gets a /64)")->capture_default_str();
  app.add_option("--service-range", flags.service_ranges, "addresses of services; they live on local nodes only, no route of this machine needs them; for both families a comma and an IPv6 range, such as 10.79.0.0/16,fd00:79::/112")->capture_default_str()->type_name("RANGE");
  app.add_option("--closed-range", flags.closed_ranges, "addresses that the pods of Slurm clusters do not reach although they reach the world, beside those of local nodes and their pods: nodes, pods, the API server")
      ->type_name("RANGE")
      ->check([](const std::string& text) { return fairlead::api::is_address_range(text) ? std::string() : "\"" + text + "\" is not a range such as 10.0.0.0/8"; });
  app.add_option("--machines-socket", flags.machines_socket, "where fairlead-machines makes local nodes for a server that is not root")->type_name("PATH");
  app.add_option("--log-level", flags.log_level, "debug, info, warn or error")->capture_default_str()->check(CLI::IsMember({"debug", "info", "warn", "error"}));
  app.add_option("--engine", flags.engine, "embedded: everything on this machine; kubernetes: the controllers alone, on a cluster that is there")->capture_default_str()->check(CLI::IsMember({"embedded", "kubernetes"}));
  app.add_option("--audit-log", flags.audit_log, "file of who did what, one JSON line a request (no bodies); off without it")->type_name("FILE");
  app.add_option("--audit-log-maxsize", flags.audit_megabytes, "MiB after which that file becomes FILE.1")->capture_default_str()->check(CLI::Range(1, 1 << 20));
  app.add_option("--audit-log-maxbackup", flags.audit_backups, "how many such files are kept")->capture_default_str()->check(CLI::Range(0, 1000));
  app.add_option("--decision-log", flags.decision_log, "file of what task governance was told and decided, without anything secret (default: decisions.log of the state folder, where there is one); off: none")->type_name("FILE|off");
  app.add_option("--decision-log-maxsize", flags.decision_log_megabytes, "MiB after which that file becomes FILE.1; both together never take more than four times as much")->capture_default_str()->check(CLI::Range(1, 1 << 20));
  app.add_flag("--audit-writes-only", flags.audit_writes_only, "leaves out get, list and watch");
  app.add_flag("--notify-local", flags.notify_local, "notifications may go to receivers on this machine and its links, too (127.0.0.0/8, 169.254.0.0/16, ::1, fe80::/10)");
  app.add_option("--client-rate", flags.client_rate, "requests a second of one user (nodes four times that, system:masters any), bursts of twice that; 0: no limit")->capture_default_str()->check(CLI::Range(0.0, 1e9));
  const char* const aws = "For AWS clients (docs/hyperpod-api.md)";
  app.add_option("--aws-listen", flags.aws_listen, "address and port where they are served (default: the port after --listen's; with --engine=kubernetes: nowhere); off: nowhere")->group(aws)->type_name("ADDRESS:PORT|off");
  app.add_option("--aws-endpoint", flags.aws_endpoint, "how they reach it, where that is not the same (a name, a load balancer); its host is in the certificate")->group(aws)->type_name("URL");
  app.add_option("--aws-account", flags.aws_account, "twelve digits, in all ARNs; chosen once (default: at random)")->group(aws)->type_name("ACCOUNT");
  app.add_option("--aws-region", flags.aws_region, "in all ARNs; chosen once (default: fairlead-1)")->group(aws)->type_name("REGION");
  app.add_option("--eks-name", flags.eks_name, "of this Kubernetes, as EKS tells of it and tokens of `aws eks get-token` are for it")->group(aws)->capture_default_str()->type_name("NAME")->check([](const std::string& name) {
    return !name.empty() && name.size() <= 100 && name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == std::string::npos && name[0] != '-' && name[0] != '_' ? std::string() : "1 to 100 of letters, digits, - and _";
  });
  app.add_option("--eks-endpoint", flags.eks_endpoint, "how clients reach its API (default: as this server does)")->group(aws)->type_name("URL");
  app.add_option("--s3-directory", flags.s3_directory, "folder with a folder for each bucket, from which lifecycle scripts are read (default: s3 in the state directory, where the server makes local machines)")->group(aws)->type_name("DIR");
  app.add_option("--prometheus-url", flags.prometheus_url, "a Prometheus whose alerting rules are the alarms that roll an update of software back (AutoRollbackConfiguration)")->group(aws)->type_name("URL");
  app.add_option("--prometheus-ca", flags.prometheus_ca, "authority of its certificate (default: the system's)")->group(aws)->type_name("FILE");
  app.add_option("--prometheus-token-file", flags.prometheus_token, "bearer token that is sent to it; read anew each time")->group(aws)->type_name("FILE");
  app.add_option("--deep-health-check-seconds", flags.deep_check, "seconds that a deep health check puts a machine under load")->group(aws)->capture_default_str()->check(CLI::Range(3, 86'400));
  app.add_option("--min-count-limit", flags.min_count_limit, "seconds that a group may take to come to its MinInstanceCount before it goes back to what it had")->group(aws)->capture_default_str()->check(CLI::Range(1, 864'000));
  app.add_option("--script-limit", flags.script_limit, "seconds that a lifecycle script may take")->group(aws)->capture_default_str()->check(CLI::Range(1, 86'400));
  app.add_option("--cluster-storage-class", flags.cluster_storage_class, "StorageClass, of ReadWriteMany volumes, for what CreateCluster makes (default: the site's default class)")->group(aws)->type_name("NAME");
  app.add_flag("--cluster-machines,!--no-cluster-machines", flags.cluster_machines, "what CreateCluster asks for beyond the spare machines is made on this machine, where local nodes are made (default); else it waits for machines")->group(aws);
  app.add_flag("--node-places,!--no-node-places", flags.node_places, "nodes that Kubernetes orchestrates and that reach a pool of volumes get a providerID and labels of region and zone where they have none, as AWS's node programs expect them (default)")->group(aws);
  app.add_option("--aws-rate", flags.aws_rate, "calls a second of one identity, bursts of twice that; 0: no limit")->group(aws)->capture_default_str()->check(CLI::Range(0.0, 1e9));
  app.add_flag("--aws-relaxed-names", flags.aws_relaxed_names, "names that only machines of AWS have (file systems, zones, ids of nodes and volumes) may be any printable words")->group(aws);
  app.add_option("--aws-audit-log", flags.aws_audit_log, "file of who called what, one JSON line a call (default: aws-audit.log of the state folder; with --engine=kubernetes the server's own log); off: none")->group(aws)->type_name("FILE|off");
  app.add_option("--controllers", flags.controllers, "all, or engine: the controllers of domains (slurm) run elsewhere")->capture_default_str()->check(CLI::IsMember({"all", "engine"}));
  const char* const group = "On a Kubernetes cluster (--engine=kubernetes)";
  app.add_option("--kubeconfig", flags.kubeconfig, "file that says which; without: $KUBECONFIG, the pod's service account, ~/.kube/config")->group(group)->type_name("FILE");
  app.add_option("--context", flags.context, "its context")->group(group)->type_name("NAME");
  app.add_option("--namespace", flags.space, "where the Lease is by which one of several servers leads (default: the service account's, else fairlead-system)")->group(group)->type_name("NAME");
  app.add_option("--lease", flags.lease, "its name")->group(group)->capture_default_str();
  app.add_option("--identity", flags.identity, "this server's name in it (default: $POD_NAME or the host's, and something random)")->group(group);
  app.add_option("--health-listen", flags.health_listen, "address and port of /healthz, /readyz and /metrics")->group(group)->capture_default_str();
  app.add_option("--webhook-listen", flags.webhook_listen, "address and port where versions of queues are converted; without it v1beta1 of queues is not served")->group(group)->type_name("ADDRESS:PORT");
  app.add_option("--webhook-service", flags.webhook_service, "Service by which the cluster reaches that, in the namespace of the Lease (default: it is reached at --webhook-listen)")->group(group)->type_name("NAME");
  app.add_option("--watch-namespace", flags.watch_namespace, "only clusters of this namespace")->group(group)->type_name("NAME");
  app.add_option("--companion-dir", flags.companion_dir, "folder of each node that holds fairlead-slurm; \"\": the images bring it")->group(group)->capture_default_str();
  app.add_option("--slurm-image", flags.slurm_image, "image of Slurm's containers where a cluster names none")->group(group)->capture_default_str();
  app.add_option("--cluster-domain", flags.cluster_domain, "domain of the cluster's DNS")->group(group)->capture_default_str();
  app.add_flag("--local-machines", flags.local_machines, "Machine objects become nodes on this machine that join the cluster (root)")->group(group);
  app.add_option("--node-ca-cert", flags.node_ca_cert, "authority whose node certificates the cluster accepts")->group(group)->type_name("FILE");
  app.add_option("--node-ca-key", flags.node_ca_key, "its key")->group(group)->type_name("FILE");
  app.add_option("--node-api-server", flags.node_api_server, "where those nodes find the API (default: the kubeconfig's server; on loopback: this port at the host's address among the nodes)")->group(group)->type_name("URL");
  CLI11_PARSE(app, argc, argv);
  fairlead::start_logging("fairlead-server", flags.log_level);
  return fairlead::serve(flags);
}
