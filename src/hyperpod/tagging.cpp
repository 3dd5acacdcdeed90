// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "api/cluster.h"
#include "api/team_crds.h"
#include "hyperpod/operations.h"
#include "hyperpod/paging.h"
#include "hyperpod/plan_view.h"

namespace fairlead::hyperpod {
namespace {

constexpr std::size_t most_tags = 50;

struct Tagged {
  const kube::Resource* resource;
  Json object;
};

// The object that an ARN names, if the caller may do this to it.
Answer<Tagged> find(const Sources& sources, const Call& call, const std::string& action, const std::string& arn, const std::vector<std::string>& asked_keys, const Tags& asked) {
  Tagged out{nullptr, Json()};
  const std::string begin = fmt::format("arn:aws:sagemaker:{}:{}:", call.site.region, call.site.account);
  if (arn.starts_with(begin)) {
    const std::string_view rest = std::string_view(arn).substr(begin.size());
    const auto slash = rest.find('/');
    const std::string_view kind = rest.substr(0, slash), id = slash == rest.npos ? "" : rest.substr(slash + 1);
    if (kind == "cluster") {
      const auto cluster = find_cluster(sources, call.site, arn);
      // The cache found it; what is decided and changed is what is there now.
      if (cluster) {
        const kube::Resource& resource = is_made(*cluster) ? api::kClusters : kube::resources::slurm_clusters;
        if (auto now = sources.api.get(resource, kube::key_of(*cluster)); now && kube::uid_of(*now) == kube::uid_of(*cluster)) out = {&resource, std::move(*now)};
      }
    }
    if (kind == "training-plan") {
      auto plan = find_plan(sources, call.site, arn);
      if (!plan && plan.error().code != "ResourceNotFound") return std::unexpected(plan.error());
      if (plan) out = {&api::kTrainingPlans, std::move(*plan)};
    }
    for (const auto& [name, resource] : {std::pair<std::string_view, const kube::Resource*>{"cluster-scheduler-config", &api::teams::configs}, {"compute-quota", &api::teams::quotas}}) {
      if (kind != name) continue;
      auto list = sources.api.list(*resource, "");
      if (!list) return std::unexpected(aws_error(list.error(), "tags"));
      const auto found = std::find_if(list->items.begin(), list->items.end(), [&](const Json& object) { return entity_id(kube::uid_of(object)) == id; });
      if (found != list->items.end()) out = {resource, std::move(*found)};
    }
  }
  const auto allow = [&] {
    iam::Keys keys = tag_keys(asked, out.resource == nullptr ? Tags() : tags_of(out.object));
    if (!asked_keys.empty()) keys.set("aws:TagKeys", asked_keys);
    return call.allow("sagemaker:" + action, arn, keys);
  };
  if (auto done = allow(); !done) return std::unexpected(done.error());
  if (out.resource == nullptr && arn.starts_with(arn_of(call.site, "cluster", ""))) {
    auto fresh = find_fresh(sources, call.site, arn);
    if (!fresh && fresh.error().code != "ResourceNotFound") return std::unexpected(fresh.error());
    if (fresh) {
      out = {&api::kClusters, std::move(*fresh)};
      if (auto done = allow(); !done) return std::unexpected(done.error());
    }
  }
  if (out.resource == nullptr) return refuse("ResourceNotFound", fmt::format("{} not found: clusters, cluster-scheduler-configs, compute-quotas and training-plans of this site have tags", arn));
  return out;
}

// Reads, decides and writes; who was faster is read again.
template <class Change>
Answer<Tags> change(const Sources& sources, const Call& call, const char* action, const std::string& arn, const std::vector<std::string>& keys, const Tags& asked, const Change& apply) {
  for (int attempt = 0;; ++attempt) {
    const auto tagged = find(sources, call, action, arn, keys, asked);
    if (!tagged) return std::unexpected(tagged.error());
    Tags tags = tags_of(tagged->object);
    const Tags before = tags;
    if (Answer<void> done = apply(tags); !done) return std::unexpected(done.error());
    if (tags == before) return tags;
    Json copy = Json::object();
    set_tags(copy, tags);
    const Json patch = Json::object({{"metadata", Json::object({{"resourceVersion", kube::version_of(tagged->object)}, {"annotations", Json::object({{tags_note, copy["metadata"]["annotations"][tags_note]}})}})}});
    const auto done = sources.api.patch(*tagged->resource, kube::key_of(tagged->object), kube::PatchType::Merge, patch);
    if (done) return tags;
    if (done.error().code != Code::Conflict || attempt >= 10) return std::unexpected(aws_error(done.error(), action));
  }
}

Answer<Json> add_tags(const Sources& sources, const Call& call, const Json& input) {
  const auto asked = read_tags(input["Tags"]);
  if (!asked) return std::unexpected(asked.error());
  const auto tags = change(sources, call, "AddTags", input["ResourceArn"].string(), {}, *asked, [&](Tags& all) -> Answer<void> {
    for (const auto& [key, value] : *asked) all[key] = value;
    if (all.size() > most_tags) return invalid(fmt::format("A resource has at most {} tags; with these it would have {}", most_tags, all.size()));
    return check_case(all);
  });
  if (!tags) return std::unexpected(tags.error());
  return Json::object({{"Tags", tag_list(*tags)}});
}

Answer<Json> delete_tags(const Sources& sources, const Call& call, const Json& input) {
  std::vector<std::string> asked;
  for (const Json& key : input["TagKeys"].items()) asked.push_back(key.string());
  const auto tags = change(sources, call, "DeleteTags", input["ResourceArn"].string(), asked, {}, [&](Tags& all) -> Answer<void> {
    for (const std::string& key : asked) all.erase(key);
    return {};
  });
  if (!tags) return std::unexpected(tags.error());
  return Json();
}

Answer<Json> list_tags(const Sources& sources, const Call& call, const Json& input) {
  const auto tagged = find(sources, call, "ListTags", input["ResourceArn"].string(), {}, {});
  if (!tagged) return std::unexpected(tagged.error());
  const Tags tags = tags_of(tagged->object);
  std::vector<Entry> entries;
  for (const auto& [key, value] : tags) entries.push_back({.name = key, .id = key, .created = {}, .status = {}, .cluster = {}});
  auto page = page_of(std::move(entries), input, [&](const Entry& one) { return Json::object({{"Key", one.name}, {"Value", tags.at(one.name)}}); });
  if (!page) return std::unexpected(page.error());
  Json out = Json::object({{"Tags", std::move(page->items)}});
  if (!page->next.empty()) out.set("NextToken", page->next);
  return out;
}

}  // namespace

void add_tag_operations(Operations& operations, const Sources& sources) {
  operations["AddTags"] = [sources](const Call& call, const Json& input) { return add_tags(sources, call, input); };
  operations["DeleteTags"] = [sources](const Call& call, const Json& input) { return delete_tags(sources, call, input); };
  operations["ListTags"] = [sources](const Call& call, const Json& input) { return list_tags(sources, call, input); };
}

Operations all_operations(const Sources& sources) {
  Operations out;
  add_cluster_operations(out, sources);
  add_cluster_change_operations(out, sources);
  add_batch_operations(out, sources);
  add_interface_operations(out, sources);
  add_node_volume_operations(out, sources);
  add_event_operations(out, sources);
  add_governance_operations(out, sources);
  add_training_plan_operations(out, sources);
  add_tag_operations(out, sources);
  return out;
}

}  // namespace fairlead::hyperpod
