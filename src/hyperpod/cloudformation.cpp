// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/cloudformation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <map>
#include <set>

#include "api/stack.h"
#include "base/encoding.h"
#include "hyperpod/paging.h"
#include "hyperpod/query_protocol.h"
#include "hyperpod/stack_request.h"

namespace fairlead::hyperpod {
namespace {

constexpr std::size_t kMostBytes = 900 << 10;  // of what is asked for: a stack is one object, and its events need room
constexpr std::size_t kMostChangeSets = 5;  // of a stack, each with its template

bool is_stack_name(std::string_view name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  return !name.empty() && name.size() <= 128 && letter(name[0]) && std::ranges::all_of(name, [&](char c) { return letter(c) || (c >= '0' && c <= '9') || c == '-'; });
}

std::string element(std::string_view name, const std::string& text) { return text.empty() ? "" : xml_element(name, text); }

// Of AWS's answers: in milliseconds.
std::string time_text(const std::string& text) {
  const auto time = parse_time(text);
  return time ? print_micro_time(*time).substr(0, 23) + "Z" : "";
}

AwsError stack_error(const Error& error, const char* action) {
  // A limit of the API's size of objects.
  if (error.code == Code::Invalid) return {"ValidationException", fmt::format("{}: {}", action, error.message)};
  return aws_error(error, action);
}

Answer<void> check_size(const Json& stack) {
  const std::size_t bytes = kube::print_json(stack["spec"]).size();
  if (bytes > kMostBytes) return invalid(fmt::format("The stack with its parameters, clusters and change sets comes to {} bytes; at most {} are served here: split it, or delete change sets", bytes, kMostBytes));
  return {};
}

class CloudFormation {
 public:
  CloudFormation(const http::Query& form, const Call& call, const Sources& sources) : form_(form), call_(call), sources_(sources) {}

  // ---- stacks are made, changed and deleted

