// SPDX-License-Identifier: Apache-2.0
// The program that stands in each pod of a training job and starts its processes: `hyperpodrun` of hyperpod-elastic-agent (1.1), asked and told over HTTP. It starts nothing before it is told its rank, and keeps its
// container when its processes die, so a job begins anew without new pods. What it says is a stranger's word: it comes from a user's container.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kube/json.h"

namespace fairlead::training {

enum class AgentState { Init, Ready, Running, Completed, Faulted, Stopping, Shutdown };
std::string_view name(AgentState state);

struct AgentReport {
  AgentState state = AgentState::Init;
  std::string reason, message;  // of a fault: "LogHang_RULE", "WorkerCrash"; cut to 1 KiB
  std::string attempt;          // the word that the last /start had with it; empty: none was started
  friend bool operator==(const AgentReport&, const AgentReport&) = default;
};
// What `GET /status` answers, to 64 KiB; it has agent_version and transitions, as no health page has. Invalid: it is no such answer.
Result<AgentReport> parse_agent_report(std::string_view body);

struct AgentAt {
  std::string address;
  unsigned short port = 8080;
  friend auto operator<=>(const AgentAt&, const AgentAt&) = default;
};

// `POST /start`: its processes begin. An agent that has the attempt's word already runs it; it would refuse.
struct StartOrder {
  int rank = 0, nodes = 1;
  int restarts = 0;                    // TORCHELASTIC_RESTART_COUNT of its processes
  std::string attempt;
  std::string master_address;
  int master_port = 0;
  std::shared_ptr<const std::vector<std::string>> addresses;  // of all ranks; one list for all orders
  kube::Json rules;                    // logMonitoringConfiguration; null: none
};
std::string body_of(const StartOrder& order);

// `POST /stop`: its processes end, the agent is ready again.
struct StopOrder {
  bool graceful = false;      // SIGUSR1 first: a loop that asks elastic_event_detected() writes a checkpoint and ends
  int timeout_seconds = -1;   // until SIGKILL; -1: the agent's own
  friend bool operator==(const StopOrder&, const StopOrder&) = default;
};
std::string body_of(const StopOrder& order);

// Thread-safe, blocking; several at once are asked side by side. Unavailable: no answer, the outcome is unknown. Invalid: it answers, and not as an agent does. Exhausted: it was not asked, or told, as those before it took too long.
class Agents {
 public:
  virtual ~Agents() = default;
  virtual std::vector<Result<AgentReport>> status(const std::vector<AgentAt>& agents) = 0;  // one for each, in order
  struct Order {
    AgentAt at;
    enum class What { Start, Stop, Shutdown } what = What::Start;
    StartOrder start = {};
    StopOrder stop = {};
  };
  virtual std::vector<Result<void>> tell(const std::vector<Order>& orders) = 0;  // one for each, in order
};
// By HTTP to the pods' addresses, at most 32 at once, 2 s to connect, 4 s for an answer, 8 s for a look at all of them. What a pod's status names is no word of ours: addresses of this machine alone (loopback, link-local) are Invalid, but for tests.
enum class AgentReach { Pods, AlsoLocal };
std::unique_ptr<Agents> make_http_agents(AgentReach reach = AgentReach::Pods);

}  // namespace fairlead::training
