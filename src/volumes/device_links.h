// SPDX-License-Identifier: Apache-2.0
// Names of devices that people are told (/dev/xvdf), as links to those that the kernel gives out (/dev/loop3).
#pragma once
#include <string>

#include "base/result.h"

namespace fairlead::volumes {

// Exists: something else has the name. Invalid: no such name.
Result<void> link_device(const std::string& name, const std::string& device);
// Only if it is a link to this device.
Result<void> unlink_device(const std::string& name, const std::string& device);

}  // namespace fairlead::volumes
