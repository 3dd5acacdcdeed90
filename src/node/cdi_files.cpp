// SPDX-License-Identifier: Apache-2.0
#include "node/cdi_files.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>

#include "base/files.h"
#include "base/log.h"

namespace fairlead::node {

std::vector<CdiKind> read_cdi(const std::vector<std::string>& folders) {
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
        log_warn("a CDI file is left out", {{"file", folder + "/" + name}, {"reason", kind.error().message}});
        continue;
      }
      auto& into = kinds.try_emplace(kind->kind, CdiKind{.kind = kind->kind, .common = {}, .devices = {}}).first->second;
      into.common = std::move(kind->common);
      for (auto& [device, edits] : kind->devices) into.devices.insert_or_assign(device, std::move(edits));
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
    Device device{.path = node.path, .type = S_ISBLK(about.st_mode) ? 'b' : 'c', .major = major(about.st_rdev), .minor = minor(about.st_rdev), .mode = static_cast<std::uint32_t>(about.st_mode & 0777)};
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
