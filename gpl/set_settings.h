// SPDX-License-Identifier: GPL-3.0-or-later
// What the container that keeps sets was told by its pod, and small things that its commands share.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/cron.h"
#include "base/encoding.h"
#include "set_database.h"
#include "set_restore.h"
#include "sets.h"

namespace fairlead::companion {

inline std::string set_env_or(const char* name, const std::string& otherwise) {
  const char* value = std::getenv(name);
  return value ? value : otherwise;
}

// Read and refused by the operator before: what cannot be read here counts as not said.
inline std::optional<Cron> read_schedule() {
  const std::string text = set_env_or("FAIRLEAD_SET_SCHEDULE", "");
  auto cron = text.empty() ? Result<Cron>(fail(Code::Invalid, "none")) : read_cron(text);
  return cron ? std::optional(*cron) : std::nullopt;
}

struct Settings {
  std::string folder = set_env_or("FAIRLEAD_SETS", kSetsFolder), state = set_env_or("FAIRLEAD_STATE", "/var/spool/slurmctld"), jail = set_env_or("FAIRLEAD_JAIL_VOLUME", "/mnt/jail-volume");
  std::string cluster = set_env_or("FAIRLEAD_SLURM_CLUSTER", "");
  std::chrono::seconds interval{std::max(10LL, std::atoll(set_env_or("FAIRLEAD_SET_SECONDS", "86400").c_str()))};
  std::optional<Cron> schedule = read_schedule();  // instead of the interval
  int keep = static_cast<int>(std::clamp(std::atoll(set_env_or("FAIRLEAD_SET_KEEP", "7").c_str()), 1LL, 1000LL));
  std::vector<std::string> parts = split(set_env_or("FAIRLEAD_SET_PARTS", "state"), ',');
  // When the next set is due after one of that time; the end of time: never.
  Instant due_after(Instant last) const { return schedule ? next_after(*schedule, last).value_or(Instant::max()) : last + interval; }
  // A set of that time is old when two more should have been made since.
  bool fresh(Instant last, Instant now) const {
    if (!schedule) return now < last + 2 * interval;
    const Instant once = due_after(last);
    return once == Instant::max() || now < due_after(once);
  }
  bool has(const char* part) const { return std::find(parts.begin(), parts.end(), part) != parts.end(); }
};

RestoreSet restore_options(const Settings& settings, Instant now);
Result<SetInfo> make_one(const Settings& settings, Instant now, const std::string& version);

inline int refuse(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  return 1;
}

inline std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') out += '\\';
    if (byte < ' ') out += fmt::format("\\u{:04x}", byte);
    else out += c;
  }
  return out + "\"";
}

inline std::string new_id(Instant now) { return fmt::format("{}-{}", set_name(now), std::chrono::duration_cast<std::chrono::nanoseconds>(now.time_since_epoch()).count() % 1'000'000'000); }

}  // namespace fairlead::companion
