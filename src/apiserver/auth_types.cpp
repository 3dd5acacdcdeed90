// SPDX-License-Identifier: Apache-2.0
#include "apiserver/auth_types.h"

#include <fmt/format.h>

#include <algorithm>

namespace fairlead::apiserver {

using kube::Json;

namespace {
constexpr std::string_view node_prefix = "system:node:";
constexpr std::string_view account_prefix = "system:serviceaccount:";
}  // namespace

bool User::in(std::string_view group) const { return std::find(groups.begin(), groups.end(), group) != groups.end(); }

std::string User::node() const {
  if (!in(nodes_group) || name.size() <= node_prefix.size() || !name.starts_with(node_prefix)) return {};
  return name.substr(node_prefix.size());
}

std::string service_account_user(const kube::ObjectKey& account) { return fmt::format("{}{}:{}", account_prefix, account.space, account.name); }

std::optional<kube::ObjectKey> parse_service_account_user(std::string_view user) {
  if (!user.starts_with(account_prefix)) return std::nullopt;
  user.remove_prefix(account_prefix.size());
  const auto colon = user.find(':');
  if (colon == 0 || colon == std::string_view::npos || colon + 1 == user.size() || user.find(':', colon + 1) != std::string_view::npos) return std::nullopt;
  return kube::ObjectKey{std::string(user.substr(0, colon)), std::string(user.substr(colon + 1))};
}

std::vector<std::string> service_account_groups(const std::string& space) { return {std::string(service_accounts_group), fmt::format("{}:{}", service_accounts_group, space)}; }

kube::Json to_user_info(const User& user) {
  Json info = Json::object({{"username", user.name}});
  if (!user.uid.empty()) info.set("uid", user.uid);
  if (!user.groups.empty()) info.set("groups", Json::array(std::vector<Json>(user.groups.begin(), user.groups.end())));
  if (!user.extra.empty()) {
    Json extra = Json::object();
    for (const auto& [key, values] : user.extra) extra.set(key, Json::array(std::vector<Json>(values.begin(), values.end())));
    info.set("extra", std::move(extra));
  }
  return info;
}

std::string forbidden_message(const User& user, const Attributes& a, const Verdict& verdict) {
  const std::string why = verdict.reason.empty() ? "" : ": " + verdict.reason;
  if (!a.resource_request) return fmt::format("forbidden: User \"{}\" cannot {} path \"{}\"{}", user.name, a.verb, a.path, why);
  const std::string resource = a.subresource.empty() ? a.resource : a.resource + "/" + a.subresource;
  const std::string qualified = a.group.empty() ? a.resource : a.resource + "." + a.group;
  const std::string subject = a.name.empty() ? qualified : fmt::format("{} \"{}\"", qualified, a.name);
  const std::string where = a.space.empty() ? "at the cluster scope" : fmt::format("in the namespace \"{}\"", a.space);
  return fmt::format("{} is forbidden: User \"{}\" cannot {} resource \"{}\" in API group \"{}\" {}{}", subject, user.name, a.verb, resource, a.group, where, why);
}

}  // namespace fairlead::apiserver
