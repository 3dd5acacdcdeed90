// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "api/team_crds.h"
#include "hyperpod/operations.h"
#include "hyperpod/paging.h"

namespace fairlead::hyperpod {
namespace {

// What the two kinds have of their own; the rest is the same for both.
struct Kind {
  const kube::Resource* resource;
  std::string arn, word;           // "compute-quota", "ComputeQuota": the part of the names of members
  std::string create, update, describe, remove, list;
  std::string summaries, summary_shape, describe_output;
};
const Kind config_kind{&api::teams::configs, "cluster-scheduler-config", "ClusterSchedulerConfig", "CreateClusterSchedulerConfig", "UpdateClusterSchedulerConfig", "DescribeClusterSchedulerConfig", "DeleteClusterSchedulerConfig", "ListClusterSchedulerConfigs", "ClusterSchedulerConfigSummaries", "ClusterSchedulerConfigSummary", "DescribeClusterSchedulerConfigResponse"};
const Kind quota_kind{&api::teams::quotas, "compute-quota", "ComputeQuota", "CreateComputeQuota", "UpdateComputeQuota", "DescribeComputeQuota", "DeleteComputeQuota", "ListComputeQuotas", "ComputeQuotaSummaries", "ComputeQuotaSummary", "DescribeComputeQuotaResponse"};

std::int64_t revision_of(const Json& object) { return object["metadata"]["generation"].integer(1); }

struct State {
  std::string status, why;
};
State state_of(const Json& object) {
  const std::int64_t version = revision_of(object);
  const bool first = version <= 1;
  if (kube::deleting(object)) return {"Deleting", ""};
  const Json* accepted = kube::find_condition(object, "Accepted");
  if (accepted == nullptr || (*accepted)["observedGeneration"].integer(version) < version) return {first ? "Creating" : "Updating", ""};
  if ((*accepted)["status"].string() == "True") return {first ? "Created" : "Updated", ""};
  return {first ? "CreateFailed" : "UpdateFailed", cut((*accepted)["message"].string(), 1024)};
}

// ComputeQuota: {ComputeQuotaConfig, ComputeQuotaTarget, ActivationState}; the object has all of it side by side.
void config_to_spec(const Json& input, Json& spec) {
  if (!input.has("SchedulerConfig")) return;
  const Json wanted = lower_names(input["SchedulerConfig"]);
  for (const char* const field : {"priorityClasses", "fairShare", "idleResourceSharing"}) {
    if (wanted.has(field)) spec.set(field, wanted[field]);
    else spec.erase(field);  // what the new policy leaves out has its default again
  }
}
void quota_to_spec(const Json& input, Json& spec) {
  if (input.has("ComputeQuotaConfig")) {
    const Json wanted = lower_names(input["ComputeQuotaConfig"]);
    for (const char* const field : {"computeQuotaResources", "resourceSharingConfig", "preemptTeamTasks"}) {
      if (wanted.has(field)) spec.set(field, wanted[field]);
      else spec.erase(field);
    }
  }
  if (input.has("ComputeQuotaTarget")) {
    spec.set("teamName", input["ComputeQuotaTarget"]["TeamName"]);
    spec.set("fairShareWeight", input["ComputeQuotaTarget"]["FairShareWeight"].integer(0));
  }
  if (input.has("ActivationState")) spec.set("activationState", input["ActivationState"]);
}

// All that Describe and List tell of one; what a shape does not have is taken out by whoever asks.
Json picture(const Kind& kind, const Model& model, const Site& site, const Json& object) {
  const std::string id = entity_id(kube::uid_of(object));
  const State state = state_of(object);
  Json out = Json::object({{kind.word + "Arn", arn_of(site, kind.arn, id)}, {kind.word + "Id", id}, {"Name", name_of_entity(object)}, {kind.word + "Version", revision_of(object)}, {"Status", state.status}, {"CreationTime", epoch(created_at(object))}});
  if (!state.why.empty()) out.set("FailureReason", state.why);
  const Json& notes = object["metadata"]["annotations"];
  if (notes.has(description_note)) out.set("Description", notes[description_note]);
  if (notes.has(cluster_note)) out.set("ClusterArn", notes[cluster_note]);
  if (Json who = user_context(object, maker_note); !who.is_null()) out.set("CreatedBy", std::move(who));
  if (Json who = user_context(object, changer_note); !who.is_null()) {
    out.set("LastModifiedBy", std::move(who));
    if (const auto changed = kube::parse_json(notes[changer_note].string())) out.set("LastModifiedTime", epoch(parse_time((*changed)["Time"].string()).value_or(created_at(object))));
  }
  const Json spec = upper_names(object["spec"]);
  if (kind.resource == &api::teams::configs) {
    out.set("SchedulerConfig", only_known(model, model.shape("SchedulerConfig"), spec));
  } else {
    out.set("ComputeQuotaConfig", only_known(model, model.shape("ComputeQuotaConfig"), spec));
    out.set("ComputeQuotaTarget", Json::object({{"TeamName", spec["TeamName"]}, {"FairShareWeight", spec["FairShareWeight"].integer(0)}}));
    out.set("ActivationState", spec["ActivationState"].string_or("Enabled"));
  }
  return out;
}

class Governance {
 public:
  Governance(const Kind& kind, const Sources& sources) : kind_(kind), sources_(sources) {}

