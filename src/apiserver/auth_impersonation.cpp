// SPDX-License-Identifier: Apache-2.0
#include "apiserver/auth_impersonation.h"

#include <algorithm>

#include "base/encoding.h"
#include "http/message.h"

namespace fairlead::apiserver {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

Attributes needs(std::string group, std::string resource, std::string name, std::string space = "", std::string subresource = "") {
  return {.verb = "impersonate", .group = std::move(group), .resource = std::move(resource), .subresource = std::move(subresource), .space = std::move(space), .name = std::move(name)};
}

}  // namespace

Result<std::optional<Impersonation>> parse_impersonation(const http::Headers& headers) {
  constexpr std::string_view prefix = "impersonate-", extra_prefix = "impersonate-extra-", authentication = "authentication.k8s.io";
  Impersonation out;
  bool any = false;
  std::string name;
  std::vector<std::string> groups;
  std::vector<Attributes> later;
  for (const auto& [header, value] : headers) {
    if (header.size() <= prefix.size() || (header[0] | 0x20) != 'i') continue;
    const std::string key = lower(header);
    if (!key.starts_with(prefix)) continue;
    any = true;
    if (key == "impersonate-user") {
      if (name.empty()) name = value;
    } else if (key == "impersonate-group") {
      groups.push_back(value);
      later.push_back(needs("", "groups", value));
    } else if (key == "impersonate-uid") {
      if (!out.user.uid.empty()) continue;
      out.user.uid = value;
      later.push_back(needs(std::string(authentication), "uids", value));
    } else if (key.starts_with(extra_prefix)) {
      const std::string written(key.substr(extra_prefix.size())), extra = percent_decode(written).value_or(written);  // as it is if it is malformed
      auto at = std::find_if(out.user.extra.begin(), out.user.extra.end(), [&](const auto& one) { return one.first == extra; });
      if (at == out.user.extra.end()) at = out.user.extra.insert(at, {extra, {}});
      at->second.push_back(value);
      later.push_back(needs(std::string(authentication), "userextras", value, "", extra));
    }
  }
  if (!any) return std::optional<Impersonation>();
  if (name.empty()) return fail(Code::Invalid, "groups, uid or extra were to be impersonated without a user");
  out.user.name = name;
  if (const auto account = parse_service_account_user(name)) {
    out.needed.push_back(needs("", "serviceaccounts", account->name, account->space));
    if (groups.empty()) groups = service_account_groups(account->space);
  } else {
    out.needed.push_back(needs("", "users", name));
  }
  out.needed.insert(out.needed.end(), std::make_move_iterator(later.begin()), std::make_move_iterator(later.end()));
  const bool anonymous = name == "system:anonymous";
  const std::string_view everybody = anonymous ? unauthenticated_group : authenticated_group;
  const bool said = std::any_of(groups.begin(), groups.end(), [&](const std::string& one) { return one == everybody || (!anonymous && one == unauthenticated_group); });
  if (!said) groups.emplace_back(everybody);
  out.user.groups = std::move(groups);
  return std::optional(std::move(out));
}

}  // namespace fairlead::apiserver
