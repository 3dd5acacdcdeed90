// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "cli/quota_picture.h"

namespace fairlead::cli {

using kube::Json;

std::string place_of(const Json& one) {
  const std::string &space = one["namespace"].string(), &owner = one["owner"].string();
  return (space.empty() ? "" : space + "/") + (owner.empty() ? one["name"].string() : owner.substr(owner.find('/') + 1));
}

// Lines of at most `width` columns, broken at blanks; all but the first are indented by as much as the bullet.
std::string draw_bullet(const std::string& text, const Look& look) {
  const int width = std::max(40, look.width - 4);
  std::string out, line;
  const auto flush = [&] {
    out += (out.empty() ? (look.unicode ? "  • " : "  - ") : "    ") + line + "\n";
    line.clear();
  };
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    if (!line.empty() && columns_of(line) + 1 + columns_of(word) > width) flush();
    line += (line.empty() ? "" : " ") + word;
    at = end + 1;
  }
  if (!line.empty()) flush();
  return out;
}

std::string draw_heading(const char* text, const Look& look) { return "\n" + paint(text, Style::Bold, look) + "\n"; }

namespace {

Cell plain(const std::string& text, Style style = Style::Plain, bool right = false) { return {.text = clean(text), .style = style, .right = right}; }
Cell title(const char* text, bool right = false) { return {.text = text, .style = Style::Dim, .right = right}; }

std::string value(const Json& json) { return json.is_null() ? "unset" : json.is_string() ? json.string() : kube::print_json(json); }

// "a", "a and b", "a, b and c"
std::string join(const Json& list) {
  const auto& items = list.items();
  std::string out;
  for (std::size_t i = 0; i < items.size(); ++i) out += (i == 0 ? "" : i + 1 == items.size() ? " and " : ", ") + place_of(items[i]);
  return out;
}

std::string change_text(const Json& one) {
  const std::string& field = one["field"].string();
  // The last word is enough to people; where the field is within a list, `about` says of what.
  const std::string word = one.has("about") && field.find('[') != std::string::npos ? field.substr(field.rfind('.') + 1) + " of " + one["about"].string() : field;
  return fmt::format("{} in {} {}: {} instead of {}", word, one["kind"].string(), place_of(one), value(one["to"]), value(one["from"]));
}

std::string remedy_text(const Json& one) {
  std::string out;
  if (!one["ending"].items().empty()) out = join(one["ending"]) + (one["ending"].items().size() == 1 ? " ends" : " end");
  if (one.has("waitsUntil")) out = fmt::format("time: from {} on {}", one["waitsUntil"].string(), one["window"].string().empty() ? "the quotas of no window hold" : fmt::format("the quotas of window \"{}\" hold", one["window"].string()));
  for (const Json& change : one["changes"].items()) out += (out.empty() ? "" : ", and ") + change_text(change);
  if (!one["stops"].items().empty()) out += " (this stops " + join(one["stops"]) + ")";
  return out;
}

std::string first_line(const Json& view) {
  const std::string name = view["owner"].string().empty() ? "workload/" + view["name"].string() : view["owner"].string();
  const std::string who = fmt::format("{} in {}", name, view["namespace"].string()), &state = view["state"].string();
  const std::string queue = view["queue"].string().empty() ? "" : " of ClusterQueue " + view["queue"].string();
  if (state == "Finished") return who + " has ended";
  if (state == "Running") return fmt::format("{} has its quota{}, priority {}", who, queue, view["priority"].integer());
  if (state == "Stopping") return fmt::format("{} is being stopped: {}", who, view["reason"].string());
  if (state == "NotQueued") return fmt::format("{} stands in no queue: {}", who, view["message"].string());
  return fmt::format("{} waits for {}", who, view["waitsFor"].string());
}

}  // namespace

