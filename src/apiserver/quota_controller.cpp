// SPDX-License-Identifier: Apache-2.0
#include "apiserver/quota_controller.h"

#include <algorithm>

#include "apiserver/kinds/resources.h"
#include "apiserver/quota_ledger.h"

namespace fairlead::apiserver {

using kube::Json;

namespace {

constexpr std::chrono::seconds look_again{1};

}  // namespace

std::vector<kube::Controller::Source> QuotaController::sources() const {
  const auto keys = [this](const kube::Change& change) { return quotas_of(change); };
  std::vector<Source> out;
  out.push_back({workloads::quotas, "", kube::key_itself});
  for (const kube::Resource* kind : looked_into) out.push_back({*kind, "", keys});
  return out;
}

void QuotaController::start(const kube::Caches& caches) { quotas_ = &caches.of(workloads::quotas); }

std::vector<kube::ObjectKey> QuotaController::quotas_of(const kube::Change& change) const {
  std::vector<kube::ObjectKey> out;
  for (const Json& quota : quotas_->list(kube::space_of(change.object()))) out.push_back(kube::key_of(quota));
  return out;
}

Result<kube::Next> QuotaController::reconcile(const kube::ObjectKey& key) {
  auto quota = api_.get(workloads::quotas, key);
  if (!quota && quota.error().code == Code::NotFound) return kube::Next{};
  if (!quota) return std::unexpected(std::move(quota.error()));
  auto use = registry_.quota_use(key);
  if (!use) return pass(std::move(use.error()), "use of quota " + key.text());
  if (!*use) return kube::Next{};  // it went meanwhile
  const Json& hard = (*quota)["spec"]["hard"];
  const Json status = Json::object({{"hard", hard.is_null() ? Json::object({}) : hard}, {"used", (*use)->used}});
  if (!(status == (*quota)["status"])) {
    quota->set("status", status);
    // Carries the version that it was read at: a quota that changed in between is counted anew.
    auto written = api_.update_status(workloads::quotas, *quota);
    if (!written && written.error().code != Code::NotFound) return pass(std::move(written.error()), "status of quota " + key.text());
  }
  std::optional<std::chrono::nanoseconds> again;
  for (const auto& [name, limit] : hard.members())
    if (const auto kind = counted_kind(name); kind && !is_looked_into(resource_of(*kind))) again = look_again;
  if ((*use)->until) again = std::min<std::chrono::nanoseconds>(again.value_or(std::chrono::hours(1)), std::max<std::chrono::nanoseconds>(*(*use)->until - clock_.now() + 1ms, 1ms));
  return kube::Next{again};
}

}  // namespace fairlead::apiserver
