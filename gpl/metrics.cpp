// SPDX-License-Identifier: GPL-3.0-or-later
#include "metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/encoding.h"

namespace fairlead::companion {
namespace {

constexpr std::int64_t kMega = 1 << 20;
constexpr std::size_t kMostReasons = 1000;  // label sets of slurm_node_fails_total: reasons are free text

std::int64_t number_in(std::string_view line, std::string_view key, std::int64_t otherwise = 0) {
  const auto text = value_of(line, key);
  std::int64_t value = 0;
  if (!text || std::from_chars(text->data(), text->data() + text->size(), value).ec != std::errc() || value < 0) return otherwise;
  return value;
}

// The amount behind NAME= in "cpu=4,mem=7800M,gres/gpu=2"; memory in bytes.
std::int64_t tres(std::string_view list, std::string_view name) {
  for (const auto& one : split(list, ',')) {
    if (!one.starts_with(name) || one.size() <= name.size() || one[name.size()] != '=') continue;
    const std::string_view text = std::string_view(one).substr(name.size() + 1);
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || value < 0 || value > 1e15) return 0;
    double unit = name == "mem" ? static_cast<double>(kMega) : 1;
    if (end != text.data() + text.size()) unit = *end == 'K' ? 1024.0 : *end == 'M' ? 1048576.0 : *end == 'G' ? 1073741824.0 : *end == 'T' ? 1099511627776.0 : unit;
    return static_cast<std::int64_t>(value * unit);
  }
  return 0;
}

// Seconds since 1970 of Slurm's "2026-11-21T20:13:01"; empty: none.
std::string epoch(std::string_view text) {
  const auto time = parse_time(std::string(text) + "Z");
  return time ? std::to_string(std::chrono::duration_cast<std::chrono::seconds>(time->time_since_epoch()).count()) : "";
}

std::string_view known(std::string_view text) { return text == "N/A" || text == "(null)" || text == "Unknown" || text == "None" ? "" : text; }

bool failed(const MetricNode& node) { return node.record.has("DOWN") || node.record.has("ERROR") || node.record.has("FAIL") || node.record.has("FAILING") || node.record.has("DRAIN"); }

const char* yes(bool value) { return value ? "true" : "false"; }

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') out += "\\n";
    else if (static_cast<unsigned char>(c) < ' ') out += ' ';
    else out += c;
  }
  return out;
}

// A text that is not UTF-8 would spoil the whole answer for a scraper.
std::string utf8(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const auto c = static_cast<unsigned char>(text[i]);
    const std::size_t length = c < 0x80 ? 1 : c >= 0xc2 && c < 0xe0 ? 2 : c >= 0xe0 && c < 0xf0 ? 3 : c >= 0xf0 && c < 0xf5 ? 4 : 0;
    bool whole = length > 0 && i + length <= text.size();
    for (std::size_t k = 1; whole && k < length; ++k) whole = (static_cast<unsigned char>(text[i + k]) & 0xc0) == 0x80;
    if (whole) out += text.substr(i, length);
    else out += '?';
    i += whole ? length : 1;
  }
  return out;
}

class Printer {
 public:
  void family(const char* name, const char* type, const char* help) {
    name_ = name;
    out_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  using Pairs = std::vector<std::pair<const char*, std::string>>;
  void sample(const Pairs& labels, double value, const char* suffix = "") {
    out_ += name_;
    out_ += suffix;
    for (std::size_t i = 0; i < labels.size(); ++i) out_ += fmt::format("{}{}=\"{}\"", i ? "," : "{", labels[i].first, escaped(utf8(labels[i].second)));
    if (!labels.empty()) out_ += '}';
    out_ += value == static_cast<double>(static_cast<std::int64_t>(value)) ? fmt::format(" {}\n", static_cast<std::int64_t>(value)) : fmt::format(" {}\n", value);
  }
  void histogram(const std::string& node, const MetricHistory::Histogram& of) {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < of.below.size(); ++i) {
      sum += of.below[i];
      sample({{"node_name", node}, {"le", fmt::format("{}", of.kBounds[i])}}, static_cast<double>(sum), "_bucket");
    }
    sample({{"node_name", node}, {"le", "+Inf"}}, static_cast<double>(of.count), "_bucket");
    sample({{"node_name", node}}, of.sum, "_sum");
    sample({{"node_name", node}}, static_cast<double>(of.count), "_count");
  }
  std::string take() { return std::move(out_); }

