// SPDX-License-Identifier: GPL-3.0-or-later
#include "client_conf.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <thread>
#include <vector>

#include "base/encoding.h"
#include "base/files.h"
#include "base/log.h"
#include "probe.h"

namespace fairlead::companion {
namespace {

constexpr int kMostNames = 4096;
constexpr auto kPace = std::chrono::seconds(1);

// The first word of a line's value: of NodeSet=worker Feature=worker that is worker.
std::string_view first_word(std::string_view line) {
  const std::string_view value = trim(line.substr(line.find('=') + 1));
  return value.substr(0, value.find_first_of(" \t#"));
}

// Of SlurmctldHost=controller-0(controller-0.demo-controller-svc.lab.svc.cluster.local), or (demo-controller-active.lab.svc...): .demo-worker-svc.lab.svc.cluster.local. Empty: it is no such name.
std::string domain_of_workers(std::string_view host_line, std::string_view cluster) {
  const auto open = host_line.find('('), close = host_line.find(')');
  if (cluster.empty() || open == host_line.npos || close == host_line.npos || close < open) return "";
  const std::string_view address = host_line.substr(open + 1, close - open - 1);
  for (const char* kind : {"-controller-svc.", "-controller-active."}) {
    const std::string service = std::string(cluster) + kind;
    const auto at = address.find(service);
    if (at != address.npos && (at == 0 || address[at - 1] == '.')) return fmt::format(".{}-worker-svc.{}", cluster, address.substr(at + service.size()));
  }
  return "";
}

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> out;
  if (auto names = list_dir(folder))
    for (const auto& name : *names) {
      struct stat found {};
      // A mounted ConfigMap has its own folders beside the files, which begin with a point.
      if (!name.starts_with('.') && !name.ends_with(".new") && ::stat((folder + "/" + name).c_str(), &found) == 0 && S_ISREG(found.st_mode)) out.push_back(name);
    }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return std::pair(a == "generation", a) < std::pair(b == "generation", b); });
  return out;
}

}  // namespace

std::string client_conf(const std::string& slurm_conf) {
  std::vector<std::string> sets;
  std::string cluster, host;
  int most = 512;
  for (const std::string& line : split(slurm_conf, '\n')) {
    if (is_key(line, "ClusterName")) cluster = first_word(line);
    if (is_key(line, "SlurmctldHost") && host.empty()) host = line;
    if (is_key(line, "MaxNodeCount")) {
      const std::string_view digits = first_word(line);
      int value = 0;
      if (std::from_chars(digits.data(), digits.data() + digits.size(), value).ec == std::errc() && value > 0) most = value;
    }
    if (!is_key(line, "NodeSet")) continue;
    const std::string name(first_word(line));
    if (!name.empty() && line.find("Feature=" + name) != line.npos && std::find(sets.begin(), sets.end(), name) == sets.end()) sets.push_back(name);
  }
  std::string out = slurm_conf;
  if (!out.empty() && !out.ends_with('\n')) out += '\n';
  if (sets.empty()) return out;
  const int each = std::max(1, std::min(most, kMostNames / static_cast<int>(sets.size())));
  const std::string domain = domain_of_workers(host, cluster);
  out += "# For commands on this node alone: where each worker that there may be is found.\n";
  for (const std::string& set : sets) {
    out += fmt::format("NodeName={}-[0-{}]", set, each - 1);
    for (int i = 0; i < each && !domain.empty(); ++i) out += fmt::format("{}{}-{}{}", i == 0 ? " NodeAddr=" : ",", set, i, domain);
    out += '\n';
  }
  return out;
}

bool follow_conf(const std::string& from, const std::string& to) {
  bool ok = true;
  const auto wanted = files_in(from);
  for (const std::string& name : wanted) {
    auto text = read_file(from + "/" + name);
    if (!text) continue;  // replaced just now; there is a next round
    const std::string bytes = name == "slurm.conf" ? client_conf(*text) : *text;
    const auto have = read_file(to + "/" + name);
    if (have && *have == bytes) continue;
    auto written = write_file_atomically(to + "/" + name, bytes, 0644);
    if (!written) log_warn("a configuration file for commands on this node was not written", {{"file", to + "/" + name}, {"error", written.error().message}});
    ok = ok && written;
  }
  if (wanted.empty()) return ok;
  for (const std::string& name : files_in(to))
    if (std::find(wanted.begin(), wanted.end(), name) == wanted.end()) ::unlink((to + "/" + name).c_str());
  return ok;
}

void keep_client_conf(const std::string& from, const std::string& to) {
  struct stat link {};
  if (::lstat((to + "/slurm.conf").c_str(), &link) == 0 && S_ISLNK(link.st_mode)) ::unlink((to + "/slurm.conf").c_str());  // of an earlier companion, to slurmd's own file
  (void)follow_conf(from, to);
  const pid_t child = ::fork();
  if (child < 0) return log_warn("commands on this node do not follow changes of the configuration", {{"error", std::strerror(errno)}});
  if (child > 0) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::prctl(PR_SET_NAME, "fairlead-conf");
  for (bool ok = true;; std::this_thread::sleep_for(ok ? kPace : 30 * kPace)) ok = follow_conf(from, to);
}

}  // namespace fairlead::companion
