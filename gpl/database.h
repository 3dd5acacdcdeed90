// SPDX-License-Identifier: GPL-3.0-or-later
// MariaDB for accounting, its backups and their way back (docs/design/008). All of it speaks to the server as root by its socket, which asks for no password; nothing secret is an argument of a program.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace fairlead::companion {

int run_database();    // mariadbd under supervision; the exit status of the container
int check_database();  // 0: it answers
int run_backups();     // one now and then, for ever: FAIRLEAD_BACKUP_SECONDS, FAIRLEAD_BACKUP_KEEP
int check_backups();   // 0: the newest is younger than two intervals
int list_backups();
// restore-accounting NAME|latest [--force]
int restore_accounting(const std::vector<std::string>& arguments);

// For sets of a whole cluster (sets.h): a dump that was tried, its checksum. At one time with no backup and no restore; waits for them.
Result<std::string> dump_accounting(const std::string& path);
// In the place of the live tables, whatever is newer there; the name of the backup of that, if one was needed. May be asked for twice.
Result<std::string> put_back_accounting(const std::string& path, const std::string& sum);
// The highest id of a job of that cluster; 0: none.
Result<std::int64_t> last_accounted_job(const std::string& cluster);

// What mariadbd is started with and, as SQL that it runs at its start, who may do what there.
std::vector<std::string> database_arguments(const std::string& data, int port, int cache_mib);
Result<std::string> database_users(const std::string& password);

// Databases of that server: Slurm's own, a backup that was loaded, what a restore put aside for a moment.
inline constexpr const char* kLiveDatabase = "slurm_acct_db";
inline constexpr const char* kLoadedDatabase = "fairlead_restored";
inline constexpr const char* kReplacedDatabase = "fairlead_replaced";
// A name a line. Slurm's user makes the tables of its database, root renames them: Invalid where one of them has a name that Slurm gives no table and that would say more than a name in a statement.
Result<std::vector<std::string>> table_names(const std::string& listed);
// RENAME TABLE: of the live ones to what is put aside, of the loaded ones to the live ones. Names as table_names gives them.
std::string exchange_statement(const std::vector<std::string>& live, const std::vector<std::string>& loaded);

// Names of backups: accounting-20261122T001500Z.sql.gz
std::string backup_name(Instant at);
std::optional<Instant> backup_time(const std::string& name);
// Without the backups, and their checksums, that are of a time after `now`: made by a clock that was wrong, they neither count as the newest nor push others out.
std::vector<std::string> backups_until(std::vector<std::string> names, Instant now);
// Those that go when `keep` of them stay, and what was left of unfinished ones; names as listed, in any order.
std::vector<std::string> backups_to_remove(std::vector<std::string> names, int keep);

}  // namespace fairlead::companion
