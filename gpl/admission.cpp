// SPDX-License-Identifier: GPL-3.0-or-later
#include "admission.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <map>
#include <random>

#include "base/encoding.h"

namespace fairlead::companion {
namespace {

bool digits(std::string_view text) { return !text.empty() && text.size() < 12 && text.find_first_not_of("0123456789") == text.npos; }
// "7" or "7_3"
bool job_name(std::string_view text) {
  const auto bar = text.find('_');
  return digits(text.substr(0, bar)) && (bar == text.npos || digits(text.substr(bar + 1)));
}
// As job_name, or "7+1": one component.
bool line_name(std::string_view text) {
  const auto plus = text.find('+');
  return plus == text.npos ? job_name(text) : digits(text.substr(0, plus)) && digits(text.substr(plus + 1));
}
std::string whole(const std::string& id) { return id.substr(0, id.find('+')); }

template <class Number = int>
Number count_of(std::string_view text) {
  Number value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : -1;
}

// Furthest from waiting last.
int rank_of(std::string_view state) {
  if (state == "PENDING") return 1;
  if (state == "COMPLETING") return 3;
  for (const std::string_view over : {"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY", "REVOKED", "SPECIAL_EXIT"})
    if (state == over) return 0;
  return 2;
}

struct Line {
  std::string id, state, reason, user, account;
  int nodes = 0, cpus = 0;
  std::int64_t priority = 0, limit_seconds = 0;
  bool depends = false;
};

Result<Line> read_line(std::string_view text) {
  const auto columns = split(text, '|');
  if (columns.size() < 10) return fail(Code::Invalid, fmt::format("{} columns instead of 10", columns.size()));
  Line line{.id = columns[0], .state = columns[1], .reason = columns[2], .user = columns[7], .account = columns[9], .nodes = count_of(columns[3]), .cpus = count_of(columns[4]), .priority = count_of<std::int64_t>(columns[5]), .limit_seconds = read_time_limit(columns[8]), .depends = !columns[6].empty() && columns[6] != "(null)"};
  for (std::size_t i = 10; i < columns.size(); ++i) line.account += "|" + columns[i];
  line.account = trim(line.account);
  if (line.account == "(null)") line.account.clear();
  if (!line_name(line.id)) return fail(Code::Invalid, fmt::format("\"{}\" is not a job", line.id));
  if (line.state.empty() || line.state.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_") != std::string::npos) return fail(Code::Invalid, fmt::format("state of job {}: \"{}\"", line.id, line.state));
  if (line.priority < 0) return fail(Code::Invalid, fmt::format("priority of job {}: \"{}\"", line.id, columns[5]));
  if (line.nodes < 0 || line.cpus < 0) return fail(Code::Invalid, fmt::format("size of job {}: \"{}\" nodes, \"{}\" CPUs", line.id, columns[3], columns[4]));
  return line;
}

Result<std::vector<GovernedJob>> look(const std::vector<std::string>& states) {
  const std::string word = fmt::format("{:016x}", std::uint64_t{std::random_device()()} << 32 | std::random_device()());
  std::vector<std::string> argv = {"squeue", "-h", "-a", "-r", "-S", "i"};  // components in order
  argv.insert(argv.end(), states.begin(), states.end());
  auto of_jobs = argv, of_rooms = argv;
  of_jobs.insert(of_jobs.end(), {"-o", word + kGovernedFormat});
  of_rooms.insert(of_rooms.end(), {"-O", governed_room()});
  auto jobs = ask_slurm(std::move(of_jobs));
  if (!jobs) return std::unexpected(std::move(jobs.error()));
  auto rooms = ask_slurm(std::move(of_rooms));
  if (!rooms) return std::unexpected(std::move(rooms.error()));
  auto out = read_governed(*jobs, *rooms, word);
  if (!out) return pass(std::move(out.error()), "squeue");
  return out;
}

void append(std::string& out, const GovernedJob& job) {
  out += "{\"id\":";
  append_json(out, job.id);
  for (const auto& [name, value] : {std::pair("state", &job.state), std::pair("reason", &job.reason), std::pair("user", &job.user), std::pair("account", &job.account), std::pair("comment", &job.comment)}) {
    if (value->empty()) continue;
    out += fmt::format(",\"{}\":", name);
    append_json(out, *value);
  }
  if (job.held()) out += ",\"held\":true";
  if (job.held_by_user()) out += ",\"heldByUser\":true";
  if (job.depends) out += ",\"depends\":true";
  if (job.limit_seconds > 0) out += fmt::format(",\"limitSeconds\":{}", job.limit_seconds);
  out += ",\"parts\":[";
  for (std::size_t i = 0; i < job.parts.size(); ++i)
    out += fmt::format("{}{{\"nodes\":{},\"cpus\":{},\"memory\":{},\"gpus\":{}}}", i == 0 ? "" : ",", job.parts[i].nodes, job.parts[i].room.cpus, job.parts[i].room.memory, job.parts[i].room.gpus);
  out += "]}";
}

int print_jobs(const std::vector<std::string>& of) {
  auto jobs = look({});
  if (!jobs) return slurm_failed(jobs.error());
  std::set<std::string> missed(of.begin(), of.end());
  for (const GovernedJob& job : *jobs) missed.erase(job.id);
  if (!missed.empty()) {
    auto all = look({"-t", "all"});
    if (!all) return slurm_failed(all.error());
    for (GovernedJob& job : *all)
      if (missed.contains(job.id)) jobs->push_back(std::move(job));
  }
  std::string out = "{\"jobs\":[";
  for (std::size_t i = 0; i < jobs->size(); ++i) {
    out += i == 0 ? "\n" : ",\n";
    append(out, (*jobs)[i]);
  }
  out += "]}\n";
  std::fputs(out.c_str(), stdout);
  return 0;
}

// Nothing: Slurm knows no such job.
Result<std::optional<GovernedJob>> find_job(const std::string& id) {
  auto jobs = look({"-t", "all", "-j", id});
  if (!jobs && jobs.error().message.find("Invalid job id") != std::string::npos) return std::optional<GovernedJob>();
  if (!jobs) return std::unexpected(std::move(jobs.error()));
  for (GovernedJob& job : *jobs)
    if (job.id == id) return std::optional(std::move(job));
  return std::optional<GovernedJob>();
}

int requeue(const GovernedJob& job) {
  // Held first: when it is back in the queue nobody can let it go.
  if (const int held = tell_slurm({"scontrol", "hold", job.id}); held != 0) return held;
  if (rank_of(job.state) != 2) return 0;  // it waits, or its nodes are being cleaned already
  auto done = ask_slurm({"scontrol", "requeue", job.id});
  if (done) return 0;
  // srun, salloc; --no-requeue.
  const std::string& why = done.error().message;
  if (why.find("Only batch jobs") != std::string::npos || why.find("presently disabled") != std::string::npos) return tell_slurm({"scancel", job.id});
  return slurm_failed(done.error());
}

}  // namespace

