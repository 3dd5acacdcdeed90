// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/login_renewal.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace fairlead::slurm {
namespace {

using kube::Json;

constexpr auto kLookAgain = std::chrono::seconds(5), kApart = std::chrono::seconds(4), kLookRarely = std::chrono::seconds(20);
constexpr std::size_t kMostNamed = 5, kLongestAnswer = 64 * 1024;

std::string told(const Sessions& sessions) {
  std::vector<std::string> names(sessions.people.begin(), sessions.people.begin() + static_cast<std::ptrdiff_t>(std::min(sessions.people.size(), kMostNamed)));
  if (sessions.people.size() > names.size()) names.push_back(fmt::format("{} more", sessions.people.size() - names.size()));
  return names.empty() ? "programs of somebody" : fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

std::optional<Sessions> read_sessions(const std::string& json) {
  if (json.size() > kLongestAnswer) return std::nullopt;
  auto parsed = kube::parse_json(json);
  if (!parsed) return std::nullopt;
  Sessions out{.processes = static_cast<int>(std::clamp<std::int64_t>((*parsed)["processes"].integer(-1), -1, 1'000'000))};
  if (out.processes < 0 || !(*parsed)["people"].is_array()) return std::nullopt;
  for (const Json& name : (*parsed)["people"].items()) {
    // Of a container in which people are root: nothing else than a name comes into a condition.
    const std::string& text = name.string();
    if (text.empty() || text.size() > 64 || std::any_of(text.begin(), text.end(), [](unsigned char c) { return c <= ' ' || c >= 0x7f || c == '"'; })) return std::nullopt;
    out.people.push_back(text);
  }
  return out;
}

LoginRenewal plan_login_renewal(const std::vector<LoginPod>& pods, const Json& memory, Instant now) {
  LoginRenewal out;
  const std::string& known = memory["uid"].string();
  const auto since = parse_time(memory["emptySince"].string());
  // The one that was seen empty comes first, then those of which nobody is known to be in them, then by number.
  std::vector<const LoginPod*> order;
  for (const LoginPod& pod : pods)
    if (pod.renew) order.push_back(&pod);
  std::stable_sort(order.begin(), order.end(), [&](const LoginPod* a, const LoginPod* b) {
    const auto rank = [&](const LoginPod* pod) { return !pod->sessions || pod->sessions->processes > 0 ? 2 : pod->uid == known ? 0 : 1; };
    return rank(a) < rank(b);
  });
  bool first = true;
  for (const LoginPod* pod : order) {
    const auto away = std::find_if(pods.begin(), pods.end(), [&](const LoginPod& other) { return other.name != pod->name && (!other.there || !other.ready); });
    if (away != pods.end()) out.notes.push_back(fmt::format("{} is made anew for other mounts when {} is ready", pod->name, away->name));
    else if (!pod->sessions) out.notes.push_back(fmt::format("{} is made anew for other mounts when nobody is logged in; it does not say who is", pod->name));
    else if (pod->sessions->processes > 0) out.notes.push_back(fmt::format("{} is made anew for other mounts when nobody is logged in; there are {}", pod->name, told(*pod->sessions)));
    else if (!first) out.notes.push_back(fmt::format("{} is made anew for other mounts after the others", pod->name));
    else {
      const bool again = pod->uid == known && since && *since <= now;
      if (again && now - *since >= kApart) out.end = pod->name;
      out.memory = Json::object({{"uid", pod->uid}, {"emptySince", again ? memory["emptySince"].string() : print_time(now)}});
      out.notes.push_back(fmt::format("{} is made anew for other mounts: nobody is logged in", pod->name));
      first = false;
    }
  }
  if (!out.memory.is_null()) out.look_again = kLookAgain;
  else if (!order.empty()) out.look_again = kLookRarely;
  return out;
}

}  // namespace fairlead::slurm
