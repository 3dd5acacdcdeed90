// SPDX-License-Identifier: GPL-3.0-or-later
#include "nodes.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>

#include "base/clock.h"
#include "base/encoding.h"
#include "base/process.h"
#include "mark.h"
#include "reach.h"

namespace fairlead::companion {
namespace {

constexpr std::size_t kMostHosts = 65'536, kMostOutput = 32 << 20;
// Reasons: of a drain of ours; Slurm's own for a node that is DOWN because it was silent.
constexpr std::string_view kScaleDown = "fairlead: scale-down", kNotResponding = "Not responding", kExpected = "fairlead: comes when a job needs it";

bool digits(std::string_view text) { return !text.empty() && text.find_first_not_of("0123456789") == text.npos; }
bool word_of(std::string_view text, std::string_view extra) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || extra.find(c) != extra.npos; });
}
bool host_name(std::string_view text) { return word_of(text, "-_."); }

Result<int> number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return fail(Code::Invalid, fmt::format("\"{}\" is not a number", text));
  return value;
}

// "2026-11-21T20:13:01" in UTC, as Slurm writes it; RFC 3339 out. Empty: no time is set.
Result<std::string> utc(std::string_view text) {
  if (text == "N/A" || text == "NONE" || text == "Unknown" || text.empty()) return std::string();
  auto time = parse_time(std::string(text) + "Z");
  if (!time) return fail(Code::Invalid, fmt::format("\"{}\" is not a time", text));
  return print_time(*time);
}

// "text [who@when]", and more text that Slurm or people put behind it.
void read_reason(std::string_view line, NodeRecord& node) {
  const auto at = line.find(" Reason=");
  if (at == line.npos) return;
  std::string_view rest = line.substr(at + 8);
  node.reason = std::string(rest);
  for (auto open = rest.find(" ["); open != rest.npos; open = rest.find(" [", open + 1)) {
    const auto middle = rest.find('@', open), close = rest.find(']', open);
    if (middle == rest.npos || close == rest.npos || middle > close) continue;
    auto since = utc(rest.substr(middle + 1, close - middle - 1));
    if (!since || since->empty()) continue;
    node.reason = std::string(rest.substr(0, open));
    node.by = std::string(rest.substr(open + 2, middle - open - 2));
    node.since = *since;
    return;
  }
}

std::vector<std::string> words_of(std::optional<std::string_view> list) {
  std::vector<std::string> out;
  if (!list || *list == "(null)") return out;
  for (auto& word : split(*list, ','))
    if (!word.empty()) out.push_back(std::move(word));
  return out;
}

// "gpu:2(S:0),gpu:a100:1(IDX:0)", and of jobs "gres:gpu:a100:2" or "gres:gpu". Commas stand in brackets, too.
std::int64_t gpus_of(std::string_view text) {
  std::int64_t out = 0;
  int depth = 0;
  std::string one;
  const auto take = [&] {
    std::string_view part = trim(one);
    if (part.starts_with("gres:") || part.starts_with("gres/")) part.remove_prefix(5);
    if (part == "gpu") out += 1;
    else if (part.starts_with("gpu:")) {
      const auto value = number(part.substr(part.rfind(':') + 1));
      out += value ? *value : 1;  // "gpu:a100": one of them
    }
    one.clear();
  };
  for (const char c : text) {
    if (c == '(') ++depth;
    else if (c == ')') --depth;
    else if (c == ',' && depth == 0) take();
    else if (depth == 0) one += c;
  }
  take();
  return out;
}

// What is not understood counts as nothing: then no job is thought to fit, and nothing else rests on it.
void read_room(std::string_view line, NodeRecord& node) {
  const auto count = [&](std::string_view key) -> std::int64_t {
    const auto text = value_of(line, key);
    const auto value = text ? number(*text) : Result<int>(0);
    return value ? *value : 0;
  };
  node.total = {count("CPUTot="), count("RealMemory="), 0};
  if (const auto gres = value_of(line, "Gres=")) node.total.gpus = gpus_of(*gres);
  if (const auto given = value_of(line, "AllocTRES="))
    if (const auto room = read_tres(*given)) node.given = *room;
  if (const auto used = value_of(line, "GresUsed=")) node.given.gpus = std::max(node.given.gpus, gpus_of(*used));
  node.given.cpus = node.cpus_given;
  node.given.memory = std::max(node.given.memory, count("AllocMem="));
  node.partitions = words_of(value_of(line, "Partitions="));
  node.features = words_of(value_of(line, "ActiveFeatures="));
}

