// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/stack_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "api/cluster.h"
#include "api/stack.h"
#include "base/encoding.h"
#include "hyperpod/cluster_requests.h"

namespace fairlead::hyperpod {
namespace {

constexpr std::size_t kMostClusters = 50;  // of a stack: all of it is one object

// CloudFormation's values know no types: "2" is a number where one is meant, and 2 a text.
Json with_types(const Model& model, const Model::Shape& shape, const Json& value) {
  switch (shape.kind) {
    case Model::Kind::Structure: {
      if (!value.is_object()) return value;
      Json out = Json::object();
      for (const auto& [name, part] : value.members()) {
        const auto member = std::find_if(shape.members.begin(), shape.members.end(), [&](const Model::Member& one) { return one.name == name; });
        out.set(name, member == shape.members.end() ? part : with_types(model, model.shapes()[member->shape], part));
      }
      return out;
    }
    case Model::Kind::List:
    case Model::Kind::Map: {
      Json out = value.is_array() ? Json::array() : value.is_object() ? Json::object() : value;
      for (const Json& one : value.items()) out.push(with_types(model, model.shapes()[shape.element], one));
      for (const auto& [name, part] : value.members()) out.set(name, with_types(model, model.shapes()[shape.element], part));
      return out;
    }
    case Model::Kind::String:
      if (value.is_bool()) return value.boolean() ? "true" : "false";
      return value.is_number() ? Json(kube::print_json(value)) : value;
    case Model::Kind::Boolean:
      if (value.string() == "true" || value.string() == "false") return value.string() == "true";
      return value;
    case Model::Kind::Integer:
    case Model::Kind::Long: {
      const std::string& text = value.string();
      std::int64_t number = 0;
      const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
      return !text.empty() && read.ec == std::errc() && read.ptr == text.data() + text.size() ? Json(number) : value;
    }
    case Model::Kind::Float: {
      const std::string& text = value.string();
      double number = 0;
      const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
      return !text.empty() && read.ec == std::errc() && read.ptr == text.data() + text.size() && number - number == 0 ? Json(number) : value;
    }
    case Model::Kind::Timestamp: break;
  }
  return value;
}

// Where it is said which resource is meant; who may not is told the same as by the operation itself.
std::unexpected<AwsError> of_resource(const std::string& id, AwsError error) {
  if (error.code == "AccessDeniedException" || error.status >= 500 || error.code == "ThrottlingException") return std::unexpected(std::move(error));
  return invalid(fmt::format("Resource {}: {}", id, error.message));
}

std::string made_up_name(const std::string& stack, const std::string& id, const Call& call) {
  std::string begin = stack.substr(0, 24);
  while (begin.ends_with('-')) begin.pop_back();
  return fmt::format("{}-{}-{}", begin, id.substr(0, 24), hex(sha256(call.request_id + "/" + id)).substr(0, 12));
}

const Json* resource_of(const Json& side, const std::string& id) {
  for (const Json& one : side["resources"].items())
    if (one["logicalId"].string() == id) return &one;
  return nullptr;
}

bool goes(const Json& resource, bool after_creation) {
  const std::string& policy = resource["deletionPolicy"].string();
  return policy != "Retain" && (policy != "RetainExceptOnCreate" || !after_creation);
}

Answer<void> allow_deletion(const Sources& sources, const Call& call, const Json& stack, const Json& resource) {
  const auto cluster = cluster_of_stack(sources, stack, resource);
  if (!cluster) return std::unexpected(cluster.error());
  // What is in the making may be there in a moment.
  if (cluster->is_null()) return api::is_stack_at_rest(api::stack_phase(stack)) ? Answer<void>() : call.allow("sagemaker:DeleteCluster", arn_of(call.site, "cluster", "*"));
  return call.allow("sagemaker:DeleteCluster", cluster_arn(call.site, *cluster), tag_keys({}, tags_of(*cluster)));
}

struct Wishing {
  const Sources& sources;
  const Call& call;
  const StackRequest& request;
  const Json& stack;                      // null: none
  const Json& before;                     // its side in force; null: none
  std::set<std::string> names;            // of Cluster objects

  Answer<Json> input_of(const formation::Evaluation& evaluation, const formation::Resource& resource) const {
    auto properties = evaluation.properties(resource);
    if (!properties) return invalid(properties.error().message);
    return with_types(sources.model, sources.model.shape(sources.model.operation("CreateCluster")->input), *properties);
  }

