// SPDX-License-Identifier: GPL-3.0-or-later
// MariaDB's own tools, as root by the socket.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/process.h"
#include "base/result.h"

namespace fairlead::companion {

// Rows a line, columns by tabs. The statement goes in by stdin. Unavailable: the server does not answer.
Result<std::string> ask_database(const std::string& sql, std::chrono::milliseconds limit);
Result<void> write_for_mysql(const std::string& path, const std::string& bytes);  // 0400, mysql's own

// Runs programs whose outputs feed one another; stdin of the first is `in`, stdout of the last `out` (-1: /dev/null). Fails where any of them does.
Result<void> pipeline(const std::vector<std::vector<std::string>>& programs, int in, int out, std::chrono::minutes limit);
// The same; what the last one writes (64 KiB at most).
Result<std::string> pipeline_text(const std::vector<std::vector<std::string>>& programs, int in, std::chrono::minutes limit);

std::vector<std::string> client(const std::string& database);  // mariadb, reading SQL from stdin
std::vector<std::string> dumper(const std::string& database);  // mariadb-dump: equal contents give equal bytes

}  // namespace fairlead::companion
