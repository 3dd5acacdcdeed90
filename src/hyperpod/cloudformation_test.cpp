// SPDX-License-Identifier: Apache-2.0
// Stacks by CloudFormation's API, against the objects that it writes; what a controller makes of them is played here.
#include "hyperpod/cloudformation.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "api/stack.h"
#include "base/encoding.h"
#include "hyperpod/test_site.h"

namespace fairlead::hyperpod {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Form = std::vector<std::pair<std::string, std::string>>;

constexpr const char* kTemplate = R"(AWSTemplateFormatVersion: '2010-09-09'
Description: a lab
Parameters:
  Workers: {Type: Number, Default: 2}
  Key: {Type: String, NoEcho: true, Default: hush-hush}
Resources:
  Cluster:
    Type: AWS::SageMaker::Cluster
    Properties:
      ClusterName: ml
      NodeProvisioningMode: Continuous
      InstanceGroups:
        - {InstanceGroupName: head, InstanceType: ml.c5.large, InstanceCount: 1, ExecutionRole: !Sub 'arn:aws:iam::${AWS::AccountId}:role/node', SlurmConfig: {NodeType: Controller}}
        - {InstanceGroupName: gpu, InstanceType: ml.g5.xlarge, InstanceCount: !Ref Workers, ExecutionRole: !Sub 'arn:aws:iam::${AWS::AccountId}:role/node', SlurmConfig: {NodeType: Compute, PartitionNames: [train]}}
Outputs:
  Arn: {Value: !GetAtt Cluster.ClusterArn}
)";

std::string changed(const std::string& what, const std::string& by) {
  std::string out = kTemplate;
  const auto at = out.find(what);
  EXPECT_NE(at, out.npos) << what;
  return out.replace(at, what.size(), by);
}

class CloudFormationApi : public testing::Test {
 protected:
  CloudFormationApi() {
    site.node_role("node");
    ada = site.user("ada", {everything});
  }
  TestSite::Said call(const char* action, Form form, const Credentials* who = nullptr) {
    form.insert(form.begin(), {"Action", action});
    return site.query(who == nullptr ? ada : *who, "cloudformation", "2010-05-15", form);
  }
  Form with(std::string body, Form more = {}) {
    Form out{{"StackName", "Lab"}, {"TemplateBody", std::move(body)}};
    for (auto& one : more) out.push_back(std::move(one));
    return out;
  }
  Json stack() {
    for (const auto& [key, object] : site.api.all("stacks")) return object;
    return Json();
  }
  Json cluster(const std::string& name = "ml") { return site.api.all("clusters").contains({"", name}) ? site.api.all("clusters").at({"", name}) : Json(); }
  // As its controller does it.
  void carry_out(const std::string& phase) {
    Json object = stack();
    Json resources = Json::array(), events = Json::array();
    for (const Json& one : object["spec"]["target"]["resources"].items()) {
      Json notes = one["annotations"];
      notes.set(api::kStackUid, kube::uid_of(object)).set(api::kStackResource, one["logicalId"]);
      const auto there = site.api.get(api::kClusters, {"", one["cluster"].string()});
      const auto made = there ? there : site.api.create(api::kClusters, Json::object({{"metadata", Json::object({{"name", one["cluster"]}, {"generation", 1}, {"annotations", std::move(notes)}})}, {"spec", one["spec"]}, {"status", Json::object({{"phase", "InService"}, {"observedGeneration", 1}})}}));
      ASSERT_TRUE(made);
      site.index.put(*made);
      resources.push(Json::object({{"logicalId", one["logicalId"]}, {"type", one["type"]}, {"cluster", one["cluster"]}, {"physicalId", site.arn(*made)}, {"status", "CREATE_COMPLETE"}, {"at", "2026-11-25T12:00:01Z"}}));
    }
    for (int i = 1; i <= 120; ++i) events.push(Json::object({{"number", i}, {"at", "2026-11-25T12:00:01Z"}, {"logicalId", "Lab"}, {"type", "AWS::CloudFormation::Stack"}, {"physicalId", object["spec"]["arn"]}, {"status", "CREATE_IN_PROGRESS"}, {"reason", fmt::format("event <{}>", i)}}));
    object.set("status", Json::object({{"operation", object["spec"]["operation"]["id"]}, {"phase", phase}, {"resources", std::move(resources)}, {"events", std::move(events)}, {"outputs", Json::array({Json::object({{"key", "Arn"}, {"description", ""}, {"value", "arn:x"}})})}}));
    if (phase.starts_with("UPDATE_ROLLBACK")) object.child("status").set("back", true);
    ASSERT_TRUE(site.api.put(api::kStacks, object));
  }
  void make() {
    const auto said = call("CreateStack", with(kTemplate));
    ASSERT_EQ(said.status, 200) << said.body;
    carry_out("CREATE_COMPLETE");
  }
  TestSite site;
  Credentials ada;
};

