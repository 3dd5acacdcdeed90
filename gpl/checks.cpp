// SPDX-License-Identifier: GPL-3.0-or-later
#include "checks.h"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "base/clock.h"
#include "base/encoding.h"
#include "base/process.h"
#include "check_trial.h"
#include "nodes.h"

namespace fairlead::companion {
namespace {

constexpr std::string_view kName = "fairlead-check-";
constexpr const char* kUser = "nobody";
constexpr std::size_t kMostScript = 256 << 10;

bool made_of(std::string_view text, std::string_view extra) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || extra.find(c) != extra.npos; });
}
bool digits(std::string_view text) { return !text.empty() && text.size() <= 10 && text.find_first_not_of("0123456789") == text.npos; }
bool host_name(std::string_view text) { return made_of(text, "-_.") && text.front() != '-' && text.size() <= 253; }

int usage() {
  std::fputs("usage: fairlead-slurm check-look UID [NODE...] | check-run UID RUN MINUTES [--reservation NAME] NODE... | check-cancel UID JOB | check-drain NODE MOST REASON | check-comment NODE TEXT\n"
             "       check-try NODE RESERVATION REASON | check-settle NODE RESERVATION|- REASON NEW|-\n", stderr);
  return 2;
}

Result<CheckJob> read_job(std::string_view line, std::string_view prefix) {
  // The name is last, so that nothing a user chooses can move a column.
  auto columns = split(line, '|');
  if (columns.size() < 7) return fail(Code::Invalid, fmt::format("{} columns instead of 7", columns.size()));
  CheckJob job{.id = std::string(trim(columns[0])), .state = std::string(trim(columns[1]))};
  if (columns.size() != 7 || !columns[5].starts_with(prefix)) return job;  // another's: without a run
  const std::string run = columns[5].substr(prefix.size()), status(trim(columns[2]));
  if (!digits(run)) return job;
  if (!digits(job.id) || !made_of(job.state, "_") || !digits(status)) return fail(Code::Invalid, fmt::format("job \"{}\" in state \"{}\" with exit \"{}\"", job.id, job.state, status));
  for (const auto& [column, list] : {std::pair(3, &job.requested), std::pair(4, &job.nodes)}) {
    const std::string text(trim(columns[static_cast<std::size_t>(column)]));
    if (text.empty() || text == "(null)" || text == "N/A") continue;
    auto names = expand_hosts(text);
    if (!names) return pass(std::move(names.error()), "nodes of job " + job.id);
    *list = std::move(*names);
  }
  // As waitpid(2) gives it.
  const auto wait = std::strtoul(status.c_str(), nullptr, 10);
  job.exit_code = static_cast<int>(wait >> 8 & 0xff);
  job.signal = static_cast<int>(wait & 0x7f);
  job.run = run;
  return job;
}

Result<std::vector<CheckJob>> jobs_of(const std::string& uid) {
  auto text = ask_slurm({"squeue", "-h", "-a", "-t", "all", "-u", kUser, "-O", kCheckFormat});
  if (!text) return std::unexpected(std::move(text.error()));
  return read_check_jobs(*text, uid);
}

// Nothing of anybody's runs there, waits there suspended or is being ended.
Result<std::vector<std::string>> empty_among(const std::vector<std::string>& names) {
  std::vector<std::string> out;
  if (names.empty()) return out;
  auto seen = look_at_slurm();
  if (!seen) return std::unexpected(std::move(seen.error()));
  for (const auto& node : seen->nodes)
    if (std::find(names.begin(), names.end(), node.name) != names.end() && node.has("DRAIN") && is_empty(node, seen->jobs)) out.push_back(node.name);
  return out;
}

int look(const std::string& uid, const std::vector<std::string>& asked) {
  // Jobs first: one that starts in between is seen at its node.
  auto jobs = jobs_of(uid);
  if (!jobs) return slurm_failed(jobs.error());
  auto empty = empty_among(asked);
  if (!empty) return slurm_failed(empty.error());
  auto trials = look_at_trials();
  if (!trials) return slurm_failed(trials.error());
  auto text = ask_slurm({"scontrol", "-o", "-a", "show", "nodes"});
  if (!text) return slurm_failed(text.error());
  auto nodes = read_nodes(*text);
  if (!nodes) return slurm_failed(nodes.error());
  std::string out = "{\"answered\":true,\"nodes\":[";
  for (const auto& node : *nodes) {
    out += &node == &nodes->front() ? "\n{\"name\":" : ",\n{\"name\":";
    append_json(out, node.name);
    out += ",\"state\":";
    append_json(out, node.state);
    out += ",\"reason\":";
    append_json(out, node.reason);
    out += '}';
  }
  out += "],\"jobs\":[";
  for (const auto& job : *jobs) {
    out += &job == &jobs->front() ? "\n{\"id\":" : ",\n{\"id\":";
    append_json(out, job.id);
    out += ",\"run\":";
    append_json(out, job.run);
    out += ",\"state\":";
    append_json(out, job.state);
    out += ",\"requested\":";
    append_json(out, job.requested);
    out += ",\"nodes\":";
    append_json(out, job.nodes);
    out += fmt::format(",\"exit\":{},\"signal\":{}}}", job.exit_code, job.signal);
  }
  out += "],\"empty\":";
  append_json(out, *empty);
  out += ",\"trials\":[";
  for (const auto& trial : *trials) {
    out += &trial == &trials->front() ? "\n{\"node\":" : ",\n{\"node\":";
    append_json(out, trial.node);
    out += ",\"reservation\":";
    append_json(out, trial.reservation);
    out += '}';
  }
  out += "]}\n";
  std::fputs(out.c_str(), stdout);
  return 0;
}

