// SPDX-License-Identifier: Apache-2.0
// Objects in versions that they are not stored in: a CRD's webhook is asked, for all of a list at once. What is stored is in the stored version, whichever a client writes. A write waits for the webhook on threads of
// its own; a read and the beginning of a watch wait on the caller's.
#include <fmt/format.h>

#include "apiserver/conversion_client.h"
#include "apiserver/registry_write.h"
#include "apiserver/schema.h"

namespace fairlead::apiserver {

using kube::Json;

std::vector<std::shared_ptr<const Kind>> one_of_each(const KindTable& table) {
  std::vector<std::shared_ptr<const Kind>> out;
  std::map<std::pair<std::string, std::string>, std::size_t> places;
  for (const auto& kind : table.kinds) {
    const auto [place, first] = places.emplace(std::pair(kind->resource.group, kind->resource.plural), out.size());
    if (first) out.push_back(kind);
    else if (kind->storage) out[place->second] = kind;
  }
  return out;
}

// The webhook as it is now: who watches may hold what was an hour ago.
Result<std::vector<Json>> EmbeddedRegistry::convert(const Kind& kind, const std::string& to, const std::vector<Json>& objects) const {
  const auto served = current(kind);
  const auto hook = served && served->conversion ? served->conversion : kind.conversion;
  INVARIANT(hook != nullptr);
  return converter_->convert(*hook, to, objects);
}

Result<void> EmbeddedRegistry::in_version(const Kind& kind, std::vector<Value>& values) const {
  const std::string to = kind.resource.api_version();
  std::vector<std::size_t> places;
  std::vector<Json> objects;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (has_api_version(values[i].head(), to)) continue;
    if (!kind.conversion) {
      values[i] = Value(with_api_version(*values[i].bytes(), to));
      continue;
    }
    auto object = kube::parse_json(*values[i].bytes());
    if (!object) return fail(Code::Internal, fmt::format("a stored {} cannot be read: {}", resource_text(kind.resource), object.error().message));
    places.push_back(i);
    objects.push_back(std::move(*object));
  }
  if (objects.empty()) return {};
  auto converted = convert(kind, to, objects);
  if (!converted) return std::unexpected(std::move(converted.error()));
  for (std::size_t i = 0; i < places.size(); ++i) {
    Json& object = (*converted)[i];
    if (kind.schema) kind.schema->prune(object);
    Value& value = values[places[i]];
    const http::Buffer before = value.bytes();
    value = Value(join(canonical(object, kind.resource, managed_fields_of(*before)), std::stoll(kube::version_of(object))));
  }
  return {};
}

Result<std::vector<Value>> EmbeddedRegistry::plain_all(const Kind& kind, const std::vector<Entry>& entries) const {
  std::vector<Value> out;
  out.reserve(entries.size());
  if (!kind.conversion) {
    for (const Entry& entry : entries) {
      auto value = plain(kind, entry.key, entry.value, entry.revision);
      if (!value) return std::unexpected(std::move(value.error()));
      out.push_back(std::move(*value));
    }
    return out;
  }
  for (const Entry& entry : entries) out.push_back(entry.value);
  if (auto done = in_version(kind, out); !done) return std::unexpected(std::move(done.error()));
  return out;
}

Result<EmbeddedRegistry::Forms> EmbeddedRegistry::forms_of(const Kind& kind, const Json& object, std::string_view managed) const {
  kube::Resource stored_as = kind.resource;
  if (!kind.storage && !kind.storage_version.empty()) stored_as.version = kind.storage_version;
  if (stored_as == kind.resource) return Forms{canonical(object, kind.resource, managed), std::nullopt};
  if (!kind.conversion) return Forms{canonical(object, stored_as, managed), canonical(object, kind.resource, managed)};
  Json sent = object;
  sent.set("apiVersion", kind.resource.api_version()).set("kind", kind.resource.kind);
  auto stored = convert(kind, stored_as.api_version(), {std::move(sent)});
  if (!stored) return std::unexpected(std::move(stored.error()));
  if (kind.storage_schema) {
    kind.storage_schema->prune(stored->front());
    kind.storage_schema->apply_defaults(stored->front());
  }
  // What the next reader of this version will get: the answer is the same.
  auto shown = convert(kind, kind.resource.api_version(), *stored);
  if (!shown) return std::unexpected(std::move(shown.error()));
  if (kind.schema) kind.schema->prune(shown->front());
  return Forms{canonical(stored->front(), stored_as, managed), canonical(shown->front(), kind.resource, managed)};
}

std::unexpected<Error> EmbeddedRegistry::too_many_wait(const Kind& kind) { return fail(Code::Exhausted, fmt::format("too many requests wait for the conversion webhook of {}, please try again later", resource_text(kind.resource))); }

Result<Endpoint> EmbeddedRegistry::endpoint_of(const std::string& space, const std::string& name, unsigned short port) const {
  const auto read = [](const Value& value) { return kube::parse_json(*value.bytes()); };
  const auto service = store_.get(store_key(kube::resources::services, {space, name}));
  if (!service) return fail(Code::Unavailable, fmt::format("service \"{}\" not found in namespace {}", name, space));
  const auto parsed = read(service->value);
  if (!parsed) return std::unexpected(parsed.error());
  const Json* wanted = nullptr;
  for (const Json& one : (*parsed)["spec"]["ports"].items())
    if (one["port"].integer() == port) wanted = &one;
  if (wanted == nullptr) return fail(Code::Unavailable, fmt::format("no service port {} found for service \"{}\"", port, name));
  const kube::Resource slices{"discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", true};
  const auto all = store_.range(store_prefix(slices, space), "", 0, 0);
  if (!all) return std::unexpected(all.error());
  for (const Entry& entry : all->entries) {
    const auto slice = read(entry.value);
    if (!slice || (*slice)["metadata"]["labels"]["kubernetes.io/service-name"].string() != name) continue;
    for (const Json& at : (*slice)["ports"].items()) {
      if (at["name"].string() != (*wanted)["name"].string()) continue;
      for (const Json& endpoint : (*slice)["endpoints"].items())
        if (endpoint["conditions"]["ready"].boolean(true) && !endpoint["addresses"].items().empty()) return Endpoint{endpoint["addresses"].items().front().string(), static_cast<unsigned short>(at["port"].integer())};
    }
  }
  return fail(Code::Unavailable, fmt::format("no endpoints available for service \"{}\"", name));
}

}  // namespace fairlead::apiserver
