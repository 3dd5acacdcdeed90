// SPDX-License-Identifier: GPL-3.0-or-later
#include "records.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/encoding.h"

namespace fairlead::companion {
namespace {

struct Record {
  std::string key, text;
};

std::string field_of(std::string_view stanza, std::string_view name) {
  for (const auto& line : split(stanza, '\n'))
    if (line.size() > name.size() && line.starts_with(name) && line[name.size()] == ':') return std::string(trim(std::string_view(line).substr(name.size() + 1)));
  return "";
}

std::string key_of(Records kind, const std::string& text) {
  if (kind == Records::Lines) return text;
  if (kind == Records::Named) return text.substr(0, text.find(':'));
  const std::string name = field_of(text, "Package"), architecture = field_of(text, "Architecture");
  return architecture.empty() || architecture == "all" ? name : name + ":" + architecture;
}

// The first of a name counts, as it does to whoever looks it up.
std::vector<Record> read(Records kind, const std::string& text) {
  std::vector<Record> out;
  std::map<std::string, bool> seen;
  std::string stanza;
  const auto add = [&](std::string record) {
    if (trim(record).empty()) return;
    std::string key = key_of(kind, record);
    if (seen.emplace(key, true).second) out.push_back({std::move(key), std::move(record)});
  };
  for (const auto& line : split(text, '\n')) {
    if (kind != Records::Stanzas) add(line);
    else if (!line.empty()) stanza += line + "\n";
    else add(std::exchange(stanza, ""));
  }
  add(stanza);
  return out;
}

std::map<std::string, std::string> by_key(const std::vector<Record>& records) {
  std::map<std::string, std::string> out;
  for (const auto& record : records) out.emplace(record.key, record.text);
  return out;
}

// passwd and group: the third field (shadow has nine).
void same_numbers(const std::vector<Record>& records, const std::vector<std::string>& carried, std::vector<std::string>& conflicts) {
  std::map<std::string, std::string> owner;
  std::vector<std::pair<std::string, std::string>> ours;
  for (const auto& record : records) {
    const auto fields = split(record.text, ':');
    if ((fields.size() != 7 && fields.size() != 4) || fields[2].empty() || fields[2].find_first_not_of("0123456789") != std::string::npos) continue;
    if (std::find(carried.begin(), carried.end(), record.key) == carried.end()) owner.emplace(fields[2], record.key);
    else ours.emplace_back(fields[2], record.key);
  }
  for (const auto& [number, name] : ours)
    if (const auto other = owner.find(number); other != owner.end() && other->second != name) conflicts.push_back(fmt::format("{}: has number {}, which is {}'s in the new image", name, number, other->second));
}

}  // namespace

std::optional<Records> records_of(std::string_view path) {
  for (const char* name : {"/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow"})
    if (path == name) return Records::Named;
  for (const char* name : {"/etc/shells", "/etc/subuid", "/etc/subgid", "/var/lib/dpkg/triggers/File"})
    if (path == name) return Records::Lines;
  for (const char* name : {"/var/lib/dpkg/status", "/var/lib/apt/extended_states"})
    if (path == name) return Records::Stanzas;
  return std::nullopt;
}

Merged merge_records(Records kind, const std::string& base_text, const std::string& mine_text, const std::string& theirs_text) {
  Merged out;
  const auto base = by_key(read(kind, base_text)), mine = by_key(read(kind, mine_text));
  const auto mine_in_order = read(kind, mine_text);
  std::vector<Record> result;
  std::map<std::string, bool> known;
  for (auto& record : read(kind, theirs_text)) {
    known[record.key] = true;
    const auto b = base.find(record.key), m = mine.find(record.key);
    const bool unchanged = b != base.end() && b->second == record.text;  // by the new image
    if (m == mine.end()) {
      if (b == base.end() || !unchanged) {
        if (b != base.end()) out.conflicts.push_back(record.key + ": removed here, changed in the new image");
        result.push_back(std::move(record));
      }
      continue;
    }
    if (m->second != record.text && (b == base.end() || b->second != m->second)) {
      if (unchanged) {
        record.text = m->second;
        out.carried.push_back(record.key);
      } else {
        out.conflicts.push_back(record.key + (b == base.end() ? ": added here and in the new image" : ": changed here and in the new image"));
      }
    }
    result.push_back(std::move(record));
  }
  for (const auto& record : mine_in_order) {
    if (known.contains(record.key)) continue;
    const auto b = base.find(record.key);
    if (b != base.end() && b->second == record.text) continue;  // the new image has it no more
    if (b != base.end()) out.conflicts.push_back(record.key + ": changed here, gone from the new image");
    else {
      result.push_back(record);
      out.carried.push_back(record.key);
    }
  }
  if (kind == Records::Named) same_numbers(result, out.carried, out.conflicts);
  for (const auto& record : result) out.text += record.text + "\n";
  return out;
}

}  // namespace fairlead::companion
