// SPDX-License-Identifier: GPL-3.0-or-later
#include "cluster_move.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/encoding.h"
#include "base/fd.h"
#include "base/files.h"
#include "hold.h"
#include "terms.h"

namespace fairlead::companion {
namespace {

std::string export_path(const std::string& folder) { return folder + "/export"; }
std::string export_outcome_path(const std::string& folder, const std::string& id) { return folder + "/exports/" + id; }
std::string import_path(const std::string& folder) { return folder + "/import"; }
std::string archive_path(const std::string& folder) { return folder + "/import.tar"; }
std::string unpacked_path(const std::string& folder) { return folder + "/import.unpacked"; }

Result<void> sync_folder(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0) return fail_errno(errno, "write " + path);
  return {};
}

Result<void> forget(const std::string& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return fail_errno(errno, "remove " + path);
  return {};
}

Result<void> forget_tree(const std::string& path) {
  if (auto gone = remove_tree(path); !gone && gone.error().code != Code::NotFound) return gone;
  return {};
}

Hold hold_of(const Card& card, bool moved) {
  const std::string id = value_of(card, "id");
  if (moved) return {id, "moved", fmt::format("this cluster was moved to another place (export {}) and never runs here again", id), ""};
  return {id, "export", fmt::format("it is being exported (export {}): `fairlead slurm export --abort` brings it back, --hand-over gives it away for good", id), ""};
}

// Steps of an export. Each is decided under the lock on what is written down; what takes long is done without it, and counts only if nobody aborted meanwhile.
class Export {
 public:
  explicit Export(const ExportCluster& options) : options_(options) {}

  Result<bool> round() {
    auto card = read_export(options_.folder);
    if (!card && card.error().code == Code::NotFound) return true;
    if (!card) return std::unexpected(std::move(card.error()));
    const std::string step = value_of(*card, "step");
    if (step == "hold") return hold();
    if (step == "fence") return fence();
    if (step == "set") return set(*card);
    if (step == "abort") return go_back();
    if (step == "moving") return move_away();
    return true;  // ready, moved, or one that a later version wrote
  }

  Result<Fd> lock(const std::string& step, Card& card) {
    auto alone = alone_to_begin(options_.folder);
    if (!alone) return alone;
    auto now = read_export(options_.folder);
    if (!now) return std::unexpected(std::move(now.error()));
    if (value_of(*now, "step") != step) return fail(Code::Conflict, "the export has gone on: step " + value_of(*now, "step"));
    card = std::move(*now);
    return alone;
  }
  Result<void> write(const Card& card) const {
    touch();
    return write_card("export", export_path(options_.folder), card);
  }
  void touch() const {
    if (options_.on_step) options_.on_step();
  }
  Result<void> begin_abort(Card card, const std::string& why) const {
    card.erase("code");
    card["step"] = "abort";
    card["error"] = why;
    return write(card);
  }
  // The hold for ever comes before anything tells the code.
  Result<bool> move_away() {
    Card card;
    auto alone = lock("moving", card);
    if (!alone) return std::unexpected(std::move(alone.error()));
    return moved(std::move(card));
  }
  Result<bool> moved(Card card) {
    touch();
    if (auto placed = place_hold(options_.state, hold_of(card, true)); !placed) return std::unexpected(std::move(placed.error()));
    if (auto synced = sync_folder(options_.state); !synced) return std::unexpected(std::move(synced.error()));
    card["step"] = "moved";
    if (auto written = write(card); !written) return std::unexpected(std::move(written.error()));
    return true;
  }

 private:
  Result<bool> go_to(Card card, const std::string& step) {
    card["step"] = step;
    card.erase("since");
    if (auto written = write(card); !written) return std::unexpected(std::move(written.error()));
    return false;
  }
  // What waits too long is aborted: slurmctld does not run meanwhile.
  Result<bool> wait(Card card, const Error& why) {
    const auto since = parse_time(value_of(card, "since"));
    if (!since) {
      card["since"] = print_time(options_.now);
      if (auto written = write(card); !written) return std::unexpected(std::move(written.error()));
    } else if (options_.now > *since + options_.patience) {
      if (auto aborted = begin_abort(card, fmt::format("{} (waited {} s)", why.message, options_.patience.count())); !aborted) return std::unexpected(std::move(aborted.error()));
      return false;
    }
    return fail(Code::Unavailable, why.message);
  }

