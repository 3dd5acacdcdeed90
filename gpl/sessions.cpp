// SPDX-License-Identifier: GPL-3.0-or-later
#include "sessions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/encoding.h"
#include "base/files.h"

namespace fairlead::companion {

People people_among(const std::vector<ProcessSeen>& processes, pid_t self) {
  People out;
  for (const ProcessSeen& one : processes) {
    if (one.pid == 1 || one.pid == self || one.state == 'Z' || one.state == 'X') continue;
    if (one.user == 0 && one.name.starts_with("fairlead-")) continue;  // the companion, and what it keeps beside it (keep_jail, keep_client_conf)
    // The one that listens, and those of connections that have not said who they are: "sshd: unknown [priv]", "sshd: [net]". Where somebody is in, one of them is called USER@TERMINAL.
    if (one.name.starts_with("sshd") && one.title.find('@') == std::string::npos) continue;
    ++out.processes;
    out.users.insert(one.user);
  }
  return out;
}

Result<std::vector<ProcessSeen>> processes_here(const std::string& proc) {
  auto names = list_dir(proc);
  if (!names) return std::unexpected(std::move(names.error()));
  std::vector<ProcessSeen> out;
  for (const std::string& name : *names) {
    if (name.empty() || name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string folder = proc + "/" + name;
    ProcessSeen one{.pid = static_cast<pid_t>(std::atoi(name.c_str()))};
    auto status = read_file(folder + "/status");
    auto title = read_file(folder + "/cmdline");
    if (!status || !title) {
      if (!exists(folder + "/status")) continue;
      return std::unexpected(std::move(status ? title.error() : status.error()));
    }
    for (const std::string& line : split(*status, '\n')) {
      const auto value = line.find_first_not_of("\t ", line.find(':') == std::string::npos ? line.size() : line.find(':') + 1);
      if (value == std::string::npos) continue;
      if (line.starts_with("Name:")) one.name = line.substr(value);
      if (line.starts_with("State:")) one.state = line[value];
      if (line.starts_with("Uid:")) one.user = static_cast<uid_t>(std::strtoul(line.c_str() + value, nullptr, 10));
    }
    std::replace(title->begin(), title->end(), '\0', ' ');
    one.title = std::move(*title);
    out.push_back(std::move(one));
  }
  return out;
}

int print_sessions() {
  auto processes = processes_here();
  if (!processes) {
    std::fprintf(stderr, "%s\n", processes.error().message.c_str());
    return 1;
  }
  const People people = people_among(*processes, ::getpid());
  std::vector<std::string> names;
  for (const uid_t user : people.users) {
    if (names.size() == 100) break;
    const passwd* entry = ::getpwuid(user);
    std::string name = entry ? entry->pw_name : std::to_string(user);
    std::replace_if(name.begin(), name.end(), [](unsigned char c) { return c <= ' ' || c >= 0x7f || c == '"' || c == '\\'; }, '?');
    names.push_back(fmt::format("\"{}\"", name.substr(0, 64)));
  }
  std::printf("{\"processes\":%d,\"people\":[%s]}\n", people.processes, fmt::format("{}", fmt::join(names, ",")).c_str());
  return 0;
}

}  // namespace fairlead::companion
