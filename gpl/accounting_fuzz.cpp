// SPDX-License-Identifier: GPL-3.0-or-later
// What the containers of accounting read from others: a Secret's password, what sacctmgr and the database list, names in the folder of the backups. Nothing of it says more in a configuration or a statement than a value or a name.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "accounting.h"
#include "base/encoding.h"
#include "database.h"

namespace {

using namespace fairlead;
using namespace fairlead::companion;

void must(bool holds) {
  if (!holds) std::abort();
}
auto count(const std::string& text, char c) { return std::count(text.begin(), text.end(), c); }

void password(const std::string& text) {
  if (const auto line = storage_pass_line(text)) {
    const std::string start = "StoragePass=\"", end = "\"\n";
    must(line->starts_with(start) && line->ends_with(end) && count(*line, '\n') == 1);
    std::string read;  // as Slurm reads it
    for (std::size_t i = start.size(); i < line->size() - end.size(); ++i) {
      must((*line)[i] != '"' && (*line)[i] != '#');
      if ((*line)[i] == '\\') ++i;
      read += (*line)[i];
    }
    must(read == text);
  }
  if (const auto users = database_users(text)) must(count(*users, '\n') == 4 && count(*users, '\'') == 16 && users->find(text) != std::string::npos);
}

void listed(const std::string& text) {
  const auto names = table_names(text);
  if (!names) return;
  const std::string statement = exchange_statement(*names, *names);
  must(count(statement, '`') == static_cast<std::ptrdiff_t>(names->size()) * 2 * 8 && statement.find_first_of("'\"\\;\n#") == std::string::npos);
}

void kinds(const std::string& text) {
  const auto end = text.find('\n');
  std::vector<std::string> asked = split(text.substr(0, end), ',');
  const std::string told = end == std::string::npos ? "" : text.substr(end + 1);
  if (kinds_are_known(asked, told)) must(kinds_are_known(asked, told + "\ngres|other\n"));
  const std::string bytes = last_tres_bytes(asked, 1);
  must(bytes.size() >= 14 && bytes.size() <= 1024 + text.size() + asked.size() * 32);
}

void folder(const std::string& text) {
  auto list = split(text, '\n');
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
  const auto there = [](const std::vector<std::string>& in, const std::string& name) { return std::find(in.begin(), in.end(), name) != in.end(); };
  const int keep = 1 + static_cast<int>(text.size() % 4);
  const auto gone = backups_to_remove(list, keep);
  std::size_t whole = 0, stay = 0;
  for (const std::string& name : list) {
    const auto at = backup_time(name);
    if (at) must(backup_name(*at) == name);
    if (!at || !there(list, name + ".sha256")) continue;
    ++whole;
    stay += !there(gone, name) && !there(gone, name + ".sha256");
  }
  must(stay == std::min(whole, static_cast<std::size_t>(keep)));
  for (const std::string& name : gone) must(there(list, name) && name.find('/') == std::string::npos);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  password(text);
  listed(text);
  kinds(text);
  folder(text);
  return 0;
}
