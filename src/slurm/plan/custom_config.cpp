// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/custom_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "api/node_set.h"
#include "base/encoding.h"
#include "slurm/plan/config_keys.h"
#include "slurm/plan/releases.h"
#include "slurm/plan/render.h"

namespace fairlead::slurm {
namespace {

std::string folded(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  return out;
}

std::string suggest(const std::string& name) { return name.empty() ? "" : fmt::format("; did you mean {}?", name); }

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

// What slurmctld would refuse, or take for something else, in a value of this kind.
std::string trouble_of_kind(const ConfigKey& key, const std::string& value) {
  switch (key.kind) {
    case KeyKind::Text:
    case KeyKind::Line: return "";
    case KeyKind::YesNo:
      for (const char* word : {"yes", "up", "true", "1", "no", "down", "false", "0"})
        if (same_key(value, word)) return "";
      return fmt::format("\"{}\" is neither YES nor NO", value);
    default: break;
  }
  if (same_key(value, "INFINITE") || same_key(value, "UNLIMITED")) return "";
  const auto limit = key.kind == KeyKind::Number16 ? 65'533U : key.kind == KeyKind::Number32 ? 4'294'967'293U : (std::uint64_t{1} << 62);
  std::string_view digits = value;
  if (key.kind != KeyKind::Number16 && !digits.empty() && (digits.back() == 'k' || digits.back() == 'K')) digits.remove_suffix(1);
  const auto found = number(digits);
  if (!found || *found > limit) return fmt::format("\"{}\" is not a whole number from 0 to {}, nor INFINITE", value, limit);
  return "";
}

std::vector<std::string> words(std::string_view list, char by) {
  std::vector<std::string> out;
  for (const std::string& word : split(list, by))
    if (const auto text = trim(word); !text.empty()) out.emplace_back(text);
  return out;
}

std::string name_of_option(std::string_view option) { return std::string(option.substr(0, option.find('='))); }

// What is wrong with one option of a list whose options are known. The daemon would say nothing.
std::string trouble_of_option(const ConfigOptions& table, const std::string& option, bool& unknown) {
  const std::string name = name_of_option(option);
  const bool has_value = option.find('=') != std::string::npos;
  const std::string value = has_value ? option.substr(name.size() + 1) : "";
  for (const std::string& line : words(table.refused, '\n'))
    if (same_key(line.substr(0, line.find(':')), name)) return fmt::format("{} is not possible here: {}; leave it out", name, line.substr(line.find(':') + 1));
  std::vector<std::string> known = words(table.known, ' ');
  std::string trouble;
  bool found = false;
  for (const std::string& one : known) {
    if (!same_key(name_of_option(one), name)) continue;
    const auto equals = one.find('=');
    const std::string wanted = equals == std::string::npos ? "" : one.substr(equals + 1);
    if (equals == std::string::npos) trouble = has_value ? fmt::format("{} takes no value", name) : "";
    else if (!has_value) trouble = fmt::format("{} needs a value: {}=...", name, name);
    else if (wanted.empty()) trouble = number(value) && *number(value) <= 2'147'483'647U ? "" : fmt::format("{} takes a whole number, not \"{}\"", name, value);
    else if (wanted != "*") {
      const auto choices = words(wanted, '|');
      const bool one_of = std::any_of(choices.begin(), choices.end(), [&](const std::string& choice) { return same_key(choice, value); });
      trouble = one_of ? "" : fmt::format("{} is one of {}, not \"{}\"", name, fmt::join(choices, ", "), value);
    }
    found = true;
    if (trouble.empty()) return "";
  }
  if (found) return trouble;
  std::vector<std::string_view> names;
  for (std::string& one : known) {
    one = name_of_option(one);
    names.push_back(one);
  }
  unknown = true;
  return fmt::format("Slurm 22.05 does not know {} and would ignore it{}", name, suggest(nearest(name, names)));
}

// Values that slurmctld takes and with which slurmd ends by fatal(), and the steps of its worker with it: no trial of slurmctld shows them. From slurmd.c (_read_config, main), job_container/tmpfs and acct_gather_profile/* of 22.05.
std::string trouble_of_workers(std::string_view key, const std::string& value, const Confinement& confinement) {
  const auto only_none = [&](std::string_view kind, std::string_view why) {
    for (const std::string& word : words(value, ','))
      if (!same_key(word, "none") && !same_key(word, fmt::format("{}/none", kind))) return fmt::format("slurmd would end with {}, and the steps of each worker with it: {}; leave it out", word, why);
    return std::string();
  };
  if (key == "JobAcctGatherParams" && confinement.cgroups)
    for (const std::string& word : words(value, ','))
      if (same_key(word, "OverMemoryKill"))
        return "slurmd would end with OverMemoryKill, and the steps of each worker with it: cgroups confine the memory of steps already (spec.slurmNodes.worker.cgroupVersion: v1); leave it out";
  if (key == "JobContainerType") return only_none("job_container", "such a plug-in reads job_container.conf, which workers are not given");
  if (key == "CoreSpecPlugin") return only_none("core_spec", "22.05 has core_spec/cray_aries alone, for Cray nodes");
  if (key == "AcctGatherProfileType") return only_none("acct_gather_profile", "such a plug-in reads its place from acct_gather.conf, which workers are not given");
  return "";
}

class Reader {
 public:
  Reader(const api::SlurmCluster& cluster, const ConfigRelease& of) : cluster_(cluster), of_(of), release_(of.name.empty() ? kFirstConfigRelease : std::clamp(std::string_view(of.name), kFirstConfigRelease, kLastConfigRelease)) {}

