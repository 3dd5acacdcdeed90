// SPDX-License-Identifier: GPL-3.0-or-later
#include "past.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "failure.h"
#include "mark.h"
#include "nodes.h"
#include "reach.h"

namespace fairlead::companion {
namespace {

using namespace std::chrono_literals;

constexpr const char* kConf = "/etc/fairlead/slurm/slurm.conf";  // slurmd has not fetched its own yet
constexpr int kRefusals = 40;

std::string text_of(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}
// Empty in pods of an operator that does not say it.
Mark own_mark() { return {text_of("FAIRLEAD_POD_UID"), text_of("FAIRLEAD_MACHINE")}; }

// A pod made anew has another address. Slurm 22.05 takes it from the registration of a node that it does not know, or that is CLOUD, but not of a dynamic one with a record (node_mgr.c, validate_node_specs): messages
// would go to the old one for ever.
Result<void> tell_where(const NodeRecord& record, const std::string& server) {
  const auto colon = server.rfind(':');
  const std::string own = own_address(server.substr(0, colon), server.substr(colon + 1));
  if (own.empty()) return fail(Code::Unavailable, "no address of this worker's own towards the head");
  std::vector<std::string> command = {"scontrol", "update", "nodename=" + record.name};
  if (own != record.address) command.push_back("nodeaddr=" + own);
  if (const Mark mark = own_mark(); !mark.pod.empty() && !mark.machine.empty() && record.extra != print_mark(mark)) command.push_back("extra=" + print_mark(mark));
  if (command.size() == 3) return {};
  auto done = ask_slurm(std::move(command));
  if (!done) return std::unexpected(std::move(done.error()));
  log_info("told the head where this worker is", {{"before", record.address}, {"now", own}});
  return {};
}

// Again until it is done, and some time later: Slurm saves what it knows of nodes within seconds only, so that a head which takes over may know less.
void keep_telling(const std::string& host, const std::string& server) {
  in_background([&] {
    ::setenv("SLURM_CONF", kConf, 1);
    for (const auto later : {0s, 10s, 60s, 300s}) {
      std::this_thread::sleep_for(later);
      for (;; std::this_thread::sleep_for(2s)) {
        auto text = ask_slurm({"scontrol", "-o", "show", "node", host});
        if (!text) continue;  // it has not registered yet, or no slurmctld answers
        auto nodes = read_nodes(*text);
        if (nodes && nodes->size() == 1 && tell_where(nodes->front(), server)) break;
      }
    }
  });
}

struct Past {
  bool another = false;      // pod had this node, and may have it still: nothing was said
  std::chrono::seconds out{0};  // this worker stays out
};
// One try: what was lost is reported, then where this worker is, so that what Slurm sends to end the lost jobs goes to the old address. Conflict: Slurm refused to take that. Unavailable: whose jobs run here is not known.
Result<Past> settle(const std::string& host, const std::string& server) {
  auto seen = look_at_slurm();
  // Refused or not understood as well: without an answer another pod's jobs may run here.
  if (!seen) return fail(Code::Unavailable, "what Slurm believes of this node is not known: " + seen.error().message);
  const auto record = std::find_if(seen->nodes.begin(), seen->nodes.end(), [&](const NodeRecord& node) { return node.name == host; });
  if (record == seen->nodes.end()) return Past{};
  const Loss loss = lost_with(host, seen->jobs);
  const bool runs = !loss.jobs.empty() || record->has("COMPLETING") || record->cpus_given != 0;
  if (!may_speak_for(*record, runs, own_mark().pod)) return Past{.another = true};
  Past past{.out = keep_out(*record, SystemClock().now())};
  if (runs) {
    // No slurmd runs here yet, so whatever Slurm believes to run on this node is dead: this container is the proof. Saying so lets Slurm requeue those jobs at once instead of never, for silence proves nothing. The node
    // returns to service when slurmd registers.
    auto down = ask_slurm({"scontrol", "update", "nodename=" + host, "state=down", "reason=" + reason_of_death(*record, "restarted and its processes are gone", loss)});
    if (!down) return pass(std::move(down.error()), "report the jobs that are gone");
    log_info("told the head that this worker's jobs are gone", {{"state", fmt::format("{}", fmt::join(record->state, "+"))}, {"jobs", fmt::format("{}", fmt::join(loss.jobs, " "))}});
    restart_in_background(loss.jobs);
    past.out = loss.several ? kKeepOut : 0s;
  }
  if (auto told = tell_where(*record, server); !told) return pass(std::move(told.error()), "tell where this worker is");
  return past;
}

}  // namespace

void settle_the_past(const std::string& host, const std::string& server) {
  ::setenv("SLURM_CONF", kConf, 1);
  Past past;
  bool waited = false;
  for (int tries = 1, refusals = 0;; ++tries) {
    auto settled = settle(host, server);
    if (settled && !settled->another) {
      past = *settled;
      break;
    }
    if (settled && !waited) log_warn("another pod had this node, and its jobs may still run: this worker waits until they are known to be dead, or are over", {{"node", host}});
    waited = waited || settled;
    if (!settled && tries % kRefusals == 1) log_info("not told to Slurm yet", {{"reason", settled.error().message}});
    if (!settled && settled.error().code == Code::Conflict && ++refusals == kRefusals) {
      // No other pod's jobs are here, and once slurmd runs, Slurm finds out by itself what is gone.
      log_warn("Slurm refuses what this worker has to tell; slurmd starts without it", {{"reason", settled.error().message}});
      break;
    }
    std::this_thread::sleep_for(settled ? 2s : 250ms);
  }
  ::unsetenv("SLURM_CONF");
  keep_telling(host, server);
  if (past.out.count() == 0) return;
  log_info("this worker stays out until no message to its lost jobs can be under way", {{"seconds", std::to_string(past.out.count())}});
  std::this_thread::sleep_for(past.out);
}

}  // namespace fairlead::companion
