// SPDX-License-Identifier: Apache-2.0
#include "apiserver/policy_match.h"

#include <algorithm>

namespace fairlead::apiserver {

using kube::Json;

namespace {

std::vector<std::string> strings(const Json& list) {
  std::vector<std::string> out;
  for (const Json& one : list.items()) out.push_back(one.string());
  return out;
}

bool has(const std::vector<std::string>& list, std::string_view value) { return std::find(list.begin(), list.end(), value) != list.end(); }
bool has_or_star(const std::vector<std::string>& list, std::string_view value) { return has(list, "*") || has(list, value); }

bool is_namespaces(const kube::Resource& resource) { return resource.group.empty() && resource.plural == kube::resources::namespaces.plural; }

}  // namespace

std::vector<MatchRules::Rule> MatchRules::read(const Json& rules) {
  std::vector<Rule> out;
  for (const Json& one : rules.items())
    out.push_back({.operations = strings(one["operations"]),
                   .groups = strings(one["apiGroups"]),
                   .versions = strings(one["apiVersions"]),
                   .resources = strings(one["resources"]),
                   .names = strings(one["resourceNames"]),
                   .scope = one["scope"].string()});
  return out;
}

MatchRules::MatchRules(const Json& match) : rules_(read(match["resourceRules"])), excluded_(read(match["excludeResourceRules"])), equivalent_(match["matchPolicy"].string() != "Exact") {
  const auto selector = [&](const char* name, kube::LabelSelector& into) {
    if (match[name].is_null()) return;
    auto read = kube::LabelSelector::from_object(match[name]);
    if (read) into = std::move(*read);
    else broken_ = std::string(name) + ": " + read.error().message;
  };
  selector("namespaceSelector", space_);
  selector("objectSelector", object_);
}

bool MatchRules::Rule::fits(const PolicyCall& call, std::string_view version) const {
  const bool inside = !call.space.empty() && !is_namespaces(call.resource);
  if ((scope == "Namespaced" && !inside) || (scope == "Cluster" && inside)) return false;
  if (!has_or_star(operations, call.operation) || !has_or_star(groups, call.resource.group) || !has_or_star(versions, version)) return false;
  const bool resource = std::any_of(resources.begin(), resources.end(), [&](std::string_view text) {
    const auto slash = text.find('/');
    const std::string_view of = text.substr(0, slash), sub = slash == std::string_view::npos ? std::string_view() : text.substr(slash + 1);
    return (of == "*" || of == call.resource.plural) && (sub == "*" || sub == call.subresource);
  });
  return resource && (names.empty() || has(names, call.name));
}

std::optional<std::string> MatchRules::find(const std::vector<Rule>& rules, const PolicyCall& call) const {
  const auto in = [&](const std::string& version) { return std::any_of(rules.begin(), rules.end(), [&](const Rule& rule) { return rule.fits(call, version); }); };
  if (in(call.resource.version)) return call.resource.version;
  if (equivalent_)
    for (const std::string& version : call.other_versions)
      if (in(version)) return version;
  return std::nullopt;
}

bool MatchRules::fits_object(const PolicyCall& call) const {
  if (object_.empty()) return true;
  const auto fits = [&](const Json* object) { return object != nullptr && object->is_object() && object_.matches((*object)["metadata"]["labels"]); };
  return fits(call.object) || fits(call.old);
}

std::optional<std::string> MatchRules::version(const PolicyCall& call) const {
  if (!fits_object(call) || find(excluded_, call)) return std::nullopt;
  if (rules_.empty()) return call.resource.version;  // of a binding that says nothing of resources
  return find(rules_, call);
}

bool MatchRules::asks_for_space(const PolicyCall& call) const { return !space_.empty() && (!call.space.empty() || is_namespaces(call.resource)); }

bool MatchRules::fits_space(const Json& space) const { return space_.matches(space["metadata"]["labels"]); }

}  // namespace fairlead::apiserver
