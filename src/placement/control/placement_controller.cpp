// SPDX-License-Identifier: Apache-2.0
#include "placement/control/placement_controller.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <span>
#include <thread>

#include "base/log.h"
#include "kube/many.h"

namespace fairlead::placement {
namespace {

using kube::Json;
using kube::ObjectKey;

const ObjectKey all{"", "all"};
const kube::Resource budgets{"policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", true};
const kube::Resource classes{"storage.k8s.io", "v1", "storageclasses", "StorageClass", false};
const kube::Resource volume_pools{"fairlead.dev", "v1alpha1", "volumepools", "VolumePool", false};
const kube::Resource snapshots{"fairlead.dev", "v1alpha1", "snapshots", "Snapshot", false};
constexpr std::size_t most_events_waiting = 20'000;
constexpr std::size_t writes_at_once = 500;  // bindings, events: together they wait for the disk
constexpr std::string_view selected_node = "volume.kubernetes.io/selected-node";

using PodView = std::shared_ptr<const Pod>;
PodView view_of(const std::optional<Json>& object) { return object ? std::make_shared<const Pod>(read_pod(*object)) : nullptr; }

// A pod matters when it waits, or when it takes or gives back room. Its heartbeat of status changes does not.
bool pod_matters(const kube::Change& change, const PodView& after) {
  const auto weight = [](const std::optional<Json>& object, PodView view) {
    if (!object) return std::string();
    const Json& pod = *object;
    const std::string& phase = pod["status"]["phase"].string();
    const std::string& node = pod["spec"]["nodeName"].string();
    const bool finished = phase == "Succeeded" || phase == "Failed";
    if (!node.empty()) return finished ? std::string() : "on " + node + (kube::deleting(pod) ? " leaving" : "");
    if (!view) view = view_of(object);
    return pending(*view) ? "waits " + kube::version_of(pod) : std::string();
  };
  return weight(change.before, nullptr) != weight(change.after, after);
}

bool node_matters(const kube::Change& change) { return !change.before || !change.after || !(read_node(*change.before) == read_node(*change.after)); }

bool labels_matter(const kube::Change& change) { return !change.before || !change.after || kube::labels_of(*change.before) != kube::labels_of(*change.after); }

// Conditions of pods do not say which generation they are about.
bool set_pod_condition(Json& pod, const kube::Condition& condition, Instant now) {
  const bool changed = kube::set_condition(pod, condition, now);
  for (Json& one : pod.child("status").child("conditions").items()) one.erase("observedGeneration");
  return changed;
}

// What may be disrupted changes often, and is looked at only when somebody waits anyway.
bool never_matters(const kube::Change&) { return false; }
bool always_matters(const kube::Change&) { return true; }

PoolView read_pool(const Json& pool) {
  PoolView out;
  const auto limit = kube::Quantity::from_json(pool["status"]["limit"]), promised = kube::Quantity::from_json(pool["status"]["promised"]);
  if (limit && promised) out.left = std::max<std::int64_t>(0, limit->value() - promised->value());
  for (const Json& one : pool["status"]["classes"].items()) out.classes.push_back(one.string());
  return out;
}
// Each heartbeat is written there, too.
bool pool_matters(const kube::Change& change) { return !change.before || !change.after || read_pool(*change.before) != read_pool(*change.after); }
bool is_new_or_gone(const kube::Change& change) { return !change.before || !change.after; }

Claim read_claim(const Json& json, const kube::Reader* storage) {
  Claim out{.key = kube::key_of(json), .bound = json["status"]["phase"].string() == "Bound", .waits_for_pod = false, .pool = json["metadata"]["annotations"]["fairlead.dev/pool"].string(), .wants_pool = false, .classes = {}, .deleting = kube::deleting(json)};
  const std::string& name = json["spec"]["storageClassName"].string();
  if (!out.bound && !name.empty() && storage != nullptr) {
    const auto of = storage->get({"", name});
    out.waits_for_pod = of && (*of)["volumeBindingMode"].string() == "WaitForFirstConsumer";
    out.wants_pool = out.waits_for_pod && (*of)["provisioner"].string() == "csi.fairlead.dev";
    if (out.wants_pool) {
      out.pool = (*of)["parameters"]["pool"].string();
      // As the provisioner does (api::choose_pool_and_class).
      const Json& parameters = (*of)["parameters"];
      const auto asks = [&](const char* key) { return !parameters[key].string().empty() && parameters[key].string() != "0"; };
      const bool engine = parameters["encrypted"].string() == "true" || asks("iops") || asks("throughput");
      if (const std::string& klass = parameters["class"].string(); !klass.empty()) out.classes = {klass};
      else out.classes = {engine ? "local-managed" : "local-fast", "distributed"};
      const Json& source = json["spec"].has("dataSourceRef") ? json["spec"]["dataSourceRef"] : json["spec"]["dataSource"];
      if (source["kind"].string() == "PersistentVolumeClaim") out.source_claim = source["name"].string();
      if (source["kind"].string() == "Snapshot") out.source_snapshot = source["name"].string();
    }
    // Of one whose node was chosen the volume may be there already, and counted by its pool.
    if (const auto bytes = kube::Quantity::from_json(json["spec"]["resources"]["requests"]["storage"]); bytes && out.wants_pool && json["metadata"]["annotations"][selected_node].string().empty()) out.bytes = bytes->value();
  }
  return out;
}

template <class T>
using Kept = std::map<ObjectKey, std::shared_ptr<const T>>;

template <class T, class Read>
void refresh_one(Kept<T>& kept, const kube::Reader& reader, const ObjectKey& key, const Read& read) {
  if (const auto json = reader.get(key)) {
    kept[key] = std::make_shared<const T>(read(*json));
  } else {
    kept.erase(key);
  }
}

// Whether placement may ever look at it: the rest (what has ended, what others place) is not remembered.
bool concerns_us(const Pod& pod) { return !pod.finished && (!pod.node.empty() || pod.ours); }

template <class T>
std::vector<const T*> pointers(const Kept<T>& kept) {
  std::vector<const T*> out;
  out.reserve(kept.size());
  for (const auto& [key, value] : kept) out.push_back(value.get());
  return out;
}

}  // namespace

// The objects as placement sees them, read again when they change. Changes only mark what to read: the caches are the truth. Pods are many and big, so that theirs are read from the change:
// once the first refresh() has read the caches, changes of pods come from one thread in their order, and the last one is what the cache has.
struct PlacementController::Views {
  enum Of { Pods, Nodes, BudgetsOf, Namespaces, Claims, Classes, VolumePools, Snapshots };
  std::mutex mutex;  // guards the following three
  std::set<std::pair<int, ObjectKey>> changed;
  std::map<ObjectKey, PodView> changed_pods;  // null: gone
  bool all_changed = true;

