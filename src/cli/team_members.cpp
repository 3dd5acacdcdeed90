// SPDX-License-Identifier: Apache-2.0
#include "cli/team_members.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace fairlead::cli {

using kube::Json;

namespace {

constexpr const char* kGroup = "rbac.authorization.k8s.io";

bool same(const Json& a, const Json& b) { return a["kind"] == b["kind"] && a["name"] == b["name"] && a["namespace"].string() == b["namespace"].string(); }

// Nothing that a terminal or a certificate could not show.
bool printable(const std::string& text) { return !text.empty() && text.size() <= 253 && std::ranges::none_of(text, [](unsigned char c) { return c < 0x20 || c == 0x7f; }); }

}  // namespace

Result<Json> read_subject(const std::string& text) {
  const auto rest = [&](const char* prefix) { return text.starts_with(prefix) ? std::optional(text.substr(std::string_view(prefix).size())) : std::nullopt; };
  const auto bad = [&] { return fail(Code::Invalid, fmt::format("usage: \"{}\" is none of USER, group:NAME and serviceaccount:NAMESPACE/NAME", text)); };
  for (const char* prefix : {"serviceaccount:", "sa:"})
    if (const auto account = rest(prefix)) {
      const auto slash = account->find('/');
      if (slash == std::string::npos || slash == 0 || slash + 1 == account->size() || account->find('/', slash + 1) != std::string::npos || !printable(*account)) return bad();
      return Json::object({{"kind", "ServiceAccount"}, {"namespace", account->substr(0, slash)}, {"name", account->substr(slash + 1)}});
    }
  const auto group = rest("group:"), user = rest("user:");
  const std::string& name = group ? *group : user ? *user : text;
  if (!printable(name)) return bad();
  return Json::object({{"kind", group ? "Group" : "User"}, {"apiGroup", kGroup}, {"name", name}});
}

std::string text_of_subject(const Json& subject) {
  const std::string &kind = subject["kind"].string(), &name = subject["name"].string();
  if (kind == "ServiceAccount") return fmt::format("serviceaccount:{}/{}", subject["namespace"].string(), name);
  if (kind == "Group") return "group:" + name;
  for (const char* prefix : {"group:", "user:", "serviceaccount:", "sa:"})
    if (name.starts_with(prefix)) return "user:" + name;
  return name;
}

bool change_members(Json& binding, const std::vector<Json>& who, bool add, const std::function<void(const Json& subject, bool news)>& tell) {
  if (!binding["subjects"].is_array()) binding.set("subjects", Json::array());
  auto& subjects = binding.child("subjects").items();
  bool changed = false;
  for (const Json& one : who) {
    const auto at = std::ranges::find_if(subjects, [&](const Json& other) { return same(one, other); });
    const bool news = (at == subjects.end()) == add;
    if (news && add) subjects.push_back(one);
    if (news && !add) std::erase_if(subjects, [&](const Json& other) { return same(one, other); });
    tell(one, news);
    changed = changed || news;
  }
  return changed;
}

}  // namespace fairlead::cli
