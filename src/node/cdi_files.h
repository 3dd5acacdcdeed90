// SPDX-License-Identifier: Apache-2.0
// CDI files of this machine, and what its device nodes are.
#pragma once
#include <string>
#include <vector>

#include "node/plan/cdi.h"

namespace fairlead::node {

// Of *.yaml, *.yml and *.json in these folders, each after the other; of two files of one kind the later folder's devices come first, as the specification has it (/etc/cdi, then /var/run/cdi, which wins).
// What cannot be read or understood is logged and left out: one bad file must not cost the others.
std::vector<CdiKind> read_cdi(const std::vector<std::string>& folders);

// Adds to the container what the edits say. Unavailable: a device node is not there.
Result<void> apply_edits(const CdiEdits& edits, ContainerSpec& spec);

}  // namespace fairlead::node
