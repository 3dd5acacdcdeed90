// SPDX-License-Identifier: Apache-2.0
// Admission policies are followed as CRDs are: an event comes before the answer to its write, so a policy counts when its create is answered. They are asked after all other checks.
#include <fmt/format.h>

#include <algorithm>

#include "apiserver/audit.h"
#include "apiserver/local_api.h"
#include "apiserver/registry_write.h"
#include "base/log.h"
#include "kube/selector.h"

namespace fairlead::apiserver {

using kube::Json;
namespace r = kube::resources;

namespace {

// The controllers in this process.
const User& controllers() {
  static const User user{.name = "system:fairlead", .groups = {std::string(masters_group), std::string(authenticated_group)}, .uid = {}, .extra = {}};
  return user;
}

}  // namespace

// What policies look up, from the registry itself.
class EmbeddedRegistry::PolicyLookup final : public PolicyWorld {
 public:
  PolicyLookup(const EmbeddedRegistry& registry, const Kind& kind, const std::string& space) : registry_(registry), kind_(kind), name_(space) {}

  Result<const Json*> space() override {
    if (!space_) {
      const auto entry = registry_.store_.get(store_key(r::namespaces, {"", name_}));
      auto read = entry ? kube::parse_json(*entry->value.bytes()) : Result<Json>(not_found(r::namespaces, name_));
      if (!read) return std::unexpected(std::move(read.error()));
      space_ = std::move(*read);
    }
    return &*space_;
  }

  Result<Params> params(const ParamQuery& query) override {
    const auto table = registry_.kinds();
    const auto found = std::find_if(table->kinds.begin(), table->kinds.end(), [&](const auto& one) { return one->resource.api_version() == query.api_version && one->resource.kind == query.kind; });
    if (found == table->kinds.end()) return fail(Code::NotFound, fmt::format("failed to find resource referenced by paramKind: '{}, Kind={}'", query.api_version, query.kind));
    const Kind& kind = **found;
    Params out{.namespaced = kind.resource.namespaced, .objects = {}};
    // Without a namespace of its own: that of the request.
    std::string space = query.space;
    if (kind.resource.namespaced && space.empty()) space = name_;
    if (!kind.resource.namespaced && !space.empty()) return fail(Code::Invalid, "paramRef.namespace must not be provided for a cluster-scoped `paramKind`");
    if (kind.resource.namespaced && space.empty()) return fail(Code::Invalid, "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources");
    if (!query.name.empty()) {
      const auto object = registry_.get(kind, {space, query.name});
      if (!object && object.error().code == Code::NotFound) return out;
      auto read = object ? kube::parse_json(*object->bytes) : Result<Json>(std::unexpected(object.error()));
      if (!read) return std::unexpected(std::move(read.error()));
      out.objects.push_back(std::move(*read));
      return out;
    }
    const auto selector = kube::LabelSelector::from_object(*query.selector);
    if (!selector) return std::unexpected(selector.error());
    const auto page = registry_.list(kind, space, {.label_selector = selector->text()});
    if (!page) return std::unexpected(page.error());
    for (const Listed& one : page->objects) {
      auto read = kube::parse_json(*one.value.bytes());
      if (!read) return std::unexpected(std::move(read.error()));
      out.objects.push_back(std::move(*read));
    }
    return out;
  }

  Result<Json> in_version(const Json& object, const std::string& version) override {
    kube::Resource wanted = kind_.resource;
    wanted.version = version;
    Json out = object;
    if (out["kind"].is_string() && !out["kind"].string().empty() && out["kind"].string() != kind_.resource.kind) return out;  // a Scale is one in every version
    if (!kind_.conversion) {
      out.set("apiVersion", wanted.api_version());
      return out;
    }
    out.set("apiVersion", kind_.resource.api_version()).set("kind", kind_.resource.kind);
    auto converted = registry_.convert(kind_, wanted.api_version(), {std::move(out)});
    if (!converted) return std::unexpected(std::move(converted.error()));
    return std::move(converted->front());
  }