  // Tags of the stack go to its clusters; those of a cluster's own count more.
  Json all_tags(const Json& own, const Tags& of_stack) const {
    Json out = own.is_array() ? own : Json::array();
    for (const auto& [key, value] : of_stack) {
      const bool there = std::ranges::any_of(own.items(), [&](const Json& one) { return one["Key"].string() == key; });
      if (!there) out.push(Json::object({{"Key", key}, {"Value", value}}));
    }
    return out;
  }

  Answer<Json> make(const std::string& id, Json input) const {
    if (!input.has("ClusterName")) input.set("ClusterName", made_up_name(request.name, id, call));
    if (auto done = sources.model.check(sources.model.shape(sources.model.operation("CreateCluster")->input), input); !done) return std::unexpected(done.error());
    auto object = cluster_to_make(sources, call, input);
    if (!object) return object;
    // What is made in vain is deleted again, by the rights of who asks now.
    if (request.goes_back) {
      const auto tags = read_tags(input["Tags"]);
      if (auto done = call.allow("sagemaker:DeleteCluster", arn_of(call.site, "cluster", "*"), tag_keys({}, tags ? *tags : Tags())); !done) return refuse(done.error().code, done.error().message + ". A stack that fails deletes what it made; without this right, ask for OnFailure DO_NOTHING");
    }
    return Json::object({{"cluster", kube::name_of(*object)}, {"clusterName", input["ClusterName"]}, {"annotations", (*object)["metadata"]["annotations"]}, {"spec", (*object)["spec"]}});
  }

