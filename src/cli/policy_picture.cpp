// SPDX-License-Identifier: Apache-2.0
#include "cli/policy_picture.h"

#include <fmt/format.h>

namespace fairlead::cli {

using kube::Json;

std::string draw_simulation(const Json& view, const Look& look) {
  const std::string& decision = view["decision"].string();
  const bool allowed = decision == "allowed";
  std::string out = fmt::format("{} {} on {}\n", paint(allowed ? "allowed" : "denied ", allowed ? Style::Good : Style::Bad, look), clean(view["action"].string()), clean(view["resource"].string()));
  out += fmt::format("        {}{}\n", clean(view["reason"].string()), decision == "explicitDeny" ? " (a Deny wins over every Allow)" : "");
  for (const Json& one : view["statements"].items()) {
    const bool applies = one["verdict"].string() == "applies", deny = one["effect"].string() == "Deny";
    const std::string& from = one["from"].string();
    const std::string name = one["sid"].string().empty() ? fmt::format("statement {}", one["statement"].integer()) : fmt::format("statement {}", clean(one["sid"].string()));
    const std::string mark = look.unicode ? (applies ? "●" : "○") : (applies ? "*" : "-");
    const std::string_view whose = from == "boundary" ? " (boundary)" : from == "session" ? " (session)" : from == "resource" ? " (of the resource)" : "";
    const std::string_view detail = one["detail"].string();
    // Whole, however wide: the end of a condition is what one looks for.
    out += fmt::format("        {} {}\n", paint(mark, applies ? (deny ? Style::Bad : Style::Good) : Style::Dim, look),
                       paint(fmt::format("{:<5}  {}, {}{}: {}", one["effect"].string(), clean(one["document"].string()), name, whose, detail.empty() ? "applies" : applies ? "applies: " + clean(detail) : clean(detail)), applies ? Style::Plain : Style::Dim, look));
  }
  return out;
}

}  // namespace fairlead::cli