  const kube::Reader* readers[8] = {};
  Kept<Pod> pods;
  Kept<Node> nodes;
  Kept<Budget> budgets;
  Kept<Claim> claims;
  Spaces spaces;
  Pools pools;
  SnapshotPools snapshots;

  void take(const ObjectKey& key, PodView pod) {
    if (pod && concerns_us(*pod)) {
      pods[key] = std::move(pod);
    } else {
      pods.erase(key);
    }
  }
  void read(int of, const ObjectKey& key) {
    const kube::Reader& reader = *readers[of];
    if (of == Pods) take(key, view_of(reader.get(key)));
    if (of == Nodes) refresh_one(nodes, reader, key, read_node);
    if (of == BudgetsOf) refresh_one(budgets, reader, key, read_budget);
    if (of == Claims) refresh_one(claims, reader, key, [&](const Json& json) { return read_claim(json, readers[Classes]); });
    if (of == VolumePools) {
      if (const auto json = reader.get(key)) pools[key.name] = read_pool(*json);
      else pools.erase(key.name);
    }
    if (of == Snapshots) {
      if (const auto json = reader.get(key)) snapshots[key.name] = (*json)["spec"]["pool"].string();
      else snapshots.erase(key.name);
    }
    if (of == Namespaces) {
      if (const auto json = reader.get(key)) spaces[key.name] = kube::labels_of(*json);
      else spaces.erase(key.name);
    }
  }
};

PlacementController::PlacementController(kube::KubeApi& api, const Clock& clock, PlacementOptions options)
    : api_(api), clock_(clock), options_(options), events_(api, clock, "fairlead-placement"), views_(std::make_unique<Views>()), aside_(options.events_aside ? std::make_unique<Aside<Place>>(most_events_waiting, writes_at_once, [this](const std::vector<Place>& places) { tell_placed(places); }) : nullptr) {}

PlacementController::~PlacementController() = default;

std::vector<kube::Controller::Source> PlacementController::sources() const {
  const auto pods = [views = views_.get()](const kube::Change& change) {
    PodView after = view_of(change.after);
    const bool matters = pod_matters(change, after);
    {
      const std::lock_guard lock(views->mutex);
      if (!views->all_changed) views->changed_pods[kube::key_of(change.object())] = std::move(after);
    }
    return matters ? std::vector<ObjectKey>{all} : std::vector<ObjectKey>{};
  };
  const auto source = [this](const kube::Resource& resource, int of, bool (*matters)(const kube::Change&)) {
    return Source{resource, "", [views = views_.get(), of, matters](const kube::Change& change) {
                    {
                      const std::lock_guard lock(views->mutex);
                      views->changed.emplace(of, kube::key_of(change.object()));
                    }
                    return matters(change) ? std::vector<ObjectKey>{all} : std::vector<ObjectKey>{};
                  }};
  };
  std::vector<Source> out{{kube::resources::pods, "", pods}, source(kube::resources::nodes, Views::Nodes, node_matters),
                          source(budgets, Views::BudgetsOf, never_matters), source(kube::resources::namespaces, Views::Namespaces, labels_matter)};
  if (options_.claims) {
    out.push_back(source(kube::resources::claims, Views::Claims, always_matters));
    out.push_back(source(classes, Views::Classes, always_matters));
  }
  if (options_.pools) {
    out.push_back(source(volume_pools, Views::VolumePools, pool_matters));
    out.push_back(source(snapshots, Views::Snapshots, is_new_or_gone));
  }
  return out;
}

void PlacementController::start(const kube::Caches& caches) {
  pods_ = &caches.of(kube::resources::pods);
  views_->readers[Views::Pods] = pods_;
  views_->readers[Views::Nodes] = &caches.of(kube::resources::nodes);
  views_->readers[Views::BudgetsOf] = &caches.of(budgets);
  views_->readers[Views::Namespaces] = &caches.of(kube::resources::namespaces);
  if (options_.pools) {
    views_->readers[Views::VolumePools] = &caches.of(volume_pools);
    views_->readers[Views::Snapshots] = &caches.of(snapshots);
  }
  if (!options_.claims) return;
  views_->readers[Views::Claims] = &caches.of(kube::resources::claims);
  views_->readers[Views::Classes] = &caches.of(classes);
}

void PlacementController::refresh() {
  std::set<std::pair<int, ObjectKey>> changed;
  std::map<ObjectKey, PodView> changed_pods;
  bool everything = false;
  {
    const std::lock_guard lock(views_->mutex);
    changed.swap(views_->changed);
    changed_pods.swap(views_->changed_pods);
    everything = std::exchange(views_->all_changed, false);
  }
  const auto add_all = [&](int of) {
    if (views_->readers[of] == nullptr) return;
    views_->readers[of]->each("", [&](const Json& json) { changed.emplace(of, kube::key_of(json)); });
  };
  if (everything)
    for (const int of : {Views::Pods, Views::Nodes, Views::BudgetsOf, Views::Namespaces, Views::Claims, Views::VolumePools, Views::Snapshots}) add_all(of);
  // How a claim binds is written in its class.
  const bool class_changed = std::any_of(changed.begin(), changed.end(), [](const auto& one) { return one.first == Views::Classes; });
  if (class_changed && !everything) add_all(Views::Claims);
  for (const auto& [of, key] : changed)
    if (of != Views::Classes) views_->read(of, key);
  for (auto& [key, pod] : changed_pods) views_->take(key, std::move(pod));
}

std::optional<Error> PlacementController::each(std::size_t count, const std::function<Result<void>(std::size_t)>& act) const {
  std::mutex mutex;
  std::optional<Error> first;
  std::size_t first_at = 0;
  std::atomic<std::size_t> next{0};
  // One refused write does not keep the others from their places; the first error brings us back.
  const auto work = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      auto done = act(i);
      if (done) continue;
      const std::lock_guard lock(mutex);
      if (first && first_at < i) continue;
      first = std::move(done.error());
      first_at = i;
    }
  };
  {
    std::vector<std::jthread> others;
    for (int i = 1; i < options_.writers && static_cast<std::size_t>(i) < count; ++i) others.emplace_back(work);
    work();
  }
  return first;
}