Result<NodeRecord> read_node(std::string_view line) {
  NodeRecord node;
  const auto name = value_of(line, "NodeName="), state = value_of(line, "State="), given = value_of(line, "CPUAlloc="), address = value_of(line, "NodeAddr=");
  if (!name || !line.starts_with("NodeName=") || !host_name(*name)) return fail(Code::Invalid, "a line without a node's name");
  if (!state || state->empty() || !given) return fail(Code::Invalid, fmt::format("node {} without state or CPUs", *name));
  node.name = std::string(*name);
  auto cpus = number(*given);
  if (!cpus) return pass(std::move(cpus.error()), "CPUAlloc of " + node.name);
  node.cpus_given = *cpus;
  if (address) node.address = std::string(*address);
  // "None" while it is DOWN. What is not understood proves nothing, and nothing else rests on it.
  if (const auto started = value_of(line, "SlurmdStartTime="))
    if (auto since = utc(*started)) node.started = std::move(*since);
  read_room(line, node);
  bool silent = false;
  for (std::string flag : split(*state, '+')) {
    while (!flag.empty() && std::string_view("*~#!%$@^-").find(flag.back()) != std::string_view::npos) {
      silent = silent || flag.back() == '*';
      flag.pop_back();
    }
    if (!word_of(flag, "_")) return fail(Code::Invalid, fmt::format("state of {}: \"{}\"", node.name, *state));
    node.state.push_back(std::move(flag));
  }
  if (silent && !node.has("NOT_RESPONDING")) node.state.push_back("NOT_RESPONDING");
  read_reason(line, node);
  // What people write into reason and comment comes before it; newer Slurm has keys behind it.
  if (const auto extra = line.rfind(" Extra="); extra != line.npos) node.extra = std::string(line.substr(extra + 7, line.find(' ', extra + 7) - extra - 7));
  return node;
}

Result<JobRecord> read_job(std::string_view line) {
  // The user is last, so that nothing a user chooses can move a column.
  const auto columns = split(line, '|');
  if (columns.size() != 6) return fail(Code::Invalid, fmt::format("{} columns instead of 6", columns.size()));
  JobRecord job{.id = columns[0], .user = columns[5], .state = columns[1]};
  if (!word_of(job.id, "_[]-,%+.") || (job.id[0] < '0' || job.id[0] > '9')) return fail(Code::Invalid, fmt::format("\"{}\" is not a job", job.id));
  if (!word_of(job.state, "_")) return fail(Code::Invalid, fmt::format("state of job {}: \"{}\"", job.id, job.state));
  for (const auto& [text, list] : {std::pair(&columns[2], &job.nodes), std::pair(&columns[3], &job.requested)}) {
    if (text->empty() || *text == "(null)") continue;
    auto names = expand_hosts(*text);
    if (!names) return pass(std::move(names.error()), "nodes of job " + job.id);
    *list = std::move(*names);
  }
  auto end = utc(columns[4]);
  if (!end) return pass(std::move(end.error()), "end of job " + job.id);
  job.end = std::move(*end);
  return job;
}

Result<QueuedJob> read_queued(std::string_view line) {
  auto columns = split(line, '|');
  if (columns.size() < 11) return fail(Code::Invalid, fmt::format("{} columns instead of 11", columns.size()));
  QueuedJob job{.id = columns[0], .user = columns[3], .reason = columns[9], .reservation = columns[7] == "(null)" ? "" : columns[7]};
  if (!word_of(job.id, "_[]-,%+.") || (job.id[0] < '0' || job.id[0] > '9')) return fail(Code::Invalid, fmt::format("\"{}\" is not a job", job.id));
  auto nodes = number(columns[1]);
  auto cpus = number(columns[2]);
  if (!nodes || !cpus) return fail(Code::Invalid, fmt::format("size of job {}: \"{}\" nodes, \"{}\" CPUs", job.id, columns[1], columns[2]));
  job.nodes = std::max(1, *nodes);
  job.exclusive = columns[8] == "NO";
  job.room.cpus = *cpus;
  job.partitions = words_of(columns[4]);
  for (const auto& [text, list] : {std::pair(&columns[5], &job.requested), std::pair(&columns[6], &job.excluded)}) {
    if (text->empty() || *text == "(null)") continue;
    auto names = expand_hosts(*text);
    if (!names) return pass(std::move(names.error()), "nodes of job " + job.id);
    *list = std::move(*names);
  }
  // Features are joined by '|', too, and last.
  for (std::size_t i = 10; i < columns.size(); ++i) job.features += (i > 10 ? "|" : "") + columns[i];
  if (job.features == "(null)") job.features.clear();
  return job;
}

