// SPDX-License-Identifier: GPL-3.0-or-later
#include "prepare.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/encoding.h"
#include "base/files.h"
#include "base/log.h"
#include "base/process.h"
#include "jail.h"

extern "C" const char fairlead_durable_begin[], fairlead_durable_end[], fairlead_nodelay_begin[], fairlead_nodelay_end[];  // durable/bytes.S

namespace fairlead::companion {

Result<void> replace_link(const std::string& target, const std::string& path) {
  char now[4096];
  const ssize_t size = ::readlink(path.c_str(), now, sizeof now);
  if (size > 0 && std::string_view(now, static_cast<std::size_t>(size)) == target) return {};
  const std::string temporary = path + ".fairlead-new";
  ::unlink(temporary.c_str());
  if (::symlink(target.c_str(), temporary.c_str()) != 0) return fail_errno(errno, "link " + path);
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    // An empty folder of the image stands there.
    if (::rmdir(path.c_str()) != 0 || ::rename(temporary.c_str(), path.c_str()) != 0) return fail_errno(errno, "replace " + path + " by a link to " + target);
  }
  return {};
}

Result<void> owned_dir(const std::string& path, const std::string& user, unsigned mode) {
  if (auto made = make_dirs(path, 0755); !made) return made;
  const passwd* entry = ::getpwnam(user.c_str());
  if (!entry) return fail(Code::NotFound, "the image has no user " + user);
  if (::chown(path.c_str(), entry->pw_uid, entry->pw_gid) != 0) return fail_errno(errno, "chown " + path);
  if (::chmod(path.c_str(), mode) != 0) return fail_errno(errno, "chmod " + path);
  return {};
}

Result<void> write_for_slurm(const std::string& path, const std::string& bytes, unsigned mode) {
  const passwd* user = ::getpwnam("slurm");
  if (!user) return fail(Code::NotFound, "the image has no user slurm");
  const std::string temporary = path + ".new";
  ::unlink(temporary.c_str());
  if (auto written = write_file_durably(temporary, bytes, mode); !written) return written;
  if (::chown(temporary.c_str(), user->pw_uid, user->pw_gid) != 0) return fail_errno(errno, "chown " + temporary);
  if (::rename(temporary.c_str(), path.c_str()) != 0) return fail_errno(errno, "rename to " + path);
  return {};
}

Result<void> prepare_users() {
  for (const char* dir : {"/mnt/jail/etc", "/mnt/jail/home"})
    if (auto made = make_dirs(dir, 0755); !made) return made;
  // Several nodes start at once: O_CREAT|O_EXCL, and whoever comes second finds the file.
  for (const auto& [name, mode] : {std::pair<const char*, mode_t>{"passwd", 0644}, {"group", 0644}, {"shadow", 0640}, {"gshadow", 0640}}) {
    const std::string path = std::string("/mnt/jail/etc/") + name;
    const Fd made(::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, mode));
    if (!made && errno != EEXIST) return fail_errno(errno, "create " + path);
  }
  if (auto linked = replace_link("/mnt/jail/etc", "/var/lib/extrausers"); !linked) return linked;
  if (!lives_in_jail())
    if (auto linked = replace_link("/mnt/jail/home", "/home"); !linked) return linked;
  return write_file_atomically("/usr/local/sbin/adduser", "#!/bin/sh\nexec /opt/fairlead/bin/fairlead-slurm adduser \"$@\"\n", 0755);
}

Result<void> prepare_mock_gpus(int count) {
  if (count <= 0) return {};
  // The stand-in for nvidia-smi reads how many there are: job steps do not inherit this container's environment.
  if (auto made = make_dirs("/run/fairlead", 0755); !made) return made;
  if (auto written = write_file_atomically("/run/fairlead/gpus", std::to_string(count) + "\n", 0644); !written) return written;
  for (int i = 0; i < count; ++i) {
    const std::string path = "/dev/fairlead-gpu" + std::to_string(i);
    if (::mknod(path.c_str(), S_IFCHR | 0666, ::makedev(1, 3)) != 0 && errno != EEXIST) return fail_errno(errno, "make device " + path);
    ::chmod(path.c_str(), 0666);
  }
  return {};
}

std::map<std::string, std::string> own_environment() {
  std::map<std::string, std::string> out;
  for (char** at = environ; *at; ++at)
    if (const char* equals = std::strchr(*at, '='); equals) out[std::string(*at, static_cast<std::size_t>(equals - *at))] = equals + 1;
  return out;
}

namespace {

// The library is written out, and whoever is started with this environment loads it. Its path.
Result<std::string> preload(std::map<std::string, std::string>& environment, const std::string& name, std::string_view bytes) {
  constexpr const char* kFolder = "/run/fairlead";  // root's own: the daemon that loads the file starts as root
  if (auto made = make_dirs(kFolder, 0755); !made) return std::unexpected(std::move(made.error()));
  const std::string path = std::string(kFolder) + "/" + name;
  if (auto written = write_file_atomically(path, bytes, 0755); !written) return std::unexpected(std::move(written.error()));
  const std::string others = environment["LD_PRELOAD"];
  environment["LD_PRELOAD"] = others.empty() ? path : path + ":" + others;
  return path;
}

}  // namespace

void send_at_once(std::map<std::string, std::string>& environment) {
  if (auto preloaded = preload(environment, "nodelay.so", {fairlead_nodelay_begin, fairlead_nodelay_end}); !preloaded) log_warn("each message of accounting takes 40 ms longer", {{"error", preloaded.error().message}});
}

Result<std::map<std::string, std::string>> durable_environment() {
  auto environment = own_environment();
  if (const auto off = environment.find("FAIRLEAD_DURABLE"); off != environment.end() && off->second == "off") {
    log_warn("confirmed submissions are not durable: FAIRLEAD_DURABLE=off");
    return environment;
  }
  auto preloaded = preload(environment, "durable.so", {fairlead_durable_begin, fairlead_durable_end});
  if (!preloaded) return std::unexpected(std::move(preloaded.error()));
  // The linker goes on without a library that it cannot load, and the library ends a daemon that it does not know: both show here, before anything is served.
  auto tried = run({.argv = {"slurmctld", "-V"}, .environment = environment}, std::chrono::seconds(20));
  if (!tried) return pass(std::move(tried.error()), "try slurmctld");
  if (tried->exit.code != 0 || tried->err.find("cannot be preloaded") != std::string::npos)
    return fail(Code::Unavailable, fmt::format("slurmctld does not run with {}: {}", *preloaded, trim(tried->err.empty() ? tried->out : tried->err)));
  return environment;
}

}  // namespace fairlead::companion
