// SPDX-License-Identifier: Apache-2.0
#include "api/slurm_backup.h"

#include <fmt/format.h>

#include "api/slurm_cluster.h"
#include "base/cron.h"

namespace fairlead::api {

using kube::Json;

SlurmBackup read_slurm_backup(const Json& spec, const SlurmCluster& cluster) {
  const std::string where = "spec.extensions.backup";
  const Json& from = spec["extensions"]["backup"];
  SlurmBackup out;
  if (!from.is_object()) return out;
  out.enabled = from["enabled"].boolean(true);
  if (!out.enabled) return out;
  if (const Json* interval = from.find("interval"); interval && !interval->is_null()) {
    const auto duration = read_duration(interval->string());
    if (duration && *duration >= std::chrono::seconds(10)) out.interval = *duration;
    else out.problems.push_back(fmt::format("{}.interval: \"{}\" is not a duration of 10s or more, like 30m or 24h", where, interval->string()));
  }
  if (const Json* schedule = from.find("schedule"); schedule && !schedule->is_null()) {
    const auto cron = read_cron(schedule->string());
    if (!from["interval"].is_null()) out.problems.push_back(where + ": schedule and interval are two answers to one question; leave one of them out");
    else if (!cron) out.problems.push_back(fmt::format("{}.schedule: {}; five fields in UTC, like \"0 3 * * *\"", where, cron.error().message));
    else if (!next_after(*cron, Instant{})) out.problems.push_back(fmt::format("{}.schedule: \"{}\" names no day that there is", where, schedule->string()));
    else out.schedule = schedule->string();
  }
  const std::int64_t keep = from["keep"].is_null() ? out.keep : from["keep"].integer(-1);
  if (keep < 1 || keep > 1000) out.problems.push_back(fmt::format("{}.keep: {} is not a number of sets from 1 to 1000", where, kube::print_json(from["keep"])));
  else out.keep = static_cast<int>(keep);

  const bool has_database = cluster.accounting.enabled && cluster.accounting.builtin, has_jail = !cluster.controller.jail.source_name.empty();
  out.database = has_database, out.jail = has_jail;
  if (const Json* parts = from.find("parts"); parts && !parts->is_null()) {
    bool state = false;
    out.database = out.jail = false;
    for (const Json& part : parts->items()) {
      if (part.string() == "state") state = true;
      else if (part.string() == "database") out.database = true;
      else if (part.string() == "jail") out.jail = true;
      else out.problems.push_back(fmt::format("{}.parts: {} is none of state, database, jail", where, kube::print_json(part)));
    }
    if (!state) out.problems.push_back(where + ".parts: a set without the state is none; name state");
    if (out.database && !has_database) out.problems.push_back(where + ".parts: this cluster has no database of its own; a site's is backed up by its administrator. Leave database out");
    if (out.jail && !has_jail) out.problems.push_back(where + ".parts: the heads have no shared root on a volume of spec.volumeSources; leave jail out");
  }
  if (out.database && !cluster.accounting.backups.enabled)
    out.problems.push_back(where + ".parts: the database is dumped by the container of spec.extensions.accounting.backup, which is switched off; switch it on, or leave database out");
  if (cluster.controller.spool.source_name.empty())
    out.problems.push_back(where + ": the state of slurmctld must lie on a volume of spec.volumeSources that is ReadWriteMany (spec.slurmNodes.controller.volumes.spool.volumeSourceName), for it is read while slurmctld runs");
  out.volume = {from["volumeSourceName"].string(), from["volumeClaimTemplateSpec"]};
  if (const std::string& source = out.volume.source_name; !source.empty() && !cluster.volume_sources.contains(source)) out.problems.push_back(fmt::format("{}.volumeSourceName: \"{}\" is not among spec.volumeSources", where, source));
  if (out.volume.source_name.empty() && !out.volume.claim_template.is_object())
    out.volume.claim_template = Json::object({{"accessModes", Json::array({Json("ReadWriteMany")})}, {"resources", Json::object({{"requests", Json::object({{"storage", "40Gi"}})}})}});
  return out;
}

std::string SlurmBackup::freshness() const {
  return schedule.empty() ? fmt::format("younger than {} s", 2 * interval.count()) : fmt::format("since the time before last of \"{}\" (UTC)", schedule);
}

}  // namespace fairlead::api
