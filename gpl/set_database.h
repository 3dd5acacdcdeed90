// SPDX-License-Identifier: GPL-3.0-or-later
// The database's part in a set: the pod that makes sets asks, the container beside MariaDB answers, by files on the volume of the sets, which both have. Nothing else leads from one to the other.
#pragma once
#include <chrono>
#include <string>

#include "card.h"

namespace fairlead::companion {

inline constexpr const char* kSetsFolder = "/var/backups/cluster";

// Answers from a thread of its own, for ever; where the volume is not mounted nothing is done.
void serve_sets();
// One request, if there is one that is not answered yet; for tests and for serve_sets.
void answer_request(const std::string& folder);

// Dumps into that file of the folder ("sets/.X.partial/database.sql.gz"). "database.sum", "database.last-id". Waits for the answer; Unavailable: nobody took the request within `patience`.
Result<Card> ask_for_dump(const std::string& folder, const std::string& path, const std::string& cluster, std::chrono::seconds patience);
// The answer to a restore; Unavailable: there is none yet, ask again with the same id.
Result<Card> ask_for_restore(const std::string& folder, const std::string& id, const std::string& path, const std::string& sum, const std::string& cluster);

// True: nobody has begun it, and nobody will.
bool withdraw_request(const std::string& folder, const std::string& id);

}  // namespace fairlead::companion
