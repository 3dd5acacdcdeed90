// SPDX-License-Identifier: Apache-2.0
#include "kube/fenced_api.h"

#include <fmt/format.h>

namespace fairlead::kube {
namespace {

std::unexpected<Error> unconditional(const char* what, const Resource& resource, const ObjectKey& key, const char* needs) {
  return fail(Code::Invalid, fmt::format("{} {} {}: a leader's write must name {}", what, resource.plural, key.text(), needs));
}

bool names_its_object(PatchType type, const Json& patch) {
  if (type != PatchType::JsonPatch) return !version_of(patch).empty() || !uid_of(patch).empty();
  for (const auto& step : patch.items()) {
    const std::string& path = step["path"].string();
    if (step["op"].string() == "test" && (path == "/metadata/resourceVersion" || path == "/metadata/uid")) return true;
  }
  return false;
}

// A question: nothing of it is kept, and it has no name.
bool is_review(const Resource& resource) { return resource.group == "authentication.k8s.io" || resource.group == "authorization.k8s.io"; }

}  // namespace

Result<Json> FencedApi::create(const Resource& resource, const Json& object) {
  const auto epoch = fence_();
  if (!epoch) return std::unexpected(epoch.error());
  if (is_review(resource)) return api_.create(resource, object);
  if (name_of(object).empty()) return unconditional("create", resource, key_of(object), "the object");
  Json stamped = object;
  stamped.child("metadata").child("annotations").set(kEpochAnnotation, std::to_string(*epoch));
  return api_.create(resource, stamped);
}

Result<Json> FencedApi::update(const Resource& resource, const Json& object) {
  if (const auto epoch = fence_(); !epoch) return std::unexpected(epoch.error());
  if (version_of(object).empty()) return unconditional("update", resource, key_of(object), "a resourceVersion");
  return api_.update(resource, object);
}

Result<Json> FencedApi::update_status(const Resource& resource, const Json& object) {
  if (const auto epoch = fence_(); !epoch) return std::unexpected(epoch.error());
  if (version_of(object).empty()) return unconditional("update status of", resource, key_of(object), "a resourceVersion");
  return api_.update_status(resource, object);
}

Result<Json> FencedApi::patch(const Resource& resource, const ObjectKey& key, PatchType type, const Json& patch, const std::string& subresource) {
  if (const auto epoch = fence_(); !epoch) return std::unexpected(epoch.error());
  if (!names_its_object(type, patch)) return unconditional("patch", resource, key, "a resourceVersion or uid");
  return api_.patch(resource, key, type, patch, subresource);
}

Result<Json> FencedApi::apply(const Resource& resource, const Json& object, const ApplyOptions& options) {
  if (const auto epoch = fence_(); !epoch) return std::unexpected(epoch.error());
  if (version_of(object).empty() && uid_of(object).empty()) return unconditional("apply", resource, key_of(object), "a resourceVersion or uid");
  return api_.apply(resource, object, options);
}

Result<Json> FencedApi::post(const Resource& resource, const ObjectKey& key, const std::string& subresource, const Json& body) {
  if (const auto epoch = fence_(); !epoch) return std::unexpected(epoch.error());
  const Json& conditions = body["deleteOptions"]["preconditions"];
  if (uid_of(body).empty() && conditions["uid"].string().empty()) return unconditional("post to", resource, key, "a uid");
  return api_.post(resource, key, subresource, body);
}

Result<void> FencedApi::remove(const Resource& resource, const ObjectKey& key, const DeleteOptions& options) {
  if (const auto epoch = fence_(); !epoch) return std::unexpected(epoch.error());
  if (options.uid.empty() || options.resource_version.empty()) return unconditional("delete", resource, key, "uid and resourceVersion");
  return api_.remove(resource, key, options);
}

Result<ExecResult> FencedApi::exec(const ObjectKey& pod, const std::string& container, const std::vector<std::string>& command, const std::string& input, std::chrono::milliseconds limit) {
  if (const auto epoch = fence_(); !epoch) return std::unexpected(epoch.error());
  return api_.exec(pod, container, command, input, limit);
}

}  // namespace fairlead::kube
