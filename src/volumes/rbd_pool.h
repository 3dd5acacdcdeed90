// SPDX-License-Identifier: Apache-2.0
// A pool in a namespace of a Ceph pool (docs/design/074-distributed-volumes.md): volumes and snapshots are images there, each volume is shown on this machine by an engine of its own (fairlead-rbd serve) and the kernel's loop device, as those of class local-managed are. Its volumes are of class distributed.
// What is encrypted has its header in an object of its own, and its data begins at 1 MiB of the image; sizes are without that.
#pragma once
#include <memory>

#include "base/fd.h"
#include "volumes/journal.h"
#include "volumes/keyring.h"
#include "volumes/pool.h"
#include "volumes/store_process.h"

namespace fairlead::volumes {

// Both borrow the store. keyring: borrowed; none: nothing is encrypted here. most: bytes of the Ceph pool that are this one's at most; 0: all that Ceph has left.
std::unique_ptr<Pool> rbd_pool(StoreProcess& store, std::int64_t most = 0, Keyring* keyring = nullptr);
// In an object of the Ceph pool: whoever has the pool has its journal.
std::unique_ptr<JournalFile> rbd_journal(StoreProcess& store);

// A folder of this machine alone, in which it is kept whose pools in Ceph are this one's: FOLDER/host.id, made if it is not there. As long as this lives no other process here has it.
struct Host {
  std::string id;
  Fd lock;
};
// Conflict: another process has it. Invalid: the folder holds a pool of files.
Result<Host> claim_host(const std::string& folder);

// What Ceph's `df` says of one pool. Unavailable: nothing, as no manager runs.
Result<Room> read_room(std::string_view json, const std::string& pool, std::int64_t most);

}  // namespace fairlead::volumes
