// SPDX-License-Identifier: GPL-3.0-or-later
#include "sets.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "base/encoding.h"
#include "base/fd.h"
#include "base/files.h"
#include "base/process.h"
#include "copy_tree.h"
#include "jail_layout.h"
#include "job_state.h"
#include "manifest.h"
#include "sets_jail.h"
#include "terms.h"

namespace fairlead::companion {
namespace {

constexpr std::string_view kPartial = ".partial", kRemoved = ".removed";
constexpr std::uint64_t kSpare = std::uint64_t{64} << 20;

std::string sets_of(const std::string& folder) { return folder + "/sets"; }

Result<Fd> open_folder(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return fail_errno(errno, "open " + path);
  return fd;
}

Result<void> sync_all(const std::string& path) {
  auto fd = open_folder(path);
  if (!fd) return std::unexpected(std::move(fd.error()));
  if (::syncfs(fd->get()) != 0) return fail_errno(errno, "write " + path);
  return {};
}

Result<void> rename_durably(const std::string& folder, const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) return fail_errno(errno, fmt::format("rename {} to {}", from, to));
  auto fd = open_folder(folder);
  if (!fd) return std::unexpected(std::move(fd.error()));
  if (::fsync(fd->get()) != 0) return fail_errno(errno, "write " + folder);
  return {};
}

std::uint64_t free_of(const std::string& folder) {
  struct statvfs volume {};
  return ::statvfs(folder.c_str(), &volume) == 0 ? std::uint64_t{volume.f_bavail} * volume.f_frsize : 0;
}

// The manifest of a folder, every file read; what it says is written beside. Gives its checksum and the bytes of all files.
Result<std::pair<std::string, std::uint64_t>> describe_folder(const std::string& path, const std::string& manifest_path) {
  auto fd = open_folder(path);
  if (!fd) return std::unexpected(std::move(fd.error()));
  auto manifest = scan_tree(fd->get(), {});
  if (!manifest) return std::unexpected(std::move(manifest.error()));
  std::uint64_t bytes = 0;
  for (const auto& [name, entry] : *manifest)
    if (entry.type == 'f') bytes += entry.size;
  const std::string text = print_manifest(*manifest);
  if (auto written = write_file_durably(manifest_path, text, 0600); !written) return std::unexpected(std::move(written.error()));
  return std::pair(hex(sha256(text)), bytes);
}

Result<void> check_folder(const std::string& path, const std::string& manifest_path, const std::string& sum) {
  auto text = read_file(manifest_path, 4096_MiB);
  if (!text) return std::unexpected(std::move(text.error()));
  if (hex(sha256(*text)) != sum) return fail(Code::Invalid, manifest_path + " is damaged: its checksum is another");
  auto want = parse_manifest(*text);
  if (!want) return std::unexpected(std::move(want.error()));
  auto fd = open_folder(path);
  if (!fd) return std::unexpected(std::move(fd.error()));
  auto have = scan_tree(fd->get(), {});
  if (!have) return std::unexpected(std::move(have.error()));
  for (const auto& [name, entry] : *want) {
    const auto at = have->find(name);
    if (at == have->end()) return fail(Code::Invalid, fmt::format("{}{} is gone", path, name));
    if (!same(at->second, entry)) return fail(Code::Invalid, fmt::format("{}{} is not what was written", path, name));
  }
  if (have->size() != want->size()) return fail(Code::Invalid, path + " holds more than was written");
  return {};
}

Result<std::string> sum_of_file(const std::string& path) {
  if (!exists(path)) return fail(Code::NotFound, path + " is not there");
  auto out = run_checked({.argv = {"sha256sum", "--", path}}, std::chrono::hours(2));
  if (!out) return std::unexpected(std::move(out.error()));
  return out->substr(0, 64);
}

// A regular file of the state, also at the moment when slurmctld exchanges it: then there is only NAME.old.
Result<void> copy_state_file(int from, int to, const std::string& name) {
  for (int i = 0; i < 20; ++i) {
    auto done = copy_entry(from, to, name, "/" + name);
    if (done) return {};
    ::unlinkat(to, name.c_str(), 0);
    if (done.error().code != Code::NotFound) return std::unexpected(std::move(done.error()));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  const std::string old = name + ".old";
  auto done = copy_entry(from, to, old, "/" + old);
  if (!done) {
    ::unlinkat(to, old.c_str(), 0);
    if (done.error().code == Code::NotFound) return fail(Code::NotFound, "the state has no " + name);
    return std::unexpected(std::move(done.error()));
  }
  if (::renameat(to, old.c_str(), to, name.c_str()) != 0) return fail_errno(errno, "rename " + old);
  return {};
}

}  // namespace

bool SetInfo::has(const std::string& part) const { return std::find(parts.begin(), parts.end(), part) != parts.end(); }

std::string set_name(Instant at) {
  std::string text = print_time(at);
  std::erase_if(text, [](char c) { return c == '-' || c == ':'; });
  return text;
}

std::optional<Instant> set_time(const std::string& t) {
  if (t.size() != 16) return std::nullopt;
  auto at = parse_time(fmt::format("{}-{}-{}T{}:{}:{}Z", t.substr(0, 4), t.substr(4, 2), t.substr(6, 2), t.substr(9, 2), t.substr(11, 2), t.substr(13, 2)));
  if (!at || set_name(*at) != t) return std::nullopt;
  return *at;
}

std::vector<std::string> sets_to_remove(std::vector<std::string> names, int keep, Instant now) {
  std::erase_if(names, [&](const std::string& name) {
    const auto at = set_time(name);
    return !at || *at > now + std::chrono::minutes(1);
  });
  std::sort(names.begin(), names.end());
  const auto surplus = names.size() - std::min(names.size(), static_cast<std::size_t>(std::max(keep, 1)));
  names.resize(surplus);
  return names;
}

std::vector<std::string> set_names(const std::string& folder) {
  std::vector<std::string> out;
  auto list = list_dir(sets_of(folder));
  if (!list) return out;
  for (const std::string& name : *list)
    if (set_time(name)) out.push_back(name);
  return out;
}

std::uint64_t bytes_in(const std::string& folder) {
  auto fd = open_folder(folder);
  if (!fd) return 0;
  std::uint64_t bytes = 0;
  (void)scan_tree(fd->get(), {.read = false, .bytes = &bytes});
  return bytes;
}

Result<void> copy_whole(const std::string& from, const std::string& to) {
  auto source = open_folder(from), target = open_folder(to);
  if (!source) return std::unexpected(std::move(source.error()));
  if (!target) return std::unexpected(std::move(target.error()));
  if (auto done = copy_tree(source->get(), target->get(), {}); !done) return std::unexpected(std::move(done.error()));
  return {};
}

Result<void> copy_state(const std::string& volume, const std::string& to) {
  auto at = find_state(volume);
  if (!at) return std::unexpected(std::move(at.error()));
  // Held open: a takeover renames the folder, and it is the state all the same.
  auto from = open_folder(at->path), target = open_folder(to);
  if (!from) return std::unexpected(std::move(from.error()));
  if (!target) return std::unexpected(std::move(target.error()));
  if (auto jobs = copy_state_file(from->get(), target->get(), "job_state"); !jobs) return jobs;
  std::set<std::string> copied = {"job_state"};
  // Twice: what was being exchanged while the folder was listed may have been missed.
  for (int round = 0; round < 2; ++round) {
    auto list = list_dir(fmt::format("/proc/self/fd/{}", from->get()));
    if (!list) return std::unexpected(std::move(list.error()));
    for (std::string name : *list) {
      if (!is_of_slurm(name) || name == "fairlead-holder" || name.ends_with(".new")) continue;
      struct stat info {};
      if (::fstatat(from->get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno == ENOENT) continue;
        return fail_errno(errno, "look at " + name);
      }
      if (S_ISREG(info.st_mode) && name.ends_with(".old")) name.resize(name.size() - 4);
      if (!copied.insert(name).second) continue;
      if (S_ISREG(info.st_mode)) {
        if (auto done = copy_state_file(from->get(), target->get(), name); !done && done.error().code != Code::NotFound) return done;
      } else if (S_ISDIR(info.st_mode)) {
        // Scripts of jobs that are forgotten meanwhile vanish under the copy.
        for (int i = 0;; ++i) {
          if (auto gone = remove_tree(to + "/" + name); !gone && gone.error().code != Code::NotFound) return gone;
          if (::mkdirat(target->get(), name.c_str(), 0700) != 0) return fail_errno(errno, "make folder " + name);
          const Fd inner(::openat(from->get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)), made(::openat(target->get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
          if (!inner || !made) return fail_errno(errno, "open " + name);
          auto done = copy_tree(inner.get(), made.get(), {});
          if (done) break;
          if (done.error().code != Code::NotFound || i == 20) return std::unexpected(std::move(done.error()));
        }
      }
    }
  }
  return {};
}

Result<SetInfo> read_set(const std::string& folder, const std::string& name) {
  const auto at = set_time(name);
  if (!at) return fail(Code::NotFound, fmt::format("there is no set \"{}\"", name));
  auto card = read_card("set", sets_of(folder) + "/" + name + "/set");
  if (!card && card.error().code == Code::NotFound) return fail(Code::NotFound, fmt::format("there is no set \"{}\"", name));
  if (!card) return std::unexpected(std::move(card.error()));
  SetInfo out{.name = name, .cluster = value_of(*card, "cluster"), .at = *at, .next_id = static_cast<std::uint32_t>(number_of(*card, "next-id")), .bytes = static_cast<std::uint64_t>(number_of(*card, "bytes")), .parts = {}, .card = *card};
  for (const std::string& part : split(value_of(*card, "parts"), ','))
    if (part == "state" || part == "database" || part == "jail") out.parts.push_back(part);
  return out;
}

Result<void> check_set(const std::string& folder, const SetInfo& set, const std::vector<std::string>& parts) {
  const std::string path = sets_of(folder) + "/" + set.name;
  for (const std::string& part : parts) {
    if (!set.has(part)) return fail(Code::NotFound, fmt::format("set {} has no part {}; it has {}", set.name, part, fmt::join(set.parts, ", ")));
    if (part == "database") {
      auto sum = sum_of_file(path + "/database.sql.gz");
      if (!sum) return std::unexpected(std::move(sum.error()));
      if (*sum != value_of(set.card, "database.sum")) return fail(Code::Invalid, fmt::format("database.sql.gz of set {} is damaged: its checksum is another", set.name));
    } else if (auto whole = check_folder(path + "/" + part, path + "/" + part + ".manifest", value_of(set.card, part + ".sum")); !whole) {
      return pass(std::move(whole.error()), "set " + set.name);
    }
  }
  return {};
}

void remove_unfinished(const std::string& folder) {
  auto list = list_dir(sets_of(folder));
  if (!list) return;
  for (const std::string& name : *list)
    if (name.starts_with(".") && (name.ends_with(kPartial) || name.ends_with(kRemoved))) (void)remove_tree(sets_of(folder) + "/" + name);
}

Result<void> remove_set(const std::string& folder, const std::string& name) {
  if (!set_time(name)) return fail(Code::NotFound, fmt::format("there is no set \"{}\"", name));
  const std::string gone = fmt::format("{}/.{}{}", sets_of(folder), name, kRemoved);
  if (auto done = rename_durably(sets_of(folder), sets_of(folder) + "/" + name, gone); !done) return done;
  return remove_tree(gone);
}

Result<SetInfo> make_set(const MakeSet& options) {
  const auto step = [&] {
    if (options.on_step) options.on_step();
  };
  const std::string name = set_name(options.now), sets = sets_of(options.folder), path = sets + "/" + name, partial = fmt::format("{}/.{}{}", sets, name, kPartial);
  if (auto made = make_dirs(sets, 0700); !made) return std::unexpected(std::move(made.error()));
  remove_unfinished(options.folder);
  if (exists(path)) return fail(Code::Unavailable, fmt::format("a set {} is there already", name));
  auto at = find_state(options.state);
  if (!at) return std::unexpected(std::move(at.error()));

  // What the set before has, by which less is to be copied and read.
  std::string before;
  std::uint64_t dump = 0;
  if (const auto names = set_names(options.folder); !names.empty()) {
    before = sets + "/" + names.back();
    if (auto last = read_set(options.folder, names.back())) dump = static_cast<std::uint64_t>(number_of(last->card, "database.bytes"));
  }
  std::optional<JailCopy> jail;
  if (!options.jail.empty()) {
    auto looked = look_at_jail(options.jail, before);
    if (!looked) return pass(std::move(looked.error()), "look at the shared root");
    jail = std::move(*looked);
  }
  const std::uint64_t need = bytes_in(at->path) / 4 * 5 + dump / 4 * 5 + (jail ? jail->new_bytes / 20 * 21 : 0) + kSpare;
  if (const std::uint64_t free = options.free_bytes ? options.free_bytes(sets) : free_of(sets); free < need)
    return fail(Code::Exhausted, fmt::format("the volume of the sets has {} MiB free, and a set wants {} MiB, {} of them for the shared root; make the claim larger, keep fewer sets, or leave the shared root out (spec.extensions.backup.parts)", free >> 20, need >> 20, (jail ? jail->new_bytes : 0) >> 20));

  step();
  if (auto made = make_dirs(partial + "/state", 0700); !made) return std::unexpected(std::move(made.error()));
  const auto failed = [&](Error error) -> std::unexpected<Error> {
    (void)remove_tree(partial);
    return std::unexpected(std::move(error));
  };
  Card card = {{"cluster", options.cluster}, {"at", print_time(options.now)}, {"slurm", options.version}, {"parts", "state"}};
  std::uint64_t bytes = 0;
  if (options.dump) {  // before the state: what the database knows the state is to know
    auto dumped = options.dump(partial + "/database.sql.gz");
    if (!dumped) return failed(std::move(dumped.error()).in("back up the accounting database"));
    card.merge(*dumped);
    auto sum = sum_of_file(partial + "/database.sql.gz");
    if (!sum) return failed(std::move(sum.error()));
    if (*sum != value_of(card, "database.sum")) return failed({Code::Invalid, "the dump of the accounting database is read back as something else"});
    struct stat info {};
    if (::stat((partial + "/database.sql.gz").c_str(), &info) != 0) return failed({Code::Internal, "the dump is gone"});
    card["database.bytes"] = std::to_string(info.st_size);
    bytes += static_cast<std::uint64_t>(info.st_size);
    card["parts"] += ",database";
  }
  step();
  if (auto copied = copy_state(options.state, partial + "/state"); !copied) return failed(std::move(copied.error()).in("copy the state"));
  auto jobs = read_job_state_file(partial + "/state");
  auto head = jobs ? read_job_state(*jobs) : Result<JobStateHead>(std::unexpected(jobs.error()));
  if (!head) return failed(std::move(head.error()).in("read the copy of job_state"));
  card["next-id"] = std::to_string(head->next_id);
  step();
  if (jail) {
    if (auto made = make_dirs(partial + "/jail", 0700); !made) return failed(std::move(made.error()));
    if (auto copied = copy_jail(*jail, options.jail, partial, before); !copied) return failed(std::move(copied.error()).in("copy the shared root"));
    card["parts"] += ",jail";
  }
  if (auto synced = sync_all(partial); !synced) return failed(std::move(synced.error()));
  step();
  for (const char* part : {"state", "jail"}) {
    if (std::string_view(part) == "jail" && !jail) continue;
    auto described = describe_folder(partial + "/" + part, partial + "/" + part + ".manifest");
    if (!described) return failed(std::move(described.error()).in("read the set back"));
    if (std::string_view(part) == "jail" && !before.empty())
      if (auto sound = links_are_sound(*jail, partial, before); !sound) {
        ::unlink((before + "/jail.seen").c_str());  // the next set copies everything
        return failed(std::move(sound.error()));
      }
    card[std::string(part) + ".sum"] = described->first;
    card[std::string(part) + ".bytes"] = std::to_string(described->second);
    bytes += described->second;
  }
  card["bytes"] = std::to_string(bytes);
  step();
  if (auto written = write_card("set", partial + "/set", card); !written) return failed(std::move(written.error()));
  if (auto synced = sync_all(partial); !synced) return failed(std::move(synced.error()));
  step();
  if (auto done = rename_durably(sets, partial, path); !done) return failed(std::move(done.error()));
  return read_set(options.folder, name);
}

}  // namespace fairlead::companion