 private:
  std::string name_, out_;
};

Printer::Pairs node_labels(const MetricNode& node) {
  const auto flag = [&](std::string_view word) { return std::string(yes(node.record.has(word))); };
  return {{"node_name", node.record.name},
          {"instance_id", ""},
          {"state_base", node.record.state.front()},
          {"state_is_drain", flag("DRAIN")},
          {"state_is_maintenance", yes(node.record.has("MAINTENANCE") || node.record.has("MAINT"))},
          {"state_is_reserved", flag("RESERVED")},
          {"state_is_completing", flag("COMPLETING")},
          {"state_is_fail", flag("FAIL")},
          {"state_is_planned", flag("PLANNED")},
          {"state_is_not_responding", flag("NOT_RESPONDING")},
          {"state_is_invalid", yes(node.record.has("INVALID_REG") || node.record.has("INVALID"))},
          {"state_is_cloud", flag("CLOUD")},
          {"state_is_power_down", flag("POWER_DOWN")},
          {"state_is_power_drain", flag("POWER_DRAIN")},
          {"state_is_powered_down", flag("POWERED_DOWN")},
          {"state_is_powering_down", flag("POWERING_DOWN")},
          {"state_is_powering_up", flag("POWERING_UP")},
          {"state_is_power_up", flag("POWER_UP")},
          {"is_unavailable", yes(node.unavailable())},
          {"reservation_name", node.reservation},
          {"address", node.record.address},
          {"reason", node.record.reason},
          {"comment", node.comment}};
}

MetricHistory::Labels state_labels(const MetricNode& node) {
  return {node.record.name, node.record.state.front(), yes(node.record.has("DRAIN")), yes(node.record.has("MAINTENANCE") || node.record.has("MAINT")), yes(node.record.has("RESERVED"))};
}
constexpr const char* kStateLabels[] = {"node_name", "state_base", "state_is_drain", "state_is_maintenance", "state_is_reserved", "reason"};
Printer::Pairs pairs_of(const MetricHistory::Labels& labels) {
  Printer::Pairs out;
  for (std::size_t i = 0; i < labels.size(); ++i) out.emplace_back(kStateLabels[i], labels[i]);
  return out;
}

std::optional<double> duration(const MetricJob& job, Instant now) {
  if (job.start.empty() || job.state == "PENDING") return std::nullopt;
  const double from = std::stod(job.start), current = std::chrono::duration<double>(now.time_since_epoch()).count();
  const double to = job.end.empty() || job.state == "RUNNING" || job.state == "SUSPENDED" ? current : std::min(std::stod(job.end), current);
  return std::max(0.0, to - from);
}

void print_nodes(Printer& out, const std::vector<MetricNode>& nodes) {
  out.family("slurm_node_info", "gauge", "State of a Slurm node; always 1.");
  for (const auto& node : nodes) out.sample(node_labels(node), 1);
  const auto amount = [&](const char* name, const char* help, auto value) {
    out.family(name, "gauge", help);
    for (const auto& node : nodes)
      if (const std::optional<std::int64_t> v = value(node)) out.sample({{"node_name", node.record.name}}, static_cast<double>(*v));
  };
  amount("slurm_node_cpus_total", "CPUs of a node.", [](const MetricNode& n) { return n.cpus; });
  amount("slurm_node_cpus_allocated", "CPUs given to jobs.", [](const MetricNode& n) { return std::int64_t{n.record.cpus_given}; });
  amount("slurm_node_cpus_idle", "CPUs that are given to nobody.", [](const MetricNode& n) { return std::max<std::int64_t>(0, n.cpus_effective - n.record.cpus_given); });
  amount("slurm_node_cpus_effective", "CPUs that jobs can have.", [](const MetricNode& n) { return n.cpus_effective; });
  amount("slurm_node_memory_total_bytes", "Memory of a node.", [](const MetricNode& n) { return n.memory; });
  amount("slurm_node_memory_allocated_bytes", "Memory given to jobs.", [](const MetricNode& n) { return n.memory_given; });
  amount("slurm_node_memory_free_bytes", "Memory that the node says is free.", [](const MetricNode& n) { return n.memory_free; });
  amount("slurm_node_memory_effective_bytes", "Memory that jobs can have.", [](const MetricNode& n) { return n.memory - n.memory_reserved; });
  out.family("slurm_node_partition", "gauge", "Partitions of a node; always 1.");
  for (const auto& node : nodes)
    for (const auto& partition : node.partitions) out.sample({{"node_name", node.record.name}, {"partition", partition}}, 1);
  // Nobody tells this version of Slurm which nodes share NVLink.
  out.family("slurm_node_nvlink_instance_group", "gauge", "Nodes that share NVLink; always 1.");
}

