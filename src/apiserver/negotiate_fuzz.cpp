// SPDX-License-Identifier: Apache-2.0
// Targets, media types and bodies come from anybody who can reach the port: none of them may crash the server.
#include <cstddef>
#include <cstdint>

#include "apiserver/negotiate.h"
#include "apiserver/routes.h"
#include "apiserver/status.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const auto asked : {apiserver::Asked::Plain, apiserver::Asked::Objects, apiserver::Asked::Discovery}) (void)apiserver::choose_form(text, asked);
  if (const auto target = http::parse_target(text)) {
    const auto route = apiserver::parse_route(*target);
    INVARIANT(route.what != apiserver::Route::What::Object || !route.plural.empty());
    INVARIANT(route.subresource.empty() || !route.name.empty());
  }
  (void)apiserver::to_response(apiserver::status_of({Code::Invalid, std::string(text)}));
  for (const char* type : {"application/json", "application/yaml", "application/vnd.kubernetes.protobuf"}) (void)apiserver::parse_body(type, text).has_value();
  return 0;
}
