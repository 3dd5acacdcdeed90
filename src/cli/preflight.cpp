// SPDX-License-Identifier: Apache-2.0
#include "cli/preflight.h"

#include <fmt/format.h>

namespace fairlead::cli {

namespace {

std::string gigabytes(std::int64_t bytes) { return fmt::format("{:.1f} GB", static_cast<double>(bytes) / 1e9); }

std::string join(const std::vector<std::string>& parts, std::string_view by) {
  std::string out;
  for (const auto& part : parts) out += (out.empty() ? "" : std::string(by)) + part;
  return out;
}

}  // namespace

std::vector<Objection> object_to(const MachineFacts& facts, const Needs& needs) {
  std::vector<Objection> out;
  if (!facts.root) out.push_back({"not root", "namespaces, links and cgroups are made for the nodes, so run it again with sudo"});

  const bool debian_like = facts.os_id == "debian" || facts.os_like.find("debian") != std::string::npos;
  if (needs.debian && !facts.os_id.empty() && !debian_like)
    out.push_back({fmt::format("this machine runs {}, not Debian 12", facts.os_name.empty() ? facts.os_id : facts.os_name),
                   "use a Debian 12 machine, or install the packages of tools/packages.txt by hand and start with `fairlead up`"});
  else if (needs.debian && facts.os_id == "debian" && !facts.os_version.empty() && facts.os_version != "12")
    out.push_back({fmt::format("this machine runs Debian {}, not Debian 12", facts.os_version), "use a Debian 12 machine (a virtual machine is fine)"});
  if (!facts.architecture.empty() && facts.architecture != "x86_64" && facts.architecture != "aarch64")
    out.push_back({fmt::format("the processor is {}", facts.architecture), "Fairlead runs on x86_64 and aarch64; use such a machine"});

  if (facts.state_dir_is_foreign)
    out.push_back({fmt::format("{} holds files that are not Fairlead's", needs.state_dir), "choose another folder with --state-dir, or move them away"});
  if (facts.state_dir_read_only) out.push_back({fmt::format("{} cannot be written", needs.state_dir), "choose a folder on a writable disk with --state-dir"});
  const std::int64_t disk = needs.disk_run_bytes + (needs.image_present ? 0 : needs.disk_image_bytes);
  if (facts.disk_free_bytes >= 0 && facts.disk_free_bytes < disk)
    out.push_back({fmt::format("too little disk: {} free where {} is, {} needed{}", gigabytes(facts.disk_free_bytes), needs.state_dir, gigabytes(disk), needs.image_present ? "" : " (most of it for the node image)"),
                   "make room, or choose a folder on a larger disk with --state-dir"});
  if (facts.memory_bytes >= 0 && facts.memory_bytes < needs.memory_bytes)
    out.push_back({fmt::format("too little memory: {} in this machine, {} needed", gigabytes(facts.memory_bytes), gigabytes(needs.memory_bytes)), "use a larger machine"});
  if (facts.port_taken)
    out.push_back({fmt::format("port {} is taken{}", needs.port, facts.port_holder.empty() ? "" : " by " + facts.port_holder), "stop that program, or choose another port with --port"});
  if (!facts.network_conflict.empty()) {
    const auto split = facts.network_conflict.find("; ");
    if (split == std::string::npos)
      out.push_back({facts.network_conflict, "free that range"});
    else
      out.push_back({facts.network_conflict.substr(0, split), facts.network_conflict.substr(split + 2)});
  }
  if (!facts.missing_programs.empty())
    out.push_back({fmt::format("missing: {}", join(facts.missing_programs, ", ")), "apt-get install crun conmon containernetworking-plugins iproute2 mmdebstrap"});
  if (!facts.missing_features.empty())
    out.push_back({fmt::format("this kernel lacks {}", join(facts.missing_features, ", ")), "use a machine with a stock Debian kernel; containers inside a restricted container do not work"});
  if (facts.mirror_needed && !facts.mirror_reachable)
    out.push_back({fmt::format("no network: {} cannot be reached", facts.mirror.empty() ? "the Debian mirror" : facts.mirror), "packages have to be fetched once; connect this machine, or set a proxy for apt"});
  return out;
}

}  // namespace fairlead::cli
