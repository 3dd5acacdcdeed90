// SPDX-License-Identifier: Apache-2.0
// Volumes that are shown on further machines: what the ledger asks of them, and what their answers say. Pure (docs/design/077-volumes-on-other-machines.md).
#pragma once
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "api/volume_host.h"
#include "volumes/plan/ledger.h"
#include "volumes/pool.h"

namespace fairlead::volumes {

struct Asked {
  std::string host;
  api::AskedVolume volume;
  std::set<std::string> nodes{};  // for which it is to be shown
  friend bool operator==(const Asked&, const Asked&) = default;
};
// What is asked of machines for this volume now, by their names. leaving: machines from which an attachment that is on its way is not wanted any more.
std::vector<Asked> asked_for(const std::string& id, const Entry& entry, const std::map<std::int64_t, Intent>& under_way, const std::set<std::string>& leaving);
// All that is asked of one machine: this, and to take away whatever else it shows, as it says. Sorted.
std::vector<api::AskedVolume> all_asked(std::vector<api::AskedVolume> wanted, const api::VolumeHostFacts& host, const std::string& pool_id);

// A machine, and since when it says nothing; nothing: it was heard of lately.
struct HostSeen {
  api::VolumeHostFacts facts;
  std::optional<std::string> silent;
};
// What it answers to what is asked. Unavailable: it is not known, silent, or has not answered: what is there is not known.
Result<Sight> seen_there(const std::optional<HostSeen>& host, const Asked& asked, const std::string& pool_id);
// What a machine is to do that it has not done yet: Unavailable, with what it says itself.
Error not_yet(const std::optional<HostSeen>& host, const Asked& asked);

// A name of the device (spec.deviceName) that is asked for with it, of one attachment. Nothing: the device has it. Exists: something else there has. Unavailable: that is not known, or not done yet.
Result<void> has_name(const std::optional<HostSeen>& host, const Asked& asked, const std::string& name, const std::string& pool_id);
// The same of one that is not asked for any more. Nothing: it has it no more. Unavailable.
Result<void> has_not_name(const std::optional<HostSeen>& host, const Asked& asked, const std::string& name, const std::string& pool_id);

// The machine whose selector has this node; empty: none. Conflict: several have.
Result<std::string> host_of(const std::string& node, const std::map<std::string, std::string>& labels, const std::vector<api::VolumeHostFacts>& hosts);

}  // namespace fairlead::volumes
