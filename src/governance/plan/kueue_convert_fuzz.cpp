// SPDX-License-Identifier: Apache-2.0
// Objects as anybody may send them to the conversion webhook: converted or refused, and what was converted can be converted back and is settled then.
#include <cstdint>
#include <string_view>

#include "governance/plan/kueue_convert.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead;
  auto parsed = kube::parse_json({reinterpret_cast<const char*>(data), size});
  if (!parsed) return 0;
  (void)governance::answer_conversion(*parsed);
  if (!parsed->is_object()) return 0;
  const char* versions[] = {"kueue.x-k8s.io/v1beta1", "kueue.x-k8s.io/v1beta2"};
  for (int i = 0; i < 2; ++i) {
    kube::Json object = *parsed;
    object.set("apiVersion", versions[i]);
    const auto there = governance::convert_kueue(object, versions[1 - i]);
    INVARIANT(there && (*there)["apiVersion"].string() == versions[1 - i] && (*there)["metadata"]["name"] == object["metadata"]["name"]);
    const auto back = governance::convert_kueue(*there, versions[i]);
    INVARIANT(back && (*back)["kind"] == object["kind"]);
  }
  return 0;
}
