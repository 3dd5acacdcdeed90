// SPDX-License-Identifier: Apache-2.0
#include "kube/selector.h"

namespace {

using namespace fairlead;
using namespace fairlead::kube;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto labels = LabelSelector::parse(text)) {
    const auto again = LabelSelector::parse(labels->text());
    INVARIANT(again && again->text() == labels->text());
    const Labels some = {{"a", "b"}, {"app", "web"}, {"n", "5"}};
    INVARIANT(again->matches(some) == labels->matches(some));
  }
  if (const auto fields = FieldSelector::parse(text)) (void)fields->matches(Json::object({{"metadata", Json::object({{"name", "a"}})}}));
  for (const auto check : {check_dns_label, check_dns_subdomain, check_label_key, check_label_value}) (void)check(text);
  return 0;
}