Result<kube::Next> PlacementController::reconcile(const ObjectKey&) {
  refresh();
  if (auto settled = settle_bindings(); !settled) return std::unexpected(std::move(settled.error()));
  const Plan todo = plan();
  std::map<ObjectKey, std::string> nominated;
  for (const Preempt& preempt : todo.preempts) nominated[preempt.pod] = preempt.node;
  std::optional<Error> first = bind_all(todo.places);
  const auto note = [&](std::optional<Error> error) {
    if (!first) first = std::move(error);
  };
  note(each(todo.claims.size(), [&](std::size_t i) { return choose(todo.claims[i]); }));
  // A pod is nominated before anybody leaves for it, so that a restart between the two finds whose room it is.
  note(each(todo.waits.size(), [&](std::size_t i) {
    const Wait& wait = todo.waits[i];
    const auto node = nominated.find(wait.pod);
    const bool being_made = wait.preemption.ends_with("a terminating pod on the nominated node.");
    return tell(wait, node != nominated.end() ? std::optional(node->second) : being_made ? std::nullopt : std::optional<std::string>(""));
  }));
  note(each(todo.preempts.size(), [&](std::size_t i) { return make_room(todo.preempts[i]); }));
  if (first) return std::unexpected(std::move(*first));
  return kube::Next{};
}

