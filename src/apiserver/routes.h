// SPDX-License-Identifier: Apache-2.0
// From a URL to what it names. Pure: whether the resource is served is decided by the caller.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "http/message.h"

namespace fairlead::apiserver {

struct Route {
  enum class What {
    Health,           // /healthz, /livez, /readyz (and their checks below)
    Version,          // /version
    CoreVersions,     // /api
    Groups,           // /apis
    Group,            // /apis/apps
    Resources,        // /api/v1, /apis/apps/v1
    OpenApiIndex,     // /openapi/v3
    OpenApiDocument,  // /openapi/v3/api/v1, /openapi/v3/apis/apps/v1
    Object,           // a resource: collection (name empty), object, subresource
    Unknown,
  };
  What what = What::Unknown;
  std::string group, version;  // "" and "v1" for the core group
  std::string plural, space, name, subresource;
};
Route parse_route(const http::Target& target);

// Kubernetes' verb of a request: get, list, watch, create, update, patch, delete, deletecollection; "" for another method.
std::string_view verb_of(std::string_view method, const Route& route, bool watch);

}  // namespace fairlead::apiserver
