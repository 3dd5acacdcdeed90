// SPDX-License-Identifier: GPL-3.0-or-later
#include "database.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "base/encoding.h"
#include "base/files.h"
#include "base/log.h"
#include "base/process.h"
#include "mariadb.h"
#include "prepare.h"
#include "supervise.h"

namespace fairlead::companion {
namespace {

constexpr const char* kVolume = "/var/lib/mysql";
constexpr const char* kRun = "/run/mysqld";

Result<void> copy_for_mysql(const std::string& from, const std::string& name) {
  auto bytes = read_file(from);
  if (!bytes) return std::unexpected(std::move(bytes.error()));
  return write_for_mysql(std::string(kRun) + "/" + name, *bytes);
}

// The system tables are made beside and appear whole: a machine that stops midway leaves nothing that looks like a database.
Result<void> make_tables(const std::string& data) {
  if (exists(data)) return {};
  const std::string fresh = data + ".new";
  if (auto gone = remove_tree(fresh); !gone && gone.error().code != Code::NotFound) return gone;
  if (auto made = owned_dir(fresh, "mysql", 0700); !made) return made;
  auto out = run_checked({.argv = {"mariadb-install-db", "--no-defaults", "--user=mysql", "--datadir=" + fresh, "--auth-root-authentication-method=socket", "--skip-test-db", "--skip-name-resolve"}}, std::chrono::minutes(5));
  if (!out) return pass(std::move(out.error()), "make the database's own tables");
  const Fd folder(::open(kVolume, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder || ::syncfs(folder.get()) != 0) return fail_errno(errno, "write the database's own tables");
  if (::rename(fresh.c_str(), data.c_str()) != 0) return fail_errno(errno, "rename to " + data);
  if (::fsync(folder.get()) != 0) return fail_errno(errno, "write " + std::string(kVolume));
  return {};
}

Result<void> prepare_database(const std::string& data) {
  if (auto made = owned_dir(kRun, "mysql", 0755); !made) return made;
  for (const char* name : {"tls.crt", "tls.key", "ca.crt"})
    if (auto copied = copy_for_mysql(std::string("/etc/fairlead/database/") + name, name); !copied) return copied;
  auto password = read_file("/etc/fairlead/database/password");
  if (!password) return std::unexpected(std::move(password.error()));
  auto users = database_users(std::string(trim(*password)));
  if (!users) return std::unexpected(std::move(users.error()));
  if (auto written = write_for_mysql(std::string(kRun) + "/users.sql", *users); !written) return written;
  return make_tables(data);
}

int number(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value ? std::atoi(value) : otherwise;
}

}  // namespace

Result<void> write_for_mysql(const std::string& path, const std::string& bytes) {
  const passwd* user = ::getpwnam("mysql");
  if (!user) return fail(Code::NotFound, "the image has no user mysql");
  const std::string temporary = path + ".new";
  if (auto written = write_file_atomically(temporary, bytes, 0400); !written) return written;
  if (::chown(temporary.c_str(), user->pw_uid, user->pw_gid) != 0) return fail_errno(errno, "chown " + temporary);
  if (::rename(temporary.c_str(), path.c_str()) != 0) return fail_errno(errno, "rename to " + path);
  return {};
}

int run_database() {
  const std::string data = std::string(kVolume) + "/data";
  if (auto ready = prepare_database(data); !ready) {
    log_error("the database cannot be started", {{"error", ready.error().message}});
    return 1;
  }
  return supervise({.command = {.argv = database_arguments(data, number("FAIRLEAD_DATABASE_PORT", 3306), number("FAIRLEAD_DATABASE_CACHE_MIB", 256)), .stdout_fd = 1, .stderr_fd = 2},
                    .stop_limit = std::chrono::seconds(50),
                    .restart_in_place = true,
                    .before_start = [data] {
                      if (auto again = prepare_database(data); !again) log_error("the database keeps what it was given", {{"error", again.error().message}});
                    }});
}

int check_database() {
  auto out = ask_database("SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = 'slurm_acct_db'", std::chrono::seconds(5));
  if (out && trim(*out) == "1") return 0;
  std::fprintf(stderr, "the database does not answer: %s\n", out ? "it has no slurm_acct_db" : out.error().message.c_str());
  return 1;
}

}  // namespace fairlead::companion
