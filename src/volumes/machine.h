// SPDX-License-Identifier: Apache-2.0
// What a further machine has of a pool in Ceph: engines and devices, each of one attachment of a volume (docs/design/077-volumes-on-other-machines.md). Each step is harmless when it is taken again.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "api/volume_host.h"
#include "volumes/pool.h"

namespace fairlead::volumes {

struct Showing {
  std::string id;
  std::int64_t generation = 0;
  friend auto operator<=>(const Showing&, const Showing&) = default;
};

// Its methods may be called from several threads, of one volume by one at a time.
class Machine {
 public:
  virtual ~Machine() = default;
  virtual Result<std::vector<Showing>> there() = 0;                 // of which there may be something here, sorted
  virtual Result<Sight> look(const Showing& one) = 0;               // devices and engine; an error: what is there is not known
  virtual std::optional<bool> is_used(const std::string& device) = 0;  // as Pool::is_used
  // Conflict: the pool's daemon has not asked for it in Ceph, or somebody else has the image. Forbidden, NotFound: its key does not open it.
  virtual Result<void> start_engine(const api::AskedVolume& asked) = 0;
  virtual Result<void> stop_engine(const Showing& one) = 0;         // Conflict: the device is there still
  virtual Result<void> grow_engine(const Showing& one) = 0;         // to its image's size
  virtual Result<void> limit(const Showing& one, const blocks::DiskLimits& limits) = 0;
  virtual Result<void> attach(const Showing& one, bool read_only) = 0;
  virtual Result<void> grow_device(const Showing& one, const std::string& device) = 0;
  virtual Result<void> detach(const Showing& one, const std::string& device) = 0;
  // Names of its device (device_links.h): they are the volume's, and lead to one of its attachments here, the last that was given one.
  virtual Result<std::vector<std::string>> names(const Showing& one) = 0;  // that do not lead to another attachment's device, sorted
  virtual Result<void> link(const Showing& one, const std::string& name, const std::string& device) = 0;  // Exists: something else has the name
  virtual Result<void> unlink(const Showing& one, const std::string& name) = 0;
  virtual Result<void> unlink_all(const Showing& one) = 0;                 // as names() has them
  virtual Result<void> cut(const Showing& one) = 0;                        // they lead nowhere, and stay its own
};

// Does what is asked as far as it goes now, by the same steps as a pool (plan/steps.h), and says what is there then. What is not known is no answer (`heard` is false).
api::ToldVolume carry_out(Machine& machine, const api::AskedVolume& asked);
// What is there of what was not asked for.
api::ToldVolume tell_of(Machine& machine, const Showing& one);

}  // namespace fairlead::volumes
