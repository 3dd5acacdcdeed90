// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "api/identity_crds.h"
#include "api/instance_types.h"
#include "api/slurm_partitions.h"
#include "base/log.h"
#include "hyperpod/cluster_requests.h"
#include "hyperpod/eks.h"
#include "hyperpod/key_policy.h"
#include "hyperpod/made_cluster.h"
#include "hyperpod/paging.h"
#include "hyperpod/plan_view.h"
#include "hyperpod/provisioning.h"
#include "hyperpod/trust.h"
#include "orchestrator/look.h"

namespace fairlead::hyperpod {
namespace {

// What is not carried out is refused: whoever asks for it must not believe to have got it.
Answer<void> refuse_unserved(const Sources& sources, const Site& site, const Json& input, bool creating) {
  for (const char* const member : {"RestrictedInstanceGroups", "RestrictedInstanceGroupsConfig", "TieredStorageConfig", "AutoScaling"})
    if (input.has(member)) return invalid(fmt::format("{} is not served yet", member));
  if (const Json& eks = input["Orchestrator"]["Eks"]; !eks.is_null()) {
    const std::string ours = sources.eks_cluster.empty() ? "" : eks_arn(site, sources.eks_cluster);
    if (ours.empty() || eks["ClusterArn"].string() != ours) return invalid(fmt::format("EKS cluster {} not found: this site works with {}", eks["ClusterArn"].string(), ours.empty() ? "none" : ours));
    if (creating && !input.has("VpcConfig")) return invalid("VpcConfig is required with Orchestrator Eks");
  }
  if (input["Orchestrator"]["Slurm"].has("AccountingDatabase")) return invalid("Orchestrator.Slurm.AccountingDatabase is not served yet: set spec.slurmNodes.accounting of the SlurmCluster, in the namespace of the cluster");
  const auto& groups = input["InstanceGroups"].items();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    for (const char* const member : {"InstanceRequirements", "ScheduledUpdateConfig", "AutoPatchConfig", "CapacityRequirements", "NetworkInterface", "ImageReleaseVersion"})
      if (groups[i].has(member)) return invalid(fmt::format("InstanceGroups[{}].{} is not served yet", i, member));
    if (groups[i].has("ImageId") && groups[i]["ImageId"].string() != "default") return invalid(fmt::format("InstanceGroups[{}].ImageId: only default is served yet", i));
  }
  return {};
}

// As in AWS: with Continuous what people put into the SlurmCluster is always merged; a strategy of before has no meaning then.
Answer<void> settle_strategy(Json& spec, const Json& input) {
  if (spec["nodeProvisioningMode"].string() != "Continuous" || !spec["orchestrator"]["slurm"].has("slurmConfigStrategy")) return {};
  if (input["Orchestrator"]["Slurm"].has("SlurmConfigStrategy")) return invalid("Orchestrator.Slurm.SlurmConfigStrategy is not for NodeProvisioningMode Continuous, where partitions of people always stay (Merge)");
  spec.child("orchestrator").child("slurm").erase("slurmConfigStrategy");
  return {};
}

iam::Keys pass_keys(const Identity* role) {
  iam::Keys out = role == nullptr ? iam::Keys() : tag_keys({}, Tags(role->tags.begin(), role->tags.end()));
  out.set("iam:PassedToService", {"sagemaker.amazonaws.com"});
  return out;
}

// The caller hands these roles to the machines: he has to be allowed to, they have to be there, and to let the service have them. `source`: the cluster's ARN, as far as it is known.
Answer<void> check_roles(const Sources& sources, const Call& call, const Json& input, const std::string& source) {
  std::set<std::string> roles, execution;
  for (const Json& group : input["InstanceGroups"].items()) execution.insert(group["ExecutionRole"].string());
  roles = execution;
  if (input.has("ClusterRole")) roles.insert(input["ClusterRole"].string());
  for (const std::string& arn : roles) {
    // The very role that he may pass: its account and path are part of its ARN.
    const auto identity = sources.directory.identity(api::identities::object_name(api::identities::Type::Role, arn.substr(arn.rfind('/') + 1)));
    if (auto done = call.allow("iam:PassRole", arn, pass_keys(identity.get())); !done) return done;
    if (identity == nullptr || identity->arn != arn) return invalid(fmt::format("Role {} not found: make it by CreateRole of IAM, or fairlead identity create --role (docs/identities.md)", arn));
    iam::Keys about;
    about.set("aws:SourceArn", {source});
    // A role that scales the cluster is assumed by another service; one for both is fine.
    const bool runs_nodes = execution.contains(arn);
    const char* const service = runs_nodes ? "sagemaker.amazonaws.com" : "hyperpod.sagemaker.amazonaws.com";
    std::string why = why_not_trusted(*identity, "sagemaker.amazonaws.com", "sts:AssumeRole", about, call.site, call.now);
    if (!why.empty() && !runs_nodes) why = why_not_trusted(*identity, service, "sts:AssumeRole", about, call.site, call.now);
    if (!why.empty())
      return invalid(fmt::format("Could not assume role {}. Please ensure that the role exists and allows principal '{}' to assume the role ({}): add {{\"Effect\": \"Allow\", \"Principal\": {{\"Service\": \"{}\"}}, \"Action\": \"sts:AssumeRole\"}} to its trust policy, by UpdateAssumeRolePolicy of IAM or fairlead identity create --role {} --trust FILE (docs/identities.md)",
                                 arn, service, why, service, identity->name));
  }
  return {};
}

// What AWS's own policies let the role of a node read, of those that HyperPod's guides attach to it ("AWS managed policy reference"). Here they allow nothing by themselves (docs/identities.md); of a role without boundary this alone is known of them.
bool reads_by_aws_policy(const Identity& role, const std::string& bucket, const std::string& object) {
  if (role.boundary != nullptr) return false;
  return std::any_of(role.aws_policies.begin(), role.aws_policies.end(), [&](const std::string& name) {
    if (name == "AmazonS3FullAccess" || name == "AmazonS3ReadOnlyAccess") return true;
    if (name == "AmazonSageMakerClusterInstanceRolePolicy") return bucket.starts_with("sagemaker-");
    return name == "AmazonSageMakerFullAccess" && iam::lower(object).find("sagemaker") != std::string::npos;
  });
}

// As in AWS it is the group's role by which scripts come to its machines: who may pass a role does not read with it what it may not read. Asked when the request comes.
Answer<void> check_scripts(const Sources& sources, const Call& call, const Json& input) {
  for (const Json& group : input["InstanceGroups"].items()) {
    const api::LifecycleScripts scripts = api::read_lifecycle(lower_names(group["LifeCycleConfig"]));
    const std::string& arn = group["ExecutionRole"].string();
    const auto role = sources.directory.identity(api::identities::object_name(api::identities::Type::Role, arn.substr(arn.rfind('/') + 1)));
    if (scripts.bucket.empty() || role == nullptr) continue;  // what is wrong with these others tell
    const Principal node{.identity = role, .session = {}, .session_policies = {}, .arn = session_arn(*role, "SageMaker", call.site), .user_id = role->id + ":SageMaker", .key_id = {}, .region = call.who.region};
    const Call as{.who = node, .site = call.site, .now = call.now, .request_id = call.request_id, .source = {}, .agent = {}};
    for (const std::string& file : {scripts.on_create, scripts.on_init_complete}) {
      const std::string object = fmt::format("arn:aws:s3:::{}/{}{}", scripts.bucket, scripts.prefix.empty() ? "" : scripts.prefix + "/", file);
      if (file.empty()) continue;
      const iam::Decision decision = iam::decide(as.question("s3:GetObject", object), {.identity = role->policies.get(), .boundary = role->boundary.get(), .session = nullptr, .resource = nullptr});
      if (!decision.allowed() && (decision.outcome != iam::Outcome::ImplicitDeny || !reads_by_aws_policy(*role, scripts.bucket, object)))
        return invalid(fmt::format("ExecutionRole {} of group {} may not read its lifecycle scripts: allow it s3:GetObject on {} (or attach AmazonSageMakerClusterInstanceRolePolicy, for buckets whose names begin with sagemaker-)", arn, group["InstanceGroupName"].string(), object));
    }
  }
  return {};
}

// Volumes are made and attached in the caller's name, as in AWS ("Customer managed AWS KMS key encryption for SageMaker HyperPod"): who makes the cluster needs what EC2's calls need of the key.
Answer<void> check_volume_keys(const Sources& sources, const Call& call, const Json& input) {
  for (const Json& group : input["InstanceGroups"].items())
    for (const Json& config : group["InstanceStorageConfigs"].items()) {
      const std::string& asked = config["EbsVolumeConfig"]["VolumeKmsKeyId"].string();
      if (asked.empty() || config["EbsVolumeConfig"]["RootVolume"].boolean()) continue;
      const auto key = find_key(sources.api, call.site, asked);
      if (!key) return invalid(fmt::format("InstanceStorageConfigs of group {}: VolumeKmsKeyId: {}", group["InstanceGroupName"].string(), key.error().message));
      if (auto done = allow_new_volume(call, *key); !done) return done;
      if (auto done = allow_attach(call, *key, ""); !done) return done;
      if (const std::string closed = api::why_closed(key->key); !closed.empty()) return invalid(fmt::format("InstanceStorageConfigs of group {}: {}", group["InstanceGroupName"].string(), closed));
    }
  return {};
}

// Whether clusters can be made on this Kubernetes at all; what is merely not known is told in the log.
Answer<void> check_kubernetes(const Sources& sources, const Json& input) {
  if (input["Orchestrator"]["Eks"].is_null()) return {};
  orchestrator::Facts facts = orchestrator::look(sources.api, sources.space);
  facts.version = sources.eks_version;
  facts.authentication_mode = sources.eks_authentication;
  orchestrator::Asked asked;
  for (const Json& subnet : input["VpcConfig"]["Subnets"].items()) asked.subnets.push_back(subnet.string());
  for (const Json& group : input["InstanceGroups"].items()) {
    for (const Json& subnet : group["OverrideVpcConfig"]["Subnets"].items()) asked.subnets.push_back(subnet.string());
    const api::InstanceType* type = api::find_instance_type(group["InstanceType"].string());
    asked.nodes.push_back({.of = "group " + group["InstanceGroupName"].string(), .arn = group["ExecutionRole"].string(), .accelerated = type != nullptr && (type->gpus > 0 || type->neurons > 0)});
  }
  if (input.has("ClusterRole")) asked.autoscaler = {.of = "the cluster", .arn = input["ClusterRole"].string()};
  const auto findings = orchestrator::check(facts, asked);
  for (const auto& one : findings)
    if (one.verdict != orchestrator::Verdict::Ok) log_info("preflight of a cluster", {{"cluster", input["ClusterName"].string()}, {"check", one.check}, {"verdict", std::string(orchestrator::text(one.verdict))}, {"what", one.what}});
  const std::string objections = orchestrator::objections(findings);
  if (!objections.empty()) return invalid(cut(fmt::format("This Kubernetes cannot orchestrate the cluster: {}. (`fairlead cluster preflight` shows all checks.)", objections), 2048));
  return {};
}

Answer<void> check_object(const Json& object) {
  const api::Cluster read = api::read_cluster(object);
  if (read.problems.empty()) return {};
  return invalid(fmt::format("{}", fmt::join(read.problems, "; ")));
}

std::unexpected<AwsError> taken(const std::string& name) { return refuse("ResourceInUse", fmt::format("Cluster {} already exists. Choose another name.", name)); }

}  // namespace

