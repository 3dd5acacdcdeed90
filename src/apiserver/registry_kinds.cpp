// SPDX-License-Identifier: Apache-2.0
// What is served: the built-in kinds and those of established CRDs, published as one immutable table. CRDs are followed through the store's own watch, whose events
// come before the answer to their write, so that a kind is there when its CRD's create is answered.
#include <algorithm>

#include "apiserver/crd.h"
#include "apiserver/kinds/kinds.h"
#include "apiserver/registry_impl.h"
#include "base/log.h"
#include "base/rng.h"

namespace fairlead::apiserver {

using kube::Json;

std::shared_ptr<const Kind> KindTable::find(std::string_view group, std::string_view version, std::string_view plural) const {
  const auto before = [](const std::shared_ptr<const Kind>& kind, const std::tuple<std::string_view, std::string_view, std::string_view>& key) {
    return std::tuple<std::string_view, std::string_view, std::string_view>(kind->resource.group, kind->resource.version, kind->resource.plural) < key;
  };
  const auto found = std::lower_bound(kinds.begin(), kinds.end(), std::tuple(group, version, plural), before);
  if (found == kinds.end() || (*found)->resource.group != group || (*found)->resource.version != version || (*found)->resource.plural != plural) return nullptr;
  return *found;
}

Gate::Ticket Gate::enter(const std::string& name) {
  const std::scoped_lock lock(mutex_);
  ++inside_[name];
  return Ticket(nullptr, [this, name](void*) {
    const std::scoped_lock leaving(mutex_);
    const auto found = inside_.find(name);
    if (--found->second == 0) inside_.erase(found);
    idle_.notify_all();
  });
}

bool Gate::busy(const std::string& name) const {
  const std::scoped_lock lock(mutex_);
  return inside_.contains(name);
}

void Gate::wait_until_idle() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [&] { return inside_.empty(); });
}

EmbeddedRegistry::EmbeddedRegistry(Store& store, const Clock& clock, RegistryOptions options, std::optional<Seal> seal)
    : store_(store), clock_(clock), options_(std::move(options)), seal_(std::move(seal)), builtin_(builtin_kinds()) {
  converter_ = options_.converter ? options_.converter : make_webhook_converter([this](const std::string& space, const std::string& name, unsigned short port) { return endpoint_of(space, name, port); }, [this] { return new_uid(); });
  publish({}, {});
}

EmbeddedRegistry::~EmbeddedRegistry() {
  crd_watch_.reset();
  service_watch_.reset();
  policy_watch_.reset();
  binding_watch_.reset();
  writes_.wait_until_idle();
}

std::shared_ptr<const KindTable> EmbeddedRegistry::kinds() const {
  const std::scoped_lock lock(kinds_mutex_);
  return table_;
}

std::shared_ptr<const Kind> EmbeddedRegistry::current(const Kind& kind) const { return kinds()->find(kind.resource.group, kind.resource.version, kind.resource.plural); }

void EmbeddedRegistry::publish(std::map<std::string, std::vector<std::shared_ptr<const Kind>>> from_crds, std::set<std::string> terminating) {
  auto table = std::make_shared<KindTable>();
  table->kinds = builtin_;
  for (const auto& [name, kinds] : from_crds) table->kinds.insert(table->kinds.end(), kinds.begin(), kinds.end());
  std::sort(table->kinds.begin(), table->kinds.end(), [](const auto& a, const auto& b) {
    return std::tie(a->resource.group, a->resource.version, a->resource.plural) < std::tie(b->resource.group, b->resource.version, b->resource.plural);
  });
  const std::scoped_lock lock(kinds_mutex_);
  table->generation = table_ ? table_->generation + 1 : 1;
  table_ = std::move(table);
  from_crds_ = std::move(from_crds);
  terminating_ = std::move(terminating);
}

void EmbeddedRegistry::on_crd(const StoreEvent& event) {
  const std::string name = object_key(kube::resources::crds, event.key).name;
  auto [from_crds, terminating] = [&] {
    const std::scoped_lock lock(kinds_mutex_);
    return std::pair(from_crds_, terminating_);
  }();
  from_crds.erase(name);
  terminating.erase(name);
  if (event.value) {
    const auto crd = kube::parse_json(*event.value.bytes());
    INVARIANT(crd.has_value());  // the registry wrote it
    from_crds[name] = kinds_of(*crd);
    if (kube::deleting(*crd)) terminating.insert(name);
  }
  publish(std::move(from_crds), std::move(terminating));
}

