// SPDX-License-Identifier: Apache-2.0
// CDI files of this machine, and what its device nodes are.
#pragma once
#include <string>
#include <vector>

#include "node/plan/cdi.h"

namespace fairlead::node {

// Of *.yaml, *.yml and *.json in these folders, each after the other; of two devices of one kind and name that of the later folder counts, as the specification has it (/etc/cdi, then /var/run/cdi).
// What cannot be read or understood is told in `complaints` (null: to nobody) and left out: one bad file must not cost the others.
std::vector<CdiKind> read_cdi(const std::vector<std::string>& folders, std::vector<std::string>* complaints = nullptr);

// Adds to the container what the edits say. Unavailable: a device node is not there.
Result<void> apply_edits(const CdiEdits& edits, ContainerSpec& spec);

}  // namespace fairlead::node
