// SPDX-License-Identifier: GPL-3.0-or-later
// The parts of a trial and of a reload that only read and write texts.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <strings.h>

#include <algorithm>
#include <cctype>
#include <vector>

#include "base/encoding.h"
#include "reconfigure.h"
#include "trial.h"

namespace fairlead::companion {
namespace {

bool same(std::string_view a, std::string_view b) { return a.size() == b.size() && ::strncasecmp(a.data(), b.data(), a.size()) == 0; }

std::string key_of(std::string_view line) {
  line = trim(line);
  const auto equals = line.find('=');
  return equals == std::string_view::npos || line.starts_with('#') ? "" : std::string(trim(line.substr(0, equals)));
}
std::string value_of(std::string_view line) { return std::string(trim(line.substr(line.find('=') + 1))); }

bool among(std::string_view key, std::initializer_list<const char*> keys) {
  return std::any_of(keys.begin(), keys.end(), [&](const char* one) { return same(key, one); });
}

}  // namespace

Result<std::map<std::string, std::string>> read_trial_files(std::string_view input) {
  std::map<std::string, std::string> files;
  while (!input.empty()) {
    const auto end = input.find('\n');
    const std::string_view head = input.substr(0, end);
    const auto space = head.find(' ');
    const std::string_view name = head.substr(0, space);
    const std::string_view digits = space == std::string_view::npos ? "" : head.substr(space + 1);
    const bool plain = !name.empty() && name[0] != '.' && std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) || c == '.' || c == '_' || c == '-'; });
    if (end == std::string_view::npos || !plain || digits.empty() || digits.size() > 8 || digits.find_first_not_of("0123456789") != std::string_view::npos)
      return fail(Code::Invalid, "the input is not NAME SIZE and so many bytes");
    const std::size_t size = std::stoul(std::string(digits));
    input.remove_prefix(end + 1);
    if (size > input.size()) return fail(Code::Invalid, fmt::format("{} is cut off", name));
    if (files.size() == 16 || !files.emplace(name, input.substr(0, size)).second) return fail(Code::Invalid, "too many files, or one twice");
    input.remove_prefix(size);
  }
  if (!files.contains("slurm.conf")) return fail(Code::Invalid, "there is no slurm.conf among the files");
  return files;
}

std::string conf_for_trial(const std::string& slurm_conf, const std::string& host, int port, const std::string& folder) {
  bool database = false;
  for (const std::string& line : split(slurm_conf, '\n')) database = database || (same(key_of(line), "AccountingStorageType") && value_of(line).find("slurmdbd") != std::string::npos);
  std::string out = fmt::format("SlurmctldHost={}(127.0.0.1)\nSlurmctldPort={}\nStateSaveLocation={}/state\nSlurmctldPidFile={}/state/pid\nSlurmctldDebug=info\n", host, port, folder, folder);
  for (const std::string& line : split(slurm_conf, '\n')) {
    const std::string key = key_of(line);
    if (among(key, {"SlurmctldHost", "ControlMachine", "ControlAddr", "SlurmctldAddr", "BackupController", "BackupAddr", "SlurmctldPort", "StateSaveLocation", "SlurmctldPidFile", "SlurmctldDebug", "SlurmctldLogFile",
                    "SlurmSchedLogFile", "SlurmctldSyslogDebug", "SlurmctldPrimaryOnProg", "SlurmctldPrimaryOffProg"}))
      continue;
    // The database would take the trial for the cluster's own daemon. What needs it cannot be tried.
    if (database && (key.size() > 17 && same(std::string_view(key).substr(0, 17), "AccountingStorage"))) continue;
    if (database && among(key, {"PriorityType", "TrackWCKey", "AccountingStoreFlags"})) continue;
    // The pod has the real key only once it is made anew for tokens.
    if (same(key, "AuthAltParameters")) {
      out += fmt::format("AuthAltParameters=jwt_key={}/{}\n", folder, kTrialKey);
      continue;
    }
    if (same(key, "JobCompType") && value_of(line).find("none") == std::string::npos && value_of(line).find("filetxt") == std::string::npos) continue;
    if (among(key, {"JobCompLoc", "JobCompHost"})) continue;
    out += line + "\n";
  }
  return out;
}

std::string words_of_daemon(std::string_view log, const std::string& folder) {
  std::vector<std::string> told;
  for (std::string line : split(log, '\n')) {
    const auto error = line.find("error: "), fatal = line.find("fatal: ");
    const auto at = std::min(error, fatal);
    if (at == std::string::npos) continue;
    line = std::string(trim(std::string_view(line).substr(at)));
    for (auto found = line.find(folder); found != std::string::npos; found = line.find(folder)) line.replace(found, folder.size(), "/etc/slurm");
    if (told.empty() || told.back() != line) told.push_back(line.substr(0, 400));
  }
  if (told.size() > 4) told.erase(told.begin(), told.end() - 4);
  return fmt::format("{}", fmt::join(told, "; "));
}

std::map<std::string, std::string> worker_plugins(const std::string& slurm_conf) {
  std::map<std::string, std::string> out;
  for (const std::string& line : split(slurm_conf, '\n')) {
    const std::string key = key_of(line);
    if (!among(key, {"JobContainerType", "AcctGatherEnergyType", "AcctGatherFilesystemType", "AcctGatherInterconnectType", "AcctGatherProfileType", "CoreSpecPlugin", "NodeFeaturesPlugins", "TaskPlugin", "ProctrackType", "JobAcctGatherType"})) continue;
    for (const std::string& one : split(value_of(line), ','))
      if (const auto slash = one.find('/'); slash != std::string::npos && !one.ends_with("/none")) {
        std::string file = std::string(trim(one)) + ".so";
        std::replace(file.begin(), file.end(), '/', '_');
        if (file.find_first_of("*?[]\\") == std::string::npos) out[key] = file;
      }
  }
  return out;
}

bool same_hash(std::string_view show_config) {
  for (const std::string& line : split(show_config, '\n'))
    if (line.starts_with("HASH_VAL")) return line.find("= Match") != std::string::npos;
  return false;
}

std::string generation_of(std::string_view slurm_conf) {
  constexpr std::string_view kMark = "# Generation ";
  if (!slurm_conf.starts_with(kMark)) return "";
  return std::string(trim(slurm_conf.substr(kMark.size(), slurm_conf.find('\n') - kMark.size())));
}

}  // namespace fairlead::companion
