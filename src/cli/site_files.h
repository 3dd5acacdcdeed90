// SPDX-License-Identifier: Apache-2.0
// What the command line reads and keeps in the state folder: the site's settings, its images, whether its server runs.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/process.h"
#include "base/result.h"
#include "cli/overview.h"

namespace fairlead::cli {

// Chosen at the first `up`, kept for later ones (site.json).
struct SiteSettings {
  unsigned short port = 6443;
  std::string node_range = "10.77.0.0/16", pod_range = "10.78.0.0/16";
  std::string service_range{};  // empty: fairlead-server's default
  std::string root_key_command{};      // what holds the root key; empty: there is none
  std::string old_root_key_command{};  // what held it before, while it is not known whether the keys have changed over
  std::string prometheus_url{}, prometheus_ca{}, prometheus_token{};  // whose rules are alarms, the authority of its certificate, a file with its token; empty: none
  std::string volumes{};  // size of its pool of volumes, as it was given; empty: it has none
  std::string advertise_address{};  // at which hosts reach it; empty: it listens for this machine alone
  friend bool operator==(const SiteSettings&, const SiteSettings&) = default;
};
SiteSettings read_settings(const std::string& state_dir);  // the defaults where there are none
Result<void> write_settings(const std::string& state_dir, const SiteSettings& settings);
std::string first_address(const std::string& range);  // "10.77.0.0/16" -> "10.77.0.1"

// The store of images, from each image.json; what has none is half built and not shown.
std::vector<SiteSnapshot::Image> list_images(const std::string& state_dir);
std::string image_dir(const std::string& state_dir, const std::string& name);  // "slurm:22.05" -> STATE/images/slurm/22.05

// The server of this site as far as its pid file tells; empty: none, or a stale file.
std::optional<ProcessIdentity> running_server(const std::string& state_dir);

// A program or folder that belongs to us: beside this binary, in a source tree above it, or in PREFIX/share/fairlead. Empty: not found.
std::string find_sibling(const std::string& own_dir, const std::string& program);
std::string find_data(const std::string& own_dir, const std::string& relative);  // "images/build.sh"

}  // namespace fairlead::cli
