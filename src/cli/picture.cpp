// SPDX-License-Identifier: Apache-2.0
// The overview as a picture and as JSON.
#include <fmt/format.h>

#include <algorithm>

#include "cli/overview.h"

namespace fairlead::cli {

using kube::Json;

namespace {

std::string dot(Health health, const Look& look) {
  switch (health) {
    case Health::Good: return look.unicode ? "●" : "+";
    case Health::Waiting: return look.unicode ? "◐" : "~";
    case Health::Bad: return look.unicode ? "✗" : "x";
    case Health::Off: return look.unicode ? "○" : "-";
  }
  return "?";
}
Style style_of(Health health) {
  switch (health) {
    case Health::Good: return Style::Good;
    case Health::Waiting: return Style::Warn;
    case Health::Bad: return Style::Bad;
    case Health::Off: return Style::Dim;
  }
  return Style::Plain;
}
std::string_view word(Health health) {
  switch (health) {
    case Health::Good: return "good";
    case Health::Waiting: return "waiting";
    case Health::Bad: return "bad";
    case Health::Off: return "off";
  }
  return "?";
}
Cell mark(Health health, const Look& look) { return {.text = dot(health, look), .style = style_of(health)}; }
Cell dim(std::string text) { return {.text = std::move(text), .style = Style::Dim}; }
Cell title(std::string text, bool right = false) { return {.text = std::move(text), .style = Style::Dim, .right = right}; }

// "2", "1.5"
std::string short_number(double value) {
  std::string text = fmt::format("{:.1f}", value);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text;
}
std::string gib(double value) { return short_number(value / (1 << 30)); }

// A bar and the numbers behind it; without the bar where the terminal is narrow.
Cell gauge(double used, double whole, const std::string& text, const Look& look) {
  if (whole <= 0) return dim(look.unicode ? "–" : "-");
  if (look.width < 90) return {.text = text};
  return {.text = bar(used, whole, 8, look) + " " + text, .drawn = true};
}

void heading(std::string& out, std::string_view text, const Look& look) { out += "\n " + paint(text, Style::Bold, look) + "\n"; }

void draw_problems(std::string& out, const Overview& overview, const Look& look) {
  if (overview.problems.empty()) return;
  heading(out, fmt::format("Problems ({})", overview.problems.size()), look);
  constexpr std::size_t kMost = 12;
  int subject = 0;
  for (std::size_t i = 0; i < std::min(kMost, overview.problems.size()); ++i) subject = std::max(subject, columns_of(overview.problems[i].subject));
  subject = std::min(subject, look.width / 3);
  for (std::size_t i = 0; i < overview.problems.size(); ++i) {
    if (i == kMost) {
      out += paint(fmt::format("   and {} more", overview.problems.size() - kMost), Style::Dim, look) + "\n";
      break;
    }
    const auto& problem = overview.problems[i];
    out += "   " + paint(dot(problem.health, look), style_of(problem.health), look) + " " + pad_to(cut_to(problem.subject, subject, look), subject) + "  " +
           cut_to(problem.what, std::max(10, look.width - subject - 7), look) + "\n";
    if (!problem.advice.empty())
      out += std::string(static_cast<std::size_t>(subject) + 7, ' ') + paint((look.unicode ? "→ " : "> ") + cut_to(problem.advice, std::max(10, look.width - subject - 9), look), Style::Accent, look) + "\n";
  }
}

void draw_nodes(std::string& out, const Overview& overview, const Look& look) {
  heading(out, fmt::format("Nodes ({})", overview.nodes.size()), look);
  if (overview.nodes.empty()) {
    out += paint("   none yet: apply a Machine, or start from examples/demo.yaml", Style::Dim, look) + "\n";
    return;
  }
  const bool slurm = std::any_of(overview.nodes.begin(), overview.nodes.end(), [](const auto& node) { return !node.slurm.empty(); });
  const bool gpus = std::any_of(overview.nodes.begin(), overview.nodes.end(), [](const auto& node) { return node.gpus > 0; });
  std::vector<Row> rows;
  Row head{title(""), title("NAME"), title("STATE"), title("CPU"), title("MEMORY (GiB)")};
  if (gpus) head.push_back(title("GPU"));
  head.push_back(title("PODS", true));
  if (slurm) head.push_back(title("SLURM"));
  head.push_back(title("ADDRESS"));
  rows.push_back(std::move(head));
  for (const auto& node : overview.nodes) {
    Row row{mark(node.health, look), {.text = node.name}, {.text = node.state, .style = node.health == Health::Good ? Style::Plain : style_of(node.health)},
            gauge(node.cpu_used, node.cpu, short_number(node.cpu_used) + "/" + short_number(node.cpu), look),
            gauge(node.memory_used, node.memory, gib(node.memory_used) + "/" + gib(node.memory), look)};
    if (gpus) row.push_back(node.gpus > 0 ? Cell{.text = short_number(node.gpus_used) + "/" + short_number(node.gpus)} : dim(look.unicode ? "–" : "-"));
    row.push_back({.text = std::to_string(node.pods), .right = true});
    if (slurm) row.push_back(node.slurm.empty() ? dim(look.unicode ? "–" : "-") : Cell{.text = node.slurm});
    row.push_back(dim(node.address));
    rows.push_back(std::move(row));
  }
  out += draw_rows(rows, "   ", look);
}

void draw_pods(std::string& out, const Overview& overview, const Look& look) {
  if (overview.pods.empty()) return;
  heading(out, fmt::format("Pods ({})", overview.pods.size()), look);
  std::vector<Row> rows{{title(""), title("NAME"), title("READY"), title("STATE"), title("NODE"), title("RESTARTS", true), title("AGE", true)}};
  constexpr std::size_t kMost = 24;
  std::size_t well = 0;
  // On a large site those that are well are counted, not listed.
  for (const auto& pod : overview.pods) {
    if (overview.pods.size() > kMost && (pod.health == Health::Good || pod.health == Health::Off) && rows.size() > kMost / 2) {
      ++well;
      continue;
    }
    rows.push_back({mark(pod.health, look), {.text = pod.space + "/" + pod.name}, {.text = fmt::format("{}/{}", pod.ready, pod.containers)},
                    {.text = pod.state, .style = pod.health == Health::Good ? Style::Plain : style_of(pod.health)}, {.text = pod.node},
                    {.text = std::to_string(pod.restarts), .style = pod.restarts > 0 ? Style::Warn : Style::Dim, .right = true}, {.text = print_age(pod.age), .style = Style::Dim, .right = true}});
  }
  out += draw_rows(rows, "   ", look);
  if (well > 0) out += paint(fmt::format("   and {} more that are well", well), Style::Dim, look) + "\n";
}

void draw_jobs(std::string& out, const Overview& overview, const Look& look) {
  if (overview.clusters.empty()) return;
  heading(out, fmt::format("Jobs ({})", overview.jobs.size()), look);
  if (overview.jobs.empty()) {
    out += paint("   none; submit one with fairlead run SCRIPT", Style::Dim, look) + "\n";
    return;
  }
  std::vector<Row> rows{{title(""), title("ID", true), title("NAME"), title("USER"), title("STATE"), title("TIME", true), title("NODES", true), title("WHERE OR WHY")}};
  for (const auto& job : overview.jobs)
    rows.push_back({mark(job.health, look), {.text = job.id, .right = true}, {.text = job.name}, {.text = job.user}, {.text = job.state, .style = job.health == Health::Good ? Style::Plain : style_of(job.health)},
                    {.text = job.time, .right = true}, {.text = job.nodes, .right = true}, {.text = job.where}});
  out += draw_rows(rows, "   ", look);
}

std::string join(const std::vector<std::string>& parts) {
  std::string out;
  for (const auto& part : parts) out += (out.empty() ? "" : ", ") + part;
  return out;
}

std::string gigabytes(std::int64_t bytes) { return bytes >= 10'000'000'000 ? fmt::format("{:.0f} GB", static_cast<double>(bytes) / 1e9) : fmt::format("{:.1f} GB", static_cast<double>(bytes) / 1e9); }

}  // namespace

std::string exporter_words(const Overview::Cluster& cluster) { return cluster.exporter_ready ? fmt::format("metrics {}/1", *cluster.exporter_ready ? 1 : 0) : ""; }

std::string draw(const Overview& overview, const Look& look) {
  std::string out;
  const auto bad = std::count_if(overview.problems.begin(), overview.problems.end(), [](const auto& problem) { return problem.health == Health::Bad; });
  const Health all = bad > 0 ? Health::Bad : !overview.problems.empty() ? Health::Waiting : Health::Good;
  std::string name = "site";
  std::string rest;
  if (overview.clusters.size() == 1) {
    const auto& cluster = overview.clusters.front();
    name = cluster.name;
    rest = fmt::format("{}   workers {}/{}   login {}/{}", cluster.phase, cluster.workers_ready, cluster.workers, cluster.logins_ready, cluster.logins);
    if (cluster.exporter_ready) rest += "   " + exporter_words(cluster);
  } else if (!overview.clusters.empty()) {
    name = plural(static_cast<std::int64_t>(overview.clusters.size()), "Slurm cluster");
  }
  std::string line = " " + paint(dot(all, look), style_of(all), look) + " " + paint(name, Style::Bold, look) + "   ";
  if (!rest.empty()) line += rest + "   ";
  line += bad > 0 ? paint(plural(bad, "problem"), Style::Bad, look) : all == Health::Waiting ? paint("not all is ready yet", Style::Warn, look) : paint("all is well", Style::Good, look);
  const std::string right = "fairlead " + overview.server_version;
  const int gap = look.width - columns_of(line) - columns_of(right) - 1;
  if (gap > 2) line += std::string(static_cast<std::size_t>(gap), ' ') + paint(right, Style::Dim, look);
  out += line + "\n";

  draw_problems(out, overview, look);

  if (overview.clusters.size() > 1) {
    heading(out, "Slurm clusters", look);
    std::vector<Row> rows;
    for (const auto& cluster : overview.clusters)
      rows.push_back({mark(cluster.health, look), {.text = cluster.space + "/" + cluster.name}, {.text = cluster.phase}, {.text = fmt::format("workers {}/{}", cluster.workers_ready, cluster.workers)},
                      {.text = fmt::format("login {}/{}", cluster.logins_ready, cluster.logins)}, {.text = exporter_words(cluster)}});
    out += draw_rows(rows, "   ", look);
  }
  if (!overview.heads.empty()) {
    heading(out, "Head", look);
    std::vector<Row> rows;
    for (const auto& head : overview.heads)
      rows.push_back({mark(head.health, look), {.text = overview.clusters.size() > 1 ? head.cluster + "/" + head.pod : head.pod}, {.text = head.state}, {.text = head.node.empty() ? "" : "on " + head.node},
                      dim(head.address), dim(print_age(head.age))});
    out += draw_rows(rows, "   ", look);
  }
  draw_nodes(out, overview, look);
  draw_jobs(out, overview, look);
  draw_pods(out, overview, look);

  if (!overview.storage.empty() || !overview.images.empty()) heading(out, "Storage", look);
  std::vector<Row> rows;
  for (const auto& claim : overview.storage)
    rows.push_back({mark(claim.health, look), {.text = claim.space + "/" + claim.name}, {.text = claim.phase}, {.text = claim.size, .right = true},
                    claim.used_by.empty() ? dim("unused") : Cell{.text = "used by " + join(claim.used_by), .style = Style::Dim}});
  for (const auto& image : overview.images)
    rows.push_back({mark(Health::Good, look), {.text = image.name}, {.text = "image"}, {.text = gigabytes(image.size_bytes), .right = true},
                    dim(image.created ? "built " + print_age(std::max(overview.now - *image.created, std::chrono::nanoseconds(0))) + " ago" : "")});
  out += draw_rows(rows, "   ", look);
  if (overview.disk_size_bytes > 0)
    out += paint(fmt::format("   {} of {} free below {}", gigabytes(overview.disk_free_bytes), gigabytes(overview.disk_size_bytes), overview.state_dir), Style::Dim, look) + "\n";
  return out;
}

Json to_json(const Overview& overview) {
  const auto list = [](const auto& items, const auto& one) {
    Json out = Json::array();
    for (const auto& item : items) out.push(one(item));
    return out;
  };
  const auto health = [](Health value) { return Json(std::string(word(value))); };
  return Json::object({
      {"time", print_time(overview.now)},
      {"stateDir", overview.state_dir},
      {"serverVersion", overview.server_version},
      {"problems", list(overview.problems, [&](const auto& p) { return Json::object({{"health", health(p.health)}, {"subject", p.subject}, {"what", p.what}, {"advice", p.advice}}); })},
      {"clusters", list(overview.clusters,
                        [&](const auto& c) {
                          return Json::object({{"namespace", c.space}, {"name", c.name}, {"phase", c.phase}, {"health", health(c.health)}, {"workersReady", c.workers_ready}, {"workers", c.workers},
                                               {"loginsReady", c.logins_ready}, {"logins", c.logins}, {"exporterReady", c.exporter_ready ? Json(*c.exporter_ready) : Json()}});
                        })},
      {"heads", list(overview.heads,
                     [&](const auto& h) { return Json::object({{"cluster", h.cluster}, {"pod", h.pod}, {"node", h.node}, {"address", h.address}, {"state", h.state}, {"health", health(h.health)}}); })},
      {"nodes", list(overview.nodes,
                     [&](const auto& n) {
                       return Json::object({{"name", n.name}, {"state", n.state}, {"health", health(n.health)}, {"address", n.address}, {"cpu", n.cpu}, {"cpuRequested", n.cpu_used},
                                            {"memoryBytes", static_cast<std::int64_t>(n.memory)}, {"memoryBytesRequested", static_cast<std::int64_t>(n.memory_used)}, {"gpus", n.gpus},
                                            {"gpusRequested", n.gpus_used}, {"pods", n.pods}, {"slurmState", n.slurm}});
                     })},
      {"jobs", list(overview.jobs,
                    [&](const auto& j) {
                      return Json::object({{"cluster", j.cluster}, {"id", j.id}, {"name", j.name}, {"user", j.user}, {"state", j.state}, {"time", j.time}, {"nodes", j.nodes}, {"where", j.where}});
                    })},
      {"pods", list(overview.pods,
                    [&](const auto& p) {
                      return Json::object({{"namespace", p.space}, {"name", p.name}, {"state", p.state}, {"health", health(p.health)}, {"node", p.node}, {"ready", p.ready}, {"containers", p.containers}, {"restarts", p.restarts}});
                    })},
      {"storage", list(overview.storage,
                       [&](const auto& s) {
                         return Json::object({{"namespace", s.space}, {"name", s.name}, {"phase", s.phase}, {"size", s.size}, {"usedBy", list(s.used_by, [](const auto& name) { return Json(name); })}});
                       })},
      {"images", list(overview.images, [&](const auto& i) { return Json::object({{"name", i.name}, {"digest", i.digest}, {"sizeBytes", i.size_bytes}}); })},
      {"diskFreeBytes", overview.disk_free_bytes},
  });
}

}  // namespace fairlead::cli
