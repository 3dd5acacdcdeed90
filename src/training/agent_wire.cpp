// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "training/agents.h"

namespace fairlead::training {

using kube::Json;

namespace {

constexpr std::array<std::pair<AgentState, std::string_view>, 7> kStates{{{AgentState::Init, "init"}, {AgentState::Ready, "ready"}, {AgentState::Running, "running"}, {AgentState::Completed, "completed"},
                                                                          {AgentState::Faulted, "faulted"}, {AgentState::Stopping, "stopping"}, {AgentState::Shutdown, "shutdown"}}};
constexpr std::size_t kTextLimit = 1024;

// What a container says about itself, for conditions and events: one line, cut between characters.
std::string plain(const std::string& text) {
  std::string out;
  for (const char c : text) out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
  if (out.size() > kTextLimit) {
    std::size_t end = kTextLimit;
    while (end > 0 && (static_cast<unsigned char>(out[end]) & 0xc0) == 0x80) --end;
    out.resize(end);
    out += "...";
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

}  // namespace

std::string_view name(AgentState state) {
  return std::ranges::find_if(kStates, [&](const auto& one) { return one.first == state; })->second;
}

Result<AgentReport> parse_agent_report(std::string_view body) {
  const auto said = kube::parse_json(body, {.depth_limit = 32});
  if (!said) return fail(Code::Invalid, "what answers is no agent: " + said.error().message);
  const std::string& word = (*said)["status"].string();
  const auto state = std::ranges::find_if(kStates, [&](const auto& one) { return one.second == word; });
  if (!said->has("agent_version") || !said->has("transitions")) return fail(Code::Invalid, "what answers is no agent: it names no agent_version");
  if (state == kStates.end()) return fail(Code::Invalid, fmt::format("what answers is no agent: its status is \"{}\"", plain(word.substr(0, 64))));
  AgentReport out{.state = state->first, .reason = plain((*said)["reason"].string()), .message = plain((*said)["message"].string()), .attempt = (*said)["ipversion"].string()};
  if (out.attempt.size() > 128) out.attempt = "?";
  return out;
}

std::string body_of(const StartOrder& order) {
  Json addresses = Json::array();
  for (std::size_t rank = 0; order.addresses && rank < order.addresses->size(); ++rank) addresses.push(Json::object({{"rank", static_cast<std::int64_t>(rank)}, {"ip", (*order.addresses)[rank]}}));
  Json body = Json::object({{"rank", order.rank}, {"nnodes", order.nodes}, {"faultCount", order.restarts}, {"master_addr", order.master_address}, {"master_port", order.master_port},
                            {"ipVersion", order.attempt}, {"rankIps", std::move(addresses)}, {"progress", Json::object({})}, {"spare", false}});
  if (!order.rules.items().empty()) body.set("log_monitoring_configuration", order.rules);
  return kube::print_json(body);
}

std::string body_of(const StopOrder& order) {
  // An agent for restarts within a process is asked for those of whole processes, too: the other form ends in a state that /start does not leave.
  Json body = Json::object({{"restart_mode", "plr"}, {"is_graceful", order.graceful}});
  if (order.timeout_seconds >= 0) body.set("timeout", order.timeout_seconds);
  return kube::print_json(body);
}

}  // namespace fairlead::training