std::string governed_room() { return fmt::format("{},admin_comment:{}", kQueueRoom, kCommentWidth); }

std::int64_t read_time_limit(std::string_view text) {
  std::int64_t days = 0, seconds = 0;
  if (const auto dash = text.find('-'); dash != text.npos) {
    if ((days = count_of<std::int64_t>(text.substr(0, dash))) < 0) return 0;
    text.remove_prefix(dash + 1);
  }
  const auto words = split(text, ':');
  if (words.size() < 2 || words.size() > 3) return 0;
  for (const std::string& word : words) {
    const auto value = count_of<std::int64_t>(word);
    if (value < 0 || value > 1'000'000) return 0;
    seconds = seconds * 60 + value;
  }
  return days > 100'000 ? 0 : days * 86'400 + seconds;
}

Result<std::vector<GovernedJob>> read_governed(std::string_view jobs, std::string_view rooms, std::string_view word) {
  auto asked = read_rooms(rooms);
  if (!asked) return std::unexpected(std::move(asked.error()));
  std::map<std::string, std::string> comments;
  for (const auto& line : split(rooms, '\n'))
    if (const auto words = line.size() > kCommentAt ? trim(std::string_view(line).substr(kCommentAt, kCommentWidth)) : std::string_view(); !words.empty() && words != "(null)")
      comments[std::string(trim(std::string_view(line).substr(0, 128)))] = words;
  std::vector<GovernedJob> out;
  std::map<std::string, std::size_t> places;
  std::string whole_line;
  const auto take = [&]() -> Result<void> {
    if (whole_line.empty()) return {};
    auto line = read_line(whole_line);
    whole_line.clear();
    if (!line) return std::unexpected(std::move(line.error()));
    const auto found = asked->find(line->id.substr(0, 127));
    if (found == asked->end()) return {};
    GovernedJob::Part part{.nodes = std::max(1, line->nodes), .room = found->second.of(std::max(1, line->nodes))};
    part.room.cpus = std::max<std::int64_t>(part.room.cpus, line->cpus);
    const std::string id = whole(line->id);
    const auto [place, first] = places.emplace(id, out.size());
    if (first) out.push_back({.id = id, .state = line->state, .reason = line->reason, .user = line->user, .account = line->account, .comment = comments[line->id.substr(0, 127)], .priority = line->priority, .depends = line->depends, .limit_seconds = line->limit_seconds, .parts = {}});
    GovernedJob& job = out[place->second];
    if (!first && (line->id == id || rank_of(line->state) > rank_of(job.state))) {
      if (line->id == id) return fail(Code::Invalid, fmt::format("job {} is there twice", id));
      job.state = line->state;
      job.reason = line->reason;
      job.priority = line->priority;
    }
    job.limit_seconds = job.limit_seconds == 0 || line->limit_seconds == 0 ? 0 : std::max(job.limit_seconds, line->limit_seconds);
    job.parts.push_back(part);
    return {};
  };
  for (const auto& line : split(jobs, '\n')) {
    if (std::string_view(line).starts_with(word)) {
      if (auto done = take(); !done) return std::unexpected(std::move(done.error()));
      whole_line = line.substr(word.size());
    } else if (!whole_line.empty()) {
      whole_line += " " + line;  // of the account, which may be any text
    } else if (!trim(line).empty()) {
      return fail(Code::Invalid, "a line that nobody asked for");
    }
  }
  if (auto done = take(); !done) return std::unexpected(std::move(done.error()));
  return out;
}