Answer<Json> cluster_to_make(const Sources& sources, const Call& call, const Json& input) {
  const auto tags = read_tags(input["Tags"]);
  if (!tags) return std::unexpected(tags.error());
  const std::string any = arn_of(call.site, "cluster", "*");
  iam::Keys about = tag_keys(*tags, {});
  set_request_keys(about, input);
  if (auto done = call.allow("sagemaker:CreateCluster", any, about); !done) return std::unexpected(done.error());
  if (!tags->empty()) {
    iam::Keys tagging = tag_keys(*tags, {});
    tagging.set("sagemaker:TaggingAction", {"CreateCluster"});
    if (auto done = call.allow("sagemaker:AddTags", any, tagging); !done) return std::unexpected(done.error());
  }
  if (auto done = refuse_unserved(sources, call.site, input, true); !done) return std::unexpected(done.error());
  if (input["InstanceGroups"].items().empty()) return invalid("InstanceGroups: a cluster has at least one");
  if (auto done = check_roles(sources, call, input, any); !done) return std::unexpected(done.error());
  if (auto done = check_scripts(sources, call, input); !done) return std::unexpected(done.error());
  if (auto done = check_plans(sources, call, "CreateCluster", input, Json()); !done) return std::unexpected(done.error());
  const std::string& name = input["ClusterName"].string();
  // A SlurmCluster of that name, in whatever namespace, takes none away: by its name the Cluster is meant.
  for (const ClusterRow& row : sources.index.named(name))
    if (row.key.space.empty()) return taken(name);

  Json spec = cluster_to_spec(input);
  spec.erase("tags");
  const std::string object_name = object_name_of(name);
  Json object = Json::object({{"apiVersion", api::kClusters.api_version()}, {"kind", api::kClusters.kind}, {"metadata", Json::object({{"name", object_name}})}, {"spec", std::move(spec)}});
  if (object_name != name) note(object, name_note, name);
  note(object, api::kArnBegin, arn_of(call.site, "cluster", ""));
  note(object, maker_note, kube::print_json(as_context(call)));
  set_tags(object, *tags);
  if (auto done = settle_strategy(object.child("spec"), input); !done) return std::unexpected(done.error());
  if (auto done = settle_roles(object.child("spec"), sources.read_object); !done) return std::unexpected(done.error());
  if (auto done = check_object(object); !done) return std::unexpected(done.error());
  if (auto done = check_volume_keys(sources, call, input); !done) return std::unexpected(done.error());
  if (auto done = check_kubernetes(sources, input); !done) return std::unexpected(done.error());
  return object;
}

