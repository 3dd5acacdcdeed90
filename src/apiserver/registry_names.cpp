// SPDX-License-Identifier: Apache-2.0
#include "apiserver/registry_names.h"

#include <fmt/format.h>

namespace fairlead::apiserver {

std::string store_prefix(const kube::Resource& resource, std::string_view space) {
  std::string out;
  out.reserve(64);
  out.append("/").append(resource.group.empty() ? "core" : resource.group).append("/").append(resource.plural).append("/");
  if (!space.empty()) out.append(space).append("/");
  return out;
}

std::string store_key(const kube::Resource& resource, const kube::ObjectKey& key) {
  std::string out = store_prefix(resource, resource.namespaced ? key.space : std::string_view());
  return out.append(key.name);
}

kube::ObjectKey object_key(const kube::Resource& resource, std::string_view key) {
  key.remove_prefix(store_prefix(resource).size());
  if (!resource.namespaced) return {"", std::string(key)};
  const auto slash = key.find('/');
  return {std::string(key.substr(0, slash)), std::string(slash == std::string_view::npos ? "" : key.substr(slash + 1))};
}

std::string resource_text(const kube::Resource& resource) { return resource.group.empty() ? resource.plural : resource.plural + "." + resource.group; }
std::string kind_text(const kube::Resource& resource) { return resource.group.empty() ? resource.kind : resource.kind + "." + resource.group; }

std::unexpected<Error> not_found(const kube::Resource& resource, std::string_view name) {
  return fail(Code::NotFound, fmt::format("{} \"{}\" not found", resource_text(resource), name));
}
std::unexpected<Error> already_exists(const kube::Resource& resource, std::string_view name) {
  return fail(Code::Exists, fmt::format("{} \"{}\" already exists", resource_text(resource), name));
}
std::unexpected<Error> cannot_fulfil(const kube::Resource& resource, std::string_view name, std::string_view why) {
  return fail(Code::Conflict, fmt::format("Operation cannot be fulfilled on {} \"{}\": {}", resource_text(resource), name, why));
}
std::unexpected<Error> modified(const kube::Resource& resource, std::string_view name) {
  return cannot_fulfil(resource, name, "the object has been modified; please apply your changes to the latest version and try again");
}
std::unexpected<Error> forbidden(const kube::Resource& resource, std::string_view name, std::string_view why) {
  return fail(Code::Forbidden, fmt::format("{} \"{}\" is forbidden: {}", resource_text(resource), name, why));
}
std::unexpected<Error> not_served() { return fail(Code::NotFound, "the server could not find the requested resource"); }

}  // namespace fairlead::apiserver