 private:
  const EmbeddedRegistry& registry_;
  const Kind& kind_;
  const std::string& name_;
  std::optional<Json> space_;
};

// Where a write is judged by what somebody else has to convert, it is not judged on a thread that others need.
bool EmbeddedRegistry::waits_for_others(const Kind& kind) const {
  if (kind.converts) return true;
  return any_policies_.load(std::memory_order_acquire) && (kind.conversion || policies_wait_.load(std::memory_order_acquire));
}

Result<void> EmbeddedRegistry::follow_policies() {
  policies_ = std::make_shared<const PolicySet>();
  for (const bool binding : {false, true}) {
    const std::string prefix = store_prefix(binding ? r::admission_policy_bindings : r::admission_policies);
    auto all = store_.range(prefix, "", 0, 0);
    if (!all) return pass(std::move(all.error()), "load admission policies");
    for (const Entry& entry : all->entries) on_policy({entry.revision, entry.key, entry.value, nullptr, 0}, binding);
    auto watching = store_.watch(prefix, all->revision, [this, binding](const StoreEvent& event) { on_policy(event, binding); });
    if (!watching) return pass(std::move(watching.error()), "watch admission policies");
    (binding ? binding_watch_ : policy_watch_) = std::move(*watching);
  }
  return {};
}

void EmbeddedRegistry::on_policy(const StoreEvent& event, bool binding) {
  const std::string name = object_key(binding ? r::admission_policy_bindings : r::admission_policies, event.key).name;
  std::shared_ptr<const Policy> policy;
  std::shared_ptr<const PolicyBinding> bound;
  if (event.value) {
    const auto object = kube::parse_json(*event.value.bytes());
    INVARIANT(object.has_value());  // the registry wrote it
    if (binding) bound = std::make_shared<const PolicyBinding>(*object);
    else policy = std::make_shared<const Policy>(*object);
    if (policy && !policy->broken.empty()) log_error("an admission policy cannot be used: its failurePolicy decides", {{"policy", name}, {"reason", policy->broken}});
  }
  const std::scoped_lock lock(policies_mutex_);
  auto next = std::make_shared<PolicySet>(*policies_);
  next->policies.erase(binding ? std::string() : name);
  next->bindings.erase(binding ? name : std::string());
  if (policy) next->policies.emplace(name, std::move(policy));
  if (bound) next->bindings.emplace(name, std::move(bound));
  any_policies_ = !next->policies.empty() && !next->bindings.empty();
  policies_wait_ = any_policies_ && std::ranges::any_of(next->policies, [](const auto& one) { return !one.second->param_kind.empty(); });
  policies_ = std::move(next);
}

Result<std::vector<std::string>> EmbeddedRegistry::ask_policies(const Ask& ask) const {
  const kube::Resource& resource = ask.kind.resource;
  if (!any_policies_.load(std::memory_order_acquire) || !is_subject_to_policies(resource)) return std::vector<std::string>();
  const User* user = ask.context.requester.get();
  if (user == nullptr && ask.context.user == server_user) return std::vector<std::string>();
  const auto set = [&] {
    const std::scoped_lock lock(policies_mutex_);
    return policies_;
  }();
  // Requests about a namespace are about that in it, as in Kubernetes.
  PolicyCall call{.operation = ask.operation, .resource = resource, .other_versions = {}, .subresource = ask.subresource, .name = ask.key.name, .space = is_namespace(resource) ? ask.key.name : ask.key.space};
  for (const auto& one : kinds()->kinds)
    if (same_resource(one->resource, resource) && one->resource.version != resource.version) call.other_versions.push_back(one->resource.version);
  call.object = ask.object, call.old = ask.old;
  PolicyLookup lookup(*this, ask.kind, call.space);
  PolicyVerdict verdict = judge(*set, call, {user == nullptr ? controllers() : *user, ask.context.dry_run}, lookup);
  if (ask.context.notes && !verdict.notes.empty()) {
    const std::scoped_lock lock(ask.context.notes->mutex);
    for (auto& [key, value] : verdict.notes) ask.context.notes->annotations.insert_or_assign(std::move(key), std::move(value));
  }
  if (!verdict.refusal) return std::move(verdict.warnings);
  const std::string& name = ask.key.name.empty() && ask.object != nullptr ? kube::name_of(*ask.object) : ask.key.name;
  return policy_refusal(resource, name, *verdict.refusal);
}

Result<void> EmbeddedRegistry::ask_policies(const WriteContext& context, const Kind& kind, const std::string& subresource, const Json& old, Decision& decision) const {
  if (!any_policies_.load(std::memory_order_acquire)) return {};
  const kube::ObjectKey key = kube::key_of(old);
  const Json* object = decision.what == Decision::What::Keep ? &old : &decision.next;
  std::optional<Json> scale_before, scale_after;
  const Json* before = &old;
  if (subresource == "scale") {
    auto from = scale_of(old, *kind.scale), to = scale_of(*object, *kind.scale);
    if (!from || !to) return std::unexpected(from ? std::move(to.error()) : std::move(from.error()));
    scale_before = std::move(*from), scale_after = std::move(*to);
    before = &*scale_before, object = &*scale_after;
  }
  auto asked = ask_policies({context, kind, "UPDATE", subresource, key, object, before});
  if (!asked) return std::unexpected(std::move(asked.error()));
  for (std::string& warning : *asked) decision.warnings.push_back(std::move(warning));
  return {};
}

}  // namespace fairlead::apiserver
