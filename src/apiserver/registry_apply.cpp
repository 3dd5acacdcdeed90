// SPDX-License-Identifier: Apache-2.0
// Server-side apply, and who owns which fields after other writes: the registry's side of apply_managed.h.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "apiserver/registry_write.h"

namespace fairlead::apiserver {

using kube::Json;

namespace {

constexpr int create_attempts = 16;  // the object may come and go under an apply

std::string version_and_kind(std::string_view api_version, std::string_view kind) {
  const bool core = api_version.find('/') == std::string_view::npos;
  return fmt::format("{}{}, Kind={}", core ? "/" : "", api_version, kind);
}

Result<void> check_configuration(const Kind& kind, const kube::ObjectKey& key, const Json& configuration) {
  if (!configuration.is_object()) return fail(Code::Invalid, "error decoding YAML: an apply configuration must be an object");
  const std::string &version = configuration["apiVersion"].string(), &of = configuration["kind"].string();
  if (version != kind.resource.api_version() || of != kind.resource.kind) return fail(Code::Invalid, fmt::format("invalid object type: {}", version_and_kind(version, of)));
  if (const Json* managed = configuration["metadata"].find("managedFields"); managed != nullptr && !managed->is_null())
    return fail(Code::Invalid, "metadata.managedFields must be nil");
  if (kube::name_of(configuration).empty())
    return fail(Code::Invalid, fmt::format("the name of the object ({} based on URL) was undeterminable: name must be provided", key.name));
  const auto errors = configuration_errors(configuration, Shape::of(kind));
  if (errors.empty()) return {};
  const std::string text = errors.size() == 1 ? errors.front() : fmt::format("errors:\n  {}", fmt::join(errors, "\n  "));
  const std::string named = kube::space_of(configuration) + "/" + kube::name_of(configuration);
  return fail(Code::Invalid, fmt::format("failed to create typed patch object ({}; {}): {}", named, version_and_kind(version, of), text));
}

}  // namespace

FieldWriter field_writer(const WriteContext& context, const Kind& kind, const std::string& subresource, Instant now) {
  // Whole seconds, as metav1.Time.
  const Instant second = std::chrono::floor<std::chrono::seconds>(now);
  return {.manager = manager_name(context.field_manager, context.user_agent),
          .api_version = kind.resource.api_version(),
          .subresource = subresource,
          .time = print_time(second),
          .only_status = subresource == "status",
          .skip_status = subresource.empty() && kind.status_subresource};
}

std::optional<std::string> EmbeddedRegistry::track(const WriteContext& context, const Kind& kind, const std::string& subresource, const CurrentObject& now, const Json& next,
                                                   const Json& sent) const {
  const auto read = [](const Json& list) { return parse_managed(list); };
  ManagedFields base;
  bool from_client = false;
  if (subresource.empty() && !sent.is_null()) {
    if (resets_managed(sent)) return std::string();
    if (auto given = read(sent); given && !given->empty()) {
      base = std::move(*given);
      from_client = true;
    }
  }
  if (!from_client) {
    // An object that nobody's fields are known of stays so until somebody applies.
    if (now.managed.empty()) return std::nullopt;
    const auto parsed = kube::parse_json(now.managed);
    auto live = parsed ? read(*parsed) : Result<ManagedFields>(fail(Code::Invalid, ""));
    if (!live) return std::string();
    base = std::move(*live);
  }
  ManagedFields after = after_update(std::move(base), now.object, next, Shape::of(kind), field_writer(context, kind, subresource, clock_.now()));
  return after.empty() ? std::string() : print_managed(std::move(after));
}

Result<Decision> EmbeddedRegistry::decide_apply(const WriteContext& context, const Kind& kind, const std::string& subresource, const CurrentObject& now, const Json& configuration) const {
  ManagedFields managed;
  if (!now.managed.empty()) {
    const auto parsed = kube::parse_json(now.managed);
    auto live = parsed ? parse_managed(*parsed) : Result<ManagedFields>(fail(Code::Invalid, parsed.error().message));
    if (!live) return fail(Code::Invalid, fmt::format("failed to decode managed fields: {}", live.error().message));
    managed = std::move(*live);
  }
  const FieldWriter writer = field_writer(context, kind, subresource, clock_.now());
  auto applied = apply_configuration(now.object, configuration, std::move(managed), kind.type, Shape::of(kind), writer, context.force);
  if (!applied) return std::unexpected(std::move(applied.error()));
  auto decision = decide_change(context, kind, subresource, now.object, now.revision, std::move(applied->object));
  if (decision)
    if (auto asked = ask_policies(context, kind, subresource, now.object, *decision); !asked) return std::unexpected(std::move(asked.error()));
  if (!decision || decision->what != Decision::What::Put) return decision;
  Json before = now.object;
  for (Json* one : {&before, &decision->next}) one->child("metadata").erase("resourceVersion");
  if (!(before == decision->next)) stamp_applier(applied->managed, writer);
  decision->managed = applied->managed.empty() ? std::string() : print_managed(std::move(applied->managed));
  return decision;
}

void EmbeddedRegistry::apply(const WriteContext& context, const Kind& kind, const kube::ObjectKey& key, const std::string& subresource, Json configuration, Reply reply) {
  const auto served = current(kind);
  if (!served || !(subresource.empty() || (subresource == "status" && served->status_subresource))) return reply(not_served());
  if (auto fits = check_configuration(*served, key, configuration); !fits) return reply(std::unexpected(std::move(fits.error())));
  apply_again(context, *served, key, subresource, std::make_shared<const Json>(std::move(configuration)), 0, std::move(reply));
}

void EmbeddedRegistry::apply_again(const WriteContext& context, const Kind& kind, const kube::ObjectKey& key, const std::string& subresource, std::shared_ptr<const Json> configuration,
                                   int attempts, Reply reply) {
  const auto served = current(kind);
  if (!served) return reply(not_served());
  if (subresource.empty() && !store_.get(store_key(served->resource, key))) {
    auto created = [this, context, served, key, subresource, configuration, attempts, reply](Result<Written> done) {
      // Somebody else made it meanwhile: then there is something to apply to.
      if (!done && done.error().code == Code::Exists && attempts < create_attempts) return apply_again(context, *served, key, subresource, configuration, attempts + 1, reply);
      reply(std::move(done));
    };
    return apply_new(context, *served, key, *configuration, attempts, std::move(created));
  }
  const bool conditional = !kube::version_of(*configuration).empty();
  auto decide = [this, context, served, subresource, configuration](const CurrentObject& now) { return decide_apply(context, *served, subresource, now, *configuration); };
  auto applied = [this, context, served, key, subresource, configuration, attempts, reply](Result<Written> done) {
    const bool vanished = !done && done.error().code == Code::NotFound && subresource.empty() && attempts < create_attempts;
    if (vanished && current(*served)) return apply_again(context, *served, key, subresource, configuration, attempts + 1, reply);
    reply(std::move(done));
  };
  mutate(context, *served, key, !conditional, std::move(decide), std::move(applied));
}

void EmbeddedRegistry::apply_new(const WriteContext& context, const Kind& kind, const kube::ObjectKey& key, const Json& configuration, int, Reply reply) {
  const FieldWriter writer = field_writer(context, kind, "", clock_.now());
  auto applied = apply_configuration(zero_object(kind.type), configuration, {}, kind.type, Shape::of(kind), writer, context.force);
  if (!applied) return reply(std::unexpected(std::move(applied.error())));
  if (auto fits = fit_key(kind, key, applied->object); !fits) return reply(std::unexpected(std::move(fits.error())));
  applied->object.child("metadata").erase("resourceVersion");  // Kubernetes lets it pass here
  stamp_applier(applied->managed, writer);
  create_as(context, kind, key.space, std::move(applied->object), applied->managed.empty() ? std::string() : print_managed(std::move(applied->managed)), std::move(reply));
}

}  // namespace fairlead::apiserver