  Result<bool> hold() {
    Card card;
    auto alone = lock("hold", card);
    if (!alone) return std::unexpected(std::move(alone.error()));
    touch();
    if (auto placed = place_hold(options_.state, hold_of(card, false)); !placed) {
      if (placed.error().code != Code::Conflict) return std::unexpected(std::move(placed.error()));
      if (auto aborted = begin_abort(card, placed.error().message); !aborted) return std::unexpected(std::move(aborted.error()));
      return false;
    }
    if (!is_held(options_.state, value_of(card, "id"))) return wait(card, {Code::Unavailable, "waits until a head says that slurmctld has ended; look at the pods controller-0..."});
    return go_to(card, "fence");
  }

  // Where heads are elected: one that was frozen and believes that it serves loses its path, and confirms nothing from then on. Done twice it does no harm.
  Result<bool> fence() {
    Card card;
    auto alone = lock("fence", card);
    if (!alone) return std::unexpected(std::move(alone.error()));
    auto at = find_state(options_.state);
    if (!at) return std::unexpected(std::move(at.error()));
    if (at->term) {
      touch();
      const std::string to = fmt::format("{}/terms/{}", options_.state, *at->term + 1);
      if (::rename(at->path.c_str(), to.c_str()) != 0) return fail_errno(errno, fmt::format("rename {} to {}", at->path, to));
      if (auto synced = sync_folder(options_.state + "/terms"); !synced) return std::unexpected(std::move(synced.error()));
    }
    return go_to(card, "set");
  }

  Result<bool> set(const Card& before) {
    touch();
    auto made = options_.make();
    Card card;
    auto alone = lock("set", card);
    if (!alone || value_of(card, "id") != value_of(before, "id")) {  // aborted meanwhile
      if (made) (void)remove_set(options_.folder, made->name);
      return alone ? Result<bool>(false) : Result<bool>(std::unexpected(std::move(alone.error())));
    }
    if (!made && made.error().code == Code::Unavailable) return wait(card, made.error());
    if (!made) {
      if (auto aborted = begin_abort(card, made.error().message); !aborted) return std::unexpected(std::move(aborted.error()));
      return false;
    }
    card["set"] = made->name;
    card["next-id"] = std::to_string(made->next_id);
    return go_to(card, "ready");
  }

  Result<bool> go_back() {
    Card card;
    auto alone = lock("abort", card);
    if (!alone) return std::unexpected(std::move(alone.error()));
    if (const std::string set = value_of(card, "set"); !set.empty() && read_set(options_.folder, set)) {
      touch();
      (void)remove_set(options_.folder, set);  // without the shared root: the next one had nothing to link to
    }
    touch();
    if (auto lifted = lift_hold(options_.state, value_of(card, "id")); !lifted && lifted.error().code != Code::Conflict) return std::unexpected(std::move(lifted.error()));
    if (auto made = make_dirs(options_.folder + "/exports", 0700); !made) return std::unexpected(std::move(made.error()));
    card["ended"] = print_time(options_.now);
    touch();
    if (auto written = write_card("export", export_outcome_path(options_.folder, value_of(card, "id")), card); !written) return std::unexpected(std::move(written.error()));
    touch();
    if (auto gone = forget(export_path(options_.folder)); !gone) return std::unexpected(std::move(gone.error()));
    if (auto synced = sync_folder(options_.folder); !synced) return std::unexpected(std::move(synced.error()));
    return true;
  }

  const ExportCluster& options_;
};

}  // namespace

bool is_export_code(std::string_view text) { return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == text.npos; }
std::string sum_of_code(const std::string& code) { return hex(sha256(code)); }

Result<Card> read_export(const std::string& folder) { return read_card("export", export_path(folder)); }
Result<Card> read_export_outcome(const std::string& folder, const std::string& id) { return read_card("export", export_outcome_path(folder, id)); }
Result<Card> read_import(const std::string& folder) { return read_card("import", import_path(folder)); }

