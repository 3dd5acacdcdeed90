// SPDX-License-Identifier: GPL-3.0-or-later
// What Slurm knows of nodes, jobs and its controller as Prometheus metrics, under the names and labels that dashboards of the Soperator family ask for. Pure: texts of Slurm's tools and the time in, text out.
#pragma once
#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "nodes.h"

namespace fairlead::companion {

struct MetricNode {
  NodeRecord record;
  std::int64_t cpus = 0, cpus_effective = 0, memory = 0, memory_given = 0, memory_reserved = 0, gpus = 0;  // memory in bytes
  std::optional<std::int64_t> memory_free;                                                                // as the node said; nothing: it did not
  std::vector<std::string> partitions;
  std::string reservation, comment;
  bool unavailable() const;  // DOWN or ERROR, silent, failing, or drained with nothing running on it
};
struct MetricJob {
  std::string id, array, task, state, reason, partition, user, uid, submit, start, end, standard_out, standard_error, mail, name;
  std::vector<std::string> nodes;
  std::int64_t cpus = 0, memory = 0;  // memory in bytes, of the whole job
};
struct MetricRpc {
  std::string name, uid;  // a type of message; or a user and their number
  std::int64_t calls = 0;
  double seconds = 0;
};
struct MetricController {
  std::int64_t threads = 0;
  std::vector<MetricRpc> types, users;
};
// What a user chooses comes last, so that it moves no column.
inline constexpr const char* kMetricJobFormat = "%A|%F|%K|%T|%P|%u|%U|%V|%S|%e|%C|%N|%r|%j";
// Output of `scontrol -o show nodes`; of `squeue -h -a -t all -o kMetricJobFormat` and `scontrol -o show jobs`; of `sdiag`; all with TZ=UTC. Invalid: not understood. A job that is not understood is
// left out: its name may hold anything.
Result<std::vector<MetricNode>> read_metric_nodes(std::string_view text);
std::vector<MetricJob> read_metric_jobs(std::string_view queue, std::string_view details);
Result<MetricController> read_sdiag(std::string_view text);

// What counts up from one look to the next; begins anew with the process, as counters may.
class MetricHistory {
 public:
  struct Histogram {
    static constexpr std::array<double, 10> kBounds = {60, 300, 600, 1800, 3600, 7200, 21'600, 43'200, 86'400, 259'200};  // seconds
    std::array<std::uint64_t, kBounds.size()> below{};  // each bound's own, not yet summed up
    std::uint64_t count = 0;
    double sum = 0;
    void add(double seconds);
  };
  // `monotonic`: the time of this look. Of what was before the first one nobody knows.
  void look(const std::vector<MetricNode>& nodes, std::chrono::nanoseconds monotonic);
  using Labels = std::vector<std::string>;
  const std::map<Labels, double>& gpu_seconds() const { return gpu_seconds_; }
  const std::map<Labels, std::uint64_t>& fails() const { return fails_; }
  const std::map<std::string, Histogram>& unavailable() const { return unavailable_; }
  const std::map<std::string, Histogram>& draining() const { return draining_; }

 private:
  struct Node {
    bool was_unavailable = false, was_draining = false, had_failed = false;
    std::optional<std::chrono::nanoseconds> unavailable_since, draining_since;  // nothing: since before we looked
  };
  std::map<std::string, Node> nodes_;
  std::optional<std::chrono::nanoseconds> last_;
  std::map<Labels, double> gpu_seconds_;
  std::map<Labels, std::uint64_t> fails_;
  std::map<std::string, Histogram> unavailable_, draining_;
};

// The text format of Prometheus (0.0.4), families sorted as the documentation has them; UTC seconds for times.
std::string print_metrics(const std::vector<MetricNode>& nodes, const std::vector<MetricJob>& jobs, const MetricController& controller, const MetricHistory& history, Instant now);

}  // namespace fairlead::companion
