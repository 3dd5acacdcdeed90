// SPDX-License-Identifier: Apache-2.0
#include "storage/plan/attachments.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "api/volume.h"

namespace fairlead::storage {

using kube::Json;

namespace {

const std::string& node_of(const Json& attachment) { return attachment["spec"]["node"].string(); }
bool reads(const Json& attachment) { return attachment["spec"]["readOnly"].boolean(); }
const std::string& for_pod(const Json& attachment) { return attachment["metadata"]["annotations"][api::kForPod].string(); }

// Of pods that each want it alone: the one that has it, else the oldest, once whoever had it has let go. The others are told, and wish for nothing.
void leave_one(const std::string& name, std::vector<Wish>& wishes, const std::vector<Json>& attachments, AttachPlan& plan) {
  if (std::none_of(wishes.begin(), wishes.end(), [](const Wish& one) { return one.alone; })) return;
  auto chosen = wishes.begin();
  for (const Json& one : attachments)
    if (!for_pod(one).empty()) chosen = std::find_if(wishes.begin(), wishes.end(), [&](const Wish& wish) { return kube::uid_of(wish.pod) == for_pod(one); });
  const std::string holder = chosen == wishes.end() ? "a pod that is ending" : fmt::format("pod \"{}\"", kube::name_of(chosen->pod));
  std::vector<Wish> left;
  for (auto one = wishes.begin(); one != wishes.end(); ++one) {
    if (one == chosen) left.push_back(*one);
    else plan.tell.push_back({one->pod, fmt::format("volume \"{}\" uses the ReadWriteOncePod access mode and is already in use by {}", name, holder)});
  }
  wishes = std::move(left);
}

}  // namespace

AttachPlan plan_attachments(const std::string& name, std::vector<Wish> wishes, const std::vector<Json>& attachments) {
  AttachPlan plan;
  const auto age = [](const Wish& one) { return std::tuple(one.pod["metadata"]["creationTimestamp"].string(), kube::space_of(one.pod), kube::name_of(one.pod)); };
  std::sort(wishes.begin(), wishes.end(), [&](const Wish& a, const Wish& b) { return age(a) < age(b); });
  leave_one(name, wishes, attachments, plan);

  struct Node {
    bool writes = false;
    std::vector<const Wish*> wishes;
  };
  std::map<std::string, Node> nodes;
  std::vector<std::string> order;  // as they asked
  for (const Wish& one : wishes) {
    const std::string& node = one.pod["spec"]["nodeName"].string();
    if (!nodes.contains(node)) order.push_back(node);
    nodes[node].writes = nodes[node].writes || !one.read_only;
    nodes[node].wishes.push_back(&one);
  }

  std::string writers, readers;
  const auto add = [](std::string& to, const std::string& node) { to += (to.empty() ? "" : ", ") + node; };
  std::map<std::string, const Json*> there;
  for (const Json& one : attachments) {
    const std::string& node = node_of(one);
    there[node] = &one;
    add(reads(one) ? readers : writers, node);
    const auto wanted = nodes.find(node);
    // One that reads is of no use to pods that all write; it is made anew once nobody uses it.
    const bool fits = wanted != nodes.end() && (!reads(one) || std::any_of(wanted->second.wishes.begin(), wanted->second.wishes.end(), [](const Wish* wish) { return wish->read_only; })) &&
                      (for_pod(one).empty() || kube::uid_of(wanted->second.wishes.front()->pod) == for_pod(one));
    if (!fits && one["metadata"]["labels"][api::kForPods].string() == "true" && !kube::deleting(one)) plan.remove.push_back(one);
  }

  for (const std::string& node : order) {
    const Node& wanted = nodes.at(node);
    const auto say = [&](const std::string& why, bool to_writers_alone = false) {
      for (const Wish* one : wanted.wishes)
        if (!to_writers_alone || !one->read_only) plan.tell.push_back({one->pod, why});
    };
    const std::string multi = fmt::format("Multi-Attach error for volume \"{}\": it is attached to node {}", name, writers.empty() ? readers : writers);
    if (const auto found = there.find(node); found != there.end()) {
      const Json& one = *found->second;
      if (kube::deleting(one)) plan.look_again = true;
      else if (one["status"]["phase"].string() == "Failed") say(fmt::format("AttachVolume.Attach failed for volume \"{}\": {}", name, one["status"]["message"].string()));
      else if (reads(one) && wanted.writes) say(multi + " read-only, and who writes has it alone", true);
      continue;
    }
    if (!writers.empty() || (wanted.writes && !readers.empty())) {
      say(multi + (writers.empty() ? " read-only, and who writes has it alone" : ", and one node at a time has it"));
      continue;
    }
    const Wish& first = *wanted.wishes.front();
    plan.make.push_back({.node = node, .read_only = !wanted.writes, .pod = first.alone ? kube::uid_of(first.pod) : ""});
    add(wanted.writes ? writers : readers, node);
  }
  return plan;
}

Json labels_for_pools(const kube::Labels& now, std::vector<std::string> reached) {
  std::sort(reached.begin(), reached.end());
  const auto first = now.find(api::kPoolLabel);
  const bool stays = first != now.end() && std::binary_search(reached.begin(), reached.end(), first->second);
  const std::string one = stays ? first->second : reached.empty() ? "" : reached.front();
  Json out = Json::object();
  if ((first == now.end() ? "" : first->second) != one) out.set(api::kPoolLabel, one.empty() ? Json() : Json(one));
  for (const auto& [key, value] : now)
    if (key.starts_with(api::kFurtherPool) && (key == api::kFurtherPool + one || !std::binary_search(reached.begin(), reached.end(), key.substr(std::string_view(api::kFurtherPool).size())))) out.set(key, Json());
  for (const std::string& pool : reached)
    if (const auto there = now.find(api::kFurtherPool + pool); pool != one && (there == now.end() || there->second != "true")) out.set(api::kFurtherPool + pool, "true");
  return out.members().empty() ? Json() : out;
}

}  // namespace fairlead::storage
