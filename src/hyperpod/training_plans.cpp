// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "api/instance_types.h"
#include "hyperpod/paging.h"
#include "hyperpod/plan_view.h"

namespace fairlead::hyperpod {
namespace {

constexpr const char *hyperpod_target = "hyperpod-cluster", *fee = "0", *currency = "USD";
constexpr std::chrono::hours offering_age{1};  // how long an offering that began at once may be taken up
constexpr std::size_t most_extensions = 100;

Json targets() { return Json::array({Json(hyperpod_target)}); }

void set_duration(Json& out, const api::PlanWindow& window) {
  const auto minutes = std::chrono::duration_cast<std::chrono::minutes>(window.end - window.start).count();
  out.set("DurationHours", minutes / 60).set("DurationMinutes", minutes % 60);
}
void set_window(Json& out, const api::PlanWindow& window) {
  set_duration(out, window);
  out.set("StartTime", epoch(window.start)).set("EndTime", epoch(window.end));
}

// With what is asked for and not decided yet: who asks at the same time does not get the same machines offered.
struct Stock {
  std::vector<Json> objects;
  api::Plans plans;
  std::vector<api::PlanMachine> machines;
  std::vector<api::Commitment> promised(const std::string& type) const {
    std::vector<api::Commitment> out = api::commitments(plans, type);
    for (const auto& [name, plan] : plans) {
      if (!plan.granted && !plan.failed && plan.problems.empty() && plan.type == type) out.push_back({plan.count, {plan.start.value_or(plan.created), plan.end}});
      for (const auto& one : plan.extensions)
        if (plan.granted && !plan.extended.contains(one.id) && plan.granted->type == type) out.push_back({plan.granted->count, one.window});
    }
    return out;
  }
};

Answer<Stock> look(const Sources& sources, Instant now) {
  Stock out;
  auto objects = training_plans(sources);
  if (!objects) return std::unexpected(objects.error());
  out.objects = std::move(*objects);
  for (const Json& object : out.objects) out.plans.emplace(kube::name_of(object), api::read_training_plan(object));
  api::Inventory inventory(out.plans, now);
  sources.made.each("", [&](const Json& object) { inventory.cluster(object); });
  sources.instances.each("", [&](const Json& object) { inventory.instance(object); });
  sources.nodes.each("", [&](const Json& object) { inventory.node(object); });
  out.machines = inventory.machines();
  return out;
}

// Of which so many are promised in that time, at most; empty: there is room for these.
std::string no_room(const Stock& state, const std::string& type, int count, const api::PlanWindow& window, Instant now) {
  const int there = api::promisable(state.machines, type), promised = api::peak(state.promised(type), std::max(now, window.start), window.end);
  if (promised + count <= there) return "";
  return fmt::format("{} instances of type {} can be promised from {} to {}, and {} of them are: search again", there, type, print_time(window.start), print_time(window.end), promised);
}

// ---- search

Answer<Json> search_extensions(const Sources& sources, const Call& call, const Json& input) {
  const std::string& arn = input["TrainingPlanArn"].string();
  const auto object = allowed_plan(sources, call, "SearchTrainingPlanOfferings", arn);
  if (!object) return object;
  if (!input.has("DurationHours")) return invalid("DurationHours is needed: by how much the plan is to be longer");
  if (input["DurationHours"].integer() > api::kLongestExtension.count()) return invalid(fmt::format("DurationHours: an extension has {} hours at most", api::kLongestExtension.count()));
  for (const char* const other : {"InstanceType", "InstanceCount"})
    if (input.has(other)) return invalid(fmt::format("{}: a plan is extended with the instances that it has; search with TrainingPlanArn and DurationHours", other));
  const api::TrainingPlan plan = api::read_training_plan(*object);
  Json list = Json::array();
  const auto state = look(sources, call.now);
  if (!state) return std::unexpected(state.error());
  if (const api::PlanPhase phase = plan.phase(call.now); phase == api::PlanPhase::Scheduled || phase == api::PlanPhase::Active) {
    const Instant begin = plan.granted->window.end;
    const std::chrono::hours more(input["DurationHours"].integer());
    const api::PlanWindow window{begin, begin > api::kForever - more ? api::kForever : begin + more};
    const bool late = !api::parse_extension_id(api::extension_id({entity_id(kube::uid_of(*object)), window})) || (input.has("EndTimeBefore") && window.end > read_epoch(input["EndTimeBefore"]));
    const bool early = input.has("StartTimeAfter") && window.start < read_epoch(input["StartTimeAfter"]);
    if (!late && !early && no_room(*state, plan.granted->type, plan.granted->count, window, call.now).empty())
      list.push(Json::object({{"TrainingPlanExtensionOfferingId", api::extension_id({entity_id(kube::uid_of(*object)), window})}, {"StartDate", epoch(window.start)}, {"EndDate", epoch(window.end)}, {"DurationHours", input["DurationHours"]}, {"UpfrontFee", fee}, {"CurrencyCode", currency}}));
  }
  return Json::object({{"TrainingPlanOfferings", Json::array()}, {"TrainingPlanExtensionOfferings", std::move(list)}});
}

Answer<Json> search(const Sources& sources, const Call& call, const Json& input) {
  if (auto done = call.allow("sagemaker:SearchTrainingPlanOfferings", "*"); !done) return std::unexpected(done.error());
  for (const char* const member : {"UltraServerType", "UltraServerCount"})
    if (input.has(member)) return invalid(fmt::format("{} is not served: this site knows instances, and no UltraServers", member));
  for (const Json& target : input["TargetResources"].items())
    if (target.string() != hyperpod_target) return invalid(fmt::format("TargetResources: {} is not served, only {}", target.string(), hyperpod_target));
  if (input.has("TrainingPlanArn")) return search_extensions(sources, call, input);
  const std::string& type = input["InstanceType"].string();
  if (type.empty()) return invalid("InstanceType is needed: plans are of one type");
  if (!input.has("DurationHours")) return invalid("DurationHours is needed");
  const std::int64_t count = input["InstanceCount"].integer(1);
  if (count < 1) return invalid("InstanceCount: a plan has at least one instance");
  const auto state = look(sources, call.now);
  if (!state) return std::unexpected(state.error());
  const api::OfferingQuestion question{.type = type, .count = static_cast<int>(count), .duration = std::chrono::hours(input["DurationHours"].integer()), .after = input.has("StartTimeAfter") ? read_epoch(input["StartTimeAfter"]) : call.now, .before = input.has("EndTimeBefore") ? std::optional<Instant>(read_epoch(input["EndTimeBefore"])) : std::nullopt};
  Json list = Json::array();
  for (const api::Offering& one : api::offerings(question, api::promisable(state->machines, type), state->promised(type), call.now)) {
    Json capacity = Json::object({{"ReservedCapacityType", "Instance"}, {"InstanceType", one.type}, {"InstanceCount", one.count}});
    set_window(capacity, one.window);
    Json told = Json::object({{"TrainingPlanOfferingId", api::offering_id(one)}, {"TargetResources", targets()}, {"UpfrontFee", fee}, {"CurrencyCode", currency}, {"ReservedCapacityOfferings", Json::array({std::move(capacity)})}});
    set_duration(told, one.window);
    if (input.has("StartTimeAfter")) told.set("RequestedStartTimeAfter", input["StartTimeAfter"]);
    if (input.has("EndTimeBefore")) told.set("RequestedEndTimeBefore", input["EndTimeBefore"]);
    list.push(std::move(told));
  }
  return Json::object({{"TrainingPlanOfferings", std::move(list)}});
}

// ---- plans

Answer<Json> create(const Sources& sources, const Call& call, const Json& input) {
  const auto tags = read_tags(input["Tags"]);
  if (!tags) return std::unexpected(tags.error());
  const std::string &name = input["TrainingPlanName"].string(), &id = input["TrainingPlanOfferingId"].string();
  const std::string arn = arn_of(call.site, "training-plan", name);
  if (auto done = call.allow("sagemaker:CreateTrainingPlan", arn, tag_keys(*tags, {})); !done) return std::unexpected(done.error());
  if (!tags->empty()) {
    iam::Keys tagging = tag_keys(*tags, {});
    tagging.set("sagemaker:TaggingAction", {"CreateTrainingPlan"});
    if (auto done = call.allow("sagemaker:AddTags", arn, tagging); !done) return std::unexpected(done.error());
  }
  if (input.has("SpareInstanceCountPerUltraServer")) return invalid("SpareInstanceCountPerUltraServer is not served: this site knows no UltraServers");
  const auto offering = api::parse_offering_id(id);
  if (!offering || offering->window.end <= call.now || offering->window.start + offering_age < call.now) return refuse("ResourceNotFound", fmt::format("TrainingPlanOfferingId {} is no offering, or its time has passed: search again", id));
  const auto state = look(sources, call.now);
  if (!state) return std::unexpected(state.error());
  const auto taken = [&] { return refuse("ResourceInUse", fmt::format("Training plan {} already exists. Choose another name.", name)); };
  const std::string object_name = api::plan_object_name(name);
  if (state->plans.contains(object_name)) return taken();
  // The controller has the last word; most of what it would refuse is refused here.
  if (const std::string why = no_room(*state, offering->type, offering->count, offering->window, call.now); !why.empty()) return refuse("ResourceLimitExceeded", fmt::format("Offering {} is not there any more: {}", id, why));
  Json object = Json::object({{"apiVersion", api::kTrainingPlans.api_version()}, {"kind", api::kTrainingPlans.kind}, {"metadata", Json::object({{"name", object_name}})},
                              {"spec", Json::object({{"instanceType", offering->type}, {"instanceCount", offering->count}, {"startTime", print_time(offering->window.start)}, {"endTime", print_time(offering->window.end)}})}});
  if (object_name != name) note(object, name_note, name);
  note(object, maker_note, kube::print_json(as_context(call)));
  set_tags(object, *tags);
  const auto made = sources.api.create(api::kTrainingPlans, object);
  if (!made && made.error().code == Code::Exists) return taken();
  if (!made) return std::unexpected(aws_error(made.error(), "CreateTrainingPlan"));
  return Json::object({{"TrainingPlanArn", arn}});
}

std::string capacity_arn(const Site& site, const Json& object) { return arn_of(site, "reserved-capacity", entity_id(kube::uid_of(object))); }

// What both Describe and List tell, and of the capacity; what a shape does not have is taken out by whoever asks.
Json capacity_picture(const Call& call, const Json& object) {
  const api::TrainingPlan plan = api::read_training_plan(object);
  const Json& instances = object["status"]["instances"];
  Json out = Json::object({{"ReservedCapacityArn", capacity_arn(call.site, object)}, {"ReservedCapacityType", "Instance"}, {"InstanceType", plan.granted ? plan.granted->type : plan.type}, {"TotalInstanceCount", plan.granted ? plan.granted->count : plan.count}, {"Status", std::string(api::text(plan.phase(call.now)))}});
  const bool active = plan.active(call.now);
  out.set("AvailableInstanceCount", active ? instances["available"].integer() : 0).set("InUseInstanceCount", instances["inUse"].integer()).set("UnhealthyInstanceCount", instances["unhealthy"].integer());
  if (plan.granted) set_window(out, plan.granted->window);
  else if (plan.start && *plan.start < plan.end) set_window(out, {*plan.start, plan.end});
  return out;
}
Json picture(const Call& call, const Json& object) {
  Json capacity = capacity_picture(call, object);
  Json out = capacity;
  out.set("TrainingPlanArn", arn_of(call.site, "training-plan", name_of_entity(object))).set("TrainingPlanName", name_of_entity(object)).set("UpfrontFee", fee).set("CurrencyCode", currency).set("TargetResources", targets());
  if (const std::string& message = object["status"]["message"].string(); !message.empty()) out.set("StatusMessage", cut(message, 1024));
  out.set("ReservedCapacitySummaries", out["Status"].string() == "Failed" ? Json::array() : Json::array({std::move(capacity)}));
  return out;
}

Answer<Json> describe(const Sources& sources, const Call& call, const Json& input) {
  const auto object = allowed_plan(sources, call, "DescribeTrainingPlan", arn_of(call.site, "training-plan", input["TrainingPlanName"].string()));
  if (!object) return object;
  return only_known(sources.model, sources.model.shape("DescribeTrainingPlanResponse"), picture(call, *object));
}

Answer<Json> list(const Sources& sources, const Call& call, const Json& input) {
  if (auto done = call.allow("sagemaker:ListTrainingPlans", "*"); !done) return std::unexpected(done.error());
  const auto objects = training_plans(sources);
  if (!objects) return std::unexpected(objects.error());
  const std::string& sort = input["SortBy"].string();
  std::vector<Entry> entries;
  for (std::size_t i = 0; i < objects->size(); ++i) {
    const Json& object = (*objects)[i];
    const api::TrainingPlan plan = api::read_training_plan(object);
    const Instant start = plan.granted ? plan.granted->window.start : plan.start.value_or(plan.created);
    const std::string status(api::text(plan.phase(call.now)));
    if (input.has("StartTimeAfter") && start <= read_epoch(input["StartTimeAfter"])) continue;
    if (input.has("StartTimeBefore") && start >= read_epoch(input["StartTimeBefore"])) continue;
    const auto& filters = input["Filters"].items();
    if (std::any_of(filters.begin(), filters.end(), [&](const Json& filter) { return filter["Value"].string() != status; })) continue;  // by Status: there is no other
    entries.push_back({.name = name_of_entity(object), .id = kube::name_of(object), .created = sort == "StartTime" ? start : plan.created, .status = status, .cluster = {}, .at = i});
  }
  // As page_of knows it; the rest of the question binds the token all the same.
  Json asked = input;
  if (sort == "TrainingPlanName") asked.set("SortBy", "Name");
  auto page = page_of(std::move(entries), asked, [&](const Entry& one) { return only_known(sources.model, sources.model.shape("TrainingPlanSummary"), picture(call, (*objects)[one.at])); });
  if (!page) return std::unexpected(page.error());
  Json out = Json::object({{"TrainingPlanSummaries", std::move(page->items)}});
  if (!page->next.empty()) out.set("NextToken", page->next);
  return out;
}

// ---- reserved capacity

// The plan whose capacity that is, if the caller may do this to it.
Answer<Json> allowed_capacity(const Sources& sources, const Call& call, const char* action, const std::string& arn) {
  const auto objects = training_plans(sources);
  if (!objects) return std::unexpected(objects.error());
  const auto found = std::find_if(objects->begin(), objects->end(), [&](const Json& object) { return capacity_arn(call.site, object) == arn; });
  if (auto done = call.allow(std::string("sagemaker:") + action, arn, found == objects->end() ? iam::Keys() : tag_keys({}, tags_of(*found))); !done) return std::unexpected(done.error());
  if (found == objects->end() || api::read_training_plan(*found).phase(call.now) == api::PlanPhase::Failed) return refuse("ResourceNotFound", fmt::format("Reserved capacity {} not found", arn));
  return *found;
}

Answer<Json> describe_capacity(const Sources& sources, const Call& call, const Json& input) {
  const auto object = allowed_capacity(sources, call, "DescribeReservedCapacity", input["ReservedCapacityArn"].string());
  if (!object) return object;
  return only_known(sources.model, sources.model.shape("DescribeReservedCapacityResponse"), capacity_picture(call, *object));
}

// A capacity of instances has none.
Answer<Json> list_ultra_servers(const Sources& sources, const Call& call, const Json& input) {
  const auto object = allowed_capacity(sources, call, "ListUltraServersByReservedCapacity", input["ReservedCapacityArn"].string());
  if (!object) return object;
  auto page = page_of({}, input, [](const Entry&) { return Json(); });
  if (!page) return std::unexpected(page.error());
  return Json::object({{"UltraServers", std::move(page->items)}});
}

// ---- extensions

Json extension_picture(const Call& call, const api::TrainingPlan& plan, const api::TrainingPlan::Extension& one) {
  const auto decided = plan.extended.find(one.id);
  const char* status = decided == plan.extended.end() ? "Pending" : !decided->second ? "Failed" : call.now < one.window.start ? "Scheduled" : call.now < one.window.end ? "Active" : "Expired";
  Json out = Json::object({{"TrainingPlanExtensionOfferingId", one.id}, {"StartDate", epoch(one.window.start)}, {"EndDate", epoch(one.window.end)}, {"Status", status}, {"DurationHours", std::chrono::duration_cast<std::chrono::hours>(one.window.end - one.window.start).count()}, {"UpfrontFee", fee}, {"CurrencyCode", currency}});
  if (one.asked) out.set("ExtendedAt", epoch(*one.asked));
  return out;
}

Answer<Json> extend(const Sources& sources, const Call& call, const Json& input) {
  const std::string& id = input["TrainingPlanExtensionOfferingId"].string();
  const auto offering = api::parse_extension_id(id);
  for (int attempt = 0;; ++attempt) {
    auto state = look(sources, call.now);
    if (!state) return std::unexpected(state.error());
    const auto found = std::find_if(state->objects.begin(), state->objects.end(), [&](const Json& object) { return offering && entity_id(kube::uid_of(object)) == offering->plan_id; });
    const bool there = found != state->objects.end();
    if (auto done = call.allow("sagemaker:ExtendTrainingPlan", arn_of(call.site, "training-plan", there ? name_of_entity(*found) : ""), there ? tag_keys({}, tags_of(*found)) : iam::Keys(), id); !done) return std::unexpected(done.error());
    if (!there) return refuse("ResourceNotFound", fmt::format("TrainingPlanExtensionOfferingId {} not found: search with TrainingPlanArn", id));
    api::TrainingPlan plan = api::read_training_plan(*found);
    const auto answer = [&](const api::TrainingPlan& of) {
      const auto one = std::find_if(of.extensions.begin(), of.extensions.end(), [&](const auto& extension) { return extension.id == id; });
      return Json::object({{"TrainingPlanExtensions", Json::array({extension_picture(call, of, *one)})}});
    };
    if (std::any_of(plan.extensions.begin(), plan.extensions.end(), [&](const auto& one) { return one.id == id; })) return answer(plan);  // asked for again
    const api::PlanPhase phase = plan.phase(call.now);
    if (phase != api::PlanPhase::Scheduled && phase != api::PlanPhase::Active) return invalid(fmt::format("Training plan {} is {}: it is not extended", name_of_entity(*found), api::text(phase)));
    if (plan.granted->window.end != offering->window.start) return invalid(fmt::format("Training plan {} ends at {} by now: search again", name_of_entity(*found), print_time(plan.granted->window.end)));
    if (plan.extensions.size() >= most_extensions) return refuse("ResourceLimitExceeded", fmt::format("A training plan has {} extensions at most", most_extensions));
    if (const std::string why = no_room(*state, plan.granted->type, plan.granted->count, offering->window, call.now); !why.empty()) return invalid(fmt::format("Extension {} is not there any more: {}", id, why));
    Json changed = *found;
    if (!changed["spec"]["extensions"].is_array()) changed.child("spec").set("extensions", Json::array());
    changed.child("spec").child("extensions").push(Json::object({{"id", id}, {"startTime", print_time(offering->window.start)}, {"endTime", print_time(offering->window.end)}, {"requestedAt", print_time(call.now)}}));
    // With the version that was read: of two that ask at once the second one looks again.
    const auto done = sources.api.update(api::kTrainingPlans, changed);
    if (done) return answer(api::read_training_plan(*done));
    if (done.error().code != Code::Conflict || attempt >= 10) return std::unexpected(aws_error(done.error(), "ExtendTrainingPlan"));
  }
}

Answer<Json> history(const Sources& sources, const Call& call, const Json& input) {
  const auto object = allowed_plan(sources, call, "DescribeTrainingPlanExtensionHistory", input["TrainingPlanArn"].string());
  if (!object) return object;
  const api::TrainingPlan plan = api::read_training_plan(*object);
  std::vector<Entry> entries;
  for (std::size_t i = 0; i < plan.extensions.size(); ++i) entries.push_back({.name = fmt::format("{:04}", i), .id = plan.extensions[i].id, .created = {}, .status = {}, .cluster = {}, .at = i});
  auto page = page_of(std::move(entries), input, [&](const Entry& one) { return extension_picture(call, plan, plan.extensions[one.at]); });
  if (!page) return std::unexpected(page.error());
  Json out = Json::object({{"TrainingPlanExtensions", std::move(page->items)}});
  if (!page->next.empty()) out.set("NextToken", page->next);
  return out;
}

}  // namespace

Answer<std::vector<Json>> training_plans(const Sources& sources) {
  auto all = sources.api.list(api::kTrainingPlans, "");
  if (!all) return std::unexpected(aws_error(all.error(), "read the training plans"));
  std::erase_if(all->items, [](const Json& one) { return kube::deleting(one); });
  return std::move(all->items);
}

Answer<Json> find_plan(const Sources& sources, const Site& site, const std::string& arn) {
  const std::string begin = arn_of(site, "training-plan", "");
  if (arn.starts_with(begin) && arn.size() > begin.size()) {
    auto now = sources.api.get(api::kTrainingPlans, {"", api::plan_object_name(arn)});
    if (now && !kube::deleting(*now) && begin + name_of_entity(*now) == arn) return std::move(*now);
    if (!now && now.error().code != Code::NotFound) return std::unexpected(aws_error(now.error(), "read the training plan"));
  }
  return refuse("ResourceNotFound", fmt::format("Training plan {} not found", arn));
}

Answer<Json> allowed_plan(const Sources& sources, const Call& call, const char* action, const std::string& arn) {
  auto object = find_plan(sources, call.site, arn);
  if (auto done = call.allow(std::string("sagemaker:") + action, arn, object ? tag_keys({}, tags_of(*object)) : iam::Keys()); !done) return std::unexpected(done.error());
  return object;
}

Answer<void> check_plans(const Sources& sources, const Call& call, const char* action, const Json& input, const Json& before) {
  std::map<std::string, std::int64_t> wanted;
  for (const Json& group : input["InstanceGroups"].items()) {
    const std::string& arn = group["TrainingPlanArn"].string();
    if (arn.empty()) continue;
    const auto object = allowed_plan(sources, call, action, arn);
    if (!object && object.error().code == "ResourceNotFound") return invalid(object.error().message);
    if (!object) return std::unexpected(object.error());
    const api::TrainingPlan plan = api::read_training_plan(*object);
    const std::string& type = plan.granted ? plan.granted->type : plan.type;
    const std::string& name = group["InstanceGroupName"].string();
    if (group["InstanceType"].string() != type) return invalid(fmt::format("TrainingPlanArn of group {}: the plan has instances of type {}, the group wants {}", name, type, group["InstanceType"].string()));
    bool same = false;
    for (const Json& other : before["spec"]["instanceGroups"].items()) same = same || (other["instanceGroupName"].string() == name && api::plan_object_name(other["trainingPlanArn"].string()) == plan.name);
    const api::PlanPhase phase = plan.phase(call.now);
    if (!same && (phase == api::PlanPhase::Expired || phase == api::PlanPhase::Failed)) return invalid(fmt::format("TrainingPlanArn of group {}: the plan is {}", name, api::text(phase)));
    const int has = plan.granted ? plan.granted->count : plan.count;
    if ((wanted[arn] += group["InstanceCount"].integer()) > has) return refuse("ResourceLimitExceeded", fmt::format("Training plan {} has {} instances; groups of this request want {}", name_of_entity(*object), has, wanted[arn]));
  }
  return {};
}

std::string plan_arn(const Site& site, const std::string& named) { return named.starts_with("arn:") ? named : arn_of(site, "training-plan", named); }

Json plan_status(const Sources& sources, const Site& site, const std::string& named, Instant now) {
  const auto object = find_plan(sources, site, plan_arn(site, named));
  return object ? Json(std::string(api::text(api::read_training_plan(*object).phase(now)))) : Json();
}

void add_training_plan_operations(Operations& operations, const Sources& sources) {
  const auto add = [&](const char* name, Answer<Json> (*act)(const Sources&, const Call&, const Json&)) { operations[name] = [sources, act](const Call& call, const Json& input) { return act(sources, call, input); }; };
  add("SearchTrainingPlanOfferings", search);
  add("CreateTrainingPlan", create);
  add("DescribeTrainingPlan", describe);
  add("ListTrainingPlans", list);
  add("DescribeReservedCapacity", describe_capacity);
  add("ListUltraServersByReservedCapacity", list_ultra_servers);
  add("ExtendTrainingPlan", extend);
  add("DescribeTrainingPlanExtensionHistory", history);
}

}  // namespace fairlead::hyperpod
