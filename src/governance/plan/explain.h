// SPDX-License-Identifier: Apache-2.0
// Why a workload does not run and what would start it; of one that runs, what it has and who could take it back. Pure. A remedy is told only after it was done on a fork of the books and the workload got its quota there.
// docs/design/030-explain.md.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "governance/plan/books.h"
#include "kube/json.h"

namespace fairlead::governance {

// A field that would have another value.
struct FieldChange {
  std::string kind;     // ClusterQueue, Cohort, LocalQueue, Workload
  kube::ObjectKey key;
  std::string field;    // "spec.resourceGroups[0].flavors[0].resources[0].borrowingLimit"
  kube::Json from, to;  // null: not there
  std::string about;    // "cpu in f0"; empty where the field alone tells it
};
kube::Json changed(kube::Json object, const FieldChange& change);  // the object as it would be

struct Remedy {
  std::optional<Instant> waits_until;   // time alone: the quotas are those of another window then
  std::string window;                   // ... its name; empty: of none
  std::vector<kube::ObjectKey> ending;  // these end, or leave the line
  std::vector<FieldChange> changes;
  std::vector<kube::ObjectKey> stops;   // what would be pre-empted then
};

// What it misses of one flavor and resource.
struct Missing {
  std::string flavor, resource;
  Amount asked = 0, available = 0, missing = 0;
  bool never = false;                // more than could be had if nobody else used anything
  std::string limit_kind, limit_of;  // whose limit it is
  std::string limit_field;           // nominalQuota, borrowingLimit; quota: of a cohort, all that its members lend
  Amount limit = 0;
  struct Kept {                      // idle there, and not lent
    std::string kind, name;
    Amount amount = 0;
  };
  std::vector<Kept> kept;
};

struct Holder {
  kube::ObjectKey workload;
  std::string owner, queue;  // owner: "job/train"; empty: none
  std::int64_t priority = 0;
  Amount amount = 0, borrowed = 0;
  bool stopping = false;
};

// Who could take a running one's quota.
struct Taker {
  std::string queue;
  std::optional<std::int64_t> above;  // only with a priority above this
  bool own_quota = false;             // for quota of its own that it does not use; else while it borrows itself, or in the same queue
};

struct Explanation {
  kube::ObjectKey workload;
  std::string owner, queue;
  std::int64_t priority = 0;
  Books::Place place = Books::Place::Out;
  bool finished = false;
  int position = 0;                   // in the line of its queue; 0: in none
  std::string reason, message;        // as in condition QuotaReserved or Evicted
  std::string waits_for;              // a few words
  std::string pods;                   // partial admission: how many it has, or will do; empty: all or none
  std::vector<Missing> missing;       // the first is what it waits for; others: of its other flavors
  std::vector<Holder> holders;        // of the first, largest first; what is being stopped for it, if that is what it waits for
  std::string held;                   // ... if it waits for a place: the resource that their amounts are of
  std::size_t more_holders = 0;       // beyond those
  std::vector<kube::ObjectKey> ahead; // StrictFIFO: who stands before it; else for whom what is free is kept
  bool strict = false;                // it is StrictFIFO
  std::vector<Remedy> remedies;
  std::optional<FieldChange> wrong;   // misconfigured or stopped: the object and the field
  std::vector<Holder> has;            // runs: for each flavor and resource; owner: "RESOURCE in FLAVOR"
  std::vector<Taker> takers;          // once it may be pre-empted
  bool safe = false;                  // it has not run for long enough to be pre-empted ...
  std::optional<Instant> safe_until;  // ... which will be then
  std::map<kube::ObjectKey, std::string> owners;  // of the workloads that are named: "job/train"
};

// None: there is no such workload.
std::optional<Explanation> explain(const Books& books, const kube::ObjectKey& workload);
kube::Json to_json(const Explanation& explanation);

// The workload of "job/NAME" or "workload/NAME" (also of the group: "job.batch/NAME"), of any owner kind, or of "slurm/CLUSTER/JOB". Invalid: another form; NotFound: with what is there.
Result<kube::ObjectKey> find_workload(const Books& books, const std::string& space, const std::string& text);

}  // namespace fairlead::governance
