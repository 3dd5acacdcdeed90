// SPDX-License-Identifier: Apache-2.0
// Can a site run on this machine? A decision over what was probed: each reason against it is one sentence that says what is wrong and what to do.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fairlead::cli {

// How the machine is, as far as `up` and the quickstart care. Absent: could not be found out, and then is no reason against.
struct MachineFacts {
  bool root = false;
  std::string os_id, os_like, os_version, os_name;  // /etc/os-release
  std::string architecture;                         // uname -m
  std::int64_t disk_free_bytes = -1;                // where the state folder is or will be
  std::int64_t memory_bytes = -1;                   // MemTotal
  int cores = 0;
  std::string port_holder;                          // who holds the API port, as far as known; empty: nobody, or our own server
  bool port_taken = false;
  std::vector<std::string> missing_programs;        // of those that are needed at run time
  std::vector<std::string> missing_features;        // of the kernel: "overlay", "veth", ...
  std::string network_conflict;                     // a ready sentence; empty: the ranges are free
  bool state_dir_is_foreign = false;                // a folder with other things in it
  bool state_dir_read_only = false;
  bool mirror_needed = false, mirror_reachable = false;  // packages or an image must be fetched
  std::string mirror;
};
struct Needs {
  std::string state_dir = "/var/lib/fairlead";
  unsigned short port = 6443;
  bool image_present = false;    // otherwise it has to be built
  bool debian = true;            // the quickstart installs packages; `up` alone does not need Debian
  std::int64_t disk_image_bytes = 4'000'000'000, disk_run_bytes = 500'000'000;
  std::int64_t memory_bytes = 3'500'000'000;
};
struct Objection {
  std::string what, advice;
  std::string sentence() const { return what + ": " + advice; }
};
// In the order in which a user should see to them; empty: go on.
std::vector<Objection> object_to(const MachineFacts& facts, const Needs& needs);

}  // namespace fairlead::cli
