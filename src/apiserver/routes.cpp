// SPDX-License-Identifier: Apache-2.0
#include "apiserver/routes.h"

namespace fairlead::apiserver {
namespace {

// What follows the version: [namespaces/SPACE/]PLURAL[/NAME[/SUBRESOURCE]]. The resource "namespaces" is itself cluster-scoped:
// namespaces/x, namespaces/x/status and namespaces/x/finalize are about the namespace.
bool parse_resource(const std::vector<std::string>& rest, Route& route) {
  std::size_t at = 0;
  const bool inside = rest.size() >= 3 && rest[0] == "namespaces" && !(rest.size() == 3 && (rest[2] == "status" || rest[2] == "finalize"));
  if (inside) {
    route.space = rest[1];
    if (route.space.empty()) return false;
    at = 2;
  }
  const std::size_t left = rest.size() - at;
  if (left < 1 || left > 3) return false;
  route.plural = rest[at];
  if (left >= 2) route.name = rest[at + 1];
  if (left == 3) route.subresource = rest[at + 2];
  return !route.plural.empty() && (left < 2 || !route.name.empty()) && (left < 3 || !route.subresource.empty());
}

Route parse_api(const std::vector<std::string>& segments, std::size_t group_segments) {
  Route route;
  const std::size_t count = segments.size();
  if (group_segments == 1) {  // /api
    if (count == 1) {
      route.what = Route::What::CoreVersions;
      return route;
    }
    route.version = segments[1];
  } else {  // /apis/GROUP
    if (count == 1) {
      route.what = Route::What::Groups;
      return route;
    }
    route.group = segments[1];
    if (route.group.empty()) return {};
    if (count == 2) {
      route.what = Route::What::Group;
      return route;
    }
    route.version = segments[2];
  }
  if (route.version.empty()) return {};
  const std::size_t head = group_segments + 1;
  if (count == head) {
    route.what = Route::What::Resources;
    return route;
  }
  if (!parse_resource({segments.begin() + static_cast<std::ptrdiff_t>(head), segments.end()}, route)) return {};
  route.what = Route::What::Object;
  return route;
}

}  // namespace

Route parse_route(const http::Target& target) {
  std::vector<std::string> segments = target.segments;
  if (!segments.empty() && segments.back().empty()) segments.pop_back();  // "/apis/" is "/apis"
  if (segments.empty()) return {};
  const std::string& first = segments.front();
  Route route;
  if (first == "healthz" || first == "livez" || first == "readyz") {
    route.what = Route::What::Health;
    return route;
  }
  if (first == "version" && segments.size() == 1) {
    route.what = Route::What::Version;
    return route;
  }
  if (first == "api") return parse_api(segments, 1);
  if (first == "apis") return parse_api(segments, 2);
  if (first == "openapi" && segments.size() >= 2 && segments[1] == "v3") {
    if (segments.size() == 2) {
      route.what = Route::What::OpenApiIndex;
    } else if (segments.size() == 4 && segments[2] == "api") {
      route.what = Route::What::OpenApiDocument;
      route.version = segments[3];
    } else if (segments.size() == 5 && segments[2] == "apis") {
      route.what = Route::What::OpenApiDocument;
      route.group = segments[3];
      route.version = segments[4];
    }
  }
  return route;
}

std::string_view verb_of(std::string_view method, const Route& route, bool watch) {
  const bool named = !route.name.empty();
  if (method == "GET") return watch ? "watch" : named ? "get" : "list";
  if (method == "POST") return "create";
  if (method == "PUT") return "update";
  if (method == "PATCH") return "patch";
  if (method == "DELETE") return named ? "delete" : "deletecollection";
  return "";
}

}  // namespace fairlead::apiserver