Result<void> PlacementController::settle_bindings() {
  for (auto it = bound_.begin(); it != bound_.end();) {
    Bound& bound = it->second;
    const auto cached = views_->pods.find(bound.key);
    bool over = cached == views_->pods.end() || cached->second->uid != it->first || !cached->second->node.empty();
    if (!over && !bound.sure) {
      auto now = api_.get(kube::resources::pods, bound.key);
      if (!now && now.error().code != Code::NotFound) return pass(std::move(now.error()), "ask where pod " + bound.key.text() + " is");
      over = !now || kube::uid_of(*now) != it->first || (*now)["spec"]["nodeName"].string().empty();
      if (!over) {
        bound.node = (*now)["spec"]["nodeName"].string();
        bound.sure = true;
      }
    }
    it = over ? bound_.erase(it) : std::next(it);
  }
  return {};
}

Plan PlacementController::plan() const {
  View view{.nodes = pointers(views_->nodes), .pods = pointers(views_->pods), .budgets = pointers(views_->budgets), .claims = pointers(views_->claims),
            .claims_known = options_.claims, .spaces = &views_->spaces, .pools = &views_->pools, .snapshots = &views_->snapshots};
  std::vector<std::unique_ptr<Pod>> bound;  // pods whose binding the caches do not show
  for (const Pod*& pod : view.pods) {
    const auto found = pod->node.empty() ? bound_.find(pod->uid) : bound_.end();
    if (found == bound_.end()) continue;
    bound.push_back(std::make_unique<Pod>(*pod));
    bound.back()->node = found->second.node;
    pod = bound.back().get();
  }
  return plan_placement(view);
}

std::optional<Error> PlacementController::bind_all(const std::vector<Place>& places) {
  std::optional<Error> first;
  for (std::size_t from = 0; from < places.size(); from += writes_at_once) {
    const auto some = std::span(places).subspan(from, std::min(writes_at_once, places.size() - from));
    std::vector<kube::Posting> bindings;
    for (const Place& place : some)
      bindings.push_back({place.pod, Json::object({
                                         {"apiVersion", "v1"},
                                         {"kind", "Binding"},
                                         {"metadata", Json::object({{"name", place.pod.name}, {"namespace", place.pod.space}, {"uid", place.uid}})},
                                         {"target", Json::object({{"apiVersion", "v1"}, {"kind", "Node"}, {"name", place.node}})},
                                     })});
    auto done = kube::post_all(api_, kube::resources::pods, "binding", std::move(bindings));
    std::vector<Place> bound;
    // One refused write does not keep the others from their places.
    for (std::size_t i = 0; i < some.size(); ++i) {
      if (done[i]) bound.push_back(some[i]);
      if (auto noted = note_binding(some[i], std::move(done[i])); !noted && !first) first = std::move(noted.error());
    }
    if (aside_) aside_->add(std::move(bound));
    else tell_placed(bound);
  }
  return first;
}