namespace {

Answer<Json> create(const Sources& sources, const Call& call, const Json& input) {
  const auto object = cluster_to_make(sources, call, input);
  if (!object) return object;
  const auto made = sources.api.create(api::kClusters, *object);
  if (!made && made.error().code == Code::Exists) return taken(input["ClusterName"].string());
  if (!made) return std::unexpected(aws_error(made.error(), "CreateCluster"));
  return Json::object({{"ClusterArn", cluster_arn(call.site, *made)}});
}

// Managed: what people put beside the groups' partitions is looked at before anything changes.
Answer<void> check_drift(const Sources& sources, const Json& cluster, const Json& input) {
  Json orchestrator = api::spec_in_force(cluster)["orchestrator"];
  if (const Json rest = lower_names(input); rest["orchestrator"]["slurm"].is_object()) orchestrator = rest["orchestrator"];
  if (input["NodeProvisioningMode"].string() == "Continuous" || api::read_strategy(orchestrator) != api::SlurmConfigStrategy::Managed) return {};  // with Continuous they stay
  const api::Cluster read = api::read_cluster(cluster);
  const auto slurm = sources.api.get(kube::resources::slurm_clusters, {read.space, read.slurm_name});
  if (!slurm && slurm.error().code == Code::NotFound) return {};
  if (!slurm) return std::unexpected(aws_error(slurm.error(), "UpdateCluster"));
  std::string names;
  for (const std::string& line : api::lines_of_people(*slurm))
    if (const std::string name = api::partition_of_line(line); !name.empty()) names += (names.empty() ? "" : ", ") + cut(name, 64);
  if (names.empty()) return {};
  return invalid(fmt::format("SlurmConfigStrategy is Managed, and SlurmCluster {}/{} has partitions that are of no group: {}. Take them out of its partitionConfiguration, or update with SlurmConfigStrategy Merge (they stay) or Overwrite (they go, and their jobs with them)", read.space, read.slurm_name, cut(names, 300)));
}

Json* group_in(Json& spec, const std::string& name) {
  for (Json& group : spec.child("instanceGroups").items())
    if (group["instanceGroupName"].string() == name) return &group;
  return nullptr;
}

// Groups that are named become what is said of them, others stay.
Answer<void> apply_update(const Sources& sources, Json& cluster, const Json& input) {
  const std::string status = cluster_status(cluster);
  const bool continuous = cluster["spec"]["nodeProvisioningMode"].string() == "Continuous";
  if (!continuous && status != "InService") return refuse("ConflictException", fmt::format("Cluster {} is {}: it can be updated when it is InService", name_of_entity(cluster), status));
  Json& spec = cluster.child("spec");
  spec = api::spec_in_force(cluster);  // a change that was taken back is not asked for again
  for (const Json& asked : input["InstanceGroups"].items()) {
    Json group = cluster_to_spec(asked);
    const std::string& name = group["instanceGroupName"].string();
    Json* there = group_in(spec, name);
    if (there == nullptr) {
      spec.child("instanceGroups").push(std::move(group));
      continue;
    }
    if ((*there)["instanceType"] != group["instanceType"]) return invalid(fmt::format("InstanceType of group {} does not change (it is {}): make another group", name, (*there)["instanceType"].string()));
    if (group["slurmConfig"].has("partitionNames") && (*there)["slurmConfig"]["partitionNames"] != group["slurmConfig"]["partitionNames"]) return invalid(fmt::format("SlurmConfig.PartitionNames of group {} do not change: jobs of the old one would end; make another group", name));
    if (group.has("slurmConfig") && (*there)["slurmConfig"]["nodeType"] != group["slurmConfig"]["nodeType"]) return invalid(fmt::format("SlurmConfig.NodeType of group {} does not change (it is {})", name, (*there)["slurmConfig"]["nodeType"].string()));
    // What a volume holds would not fit any more.
    const auto size_of = [](const Json& of) { return of["instanceStorageConfigs"].items().empty() ? 0 : of["instanceStorageConfigs"].items()[0]["ebsVolumeConfig"]["volumeSizeInGB"].integer(); };
    if (group.has("instanceStorageConfigs") && size_of(group) < size_of(*there)) return invalid(fmt::format("InstanceStorageConfigs of group {}: a volume does not shrink (it has {} GiB); make another group", name, size_of(*there)));
    const auto key_of = [](const Json& of) { return of["instanceStorageConfigs"].items().empty() ? std::string() : of["instanceStorageConfigs"].items()[0]["ebsVolumeConfig"]["volumeKmsKeyId"].string(); };
    if (group.has("instanceStorageConfigs") && there->has("instanceStorageConfigs") && key_of(group) != key_of(*there)) return invalid(fmt::format("InstanceStorageConfigs of group {}: VolumeKmsKeyId does not change (volumes would have to be written anew); make another group", name));
    api::keep_of_group(group, *there);
    *there = std::move(group);
  }
  for (const Json& name : input["InstanceGroupsToDelete"].items()) {
    const Json* there = group_in(spec, name.string());
    if (there == nullptr) return invalid(fmt::format("InstanceGroupsToDelete: there is no group {}", name.string()));
    if ((*there)["slurmConfig"]["nodeType"].string() == "Controller") return invalid(fmt::format("InstanceGroupsToDelete: group {} has the controllers; delete the cluster", name.string()));
    std::erase_if(spec.child("instanceGroups").items(), [&](const Json& one) { return one["instanceGroupName"] == name; });
  }
  const Json rest = lower_names(input);
  for (const char* const field : {"nodeRecovery", "nodeProvisioningMode", "clusterRole"})
    if (rest.has(field)) spec.set(field, rest[field]);
  if (spec["orchestrator"].has("eks") != input["Orchestrator"].has("Eks") && !input["Orchestrator"].is_null()) return invalid("Orchestrator does not change");
  if (rest["orchestrator"]["slurm"].is_object()) spec.child("orchestrator").set("slurm", rest["orchestrator"]["slurm"]);
  if (auto done = settle_strategy(spec, input); !done) return done;
  if (auto done = settle_roles(spec, sources.read_object); !done) return done;
  return check_object(cluster);
}

}  // namespace