Result<Card> begin_export(const ExportCluster& options, const std::string& id) {
  auto alone = alone_to_begin(options.folder);
  if (!alone) return std::unexpected(std::move(alone.error()));
  auto there = read_export(options.folder);
  if (there && value_of(*there, "step") == "abort") return fail(Code::Conflict, "an export is being aborted: try again in a moment");
  if (there || there.error().code != Code::NotFound) return there;
  if (auto under_way = read_intent(options.folder); under_way) return fail(Code::Conflict, fmt::format("a restore of set {} is under way (step {})", value_of(*under_way, "set"), value_of(*under_way, "step")));
  else if (under_way.error().code != Code::NotFound) return under_way;
  auto held = read_hold(options.state);
  if (!held) return std::unexpected(std::move(held.error()));
  if (*held) return fail(Code::Conflict, "slurmctld is kept from running already: " + (*held)->reason);
  if (auto state = find_state(options.state); !state) return std::unexpected(std::move(state.error()));
  auto code = options.new_code();
  if (!code) return std::unexpected(std::move(code.error()));
  INVARIANT(is_export_code(*code));
  Card card = {{"id", id}, {"cluster", options.cluster}, {"step", "hold"}, {"began", print_time(options.now)}, {"code", *code}, {"sum", sum_of_code(*code)}};
  if (auto written = Export(options).write(card); !written) return std::unexpected(std::move(written.error()));
  return card;
}

Result<bool> carry_on_export(const ExportCluster& options) { return Export(options).round(); }

Result<void> abort_export(const ExportCluster& options) {
  auto alone = alone_to_begin(options.folder);
  if (!alone) return std::unexpected(std::move(alone.error()));
  auto card = read_export(options.folder);
  if (!card && card.error().code == Code::NotFound) return fail(Code::NotFound, "no export of this cluster is under way");
  if (!card) return std::unexpected(std::move(card.error()));
  const std::string step = value_of(*card, "step");
  if (step == "abort") return {};
  if (step != "hold" && step != "fence" && step != "set" && step != "ready") return fail(Code::Conflict, "this cluster was handed over: its code may have been told, and it never runs here again");
  return Export(options).begin_abort(std::move(*card), "");
}

Result<std::string> hand_over(const ExportCluster& options) {
  auto alone = alone_to_begin(options.folder);
  if (!alone) return std::unexpected(std::move(alone.error()));
  auto card = read_export(options.folder);
  if (!card && card.error().code == Code::NotFound) return fail(Code::NotFound, "no export of this cluster is under way");
  if (!card) return std::unexpected(std::move(card.error()));
  const std::string step = value_of(*card, "step"), code = value_of(*card, "code");
  if (step != "ready" && step != "moving" && step != "moved") return fail(Code::Conflict, fmt::format("the export is not ready to be handed over: step {}", step));
  if (!is_export_code(code)) return fail(Code::Invalid, "the code of this export is damaged");
  Export work(options);
  if (step == "ready") {
    (*card)["step"] = "moving";
    if (auto written = work.write(*card); !written) return std::unexpected(std::move(written.error()));
  }
  if (step != "moved")
    if (auto moved = work.moved(*card); !moved) return std::unexpected(std::move(moved.error()));
  // Whatever a person did to the volume since: the code is told only behind this hold.
  auto held = read_hold(options.state);
  if (!held) return std::unexpected(std::move(held.error()));
  if (!*held || (*held)->id != value_of(*card, "id") || (*held)->kind != "moved") return fail(Code::Conflict, "the hold that keeps this cluster from running is not there any more; the code is not told");
  return code;
}