void print_jobs(Printer& out, const std::vector<MetricJob>& jobs, Instant now) {
  out.family("slurm_job_info", "gauge", "A Slurm job; always 1.");
  for (const auto& job : jobs) {
    const bool over = job.state != "PENDING" && job.state != "RUNNING" && job.state != "SUSPENDED" && job.state != "COMPLETING" && job.state != "CONFIGURING";
    out.sample({{"job_id", job.id}, {"job_state", job.state}, {"job_state_reason", job.reason}, {"slurm_partition", job.partition}, {"job_name", job.name}, {"user_name", job.user}, {"user_mail", job.mail},
                {"user_id", job.uid}, {"standard_error", job.standard_error}, {"standard_output", job.standard_out}, {"array_job_id", job.array}, {"array_task_id", job.task}, {"submit_time", job.submit},
                {"start_time", job.start}, {"end_time", job.end}, {"finished_time", over ? job.end : ""}},
               1);
  }
  out.family("slurm_node_job", "gauge", "Jobs on a node; always 1.");
  for (const auto& job : jobs)
    for (const auto& node : job.nodes) out.sample({{"job_id", job.id}, {"node_name", node}, {"nvlink_instance_group", ""}, {"nodeset_name", ""}}, 1);
  out.family("slurm_job_duration_seconds", "gauge", "How long a job has run.");
  for (const auto& job : jobs)
    if (const auto seconds = duration(job, now)) out.sample({{"job_id", job.id}}, *seconds);
  out.family("slurm_job_cpus", "gauge", "CPUs that a job has or asks for.");
  for (const auto& job : jobs) out.sample({{"job_id", job.id}}, static_cast<double>(job.cpus));
  out.family("slurm_job_memory_bytes", "gauge", "Memory that a job has or asks for.");
  for (const auto& job : jobs) out.sample({{"job_id", job.id}}, static_cast<double>(job.memory));
}

void print_controller(Printer& out, const MetricController& controller) {
  const auto family = [&](const char* name, const char* help, const std::vector<MetricRpc>& rpcs, bool users, bool seconds) {
    out.family(name, "counter", help);
    for (const auto& rpc : rpcs) {
      Printer::Pairs labels = users ? Printer::Pairs{{"user", rpc.name}, {"user_id", rpc.uid}} : Printer::Pairs{{"message_type", rpc.name}};
      out.sample(labels, seconds ? rpc.seconds : static_cast<double>(rpc.calls));
    }
  };
  family("slurm_controller_rpc_calls_total", "Requests to slurmctld by type, since its statistics began.", controller.types, false, false);
  family("slurm_controller_rpc_duration_seconds_total", "Time that they took.", controller.types, false, true);
  family("slurm_controller_rpc_user_calls_total", "Requests to slurmctld by user, since its statistics began.", controller.users, true, false);
  family("slurm_controller_rpc_user_duration_seconds_total", "Time that they took.", controller.users, true, true);
  out.family("slurm_controller_server_thread_count", "gauge", "Threads of slurmctld at work.");
  out.sample({}, static_cast<double>(controller.threads));
}

}  // namespace

bool MetricNode::unavailable() const {
  if (record.has("DOWN") || record.has("ERROR") || record.has("NOT_RESPONDING") || record.has("FAIL") || record.has("POWERED_DOWN")) return true;
  return record.has("DRAIN") && record.cpus_given == 0 && !record.has("COMPLETING");
}

