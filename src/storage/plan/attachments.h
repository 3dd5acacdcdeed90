// SPDX-License-Identifier: Apache-2.0
// To which nodes a volume is to be attached, for the pods that are there. Pure; docs/design/072-claims-on-volumes.md.
#pragma once
#include <string>
#include <vector>

#include "kube/json.h"
#include "kube/selector.h"

namespace fairlead::storage {

// A pod that is to have the volume, and has not ended.
struct Wish {
  kube::Json pod;
  bool read_only = false;   // its PersistentVolume is
  bool alone = false;       // ReadWriteOncePod
};
struct AttachPlan {
  struct Make {
    std::string node;
    bool read_only = false;
    std::string pod;        // uid of the one that has it alone; empty: pods of the node share it
    friend bool operator==(const Make&, const Make&) = default;
  };
  struct Tell {
    kube::Json pod;
    std::string message;
  };
  std::vector<kube::Json> remove;  // Attachments
  std::vector<Make> make;
  std::vector<Tell> tell;          // why a pod waits
  bool look_again = false;         // what it waits for comes without a change of pods
};
// One node that writes, or any number that read; whoever asked first, by the age of the pods, unless somebody has it. Attachments that are not of pods (fairlead.dev/for-pods is not "true") stay.
// `name`: of the PersistentVolume, for the messages. Equal arguments give equal plans.
AttachPlan plan_attachments(const std::string& name, std::vector<Wish> wishes, const std::vector<kube::Json>& attachments);

// What is to change in the labels of a Node that reaches these pools, as a merge patch has it; null: nothing. Its first pool stays the first as long as it is reached, so that what was made there is found.
kube::Json labels_for_pools(const kube::Labels& now, std::vector<std::string> reached);

}  // namespace fairlead::storage
