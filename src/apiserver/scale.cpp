// SPDX-License-Identifier: Apache-2.0
#include "apiserver/scale.h"

#include <fmt/format.h>

#include <cstdint>

#include "base/encoding.h"
#include "kube/object.h"

namespace fairlead::apiserver {

using kube::Json;

Result<std::vector<std::string>> simple_path(std::string_view path) {
  if (path.empty()) return fail(Code::Invalid, "must not be empty");
  if (path.front() != '.') return fail(Code::Invalid, "must be a simple json path starting with .");
  auto names = split(path.substr(1), '.');
  for (const std::string& name : names)
    if (name.empty() || name.find_first_of("[]'\"*@?()") != std::string::npos) return fail(Code::Invalid, "must be a dot separated path of names");
  return names;
}

const Json* at_simple_path(const Json& object, std::string_view path) {
  const auto names = simple_path(path);
  if (!names) return nullptr;
  const Json* at = &object;
  for (const std::string& name : *names) {
    at = at->find(name);
    if (at == nullptr) return nullptr;
  }
  return at;
}

Result<Json> scale_of(const Json& object, const ScalePaths& paths) {
  const Json* replicas = at_simple_path(object, paths.spec);
  if (replicas == nullptr || !replicas->is_number()) return fail(Code::Internal, fmt::format("Internal error occurred: the spec replicas field \"{}\" does not exist", paths.spec));
  Json metadata = Json::object();
  for (const char* name : {"name", "namespace", "uid", "resourceVersion", "creationTimestamp"})
    if (const Json* value = object["metadata"].find(name)) metadata.set(name, *value);
  const Json* running = at_simple_path(object, paths.status);
  Json status = Json::object({{"replicas", running == nullptr ? std::int64_t{0} : running->integer()}});
  const Json* selector = paths.selector.empty() ? nullptr : at_simple_path(object, paths.selector);
  if (selector != nullptr && !selector->string().empty()) status.set("selector", *selector);
  Json spec = Json::object();
  if (replicas->integer() != 0) spec.set("replicas", replicas->integer());  // omitempty in Go
  return Json::object({{"kind", "Scale"}, {"apiVersion", "autoscaling/v1"}, {"metadata", std::move(metadata)}, {"spec", std::move(spec)}, {"status", std::move(status)}});
}

Result<Json> with_scale(Json object, const Json& scale, const ScalePaths& paths) {
  const auto invalid = [&](std::string_view why) { return fail(Code::Invalid, fmt::format("Scale.autoscaling \"{}\" is invalid: spec.replicas: {}", kube::name_of(object), why)); };
  const Json& replicas = scale["spec"]["replicas"];
  const bool whole = replicas.is_null() || (replicas.is_number() && replicas.integer(0) == replicas.integer(1));
  if (!whole) return invalid(fmt::format("Invalid value: {}: must be an integer", print_json(replicas)));
  const std::int64_t count = replicas.integer(0);
  if (count < 0) return invalid(fmt::format("Invalid value: {}: must be greater than or equal to 0", count));
  if (count > INT32_MAX) return invalid(fmt::format("Invalid value: {}: must be a 32-bit integer", count));
  const auto names = simple_path(paths.spec);
  if (!names) return std::unexpected(names.error());
  Json* at = &object;
  for (const std::string& name : *names) {
    if (!at->is_null() && !at->is_object()) return invalid(fmt::format("Invalid value: {}: {} is no path of this object", count, paths.spec));
    at = &at->child(name);
  }
  *at = count;
  return object;
}

}  // namespace fairlead::apiserver
