// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/provisioning.h"

#include <fmt/format.h>

#include <algorithm>

#include "api/cluster.h"

namespace fairlead::hyperpod {

using kube::Json;

Result<std::map<std::string, Json>> read_provisioning(std::string_view text) {
  constexpr std::size_t most = 1 << 20;
  if (text.size() > most) return fail(Code::Invalid, "it is larger than 1 MiB");
  const auto parsed = kube::parse_json(text);
  if (!parsed) return fail(Code::Invalid, "it is no JSON: " + parsed.error().message);
  if (!parsed->is_object()) return fail(Code::Invalid, "it is no JSON object");
  const Json& file = *parsed;
  if (const Json& manager = file["workload_manager"]; manager.string() != "slurm") return fail(Code::Invalid, fmt::format("workload_manager is {}, not \"slurm\"", kube::print_json(manager).substr(0, 64)));
  std::map<std::string, Json> out;
  const auto add = [&](const char* field, const Json& group, Json config) -> Result<void> {
    if (group.string().empty()) return fail(Code::Invalid, fmt::format("{}: the name of an instance group is expected", field));
    if (!out.emplace(group.string(), std::move(config)).second) return fail(Code::Invalid, fmt::format("{}: group {} has a role already", field, group.string().substr(0, 64)));
    return {};
  };
  if (auto done = add("controller_group", file["controller_group"], Json::object({{"nodeType", "Controller"}})); !done) return std::unexpected(std::move(done.error()));
  if (const Json& login = file["login_group"]; !login.is_null() && !(login.is_string() && login.string().empty()))
    if (auto done = add("login_group", login, Json::object({{"nodeType", "Login"}})); !done) return std::unexpected(std::move(done.error()));
  const Json& workers = file["worker_groups"];
  if (!workers.is_null() && !workers.is_array()) return fail(Code::Invalid, "worker_groups: a list is expected");
  for (const Json& worker : workers.items()) {
    const std::string& partition = worker["partition_name"].string();
    if (partition.empty()) return fail(Code::Invalid, "worker_groups: partition_name is missing");
    if (auto done = add("worker_groups", worker["instance_group_name"], Json::object({{"nodeType", "Compute"}, {"partitionNames", Json::array({Json(partition)})}})); !done) return std::unexpected(std::move(done.error()));
  }
  return out;
}

Answer<void> settle_roles(Json& spec, const ReadObject& read) {
  if (spec["orchestrator"]["eks"].is_object()) return {};
  auto& groups = spec.child("instanceGroups").items();
  std::map<std::string, std::map<std::string, Json>> files;  // by where they lie
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].has("slurmConfig")) continue;
    const auto refuse_group = [&](const std::string& why) { return invalid(fmt::format("InstanceGroups: group {} has no SlurmConfig, {}", groups[i]["instanceGroupName"].string(), why)); };
    if (spec["nodeProvisioningMode"].string() == "Continuous") return refuse_group("which says whether it is of type Controller, Login or Compute; with NodeProvisioningMode Continuous it is required");
    const std::string& uri = groups[i]["lifeCycleConfig"]["sourceS3Uri"].string();
    if (uri.empty()) return refuse_group(fmt::format("and no LifeCycleConfig beside whose scripts {} could say whether it has controllers, login nodes or compute nodes: give it SlurmConfig.NodeType", kProvisioningFile));
    const api::LifecycleScripts scripts = api::read_lifecycle(groups[i]["lifeCycleConfig"]);
    if (scripts.bucket.empty()) continue;  // what is wrong with it is told by those who read it all
    const std::string key = (scripts.prefix.empty() ? "" : scripts.prefix + "/") + kProvisioningFile;
    const std::string place = fmt::format("s3://{}/{}", scripts.bucket, key);
    if (!files.contains(place)) {
      if (!read) return refuse_group("and this server serves no S3 from which to read " + place);
      const auto text = read(scripts.bucket, key);
      if (!text && text.error().code == Code::NotFound) return refuse_group(fmt::format("and there is no {} that says which groups have controllers, login nodes and compute nodes: give each group SlurmConfig, or put that file there", place));
      if (!text) return refuse_group(fmt::format("and {} cannot be read: {}", place, text.error().message));
      auto roles = read_provisioning(*text);
      if (!roles) return refuse_group(fmt::format("and {} does not say what it is: {}", place, roles.error().message));
      files.emplace(place, std::move(*roles));
    }
    const auto& roles = files.at(place);
    const auto role = roles.find(groups[i]["instanceGroupName"].string());
    if (role == roles.end()) return refuse_group(fmt::format("and {} names it neither as controller_group nor as login_group, nor in worker_groups", place));
    groups[i].set("slurmConfig", role->second);
  }
  return {};
}

}  // namespace fairlead::hyperpod
