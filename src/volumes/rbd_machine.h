// SPDX-License-Identifier: Apache-2.0
// The port Machine for a pool in Ceph: engines (fairlead-rbd serve) and the kernel's loop devices, as on the machine of the pool's daemon (shown.h), but for the generation in their names: ID.GENERATION.POOLID.disk, /run/fairlead-volumes/POOL/ID.GENERATION.
#pragma once
#include <memory>
#include <string>

#include "volumes/keyring.h"
#include "volumes/machine.h"
#include "volumes/store_process.h"

namespace fairlead::volumes {

// keyring: borrowed.
std::unique_ptr<Machine> rbd_machine(CephPlace place, std::string pool_id, Keyring& keyring);
// "data.7": of the attachment's folder; nothing: it is none.
std::optional<Showing> read_showing(std::string_view name);

}  // namespace fairlead::volumes