  Answer<Json> create(const Call& call, const Json& input) const {
    const auto tags = read_tags(input["Tags"]);
    if (!tags) return std::unexpected(tags.error());
    if (auto done = call.allow("sagemaker:" + kind_.create, arn_of(call.site, kind_.arn, "*"), tag_keys(*tags, {})); !done) return std::unexpected(done.error());
    iam::Keys tagging = tag_keys(*tags, {});
    tagging.set("sagemaker:TaggingAction", {kind_.create});
    if (!tags->empty())
      if (auto done = call.allow("sagemaker:AddTags", arn_of(call.site, kind_.arn, "*"), tagging); !done) return std::unexpected(done.error());
    const auto cluster = find_cluster(sources_, call.site, input["ClusterArn"].string());
    if (!cluster) return std::unexpected(cluster.error());
    const auto there = all();
    if (!there) return std::unexpected(there.error());
    for (const Json& other : *there)
      if (kind_.resource == &api::teams::configs || other["spec"]["teamName"] == input["ComputeQuotaTarget"]["TeamName"]) return conflict_with(other);
    const std::string& name = input["Name"].string();
    Json object = Json::object({{"apiVersion", kind_.resource->api_version()}, {"kind", kind_.resource->kind}, {"metadata", Json::object({{"name", object_name_of(name)}})}, {"spec", Json::object()}});
    if (object_name_of(name) != name) note(object, name_note, name);
    note(object, description_note, input["Description"].string());
    note(object, cluster_note, input["ClusterArn"].string());
    note(object, maker_note, kube::print_json(as_context(call)));
    set_tags(object, *tags);
    to_spec(input, object.child("spec"));
    const auto made = sources_.api.create(*kind_.resource, object);
    if (!made && made.error().code == Code::Exists) return refuse("ConflictException", fmt::format("{} {} already exists. Choose another name.", kind_.word, name));
    if (!made) return std::unexpected(aws_error(made.error(), kind_.create));
    // Two calls at once have both found nobody. The later one withdraws; where the time does not tell which that is, whoever sees the other does.
    const auto after = all();
    if (!after) return std::unexpected(after.error());
    for (const Json& other : *after) {
      if (kube::uid_of(other) == kube::uid_of(*made) || !rivals(other, *made) || created_at(*made) < created_at(other)) continue;
      const auto gone = sources_.api.remove(*kind_.resource, kube::key_of(*made), {.grace_seconds = {}, .uid = kube::uid_of(*made), .resource_version = {}});
      if (!gone && gone.error().code != Code::NotFound) return std::unexpected(aws_error(gone.error(), kind_.create));
      return conflict_with(other);
    }
    const std::string id = entity_id(kube::uid_of(*made));
    return Json::object({{kind_.word + "Arn", arn_of(call.site, kind_.arn, id)}, {kind_.word + "Id", id}});
  }

  Answer<Json> update(const Call& call, const Json& input) const {
    auto object = find(call, "sagemaker:" + kind_.update, input);
    if (!object) return object;
    if (const std::int64_t target = input["TargetVersion"].integer(), now = revision_of(*object); target != now)
      return refuse("ConflictException", fmt::format("TargetVersion {} is not the current version, {}: describe it again and decide on that", target, now));
    if (kube::deleting(*object)) return refuse("ConflictException", fmt::format("{} {} is being deleted", kind_.word, name_of_entity(*object)));
    if (kind_.resource == &api::teams::quotas && input.has("ComputeQuotaTarget") && input["ComputeQuotaTarget"]["TeamName"] != (*object)["spec"]["teamName"])
      return invalid(fmt::format("ComputeQuotaTarget.TeamName: the team of a quota does not change (it is {}); create another quota", (*object)["spec"]["teamName"].string()));
    const Json before = (*object)["spec"];
    to_spec(input, object->child("spec"));
    if (input.has("Description")) note(*object, description_note, input["Description"].string());
    note(*object, changer_note, kube::print_json(as_context(call).set("Time", print_time(call.now))));
    // With the version that was read: who changed it meanwhile is not overwritten.
    const auto done = sources_.api.update(*kind_.resource, *object);
    if (!done) return std::unexpected(aws_error(done.error(), kind_.update));
    return Json::object({{kind_.word + "Arn", arn_of(call.site, kind_.arn, entity_id(kube::uid_of(*done)))}, {kind_.word + "Version", revision_of(*done)}});
  }

