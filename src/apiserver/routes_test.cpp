// SPDX-License-Identifier: Apache-2.0
#include "apiserver/routes.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/encoding.h"

namespace fairlead::apiserver {
namespace {

http::Target target(std::string_view path) {
  http::Target out{.path = std::string(path), .segments = {}, .query = {}};
  if (path != "/") out.segments = split(path.substr(1), '/');
  return out;
}

struct Case {
  const char* path;
  Route::What what;
  const char* fields;  // group/version plural space name subresource, joined by '|'
};
TEST(Routes, NameWhatAUrlMeans) {
  using What = Route::What;
  for (const Case& row : {
           Case{"/", What::Unknown, "|||||"},
           Case{"/healthz", What::Health, "|||||"},
           Case{"/readyz/ping", What::Health, "|||||"},
           Case{"/version", What::Version, "|||||"},
           Case{"/api", What::CoreVersions, "|||||"},
           Case{"/apis/", What::Groups, "|||||"},
           Case{"/apis/apps", What::Group, "apps|||||"},
           Case{"/api/v1", What::Resources, "|v1||||"},
           Case{"/apis/apps/v1", What::Resources, "apps|v1||||"},
           Case{"/api/v1/pods", What::Object, "|v1|pods|||"},
           Case{"/api/v1/nodes/n1", What::Object, "|v1|nodes||n1|"},
           Case{"/api/v1/nodes/n1/status", What::Object, "|v1|nodes||n1|status"},
           Case{"/api/v1/namespaces", What::Object, "|v1|namespaces|||"},
           Case{"/api/v1/namespaces/a", What::Object, "|v1|namespaces||a|"},
           Case{"/api/v1/namespaces/a/status", What::Object, "|v1|namespaces||a|status"},
           Case{"/api/v1/namespaces/a/finalize", What::Object, "|v1|namespaces||a|finalize"},
           Case{"/api/v1/namespaces/a/pods", What::Object, "|v1|pods|a||"},
           Case{"/api/v1/namespaces/a/pods/p/log", What::Object, "|v1|pods|a|p|log"},
           Case{"/apis/fairlead.dev/v1alpha1/machines/m", What::Object, "fairlead.dev|v1alpha1|machines||m|"},
           Case{"/api/v1/namespaces/a/pods/p/log/x", What::Unknown, "|||||"},
           Case{"/api/v1/namespaces//pods", What::Unknown, "|||||"},
           Case{"/openapi/v3", What::OpenApiIndex, "|||||"},
           Case{"/openapi/v3/api/v1", What::OpenApiDocument, "|v1||||"},
           Case{"/openapi/v3/apis/apps/v1", What::OpenApiDocument, "apps|v1||||"},
           Case{"/openapi/v2", What::Unknown, "|||||"},
           Case{"/metrics", What::Unknown, "|||||"},
       }) {
    const Route route = parse_route(target(row.path));
    EXPECT_EQ(route.what, row.what) << row.path;
    EXPECT_EQ(fmt::format("{}|{}|{}|{}|{}|{}", route.group, route.version, route.plural, route.space, route.name, route.subresource), row.fields) << row.path;
  }
}

TEST(Routes, GiveKubernetesVerbs) {
  const Route collection = parse_route(target("/api/v1/pods")), object = parse_route(target("/api/v1/nodes/n"));
  EXPECT_EQ(verb_of("GET", collection, false), "list");
  EXPECT_EQ(verb_of("GET", collection, true), "watch");
  EXPECT_EQ(verb_of("GET", object, false), "get");
  EXPECT_EQ(verb_of("DELETE", collection, false), "deletecollection");
  EXPECT_EQ(verb_of("DELETE", object, false), "delete");
  EXPECT_EQ(verb_of("PATCH", object, false), "patch");
  EXPECT_EQ(verb_of("BREW", object, false), "");
}

}  // namespace
}  // namespace fairlead::apiserver
