// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/inquiry.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/queue_crds.h"
#include "api/queue_views.h"
#include "api/team_crds.h"
#include "base/encoding.h"
#include "governance/plan/eta.h"
#include "governance/plan/explain.h"
#include "governance/plan/views.h"
#include "governance/plan/whatif.h"

namespace fairlead::governance {
namespace {

using kube::Json;
using kube::ObjectKey;
namespace queues = api::queues;
namespace resources = kube::resources;

constexpr const char* kAnswered = "Answered";
constexpr std::int64_t longest_kept = 3600;  // seconds
constexpr std::size_t longest_refusal = 1024;
const kube::Resource jobs{"batch", "v1", "jobs", "Job", true};
const kube::Resource pod_priorities{"scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", false};

void add(const InquiryObjects& objects, const kube::Resource& resource, std::vector<Json>& into) {
  for (Json& object : objects.all(resource)) {
    object.set("apiVersion", resource.api_version()).set("kind", resource.kind);
    into.push_back(std::move(object));
  }
}

// What books are made of. Workloads last: what they refer to is older than they are.
std::vector<Json> book_objects(const InquiryObjects& objects) {
  std::vector<Json> out;
  for (const kube::Resource& resource : {queues::flavors, queues::topologies}) add(objects, resource, out);
  if (api::places_matter(out))
    for (const kube::Resource& resource : {resources::nodes, resources::pods}) add(objects, resource, out);
  for (const kube::Resource& resource : {api::teams::configs, resources::namespaces, queues::checks, queues::cohorts, queues::cluster_queues, queues::local_queues, queues::workloads}) add(objects, resource, out);
  return out;
}

Result<Json> explained(const InquiryObjects& objects, const std::string& space, const std::string& what, Instant now) {
  const Books books = books_of(book_objects(objects), now);
  const auto workload = find_workload(books, space, what);
  if (!workload) return std::unexpected(workload.error());
  const auto explanation = explain(books, *workload);
  if (!explanation) return fail(Code::NotFound, what + " is not there any more");
  return to_json(*explanation);
}

Result<Json> foreseen(const InquiryObjects& objects, const std::string& space, const std::string& what, Instant now) {
  const Books books = books_of(book_objects(objects), now);
  const auto workload = find_workload(books, space, what);
  if (!workload) return std::unexpected(workload.error());
  std::vector<Json> all;
  add(objects, jobs, all);
  const auto answer = eta(books, all, *workload, now);
  if (!answer) return fail(Code::NotFound, what + " is not there any more");
  return to_json(*answer, now);
}

bool of_cluster(const std::string& kind) {
  static constexpr const char* kinds[] = {"ClusterQueue", "Cohort", "ResourceFlavor", "WorkloadPriorityClass", "PriorityClass", "ComputeQuota", "SchedulerConfig", "Namespace", "Topology"};
  return std::ranges::find(kinds, kind) != std::end(kinds);
}

Result<Json> changed_by(const InquiryObjects& objects, const std::string& space, const Json& question, Instant now) {
  WhatIfInput in{.objects = {}, .changes = {}, .without = {}, .space = space, .now = now};
  for (std::size_t i = 0; i < question["changes"].items().size(); ++i) {
    auto parsed = kube::parse_json(question["changes"].items()[i].string());
    if (!parsed || !parsed->is_object()) return fail(Code::Invalid, fmt::format("spec.whatIf.changes[{}]: an object as JSON is expected{}", i, parsed ? "" : ": " + parsed.error().message));
    in.changes.push_back(std::move(*parsed));
  }
  for (const Json& one : question["without"].items()) in.without.push_back(one.string());
  if (in.changes.empty() && in.without.empty()) return fail(Code::Invalid, "spec.whatIf: changes or without says what would be otherwise");
  for (std::size_t i = 0; i < in.changes.size(); ++i)
    if (const std::string& its = kube::space_of(in.changes[i]); !its.empty() && its != space && !of_cluster(in.changes[i]["kind"].string()))
      return fail(Code::Invalid, fmt::format("spec.whatIf.changes[{}].metadata.namespace: an Inquiry in {} is about objects of that namespace and of the cluster", i, space));
  const auto needs = needs_of(in.changes, in.without);
  if (!needs) return std::unexpected(needs.error());
  in.objects = book_objects(objects);
  add(objects, queues::priority_classes, in.objects);
  if (needs->jobs) {
    add(objects, pod_priorities, in.objects);
    for (const Json& change : in.changes) {
      const bool pod = change["kind"].string() == "Pod";
      if (!pod && change["kind"].string() != "Job") continue;
      const kube::Resource& resource = pod ? resources::pods : jobs;
      if (auto there = objects.one(resource, {space, kube::name_of(change)})) {
        there->set("apiVersion", resource.api_version()).set("kind", resource.kind);
        in.objects.push_back(std::move(*there));
      }
    }
  }
  if (needs->teams) add(objects, api::teams::quotas, in.objects), add(objects, resources::nodes, in.objects);
  const auto answer = whatif(in);
  if (!answer) return std::unexpected(answer.error());
  return to_json(*answer);
}

Result<Json> answer_of(const Json& inquiry, const InquiryObjects& objects, Instant now) {
  const std::string& space = kube::space_of(inquiry);
  const Json& spec = inquiry["spec"];
  int asked = 0;
  for (const char* field : {"explain", "eta", "whatIf", "queue", "quota"}) asked += spec.has(field);
  if (asked != 1) return fail(Code::Invalid, fmt::format("spec: one of explain, eta, whatIf, queue and quota is expected; there are {}", asked));
  if (spec.has("explain")) return explained(objects, space, spec["explain"]["workload"].string(), now);
  if (spec.has("eta")) return foreseen(objects, space, spec["eta"]["workload"].string(), now);
  if (spec.has("whatIf")) return changed_by(objects, space, spec["whatIf"], now);
  const Books books = books_of(book_objects(objects), now);
  if (spec.has("queue")) return api::part_of_queue(queue_view(books), {.space = space, .queue = spec["queue"]["queue"].string(), .all = spec["queue"]["all"].boolean()});
  Json view = api::part_of_quotas(quota_view(books), spec["quota"]["name"].string());
  if (view.is_null()) return fail(Code::NotFound, fmt::format("spec.quota.name: there is no queue, cohort or team {}", spec["quota"]["name"].string()));
  return view;
}

Json with_status(const Json& inquiry, bool is, std::string reason, std::string message, Instant now) {
  Json out = inquiry;
  if (!out["status"].is_object()) out.set("status", Json::object());
  const std::int64_t generation = inquiry["metadata"]["generation"].integer();
  out.child("status").set("observedGeneration", generation);
  kube::set_condition(out, {.type = kAnswered, .status = is ? "True" : "False", .reason = std::move(reason), .message = std::move(message)}, now);
  return out;
}

}  // namespace

const std::vector<kube::Resource>& inquiry_kinds() {
  static const std::vector<kube::Resource> kinds{api::teams::configs,   api::teams::quotas,  resources::namespaces,      resources::nodes, resources::pods, queues::flavors, queues::topologies, queues::checks, queues::cohorts,
                                                 queues::cluster_queues, queues::local_queues, queues::workloads, queues::priority_classes, jobs,            pod_priorities};
  return kinds;
}

bool answered(const Json& inquiry) { return kube::find_condition(inquiry, kAnswered) != nullptr; }

std::optional<Instant> inquiry_ends(const Json& inquiry) {
  const Json* condition = kube::find_condition(inquiry, kAnswered);
  if (condition == nullptr) return std::nullopt;
  const auto since = parse_time((*condition)["lastTransitionTime"].string());
  return since.value_or(Instant{}) + std::chrono::seconds(std::clamp<std::int64_t>(inquiry["spec"]["ttlSeconds"].integer(300), 0, longest_kept));
}

Json refuse_inquiry(const Json& inquiry, const char* reason, const std::string& why, Instant now) {
  std::size_t end = std::min(why.size(), longest_refusal);
  while (end < why.size() && end > 0 && (static_cast<unsigned char>(why[end]) & 0xc0) == 0x80) --end;  // never in the middle of a character
  return with_status(inquiry, false, reason, why.substr(0, end) + (end < why.size() ? "..." : ""), now);
}

Json answer_inquiry(const Json& inquiry, const InquiryObjects& objects, Instant now) {
  auto answer = answer_of(inquiry, objects, now);
  if (!answer) {
    const Code code = answer.error().code;
    return refuse_inquiry(inquiry, code == Code::NotFound ? "NotFound" : code == Code::Invalid ? "Invalid" : "Failed", answer.error().message, now);
  }
  if (const std::size_t size = kube::print_json(*answer).size() + kube::print_json(inquiry["spec"]).size(); size > largest_answer)
    return refuse_inquiry(inquiry, "TooLarge", fmt::format("the answer has {} KiB, of at most {}: ask for a part of it (quota.name, queue.queue)", size >> 10, largest_answer >> 10), now);
  Json out = with_status(inquiry, true, "Answered", "status.answer has it", now);
  out.child("status").set("answer", std::move(*answer));
  return out;
}

}  // namespace fairlead::governance