  Answer<Json> describe(const Call& call, const Json& input) const {
    const auto object = find(call, "sagemaker:" + kind_.describe, input);
    if (!object) return object;
    if (const Json& asked = input[kind_.word + "Version"]; !asked.is_null() && asked.integer() != revision_of(*object))
      return refuse("ResourceNotFound", fmt::format("Version {} of {} not found: only the current one is kept, {}", asked.integer(), name_of_entity(*object), revision_of(*object)));
    return only_known(sources_.model, sources_.model.shape(kind_.describe_output), picture(kind_, sources_.model, call.site, *object));
  }

  Answer<Json> remove(const Call& call, const Json& input) const {
    const auto object = find(call, "sagemaker:" + kind_.remove, input);
    if (!object) return object;
    const auto done = sources_.api.remove(*kind_.resource, kube::key_of(*object), {.grace_seconds = {}, .uid = kube::uid_of(*object), .resource_version = {}});
    if (!done && done.error().code != Code::NotFound) return std::unexpected(aws_error(done.error(), kind_.remove));
    return Json();
  }

  Answer<Json> list(const Call& call, const Json& input) const {
    if (auto done = call.allow("sagemaker:" + kind_.list, "*"); !done) return std::unexpected(done.error());
    const auto objects = all();
    if (!objects) return std::unexpected(objects.error());
    std::vector<Entry> entries;
    for (std::size_t i = 0; i < objects->size(); ++i) {
      const Json& object = (*objects)[i];
      entries.push_back({.name = name_of_entity(object), .id = entity_id(kube::uid_of(object)), .created = created_at(object), .status = state_of(object).status, .cluster = object["metadata"]["annotations"][cluster_note].string(), .at = i});
    }
    auto page = page_of(std::move(entries), input, [&](const Entry& one) { return only_known(sources_.model, sources_.model.shape(kind_.summary_shape), picture(kind_, sources_.model, call.site, (*objects)[one.at])); });
    if (!page) return std::unexpected(page.error());
    Json out = Json::object({{kind_.summaries, std::move(page->items)}});
    if (!page->next.empty()) out.set("NextToken", page->next);
    return out;
  }

 private:
  // A site has one policy, a team one quota.
  bool rivals(const Json& a, const Json& b) const { return kind_.resource == &api::teams::configs || a["spec"]["teamName"] == b["spec"]["teamName"]; }
  Answer<Json> conflict_with(const Json& other) const {
    const std::string where = fmt::format("{} (id {})", name_of_entity(other), entity_id(kube::uid_of(other)));
    if (kind_.resource == &api::teams::configs) return refuse("ConflictException", fmt::format("There is a scheduler policy already: {}. A site has one; update it.", where));
    return refuse("ConflictException", fmt::format("Team {} has a compute quota already: {}. Update it.", other["spec"]["teamName"].string(), where));
  }

  void to_spec(const Json& input, Json& spec) const { kind_.resource == &api::teams::configs ? config_to_spec(input, spec) : quota_to_spec(input, spec); }

  Answer<std::vector<Json>> all() const {
    auto list = sources_.api.list(*kind_.resource, "");
    if (!list) return std::unexpected(aws_error(list.error(), "task governance"));
    return std::move(list->items);
  }

  // The object of input's id, if the caller may do this to it. Who may not learns nothing of what is there.
  Answer<Json> find(const Call& call, const std::string& action, const Json& input) const {
    const std::string& id = input[kind_.word + "Id"].string();
    const std::string arn = arn_of(call.site, kind_.arn, id);
    auto objects = all();
    if (!objects) return std::unexpected(objects.error());
    const auto found = std::find_if(objects->begin(), objects->end(), [&](const Json& object) { return entity_id(kube::uid_of(object)) == id; });
    if (auto done = call.allow(action, arn, found == objects->end() ? iam::Keys() : tag_keys({}, tags_of(*found))); !done) return std::unexpected(done.error());
    if (found == objects->end()) return refuse("ResourceNotFound", fmt::format("{} {} not found", kind_.word, arn));
    return std::move(*found);
  }

  const Kind& kind_;
  const Sources sources_;
};

}  // namespace

void add_governance_operations(Operations& operations, const Sources& sources) {
  for (const Kind* kind : {&config_kind, &quota_kind}) {
    const Governance governance(*kind, sources);
    operations[kind->create] = [governance](const Call& call, const Json& input) { return governance.create(call, input); };
    operations[kind->update] = [governance](const Call& call, const Json& input) { return governance.update(call, input); };
    operations[kind->describe] = [governance](const Call& call, const Json& input) { return governance.describe(call, input); };
    operations[kind->remove] = [governance](const Call& call, const Json& input) { return governance.remove(call, input); };
    operations[kind->list] = [governance](const Call& call, const Json& input) { return governance.list(call, input); };
  }
}

}  // namespace fairlead::hyperpod