Answer<void> check_cluster_update(const Sources& sources, const Call& call, Json cluster, const Json& input) {
  if (auto done = refuse_unserved(sources, call.site, input, false); !done) return done;
  if (auto done = check_roles(sources, call, input, cluster_arn(call.site, cluster)); !done) return done;
  if (auto done = check_scripts(sources, call, input); !done) return done;
  if (auto done = check_plans(sources, call, "UpdateCluster", input, cluster); !done) return done;
  if (auto done = check_volume_keys(sources, call, input); !done) return done;
  if (auto done = check_drift(sources, cluster, input); !done) return done;
  return apply_update(sources, cluster, input);
}

Answer<void> check_cluster_return(const Sources& sources, const Call& call, const Json& before, const Json& input) {
  std::set<std::string> roles, plans;
  const auto gather = [&](const Json& of, const auto& keep) {
    if (of.has("ClusterRole")) keep(roles, of["ClusterRole"].string());
    for (const Json& group : of["InstanceGroups"].items()) {
      if (group.has("ExecutionRole")) keep(roles, group["ExecutionRole"].string());
      if (group.has("TrainingPlanArn")) keep(plans, group["TrainingPlanArn"].string());
    }
  };
  gather(before, [](std::set<std::string>& into, const std::string& arn) { into.insert(arn); });
  gather(input, [](std::set<std::string>& from, const std::string& arn) { from.erase(arn); });  // these were asked for
  const char* const why = ". An update that fails goes back to what the stack had before, and that needs this right, too";
  for (const std::string& arn : roles)
    if (auto done = call.allow("iam:PassRole", arn, pass_keys(sources.directory.identity(api::identities::object_name(api::identities::Type::Role, arn.substr(arn.rfind('/') + 1))).get())); !done) return refuse(done.error().code, done.error().message + why);
  for (const std::string& arn : plans) {
    const auto plan = allowed_plan(sources, call, "UpdateCluster", arn);
    if (!plan && plan.error().code == "AccessDeniedException") return refuse(plan.error().code, plan.error().message + why);
    // Of one that is gone the right to its name was asked.
    if (!plan && plan.error().code != "ResourceNotFound") return std::unexpected(plan.error());
  }
  return {};
}

