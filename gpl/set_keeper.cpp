// SPDX-License-Identifier: GPL-3.0-or-later
#include "set_keeper.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "base/clock.h"
#include "base/encoding.h"
#include "base/files.h"
#include "base/log.h"
#include "base/process.h"
#include "cluster_move.h"
#include "job_state.h"
#include "move_commands.h"
#include "set_database.h"
#include "set_restore.h"
#include "sets.h"
#include "set_settings.h"
#include "terms.h"

namespace fairlead::companion {

RestoreSet restore_options(const Settings& settings, Instant now) {
  return {.folder = settings.folder, .state = settings.state, .jail = settings.jail, .cluster = settings.cluster,
          .restore_database = [settings](const Card& intent) -> Result<Card> {
            auto set = read_set(settings.folder, value_of(intent, "set"));
            if (!set) return std::unexpected(std::move(set.error()));
            return ask_for_restore(settings.folder, "restore-" + value_of(intent, "id"), "sets/" + set->name + "/database.sql.gz", value_of(set->card, "database.sum"), settings.cluster);
          },
          .withdraw = [settings](const Card& intent) { return withdraw_request(settings.folder, "restore-" + value_of(intent, "id")); },
          .on_step = {}, .free_bytes = {}, .now = now};
}

Result<SetInfo> make_one(const Settings& settings, Instant now, const std::string& version) {
  MakeSet options{.folder = settings.folder, .state = settings.state, .jail = settings.has("jail") ? settings.jail : "", .cluster = settings.cluster, .version = version, .now = now, .dump = {}, .on_step = {}, .free_bytes = {}};
  if (settings.has("database"))
    options.dump = [&](const std::string& path) { return ask_for_dump(settings.folder, path.substr(settings.folder.size() + 1), settings.cluster, std::chrono::seconds(120)); };
  return make_set(options);
}

namespace {

std::string status_path(const Settings& settings) { return settings.folder + "/status"; }
std::string wish_path(const Settings& settings) { return settings.folder + "/wish"; }

// What failed last and since when; nothing: the last one went well.
void tell_status(const Settings& settings, const std::string& error, Instant now) {
  auto old = read_card("status", status_path(settings));
  Card card;
  if (!error.empty()) {
    card["error"] = error;
    card["since"] = old && !value_of(*old, "error").empty() ? value_of(*old, "since") : print_time(now);
  }
  if (old && *old == card) return;
  if (auto written = write_card("status", status_path(settings), card); !written) log_warn("the volume of the sets cannot be written", {{"reason", written.error().message}});
}

std::optional<Instant> newest(const Settings& settings, Instant now) {
  const auto names = set_names(settings.folder);
  for (auto name = names.rbegin(); name != names.rend(); ++name)
    if (const auto at = set_time(*name); at && *at <= now + std::chrono::minutes(1) && read_set(settings.folder, *name)) return at;
  return std::nullopt;
}

std::string slurm_version() {
  auto out = run_checked({.argv = {"slurmctld", "-V"}}, std::chrono::seconds(10));
  return out ? std::string(trim(*out)) : "";
}

void keep_mark(const Settings& settings) {
  auto at = find_state(settings.state);
  if (!at) return;
  auto bytes = read_job_state_file(at->path);
  auto head = bytes ? read_job_state(*bytes) : Result<JobStateHead>(std::unexpected(bytes.error()));
  if (!head) return;
  if (auto written = write_mark(settings.folder, settings.cluster, head->next_id); !written) log_warn("the mark of issued ids cannot be written", {{"reason", written.error().message}});
}

std::string json_of(const Settings& settings, Instant now) {
  std::string sets;
  for (const std::string& name : set_names(settings.folder)) {
    auto set = read_set(settings.folder, name);
    if (!set) {
      sets += fmt::format("{}{{\"name\":{},\"error\":{}}}", sets.empty() ? "" : ",", quoted(name), quoted(set.error().message));
      continue;
    }
    std::string parts;
    for (const std::string& part : set->parts) parts += (parts.empty() ? "" : ",") + quoted(part);
    sets += fmt::format("{}{{\"name\":{},\"time\":{},\"cluster\":{},\"nextJobId\":{},\"bytes\":{},\"parts\":[{}],\"slurm\":{}}}", sets.empty() ? "" : ",", quoted(name), quoted(print_time(set->at)), quoted(set->cluster), set->next_id, set->bytes, parts, quoted(value_of(set->card, "slurm")));
  }
  const auto last = newest(settings, now);
  const bool fresh = last && settings.fresh(*last, now);
  std::string out = fmt::format("{{\"fresh\":{},\"sets\":[{}]", fresh ? "true" : "false", sets);
  if (auto status = read_card("status", status_path(settings)); status && !value_of(*status, "error").empty())
    out += fmt::format(",\"error\":{},\"failingSince\":{}", quoted(value_of(*status, "error")), quoted(value_of(*status, "since")));
  out += moves_json(settings);
  if (auto intent = read_intent(settings.folder)) out += fmt::format(",\"restore\":{{\"set\":{},\"step\":{},\"began\":{}}}", quoted(value_of(*intent, "set")), quoted(value_of(*intent, "step")), quoted(value_of(*intent, "began")));
  return out + "}\n";
}

int make_now(const Settings& settings) {
  const SystemClock clock;
  const std::string id = new_id(clock.now());
  if (auto written = write_card("wish", wish_path(settings), {{"id", id}}); !written) return refuse(written.error().message);
  while (true) {
    if (auto answer = read_card("answer", wish_path(settings) + ".answer"); answer && value_of(*answer, "id") == id) {
      if (value_of(*answer, "ok") != "yes") return refuse(value_of(*answer, "error"));
      std::printf("%s\n", value_of(*answer, "name").c_str());
      return 0;
    }
    if (auto wish = read_card("wish", wish_path(settings)); wish && value_of(*wish, "id") != id) return refuse("somebody else asked for a set meanwhile: see the list");
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

int restore_set(const Settings& settings, const std::vector<std::string>& arguments) {
  std::string name, parts;
  bool dry = false;
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    if (arguments[i] == "--dry-run") dry = true;
    else if (arguments[i] == "--parts" && i + 1 < arguments.size()) parts = arguments[++i];
    else if (name.empty() && !arguments[i].starts_with("-")) name = arguments[i];
    else return refuse("restore-set: give the name of a set or latest, --parts state,database,jail, --dry-run");
  }
  const SystemClock clock;
  if (name == "latest")
    if (const auto at = newest(settings, clock.now())) name = set_name(*at);
  auto set = read_set(settings.folder, name);
  if (!set) return refuse(set.error().message);
  std::vector<std::string> wanted;
  if (parts.empty()) {
    // The shared root is not put back unasked: its files would only lie beside.
    for (const std::string& part : set->parts)
      if (part != "jail") wanted.push_back(part);
  } else {
    for (const std::string& part : split(parts, ',')) {
      if (!set->has(part)) return refuse(fmt::format("set {} has no part \"{}\"; it has {}", name, part, fmt::join(set->parts, ", ")));
      wanted.push_back(part);
    }
  }
  if (dry) {
    if (set->cluster != settings.cluster) return refuse(fmt::format("set {} is of cluster {}, and this one is {}", name, set->cluster, settings.cluster));
    if (auto whole = check_set(settings.folder, *set, wanted); !whole) return refuse(whole.error().message);
    std::printf("set %s is whole; %s would be restored, ids would go on at %u or above; nothing is changed\n", name.c_str(), fmt::format("{}", fmt::join(wanted, ", ")).c_str(), std::max(set->next_id, read_mark_of(settings.folder)));
    return 0;
  }
  const std::string id = new_id(clock.now());
  Result<Card> begun = fail(Code::Unavailable, "the volume of the sets cannot be locked");
  if (auto alone = alone_to_begin(settings.folder)) {
    if (auto moving = read_export(settings.folder); moving) begun = fail(Code::Conflict, "an export of this cluster is under way, or it has been handed over");
    else begun = begin_restore(restore_options(settings, clock.now()), name, wanted, id);
  }
  if (!begun) return refuse(begun.error().message);
  std::string shown;
  while (true) {
    if (auto outcome = read_outcome(settings.folder, id)) {
      if (value_of(*outcome, "outcome") != "done") return refuse(fmt::format("set {} was not restored, nothing was replaced: {}", name, value_of(*outcome, "error")));
      std::string next = value_of(*outcome, "next-id");
      std::printf("set %s is restored: %s%s\n", name.c_str(), value_of(*outcome, "parts").c_str(), next.empty() ? "" : fmt::format("; the next job gets id {}", next).c_str());
      if (const std::string kept = value_of(*outcome, "database.kept"); !kept.empty()) std::printf("the records that were replaced are in backup %s of the database\n", kept.c_str());
      if (!next.empty()) std::printf("the state that was replaced is in .fairlead-replaced/%s of its volume\n", id.c_str());
      if (const std::string doubt = value_of(*outcome, "doubt"); !doubt.empty()) std::printf("%u ids were left out, since the state that was replaced does not tell all that were given: %s\n", kIdsInDoubt, doubt.c_str());
      if (const std::string jail = value_of(*outcome, "jail.error"); !jail.empty()) std::printf("the shared root was not copied: %s\n", jail.c_str());
      else if (std::find(wanted.begin(), wanted.end(), "jail") != wanted.end()) std::printf("files of the shared root are in restored/%s of its volume\n", name.c_str());
      return 0;
    }
    if (auto intent = read_intent(settings.folder); intent && value_of(*intent, "step") != shown) {
      shown = value_of(*intent, "step");
      std::fprintf(stderr, "step %s\n", shown.c_str());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

}  // namespace

int run_set_keeper() {
  ::signal(SIGTERM, [](int) { ::_exit(0); });
  const Settings settings;
  const SystemClock clock;
  if (auto made = make_dirs(settings.folder, 0700); !made) return refuse(made.error().message);
  const std::string version = slurm_version();
  std::string told;
  int failures = 0;
  auto try_at = clock.monotonic(), mark_at = clock.monotonic();
  while (true) {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    const Instant now = clock.now();
    // A pod that is ending may still be at it.
    const Fd alone(::open((settings.folder + "/.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!alone || ::flock(alone.get(), LOCK_EX | LOCK_NB) != 0) continue;
    if (auto intent = read_intent(settings.folder); intent || intent.error().code != Code::NotFound) {
      auto ended = carry_on_restore(restore_options(settings, now));
      const std::string why = ended ? "" : ended.error().message;
      if (!why.empty() && why != told) log_info("the restore of a set goes on", {{"waits", why}});
      if (ended && *ended) log_info("the restore of a set has ended");
      told = why;
      continue;  // nothing else meanwhile
    }
    if (clock.monotonic() >= mark_at) {
      keep_mark(settings);
      mark_at = clock.monotonic() + std::chrono::minutes(1);
    }
    const bool moves = carry_on_moves(settings, now, version);  // nothing changes meanwhile
    auto wish = read_card("wish", wish_path(settings));
    const bool asked = wish && !value_of(*wish, "id").empty();
    if (moves && asked) {
      (void)write_card("answer", wish_path(settings) + ".answer", {{"id", value_of(*wish, "id")}, {"ok", "no"}, {"error", "this cluster is being exported or imported: no sets are made meanwhile"}});
      ::unlink(wish_path(settings).c_str());
    }
    if (moves) continue;
    const auto last = newest(settings, now);
    if (!asked && ((last && now < settings.due_after(*last)) || clock.monotonic() < try_at)) continue;
    auto made = make_one(settings, now, version);
    if (asked) {
      Card answer = {{"id", value_of(*wish, "id")}, {"ok", made ? "yes" : "no"}, {made ? "name" : "error", made ? made->name : made.error().message}};
      (void)write_card("answer", wish_path(settings) + ".answer", answer);
      ::unlink(wish_path(settings).c_str());
    }
    if (made) {
      log_info("a set of the cluster is made and was read back", {{"name", made->name}, {"bytes", std::to_string(made->bytes)}, {"next job id", std::to_string(made->next_id)}});
      failures = 0;
      told.clear();
      tell_status(settings, "", now);
      for (const std::string& name : sets_to_remove(set_names(settings.folder), settings.keep, now))
        if (auto gone = remove_set(settings.folder, name); gone) log_info("an old set is removed", {{"name", name}});
        else log_warn("an old set stays", {{"name", name}, {"reason", gone.error().message}});
      continue;
    }
    const std::string why = made.error().message;
    if (why != told) log_warn("no set of the cluster is made; tried again", {{"reason", why}});
    told = why;
    tell_status(settings, why, now);
    failures = std::min(failures + 1, 8);
    try_at = clock.monotonic() + std::min<std::chrono::nanoseconds>(settings.interval, std::chrono::seconds(5) * (1 << failures));
  }
}

int check_sets() {
  const Settings settings;
  const Instant now = SystemClock().now();
  const auto last = newest(settings, now);
  if (last && settings.fresh(*last, now)) return 0;
  auto status = read_card("status", status_path(settings));
  std::fprintf(stderr, "the newest set is %s%s\n", last ? print_time(*last).c_str() : "not there yet", status && !value_of(*status, "error").empty() ? ("; " + value_of(*status, "error")).c_str() : "");
  return 1;
}

bool is_set_command(const std::string& command) { return command == "sets" || command == "make-set" || command == "restore-set" || command == "check-set" || is_move_command(command); }

int run_set_command(const std::vector<std::string>& arguments) {
  const Settings settings;
  if (is_move_command(arguments[0])) return run_move_command(settings, arguments);
  if (arguments[0] == "sets") {
    std::fputs(json_of(settings, SystemClock().now()).c_str(), stdout);
    return 0;
  }
  if (arguments[0] == "make-set") return make_now(settings);
  if (arguments[0] == "restore-set") return restore_set(settings, arguments);
  auto set = read_set(settings.folder, arguments.size() > 1 ? arguments[1] : "");
  if (!set) return refuse(set.error().message);
  if (auto whole = check_set(settings.folder, *set, set->parts); !whole) return refuse(whole.error().message);
  std::printf("set %s is whole\n", set->name.c_str());
  return 0;
}

}  // namespace fairlead::companion
