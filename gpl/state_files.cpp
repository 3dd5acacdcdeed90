// SPDX-License-Identifier: GPL-3.0-or-later
#include "state_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/fd.h"
#include "base/files.h"
#include "base/log.h"
#include "terms.h"

namespace fairlead::companion {
namespace {

// Those of which Slurm itself says "fatal" when it can open them and does not understand them. The others are figures that come again.
constexpr const char* kFiles[] = {"job_state", "node_state", "part_state", "resv_state", "trigger_state"};
constexpr const char* kJobs = "job_state";

// This thread opens files as somebody else, without root's rights. For another user than root it changes nothing.
class FilesOf {
 public:
  FilesOf(uid_t user, gid_t group) : group_(::setfsgid(group)), user_(::setfsuid(user)) {}
  FilesOf(const FilesOf&) = delete;
  FilesOf& operator=(const FilesOf&) = delete;
  ~FilesOf() {
    ::setfsuid(static_cast<uid_t>(user_));
    ::setfsgid(static_cast<gid_t>(group_));
  }

 private:
  int group_, user_;
};

// NotFound: it is not there.
Result<struct stat> look(const std::string& path) {
  struct stat info{};
  if (::lstat(path.c_str(), &info) == 0) return info;
  return fail_errno(errno, "look at " + path);
}

// As Slurm does it, which maps the file: what fails later ends slurmctld by a signal, and loses nothing.
Result<void> open_as(const std::string& path, uid_t user, gid_t group) {
  const FilesOf as(user, group);
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  char byte = 0;
  if (!fd) return fail_errno(errno, fmt::format("user {} cannot open it", user));
  if (::pread(fd.get(), &byte, 1, 0) < 0) return fail_errno(errno, "it cannot be read");
  return {};
}

std::string remedy(const std::string& state, const std::string& file) {
  return fmt::format("Put it right, or restore a backup; to go on with the save before, if {0}.old is whole: mv {1}/{0}.old {1}/{0}", file, state);
}

Result<void> check_file(const std::string& state, const std::string& file, uid_t user, gid_t group) {
  const std::string path = state + "/" + file;
  auto info = look(path);
  if (!info && info.error().code == Code::NotFound) return {};
  std::string why;
  if (!info) why = info.error().message;
  else if (!S_ISREG(info->st_mode)) why = "it is no file";
  else if (info->st_size == 0) why = "it is empty";
  if (!why.empty()) return fail(info ? Code::Invalid : Code::Unavailable, fmt::format("slurmctld would begin without what it saved in {}: {}. {}", path, why, remedy(state, file)));
  if (auto opened = open_as(path, user, group); !opened) return fail(Code::Unavailable, fmt::format("slurmctld would begin without what it saved in {}: {}. {}", path, opened.error().message, remedy(state, file)));
  return {};
}

}  // namespace

Result<void> check_state(const std::string& state, bool was_saved, uid_t user, gid_t group) {
  for (const char* file : kFiles)
    if (auto good = check_file(state, file, user, group); !good) return good;
  auto jobs = look(state + "/" + kJobs);
  if (jobs || jobs.error().code != Code::NotFound) return {};  // looked at above
  // A save that was cut between two renames: Slurm begins with the one before, and what came since was confirmed to nobody.
  auto before = look(fmt::format("{}/{}.old", state, kJobs));
  if (before) return check_file(state, fmt::format("{}.old", kJobs), user, group);
  if (before.error().code != Code::NotFound) return std::unexpected(std::move(before.error()));
  if (!was_saved) return {};
  return fail(Code::Invalid, fmt::format("slurmctld would begin without jobs: {} has neither job_state nor job_state.old, although the state was saved there before. Restore a backup; or, to begin with no jobs at all, remove the file fairlead-saved of the volume", state));
}

Result<void> remove_unfinished_saves(const std::string& state) {
  auto names = list_dir(state);
  if (!names) return std::unexpected(std::move(names.error()));
  for (const std::string& name : *names)
    if (name.ends_with(".new") && ::unlink((state + "/" + name).c_str()) != 0 && errno != ENOENT) return fail_errno(errno, fmt::format("remove {}/{}", state, name));
  return {};
}

Result<void> give_state_to(const std::string& state, uid_t user, gid_t group) {
  namespace fs = std::filesystem;
  std::vector<std::string> last;
  for (const char* file : kFiles)
    for (const char* end : {"", ".old"})
      if (auto info = look(fmt::format("{}/{}{}", state, file, end)); info && info->st_uid == 0 && user != 0) last.push_back(fmt::format("{}/{}{}", state, file, end));
  if (last.empty()) return {};
  const auto give = [&](const std::string& path) -> Result<void> {
    struct stat info{};
    if (::lstat(path.c_str(), &info) != 0) {
      if (errno == ENOENT) return {};
      return fail_errno(errno, "look at " + path);
    }
    if (info.st_uid != 0 || ::lchown(path.c_str(), user, group) == 0) return {};
    return fail_errno(errno, "chown " + path);
  };
  std::error_code error;
  fs::recursive_directory_iterator at(state + "/", error);
  for (const fs::recursive_directory_iterator end; !error && at != end; at.increment(error)) {
    const std::string path = at->path().string();
    if (at.depth() == 0 && !is_of_slurm(at->path().filename().string())) {
      at.disable_recursion_pending();
      continue;
    }
    if (at.depth() == 0 && std::find(last.begin(), last.end(), path) != last.end()) continue;
    if (auto given = give(path); !given) return given;
  }
  if (error) return fail(Code::Unavailable, fmt::format("look through {}: {}", state, error.message()));
  for (const std::string& path : last)
    if (auto given = give(path); !given) return given;
  log_info("the state of a slurmctld that ran as root was given to the user slurm", {{"state", state}});
  return {};
}

}  // namespace fairlead::companion
