// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "apiserver/store/sqlite_handle.h"
#include "apiserver/store/store.h"
#include "base/fd.h"

namespace fairlead::apiserver {
namespace {

// Removes a half-made copy unless it was renamed.
struct Unfinished {
  std::string path;
  ~Unfinished() {
    if (!path.empty()) ::unlink(path.c_str());
  }
};

Result<void> sync(const std::string& path, int flags) {
  const Fd fd(::open(path.c_str(), flags | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0) return fail_errno(errno, "sync " + path);
  return {};
}

bool same_file(const std::string& a, const std::string& b) {
  struct stat first {}, second {};
  return ::stat(a.c_str(), &first) == 0 && ::stat(b.c_str(), &second) == 0 && first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

}  // namespace

Result<void> copy_store(sqlite3* database, const std::string& path, const std::string& target, const std::string& change) {
  Unfinished copy{fmt::format("{}.{}.tmp", target, ::getpid())};
  ::unlink(copy.path.c_str());
  // Made by us for its mode: it holds secrets. VACUUM INTO accepts an empty file.
  if (const Fd made(::open(copy.path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)); !made) return fail_errno(errno, "create " + copy.path);
  {
    auto vacuum = prepare(database, "VACUUM INTO ?1");
    if (!vacuum) return pass(std::move(vacuum.error()), "back up " + path);
    sqlite3_bind_text(vacuum->get(), 1, copy.path.data(), static_cast<int>(copy.path.size()), SQLITE_STATIC);
    if (sqlite3_step(vacuum->get()) != SQLITE_DONE) return fail_sqlite(database, "back up " + path);
  }
  if (!change.empty()) {
    auto opened = open_database(copy.path, "", SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX);
    if (!opened) return std::unexpected(std::move(opened.error()));
    if (auto changed = execute(opened->get(), change.c_str()); !changed) return changed;
  }
  if (auto synced = sync(copy.path, O_RDONLY); !synced) return synced;
  if (::rename(copy.path.c_str(), target.c_str()) != 0) return fail_errno(errno, fmt::format("rename {} to {}", copy.path, target));
  copy.path.clear();
  const auto slash = target.rfind('/');
  return sync(slash == std::string::npos ? "." : slash == 0 ? "/" : target.substr(0, slash), O_RDONLY | O_DIRECTORY);
}

Result<void> backup_sqlite_store(const std::string& path, const std::string& target) {
  if (::access(path.c_str(), F_OK) != 0) return fail_errno(errno, "back up " + path);
  if (path == target || same_file(path, target)) return fail(Code::Invalid, fmt::format("back up {}: the copy would replace the store itself", path));
  auto database = open_database(path, "", SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX);  // a reader of a write-ahead log writes its shared index
  if (!database) return pass(std::move(database.error()), "back up " + path);
  sqlite3_db_config(database->get(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);  // moving the log is for the store alone
  return copy_store(database->get(), path, target);
}

}  // namespace fairlead::apiserver