  Answer<Json> change(const Json& there, Json input) const {
    const std::string& title = there["clusterName"].string();
    if (input.has("ClusterName") && input["ClusterName"].string() != title) return invalid(fmt::format("ClusterName does not change (it is {}): a cluster is not replaced by another here. Add a resource of another logical id, move the work, and take this one out", title));
    input.set("ClusterName", title);
    if (auto done = sources.model.check(sources.model.shape(sources.model.operation("CreateCluster")->input), input); !done) return std::unexpected(done.error());
    const auto tags = read_tags(input["Tags"]);
    if (!tags) return std::unexpected(tags.error());
    Json with_annotations = Json::object({{"metadata", Json::object({{"annotations", there["annotations"]}})}});
    if (*tags != tags_of(with_annotations)) return invalid("Tags of a cluster are not changed by its stack yet, and those of the stack are among them: use AddTags and DeleteTags of SageMaker, and leave the template's and the stack's as they are");
    input.erase("Tags");
    Json spec = cluster_to_spec(input);
    Json out = there;
    if (spec == there["spec"]) return out;
    for (const char* const member : {"Orchestrator", "VpcConfig", "NodeProvisioningMode"}) {
      const Json was = spec_to_cluster(there["spec"]);
      if (was[member] != input[member]) return invalid(fmt::format("{} does not change: a cluster is not replaced by another here. Add a resource of another logical id, move the work, and take this one out", member));
    }
    const auto cluster = cluster_of_stack(sources, stack, there);
    if (!cluster) return cluster;
    if (cluster->is_null()) return invalid(fmt::format("Cluster {} is not there any more, or is another one: take the resource out of the template", title));
    Json asked = input;
    asked.set("ClusterName", cluster_arn(call.site, *cluster));
    const auto now = cluster_to_change(sources, call, "UpdateCluster", asked);
    if (!now) return now;
    // One that was taken out by UpdateCluster meanwhile is gone as it is.
    const Json live = api::spec_in_force(*now);
    const auto is_live = [&](const Json& name) { return std::ranges::any_of(live["instanceGroups"].items(), [&](const Json& one) { return one["instanceGroupName"] == name; }); };
    Json gone = Json::array();
    for (const Json& group : there["spec"]["instanceGroups"].items()) {
      const bool kept = std::ranges::any_of(input["InstanceGroups"].items(), [&](const Json& one) { return one["InstanceGroupName"] == group["instanceGroupName"]; });
      if (!kept && is_live(group["instanceGroupName"])) gone.push(group["instanceGroupName"]);
    }
    if (!gone.items().empty()) asked.set("InstanceGroupsToDelete", std::move(gone));
    if (auto done = check_cluster_update(sources, call, *now, asked); !done) return std::unexpected(done.error());
    if (auto done = check_cluster_return(sources, call, spec_to_cluster(there["spec"]), asked); !done) return std::unexpected(done.error());
    out.set("spec", std::move(spec));
    Json notes = there["annotations"].is_object() ? there["annotations"] : Json::object();
    notes.set(changer_note, kube::print_json(as_context(call).set("Time", print_time(call.now))));
    out.set("annotations", std::move(notes));
    return out;
  }
};

// Values that an attribute may have: by them it is known in the request whether the outputs can be computed.
std::optional<std::string> likely(const Site& site, const std::string& name) {
  if (name == "Ref" || name == "ClusterArn") return arn_of(site, "cluster", "000000000000");
  if (name == "ClusterStatus") return "InService";
  if (name == "CreationTime") return "2026-01-01T00:00:00Z";
  if (name == "FailureMessage") return "";
  return std::nullopt;
}

}  // namespace

Answer<Json> cluster_of_stack(const Sources& sources, const Json& stack, const Json& resource) {
  auto cluster = sources.api.get(api::kClusters, {"", resource["cluster"].string()});
  if (!cluster && cluster.error().code == Code::NotFound) return Json();
  if (!cluster) return std::unexpected(aws_error(cluster.error(), "read the clusters of the stack"));
  const Json& notes = (*cluster)["metadata"]["annotations"];
  if (notes[api::kStackUid].string() != kube::uid_of(stack) || notes[api::kStackResource] != resource["logicalId"]) return Json();
  return std::move(*cluster);
}

Answer<void> allow_stack_deletion(const Sources& sources, const Call& call, const Json& stack) {
  const Json& in_force = api::stack_in_force(stack);
  for (const Json* side : {&stack["spec"]["target"], &stack["spec"]["before"]})
    for (const Json& one : (*side)["resources"].items()) {
      const Json* counts = resource_of(in_force, one["logicalId"].string());
      if (goes(counts == nullptr ? one : *counts, true))
        if (auto done = allow_deletion(sources, call, stack, one); !done) return done;
    }
  return {};
}

namespace {

// Values of parameters that have NoEcho: in none of the messages that leave, which answers and the audit tell. Whole, in pieces (a part that a function split off, one that was cut) and in the forms that functions and texts give them. Of what has less than 4 bytes nothing is left out.
class Hush {
 public:
  void add(const std::string& value) { values_.push_back(value); }
  // O(message + values): both come in one request.
  std::string over(const std::string& message) const {
    Mask mask{message, std::vector<bool>(message.size()), {}};
    for (std::size_t at = 0; at + kPiece <= message.size(); ++at) mask.pieces[message.substr(at, kPiece)].push_back(at);
    for (const std::string& value : values_) {
      if (value.size() < kShortest) continue;
      mask.hide(value);
      const std::string written = kube::print_json(Json(value));
      mask.hide(std::string_view(written).substr(1, written.size() - 2));
      for (const std::string& part : split(value, ','))
        if (const auto first = part.find_first_not_of(' '); first != part.npos) mask.hide(std::string_view(part).substr(first, part.find_last_not_of(' ') - first + 1));
      // In Base64 it has three faces, by what comes before it.
      mask.hide(base64(value));
      for (std::size_t before = 0; before < 3; ++before) {
        const std::string face = base64(std::string(before, 'x') + value);
        if (face.size() > 8) mask.hide(std::string_view(face).substr(4, face.size() - 8));
      }
    }
    std::string out;
    for (std::size_t at = 0; at < message.size(); ++at) {
      if (!mask.hidden[at]) out += message[at];
      else if (at == 0 || !mask.hidden[at - 1]) out += "****";
    }
    return out;
  }

 private:
  static constexpr std::size_t kShortest = 4, kPiece = 8;
  struct Mask {
    std::string_view message;
    std::vector<bool> hidden;
    std::unordered_map<std::string, std::vector<std::size_t>> pieces;  // of the message, and where they are

