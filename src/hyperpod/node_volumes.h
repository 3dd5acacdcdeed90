// SPDX-License-Identifier: Apache-2.0
// Volumes at nodes of clusters, as HyperPod's API has them. For the operations alone.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace fairlead::hyperpod {

inline constexpr std::size_t kMostVolumesOfANode = 40;
// The first of /dev/xvdf ... /dev/xvdz, /dev/sdf ... /dev/sdz that nobody has; nothing: all are.
std::optional<std::string> free_device_name(const std::vector<std::string>& taken);

}  // namespace fairlead::hyperpod
