// SPDX-License-Identifier: GPL-3.0-or-later
#include "populate.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>

#include "base/clock.h"
#include "base/encoding.h"
#include "base/files.h"
#include "base/log.h"

namespace fairlead::companion {
namespace {

constexpr const char* kLock = ".fairlead-jail.lock";
constexpr const char* kNextMarker = ".fairlead-jail.new";
constexpr const char* kNextLink = ".fairlead-jail.current";
constexpr std::string_view kPeoples[] = {"home", "root"};  // shared by all versions

std::string name_of(std::string_view line) { return std::string(line.substr(0, line.find(':'))); }

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  for (auto& line : split(text, '\n'))
    if (!line.empty()) out.push_back(std::move(line));
  return out;
}

Result<void> write_at(int folder, const char* name, std::string_view bytes, mode_t mode) {
  ::unlinkat(folder, name, 0);
  const Fd fd(::openat(folder, name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return fail_errno(errno, std::string("make ") + name);
  if (::write(fd.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) return fail_errno(errno ? errno : ENOSPC, std::string("write ") + name);
  if (::fchmod(fd.get(), mode) != 0 || ::fsync(fd.get()) != 0) return fail_errno(errno, std::string("write ") + name);
  return {};
}

// What is there besides ours and the file system's own.
Result<std::vector<std::string>> foreign_entries(const std::string& volume) {
  auto names = list_dir(volume);
  if (!names) return names;
  std::erase_if(*names, [](const std::string& name) { return name.starts_with(kJailMarker) || name == "lost+found"; });
  return names;
}

class Populator {
 public:
  Populator(const PopulateOptions& options, Fd volume) : options_(options), volume_(std::move(volume)) {}

  Result<Populated> run() {
    auto layout = read_layout(volume_.get());
    if (!layout && layout.error().code != Code::NotFound) return std::unexpected(std::move(layout.error()));
    if (!layout) {
      auto decided = decide();
      if (!decided) return std::unexpected(std::move(decided.error()));
      layout = *decided;
    }
    if (*layout == Layout::Versions) {
      auto there = find_root(volume_.get());
      if (!there && there.error().code != Code::NotFound) return std::unexpected(std::move(there.error()));
      if (!there)
        if (auto made = make_version(); !made) return std::unexpected(std::move(made.error()).in("fill the jail"));
    }
    auto root = find_root(volume_.get());
    if (!root) return std::unexpected(std::move(root.error()));
    out_.root = std::move(*root);
    return std::move(out_);
  }

 private:
  void step() const {
    if (options_.on_step) options_.on_step();
  }

  // An empty volume, or one with users and homes of a cluster that had no jail, is to be filled; one with a root is taken as it is.
  Result<Layout> decide() {
    auto names = foreign_entries(options_.volume);
    if (!names) return pass(std::move(names.error()), "look at the jail volume");
    const bool only_users = std::all_of(names->begin(), names->end(), [](const std::string& name) { return name == "etc" || name == "home"; });
    Layout layout = Layout::Versions;
    if (!only_users) {
      const auto shell = open_in_root(volume_.get(), "/bin/sh", O_PATH);
      const auto users = open_in_root(volume_.get(), "/etc/passwd", O_PATH);
      if (!shell || !users)
        return fail(Code::Invalid, fmt::format("the jail volume holds {}{} but no root file system (no {}); nothing was written. Give an empty volume, or one with a whole root",
                                               fmt::join(names->begin(), names->begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(names->size(), 5)), ", "), names->size() > 5 ? ", ..." : "",
                                               shell ? "/etc/passwd" : "/bin/sh"));
      layout = Layout::Adopted;
    }
    step();
    if (auto written = write_at(volume_.get(), kNextMarker, std::string(text(layout)) + "\n", 0644); !written) return std::unexpected(std::move(written.error()));
    step();
    if (auto done = settle(volume_.get(), kNextMarker, volume_.get(), kJailMarker); !done) return std::unexpected(std::move(done.error()));
    out_.made = layout == Layout::Adopted;
    return layout;
  }

  // A rename that a power cut does not undo.
  static Result<void> settle(int from, const char* name, int to, const char* as) {
    if (::renameat(from, name, to, as) != 0) return fail_errno(errno, std::string("rename to ") + as);
    if (::fsync(to) != 0) return fail_errno(errno, std::string("sync ") + as);
    return {};
  }

  Result<void> make_version() {
    if (!is_version_name(options_.version)) return fail(Code::Invalid, "\"" + options_.version + "\" is no name of a version");
    step();
    if (::mkdirat(volume_.get(), kVersions, 0755) != 0 && errno != EEXIST) return fail_errno(errno, "make versions/");
    const Fd versions(::openat(volume_.get(), kVersions, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
    if (!versions) return fail_errno(errno, "open versions/");
    struct stat info{};
    if (::fstatat(versions.get(), options_.version.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
      if (auto filled = fill(versions.get()); !filled) return filled;
    }
    step();
    ::unlinkat(volume_.get(), kNextLink, 0);
    if (::symlinkat((std::string(kVersions) + "/" + options_.version).c_str(), volume_.get(), kNextLink) != 0) return fail_errno(errno, "make the link \"current\"");
    step();
    out_.made = true;
    return settle(volume_.get(), kNextLink, volume_.get(), kCurrent);
  }

  Result<void> fill(int versions) {
    const std::string unfinished = options_.version + ".tmp", path = options_.volume + "/" + kVersions + "/" + unfinished;
    step();
    if (auto removed = remove_tree(path); !removed) return removed;
    step();
    if (::mkdirat(versions, unfinished.c_str(), 0700) != 0) return fail_errno(errno, "make " + path);
    const Fd to(::openat(versions, unfinished.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
    const Fd from(::open(options_.source.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!to || !from) return fail_errno(errno, "open " + (to ? options_.source : path));
    auto copied = copy_tree(from.get(), to.get(), {.leave_out = options_.leave_out, .on_entry = options_.on_step});
    if (!copied) return std::unexpected(std::move(copied.error()));
    out_.copied = std::move(*copied);
    for (const std::string_view people : kPeoples)
      if (auto shared = share(to.get(), std::string(people)); !shared) return shared;
    if (auto names = node_files(to.get()); !names) return names;
    if (auto users = take_over_users(to.get()); !users) return users;
    step();
    // Everything, before the name by which it will be believed.
    if (::syncfs(to.get()) != 0) return fail_errno(errno, "sync " + path);
    step();
    return settle(versions, unfinished.c_str(), versions, options_.version.c_str());
  }

  // People's files lie beside the versions; the first version's own become theirs.
  Result<void> share(int root, const std::string& name) {
    struct stat info{};
    const bool in_root = ::fstatat(root, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(info.st_mode);
    step();
    if (in_root) {
      // Not RENAME_NOREPLACE, which network file systems lack: an empty folder may be replaced, a filled one is not.
      if (::renameat(root, name.c_str(), volume_.get(), name.c_str()) != 0 && errno != ENOTEMPTY && errno != EEXIST) return fail_errno(errno, "share " + name);
      if (auto removed = remove_tree(options_.volume + "/" + kVersions + "/" + options_.version + ".tmp/" + name); !removed) return removed;
    } else if (::mkdirat(volume_.get(), name.c_str(), name == "root" ? 0700 : 0755) != 0 && errno != EEXIST) {
      return fail_errno(errno, "make " + name);
    }
    step();
    auto made = mount_point(root, "/" + name, Kind::Folder);
    return made ? Result<void>{} : Result<void>(std::unexpected(std::move(made.error())));
  }

  // Each node has its own of these mounted there: plain files, not links that lead into another system's /run.
  Result<void> node_files(int root) const {
    auto etc = open_in_root(root, "/etc", O_RDONLY | O_DIRECTORY);
    if (!etc) return std::unexpected(std::move(etc.error()));
    for (const char* name : {"resolv.conf", "hosts", "hostname"})
      if (auto written = write_at(etc->get(), name, "", 0644); !written) return written;
    for (const char* folder : {"/proc", "/sys", "/dev", "/run", "/tmp", "/etc/slurm", "/var/spool/slurmd", "/opt/fairlead/bin"})
      if (auto made = mount_point(root, folder, Kind::Folder); !made) return std::unexpected(std::move(made.error()));
    return {};
  }

  Result<void> take_over_users(int root) {
    auto before = open_in_root(volume_.get(), "/etc", O_RDONLY | O_DIRECTORY);
    if (!before) return {};
    auto etc = open_in_root(root, "/etc", O_RDONLY | O_DIRECTORY);
    if (!etc) return std::unexpected(std::move(etc.error()));
    std::vector<std::string> groups;
    for (const auto& [name, kind, mode] : {std::tuple{"passwd", Accounts::Numbered, 0644}, {"shadow", Accounts::Named, 0640}, {"group", Accounts::Numbered, 0644}, {"gshadow", Accounts::Named, 0640}}) {
      const auto read = [&](int folder) {
        auto text = read_file(fmt::format("/proc/self/fd/{}/{}", folder, name));
        return text ? *text : std::string();
      };
      auto& taken = std::string_view(name).ends_with("group") || std::string_view(name) == "gshadow" ? groups : out_.users;
      const std::string base = read(etc->get()), merged = merged_accounts(base, read(before->get()), kind, taken);
      if (merged == base) continue;
      struct stat info{};
      const bool known = ::fstatat(etc->get(), name, &info, 0) == 0;
      step();
      if (auto written = write_at(etc->get(), name, merged, static_cast<mode_t>(mode)); !written) return written;
      if (known && ::fchownat(etc->get(), name, info.st_uid, info.st_gid, 0) != 0) return fail_errno(errno, std::string("chown ") + name);
    }
    return {};
  }

  const PopulateOptions& options_;
  const Fd volume_;
  Populated out_;
};

std::string report(const Populated& done, std::chrono::nanoseconds took) {
  std::string out = fmt::format("{{\"layout\":\"{}\",\"version\":\"{}\",\"made\":{},\"entries\":{},\"bytes\":{},\"without\":{},\"seconds\":{:.1f}}}", text(done.root.layout), done.root.version, done.made, done.copied.entries,
                                done.copied.bytes, done.copied.without, std::chrono::duration<double>(took).count());
  return out;
}

}  // namespace

std::string merged_accounts(const std::string& base, const std::string& more, Accounts kind, std::vector<std::string>& taken) {
  std::set<std::string> known;
  for (const auto& line : lines_of(base)) known.insert(name_of(line));
  std::string out = base;
  if (!out.empty() && out.back() != '\n') out += '\n';
  for (const auto& line : lines_of(more)) {
    const std::string name = name_of(line);
    if (name.empty() || known.contains(name)) continue;
    if (kind == Accounts::Named) {
      if (std::find(taken.begin(), taken.end(), name) == taken.end()) continue;
    } else {
      const auto fields = split(line, ':');
      unsigned number = 0;
      if (fields.size() < 4) continue;
      const auto [end, error] = std::from_chars(fields[2].data(), fields[2].data() + fields[2].size(), number);
      if (error != std::errc() || end != fields[2].data() + fields[2].size() || number < 1000 || number >= 65534) continue;
      taken.push_back(name);
    }
    known.insert(name);
    out += line + "\n";
  }
  return out;
}

std::set<std::string> mount_points(const std::string& mountinfo) {
  std::set<std::string> out;
  for (const auto& line : lines_of(mountinfo)) {
    const auto fields = split(line, ' ');
    if (fields.size() < 5) continue;
    std::string path;
    for (std::size_t i = 0; i < fields[4].size(); ++i) {
      const std::string_view rest = std::string_view(fields[4]).substr(i);
      unsigned value = 0;
      if (rest.size() >= 4 && rest[0] == '\\' && std::from_chars(rest.data() + 1, rest.data() + 4, value, 8).ptr == rest.data() + 4) {
        path += static_cast<char>(value);
        i += 3;
      } else {
        path += rest[0];
      }
    }
    if (path != "/") out.insert(std::move(path));
  }
  return out;
}

Result<Populated> populate(const PopulateOptions& options) {
  Fd volume(::open(options.volume.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!volume) return fail_errno(errno, "open " + options.volume);
  const Fd lock(::openat(volume.get(), kLock, O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock) return fail_errno(errno, std::string("make ") + kLock);
  struct flock whole{};
  whole.l_type = F_WRLCK;
  while (::fcntl(lock.get(), F_OFD_SETLKW, &whole) != 0)
    if (errno != EINTR) return fail_errno(errno, "lock the jail volume");
  return Populator(options, std::move(volume)).run();
}

int run_populate(const std::vector<std::string>& arguments) {
  PopulateOptions options{.volume = "/mnt/jail-volume"};
  for (std::size_t i = 1; i + 1 < arguments.size(); i += 2) {
    if (arguments[i] == "--volume") options.volume = arguments[i + 1];
    else if (arguments[i] == "--version") options.version = arguments[i + 1];
  }
  const SystemClock clock;
  const auto started = clock.monotonic();
  std::string told;
  int status = 0;
  auto mounts = read_file("/proc/self/mountinfo");
  if (mounts) {
    options.leave_out = mount_points(*mounts);
    log_info("looking at the jail volume", {{"volume", options.volume}, {"version", options.version}});
    auto done = populate(options);
    if (done) {
      told = report(*done, clock.monotonic() - started);
      for (const auto& example : done->copied.examples) log_warn("the volume cannot hold this", {{"what", example}});
    } else {
      told = done.error().message;
      status = 1;
    }
  } else {
    told = mounts.error().message;
    status = 1;
  }
  std::fprintf(status == 0 ? stdout : stderr, "%s\n", told.c_str());
  // Where Kubernetes looks for a last word.
  if (exists("/dev/termination-log")) {
    const Fd log(::open("/dev/termination-log", O_WRONLY | O_TRUNC | O_CLOEXEC));
    if (log && ::write(log.get(), told.data(), told.size()) < 0) log_warn("the last word was not written", {});
  }
  return status;
}

}  // namespace fairlead::companion
