// SPDX-License-Identifier: Apache-2.0
#include "apiserver/rbac.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

namespace fairlead::apiserver {

using kube::Json;

namespace {

bool has(const std::vector<std::string>& set, std::string_view element) { return std::find(set.begin(), set.end(), element) != set.end(); }
bool has_or_all(const std::vector<std::string>& set, std::string_view element) {
  return std::any_of(set.begin(), set.end(), [&](const std::string& one) { return one == "*" || one == element; });
}
bool has_all(const std::vector<std::string>& set, const std::vector<std::string>& wanted) {
  return std::all_of(wanted.begin(), wanted.end(), [&](const std::string& one) { return has(set, one); });
}

std::vector<std::string> texts(const Json& list) {
  std::vector<std::string> out;
  for (const Json& item : list.items()) out.push_back(item.string());
  return out;
}

bool resource_fits(const Rule& rule, const Attributes& a) {
  for (const std::string& one : rule.resources) {
    if (one == "*") return true;
    if (a.subresource.empty()) {
      if (one == a.resource) return true;
      continue;
    }
    const auto slash = one.find('/');
    if (slash == std::string::npos) continue;
    const std::string_view head = std::string_view(one).substr(0, slash), tail = std::string_view(one).substr(slash + 1);
    if (tail == a.subresource && (head == "*" || head == a.resource)) return true;  // "pods/log", "*/scale"
  }
  return false;
}

bool path_fits(std::string_view pattern, std::string_view path) {
  if (pattern == path) return true;
  return !pattern.empty() && pattern.back() == '*' && path.starts_with(pattern.substr(0, pattern.find_last_not_of('*') + 1));
}

// Of one broken-down rule.
bool rule_covers(const Rule& owner, const Rule& part) {
  if (!has(owner.verbs, "*") && !has_all(owner.verbs, part.verbs)) return false;
  if (!part.urls.empty()) {
    return std::any_of(owner.urls.begin(), owner.urls.end(), [&](const std::string& pattern) { return path_fits(pattern, part.urls.front()); });
  }
  if (!has(owner.groups, "*") && !has_all(owner.groups, part.groups)) return false;
  const std::string& resource = part.resources.front();
  const auto slash = resource.find('/');
  const bool fits = has_or_all(owner.resources, resource) || (slash != std::string::npos && has(owner.resources, "*" + resource.substr(slash)));
  if (!fits) return false;
  return owner.names.empty() || (!part.names.empty() && has_all(owner.names, part.names));
}

Rules break_down(const Rule& rule) {
  Rules out;
  for (const std::string& group : rule.groups) {
    for (const std::string& resource : rule.resources) {
      for (const std::string& verb : rule.verbs) {
        if (rule.names.empty()) out.push_back({.verbs = {verb}, .groups = {group}, .resources = {resource}});
        for (const std::string& name : rule.names) out.push_back({.verbs = {verb}, .groups = {group}, .resources = {resource}, .names = {name}});
      }
    }
  }
  for (const std::string& url : rule.urls) {
    for (const std::string& verb : rule.verbs) out.push_back({.verbs = {verb}, .urls = {url}});
  }
  return out;
}

std::string quoted(const std::vector<std::string>& list) {
  std::string out = "[";
  for (const std::string& one : list) out.append(out.size() > 1 ? " " : "").append("\"").append(one).append("\"");
  return out + "]";
}

std::string compact(const Rule& rule) {
  std::string out;
  const auto part = [&](const char* name, const std::vector<std::string>& list) {
    if (!list.empty()) out.append(out.empty() ? "" : ", ").append(name).append(":").append(quoted(list));
  };
  part("APIGroups", rule.groups), part("Resources", rule.resources), part("NonResourceURLs", rule.urls), part("ResourceNames", rule.names), part("Verbs", rule.verbs);
  return "{" + out + "}";
}

std::string place(const std::string& space, const std::string& name) { return space + "/" + name; }

std::string subject_text(std::string_view key) {
  const std::string_view name = key.substr(2);
  if (key.front() == 'g') return fmt::format("Group \"{}\"", name);
  // Kubernetes writes NAME/NAMESPACE here.
  if (const auto account = parse_service_account_user(name)) return fmt::format("ServiceAccount \"{}/{}\"", account->name, account->space);
  return fmt::format("User \"{}\"", name);
}

std::string allowed_by(const RoleBinding& binding, std::string_view subject) {
  const char* role_kind = binding.cluster_role ? "ClusterRole" : "Role";
  if (binding.space.empty()) return fmt::format("RBAC: allowed by ClusterRoleBinding \"{}\" of {} \"{}\" to {}", binding.name, role_kind, binding.role, subject_text(subject));
  return fmt::format("RBAC: allowed by RoleBinding \"{}/{}\" of {} \"{}\" to {}", binding.name, binding.space, role_kind, binding.role, subject_text(subject));
}

std::string missing_role(const RoleBinding& binding) {
  return fmt::format("{}.{} \"{}\" not found", binding.cluster_role ? "clusterrole" : "role", rbac_group, binding.role);
}

}  // namespace

Rules parse_rules(const Json& rules) {
  Rules out;
  for (const Json& rule : rules.items()) {
    out.push_back({.verbs = texts(rule["verbs"]), .groups = texts(rule["apiGroups"]), .resources = texts(rule["resources"]), .names = texts(rule["resourceNames"]),
                   .urls = texts(rule["nonResourceURLs"])});
  }
  return out;
}

kube::Json to_json(const Rule& rule) {
  Json out = Json::object();
  const auto list = [&](const char* name, const std::vector<std::string>& from) {
    if (!from.empty()) out.set(name, Json::array(std::vector<Json>(from.begin(), from.end())));
  };
  list("verbs", rule.verbs), list("apiGroups", rule.groups), list("resources", rule.resources), list("resourceNames", rule.names), list("nonResourceURLs", rule.urls);
  return out;
}

kube::Json to_json(const Rules& rules) {
  Json out = Json::array();
  for (const Rule& rule : rules) out.push(to_json(rule));
  return out;
}

bool allows(const Rule& rule, const Attributes& a) {
  if (!has_or_all(rule.verbs, a.verb)) return false;
  if (!a.resource_request) {
    return std::any_of(rule.urls.begin(), rule.urls.end(), [&](const std::string& pattern) { return path_fits(pattern, a.path); });
  }
  return has_or_all(rule.groups, a.group) && resource_fits(rule, a) && (rule.names.empty() || has(rule.names, a.name.empty() ? a.selected_name : a.name));
}

bool any_allows(const Rules& rules, const Attributes& attributes) {
  return std::any_of(rules.begin(), rules.end(), [&](const Rule& rule) { return allows(rule, attributes); });
}

Rules not_covered(const Rules& owned, const Rules& wanted) {
  Rules missing;
  for (const Rule& rule : wanted) {
    for (Rule& part : break_down(rule)) {
      if (std::none_of(owned.begin(), owned.end(), [&](const Rule& owner) { return rule_covers(owner, part); })) missing.push_back(std::move(part));
    }
  }
  return missing;
}

std::string describe(const Rules& missing) {
  std::map<std::tuple<std::string, std::string, std::string>, std::size_t> simple;  // group, resource, name
  Rules merged;
  for (const Rule& rule : missing) {
    if (rule.urls.empty()) {
      const std::tuple key(rule.groups.front(), rule.resources.front(), rule.names.empty() ? "" : rule.names.front());
      const auto [at, fresh] = simple.emplace(key, merged.size());
      if (!fresh) {
        if (!has(merged[at->second].verbs, rule.verbs.front())) merged[at->second].verbs.push_back(rule.verbs.front());
        continue;
      }
    }
    merged.push_back(rule);
  }
  std::set<std::string> lines;
  for (const Rule& rule : merged) lines.insert(compact(rule));
  std::string out;
  for (const std::string& line : lines) out.append(out.empty() ? "" : "\n").append(line);
  return out;
}

std::string user_key(std::string_view name) { return fmt::format("u:{}", name); }
std::string group_key(std::string_view name) { return fmt::format("g:{}", name); }

RoleBinding parse_binding(const Json& binding) {
  RoleBinding out{.space = kube::space_of(binding), .name = kube::name_of(binding)};
  out.cluster_role = binding["roleRef"]["kind"].string() == "ClusterRole";
  out.role = binding["roleRef"]["name"].string();
  for (const Json& subject : binding["subjects"].items()) {
    const std::string &kind = subject["kind"].string(), &name = subject["name"].string();
    if (kind == "User") out.subjects.push_back(user_key(name));
    if (kind == "Group") out.subjects.push_back(group_key(name));
    if (kind == "ServiceAccount") {
      const std::string& space = subject["namespace"].string();
      out.subjects.push_back(user_key(service_account_user({space.empty() ? out.space : space, name})));
    }
  }
  std::sort(out.subjects.begin(), out.subjects.end());
  out.subjects.erase(std::unique(out.subjects.begin(), out.subjects.end()), out.subjects.end());
  return out;
}

void RoleIndex::set_role(const std::string& space, const std::string& name, Rules rules) {
  auto shared = std::make_shared<const Rules>(std::move(rules));
  if (space.empty()) cluster_roles_[name] = std::move(shared);
  else roles_[place(space, name)] = std::move(shared);
}

void RoleIndex::drop_role(const std::string& space, const std::string& name) {
  if (space.empty()) cluster_roles_.erase(name);
  else roles_.erase(place(space, name));
}

void RoleIndex::set_binding(RoleBinding binding) {
  drop_binding(binding.space, binding.name);
  const auto shared = std::make_shared<const RoleBinding>(std::move(binding));
  for (const std::string& subject : shared->subjects) (shared->space.empty() ? cluster_ : spaces_[shared->space])[subject].push_back(shared);
  bindings_[place(shared->space, shared->name)] = shared;
}

void RoleIndex::drop_binding(const std::string& space, const std::string& name) {
  const auto found = bindings_.find(place(space, name));
  if (found == bindings_.end()) return;
  unlink(*found->second);
  bindings_.erase(found);
}

void RoleIndex::unlink(const RoleBinding& binding) {
  if (binding.subjects.empty()) return;
  const auto in_space = binding.space.empty() ? spaces_.end() : spaces_.find(binding.space);
  BySubject& by_subject = binding.space.empty() ? cluster_ : in_space->second;
  for (const std::string& subject : binding.subjects) {
    const auto found = by_subject.find(subject);
    std::erase_if(found->second, [&](const BindingPtr& one) { return one.get() == &binding; });
    if (found->second.empty()) by_subject.erase(found);
  }
  if (in_space != spaces_.end() && by_subject.empty()) spaces_.erase(in_space);
}

std::shared_ptr<const Rules> RoleIndex::role(bool cluster_role, const std::string& space, const std::string& name) const {
  const auto& roles = cluster_role ? cluster_roles_ : roles_;
  const auto found = roles.find(cluster_role ? name : place(space, name));
  return found == roles.end() ? nullptr : found->second;
}

template <class Visit>
void RoleIndex::visit(const User& user, const std::string& space, Visit&& visit) const {
  const auto in_space = space.empty() ? spaces_.end() : spaces_.find(space);
  const auto look = [&](const BySubject& by_subject, const std::string& key) {
    const auto found = by_subject.find(key);
    if (found == by_subject.end()) return true;
    for (const BindingPtr& binding : found->second) {
      if (!visit(*binding, key, role(binding->cluster_role, binding->space, binding->role))) return false;
    }
    return true;
  };
  std::vector<std::string> keys;
  keys.reserve(user.groups.size() + 1);
  keys.push_back(user_key(user.name));
  for (const std::string& group : user.groups) keys.push_back(group_key(group));
  for (const std::string& key : keys) {
    if (!look(cluster_, key)) return;
  }
  if (in_space == spaces_.end()) return;
  for (const std::string& key : keys) {
    if (!look(in_space->second, key)) return;
  }
}

Verdict RoleIndex::authorize(const User& user, const Attributes& attributes, bool explain) const {
  Verdict verdict;
  std::vector<std::string> problems;
  visit(user, attributes.resource_request ? attributes.space : std::string(), [&](const RoleBinding& binding, const std::string& subject, const std::shared_ptr<const Rules>& rules) {
    if (!rules) {
      problems.push_back(missing_role(binding));
      return true;
    }
    if (!any_allows(*rules, attributes)) return true;
    verdict.allowed = true;
    if (explain) verdict.reason = allowed_by(binding, subject);
    return false;
  });
  if (!verdict.allowed && !problems.empty()) {
    std::sort(problems.begin(), problems.end());
    problems.erase(std::unique(problems.begin(), problems.end()), problems.end());
    verdict.reason = problems.size() == 1 ? "RBAC: " + problems.front() : fmt::format("RBAC: [{}]", [&] {
      std::string all;
      for (const std::string& one : problems) all.append(all.empty() ? "" : ", ").append(one);
      return all;
    }());
  }
  return verdict;
}

Rules RoleIndex::rules_for(const User& user, const std::string& space, std::vector<std::string>* problems) const {
  Rules out;
  std::set<const RoleBinding*> seen;  // a binding may name the user and a group of theirs
  visit(user, space, [&](const RoleBinding& binding, const std::string&, const std::shared_ptr<const Rules>& rules) {
    if (!seen.insert(&binding).second) return true;
    if (rules) out.insert(out.end(), rules->begin(), rules->end());
    else if (problems != nullptr) problems->push_back(missing_role(binding));
    return true;
  });
  return out;
}

}  // namespace fairlead::apiserver