template <class T, class Read>
Result<std::vector<T>> read_lines(std::string_view text, Read read) {
  std::vector<T> out;
  if (!text.empty() && text.back() != '\n') return fail(Code::Invalid, "the output is cut off");
  for (const auto& line : split(text, '\n')) {
    if (line.empty()) continue;
    auto one = read(line);
    if (!one) return std::unexpected(std::move(one.error()));
    out.push_back(std::move(*one));
  }
  return out;
}

// "0-2,5" inside brackets.
Result<void> expand_range(std::string_view prefix, std::string_view ranges, std::vector<std::string>& out) {
  for (const auto& range : split(ranges, ',')) {
    const auto dash = range.find('-');
    const std::string low = range.substr(0, dash), high = dash == range.npos ? low : range.substr(dash + 1);
    if (!digits(low) || !digits(high) || low.size() > 8 || high.size() > 8) return fail(Code::Invalid, fmt::format("\"{}\" is not a range", range));
    const int from = *number(low), to = *number(high);
    if (to < from || static_cast<std::size_t>(to - from) + out.size() >= kMostHosts) return fail(Code::Invalid, fmt::format("range {} is backwards or too long", range));
    for (int i = from; i <= to; ++i) out.push_back(fmt::format("{}{:0{}}", prefix, i, low.size()));
  }
  return {};
}

}  // namespace

void append_json(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') (out += '\\') += c;
    // What people type into a reason may be any bytes: outside ASCII nothing is decided on it.
    else if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) out += '?';
    else out += c;
  }
  out += '"';
}
void append_json(std::string& out, const std::vector<std::string>& list) {
  out += '[';
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (i) out += ',';
    append_json(out, list[i]);
  }
  out += ']';
}

namespace {
void append_field(std::string& out, std::string_view name, std::string_view value) {
  if (value.empty()) return;
  out += fmt::format(",\"{}\":", name);
  append_json(out, value);
}

}  // namespace

bool says_no_answer(std::string_view text) {
  for (const std::string_view words : {"Unable to contact slurm controller", "Socket timed out", "Zero Bytes were transmitted", "Connection refused", "Connection timed out", "standby mode", "Unable to establish controller machine"})
    if (text.find(words) != text.npos) return true;
  return false;
}

