// SPDX-License-Identifier: Apache-2.0
#include "slurm/control/slurm_cluster_controller.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <set>
#include <thread>

#include "api/node_set.h"
#include "base/encoding.h"
#include "base/log.h"
#include "slurm/plan/backup.h"
#include "slurm/plan/heads.h"
#include "slurm/plan/munge_word.h"
#include "slurm/plan/node_sets.h"
#include "slurm/plan/trouble.h"

namespace fairlead::slurm {

using kube::Json;
namespace resources = kube::resources;

namespace {

// What Slurm never wrote down before it died, or what was carried out late, is found by a look that nothing else asks for.
constexpr auto kRareLook = std::chrono::minutes(5);
// A worker that was empty then may have been given jobs by somebody since.
constexpr auto kFreshLook = std::chrono::seconds(5);
// What sets there are.
constexpr auto kFreshSets = std::chrono::seconds(20);

// Exit statuses of `fairlead-slurm reconfigure` beside 0 and 1 (not done, try again).
constexpr int kWentDown = 5, kHandedOver = 6;
// Pods asked in one round for what they run, and by how many threads: a round stays within seconds.
constexpr std::size_t kSeenAtOnce = 128, kAskers = 8;

// As `fairlead-slurm` reads files.
std::string as_input(const std::map<std::string, std::string>& files) {
  std::string out;
  for (const auto& [name, content] : files) out += fmt::format("{} {}\n{}", name, content.size(), content);
  return out;
}


bool of_scale(const Step& step) {
  const auto* pod = std::get_if<DeletePod>(&step);
  return std::holds_alternative<NodeStep>(step) || (pod && pod->leaves);
}

const std::vector<std::pair<const kube::Resource*, std::map<std::string, Json> Snapshot::*>>& observed() {
  static const std::vector<std::pair<const kube::Resource*, std::map<std::string, Json> Snapshot::*>> list = {{&resources::pods, &Snapshot::pods},
                                                                                                             {&resources::services, &Snapshot::services},
                                                                                                             {&resources::config_maps, &Snapshot::config_maps},
                                                                                                             {&resources::secrets, &Snapshot::secrets},
                                                                                                             {&resources::claims, &Snapshot::claims},
                                                                                                             {&kNetworkPolicies, &Snapshot::policies},
                                                                                                             {&kEndpointSlices, &Snapshot::slices},
                                                                                                             {&api::kNodeSets, &Snapshot::node_sets}};
  return list;
}

}  // namespace

std::vector<kube::Controller::Source> SlurmClusterController::sources() const {
  // Clusters that share accounting look at one another.
  const auto with_neighbours = [this](const kube::Change& change) {
    const kube::ObjectKey own = kube::key_of(change.object());
    std::vector<kube::ObjectKey> keys = {own};
    for (const Json* object : {change.before ? &*change.before : nullptr, change.after ? &*change.after : nullptr})
      if (const auto host = object ? host_of(*object) : std::nullopt) keys.push_back({host->space, host->name});
    if (caches_)
      for (const Json& other : caches_->of(resources::slurm_clusters).list(options_.space))
        if (const auto host = host_of(other); host && host->space == own.space && host->name == own.name) keys.push_back(kube::key_of(other));
    return keys;
  };
  std::vector<Source> out = {{resources::slurm_clusters, options_.space, with_neighbours}};
  // Whatever lies in a cluster's namespace may be its own or one it waits for: the cluster is looked at again. Namespaces hold one cluster.
  const auto clusters_of_namespace = [this](const kube::Change& change) {
    std::vector<kube::ObjectKey> keys;
    if (!caches_) return keys;
    for (const Json& cluster : caches_->of(resources::slurm_clusters).list(kube::space_of(change.object()))) keys.push_back(kube::key_of(cluster));
    return keys;
  };
  // A NodeSet waits for its cluster also where that is not there.
  const auto cluster_of_set = [clusters_of_namespace](const kube::Change& change) {
    const std::string named = api::cluster_of_node_set(change.object());
    auto keys = clusters_of_namespace(change);
    if (const kube::ObjectKey key{kube::space_of(change.object()), named}; !named.empty() || keys.empty())
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
    return keys;
  };
  for (const auto& [resource, member] : observed()) {
    if (*resource == api::kNodeSets) out.push_back({*resource, options_.space, cluster_of_set});
    else if (*resource == resources::pods)
      out.push_back({*resource, options_.space, [this, clusters_of_namespace](const kube::Change& change) {
                       note_end(change);
                       return clusters_of_namespace(change);
                     }});
    else out.push_back({*resource, options_.space, clusters_of_namespace});
  }
  // Machines belong to no namespace: who may read one only does without them.
  if (options_.space.empty()) out.push_back({resources::nodes, "", [this](const kube::Change& change) { return clusters_on(change); }});
  return out;
}

// The last that was known of a worker's pod. Of one that was deleted by force, nothing is: its kubelet never reported its end.
void SlurmClusterController::note_end(const kube::Change& change) const {
  if (!caches_ || change.after || !change.before || !options_.space.empty()) return;
  const Json& pod = *change.before;
  if (pod["metadata"]["labels"][kRoleLabel].string() != text(Role::Worker)) return;
  const auto node = caches_->of(resources::nodes).get({"", pod["spec"]["nodeName"].string()});
  const auto proof = proof_of_death(pod, "slurmd", node ? &*node : nullptr);
  const std::lock_guard lock(mutex_);
  if (proof) ended_[kube::key_of(pod)] = *proof;
  else ended_.erase(kube::key_of(pod));
}

// Whose pods a machine has that came to life or was declared dead. Heartbeats change nothing here.
std::vector<kube::ObjectKey> SlurmClusterController::clusters_on(const kube::Change& change) const {
  std::vector<kube::ObjectKey> keys;
  if (!caches_ || !change.after) return keys;
  const auto shows = [](const Json& node) { return std::pair(kube::condition_is_true(node, "Ready"), kube::print_json(node["spec"]["taints"])); };
  if (change.before && shows(*change.before) == shows(*change.after)) return keys;
  const std::string name = kube::name_of(*change.after);
  std::set<std::string> spaces;
  caches_->of(resources::pods).each("", [&](const Json& pod) {
    if (pod["spec"]["nodeName"].string() == name && !pod["metadata"]["labels"][kClusterLabel].string().empty()) spaces.insert(kube::space_of(pod));
  });
  for (const auto& space : spaces)
    for (const Json& cluster : caches_->of(resources::slurm_clusters).list(space)) keys.push_back(kube::key_of(cluster));
  return keys;
}

std::optional<kube::Access> SlurmClusterController::access() const {
  const std::string& space = options_.space;
  return kube::Access()
      .may({"update", "patch"}, resources::slurm_clusters, "status", space)
      // The finalizer of a cluster whose accounting others use.
      .may({"update"}, resources::slurm_clusters, "", space)
      // Owner references that block deletion need this where that admission check is on (OwnerReferencesPermissionEnforcement).
      .may({"update"}, resources::slurm_clusters, "finalizers", space)
      .may({"create", "delete"}, resources::pods, "", space)
      .may({"get", "create"}, resources::pods, "exec", space)
      .may({"create", "update", "delete"}, resources::services, "", space)
      .may({"create", "update"}, resources::config_maps, "", space)
      .may({"create", "update", "delete"}, kNetworkPolicies, "", space)
      .may({"update"}, api::kNodeSets, "", space)
      .may({"update"}, api::kNodeSets, "status", space)
      .may({"create"}, resources::secrets, "", space)
      .may({"create", "update"}, resources::claims, "", space);
}

Result<kube::Next> SlurmClusterController::reconcile(const kube::ObjectKey& key) {
  auto cluster = caches_->of(resources::slurm_clusters).get(key);
  if (!cluster) {
    const std::lock_guard lock(mutex_);
    looked_.erase(key);
    configs_.erase(key);
    differs_.erase(key);
  }
  if (!cluster || kube::deleting(*cluster))
    if (auto done = leave_sets_alone(key); !done) return std::unexpected(std::move(done.error()));
  if (!cluster) return kube::Next{};
  Snapshot snapshot{.cluster = *cluster, .only_cluster = caches_->of(resources::slurm_clusters).list(key.space).size() == 1};
  for (const auto& [resource, member] : observed())
    for (Json& object : caches_->of(*resource).list(key.space)) {
      std::string name = kube::name_of(object);
      (snapshot.*member)[std::move(name)] = std::move(object);
    }
  snapshot.neighbours = neighbours_of(*cluster);
  if (options_.space.empty())
    for (const auto& [name, pod] : snapshot.pods) {
      const std::string& machine = pod["spec"]["nodeName"].string();
      if (machine.empty() || snapshot.nodes.contains(machine)) continue;
      if (auto node = caches_->of(resources::nodes).get({"", machine})) snapshot.nodes[machine] = std::move(*node);
    }
  {
    const std::lock_guard lock(mutex_);
    for (auto at = ended_.lower_bound({key.space, ""}); at != ended_.end() && at->first.space == key.space; ++at) snapshot.ended.emplace(at->first.name, at->second);
  }
  const Instant asked = clock_.now();
  snapshot.look_due = look_due(key, asked, action_look(*cluster).value_or(kRareLook));
  if (const auto at = wants_look(snapshot, options_.default_image, asked)) snapshot.view = look(*at);
  if (snapshot.view) {
    // Machines whose pods are gone, and whose slurmd Slurm still knows.
    for (const auto& [name, node] : snapshot.view->nodes)
      if (options_.space.empty() && !node.machine.empty() && !snapshot.nodes.contains(node.machine))
        if (auto machine = caches_->of(resources::nodes).get({"", node.machine})) snapshot.nodes[node.machine] = std::move(*machine);
    const std::lock_guard lock(mutex_);
    looked_[key] = asked;
  }
  if (const auto trial = wants_trial(snapshot, options_.objects, options_.default_image, asked)) snapshot.trial = try_config(*trial);
  snapshot.sets = see_sets(key, snapshot, asked);
  snapshot.sessions = see_sessions(wants_sessions(snapshot, options_.default_image));
  snapshot.munge_words = see_munge(key, snapshot, asked);
  see_configs(key, wants_configs(snapshot, options_.objects, options_.default_image, asked), (*cluster)["status"]["appliedConfigHash"].string(), asked, snapshot);
  const Plan plan = plan_reconcile(snapshot, options_.objects, options_.default_image, clock_.now());
  if (!plan.ends_known.empty()) {
    const std::lock_guard lock(mutex_);
    for (const auto& name : plan.ends_known)
      if (const auto found = ended_.find({key.space, name}); found != ended_.end() && found->second.of == snapshot.ended.at(name).of) ended_.erase(found);
  }
  if (plan.status.is_null()) return kube::Next{};

  // The status first: a step that fails again and again must not hide what is known.
  if (plan.status != (*cluster)["status"]) {
    Json next = *cluster;
    next.set("status", plan.status);
    auto written = api_.update_status(resources::slurm_clusters, next);
    if (!written) return pass(std::move(written.error()), "write status of SlurmCluster " + key.text());
    cluster->child("metadata").set("resourceVersion", kube::version_of(*written));
    cluster->set("status", plan.status);
  }
  std::optional<Error> refused;  // by Slurm: one worker's trouble does not hold up the others
  bool held = false, silent = false;  // the rest of this round's scale-down: out of date, or for a Slurm that does not answer
  for (const Step& step : plan.steps) {
    if (of_scale(step)) {
      if (held || (silent && std::holds_alternative<NodeStep>(step))) continue;
      if (auto may = still_wanted(step, *cluster, asked); !may) {
        held = may.error().code != Code::Conflict;
        log_info("slurm cluster step left out", {{"cluster", key.text()}, {"step", describe(step)}, {"reason", may.error().message}});
        continue;
      }
    }
    if (const auto* give = std::get_if<GiveConfig>(&step)) {
      // One worker's trouble does not hold up the others: it is tried again.
      auto given = give_config(*give);
      log_info("a worker is given its configuration", {{"cluster", key.text()}, {"worker", give->worker.name}, {"hash", give->hash}, {"result", given ? "done" : given.error().message}});
      const std::lock_guard lock(mutex_);
      differs_[key][give->uid] = {give->hash, clock_.now()};
      continue;
    }
    auto done = apply(step, *cluster);
    if (!done && std::holds_alternative<NodeStep>(step)) {
      if (const auto& tell = std::get<NodeStep>(step).tell; tell.verb == NodeVerb::Died && done.error().code == Code::Conflict) {
        const std::lock_guard lock(mutex_);
        ended_.erase({key.space, tell.node});  // its successor serves: there is nothing to tell any more
      }
      silent = done.error().code == Code::Unavailable;
      if (silent) log_info("slurm cluster step put off", {{"cluster", key.text()}, {"step", describe(step)}, {"reason", done.error().message}});
      else if (!refused || refused->code == Code::Conflict) refused = std::move(done.error()).in(describe(step));
      continue;
    }
    if (!done) {
      Error problem = std::move(done.error()).in(describe(step));
      // Stale or unanswered: tried again soon, nothing that a user could help with.
      const bool passing = problem.code == Code::Conflict || problem.code == Code::Unavailable || problem.code == Code::Expired;
      if (!passing)
        if (auto told = tell(*cluster, problem); !told) log_warn("slurm cluster status not written", {{"cluster", key.text()}, {"reason", told.error().message}});
      return std::unexpected(std::move(problem));
    }
    log_info("slurm cluster step", {{"cluster", key.text()}, {"step", describe(step)}});
  }
  if (held) return kube::Next{1s};
  const bool changed = refused && refused->code == Code::Conflict;
  if (refused && changed) log_info("slurm cluster step put off", {{"cluster", key.text()}, {"reason", refused->message}});
  if (auto told = tell(*cluster, changed ? std::nullopt : refused); !told) return pass(std::move(told.error()), "write status of SlurmCluster " + key.text());
  if (plan.look_again) return kube::Next{*plan.look_again};
  if (!plan.waiting_for.empty()) return kube::Next{30s};
  return kube::Next{kRareLook};
}

Result<void> SlurmClusterController::leave_sets_alone(const kube::ObjectKey& key) {
  for (const Json& set : caches_->of(api::kNodeSets).list(key.space)) {
    if (api::cluster_of_node_set(set) != key.name) continue;
    const SetStep next = plan_lonely_node_set(set, key.name, clock_.now());
    if (next.object == set) continue;
    auto done = next.finalizers ? api_.update(api::kNodeSets, next.object) : api_.update_status(api::kNodeSets, next.object);
    if (!done && done.error().code != Code::NotFound && done.error().code != Code::Conflict) return pass(std::move(done.error()), "NodeSet " + kube::key_of(set).text());
  }
  return {};
}

Neighbours SlurmClusterController::neighbours_of(const Json& cluster) const {
  Neighbours out{.readable = options_.space.empty()};
  if (!out.readable) return out;
  if (const auto named = host_of(cluster)) {
    if (auto host = caches_->of(resources::slurm_clusters).get({named->space, named->name})) out.host = std::move(*host);
    if (const auto key = caches_->of(resources::secrets).get({named->space, munge_secret_of(named->name)})) out.host_mark = munge_mark(*key);
  }
  for (Json& other : caches_->of(resources::slurm_clusters).list(""))
    if (const auto host = host_of(other); host && host->space == kube::space_of(cluster) && host->name == kube::name_of(cluster)) out.guests.push_back(std::move(other));
  return out;
}

// Not the caches: a word that was taken back a moment ago counts.
Result<std::map<std::string, std::string>> SlurmClusterController::copied_key(const Json& cluster, const api::ClusterRef& from) {
  auto host = api_.get(resources::slurm_clusters, {from.space, from.name});
  if (!host) return pass(std::move(host.error()), "read SlurmCluster " + from.text());
  auto guest = api_.get(resources::slurm_clusters, kube::key_of(cluster));
  if (!guest) return pass(std::move(guest.error()), "read SlurmCluster " + kube::key_of(cluster).text());
  if (kube::uid_of(*guest) != kube::uid_of(cluster) || host_of(*guest) != from || kube::deleting(*host) ||
      !shares_with(api::read_slurm_cluster(*host, options_.default_image), {kube::space_of(cluster), kube::name_of(cluster)}))
    return fail(Code::Conflict, from.text() + " shares its accounting with this cluster no more");
  auto secret = api_.get(resources::secrets, {from.space, munge_secret_of(from.name)});
  if (!secret) return pass(std::move(secret.error()), "read the key of " + from.text());
  auto key = parse_base64((*secret)["data"]["munge.key"].string());
  if (!key || key->empty()) return fail(Code::Unavailable, "Secret " + munge_secret_of(from.name) + " of " + from.text() + " holds no munge.key");
  return std::map<std::string, std::string>{{"munge.key", std::move(*key)}};
}

bool SlurmClusterController::look_due(const kube::ObjectKey& key, Instant now, std::chrono::nanoseconds often) {
  const std::lock_guard lock(mutex_);
  const auto last = looked_.find(key);
  return last == looked_.end() || now < last->second || now >= last->second + often;
}

Result<void> SlurmClusterController::still_wanted(const Step& step, const Json& cluster, Instant asked) {
  // Not the cache: between an edit and a cancelled job there may be no more than this.
  auto now = api_.get(resources::slurm_clusters, kube::key_of(cluster));
  if (!now) return fail(Code::Expired, "the cluster is not there to read: " + now.error().message);
  if (kube::uid_of(*now) != kube::uid_of(cluster) || kube::deleting(*now) || (*now)["metadata"]["generation"] != cluster["metadata"]["generation"])
    return fail(Code::Expired, "the cluster was edited since this was decided");
  const auto* node = std::get_if<NodeStep>(&step);
  const OfSet& of = node ? node->set : std::get<DeletePod>(step).set;
  if (!of.name.empty()) {
    auto set = api_.get(api::kNodeSets, {kube::space_of(cluster), of.name});
    if (!set) return fail(Code::Expired, "the NodeSet is not there to read: " + set.error().message);
    if ((*set)["metadata"]["generation"].integer() != of.generation) return fail(Code::Expired, "the NodeSet was edited since this was decided");
  }
  if (!node) {
    if (clock_.now() > asked + kFreshLook) return fail(Code::Conflict, "Slurm was asked too long ago");
    return {};
  }
  if (node->tell.verb == NodeVerb::Died) return still_dead(*node, kube::space_of(cluster));
  if (node->tell.verb != NodeVerb::Undrain && node->tell.verb != NodeVerb::Lift) return {};
  // Jobs would begin on a worker that has seconds to live.
  auto pod = api_.get(resources::pods, {kube::space_of(cluster), node->tell.node});
  if (!pod || kube::uid_of(*pod) != node->pod_uid || kube::deleting(*pod)) return fail(Code::Conflict, "its pod is ending or another one");
  return {};
}

Result<void> SlurmClusterController::still_dead(const NodeStep& step, const std::string& space) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = ended_.find({space, step.tell.node}); known != ended_.end() && known->second.ended == step.tell.arguments.at(0)) return {};
  }
  auto pod = api_.get(resources::pods, {space, step.tell.node});
  if (!pod || kube::uid_of(*pod) != step.pod_uid) return fail(Code::Conflict, "its pod is another one");
  // UID@MACHINE: of the pod that had the name before.
  const std::string of = step.tell.arguments.size() > 2 ? step.tell.arguments[2] : "";
  const auto at = of.find('@');
  const bool orphan = at != of.npos && at > 0 && at + 1 < of.size();
  auto node = api_.get(resources::nodes, {"", orphan ? of.substr(at + 1) : (*pod)["spec"]["nodeName"].string()});
  const auto proof = !node ? std::nullopt : orphan ? proof_of_orphan(*pod, of.substr(at + 1), &*node, clock_.now()) : proof_of_death(*pod, "slurmd", &*node);
  if (!proof || proof->ended != step.tell.arguments.at(0)) return fail(Code::Conflict, "that it is dead is not certain any more");
  return {};
}

