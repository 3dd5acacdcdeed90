// SPDX-License-Identifier: GPL-3.0-or-later
#include "versions.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/encoding.h"
#include "base/files.h"
#include "jail_layout.h"

namespace fairlead::companion {
namespace {

constexpr const char *kHistory = "/.fairlead-jail.history", *kNodes = "/.fairlead-jail.nodes", *kManifests = "/.fairlead-jail.manifests";

}  // namespace

std::string manifest_path(const std::string& volume, const std::string& version) { return volume + kManifests + "/" + version; }
std::string base_files_path(const std::string& volume, const std::string& version) { return manifest_path(volume, version) + ".base"; }

std::string carried_path(const std::string& volume, const std::string& version) { return manifest_path(volume, version) + ".carried"; }
std::string unserved_path(const std::string& volume, const std::string& version) { return manifest_path(volume, version) + ".unserved"; }

Result<std::vector<std::string>> read_history(const std::string& volume) {
  std::vector<std::string> out;
  auto text = read_file(volume + kHistory, 1_MiB);
  if (!text && text.error().code == Code::NotFound) return out;
  if (!text) return std::unexpected(std::move(text.error()));
  for (const auto& line : split(*text, '\n'))
    if (is_version_name(line)) out.push_back(line);
  return out;
}

Result<void> note_current(const std::string& volume, const std::string& version) {
  auto names = read_history(volume);
  if (!names) return std::unexpected(std::move(names.error()));
  std::erase(*names, version);
  names->push_back(version);
  std::string text;
  for (const auto& name : *names) text += name + "\n";
  return write_file_durably(volume + kHistory, text, 0644);
}

Result<void> note_use(const std::string& volume, const std::string& node, const std::set<std::string>& versions) {
  if (!is_version_name(node)) return fail(Code::Invalid, "\"" + node + "\" is no name of a node");
  if (auto made = make_dirs(volume + kNodes, 0755); !made) return made;
  std::string text;
  for (const auto& version : versions) text += version + "\n";
  return write_file_durably(volume + kNodes + "/" + node, text + "end\n", 0644);
}

Result<std::map<std::string, std::set<std::string>>> read_uses(const std::string& volume) {
  std::map<std::string, std::set<std::string>> out;
  auto names = list_dir(volume + kNodes);
  if (!names && names.error().code == Code::NotFound) return out;
  if (!names) return std::unexpected(std::move(names.error()));
  for (const auto& name : *names) {
    if (!is_version_name(name)) continue;  // one that is being written
    auto text = read_file(volume + kNodes + "/" + name, 1_MiB);
    if (!text) return std::unexpected(std::move(text.error()));
    auto lines = split(*text, '\n');
    if (lines.size() < 2 || lines[lines.size() - 2] != "end") return fail(Code::Invalid, "what " + name + " uses is not understood");
    auto& uses = out[name];
    for (const auto& line : lines)
      if (is_version_name(line) && line != "end") uses.insert(line);
  }
  return out;
}

Removal plan_removal(const std::vector<std::string>& there, const std::vector<std::string>& history, const std::string& current, std::size_t keep, const std::map<std::string, std::set<std::string>>& uses,
                     const std::vector<std::string>& nodes) {
  std::set<std::string> stay = {current};
  for (auto one = history.rbegin(); one != history.rend() && stay.size() < keep + 1; ++one)
    if (std::find(there.begin(), there.end(), *one) != there.end()) stay.insert(*one);
  Removal out;
  const auto silent = std::find_if(nodes.begin(), nodes.end(), [&](const auto& node) { return !uses.contains(node); });
  for (const auto& version : there) {
    if (stay.contains(version)) continue;
    const auto user = std::find_if(uses.begin(), uses.end(), [&](const auto& use) { return use.second.contains(version); });
    if (user != uses.end()) out.kept.push_back(fmt::format("{}: {} uses it", version, user->first));
    else if (silent != nodes.end()) out.kept.push_back(fmt::format("{}: {} has not said what it uses", version, *silent));
    else out.remove.push_back(version);
  }
  return out;
}

}  // namespace fairlead::companion
