// SPDX-License-Identifier: Apache-2.0
// An image of a Ceph pool as what a volume lies on. It is had alone, or read by any number (ceph/image_use.h), and nobody else writes it until it is closed or its holder is shut out.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "ceph/cluster.h"
#include "disk/medium.h"

namespace fairlead::ceph {

struct EngineImage {
  Place place;
  std::string pool_id, host;     // whose pool it has to be
  std::string id;                // of the volume
  std::int64_t generation = 0;   // on a further machine: of the attachment for which it may be served; 0: this is the machine of the pool's daemon
  bool read_only = false;        // beside others that read it; else it is had alone
};
// Conflict: another engine of this machine serves it, or somebody else has it, or the pool is another machine's. I/O waits while the cluster does not answer, as it does for all of Ceph's clients; errors: ESHUTDOWN when it is shut out.
Result<std::unique_ptr<disk::Medium>> open_rbd_medium(const EngineImage& image);

}  // namespace fairlead::ceph