std::optional<SlurmView> SlurmClusterController::look(const Look& at) {
  std::vector<std::string> command = {"/opt/fairlead/bin/fairlead-slurm", "nodes", "--port", std::to_string(at.slurmd_port)};
  if (!at.nodes.empty()) command.insert(command.end(), {"--nodes", at.nodes});
  auto ask = command;
  if (at.queue > 0) ask.insert(ask.end(), {"--queue", std::to_string(at.queue)});
  auto ran = api_.exec(at.head, "slurmctld", ask, "", 25s);
  // A head of an older version does not know of queues; what it says of nodes is as good as ever.
  if (at.queue > 0 && ran && ran->exit_code == 2) ran = api_.exec(at.head, "slurmctld", command, "", 25s);
  std::string why = !ran ? ran.error().message : ran->exit_code != 0 ? std::string(trim(ran->err)) : "";
  if (why.empty()) {
    auto view = read_slurm_view(ran->out);
    if (view) return std::move(*view);
    why = view.error().message;
  }
  log_info("what Slurm knows of its nodes is unknown", {{"head", at.head.text()}, {"reason", why}});
  return std::nullopt;
}

Result<void> SlurmClusterController::tell(Json& cluster, const std::optional<Error>& problem) {
  const Json* const before = kube::find_condition(cluster, "StepsTaken");
  if (!problem && (before == nullptr || (*before)["status"].string() == "True")) return {};
  const kube::Condition condition = problem ? kube::Condition{"StepsTaken", "False", "StepRefused", problem->message} : kube::Condition{"StepsTaken", "True", "Taken", "the API takes every step"};
  if (!kube::set_condition(cluster, condition, clock_.now())) return {};
  auto written = api_.update_status(resources::slurm_clusters, cluster);
  if (!written) return std::unexpected(std::move(written.error()));
  cluster.child("metadata").set("resourceVersion", kube::version_of(*written));
  return {};
}

