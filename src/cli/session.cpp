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

Result<Session> Session::open(const std::string& kubeconfig) {
  auto config = kube::read_kubeconfig(kubeconfig);
  if (!config) return std::unexpected(std::move(config.error()));
  Session session;
  const kube::RestConfig& rest = config->rest;
  session.server_ = rest.server;
  session.namespace_ = config->space;
  session.token_ = rest.token;
  auto api = kube::RestApi::make(rest);
  if (!api) return pass(std::move(api.error()), "use " + kubeconfig);
  session.api_ = *api;

  http::ClientOptions options{.unix_socket = rest.unix_socket, .ca_pem = rest.ca_pem, .certificate_pem = rest.certificate_pem, .key_pem = rest.key_pem, .server_name = rest.server_name};
  std::string host = rest.server;
  options.tls = rest.unix_socket.empty() && host.starts_with("https://");
  if (const auto slashes = host.find("//"); slashes != std::string::npos) host = host.substr(slashes + 2);
  host = host.substr(0, host.find('/'));
  const auto colon = host.rfind(':');
  options.host = host.substr(0, colon);
  options.port = static_cast<unsigned short>(colon == std::string::npos ? (options.tls ? 443 : 80) : std::atoi(host.c_str() + colon + 1));
  options.connect_timeout = std::chrono::milliseconds(3'000);
  auto client = http::Client::make(std::move(options));
  if (!client) return std::unexpected(std::move(client.error()));
  session.client_ = *client;
  return session;
}

Result<Json> Session::request(const std::string& method, const std::string& target, const Json& body, const std::string& content_type, const std::string& accept) {
  http::ClientRequest request{.method = method, .target = target, .headers = {{"Accept", accept}, {"User-Agent", "fairlead/" FAIRLEAD_VERSION}}, .body = ""};
  if (!token_.empty()) request.headers.emplace_back("Authorization", "Bearer " + token_);
  if (!body.is_null()) {
    request.headers.emplace_back("Content-Type", content_type);
    request.body = kube::print_json(body);
  }
  auto response = client_->request(request);
  if (!response) return std::unexpected(std::move(response.error()));
  if (response->status >= 300) return std::unexpected(kube::error_of(response->status, response->body));
  if (response->body.empty()) return Json();
  return kube::parse_json(response->body);
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

}  // namespace fairlead::cli
