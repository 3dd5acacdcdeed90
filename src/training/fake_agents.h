// SPDX-License-Identifier: Apache-2.0
// Agents as values, for tests and simulation: the states and rules of hyperpod-elastic-agent 1.1 (training of whole processes). agents_test.cpp runs one suite on them and on the real program.
#pragma once
#include <map>
#include <mutex>
#include <set>

#include "training/agents.h"

namespace fairlead::training {

class FakeAgents final : public Agents {
 public:
  struct Agent {
    AgentState state = AgentState::Ready;
    std::string reason, message, attempt;
    int rank = -1, nodes = 0, restarts = 0, starts = 0;
    bool graceful = false;
    bool silent = false;
    int stopping = 1;  // so many more questions until its processes have ended
  };
  std::map<AgentAt, Agent> all;
  std::vector<std::string> broken;  // what must never happen, with the address

  std::vector<Result<AgentReport>> status(const std::vector<AgentAt>& agents) override {
    const std::lock_guard lock(mutex_);
    std::vector<Result<AgentReport>> out;
    for (const AgentAt& at : agents) {
      const auto found = all.find(at);
      if (found == all.end() || found->second.silent) {
        out.push_back(fail(Code::Unavailable, "nobody answers"));
        continue;
      }
      Agent& agent = found->second;
      if (agent.state == AgentState::Stopping && agent.stopping-- <= 0) agent.state = AgentState::Ready;
      out.push_back(AgentReport{.state = agent.state, .reason = agent.reason, .message = agent.message, .attempt = agent.attempt});
    }
    return out;
  }
  std::vector<Result<void>> tell(const std::vector<Order>& orders) override {
    const std::lock_guard lock(mutex_);
    std::vector<Result<void>> out;
    for (const Order& order : orders) {
      const auto found = all.find(order.at);
      if (found == all.end() || found->second.silent || lost > 0) {
        if (lost > 0) --lost;
        out.push_back(fail(Code::Unavailable, "nobody answers"));
        continue;
      }
      tell_one(order, found->second);
      out.push_back(Result<void>());
    }
    return out;
  }
  int lost = 0;  // so many orders do not arrive

  void fault(const AgentAt& at, std::string reason = "WorkerCrash", std::string message = "Local Rank 0 exited with code 1") {
    Agent& agent = all.at(at);
    if (agent.state != AgentState::Running) return;
    agent.state = AgentState::Faulted;
    agent.reason = std::move(reason);
    agent.message = std::move(message);
  }
  void complete(const AgentAt& at) {
    if (Agent& agent = all.at(at); agent.state == AgentState::Running) agent.state = AgentState::Completed;
  }

 private:
  void tell_one(const Order& order, Agent& agent) {
    const auto busy = [](AgentState state) { return state == AgentState::Running || state == AgentState::Faulted || state == AgentState::Completed; };
    switch (order.what) {
      case Order::What::Start: {
        // A start that is not taken changes what it says all the same.
        if (agent.state == AgentState::Ready) ++agent.starts;
        else broken.push_back(order.at.address + " is started while it is " + std::string(name(agent.state)));
        const std::string job = order.start.attempt.substr(0, order.start.attempt.find('-'));
        for (const auto& [at, other] : all)
          if (&other != &agent && other.state == AgentState::Running && other.attempt.starts_with(job + "-") && other.attempt != order.start.attempt && !other.silent) broken.push_back(at.address + " still runs " + other.attempt + " when " + order.at.address + " begins " + order.start.attempt);
        if (agent.state == AgentState::Ready) agent.state = AgentState::Running;
        agent.reason = "Running";
        agent.message.clear();
        agent.attempt = order.start.attempt;
        agent.rank = order.start.rank;
        agent.nodes = order.start.nodes;
        agent.restarts = order.start.restarts;
        break;
      }
      case Order::What::Stop:
        agent.graceful = order.stop.graceful;
        if (!busy(agent.state)) return;
        agent.state = AgentState::Stopping;
        agent.stopping = 1;
        break;
      case Order::What::Shutdown: agent.state = AgentState::Shutdown; break;
    }
  }
  std::mutex mutex_;
};

}  // namespace fairlead::training
