// SPDX-License-Identifier: Apache-2.0
// fairlead: the command line. Wiring only.
#include "base/clock.h"
#include "base/files.h"
#include "cli/program.h"
#include "fleet/control/cluster_controller.h"
#include "fleet/control/machine_controller.h"
#include "fleet/control/interface_controller.h"
#include "fleet/control/instance_volume_controller.h"
#include "fleet/control/node_place_controller.h"
#include "fleet/control/training_plan_controller.h"
#include "fleet/fabric.h"
#include "fleet/site.h"
#include "fleet/teardown.h"
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
#include "governance/plan/eta.h"
#include "governance/plan/explain.h"
#include "governance/plan/views.h"
#include "governance/plan/whatif.h"
#include "kube/rest_client.h"
#include "notify/control/cluster_event_controller.h"
#include "notify/control/delivery_controller.h"
#include "notify/control/role_change_controller.h"
#include "notify/plan/preview.h"
#include "slurm/control/active_check_controller.h"
#include "slurm/control/head_address_controller.h"
#include "slurm/control/slurm_cluster_controller.h"
#include "stacks/control/stack_controller.h"
#include "training/control/training_controller.h"
#include "slurm/keys.h"
#include "slurm/plan/render.h"

namespace fairlead {
namespace {

Result<std::vector<std::pair<std::string, std::string>>> render(const kube::Json& object) {
  std::vector<std::pair<std::string, std::string>> files;
  if (object["kind"].string() != "SlurmCluster") return files;
  const api::SlurmCluster cluster = api::read_slurm_cluster(object, "slurm:22.05");
  if (!cluster.problems.empty()) return fail(Code::Invalid, cluster.problems.front());
  for (auto& [name, content] : slurm::render_config(cluster, {})) files.emplace_back(name, std::move(content));
  return files;
}

std::string network_conflict(const std::string& state_dir, const std::string& node_range, const std::string& pod_range) {
  auto ranges = fleet::parse_ranges(node_range, pod_range);
  if (!ranges) return ranges.error().message;
  auto conflict = fleet::find_conflict(*ranges, fleet::site_of(state_dir));
  return conflict ? *conflict : "";
}

// What the controllers that fairlead-server runs on a cluster declare. The API is never called.
kube::Access server_access(const std::string& space, bool local_machines, bool clusters) {
  static const SystemClock clock;
  const auto api = kube::RestApi::make({.server = "https://localhost"});
  INVARIANT(api);
  kube::Access access = kube::full_access(slurm::SlurmClusterController(**api, clock, slurm::make_keys, {.space = space}));
  access.add(kube::full_access(slurm::ActiveCheckController(**api, clock, space)));
  access.add(kube::full_access(slurm::HeadAddressController(**api, nullptr, {.space = space})));
  access.add(kube::full_access(notify::RoleChangeController(**api, clock, {.space = space})));
  access.add(kube::full_access(notify::DeliveryController(**api, clock, nullptr, {.space = space})));
  if (space.empty()) {
    access.add(kube::full_access(governance::ConversionController(**api, {})));
    access.add(kube::full_access(governance::QueueController(**api, clock, {})));
    access.add(kube::full_access(governance::JobController(**api, clock)));
    access.add(kube::full_access(governance::PodController(**api, clock)));
    access.add(kube::full_access(governance::PlaceController(**api, clock)));
    access.add(kube::full_access(governance::GangKindsController(**api, clock, 0)));
    access.add(kube::full_access(governance::WorkloadClockController(**api, clock)));
    access.add(kube::full_access(governance::SlurmLedgerController(**api, clock)));
    access.add(kube::full_access(governance::TeamsController(**api, clock)));
    access.add(kube::full_access(governance::InquiryController(**api, clock)));
    access.add(kube::full_access(training::TrainingController(**api, clock, nullptr, training::TrainingController::Queues::Ours)));
  }
  if (local_machines) access.add(fleet::machine_access());
  if (clusters && space.empty()) access.add(kube::full_access(fleet::ClusterController(**api, clock))).add(kube::full_access(fleet::TrainingPlanController(**api, clock))).add(kube::full_access(fleet::InterfaceController(**api, clock))).add(kube::full_access(fleet::NodePlaceController(**api, {}))).add(kube::full_access(fleet::InstanceVolumeController(**api, clock))).add(kube::full_access(stacks::StackController(**api, clock))).add(kube::full_access(notify::ClusterEventController(**api, {})));
  return access;
}

std::pair<kube::Json, kube::Json> test_notification(const kube::Json& topic, const std::string& id, Instant now) {
  const notify::Event event = notify::test_event(kube::space_of(topic), id, now);
  return {notify::notification_object(event, kube::name_of(topic), kube::owner_reference(topic)), notify::preview(notify::read_topic(topic), event, now)};
}

Result<kube::Json> explain(const std::vector<kube::Json>& objects, const std::string& space, const std::string& what) {
  const governance::Books books = governance::books_of(objects, SystemClock().now());
  const auto workload = governance::find_workload(books, space, what);
  if (!workload) return std::unexpected(workload.error());
  const auto explanation = governance::explain(books, *workload);
  if (!explanation) return fail(Code::NotFound, what + " is not there any more");
  return governance::to_json(*explanation);
}

Result<kube::Json> eta(const std::vector<kube::Json>& objects, const std::string& space, const std::string& what, Instant now) {
  const governance::Books books = governance::books_of(objects, now);
  const auto workload = governance::find_workload(books, space, what);
  if (!workload) return std::unexpected(workload.error());
  std::vector<kube::Json> jobs;
  for (const kube::Json& object : objects)
    if (object["kind"].string() == "Job") jobs.push_back(object);
  const auto answer = governance::eta(books, jobs, *workload, now);
  if (!answer) return fail(Code::NotFound, what + " is not there any more");
  return governance::to_json(*answer, now);
}

Result<cli::Hooks::WhatIfNeeds> whatif_needs(const std::vector<kube::Json>& changes, const std::vector<std::string>& without) {
  const auto needs = governance::needs_of(changes, without);
  if (!needs) return std::unexpected(needs.error());
  return cli::Hooks::WhatIfNeeds{.jobs = needs->jobs, .teams = needs->teams};
}

Result<kube::Json> whatif(const std::vector<kube::Json>& objects, const std::vector<kube::Json>& changes, const std::vector<std::string>& without, const std::string& space, Instant now) {
  const auto answer = governance::whatif({.objects = objects, .changes = changes, .without = without, .space = space, .now = now});
  if (!answer) return std::unexpected(answer.error());
  return governance::to_json(*answer);
}

}  // namespace
}  // namespace fairlead

int main(int argc, char** argv) {
  using namespace fairlead;
  static const SystemClock clock;
  cli::Hooks hooks;
  hooks.teardown = [](const std::string& state_dir, bool keep_images, bool keep_data, const std::function<Result<void>()>& before_files, const std::function<void(const std::string&)>& tell) {
    return fleet::teardown_site(state_dir, {.keep_images = keep_images, .keep_data = keep_data, .before_files = before_files}, tell);
  };
  hooks.leftovers = fleet::site_leftovers;
  hooks.network_conflict = network_conflict;
  hooks.render = render;
  hooks.server_access = server_access;
  hooks.test_notification = test_notification;
  hooks.quotas = [](const std::vector<kube::Json>& objects) { return governance::quota_view(governance::books_of(objects, clock.now())); };
  hooks.queues = [](const std::vector<kube::Json>& objects) { return governance::queue_view(governance::books_of(objects, clock.now())); };
  hooks.explain = explain;
  hooks.eta = eta;
  hooks.whatif_needs = whatif_needs;
  hooks.whatif = whatif;
  return cli::run_program(argc, argv, std::move(hooks), clock);
}