Result<void> PlacementController::note_binding(const Place& place, Result<void> done) {
  if (!done) {
    if (done.error().code == Code::NotFound) return {};  // the pod went away meanwhile
    if (done.error().code == Code::Unavailable) bound_[place.uid] = {place.pod, place.node, false};
    return pass(std::move(done.error()), fmt::format("bind pod {} to {}", place.pod.text(), place.node));
  }
  bound_[place.uid] = {place.pod, place.node, true};
  log_info("pod placed", {{"pod", place.pod.text()}, {"node", place.node}});
  return {};
}

void PlacementController::tell_placed(const std::vector<Place>& places) {
  std::vector<EventWriter::Note> notes;
  for (const Place& place : places)
    notes.push_back({Json::object({{"metadata", Json::object({{"name", place.pod.name}, {"namespace", place.pod.space}, {"uid", place.uid}})}}), EventKind::Normal, "Scheduled",
                     fmt::format("Successfully assigned {} to {}", place.pod.text(), place.node)});
  events_.write_all(kube::resources::pods, notes);
}

Result<void> PlacementController::choose(const ChooseNode& choice) {
  const Json patch = Json::object({{"metadata", Json::object({{"annotations", Json::object({{std::string(selected_node), choice.node}})}})}});
  auto done = api_.patch(kube::resources::claims, choice.claim, kube::PatchType::Merge, patch);
  if (!done && done.error().code != Code::NotFound) return pass(std::move(done.error()), "choose a node for claim " + choice.claim.text());
  return {};
}

Result<void> PlacementController::make_room(const Preempt& preempt) {
  for (const Preempt::Victim& victim : preempt.victims) {
    auto pod = pods_->get(victim.pod);
    if (!pod || kube::uid_of(*pod) != victim.uid || kube::deleting(*pod)) continue;
    const Json before = *pod;
    const kube::Condition why{.type = "DisruptionTarget", .status = "True", .reason = "PreemptionByScheduler", .message = "default-scheduler: preempting to accommodate a higher priority pod"};
    if (set_pod_condition(*pod, why, clock_.now())) {
      auto told = api_.update_status(kube::resources::pods, *pod);
      if (!told && told.error().code != Code::NotFound) return pass(std::move(told.error()), "tell pod " + victim.pod.text() + " that it must leave");
    }
    auto removed = api_.remove(kube::resources::pods, victim.pod, {.uid = victim.uid});
    if (!removed && removed.error().code != Code::NotFound && removed.error().code != Code::Conflict)
      return pass(std::move(removed.error()), fmt::format("move pod {} off node {}", victim.pod.text(), preempt.node));
    log_info("pod preempted", {{"pod", victim.pod.text()}, {"by", preempt.pod.text()}, {"node", preempt.node}});
    events_.write(kube::resources::pods, before, EventKind::Normal, "Preempted", fmt::format("Preempted by pod {} on node {}", preempt.uid, preempt.node));
  }
  return {};
}

// `nominate`: the node where room is made for it, "" if nowhere; nothing: stays as it is.
Result<void> PlacementController::tell(const Wait& wait, const std::optional<std::string>& nominate) {
  auto pod = pods_->get(wait.pod);
  if (!pod || kube::uid_of(*pod) != wait.uid) return {};
  const Json before = *pod;
  const std::string why = wait.preemption.empty() ? wait.why : wait.why + " " + wait.preemption;
  const bool changed = set_pod_condition(*pod, {.type = "PodScheduled", .status = "False", .reason = "Unschedulable", .message = why}, clock_.now());
  const bool moved = nominate && before["status"]["nominatedNodeName"].string() != *nominate;
  if (moved && !nominate->empty()) pod->child("status").set("nominatedNodeName", *nominate);
  if (moved && nominate->empty()) pod->child("status").erase("nominatedNodeName");
  if (!changed && !moved) return {};
  // Carries the version it was decided on: a newer pod comes back as a change and is looked at again.
  auto done = api_.update_status(kube::resources::pods, *pod);
  if (!done) {
    if (done.error().code == Code::NotFound) return {};
    return pass(std::move(done.error()), "tell pod " + wait.pod.text() + " why it waits");
  }
  log_info("pod waits", {{"pod", wait.pod.text()}, {"why", why}});
  events_.write(kube::resources::pods, before, EventKind::Warning, "FailedScheduling", why);
  return {};
}

}  // namespace fairlead::placement
