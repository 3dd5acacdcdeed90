// SPDX-License-Identifier: Apache-2.0
#include "fleet/control/out_of_service.h"

#include <algorithm>

#include "api/machine.h"
#include "kube/object.h"

namespace fairlead::fleet {

using kube::Json;
namespace resources = kube::resources;

namespace {
constexpr const char* kMachineOff = "machine-off";  // value of our taint
bool is_ours(const Json& taint) { return taint["key"].string() == api::kOutOfService && taint["value"].string() == kMachineOff; }
}  // namespace

bool is_declared_out_of_service(const Json& node) {
  const auto& taints = node["spec"]["taints"].items();
  return std::any_of(taints.begin(), taints.end(), is_ours);
}

Result<void> declare_out_of_service(kube::KubeApi& api, const Clock& clock, const std::string& name, bool out, const std::string& why) {
  auto node = api.get(resources::nodes, {"", name});
  if (!node) {
    if (node.error().code == Code::NotFound) return {};
    return std::unexpected(std::move(node.error()));
  }
  if (is_declared_out_of_service(*node) != out) {
    Json taints = Json::array();
    const auto& before = (*node)["spec"]["taints"].items();
    for (const Json& taint : before)
      if (out || !is_ours(taint)) taints.push(taint);
    // NoSchedule: its pods stay its own, for it may be back in a moment. Who wants them elsewhere sets NoExecute.
    if (out) taints.push(Json::object({{"key", api::kOutOfService}, {"value", kMachineOff}, {"effect", "NoSchedule"}}));
    if (taints.items().empty()) node->child("spec").erase("taints");
    else node->child("spec").set("taints", std::move(taints));
    auto written = api.update(resources::nodes, *node);
    if (!written) return std::unexpected(std::move(written.error()));
    node = std::move(written);
  }
  // Back in service it says so itself.
  if (!out || !kube::condition_is_true(*node, "Ready")) return {};
  kube::set_condition(*node, {.type = "Ready", .status = "False", .reason = "MachineOff", .message = why}, clock.now());
  if (auto written = api.update_status(resources::nodes, *node); !written) return std::unexpected(std::move(written.error()));
  return {};
}

}  // namespace fairlead::fleet
