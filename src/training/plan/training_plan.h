// SPDX-License-Identifier: Apache-2.0
// What to do next for a HyperPodPyTorchJob: pods that are made and taken away, agents that are told, and what its status says. Pure.
// A restart is one write: the status that says restartCount + 1, and why. All that follows from it (stop, new pods, start) is found again in the objects and in what the agents say, whoever dies in between.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "training/agents.h"
#include "training/plan/training_job.h"

namespace fairlead::training {

struct AgentSeen {
  enum class How { Unasked, Silent, Answered } how = How::Unasked;  // Silent: nobody answers, or not as an agent does
  AgentReport report = {};
  std::chrono::seconds silent_for{0};
};

struct TrainingInput {
  kube::Json job;
  std::vector<kube::Json> pods;             // that it owns
  std::map<std::string, AgentSeen> agents;  // by pod; of those with an address
  std::map<std::string, kube::Json> nodes;  // of its pods; null: there is no such node
  bool in_queue = false;                    // of ours: what it has beyond its quota asks for its own
  bool admitted = true;                     // its queue has let it go, or it is in none: else no pod is made. What suspends it is the job alone
  Instant now{};
};

struct PodOrder {
  std::string pod;
  Agents::Order::What what = Agents::Order::What::Start;
  AgentAt at;
  StartOrder start = {};
  StopOrder stop = {};
};
struct TrainingNote {
  bool warning = false;
  std::string reason, message;
};

struct TrainingPlan {
  kube::Json status;                 // written first, if it differs from the job's; null: as it is
  std::vector<TrainingNote> notes;   // events, once the status is written
  std::vector<kube::Json> create;
  std::vector<kube::ObjectKey> remove;  // with the uid that was seen, in `uids`
  std::map<std::string, std::string> uids;
  std::map<std::string, int> ranks;     // pods that get a rank now, or lose it (-1)
  std::vector<PodOrder> orders;
  bool remove_job = false;
  std::optional<std::chrono::seconds> again;
};
TrainingPlan plan_training(const TrainingInput& input);

// Which of its pods' agents are to be asked before it is planned for: none of a job that needs no answer.
std::map<std::string, AgentAt> agents_to_ask(const kube::Json& job, const std::vector<kube::Json>& pods);

// What its agents are started with: one word for each attempt of each job.
std::string attempt_word(const kube::Json& job, std::int64_t attempt);

}  // namespace fairlead::training