Result<std::vector<MetricNode>> read_metric_nodes(std::string_view text) {
  auto records = read_nodes(text);
  if (!records) return std::unexpected(std::move(records.error()));
  std::vector<MetricNode> out;
  auto record = records->begin();
  for (const auto& line : split(text, '\n')) {
    if (line.empty()) continue;
    if (record == records->end()) return fail(Code::Invalid, "more lines than nodes");
    MetricNode node{.record = std::move(*record++)};
    node.cpus = number_in(line, "CPUTot=");
    node.cpus_effective = number_in(line, "CPUEfctv=", node.cpus);
    node.memory = number_in(line, "RealMemory=") * kMega;
    node.memory_given = number_in(line, "AllocMem=") * kMega;
    node.memory_reserved = number_in(line, "MemSpecLimit=") * kMega;
    if (const auto free = number_in(line, "FreeMem=", -1); free >= 0) node.memory_free = free * kMega;
    node.gpus = tres(value_of(line, "CfgTRES=").value_or(""), "gres/gpu");
    for (auto& partition : split(value_of(line, "Partitions=").value_or(""), ','))
      if (!partition.empty()) node.partitions.push_back(std::move(partition));
    node.reservation = std::string(known(value_of(line, "ReservationName=").value_or("")));
    // The comment is the last of the line, behind the reason; both are free text.
    if (const auto at = line.rfind(" Comment="); at != line.npos) node.comment = line.substr(at + 9);
    out.push_back(std::move(node));
  }
  return out;
}

