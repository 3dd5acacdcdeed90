// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "base/clock.h"
#include "cli/quota_picture.h"

namespace fairlead::cli {

using kube::Json;

namespace {

Cell plain(const std::string& text, Style style = Style::Plain, bool right = false) { return {.text = clean(text), .style = style, .right = right}; }

std::string span(std::int64_t seconds) { return print_age(std::chrono::seconds(seconds)); }
std::string of_day(const Json& time) {  // "2026-11-23 14:05 UTC"
  const std::string& text = time.string();
  return text.size() < 16 ? text : text.substr(0, 10) + " " + text.substr(11, 5) + " UTC";
}
std::string who(const Json& view) { return fmt::format("{} in {}", view["owner"].string().empty() ? "workload/" + view["name"].string() : view["owner"].string(), view["namespace"].string()); }

// "starts in 20m to 45m (... to ...)"
std::string range_text(const char* verb, const Json& range) {
  const std::int64_t least = range["notBeforeSeconds"].integer(), most = range["notAfterSeconds"].integer();
  if (!range["known"].boolean()) return least == 0 ? "" : fmt::format("{} not before {} (in {}); how long after that is unknown", verb, of_day(range["notBefore"]), span(least));
  if (most == 0) return fmt::format("{} at once", verb);
  if (least == most) return fmt::format("{} in {} ({})", verb, span(least), of_day(range["notAfter"]));
  if (least == 0) return fmt::format("{} within {} (by {})", verb, span(most), of_day(range["notAfter"]));
  return fmt::format("{} in {} to {} ({} to {})", verb, span(least), span(most), of_day(range["notBefore"]), of_day(range["notAfter"]));
}

std::string time_text(const Json& one) {
  const bool runs = one["state"].string() == "Running";
  const std::int64_t least = one["runs"]["leastSeconds"].integer(), most = one["runs"]["mostSeconds"].integer();
  if (!one["known"].boolean()) return least == 0 ? "unknown" : fmt::format("{} {} or more", runs ? "ends in" : "runs", span(least));
  if (least == most) return fmt::format("{} {}", runs ? "ends in" : "runs", span(most));
  if (least == 0) return fmt::format("{} {}", runs ? "ends within" : "runs up to", span(most));
  return fmt::format("{} {} to {}", runs ? "ends in" : "runs", span(least), span(most));
}

std::string first_line(const Json& view) {
  const std::string &state = view["state"].string(), it = who(view);
  if (state == "Finished") return it + " has ended";
  if (state == "NotQueued") return fmt::format("{} stands in no queue: {}", it, view["message"].string());
  if (state == "Running") {
    const std::string text = range_text("ends", view["ends"]);
    return it + (text.empty() ? " runs; when it ends is unknown" : " runs, and " + text);
  }
  if (!view["possible"].boolean()) return it + " does not start, whoever ends";
  if (state == "Promised" && view["starts"]["notAfterSeconds"].integer(1) == 0) return it + " starts as soon as those that were pre-empted for it have stopped";
  const std::string text = range_text("starts", view["starts"]);
  return it + (text.empty() ? ": when it starts is unknown" : " " + text);
}

// "vision/train, vision/b and 3 more"
std::string some(const Json& list) {
  std::string out;
  constexpr std::size_t most = 5;
  for (std::size_t i = 0; i < list.items().size() && i < most; ++i) out += (i == 0 ? "" : ", ") + place_of(list.items()[i]);
  return list.items().size() > most ? fmt::format("{} and {} more", out, list.items().size() - most) : out;
}

void rows_of(const char* title, const Json& list, const Look& look, std::string& out, std::string (*text)(const Json&)) {
  if (list.items().empty()) return;
  constexpr std::size_t most = 30;
  out += draw_heading(title, look);
  std::vector<Row> rows;
  for (const Json& one : list.items()) {
    if (rows.size() == most) break;
    rows.push_back({plain(place_of(one)), plain(one["queue"].string(), Style::Dim), plain(text(one))});
  }
  out += draw_rows(rows, "  ", look);
  if (list.items().size() > most) out += paint(fmt::format("  and {} more (-o json names all)", list.items().size() - most), Style::Dim, look) + "\n";
}

std::string start_text(const Json& one) {
  std::string out = one.has("before") ? "" : "new";
  if (!one["onceStopped"].items().empty()) out += (out.empty() ? "once " : ", once ") + some(one["onceStopped"]) + (one["onceStopped"].items().size() == 1 ? " has stopped" : " have stopped");
  return out;
}
std::string stop_text(const Json& one) {
  std::string out = one["changedItself"].boolean() ? "stands in line anew" : one.has("for") ? fmt::format("for {} ({})", place_of(one["for"]), one["reason"].string()) : one["reason"].string();
  if (one["after"].string() == "Running") return out + "; then runs again";
  if (one.has("position")) out += fmt::format("; then at position {}", one["position"].integer());
  return out;
}
std::string wait_text(const Json& one) {
  const std::string place = one.has("position") ? fmt::format("at position {}: ", one["position"].integer()) : "in no line: ";
  return place + (one["waitsFor"].string().empty() ? one["reason"].string() : one["waitsFor"].string());
}
std::string move_text(const Json& one) { return fmt::format("position {} instead of {}", one["position"].integer(), one["positionBefore"].integer()); }
std::string leave_text(const Json& one) {
  if (!one.has("after")) return one["before"].string() == "Running" ? "gone; it runs now" : "gone";
  return one["waitsFor"].string().empty() ? one["reason"].string() : one["waitsFor"].string();
}

}  // namespace

std::string draw_eta(const Json& view, const Look& look) {
  const std::string& state = view["state"].string();
  std::string out = paint(clean(first_line(view)), state == "Running" ? Style::Good : state == "NotQueued" || (view.has("possible") && !view["possible"].boolean()) ? Style::Bad : Style::Bold, look) + "\n";
  if (view.has("position")) out += clean(fmt::format("Position {} of ClusterQueue {}", view["position"].integer(), view["queue"].string())) + "\n";
  if (view.has("waitsFor") && state != "NotQueued") out += clean("Waits for " + view["waitsFor"].string()) + "\n";
  if (!view["settled"].boolean(true)) out += paint("Jobs would go on stopping one another: look at the pre-emption policies.", Style::Bad, look) + "\n";
  if (view.has("from")) out += clean("Known from " + view["from"].string()) + "\n";
  if (view.has("problem")) out += clean("Not read: " + view["problem"].string()) + "\n";
  if (!view["dependsOn"].items().empty()) {
    out += draw_heading("How long others run", look);
    std::vector<Row> rows;
    for (const Json& one : view["dependsOn"].items())
      rows.push_back({plain(place_of(one)), plain(one["state"].string() == "Running" ? "runs" : "waits before it", Style::Dim), plain(time_text(one), one["known"].boolean() ? Style::Plain : Style::Warn),
                      plain(one.has("problem") ? one["problem"].string() : one["from"].string(), one.has("problem") ? Style::Warn : Style::Dim)});
    out += draw_rows(rows, "  ", look);
    if (view.has("dependsOnMore")) out += paint(fmt::format("  and {} more", view["dependsOnMore"].integer()), Style::Dim, look) + "\n";
  }
  if (view.has("starts")) {
    out += "\nIf nothing else is submitted, and nobody changes quotas.";
    if (view["unknown"].integer() > 0) out += " A job tells how long it runs by the annotation fairlead.dev/run-time (2h30m) or activeDeadlineSeconds.";
    out += "\n";
  }
  return out;
}

std::string draw_whatif(const Json& view, const Look& look) {
  std::string out, changed;
  for (const Json& one : view["changes"].items()) {
    const std::string& what = one["change"].string();
    const char* word = what == "Created" ? "new" : what == "Removed" ? "gone" : what == "Unchanged" ? "as it is" : "changed";
    changed += fmt::format("{}{} {} ({})", changed.empty() ? "" : ", ", one["kind"].string(), place_of(one), word);
  }
  out += draw_bullet(clean("With " + changed), look);
  for (const Json& one : view["problems"].items()) out += draw_bullet(paint(clean(fmt::format("{} {}: {}: {}", one["kind"].string(), place_of(one), one["reason"].string(), one["message"].string())), Style::Bad, look), look);
  const std::size_t before = out.size();
  rows_of("Would start", view["starts"], look, out, start_text);
  rows_of("Would be stopped", view["stops"], look, out, stop_text);
  rows_of("Would wait", view["waits"], look, out, wait_text);
  rows_of("Would leave the line", view["leaves"], look, out, leave_text);
  rows_of("Would have another position", view["moves"], look, out, move_text);
  if (out.size() == before) out += "Nobody would start, stop or have another position.\n";
  if (!view["settled"].boolean(true)) out += paint("These would go on stopping one another: look at the pre-emption policies.", Style::Bad, look) + "\n";
  out += paint("Nothing was written.", Style::Dim, look) + "\n";
  return out;
}

}  // namespace fairlead::cli
