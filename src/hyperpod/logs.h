// SPDX-License-Identifier: Apache-2.0
// CloudWatch Logs, as far as clusters are read by it: DescribeLogGroups, DescribeLogStreams, GetLogEvents, FilterLogEvents. Nothing is stored: lines are those that the Kubernetes API has of pods, and what ClusterEvents keep of those that are gone
// (docs/design/062). Source: docs.aws.amazon.com, CloudWatch Logs API reference 2014-03-28.
//   group  /aws/sagemaker/Clusters/NAME/ID: each cluster has one
//   stream LifecycleConfig/GROUP/i-...      lifecycle scripts of an instance, one after the other
//          DeepHealthCheckResults/i-...     its deep health checks
//          Slurm/POD/CONTAINER              Slurm's daemons
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hyperpod/log_events.h"
#include "hyperpod/operations.h"
#include "kube/pod_log.h"

namespace fairlead::hyperpod {

// A stretch of a stream: a run of a container, or lines that were kept of others that are gone.
struct LogSegment {
  Json pod;                      // its name, node and containers; null: what is kept
  kube::PodLogQuery query;
  Instant from{};
  std::optional<Instant> to;     // no line is later; none: it goes on
  std::vector<std::pair<Instant, std::string>> kept;
};
struct LogStream {
  std::string name;
  Instant created{};
  std::vector<LogSegment> segments;  // in the order of their times
  std::optional<Instant> last() const;
};
// Of pods, Instances and ClusterEvents of a cluster. Pods are believed by their owner, not by their name. Pure.
std::map<std::string, LogStream> log_streams(const Json& cluster, const std::vector<Json>& pods, const std::vector<Json>& instances, const std::vector<Json>& events);

// All that it needs beside the call. `log` null: reads are refused.
struct LogSources {
  const Sources& sources;
  const kube::PodLog& log;
  const Clock& clock;
};
bool is_logs_operation(std::string_view operation);
// InvalidParameterException, ResourceNotFoundException, ServiceUnavailableException (a node does not answer), AccessDeniedException. Holds at most a page (10,000 events, 1 MiB) and blocks for half a minute at most.
Answer<Json> answer_logs(const std::string& operation, const Json& input, const Call& call, const LogSources& from);

}  // namespace fairlead::hyperpod
