// SPDX-License-Identifier: Apache-2.0
#include "apiserver/auth_impersonation.h"

#include <algorithm>

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

// %-escapes of a header's name; as it is if they are malformed.
std::string unescape(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };
    if (i + 2 >= text.size() || digit(text[i + 1]) < 0 || digit(text[i + 2]) < 0) return text;
    out += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
    i += 2;
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
      const std::string extra = unescape(key.substr(extra_prefix.size()));
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
