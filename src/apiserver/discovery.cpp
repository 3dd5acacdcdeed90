// SPDX-License-Identifier: Apache-2.0
#include "apiserver/discovery.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>

namespace fairlead::apiserver {
namespace {

using kube::Json;

constexpr std::array all_reviews{
    Review{"authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview"},
    Review{"authentication.k8s.io", "v1", "tokenreviews", "TokenReview"},
    Review{"authorization.k8s.io", "v1", "localsubjectaccessreviews", "LocalSubjectAccessReview", true},
    Review{"authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview"},
    Review{"authorization.k8s.io", "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview"},
    Review{"authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview"},
};

Json strings(const std::vector<std::string>& texts) {
  std::vector<Json> out(texts.begin(), texts.end());
  return Json::array(std::move(out));
}

const std::vector<std::string>& object_verbs() {
  static const std::vector<std::string> verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"};
  return verbs;
}

// Namespaces go one by one: what is inside goes first.
std::vector<std::string> verbs_of(const Kind& kind) {
  std::vector<std::string> verbs = object_verbs();
  if (kind.resource.group.empty() && kind.resource.plural == "namespaces") std::erase(verbs, "deletecollection");
  return verbs;
}

std::vector<std::string> subresources_of(const Kind& kind) {
  std::vector<std::string> out = kind.subresources;
  if (kind.status_subresource && std::find(out.begin(), out.end(), "status") == out.end()) out.push_back("status");
  std::sort(out.begin(), out.end());
  return out;
}

std::string singular_of(const Kind& kind) {
  if (!kind.singular.empty()) return kind.singular;
  std::string out = kind.resource.kind;
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

// Class (0 GA, 1 beta, 2 alpha, 3 not of the form), major, minor.
struct Parts {
  int rank = 3;
  long major = 0, minor = 0;
};
Parts parts_of(std::string_view text) {
  Parts parts;
  if (text.size() < 2 || text[0] != 'v') return parts;
  const char* end = text.data() + text.size();
  auto [at, error] = std::from_chars(text.data() + 1, end, parts.major);
  if (error != std::errc()) return parts;
  if (at == end) {
    parts.rank = 0;
    return parts;
  }
  const std::string_view rest(at, static_cast<std::size_t>(end - at));
  for (const auto& [word, rank] : {std::pair<std::string_view, int>{"beta", 1}, {"alpha", 2}}) {
    if (rest.substr(0, word.size()) != word) continue;
    const auto [stop, bad] = std::from_chars(at + word.size(), end, parts.minor);
    if (bad == std::errc() && stop == end) parts.rank = rank;
  }
  return parts;
}

std::vector<std::string> versions_of(const KindTable& table, std::string_view group) {
  std::vector<std::string> out;
  for (const GroupVersion& gv : group_versions(table)) {
    if (gv.group == group) out.push_back(gv.version);
  }
  return out;
}

Json group_json(std::string_view name, const std::vector<std::string>& versions) {
  std::vector<Json> entries;
  for (const std::string& version : versions) {
    entries.push_back(Json::object({{"groupVersion", std::string(name) + "/" + version}, {"version", version}}));
  }
  Json preferred = entries.front();
  Json out = Json::object({{"name", name}});
  out.set("versions", Json::array(std::move(entries))).set("preferredVersion", std::move(preferred));
  return out;
}

// --- plain resource lists ---

Json plain_resource(const Kind& kind) {
  Json out = Json::object({{"name", kind.resource.plural},
                           {"singularName", singular_of(kind)},
                           {"namespaced", kind.resource.namespaced},
                           {"kind", kind.resource.kind}});
  out.set("verbs", strings(verbs_of(kind)));
  if (!kind.short_names.empty()) out.set("shortNames", strings(kind.short_names));
  if (!kind.categories.empty()) out.set("categories", strings(kind.categories));
  return out;
}

Json plain_subresource(const Kind& kind, const std::string& name) {
  const SubresourceInfo info = subresource_info(kind, name);
  Json out = Json::object({{"name", kind.resource.plural + "/" + name}, {"singularName", ""}, {"namespaced", kind.resource.namespaced}, {"kind", info.kind}});
  if (info.group != kind.resource.group || info.version != kind.resource.version) out.set("group", info.group).set("version", info.version);
  out.set("verbs", strings(info.verbs));
  return out;
}

// --- aggregated ---

Json response_kind(std::string_view group, std::string_view version, std::string_view kind) {
  // The core group is "the same as around it": an empty group with an empty version, as kube-apiserver writes it.
  return Json::object({{"group", group}, {"version", group.empty() ? std::string_view() : version}, {"kind", kind}});
}

Json aggregated_resource(const Kind& kind) {
  const kube::Resource& resource = kind.resource;
  Json out = Json::object({{"resource", resource.plural},
                           {"responseKind", response_kind(resource.group, resource.version, resource.kind)},
                           {"scope", resource.namespaced ? "Namespaced" : "Cluster"},
                           {"singularResource", singular_of(kind)}});
  out.set("verbs", strings(verbs_of(kind)));
  if (!kind.short_names.empty()) out.set("shortNames", strings(kind.short_names));
  if (!kind.categories.empty()) out.set("categories", strings(kind.categories));
  for (const std::string& name : subresources_of(kind)) {
    const SubresourceInfo info = subresource_info(kind, name);
    Json sub = Json::object({{"subresource", name}, {"responseKind", response_kind(info.group, info.version, info.kind)}});
    sub.set("verbs", strings(info.verbs));
    out.child("subresources").push(std::move(sub));
  }
  return out;
}

std::string singular_of(const Review& review) { return std::string(review.plural.substr(0, review.plural.size() - 1)); }

Json aggregated_review(const Review& review) {
  Json out = Json::object({{"resource", review.plural}, {"responseKind", response_kind(review.group, review.version, review.kind)}, {"scope", review.namespaced ? "Namespaced" : "Cluster"}});
  out.set("singularResource", singular_of(review)).set("verbs", strings({"create"}));
  return out;
}

}  // namespace

std::span<const Review> reviews() { return all_reviews; }

const Review* find_review(std::string_view group, std::string_view version, std::string_view plural) {
  for (const Review& review : all_reviews) {
    if (review.group == group && review.version == version && review.plural == plural) return &review;
  }
  return nullptr;
}

bool version_before(std::string_view a, std::string_view b) {
  const Parts x = parts_of(a), y = parts_of(b);
  if (x.rank != y.rank) return x.rank < y.rank;
  if (x.rank == 3) return a < b;
  if (x.major != y.major) return x.major > y.major;
  return x.minor > y.minor;
}

std::vector<GroupVersion> group_versions(const KindTable& table) {
  std::vector<GroupVersion> out{{"", "v1"}};
  for (const auto& kind : table.kinds) out.push_back({kind->resource.group, kind->resource.version});
  for (const Review& review : all_reviews) out.push_back({std::string(review.group), std::string(review.version)});
  std::sort(out.begin(), out.end(), [](const GroupVersion& a, const GroupVersion& b) { return a.group != b.group ? a.group < b.group : version_before(a.version, b.version); });
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

SubresourceInfo subresource_info(const Kind& kind, std::string_view name) {
  SubresourceInfo info{.group = kind.resource.group, .version = kind.resource.version, .kind = kind.resource.kind, .verbs = {"get", "patch", "update"}};
  if (name == "eviction") return {.group = "policy", .version = "v1", .kind = "Eviction", .verbs = {"create"}};
  if (name == "binding") return {.group = info.group, .version = info.version, .kind = "Binding", .verbs = {"create"}};
  if (name == "exec") return {.group = info.group, .version = info.version, .kind = "PodExecOptions", .verbs = {"create", "get"}};
  if (name == "attach") return {.group = info.group, .version = info.version, .kind = "PodAttachOptions", .verbs = {"create", "get"}};
  if (name == "scale") return {.group = "autoscaling", .version = "v1", .kind = "Scale", .verbs = {"get", "patch", "update"}};
  if (name == "token") return {.group = "authentication.k8s.io", .version = "v1", .kind = "TokenRequest", .verbs = {"create"}};
  if (name == "log") info.verbs = {"get"};
  if (name == "finalize") info.verbs = {"update"};
  return info;
}

kube::Json core_versions(const std::string& server_address) {
  Json out = Json::object({{"kind", "APIVersions"}});
  out.set("versions", strings({"v1"}));
  Json address = Json::object({{"clientCIDR", "0.0.0.0/0"}, {"serverAddress", server_address}});
  out.set("serverAddressByClientCIDRs", Json::array({std::move(address)}));
  return out;
}

kube::Json group_list(const KindTable& table) {
  std::map<std::string, std::vector<std::string>> groups;
  for (const GroupVersion& gv : group_versions(table)) {
    if (!gv.group.empty()) groups[gv.group].push_back(gv.version);
  }
  std::vector<Json> out;
  for (const auto& [name, versions] : groups) out.push_back(group_json(name, versions));
  Json list = Json::object({{"kind", "APIGroupList"}, {"apiVersion", "v1"}});
  list.set("groups", Json::array(std::move(out)));
  return list;
}

std::optional<kube::Json> group(const KindTable& table, std::string_view name) {
  const std::vector<std::string> versions = versions_of(table, name);
  if (versions.empty() || name.empty()) return std::nullopt;
  Json out = Json::object({{"kind", "APIGroup"}, {"apiVersion", "v1"}});
  Json entry = group_json(name, versions);
  for (auto& [key, value] : entry.members()) out.set(key, std::move(value));
  return out;
}

std::optional<kube::Json> resource_list(const KindTable& table, std::string_view group, std::string_view version) {
  std::vector<Json> resources;
  for (const auto& kind : table.kinds) {
    if (kind->resource.group != group || kind->resource.version != version) continue;
    resources.push_back(plain_resource(*kind));
    for (const std::string& name : subresources_of(*kind)) resources.push_back(plain_subresource(*kind, name));
  }
  for (const Review& review : all_reviews) {
    if (review.group != group || review.version != version) continue;
    Json entry = Json::object({{"name", review.plural}, {"singularName", singular_of(review)}, {"namespaced", review.namespaced}, {"kind", review.kind}});
    entry.set("verbs", strings({"create"}));
    resources.push_back(std::move(entry));
  }
  if (resources.empty() && !(group.empty() && version == "v1")) return std::nullopt;
  Json out = Json::object({{"kind", "APIResourceList"}, {"apiVersion", "v1"}, {"groupVersion", GroupVersion{std::string(group), std::string(version)}.text()}});
  out.set("resources", Json::array(std::move(resources)));
  return out;
}

kube::Json aggregated(const KindTable& table, bool core) {
  std::vector<Json> groups;
  for (const GroupVersion& gv : group_versions(table)) {
    if (gv.group.empty() != core) continue;
    if (groups.empty() || groups.back()["metadata"]["name"].string() != gv.group) {
      Json metadata = Json::object();
      if (!gv.group.empty()) metadata.set("name", gv.group);
      metadata.set("creationTimestamp", nullptr);
      groups.push_back(Json::object({{"metadata", std::move(metadata)}, {"versions", Json::array()}}));
    }
    std::vector<Json> resources;
    for (const auto& kind : table.kinds) {
      if (kind->resource.group == gv.group && kind->resource.version == gv.version) resources.push_back(aggregated_resource(*kind));
    }
    for (const Review& review : all_reviews) {
      if (review.group == gv.group && review.version == gv.version) resources.push_back(aggregated_review(review));
    }
    Json entry = Json::object({{"version", gv.version}, {"freshness", "Current"}});
    entry.set("resources", Json::array(std::move(resources)));
    groups.back().child("versions").push(std::move(entry));
  }
  Json out = Json::object({{"kind", "APIGroupDiscoveryList"}, {"apiVersion", "apidiscovery.k8s.io/v2"}, {"metadata", Json::object()}});
  out.set("items", Json::array(std::move(groups)));
  return out;
}

}  // namespace fairlead::apiserver
