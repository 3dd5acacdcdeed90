// SPDX-License-Identifier: Apache-2.0
// A host becomes a node of a site, and stops being one (docs/design/056). Each step is done once and found again: join() may be cut off anywhere and called again.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "api/join.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"
#include "node/config.h"

namespace fairlead::agent {

struct JoinPlaces {
  std::string config_dir = "/etc/fairlead";        // agent.json, node.key, node.crt, ca.crt
  std::string state_dir = "/var/lib/fairlead";     // node/, images/
  std::string run_dir = "/run/fairlead-agent";     // gone after a reboot
  std::string boot_id_file = "/proc/sys/kernel/random/boot_id";
  std::string cgroup_parent = "/fairlead";
  std::string reboot_command = "systemctl reboot"; // words, split at spaces
  std::vector<std::string> cdi_dirs{"/etc/cdi", "/var/run/cdi"};
  std::string config() const { return config_dir + "/agent.json"; }
  std::string key() const { return config_dir + "/node.key"; }
  std::string next_key() const { return config_dir + "/node.key.new"; }  // until its certificate is there
  std::string certificate() const { return config_dir + "/node.crt"; }
};

struct JoinOptions {
  api::JoinToken token;
  std::string address;      // at which others reach this host; empty: the one by which it reaches the server
  JoinPlaces places;
  bool metadata = false;    // it answers 169.254.169.254, where no cloud does
  bool again = false;       // it has joined before: by another key now
  bool dry_run = false;     // asks and writes nothing
  std::chrono::milliseconds patience{60'000};  // for a server that does not answer, or says "in a moment"
  std::function<void(const std::string&)> tell = [](const std::string&) {};
};
struct Joined {
  std::string name, address, server, pod_cidr;
  api::HostFacts facts;
  bool before = false;  // it had joined already; nothing was asked
};
// Forbidden, Conflict, Invalid: the server's words. Unavailable: no server answered; the message names each.
Result<Joined> join(const JoinOptions& options, const Clock& clock);

// Gets a certificate for the same key, by the one that is there. Unauthorized: this host is not of the site any more.
Result<void> renew_certificate(const node::NodeConfig& config);
// Is two thirds of its time over?
bool renewal_is_due(Instant begin, Instant end, Instant now);

// Held while an agent of this host runs. Conflict: one does.
Result<Fd> lock_agent(const std::string& run_dir);

// Ends what runs in its pods, takes its mounts, links and packet rules away, then its certificate and configuration; images and volumes stay. Conflict: the agent runs.
Result<void> leave(const JoinPlaces& places, const std::function<void(const std::string&)>& tell);

}  // namespace fairlead::agent