TEST_F(CloudFormationApi, AStackIsSettledInTheRequest) {
  const auto said = call("CreateStack", with(kTemplate, {{"Parameters.member.1.ParameterKey", "Workers"}, {"Parameters.member.1.ParameterValue", "3"}, {"Tags.member.1.Key", "team"}, {"Tags.member.1.Value", "vision"}, {"Capabilities.member.1", "CAPABILITY_IAM"}, {"TimeoutInMinutes", "30"}}));
  ASSERT_EQ(said.status, 200) << said.body;
  EXPECT_THAT(said.body, HasSubstr("<CreateStackResponse xmlns=\"http://cloudformation.amazonaws.com/doc/2010-05-15/\"><CreateStackResult><StackId>arn:aws:cloudformation:fairlead-1:111122223333:stack/Lab/"));
  const Json object = stack();
  EXPECT_TRUE(kube::has_finalizer(object, api::kStackFinalizer));
  const Json resource = object["spec"]["target"]["resources"].items().at(0);
  EXPECT_EQ(resource["cluster"].string(), "ml");
  EXPECT_EQ(resource["spec"]["instanceGroups"].items().at(1)["instanceCount"], Json(3)) << "a number, where the template comes to text";
  EXPECT_EQ(kube::print_json(tags_of(Json::object({{"metadata", Json::object({{"annotations", resource["annotations"]}})}})).empty() ? Json() : Json(resource["annotations"][tags_note].string())), R"("{\"team\":\"vision\"}")");
  EXPECT_THAT(resource["annotations"][maker_note].string(), HasSubstr("user/ada"));
  EXPECT_TRUE(site.api.all("clusters").empty()) << "the controller makes it";
  // The same object as by CreateCluster.
  const auto told = call("DescribeStacks", {{"StackName", "Lab"}});
  EXPECT_EQ(told.text("StackStatus"), "CREATE_IN_PROGRESS");
  EXPECT_EQ(told.text("TimeoutInMinutes"), "30");
  EXPECT_EQ(told.text("StackId"), said.text("StackId"));
  EXPECT_EQ(told.text("CreationTime"), "2026-11-25T12:00:00.000Z");
  EXPECT_THAT(told.body, AllOf(HasSubstr("<ParameterKey>Key</ParameterKey><ParameterValue>****</ParameterValue>"), HasSubstr("<ParameterValue>3</ParameterValue>"), Not(HasSubstr("hush"))));
  EXPECT_EQ(call("DescribeStacks", {{"StackName", said.text("StackId")}}).status, 200);
}

TEST_F(CloudFormationApi, TheClusterIsTheOneThatCreateClusterMakes) {
  make();
  const Json by_stack = cluster();
  site.api.all("clusters").clear();
  site.index.drop({"", "ml"});
  const Json input = *kube::parse_json(R"({"ClusterName": "ml", "NodeProvisioningMode": "Continuous", "InstanceGroups": [{"InstanceGroupName": "head", "InstanceType": "ml.c5.large", "InstanceCount": 1, "ExecutionRole": "arn:aws:iam::111122223333:role/node", "SlurmConfig": {"NodeType": "Controller"}}, {"InstanceGroupName": "gpu", "InstanceType": "ml.g5.xlarge", "InstanceCount": 2, "ExecutionRole": "arn:aws:iam::111122223333:role/node", "SlurmConfig": {"NodeType": "Compute", "PartitionNames": ["train"]}}]})");
  ASSERT_EQ(site.call(ada, "CreateCluster", input).status, 200);
  EXPECT_EQ(cluster()["spec"], by_stack["spec"]);
  const Json by_hand = cluster();
  for (const auto& [name, value] : by_hand["metadata"]["annotations"].members()) EXPECT_EQ(by_stack["metadata"]["annotations"][name], value) << name;
}

struct Refusal {
  const char* name;
  std::string body;
  Form more;
  std::string code, message;
};
class Refusals : public CloudFormationApi, public testing::WithParamInterface<Refusal> {};
TEST_P(Refusals, BeforeAnythingIsMade) {
  const auto said = call("CreateStack", with(GetParam().body, GetParam().more));
  EXPECT_EQ(said.code, GetParam().code) << said.body;
  EXPECT_THAT(said.message, HasSubstr(GetParam().message));
  EXPECT_TRUE(site.api.all("stacks").empty());
}
INSTANTIATE_TEST_SUITE_P(
    All, Refusals,
    testing::Values(Refusal{"other_types", changed("AWS::SageMaker::Cluster", "AWS::IAM::Role"), {}, "ValidationError", "resource Cluster is of type AWS::IAM::Role, which is not served here"}, Refusal{"no_template", "", {}, "ValidationError", "Template Body must be specified"},
                    Refusal{"a_bad_template", "Resources: [", {}, "ValidationError", "YAML not well-formed"}, Refusal{"a_bad_property", changed("InstanceCount: 1", "InstanceCount: many"), {}, "ValidationError", "Resource Cluster:"}, Refusal{"an_unknown_property", changed("ClusterName: ml", "ClusterNam: ml"), {}, "ValidationError", "clusterNam"},
                    Refusal{"what_clusters_do_not_serve", changed("ClusterName: ml", "AutoScaling: {Mode: Enable}"), {}, "ValidationError", "AutoScaling is not served yet"}, Refusal{"a_role_that_is_not_there", changed("role/node', SlurmConfig: {NodeType: Controller}", "role/none', SlurmConfig: {NodeType: Controller}"), {}, "ValidationError", "role/none not found"},
                    Refusal{"a_parameter_that_is_not_there", kTemplate, {{"Parameters.member.1.ParameterKey", "Nobody"}, {"Parameters.member.1.ParameterValue", "3"}}, "ValidationError", "Parameters: [Nobody] do not exist in the template"},
                    Refusal{"a_previous_value", kTemplate, {{"Parameters.member.1.ParameterKey", "Key"}, {"Parameters.member.1.UsePreviousValue", "true"}}, "ValidationError", "usePreviousValue"}, Refusal{"an_attribute_that_is_not_there", changed("Cluster.ClusterArn", "Cluster.Nodes"), {}, "ValidationError", "no attribute Nodes"},
                    Refusal{"a_url", kTemplate, {{"TemplateURL", "https://x"}}, "ValidationError", "TemplateURL is not served here"}, Refusal{"a_role", kTemplate, {{"RoleARN", "arn:aws:iam::111122223333:role/node"}}, "ValidationError", "RoleARN is not served here"}, Refusal{"notifications", kTemplate, {{"NotificationARNs.member.1", "x"}}, "ValidationError", "NotificationARNs.member.1 is not served here"},
                    Refusal{"both_ways", kTemplate, {{"OnFailure", "DELETE"}, {"DisableRollback", "true"}}, "ValidationError", "both OnFailure and DisableRollback"}, Refusal{"reserved_tags", kTemplate, {{"Tags.member.1.Key", "aws:x"}, {"Tags.member.1.Value", "y"}}, "ValidationError", "reserved"}),
    [](const auto& row) { return row.param.name; });

TEST_F(CloudFormationApi, NamesAreTakenAndTokensRepeat) {
  const auto first = call("CreateStack", with(kTemplate, {{"ClientRequestToken", "t"}}));
  ASSERT_EQ(first.status, 200);
  EXPECT_EQ(call("CreateStack", with(kTemplate, {{"ClientRequestToken", "t"}})).text("StackId"), first.text("StackId"));
  EXPECT_EQ(call("CreateStack", with(kTemplate, {{"ClientRequestToken", "u"}})).code, "AlreadyExistsException");
  EXPECT_EQ(call("CreateStack", with(kTemplate)).message, "Stack [Lab] already exists");
  EXPECT_EQ(call("CreateStack", {{"StackName", "lab_1"}, {"TemplateBody", kTemplate}}).code, "ValidationError");
  EXPECT_EQ(call("CreateStack", {{"StackName", "lab"}, {"TemplateBody", kTemplate}}).status, 200) << "names know case";
}

TEST_F(CloudFormationApi, NobodyGetsMoreThanHeMay) {
  const auto who = [&](const std::string& name, const std::string& actions, const std::string& denied = R"("none:none")") { return site.user(name, {fmt::format(R"({{"Version": "2012-10-17", "Statement": [{{"Effect": "Allow", "Action": [{}], "Resource": "*"}}, {{"Effect": "Deny", "Action": [{}], "Resource": "*"}}]}})", actions, denied)}); };
  const Credentials none = who("none", R"("sagemaker:*", "iam:PassRole")"), no_clusters = who("a", R"("cloudformation:*", "iam:PassRole")"), no_roles = who("b", R"("cloudformation:*", "sagemaker:*")"), no_delete = who("c", R"("cloudformation:*", "sagemaker:*", "iam:PassRole")", R"("sagemaker:DeleteCluster")"), no_update = who("d", R"("cloudformation:*", "sagemaker:*", "iam:PassRole")", R"("sagemaker:UpdateCluster")");
  EXPECT_THAT(call("CreateStack", with(kTemplate), &none).message, HasSubstr("cloudformation:CreateStack on resource: arn:aws:cloudformation:fairlead-1:111122223333:stack/Lab/*"));
  for (const auto& [user, action] : {std::pair<const Credentials*, const char*>{&no_clusters, "sagemaker:CreateCluster"}, {&no_roles, "iam:PassRole"}, {&no_delete, "OnFailure DO_NOTHING"}}) {
    const auto said = call("CreateStack", with(kTemplate), user);
    EXPECT_EQ(said.code, "AccessDenied") << said.body;
    EXPECT_THAT(said.message, HasSubstr(action));
  }
  EXPECT_TRUE(site.api.all("stacks").empty());
  EXPECT_EQ(call("DescribeStacks", {{"StackName", "Lab"}}, &none).code, "AccessDenied") << "who may not learns nothing of what is there";
  make();
  EXPECT_EQ(call("DescribeStacks", {{"StackName", "Lab"}}, &none).message, call("DescribeStacks", {{"StackName", "Lac"}}, &none).message.replace(call("DescribeStacks", {{"StackName", "Lac"}}, &none).message.find("Lac"), 3, "Lab"));
  EXPECT_THAT(call("UpdateStack", with(kTemplate, {{"Parameters.member.1.ParameterKey", "Workers"}, {"Parameters.member.1.ParameterValue", "5"}}), &no_update).message, HasSubstr("sagemaker:UpdateCluster"));
  // One that takes the cluster out of the stack deletes it.
  std::string without = changed("  Cluster:", "  Other:");
  without.replace(without.find("Cluster.ClusterArn"), 7, "Other").replace(without.find("ClusterName: ml"), 15, "ClusterName: lm");
  EXPECT_THAT(call("UpdateStack", with(without), &no_delete).message, HasSubstr("sagemaker:DeleteCluster"));
  EXPECT_THAT(call("DeleteStack", {{"StackName", "Lab"}}, &no_delete).message, HasSubstr("sagemaker:DeleteCluster"));
  EXPECT_EQ(call("CreateStack", {{"StackName", "other"}, {"TemplateBody", changed("ClusterName: ml", "ClusterName: ml2")}, {"OnFailure", "DO_NOTHING"}}, &no_delete).status, 200);
}

TEST_F(CloudFormationApi, AnUpdateSaysWhatIsToBe) {
  make();
  EXPECT_EQ(call("UpdateStack", with(kTemplate)).message, "No updates are to be performed.");
  EXPECT_EQ(call("UpdateStack", with(std::string("# a remark\n") + kTemplate)).message, "No updates are to be performed.");
  const auto said = call("UpdateStack", {{"StackName", "Lab"}, {"UsePreviousTemplate", "true"}, {"Parameters.member.1.ParameterKey", "Workers"}, {"Parameters.member.1.ParameterValue", "5"}, {"Parameters.member.2.ParameterKey", "Key"}, {"Parameters.member.2.UsePreviousValue", "true"}, {"ClientRequestToken", "u"}});
  ASSERT_EQ(said.status, 200) << said.body;
  const Json object = stack();
  EXPECT_EQ(object["spec"]["before"]["parameters"]["Workers"].string(), "2");
  EXPECT_EQ(object["spec"]["target"]["parameters"]["Key"].string(), "hush-hush");
  EXPECT_EQ(object["spec"]["target"]["resources"].items()[0]["spec"]["instanceGroups"].items()[1]["instanceCount"].integer(), 5);
  EXPECT_THAT(object["spec"]["target"]["resources"].items()[0]["annotations"][changer_note].string(), HasSubstr("user/ada"));
  EXPECT_EQ(call("DescribeStacks", {{"StackName", "Lab"}}).text("StackStatus"), "UPDATE_IN_PROGRESS");
  const Form again{{"StackName", "Lab"}, {"UsePreviousTemplate", "true"}, {"Parameters.member.1.ParameterKey", "Workers"}, {"Parameters.member.1.ParameterValue", "5"}, {"Parameters.member.2.ParameterKey", "Key"}, {"Parameters.member.2.UsePreviousValue", "true"}, {"ClientRequestToken", "u"}};
  EXPECT_EQ(call("UpdateStack", again).status, 200) << "the same request again";
  EXPECT_EQ(call("UpdateStack", with(kTemplate, {{"ClientRequestToken", "u"}})).code, "TokenAlreadyExistsException") << "another request";
  const Credentials bob = site.user("bob", {everything});
  EXPECT_EQ(call("UpdateStack", again, &bob).code, "TokenAlreadyExistsException") << "somebody else";
  EXPECT_THAT(call("UpdateStack", with(kTemplate)).message, HasSubstr("is in UPDATE_IN_PROGRESS state and can not be updated."));
  // One that was taken back is what it was.
  carry_out("UPDATE_ROLLBACK_COMPLETE");
  EXPECT_THAT(call("DescribeStacks", {{"StackName", "Lab"}}).body, HasSubstr("<ParameterValue>2</ParameterValue>"));
  EXPECT_EQ(call("UpdateStack", with(kTemplate)).message, "No updates are to be performed.");
}

TEST_F(CloudFormationApi, WhatWouldReplaceAClusterIsRefused) {
  make();
  for (const auto& [body, why] : {std::pair<std::string, std::string>{changed("ClusterName: ml", "ClusterName: lm"), "ClusterName does not change (it is ml)"}, {changed("      NodeProvisioningMode: Continuous\n", ""), "NodeProvisioningMode does not change"}, {changed("InstanceType: ml.g5.xlarge", "InstanceType: ml.g5.2xlarge"), "InstanceType of group gpu does not change"},
                                  {changed("ClusterName: ml", "ClusterName: ml\n      Tags: [{Key: a, Value: b}]"), "Tags of a cluster are not changed by its stack yet"}}) {
    const auto said = call("UpdateStack", with(body));
    EXPECT_EQ(said.code, "ValidationError");
    EXPECT_THAT(said.message, HasSubstr(why));
  }
  // Another cluster of that name is none of the stack's.
  Json other = cluster();
  other.child("metadata").child("annotations").set(api::kStackUid, "another");
  ASSERT_TRUE(site.api.put(api::kClusters, other));
  EXPECT_THAT(call("UpdateStack", with(kTemplate, {{"Parameters.member.1.ParameterKey", "Workers"}, {"Parameters.member.1.ParameterValue", "5"}})).message, HasSubstr("is not there any more, or is another one"));
}

TEST_F(CloudFormationApi, WhatBecameOfItIsTold) {
  make();
  EXPECT_EQ(call("DescribeStacks", {{"StackName", "Lab"}}).text("OutputValue"), "arn:x");
  const auto resources = call("DescribeStackResources", {{"StackName", "Lab"}});
  EXPECT_EQ(resources.text("PhysicalResourceId"), site.arn(cluster()));
  EXPECT_EQ(call("ListStackResources", {{"StackName", "Lab"}}).text("ResourceStatus"), "CREATE_COMPLETE");
  EXPECT_EQ(call("DescribeStackResource", {{"StackName", "Lab"}, {"LogicalResourceId", "Cluster"}}).text("LastUpdatedTimestamp"), "2026-11-25T12:00:01.000Z");
  EXPECT_THAT(call("DescribeStackResource", {{"StackName", "Lab"}, {"LogicalResourceId", "None"}}).message, HasSubstr("does not exist for stack Lab"));
  EXPECT_THAT(call("GetTemplate", {{"StackName", "Lab"}}).text("TemplateBody"), HasSubstr("Description: a lab"));
  // Events: the newest first, in pages.
  auto page = call("DescribeStackEvents", {{"StackName", "Lab"}});
  EXPECT_EQ(page.text("EventId"), "Lab-CREATE_IN_PROGRESS-120");
  EXPECT_EQ(page.text("ResourceStatusReason"), "event &lt;120&gt;");
  page = call("DescribeStackEvents", {{"StackName", "Lab"}, {"NextToken", page.text("NextToken")}});
  EXPECT_EQ(page.text("EventId"), "Lab-CREATE_IN_PROGRESS-20");
  EXPECT_EQ(page.text("NextToken"), "");
  EXPECT_EQ(call("ListStacks", {{"StackStatusFilter.member.1", "CREATE_COMPLETE"}}).text("StackName"), "Lab");
  EXPECT_EQ(call("ListStacks", {{"StackStatusFilter.member.1", "DELETE_COMPLETE"}}).text("StackName"), "");
  EXPECT_THAT(call("ListStacks", {}).text("TemplateDescription"), "a lab");
  EXPECT_EQ(call("DescribeStacks", {}).text("StackName"), "Lab");
  const auto none = call("DescribeStacks", {{"StackName", "nobody"}});
  EXPECT_EQ(none.status, 400);
  EXPECT_EQ(none.code, "ValidationError");
  EXPECT_EQ(none.message, "Stack with id nobody does not exist");
  const auto checked = call("ValidateTemplate", {{"TemplateBody", kTemplate}});
  EXPECT_THAT(checked.body, AllOf(HasSubstr("<NoEcho>true</NoEcho>"), HasSubstr("<DefaultValue>2</DefaultValue>"), Not(HasSubstr("hush"))));
  EXPECT_EQ(call("ValidateTemplate", {{"TemplateBody", "Resources: {}"}}).code, "ValidationError");
  for (const Form& form : {Form{{"StackName", "Lab"}}, Form{{"TemplateBody", kTemplate}}}) EXPECT_THAT(call("GetTemplateSummary", form).body, AllOf(HasSubstr("<ParameterType>Number</ParameterType>"), HasSubstr("<member>AWS::SageMaker::Cluster</member>"), Not(HasSubstr("hush"))));
  EXPECT_EQ(call("GetTemplateSummary", {}).code, "ValidationError");
}

TEST_F(CloudFormationApi, WhatIsInTheMakingIsNotDeletedByWhoMayNot) {
  ASSERT_EQ(call("CreateStack", with(kTemplate)).status, 200);
  ASSERT_TRUE(cluster().is_null());
  const Credentials bob = site.user("bob", {R"({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "cloudformation:*", "Resource": "*"}})"});
  EXPECT_THAT(call("DeleteStack", {{"StackName", "Lab"}}, &bob).message, HasSubstr("sagemaker:DeleteCluster"));
  EXPECT_EQ(call("DeleteStack", {{"StackName", "Lab"}}).status, 200);
}

TEST_F(CloudFormationApi, WhatDoesNotFitIntoOneObjectIsRefused) {
  std::string declared = "  Workers: {Type: Number, Default: 2}\n";
  for (int i = 0; i < 190; ++i) declared += fmt::format("  P{}: {{Type: String}}\n", i);
  Form form = with(changed("  Workers: {Type: Number, Default: 2}\n", declared));
  for (int i = 0; i < 190; ++i) {
    form.emplace_back(fmt::format("Parameters.member.{}.ParameterKey", i + 1), fmt::format("P{}", i));
    form.emplace_back(fmt::format("Parameters.member.{}.ParameterValue", i + 1), std::string(4'096, 'x'));
  }
  ASSERT_EQ(call("CreateChangeSet", [&] { Form one = form; one.emplace_back("ChangeSetName", "a"); one.emplace_back("ChangeSetType", "CREATE"); return one; }()).status, 200);
  EXPECT_THAT(call("CreateChangeSet", [&] { Form one = form; one.emplace_back("ChangeSetName", "b"); one.emplace_back("ChangeSetType", "CREATE"); return one; }()).message, HasSubstr("at most 921600 are served here"));
}

TEST_F(CloudFormationApi, ADeletionIsAskedForOnce) {
  make();
  EXPECT_THAT(call("DeleteStack", {{"StackName", "Lab"}, {"RetainResources.member.1", "Cluster"}}).message, HasSubstr("DeletionPolicy Retain"));
  ASSERT_EQ(call("DeleteStack", {{"StackName", "Lab"}}).status, 200);
  EXPECT_EQ(stack()["spec"]["operation"]["kind"].string(), "Delete");
  const Json once = stack();
  EXPECT_EQ(call("DeleteStack", {{"StackName", "Lab"}}).status, 200);
  EXPECT_EQ(stack(), once);
  EXPECT_EQ(call("DescribeStacks", {{"StackName", "Lab"}}).text("StackStatus"), "DELETE_IN_PROGRESS");
  site.api.all("stacks").clear();
  EXPECT_EQ(call("DeleteStack", {{"StackName", "Lab"}}).status, 200) << "what is gone is deleted";
}

TEST_F(CloudFormationApi, ChangeSetsAreWhatDeployNeeds) {
  const auto made = call("CreateChangeSet", with(kTemplate, {{"ChangeSetName", "first"}, {"ChangeSetType", "CREATE"}, {"Capabilities", ""}, {"Tags", ""}, {"Parameters.member.1.ParameterKey", "Key"}, {"Parameters.member.1.ParameterValue", "a-secret"}}));
  ASSERT_EQ(made.status, 200) << made.body;
  EXPECT_EQ(call("DescribeStacks", {{"StackName", "Lab"}}).text("StackStatus"), "REVIEW_IN_PROGRESS");
  for (const Form& form : {Form{{"ChangeSetName", made.text("Id")}}, Form{{"ChangeSetName", "first"}, {"StackName", "Lab"}}}) {
    const auto told = call("DescribeChangeSet", form);
    EXPECT_EQ(told.text("Status"), "CREATE_COMPLETE") << told.body;
    EXPECT_EQ(told.text("ExecutionStatus"), "AVAILABLE");
    EXPECT_EQ(told.text("Action"), "Add");
    EXPECT_EQ(told.text("LogicalResourceId"), "Cluster");
    EXPECT_THAT(told.body, Not(HasSubstr("a-secret")));
  }
  EXPECT_EQ(call("CreateStack", with(kTemplate)).code, "AlreadyExistsException");
  ASSERT_EQ(call("ExecuteChangeSet", {{"ChangeSetName", made.text("Id")}, {"StackName", "Lab"}}).status, 200);
  EXPECT_EQ(stack()["spec"]["target"]["parameters"]["Key"].string(), "a-secret");
  EXPECT_EQ(call("DescribeStacks", {{"StackName", "Lab"}}).text("StackStatus"), "CREATE_IN_PROGRESS");
  carry_out("CREATE_COMPLETE");
  const Json once = stack();
  for (const Form& form : {Form{{"ChangeSetName", "first"}, {"StackName", "Lab"}}, Form{{"ChangeSetName", made.text("Id")}}}) EXPECT_EQ(call("ExecuteChangeSet", form).status, 200) << "the answer was lost";
  EXPECT_EQ(stack(), once);
  EXPECT_EQ(call("ExecuteChangeSet", {{"ChangeSetName", "first"}, {"StackName", "Lab"}, {"ClientRequestToken", "other"}}).code, "ChangeSetNotFound");
  EXPECT_EQ(call("DescribeChangeSet", {{"ChangeSetName", "first"}, {"StackName", "Lab"}}).code, "ChangeSetNotFound");
  const Credentials eve = site.user("eve", {everything});
  EXPECT_EQ(call("ExecuteChangeSet", {{"ChangeSetName", "first"}, {"StackName", "Lab"}}, &eve).code, "ChangeSetNotFound") << "somebody else's";

  ASSERT_EQ(call("CreateChangeSet", with(kTemplate, {{"ChangeSetName", "same"}, {"Parameters.member.1.ParameterKey", "Key"}, {"Parameters.member.1.UsePreviousValue", "true"}})).status, 200);
  const auto same = call("DescribeChangeSet", {{"ChangeSetName", "same"}, {"StackName", "Lab"}});
  EXPECT_EQ(same.text("Status"), "FAILED");
  EXPECT_THAT(same.text("StatusReason"), HasSubstr("The submitted information didn't contain changes"));
  EXPECT_EQ(call("ExecuteChangeSet", {{"ChangeSetName", "same"}, {"StackName", "Lab"}}).code, "InvalidChangeSetStatus");
  for (int i = 0; i < 7; ++i) EXPECT_EQ(call("CreateChangeSet", with(kTemplate, {{"ChangeSetName", i == 6 ? "same" : fmt::format("same-{}", i)}, {"Parameters.member.1.ParameterKey", "Key"}, {"Parameters.member.1.UsePreviousValue", "true"}})).status, 200) << "those without a change make room";
  EXPECT_EQ(call("DeleteChangeSet", {{"ChangeSetName", "same"}, {"StackName", "Lab"}}).status, 200);
  EXPECT_EQ(call("DeleteChangeSet", {{"ChangeSetName", "same"}, {"StackName", "Lab"}}).status, 200);
  const auto more = call("CreateChangeSet", with(kTemplate, {{"ChangeSetName", "more"}, {"Parameters.member.1.ParameterKey", "Workers"}, {"Parameters.member.1.ParameterValue", "7"}}));
  ASSERT_EQ(more.status, 200) << more.body;
  EXPECT_EQ(call("CreateChangeSet", with(kTemplate, {{"ChangeSetName", "more"}})).code, "AlreadyExistsException");
  EXPECT_EQ(call("DescribeChangeSet", {{"ChangeSetName", "more"}, {"StackName", "Lab"}}).text("Replacement"), "False");
  EXPECT_EQ(call("ListChangeSets", {{"StackName", "Lab"}}).text("ChangeSetName"), "more");
  // Who carries it out needs the rights himself.
  const Credentials bob = site.user("bob", {R"({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "cloudformation:*", "Resource": "*"}})"});
  EXPECT_EQ(call("ExecuteChangeSet", {{"ChangeSetName", "more"}, {"StackName", "Lab"}}, &bob).code, "AccessDenied");
  ASSERT_EQ(call("ExecuteChangeSet", {{"ChangeSetName", "more"}, {"StackName", "Lab"}}).status, 200);
  EXPECT_EQ(stack()["spec"]["operation"]["kind"].string(), "Update");
  EXPECT_TRUE(stack()["spec"]["changeSets"].is_null());
}

TEST_F(CloudFormationApi, AChangeSetByItsArnIsOfAStackThatMayBeDenied) {
  const auto made = call("CreateChangeSet", with(kTemplate, {{"ChangeSetName", "first"}, {"ChangeSetType", "CREATE"}}));
  ASSERT_EQ(made.status, 200) << made.body;
  const auto denied = [&](const std::string& name, const std::string& statement) { return site.user(name, {fmt::format(R"({{"Version": "2012-10-17", "Statement": [{{"Effect": "Allow", "Action": "*", "Resource": "*"}}, {{"Effect": "Deny", "Action": "cloudformation:*", {}}}]}})", statement)}); };
  const Credentials bob = denied("bob", R"("Resource": "arn:aws:cloudformation:*:*:stack/Lab/*")"), none = site.user("none", {R"({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "cloudformation:*", "Resource": "arn:aws:cloudformation:*:*:stack/Other/*"}})"});
  for (const char* const action : {"DescribeChangeSet", "ExecuteChangeSet", "DeleteChangeSet"}) {
    const auto said = call(action, {{"ChangeSetName", made.text("Id")}}, &bob);
    EXPECT_EQ(said.code, "AccessDenied") << action << said.body;
    const auto why = [](const std::string& message) { return message.substr(message.find(" is not")); };
    EXPECT_EQ(why(said.message), why(call(action, {{"ChangeSetName", made.text("Id")}}, &none).message)) << "both kinds of no";
  }
  EXPECT_EQ(stack()["spec"]["changeSets"].items().size(), 1u);
  // By a tag of the stack.
  ASSERT_EQ(call("CreateStack", {{"StackName", "Tagged"}, {"TemplateBody", changed("ClusterName: ml", "ClusterName: lm")}, {"Tags.member.1.Key", "env"}, {"Tags.member.1.Value", "prod"}}).status, 200);
  Json tagged = site.api.all("stacks").at({"", object_name_of("Tagged")});
  tagged.child("spec").set("changeSets", Json::array({Json::object({{"id", "arn:aws:cloudformation:fairlead-1:111122223333:changeSet/x/y"}, {"name", "x"}, {"type", "UPDATE"}})}));
  ASSERT_TRUE(site.api.put(api::kStacks, tagged));
  const Credentials eve = denied("eve", R"("Resource": "*", "Condition": {"StringEquals": {"aws:ResourceTag/env": "prod"}})");
  EXPECT_EQ(call("DeleteChangeSet", {{"ChangeSetName", "arn:aws:cloudformation:fairlead-1:111122223333:changeSet/x/y"}}, &eve).code, "AccessDenied");
  EXPECT_EQ(call("DeleteChangeSet", {{"ChangeSetName", made.text("Id")}}, &eve).status, 200);
}

TEST_F(CloudFormationApi, TagsOfTheRequestAreAskedFor) {
  const Credentials bob = site.user("bob", {R"({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}, {"Effect": "Deny", "Action": "cloudformation:*", "Resource": "*", "Condition": {"StringEquals": {"aws:RequestTag/env": "prod"}}}]})"});
  const Form tags{{"Tags.member.1.Key", "env"}, {"Tags.member.1.Value", "prod"}};
  EXPECT_EQ(call("CreateStack", with(kTemplate, tags), &bob).code, "AccessDenied");
  Form set = tags;
  set.emplace_back("ChangeSetName", "first");
  set.emplace_back("ChangeSetType", "CREATE");
  EXPECT_EQ(call("CreateChangeSet", with(kTemplate, set), &bob).code, "AccessDenied");
  EXPECT_TRUE(site.api.all("stacks").empty());
  make();
  EXPECT_EQ(call("UpdateStack", with(kTemplate, tags), &bob).code, "AccessDenied");
  EXPECT_EQ(call("UpdateStack", with(kTemplate), &bob).message, "No updates are to be performed.");
}

TEST_F(CloudFormationApi, AnArnIsAWholeOne) {
  for (const char* const name : {"arn:Lab/x", "arn:aws:cloudformation:fairlead-1:111122223333:stack/Lab", "arn:aws:cloudformation:elsewhere:111122223333:stack/Lab/u", "arn:aws:cloudformation:fairlead-1:999999999999:stack/Lab/u", "arn:aws:s3:fairlead-1:111122223333:stack/Lab/u", "arn:aws:cloudformation:fairlead-1:111122223333:stack/Lab/u/v", "arn:aws:cloudformation:fairlead-1:111122223333:stack/Lab/u"})
    EXPECT_EQ(call("CreateChangeSet", {{"StackName", name}, {"TemplateBody", kTemplate}, {"ChangeSetName", "first"}, {"ChangeSetType", "CREATE"}}).code, "ValidationError") << name;
  EXPECT_TRUE(site.api.all("stacks").empty());
}

TEST_F(CloudFormationApi, AnUpdateAsksForTrainingPlans) {
  make();
  const std::string plan = "arn:aws:sagemaker:fairlead-1:111122223333:training-plan/theirs", body = changed("InstanceCount: !Ref Workers", "InstanceCount: !Ref Workers, TrainingPlanArn: '" + plan + "'");
  const Credentials bob = site.user("bob", {fmt::format(R"({{"Version": "2012-10-17", "Statement": [{{"Effect": "Allow", "Action": "*", "Resource": "*"}}, {{"Effect": "Deny", "Action": "sagemaker:*", "Resource": "{}"}}]}})", plan)});
  EXPECT_EQ(call("UpdateStack", with(body), &bob).code, "AccessDenied");
  EXPECT_EQ(call("CreateChangeSet", with(body, {{"ChangeSetName", "more"}}), &bob).code, "AccessDenied");
  EXPECT_EQ(call("UpdateStack", with(body)).code, "ValidationError") << "it is not there";
  // One that the stack had: an update that fails would give it back.
  Json object = stack(), there = cluster();
  object.child("spec").child("target").child("resources").items()[0].child("spec").child("instanceGroups").items()[1].set("trainingPlanArn", plan);
  ASSERT_TRUE(site.api.put(api::kStacks, object));
  const auto said = call("UpdateStack", with(kTemplate), &bob);
  EXPECT_EQ(said.code, "AccessDenied") << said.body;
  EXPECT_THAT(said.message, HasSubstr("An update that fails goes back"));
  EXPECT_EQ(call("UpdateStack", with(kTemplate)).status, 200) << "one that is gone is in nobody's way";
}

TEST_F(CloudFormationApi, AnUpdateMayGoBackOnlyToWhatItsCallerMayGive) {
  site.node_role("admin");
  const std::string gpu = "role/node', SlurmConfig: {NodeType: Compute";
  ASSERT_EQ(call("CreateStack", with(changed(gpu, "role/admin', SlurmConfig: {NodeType: Compute"))).status, 200);
  carry_out("CREATE_COMPLETE");
  // Taken off by hand.
  Json object = cluster();
  object.child("spec").child("instanceGroups").items()[1].set("executionRole", "arn:aws:iam::111122223333:role/node");
  ASSERT_TRUE(site.api.put(api::kClusters, object));
  const Credentials bob = site.user("bob", {R"({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}, {"Effect": "Deny", "Action": "iam:PassRole", "Resource": "arn:aws:iam::111122223333:role/admin"}]})"});
  const auto said = call("UpdateStack", with(kTemplate), &bob);
  EXPECT_EQ(said.code, "AccessDenied") << said.body;
  EXPECT_THAT(said.message, testing::AllOf(HasSubstr("iam:PassRole"), HasSubstr("role/admin"), HasSubstr("An update that fails goes back")));
  EXPECT_EQ(call("UpdateStack", with(kTemplate)).status, 200);
}

TEST_F(CloudFormationApi, AGroupThatWasDeletedByHandLeavesTheTemplate) {
  std::string body = kTemplate;
  body.insert(body.find("Outputs:"), "        - {InstanceGroupName: more, InstanceType: ml.g5.xlarge, InstanceCount: 1, ExecutionRole: !Sub 'arn:aws:iam::${AWS::AccountId}:role/node', SlurmConfig: {NodeType: Compute, PartitionNames: [train]}}\n");
  ASSERT_EQ(call("CreateStack", with(body)).status, 200);
  carry_out("CREATE_COMPLETE");
  Json object = cluster();
  ASSERT_EQ(object["spec"]["instanceGroups"].items().size(), 3u);
  object.child("spec").child("instanceGroups").items().pop_back();
  ASSERT_TRUE(site.api.put(api::kClusters, object));
  EXPECT_EQ(call("UpdateStack", with(kTemplate)).status, 200);
}

TEST_F(CloudFormationApi, HiddenValuesAreNotRead) {
  make();
  const Form kept{{"Parameters.member.1.ParameterKey", "Key"}, {"Parameters.member.1.UsePreviousValue", "true"}, {"Parameters.member.2.ParameterKey", "Workers"}, {"Parameters.member.2.ParameterValue", "5"}};
  const std::string open = changed("NoEcho: true, Default: hush-hush", "Default: x");
  auto said = call("UpdateStack", with(open, kept));
  EXPECT_EQ(said.code, "ValidationError");
  EXPECT_THAT(said.message, HasSubstr("given with NoEcho"));
  Form set = kept;
  set.emplace_back("ChangeSetName", "more");
  EXPECT_THAT(call("CreateChangeSet", with(open, set)).message, HasSubstr("given with NoEcho"));
  for (const char* const output : {"!Ref Key", "!Sub 'x${Key}'", "!Join [',', [a, !Sub ['${B}', {B: !Ref Key}]]]", "{'Fn::Base64': !Ref Key}"}) {
    said = call("UpdateStack", with(changed("Arn: {Value: !GetAtt Cluster.ClusterArn}", fmt::format("Arn: {{Value: {}}}", output)), kept));
    EXPECT_THAT(said.message, HasSubstr("Outputs.Arn: parameter Key has NoEcho")) << output;
  }
  // With another value it may be told, and the same template may keep it.
  EXPECT_EQ(call("CreateChangeSet", with(open, {{"ChangeSetName", "more"}, {"Parameters.member.1.ParameterKey", "Key"}, {"Parameters.member.1.ParameterValue", "new"}})).status, 200);
  EXPECT_EQ(call("UpdateStack", with(kTemplate, kept)).status, 200);
}

TEST_F(CloudFormationApi, HiddenValuesAreInNoErrorAndNoAudit) {
  const std::string secret = "s3cr3t-w0rd", long_one(900, 'q');
  const auto named = [](const std::string& name) { return changed("ClusterName: ml", "ClusterName: " + name); };
  const std::string map = "Mappings: {Map: {top: {second: third}}}\n";
  for (const auto& [body, value] : std::vector<std::pair<std::string, std::string>>{{map + named("!FindInMap [Map, !Ref Key, second]"), secret}, {named("!Select [!Ref Key, [a]]"), secret}, {named("!Sub 'no name ${Key}'"), secret}, {named("!Sub 'no name ${Key}'"), long_one}, {map + named("!FindInMap [Map, {'Fn::Base64': !Ref Key}, second]"), secret}, {map + named("!FindInMap [Map, {'Fn::Base64': !Sub 'a-${Key}-b'}, second]"), secret}, {map + named("!FindInMap [Map, !Ref Key, second]"), "pin4"},
                                                                                   {changed("ClusterName: ml", "Surprise: !Ref Key\n      ClusterName: ml"), secret}, {changed("role/node', SlurmConfig: {NodeType: Controller}", "role/${Key}', SlurmConfig: {NodeType: Controller}"), secret}}) {
    site.audit.clear();
    const auto said = call("CreateStack", with(body, {{"Parameters.member.1.ParameterKey", "Key"}, {"Parameters.member.1.ParameterValue", value}}));
    EXPECT_EQ(said.status, 400) << body;
    ASSERT_FALSE(site.audit.empty());
    const std::string told = said.body + said.message + kube::print_json(site.audit.back());
    EXPECT_THAT(told, AllOf(Not(HasSubstr("s3cr3t")), Not(HasSubstr("w0rd")), Not(HasSubstr("qqqq")), Not(HasSubstr("pin4")), Not(HasSubstr(base64(secret))), Not(HasSubstr(base64("a-" + secret + "-b").substr(4, 12))))) << body;
    EXPECT_THAT(kube::print_json(site.audit.back()), HasSubstr("errorMessage"));
  }
}

// What the stack has of an earlier request is told no more than what this one brings.
TEST_F(CloudFormationApi, HiddenValuesOfBeforeAreInNoError) {
  const std::string body = changed("ClusterName: ml", "ClusterName: !Ref Key");
  ASSERT_EQ(call("CreateStack", with(body, {{"Parameters.member.1.ParameterKey", "Key"}, {"Parameters.member.1.ParameterValue", "s3cr3t-name"}})).status, 200);
  carry_out("CREATE_COMPLETE");
  const auto said = call("UpdateStack", with(body, {{"Parameters.member.1.ParameterKey", "Key"}, {"Parameters.member.1.ParameterValue", "other"}}));
  EXPECT_THAT(said.message, HasSubstr("ClusterName does not change (it is ****)"));
}

TEST_F(CloudFormationApi, ARequestForAChangeSetIsRepeated) {
  const Form form = with(kTemplate, {{"ChangeSetName", "first"}, {"ChangeSetType", "CREATE"}, {"ClientToken", "t"}});
  const auto made = call("CreateChangeSet", form);
  ASSERT_EQ(made.status, 200) << made.body;
  EXPECT_EQ(call("CreateChangeSet", form).text("Id"), made.text("Id"));
  Form other = form;
  other.emplace_back("Description", "another");
  EXPECT_EQ(call("CreateChangeSet", other).code, "AlreadyExistsException");
  const Credentials bob = site.user("bob", {everything});
  EXPECT_EQ(call("CreateChangeSet", form, &bob).code, "AlreadyExistsException");
}

TEST_F(CloudFormationApi, WhatCouldNotGoBackIsUpdated) {
  make();
  carry_out("UPDATE_ROLLBACK_FAILED");
  EXPECT_EQ(call("UpdateStack", with(kTemplate, {{"Parameters.member.1.ParameterKey", "Workers"}, {"Parameters.member.1.ParameterValue", "5"}})).status, 200);
}

TEST_F(CloudFormationApi, WhatIsNotServedIsRefusedByName) {
  const auto said = call("SetStackPolicy", {{"StackName", "Lab"}});
  EXPECT_EQ(said.code, "InvalidAction");
  EXPECT_THAT(said.message, HasSubstr("SetStackPolicy"));
  make();
  EXPECT_THAT(call("UpdateStack", with(kTemplate, {{"DisableRollback", "true"}})).message, HasSubstr("DisableRollback of UpdateStack is not served here"));
  EXPECT_EQ(call("DescribeStacks", {{"StackName", "Lab"}, {"Surprise", "x"}}).message, "Surprise is not served here");
}

// Somebody is faster: what he wrote is read, and decided on anew.
TEST_F(CloudFormationApi, AConflictIsDecidedAnew) {
  make();
  Racing racing(site.api);
  bool once = false;
  racing.after_get = [&](const kube::Resource& resource, const Json& object) {
    if (resource != api::kStacks || std::exchange(once, true)) return;
    Json changed_now = object;
    changed_now.child("spec").set("operation", Json::object({{"id", "other"}, {"kind", "Update"}}));
    ASSERT_TRUE(site.api.put(api::kStacks, changed_now));
  };
  site.front = std::make_unique<Front>(site.model(), site.directory, site.seal, Operations(), site.clock, FrontOptions{.per_second = 0, .cloudformation = [&](const std::string& action, const http::Query& form, const Call& asked) { return answer_cloudformation(action, form, asked, site.sources(racing)); }});
  EXPECT_THAT(call("UpdateStack", with(kTemplate, {{"Parameters.member.1.ParameterKey", "Workers"}, {"Parameters.member.1.ParameterValue", "5"}})).message, HasSubstr("UPDATE_IN_PROGRESS state"));
}

}  // namespace
}  // namespace fairlead::hyperpod
