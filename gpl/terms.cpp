// SPDX-License-Identifier: GPL-3.0-or-later
#include "terms.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "base/fd.h"
#include "base/files.h"
#include "base/log.h"
#include "state_files.h"

namespace fairlead::companion {
namespace {

constexpr const char* kMarker = "fairlead-saved";

Result<void> sync_folder(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0) return fail_errno(errno, "sync " + path);
  return {};
}

// -1: not a number as we write them.
std::int64_t number_of(const std::string& name) {
  if (name.empty() || name.size() > 18 || name.find_first_not_of("0123456789") != std::string::npos || (name[0] == '0' && name != "0")) return -1;
  return std::stoll(name);
}

struct Found {
  std::int64_t highest = -1;
  std::vector<std::string> loose;  // files of a head that was alone
  bool saved = false;              // the marker is there; what cannot be listed is an error, never a volume without it
};

Result<Found> look(const std::string& volume) {
  Found found;
  auto terms = list_dir(volume + "/terms");
  if (!terms) return std::unexpected(std::move(terms.error()));
  for (const std::string& name : *terms) found.highest = std::max(found.highest, number_of(name));
  auto all = list_dir(volume);
  if (!all) return std::unexpected(std::move(all.error()));
  for (const std::string& name : *all)
    if (is_of_slurm(name)) found.loose.push_back(name);
    else found.saved = found.saved || name == kMarker;
  return found;
}

bool has_state(const std::string& path) { return exists(path + "/job_state") || exists(path + "/job_state.old"); }

Result<void> move_loose(const std::string& volume, const Found& found) {
  for (const std::string& name : found.loose) {
    const std::string from = volume + "/" + name, to = volume + "/terms/0/" + name;
    if (::rename(from.c_str(), to.c_str()) != 0) return fail_errno(errno, fmt::format("move {} to {}", from, to));
  }
  if (!found.loose.empty()) log_info("the state of a head that was alone is now that of term 0", {{"volume", volume}, {"entries", std::to_string(found.loose.size())}});
  return sync_folder(volume + "/terms/0");
}

}  // namespace

bool is_of_slurm(const std::string& name) { return name != "terms" && name != kMarker && name != "lost+found" && name[0] != '.'; }

Result<StateAt> find_state(const std::string& volume) {
  auto terms = list_dir(volume + "/terms");
  if (!terms && terms.error().code != Code::NotFound) return std::unexpected(std::move(terms.error()));
  if (terms) {
    std::int64_t highest = -1;
    for (const std::string& name : *terms) highest = std::max(highest, number_of(name));
    if (highest >= 0) return StateAt{fmt::format("{}/terms/{}", volume, highest), static_cast<std::uint64_t>(highest)};
  }
  auto all = list_dir(volume);
  if (!all) return std::unexpected(std::move(all.error()));
  if (std::none_of(all->begin(), all->end(), is_of_slurm)) return fail(Code::NotFound, volume + " holds no state of slurmctld");
  return StateAt{volume, std::nullopt};
}

Result<Term> take_term(const std::string& volume, const std::string& holder, uid_t owner, gid_t group, const std::function<bool()>& allowed) {
  if (auto made = make_dirs(volume + "/terms", 0755); !made) return std::unexpected(std::move(made.error()));
  auto found = look(volume);
  if (!found) return std::unexpected(std::move(found.error()));
  if (found->highest < 0) {
    if (found->saved && found->loose.empty())
      return fail(Code::Invalid, fmt::format("{} held the state of this cluster and holds none now; restore it from a backup, or, to begin with no jobs at all, remove {}/{}", volume, volume, kMarker));
    if (auto made = make_dirs(volume + "/terms/0", 0755); !made) return std::unexpected(std::move(made.error()));
    found->highest = 0;
  }
  if (found->highest == 0) {
    if (auto moved = move_loose(volume, *found); !moved) return std::unexpected(std::move(moved.error()));
  } else if (!found->loose.empty()) {
    log_warn("files beside the terms are left alone", {{"volume", volume}, {"first", found->loose[0]}});
  }
  const std::string from = fmt::format("{}/terms/{}", volume, found->highest);
  if (found->saved && !has_state(from))
    return fail(Code::Invalid, fmt::format("{} has neither job_state nor job_state.old, although the state was saved before; restore it from a backup, or, to begin with no jobs at all, remove {}/{}", from, volume, kMarker));

  Term term{static_cast<std::uint64_t>(found->highest) + 1, fmt::format("{}/terms/{}", volume, found->highest + 1)};
  if (!allowed()) return fail(Code::Conflict, volume + " kept this head waiting beyond its lease");
  if (::rename(from.c_str(), term.path.c_str()) != 0) {
    if (errno == ENOENT || errno == ENOTEMPTY || errno == EEXIST) return fail(Code::Conflict, "another head has taken over the state: " + from + " is gone");
    return fail_errno(errno, fmt::format("rename {} to {}", from, term.path));
  }
  if (auto synced = sync_folder(volume + "/terms"); !synced) return std::unexpected(std::move(synced.error()));
  // An earlier daemon may be writing such a file at this moment: it keeps the file, we make others.
  if (auto removed = remove_unfinished_saves(term.path); !removed) return std::unexpected(std::move(removed.error()));
  if (auto written = write_file_durably(term.path + "/fairlead-holder", fmt::format("term {} {}\n", term.number, holder), 0644); !written) return std::unexpected(std::move(written.error()));
  if (::chown(term.path.c_str(), owner, group) != 0) return fail_errno(errno, "chown " + term.path);
  return term;
}

Result<bool> still_there(const Term& term) {
  struct stat info{};
  if (::stat(term.path.c_str(), &info) == 0) return true;
  if (errno == ENOENT) return false;
  return fail_errno(errno, "look at " + term.path);
}

bool was_saved(const std::string& volume) { return exists(volume + "/" + kMarker); }

Result<bool> mark_saved(const std::string& volume, const Term& term) {
  const std::string marker = volume + "/" + kMarker;
  if (exists(marker)) return true;
  if (!has_state(term.path)) return false;
  if (auto written = write_file_durably(marker, "State of Slurm was saved here. While this file is there, slurmctld is never started without it.\n", 0644); !written) return std::unexpected(std::move(written.error()));
  if (auto synced = sync_folder(volume); !synced) return std::unexpected(std::move(synced.error()));
  return true;
}

}  // namespace fairlead::companion
