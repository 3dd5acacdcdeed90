// SPDX-License-Identifier: Apache-2.0
// Devices for containers by the Container Device Interface (CNCF, specification 0.3 to 1.0): a file of the machine says of each device what a container needs that gets it. A pod asks for a number of a
// resource whose name is the kind of such a file ("nvidia.com/gpu"); which ones it gets is decided here. Pure.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "node/plan/container_spec.h"

namespace fairlead::node {

struct CdiNode {
  std::string path;       // in the container
  std::string host_path;  // on the machine; what is not said here is read there
  std::optional<std::uint32_t> mode;
  std::optional<std::int64_t> uid, gid;
  std::string permissions = "rwm";
};
struct CdiEdits {
  std::vector<std::string> env;  // "KEY=value"
  std::vector<CdiNode> nodes;
  std::vector<MountSpec> mounts;
  std::vector<ContainerHook> hooks;
};
struct CdiDevice {
  CdiEdits edits;
  std::size_t common = 0;  // which of the kind's: that of its own file
};
struct CdiKind {
  std::string kind;                  // "nvidia.com/gpu"
  std::vector<CdiEdits> commons;     // for every container that gets at least one of the devices of that file
  std::map<std::string, CdiDevice> devices;  // by name: "0", "GPU-5c...", "all"
};
// JSON or YAML. Invalid: names what is wrong; what the specification does not know is passed over.
Result<CdiKind> parse_cdi(std::string_view text);
// Lays a further file of the same kind over it: of two devices of one name the later one counts.
void lay_over(CdiKind& into, CdiKind later);

// The names of one kind that are given out. The same device may be there under several (index, UUID, "all"): those that are numbers, else those like "0:1" (parts of a GPU), else all but "all". In the order of
// their numbers.
std::vector<std::string> handed_out(const CdiKind& kind);

// `count` of them that nobody has, the lowest first: neither by name nor by nodes, since files change under containers that run. Exhausted: how many are free.
Result<std::vector<GrantedDevice>> choose_devices(const CdiKind& kind, const std::vector<GrantedDevice>& taken, std::int64_t count);

// What the container needs for these: the common edits of their files first, each device's then, in order.
CdiEdits edits_for(const CdiKind& kind, const std::vector<GrantedDevice>& devices);

// How many of each resource the container asks for, by its limits (for such resources requests equal them) or requests.
std::map<std::string, std::int64_t> asked_devices(const kube::Json& container);

}  // namespace fairlead::node
