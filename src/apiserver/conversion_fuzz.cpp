// SPDX-License-Identifier: Apache-2.0
// Answers as a webhook may send them: taken whole with the objects' own metadata, or refused.
#include <cstdint>
#include <string_view>

#include "apiserver/conversion.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead;
  auto parsed = kube::parse_json({reinterpret_cast<const char*>(data), size});
  if (!parsed) return 0;
  static const kube::Json asked = *kube::parse_json(R"([{"apiVersion":"g.dev/v1","kind":"W","metadata":{"name":"a","uid":"u","resourceVersion":"7"}}])");
  if (const auto done = apiserver::converted_objects(*parsed, "id", "g.dev/v2", asked.items())) {
    INVARIANT(done->size() == 1 && (*done)[0]["apiVersion"].string() == "g.dev/v2" && (*done)[0]["metadata"]["uid"].string() == "u" && (*done)[0]["metadata"]["resourceVersion"].string() == "7");
  }
  apiserver::FieldErrors errors;
  apiserver::check_conversion(*parsed, errors);
  (void)apiserver::hook_of(kube::Json::object({{"spec", kube::Json::object({{"conversion", *parsed}})}}));
  return 0;
}
