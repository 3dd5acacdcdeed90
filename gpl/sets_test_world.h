// SPDX-License-Identifier: GPL-3.0-or-later
// For tests: volumes with a state, a shared root and a place for sets.
#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

#include "base/encoding.h"
#include "base/files.h"
#include "sets.h"

namespace fairlead::companion {

struct Killed {};

inline std::string job_state(std::uint32_t next_id, const std::string& jobs) {
  std::string out("\0\0\0\x11PROTOCOL_VERSION\0\x26\0\0\0\0\0\x65\0\0\0", 31);
  for (int i = 3; i >= 0; --i) out += static_cast<char>(next_id >> (8 * i));
  return out + jobs;
}

struct World {
  std::string top, folder, state, jail;
  Instant now = *parse_time("2026-11-22T00:15:00Z");

  World() {
    std::string pattern = testing::TempDir() + "/sets-XXXXXX";
    top = ::mkdtemp(pattern.data());
    folder = top + "/sets", state = top + "/state", jail = top + "/jail";
    for (const std::string& one : {folder, state + "/hash.1/job.41", jail + "/home/ada", jail + "/versions/v1/etc", jail + "/versions/old", jail + "/restored/x"}) EXPECT_TRUE(make_dirs(one));
    fill_state(state, 41);
    write(jail + "/.fairlead-jail", "versions\n");
    EXPECT_EQ(::symlink("versions/v1", (jail + "/current").c_str()), 0);
    write(jail + "/home/ada/paper", "draft");
    write(jail + "/versions/v1/etc/passwd", "root");
  }
  ~World() { (void)remove_tree(top); }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  static void write(const std::string& path, const std::string& bytes) { EXPECT_TRUE(write_file_atomically(path, bytes, 0644)) << path; }
  static void write_in_place(const std::string& path, const std::string& bytes) {
    const Fd fd(::open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC));
    EXPECT_EQ(::write(fd.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  static void fill_state(const std::string& path, std::uint32_t next_id) {
    EXPECT_TRUE(make_dirs(path + "/hash.1/job." + std::to_string(next_id)));
    write(path + "/job_state", job_state(next_id, "jobs"));
    write(path + "/node_state", "nodes");
    write(path + "/hash.1/job." + std::to_string(next_id) + "/script", "#!/bin/sh");
  }
  // Of one head alone becomes that of several.
  void elect(int term) const {
    const std::string to = state + "/terms/" + std::to_string(term);
    EXPECT_TRUE(make_dirs(to));
    for (const char* name : {"job_state", "node_state", "hash.1"}) EXPECT_EQ(::rename((state + "/" + name).c_str(), (to + "/" + name).c_str()), 0);
    write(to + "/fairlead-holder", "term\n");
    write(state + "/fairlead-saved", "");
  }
  // Files that were just written count as changed.
  static void age_files() { std::this_thread::sleep_for(std::chrono::milliseconds(2100)); }

  MakeSet options() const {
    return {.folder = folder, .state = state, .jail = jail, .cluster = "demo", .version = "slurm 22.05.8", .now = now,
            .dump = [](const std::string& path) -> Result<Card> {
              write(path, "dump");
              return Card{{"database.sum", hex(sha256("dump"))}, {"database.last-id", "40"}};
            },
            .on_step = {}, .free_bytes = {}};
  }
};

}  // namespace fairlead::companion