// The script's own #SBATCH lines count (GPUs, memory, --exclusive); what is said here stands above them. They are options of sbatch, and some make it read files (--bbf, --export-file): so it runs as nobody itself.
Result<std::string> submit(const std::string& name, const std::string& minutes, const std::string& reservation, const std::string& node, const std::string& script) {
  const passwd* user = ::getpwnam(kUser);
  if (!user) return fail(Code::Conflict, fmt::format("the head's image has no user {}", kUser));
  const char* path = std::getenv("PATH");
  Command command{.argv = {"setpriv", fmt::format("--reuid={}", user->pw_uid), fmt::format("--regid={}", user->pw_gid), "--clear-groups", "--no-new-privs", "sbatch", "--parsable", "--job-name=" + name, "--time=" + minutes, "--output=/dev/null", "--error=/dev/null", "--chdir=/tmp", "--no-requeue"}};
  if (node != "-") command.argv.insert(command.argv.end(), {"--nodelist=" + node, "--nodes=1"});
  if (!reservation.empty()) command.argv.push_back("--reservation=" + reservation);
  command.environment = std::map<std::string, std::string>{{"PATH", path ? path : "/usr/sbin:/usr/bin:/sbin:/bin"}, {"LC_ALL", "C"}};
  auto done = run(std::move(command), std::chrono::seconds(15), script, 64 << 10);
  if (!done) return std::unexpected(std::move(done.error()));
  if (done->exit.code != 0) {
    const std::string why(trim(done->err.empty() ? done->out : done->err));
    return fail(says_no_answer(why) ? Code::Unavailable : Code::Conflict, why.substr(0, 500));
  }
  const std::string id(trim(done->out.substr(0, done->out.find_first_of(";\n"))));
  if (!digits(id)) return fail(Code::Unavailable, "sbatch did not say the job's number");
  return id;
}

std::string read_input() {
  std::string out;
  char buffer[16384];
  for (ssize_t got; out.size() <= kMostScript && (got = ::read(0, buffer, sizeof buffer)) > 0;) out.append(buffer, static_cast<std::size_t>(got));
  return out;
}

int run_on(std::vector<std::string> arguments) {
  std::string reservation;
  if (arguments[4] == "--reservation") {
    reservation = arguments[5];
    arguments.erase(arguments.begin() + 4, arguments.begin() + 6);
  }
  const std::string& uid = arguments[1];
  const std::string name = fmt::format("{}{}-{}", kName, uid, arguments[2]);
  const std::string script = read_input();
  if (script.size() > kMostScript) return not_as_supposed("the script is longer than 256 KiB");
  auto jobs = jobs_of(uid);
  if (!jobs) return slurm_failed(jobs.error());
  std::string out = "{\"jobs\":[";
  for (std::size_t i = 4; i < arguments.size(); ++i) {
    const std::string& node = arguments[i];
    // By an operator that could not write down that it asked.
    const auto there = std::find_if(jobs->begin(), jobs->end(), [&](const CheckJob& job) { return job.run == arguments[2] && (node == "-" ? job.requested.empty() : job.requested == std::vector{node}); });
    auto id = there != jobs->end() ? Result<std::string>(there->id) : submit(name, arguments[3], reservation, node, script);
    if (!id && id.error().code != Code::Conflict) return slurm_failed(id.error());
    out += i > 4 ? ",\n{\"node\":" : "\n{\"node\":";
    append_json(out, node);
    out += id ? ",\"id\":" : ",\"error\":";
    append_json(out, id ? *id : id.error().message);
    out += '}';
  }
  out += "]}\n";
  std::fputs(out.c_str(), stdout);
  return 0;
}

int cancel(const std::string& uid, const std::string& id) {
  auto jobs = jobs_of(uid);
  if (!jobs) return slurm_failed(jobs.error());
  if (std::none_of(jobs->begin(), jobs->end(), [&](const CheckJob& job) { return job.id == id; })) return not_as_supposed("job " + id + " is none of this check");
  auto done = ask_slurm({"scancel", id});
  return done ? 0 : slurm_failed(done.error());
}