  CustomConfig read() {
    const auto& given = cluster_.config;
    for (const auto& setting : given.settings) take({.where = setting.path, .key = setting.key, .value = setting.value});
    read_text(given.custom, "spec.customSlurmConfig", true);
    if (given.partitions == "structured")
      refuse({.where = "spec.partitionConfiguration.configType"}, "", "structured is not in effect in this version; use default (all workers), or custom with Nodes=SET for the workers of a NodeSet");
    else if (given.partitions != "default" && given.partitions != "custom")
      refuse({.where = "spec.partitionConfiguration.configType"}, "", fmt::format("\"{}\" is none of default, custom", given.partitions));
    if (given.partitions == "custom") {
      out_.own_partitions = true;
      for (std::size_t i = 0; i < given.raw_partitions.size(); ++i) {
        if (given.raw_partitions[i].find('\n') != std::string::npos) refuse({.where = fmt::format("spec.partitionConfiguration.rawConfig[{}]", i)}, "", "one line each; split it");
        else read_text(given.raw_partitions[i], fmt::format("spec.partitionConfiguration.rawConfig[{}]", i), false);
      }
    } else if (!given.raw_partitions.empty()) {
      refuse({.where = "spec.partitionConfiguration.rawConfig"}, "", "it counts only with configType: custom; set that, or take the lines out");
    }
    check_lines();
    if (given.partitions == "custom" && out_.lines.empty() && out_.problems.empty())
      refuse({.where = "spec.partitionConfiguration.rawConfig"}, "", "no partition is left; give at least one line PartitionName=NAME Nodes=worker Default=YES");
    return std::move(out_);
  }

 private:
  void refuse(const ConfigEntry& at, std::string key, std::string why) { out_.problems.push_back({at.where, at.line, std::move(key), std::move(why)}); }

  void read_text(const std::string& text, const std::string& where, bool numbered) {
    if (text.size() > kMaxText) {
      refuse({.where = where}, "", fmt::format("{} bytes; at most {} are taken", text.size(), kMaxText));
      return;
    }
    ConfigText read = read_config_text(text);
    for (auto& problem : read.problems) {
      problem.where = where;
      if (!numbered) problem.line = 0;
      // Of a key that Slurm does not have this is the better thing to say first.
      if (!problem.key.empty() && problem.key != "Include")
        if (std::string why = why_not(find_config_key(problem.key), problem.key); !why.empty()) problem.text = std::move(why);
      out_.problems.push_back(std::move(problem));
    }
    for (auto& entry : read.entries) {
      entry.where = where;
      if (!numbered) entry.line = 0;
      take(std::move(entry));
    }
  }

