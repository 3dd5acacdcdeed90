// SPDX-License-Identifier: Apache-2.0
#include "governance/control/inquiry_controller.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/team_crds.h"
#include "governance/plan/inquiry.h"

namespace fairlead::governance {

using kube::Json;
using kube::ObjectKey;

namespace {

class CachedObjects final : public InquiryObjects {
 public:
  explicit CachedObjects(const kube::Caches& caches) : caches_(caches) {}
  std::vector<Json> all(const kube::Resource& resource) const override { return caches_.of(resource).list(""); }
  std::optional<Json> one(const kube::Resource& resource, const ObjectKey& key) const override { return caches_.of(resource).get(key); }

 private:
  const kube::Caches& caches_;
};

}  // namespace

std::vector<kube::Controller::Source> InquiryController::sources() const {
  std::vector<Source> out{{api::teams::inquiries, "", [this](const kube::Change& change) { return note(change); }}};
  for (const kube::Resource& kind : inquiry_kinds()) out.push_back({kind, "", [](const kube::Change&) { return std::vector<ObjectKey>{}; }});
  return out;
}

std::vector<ObjectKey> InquiryController::note(const kube::Change& change) const {
  const ObjectKey key = kube::key_of(change.object());
  const std::lock_guard lock(mutex_);
  if (change.after) {
    seen_[key.space][key.name] = {(*change.after)["metadata"]["creationTimestamp"].string(), answered(*change.after)};
  } else if (const auto at = seen_.find(key.space); at != seen_.end()) {
    at->second.erase(key.name);
    if (at->second.empty()) seen_.erase(at);
  }
  return {key};
}

std::optional<kube::Access> InquiryController::access() const {
  kube::Access access;
  return access.may({"update"}, api::teams::inquiries, "status").may({"delete"}, api::teams::inquiries);
}

Result<kube::Next> InquiryController::reconcile(const ObjectKey& key) {
  const kube::Reader& inquiries = caches_->of(api::teams::inquiries);
  const auto inquiry = inquiries.get(key);
  if (!inquiry || kube::deleting(*inquiry)) return kube::Next{};
  const Instant now = clock_.now();
  if (const auto ends = inquiry_ends(*inquiry)) {
    if (*ends > now) return kube::Next{*ends - now};
    auto gone = api_.remove(api::teams::inquiries, key, {.uid = kube::uid_of(*inquiry), .resource_version = kube::version_of(*inquiry)});
    if (!gone && gone.error().code != Code::NotFound) return pass(std::move(gone.error()), "delete Inquiry " + key.text());
    return kube::Next{};
  }
  std::size_t waiting = 0, there = 0;
  {
    const std::lock_guard lock(mutex_);
    const std::pair own((*inquiry)["metadata"]["creationTimestamp"].string(), key.name);
    for (const auto& [name, other] : seen_[key.space]) {
      ++there;
      waiting += !other.answered && std::pair(other.created, name) < own;
    }
  }
  const std::lock_guard one(one_at_a_time_);
  const Json answer = waiting >= most_waiting ? refuse_inquiry(*inquiry, "TooMany", fmt::format("{} others of this namespace wait for an answer; ask again later", most_waiting), now)
                      : there > most_there    ? refuse_inquiry(*inquiry, "TooMany", fmt::format("there are {} Inquiries in this namespace: delete what was answered, or wait until it goes", there), now)
                                              : answer_inquiry(*inquiry, CachedObjects(*caches_), now);
  auto written = api_.update_status(api::teams::inquiries, answer);
  if (!written && written.error().code == Code::NotFound) return kube::Next{};
  if (!written) return pass(std::move(written.error()), "answer Inquiry " + key.text());
  return kube::Next{};  // what was written comes back as a change
}

}  // namespace fairlead::governance