int drain(const std::string& name, std::size_t most, const std::string& reason) {
  auto text = ask_slurm({"scontrol", "-o", "-a", "show", "nodes"});
  if (!text) return slurm_failed(text.error());
  auto nodes = read_nodes(*text);
  if (!nodes) return slurm_failed(nodes.error());
  const auto found = std::find_if(nodes->begin(), nodes->end(), [&](const NodeRecord& node) { return node.name == name; });
  if (found == nodes->end()) return not_as_supposed("Slurm has no node " + name);
  // Out of service by somebody's will already: a reason is never overwritten, and a state of theirs never cleared.
  if (found->has("DRAIN") || found->has("FAIL") || found->has("FAILING")) return 0;
  if (found->has("DOWN")) return not_as_supposed(name + " is down");
  auto trials = look_at_trials();
  if (!trials) return slurm_failed(trials.error());
  const auto out = out_for_checks(*nodes, *trials);
  if (out >= most) return not_as_supposed(fmt::format("{} nodes are out of service for checks, and {} may be", out, most));
  auto done = ask_slurm({"scontrol", "update", "nodename=" + name, "state=drain", "reason=" + reason});
  return done ? 0 : slurm_failed(done.error());
}

int comment(const std::string& name, const std::string& words) {
  auto text = ask_slurm({"scontrol", "-o", "show", "node", name});
  if (!text) return slurm_failed(text.error());
  if (const std::string now = comment_of(*text); !now.empty() && !comment_is_ours(now)) return not_as_supposed(fmt::format("{} has a comment of somebody else: {}", name, now));
  auto done = ask_slurm({"scontrol", "update", "nodename=" + name, "comment=" + words});
  return done ? 0 : slurm_failed(done.error());
}

bool plain(std::string_view text) { return !text.empty() && text.size() <= 400 && std::none_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }); }

}  // namespace

Result<std::vector<CheckJob>> read_check_jobs(std::string_view text, std::string_view uid) {
  std::vector<CheckJob> out;
  const std::string prefix = fmt::format("{}{}-", kName, uid);
  if (!text.empty() && text.back() != '\n') return fail(Code::Invalid, "the output is cut off");
  for (const auto& line : split(text, '\n')) {
    if (trim(line).empty()) continue;
    auto job = read_job(line, prefix);
    if (!job) return std::unexpected(std::move(job.error()));
    if (!job->run.empty()) out.push_back(std::move(*job));
  }
  return out;
}

bool comment_is_ours(std::string_view comment) { return comment.find(kCheckMark) != comment.npos; }

std::string comment_of(std::string_view line) {
  const auto at = line.find(" Comment=");
  if (at == line.npos) return "";
  std::string_view rest = line.substr(at + 9);
  return std::string(trim(rest.substr(0, std::min(rest.find(" Reason="), rest.find('\n')))));
}

bool is_check_command(std::string_view command) { return command.starts_with("check-") && command != "check-config"; }

int run_check_command(const std::vector<std::string>& arguments) {
  const std::string& command = arguments[0];
  const auto uid = [&](std::size_t at) { return arguments.size() > at && made_of(arguments[at], "-") && arguments[at].size() <= 64; };
  if (command == "check-look" && arguments.size() >= 2 && uid(1) && std::all_of(arguments.begin() + 2, arguments.end(), host_name)) return look(arguments[1], {arguments.begin() + 2, arguments.end()});
  const auto reason = [&](std::size_t at) { return plain(arguments[at]) && arguments[at].find(kCheckMark) != std::string::npos; };
  if (command == "check-try" && arguments.size() == 4 && host_name(arguments[1]) && trial_name(arguments[2]) && reason(3)) return begin_trial(arguments[1], arguments[2], arguments[3]);
  if (command == "check-settle" && arguments.size() == 5 && host_name(arguments[1]) && (arguments[2] == "-" || trial_name(arguments[2])) && reason(3) && (arguments[4] == "-" || reason(4)))
    return settle(arguments[1], arguments[2], arguments[3], arguments[4]);
  if (command == "check-cancel" && arguments.size() == 3 && uid(1) && digits(arguments[2])) return cancel(arguments[1], arguments[2]);
  if (command == "check-drain" && arguments.size() == 4 && host_name(arguments[1]) && digits(arguments[2]) && plain(arguments[3]) && arguments[3].find(kCheckMark) != std::string::npos)
    return drain(arguments[1], static_cast<std::size_t>(std::atoll(arguments[2].c_str())), arguments[3]);
  if (command == "check-comment" && arguments.size() == 3 && host_name(arguments[1]) && plain(arguments[2]) && comment_is_ours(arguments[2])) return comment(arguments[1], arguments[2]);
  const bool reserved = arguments.size() > 6 && arguments[4] == "--reservation" && trial_name(arguments[5]);
  if (command == "check-run" && arguments.size() > 4 && uid(1) && digits(arguments[2]) && digits(arguments[3]) &&
      std::all_of(arguments.begin() + (reserved ? 6 : 4), arguments.end(), [](const std::string& node) { return node == "-" || host_name(node); }))
    return run_on(arguments);
  return usage();
}

}  // namespace fairlead::companion