// Not the cache: pods that it has not seen yet could be a majority beside this one.
Result<void> SlurmClusterController::may_vote(const Json& object) {
  if (object["kind"].string() != "Pod" || object["metadata"]["labels"][kRoleLabel].string() != text(Role::Controller)) return {};
  for (int i = 0; i < api::kMaxHeads; ++i) {
    auto there = api_.get(resources::pods, {kube::space_of(object), pod_name(Role::Controller, i)});
    if (!there && there.error().code == Code::NotFound) continue;
    if (!there) return fail(Code::Unavailable, "which heads are there is unknown: " + there.error().message);
    if ((*there)["metadata"]["labels"][kRoleLabel].string() != text(Role::Controller)) continue;  // of somebody else
    if (const auto why = votes_apart(object, *there)) return fail(Code::Unavailable, *why);
  }
  return {};
}

Result<void> SlurmClusterController::apply(const Step& step, Json& cluster) {
  if (const auto* create = std::get_if<Create>(&step)) {
    if (auto may = may_vote(create->object); !may) return may;
    auto done = api_.create(create->resource, create->object);
    // There already: made in an earlier round that this cache has not seen, or somebody else's, which the next look tells apart.
    if (!done && done.error().code != Code::Exists) return std::unexpected(std::move(done.error()));
    return {};
  }
  if (const auto* update = std::get_if<Update>(&step)) {
    auto done = api_.update(update->resource, update->object);
    if (!done) return std::unexpected(std::move(done.error()));
    return {};
  }
  if (const auto* status = std::get_if<WriteStatus>(&step)) {
    auto done = api_.update_status(status->resource, status->object);
    if (!done) return std::unexpected(std::move(done.error()));
    return {};
  }
  if (const auto* remove = std::get_if<Remove>(&step)) {
    auto done = api_.remove(remove->resource, remove->key, {.uid = remove->uid, .resource_version = remove->version});
    if (!done && done.error().code != Code::NotFound && done.error().code != Code::Conflict) return std::unexpected(std::move(done.error()));
    return {};
  }
  if (const auto* remove = std::get_if<DeletePod>(&step)) {
    kube::DeleteOptions options{.uid = remove->uid, .resource_version = remove->version};
    if (remove->forget) options.grace_seconds = 0;
    auto done = api_.remove(resources::pods, remove->key, options);
    if (!done && done.error().code != Code::NotFound && done.error().code != Code::Conflict) return std::unexpected(std::move(done.error()));
    return {};
  }
  if (const auto* make = std::get_if<MakeKeys>(&step)) {
    auto keys = make->copy_of ? copied_key(cluster, *make->copy_of) : make_keys_(make->keys, "fairlead-" + kube::name_of(cluster));
    if (!keys) return std::unexpected(std::move(keys.error()));
    Json data = Json::object();
    for (const auto& [name, bytes] : *keys) data.set(name, base64(bytes));
    auto done = api_.create(resources::secrets, Json::object({{"apiVersion", "v1"},
                                                              {"kind", "Secret"},
                                                              {"metadata", Json::object({{"name", make->secret},
                                                                                         {"namespace", kube::space_of(cluster)},
                                                                                         {"labels", Json::object({{"app.kubernetes.io/managed-by", "fairlead"}, {kClusterLabel, kube::name_of(cluster)}})},
                                                                                         {"ownerReferences", Json::array({kube::owner_reference(cluster)})}})},
                                                              {"type", "Opaque"},
                                                              {"data", std::move(data)}}));
    if (!done && done.error().code != Code::Exists) return std::unexpected(std::move(done.error()));
    return {};
  }
  if (const auto* node = std::get_if<NodeStep>(&step)) {
    std::vector<std::string> command = {"/opt/fairlead/bin/fairlead-slurm", std::string(text(node->tell.verb)), node->tell.node};
    command.insert(command.end(), node->tell.arguments.begin(), node->tell.arguments.end());
    auto ran = api_.exec(node->head, "slurmctld", command, "", 60s);
    if (!ran) return std::unexpected(std::move(ran.error()));
    if (ran->exit_code == 0) return {};
    // 3: the node is not as the plan supposed; the next look decides again. 4: Slurm does not answer.
    return fail(ran->exit_code == 3 ? Code::Conflict : ran->exit_code == 4 ? Code::Unavailable : Code::Invalid, std::string(trim(ran->err)));
  }
  return reconfigure(std::get<Reconfigure>(step), cluster);
}