  // Why the release has no such key; empty: it has.
  std::string why_not(const ConfigKey* key, const std::string& written) {
    if (key != nullptr && (of_.any || has_config_key(*key, release_))) return "";
    if (key == nullptr) return fmt::format("Slurm {} has no such key, and slurmctld would not start with it{}", release_, suggest(nearest_key(written, release_)));
    return fmt::format("Slurm {} has no such key, and slurmctld would not start with it; {}", release_, other_release(*key));
  }
  std::string other_release(const ConfigKey& key) {
    if (key.since <= release_) return fmt::format("it was taken out with {}", key.until);
    if (of_.name.empty()) out_.depends_on_release = true;
    return fmt::format("it came with {}{}", key.since, of_.name.empty() ? fmt::format(", and which Slurm {} holds is being asked", cluster_.controller.main.image) : "");
  }

  void take(ConfigEntry entry) {
    const ConfigKey* key = find_config_key(entry.key);
    if (std::string why = why_not(key, entry.key); !why.empty()) return refuse(entry, entry.key, std::move(why));
    const std::string written = std::exchange(entry.key, std::string(key->name));
    if (key->use == KeyUse::Owned) return refuse(entry, written, fmt::format("it is not yours to set: {}", key->remedy));
    if (key->kind == KeyKind::Line) {
      out_.lines.push_back(std::move(entry));
      return;
    }
    if (entry.where.starts_with("spec.partitionConfiguration")) return refuse(entry, written, "only PartitionName and NodeSet belong here; put it into spec.customSlurmConfig");
    if (!entry.more.empty())
      return refuse(entry, written, fmt::format("\"{}={}\" stands behind it; one KEY=VALUE on each line, and values with spaces in quotation marks", entry.more[0].first, entry.more[0].second));
    for (const ConfigEntry& other : out_.settings)
      if (other.key == entry.key) return refuse(entry, written, fmt::format("it is given twice: {}{} has it, too; keep one", other.where, other.line > 0 ? fmt::format(" line {}", other.line) : ""));
    std::string trouble = trouble_of_kind(*key, entry.value);
    if (std::any_of(entry.value.begin(), entry.value.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == '"'; })) trouble = "a value holds neither quotation marks nor control characters";
    if (const ConfigOptions* options = trouble.empty() ? find_config_options(key->name) : nullptr) {
      std::set<std::string> seen;
      for (const std::string& option : words(entry.value, ',')) {
        bool unknown = false;
        std::string wrong = trouble_of_option(*options, option, unknown);
        if (unknown && (of_.any || release_ != kFirstConfigRelease)) wrong.clear();  // the lists are those of 22.05
        out_.depends_on_release = out_.depends_on_release || (!wrong.empty() && unknown && of_.name.empty());
        if (!wrong.empty()) trouble += (trouble.empty() ? "" : "; ") + wrong;
        else if (!seen.insert(folded(name_of_option(option))).second) trouble += fmt::format("{}{} is given twice", trouble.empty() ? "" : "; ", name_of_option(option));
      }
    }
    // Less than a head or a link is away now and then, and jobs would be ended for it.
    if (const auto seconds = number(entry.value); key->name == "SlurmdTimeout" && seconds && *seconds > 0 && *seconds < 60)
      trouble = "below 60 s the jobs of a worker would be lost with each short break of a link; give 60 or more, or 0 for never";
    if (trouble.empty()) trouble = trouble_of_workers(key->name, entry.value, confinement_of(cluster_));
    if (!trouble.empty()) return refuse(entry, written, std::move(trouble));
    out_.settings.push_back(std::move(entry));
  }

