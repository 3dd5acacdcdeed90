// SPDX-License-Identifier: Apache-2.0
#include "api/slurm_partitions.h"

namespace fairlead::api {

SlurmConfigStrategy read_strategy(const kube::Json& orchestrator) {
  const std::string& text = orchestrator["slurm"]["slurmConfigStrategy"].string();
  return text == "Overwrite" ? SlurmConfigStrategy::Overwrite : text == "Managed" ? SlurmConfigStrategy::Managed : SlurmConfigStrategy::Merge;
}

std::string partition_of_line(const std::string& line) {
  constexpr std::string_view key = "PartitionName=";
  if (!line.starts_with(key)) return "";
  return line.substr(key.size(), line.find_first_of(" \t") == std::string::npos ? std::string::npos : line.find_first_of(" \t") - key.size());
}

std::vector<std::string> lines_of_people(const kube::Json& slurm_cluster, const std::string& also) {
  const std::string ours = "," + slurm_cluster["metadata"]["annotations"][kPartitionsNote].string() + "," + also + ",";
  std::vector<std::string> out;
  for (const kube::Json& line : slurm_cluster["spec"]["partitionConfiguration"]["rawConfig"].items())
    if (const std::string name = partition_of_line(line.string()); name.empty() || ours.find("," + name + ",") == std::string::npos) out.push_back(line.string());
  return out;
}

}  // namespace fairlead::api