bool is_admission_command(std::string_view command) {
  return command == "queue-look" || command == "queue-hold" || command == "queue-release" || command == "queue-requeue" || command == "queue-comment";
}

int run_admission_command(const std::vector<std::string>& arguments) {
  const std::string& command = arguments[0];
  const std::string first = arguments.size() > 1 ? arguments[1] : "";
  if (command == "queue-look" && (arguments.size() == 1 || (arguments.size() == 3 && first == "--of"))) {
    const auto of = arguments.size() == 3 ? split(arguments[2], ',') : std::vector<std::string>();
    if (std::all_of(of.begin(), of.end(), [](const std::string& id) { return job_name(id); })) return print_jobs(of);
  }
  if (command == "queue-look" || !job_name(first) || arguments.size() != (command == "queue-comment" ? 3u : 2u)) {
    std::fputs("usage: fairlead-slurm queue-look [--of JOB,JOB...] | queue-hold JOB | queue-release JOB | queue-requeue JOB | queue-comment JOB TEXT\n", stderr);
    return 2;
  }
  auto job = find_job(first);
  if (!job) return slurm_failed(job.error());
  if (!*job || rank_of((*job)->state) == 0) return not_as_supposed(fmt::format("job {} is over", first));
  if (command == "queue-comment") return tell_slurm({"scontrol", "update", "jobid=" + first, "admincomment=" + arguments[2].substr(0, kCommentWidth - 1)});
  if (command == "queue-hold") return (*job)->state == "PENDING" ? tell_slurm({"scontrol", "hold", first}) : not_as_supposed(fmt::format("job {} does not wait: {}", first, (*job)->state));
  if (command == "queue-requeue") return requeue(**job);
  if (!(*job)->held()) return 0;  // it is let go, or its user holds it
  return tell_slurm({"scontrol", "release", first});
}

}  // namespace fairlead::companion