std::string draw_explanation(const Json& view, const Look& look) {
  const std::string& state = view["state"].string();
  std::string out = paint(clean(first_line(view)), state == "Running" ? Style::Good : state == "NotQueued" ? Style::Bad : Style::Bold, look) + "\n";
  if (view.has("position")) out += clean(fmt::format("Position {} of ClusterQueue {}, priority {}", view["position"].integer(), view["queue"].string(), view["priority"].integer())) + "\n";
  if (view.has("pods")) out += clean(fmt::format("It {} (partial admission)", view["pods"].string())) + "\n";
  if (view["safe"].boolean()) out += clean("It has not run for long enough to be pre-empted" + (view.has("safeUntil") ? ": not before " + view["safeUntil"].string() : std::string())) + "\n";
  if ((state == "Stopping" || state == "Running") && view.has("message")) out += clean(view["message"].string()) + "\n";
  if (const Json& wrong = view["wrong"]; !wrong.is_null()) out += clean(fmt::format("Look at {} {}: {}{}", wrong["kind"].string(), place_of(wrong), wrong["field"].string(), wrong["from"].is_null() ? "" : " is " + value(wrong["from"]))) + "\n";
  // The message alone tells what no amount does: taints, affinity, an uncovered resource.
  if (state == "Waiting" && view["missing"].items().empty() && view["keptFor"].items().empty() && view.has("message")) out += clean(view["message"].string()) + "\n";

  if (!view["missing"].items().empty()) {
    std::vector<Row> rows{{title("FLAVOR"), title("RESOURCE"), title("ASKS", true), title("LEFT", true), title("MISSING", true), title("LIMIT")}};
    for (const Json& one : view["missing"].items()) {
      const Json& limit = one["limit"];
      rows.push_back({plain(one["flavor"].string()), plain(one["resource"].string()), plain(one["asked"].string(), Style::Plain, true), plain(one["available"].string(), Style::Plain, true), plain(one["missing"].string(), Style::Bad, true),
                      plain(fmt::format("{}{} {} of {}", one["never"].boolean() ? "never fits: " : "", limit["field"].string(), limit["amount"].string(), limit["name"].string()))});
    }
    out += "\n" + draw_rows(rows, "  ", look);
    for (const Json& kept : view["missing"].items().front()["notLent"].items()) out += draw_bullet(clean(fmt::format("{} {} has {} idle that it does not lend", kept["kind"].string(), kept["name"].string(), kept["amount"].string())), look);
  }
  if (!view["keptFor"].items().empty()) out += draw_heading("What is free is kept for", look) + draw_bullet(clean(join(view["keptFor"])), look);
  if (!view["ahead"].items().empty()) out += draw_heading("Before it in the StrictFIFO queue", look) + draw_bullet(clean(join(view["ahead"])), look);
  if (!view["heldBy"].items().empty()) {
    out += draw_heading(state == "Promised" ? "Being stopped for it" : "Who holds it", look);
    std::vector<Row> rows;
    for (const Json& one : view["heldBy"].items()) {
      rows.push_back({plain(place_of(one)), plain(one["amount"].string(), Style::Plain, true), plain(one["queue"].string(), Style::Dim),
                      plain(one["stopping"].boolean() ? "is being stopped" : one.has("borrowed") ? one["borrowed"].string() + " of it borrowed" : "", one.has("borrowed") ? Style::Accent : Style::Dim)});
    }
    out += draw_rows(rows, "  ", look);
    if (view.has("heldByMore")) out += paint(fmt::format("  and {} smaller ones", view["heldByMore"].integer()), Style::Dim, look) + "\n";
  }
  if (!view["wouldStartIt"].items().empty()) {
    out += draw_heading("It would get its quota if", look);
    for (const Json& one : view["wouldStartIt"].items()) out += draw_bullet(clean(remedy_text(one)), look);
  } else if (state == "Waiting") {
    out += draw_heading("No single change was found that would start it", look);
  }
  if (!view["has"].items().empty()) {
    std::vector<Row> rows;
    for (const Json& one : view["has"].items())
      rows.push_back({plain(one["flavor"].string()), plain(one["resource"].string()), plain(one["amount"].string(), Style::Plain, true), plain(one["borrowed"].string() == "0" ? "its queue's own" : one["borrowed"].string() + " of it borrowed", one["borrowed"].string() == "0" ? Style::Dim : Style::Accent)});
    out += "\n" + draw_rows(rows, "  ", look);
  }
  if (state == "Running") {
    if (view["couldBeTakenBy"].items().empty()) out += "Nobody could take it under the policies as they are.\n";
    else out += draw_heading("Could be taken by new work of", look);
    for (const Json& one : view["couldBeTakenBy"].items())
      out += draw_bullet(clean(fmt::format("ClusterQueue {}{}{}", one["queue"].string(), one["forItsOwnQuota"].boolean() ? ", which gets its own quota back" : "", one.has("priorityAbove") ? fmt::format(", of a priority above {}", one["priorityAbove"].integer()) : "")), look);
  }
  return out;
}

}  // namespace fairlead::cli