Result<void> SlurmClusterController::give_config(const GiveConfig& give) {
  auto ran = api_.exec(give.worker, "slurmd", {"/opt/fairlead/bin/fairlead-slurm", "take-config", give.hash}, as_input(give.files), 10s);
  if (!ran) return std::unexpected(std::move(ran.error()));
  if (ran->exit_code != 0) return fail(Code::Unavailable, std::string(trim(ran->err)));
  return {};
}

Trial SlurmClusterController::try_config(const TrialWanted& wanted) {
  auto ran = api_.exec(wanted.head, "slurmctld", {"/opt/fairlead/bin/fairlead-slurm", "check-config"}, as_input(wanted.files), 40s);
  Trial trial{.hash = wanted.hash};
  if (!ran) trial.words = ran.error().message;
  else if (ran->exit_code == 0) trial.verdict = Verdict::Good;
  else {
    // 1: slurmctld refused. Anything else is no answer: a companion that does not know the command yet, a machine without memory for a second daemon.
    if (ran->exit_code == 1) trial.verdict = Verdict::Refused;
    trial.words = std::string(trim(ran->err));
  }
  log_info("configuration tried on the daemon", {{"head", wanted.head.text()}, {"hash", trial.hash}, {"result", trial.verdict == Verdict::Good ? "good" : trial.verdict == Verdict::Refused ? "refused" : "unknown"}, {"words", trial.words}});
  return trial;
}