std::vector<MetricJob> read_metric_jobs(std::string_view queue, std::string_view details) {
  std::map<std::string, std::string> detail;  // by job id
  for (auto& line : split(details, '\n'))
    if (line.starts_with("JobId=")) detail[line.substr(6, line.find(' ') - 6)] = std::move(line);
  std::vector<MetricJob> out;
  for (const auto& line : split(queue, '\n')) {
    std::vector<std::string> columns;
    std::string_view rest = line;
    for (int i = 0; i < 13 && rest.find('|') != rest.npos; ++i) {
      columns.emplace_back(rest.substr(0, rest.find('|')));
      rest.remove_prefix(columns.back().size() + 1);
    }
    if (columns.size() != 13 || columns[0].empty() || columns[0].find_first_not_of("0123456789") != std::string::npos || columns[3].find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_") != std::string::npos) continue;
    MetricJob job{.id = columns[0], .array = columns[1] == columns[0] && known(columns[2]).empty() ? "" : columns[1], .task = std::string(known(columns[2])), .state = columns[3], .reason = columns[12], .partition = columns[4],
                  .user = columns[5], .uid = columns[6], .submit = epoch(columns[7]), .start = epoch(columns[8]), .end = epoch(columns[9]), .name = std::string(rest)};
    if (auto nodes = expand_hosts(known(columns[11])); nodes && !known(columns[11]).empty()) job.nodes = std::move(*nodes);
    job.cpus = number_in("x=" + columns[10], "x=");
    if (const auto found = detail.find(job.id); found != detail.end()) {
      std::string more = found->second;
      // The name comes early and may look like anything: without it the first of each key is Slurm's.
      if (const auto at = more.find(" JobName=" + job.name); at != std::string::npos) more.erase(at, 9 + job.name.size());
      job.memory = tres(value_of(more, "TRES=").value_or(""), "mem");
      job.standard_error = std::string(known(value_of(more, "StdErr=").value_or("")));
      job.standard_out = std::string(known(value_of(more, "StdOut=").value_or("")));
      job.mail = std::string(known(value_of(more, "MailUser=").value_or("")));
    }
    out.push_back(std::move(job));
  }
  return out;
}

Result<MetricController> read_sdiag(std::string_view text) {
  MetricController out;
  enum class Part { Head, Types, Users, Rest } part = Part::Head;
  bool threads = false;
  for (const auto& whole : split(text, '\n')) {
    const std::string line(trim(whole));
    if (line.starts_with("Remote Procedure Call statistics by message type")) part = Part::Types;
    else if (line.starts_with("Remote Procedure Call statistics by user")) part = Part::Users;
    else if (line.starts_with("Pending RPC statistics")) part = Part::Rest;
    else if (line.starts_with("Server thread count:")) {
      out.threads = number_in("x=" + std::string(trim(line.substr(20))), "x=");
      threads = true;
    } else if (part == Part::Types || part == Part::Users) {
      // NAME ( 2009) count:36     ave_time:217    total_time:7835
      const auto open = line.find('('), close = line.find(')', open), count = line.find("count:", close), total = line.find("total_time:", close);
      if (open == line.npos || close == line.npos || count == line.npos || total == line.npos) continue;
      MetricRpc rpc{.name = std::string(trim(line.substr(0, open))), .uid = std::string(trim(line.substr(open + 1, close - open - 1)))};
      rpc.calls = number_in("x=" + line.substr(count + 6), "x=");
      rpc.seconds = static_cast<double>(number_in("x=" + line.substr(total + 11), "x=")) / 1e6;
      (part == Part::Types ? out.types : out.users).push_back(std::move(rpc));
    }
  }
  if (!threads || part == Part::Head) return fail(Code::Invalid, "sdiag: what it says is not understood");
  return out;
}

void MetricHistory::Histogram::add(double seconds) {
  ++count;
  sum += seconds;
  const auto* const bound = std::lower_bound(kBounds.begin(), kBounds.end(), seconds);
  if (bound != kBounds.end()) ++below[static_cast<std::size_t>(bound - kBounds.begin())];
}

void MetricHistory::look(const std::vector<MetricNode>& nodes, std::chrono::nanoseconds monotonic) {
  const double elapsed = last_ ? std::chrono::duration<double>(monotonic - *last_).count() : 0;
  std::map<std::string, Node> next;
  for (const MetricNode& node : nodes) {
    const std::string& name = node.record.name;
    const auto before = nodes_.find(name);
    Node now = before == nodes_.end() ? Node{} : before->second;
    const bool first = before == nodes_.end();
    if (node.gpus > 0) gpu_seconds_[state_labels(node)] += first ? 0 : elapsed * static_cast<double>(node.gpus);
    const auto follow = [&](bool is, bool& was, std::optional<std::chrono::nanoseconds>& since, std::map<std::string, Histogram>& into) {
      if (is && !was && !first) since = monotonic;
      if (!is && was && since) into[name].add(std::chrono::duration<double>(monotonic - *since).count());
      if (!is) since.reset();
      was = is;
    };
    const bool had_failed = now.had_failed;
    now.had_failed = failed(node);
    if (now.had_failed && !had_failed && !first) {
      Labels labels = state_labels(node);
      labels.push_back(fails_.size() < kMostReasons ? node.record.reason.substr(0, 200) : "other");
      ++fails_[labels];
    }
    follow(node.unavailable(), now.was_unavailable, now.unavailable_since, unavailable_);
    follow(node.record.has("DRAIN") && !node.unavailable(), now.was_draining, now.draining_since, draining_);
    next[name] = now;
  }
  nodes_ = std::move(next);
  last_ = monotonic;
}

std::string print_metrics(const std::vector<MetricNode>& nodes, const std::vector<MetricJob>& jobs, const MetricController& controller, const MetricHistory& history, Instant now) {
  Printer out;
  print_nodes(out, nodes);
  print_jobs(out, jobs, now);
  print_controller(out, controller);
  out.family("slurm_node_gpu_seconds_total", "counter", "GPU seconds of a node by its state, since this exporter began.");
  for (const auto& [labels, value] : history.gpu_seconds()) out.sample(pairs_of(labels), value);
  out.family("slurm_node_fails_total", "counter", "How often a node was drained, failed or went down, since this exporter began.");
  for (const auto& [labels, value] : history.fails()) out.sample(pairs_of(labels), static_cast<double>(value));
  out.family("slurm_node_unavailability_duration_seconds", "histogram", "How long nodes were unavailable.");
  for (const auto& [node, of] : history.unavailable()) out.histogram(node, of);
  out.family("slurm_node_draining_duration_seconds", "histogram", "How long nodes were draining.");
  for (const auto& [node, of] : history.draining()) out.histogram(node, of);
  return out.take();
}

}  // namespace fairlead::companion
