// SPDX-License-Identifier: Apache-2.0
// Names of devices that people are told (/dev/xvdf), as links to those that the kernel gives out (/dev/loop3): /dev/xvdf -> fairlead/VOLUME, /dev/fairlead/VOLUME -> ../loop3. So a link says itself whose it is, and follows its volume when that is shown by another device.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace fairlead::volumes {

// Whatever device the volume was shown by before. Exists: something else has the name, and then nobody finds the volume by it. Invalid: no such name.
Result<void> link_device(const std::string& name, const std::string& volume, const std::string& device);
// Only what link_device made for this volume; other names of it stay. `device`: that shows it now, or empty; a link to it of before names followed their volumes goes, too.
Result<void> unlink_device(const std::string& name, const std::string& volume, const std::string& device);

struct DeviceNames {
  std::vector<std::string> names;  // that lead to the volume, sorted
  std::string device;              // to which they do, whatever that shows by now; empty: none
};
Result<DeviceNames> device_names(const std::string& volume);
// All names of the volume lead nowhere, or go, unless `stays` says otherwise of the device to which they lead. It is asked while nobody changes them.
enum class Names { Stay, Go };
Result<void> unlink_volume(const std::string& volume, Names names, const std::function<bool(const std::string& device)>& stays);

}  // namespace fairlead::volumes
