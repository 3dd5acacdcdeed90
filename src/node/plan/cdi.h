// SPDX-License-Identifier: Apache-2.0
// Devices for containers by the Container Device Interface (CNCF, specification 0.3 to 1.0): a file of the machine says of each device what a container needs that gets it. A pod asks for a number of a
// resource whose name is the kind of such a file ("nvidia.com/gpu"); which ones it gets is decided here. Pure.
#pragma once
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "node/plan/container_spec.h"

namespace fairlead::node {

struct CdiNode {
  std::string path;       // in the container
  std::string host_path;  // on the machine; what it is (type, numbers) is read there
};
struct CdiEdits {
  std::vector<std::string> env;  // "KEY=value"
  std::vector<CdiNode> nodes;
  std::vector<MountSpec> mounts;
  std::vector<ContainerHook> hooks;
};
struct CdiKind {
  std::string kind;  // "nvidia.com/gpu"
  CdiEdits common;   // for every container that gets at least one of them
  std::map<std::string, CdiEdits> devices;  // by name: "0", "GPU-5c...", "all"
};
// JSON or YAML. Invalid: names what is wrong; what the specification does not know is passed over.
Result<CdiKind> parse_cdi(std::string_view text);

// The names of one kind that are given out. The same device may be there under several (index, UUID, "all"): those that are numbers, else those like "0:1" (parts of a GPU), else all but "all". In the order of
// their numbers.
std::vector<std::string> handed_out(const CdiKind& kind);

// `count` of them that nobody has, the lowest first. Exhausted: how many are free.
Result<std::vector<std::string>> choose_devices(const CdiKind& kind, const std::set<std::string>& taken, std::int64_t count);

// What the container needs for these: common edits first, each device's then, in order.
CdiEdits edits_for(const CdiKind& kind, const std::vector<std::string>& names);

// How many of each resource the container asks for, by its limits (for such resources requests equal them) or requests.
std::map<std::string, std::int64_t> asked_devices(const kube::Json& container);

}  // namespace fairlead::node
