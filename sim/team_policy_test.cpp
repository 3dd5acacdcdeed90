// SPDX-License-Identifier: Apache-2.0
// What the namespaces of teams take: the policy that governance plans, in the API that evaluates it.
#include "governance/plan/team_policy.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "apiserver/auth_types.h"
#include "apiserver/registry_test_kit.h"
#include "governance/plan/teams.h"

namespace fairlead::sim {
namespace {

using apiserver::User;
using apiserver::WriteContext;
using apiserver::test::json;
using kube::Json;
using testing::HasSubstr;
namespace r = kube::resources;

WriteContext as(const std::string& name, const std::string& group = "system:authenticated") {
  WriteContext out{.user = name};
  out.requester = std::make_shared<const User>(User{.name = name, .groups = {group}, .uid = {}, .extra = {}});
  return out;
}

governance::TeamPolicyInput input(std::set<std::string> classes) {
  return {.classes = std::move(classes), .controllers = {"kube-system", "jobset-system", "aws-hyperpod", "fairlead"}, .server = "ops'admin"};
}

struct TeamPolicy : testing::Test {
  TeamPolicy() {
    world.must(world.create("namespaces", "{metadata: {name: hyperpod-ns-blue, labels: {sagemaker.amazonaws.com/quota-allocation-id: blue, sagemaker.amazonaws.com/activate-quota: Enabled}}}"));
    world.must(world.create("namespaces", "{metadata: {name: free}}"));
    for (const auto& [resource, spec] : {std::pair(&r::admission_policies, governance::team_policy_spec(input({"training-priority", "urgent"}))), std::pair(&r::admission_policy_bindings, governance::team_policy_binding_spec("Refuse"))}) {
      const Json object = Json::object({{"metadata", Json::object({{"name", governance::kTeamPolicy}})}, {"spec", spec}});
      world.must(world.create(*world.kind(resource->plural, resource->group), object, ""));
    }
  }
  // Empty: taken.
  std::string refusal(const std::string& plural, const std::string& group, const std::string& metadata, const std::string& spec, const WriteContext& who, const std::string& space = "hyperpod-ns-blue") {
    WriteContext trial = who;
    trial.dry_run = true;
    const auto done = world.create(*world.kind(plural, group), json(fmt::format("{{metadata: {{name: x, {}}}, spec: {}}}", metadata, spec)), space, trial);
    return done ? "" : done.error().message;
  }
  std::string pod(const std::string& metadata, const WriteContext& who = as("ada"), const std::string& more = "") { return refusal("pods", "", metadata, "{containers: [{name: c, image: i}]" + more + "}", who); }
  std::string job(const std::string& metadata, const WriteContext& who = as("ada"), const std::string& space = "hyperpod-ns-blue") {
    return refusal("jobs", "batch", metadata, "{template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}", who, space);
  }
  apiserver::test::World world;
};
const std::string label = "labels: {kueue.x-k8s.io/queue-name: hyperpod-ns-blue-localqueue}";
std::string owned(const std::string& kind, const std::string& version) { return fmt::format("ownerReferences: [{{apiVersion: {}, kind: {}, name: o, uid: u, controller: true}}]", version, kind); }

TEST_F(TeamPolicy, AJobNeedsAQueue) {
  EXPECT_EQ(job(label), "");
  EXPECT_THAT(job("labels: {}"), HasSubstr("kueue.x-k8s.io/queue-name: hyperpod-ns-blue-localqueue"));
  EXPECT_THAT(job("labels: {kueue.x-k8s.io/queue-name: ''}"), HasSubstr("is missing"));
  EXPECT_THAT(job("annotations: {}", as("root", "system:masters")), HasSubstr("is missing")) << "administrators forget it as well";
  EXPECT_EQ(job("labels: {}", as("ada"), "free"), "");
}

TEST_F(TeamPolicy, APodNeedsTheGateAsWell) {
  const std::string gate = ", schedulingGates: [{name: kueue.x-k8s.io/admission}]";
  EXPECT_EQ(pod(label, as("ada"), gate), "");
  EXPECT_THAT(pod(label), HasSubstr("Add {name: kueue.x-k8s.io/admission}"));
  EXPECT_THAT(pod(label, as("ada"), ", schedulingGates: [{name: another}]"), HasSubstr("behind a gate"));
  EXPECT_THAT(pod("labels: {}", as("ada"), gate), HasSubstr("is missing"));
}

TEST_F(TeamPolicy, WhatControllersMakeForSomethingThatWasLookedAtPasses) {
  const auto account = [](const std::string& of) { return as("system:serviceaccount:" + of, "system:serviceaccounts"); };
  const WriteContext jobs = account("kube-system:job-controller");
  EXPECT_EQ(pod(owned("Job", "batch/v1"), jobs), "");
  EXPECT_EQ(pod(owned("Job", "batch/v1") + ", " + label, jobs), "") << "a label in the template asks for no gate";
  EXPECT_EQ(pod(owned("HyperPodPyTorchJob", "sagemaker.amazonaws.com/v1"), account("aws-hyperpod:operator")), "");
  EXPECT_EQ(job(owned("JobSet", "jobset.x-k8s.io/v1alpha2"), account("jobset-system:jobset-controller-manager")), "");
  EXPECT_EQ(pod(owned("SlurmCluster", r::slurm_clusters.api_version()), account("fairlead:fairlead-server")), "");
  EXPECT_EQ(pod(owned("SlurmCluster", r::slurm_clusters.api_version()), {.user = "system:fairlead"}), "") << "the controllers of the embedded engine";
  EXPECT_EQ(pod(owned("Job", "batch/v1"), as("root", "system:masters")), "");
  // Nobody looked at these.
  EXPECT_THAT(pod(owned("ReplicaSet", "apps/v1"), account("kube-system:replicaset-controller")), HasSubstr("is missing"));
  EXPECT_THAT(job(owned("CronJob", "batch/v1"), account("kube-system:cronjob-controller")), HasSubstr("is missing"));
  EXPECT_THAT(pod("labels: {}", jobs), HasSubstr("is missing"));
  EXPECT_THAT(pod("ownerReferences: [{apiVersion: batch/v1, kind: Job, name: o, uid: u}]", jobs), HasSubstr("is missing")) << "an owner that does not control it";
  // People, and accounts of teams, cannot pass for a controller.
  EXPECT_THAT(pod(owned("Job", "batch/v1")), HasSubstr("is missing"));
  EXPECT_THAT(pod(owned("Job", "batch/v1"), account("hyperpod-ns-blue:default")), HasSubstr("is missing"));
  EXPECT_THAT(pod(owned("Job", "batch/v1"), account("hyperpod-ns-red:default")), HasSubstr("is missing"));
}

TEST_F(TeamPolicy, APriorityClassIsOneOfThoseThatThereAre) {
  const auto with = [](const char* name) { return fmt::format("labels: {{kueue.x-k8s.io/queue-name: hyperpod-ns-blue-localqueue, kueue.x-k8s.io/priority-class: '{}'}}", name); };
  EXPECT_EQ(job(with("training-priority")), "");
  EXPECT_EQ(job(with("urgent")), "");
  EXPECT_EQ(job(with("")), "");
  EXPECT_THAT(job(with("training")), HasSubstr("there is no such priority class; there are: training-priority, urgent"));
  EXPECT_EQ(job(with("training"), as("ada"), "free"), "");
  const std::string gate = ", schedulingGates: [{name: kueue.x-k8s.io/admission}]";
  EXPECT_THAT(pod(with("mine"), as("ada"), gate), HasSubstr("there is no such priority class"));
  EXPECT_EQ(pod(owned("Job", "batch/v1") + ", " + with("mine"), as("system:serviceaccount:kube-system:job-controller", "system:serviceaccounts")), "") << "its Job was looked at";
  // The class of one that is there may go; it may still be changed, but for another that is not there.
  const auto jobs = world.kind("jobs", "batch");
  world.must(world.create(*jobs, json("{metadata: {name: one, " + with("urgent") + "}, spec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}"), "hyperpod-ns-blue", as("ada")));
  const Json less = Json::object({{"spec", governance::team_policy_spec(input({}))}});
  world.must(world.patch(*world.kind(r::admission_policies.plural, r::admission_policies.group), {"", governance::kTeamPolicy}, kube::print_json(less)));
  const auto patched = [&](const char* patch) { return apiserver::test::message_of(world.patch(*jobs, {"hyperpod-ns-blue", "one"}, patch, kube::PatchType::Merge, "", as("ada"))); };
  EXPECT_EQ(patched("{metadata: {labels: {a: b}}}"), "");
  EXPECT_THAT(patched("{metadata: {labels: {kueue.x-k8s.io/priority-class: another}}}"), HasSubstr("there are no priority classes, all jobs are equal"));
}

// An owner that is written by hand, a gate or a mark that is taken off: each would take work out of its queue while it runs.
TEST_F(TeamPolicy, NobodyTakesWorkOutOfItsQueue) {
  const std::string gang = owned("JobSet", "jobset.x-k8s.io/v1alpha2"), gate = ", schedulingGates: [{name: kueue.x-k8s.io/admission}]";
  EXPECT_THAT(job(label + ", " + gang), HasSubstr("ada is no controller of a kind that waits in queues"));
  EXPECT_THAT(job(label + ", " + gang, as("system:serviceaccount:ci:runner", "system:serviceaccounts")), HasSubstr("is no controller")) << "an account that does what people tell it";
  EXPECT_THAT(pod(owned("Job", "batch/v1"), as("system:serviceaccount:ci:runner", "system:serviceaccounts")), HasSubstr("is missing"));
  EXPECT_THAT(pod(owned("Job", "batch/v1"), as("system:anonymous", "system:unauthenticated")), HasSubstr("is missing"));
  EXPECT_THAT(pod(label + ", " + owned("Job", "batch/v1"), as("ada"), gate), HasSubstr("is no controller"));
  EXPECT_EQ(pod(owned("SlurmCluster", r::slurm_clusters.api_version()), as("ops'admin")), "") << "the server, whoever it is for the API";
  EXPECT_EQ(job(owned("JobSet", "jobset.x-k8s.io/v1alpha2"), as("system:serviceaccount:jobset-system:jobset-controller-manager")), "");
  const auto jobs = world.kind("jobs", "batch"), pods = world.kind("pods");
  const auto patched = [&](const auto& kind, const std::string& patch, const WriteContext& who = as("ada")) { return apiserver::test::message_of(world.patch(*kind, {"hyperpod-ns-blue", "one"}, patch, kube::PatchType::Merge, "", who)); };
  world.must(world.create(*jobs, json("{metadata: {name: one, " + label + "}, spec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}"), "hyperpod-ns-blue", as("ada")));
  EXPECT_THAT(patched(jobs, "{metadata: {" + gang + "}, spec: {suspend: false}}"), HasSubstr("is no controller"));
  EXPECT_EQ(patched(jobs, "{metadata: {" + gang + "}}", as("system:serviceaccount:jobset-system:jobset-controller-manager")), "");
  EXPECT_EQ(patched(jobs, "{metadata: {labels: {a: b}}}"), "") << "it had that owner";
  const WriteContext server = as("ops'admin");
  world.must(world.create(*pods, json("{metadata: {name: one, " + label + "}, spec: {containers: [{name: c, image: i}]" + gate + "}}"), "hyperpod-ns-blue", as("ada")));
  EXPECT_EQ(patched(pods, "{metadata: {labels: {kueue.x-k8s.io/managed: 'true'}, finalizers: [kueue.x-k8s.io/managed]}}", server), "");
  EXPECT_THAT(patched(pods, "{spec: {schedulingGates: null}}"), HasSubstr("is lifted when the pod is admitted"));
  EXPECT_THAT(patched(pods, "{spec: {schedulingGates: null}, metadata: {labels: {kueue.x-k8s.io/managed: null}, finalizers: null}}"), HasSubstr("is lifted when the pod is admitted"));
  EXPECT_THAT(patched(pods, "{spec: {schedulingGates: null}}", as("system:serviceaccount:ci:runner")), HasSubstr("is lifted"));
  EXPECT_EQ(patched(pods, "{spec: {schedulingGates: null}}", server), "");
  EXPECT_THAT(patched(pods, "{metadata: {labels: {kueue.x-k8s.io/managed: null}}}"), HasSubstr("stays with it"));
  EXPECT_THAT(patched(pods, "{metadata: {" + owned("Job", "batch/v1") + "}}"), HasSubstr("is no controller"));
  EXPECT_EQ(patched(pods, "{metadata: {labels: {mine: x}}}"), "");
  EXPECT_EQ(patched(pods, "{metadata: {labels: {kueue.x-k8s.io/managed: null}, finalizers: null}}", server), "");
}

TEST_F(TeamPolicy, TheLabelStaysAndWhatWasThereBeforeMayBeChanged) {
  const auto jobs = world.kind("jobs", "batch");
  const std::string spec = "spec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}";
  world.must(world.create(*jobs, json("{metadata: {name: queued, " + label + "}, " + spec + "}"), "hyperpod-ns-blue", as("ada")));
  const auto patched = [&](const char* name, const char* patch) { return apiserver::test::message_of(world.patch(*jobs, {"hyperpod-ns-blue", name}, patch, kube::PatchType::Merge, "", as("ada"))); };
  EXPECT_THAT(patched("queued", "{metadata: {labels: {kueue.x-k8s.io/queue-name: null}}}"), HasSubstr("is missing"));
  EXPECT_EQ(patched("queued", "{metadata: {labels: {a: b}}}"), "");
  // One from before the policy.
  const auto spaces = world.kind("namespaces");
  const auto quota = [&](const char* labels) { world.must(world.patch(*spaces, {"", "hyperpod-ns-blue"}, fmt::format("{{metadata: {{labels: {}}}}}", labels))); };
  quota("{sagemaker.amazonaws.com/activate-quota: null}");
  world.must(world.create(*jobs, json("{metadata: {name: before, finalizers: [a/b]}, " + spec + "}"), "hyperpod-ns-blue", as("ada")));
  quota("{sagemaker.amazonaws.com/activate-quota: Disabled}");
  EXPECT_THAT(job("labels: {}"), HasSubstr("is missing")) << "a quota that is switched off lets nothing past";
  EXPECT_EQ(patched("before", "{metadata: {labels: {a: b}, finalizers: null}}"), "");
  EXPECT_EQ(apiserver::test::message_of(world.remove(*jobs, {"hyperpod-ns-blue", "before"}, {}, as("ada"))), "");
}

}  // namespace
}  // namespace fairlead::sim
