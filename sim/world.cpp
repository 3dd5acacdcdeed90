// SPDX-License-Identifier: Apache-2.0
#include "sim/world.h"

#include <fmt/format.h>

#include "api/crds.h"
#include "placement/control/node_lifecycle_controller.h"
#include "placement/control/placement_controller.h"
#include "fleet/control/machine_controller.h"
#include "kube/fenced_api.h"
#include "slurm/control/slurm_cluster_controller.h"

namespace fairlead::sim {

using kube::Json;

namespace {
constexpr Instant kBeginning{std::chrono::seconds(1'800'000'000)};  // 2027-01-15
}

struct World::Running {
  std::unique_ptr<kube::Controller> controller;
  kube::WorkQueue queue;
  std::vector<kube::Controller::Source> sources;
};

struct World::Guarded {
  Guarded(kube::KubeApi& api, kube::Access access) : checked(api, std::move(access)) {}
  kube::CheckedApi checked;
  kube::FencedApi fenced{checked, []() -> Result<std::int64_t> { return 1; }};
};

struct World::Feed {
  std::shared_ptr<const apiserver::Kind> kind;
  kube::Cache cache;
  std::deque<kube::WatchEvent> waiting;
  std::unique_ptr<apiserver::Subscription> subscription;
};

World::World(WorldOptions options) : clock_(kBeginning), rng_(options.seed), names_(options.seed ^ 0x5eed), store_(apiserver::make_memory_store()), host_(clock_) {
  apiserver::RegistryOptions registry_options;
  registry_options.secret_key = std::string(32, 'k');
  registry_options.random = [this](std::size_t count) {
    std::string bytes(count, '\0');
    for (char& byte : bytes) byte = static_cast<char>(names_.next());
    return bytes;
  };
  auto opened = apiserver::Registry::open(*store_, clock_, std::move(registry_options));
  INVARIANT(opened);
  registry_ = std::move(*opened);
  // Commands inside containers succeed; what they do is simulated for the workers that Slurm knows, and for nothing else.
  api_ = apiserver::make_local_api(*registry_, [this](const kube::Json& pod, const std::string&, const std::vector<std::string>& command, const std::string&, std::chrono::milliseconds) -> Result<kube::ExecResult> {
    return companion(kube::space_of(pod), command);
  });
  for (const Json& crd : api::crds()) {
    auto made = api_->create(kube::resources::crds, crd);
    INVARIANT(made);
  }
  host_.on_step = [this](const std::string& name, fleet::Step step) { node_changed(name, step); };
}

World::~World() {
  for (auto& [resource, feed] : feeds_) feed->subscription.reset();
}

std::set<std::string> World::register_workers() {
  auto pods = api_->list(kube::resources::pods, "");
  INVARIANT(pods);
  std::set<std::string> alive;
  for (const Json& pod : pods->items)
    if (kube::name_of(pod).starts_with("worker-") && kube::condition_is_true(pod, "Ready")) alive.insert(kube::key_of(pod).text());
  for (const auto& name : alive) slurm_nodes_.emplace(name, "");
  return alive;
}

const std::map<std::string, std::string>& World::slurm_nodes() {
  register_workers();
  return slurm_nodes_;
}

kube::ExecResult World::companion(const std::string& space, const std::vector<std::string>& command) {
  const std::string verb = command.size() > 1 ? command[1] : "", node = space + "/" + (command.size() > 2 ? command[2] : "");
  if (verb == "drain") slurm_nodes_[node] = command.at(3);
  if (verb == "undrain") slurm_nodes_[node].clear();
  if (verb == "forget") slurm_nodes_.erase(node);
  if (verb != "nodes") return {};
  const auto alive = register_workers();
  Json list = Json::array();
  for (const auto& [name, reason] : slurm_nodes_) {
    if (!name.starts_with(space + "/")) continue;
    Json state = Json::array({Json(alive.contains(name) ? "IDLE" : "DOWN")});
    if (!reason.empty()) state.push("DRAIN");
    list.push(Json::object({{"name", name.substr(space.size() + 1)}, {"state", std::move(state)}, {"cpus", 0}, {"reason", reason}, {"by", "root"}, {"slurmd", alive.contains(name)}}));
  }
  return {.out = kube::print_json(Json::object({{"answered", true}, {"at", print_micro_time(clock_.now())}, {"nodes", std::move(list)}, {"jobs", Json::array()}}))};
}

void World::note(std::string line) { trace_.push_back(fmt::format("{:>10.3f} {}", std::chrono::duration<double>(clock_.monotonic()).count(), line)); }

void World::add(std::unique_ptr<kube::Controller> controller) {
  auto sources = controller->sources();
  controllers_.push_back(std::make_unique<Running>(Running{std::move(controller), kube::WorkQueue(Rng(rng_.next())), std::move(sources)}));
}

// `make` builds the controller over an API. A first one, on the bare API, is only asked what it declares.
template <class Make>
void World::add_guarded(Make make) {
  guarded_.push_back(std::make_unique<Guarded>(*api_, kube::full_access(*make(*api_))));
  add(make(guarded_.back()->fenced));
}

std::vector<std::string> World::refusals() const {
  std::vector<std::string> all;
  for (const auto& one : guarded_)
    for (auto& refusal : one->checked.refusals()) all.push_back(std::move(refusal));
  return all;
}

void World::add_all_controllers() {
  add(std::make_unique<placement::PlacementController>(*api_, clock_));
  add(std::make_unique<placement::NodeLifecycleController>(*api_, clock_));
  add_guarded([this](kube::KubeApi& api) { return std::make_unique<fleet::MachineController>(api, host_, clock_); });
  // Keys are made by counting: chance would break equal traces.
  const auto keys = [](slurm::Keys, const std::string& comment) -> Result<std::map<std::string, std::string>> {
    return std::map<std::string, std::string>{{"munge.key", comment}, {"ssh_ed25519.pub", comment}};
  };
  add_guarded([&](kube::KubeApi& api) { return std::make_unique<slurm::SlurmClusterController>(api, clock_, keys, slurm::SlurmControllerOptions{}); });
}

void World::start() {
  for (const auto& running : controllers_)
    for (const auto& source : running->sources) {
      auto& feed = feeds_[source.resource];
      if (feed) continue;
      feed = std::make_unique<Feed>();
      feed->kind = registry_->kinds()->find(source.resource.group, source.resource.version, source.resource.plural);
      INVARIANT(feed->kind);
      Feed* to = feed.get();
      auto subscribed = registry_->watch(*feed->kind, "", {.resource_version = "0", .lines = false}, [to](const apiserver::RegistryEvent& event) {
        if (event.type == kube::EventType::Bookmark) return;
        auto object = kube::parse_json(*event.object.bytes);
        INVARIANT(object);
        to->waiting.push_back({event.type, std::move(*object)});
      });
      INVARIANT(subscribed);
      feed->subscription = std::move(*subscribed);
    }
  for (auto& running : controllers_) running->controller->start(*this);
}

const kube::Reader& World::of(const kube::Resource& resource) const {
  const auto found = feeds_.find(resource);
  INVARIANT(found != feeds_.end());
  return found->second->cache;
}

void World::after(std::chrono::nanoseconds delay, std::string what, std::function<void()> action) {
  armed_.emplace(std::pair(clock_.monotonic() + delay, armings_++), std::pair(std::move(what), std::move(action)));
}

void World::deliver(Feed& feed) {
  const kube::WatchEvent event = std::move(feed.waiting.front());
  feed.waiting.pop_front();
  const auto change = feed.cache.apply(event);
  if (!change) return;
  for (auto& running : controllers_)
    for (const auto& source : running->sources)
      if (source.resource == feed.kind->resource && (source.space.empty() || source.space == kube::space_of(change->object())))
        for (const auto& key : source.keys(*change)) running->queue.add(key, clock_.monotonic());
}

void World::reconcile(Running& running) {
  const auto key = running.queue.take(clock_.monotonic());
  INVARIANT(key);
  auto outcome = running.controller->reconcile(*key);
  note(fmt::format("{} {}: {}", running.controller->name(), key->text(), outcome ? "ok" : outcome.error().message));
  running.queue.done(*key, clock_.monotonic(), outcome);
}

bool World::step() {
  const auto now = clock_.monotonic();
  std::vector<std::function<void()>> possible;
  for (auto& [resource, feed] : feeds_)
    if (!feed->waiting.empty()) possible.emplace_back([this, to = feed.get()] { deliver(*to); });
  for (auto& running : controllers_)
    if (const auto due = running->queue.next_due(); due && *due <= now) possible.emplace_back([this, at = running.get()] { reconcile(*at); });
  if (!armed_.empty() && armed_.begin()->first.first <= now)
    possible.emplace_back([this] {
      auto node = armed_.extract(armed_.begin());
      if (!node.mapped().first.empty()) note(node.mapped().first);
      node.mapped().second();
    });
  if (possible.empty()) return false;
  possible[rng_.below(possible.size())]();
  return true;
}

bool World::run_until(const std::function<bool()>& done, std::chrono::nanoseconds limit) {
  const auto end = clock_.monotonic() + limit;
  std::uint64_t in_this_instant = 0;
  while (true) {
    if (done()) return true;
    if (step()) {
      INVARIANT(++in_this_instant < 1'000'000);
      continue;
    }
    in_this_instant = 0;
    auto next = end;
    for (auto& running : controllers_)
      if (const auto due = running->queue.next_due(); due && *due < next) next = *due;
    if (!armed_.empty() && armed_.begin()->first.first < next) next = armed_.begin()->first.first;
    const auto now = clock_.monotonic();
    if (now >= end) return done();
    clock_.advance(std::max(next - now, std::chrono::nanoseconds(1)));
  }
}

void World::run_for(std::chrono::nanoseconds time) {
  const auto end = clock_.monotonic() + time;
  run_until([&] { return clock_.monotonic() >= end; }, time);
}

void World::node_changed(const std::string& machine, fleet::Step step) {
  note(fmt::format("host: {} {}", fleet::name(step), machine));
  auto& node = nodes_[machine];
  if (!node) node = std::make_unique<Node>(*this, machine);
  switch (step) {
    case fleet::Step::Start: node->power_on(); break;
    case fleet::Step::Connect: case fleet::Step::Heal: node->connect(true); break;
    case fleet::Step::Cut: node->connect(false); break;
    case fleet::Step::Kill: case fleet::Step::Stop: case fleet::Step::Remove: node->power_off(); break;
    case fleet::Step::Forget: break;
  }
}

}  // namespace fairlead::sim
