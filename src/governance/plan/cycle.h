// SPDX-License-Identifier: Apache-2.0
// The compatible mode: Kueue's scheduling cycle. One head of each queue is looked at, in an order over all queues; each decision counts for those after it.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "governance/plan/flavors.h"
#include "governance/plan/order.h"
#include "governance/plan/pending.h"
#include "governance/plan/usage_history.h"

namespace fairlead::governance {

// What a cycle decided about one head.
struct Decision {
  enum class Kind {
    Admit,     // `assignment` is its quota now
    Preempt,   // `victims` are to stop; it waits for them
    Wait,      // `reason`, `message`
    Evict,     // no replacement for a lost node: it must go
  };
  Kind kind = Kind::Wait;
  WorkloadId workload = none;
  std::uint32_t queue = none;
  Assignment assignment;
  std::vector<Victim> victims;
  std::string reason;    // of condition QuotaReserved=False
  std::string message;
  Requeue requeue = Requeue::Generic;
  bool tell = true;      // the reason is to be written
  bool skipped = false;  // looked good, but others were first
  bool admitted = false; // with Admit: nothing else is to be waited for (checks, placement)
};

struct Engine {
  World world;
  std::map<std::string, kube::Labels> spaces;      // namespaces; those that are not here do not exist
  std::map<std::string, LocalQueueSpec> local_queues;
  UsageHistory history;
  Pending pending{world, {}};
  std::vector<WorkloadId> second_pass;
  std::int64_t cycle = 0;

  // Queues what waits and may run. After world, local_queues and history are set; call once. The engine must not move afterwards.
  void start();
  // A held workload is gone: its queue's tree may go on.
  void remove(WorkloadId w);
};

// Runs one cycle and applies it: what was admitted holds quota, victims are marked, heads are back in their queues.
// `refused`: the write of an admission fails; it gives the quota back. With "not found" it is gone, else it is tried again.
std::vector<Decision> run_cycle(Engine& engine, const std::function<std::string(WorkloadId)>& refused = {});

// The assignment with fewer pods where the full one does not fit, and victims.
struct Assigned {
  Assignment assignment;
  std::vector<Victim> victims;
};
Assigned assign(World& world, WorkloadId workload, std::uint32_t queue, std::int64_t cycle, const Nomination* nominated);

bool needs_second_pass(const WorkloadSpec& workload);
// What the admission of an assignment is, as the object tells it.
Admission admission_of(const World& world, std::uint32_t queue, const Assignment& assignment);

}  // namespace fairlead::governance