namespace {

Answer<Json> update(const Sources& sources, const Call& call, const Json& input) {
  const auto cluster = cluster_to_change(sources, call, "UpdateCluster", input);
  if (!cluster) return cluster;
  if (auto done = check_cluster_update(sources, call, *cluster, input); !done) return std::unexpected(done.error());
  const std::string who = kube::print_json(as_context(call).set("Time", print_time(call.now)));
  const auto done = change_cluster(sources, *cluster, "UpdateCluster", [&](Json& now) {
    note(now, changer_note, who);
    return apply_update(sources, now, input);
  });
  if (!done) return done;
  return Json::object({{"ClusterArn", cluster_arn(call.site, *done)}});
}

// ---- UpdateClusterSoftware

Answer<void> check_software_update(const Json& cluster, const Json& input) {
  if (input.has("ImageId") && input["ImageId"].string() != "default") return invalid("ImageId: only default is served yet: machines get what this site has for them");
  const Json& deployment = input["DeploymentConfig"];
  if (deployment["RollingUpdatePolicy"].has("RollbackMaximumBatchSize") && !deployment.has("AutoRollbackConfiguration")) return invalid("DeploymentConfig.RollingUpdatePolicy.RollbackMaximumBatchSize: an update is rolled back where AutoRollbackConfiguration names an alarm");
  for (const char* const size : {"MaximumBatchSize", "RollbackMaximumBatchSize"})
    if (const Json& most = deployment["RollingUpdatePolicy"][size]; most["Type"].string() == "CAPACITY_PERCENTAGE" && most["Value"].integer() > 100) return invalid(fmt::format("DeploymentConfig.RollingUpdatePolicy.{}.Value: a percentage is 100 at most", size));
  const api::Cluster read = api::read_cluster(cluster);
  std::set<std::string> seen;
  const auto& groups = input["InstanceGroups"].items();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::string& name = groups[i]["InstanceGroupName"].string();
    if (groups[i].has("ImageReleaseVersion")) return invalid(fmt::format("InstanceGroups[{}].ImageReleaseVersion is not served yet", i));
    if (read.group(name) == nullptr) return invalid(fmt::format("InstanceGroups[{}]: there is no group {}", i, name));
    if (!seen.insert(name).second) return invalid(fmt::format("InstanceGroups[{}]: group {} is there twice", i, name));
  }
  return {};
}

