// SPDX-License-Identifier: GPL-3.0-or-later
#include "set_restore.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.h"
#include "base/encoding.h"
#include "base/files.h"
#include "base/log.h"
#include "hold.h"
#include "id_mark.h"
#include "job_state.h"
#include "sets.h"
#include "sets_jail.h"
#include "terms.h"

namespace fairlead::companion {
namespace {

std::string intent_path(const std::string& folder) { return folder + "/restore"; }
std::string outcome_path(const std::string& folder, const std::string& id) { return folder + "/restores/" + id; }
std::string mark_path(const std::string& folder) { return folder + "/mark"; }

Result<void> sync_folder(const std::string& path) {
  const Fd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder || ::fsync(folder.get()) != 0) return fail_errno(errno, "write " + path);
  return {};
}

Result<void> move(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) return fail_errno(errno, fmt::format("rename {} to {}", from, to));
  return {};
}

Result<void> forget_tree(const std::string& path) {
  if (auto gone = remove_tree(path); !gone && gone.error().code != Code::NotFound) return gone;
  return {};
}

// The restore of one intent. Steps in their order; what is reached is in the intent, written when the step is done, and each step may be done twice.
class Restore {
 public:
  Restore(const RestoreSet& options, Card intent)
      : options_(options), intent_(std::move(intent)), id_(value_of(intent_, "id")), set_(value_of(intent_, "set")), stage_(options.state + "/.fairlead-restore-" + id_), replaced_(options.state + "/.fairlead-replaced/" + id_) {}

  Result<bool> run() {
    const std::string step = value_of(intent_, "step");
    if (step == "check") {
      // Nothing has changed yet: an error ends it.
      if (auto done = wants("state") ? stage() : Result<void>(); !done) return give_up(done.error());
      if (auto done = reach(wants("state") ? "hold" : "database"); !done) return std::unexpected(std::move(done.error()));
      return false;
    }
    if (step == "hold") return hold();
    if (step == "database") {
      if (wants("database")) {
        touch();
        auto done = options_.restore_database(intent_);
        if (!done && done.error().code == Code::Unavailable) return wait_for_database(std::move(done.error()));
        if (!done) return give_up(std::move(done.error()).in("restore the accounting database"));
        if (const auto last = number_of(*done, "last-id"); last > 0) intent_["last-id"] = std::to_string(last);
        for (const char* name : {"kept"})
          if (const std::string kept = value_of(*done, name); !kept.empty()) intent_[std::string("database.") + name] = kept;
      }
      return next(wants("state") ? "out" : "jail");
    }
    if (step == "out") return done(put_aside(), "mark");
    if (step == "mark") return done(mark(), "in");
    if (step == "in") return done(put_in_place(), "release");
    if (step == "release") return done(release(), "jail");
    if (step == "jail") return done(wants("jail") ? bring_jail() : Result<void>(), "end");
    if (step == "end") return finish("done", "");
    if (step == "undo") return undo();
    return fail(Code::Invalid, "the restore that is under way has a step that this version does not know: " + step);
  }

 private:
  bool wants(const std::string& part) const {
    const auto parts = split(value_of(intent_, "parts"), ',');
    return std::find(parts.begin(), parts.end(), part) != parts.end();
  }
  void touch() const {
    if (options_.on_step) options_.on_step();
  }
  Result<void> reach(const std::string& step) {
    touch();
    intent_["step"] = step;
    return write_card("restore", intent_path(options_.folder), intent_);
  }
  Result<bool> next(const std::string& step) {
    if (auto reached = reach(step); !reached) return std::unexpected(std::move(reached.error()));
    return false;
  }
  Result<bool> done(Result<void> work, const std::string& step) {
    if (!work) return std::unexpected(std::move(work.error()));
    return next(step);
  }