Result<Card> begin_import(const ImportCluster& options, const Imported& wanted) {
  auto alone = alone_to_begin(options.folder);
  if (!alone) return std::unexpected(std::move(alone.error()));
  if (wanted.cluster != options.cluster) return fail(Code::Invalid, fmt::format("the export is of cluster {}, and this one is {}: a cluster keeps its name", wanted.cluster, options.cluster));
  if (wanted.id.empty() || !is_export_code(wanted.sum) || !set_time(wanted.set)) return fail(Code::Invalid, "what is said of the export is not understood");
  auto there = read_import(options.folder);
  if (!there && there.error().code != Code::NotFound) return there;
  if (there && value_of(*there, "id") != wanted.id) return fail(Code::Conflict, fmt::format("export {} was imported here before", value_of(*there, "id")));
  if (there && value_of(*there, "sum") != wanted.sum) return fail(Code::Conflict, "the same export with another code: the archive is not the one that was begun with");
  if (there) return there;
  if (auto state = find_state(options.state); state || state.error().code != Code::NotFound)
    return fail(Code::Conflict, state ? "this cluster has a state of slurmctld already: an import needs an empty volume" : state.error().message);
  if (exists(options.state + "/fairlead-saved")) return fail(Code::Conflict, "the volume of the state belonged to a cluster before: an import needs an empty one");
  if (auto under_way = read_intent(options.folder); under_way || under_way.error().code != Code::NotFound) return fail(Code::Conflict, "a restore is under way");
  const auto touch = [&] {
    if (options.on_step) options.on_step();
  };
  touch();
  if (auto placed = place_hold(options.state, {wanted.id, "import", fmt::format("it is being imported (export {}) and waits for the code that the source tells at its --hand-over", wanted.id), wanted.sum}); !placed)
    return std::unexpected(std::move(placed.error()));
  touch();
  const Card card = {{"id", wanted.id}, {"cluster", wanted.cluster}, {"sum", wanted.sum}, {"set", wanted.set}, {"bytes", std::to_string(wanted.bytes)}, {"step", "fill"}};
  if (auto written = write_card("import", import_path(options.folder), card); !written) return std::unexpected(std::move(written.error()));
  return card;
}