std::optional<Json> SlurmClusterController::see_sets(const kube::ObjectKey& cluster, const Snapshot& snapshot, Instant now) {
  const auto pod = wants_sets(snapshot, options_.default_image);
  {
    const std::lock_guard lock(mutex_);
    auto& [at, known] = sets_[cluster];
    if (!pod) {
      sets_.erase(cluster);
      return std::nullopt;
    }
    if (at != Instant() && now >= at && now < at + kFreshSets) return known;  // also that it did not answer
  }
  std::optional<Json> seen;
  if (auto ran = api_.exec(*pod, "backup", {"/opt/fairlead/bin/fairlead-slurm", "sets"}, "", 5s); ran && ran->exit_code == 0)
    if (auto answer = kube::parse_json(ran->out); answer && answer->is_object()) seen = std::move(*answer);
  const std::lock_guard lock(mutex_);
  sets_[cluster] = {now, seen};
  return seen;
}

void SlurmClusterController::see_configs(const kube::ObjectKey& cluster, const std::vector<ConfigOf>& pods, const std::string& hash, Instant now, Snapshot& into) {
  const std::size_t count = std::min(pods.size(), kSeenAtOnce);
  std::vector<std::string> seen(count);
  std::atomic<std::size_t> next = 0;
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < std::min(count, kAskers); ++i)
      threads.emplace_back([&] {
        for (std::size_t at = next++; at < count; at = next++) {
          auto ran = api_.exec(pods[at].pod, pods[at].container, {"/opt/fairlead/bin/fairlead-slurm", "generation"}, "", 5s);
          if (ran && ran->exit_code == 0) seen[at] = std::string(trim(ran->out));
        }
      });
  }
  const std::lock_guard lock(mutex_);
  auto& known = configs_[cluster];
  if (known.size() > 4 * kSeenAtOnce + 2 * pods.size()) known.clear();  // pods that are long gone; the others are asked once more
  for (std::size_t i = 0; i < count; ++i)
    if (!seen[i].empty()) known[pods[i].uid] = seen[i];
  into.seen_configs = known;
  std::map<std::string, Differs> differ;
  for (std::size_t i = 0; i < count; ++i)
    if (!seen[i].empty() && seen[i] != hash) {
      const auto before = differs_[cluster].find(pods[i].uid);
      differ[pods[i].uid] = before != differs_[cluster].end() && before->second.hash == hash ? before->second : Differs{hash, now};
      into.other_configs[pods[i].uid] = differ[pods[i].uid].since;
    }
  differs_[cluster] = std::move(differ);
}

