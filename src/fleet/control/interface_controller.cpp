// SPDX-License-Identifier: Apache-2.0
#include "fleet/control/interface_controller.h"

#include <fmt/format.h>

#include "api/cluster.h"
#include "base/log.h"
#include "fleet/plan/interfaces.h"

namespace fairlead::fleet {

using kube::Json;
namespace resources = kube::resources;

const kube::ObjectKey InterfaceController::kAll{"", "all"};

std::optional<kube::Access> InterfaceController::access() const { return kube::Access().may({"update"}, api::kNetworkInterfaces).may({"update"}, api::kNetworkInterfaces, "status").may({"get", "patch"}, resources::nodes); }

std::vector<kube::Controller::Source> InterfaceController::sources() const {
  // Where nobody has made one, nothing is done; a node that was told of one that is gone is seen by its annotation.
  const auto of = [this](Json (*seen)(const Json&)) {
    return [this, seen](const kube::Change& change) {
      const bool news = !change.before || !change.after || seen(*change.before) != seen(*change.after);
      const bool told = change.object()["metadata"]["annotations"].has(api::kInterfacesNote);
      return news && (any_ || told) ? std::vector<kube::ObjectKey>{kAll} : std::vector<kube::ObjectKey>();
    };
  };
  const auto of_interface = [this](const kube::Change&) {
    any_ = true;
    return std::vector<kube::ObjectKey>{kAll};
  };
  const auto as_node = [](const Json& node) { return Json::array({node["metadata"]["annotations"][api::kInterfacesNote], node["metadata"]["annotations"][api::kInterfacesStateNote], node["status"]["nodeInfo"]["kubeletVersion"]}); };
  const auto as_instance = [](const Json& instance) { return Json::array({instance["status"]["node"]}); };
  return {{api::kNetworkInterfaces, "", of_interface}, {api::kInstances, "", of(as_instance)}, {resources::nodes, "", of(as_node)}};
}

Result<kube::Next> InterfaceController::reconcile(const kube::ObjectKey&) {
  InterfaceSnapshot seen;
  caches_->of(api::kNetworkInterfaces).each("", [&](const Json& object) { seen.interfaces.push_back(object); });
  any_ = !seen.interfaces.empty();
  caches_->of(api::kInstances).each("", [&](const Json& object) { seen.instances.emplace(kube::name_of(object), object["status"]["node"].string()); });
  caches_->of(resources::nodes).each("", [&](const Json& object) { seen.nodes.emplace(kube::name_of(object), object); });
  // By the version on which it was decided, where two could disagree; in this order, so that a death in between has told before it acts.
  const InterfacePlan plan = plan_interfaces(seen, clock_.now());
  for (const Json& object : plan.statuses) {
    // That a node has given it up is not believed to a cache, which may be of before it was told.
    const auto cached = caches_->of(api::kNetworkInterfaces).get({"", kube::name_of(object)});
    const std::string at = cached ? (*cached)["status"]["node"].string() : "";
    if (!at.empty() && object["status"]["node"].string() != at) {
      const auto node = api_.get(resources::nodes, {"", at});
      if (!node && node.error().code != Code::NotFound) return pass(node.error(), "read node " + at);
      if (node && !has_left(kube::name_of(object), *node)) continue;  // the cache will tell
      // An order that somebody decided before, and sends late, is about another version of the Node from here on.
      if (node) {
        const Json left = Json::object({{"metadata", Json::object({{"resourceVersion", kube::version_of(*node)}, {"annotations", Json::object({{api::kInterfaceLeftNote, fmt::format("{} {}", kube::name_of(object), kube::version_of(object))}})}})}});
        if (auto done = api_.patch(resources::nodes, {"", at}, kube::PatchType::Merge, left); !done && done.error().code != Code::NotFound) return pass(std::move(done.error()), "note that " + kube::name_of(object) + " has left node " + at);
      }
    }
    log_info("network interface", {{"id", kube::name_of(object)}, {"status", object["status"]["phase"].string()}, {"node", object["status"]["node"].string()}, {"message", object["status"]["message"].string()}});
    if (auto done = api_.update_status(api::kNetworkInterfaces, object); !done) return pass(std::move(done.error()), "write the status of " + kube::name_of(object));
  }
  for (const Json& object : plan.objects)
    if (auto done = api_.update(api::kNetworkInterfaces, object); !done && done.error().code != Code::NotFound) return pass(std::move(done.error()), "free " + kube::name_of(object));
  for (const auto& [node, note] : plan.notes) {
    const Json patch = Json::object({{"metadata", Json::object({{"resourceVersion", kube::version_of(seen.nodes.at(node))}, {"annotations", Json::object({{api::kInterfacesNote, note.empty() ? Json() : Json(note)}})}})}});
    if (auto done = api_.patch(resources::nodes, {"", node}, kube::PatchType::Merge, patch); !done && done.error().code != Code::NotFound) return pass(std::move(done.error()), "tell node " + node + " of its network interfaces");
  }
  return kube::Next{};
}

}  // namespace fairlead::fleet
