// SPDX-License-Identifier: GPL-3.0-or-later
// The high-water mark of issued job ids (docs/design/018-ids-and-keys.md): STATE/fairlead-ids beside job_state. Every id in front of `next` may have been given to a job, none from it on. While slurmctld runs, the library that is
// preloaded into it keeps the mark ahead of what it gives out (durable/ids.cpp); before it starts, this side puts the sequence in the header of job_state above the mark.
// Whoever restores a state, or moves one to another place, keeps the higher mark: raise_id_mark().
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/result.h"

namespace fairlead::companion {

// What Slurm gives out: `first` up to, but without, `end`, and then from `first` again. FirstJobId and MaxJobId of slurm.conf.
struct IdRange {
  std::uint32_t first = 1, end = 0x03ff0000;
  friend bool operator==(const IdRange&, const IdRange&) = default;
};
IdRange id_range(const std::string& slurm_conf);
// Comes `id` in front of `mark`, in a range that begins again at its end? The shorter way counts.
bool in_front_of(std::uint32_t id, std::uint32_t mark, IdRange range);

// Nothing: there is no mark. Invalid: it is damaged.
Result<std::optional<std::uint32_t>> read_id_mark(const std::string& state);
// Writes it as it is, for `owner`. Durable, and a new file each time: what an earlier slurmctld still writes is in the old one. Only where there is no space it is written in place.
Result<void> write_id_mark(const std::string& state, std::uint32_t next, uid_t owner, gid_t group);
// Never lower than it was. No slurmctld may run on this state.
Result<void> raise_id_mark(const std::string& state, std::uint32_t next, uid_t owner, gid_t group, IdRange range = {});

// The id that job_state or job_state.old says comes next; nothing: neither is there, or its header is not understood.
std::optional<std::uint32_t> id_in_state(const std::string& state);

// Before each start of slurmctld on `state` (StateSaveLocation): the mark is there, and the saved state gives out nothing in front of it. Returns the mark.
// Killed at any point and called again it is the same.
Result<std::uint32_t> prepare_ids(const std::string& state, IdRange range, uid_t owner, gid_t group);

// What slurmctld comes to, in a file that both map: {magic, next}, so that a daemon that died here leaves no gap in the ids.
class IdPage {
 public:
  // A new file each time. `owner`: whom slurmctld runs as.
  static Result<IdPage> create(const std::string& path);
  IdPage(IdPage&& other) noexcept;
  IdPage& operator=(IdPage&& other) noexcept;
  ~IdPage();
  std::optional<std::uint32_t> next() const;  // nothing: no id was given

 private:
  struct Page;
  explicit IdPage(Page* page) : page_(page) {}
  Page* page_;
};

// The ids of one daemon after the other on this machine: before_start() adds what the library needs to its environment, after_end() leaves the exact mark for whoever comes next.
class IdKeeper {
 public:
  IdKeeper(std::string run_dir, std::string slurm_conf) : run_dir_(std::move(run_dir)), slurm_conf_(std::move(slurm_conf)) {}
  Result<void> before_start(const std::string& state, std::map<std::string, std::string>& environment);
  // Only while the state is still ours.
  void after_end(const std::string& state);

 private:
  std::string run_dir_, slurm_conf_;
  std::optional<IdPage> page_;
  std::uint32_t from_ = 0;  // the mark of the last start
};

// ids [--at-least N]: what the mark and the saved state in `state` say.
int print_ids(const std::string& state, const std::string& at_least);

}  // namespace fairlead::companion
