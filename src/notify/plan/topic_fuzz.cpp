// SPDX-License-Identifier: Apache-2.0
#include "notify/plan/topic.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fairlead;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (notify::is_mail_address(text)) INVARIANT(text.find_first_of("\r\n <>\t") == std::string_view::npos && text.size() <= 254);
  if (const auto url = notify::parse_url(text)) {
    INVARIANT(!url->host.empty() && url->port > 0 && url->target.starts_with('/'));
    INVARIANT((url->host + url->target).find_first_of("\r\n ") == std::string::npos);
  }
  if (const auto json = kube::parse_json(text))
    for (const auto& target : notify::targets_of(notify::read_topic(*json))) INVARIANT(!target.name().empty());
  return 0;
}
