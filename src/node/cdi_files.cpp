// SPDX-License-Identifier: Apache-2.0
#include "node/cdi_files.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/files.h"

namespace fairlead::node {

std::vector<CdiKind> read_cdi(const std::vector<std::string>& folders, std::vector<std::string>* complaints) {
  std::map<std::string, CdiKind> kinds;
  for (const std::string& folder : folders) {
    auto names = list_dir(folder);
    if (!names) continue;
    std::ranges::sort(*names);
    for (const std::string& name : *names) {
      if (!name.ends_with(".yaml") && !name.ends_with(".yml") && !name.ends_with(".json")) continue;
      auto text = read_file(folder + "/" + name, 16_MiB);
      auto kind = text ? parse_cdi(*text) : Result<CdiKind>(std::unexpected(text.error()));
      if (!kind) {
        if (complaints != nullptr) complaints->push_back(fmt::format("{}/{}: {}", folder, name, kind.error().message));
        continue;
      }
      const std::string of = kind->kind;
      lay_over(kinds.try_emplace(of, CdiKind{.kind = of, .commons = {}, .devices = {}}).first->second, std::move(*kind));
    }
  }
  std::vector<CdiKind> out;
  for (auto& [name, kind] : kinds) out.push_back(std::move(kind));
  return out;
}

Result<void> apply_edits(const CdiEdits& edits, ContainerSpec& spec) {
  for (const CdiNode& node : edits.nodes) {
    struct stat about {};
    if (::stat(node.host_path.c_str(), &about) != 0) return fail(Code::Unavailable, fmt::format("{}: {}", node.host_path, std::strerror(errno)));
    if (!S_ISCHR(about.st_mode) && !S_ISBLK(about.st_mode)) return fail(Code::Unavailable, fmt::format("{} is no device", node.host_path));
    Device device{.path = node.path, .type = S_ISBLK(about.st_mode) ? 'b' : 'c', .major = major(about.st_rdev), .minor = minor(about.st_rdev), .mode = node.mode.value_or(static_cast<std::uint32_t>(about.st_mode & 0777)), .uid = node.uid.value_or(about.st_uid), .gid = node.gid.value_or(about.st_gid), .permissions = node.permissions};
    const auto same = std::ranges::find(spec.devices, device.path, &Device::path);
    if (same == spec.devices.end()) spec.devices.push_back(std::move(device));
    else *same = std::move(device);
  }
  spec.env.insert(spec.env.end(), edits.env.begin(), edits.env.end());
  for (const MountSpec& mount : edits.mounts)
    if (std::ranges::find(spec.mounts, mount.target, &MountSpec::target) == spec.mounts.end()) spec.mounts.push_back(mount);
  spec.hooks.insert(spec.hooks.end(), edits.hooks.begin(), edits.hooks.end());
  return {};
}

}  // namespace fairlead::node
