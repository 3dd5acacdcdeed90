// SPDX-License-Identifier: GPL-3.0-or-later
#include "reconfigure.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "base/clock.h"
#include "base/encoding.h"
#include "base/files.h"
#include "base/process.h"
#include "head.h"
#include "slurmd_conf.h"
#include "trial.h"

namespace fairlead::companion {
namespace {

using namespace std::chrono_literals;

constexpr int kNotDone = 1, kWentDown = 5, kHandedOver = 6;
constexpr auto kAnswersAgain = 40s, kCountsAgain = 120s;
constexpr const char* kTold = "/run/slurm/told";  // of the configuration that slurmctld and, through it, every slurmd was told last

int say(int status, const std::string& text) {
  std::fprintf(stderr, "%s\n", text.c_str());
  return status;
}

// Its configuration as it tells it; empty: no answer, and then perhaps what the tool said of its own file, which it reads first.
std::string ask_daemon(std::string* unreadable = nullptr) {
  auto out = run({.argv = {"scontrol", "show", "config"}}, 5s);
  if (out && out->exit.code == 0) return out->out;
  if (unreadable && out && out->err.find("arse") != std::string::npos && out->err.find("error: ") != std::string::npos) *unreadable = std::string(trim(out->err));
  return "";
}

// Sends it to the daemon that the file names, and gives a descriptor by which its end is seen.
Result<Fd> signal_daemon(const std::string& name, int signal) {
  auto text = read_file("/run/slurm/" + name + ".pid");
  if (!text) return std::unexpected(std::move(text.error()));
  const pid_t pid = std::atoi(std::string(trim(*text)).c_str());
  auto comm = read_file("/proc/" + std::to_string(pid) + "/comm");
  if (pid <= 1 || !comm || trim(*comm) != name) return fail(Code::NotFound, fmt::format("process {} is not {}", pid, name));
  auto identity = identify(pid);
  if (!identity) return std::unexpected(std::move(identity.error()));
  auto process = open_process(*identity);
  if (!process) return std::unexpected(std::move(process.error()));
  if (::kill(pid, signal) != 0) return fail_errno(errno, fmt::format("signal {} to {}", signal, name));
  return std::move(*process);
}

}  // namespace

Result<void> end_slurmctld() {
  auto process = signal_daemon("slurmctld", SIGTERM);
  if (!process) return std::unexpected(std::move(process.error()));
  pollfd watched{process->get(), POLLIN, 0};
  // It saves all that it knows first.
  if (::poll(&watched, 1, 60'000) != 1) return fail(Code::Unavailable, "slurmctld has not ended within 60 s of SIGTERM");
  return {};
}

namespace {

// Tells slurmctld and, through it, every slurmd.
std::string tell_to_read() {
  auto out = run({.argv = {"scontrol", "reconfigure"}}, 60s);
  if (out && out->exit.code == 0) return "";
  return "scontrol reconfigure: " + (out ? std::string(trim(out->err)) : out.error().message);
}

// Slurm 22.05 counts the jobs of a dynamic node once more at each `reconfigure`: a node that had one then stays ALLOCATED or COMPLETING after the job, for good, and a completing one takes no more. Counted anew at a start.
bool jobs_hold_nodes() {
  auto out = run({.argv = {"squeue", "-h", "-t", "running,completing,suspended,configuring,stopped", "-o", "%i"}}, 10s);
  return !out || out->exit.code != 0 || !trim(out->out).empty();
}
bool nodes_are_dynamic() {
  auto out = run({.argv = {"scontrol", "-o", "show", "nodes"}}, 20s);
  return !out || out->exit.code != 0 || out->out.find("DYNAMIC_NORM") != std::string::npos;
}
// Was every daemon told of it before, and slurmctld started anew since then? Then nothing is counted twice, and telling them again would only begin that anew.
bool told_and_counted(const std::string& hash) {
  struct stat started {}, told {};
  const auto last = read_file(kTold);
  if (!last || trim(*last) != hash || ::stat("/run/slurm/slurmctld.pid", &started) != 0 || ::stat(kTold, &told) != 0) return false;
  return std::pair(started.st_mtim.tv_sec, started.st_mtim.tv_nsec) > std::pair(told.st_mtim.tv_sec, told.st_mtim.tv_nsec) && same_hash(ask_daemon());
}

bool answers_with_these_files(std::chrono::seconds patience = kAnswersAgain) {
  const SystemClock clock;
  for (const auto until = clock.monotonic() + patience; clock.monotonic() < until; std::this_thread::sleep_for(200ms))
    if (same_hash(ask_daemon())) return true;
  return false;
}

}  // namespace

void wait_until_slurmctld_has_run() {
  struct stat started {};
  for (int i = 0; i < 60 && ::stat("/run/slurm/slurmctld.pid", &started) == 0 && SystemClock().now() < Instant(std::chrono::seconds(started.st_mtim.tv_sec)) + 12s; ++i) std::this_thread::sleep_for(200ms);
}

int await_files(const std::string& hash) {
  // The node writes changed files into the mount within seconds; slurmctld must not read half of them.
  for (int i = 0; i < 900; ++i) {
    auto generation = read_file("/etc/slurm/generation");
    if (generation && trim(*generation) == hash) return 0;
    std::this_thread::sleep_for(100ms);
  }
  return say(kNotDone, fmt::format("configuration {} has not arrived in /etc/slurm within 90 s", hash));
}

int reconfigure(const std::vector<std::string>& arguments) {
  const std::string hash = arguments.empty() ? "" : arguments[0];
  const auto flag = [&](const char* name) { return std::find(arguments.begin(), arguments.end(), name) != arguments.end(); };
  if (hash.empty()) return say(2, "usage: fairlead-slurm reconfigure HASH [--always] [--restart]");
  if (const int status = await_files(hash); status != 0) return status;
  auto running = read_file(kGeneration);
  const bool read_already = running && trim(*running) == hash;
  // `--always`: also where slurmctld was started with it, since the workers' daemons may have been told of an earlier one.
  if (read_already && !flag("--always")) return 0;
  const auto done = [&] {
    auto written = write_file_atomically(kGeneration, hash + "\n", 0644);
    return written ? 0 : say(kNotDone, written.error().message);
  };
  if (told_and_counted(hash)) return done();
  std::string unreadable;
  if (ask_daemon(&unreadable).empty() && !unreadable.empty()) return say(kWentDown, unreadable);
  if (ask_daemon().empty()) return say(kNotDone, "slurmctld does not answer, and so was not told of configuration " + hash);
  std::string trouble;
  bool counted_twice = jobs_hold_nodes();
  if (flag("--restart") && !read_already) {
    if (exists("/run/slurm/head.sock")) {
      auto stepped = ask_head("/run/slurm", "step-down");
      if (!stepped) return say(kNotDone, stepped.error().message);
      return say(kHandedOver, "another head takes over with configuration " + hash);
    }
    if (auto ended = end_slurmctld(); !ended) return say(kNotDone, ended.error().message);  // its companion starts it again
  } else {
    trouble = tell_to_read();
  }
  if (!answers_with_these_files())
    return say(kWentDown, fmt::format("slurmctld has not answered with configuration {} for {} s{}; its last words are in the log of container slurmctld", hash, kAnswersAgain.count(), trouble.empty() ? "" : " (" + trouble + ")"));
  if (!trouble.empty() || (flag("--restart") && !read_already))
    if (const std::string again = tell_to_read(); !again.empty()) return say(kNotDone, again);
  if (auto written = write_file_atomically(kTold, hash + "\n", 0644); !written) return say(kNotDone, written.error().message);
  counted_twice = (counted_twice || jobs_hold_nodes()) && nodes_are_dynamic();
  if (counted_twice) {
    wait_until_slurmctld_has_run();
    if (auto ended = end_slurmctld(); !ended) return say(kNotDone, ended.error().message);
    // It served with these files a moment ago: that it takes long is no reason to take them back.
    if (!answers_with_these_files(kCountsAgain)) return say(kNotDone, fmt::format("slurmctld, started anew with configuration {}, has not answered for {} s; its last words are in the log of container slurmctld", hash, kCountsAgain.count()));
  }
  return done();
}

int take_config(const std::string& hash) {
  auto input = read_input();
  if (!input) return say(kNotDone, input.error().message);
  auto files = read_trial_files(*input);
  if (!files) return say(2, files.error().message);
  if (hash.empty() || generation_of(files->at("slurm.conf")) != hash) return say(2, "the files are not of configuration " + hash);
  auto have = read_file(std::string(kSlurmdConf) + "/slurm.conf");
  if (have && generation_of(*have) == hash) return 0;
  if (auto put = put_slurmd_conf(kSlurmdConf, *files); !put) return say(kNotDone, put.error().message);
  // What slurmctld's message makes slurmd do, too.
  if (auto told = signal_daemon("slurmd", SIGHUP); !told) return say(kNotDone, told.error().message);
  return 0;
}

int print_generation() {
  auto conf = read_file("/etc/slurm/slurm.conf");
  if (!conf) return say(kNotDone, conf.error().message);
  const std::string generation = generation_of(*conf);
  if (generation.empty()) return say(kNotDone, "slurm.conf does not say which generation it is");
  std::printf("%s\n", generation.c_str());
  return 0;
}

}  // namespace fairlead::companion
