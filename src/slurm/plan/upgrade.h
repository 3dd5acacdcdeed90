// SPDX-License-Identifier: Apache-2.0
// Which image each kind of a cluster's pods is to have now, while they go from one version of Slurm to another (docs/design/019-upgrade.md). Pure.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "kube/object.h"
#include "slurm/plan/releases.h"

namespace fairlead::slurm {

// In the order in which they are renewed. Only records and heads convert what they find: there is no way back from a later release.
enum class Part { Records, Heads, Workers, Login, Exporter, Rest };

inline constexpr const char* kRecordsKind = "slurmdbd";

struct UpgradePod {
  std::string name, image;
  bool ready = false;
};
struct UpgradeKind {
  Part part;
  std::string name;    // "slurmdbd", "slurmctld", "worker" or another set, "login", "exporter", "rest": unique
  std::string wanted;  // the image that the resource names
  std::vector<UpgradePod> pods;  // that have begun: what never ran has met nobody
};
enum class Backup { None, Stale, Fresh };  // of the records, as condition BackupFresh says; None: none is made here

// Of another cluster, with which this one shares accounting (docs/design/021): it is renewed by its own resource.
struct UpgradePeer {
  Part part = Part::Records;  // Records: whose slurmdbd takes the records of this cluster. Heads: one that speaks to this one's
  std::string name, image;
  bool ready = true;
};

struct UpgradeInput {
  std::vector<UpgradeKind> kinds;
  std::vector<UpgradePeer> peers;
  kube::Json memory;                           // status.upgrade: {images: {KIND: IMAGE}, versions: {IMAGE: VERSION}, inProgress, since}
  std::map<std::string, std::string> answers;  // of pods that were asked since: by image, what they wrote, or why they failed
  Backup backup = Backup::None;
  bool without_backup = false;                 // somebody said so
  bool heads_wanted = false;                   // somebody else needs to know which Slurm the heads' image in force holds
  Instant now;
};

struct UpgradePlan {
  std::map<std::string, std::string> images;  // by kind: in force
  std::vector<std::string> ask;               // images whose version has to be known first
  kube::Json memory;
  std::optional<kube::Condition> condition;   // Upgraded; none where nothing was ever upgraded
};

// Equal versions and kinds without pods need no order. While a version is unknown everything stays. Equal input, equal plan. O(kinds^2 + pods).
UpgradePlan plan_upgrade(const UpgradeInput& in);

}  // namespace fairlead::slurm
