// SPDX-License-Identifier: Apache-2.0
// The versions of the file and the steps from each to the next. A new version is one more step; old steps are never changed.
//
//   1   log, meta
//   2   programs(schema, program): the version of the program that brought the file to a schema, for the words of a refusal
#pragma once
#include <sqlite3.h>

#include <cstdint>
#include <string>

#include "base/result.h"

namespace fairlead::apiserver {

constexpr std::int64_t store_schema = 2;

// The tables of a new file, the same as those of a migrated one.
Result<void> create_schema(sqlite3* database, int application_id);
// Brings a file of schema `from` to store_schema in one transaction. Before that, a copy as it was goes to copy_before(path, from), so that the program of before can go on from there: its
// history is closed and its revisions begin far above all that were given out, so that nothing given out after the migration comes twice and every watch begins anew.
// On an error the file is as it was.
Result<void> migrate_schema(sqlite3* database, const std::string& path, std::int64_t from);
std::string copy_before(const std::string& path, std::int64_t schema);
// Why a file of a newer schema is not opened, with the two ways out.
Error newer_schema(sqlite3* database, const std::string& path, std::int64_t schema);

}  // namespace fairlead::apiserver
