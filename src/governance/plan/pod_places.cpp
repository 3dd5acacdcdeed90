// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/pod_places.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "governance/plan/books.h"
#include "governance/plan/topology_assignment.h"

namespace fairlead::governance {

using kube::Json;

namespace {

constexpr const char *kJobIndex = "batch.kubernetes.io/job-completion-index", *kGroupIndex = "kueue.x-k8s.io/pod-group-pod-index", *kIndexOffset = "kueue.x-k8s.io/pod-index-offset";
constexpr std::size_t most_layers = 3;

std::optional<std::int64_t> number_in(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

const Json* assignment_of(const Json& workload, const std::string& pod_set) {
  for (const Json& one : workload["status"]["admission"]["podSetAssignments"].items())
    if (one["name"].string() == pod_set) return &one;
  return nullptr;
}
const Json& request_of(const Json& workload, const std::string& pod_set) {
  static const Json none;
  for (const Json& one : workload["spec"]["podSets"].items())
    if (one["name"].string() == pod_set) return one["topologyRequest"];
  return none;
}

kube::Labels selector_of(const TopologyAssignment& where, const DomainPods& domain) {
  kube::Labels out;
  for (std::size_t level = 0; level < where.levels.size() && level < domain.values.size(); ++level) out[where.levels[level]] = domain.values[level];
  return out;
}
bool selects(const Json& pod, const kube::Labels& selector) {
  return std::all_of(selector.begin(), selector.end(), [&](const auto& one) { return pod["spec"]["nodeSelector"][one.first].string() == one.second; });
}

// Of two pod sets of one group the smaller one leads: its ranks are the first.
std::int64_t rank_offset(const Json& workload, const std::string& pod_set) {
  const std::string& group = request_of(workload, pod_set)["podSetGroupName"].string();
  if (group.empty()) return 0;
  const Json *own = assignment_of(workload, pod_set), *other = nullptr;
  bool before = false;
  for (const Json& one : workload["status"]["admission"]["podSetAssignments"].items()) {
    if (&one == own) continue;
    if (request_of(workload, one["name"].string())["podSetGroupName"].string() != group) continue;
    other = &one;
    before = &one < own;
    break;
  }
  if (other == nullptr) return 0;
  const std::int64_t mine = (*own)["count"].integer(), theirs = (*other)["count"].integer();
  return theirs < mine || (theirs == mine && before) ? theirs : 0;
}

// The rank of each pod, all different and below the number of pods; none: they have no ranks.
std::optional<std::vector<std::int64_t>> ranks_of(const Json& workload, const std::string& pod_set, const std::vector<const Json*>& pods, std::int64_t count) {
  const Json& request = request_of(workload, pod_set);
  std::vector<std::string> labels{kJobIndex, kGroupIndex};
  if (const std::string& said = request["podIndexLabel"].string(); !said.empty()) labels = {said};
  const auto usable = std::find_if(labels.begin(), labels.end(), [&](const std::string& label) { return std::all_of(pods.begin(), pods.end(), [&](const Json* pod) { return number_in((*pod)["metadata"]["labels"][label].string()).has_value(); }); });
  if (usable == labels.end()) return std::nullopt;
  const std::string& sub_label = request["subGroupIndexLabel"].string();
  const std::int64_t sub_count = request["subGroupCount"].integer();
  if (!sub_label.empty() && sub_count <= 0) return std::nullopt;
  const std::int64_t each = sub_label.empty() ? count : count / sub_count;
  std::int64_t offset = rank_offset(workload, pod_set);
  if (!pods.empty()) offset += number_in((*pods.front())["metadata"]["annotations"][kIndexOffset].string()).value_or(0);
  std::vector<std::int64_t> out;
  std::map<std::int64_t, int> seen;
  for (const Json* pod : pods) {
    std::int64_t rank = *number_in((*pod)["metadata"]["labels"][*usable].string());
    if (rank < 0) return std::nullopt;
    if (!sub_label.empty()) {
      const auto group = number_in((*pod)["metadata"]["labels"][sub_label].string());
      if (!group || *group < 0 || *group >= sub_count || rank >= each) return std::nullopt;
      rank += *group * each;
    }
    rank -= offset;
    if (rank < 0 || rank >= count || ++seen[rank] > 1) return std::nullopt;
    out.push_back(rank);
  }
  return out;
}

}  // namespace

std::string put_topology_request(Json& pod_set, const Json& metadata) {
  const Json& notes = metadata["annotations"];
  const auto has = [&](const char* name) { return notes.has(name); };
  const auto wrong = [](const char* name, const std::string& value, std::string_view expected) { return fmt::format("metadata.annotations[{}]: \"{}\" is given, and {} is expected", name, value.substr(0, 100), expected); };
  if (std::none_of(std::begin(kTopologyNotes), std::end(kTopologyNotes), has)) return "";
  Json request = Json::object();
  if (has(kRequiredNote)) {
    request.set("required", notes[kRequiredNote].string());
  } else if (has(kPreferredNote)) {
    request.set("preferred", notes[kPreferredNote].string());
  } else if (has(kUnconstrainedNote)) {
    const std::string& value = notes[kUnconstrainedNote].string();
    if (value != "true" && value != "false") return wrong(kUnconstrainedNote, value, "true or false");
    request.set("unconstrained", value == "true");
  }
  for (const char* name : {kRequiredNote, kPreferredNote, kSliceNote})
    if (has(name) && !kube::check_label_key(notes[name].string()).empty()) return wrong(name, notes[name].string(), "a label of nodes, which is a level of a Topology,");
  if (has(kRequiredNote) && has(kPreferredNote)) return fmt::format("metadata.annotations: one of {} and {} is expected, and both are given", kRequiredNote, kPreferredNote);
  if (has(kSlicesNote)) {
    const auto layers = kube::parse_json(notes[kSlicesNote].string());
    const bool is_list = layers && layers->is_array() && !layers->items().empty() && layers->items().size() <= most_layers;
    if (!is_list || !std::ranges::all_of(layers->items(), [](const Json& one) { return !one["topology"].string().empty() && one["size"].integer() >= 1 && one["size"].integer() <= 0x7fffffff; }))
      return wrong(kSlicesNote, notes[kSlicesNote].string(), R"(a list of one to three layers such as [{"topology": "cloud/rack", "size": 4}])");
    request.set("podsetSliceRequiredTopologyConstraints", *layers);
  } else if (has(kSliceNote) || has(kSliceSizeNote)) {
    const std::string& text = notes[kSliceSizeNote].string();
    const auto size = number_in(text);
    if (!has(kSliceNote) || !size || *size < 1 || *size > 0x7fffffff) return wrong(kSliceSizeNote, text, fmt::format("a number of pods, beside {},", kSliceNote));
    request.set("podSetSliceRequiredTopology", notes[kSliceNote].string()).set("podSetSliceSize", *size);
  }
  if (has(kGroupNote) && (has(kRequiredNote) || has(kPreferredNote))) request.set("podSetGroupName", notes[kGroupNote].string());
  pod_set.set("topologyRequest", std::move(request));
  return "";
}

bool has_place(const Json& workload, const std::string& pod_set) {
  const Json* assignment = assignment_of(workload, pod_set);
  return assignment != nullptr && (*assignment)["topologyAssignment"].is_object();
}

void put_place_notes(Json& pod, const Json& workload) {
  Json& notes = pod.child("metadata").child("annotations");
  notes.set(kWorkloadNote, kube::name_of(workload));
  if (std::none_of(std::begin(kTopologyNotes), std::end(kTopologyNotes), [&](const char* one) { return notes.has(one); })) notes.set(kUnconstrainedNote, "true");
}

void put_place_gate(Json& pod_template, const Json& workload, const std::string& pod_set) {
  if (!has_place(workload, pod_set)) return;
  put_place_notes(pod_template, workload);
  if (!waits_for_place(pod_template)) {
    Json& gates = pod_template.child("spec").child("schedulingGates");
    if (!gates.is_array()) gates = Json::array();
    gates.push(Json::object({{"name", kTopologyGate}}));
  }
}

bool waits_for_place(const Json& pod) {
  return std::ranges::any_of(pod["spec"]["schedulingGates"].items(), [](const Json& gate) { return gate["name"].string() == kTopologyGate; });
}

std::vector<PodPlace> places_for(const Json& workload, const std::string& pod_set, const std::vector<const Json*>& pods, bool (*placed)(const Json& pod)) {
  std::vector<PodPlace> out;
  const Json* assignment = assignment_of(workload, pod_set);
  if (assignment == nullptr || !(*assignment)["topologyAssignment"].is_object()) return out;
  const TopologyAssignment where = read_topology_assignment((*assignment)["topologyAssignment"]);
  std::vector<const Json*> sorted = pods;
  std::sort(sorted.begin(), sorted.end(), [](const Json* a, const Json* b) { return kube::name_of(*a) < kube::name_of(*b); });
  std::vector<const DomainPods*> of_rank;
  const std::int64_t all = pods_in(where);
  if (all <= 1'000'000)
    for (const DomainPods& domain : where.domains) of_rank.insert(of_rank.end(), static_cast<std::size_t>(domain.count), &domain);
  if (auto ranks = ranks_of(workload, pod_set, sorted, (*assignment)["count"].integer(all))) {
    bool agree = true;
    for (std::size_t i = 0; i < sorted.size() && agree; ++i) agree = (*ranks)[i] < static_cast<std::int64_t>(of_rank.size()) && (!placed(*sorted[i]) || selects(*sorted[i], selector_of(where, *of_rank[static_cast<std::size_t>((*ranks)[i])])));
    if (agree) {
      for (std::size_t i = 0; i < sorted.size(); ++i)
        if (!placed(*sorted[i])) out.push_back({kube::key_of(*sorted[i]), selector_of(where, *of_rank[static_cast<std::size_t>((*ranks)[i])])});
      return out;
    }
  }
  std::size_t next = 0;
  const auto wait = [&] {
    while (next < sorted.size() && placed(*sorted[next])) ++next;
    return next < sorted.size();
  };
  for (const DomainPods& domain : where.domains) {
    const kube::Labels selector = selector_of(where, domain);
    std::int64_t free = domain.count - std::count_if(sorted.begin(), sorted.end(), [&](const Json* pod) { return placed(*pod) && selects(*pod, selector); });
    for (; free > 0 && wait(); --free) out.push_back({kube::key_of(*sorted[next++]), selector});
  }
  return out;
}

bool is_astray(const Json& workload, const std::string& pod_set, const Json& pod) {
  const Json* assignment = assignment_of(workload, pod_set);
  if (waits_for_place(pod) || assignment == nullptr || !(*assignment)["topologyAssignment"].is_object()) return false;
  const TopologyAssignment where = read_topology_assignment((*assignment)["topologyAssignment"]);
  return !where.domains.empty() && std::none_of(where.domains.begin(), where.domains.end(), [&](const DomainPods& domain) { return domain.count > 0 && selects(pod, selector_of(where, domain)); });
}

}  // namespace fairlead::governance
