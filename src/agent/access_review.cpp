// SPDX-License-Identifier: Apache-2.0
#include "agent/access_review.h"

#include "base/log.h"

namespace fairlead::agent {
using kube::Json;
using namespace std::chrono_literals;

bool AccessReview::allows(const http::Peer& peer) {
  if (peer.common_name.empty()) return false;
  Json groups = Json::array();
  std::string key = peer.common_name;
  for (const std::string& group : peer.organizations) {
    groups.push(group);
    key += "\n" + group;
  }
  groups.push("system:authenticated");
  const auto now = clock_.monotonic();
  {
    const std::lock_guard lock(mutex_);
    if (const auto it = verdicts_.find(key); it != verdicts_.end() && now < it->second.until) return it->second.allowed;
  }
  const kube::Resource reviews{
      .group = "authorization.k8s.io", .version = "v1", .plural = "subjectaccessreviews", .kind = "SubjectAccessReview", .namespaced = false};
  const Json asked = Json::object({{"verb", "create"}, {"version", "v1"}, {"resource", "nodes"}, {"subresource", "proxy"}, {"name", node_name_}});
  auto answer = api_.create(
      reviews, Json::object({{"apiVersion", "authorization.k8s.io/v1"},
                             {"kind", "SubjectAccessReview"},
                             {"metadata", Json::object()},
                             {"spec", Json::object({{"user", peer.common_name}, {"groups", std::move(groups)}, {"resourceAttributes", asked}})}}));
  if (!answer) log_warn("nobody could tell whether a user may ask this node", {{"user", peer.common_name}, {"reason", answer.error().message}});
  const bool allowed = answer && (*answer)["status"]["allowed"].boolean() && !(*answer)["status"]["denied"].boolean();
  const std::lock_guard lock(mutex_);
  if (verdicts_.size() >= 1000) verdicts_.clear();
  verdicts_[key] = {.allowed = allowed, .until = now + (allowed ? std::chrono::nanoseconds(5min) : std::chrono::nanoseconds(30s))};
  return allowed;
}

}  // namespace fairlead::agent