KindTable EmbeddedRegistry::others_than(const std::string& crd) const {
  const std::scoped_lock lock(kinds_mutex_);
  KindTable out;
  out.kinds = builtin_;
  for (const auto& [name, kinds] : from_crds_)
    if (name != crd) out.kinds.insert(out.kinds.end(), kinds.begin(), kinds.end());
  return out;
}

std::string EmbeddedRegistry::random(std::size_t count) const {
  if (!options_.random) return secret_bytes(count);
  const std::scoped_lock lock(random_mutex_);
  return options_.random(count);
}

std::string EmbeddedRegistry::new_uid() const {
  if (!options_.random) return random_uuid();
  std::string bytes = random(16);
  bytes[6] = static_cast<char>((bytes[6] & 0x0F) | 0x40);
  bytes[8] = static_cast<char>((bytes[8] & 0x3F) | 0x80);
  constexpr std::string_view digits = "0123456789abcdef";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) out += '-';
    const auto byte = static_cast<unsigned char>(bytes[i]);
    out += digits[byte >> 4];
    out += digits[byte & 15];
  }
  return out;
}

std::string EmbeddedRegistry::name_suffix() const {
  constexpr std::string_view letters = "bcdfghjklmnpqrstvwxz2456789";  // as Kubernetes: no vowels, nothing that looks alike
  std::string out;
  for (const char byte : random(5)) out += letters[static_cast<unsigned char>(byte) % letters.size()];
  return out;
}

Result<std::optional<QuotaUse>> EmbeddedRegistry::quota_use(const kube::ObjectKey& quota) const {
  auto use = quotas_.use(quota);
  if (!use || !*use) return use;
  const auto table = kinds();
  Json told = Json::object({});
  for (const auto& [name, value] : (*use)->used.members()) {
    const auto counted = name.starts_with("count/") ? counted_kind(name) : std::nullopt;
    const kube::Resource kind = counted ? resource_of(*counted) : kube::Resource();
    const auto is_served = [&](const std::shared_ptr<const Kind>& one) { return one->resource.namespaced && one->resource.group == kind.group && one->resource.plural == kind.plural; };
    if (!counted || std::any_of(table->kinds.begin(), table->kinds.end(), is_served)) told.set(name, value);
  }
  (*use)->used = std::move(told);
  return use;
}

Result<void> EmbeddedRegistry::start() {
  const std::string prefix = store_prefix(kube::resources::crds);
  auto crds = store_.range(prefix, "", 0, 0);
  if (!crds) return pass(std::move(crds.error()), "load CustomResourceDefinitions");
  for (const Entry& entry : crds->entries) on_crd({entry.revision, entry.key, entry.value, nullptr, 0});
  auto watching = store_.watch(prefix, crds->revision, [this](const StoreEvent& event) { on_crd(event); });
  if (!watching) return pass(std::move(watching.error()), "watch CustomResourceDefinitions");
  crd_watch_ = std::move(*watching);
  if (auto followed = follow_services(); !followed) return followed;
  if (auto followed = follow_policies(); !followed) return followed;
  if (auto followed = quotas_.follow(); !followed) return followed;

  const auto kind = kinds()->find("", "v1", kube::resources::namespaces.plural);
  for (const char* name : {"default", "kube-system", "kube-public", "kube-node-lease", "fairlead-system"}) {  // the last has the site's own settings and keys: whoever reaches the API finds it
    if (store_.get(store_key(kind->resource, {"", name}))) continue;
    std::mutex mutex;
    std::condition_variable answered;
    std::optional<Result<Written>> answer;
    create({.user = "system:apiserver"}, *kind, "", Json::object({{"metadata", Json::object({{"name", name}})}}), [&](Result<Written> result) {
      const std::scoped_lock lock(mutex);
      answer = std::move(result);
      answered.notify_all();
    });
    std::unique_lock lock(mutex);
    answered.wait(lock, [&] { return answer.has_value(); });
    if (!*answer && answer->error().code != Code::Exists) return pass(std::move(answer->error()), std::string("make the namespace ") + name);
  }
  return {};
}

Result<std::unique_ptr<Registry>> Registry::open(Store& store, const Clock& clock, RegistryOptions options) {
  std::optional<Seal> seal;
  if (!options.secret_key.empty()) {
    auto made = Seal::make(options.secret_key, options.random ? options.random : [](std::size_t count) { return secret_bytes(count); });
    if (!made) return std::unexpected(std::move(made.error()));
    seal = std::move(*made);
  }
  auto registry = std::make_unique<EmbeddedRegistry>(store, clock, std::move(options), std::move(seal));
  if (auto started = registry->start(); !started) return pass(std::move(started.error()), "open the registry");
  return std::unique_ptr<Registry>(std::move(registry));
}

}  // namespace fairlead::apiserver
