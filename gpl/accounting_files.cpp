// SPDX-License-Identifier: GPL-3.0-or-later
#include <algorithm>
#include <cctype>

#include "accounting.h"
#include "base/encoding.h"

namespace fairlead::companion {
namespace {

void put(std::string& out, std::uint64_t value, int bytes) {
  for (int shift = (bytes - 1) * 8; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift & 255);
}
// packstr of Slurm: its length with the closing zero, then both; nothing: length 0.
void put_text(std::string& out, const std::string& text) {
  put(out, text.empty() ? 0 : text.size() + 1, 4);
  if (!text.empty()) out.append(text.c_str(), text.size() + 1);
}

}  // namespace

Result<std::string> storage_pass_line(const std::string& password) {
  if (password.empty()) return fail(Code::Invalid, "the password of the database is empty");
  if (password.find_first_of("\"\r\n") != std::string::npos || password.find('\0') != std::string::npos)
    return fail(Code::Invalid, "the password of the database holds a quote or a line break, which slurmdbd.conf cannot say; change it");
  std::string escaped;
  for (const char c : password) {
    if (c == '\\' || c == '#') escaped += '\\';
    escaped += c;
  }
  return "StoragePass=\"" + escaped + "\"\n";
}

std::string last_tres_bytes(const std::vector<std::string>& more, std::int64_t now_seconds) {
  std::string out;
  put(out, 38 << 8, 2);  // SLURM_22_05_PROTOCOL_VERSION
  put(out, static_cast<std::uint64_t>(now_seconds), 8);
  struct Kind {
    std::uint32_t id;
    std::string type, name;
  };
  std::vector<Kind> kinds = {{1, "cpu", ""}, {2, "mem", ""}, {3, "energy", ""}, {4, "node", ""}, {5, "billing", ""}, {6, "fs", "disk"}, {7, "vmem", ""}, {8, "pages", ""}};
  std::uint32_t next = 1001;
  for (const std::string& one : more) {
    const auto slash = one.find('/');
    const Kind kind{next, one.substr(0, slash), slash == std::string::npos ? "" : one.substr(slash + 1)};
    if (std::any_of(kinds.begin(), kinds.end(), [&](const Kind& had) { return had.type == kind.type && had.name == kind.name; })) continue;
    kinds.push_back(kind);
    ++next;
  }
  put(out, kinds.size(), 4);
  for (const Kind& kind : kinds) {
    put(out, 0, 8);  // alloc_secs
    put(out, 0, 8);  // count
    put(out, kind.id, 4);
    put_text(out, kind.name);
    put_text(out, kind.type);
  }
  put(out, 0, 4);  // return code
  return out;
}

bool kinds_are_known(const std::vector<std::string>& kinds, const std::string& told) {
  const auto lower = [](std::string text) {
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return text;
  };
  std::vector<std::string> known;
  for (const std::string& line : split(lower(told), '\n')) known.push_back(line);
  return std::all_of(kinds.begin(), kinds.end(), [&](const std::string& kind) {
    const auto slash = kind.find('/');
    return std::find(known.begin(), known.end(), lower(kind.substr(0, slash) + "|" + (slash == std::string::npos ? "" : kind.substr(slash + 1)))) != known.end();
  });
}

}  // namespace fairlead::companion