  void check_lines() {
    std::set<std::string> sets, partitions;
    for (const auto& view : api::worker_views(cluster_)) sets.insert(view.worker_set);
    std::string default_at;
    for (ConfigEntry& line : out_.lines) {
      check_members(line);
      if (line.key == "NodeSet" && !sets.insert(line.value).second) refuse(line, "NodeSet", fmt::format("{} is there already; give it another name", line.value));
    }
    for (const ConfigEntry& line : out_.lines) {
      if (line.key != "PartitionName") continue;
      if (!same_key(line.value, "DEFAULT") && !partitions.insert(line.value).second) refuse(line, "PartitionName", fmt::format("{} is there already; keep one of them", line.value));
      if (line.value.find(',') != std::string::npos) refuse(line, "PartitionName", "one partition on each line");
      if (line.value == "main") out_.own_partitions = true;
      for (const auto& [key, value] : line.more) {
        if (key == "Default" && (same_key(value, "yes") || same_key(value, "up") || same_key(value, "true") || value == "1")) {
          if (!default_at.empty()) refuse(line, "Default", fmt::format("{} is the default, too, and Slurm would take the last; keep one", default_at));
          default_at = line.value;
          out_.own_default = true;
        }
        if (key == "Nodes") check_nodes(line, value, sets);
      }
    }
    for (const ConfigEntry& line : out_.lines)
      for (const auto& [key, value] : line.more)
        if (key == "Alternate" && !partitions.contains(value) && !(value == "main" && !out_.own_partitions)) refuse(line, "Alternate", fmt::format("there is no partition {}", value));
  }

  // Workers register themselves after slurmctld has read its file: it ends with "invalid node name" when a partition names one.
  void check_nodes(const ConfigEntry& line, const std::string& value, const std::set<std::string>& sets) {
    for (const std::string& name : words(value, ',')) {
      if (same_key(name, "ALL") || sets.contains(name)) continue;
      std::vector<std::string_view> names(sets.begin(), sets.end());
      refuse(line, "Nodes", fmt::format("there is no node set {} for partition {}, and single nodes cannot be named, for workers register themselves; use one of ALL, {}{}", name, line.value, fmt::join(sets, ", "), suggest(nearest(name, names))));
    }
  }

  void check_members(ConfigEntry& line) {
    const auto known = keys_of_line(line.key);
    std::set<std::string_view> seen;
    for (auto& [key, value] : line.more) {
      const auto found = std::find_if(known.begin(), known.end(), [&](const ConfigKey& one) { return same_key(one.name, key); });
      if (found != known.end() && !of_.any && !has_config_key(*found, release_)) {
        refuse(line, key, fmt::format("no key of a {} line of Slurm {}, and slurmctld would not start with it; {}", line.key, release_, other_release(*found)));
        continue;
      }
      if (found == known.end()) {
        std::vector<std::string_view> names;
        for (const ConfigKey& one : known)
          if (has_config_key(one, release_)) names.push_back(one.name);
        refuse(line, key, fmt::format("no key of a {} line, and slurmctld would not start with it{}", line.key, suggest(nearest(key, names))));
        continue;
      }
      key = std::string(found->name);
      if (!seen.insert(found->name).second) refuse(line, key, "it is given twice on the line; keep one");
      if (const std::string trouble = trouble_of_kind(*found, value); !trouble.empty()) refuse(line, key, trouble);
      if (line.key == "NodeSet" && key == "Nodes") refuse(line, key, "single nodes cannot be named, for workers register themselves; use Feature=worker");
    }
    if (line.key == "NodeSet" && line.more.empty()) refuse(line, "NodeSet", fmt::format("{} has no Feature; write NodeSet={} Feature=worker", line.value, line.value));
  }