std::map<std::string, Sessions> SlurmClusterController::see_sessions(const std::vector<ConfigOf>& pods) {
  const std::size_t count = std::min(pods.size(), kAskers);
  std::vector<std::optional<Sessions>> said(count);
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < count; ++i)
      threads.emplace_back([&, i] {
        auto ran = api_.exec(pods[i].pod, pods[i].container, {"/opt/fairlead/bin/fairlead-slurm", "sessions"}, "", 5s);
        if (ran && ran->exit_code == 0) said[i] = read_sessions(ran->out);
      });
  }
  std::map<std::string, Sessions> out;
  for (std::size_t i = 0; i < count; ++i)
    if (said[i]) out[pods[i].uid] = std::move(*said[i]);
  return out;
}

std::map<std::string, MungeWord> SlurmClusterController::see_munge(const kube::ObjectKey& cluster, const Snapshot& snapshot, Instant now) {
  const auto ask = wants_munge_words(snapshot, options_.default_image, now);
  {
    const std::lock_guard lock(mutex_);
    if (!ask) {
      munge_words_.erase(cluster);
      return {};
    }
    const auto known = munge_words_.find(cluster);
    if (known != munge_words_.end() && now >= known->second.first && now < known->second.first + kAskMungeAgain) return known->second.second;
  }
  if (ask->workers.empty()) return {};
  std::map<std::string, MungeWord> out;
  std::vector<std::optional<MungeWord>> said(ask->workers.size());
  // Whoever reads the credential has the key that makes such; it goes nowhere else.
  if (const auto made = api_.exec(ask->head, "munge", {"munge", "-n"}, "", 3s); made && made->exit_code == 0 && made->out.size() < 4096) {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < ask->workers.size(); ++i)
      threads.emplace_back([&, i] {
        // It ends with a status of its own where it refuses.
        if (auto ran = api_.exec(ask->workers[i].pod, ask->workers[i].container, {"unmunge"}, made->out, 3s)) said[i] = read_munge_word(ran->out.empty() ? ran->err : ran->out);
      });
  }
  for (std::size_t i = 0; i < said.size(); ++i)
    if (said[i]) out[ask->workers[i].uid] = std::move(*said[i]);
  const std::lock_guard lock(mutex_);
  munge_words_[cluster] = {now, out};
  return out;
}

