// SPDX-License-Identifier: Apache-2.0
// What `fairlead status` tells, from what was read: problems first, then heads, nodes, pods, jobs, storage, images. Pure.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "cli/text.h"
#include "kube/json.h"

namespace fairlead::cli {

// As read from the API, from Slurm and from the state folder.
struct SiteSnapshot {
  Instant now;
  std::string state_dir, server_version;
  std::vector<kube::Json> machines, nodes, pods, slurm_clusters, claims;
  struct SlurmAnswer {  // of one SlurmCluster, by its own programs
    std::string cluster, space;
    bool asked = false;
    std::string error;         // why there is no answer; empty: there is
    std::string squeue, sinfo, ping;  // lines in the formats below
  };
  std::vector<SlurmAnswer> slurm;
  struct Image {
    std::string name, digest;
    std::int64_t size_bytes = 0;
    std::optional<Instant> created;
  };
  std::vector<Image> images;
  std::int64_t disk_free_bytes = -1, disk_size_bytes = -1;
};
inline constexpr const char* kSqueueFormat = "%i|%j|%u|%T|%M|%D|%R";
inline constexpr const char* kSinfoFormat = "%N|%T|%E";

enum class Health { Good, Waiting, Bad, Off };
struct Overview {
  struct Problem {
    Health health = Health::Bad;
    std::string subject, what, advice;  // advice: a command or a hint; may be empty
  };
  struct Cluster {
    std::string space, name, phase;
    Health health = Health::Good;
    int workers_ready = 0, workers = 0, logins_ready = 0, logins = 0;
    std::optional<bool> exporter_ready;  // none: none is asked for
  };
  struct Head {
    std::string cluster, pod, node, address, state;
    Health health = Health::Good;
    std::chrono::nanoseconds age{};
  };
  struct Node {
    std::string name, state, address;
    Health health = Health::Good;
    double cpu_used = 0, cpu = 0, memory_used = 0, memory = 0, gpus_used = 0, gpus = 0;
    int pods = 0;
    std::string slurm;  // what Slurm says of it: idle, allocated, down
  };
  struct Pod {
    std::string space, name, state, node;
    Health health = Health::Good;
    int ready = 0, containers = 0, restarts = 0;
    std::chrono::nanoseconds age{};
  };
  struct Job {
    std::string cluster, id, name, user, state, time, nodes, where;
    Health health = Health::Good;
  };
  struct Storage {
    std::string space, name, phase, size;
    Health health = Health::Good;
    std::vector<std::string> used_by;
  };
  std::string state_dir, server_version;
  std::vector<Problem> problems;
  std::vector<Cluster> clusters;
  std::vector<Head> heads;
  std::vector<Node> nodes;
  std::vector<Pod> pods;
  std::vector<Job> jobs;
  std::vector<Storage> storage;
  std::vector<SiteSnapshot::Image> images;
  std::int64_t disk_free_bytes = -1, disk_size_bytes = -1;
  Instant now;
};
Overview overview_of(const SiteSnapshot& snapshot);

std::string draw(const Overview& overview, const Look& look);
kube::Json to_json(const Overview& overview);

}  // namespace fairlead::cli