// It is not begun under an alarm that would end it, or that nobody can read.
Answer<void> check_alarms(const Sources& sources, const Json& configuration) {
  std::vector<std::string> names;
  for (const Json& alarm : configuration.items()) {
    const std::string& name = alarm["AlarmName"].string();
    if (std::find(names.begin(), names.end(), name) != names.end()) return invalid(fmt::format("DeploymentConfig.AutoRollbackConfiguration: alarm {} is there twice", name));
    names.push_back(name);
  }
  if (names.empty()) return {};
  if (sources.alarms == nullptr) return invalid("DeploymentConfig.AutoRollbackConfiguration: this server knows of no alarms. They are alerting rules of a Prometheus: run `fairlead up --prometheus-url URL`, or start fairlead-server with that option");
  using State = api::Alarm::State;
  for (const auto& [name, alarm] : sources.alarms->look(names)) {
    const std::string why = alarm.message.empty() ? "" : ": " + alarm.message;
    switch (alarm.state) {
      case State::Ok: break;
      case State::Missing: return invalid(fmt::format("DeploymentConfig.AutoRollbackConfiguration: there is no alarm {}{}", name, why));
      case State::Firing:
      case State::Pending: return invalid(fmt::format("DeploymentConfig.AutoRollbackConfiguration: alarm {} {}{}; the update is not begun", name, alarm.state == State::Firing ? "fires now" : "is about to fire", why));
      case State::Unknown: return invalid(fmt::format("DeploymentConfig.AutoRollbackConfiguration: whether alarm {} is well is not known{}; the update is not begun", name, why));
    }
  }
  return {};
}

