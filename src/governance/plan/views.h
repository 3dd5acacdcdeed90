// SPDX-License-Identifier: Apache-2.0
// Who has what, and who waits in which order, as JSON that commands draw and print (-o json). Pure: the same objects give the same view. docs/design/030-explain.md.
#pragma once
#include <string>
#include <vector>

#include "governance/plan/books.h"
#include "kube/json.h"

namespace fairlead::governance {

// ClusterQueues, Cohorts, ResourceFlavors, AdmissionChecks, LocalQueues, Workloads, namespaces and SchedulerConfigs (is compute shared by weight?), in any order; others are passed over. All that follows from them is decided.
// `now`: for what the policy says of time; none: it says nothing.
Books books_of(const std::vector<kube::Json>& objects, std::optional<Instant> now = std::nullopt);

// {tree: [NODE]}: cohorts and queues as they lend to one another, roots by name.
// NODE: {kind: Cohort | ClusterQueue, name, team, cohort, weight, writtenWeight, usedLately, due, share, active, reason, message, pending, reserving, admitted, quotas: [{flavor, resource, nominal, used, borrowed, lent, borrowingLimit, lendingLimit}],
//        children: [NODE]}. writtenWeight, usedLately, due: where weights follow what was used lately; its parts of what its siblings and it used, and of their weights, 0 to 1. Of a cohort nominal and used are sums of all below it, and its own quota. lent: of what others borrow, the part that falls to it (in proportion to what it has to lend).
kube::Json quota_view(const Books& books);

// {workloads: [{queue, position, namespace, name, owner: {kind, name}, localQueue, priority, created, since, state: Waiting | Promised | NotQueued | Running | Stopping, reason, message, waitsFor, asks: {RESOURCE: AMOUNT}, flavors: {RESOURCE: [FLAVOR]}}]}:
// by queue; those that wait in the engine's order with their position, those that are in no line, then those that run, by since when.
kube::Json queue_view(const Books& books);

// Parts that explanations and forecasts use, too.
bool tell_books(Books& books, const std::string& kind, const kube::ObjectKey& key, const kube::Json& object);  // false: a kind that books do not keep. A null object: gone.
std::string owner_of(const kube::Json& object);        // "job/train"; empty: nobody's
const char* state_text(Books::Place place);            // NotQueued, Waiting, Promised, Running, Stopping
std::string team_of_queue(const std::string& queue);  // of a queue that was made for a team; else empty
// Whose limit keeps the column from giving more, with the name of the field: "borrowingLimit of ClusterQueue b (25m)".
std::string limit_text(const Ledger& ledger, NodeId node, Column column);
// What it waits for, in a few words.
std::string waits_text(const Books& books, const Books::Standing& standing);
// What a job of the engine uses, in its tree's columns, each once.
std::vector<Use> uses_of(const ContinuousEngine& engine, const EngineClass& what, JobId job);

}  // namespace fairlead::governance
