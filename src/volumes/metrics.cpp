// SPDX-License-Identifier: Apache-2.0
#include "volumes/metrics.h"

#include <fmt/format.h>

namespace fairlead::volumes {
namespace {

constexpr std::chrono::seconds kPatience{2};

// Of each attached volume with an engine.
std::string print_engines(VolumePool& pool, const std::string& name, const Clock& clock) {
  struct Series {
    const char *what, *kind, *help;
    std::string lines = {};
  };
  Series up{"volume_engine_up", "gauge", "Whether the volume's engine answers."}, reads{"volume_read_operations_total", "counter", "Reads of the volume, since its engine began."}, writes{"volume_write_operations_total", "counter", "Writes of the volume, since its engine began."},
      read{"volume_read_bytes_total", "counter", "Bytes read."}, written{"volume_written_bytes_total", "counter", "Bytes written."}, waited{"volume_throttled_seconds_total", "counter", "That requests waited for the volume's limits, in sum."}, iops{"volume_iops_limit", "gauge", "Operations a second at most; 0: no limit."},
      throughput{"volume_throughput_limit_bytes", "gauge", "Bytes a second at most; 0: no limit."};
  const auto until = clock.monotonic() + kPatience;
  for (const auto& [id, entry] : pool.entries()) {
    if (entry.snapshot || !entry.attached() || !entry.managed || clock.monotonic() > until) continue;
    for (const auto& [host, place] : entry.places) {
      const auto engine = pool.engine(id, host);
      const bool answers = engine && *engine;
      const auto line = [&](Series& series, const auto& value) { series.lines += fmt::format("fairlead_{}{{pool=\"{}\",volume=\"{}\",node=\"{}\"}} {}\n", series.what, name, id, entry.holders(host), value); };
      line(up, answers && !(*engine)->failed ? 1 : 0);
      if (!answers) continue;
      const EngineSeen& seen = **engine;
      line(reads, seen.reads), line(writes, seen.writes), line(read, seen.read_bytes), line(written, seen.written_bytes), line(waited, static_cast<double>(seen.waited_ns) / 1e9), line(iops, seen.limits.iops), line(throughput, seen.limits.bytes_per_second);
    }
  }
  std::string out;
  for (const Series* series : {&up, &reads, &writes, &read, &written, &waited, &iops, &throughput})
    if (!series->lines.empty()) out += fmt::format("# HELP fairlead_{0} {2}\n# TYPE fairlead_{0} {1}\n{3}", series->what, series->kind, series->help, series->lines);
  return out;
}

}  // namespace

std::string print_pool_metrics(VolumePool& pool, const std::string& name, const Clock& clock) {
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
  return out + print_engines(pool, name, clock);
}

}  // namespace fairlead::volumes