  Answer<std::string> create() {
    if (auto done = known({"StackName", "TemplateBody", "OnFailure", "DisableRollback", "TimeoutInMinutes", "ClientRequestToken", "EnableTerminationProtection"}); !done) return std::unexpected(done.error());
    const std::string name = given("StackName");
    if (!is_stack_name(name)) return bad_name(name);
    const auto asked_tags = tags_asked();
    if (!asked_tags) return std::unexpected(asked_tags.error());
    if (auto done = call_.allow("cloudformation:CreateStack", any_arn(name), tag_keys(*asked_tags, {})); !done) return std::unexpected(done.error());
    auto operation = operation_of("Create");
    if (!operation) return std::unexpected(operation.error());
    auto on_failure = given("OnFailure");
    const auto disabled = flag("DisableRollback");
    if (!disabled) return std::unexpected(disabled.error());
    if (!on_failure.empty() && *disabled) return invalid("You cannot specify both OnFailure and DisableRollback.");
    if (on_failure.empty()) on_failure = *disabled ? "DO_NOTHING" : "ROLLBACK";
    if (on_failure != "ROLLBACK" && on_failure != "DO_NOTHING" && on_failure != "DELETE") return invalid("OnFailure: ROLLBACK, DO_NOTHING or DELETE is expected");
    operation->set("onFailure", on_failure);
    if (const std::string text = given("TimeoutInMinutes"); !text.empty()) {
      std::int64_t minutes = 0;
      if (const auto read = std::from_chars(text.data(), text.data() + text.size(), minutes); read.ec != std::errc() || read.ptr != text.data() + text.size() || minutes < 1 || minutes > 43'200) return invalid("TimeoutInMinutes: 1 to 43200 is expected");
      operation->set("timeoutMinutes", minutes);
    }
    const auto there = sources_.api.get(api::kStacks, {"", object_name_of(name)});
    if (!there && there.error().code != Code::NotFound) return std::unexpected(aws_error(there.error(), "CreateStack"));
    if (there) return repeated(*there, "Create", name);
    StackRequest request{.name = name, .arn = new_arn(name), .body = given("TemplateBody"), .parameters = {}, .kept = {}, .tags = {}, .capabilities = {}, .goes_back = on_failure != "DO_NOTHING"};
    if (auto done = fill(request, false); !done) return std::unexpected(done.error());
    auto wish = stack_wish(sources_, call_, request, Json());
    if (!wish) return std::unexpected(wish.error());
    Json object = new_object(name, request.arn);
    object.child("spec").set("operation", std::move(*operation)).set("target", std::move(wish->side));
    if (auto fine = check_size(object); !fine) return std::unexpected(fine.error());
    const auto made = sources_.api.create(api::kStacks, object);
    if (!made && made.error().code == Code::Exists) {
      const auto now = sources_.api.get(api::kStacks, {"", object_name_of(name)});
      if (!now) return std::unexpected(aws_error(now.error(), "CreateStack"));
      return repeated(*now, "Create", name);
    }
    if (!made) return std::unexpected(stack_error(made.error(), "CreateStack"));
    return xml_element("StackId", request.arn);
  }

  Answer<std::string> update() {
    if (auto done = known({"StackName", "TemplateBody", "UsePreviousTemplate", "ClientRequestToken", "DisableRollback"}); !done) return std::unexpected(done.error());
    for (const char* const unserved : {"DisableRollback"}) {
      const auto set = flag(unserved);
      if (!set) return std::unexpected(set.error());
      if (*set) return invalid(fmt::format("{} of UpdateStack is not served here: an update that fails goes back", unserved));
    }
    const auto done = change("UpdateStack", [&](const Json& stack) -> Answer<std::optional<Json>> {
      auto operation = operation_of("Update");
      if (!operation) return std::unexpected(operation.error());
      if (has_token(stack, "Update")) {
        if (is_repeated(stack, "Update")) return std::optional<Json>();
        return refuse("TokenAlreadyExistsException", "A client request token already exists: another request had this ClientRequestToken. Give each request one of its own");
      }
      if (auto fine = check_updatable(stack); !fine) return std::unexpected(fine.error());
      const auto previous = flag("UsePreviousTemplate");
      if (!previous) return std::unexpected(previous.error());
      if (*previous != given("TemplateBody").empty()) return invalid("Either TemplateBody or UsePreviousTemplate is expected.");
      StackRequest request{.name = stack["spec"]["stackName"].string(), .arn = stack["spec"]["arn"].string(), .body = *previous ? api::stack_in_force(stack)["template"].string() : given("TemplateBody"), .parameters = {}, .kept = {}, .tags = {}, .capabilities = {}};
      if (auto fine = fill(request, true); !fine) return std::unexpected(fine.error());
      auto wish = stack_wish(sources_, call_, request, stack);
      if (!wish) return std::unexpected(wish.error());
      if (!wish->differs) return invalid("No updates are to be performed.");
      return std::optional(updated(stack, std::move(*operation), std::move(wish->side)));
    });
    if (!done) return std::unexpected(done.error());
    return xml_element("StackId", (*done)["spec"]["arn"].string());
  }

  Answer<std::string> remove() {
    if (auto done = known({"StackName", "ClientRequestToken", "DeletionMode", "RetainResources."}); !done) return std::unexpected(done.error());
    if (!given("RetainResources.member.1").empty()) return invalid("RetainResources is for stacks that are DELETE_FAILED, which none is here: say DeletionPolicy Retain in the template, and update the stack");
    if (const std::string mode = given("DeletionMode"); !mode.empty() && mode != "STANDARD") return invalid("DeletionMode: STANDARD alone is served here");
    const std::string name = given("StackName");
    const auto stack = found("DeleteStack", name);
    // One that is gone is as well deleted, as in AWS.
    if (!stack && stack.error() == absent(name).error()) return "";
    if (!stack) return std::unexpected(stack.error());
    const auto done = change("DeleteStack", [&](const Json& now) -> Answer<std::optional<Json>> {
      if (api::stack_phase(now).starts_with("DELETE_")) return std::optional<Json>();
      if (auto fine = allow_stack_deletion(sources_, call_, now); !fine) return std::unexpected(fine.error());
      auto operation = operation_of("Delete");
      if (!operation) return std::unexpected(operation.error());
      Json changed = now;
      changed.child("spec").set("operation", std::move(*operation));
      changed.child("spec").erase("changeSets");
      return std::optional(std::move(changed));
    });
    if (!done && done.error() == absent(name).error()) return "";
    if (!done) return std::unexpected(done.error());
    return "";
  }

  // ---- what is told

  Answer<std::string> describe() {
    if (auto done = known({"StackName", "NextToken"}); !done) return std::unexpected(done.error());
    if (!given("StackName").empty()) {
      const auto stack = found("DescribeStacks", given("StackName"));
      if (!stack) return std::unexpected(stack.error());
      return "<Stacks><member>" + picture(*stack) + "</member></Stacks>";
    }
    return every("DescribeStacks", "Stacks", [](const Json&) { return true; }, [](const Json& stack) { return picture(stack); });
  }

  Answer<std::string> list() {
    if (auto done = known({"StackStatusFilter.", "NextToken"}); !done) return std::unexpected(done.error());
    const auto wanted = all("StackStatusFilter.member.");
    return every("ListStacks", "StackSummaries", [&](const Json& stack) { return wanted.empty() || std::find(wanted.begin(), wanted.end(), api::stack_phase(stack)) != wanted.end(); }, [](const Json& stack) { return head(stack) + element("TemplateDescription", api::stack_in_force(stack)["description"].string()); });
  }

  Answer<std::string> events() {
    if (auto done = known({"StackName", "NextToken"}); !done) return std::unexpected(done.error());
    const auto stack = found("DescribeStackEvents", given("StackName"));
    if (!stack) return std::unexpected(stack.error());
    std::vector<Entry> rows;
    const auto& events = (*stack)["status"]["events"].items();
    for (std::size_t i = 0; i < events.size(); ++i) rows.push_back({.name = fmt::format("{:012}", events[i]["number"].integer()), .id = "", .created = {}, .status = {}, .cluster = {}, .at = i});
    return page(std::move(rows), "events of " + (*stack)["spec"]["arn"].string(), "StackEvents", true, [&](std::size_t at) {
      const Json& one = events[at];
      return xml_element("EventId", fmt::format("{}-{}-{}", one["logicalId"].string(), one["status"].string(), one["number"].integer())) + names_of(*stack) + xml_element("LogicalResourceId", one["logicalId"].string()) + xml_element("PhysicalResourceId", one["physicalId"].string()) +
             xml_element("ResourceType", one["type"].string()) + xml_element("Timestamp", time_text(one["at"].string())) + xml_element("ResourceStatus", one["status"].string()) + element("ResourceStatusReason", one["reason"].string()) + element("ClientRequestToken", one["token"].string());
    });
  }

  Answer<std::string> list_resources() {
    if (auto done = known({"StackName", "NextToken"}); !done) return std::unexpected(done.error());
    const auto stack = found("ListStackResources", given("StackName"));
    if (!stack) return std::unexpected(stack.error());
    std::vector<Entry> rows;
    const auto& resources = (*stack)["status"]["resources"].items();
    for (std::size_t i = 0; i < resources.size(); ++i) rows.push_back({.name = resources[i]["logicalId"].string(), .id = "", .created = {}, .status = {}, .cluster = {}, .at = i});
    return page(std::move(rows), "resources of " + (*stack)["spec"]["arn"].string(), "StackResourceSummaries", false, [&](std::size_t at) { return resource_picture(resources[at], "LastUpdatedTimestamp"); });
  }

  Answer<std::string> describe_resources() {
    if (auto done = known({"StackName", "LogicalResourceId", "PhysicalResourceId"}); !done) return std::unexpected(done.error());
    if (!given("PhysicalResourceId").empty()) return invalid("PhysicalResourceId is not served here: name the stack");
    const auto stack = found("DescribeStackResources", given("StackName"));
    if (!stack) return std::unexpected(stack.error());
    const std::string id = given("LogicalResourceId");
    std::string out = "<StackResources>";
    for (const Json& one : (*stack)["status"]["resources"].items())
      if (id.empty() || one["logicalId"].string() == id) out += "<member>" + names_of(*stack) + resource_picture(one, "Timestamp") + "</member>";
    return out + "</StackResources>";
  }

  Answer<std::string> describe_resource() {
    if (auto done = known({"StackName", "LogicalResourceId"}); !done) return std::unexpected(done.error());
    const auto stack = found("DescribeStackResource", given("StackName"));
    if (!stack) return std::unexpected(stack.error());
    for (const Json& one : (*stack)["status"]["resources"].items())
      if (one["logicalId"].string() == given("LogicalResourceId")) return "<StackResourceDetail>" + names_of(*stack) + resource_picture(one, "LastUpdatedTimestamp") + "</StackResourceDetail>";
    return invalid(fmt::format("Resource {} does not exist for stack {}", cut(given("LogicalResourceId"), 255), (*stack)["spec"]["stackName"].string()));
  }

  Answer<std::string> get_template() {
    if (auto done = known({"StackName", "TemplateStage"}); !done) return std::unexpected(done.error());
    if (const std::string stage = given("TemplateStage"); !stage.empty() && stage != "Original" && stage != "Processed") return invalid("TemplateStage: Original or Processed is expected");
    const auto stack = found("GetTemplate", given("StackName"));
    if (!stack) return std::unexpected(stack.error());
    return xml_element("TemplateBody", api::stack_in_force(*stack)["template"].string()) + "<StagesAvailable><member>Original</member><member>Processed</member></StagesAvailable>";
  }

  Answer<std::string> validate() {
    if (auto done = known({"TemplateBody"}); !done) return std::unexpected(done.error());
    if (auto done = call_.allow("cloudformation:ValidateTemplate", "*"); !done) return std::unexpected(done.error());
    const auto of = formation::read_template(given("TemplateBody"));
    if (!of) return invalid(of.error().message);
    std::string out = "<Parameters>";
    for (const formation::Parameter& one : of->parameters) {
      out += "<member>" + xml_element("ParameterKey", one.name) + (one.fallback ? xml_element("DefaultValue", one.hidden ? "****" : *one.fallback) : "") + xml_element("NoEcho", one.hidden ? "true" : "false") + element("Description", one.description) + "</member>";
    }
    return out + "</Parameters>" + element("Description", of->description);
  }

  Answer<std::string> summary() {
    if (auto done = known({"StackName", "TemplateBody"}); !done) return std::unexpected(done.error());
    std::string body = given("TemplateBody");
    if (const std::string name = given("StackName"); !name.empty() == !body.empty()) return invalid("Either StackName or TemplateBody is expected.");
    if (body.empty()) {
      const auto stack = found("GetTemplateSummary", given("StackName"));
      if (!stack) return std::unexpected(stack.error());
      body = api::stack_in_force(*stack)["template"].string();
      // There are change sets alone yet.
      if (body.empty() && !(*stack)["spec"]["changeSets"].items().empty()) body = (*stack)["spec"]["changeSets"].items().back()["template"].string();
    } else if (auto done = call_.allow("cloudformation:GetTemplateSummary", "*"); !done) {
      return std::unexpected(done.error());
    }
    const auto of = formation::read_template(body);
    if (!of) return invalid(of.error().message);
    std::string out = "<Parameters>";
    for (const formation::Parameter& one : of->parameters) {
      out += "<member>" + xml_element("ParameterKey", one.name) + (one.fallback ? xml_element("DefaultValue", one.hidden ? "****" : *one.fallback) : "") + xml_element("ParameterType", one.type) + xml_element("NoEcho", one.hidden ? "true" : "false") + element("Description", one.description) + "<ParameterConstraints>";
      if (!one.allowed.empty()) {
        out += "<AllowedValues>";
        for (const std::string& value : one.allowed) out += xml_element("member", value);
        out += "</AllowedValues>";
      }
      out += "</ParameterConstraints></member>";
    }
    out += "</Parameters>" + element("Description", of->description) + "<ResourceTypes>";
    std::set<std::string> types;
    for (const formation::Resource& one : of->resources) types.insert(one.type);
    for (const std::string& type : types) out += xml_element("member", type);
    return out + "</ResourceTypes>";
  }

  // ---- change sets: what a request would do, kept until it is done

  Answer<std::string> create_change_set() {
    if (auto done = known({"StackName", "ChangeSetName", "ChangeSetType", "TemplateBody", "UsePreviousTemplate", "ClientToken", "Description", "OnStackFailure", "IncludeNestedStacks"}); !done) return std::unexpected(done.error());
    const std::string name = stack_name_of(given("StackName")), title = given("ChangeSetName"), type = given("ChangeSetType", "UPDATE");
    if (!is_stack_name(name)) return bad_name(given("StackName"));
    if (!is_stack_name(title)) return invalid(fmt::format("ChangeSetName '{}': a letter, then letters, digits and -, 128 at most", cut(title, 128)));
    if (type != "CREATE" && type != "UPDATE") return invalid("ChangeSetType: CREATE or UPDATE is served here");
    if (const auto nested = flag("IncludeNestedStacks"); !nested || *nested) return invalid("IncludeNestedStacks: nested stacks are not served here");
    if (const std::string what = given("OnStackFailure"); !what.empty() && what != "ROLLBACK") return invalid("OnStackFailure: ROLLBACK alone is served here");
    const auto asked_tags = tags_asked();
    if (!asked_tags) return std::unexpected(asked_tags.error());
    for (int attempt = 0;; ++attempt) {
      auto stack = found("CreateChangeSet", given("StackName"), *asked_tags);
      const bool fresh = !stack && type == "CREATE" && name == given("StackName") && stack.error() == absent(name).error();
      if (!stack && !fresh) return std::unexpected(stack.error());
      Json object = fresh ? new_object(name, new_arn(name)) : *stack;
      const bool review = fresh || api::stack_phase(object) == "REVIEW_IN_PROGRESS";
      if (type == "CREATE" && !review) return refuse("AlreadyExistsException", fmt::format("Stack [{}] already exists and cannot be created again with the changeSet [{}].", name, title));
      if (type == "UPDATE" && review) return invalid(fmt::format("Stack [{}] does not exist", name));
      if (type == "UPDATE")
        if (auto fine = check_updatable(object); !fine) return std::unexpected(fine.error());
      // One without a change is of no use: each deploy that finds nothing to do leaves one, and they make room for others.
      Json sets = Json::array();
      for (const Json& one : object["spec"]["changeSets"].items())
        if (!one.has("failed")) sets.push(one);
      for (const Json& one : sets.items())
        if (one["name"].string() == title) {
          const bool same = one.has("token") && one["token"].string() == given("ClientToken") && one["by"].string() == cut(call_.who.arn, 600) && one["request"].string() == digest();
          if (same) return xml_element("Id", one["id"].string()) + xml_element("StackId", object["spec"]["arn"].string());
          return refuse("AlreadyExistsException", fmt::format("ChangeSet {} already exists", title));
        }
      if (sets.items().size() >= kMostChangeSets) return refuse("LimitExceededException", fmt::format("a stack has at most {} change sets here: delete one", kMostChangeSets));
      const auto previous = flag("UsePreviousTemplate");
      if (!previous) return std::unexpected(previous.error());
      if (*previous != given("TemplateBody").empty() || (*previous && type == "CREATE")) return invalid("Either TemplateBody or UsePreviousTemplate is expected.");
      StackRequest request{.name = name, .arn = object["spec"]["arn"].string(), .body = *previous ? api::stack_in_force(object)["template"].string() : given("TemplateBody"), .parameters = {}, .kept = {}, .tags = {}, .capabilities = {}};
      if (auto done = fill(request, type == "UPDATE"); !done) return std::unexpected(done.error());
      auto wish = stack_wish(sources_, call_, request, type == "CREATE" ? Json() : object);
      if (!wish) return std::unexpected(wish.error());
      Json set = Json::object({{"name", title}, {"id", fmt::format("arn:aws:cloudformation:{}:{}:changeSet/{}/{}", call_.site.region, call_.site.account, title, call_.request_id)}, {"type", type}, {"at", print_time(call_.now)}, {"template", request.body}, {"parameters", wish->side["parameters"]}, {"tags", wish->side["tags"]}, {"capabilities", wish->side["capabilities"]}});
      if (const std::string token = given("ClientToken"); !token.empty()) set.set("token", cut(token, 128)).set("by", cut(call_.who.arn, 600)).set("request", digest());
      if (const std::string said = given("Description"); !said.empty()) set.set("description", cut(said, 1024));
      Json changes = Json::array();
      for (const StackChange& one : wish->changes) changes.push(Json::object({{"action", one.action}, {"logicalId", one.id}, {"type", one.type}, {"physicalId", one.physical}}));
      set.set("changes", std::move(changes));
      if (!wish->differs) set.set("failed", "The submitted information didn't contain changes. Submit different information to create a change set.");
      const std::string id = set["id"].string();
      sets.push(std::move(set));
      object.child("spec").set("changeSets", std::move(sets));
      if (auto fine = check_size(object); !fine) return std::unexpected(fine.error());
      const auto done = fresh ? sources_.api.create(api::kStacks, object) : sources_.api.update(api::kStacks, object);
      if (done) return xml_element("Id", id) + xml_element("StackId", object["spec"]["arn"].string());
      if ((done.error().code != Code::Conflict && done.error().code != Code::Exists) || attempt >= 10) return std::unexpected(stack_error(done.error(), "CreateChangeSet"));
    }
  }

  Answer<std::string> describe_change_set() {
    if (auto done = known({"StackName", "ChangeSetName", "NextToken", "IncludePropertyValues"}); !done) return std::unexpected(done.error());
    const auto at = change_set("DescribeChangeSet");
    if (!at) return std::unexpected(at.error());
    const auto& [stack, set] = *at;
    const bool failed = set.has("failed");
    std::string out = xml_element("ChangeSetName", set["name"].string()) + xml_element("ChangeSetId", set["id"].string()) + names_of(stack) + element("Description", set["description"].string()) + xml_element("CreationTime", time_text(set["at"].string())) + xml_element("ExecutionStatus", failed ? "UNAVAILABLE" : "AVAILABLE") + xml_element("Status", failed ? "FAILED" : "CREATE_COMPLETE") +
                      element("StatusReason", set["failed"].string()) + inputs_of(set) + "<Changes>";
    for (const Json& one : set["changes"].items())
      out += "<member><Type>Resource</Type><ResourceChange>" + xml_element("Action", one["action"].string()) + xml_element("LogicalResourceId", one["logicalId"].string()) + element("PhysicalResourceId", one["physicalId"].string()) + xml_element("ResourceType", one["type"].string()) + (one["action"].string() == "Modify" ? "<Replacement>False</Replacement><Scope><member>Properties</member></Scope>" : "<Scope></Scope>") + "<Details></Details></ResourceChange></member>";
    return out + "</Changes>";
  }

  Answer<std::string> list_change_sets() {
    if (auto done = known({"StackName", "NextToken"}); !done) return std::unexpected(done.error());
    const auto stack = found("ListChangeSets", given("StackName"));
    if (!stack) return std::unexpected(stack.error());
    std::string out = "<Summaries>";
    for (const Json& set : (*stack)["spec"]["changeSets"].items()) {
      const bool failed = set.has("failed");
      out += "<member>" + names_of(*stack) + xml_element("ChangeSetId", set["id"].string()) + xml_element("ChangeSetName", set["name"].string()) + xml_element("ExecutionStatus", failed ? "UNAVAILABLE" : "AVAILABLE") + xml_element("Status", failed ? "FAILED" : "CREATE_COMPLETE") + element("StatusReason", set["failed"].string()) + xml_element("CreationTime", time_text(set["at"].string())) +
             element("Description", set["description"].string()) + "</member>";
    }
    return out + "</Summaries>";
  }

  Answer<std::string> execute_change_set() {
    if (auto done = known({"StackName", "ChangeSetName", "ClientRequestToken", "DisableRollback"}); !done) return std::unexpected(done.error());
    const auto disabled = flag("DisableRollback");
    if (!disabled) return std::unexpected(disabled.error());
    for (int attempt = 0;; ++attempt) {
      const auto at = change_set("ExecuteChangeSet");
      if (!at) return std::unexpected(at.error());
      const auto& [stack, set] = *at;
      if (set.is_null()) return "";  // done already: the answer was lost
      if (set.has("failed")) return refuse("InvalidChangeSetStatus", fmt::format("ChangeSet [{}] cannot be executed in its current status of [FAILED]", set["id"].string()));
      const bool update = set["type"].string() == "UPDATE";
      if (update && *disabled) return invalid("DisableRollback is not served here for updates: an update that fails goes back");
      if (update) {
        if (auto fine = check_updatable(stack); !fine) return std::unexpected(fine.error());
      } else if (api::stack_phase(stack) != "REVIEW_IN_PROGRESS") {
        return refuse("InvalidChangeSetStatus", fmt::format("Stack {} is {}", stack["spec"]["stackName"].string(), api::stack_phase(stack)));
      }
      // Settled anew: what it found has changed since, and who carries it out is not who asked for it.
      StackRequest request{.name = stack["spec"]["stackName"].string(), .arn = stack["spec"]["arn"].string(), .body = set["template"].string(), .parameters = {}, .kept = {}, .tags = Tags(), .capabilities = {}, .goes_back = !*disabled};
      for (const auto& [name, value] : set["parameters"].members()) request.parameters[name] = value.string();
      for (const auto& [key, value] : set["tags"].members()) (*request.tags)[key] = value.string();
      for (const Json& one : set["capabilities"].items()) request.capabilities.push_back(one.string());
      auto wish = stack_wish(sources_, call_, request, update ? stack : Json());
      if (!wish) return std::unexpected(wish.error());
      if (!wish->differs) return invalid("No updates are to be performed.");
      auto operation = operation_of(update ? "Update" : "Create");
      if (!operation) return std::unexpected(operation.error());
      if (!update) operation->set("onFailure", *disabled ? "DO_NOTHING" : "ROLLBACK");
      operation->set("changeSet", set["id"]).set("changeSetName", set["name"]);
      const Json changed = updated(stack, std::move(*operation), std::move(wish->side));
      if (auto fine = check_size(changed); !fine) return std::unexpected(fine.error());
      const auto done = sources_.api.update(api::kStacks, changed);
      if (done) return "";
      if (done.error().code != Code::Conflict || attempt >= 10) return std::unexpected(stack_error(done.error(), "ExecuteChangeSet"));
    }
  }

  Answer<std::string> delete_change_set() {
    if (auto done = known({"StackName", "ChangeSetName"}); !done) return std::unexpected(done.error());
    for (int attempt = 0;; ++attempt) {
      const auto at = change_set("DeleteChangeSet");
      if (!at && at.error().code == "ChangeSetNotFound") return "";
      if (!at) return std::unexpected(at.error());
      const auto& [stack, set] = *at;
      Json changed = stack;
      std::erase_if(changed.child("spec").child("changeSets").items(), [&](const Json& one) { return one["id"] == set["id"]; });
      const auto done = sources_.api.update(api::kStacks, changed);
      if (done) return "";
      if (done.error().code != Code::Conflict || attempt >= 10) return std::unexpected(stack_error(done.error(), "DeleteChangeSet"));
    }
  }

 private:
  // ---- the request
  std::string given(std::string_view name, std::string_view otherwise = "") const {
    const auto value = http::find(form_, name);
    return std::string(value.empty() ? otherwise : value);
  }
  std::vector<std::string> all(const std::string& begin) const {
    std::vector<std::string> out;
    for (int i = 1; i <= 1000; ++i) {
      const std::string value = given(begin + std::to_string(i));
      if (value.empty()) break;
      out.push_back(value);
    }
    return out;
  }
  Answer<bool> flag(const char* name) const {
    const std::string text = given(name, "false");
    if (text != "true" && text != "false") return invalid(fmt::format("{}: true or false is expected", name));
    return text == "true";
  }
  // What is not carried out is refused: whoever asks for it must not believe to have got it. Names that end with a dot are lists; an empty one comes as "Capabilities=", and asks for nothing.
  Answer<void> known(std::initializer_list<std::string_view> names) const {
    static constexpr std::array<std::string_view, 3> inputs{"Parameters.", "Tags.", "Capabilities."};
    const bool takes_template = std::find(names.begin(), names.end(), "UsePreviousTemplate") != names.end() || std::find(names.begin(), names.end(), "OnFailure") != names.end();
    for (const auto& [name, value] : form_) {
      if (name == "Action" || name == "Version" || name.starts_with("X-Amz-") || value.empty()) continue;
      if (name == "EnableTerminationProtection" && value != "false") return invalid("EnableTerminationProtection is not served here");
      const auto fits = [&](std::string_view one) { return one.ends_with('.') ? name.starts_with(one) : name == one; };
      if (std::any_of(names.begin(), names.end(), fits) || (takes_template && std::any_of(inputs.begin(), inputs.end(), fits))) continue;
      if (name == "TemplateURL") return invalid("TemplateURL is not served here: send the template as TemplateBody (--template-body file://...)");
      if (name == "RoleARN") return invalid("RoleARN is not served here: a stack does what the one who asks may do, and no more; assume the role and ask as it");
      return invalid(fmt::format("{} is not served here", cut(name, 128)));
    }
    return {};
  }
  Answer<void> fill(StackRequest& request, bool update) const {
    if (request.body.empty()) return invalid("Either Template URL or Template Body must be specified.");
    for (int i = 1;; ++i) {
      const std::string begin = fmt::format("Parameters.member.{}.", i), key = given(begin + "ParameterKey");
      if (key.empty()) break;
      const auto previous = flag((begin + "UsePreviousValue").c_str());
      if (!previous) return std::unexpected(previous.error());
      const bool has_value = std::any_of(form_.begin(), form_.end(), [&](const auto& one) { return one.first == begin + "ParameterValue"; });
      if (*previous && (!update || has_value)) return invalid(fmt::format("Invalid input for parameter key {}. Cannot specify usePreviousValue as true {}", key, update ? "and a value" : "for a stack that is to be created"));
      if (!*previous && !has_value) return invalid(fmt::format("Parameter {}: a ParameterValue is expected", key));
      const bool twice = request.kept.contains(key) || request.parameters.contains(key);
      if (twice) return invalid(fmt::format("Parameter {} is there twice", key));
      if (*previous) request.kept.insert(key);
      else request.parameters[key] = given(begin + "ParameterValue");
    }
    const bool says_tags = std::any_of(form_.begin(), form_.end(), [](const auto& one) { return one.first == "Tags" || one.first.starts_with("Tags."); });
    if (says_tags || !update) {
      auto tags = tags_asked();
      if (!tags) return std::unexpected(tags.error());
      request.tags = std::move(*tags);
    }
    request.capabilities = all("Capabilities.member.");
    for (const std::string& one : request.capabilities)
      if (one != "CAPABILITY_IAM" && one != "CAPABILITY_NAMED_IAM" && one != "CAPABILITY_AUTO_EXPAND") return invalid(fmt::format("Capabilities: {} is none", cut(one, 64)));
    return {};
  }
  // Those that the request gives; none given: none.
  Answer<Tags> tags_asked() const {
    Json list = Json::array();
    for (int i = 1; i <= 51 && !given(fmt::format("Tags.member.{}.Key", i)).empty(); ++i) {
      const std::string key = given(fmt::format("Tags.member.{}.Key", i)), value = given(fmt::format("Tags.member.{}.Value", i));
      if (key.size() > 128 || value.size() > 256) return invalid("a tag's key has at most 128 characters, its value 256");
      list.push(Json::object({{"Key", key}, {"Value", value}}));
    }
    if (list.items().size() > 50) return invalid("at most 50 tags");
    return read_tags(list);
  }
  Answer<Json> operation_of(const char* kind) const {
    Json out = Json::object({{"id", call_.request_id}, {"kind", kind}, {"by", cut(call_.who.arn, 600)}, {"at", print_time(call_.now)}});
    if (const std::string token = given("ClientRequestToken"); !token.empty()) {
      if (token.size() > 128) return invalid("ClientRequestToken: at most 128 characters");
      out.set("token", token).set("request", digest());
    }
    return out;
  }

  // ---- names and what is there
  std::string any_arn(const std::string& name) const { return fmt::format("arn:aws:cloudformation:{}:{}:stack/{}/*", call_.site.region, call_.site.account, name); }
  std::string new_arn(const std::string& name) const { return fmt::format("arn:aws:cloudformation:{}:{}:stack/{}/{}", call_.site.region, call_.site.account, name, call_.request_id); }
  static std::unexpected<AwsError> bad_name(const std::string& name) { return invalid(fmt::format("1 validation error detected: Value '{}' at 'stackName' failed to satisfy constraint: Member must satisfy regular expression pattern: [a-zA-Z][-a-zA-Z0-9]*, with 128 characters at most", cut(name, 128))); }
  static std::unexpected<AwsError> absent(const std::string& name) { return invalid(fmt::format("Stack with id {} does not exist", cut(name, 300))); }
  std::string stack_name_of(const std::string& name_or_arn) const {
    if (!name_or_arn.starts_with("arn:")) return name_or_arn;
    const auto fields = split(name_or_arn, ':');
    if (fields.size() != 6 || fields[1] != "aws" || fields[2] != "cloudformation" || fields[3] != call_.site.region || fields[4] != call_.site.account) return "";
    const auto parts = split(fields[5], '/');
    return parts.size() == 3 && parts[0] == "stack" && !parts[2].empty() ? std::string(parts[1]) : "";
  }
  static Json new_object(const std::string& name, const std::string& arn) {
    return Json::object({{"apiVersion", api::kStacks.api_version()}, {"kind", api::kStacks.kind}, {"metadata", Json::object({{"name", object_name_of(name)}, {"finalizers", Json::array({Json(api::kStackFinalizer)})}})}, {"spec", Json::object({{"stackName", name}, {"arn", arn}})}});
  }
  // By its name or ARN, if the caller may do this to it; who may not learns nothing of what is there.
  Answer<Json> found(const char* action, const std::string& name_or_arn, const Tags& asked_tags = {}) const {
    if (name_or_arn.empty()) return invalid("1 validation error detected: Value null at 'stackName' failed to satisfy constraint: Member must not be null");
    const std::string name = stack_name_of(name_or_arn);
    if (!is_stack_name(name)) return bad_name(name_or_arn);
    auto stack = sources_.api.get(api::kStacks, {"", object_name_of(name)});
    if (!stack && stack.error().code != Code::NotFound) return std::unexpected(aws_error(stack.error(), action));
    const bool there = stack && (*stack)["spec"]["stackName"].string() == name && (name == name_or_arn || (*stack)["spec"]["arn"].string() == name_or_arn);
    if (auto done = call_.allow(std::string("cloudformation:") + action, there ? (*stack)["spec"]["arn"].string() : name == name_or_arn ? any_arn(name) : name_or_arn, tag_keys(asked_tags, there ? tags_of_stack(*stack) : Tags()), name_or_arn); !done) return std::unexpected(done.error());
    if (!there) return absent(name_or_arn);
    return std::move(*stack);
  }
  static Tags tags_of_stack(const Json& stack) {
    Tags out;
    for (const auto& [key, value] : api::stack_in_force(stack)["tags"].members()) out[key] = value.string();
    return out;
  }
  // Reads, decides and writes; who was faster is read again. Nothing from `decide`: it is as it should be.
  Answer<Json> change(const char* action, const std::function<Answer<std::optional<Json>>(const Json&)>& decide) const {
    const auto asked_tags = tags_asked();
    if (!asked_tags) return std::unexpected(asked_tags.error());
    for (int attempt = 0;; ++attempt) {
      auto stack = found(action, given("StackName"), *asked_tags);
      if (!stack) return stack;
      const auto changed = decide(*stack);
      if (!changed) return std::unexpected(changed.error());
      if (!*changed) return stack;
      // A deletion adds nothing.
      if ((**changed)["spec"]["operation"]["kind"].string() != "Delete")
        if (auto fine = check_size(**changed); !fine) return std::unexpected(fine.error());
      auto done = sources_.api.update(api::kStacks, **changed);
      if (done) return std::move(*done);
      if (done.error().code == Code::NotFound) return absent(given("StackName"));
      if (done.error().code != Code::Conflict || attempt >= 10) return std::unexpected(stack_error(done.error(), action));
    }
  }
  static Json updated(const Json& stack, Json operation, Json side) {
    Json out = stack;
    const bool update = operation["kind"].string() == "Update";
    Json before = api::stack_in_force(stack);
    Json& spec = out.child("spec");
    spec.set("operation", std::move(operation)).set("target", std::move(side));
    if (update) spec.set("before", std::move(before));
    spec.erase("changeSets");  // they were of what it was
    return out;
  }
  Answer<void> check_updatable(const Json& stack) const {
    const std::string phase = api::stack_phase(stack);
    if (phase == "CREATE_COMPLETE" || phase == "UPDATE_COMPLETE" || phase == "UPDATE_ROLLBACK_COMPLETE" || phase == "UPDATE_ROLLBACK_FAILED") return {};
    return invalid(fmt::format("Stack:{} is in {} state and can not be updated.", stack["spec"]["arn"].string(), phase));
  }
  bool has_token(const Json& stack, const char* kind) const {
    const std::string token = given("ClientRequestToken");
    const Json& last = stack["spec"]["operation"];
    return !token.empty() && last["token"].string() == token && last["kind"].string() == kind;
  }
  // The very request again, of who made it: the token of somebody else, or with another request, repeats nothing.
  bool is_repeated(const Json& stack, const char* kind) const {
    const Json& last = stack["spec"]["operation"];
    return has_token(stack, kind) && last["by"].string() == cut(call_.who.arn, 600) && last["request"].string() == digest();
  }
  std::string digest() const {
    std::vector<std::pair<std::string, std::string>> said;
    for (const auto& [name, value] : form_)
      if (!name.starts_with("X-Amz-")) said.emplace_back(name, value);
    std::ranges::sort(said);
    Json all = Json::array();
    for (const auto& [name, value] : said) {
      all.push(name);
      all.push(value);
    }
    return hex(sha256(kube::print_json(all)));
  }
  Answer<std::string> repeated(const Json& stack, const char* kind, const std::string& name) const {
    if (is_repeated(stack, kind)) return xml_element("StackId", stack["spec"]["arn"].string());
    return refuse("AlreadyExistsException", fmt::format("Stack [{}] already exists", name));
  }
  // A change set that this caller has executed, and nothing was asked of the stack since: ExecuteChangeSet of it again does nothing.
  bool was_executed(const char* action, const Json& stack, const std::string& title) const {
    const Json& last = stack["spec"]["operation"];
    const bool named = last["changeSet"].string() == title || (last["changeSetName"].string() == title && !given("StackName").empty());
    return std::string_view(action) == "ExecuteChangeSet" && named && last["by"].string() == cut(call_.who.arn, 600) && last["token"].string() == given("ClientRequestToken");
  }
  // The stack, and the change set; null: it was executed (was_executed).
  Answer<std::pair<Json, Json>> change_set(const char* action) const {
    const std::string title = given("ChangeSetName");
    const auto not_found = [&] { return refuse("ChangeSetNotFound", fmt::format("ChangeSet [{}] does not exist", cut(title, 300)), 404); };
    if (title.empty()) return invalid("1 validation error detected: Value null at 'changeSetName' failed to satisfy constraint: Member must not be null");
    if (given("StackName").empty() && title.starts_with("arn:")) {
      // The ARN of a change set does not name its stack: all are looked at, by who may see all.
      const std::string any = fmt::format("arn:aws:cloudformation:{}:{}:stack/*/*", call_.site.region, call_.site.account);
      if (auto done = call_.allow(std::string("cloudformation:") + action, any, {}, any); !done) return std::unexpected(done.error());
      auto stacks = sources_.api.list(api::kStacks, "");
      if (!stacks) return std::unexpected(aws_error(stacks.error(), action));
      for (const Json& stack : stacks->items) {
        Json found;
        for (const Json& set : stack["spec"]["changeSets"].items())
          if (set["id"].string() == title) found = set;
        if (found.is_null() && !was_executed(action, stack, title)) continue;
        // What is said of this very stack counts, too.
        if (auto done = call_.allow(std::string("cloudformation:") + action, stack["spec"]["arn"].string(), tag_keys({}, tags_of_stack(stack)), any); !done) return std::unexpected(done.error());
        return std::pair(stack, std::move(found));
      }
      return not_found();
    }
    auto stack = found(action, given("StackName"));
    if (!stack) return std::unexpected(stack.error());
    for (const Json& set : (*stack)["spec"]["changeSets"].items())
      if (set["name"].string() == title || set["id"].string() == title) return std::pair(*stack, set);
    if (was_executed(action, *stack, title)) return std::pair(*stack, Json());
    return not_found();
  }

  // ---- pictures
  static std::string names_of(const Json& stack) { return xml_element("StackId", stack["spec"]["arn"].string()) + xml_element("StackName", stack["spec"]["stackName"].string()); }
  static std::string head(const Json& stack) {
    const std::string phase = api::stack_phase(stack);
    const Json& status = stack["status"];
    return names_of(stack) + xml_element("CreationTime", time_text(stack["metadata"]["creationTimestamp"].string())) + element("LastUpdatedTime", time_text(status["updated"].string())) + element("DeletionTime", time_text(status["deleted"].string())) + xml_element("StackStatus", phase) +
           (phase == status["phase"].string() ? element("StackStatusReason", status["reason"].string()) : "") + "<DriftInformation><StackDriftStatus>NOT_CHECKED</StackDriftStatus></DriftInformation>";
  }
  // Parameters, tags, capabilities of a side or a change set; hidden values are told to nobody.
  static std::string inputs_of(const Json& of) {
    const auto read = formation::read_template(of["template"].string());
    std::string out = "<Parameters>";
    for (const auto& [name, value] : of["parameters"].members()) {
      const formation::Parameter* parameter = read ? read->parameter(name) : nullptr;
      out += "<member>" + xml_element("ParameterKey", name) + xml_element("ParameterValue", parameter == nullptr || parameter->hidden ? "****" : value.string()) + "</member>";
    }
    out += "</Parameters><Tags>";
    for (const auto& [key, value] : of["tags"].members()) out += "<member>" + xml_element("Key", key) + xml_element("Value", value.string()) + "</member>";
    out += "</Tags><Capabilities>";
    for (const Json& one : of["capabilities"].items()) out += xml_element("member", one.string());
    return out + "</Capabilities><NotificationARNs></NotificationARNs>";
  }
  static std::string picture(const Json& stack) {
    const Json& side = api::stack_in_force(stack);
    const Json& operation = stack["spec"]["operation"];
    std::string out = head(stack) + element("Description", side["description"].string()) + xml_element("DisableRollback", operation["onFailure"].string() == "DO_NOTHING" ? "true" : "false") + "<RollbackConfiguration></RollbackConfiguration>" + xml_element("EnableTerminationProtection", "false");
    if (const auto minutes = operation["timeoutMinutes"].integer(); minutes > 0) out += xml_element("TimeoutInMinutes", std::to_string(minutes));
    out += inputs_of(side) + "<Outputs>";
    for (const Json& one : stack["status"]["outputs"].items()) out += "<member>" + xml_element("OutputKey", one["key"].string()) + xml_element("OutputValue", one["value"].string()) + element("Description", one["description"].string()) + "</member>";
    return out + "</Outputs>";
  }
  static std::string resource_picture(const Json& one, const char* time) {
    return xml_element("LogicalResourceId", one["logicalId"].string()) + element("PhysicalResourceId", one["physicalId"].string()) + xml_element("ResourceType", one["type"].string()) + xml_element(time, time_text(one["at"].string())) + xml_element("ResourceStatus", one["status"].string()) + element("ResourceStatusReason", one["reason"].string()) +
           "<DriftInformation><StackResourceDriftStatus>NOT_CHECKED</StackResourceDriftStatus></DriftInformation>";
  }
  Answer<std::string> page(std::vector<Entry> rows, const std::string& question, const std::string& name, bool falling, const std::function<std::string(std::size_t)>& show) const {
    Json input = Json::object({{"SortBy", "Name"}, {"SortOrder", falling ? "Descending" : "Ascending"}, {"of", question}});
    if (const std::string token = given("NextToken"); !token.empty()) input.set("NextToken", token);
    const auto some = page_of(std::move(rows), input, [&](const Entry& one) { return Json(show(one.at)); });
    if (!some) return std::unexpected(some.error());
    std::string out = "<" + name + ">";
    for (const Json& one : some->items.items()) out += "<member>" + one.string() + "</member>";
    return out + "</" + name + ">" + element("NextToken", some->next);
  }
  // Of all stacks, by name.
  Answer<std::string> every(const char* action, const std::string& name, const std::function<bool(const Json&)>& wanted, const std::function<std::string(const Json&)>& show) const {
    if (auto done = call_.allow(std::string("cloudformation:") + action, "*"); !done) return std::unexpected(done.error());
    const auto stacks = sources_.api.list(api::kStacks, "");
    if (!stacks) return std::unexpected(aws_error(stacks.error(), action));
    std::vector<Entry> rows;
    for (std::size_t i = 0; i < stacks->items.size(); ++i)
      if (wanted(stacks->items[i])) rows.push_back({.name = stacks->items[i]["spec"]["stackName"].string(), .id = kube::name_of(stacks->items[i]), .created = {}, .status = {}, .cluster = {}, .at = i});
    std::vector<std::string> filter = all("StackStatusFilter.member.");
    return page(std::move(rows), fmt::format("{} {}", action, fmt::join(filter, ",")), name, false, [&](std::size_t at) { return show(stacks->items[at]); });
  }

  const http::Query& form_;
  const Call& call_;
  const Sources& sources_;
};

using Work = std::function<Answer<std::string>(CloudFormation&)>;
const std::map<std::string, Work, std::less<>>& works() {
  static const std::map<std::string, Work, std::less<>> all{
      {"CreateStack", [](CloudFormation& of) { return of.create(); }},
      {"UpdateStack", [](CloudFormation& of) { return of.update(); }},
      {"DeleteStack", [](CloudFormation& of) { return of.remove(); }},
      {"DescribeStacks", [](CloudFormation& of) { return of.describe(); }},
      {"ListStacks", [](CloudFormation& of) { return of.list(); }},
      {"DescribeStackEvents", [](CloudFormation& of) { return of.events(); }},
      {"ListStackResources", [](CloudFormation& of) { return of.list_resources(); }},
      {"DescribeStackResources", [](CloudFormation& of) { return of.describe_resources(); }},
      {"DescribeStackResource", [](CloudFormation& of) { return of.describe_resource(); }},
      {"GetTemplate", [](CloudFormation& of) { return of.get_template(); }},
      {"GetTemplateSummary", [](CloudFormation& of) { return of.summary(); }},
      {"ValidateTemplate", [](CloudFormation& of) { return of.validate(); }},
      {"CreateChangeSet", [](CloudFormation& of) { return of.create_change_set(); }},
      {"DescribeChangeSet", [](CloudFormation& of) { return of.describe_change_set(); }},
      {"ListChangeSets", [](CloudFormation& of) { return of.list_change_sets(); }},
      {"ExecuteChangeSet", [](CloudFormation& of) { return of.execute_change_set(); }},
      {"DeleteChangeSet", [](CloudFormation& of) { return of.delete_change_set(); }},
  };
  return all;
}

}  // namespace

bool is_cloudformation_action(std::string_view action) { return works().contains(action); }

Answer<std::string> answer_cloudformation(const std::string& action, const http::Query& form, const Call& call, const Sources& sources) {
  const auto found = works().find(action);
  if (found == works().end()) return refuse("UnknownOperationException", fmt::format("Could not find operation {}; stacks and change sets of clusters are served here (docs/cloudformation.md)", action.empty() ? "(no Action)" : cut(action, 128)));
  CloudFormation of(form, call, sources);
  return found->second(of);
}

}  // namespace fairlead::hyperpod
