// SPDX-License-Identifier: Apache-2.0
#include "node/token_cache.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"

namespace fairlead::node {
using kube::Json;
using namespace std::chrono_literals;

Instant token_refresh_time(Instant given, Instant ends) { return std::min(given + (ends - given) / 10 * 8, given + 24h); }

Result<TokenCache::Entry> TokenCache::ask(const Json& pod, const std::string& audience, std::int64_t seconds) const {
  Json spec = Json::object(
      {{"expirationSeconds", seconds},
       {"boundObjectRef", Json::object({{"apiVersion", "v1"}, {"kind", "Pod"}, {"name", kube::name_of(pod)}, {"uid", kube::uid_of(pod)}})}});
  if (!audience.empty()) spec.set("audiences", Json::array({audience}));
  const std::string account = pod["spec"]["serviceAccountName"].string_or("default");
  const Instant now = clock_.now();
  auto answer = api_.post(
      kube::resources::service_accounts, {kube::space_of(pod), account.empty() ? "default" : account}, "token",
      Json::object({{"apiVersion", "authentication.k8s.io/v1"}, {"kind", "TokenRequest"}, {"metadata", Json::object()}, {"spec", std::move(spec)}}));
  if (!answer) return pass(std::move(answer.error()), fmt::format("ask for a token of serviceaccount \"{}\"", account));
  const Json& status = (*answer)["status"];
  auto ends = parse_time(status["expirationTimestamp"].string());
  if (!ends || status["token"].string().empty()) return fail(Code::Internal, "the answer to a TokenRequest has no token");
  return Entry{.token = status["token"].string(), .refresh = token_refresh_time(now, *ends), .ends = *ends, .next_try = now};
}

Result<std::string> TokenCache::token(const Json& pod, const std::string& audience, std::int64_t seconds) {
  const std::string& uid = kube::uid_of(pod);
  const std::string key = fmt::format("{}/{}", seconds, audience);
  const Instant now = clock_.now();
  std::optional<Entry> old;
  {
    const std::lock_guard lock(mutex_);
    auto& entries = entries_[uid];
    if (const auto it = entries.find(key); it != entries.end()) old = it->second;
  }
  if (old && (now < old->refresh || (now < old->next_try && now < old->ends))) return old->token;
  auto fresh = ask(pod, audience, seconds);
  const std::lock_guard lock(mutex_);
  if (!fresh) {
    if (!old || now >= old->ends) return std::unexpected(std::move(fresh.error()));
    log_warn("a service account token could not be renewed yet", {{"pod", kube::key_of(pod).text()}, {"reason", fresh.error().message}});
    old->next_try = now + 30s;
    entries_[uid][key] = *old;
    return old->token;
  }
  entries_[uid][key] = *fresh;
  return fresh->token;
}

void TokenCache::forget(const std::string& pod_uid) {
  const std::lock_guard lock(mutex_);
  entries_.erase(pod_uid);
}

}  // namespace fairlead::node
