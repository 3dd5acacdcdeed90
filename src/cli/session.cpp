// SPDX-License-Identifier: Apache-2.0
#include "cli/session.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/encoding.h"
#include "kube/kubeconfig.h"

namespace fairlead::cli {

using kube::Json;

namespace {

std::string lower(std::string text) {
  for (char& one : text) one = static_cast<char>(one >= 'A' && one <= 'Z' ? one - 'A' + 'a' : one);
  return text;
}

}  // namespace

Result<Session> Session::open(kube::Kubeconfig config) {
  Session session;
  session.server_ = config.rest.server;
  session.namespace_ = config.space;
  // TCP and TLS together: seconds on a loaded machine, and a person at the terminal does not wait for longer.
  config.rest.connect_timeout = std::chrono::seconds(10);
  auto api = kube::RestApi::make(std::move(config.rest));
  if (!api) return pass(std::move(api.error()), "use " + session.server_);
  session.api_ = std::move(*api);
  return session;
}

Result<Json> Session::request(const std::string& method, const std::string& target, const Json& body, const std::string& content_type, const std::string& accept) {
  auto text = api_->send_raw(method, target, body.is_null() ? "" : kube::print_json(body), body.is_null() ? "" : content_type, accept);
  if (!text) return std::unexpected(std::move(text.error()));
  if (text->empty()) return Json();
  return kube::parse_json(*text);
}

std::vector<ApiKind> parse_discovery(const Json& list) {
  std::vector<ApiKind> kinds;
  for (const auto& group : list["items"].items()) {
    const std::string& name = group["metadata"]["name"].string();
    for (const auto& version : group["versions"].items())
      for (const auto& resource : version["resources"].items()) {
        ApiKind kind{.resource = {.group = name,
                                  .version = version["version"].string(),
                                  .plural = resource["resource"].string(),
                                  .kind = resource["responseKind"]["kind"].string(),
                                  .namespaced = resource["scope"].string() == "Namespaced"},
                     .singular = resource["singularResource"].string()};
        for (const auto& one : resource["shortNames"].items()) kind.short_names.push_back(one.string());
        for (const auto& one : resource["categories"].items()) kind.categories.push_back(one.string());
        kinds.push_back(std::move(kind));
      }
  }
  return kinds;
}

Result<std::vector<ApiKind>> Session::kinds() {
  if (!kinds_.empty()) return kinds_;
  for (const char* root : {"/api", "/apis"}) {
    auto list = request("GET", root, {}, "", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");
    if (!list) return pass(std::move(list.error()), "ask which kinds there are");
    for (auto& kind : parse_discovery(*list)) kinds_.push_back(std::move(kind));
  }
  return kinds_;
}

const ApiKind* match_kind(const std::vector<ApiKind>& kinds, const std::string& typed) {
  const std::string text = lower(typed);
  const auto dot = text.find('.');
  const std::string name = text.substr(0, dot), group = dot == std::string::npos ? "" : text.substr(dot + 1);
  const auto fits_group = [&](const ApiKind& kind) { return group.empty() || kind.resource.group == group || kind.resource.group.starts_with(group + "."); };
  // Full names before short ones, and kinds in the order in which the server tells them (the core group first).
  for (const auto& kind : kinds)
    if (fits_group(kind) && (kind.resource.plural == name || kind.singular == name || lower(kind.resource.kind) == name)) return &kind;
  for (const auto& kind : kinds)
    if (fits_group(kind) && std::find(kind.short_names.begin(), kind.short_names.end(), name) != kind.short_names.end()) return &kind;
  return nullptr;
}

Result<ApiKind> Session::find_kind(const std::string& text) {
  auto all = kinds();
  if (!all) return std::unexpected(std::move(all.error()));
  if (const ApiKind* kind = match_kind(*all, text)) return *kind;
  return fail(Code::NotFound, fmt::format("the site knows no kind \"{}\"; some that it knows: nodes, pods, machines, slurmclusters, services, configmaps, pvc, events", text));
}

Result<ApiKind> Session::find_kind(const std::string& api_version, const std::string& kind) {
  auto all = kinds();
  if (!all) return std::unexpected(std::move(all.error()));
  for (const auto& one : *all)
    if (one.resource.api_version() == api_version && one.resource.kind == kind) return one;
  return fail(Code::NotFound, fmt::format("the site knows no {} of {}", kind, api_version));
}

Result<Json> Session::get(const kube::Resource& resource, const std::string& space, const std::string& name) { return request("GET", kube::path_of(resource, space, name)); }

Result<std::vector<Json>> Session::list(const kube::Resource& resource, const std::string& space, const std::string& label_selector) {
  auto answer = request("GET", kube::path_of(resource, space) + (label_selector.empty() ? "" : "?labelSelector=" + http::escape(label_selector)));
  if (!answer) return std::unexpected(std::move(answer.error()));
  std::vector<Json> items;
  for (const auto& item : (*answer)["items"].items()) {
    items.push_back(item);
    if (!items.back().has("kind")) items.back().set("kind", resource.kind).set("apiVersion", resource.api_version());
  }
  return items;
}

Result<std::vector<Json>> Session::list_visible(const kube::Resource& resource, const std::string& label_selector) {
  auto all = list(resource, "", label_selector);
  if (!all && all.error().code == Code::Forbidden && resource.namespaced) return list(resource, namespace_, label_selector);
  return all;
}

}  // namespace fairlead::cli
