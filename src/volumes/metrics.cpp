// SPDX-License-Identifier: Apache-2.0
#include "volumes/metrics.h"

#include <fmt/format.h>

namespace fairlead::volumes {

std::string print_pool_metrics(VolumePool& pool, const std::string& name) {
  std::string out;
  const auto gauge = [&](const char* what, const char* help, std::int64_t value) { out += fmt::format("# HELP fairlead_{0} {1}\n# TYPE fairlead_{0} gauge\nfairlead_{0}{{pool=\"{2}\"}} {3}\n", what, help, name, value); };
  std::int64_t volumes = 0, snapshots = 0, attached = 0;
  for (const auto& [id, entry] : pool.entries()) {
    (entry.snapshot ? snapshots : volumes) += 1;
    attached += static_cast<decltype(attached)>(entry.nodes.size());
  }
  gauge("pool_volumes", "Volumes in the pool.", volumes);
  gauge("pool_snapshots", "Snapshots in the pool.", snapshots);
  gauge("pool_attachments", "Volumes that are attached to a node.", attached);
  gauge("pool_operations", "Operations that have begun and are not done.", static_cast<std::int64_t>(pool.under_way()));
  if (const auto space = pool.space()) {
    gauge("pool_size_bytes", "Size of the pool's file system.", space->size);
    gauge("pool_free_bytes", "Free in the pool's file system.", space->free);
    gauge("pool_promised_bytes", "Sizes of all volumes and snapshots together.", space->promised);
    gauge("pool_limit_bytes", "That may be promised in all.", space->limit);
  }
  return out;
}

}  // namespace fairlead::volumes
