// SPDX-License-Identifier: Apache-2.0
// install, upgrade, uninstall: Fairlead's server in a Kubernetes cluster.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <set>
#include <thread>

#include "api/identity_crds.h"
#include "api/pod_identity.h"
#include "api/queue_crds.h"
#include "api/training_crd.h"
#include "api/team_crds.h"
#include "api/volume.h"
#include "api/volume_access.h"
#include "cli/command.h"
#include "cli/install_plan.h"
#include "cli/readiness.h"

namespace fairlead::cli {

using kube::Json;
namespace resources = kube::resources;

namespace {

constexpr auto kPause = std::chrono::milliseconds(200);
const kube::Resource kDeployments{"apps", "v1", "deployments", "Deployment", true};
const kube::Resource kDaemonSets{"apps", "v1", "daemonsets", "DaemonSet", true};
const kube::Resource kClusterRoles{"rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", false};
const kube::Resource kClusterRoleBindings{"rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", false};
const kube::Resource kRoles{"rbac.authorization.k8s.io", "v1", "roles", "Role", true};
const kube::Resource kRoleBindings{"rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", true};
const kube::Resource kCsiDrivers{"storage.k8s.io", "v1", "csidrivers", "CSIDriver", false};
const kube::Resource kStorageClasses{"storage.k8s.io", "v1", "storageclasses", "StorageClass", false};

// What install makes beside the namespace and the CRDs, in the order in which it is taken away.
const std::vector<kube::Resource>& removable() {
  static const std::vector<kube::Resource> list = {kDaemonSets, kDeployments, resources::services, kStorageClasses, kCsiDrivers, kClusterRoleBindings, kRoleBindings, kClusterRoles, kRoles, resources::service_accounts};
  return list;
}

struct Options {
  InstallOptions install;
  bool dry_run = false, adopt = false, wait = false, upgrade = false, local_machines = false;
  double timeout = 180;
};

std::string place_of(const Json& object) { return kube::space_of(object).empty() ? title_of(object) : title_of(object) + " in " + kube::space_of(object); }

Result<std::optional<Json>> look(Session& session, const Json& wanted) {
  auto kind = session.find_kind(wanted["apiVersion"].string(), wanted["kind"].string());
  if (!kind) return std::unexpected(std::move(kind.error()));
  auto now = session.get(kind->resource, kube::space_of(wanted), kube::name_of(wanted));
  if (now) return std::optional<Json>(std::move(*now));
  if (now.error().code == Code::NotFound) return std::optional<Json>();
  return pass(std::move(now.error()), place_of(wanted));
}

// The version of the server that is there; empty: none.
Result<std::string> installed_version(Session& session, const std::string& space) {
  auto now = session.get(resources::service_accounts, space, "fairlead-server");
  if (!now && now.error().code == Code::NotFound) return std::string();
  if (!now) return std::unexpected(std::move(now.error()));
  return kube::annotations_of(*now)[kVersion];
}

// Refuses whatever belongs to somebody else, all of it in one message; with --adopt only what a running controller still works with. Definitions of queues that are somebody else's (Kueue's own) are no reason
// to refuse: all of that group are taken out of `manifests`, and it says so; of the definition of training jobs (SageMaker's own) likewise.
Result<std::vector<Json>> check_owners(Session& session, std::vector<Json>& manifests, bool adopt, Instant now) {
  std::vector<Json> adopted;
  std::string refusals, foreign_queues, foreign_training;
  for (const Json& wanted : manifests) {
    if (wanted["kind"].string() == "Namespace") continue;
    auto existing = look(session, wanted);
    if (!existing) return std::unexpected(std::move(existing.error()));
    if (!*existing) continue;
    const Ownership owner = owner_of(**existing, wanted);
    if (owner.owner != Owner::Somebody) continue;
    std::vector<std::string> running;
    if (const std::string& group = wanted["spec"]["group"].string(); !group.empty()) {
      auto leases = session.list(resources::leases);
      if (!leases) return pass(std::move(leases.error()), "look for controllers");
      auto deployments = session.list(kDeployments);
      if (!deployments) return pass(std::move(deployments.error()), "look for controllers");
      running = running_controllers(group, owner, *leases, *deployments, now);
    }
    if (adopt && running.empty()) {
      adopted.push_back(std::move(**existing));
      continue;
    }
    if (!adopt && api::is_training_crd(wanted)) {
      foreign_training = owner.who;
      continue;
    }
    if (!adopt && api::is_queue_crd(wanted)) {
      if (foreign_queues.empty()) foreign_queues = fmt::format("{} belongs to {}", title_of(wanted), owner.who);
      continue;
    }
    refusals += fmt::format("\n  - {} belongs to {}", place_of(wanted), owner.who);
    for (const auto& one : running) refusals += fmt::format("; {}: stop it first", one);
  }
  if (!foreign_queues.empty()) {
    std::erase_if(manifests, [](const Json& one) { return api::is_queue_crd(one); });
    fmt::print("Task governance stays off: {}, so all definitions of {} are left as they are. --adopt takes them over once no other controller works with them.\n", foreign_queues, api::queue_group);
  }
  if (!foreign_training.empty()) {
    std::erase_if(manifests, [](const Json& one) { return api::is_training_crd(one); });
    fmt::print("Training jobs are left to their own operator: {} belongs to {}. --adopt takes it over once no other controller works with it.\n", api::kTrainingCrd, foreign_training);
  }
  if (refusals.empty()) return adopted;
  return fail(Code::Exists, fmt::format("these are there and not ours, so nothing was changed:{}{}", refusals, adopt ? "" : "\n--adopt takes them over once no other controller works with them"));
}

// A webhook is at a URL or at a Service, never at both. Where the server that leads has told the other way, that stays: it would tell it again at once, and the one that leads next tells its own.
Result<Json> with_way_to_webhook(Session& session, Json wanted) {
  const Json& config = wanted["spec"]["conversion"]["webhook"]["clientConfig"];
  if (config.is_null()) return wanted;
  auto existing = look(session, wanted);
  if (!existing) return std::unexpected(std::move(existing.error()));
  if (!*existing) return wanted;
  const Json& told = (**existing)["spec"]["conversion"];
  if (!told["webhook"]["clientConfig"][config["url"].is_null() ? "url" : "service"].is_null()) wanted.child("spec").set("conversion", told);
  return wanted;
}

// What an earlier install made and this one does not.
Result<void> prune(Session& session, const std::vector<Json>& manifests, bool dry_run) {
  for (const auto& resource : removable()) {
    auto found = session.list(resource, "", fmt::format("{}=fairlead,{}=fairlead", kPartOf, kManagedBy));
    if (!found) return pass(std::move(found.error()), "look for what is not needed any more");
    for (const Json& one : *found) {
      const bool wanted = std::ranges::any_of(manifests, [&](const Json& manifest) { return manifest["kind"].string() == resource.kind && kube::key_of(manifest) == kube::key_of(one); });
      if (wanted) continue;
      if (!dry_run) {
        auto gone = session.api().remove(resource, kube::key_of(one), {.uid = kube::uid_of(one)});
        if (!gone && gone.error().code != Code::NotFound) return pass(std::move(gone.error()), place_of(one));
      }
      fmt::print("{} {}\n", place_of(one), dry_run ? "would be removed" : "removed");
    }
  }
  return {};
}

// Before anything is changed: an engine ends with its pod, and its volume with it.
Result<void> check_engines(Session& session, const std::vector<Json>& manifests) {
  auto found = session.list(kDaemonSets, "", fmt::format("{}=fairlead,{}=fairlead", kPartOf, kManagedBy));
  if (!found) return pass(std::move(found.error()), "look for what keeps engines of volumes");
  for (const Json& one : *found) {
    if (kube::name_of(one) != kVolumeEngines || std::ranges::any_of(manifests, [&](const Json& manifest) { return manifest["kind"].string() == kDaemonSets.kind && kube::key_of(manifest) == kube::key_of(one); })) continue;
    auto volumes = session.list(api::kVolumes), attachments = session.list(api::kAttachments);
    for (const auto* list : {&volumes, &attachments})
      if (!*list) return pass(Error(list->error()), "look for volumes that are in use");
    const auto served = served_by_engines(*volumes, *attachments);
    if (served.empty()) continue;
    const std::size_t shown = std::min<std::size_t>(served.size(), 5);
    return fail(Code::Conflict, fmt::format("{} keeps engines, and whoever uses these volumes would lose the disk with it: {}{}. End the pods that use them first, and wait until their Attachments are gone (kubectl get attachments); nothing was changed", place_of(one),
                                            fmt::join(served.begin(), served.begin() + static_cast<std::ptrdiff_t>(shown), ", "), served.size() > shown ? fmt::format(" and {} more", served.size() - shown) : ""));
  }
  return {};
}

Result<void> wait_for(Context& context, Session& session, const Json& wanted, double timeout, const std::function<bool(const Json&)>& done, const std::string& what) {
  const auto deadline = context.clock.monotonic() + std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(timeout));
  for (;;) {
    auto now = look(session, wanted);
    if (!now) return std::unexpected(std::move(now.error()));
    if (*now && done(**now)) return {};
    if (context.clock.monotonic() > deadline) return fail(Code::Unavailable, fmt::format("{} {} after {}", place_of(wanted), what, print_seconds(timeout)));
    std::this_thread::sleep_for(kPause);
  }
}

Result<int> print_manifests(const std::vector<Json>& manifests, const std::string& output) {
  if (output == "json") {
    print_json_or_yaml(Json::object({{"apiVersion", "v1"}, {"kind", "List"}, {"items", Json::array(manifests)}}), output);
    return 0;
  }
  bool first = true;
  for (const Json& manifest : manifests) {
    if (!std::exchange(first, false)) fmt::print("---\n");
    print_json_or_yaml(manifest, output);
  }
  return 0;
}

Result<int> install(Context& context, const Options& options) {
  InstallOptions parts = options.install;
  if (options.local_machines) {
    parts.replicas = 0;
    parts.local_nodes = true;
  }
  if (!parts.companion_dir.empty() && (parts.companion_dir[0] != '/' || parts.companion_dir.ends_with('/') || parts.companion_dir.rfind('/') == 0))
    return fail(Code::Invalid, "usage: --companion-dir is a folder in a folder, for instance /var/lib/fairlead/bin");
  if (!parts.volumes.size.empty())
    if (auto good = check_volumes(parts.volumes); !good) return std::unexpected(std::move(good.error()));
  auto manifests = install_manifests(parts, context.hooks.server_access(parts.watch_namespace, options.local_machines, parts.aws || options.local_machines));
  if (options.dry_run && !context.wants("table")) return print_manifests(manifests, context.globals.output);
  auto session = context.cluster_session();
  if (!session) return std::unexpected(std::move(session.error()));
  auto version = installed_version(*session, options.install.space);
  if (!version) return pass(std::move(version.error()), "look at the cluster");
  if (options.upgrade && version->empty()) return fail(Code::NotFound, fmt::format("Fairlead is not installed in namespace {}: `fairlead install` does that", options.install.space));
  if (!options.upgrade && !version->empty() && *version != FAIRLEAD_VERSION) return fail(Code::Exists, fmt::format("version {} is installed: `fairlead upgrade` goes to {}", *version, FAIRLEAD_VERSION));
  if (options.upgrade && older_version(FAIRLEAD_VERSION, *version)) return fail(Code::Invalid, fmt::format("version {} is installed, which is newer than this program ({}): use that one", *version, FAIRLEAD_VERSION));

  auto adopted = check_owners(*session, manifests, options.adopt, context.clock.now());
  if (!adopted) return std::unexpected(std::move(adopted.error()));
  if (auto may = check_engines(*session, manifests); !may) return std::unexpected(std::move(may.error()));
  constexpr const char* kDone[] = {"created", "changed", "unchanged"};
  constexpr const char* kWould[] = {"would be created", "would be changed", "is as it should be"};
  std::set<std::string> missing;  // namespaces
  for (const Json& manifest : manifests) {
    // A namespace that is there is used as it is: it may be somebody's.
    if (manifest["kind"].string() == "Namespace") {
      auto now = look(*session, manifest);
      if (!now) return std::unexpected(std::move(now.error()));
      if (!now->has_value()) missing.insert(kube::name_of(manifest));
      if (now->has_value()) {
        fmt::print("{} is there\n", title_of(manifest));
        continue;
      }
    }
    if (options.dry_run && missing.contains(kube::space_of(manifest))) {
      fmt::print("{} would be created\n", place_of(manifest));  // a server cannot try what lies in a namespace that is not there
      continue;
    }
    auto document = api::is_queue_crd(manifest) ? with_way_to_webhook(*session, manifest) : Result<Json>(manifest);
    if (!document) return std::unexpected(std::move(document.error()));
    auto applied = apply_document(*session, *document, {.dry_run = options.dry_run, .force = true});
    if (!applied) return std::unexpected(std::move(applied.error()));
    fmt::print("{} {}\n", place_of(manifest), (options.dry_run ? kWould : kDone)[static_cast<int>(*applied)]);
  }
  for (const Json& one : *adopted) {
    // Helm looks at these before it takes a thing for its own.
    auto kind = session->find_kind(one["apiVersion"].string(), one["kind"].string());
    if (options.dry_run || !kind) continue;
    const Json forget = Json::object({{"metadata", Json::object({{"annotations", Json::object({{"meta.helm.sh/release-name", Json()}, {"meta.helm.sh/release-namespace", Json()}})}})}});
    auto done = session->api().patch(kind->resource, kube::key_of(one), kube::PatchType::Merge, forget);
    if (!done) return pass(std::move(done.error()), "adopt " + place_of(one));
    fmt::print("{} adopted\n", place_of(one));
  }
  if (auto done = prune(*session, manifests, options.dry_run); !done) return std::unexpected(std::move(done.error()));
  if (options.dry_run) return 0;
  for (const Json& manifest : manifests) {
    if (manifest["kind"].string() == "CustomResourceDefinition") {
      auto done = wait_for(context, *session, manifest, 60, [](const Json& now) { return readiness_of(now).state == Readiness::State::Ready; }, "is not established");
      if (!done) return std::unexpected(std::move(done.error()));
    }
    if (manifest["kind"].string() == "Deployment" && options.wait) {
      const auto rolled_out = [](const Json& now) {
        const std::int64_t wanted = now["spec"]["replicas"].integer();
        return now["status"]["observedGeneration"].integer() >= now["metadata"]["generation"].integer() && now["status"]["updatedReplicas"].integer() >= wanted && now["status"]["availableReplicas"].integer() >= wanted;
      };
      auto done = wait_for(context, *session, manifest, options.timeout, rolled_out, "is not available");
      if (!done) return std::unexpected(std::move(done.error()));
    }
  }
  fmt::print("Fairlead {} is {} in namespace {}.\n", FAIRLEAD_VERSION, options.upgrade ? "up to date" : "installed", options.install.space);
  return 0;
}

struct UninstallOptions {
  std::string space = "fairlead-system";
  bool purge = false, yes = false, dry_run = false;
  double timeout = 120;
};

Result<bool> may_purge(const UninstallOptions& options, std::size_t objects) {
  if (options.yes) return true;
  if (!is_terminal(STDIN_FILENO)) return fail(Code::Invalid, fmt::format("usage: --purge deletes {} objects of users with what belongs to them, and our CRDs: add --yes if that is meant", objects));
  fmt::print("This deletes {} objects of users with what belongs to them, and our CRDs. Go on? [y/N] ", objects);
  std::fflush(stdout);
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

// `uid`: another object of that name is none of ours; empty: any.
Result<void> wait_until_gone(Context& context, Session& session, const kube::Resource& resource, const kube::ObjectKey& key, double timeout, const std::string& uid = "") {
  const auto deadline = context.clock.monotonic() + std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(timeout));
  for (;;) {
    auto now = session.get(resource, key.space, key.name);
    if (!now && now.error().code == Code::NotFound) return {};
    if (!now) return std::unexpected(std::move(now.error()));
    if (!uid.empty() && kube::uid_of(*now) != uid) return {};
    if (context.clock.monotonic() > deadline)
      return fail(Code::Unavailable, fmt::format("{} {} is still there after {}; see its finalizers, then run this again", resource.plural, key.text(), print_seconds(timeout)));
    std::this_thread::sleep_for(kPause);
  }
}

// Users' objects: the server is still there and may be needed for their finalizers.
Result<void> purge_objects(Context& context, Session& session, const std::vector<std::pair<kube::Resource, Json>>& objects, double timeout) {
  for (const auto& [resource, one] : objects) {
    auto gone = session.api().remove(resource, kube::key_of(one), {.uid = kube::uid_of(one), .propagation = kube::DeleteOptions::Propagation::Foreground});
    if (!gone && gone.error().code != Code::NotFound) return pass(std::move(gone.error()), place_of(one));
  }
  for (const auto& [resource, one] : objects) {
    if (auto gone = wait_until_gone(context, session, resource, kube::key_of(one), timeout, kube::uid_of(one)); !gone) return gone;
    fmt::print("{} removed\n", place_of(one));
  }
  return {};
}

// Held by a finalizer that nobody takes away now: pods that were in queues, and Workloads that Jobs got anew since theirs were deleted.
Result<void> release(Session& session, const kube::Resource& resource, const char* finalizer) {
  auto list = session.list(resource);
  if (!list) return pass(std::move(list.error()), "look for " + resource.plural);
  for (Json& one : *list) {
    if (!kube::has_finalizer(one, finalizer)) continue;
    kube::remove_finalizer(one, finalizer);
    auto done = session.api().update(resource, one);
    if (!done && done.error().code != Code::NotFound) return pass(std::move(done.error()), place_of(one));
  }
  return {};
}

// Access keys, and what the AWS face keeps beside them. Without --purge they stay, and the namespace with them.
Result<void> purge_aws(Session& session, const std::string& space) {
  auto keys = session.list(resources::secrets, space);
  if (!keys) return pass(std::move(keys.error()), "look for access keys");
  std::vector<std::pair<const kube::Resource*, std::string>> all{{&resources::secrets, api::identities::sessions_name}, {&resources::secrets, api::identities::authority_name}, {&resources::secrets, api::pod_identity::webhook_secret}, {&resources::config_maps, api::identities::settings_name}};
  for (const Json& key : *keys)
    if (key["type"].string() == api::identities::key_type) all.emplace_back(&resources::secrets, kube::name_of(key));
  for (const auto& [resource, name] : all)
    if (auto gone = session.api().remove(*resource, {space, name}); !gone && gone.error().code != Code::NotFound) return pass(std::move(gone.error()), fmt::format("{} {}/{}", resource->kind, space, name));
  return {};
}

// Only where we made it, and nobody has put anything in.
Result<void> remove_namespace(Context& context, Session& session, const std::string& space, bool dry_run, double timeout) {
  auto now = session.get(resources::namespaces, "", space);
  if (!now && now.error().code == Code::NotFound) return {};
  if (!now) return std::unexpected(std::move(now.error()));
  if (kube::labels_of(*now)[kManagedBy] != "fairlead") return {};
  for (const auto* const resource : {&resources::pods, &resources::secrets, &resources::config_maps, &resources::services, &resources::claims, &kDeployments}) {
    auto inside = session.list(*resource, space);
    if (!inside) return pass(std::move(inside.error()), "look into namespace " + space);
    for (const Json& one : *inside) {
      const auto labels = kube::labels_of(one);
      const auto part = labels.find(kPartOf);
      if (kube::name_of(one) == "kube-root-ca.crt" || (part != labels.end() && part->second == "fairlead")) continue;
      fmt::print("namespace/{} stays: it holds {}\n", space, place_of(one));
      return {};
    }
  }
  if (!dry_run) {
    auto gone = session.api().remove(resources::namespaces, {"", space}, {.uid = kube::uid_of(*now)});
    if (!gone && gone.error().code != Code::NotFound) return pass(std::move(gone.error()), "namespace " + space);
    if (auto done = wait_until_gone(context, session, resources::namespaces, {"", space}, timeout); !done) return done;
  }
  fmt::print("namespace/{} {}\n", space, dry_run ? "would be removed" : "removed");
  return {};
}

Result<int> uninstall(Context& context, const UninstallOptions& options) {
  auto session = context.cluster_session();
  if (!session) return std::unexpected(std::move(session.error()));
  if (auto may = check_engines(*session, {}); !may) return std::unexpected(std::move(may.error()));
  std::vector<std::pair<kube::Resource, Json>> crds;  // what they define
  std::vector<std::pair<kube::Resource, Json>> objects;
  for (const Json& wanted : install_manifests({.space = options.space}, {})) {
    if (wanted["kind"].string() != "CustomResourceDefinition") continue;
    auto existing = look(*session, wanted);
    if (!existing) return std::unexpected(std::move(existing.error()));
    if (!*existing) continue;
    if (const Ownership owner = owner_of(**existing, wanted); owner.owner == Owner::Somebody) {
      fmt::print("{} stays: it belongs to {}\n", title_of(wanted), owner.who);
      continue;
    }
    const Json& names = (**existing)["spec"]["names"];
    const kube::Resource resource{(**existing)["spec"]["group"].string(), (**existing)["spec"]["versions"].items().at(0)["name"].string(), names["plural"].string(), names["kind"].string(),
                                  (**existing)["spec"]["scope"].string() == "Namespaced"};
    auto list = session->list(resource);
    if (!list) return pass(std::move(list.error()), "look for " + resource.plural);
    for (Json& one : *list) objects.emplace_back(resource, std::move(one));
    crds.emplace_back(resource, std::move(**existing));
  }
  // An object that goes takes its data along, or waits for ever for a pool that has gone: who means that deletes volumes by name, while their pools run.
  const auto holds_data = [](const auto& one) { return one.first.plural == api::kVolumes.plural || one.first.plural == api::kSnapshots.plural; };
  if (const auto data = std::ranges::count_if(objects, holds_data); options.purge && data > 0)
    return fail(Code::Exists, fmt::format("--purge deletes no data of volumes, and {} Volumes and Snapshots are there: delete them first (fairlead volume rm, kubectl delete pvc), or leave --purge out; nothing was changed", data));
  if (options.purge && !options.dry_run) {
    auto may = may_purge(options, objects.size());
    if (!may) return std::unexpected(std::move(may.error()));
    if (!*may) {
      fmt::print("Nothing was changed.\n");
      return 1;
    }
    // Clusters before the machines that their pods run on.
    for (const bool namespaced : {true, false}) {
      std::vector<std::pair<kube::Resource, Json>> wave;
      for (const auto& one : objects)
        if (one.first.namespaced == namespaced) wave.push_back(one);
      if (auto done = purge_objects(context, *session, wave, options.timeout); !done) return std::unexpected(std::move(done.error()));
    }
  }
  if (auto done = prune(*session, {}, options.dry_run); !done) return std::unexpected(std::move(done.error()));
  // Nobody answers about new pods any more.
  if (auto there = look(*session, Json::object({{"apiVersion", api::pod_identity::mutating_webhooks.api_version()}, {"kind", api::pod_identity::mutating_webhooks.kind}, {"metadata", Json::object({{"name", api::pod_identity::webhook_name}})}})); there && *there) {
    if (!options.dry_run)
      if (auto gone = session->api().remove(api::pod_identity::mutating_webhooks, {"", api::pod_identity::webhook_name}); !gone && gone.error().code != Code::NotFound) return pass(std::move(gone.error()), api::pod_identity::webhook_name);
    fmt::print("{} {}\n", place_of(**there), options.dry_run ? "would be removed" : "removed");
  }
  // Nobody decides any more: no work may be refused for want of a decision.
  for (const auto* const kind : {&resources::admission_policy_bindings, &resources::admission_policies}) {
    auto made = session->list(*kind, "", std::string(api::teams::made_label) + "=true");
    if (!made && made.error().code != Code::NotFound) return pass(std::move(made.error()), "look for " + kind->plural);
    for (const Json& one : made ? *made : std::vector<Json>()) {
      if (!options.dry_run)
        if (auto gone = session->api().remove(*kind, kube::key_of(one)); !gone && gone.error().code != Code::NotFound) return pass(std::move(gone.error()), place_of(one));
      fmt::print("{} {}\n", place_of(one), options.dry_run ? "would be removed" : "removed");
    }
  }
  const bool queues = std::any_of(crds.begin(), crds.end(), [](const auto& one) { return one.first.plural == api::queues::workloads.plural; });
  if (queues && !options.dry_run)
    if (auto done = release(*session, resources::pods, api::queue_managed); !done) return std::unexpected(std::move(done.error()));
  const kube::ObjectKey lease{options.space, "fairlead-server"};
  if (!options.dry_run)
    if (auto gone = session->api().remove(resources::leases, lease); !gone && gone.error().code != Code::NotFound) return pass(std::move(gone.error()), "the Lease " + lease.text());
  for (const char* const one : api::kSidecarLeases)
    if (!options.dry_run)
      if (auto gone = session->api().remove(resources::leases, {options.space, one}); !gone && gone.error().code != Code::NotFound) return pass(std::move(gone.error()), fmt::format("the Lease {}/{}", options.space, one));
  const kube::ObjectKey authority{options.space, api::queue_webhook_name};
  if (!options.dry_run)
    if (auto gone = session->api().remove(resources::secrets, authority); !gone && gone.error().code != Code::NotFound) return pass(std::move(gone.error()), "the Secret " + authority.text());
  if (options.purge && !options.dry_run)
    if (auto done = purge_aws(*session, options.space); !done) return std::unexpected(std::move(done.error()));
  if (auto done = remove_namespace(context, *session, options.space, options.dry_run, options.timeout); !done) return std::unexpected(std::move(done.error()));
  for (const auto& [resource, crd] : crds) {
    if (!options.purge) {
      fmt::print("{} stays with its objects; --purge deletes them\n", title_of(crd));
      continue;
    }
    if (!options.dry_run) {
      if (auto done = release(*session, resource, api::queue_in_use); !done) return std::unexpected(std::move(done.error()));
      auto gone = session->api().remove(resources::crds, kube::key_of(crd), {.uid = kube::uid_of(crd)});
      if (!gone && gone.error().code != Code::NotFound) return pass(std::move(gone.error()), title_of(crd));
      if (auto done = wait_until_gone(context, *session, resources::crds, kube::key_of(crd), options.timeout); !done) return std::unexpected(std::move(done.error()));
    }
    fmt::print("{} {}\n", title_of(crd), options.dry_run ? "would be removed" : "removed");
  }
  if (!options.purge && !objects.empty()) fmt::print("{} objects of users go on as they are; nobody looks after them now.\n", objects.size());
  return 0;
}

void add_one(CLI::App& app, Context& context, bool upgrade) {
  auto options = std::make_shared<Options>();
  options->upgrade = upgrade;
  CLI::App* command = app.add_subcommand(upgrade ? "upgrade" : "install", upgrade ? "Bring Fairlead in a Kubernetes cluster to this program's version" : "Put Fairlead into a Kubernetes cluster");
  InstallOptions& install_options = options->install;
  command->add_option("-n,--namespace", install_options.space, "where the server runs")->capture_default_str()->type_name("NAME");
  command->add_option("--image", install_options.image, "of fairlead-server")->capture_default_str();
  command->add_option("--agent-image", install_options.agent_image, "of fairlead-agent, which brings Slurm's companion to each node")->capture_default_str();
  command->add_option("--replicas", install_options.replicas, "servers; one leads")->capture_default_str()->check(CLI::Range(1, 9));
  command->add_option("--watch-namespace", install_options.watch_namespace, "look after clusters of this namespace only, with rights in no other")->type_name("NAME");
  command->add_option("--companion-dir", install_options.companion_dir, "folder of each node that holds fairlead-slurm; \"\": the images bring it")->capture_default_str();
  command->add_option("--slurm-image", install_options.slurm_image, "image of Slurm's containers where a cluster names none");
  command->add_flag("--aws", install_options.aws, "serve AWS clients, too, at Service fairlead-aws (docs/hyperpod-api.md)");
  VolumeOptions& volumes = install_options.volumes;
  auto* with_volumes = command->add_option("--volumes", volumes.size, "block volumes, too: a pool of this size on each node, in a file; xfs: --volumes-folder is on XFS with reflink (docs/volumes.md)")->type_name("SIZE");
  command->add_option("--volumes-folder", volumes.folder, "of each node, for its pool")->capture_default_str()->needs(with_volumes);
  command->add_option("--volumes-nodes", volumes.nodes, "labels of the nodes that get a pool (default: all without taints)")->type_name("NAME=VALUE,...")->needs(with_volumes);
  command->add_option("--volumes-image", volumes.image, "of fairlead-volumes and fairlead-csi")->capture_default_str()->needs(with_volumes);
  command->add_flag("!--no-volumes-engines", volumes.engines, "no volumes with limits, and no pods that keep their engines")->needs(with_volumes);
  command->add_flag("--volumes-encryption", volumes.encryption, "encrypted volumes, too: pods of nodes may then read the keys of all of them")->needs(with_volumes);
  command->add_flag("--volumes-class", volumes.storage_class, "make a StorageClass fairlead, too")->needs(with_volumes);
  command->add_option("--kubelet-dir", volumes.kubelet_dir, "the kubelets' --root-dir")->capture_default_str()->needs(with_volumes);
  for (const auto& [flag, image, what] : {std::tuple("--csi-provisioner-image", &volumes.provisioner_image, "of the standard sidecar; --volumes needs it"), std::tuple("--csi-attacher-image", &volumes.attacher_image, "likewise"),
                                          std::tuple("--csi-resizer-image", &volumes.resizer_image, "likewise"), std::tuple("--csi-snapshotter-image", &volumes.snapshotter_image, "for VolumeSnapshots, where the cluster has their CRDs and controller")})
    command->add_option(flag, *image, what)->needs(with_volumes);
  command->add_flag("--local-machines", options->local_machines, "no Deployment: the server runs on a machine of yours with --local-machines, under the service account that is made here");
  command->add_flag("--adopt", options->adopt, "take over CRDs and other objects that somebody else made, where no other controller works with them");
  command->add_flag("--dry-run", options->dry_run, "tell what would be done, change nothing; with -o yaml or json print the objects, without a cluster");
  command->add_flag("--wait", options->wait, "wait until the server is available");
  command->add_option("--timeout", options->timeout, "seconds to wait")->capture_default_str();
  add_globals(*command, context);
  if (upgrade)
    set_examples(*command, {{"fairlead upgrade --context prod", "after a new release of this program"}});
  else
    set_examples(*command, {{"fairlead install --context prod", "into that cluster"}, {"fairlead install --dry-run -o yaml", "what it consists of"}});
  command->callback([options, &context] { context.action = [options, &context] { return install(context, *options); }; });
}

}  // namespace

void add_install(CLI::App& app, Context& context) {
  add_one(app, context, false);
  add_one(app, context, true);
  auto options = std::make_shared<UninstallOptions>();
  CLI::App* command = app.add_subcommand("uninstall", "Take Fairlead out of a Kubernetes cluster; users' objects and CRDs stay");
  command->add_option("-n,--namespace", options->space, "where the server runs")->capture_default_str()->type_name("NAME");
  command->add_flag("--purge", options->purge, "delete all Slurm clusters and our CRDs too; refused as long as there are Volumes");
  command->add_flag("-y,--yes", options->yes, "do not ask");
  command->add_flag("--dry-run", options->dry_run, "tell what would be done, change nothing");
  command->add_option("--timeout", options->timeout, "seconds to wait until things are gone")->capture_default_str();
  add_globals(*command, context);
  set_examples(*command, {{"fairlead uninstall --context prod", "clusters go on without their operator"}, {"fairlead uninstall --purge --yes", "nothing is left"}});
  command->callback([options, &context] { context.action = [options, &context] { return uninstall(context, *options); }; });
}

}  // namespace fairlead::cli
