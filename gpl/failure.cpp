// SPDX-License-Identifier: GPL-3.0-or-later
#include "failure.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <thread>

#include "base/log.h"
#include "mark.h"

namespace fairlead::companion {
namespace {

constexpr std::string_view kSeveral = " (jobs over several nodes)";
constexpr auto kPatience = std::chrono::seconds(150);

void restart(std::vector<std::string> jobs) {
  const SystemClock clock;
  const auto end = clock.monotonic() + kPatience;
  while (!jobs.empty() && clock.monotonic() < end) {
    std::erase_if(jobs, [](const std::string& id) {
      auto job = ask_slurm({"scontrol", "-o", "show", "job", id});
      if (!job) return job.error().code == Code::Conflict;  // gone; no answer is none
      const Requeued what = requeued(*job);
      if (what == Requeued::Wait) return false;
      if (what == Requeued::Nothing) return true;
      auto done = ask_slurm({"scontrol", "update", "jobid=" + id, "starttime=now"});
      if (done) log_info("a job that was lost with its worker starts again without delay", {{"job", id}});
      return done.has_value() || done.error().code == Code::Conflict;
    });
    if (!jobs.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
}

}  // namespace

Loss lost_with(const std::string& node, const std::vector<JobRecord>& jobs) {
  Loss out;
  for (const auto& job : jobs) {
    if (std::find(job.nodes.begin(), job.nodes.end(), node) == job.nodes.end() || job.state == "COMPLETING") continue;
    out.jobs.push_back(job.id);
    out.several = out.several || job.nodes.size() > 1;
  }
  return out;
}

std::string reason_of_death(const NodeRecord& node, const std::string& why, const Loss& loss) { return reason_of_death(node, why + (loss.several ? std::string(kSeveral) : std::string())); }

std::string extra_of_death(const NodeRecord& node, const Loss& loss) {
  const auto mark = read_mark(node.extra);
  if (!mark) return node.extra;
  const bool idle = loss.jobs.empty() && !node.has("COMPLETING") && node.cpus_given == 0;
  return print_mark(*mark) + (idle ? std::string(kDiedIdle) : std::string());
}

std::chrono::seconds keep_out(const NodeRecord& node, Instant now) {
  if (!node.has("DOWN") || node.since.empty()) return std::chrono::seconds(0);
  // A reason that somebody else gave does not say what was lost; that it was nothing is written down beside it.
  if (read_mark(node.extra) && std::string_view(node.extra).ends_with(kDiedIdle)) return std::chrono::seconds(0);
  if (node.reason.starts_with(kDied) && node.reason.find(kSeveral) == node.reason.npos) return std::chrono::seconds(0);
  const auto since = parse_time(node.since);
  if (!since) return kKeepOut;
  const auto left = std::chrono::ceil<std::chrono::seconds>(*since + kKeepOut - now);
  return std::clamp(left, std::chrono::seconds(0), kKeepOut);
}

Requeued requeued(std::string_view job) {
  const auto state = value_of(job, "JobState="), reason = value_of(job, "Reason="), restarts = value_of(job, "Restarts=");
  if (!state || !reason || !restarts) return Requeued::Nothing;
  if (*state == "COMPLETING" || *state == "REQUEUED") return Requeued::Wait;
  if (*state == "RUNNING" && *restarts == "0") return Requeued::Nothing;  // goes on without the node (--no-kill)
  if (*state != "PENDING" || *restarts == "0") return Requeued::Nothing;
  // Cleaning: a step of the run before is still there (job_scheduler.c, _job_runnable_test1); it becomes BeginTime.
  return *reason == "BeginTime" ? Requeued::Hurry : *reason == "None" || *reason == "Cleaning" ? Requeued::Wait : Requeued::Nothing;
}

void in_background(const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child < 0) return log_warn("nothing can be started beside the daemon", {{"error", std::strerror(errno)}});
  if (child > 0) {
    ::waitpid(child, nullptr, 0);
    return;
  }
  // Twice, so that it belongs to the container's first process, and whoever called is not kept waiting for its descriptors.
  if (::fork() != 0) ::_exit(0);
  ::setsid();
  const int nowhere = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; fd < 3 && nowhere >= 0; ++fd) ::dup2(nowhere, fd);
  work();
  ::_exit(0);
}

void restart_in_background(const std::vector<std::string>& jobs) {
  if (!jobs.empty()) in_background([&jobs] { restart(jobs); });
}

int run_died(const std::vector<std::string>& arguments) {
  std::optional<Instant> ended;
  const bool complete = arguments.size() == 4 || arguments.size() == 5;
  if (complete && arguments[2] != "-")
    if (auto time = parse_time(arguments[2])) ended = *time;
  if (!complete || arguments[3].empty() || (arguments[2] != "-" && !ended) || (arguments.size() == 5 && arguments[4].find('@') == std::string::npos)) {
    std::fputs("usage: fairlead-slurm died NODE ENDED|- WHY [POD-UID@MACHINE]\n", stderr);
    return 2;
  }
  const std::string& name = arguments[1];
  auto seen = look_at_slurm();
  if (!seen) {
    std::fprintf(stderr, "Slurm does not answer: %s\n", seen.error().message.c_str());
    return 4;
  }
  const auto node = std::find_if(seen->nodes.begin(), seen->nodes.end(), [&](const NodeRecord& one) { return one.name == name; });
  const Loss loss = lost_with(name, seen->jobs);
  if (node == seen->nodes.end() || (node->has("DOWN") && loss.jobs.empty())) return 0;
  if (arguments.size() == 5 && !may_be_of(*node, arguments[4])) {
    std::fprintf(stderr, "the slurmd that Slurm knows on %s is another one's (%s): nothing is known of it\n", name.c_str(), node->extra.c_str());
    return 3;
  }
  if (ended) {
    const auto started = parse_time(node->started);
    // Whole seconds on both sides: one that started within the same second may be the next.
    if (!started || *started >= std::chrono::floor<std::chrono::seconds>(*ended)) {
      std::fprintf(stderr, "the slurmd that Slurm knows on %s started %s, its processes ended %s: nothing is known of it\n", name.c_str(), node->started.empty() ? "at an unknown time" : node->started.c_str(), arguments[2].c_str());
      return 3;
    }
  }
  std::vector<std::string> update = {"scontrol", "update", "nodename=" + name, "state=down", "reason=" + reason_of_death(*node, arguments[3], loss)};
  if (const std::string extra = extra_of_death(*node, loss); extra != node->extra) update.push_back("extra=" + extra);
  auto down = ask_slurm(std::move(update));
  if (!down) {
    std::fprintf(stderr, "%s\n", down.error().message.c_str());
    return down.error().code == Code::Conflict ? 1 : 4;
  }
  std::printf("%s is down; lost with it: %s\n", name.c_str(), loss.jobs.empty() ? "nothing" : fmt::format("{}", fmt::join(loss.jobs, " ")).c_str());
  std::fflush(stdout);
  restart_in_background(loss.jobs);
  return 0;
}

}  // namespace fairlead::companion
