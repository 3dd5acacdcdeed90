// SPDX-License-Identifier: GPL-3.0-or-later
// A cluster moves to another place (docs/design/017). The source makes a code when the export begins, and tells it only when its own hold is for ever; the target knows the code's SHA-256 and stays held until the code is told to it.
// So of source and target at most one ever runs slurmctld, whoever is killed and whoever types what.
//
//   source   hold -> fence -> set -> ready -> moving -> moved         the code is told in `moved` alone
//              \_______\______\_______\-> abort -> (gone)             the code is destroyed before the hold goes
//   target   fill -> filled -> open
#pragma once
#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "card.h"
#include "set_restore.h"
#include "sets.h"

namespace fairlead::companion {

struct ExportCluster {
  std::string folder, state, cluster;           // as of MakeSet
  std::function<Result<SetInfo>()> make;        // a set of what lies still
  std::function<Result<std::string>()> new_code;  // hexadecimal digits that nobody can guess
  std::function<void()> on_step;                // for tests: before each change
  std::chrono::seconds patience{600};           // for heads to end and for a set to be made; then the export is aborted
  Instant now;
};

// Conflict: a restore, another hold or an abort is in the way. One that has begun is given again, whatever `id` says.
Result<Card> begin_export(const ExportCluster& options, const std::string& id);
Result<Card> read_export(const std::string& folder);  // with the code: for no log and no list. NotFound: there is none
// One round, by the container that keeps sets. True: nothing is to be done until somebody asks. Errors: told, and tried again.
Result<bool> carry_on_export(const ExportCluster& options);
// From then on it goes back, and nobody will ever know the code. Conflict: it is handed over, or may be. NotFound: there is none.
Result<void> abort_export(const ExportCluster& options);
// The code. From before it is given this cluster is held for ever. Conflict: it is not ready. May be asked again.
Result<std::string> hand_over(const ExportCluster& options);
// How one that was aborted ended ("error": why, where nobody asked for it). NotFound: it has not.
Result<Card> read_export_outcome(const std::string& folder, const std::string& id);

struct ImportCluster {
  std::string folder, state, cluster;
  std::function<Result<void>(const std::string& archive, const std::string& to)> unpack;
  std::function<void()> on_step;
  RestoreSet restore;                           // what fills the volumes
  std::string restore_id;                       // a fresh one for each call
};
struct Imported {
  std::string id, cluster, sum, set;            // of the export; sum: SHA-256 of its code in hexadecimal digits
  std::uint64_t bytes = 0;                      // of the archived set
};

// The hold comes first. Conflict: this cluster has a state, or another import has begun. The same again: nothing is done.
Result<Card> begin_import(const ImportCluster& options, const Imported& wanted);
Result<Card> read_import(const std::string& folder);
// A piece of the archived set at its place; any piece may be put again.
Result<void> put_import(const ImportCluster& options, const std::string& id, std::uint64_t offset, std::string_view bytes);
// Unpacks, compares every byte with its manifest, and begins to fill; then asks whether it is filled. True: it is. Unavailable: it waits, ask again. Other errors: it is not, and may be tried again.
Result<bool> fill_import(const ImportCluster& options, const std::string& id);
// Forbidden: it is another code. Conflict: it is not filled. Twice: nothing is done.
Result<void> open_import(const ImportCluster& options, const std::string& code);

bool is_export_code(std::string_view text);  // 64 hexadecimal digits
std::string sum_of_code(const std::string& code);

}  // namespace fairlead::companion
