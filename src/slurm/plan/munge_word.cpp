// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/munge_word.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/encoding.h"
#include "slurm/plan/inputs.h"

namespace fairlead::slurm {
namespace {

using kube::Json;

constexpr auto kNewcomer = std::chrono::seconds(30);  // by the API server's clock: the machine's own may be the one that is wrong
constexpr auto kStatus = std::to_array<std::string_view>({"Success", "Expired credential", "Rewound credential", "Invalid credential", "Replayed credential"});
constexpr std::string_view kRefused = "unmunge: Error: ";  // what it cannot decode at all has no status

// What follows "KEY:" in its line; empty: there is no such line.
std::string_view value_of(std::string_view output, std::string_view key) {
  while (!output.empty()) {
    const auto end = output.find('\n');
    const std::string_view line = output.substr(0, end);
    if (line.empty()) return {};  // behind it comes what the credential carries
    if (line.starts_with(key) && line.substr(key.size()).starts_with(':')) return trim(line.substr(key.size() + 1));
    output.remove_prefix(end == output.npos ? output.size() : end + 1);
  }
  return {};
}

// "2026-11-23 00:41:07 +0000 (1795394467)".
std::optional<std::int64_t> seconds_of(std::string_view time) {
  const auto open = time.rfind('(');
  if (open == time.npos || !time.ends_with(')')) return std::nullopt;
  const std::string_view digits = time.substr(open + 1, time.size() - open - 2);
  std::int64_t out = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), out);
  if (digits.empty() || read.ec != std::errc() || read.ptr != digits.data() + digits.size() || out < 0 || out > (std::int64_t{1} << 40)) return std::nullopt;
  return out;
}

bool runs(const Json& pod, std::string_view container, bool ready) {
  for (const Json& one : pod["status"]["containerStatuses"].items())
    if (one["name"].string() == container) return one["state"]["running"].is_object() && (one["ready"].boolean() || !ready);
  return false;
}

// A machine that does not report would only keep whoever asks waiting, and those who tell of its loss.
bool is_unready_on_a_machine_that_reports(const Snapshot& snapshot, const Json& pod) {
  const Json* ready = kube::find_condition(pod, "Ready");
  if (!ready || (*ready)["status"].string() != "False" || (*ready)["reason"].string().starts_with("Node")) return false;
  const Json* node = find(snapshot.nodes, pod["spec"]["nodeName"].string());
  return !node || kube::condition_is_true(*node, "Ready");
}

}  // namespace

std::optional<MungeAsk> wants_munge_words(const Snapshot& snapshot, const std::string& default_image, Instant now) {
  const auto cluster = read_cluster(snapshot, default_image);
  if (cluster.deleting || cluster.paused || !cluster.problems.empty()) return std::nullopt;
  const Json* head = ready_head(snapshot, cluster);
  if (!head) return std::nullopt;
  MungeAsk out{kube::key_of(*head), {}};
  bool any = false;
  for (const auto& [name, pod] : snapshot.pods) {
    if (!of_role(pod, cluster, Role::Worker) || !owned_by(pod, cluster) || !is_unready_on_a_machine_that_reports(snapshot, pod) || kube::deleting(pod) || !runs(pod, "slurmd", false) || !runs(pod, "munge", true)) continue;
    any = true;
    const auto made = parse_time(pod["metadata"]["creationTimestamp"].string());
    if (made && now - *made > kNewcomer && out.workers.size() < kMostAsked) out.workers.push_back({kube::key_of(pod), kube::uid_of(pod), "munge"});
  }
  if (!any) return std::nullopt;
  return out;
}

std::optional<MungeWord> read_munge_word(std::string_view output) {
  std::string_view status = output.starts_with(kRefused) ? output.substr(kRefused.size(), output.find('\n') - kRefused.size()) : value_of(output, "STATUS");
  status = trim(status.substr(0, status.rfind('(')));  // "Expired credential (15)"
  const auto* const known = std::find(kStatus.begin(), kStatus.end(), status);
  if (known == kStatus.end()) return std::nullopt;
  MungeWord out{std::string(*known), {}};
  const auto made = seconds_of(value_of(output, "ENCODE_TIME")), read = seconds_of(value_of(output, "DECODE_TIME"));
  if (made && read) out.ahead = std::chrono::seconds(*read - *made);
  return out;
}

std::optional<Trouble> munge_trouble(const MungeWord& word) {
  // Of a credential that was made just now there is no other reason.
  if (word.status == "Expired credential" || word.status == "Rewound credential" || word.status == "Invalid credential") return known_trouble(word.status);
  return std::nullopt;
}

std::string munge_words(const MungeWord& word) {
  std::string out = fmt::format("munge there says of the head's credential: {}", word.status);
  // In minutes: figures that differ from look to look would be news each time.
  if (const auto minutes = word.ahead ? (std::abs(word.ahead->count()) + 30) / 60 : 0; minutes > 0) out += fmt::format(" (its clock is about {} minutes {} the head's)", minutes, word.ahead->count() > 0 ? "ahead of" : "behind");
  return out;
}

}  // namespace fairlead::slurm
