// SPDX-License-Identifier: Apache-2.0
#include "storage/control/ephemeral_claim_controller.h"

#include <fmt/format.h>

#include <algorithm>

#include "kube/pod_claims.h"
#include "storage/control/events.h"
#include "storage/plan/ephemeral_claim.h"

namespace fairlead::storage {

using kube::Json;
using namespace std::chrono_literals;
namespace resources = kube::resources;

namespace {

constexpr const char* kComponent = "ephemeral_volume";
constexpr auto kWaits = 5s;

bool has_some(const Json& pod) {
  const auto& volumes = pod["spec"]["volumes"].items();
  return std::any_of(volumes.begin(), volumes.end(), [](const Json& one) { return kube::is_ephemeral(one); });
}

}  // namespace

std::vector<kube::Controller::Source> EphemeralClaimController::sources() const {
  // What its volumes are stands in a pod from its beginning.
  const auto of_pod = [](const kube::Change& change) { return !change.after || change.before || !has_some(*change.after) ? std::vector<kube::ObjectKey>() : std::vector{kube::key_of(*change.after)}; };
  // One that was deleted under its pod is made anew, as long as that has not ended.
  const auto of_claim = [](const kube::Change& change) {
    const Json* owner = kube::controller_of(change.object());
    return change.after || owner == nullptr || (*owner)["kind"].string() != "Pod" ? std::vector<kube::ObjectKey>() : std::vector<kube::ObjectKey>{{kube::space_of(change.object()), (*owner)["name"].string()}};
  };
  return {{resources::pods, "", of_pod}, {resources::claims, "", of_claim}};
}

Result<kube::Next> EphemeralClaimController::reconcile(const kube::ObjectKey& key) {
  const auto pod = caches_->of(resources::pods).get(key);
  if (!pod) return kube::Next{};
  bool again = false;
  for (const Json& volume : (*pod)["spec"]["volumes"].items()) {
    if (!kube::is_ephemeral(volume)) continue;
    const std::string name = kube::claim_of(*pod, volume);
    const EphemeralNext next = next_for_ephemeral(*pod, volume, caches_->of(resources::claims).get({key.space, name}));
    if (!next.why.empty()) tell(api_, clock_, kComponent, resources::pods, *pod, "FailedBinding", next.why), again = true;
    if (next.make.is_null()) continue;
    auto made = api_.create(resources::claims, next.make);
    // Somebody's, or our own that the cache has not seen yet.
    if (!made && made.error().code == Code::Exists) again = true;
    else if (!made) {
      tell(api_, clock_, kComponent, resources::pods, *pod, "FailedBinding", fmt::format("PersistentVolumeClaim {}: {}", name, made.error().message));
      return pass(std::move(made.error()), fmt::format("make the claim of volume {} of pod {}", volume["name"].string(), key.text()));
    }
  }
  return kube::Next{again ? std::optional<std::chrono::nanoseconds>(kWaits) : std::nullopt};
}

}  // namespace fairlead::storage
