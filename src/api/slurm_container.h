// SPDX-License-Identifier: Apache-2.0
// What a SlurmCluster says of each of its containers and volumes.
#pragma once
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kube/json.h"

namespace fairlead::api {

// A container that the user describes: image, port, resources (requests equal limits, as in the source operator).
struct SlurmContainer {
  std::string image;
  int port = 0;
  std::map<std::string, std::string> resources;  // "cpu" -> "2", "nvidia.com/gpu" -> "1"
  std::string pull_policy;                       // empty: as Kubernetes chooses by the tag
  std::string limits;                            // as /etc/security/limits.conf
  std::string app_armor;                         // "unconfined", "runtime/default", "localhost/NAME"; empty: the cluster's default
  kube::Json env, liveness;                      // further variables, a probe of the user's own; null: none
};
struct SlurmVolume {  // one of the two, or neither: an emptyDir
  std::string source_name;       // of volumeSources
  kube::Json claim_template;     // a PersistentVolumeClaim spec, one claim per pod
};

// What cannot be read becomes a problem, a sentence that begins with the path `where`.
std::map<std::string, std::string> read_resources(const kube::Json& from, const std::string& where, std::vector<std::string>& problems);
SlurmContainer read_container(const kube::Json& from, const std::string& where, int default_port, const std::string& default_image, std::vector<std::string>& problems);
// "90s", "30m", "1h30m": whole numbers of hours, minutes and seconds, in this order, up to a year.
std::optional<std::chrono::seconds> read_duration(std::string_view text);

}  // namespace fairlead::api