  // A copy beside, on the volume of the state.
  Result<void> stage() {
    auto set = read_set(options_.folder, set_);
    if (!set) return std::unexpected(std::move(set.error()));
    touch();
    if (auto gone = forget_tree(stage_); !gone) return gone;
    if (auto made = make_dirs(stage_, 0755); !made) return made;
    touch();
    if (auto copied = copy_whole(options_.folder + "/sets/" + set_ + "/state", stage_); !copied) return copied;
    const Fd fd(::open(stage_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd || ::syncfs(fd.get()) != 0) return fail_errno(errno, "write " + stage_);
    return {};
  }

  // An empty cluster, which no head has begun yet, and which stays held when it is filled.
  bool fills() const { return !value_of(intent_, "import").empty(); }

  Result<bool> hold() {
    touch();
    if (fills()) {
      auto there = read_hold(options_.state);
      if (!there) return std::unexpected(std::move(there.error()));
      if (!*there || (*there)->kind != "import" || (*there)->id != value_of(intent_, "import")) return give_up({Code::Conflict, "the hold of this import is not there any more"});
      if (auto begun = find_state(options_.state); begun || begun.error().code != Code::NotFound) return give_up(begun ? Error{Code::Conflict, "there is a state of slurmctld already"} : begun.error());
      return next("database");
    }
    const Hold hold{id_, "restore", fmt::format("set {} is being restored", set_)};
    if (auto placed = place_hold(options_.state, hold); !placed) {
      if (placed.error().code == Code::Conflict) return give_up(placed.error());
      return std::unexpected(std::move(placed.error()));
    }
    if (is_held(options_.state, id_)) return next("database");
    if (const std::string since = value_of(intent_, "held-since"); since.empty()) {
      intent_["held-since"] = print_time(options_.now);
      if (auto written = write_card("restore", intent_path(options_.folder), intent_); !written) return std::unexpected(std::move(written.error()));
    } else if (auto began = parse_time(since); began && options_.now > *began + std::chrono::seconds(60) && exists(options_.state + "/terms")) {
      // Heads are elected: whoever still runs loses its path by the rename that follows, and confirms nothing from then on.
      return next("database");
    } else if (began && options_.now > *began + options_.wait_for_heads) {
      return give_up({Code::Unavailable, fmt::format("no head has said within {} s that slurmctld has ended; look at the pods controller-0...", options_.wait_for_heads.count())});
    }
    return fail(Code::Unavailable, "waits until slurmctld has ended");
  }

  // slurmctld does not run meanwhile: who is not there at all is not waited for without end.
  Result<bool> wait_for_database(Error why) {
    const std::string since = value_of(intent_, "database-since");
    if (since.empty()) {
      intent_["database-since"] = print_time(options_.now);
      if (auto written = write_card("restore", intent_path(options_.folder), intent_); !written) return std::unexpected(std::move(written.error()));
    } else if (auto began = parse_time(since); began && options_.now > *began + options_.wait_for_heads && options_.withdraw && options_.withdraw(intent_)) {
      return give_up({Code::Unavailable, fmt::format("container backup of the database's pod has not taken the request within {} s; is the database away?", options_.wait_for_heads.count())});
    }
    return std::unexpected(std::move(why));
  }

  // From here on nothing writes into the state: slurmctld has ended, and where heads are elected, a stale one has lost its path by this rename.
  Result<void> put_aside() {
    if (auto made = make_dirs(replaced_, 0700); !made) return made;
    auto at = find_state(options_.state);
    if (!at && at.error().code == Code::NotFound) return sync_folder(options_.state);
    if (!at) return std::unexpected(std::move(at.error()));
    if (at->term) {
      touch();
      if (auto moved = move(at->path, fmt::format("{}/term-{}", replaced_, *at->term)); !moved) return moved;
      return sync_folder(options_.state + "/terms");
    }
    auto all = list_dir(options_.state);
    if (!all) return std::unexpected(std::move(all.error()));
    for (const std::string& name : *all) {
      if (!is_of_slurm(name)) continue;
      touch();
      if (auto moved = move(options_.state + "/" + name, replaced_ + "/" + name); !moved) return moved;
    }
    return sync_folder(options_.state);
  }

  struct Aside {
    std::string path;
    std::optional<std::uint64_t> term;
  };
  Result<Aside> aside() const {
    auto list = list_dir(replaced_);
    if (!list) return std::unexpected(std::move(list.error()));
    Aside out{replaced_, std::nullopt};
    for (const std::string& name : *list)
      if (name.starts_with("term-")) {
        const std::uint64_t number = std::strtoull(name.c_str() + 5, nullptr, 10);
        if (!out.term || number > *out.term) out = {replaced_ + "/" + name, number};
      }
    return out;
  }

  // No id is given twice.
  Result<void> mark() {
    auto old = aside();
    if (!old) return std::unexpected(std::move(old.error()));
    auto fresh = read_job_state_file(stage_);
    auto head = fresh ? read_job_state(*fresh) : Result<JobStateHead>(std::unexpected(fresh.error()));
    if (!head) return std::unexpected(std::move(head.error()));
    std::uint64_t next_id = std::max<std::uint64_t>({head->next_id, read_mark_of(options_.folder), static_cast<std::uint64_t>(number_of(intent_, "last-id")) + 1, static_cast<std::uint64_t>(number_of(intent_, "set-last-id")) + 1});
    auto bytes = read_job_state_file(old->path);
    auto known = bytes ? read_job_state(*bytes) : Result<JobStateHead>(std::unexpected(bytes.error()));
    // One that is behind the mark was begun anew since: what was given between the mark and that is not known.
    if (known && known->next_id < read_mark_of(options_.folder)) known = fail(Code::Invalid, fmt::format("it goes on at {}, and {} was known before", known->next_id, read_mark_of(options_.folder)));
    // Ids that were given and never saved are below the mark beside it.
    if (const auto given = read_id_mark(old->path); given && *given) next_id = std::max<std::uint64_t>(next_id, **given);
    if (known) next_id = std::max<std::uint64_t>(next_id, known->next_id);
    else if (!fills()) {  // what an import brings is all that is known of these ids
      log_warn("what the state that is replaced says of ids is not all: some are left out", {{"reason", known.error().message}, {"count", std::to_string(kIdsInDoubt)}});
      next_id += kIdsInDoubt;
      intent_["doubt"] = known.error().message;
    }
    if (next_id > kHighestId) return fail(Code::Exhausted, fmt::format("the ids of jobs are used up: the next one would be {}", next_id));
    auto marked = with_next_id(std::move(*fresh), static_cast<std::uint32_t>(next_id));
    if (!marked) return std::unexpected(std::move(marked.error()));
    struct stat info {};
    if (::stat((stage_ + "/job_state").c_str(), &info) != 0) return fail_errno(errno, "look at the copy of job_state");
    touch();
    if (auto written = write_file_durably(stage_ + "/job_state", *marked, info.st_mode & 07777); !written) return written;
    if (::chown((stage_ + "/job_state").c_str(), info.st_uid, info.st_gid) != 0) return fail_errno(errno, "chown the copy of job_state");
    intent_["next-id"] = std::to_string(next_id);
    return write_mark(options_.folder, options_.cluster, static_cast<std::uint32_t>(next_id));
  }

  Result<void> put_in_place() {
    auto old = aside();
    if (!old) return std::unexpected(std::move(old.error()));
    if (old->term || exists(options_.state + "/terms")) {
      if (!exists(stage_)) return {};  // done before
      struct stat info {};
      if (::stat(old->path.c_str(), &info) == 0 && old->term && ::chown(stage_.c_str(), info.st_uid, info.st_gid) != 0) return fail_errno(errno, "chown " + stage_);
      if (auto made = make_dirs(options_.state + "/terms", 0755); !made) return made;
      touch();
      if (auto moved = move(stage_, fmt::format("{}/terms/{}", options_.state, old->term.value_or(0) + 1)); !moved) return moved;
      return sync_folder(options_.state + "/terms");
    }
    auto all = list_dir(stage_);
    if (!all && all.error().code == Code::NotFound) return {};
    if (!all) return std::unexpected(std::move(all.error()));
    for (const std::string& name : *all) {
      touch();
      if (auto moved = move(stage_ + "/" + name, options_.state + "/" + name); !moved) return moved;
    }
    if (auto synced = sync_folder(options_.state); !synced) return synced;
    return forget_tree(stage_);
  }

  Result<void> release() {
    touch();
    if (fills()) return {};
    return lift_hold(options_.state, id_);
  }

  // Never over what is there.
  Result<void> bring_jail() {
    const std::string parent = options_.jail + "/" + kRestoredFolder, to = parent + "/" + set_, partial = parent + "/." + set_ + ".partial";
    // Users of the shared root are root in it: a link there must not lead us elsewhere.
    struct stat info {};
    if (::lstat(parent.c_str(), &info) == 0 && (!S_ISDIR(info.st_mode) || info.st_uid != ::geteuid())) {
      intent_["jail.error"] = fmt::format("{} of its volume is no folder of root's; move it away", kRestoredFolder);
      return {};
    }
    if (exists(to)) return {};
    if (auto gone = forget_tree(partial); !gone) return gone;
    if (auto made = make_dirs(partial, 0700); !made) return made;
    touch();
    if (auto copied = copy_whole(options_.folder + "/sets/" + set_ + "/jail", partial); !copied) {
      (void)forget_tree(partial);
      if (copied.error().code == Code::Exhausted) {  // the rest of the restore stands
        intent_["jail.error"] = copied.error().message;
        return {};
      }
      return copied;
    }
    touch();
    if (auto moved = move(partial, to); !moved) return moved;
    return sync_folder(parent);
  }

  // Before anything was replaced.
  Result<bool> give_up(Error error) {
    intent_["error"] = error.message;
    return next("undo");
  }
  Result<bool> undo() {
    touch();
    if (wants("state")) {
      if (auto lifted = fills() ? Result<void>() : lift_hold(options_.state, id_); !lifted && lifted.error().code != Code::Conflict) return std::unexpected(std::move(lifted.error()));
      if (auto gone = forget_tree(stage_); !gone) return std::unexpected(std::move(gone.error()));
    }
    return finish("failed", value_of(intent_, "error"));
  }
  Result<bool> finish(const std::string& outcome, const std::string& error) {
    touch();
    if (outcome == "done" && wants("state")) forget_replaced();
    intent_["outcome"] = outcome;
    intent_["error"] = error;
    intent_["ended"] = print_time(options_.now);
    if (auto made = make_dirs(options_.folder + "/restores", 0700); !made) return std::unexpected(std::move(made.error()));
    if (auto written = write_card("restore", outcome_path(options_.folder, id_), intent_); !written) return std::unexpected(std::move(written.error()));
    touch();
    if (::unlink(intent_path(options_.folder).c_str()) != 0 && errno != ENOENT) return fail_errno(errno, "end the restore");
    return true;
  }

  // What earlier restores put aside does not fill the volume. Each is named by its time; names of other kinds are somebody's own.
  void forget_replaced() const {
    const std::string parent = options_.state + "/.fairlead-replaced";
    auto list = list_dir(parent);
    if (!list) return;
    std::erase_if(*list, [&](const std::string& name) { return name == id_ || name.size() < 17 || name[16] != '-' || !set_time(name.substr(0, 16)); });
    std::sort(list->begin(), list->end());
    for (; list->size() >= kReplacedKept; list->erase(list->begin())) {
      touch();
      if (auto gone = remove_tree(parent + "/" + list->front()); !gone) log_warn("a state that was replaced long ago stays", {{"name", list->front()}, {"reason", gone.error().message}});
    }
  }

  const RestoreSet& options_;
  Card intent_;
  const std::string id_, set_, stage_, replaced_;
};

}  // namespace

