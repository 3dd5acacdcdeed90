// SPDX-License-Identifier: GPL-3.0-or-later
// Runs one lifecycle script of a HyperPod cluster in its pod, with the files, folders and environment that HyperPod's scripts expect (docs/clusters.md).
#pragma once
#include <chrono>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fairlead::companion {

struct LifecycleOptions {
  std::string source = "/opt/fairlead/lifecycle/source";  // the files, in parts, with a manifest
  std::string config = "/opt/fairlead/lifecycle/config";  // cluster.json, controller.json, provisioning_parameters.json, and one file for each group
  std::string root = "/";                                 // in which it runs
  bool shared_root = false;                               // other nodes have it, too
  std::string instance;                                   // its id
  std::string address;                                    // of this pod: what stands for its machine; empty: as it is stored
  std::string script;                                     // below the folder
  std::string folder;                                     // "/tmp/BUCKET/PREFIX", in the root
  std::string life_cycle_config;                          // JSON
  struct Group {
    std::string name, type;
    std::vector<std::string> files;                       // lists of its nodes
  };
  std::vector<Group> groups;                              // in their order
  std::string sum;                                        // SHA-256 of the manifest; empty: any
  bool controller = false;                                // of Slurm
  std::chrono::seconds limit{3600};
  std::string last_word = "/dev/termination-log";         // its last lines, in case it fails
};
Result<LifecycleOptions> lifecycle_options(const std::map<std::string, std::string>& environment);  // Invalid: which one is missing or wrong

// The exit status of the script; 124: it took too long; 125: it could not be started. May be called once in a process: afterwards the root is another.
int run_lifecycle(const LifecycleOptions& options);

// Lines "SHA-256 BYTES KEY,... PATH" of the manifest; "-" for a file without bytes. Invalid: no such text, or a path that leads out of the folder.
struct BundledFile {
  std::string sum, path;
  std::size_t bytes = 0;
  std::vector<std::string> parts;
};
Result<std::vector<BundledFile>> read_manifest(std::string_view text);

// A list of nodes with the address of one instance replaced; as it is, where it does not hold it.
std::string with_address(std::string nodes, const std::string& instance, const std::string& address);

// The last lines, at most `most` bytes, in UTF-8 without control characters.
std::string last_lines(std::string_view text, std::size_t most);

}  // namespace fairlead::companion
