// SPDX-License-Identifier: GPL-3.0-or-later
#include <fmt/format.h>

#include <algorithm>

#include "base/encoding.h"
#include "database.h"

namespace fairlead::companion {
namespace {
constexpr std::string_view kPrefix = "accounting-", kSuffix = ".sql.gz";
}

std::vector<std::string> database_arguments(const std::string& data, int port, int cache_mib) {
  return {"mariadbd", "--no-defaults", "--user=mysql", "--datadir=" + data, "--socket=/run/mysqld/mysqld.sock", "--pid-file=/run/mysqld/mysqld.pid", fmt::format("--port={}", port), "--bind-address=*",
          // Nobody speaks to it unencrypted but root by the socket.
          "--require-secure-transport=ON", "--ssl-cert=/run/mysqld/tls.crt", "--ssl-key=/run/mysqld/tls.key", "--ssl-ca=/run/mysqld/ca.crt", "--tls-version=TLSv1.2,TLSv1.3",
          "--init-file=/run/mysqld/users.sql",
          // What was acknowledged to slurmdbd is on the disk.
          "--innodb-flush-log-at-trx-commit=1", "--innodb-doublewrite=ON", "--innodb-flush-method=O_DIRECT",
          // Rolling up usage and a purge lock many rows for long (Slurm's accounting guide).
          "--innodb-lock-wait-timeout=900", fmt::format("--innodb-buffer-pool-size={}M", cache_mib), "--innodb-log-file-size=64M", "--max-allowed-packet=64M",
          "--skip-name-resolve", "--local-infile=0", "--skip-symbolic-links", "--performance-schema=OFF", "--character-set-server=utf8mb4"};
}

Result<std::string> database_users(const std::string& password) {
  if (password.size() < 16 || password.find_first_not_of("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.") != std::string::npos)
    return fail(Code::Invalid, "the password of the built-in database is 16 letters, digits, -, _ or . at least; delete its Secret and the pods of accounting to have another made");
  // A statement a line: mariadbd runs its init file so. What slurmdbd does there, and nothing on any other database.
  return fmt::format(
      "CREATE DATABASE IF NOT EXISTS slurm_acct_db;\n"
      "CREATE USER IF NOT EXISTS 'slurm'@'%' IDENTIFIED BY '{0}' REQUIRE SSL;\n"
      "ALTER USER 'slurm'@'%' IDENTIFIED BY '{0}' REQUIRE SSL ACCOUNT UNLOCK;\n"
      "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, ALTER, INDEX, REFERENCES, LOCK TABLES, CREATE TEMPORARY TABLES, CREATE ROUTINE, ALTER ROUTINE, EXECUTE ON slurm_acct_db.* TO 'slurm'@'%';\n",
      password);
}

Result<std::vector<std::string>> table_names(const std::string& listed) {
  std::vector<std::string> out;
  for (const std::string& name : split(listed, '\n')) {
    if (name.empty()) continue;
    if (name.size() > 64 || name.find_first_not_of("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.") != std::string::npos) return fail(Code::Invalid, "a table has a name that Slurm gives none");
    out.push_back(name);
  }
  return out;
}

std::string exchange_statement(const std::vector<std::string>& live, const std::vector<std::string>& loaded) {
  std::string out;
  const auto add = [&](const char* from, const char* to, const std::string& name) { out += fmt::format("{}`{}`.`{}` TO `{}`.`{}`", out.empty() ? "RENAME TABLE " : ", ", from, name, to, name); };
  for (const std::string& name : live) add(kLiveDatabase, kReplacedDatabase, name);
  for (const std::string& name : loaded) add(kLoadedDatabase, kLiveDatabase, name);
  return out;
}

std::string backup_name(Instant at) {
  std::string text = print_time(at);  // 2026-11-22T00:15:00Z
  std::erase_if(text, [](char c) { return c == '-' || c == ':'; });
  return std::string(kPrefix) + text + std::string(kSuffix);
}

std::optional<Instant> backup_time(const std::string& name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix) || name.size() != kPrefix.size() + 16 + kSuffix.size()) return std::nullopt;
  const std::string t = name.substr(kPrefix.size(), 16);
  auto at = parse_time(fmt::format("{}-{}-{}T{}:{}:{}Z", t.substr(0, 4), t.substr(4, 2), t.substr(6, 2), t.substr(9, 2), t.substr(11, 2), t.substr(13, 2)));
  if (!at || backup_name(*at) != name) return std::nullopt;
  return *at;
}

std::vector<std::string> backups_until(std::vector<std::string> list, Instant now) {
  std::erase_if(list, [now](const std::string& name) {
    const auto at = backup_time(name.ends_with(".sha256") ? name.substr(0, name.size() - 7) : name);
    return at && *at > now + std::chrono::minutes(1);
  });
  return list;
}

std::vector<std::string> backups_to_remove(std::vector<std::string> list, int keep) {
  std::sort(list.begin(), list.end());
  std::vector<std::string> whole, out;
  for (const std::string& name : list)
    if (backup_time(name) && std::binary_search(list.begin(), list.end(), name + ".sha256")) whole.push_back(name);
  const std::size_t surplus = whole.size() > static_cast<std::size_t>(keep) ? whole.size() - static_cast<std::size_t>(keep) : 0;
  // The checksum goes last: a backup without it does not count, and one that is half removed goes with the next.
  for (std::size_t i = 0; i < surplus; ++i) {
    out.push_back(whole[i]);
    out.push_back(whole[i] + ".sha256");
  }
  for (const std::string& name : list) {
    const bool partial = name.starts_with(".") && name.ends_with(".partial") && backup_time(name.substr(1, name.size() - 9));
    const bool lonely_sum = name.ends_with(".sha256") && backup_time(name.substr(0, name.size() - 7)) && !std::binary_search(list.begin(), list.end(), name.substr(0, name.size() - 7));
    if (partial || lonely_sum) out.push_back(name);
  }
  return out;
}

}  // namespace fairlead::companion