Result<Card> read_intent(const std::string& folder) { return read_card("restore", intent_path(folder)); }
Result<Card> read_outcome(const std::string& folder, const std::string& id) { return read_card("restore", outcome_path(folder, id)); }

Result<Fd> alone_to_begin(const std::string& folder) {
  Fd alone(::open((folder + "/.begin").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!alone || ::flock(alone.get(), LOCK_EX) != 0) return fail_errno(errno, "lock " + folder);
  return alone;
}

Result<Card> begin_restore(const RestoreSet& options, const std::string& name, const std::vector<std::string>& parts, const std::string& id) {
  if (auto under_way = read_intent(options.folder); under_way) return fail(Code::Conflict, fmt::format("a restore of set {} is under way (step {})", value_of(*under_way, "set"), value_of(*under_way, "step")));
  else if (under_way.error().code != Code::NotFound) return under_way;
  auto set = read_set(options.folder, name);
  if (!set) return std::unexpected(std::move(set.error()));
  if (set->cluster != options.cluster) return fail(Code::Invalid, fmt::format("set {} is of cluster {}, and this one is {}", name, set->cluster, options.cluster));
  if (parts.empty()) return fail(Code::Invalid, "name the parts that are to be restored: state, database, jail");
  if (auto whole = check_set(options.folder, *set, parts); !whole) return std::unexpected(std::move(whole.error()));
  const bool state = std::find(parts.begin(), parts.end(), "state") != parts.end();
  const auto free = [&](const std::string& folder) {
    if (options.free_bytes) return options.free_bytes(folder);
    struct statvfs volume {};
    return ::statvfs(folder.c_str(), &volume) == 0 ? std::uint64_t{volume.f_bavail} * volume.f_frsize : std::uint64_t{0};
  };
  for (const auto& [part, volume] : {std::pair<const char*, std::string>{"state", options.state}, {"jail", options.jail}}) {
    if (std::find(parts.begin(), parts.end(), part) == parts.end()) continue;
    const auto need = static_cast<std::uint64_t>(number_of(set->card, std::string(part) + ".bytes")) / 4 * 5 + (std::uint64_t{16} << 20);
    if (volume.empty()) return fail(Code::Invalid, fmt::format("this cluster has no volume for part {}", part));
    if (free(volume) < need) return fail(Code::Exhausted, fmt::format("the volume of part {} has {} MiB free, and {} MiB are wanted beside what is there", part, free(volume) >> 20, need >> 20));
  }
  if (state)
    if (auto held = read_hold(options.state); !held || (*held && (options.import.empty() || (*held)->kind != "import" || (*held)->id != options.import))) return fail(Code::Conflict, held ? "slurmctld is kept from running: " + (*held)->reason : held.error().message);
  Card intent = {{"id", id}, {"set", name}, {"parts", fmt::format("{}", fmt::join(parts, ","))}, {"step", "check"}, {"began", print_time(options.now)}, {"set-last-id", value_of(set->card, "database.last-id")}};
  if (!options.import.empty()) intent["import"] = options.import;
  if (options.on_step) options.on_step();
  if (auto written = write_card("restore", intent_path(options.folder), intent); !written) return std::unexpected(std::move(written.error()));
  return intent;
}

Result<bool> carry_on_restore(const RestoreSet& options) {
  while (true) {
    auto intent = read_intent(options.folder);
    if (!intent && intent.error().code == Code::NotFound) return true;
    if (!intent) return std::unexpected(std::move(intent.error()));
    auto ended = Restore(options, std::move(*intent)).run();
    if (!ended || *ended) return ended;
  }
}

Result<void> write_mark(const std::string& folder, const std::string& cluster, std::uint32_t next_id) {
  if (read_mark_of(folder) >= next_id) return {};
  return write_card("mark", mark_path(folder), {{"cluster", cluster}, {"next-id", std::to_string(next_id)}});
}

std::uint32_t read_mark_of(const std::string& folder) {
  auto card = read_card("mark", mark_path(folder));
  return card ? static_cast<std::uint32_t>(number_of(*card, "next-id")) : 0;
}

}  // namespace fairlead::companion
