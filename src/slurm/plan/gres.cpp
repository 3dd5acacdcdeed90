// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/gres.h"

#include <fmt/format.h>

#include <charconv>
#include <vector>

#include "api/node_set.h"
#include "base/encoding.h"
#include "slurm/plan/objects.h"
#include "slurm/plan/render.h"

namespace fairlead::slurm {
namespace {

int number(std::string_view text) {
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 0 ? value : -1;
}

// Of "SET-12": 12; -1: of another set, or no worker's name.
int ordinal_in(std::string_view name, std::string_view set) {
  if (name.size() <= set.size() + 1 || !name.starts_with(set) || name[set.size()] != '-') return -1;
  return number(name.substr(set.size() + 1));
}

// Is the worker among "SET-[0-3,5-9999]"? As render_gres writes it.
bool names(std::string_view list, std::string_view name) {
  const auto open = list.find("-[");
  if (open == std::string_view::npos || !list.ends_with(']')) return false;
  const int ordinal = ordinal_in(name, list.substr(0, open));
  if (ordinal < 0) return false;
  for (const std::string& range : split(list.substr(open + 2, list.size() - open - 3), ',')) {
    const auto dash = range.find('-');
    const int first = number(std::string_view(range).substr(0, dash)), last = dash == std::string::npos ? first : number(std::string_view(range).substr(dash + 1));
    if (first >= 0 && ordinal >= first && ordinal <= last) return true;
  }
  return false;
}

std::string lines_of(const std::string& file, std::string_view name) {
  static constexpr std::string_view kKey = "NodeName=";
  std::string out;
  for (const std::string& line : split(file, '\n')) {
    if (line.empty()) continue;
    if (!line.starts_with(kKey)) {
      out += line + "\n";
      continue;
    }
    const auto space = line.find(' ');
    if (space != std::string::npos && names(std::string_view(line).substr(kKey.size(), space - kKey.size()), name)) out += line.substr(space + 1) + "\n";
  }
  return out;
}

std::string with_names(const std::string& nodes, const std::string& lines) {
  std::string out;
  for (const std::string& line : split(lines, '\n'))
    if (!line.empty()) out += nodes + line + "\n";
  return out;
}

void add_range(std::string& list, int first, int last) {
  if (last < first) return;
  list += (list.empty() ? "" : ",") + (last == first ? std::to_string(first) : fmt::format("{}-{}", first, last));
}

// "0-2,7" of ordinals in order.
std::string these(const std::vector<int>& ordinals) {
  std::string out;
  for (std::size_t i = 0, j = 0; i < ordinals.size(); i = j) {
    while (++j < ordinals.size() && ordinals[j] == ordinals[j - 1] + 1) {
    }
    add_range(out, ordinals[i], ordinals[j - 1]);
  }
  return out;
}

// All that a set may have but these.
std::string others(const std::vector<int>& without) {
  std::string out;
  int next = 0;
  for (const int ordinal : without) {
    add_range(out, next, ordinal - 1);
    next = ordinal + 1;
  }
  add_range(out, next, api::kMaxSize - 1);
  return out;
}

}  // namespace

std::string gres_of(const api::SlurmCluster& view) {
  std::string out;
  for (const auto& own : view.set.gres) out += own + "\n";
  if (const int count = worker_gpus(view); count > 0 && view.set.gres.empty())
    out += fmt::format("Name=gpu File=/dev/{}{}\n", view.mock_gpus ? "fairlead-gpu" : "nvidia", count == 1 ? "0" : fmt::format("[0-{}]", count - 1));
  return out;
}

std::map<std::string, std::string> running_gres(const api::SlurmCluster& cluster, const std::map<std::string, kube::Json>& pods, const std::string& mounted) {
  std::map<std::string, std::string> out;
  for (const auto& view : api::worker_views(cluster)) {
    const std::string wanted = gres_of(view);
    for (const auto& [name, pod] : pods) {
      if (ordinal_in(name, view.worker_set) < 0 || ordinal_in(name, view.worker_set) >= api::kMaxSize || pod["metadata"]["labels"][kClusterLabel].string() != cluster.name) continue;
      if (const std::string& phase = pod["status"]["phase"].string(); phase == "Succeeded" || phase == "Failed") continue;
      const kube::Json* told = pod["metadata"]["annotations"].find(kGres);
      const std::string have = told ? told->string() : lines_of(mounted, name);
      if (have != wanted) out[name] = have;
    }
  }
  return out;
}

std::string render_gres(const api::SlurmCluster& cluster, const std::map<std::string, std::string>& running) {
  const auto views = api::worker_views(cluster);
  std::string out;
  for (const auto& view : views) {
    std::map<int, const std::string*> kept;
    for (const auto& [name, lines] : running)
      if (const int ordinal = ordinal_in(name, view.worker_set); ordinal >= 0) kept[ordinal] = &lines;
    std::map<std::string, std::vector<int>> by_lines;
    std::vector<int> without;
    for (const auto& [ordinal, lines] : kept) {
      by_lines[*lines].push_back(ordinal);
      without.push_back(ordinal);
    }
    for (const auto& [lines, ordinals] : by_lines) out += with_names(fmt::format("NodeName={}-[{}] ", view.worker_set, these(ordinals)), lines);
    // One kind of workers needs no names; of several each reads its own lines.
    out += with_names(views.size() > 1 || !running.empty() ? fmt::format("NodeName={}-[{}] ", view.worker_set, others(without)) : "", gres_of(view));
  }
  return out;
}

}  // namespace fairlead::slurm
