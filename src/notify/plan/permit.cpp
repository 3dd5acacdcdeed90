// SPDX-License-Identifier: Apache-2.0
#include "notify/plan/permit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "kube/object.h"

namespace fairlead::notify {

using kube::Json;

Result<void> meant_for_notifications(const Json& secret) {
  const Json* label = secret["metadata"]["labels"].find(kMeantFor);
  if (label && label->string() == "true") return {};
  const std::string& name = kube::name_of(secret);
  return fail(Code::Forbidden, fmt::format("Secret {} lacks the label {}=true, without which no topic may use it: kubectl -n {} label secret {} {}=true", name, kMeantFor, kube::space_of(secret), name, kMeantFor));
}

Result<void> meant_for_host(const Json& secret, const std::string& host) {
  const Json* only = secret["metadata"]["annotations"].find(kOnlyHost);
  if (!only) return {};
  const std::string& wanted = only->string();
  const bool same = !host.empty() && std::equal(host.begin(), host.end(), wanted.begin(), wanted.end(), [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); });
  if (same) return {};
  return fail(Code::Forbidden, fmt::format("Secret {} is for another host: its annotation {} is \"{}\"", kube::name_of(secret), kOnlyHost, wanted.substr(0, 100)));
}

}  // namespace fairlead::notify