Result<void> put_import(const ImportCluster& options, const std::string& id, std::uint64_t offset, std::string_view bytes) {
  auto card = read_import(options.folder);
  if (!card) return std::unexpected(std::move(card.error()));
  if (value_of(*card, "id") != id || value_of(*card, "step") != "fill") return fail(Code::Conflict, "no archive of that export is wanted any more");
  const auto whole = static_cast<std::uint64_t>(number_of(*card, "bytes"));
  if (offset > whole || bytes.size() > whole - offset) return fail(Code::Invalid, "the archive is longer than was said");
  const Fd fd(::open(archive_path(options.folder).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return fail_errno(errno, "open the archive");
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return fail_errno(n < 0 ? errno : ENOSPC, "write the archive to the volume of the sets");
    offset += static_cast<std::uint64_t>(n);
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

Result<bool> fill_import(const ImportCluster& options, const std::string& id) {
  const auto touch = [&] {
    if (options.on_step) options.on_step();
  };
  const Fd one(::open((options.folder + "/.import").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!one || ::flock(one.get(), LOCK_EX | LOCK_NB) != 0) return fail(Code::Unavailable, "somebody else is unpacking it");
  auto card = read_import(options.folder);
  if (!card) return std::unexpected(std::move(card.error()));
  if (value_of(*card, "id") != id) return fail(Code::Conflict, "another export was begun here");
  if (value_of(*card, "step") != "fill") return true;
  const auto filled = [&]() -> Result<bool> {
    touch();
    (*card)["step"] = "filled";
    if (auto written = write_card("import", import_path(options.folder), *card); !written) return std::unexpected(std::move(written.error()));
    (void)forget(archive_path(options.folder));
    (void)forget_tree(unpacked_path(options.folder));
    return true;
  };
  if (const std::string begun = value_of(*card, "restore"); !begun.empty()) {
    // In this order: the outcome is written before the intent goes.
    if (auto intent = read_intent(options.folder)) return fail(Code::Unavailable, "the volumes are being filled: step " + value_of(*intent, "step"));
    else if (intent.error().code != Code::NotFound) return std::unexpected(std::move(intent.error()));
    if (auto outcome = read_outcome(options.folder, begun)) {
      if (value_of(*outcome, "outcome") == "done") return filled();
      // Nothing was changed by it: another try.
      const std::string why = value_of(*outcome, "error");
      card->erase("restore");
      touch();
      if (auto written = write_card("import", import_path(options.folder), *card); !written) return std::unexpected(std::move(written.error()));
      return fail(Code::Invalid, why);
    }
  }
  const std::string set = value_of(*card, "set"), place = options.folder + "/sets/" + set;
  if (!read_set(options.folder, set)) {
    struct stat info {};
    if (::stat(archive_path(options.folder).c_str(), &info) != 0 || info.st_size != number_of(*card, "bytes")) return fail(Code::Invalid, "the archive is not here as a whole: send it again");
    if (auto gone = forget_tree(unpacked_path(options.folder)); !gone) return std::unexpected(std::move(gone.error()));
    if (auto made = make_dirs(unpacked_path(options.folder), 0700); !made) return std::unexpected(std::move(made.error()));
    touch();
    if (auto done = options.unpack(archive_path(options.folder), unpacked_path(options.folder)); !done) return pass(std::move(done.error()), "unpack the archive");
    const Fd fd(::open(unpacked_path(options.folder).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd || ::syncfs(fd.get()) != 0) return fail_errno(errno, "write the unpacked set");
    if (auto made = make_dirs(options.folder + "/sets", 0700); !made) return std::unexpected(std::move(made.error()));
    touch();
    if (::rename((unpacked_path(options.folder) + "/" + set).c_str(), place.c_str()) != 0) return fail_errno(errno, "take over set " + set);
    if (auto synced = sync_folder(options.folder + "/sets"); !synced) return std::unexpected(std::move(synced.error()));
  }
  auto info = read_set(options.folder, set);
  if (!info) return std::unexpected(std::move(info.error()));
  if (auto whole = check_set(options.folder, *info, info->parts); !whole) {
    (void)remove_set(options.folder, set);
    return std::unexpected(std::move(whole.error()));
  }
  std::vector<std::string> parts;
  for (const std::string& part : info->parts)
    if (part != "jail") parts.push_back(part);
  auto alone = alone_to_begin(options.folder);
  if (!alone) return std::unexpected(std::move(alone.error()));
  // Before it begins: whoever is killed between knows which one it was.
  (*card)["restore"] = options.restore_id;
  touch();
  if (auto written = write_card("import", import_path(options.folder), *card); !written) return std::unexpected(std::move(written.error()));
  RestoreSet restore = options.restore;
  restore.import = id;
  if (auto begun = begin_restore(restore, set, parts, options.restore_id); !begun) return std::unexpected(std::move(begun.error()));
  return fail(Code::Unavailable, "the volumes are being filled");
}

Result<void> open_import(const ImportCluster& options, const std::string& code) {
  auto alone = alone_to_begin(options.folder);
  if (!alone) return std::unexpected(std::move(alone.error()));
  auto card = read_import(options.folder);
  if (!card && card.error().code == Code::NotFound) return fail(Code::NotFound, "nothing was imported here");
  if (!card) return std::unexpected(std::move(card.error()));
  if (!is_export_code(code) || !equal_in_constant_time(sum_of_code(code), value_of(*card, "sum"))) return fail(Code::Forbidden, "this is not the code of export " + value_of(*card, "id"));
  const std::string step = value_of(*card, "step");
  if (step == "open") return {};
  if (step != "filled") return fail(Code::Conflict, "the volumes are not filled yet: step " + step);
  auto held = read_hold(options.state);
  if (!held) return std::unexpected(std::move(held.error()));
  const auto touch = [&] {
    if (options.on_step) options.on_step();
  };
  if (*held) {
    if ((*held)->id != value_of(*card, "id") || (*held)->kind != "import" || (*held)->sum != value_of(*card, "sum")) return fail(Code::Conflict, "slurmctld is kept from running for another reason: " + (*held)->reason);
    touch();
    if (auto lifted = lift_hold(options.state, value_of(*card, "id")); !lifted) return lifted;
  }
  (*card)["step"] = "open";
  touch();
  return write_card("import", import_path(options.folder), *card);
}

}  // namespace fairlead::companion
