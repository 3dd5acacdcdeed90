// SPDX-License-Identifier: Apache-2.0
#include "kube/access.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace fairlead::kube {
namespace {

Json strings(const std::vector<std::string>& list) {
  std::vector<Json> out(list.begin(), list.end());
  return Json::array(std::move(out));
}

std::string resource_text(const Rule& rule) { return rule.subresource.empty() ? rule.plural : rule.plural + "/" + rule.subresource; }

}  // namespace

Access& Access::may(std::vector<std::string> verbs, const Resource& resource, const std::string& subresource, const std::string& space, std::vector<std::string> names) {
  rules_.push_back({resource.group, resource.plural, subresource, space, std::move(names), std::move(verbs)});
  return *this;
}

Access& Access::add(const Access& other) {
  rules_.insert(rules_.end(), other.rules_.begin(), other.rules_.end());
  return *this;
}

bool Access::allows(const std::string& verb, const Resource& resource, const std::string& subresource, const std::string& space, const std::string& name) const {
  return std::ranges::any_of(rules_, [&](const Rule& rule) {
    return rule.group == resource.group && rule.plural == resource.plural && rule.subresource == subresource && (rule.space.empty() || rule.space == space) &&
           (rule.names.empty() || std::ranges::find(rule.names, name) != rule.names.end()) && std::ranges::find(rule.verbs, verb) != rule.verbs.end();
  });
}

std::vector<Rule> Access::rules() const {
  std::map<std::tuple<std::string, std::string, std::string, std::string, std::vector<std::string>>, std::set<std::string>> merged;
  for (const Rule& rule : rules_) {
    auto names = rule.names;
    std::ranges::sort(names);
    merged[{rule.space, rule.group, rule.plural, rule.subresource, names}].insert(rule.verbs.begin(), rule.verbs.end());
  }
  std::vector<Rule> out;
  for (const auto& [at, verbs] : merged) {
    const auto& [space, group, plural, subresource, names] = at;
    out.push_back({group, plural, subresource, space, names, {verbs.begin(), verbs.end()}});
  }
  return out;
}

Json role_rules(const Access& access, const std::string& space) {
  Json out = Json::array();
  for (const Rule& rule : access.rules()) {
    if (rule.space != space) continue;
    Json line = Json::object({{"apiGroups", Json::array({Json(rule.group)})}, {"resources", Json::array({Json(resource_text(rule))})}});
    if (!rule.names.empty()) line.set("resourceNames", strings(rule.names));
    line.set("verbs", strings(rule.verbs));
    out.push(std::move(line));
  }
  return out;
}

Result<void> CheckedApi::check(const char* verb, const Resource& resource, const std::string& subresource, const std::string& space, const std::string& name) {
  if (access_.allows(verb, resource, subresource, space, name)) return {};
  const std::string what = fmt::format("{} {}{}{}", verb, resource.plural, subresource.empty() ? "" : "/", subresource);
  {
    const std::lock_guard lock(mutex_);
    if (std::ranges::find(refusals_, what) == refusals_.end()) refusals_.push_back(what);
  }
  return fail(Code::Forbidden, fmt::format("{} {}: not declared in Controller::access()", what, ObjectKey{space, name}.text()));
}

std::vector<std::string> CheckedApi::refusals() const {
  const std::lock_guard lock(mutex_);
  return refusals_;
}

Result<Json> CheckedApi::get(const Resource& resource, const ObjectKey& key) {
  if (auto may = check("get", resource, "", key.space, key.name); !may) return std::unexpected(std::move(may.error()));
  return api_.get(resource, key);
}
Result<List> CheckedApi::list(const Resource& resource, const std::string& space, const ListOptions& options) {
  if (auto may = check("list", resource, "", space, ""); !may) return std::unexpected(std::move(may.error()));
  return api_.list(resource, space, options);
}
Result<std::unique_ptr<Watch>> CheckedApi::watch(const Resource& resource, const std::string& space, const WatchOptions& options) {
  if (auto may = check("watch", resource, "", space, ""); !may) return std::unexpected(std::move(may.error()));
  return api_.watch(resource, space, options);
}
Result<Json> CheckedApi::create(const Resource& resource, const Json& object) {
  if (auto may = check("create", resource, "", space_of(object), ""); !may) return std::unexpected(std::move(may.error()));
  return api_.create(resource, object);
}
Result<Json> CheckedApi::update(const Resource& resource, const Json& object) {
  if (auto may = check("update", resource, "", space_of(object), name_of(object)); !may) return std::unexpected(std::move(may.error()));
  return api_.update(resource, object);
}
Result<Json> CheckedApi::update_status(const Resource& resource, const Json& object) {
  if (auto may = check("update", resource, "status", space_of(object), name_of(object)); !may) return std::unexpected(std::move(may.error()));
  return api_.update_status(resource, object);
}
Result<Json> CheckedApi::patch(const Resource& resource, const ObjectKey& key, PatchType type, const Json& patch, const std::string& subresource) {
  if (auto may = check("patch", resource, subresource, key.space, key.name); !may) return std::unexpected(std::move(may.error()));
  return api_.patch(resource, key, type, patch, subresource);
}
// Kubernetes asks for both: an apply may create.
Result<Json> CheckedApi::apply(const Resource& resource, const Json& object, const ApplyOptions& options) {
  if (auto may = check("patch", resource, options.subresource, space_of(object), name_of(object)); !may) return std::unexpected(std::move(may.error()));
  if (options.subresource.empty())
    if (auto may = check("create", resource, "", space_of(object), ""); !may) return std::unexpected(std::move(may.error()));
  return api_.apply(resource, object, options);
}
Result<Json> CheckedApi::post(const Resource& resource, const ObjectKey& key, const std::string& subresource, const Json& body) {
  if (auto may = check("create", resource, subresource, key.space, key.name); !may) return std::unexpected(std::move(may.error()));
  return api_.post(resource, key, subresource, body);
}
Result<void> CheckedApi::remove(const Resource& resource, const ObjectKey& key, const DeleteOptions& options) {
  if (auto may = check("delete", resource, "", key.space, key.name); !may) return may;
  return api_.remove(resource, key, options);
}
// A WebSocket begins as a GET: servers up to 1.34 ask for "get", later ones for "create".
Result<ExecResult> CheckedApi::exec(const ObjectKey& pod, const std::string& container, const std::vector<std::string>& command, const std::string& input, std::chrono::milliseconds limit) {
  for (const char* const verb : {"get", "create"})
    if (auto may = check(verb, resources::pods, "exec", pod.space, pod.name); !may) return std::unexpected(std::move(may.error()));
  return api_.exec(pod, container, command, input, limit);
}

}  // namespace fairlead::kube
