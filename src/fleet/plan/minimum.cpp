// SPDX-License-Identifier: Apache-2.0
#include "fleet/plan/minimum.h"

#include <fmt/format.h>

namespace fairlead::fleet {

using kube::Json;

namespace {
bool is_of(const Json& minimum, int min, int target) { return minimum.is_object() && minimum["min"].integer(-1) == min && minimum["target"].integer(-1) == target; }
}  // namespace

bool gives_up(const Json& minimum, int min, int target) { return is_of(minimum, min, target) && minimum.has("rolledBack"); }

Json next_minimum(const Json& before, const MinimumLook& look, Instant now, std::chrono::seconds patience) {
  Json out = before;
  if (!is_of(before, look.min, look.target)) {
    const bool there = before.is_object(), good = there && !before.has("since");
    out = Json::object({{"min", look.min}, {"target", look.target}, {"good", !there ? Json(look.target_before) : good ? before["target"] : before["good"]}, {"goodMin", !there ? Json(0) : good ? before["min"] : before["goodMin"]}, {"since", print_time(now)}});
    // Our own doing is no new wish: what is told of it stays.
    if (there && before.has("rolledBack") && look.target == before["good"].integer() && look.min == before["goodMin"].integer()) {
      out.set("message", before["message"]);
      out.set("good", look.target).set("goodMin", look.min);
      out.erase("since");
    }
  }
  if (look.min == 0 && !out.has("message")) return Json();
  if (out.has("rolledBack")) return out;  // it was told, and is to be done
  if (look.running >= look.min) {
    out.set("good", look.target).set("goodMin", look.min);
    out.erase("since");
  }
  if (!out.has("since")) return out;
  // While it is held no time passes: it begins when that ends.
  if (look.held) return out.set("held", true);
  if (out.erase("held")) out.set("since", print_time(now));
  const Instant since = parse_time(out["since"].string()).value_or(now);
  const std::int64_t good = out["good"].integer(), good_min = out["goodMin"].integer();
  if (now < since + patience || good > look.target || (good == look.target && good_min >= look.min)) return out;
  out.set("rolledBack", print_time(now));
  out.set("message", fmt::format("{} of {} instances ran after {} minutes, and {} at least were asked for: it goes back to {}, of which {} at least; ask again when there are machines", look.running, look.target, std::chrono::duration_cast<std::chrono::minutes>(patience).count(), look.min, good, good_min));
  return out;
}

}  // namespace fairlead::fleet
