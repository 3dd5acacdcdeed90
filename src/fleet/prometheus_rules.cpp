// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "fleet/prometheus.h"
#include "kube/json.h"

namespace fairlead::fleet {
namespace {

using api::Alarm;
using kube::Json;

std::string plain(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 300)) out += c >= ' ' && c < 0x7f ? c : ' ';
  return out;
}

// What people wrote of it, of the first of its alerts that is so far.
std::string words_of(const Json& rule, std::string_view state) {
  for (const Json& alert : rule["alerts"].items()) {
    if (alert["state"].string() != state) continue;
    for (const char* const annotation : {"summary", "description", "message"})
      if (const std::string& text = alert["annotations"][annotation].string(); !text.empty()) return plain(text);
    std::string labels;
    for (const auto& [key, value] : alert["labels"].members())
      if (key != "alertname") labels += fmt::format("{}{}=\"{}\"", labels.empty() ? "" : ", ", key, value.string());
    return plain(labels);
  }
  return "";
}

Alarm read_rule(const Json& rule, std::chrono::seconds interval, Instant now) {
  const std::string &state = rule["state"].string(), &health = rule["health"].string();
  if (health != "ok") {
    const std::string& why = rule["lastError"].string();
    return {.state = Alarm::State::Unknown, .message = health == "err" ? fmt::format("Prometheus cannot evaluate it{}{}", why.empty() ? "" : ": ", plain(why)) : "Prometheus has not evaluated it yet"};
  }
  const auto last = parse_time(rule["lastEvaluation"].string());
  if (!last) return {.state = Alarm::State::Unknown, .message = "Prometheus does not say when it was evaluated"};
  if (now > *last + std::max<std::chrono::seconds>(3 * interval, std::chrono::minutes(1))) return {.state = Alarm::State::Unknown, .message = fmt::format("Prometheus has not evaluated it since {}", print_time(*last))};
  if (state == "firing") return {.state = Alarm::State::Firing, .message = words_of(rule, "firing")};
  if (state == "pending") return {.state = Alarm::State::Pending, .message = words_of(rule, "pending")};
  if (state == "inactive") return {.state = Alarm::State::Ok, .message = {}};
  return {.state = Alarm::State::Unknown, .message = fmt::format("Prometheus says \"{}\" of it", plain(std::string_view(state).substr(0, 40)))};
}

int weight(Alarm::State state) {
  switch (state) {
    case Alarm::State::Missing: return 0;
    case Alarm::State::Ok: return 1;
    case Alarm::State::Pending: return 2;
    case Alarm::State::Unknown: return 3;
    case Alarm::State::Firing: return 4;
  }
  return 3;
}

}  // namespace

Result<std::map<std::string, Alarm>> read_alert_rules(std::string_view body, const std::vector<std::string>& names, Instant now) {
  const auto read = kube::parse_json(body);
  if (!read || !read->is_object()) return fail(Code::Invalid, "its answer is no JSON object");
  if ((*read)["status"].string() != "success") return fail(Code::Invalid, fmt::format("it says \"{}\"", plain((*read)["error"].string_or("no success"))));
  const Json& groups = (*read)["data"]["groups"];
  if (!groups.is_array()) return fail(Code::Invalid, "its answer lists no groups of rules");
  std::map<std::string, Alarm> out;
  for (const std::string& name : names) out[name] = {.state = Alarm::State::Missing, .message = "no alerting rule of Prometheus has that name"};
  for (const Json& group : groups.items()) {
    const std::chrono::seconds interval(static_cast<std::int64_t>(std::clamp(group["interval"].number(60), 1.0, 86'400.0)));
    for (const Json& rule : group["rules"].items()) {
      if (rule["type"].string() != "alerting") continue;
      const auto found = out.find(rule["name"].string());
      if (found == out.end()) continue;
      if (Alarm alarm = read_rule(rule, interval, now); weight(alarm.state) > weight(found->second.state)) found->second = std::move(alarm);
    }
  }
  return out;
}

}  // namespace fairlead::fleet
