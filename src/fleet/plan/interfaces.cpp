// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/interfaces.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/machine.h"

namespace fairlead::fleet {

using kube::Json;

namespace {

const std::string& note_of(const Json& node) { return node["metadata"]["annotations"][api::kInterfacesNote].string(); }

class Planner {
 public:
  Planner(const InterfaceSnapshot& seen, Instant now) : seen_(seen), now_(now) {}

  InterfacePlan run() {
    for (const Json& object : seen_.interfaces) place(object);
    for (const auto& [name, node] : seen_.nodes) {
      const auto found = wanted_.find(name);
      const std::string text = found == wanted_.end() ? "" : api::print_interface_orders(sorted(found->second));
      if (text != note_of(node)) out_.notes.emplace(name, text);
    }
    return std::move(out_);
  }

 private:
  static api::InterfaceOrders sorted(const std::map<std::string, api::InterfaceOrder>& orders) {
    api::InterfaceOrders out;
    for (const auto& [id, order] : orders) out.push_back(order);
    return out;
  }

  void tell(const Json& object, const char* phase, const std::string& node, const std::string& message) {
    const Json& before = object["status"];
    Json status = Json::object({{"phase", phase}});
    if (!node.empty()) status.set("node", node);
    if (!message.empty()) status.set("message", message);
    const bool same = before["phase"].string() == phase && before["node"].string() == node;
    status.set("since", same && before.has("since") ? before["since"].string() : print_time(now_));
    if (status == before) return;
    Json changed = object;
    changed.set("status", std::move(status));
    out_.statuses.push_back(std::move(changed));
  }

  void place(const Json& object) {
    const api::NetworkInterface one = api::read_network_interface(object);
    const std::string& id = one.order.id;
    const bool goes = kube::deleting(object);
    const auto instance = seen_.instances.find(one.instance);
    const bool wanted = !goes && !one.instance.empty() && instance != seen_.instances.end() && one.problem.empty();
    const std::string to = wanted ? instance->second : "";
    if (!one.node.empty() && one.node != to) {
      const auto before = seen_.nodes.find(one.node);
      if (before != seen_.nodes.end() && !has_left(id, before->second)) return tell(object, "Detaching", one.node, fmt::format("node {} is to give it up", one.node));
      return tell(object, "Detaching", "", "");
    }
    if (goes) {
      if (!kube::has_finalizer(object, api::kInterfaceFinalizer)) return;
      Json without = object;
      kube::remove_finalizer(without, api::kInterfaceFinalizer);
      out_.objects.push_back(std::move(without));
      return;
    }
    if (!one.problem.empty()) return tell(object, "Invalid", "", one.problem);
    if (one.instance.empty()) return tell(object, "Available", "", "");
    if (instance == seen_.instances.end()) {
      Json without = object;
      without.child("spec").erase("attachment");
      out_.objects.push_back(std::move(without));
      return;
    }
    if (to.empty()) return tell(object, "Attaching", "", fmt::format("instance {} has no machine", one.instance));
    const auto node = seen_.nodes.find(to);
    if (node == seen_.nodes.end()) return tell(object, "Attaching", one.node, fmt::format("node {} is not there", to));
    if (!api::is_run_by_agent(node->second)) return tell(object, "Failed", "", fmt::format("node {} has a kubelet of its own: nobody there puts up interfaces", to));
    if (one.node != to) return tell(object, "Attaching", to, "");
    wanted_[to].emplace(id, one.order);
    const auto states = api::read_interface_states(node->second);
    if (!states) return tell(object, "Attaching", to, states.error().message);
    const auto told = states->find(id);
    if (told == states->end()) return tell(object, "Attaching", to, "");
    if (told->second == api::kInterfaceClaimed) return tell(object, "Attaching", to, "");
    tell(object, told->second.empty() ? "Attached" : "Failed", to, told->second);
  }

  const InterfaceSnapshot& seen_;
  const Instant now_;
  std::map<std::string, std::map<std::string, api::InterfaceOrder>> wanted_;  // by node and id
  InterfacePlan out_;
};

}  // namespace

bool has_left(const std::string& id, const Json& node) {
  const auto orders = api::parse_interface_orders(note_of(node));
  const auto states = api::read_interface_states(node);
  return orders && states && !states->contains(id) && std::none_of(orders->begin(), orders->end(), [&](const api::InterfaceOrder& one) { return one.id == id; });
}

InterfacePlan plan_interfaces(const InterfaceSnapshot& seen, Instant now) { return Planner(seen, now).run(); }

}  // namespace fairlead::fleet