Answer<Json> update_software(const Sources& sources, const Call& call, const Json& input) {
  const auto cluster = cluster_to_change(sources, call, "UpdateClusterSoftware", input);
  if (!cluster) return cluster;
  if (auto done = check_software_update(*cluster, input); !done) return std::unexpected(done.error());
  if (auto done = check_alarms(sources, input["DeploymentConfig"]["AutoRollbackConfiguration"]); !done) return std::unexpected(done.error());
  Json request = Json::object({{"id", call.request_id}, {"by", cut(call.who.arn, 600)}});
  if (input.has("InstanceGroups")) {
    Json names = Json::array();
    for (const Json& group : input["InstanceGroups"].items()) names.push(group["InstanceGroupName"]);
    request.set("instanceGroups", std::move(names));
  }
  if (input.has("DeploymentConfig")) request.set("deploymentConfig", lower_names(input["DeploymentConfig"]));
  const auto done = change_cluster(sources, *cluster, "UpdateClusterSoftware", [&](Json& now) -> Answer<void> {
    const std::string status = cluster_status(now);
    if (status != "InService") return refuse("ConflictException", fmt::format("Cluster {} is {}: its software can be updated when it is InService", name_of_entity(now), status));
    now.set("spec", api::spec_in_force(now));
    now.child("spec").set("softwareUpdate", request);
    return check_object(now);
  });
  if (!done) return done;
  return Json::object({{"ClusterArn", cluster_arn(call.site, *done)}});
}

Answer<Json> remove(const Sources& sources, const Call& call, const Json& input) {
  auto cluster = allowed_cluster(sources, call, "DeleteCluster", input);
  if (!cluster) return cluster;
  if (!is_made(*cluster)) return invalid(fmt::format("Cluster {} was not made by CreateCluster: delete SlurmCluster {}", kube::name_of(*cluster), kube::key_of(*cluster).text()));
  // One that goes already: the same answer again.
  const auto done = sources.api.remove(api::kClusters, kube::key_of(*cluster), {.grace_seconds = {}, .uid = kube::uid_of(*cluster), .resource_version = {}});
  if (!done && done.error().code != Code::NotFound) return std::unexpected(aws_error(done.error(), "DeleteCluster"));
  return Json::object({{"ClusterArn", cluster_arn(call.site, *cluster)}});
}

}  // namespace

void add_cluster_change_operations(Operations& operations, const Sources& sources) {
  operations["CreateCluster"] = [sources](const Call& call, const Json& input) { return create(sources, call, input); };
  operations["UpdateCluster"] = [sources](const Call& call, const Json& input) { return update(sources, call, input); };
  operations["UpdateClusterSoftware"] = [sources](const Call& call, const Json& input) { return update_software(sources, call, input); };
  operations["DeleteCluster"] = [sources](const Call& call, const Json& input) { return remove(sources, call, input); };
}

}  // namespace fairlead::hyperpod