namespace {

bool on(const JobRecord& job, const std::string& node) { return std::find(job.nodes.begin(), job.nodes.end(), node) != job.nodes.end(); }

// Only a node that is to be undrained is asked: does a slurmd take connections where Slurm believes it? Workers register by address; a name is not looked up here, since nobody says how long that takes.
std::map<std::string, bool> slurmd_answers(const std::vector<NodeRecord>& nodes, std::uint16_t port) {
  std::map<std::string, bool> out;
  std::vector<std::string> names;
  std::vector<sockaddr_in> addresses;
  for (const auto& node : nodes) {
    if (!node.has("DRAIN") || !reason_is_ours(node.reason)) continue;
    out[node.name] = false;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    if (::inet_pton(AF_INET, node.address.c_str(), &address.sin_addr) != 1) continue;
    names.push_back(node.name);
    addresses.push_back(address);
  }
  const auto answers = accepting(addresses, 2s);
  for (std::size_t i = 0; i < names.size(); ++i) out[names[i]] = answers[i];
  return out;
}

struct Listing {
  std::uint16_t port = 6818;
  std::optional<std::set<std::string>> nodes;  // only their jobs; none: all jobs
  int queue = 0;                               // so many of the jobs that wait are printed, too
};
std::optional<Listing> read_listing(const std::vector<std::string>& arguments) {
  Listing out;
  for (std::size_t i = 1; i < arguments.size(); i += 2) {
    if (i + 1 == arguments.size()) return std::nullopt;
    if (arguments[i] == "--port") {
      const auto port = number(arguments[i + 1]);
      if (!port || *port < 1 || *port > 65'535) return std::nullopt;
      out.port = static_cast<std::uint16_t>(*port);
    } else if (arguments[i] == "--queue") {
      const auto most = number(arguments[i + 1]);
      if (!most || *most < 1 || *most > 100'000) return std::nullopt;
      out.queue = *most;
    } else if (arguments[i] == "--nodes") {
      auto names = expand_hosts(arguments[i + 1]);
      if (!names) return std::nullopt;
      out.nodes = std::set<std::string>(names->begin(), names->end());
    } else {
      return std::nullopt;
    }
  }
  return out;
}
bool wanted(const Listing& asked, const JobRecord& job) {
  if (!asked.nodes) return !job.nodes.empty() || !job.requested.empty();
  const auto named = [&asked](const std::string& node) { return asked.nodes->contains(node); };
  return std::any_of(job.nodes.begin(), job.nodes.end(), named) || std::any_of(job.requested.begin(), job.requested.end(), named);
}

std::string print_room(const Room& room) { return fmt::format("{{\"cpus\":{},\"memory\":{},\"gpus\":{}}}", room.cpus, room.memory, room.gpus); }

// The jobs that wait. They are asked for before the nodes: what began in between is seen there.
Result<std::vector<QueuedJob>> look_at_queue() {
  auto jobs = ask_slurm({"squeue", "-h", "-a", "-t", "PENDING", "-S", "-p,i", "-o", kQueueFormat});
  if (!jobs) return std::unexpected(std::move(jobs.error()));
  auto rooms = ask_slurm({"squeue", "-h", "-a", "-t", "PENDING", "-O", kQueueRoom});
  if (!rooms) return std::unexpected(std::move(rooms.error()));
  auto out = read_queue(*jobs, *rooms);
  if (!out) return pass(std::move(out.error()), "squeue");
  return out;
}

void append_queue(std::string& out, const std::vector<QueuedJob>& queue, std::size_t most) {
  out += fmt::format(",\"waiting\":{},\"queue\":[", queue.size());
  for (std::size_t i = 0; i < queue.size() && i < most; ++i) {
    const QueuedJob& job = queue[i];
    out += i == 0 ? "\n{\"id\":" : ",\n{\"id\":";
    append_json(out, job.id);
    append_field(out, "user", job.user);
    append_field(out, "reason", job.reason);
    append_field(out, "reservation", job.reservation);
    append_field(out, "features", job.features);
    out += fmt::format(",\"nodes\":{},\"room\":{}{}", job.nodes, print_room(job.room), job.exclusive ? ",\"exclusive\":true" : "");
    for (const auto& [name, list] : {std::pair("partitions", &job.partitions), std::pair("requested", &job.requested), std::pair("excluded", &job.excluded)}) {
      if (list->empty()) continue;
      out += fmt::format(",\"{}\":", name);
      append_json(out, *list);
    }
    out += '}';
  }
  out += ']';
}

int print_look(const SlurmLook& seen, const Listing& asked, const std::vector<QueuedJob>& queue) {
  const SystemClock clock;
  const auto answers = slurmd_answers(seen.nodes, asked.port);
  std::string out = "{\"answered\":true,\"at\":";
  append_json(out, print_micro_time(clock.now()));
  out += ",\"nodes\":[";
  bool first = true;
  for (const auto& node : seen.nodes) {
    out += first ? "\n{\"name\":" : ",\n{\"name\":";
    first = false;
    append_json(out, node.name);
    out += ",\"state\":";
    append_json(out, node.state);
    out += fmt::format(",\"cpus\":{}", node.cpus_given);
    append_field(out, "reason", node.reason);
    append_field(out, "by", node.by);
    append_field(out, "since", node.since);
    if (const auto mark = read_mark(node.extra)) {
      append_field(out, "pod", mark->pod);
      append_field(out, "machine", mark->machine);
    }
    if (asked.queue > 0) {
      out += fmt::format(",\"total\":{},\"given\":{},\"partitions\":", print_room(node.total), print_room(node.given));
      append_json(out, node.partitions);
      out += ",\"features\":";
      append_json(out, node.features);
    }
    if (const auto answer = answers.find(node.name); answer != answers.end()) out += fmt::format(",\"slurmd\":{}", answer->second);
    out += '}';
  }
  out += "],\"jobs\":[";
  first = true;
  for (const auto& job : seen.jobs) {
    if (!wanted(asked, job)) continue;
    out += first ? "\n{\"id\":" : ",\n{\"id\":";
    first = false;
    append_json(out, job.id);
    append_field(out, "user", job.user);
    append_field(out, "state", job.state);
    out += ",\"nodes\":";
    append_json(out, job.nodes);
    if (!job.requested.empty()) {
      out += ",\"requested\":";
      append_json(out, job.requested);
    }
    append_field(out, "end", job.end);
    out += '}';
  }
  out += "]";
  if (asked.queue > 0) append_queue(out, queue, static_cast<std::size_t>(asked.queue));
  // Where slurmctld saves: what does not fit there is not confirmed.
  struct statvfs volume {};
  if (::statvfs("/var/spool/slurmctld", &volume) == 0) out += fmt::format(",\"stateVolume\":{{\"free\":{},\"size\":{}}}", std::uint64_t{volume.f_bavail} * volume.f_frsize, std::uint64_t{volume.f_blocks} * volume.f_frsize);
  out += "}\n";
  std::fputs(out.c_str(), stdout);
  return 0;
}

bool failing(const NodeRecord& node) { return node.has("FAIL") || node.has("FAILING"); }
// With a reason that neither Slurm nor we have written.
bool down_by_somebody(const NodeRecord& node) {
  const std::string_view why = node.reason;
  return node.has("DOWN") && !why.empty() && !why.starts_with(kNotResponding) && !why.starts_with(kDied) && why != kExpected && !reason_is_ours(why);
}


// Slurm makes records as FUTURE or as nodes that jobs may be given to at once; DOWN is reached by way of FUTURE and "resume", which leaves a node silent, so that no job begins on it in between. The address is one
// that the kernel refuses to connect to at once, for slurmctld asks nodes that are DOWN, too, and whoever answers is taken for the node; slurmd gives its own when it registers.
int expect(const std::string& name, const std::string& definition, const NodeRecord* had, const std::vector<JobRecord>& jobs) {
  // One that was defined otherwise and that nobody is on is made anew at once: without it a job that waits for it could be called impossible.
  const auto differs = [&](std::string_view key, std::int64_t has) {
    const auto value = value_of(definition, key);
    const auto wanted = value ? number(*value) : Result<int>(0);
    return wanted && *wanted > 0 && *wanted != has;
  };
  if (had && (had->has("DOWN") || had->has("DRAIN")) && !failing(*had) && is_empty(*had, jobs) && (differs("CPUs=", had->total.cpus) || differs("RealMemory=", had->total.memory)) &&
      (reason_is_ours(had->reason) || had->reason == kExpected || std::string_view(had->reason).starts_with(kDied))) {
    if (const int status = tell_slurm({"scontrol", "delete", "nodename=" + name}); status != 0) return status;
    had = nullptr;
  }
  if (had && !had->has("FUTURE") && !(had->has("NOT_RESPONDING") && had->started.empty() && !had->has("DOWN"))) return 0;
  if (!had) {
    std::vector<std::string> argv = {"scontrol", "create", "nodename=" + name, "NodeAddr=0.0.0.1", "State=FUTURE"};
    for (auto& word : split(definition, ' '))
      if (!word.empty()) argv.push_back(std::move(word));
    if (const int status = tell_slurm(std::move(argv)); status != 0) return status;
  }
  if (!had || had->has("FUTURE"))
    if (const int status = tell_slurm({"scontrol", "update", "nodename=" + name, "state=resume"}); status != 0) return status;
  return tell_slurm({"scontrol", "update", "nodename=" + name, "state=down", "reason=" + std::string(kExpected)});
}

int end_jobs(const std::string& command, const NodeRecord& node, const std::vector<JobRecord>& jobs, const std::vector<std::string>& wanted) {
  if (!node.has("DRAIN")) return not_as_supposed(node.name + " is in service: none of its jobs is ended");
  int status = 0;
  for (const auto& id : wanted) {
    const auto job = std::find_if(jobs.begin(), jobs.end(), [&](const JobRecord& one) { return one.id == id; });
    if (job == jobs.end() || !on(*job, node.name) || job->state == "COMPLETING") continue;  // over, or elsewhere by now
    const int told = tell_slurm(command == "requeue" ? std::vector<std::string>{"scontrol", "requeue", id} : std::vector<std::string>{"scancel", id});
    if (told == kNoAnswer) return told;
    if (told != 0) status = told;
  }
  return status;
}

}  // namespace

// Each key stands after a space, but the first.
std::optional<std::string_view> value_of(std::string_view line, std::string_view key) {
  for (auto at = line.find(key); at != line.npos; at = line.find(key, at + 1))
    if (at == 0 || line[at - 1] == ' ') {
      const auto begin = at + key.size();
      return line.substr(begin, line.find(' ', begin) - begin);
    }
  return std::nullopt;
}

Result<std::string> ask_slurm(std::vector<std::string> argv) {
  Command command{.argv = std::move(argv)};
  const char* path = std::getenv("PATH");
  command.environment = std::map<std::string, std::string>{{"PATH", path ? path : "/usr/sbin:/usr/bin:/sbin:/bin"}, {"TZ", "UTC"}, {"LC_ALL", "C"}};
  if (const char* conf = std::getenv("SLURM_CONF")) command.environment->emplace("SLURM_CONF", conf);
  const std::string name = command.argv[0];
  auto output = run(std::move(command), 10s, {}, kMostOutput + 1);
  if (!output) return std::unexpected(std::move(output.error()));
  if (output->out.size() > kMostOutput) return fail(Code::Exhausted, fmt::format("{}: more than {} bytes of output", name, kMostOutput));
  if (output->exit.code == 0) return std::move(output->out);
  const std::string why(trim(output->err.empty() ? output->out : output->err));
  return fail(says_no_answer(why) ? Code::Unavailable : Code::Conflict, fmt::format("{}: exit status {}: {}", name, output->exit.code, why.substr(0, 2000)));
}

Result<SlurmLook> look_at_slurm() {
  // Jobs first: one that starts in between is seen at its node.
  auto jobs_text = ask_slurm({"squeue", "-h", "-a", "-o", kJobFormat});
  if (!jobs_text) return std::unexpected(std::move(jobs_text.error()));
  auto nodes_text = ask_slurm({"scontrol", "-o", "-a", "-d", "show", "nodes"});
  if (!nodes_text) return std::unexpected(std::move(nodes_text.error()));
  auto jobs = read_jobs(*jobs_text);
  if (!jobs) return pass(std::move(jobs.error()), "squeue");
  auto nodes = read_nodes(*nodes_text);
  if (!nodes) return pass(std::move(nodes.error()), "scontrol show nodes");
  return SlurmLook{std::move(*nodes), std::move(*jobs)};
}

bool NodeRecord::has(std::string_view flag) const { return std::find(state.begin(), state.end(), flag) != state.end(); }

Result<std::vector<NodeRecord>> read_nodes(std::string_view text) {
  if (trim(text) == "No nodes in the system") return std::vector<NodeRecord>();
  return read_lines<NodeRecord>(text, read_node);
}
Result<std::vector<JobRecord>> read_jobs(std::string_view text) { return read_lines<JobRecord>(text, read_job); }

std::optional<Room> read_tres(std::string_view text) {
  Room out;
  if (text.empty() || text == "N/A" || text == "(null)") return out;
  for (const auto& part : split(text, ',')) {
    const auto equals = part.find('=');
    if (equals == part.npos) return std::nullopt;
    const std::string name = part.substr(0, equals), value = part.substr(equals + 1);
    std::int64_t* into = name == "cpu" ? &out.cpus : name == "mem" ? &out.memory : name == "gres/gpu" ? &out.gpus : nullptr;
    if (!into) continue;
    double number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || number < 0 || number > 1e15) return std::nullopt;
    // Memory is in MiB where no unit stands.
    const std::string_view unit(end, value.data() + value.size());
    constexpr std::string_view kUnits = "MGTP";
    if (unit.size() > 1 || (!unit.empty() && (into != &out.memory || (unit != "K" && kUnits.find(unit[0]) == kUnits.npos)))) return std::nullopt;
    if (unit == "K") number /= 1024;
    else if (!unit.empty())
      for (std::size_t i = 0; i < kUnits.find(unit[0]); ++i) number *= 1024;
    *into = number > 1e15 ? std::int64_t{1'000'000'000'000'000} : static_cast<std::int64_t>(number);
  }
  return out;
}

Result<std::vector<QueuedJob>> read_queue(std::string_view jobs, std::string_view rooms) {
  auto out = read_lines<QueuedJob>(jobs, read_queued);
  if (!out) return out;
  auto known = read_rooms(rooms);
  if (!known) return std::unexpected(std::move(known.error()));
  std::erase_if(*out, [&](QueuedJob& job) {
    const auto found = known->find(job.id.substr(0, 127));
    if (found == known->end()) return true;
    const Room room = found->second.of(job.nodes);
    job.room.cpus = std::max(job.room.cpus, room.cpus);
    job.room.memory = room.memory;
    job.room.gpus = room.gpus;
    return false;
  });
  return out;
}

Result<std::map<std::string, AskedRoom>> read_rooms(std::string_view rooms) {
  std::map<std::string, AskedRoom> known;
  for (const auto& line : split(rooms, '\n')) {
    const auto column = [&line](std::size_t begin, std::size_t width) { return begin < line.size() ? trim(std::string_view(line).substr(begin, width)) : std::string_view(); };
    const std::string id(column(0, 128));
    if (id.empty()) continue;
    const auto room = read_tres(column(128, 160));
    if (!room) return fail(Code::Invalid, fmt::format("what job {} asks for: \"{}\"", id, column(128, 160)));
    const auto tasks = number(column(528, 20));
    AskedRoom asked{.room = *room, .gpus_per_node = gpus_of(column(288, 80))};
    asked.room.gpus = std::max({asked.room.gpus, gpus_of(column(368, 80)), gpus_of(column(448, 80)) * (tasks ? *tasks : 1)});
    known[id] = asked;
  }
  return known;
}

Result<std::vector<std::string>> expand_hosts(std::string_view list) {
  std::vector<std::string> out;
  std::size_t at = 0;
  while (at < list.size()) {
    const auto end = list.find_first_of(",[", at);
    const std::string_view prefix = list.substr(at, end - at);
    if (!host_name(prefix)) return fail(Code::Invalid, fmt::format("\"{}\" is not a list of hosts", list));
    if (end == list.npos || list[end] == ',') {
      if (out.size() >= kMostHosts) return fail(Code::Invalid, "too many hosts");
      out.emplace_back(prefix);
      at = end == list.npos ? list.size() : end + 1;
      if (end != list.npos && at == list.size()) return fail(Code::Invalid, fmt::format("\"{}\" ends with a comma", list));
      continue;
    }
    const auto close = list.find(']', end);
    // Nothing may follow the bracket but the next host: Slurm's names here end with their number.
    if (close == list.npos || (close + 1 < list.size() && list[close + 1] != ',') || close + 2 == list.size()) return fail(Code::Invalid, fmt::format("\"{}\" is not a list of hosts", list));
    if (auto done = expand_range(prefix, list.substr(end + 1, close - end - 1), out); !done) return std::unexpected(std::move(done.error()));
    at = std::min(close + 2, list.size());
  }
  return out;
}

bool is_empty(const NodeRecord& node, const std::vector<JobRecord>& jobs) {
  if (node.state.empty() || (node.state[0] != "IDLE" && node.state[0] != "DOWN") || node.has("COMPLETING") || node.cpus_given != 0) return false;
  return std::none_of(jobs.begin(), jobs.end(), [&](const JobRecord& job) { return on(job, node.name); });
}

bool reason_is_ours(std::string_view reason) { return reason.starts_with(kScaleDown); }

std::string reason_of_drain(const NodeRecord& node, const std::string& wanted) { return down_by_somebody(node) ? node.reason : wanted; }

std::string reason_of_death(const NodeRecord& node, const std::string& ours) {
  const bool kept = down_by_somebody(node) || ((node.has("DRAIN") || failing(node)) && !node.reason.empty());
  return kept ? node.reason : std::string(kDied) + " " + ours;
}

bool is_node_command(std::string_view command) {
  return command == "expect" || command == "nodes" || command == "drain" || command == "undrain" || command == "forget" || command == "requeue" || command == "cancel" || command == "lift";
}

int not_as_supposed(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  return 3;
}
int slurm_failed(const Error& error) {
  std::fprintf(stderr, "%s\n", error.message.c_str());
  return error.code == Code::Conflict ? 1 : kNoAnswer;
}
int tell_slurm(std::vector<std::string> argv) {
  auto done = ask_slurm(std::move(argv));
  return done ? 0 : slurm_failed(done.error());
}

int run_node_command(const std::vector<std::string>& arguments) {
  const std::string& command = arguments[0];
  const std::string name = arguments.size() > 1 ? arguments[1] : "";
  const bool listing = command == "nodes", ends = command == "requeue" || command == "cancel";
  const auto asked = listing ? read_listing(arguments) : std::optional<Listing>();
  if (listing ? !asked : !host_name(name) || (ends ? arguments.size() < 3 : arguments.size() != (command == "drain" || command == "expect" || command == "lift" ? 3u : 2u))) {
    std::fputs("usage: fairlead-slurm nodes [--port N] [--nodes worker-[3-5],worker-9] [--queue N] | drain NODE REASON | undrain NODE | lift NODE REASON | forget NODE | expect NODE DEFINITION | requeue NODE JOB... | cancel NODE JOB...\n", stderr);
    return 2;
  }
  Result<std::vector<QueuedJob>> queue = std::vector<QueuedJob>();
  if (listing && asked->queue > 0) queue = look_at_queue();
  auto seen = queue ? look_at_slurm() : Result<SlurmLook>(std::unexpected(queue.error()));
  if (!seen) {
    std::fprintf(stderr, "Slurm does not answer: %s\n", seen.error().message.c_str());
    return kNoAnswer;
  }
  if (listing) return print_look(*seen, *asked, *queue);
  const auto found = std::find_if(seen->nodes.begin(), seen->nodes.end(), [&](const NodeRecord& node) { return node.name == name; });
  const std::string target = "nodename=" + name;
  if (command == "expect") return expect(name, arguments[2], found == seen->nodes.end() ? nullptr : &*found, seen->jobs);
  if (found == seen->nodes.end()) {
    if (command == "forget" || command == "undrain" || command == "lift") return 0;
    return not_as_supposed("Slurm has no node " + name);
  }
  if (command == "drain") {
    if (found->has("DRAIN")) return 0;  // whoever did it: a reason is never overwritten
    // Its owner took it out of service already; "drain" would clear that state and "undrain" bring the node back.
    if (failing(*found)) return not_as_supposed(fmt::format("{} is set to fail by {}: {}", name, found->by, found->reason));
    return tell_slurm({"scontrol", "update", target, "state=drain", "reason=" + reason_of_drain(*found, arguments[2])});
  }
  if (command == "undrain") {
    if (!found->has("DRAIN")) return 0;
    if (failing(*found) || !reason_is_ours(found->reason)) return not_as_supposed(fmt::format("{} was drained by {}: {}", name, found->by, found->reason));
    // Not "resume", which would also bring back a node that is DOWN. Slurm 22.05.8 calls the node silent until its next ping, about a second later.
    return tell_slurm({"scontrol", "update", target, "state=undrain"});
  }
  if (command == "lift") {
    if (!found->has("DRAIN") && !failing(*found) && !found->has("DOWN")) return 0;
    if (found->reason != arguments[2]) return not_as_supposed(fmt::format("{} is out of service by {}: {}", name, found->by, found->reason));
    return tell_slurm({"scontrol", "update", target, "state=resume"});
  }
  if (command == "forget") {
    if (!is_empty(*found, seen->jobs)) return not_as_supposed(name + " is not empty");
    if (!found->has("DRAIN") && !found->has("DOWN") && !found->has("NOT_RESPONDING")) return not_as_supposed(name + " is in service");
    return tell_slurm({"scontrol", "delete", target});
  }
  return end_jobs(command, *found, seen->jobs, {arguments.begin() + 2, arguments.end()});
}

}  // namespace fairlead::companion