Result<void> SlurmClusterController::reconfigure(const Reconfigure& reload, Json& cluster) {
  const auto run = [&](const kube::ObjectKey& head, std::vector<std::string> more) {
    std::vector<std::string> command = {"/opt/fairlead/bin/fairlead-slurm"};
    command.insert(command.end(), more.begin(), more.end());
    return api_.exec(head, "slurmctld", command, "", 400s);  // the sum of its own limits
  };
  // A head that is made to serve reads its own copy, which must be there by then.
  if (reload.restart)
    for (const auto& other : reload.others) {
      auto ran = run(other, {"await", reload.hash});
      if (!ran) return std::unexpected(std::move(ran.error()));
      if (ran->exit_code != 0) return fail(Code::Unavailable, fmt::format("{} has not got configuration {}: {}", other.name, reload.hash, trim(ran->err)));
    }
  // From here on nobody knows what the nodes have, until the end is written down, which may fail: an edit in the meantime that asks for the earlier configuration again must tell them, too.
  if (const std::string& applied = cluster["status"]["appliedConfigHash"].string(); !applied.empty() && applied != reload.hash && applied != api::kNoConfig) {
    auto noted = api_.patch(resources::slurm_clusters, kube::key_of(cluster), kube::PatchType::Merge,
                            Json::object({{"metadata", Json::object({{"resourceVersion", kube::version_of(cluster)}})}, {"status", Json::object({{"appliedConfigHash", api::kNoConfig}})}}), "status");
    if (!noted) return std::unexpected(std::move(noted.error()));
    cluster.child("metadata").set("resourceVersion", kube::version_of(*noted));
    cluster.set("status", (*noted)["status"]);
  }
  // The companion waits until the mounted files show the hash, then reloads unless the daemon was started with them.
  std::vector<std::string> command = {"reconfigure", reload.hash};
  if (reload.always) command.push_back("--always");
  if (reload.restart) command.push_back("--restart");
  auto ran = run(reload.head, std::move(command));
  if (!ran) return std::unexpected(std::move(ran.error()));
  Json patch = Json::object({{"metadata", Json::object({{"resourceVersion", kube::version_of(cluster)}})}, {"status", Json::object({{"appliedConfigHash", reload.hash}})}});
  if (!reload.term.empty()) patch.child("status").set("appliedConfigTerm", reload.term);
  std::string refused;
  if (ran->exit_code == kWentDown) {
    refused = trim(ran->err);
    const std::string image = api::read_slurm_cluster(cluster, options_.default_image).controller.main.image;
    // Whatever the nodes were told of: they are to be told anew.
    patch.set("status", Json::object({{"appliedConfigHash", api::kNoConfig}, {"configCheck", gone_down(reload.hash, image, refused)}}));
  } else if (ran->exit_code == kHandedOver) {
    return fail(Code::Unavailable, "another head takes over with configuration " + reload.hash);
  } else if (ran->exit_code != 0) {
    return fail(Code::Unavailable, "slurmctld did not take configuration " + reload.hash + ": " + ran->err);
  }
  auto done = api_.patch(resources::slurm_clusters, kube::key_of(cluster), kube::PatchType::Merge, patch, "status");
  if (!done) return std::unexpected(std::move(done.error()));
  cluster.child("metadata").set("resourceVersion", kube::version_of(*done));
  cluster.set("status", (*done)["status"]);
  if (!refused.empty()) return fail(Code::Unavailable, "slurmctld went down with configuration " + reload.hash + ": " + refused);
  return {};
}

}  // namespace fairlead::slurm
