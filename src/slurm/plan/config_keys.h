// SPDX-License-Identifier: Apache-2.0
// What slurm.conf of Slurm 22.05 to 25.11 may hold (its source: src/common/read_config.c of each release; slurm.conf(5)) and what each key means here.
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace fairlead::slurm {

enum class KeyKind { Text, Number16, Number32, Number64, YesNo, Line };  // Line: begins a line of several KEY=VALUE
enum class KeyUse {
  Reload,   // the user's; `scontrol reconfigure` puts it in force
  Restart,  // the user's; slurmctld takes it when it starts
  Workers,  // the user's; slurmctld and each worker's slurmd take it when they start
  Owned,    // the operator's: `remedy` says what to set instead
};
struct ConfigKey {
  std::string_view name;
  KeyKind kind = KeyKind::Text;
  KeyUse use = KeyUse::Reload;
  std::string_view remedy;  // of owned keys
  std::string_view since = "22.05", until = "";  // the first release that has it, the first that has it no more
};
inline constexpr std::string_view kFirstConfigRelease = "22.05", kLastConfigRelease = "25.11";  // what lies behind counts as the last one

// Nothing: no release has such a key, and slurmctld would not start.
const ConfigKey* find_config_key(std::string_view name);
bool has_config_key(const ConfigKey& key, std::string_view release);
// Keys that may follow PartitionName, NodeSet, in some release; empty: the key begins no such line.
std::span<const ConfigKey> keys_of_line(std::string_view name);

// A key whose value is a list of options by comma, as 22.05 has them. What the daemon does not know of them it ignores in silence.
struct ConfigOptions {
  std::string_view key;
  std::string_view known;     // by space; "bf_interval=" takes a number, "x=*" any value, "x=a|b" one of these
  std::string_view refused;   // known to Slurm, not possible here: OPTION:REASON, by newline
  std::string_view ours;      // always there, by comma
  std::string_view defaults;  // there unless the user gives that option
};
const ConfigOptions* find_config_options(std::string_view key);

// The name that was probably meant, or nothing: at most two letters wrong, or a third of them.
std::string nearest(std::string_view wrong, std::span<const std::string_view> names);
std::string nearest_key(std::string_view wrong, std::string_view release);

}  // namespace fairlead::slurm
