// SPDX-License-Identifier: GPL-3.0-or-later
#include "accounting.h"

#include <fmt/format.h>
#include <pwd.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/clock.h"
#include "base/encoding.h"
#include "base/files.h"
#include "base/log.h"
#include "jail.h"
#include "prepare.h"
#include "reach.h"
#include "reconfigure.h"
#include "rest.h"
#include "supervise.h"

namespace fairlead::companion {
namespace {

using namespace std::chrono_literals;
constexpr const char* kConf = "/run/slurm/slurmdbd.conf";
constexpr const char* kToolsConf = "/run/slurm/slurm.conf";
constexpr const char* kCa = "/run/slurm/database-ca.crt";
constexpr const char* kMet = "/run/slurm/accounting-met";  // of this pod: slurmctld and the database know each other

std::string value_in(const std::string& conf, std::string_view key) {
  for (const std::string& line : split(conf, '\n'))
    if (line.starts_with(key) && line.size() > key.size() && line[key.size()] == '=') return line.substr(key.size() + 1);
  return "";
}

// Read anew before each start: a password that was changed counts then.
Result<void> write_conf(const std::string& conf, const std::string& cluster) {
  auto password = read_file("/etc/fairlead/database/password");
  if (!password) return pass(std::move(password.error()), "password of the database");
  auto line = storage_pass_line(std::string(trim(*password)));
  if (!line) return std::unexpected(std::move(line.error()));
  if (auto written = write_for_slurm(kConf, conf + *line, 0600); !written) return written;
  for (const char* path : {"/etc/fairlead/database-ca/ca.crt", "/etc/fairlead/database/ca.crt"})
    if (auto ca = read_file(path)) {
      if (auto written = write_for_slurm(kCa, *ca, 0444); !written) return written;
      break;
    }
  if (auto placed = place_token_key(); !placed) return placed;
  // For sacctmgr inside this pod, which asks this slurmdbd.
  return write_for_slurm(kToolsConf, fmt::format("ClusterName={}\nSlurmctldHost=localhost\nSlurmUser=slurm\nAuthType=auth/munge\nAccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=127.0.0.1\nAccountingStoragePort={}\n",
                                                 cluster, value_in(conf, "DbdPort")), 0644);
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool munge_answers() {
  for (int i = 0; i < 600; ++i) {
    auto out = run({.argv = {"munge", "-n"}}, 5s);
    if (out && out->exit.code == 0) return true;
    std::this_thread::sleep_for(100ms);
  }
  return false;
}

// Nothing: slurmdbd or its database is away.
std::optional<std::string> ask_accounting(const std::string& slurm_conf, const char* what, const char* format, std::string* why = nullptr) {
  auto asked = run({.argv = {"sacctmgr", "-n", "-P", "list", what, std::string("format=") + format}, .environment = std::map<std::string, std::string>{{"PATH", variable("PATH")}, {"SLURM_CONF", slurm_conf}}}, 6s);
  if (asked && asked->exit.code == 0 && asked->err.find("error") == std::string::npos) return asked->out;
  if (why) *why = asked ? std::string(trim(asked->err)) : asked.error().message;
  return std::nullopt;
}

std::vector<std::string> own_kinds(const std::string& conf) {
  std::vector<std::string> out;
  for (const std::string& one : split(value_in(conf, "AccountingStorageTRES"), ','))
    if (!trim(one).empty()) out.emplace_back(trim(one));
  return out;
}

}  // namespace

int run_accounting() {
  const std::string conf = variable("FAIRLEAD_SLURMDBD_CONF"), cluster = variable("FAIRLEAD_SLURM_CLUSTER");
  const auto complain = [](const Error& error) {
    log_error("slurmdbd cannot be started", {{"error", error.message}});
    return 1;
  };
  if (conf.empty()) return complain({Code::Invalid, "FAIRLEAD_SLURMDBD_CONF must be set"});
  if (auto made = owned_dir("/run/slurm", "slurm", 0755); !made) return complain(made.error());
  if (auto jail = prepare_jail(); !jail) return complain(jail.error());
  if (auto users = prepare_users(); !users) return complain(users.error());
  if (auto written = write_conf(conf, cluster); !written) return complain(written.error());
  if (!munge_answers()) return complain({Code::Unavailable, "munge does not answer after a minute; look at the log of container munge"});
  // The first of two makes the tables; the second, which would serve while the first starts, comes after it.
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  if (value_in(conf, "DbdBackupHost") == host)
    for (int i = 0; i < 60 && !reachable(value_in(conf, "DbdAddr"), value_in(conf, "DbdPort")); ++i) std::this_thread::sleep_for(500ms);
  auto environment = own_environment();
  environment.erase("FAIRLEAD_SLURMDBD_CONF");
  environment["SLURM_CONF"] = kToolsConf;  // slurmdbd.conf is looked for beside it
  send_at_once(environment);
  return supervise({.command = {.argv = {"slurmdbd", "-D"}, .environment = std::move(environment), .stdout_fd = 1, .stderr_fd = 2}, .restart_in_place = true, .before_start = [conf, cluster, first = true]() mutable {
                      if (!first)
                        if (auto written = write_conf(conf, cluster); !written) log_error("slurmdbd keeps its configuration", {{"error", written.error().message}});
                      first = false;
                    }});
}

int check_accounting() {
  const std::string conf = variable("FAIRLEAD_SLURMDBD_CONF"), port = value_in(conf, "DbdPort");
  if (!reachable("127.0.0.1", port)) {
    char name[256] = {};
    ::gethostname(name, sizeof name - 1);
    // The second of two listens only while it serves; the first ping of the other tells it when.
    const bool second = value_in(conf, "DbdBackupHost") == name;
    if (second && reachable(value_in(conf, "DbdAddr"), port)) return 0;
    std::fprintf(stderr, "slurmdbd does not listen on port %s: it starts, or waits for the database\n", port.c_str());
    return 1;
  }
  std::string why;
  if (ask_accounting(kToolsConf, "cluster", "cluster", &why)) return 0;
  std::fprintf(stderr, "slurmdbd does not answer from the database: %s\n", why.c_str());
  return 1;
}

namespace {
// Its file holds more than version and time. One that lost its content with the power is as if it were not there.
bool has_met(const std::string& state) {
  constexpr std::size_t header = 10;
  const auto bytes = read_file(state + "/last_tres");
  return bytes ? bytes->size() > header : exists(state + "/last_tres");
}
}  // namespace

std::optional<FirstContact> look_for_first_contact(const std::string& slurm_conf, const std::vector<std::string>& states, std::chrono::seconds wait) {
  auto conf = read_file(slurm_conf);
  if (!conf || value_in(*conf, "AccountingStorageType") != "accounting_storage/slurmdbd") return std::nullopt;
  auto version = run({.argv = {"slurmctld", "-V"}}, 20s);
  const std::string told = version ? std::string(trim(version->out)) : "";
  const FirstContact out{slurm_conf, told.find(" 22.05") != std::string::npos || told.find(" 23.02") != std::string::npos || told.find(" 23.11") != std::string::npos};
  if (std::any_of(states.begin(), states.end(), has_met)) return out;
  const SystemClock clock;
  for (const auto end = clock.monotonic() + wait; clock.monotonic() < end; std::this_thread::sleep_for(250ms))
    if (ask_accounting(slurm_conf, "cluster", "cluster")) return out;
  if (out.known_form) log_warn("slurmdbd does not answer; slurmctld starts without it and keeps what is to be recorded", {{"address", value_in(*conf, "AccountingStorageHost")}});
  else log_warn("slurmctld has never met slurmdbd, which does not answer: it will not start before that", {{"version", told}});
  return out;
}

void place_first_contact(const FirstContact& contact, const std::string& state) {
  auto conf = read_file(contact.slurm_conf);
  if (!conf) return;
  const auto now = std::chrono::duration_cast<std::chrono::seconds>(SystemClock().now().time_since_epoch()).count();
  if (contact.known_form && !has_met(state))
    if (auto written = write_for_slurm(state + "/last_tres", last_tres_bytes(own_kinds(*conf), now), 0600); !written) log_warn("slurmctld will not start while slurmdbd is away", {{"reason", written.error().message}});
  // A process of its own: its children are not taken for orphans of ours.
  static pid_t watcher = 0;
  if (exists(kMet) || (watcher > 0 && ::kill(watcher, 0) == 0)) return;
  posix_spawnattr_t attributes;
  sigset_t none;
  sigemptyset(&none);
  if (::posix_spawnattr_init(&attributes) != 0) return;
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  std::string name = "fairlead-slurm", command = "meet-accounting", path = contact.slurm_conf;
  char* arguments[] = {name.data(), command.data(), path.data(), nullptr};
  if (const int error = ::posix_spawn(&watcher, "/proc/self/exe", nullptr, &attributes, arguments, environ); error != 0) log_warn("nobody waits for slurmdbd's first answer", {{"error", std::to_string(error)}});
  ::posix_spawnattr_destroy(&attributes);
}

int meet_accounting(const std::string& slurm_conf) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (bool restarted = false;; restarted = true) {
    std::this_thread::sleep_for(15s);  // a daemon that ends earlier counts as one that cannot run
    std::optional<std::string> clusters, kinds;
    for (; !clusters || !kinds; std::this_thread::sleep_for(2s)) {
      clusters = ask_accounting(slurm_conf, "cluster", "cluster");
      if (clusters) kinds = ask_accounting(slurm_conf, "tres", "type,name");
    }
    auto conf = read_file(slurm_conf);
    if (!conf) return 1;
    const auto names = split(*clusters, '\n');
    const bool registered = std::find(names.begin(), names.end(), value_in(*conf, "ClusterName")) != names.end();
    if (restarted || (registered && kinds_are_known(own_kinds(*conf), *kinds))) break;
    log_info("slurmdbd answers for the first time: slurmctld is started anew");
    wait_until_slurmctld_has_run();
    if (auto ended = end_slurmctld(); !ended && ended.error().code != Code::Unavailable) return 0;
  }
  // What it learned from the database is on disk when it has ended, rather than after five minutes. Not while other files are on their way to it. (`scontrol reconfigure` saves it too, but counts jobs twice: reconfigure.cpp.)
  auto have = read_file("/etc/slurm/generation"), running = read_file(kGeneration);
  auto conf = read_file(slurm_conf);
  // Written first: where our parent ends with slurmctld, so do we, and the next one is not to begin again.
  if (auto written = write_file_atomically(kMet, "", 0644); !written) return 1;
  if (conf && have && running && trim(*have) == trim(*running)) {
    wait_until_slurmctld_has_run();
    (void)end_slurmctld();
  }
  return 0;
}

bool wait_for_settings(const std::string& slurm_conf, const std::string& needs) {
  for (int i = 0; i < 900; ++i) {
    auto conf = read_file(slurm_conf);
    const auto lines = split(conf ? *conf : "", '\n');
    const auto wanted = split(needs, ';');
    if (std::all_of(wanted.begin(), wanted.end(), [&](const std::string& one) { return one.empty() || std::find(lines.begin(), lines.end(), one) != lines.end(); })) return true;
    std::this_thread::sleep_for(100ms);
  }
  return false;
}

}  // namespace fairlead::companion