  static constexpr std::size_t kMaxText = 64 << 10;  // a ConfigMap holds 1 MiB
  const api::SlurmCluster& cluster_;
  const ConfigRelease& of_;
  const std::string_view release_;
  CustomConfig out_;
};

// Keys of ours that slurmctld takes only when it starts.
bool starts_anew(const ConfigKey& key) {
  if (key.use != KeyUse::Owned) return key.use != KeyUse::Reload;
  for (const char* name : {"GresTypes", "ProctrackType", "SelectType", "SwitchType", "AccountingStorageType", "AccountingStoragePort", "JobAcctGatherType", "TopologyPlugin", "AuthAltTypes", "AuthAltParameters"})
    if (key.name == name) return true;
  return false;
}

}  // namespace

ConfigRelease config_release(const kube::Json& status, const std::string& image) {
  const auto version = read_version(status["upgrade"]["versions"][image].string());
  return {.name = version ? version->release() : ""};
}

CustomConfig read_custom_config(const api::SlurmCluster& cluster, const ConfigRelease& of) { return Reader(cluster, of).read(); }

std::string merge_options(std::string_view key, std::string_view users) {
  const ConfigOptions* table = find_config_options(key);
  if (!table) return std::string(users);
  std::vector<std::string> out = words(table->ours, ',');
  const auto given = words(users, ',');
  const auto among = [](const std::vector<std::string>& list, const std::string& option) {
    return std::any_of(list.begin(), list.end(), [&](const std::string& one) { return same_key(name_of_option(one), name_of_option(option)); });
  };
  for (const std::string& option : words(table->defaults, ','))
    if (!among(given, option)) out.push_back(option);
  const std::size_t of_ours = out.size();
  for (const std::string& option : given)
    if (!among({out.begin(), out.begin() + static_cast<std::ptrdiff_t>(of_ours)}, option)) out.push_back(option);
  return fmt::format("{}", fmt::join(out, ","));
}

RestartKeys restart_keys(std::string_view before, std::string_view after) {
  const auto settings = [](std::string_view text) {
    std::map<std::string, std::string> out;
    for (const ConfigEntry& entry : read_config_text(text).entries)
      if (const ConfigKey* key = find_config_key(entry.key); key && key->kind != KeyKind::Line && starts_anew(*key)) out[std::string(key->name)] = entry.value;
    return out;
  };
  const auto old_ones = settings(before), new_ones = settings(after);
  std::set<std::string> changed;
  for (const auto& [key, value] : old_ones)
    if (const auto now = new_ones.find(key); now == new_ones.end() || now->second != value) changed.insert(key);
  for (const auto& [key, value] : new_ones)
    if (!old_ones.contains(key)) changed.insert(key);
  RestartKeys out;
  for (const std::string& key : changed) {
    out.head.push_back(key);
    if (find_config_key(key)->use == KeyUse::Workers) out.workers.push_back(key);
  }
  return out;
}

std::string explain_refusal(const CustomConfig& config, const std::string& said) { return place_of_refusal(config, "slurmctld refuses: " + said); }

std::string place_of_refusal(const CustomConfig& config, const std::string& said) {
  const std::string text = folded(said);
  const auto speaks_of = [&](std::string_view word) { return word.size() >= 3 && text.find(folded(word)) != std::string::npos; };
  const ConfigEntry* best = nullptr;
  std::string key;
  // The longest name wins: SelectTypeParameters rather than SelectType. Then values: a plug-in's name, a partition's.
  for (const auto* list : {&config.settings, &config.lines})
    for (const ConfigEntry& entry : *list)
      if (speaks_of(entry.key) && entry.key.size() > key.size() && entry.key != "PartitionName" && entry.key != "NodeSet") {
        best = &entry;
        key = entry.key;
      }
  if (!best)
    for (const auto* list : {&config.lines, &config.settings})
      for (const ConfigEntry& entry : *list) {
        if (best || !std::any_of(entry.more.begin(), entry.more.end(), [&](const auto& pair) { return speaks_of(pair.second); })) {
          if (best || !speaks_of(entry.value)) continue;
        }
        best = &entry;
        key = entry.key;
      }
  if (!best) return said;
  return describe(ConfigProblem{best->where, best->line, key, said});
}

}  // namespace fairlead::slurm