    void hide_at(std::size_t at, std::size_t length) { std::fill_n(hidden.begin() + static_cast<std::ptrdiff_t>(at), length, true); }
    void hide(std::string_view form) {
      if (form.size() < kShortest) return;
      if (form.size() < kPiece)
        for (auto at = message.find(form); at != message.npos; at = message.find(form, at + 1)) hide_at(at, form.size());
      for (std::size_t at = 0; at + kPiece <= form.size(); ++at) {
        const auto found = pieces.find(std::string(form.substr(at, kPiece)));
        if (found == pieces.end()) continue;
        for (const std::size_t there : found->second) hide_at(there, kPiece);
        pieces.erase(found);
      }
    }
  };
  std::vector<std::string> values_;
};

// The parameter with NoEcho that a value tells, by Ref or Fn::Sub; null: none.
const formation::Parameter* hidden_in(const formation::Template& of, const Json& value) {
  const auto hidden = [&](std::string_view name) -> const formation::Parameter* {
    const formation::Parameter* parameter = of.parameter(name);
    return parameter != nullptr && parameter->hidden ? parameter : nullptr;
  };
  if (value.has("Ref"))
    if (const auto* found = hidden(value["Ref"].string())) return found;
  if (const Json& form = value["Fn::Sub"]; !form.is_null()) {
    const std::string text = form.is_array() && !form.items().empty() ? form.items()[0].string() : form.string();
    for (const formation::Parameter& one : of.parameters)
      if (one.hidden && text.find("${" + one.name + "}") != text.npos) return &one;
  }
  for (const Json& part : value.items())
    if (const auto* found = hidden_in(of, part)) return found;
  for (const auto& [name, part] : value.members())
    if (const auto* found = hidden_in(of, part)) return found;
  return nullptr;
}

Answer<StackWish> wish_for(const Sources& sources, const Call& call, const StackRequest& request, const Json& stack, Hush& hush) {
  const auto of = formation::read_template(request.body);
  if (!of) return invalid(of.error().message);
  if (of->resources.size() > kMostClusters) return invalid(fmt::format("Template format error: a stack has at most {} resources here, this one has {}", kMostClusters, of->resources.size()));
  for (const formation::Resource& one : of->resources)
    if (one.type != api::kStackClusterType) return invalid(fmt::format("Template error: resource {} is of type {}, which is not served here: {} alone is. Make roles by CreateRole of IAM or fairlead identity create --role, leave networks out, and split nested stacks", one.id, one.type, api::kStackClusterType));
  const Json none;
  const Json& before = stack.is_null() ? none : api::stack_in_force(stack);
  formation::Values given = request.parameters;
  const auto is_hidden = [&](const std::string& name) {
    const formation::Parameter* parameter = of->parameter(name);
    return parameter != nullptr && parameter->hidden;
  };
  for (const auto& [name, value] : given)
    if (is_hidden(name)) hush.add(value);
  for (const formation::Parameter& one : of->parameters)
    if (one.hidden && one.fallback) hush.add(*one.fallback);
  const auto of_before = formation::read_template(before["template"].string());
  // Who gave it did so under NoEcho; what cannot be told counts as hidden.
  const auto was_hidden = [&](const std::string& name) {
    const formation::Parameter* was = of_before ? of_before->parameter(name) : nullptr;
    return was == nullptr || was->hidden;
  };
  for (const auto& [name, value] : before["parameters"].members())
    if (was_hidden(name) || (is_hidden(name) && request.kept.contains(name))) hush.add(value.string());
  for (const std::string& name : request.kept) {
    const Json* value = before["parameters"].find(name);
    if (value != nullptr && was_hidden(name) && !is_hidden(name)) return invalid(fmt::format("Parameter {}: its previous value was given with NoEcho, and this template tells it. Keep NoEcho, or give a ParameterValue", name));
    if (value == nullptr) return invalid(fmt::format("Invalid input for parameter key {}. Cannot specify usePreviousValue as true for a parameter key not in the previous template", name));
    given[name] = value->string();
  }
  const auto parameters = formation::settle_parameters(*of, given);
  if (!parameters) return invalid(parameters.error().message);
  const auto evaluation = formation::Evaluation::make(*of, *parameters, {.account = call.site.account, .region = call.site.region, .stack_id = request.arn, .stack_name = request.name});
  if (!evaluation) return invalid(evaluation.error().message);
  Tags tags;
  if (request.tags) tags = *request.tags;
  else
    for (const auto& [key, value] : before["tags"].members()) tags[key] = value.string();

  StackWish out;
  Wishing wishing{sources, call, request, stack, before, {}};
  Json resources = Json::array();
  for (const formation::Resource& one : of->resources) {
    if (!evaluation->is_made(one)) continue;
    auto input = wishing.input_of(*evaluation, one);
    if (!input) return of_resource(one.id, input.error());
    input->set("Tags", wishing.all_tags((*input)["Tags"], tags));
    if ((*input)["Tags"].items().empty()) input->erase("Tags");
    const Json* there = resource_of(before, one.id);
    auto made = there == nullptr ? wishing.make(one.id, *input) : wishing.change(*there, *input);
    if (!made) return of_resource(one.id, made.error());
    if (!wishing.names.insert((*made)["cluster"].string()).second) return invalid(fmt::format("Resource {}: another resource of this stack has ClusterName {}, too", one.id, (*made)["clusterName"].string()));
    made->set("logicalId", one.id).set("type", one.type).set("deletionPolicy", formation::text(one.deletion));
    Json needs = Json::array();
    for (const std::string& other : one.depends_on)
      if (evaluation->is_made(*of->resource(other))) needs.push(other);
    made->set("dependsOn", std::move(needs));
    if (there == nullptr) out.changes.push_back({"Add", one.id, one.type, ""});
    else if ((*there)["spec"] != (*made)["spec"]) {
      const auto cluster = cluster_of_stack(sources, stack, *there);
      out.changes.push_back({"Modify", one.id, one.type, cluster && !cluster->is_null() ? cluster_arn(call.site, *cluster) : ""});
    }
    out.differs = out.differs || there == nullptr || *there != *made;
    resources.push(std::move(*made));
  }
  if (resources.items().empty()) return invalid("Template format error: no resource is made by its conditions: at least one has to be");
  for (const Json& one : before["resources"].items()) {
    const bool kept = std::ranges::any_of(resources.items(), [&](const Json& other) { return other["logicalId"] == one["logicalId"]; });
    if (kept) continue;
    if (goes(one, true))
      if (auto done = allow_deletion(sources, call, stack, one); !done) return std::unexpected(done.error());
    const auto cluster = cluster_of_stack(sources, stack, one);
    out.changes.push_back({"Remove", one["logicalId"].string(), one["type"].string(), cluster && !cluster->is_null() ? cluster_arn(call.site, *cluster) : ""});
    out.differs = true;
  }
  for (const formation::Output& one : of->outputs)
    if (const auto* parameter = hidden_in(*of, one.value)) return invalid(fmt::format("Outputs.{}: parameter {} has NoEcho, and an output tells its value to whoever may describe the stack: not served here", one.key, parameter->name));
  Json outputs = Json::array();
  const auto told = evaluation->outputs([&](const std::string&, const std::string& name) { return likely(call.site, name); });
  if (!told) return invalid("Template error: " + told.error().message);
  for (const formation::Told& one : *told) outputs.push(Json::object({{"key", one.key}, {"description", one.description}, {"value", one.value}}));
  std::sort(out.changes.begin(), out.changes.end(), [](const StackChange& a, const StackChange& b) { return a.id < b.id; });

  Json values = Json::object(), kept_tags = Json::object(), capabilities = Json::array();
  for (const auto& [name, value] : *parameters) values.set(name, value);
  for (const auto& [key, value] : tags) kept_tags.set(key, value);
  for (const std::string& one : request.capabilities) capabilities.push(one);
  out.side = Json::object({{"template", request.body}, {"parameters", std::move(values)}, {"tags", std::move(kept_tags)}, {"resources", std::move(resources)}, {"likelyOutputs", std::move(outputs)}});
  if (!of->description.empty()) out.side.set("description", of->description);
  if (!capabilities.items().empty()) out.side.set("capabilities", std::move(capabilities));
  for (const char* const member : {"tags", "description", "likelyOutputs"}) out.differs = out.differs || before[member] != out.side[member];
  return out;
}

}  // namespace

Answer<StackWish> stack_wish(const Sources& sources, const Call& call, const StackRequest& request, const Json& stack) {
  Hush hush;
  auto out = wish_for(sources, call, request, stack, hush);
  if (!out) out.error().message = hush.over(out.error().message);
  return out;
}

}  // namespace fairlead::hyperpod
