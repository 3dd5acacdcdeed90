// SPDX-License-Identifier: Apache-2.0
#include "cli/quota_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/encoding.h"
#include "kube/selector.h"

namespace fairlead::cli {

using kube::Json;

namespace {

double amount_of(const Json& text) {
  auto quantity = kube::Quantity::from_json(text);
  return quantity ? static_cast<double>(quantity->milli_value()) / 1000 : text.string() == "unlimited" ? std::numeric_limits<double>::infinity() : 0;
}
bool some(const Json& text) { return amount_of(text) > 0; }

// Own use, what is borrowed on top, what others have of it, what is idle. Parts that are there have a cell at least.
std::string quota_bar(const Json& quota, int cells, const Look& look) {
  const double nominal = amount_of(quota["nominal"]), used = amount_of(quota["used"]), borrowed = amount_of(quota["borrowed"]), lent = amount_of(quota["lent"]);
  const double own = std::max(0.0, used - borrowed), whole = std::max(nominal, own) + borrowed;
  const double amounts[] = {own, borrowed, lent};
  int counts[3] = {0, 0, 0}, left = cells;
  for (int i = 0; i < 3; ++i) {
    int count = whole > 0 && std::isfinite(whole) ? static_cast<int>(std::lround(amounts[i] / whole * cells)) : 0;
    if (amounts[i] > 0 && count == 0) count = 1;
    counts[i] = std::min(count, left);
    left -= counts[i];
  }
  const char* const wide[] = {"█", "▓", "▒", "░"};
  const char* const plain[] = {"#", "+", "~", "."};
  const Style styles[] = {Style::Good, Style::Accent, Style::Warn, Style::Dim};
  std::string out;
  for (int i = 0; i < 4; ++i) {
    std::string part;
    for (int n = 0; n < (i < 3 ? counts[i] : left); ++n) part += (look.unicode ? wide : plain)[i];
    out += paint(part, styles[i], look);
  }
  return out;
}

struct Line {
  std::string label;              // plain
  Style style = Style::Plain;
  const Json* quota = nullptr;    // none: `rest` follows the label
  std::string numbers, rest;
};

std::string rest_of(const Json& quota) {
  std::string out;
  if (some(quota["borrowed"])) out += quota["borrowed"].string() + " borrowed";
  if (some(quota["lent"])) out += (out.empty() ? "" : ", ") + quota["lent"].string() + " lent";
  if (quota.has("borrowingLimit")) out += fmt::format("{}{} {}", out.empty() ? "" : " ", some(quota["borrowed"]) ? "of" : "may borrow", quota["borrowingLimit"].string());
  return out;
}

std::string title_rest(const Json& node) {
  std::string out;
  if (!node["team"].string().empty()) out += fmt::format("team {}  ", node["team"].string());
  out += fmt::format("{} run", node["reserving"].integer());
  if (node["pending"].integer() > 0) out += fmt::format(", {} wait", node["pending"].integer());
  if (node.has("weight")) {
    const std::int64_t share = node["share"].integer();
    const std::string past = node.has("usedLately") ? fmt::format(" ({:g} as written; used {:.0f}% lately, {:.0f}% is its part)", node["writtenWeight"].number(), node["usedLately"].number() * 100, node["due"].number() * 100) : "";
    out += fmt::format("  weight {:g}{}, share {}", node["weight"].number(), past, share == std::numeric_limits<std::int64_t>::max() ? "endless" : std::to_string(share));
  }
  if (node.has("active") && !node["active"].boolean()) out += "  " + node["reason"].string();
  if (node.has("window")) out += fmt::format("  window \"{}\"", node["window"].string());
  return out;
}

void collect(const Json& node, const std::string& before, const std::string& below, const Look& look, std::vector<Line>& lines) {
  lines.push_back({.label = before + clean(node["name"].string()), .style = node.has("active") && !node["active"].boolean() ? Style::Bad : Style::Bold, .rest = clean(title_rest(node))});
  const auto& children = node["children"].items();
  const std::string bar = children.empty() ? "   " : look.unicode ? "│  " : "|  ";
  for (const Json& quota : node["quotas"].items()) {
    const std::string name = clean(quota["flavor"].string() + " " + quota["resource"].string());
    lines.push_back({.label = below + bar + name, .style = Style::Dim, .quota = &quota, .numbers = clean(quota["used"].string() + " of " + quota["nominal"].string()), .rest = clean(rest_of(quota))});
  }
  for (std::size_t i = 0; i < children.size(); ++i) {
    const bool last = i + 1 == children.size();
    const std::string corner = look.unicode ? (last ? "└─ " : "├─ ") : (last ? "`- " : "|- ");
    collect(children[i], below + corner, below + (last ? "   " : look.unicode ? "│  " : "|  "), look, lines);
  }
}

}  // namespace

std::string draw_quotas(const Json& view, const Look& look) {
  std::vector<Line> lines;
  for (const Json& root : view["tree"].items()) collect(root, "", "", look, lines);
  int label = 0, numbers = 0, rest = 0;
  bool borrowed = false, lent = false;
  for (const Line& line : lines) {
    if (line.quota == nullptr) continue;
    label = std::max(label, columns_of(line.label)), numbers = std::max(numbers, columns_of(line.numbers)), rest = std::max(rest, columns_of(line.rest));
    borrowed = borrowed || some((*line.quota)["borrowed"]), lent = lent || some((*line.quota)["lent"]);
  }
  label = std::min(label, std::max(20, look.width / 2 - 6));
  const int cells = std::clamp(look.width - label - numbers - rest - 6, 8, 30);
  std::string out;
  for (const Line& line : lines) {
    if (line.quota == nullptr) {
      const std::string name = cut_to(line.label, look.width, look);
      out += paint(name, line.style, look);
      if (const int left = look.width - columns_of(name) - 2; left > 8) out += "  " + paint(cut_to(line.rest, left, look), Style::Dim, look);
    } else {
      const std::string front = pad_to(cut_to(line.label, label, look), label), count = std::string(static_cast<std::size_t>(numbers - columns_of(line.numbers)), ' ') + line.numbers;
      out += paint(front, line.style, look) + "  " + quota_bar(*line.quota, cells, look) + "  " + count;
      if (const int left = look.width - label - cells - numbers - 6; left > 3 && !line.rest.empty()) out += "  " + cut_to(line.rest, left, look);
    }
    out += "\n";
  }
  if (borrowed || lent) out += paint(look.unicode ? "█ own use  ▓ borrowed  ▒ lent to others  ░ idle" : "# own use  + borrowed  ~ lent to others  . idle", Style::Dim, look) + "\n";
  return out;
}

std::string draw_queue(const Json& view, Instant now, const Look& look) {
  const auto title = [](const char* text, bool right = false) { return Cell{.text = text, .style = Style::Dim, .right = right}; };
  const auto age = [&](const Json& time) {
    const auto at = parse_time(time.string());
    return at ? print_age(std::max(now - *at, std::chrono::nanoseconds(0))) : std::string("-");
  };
  const auto named = [](const Json& one) { return clean(fmt::format("{}/{}", one["namespace"].string(), one.has("owner") ? one["owner"]["name"].string() : one["name"].string())); };
  const auto asked = [](const Json& asks) {
    std::string out;
    for (const auto& [resource, amount] : asks.members()) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", amount.string(), resource);
    return clean(out);
  };
  std::vector<Row> waiting, running;
  for (const Json& one : view["workloads"].items()) {
    const std::string& state = one["state"].string();
    if (state == "Running" || state == "Stopping") {
      std::string on;
      for (const auto& [resource, flavors] : one["flavors"].members())
        for (const Json& flavor : flavors.items())
          if (on.find(flavor.string()) == std::string::npos) on += (on.empty() ? "" : ",") + flavor.string();
      running.push_back({{.text = clean(one["queue"].string())}, {.text = named(one)}, {.text = std::to_string(one["priority"].integer()), .right = true}, {.text = age(one.has("since") ? one["since"] : one["created"]), .style = Style::Dim, .right = true},
                         {.text = asked(one["asks"]) + (on.empty() ? "" : " on " + clean(on)) + (state == "Stopping" ? " (stopping)" : ""), .style = state == "Stopping" ? Style::Warn : Style::Plain}});
      continue;
    }
    const Style style = state == "Promised" ? Style::Good : state == "NotQueued" ? Style::Bad : Style::Plain;
    waiting.push_back({{.text = one.has("position") ? std::to_string(one["position"].integer()) : "-", .right = true}, {.text = one["queue"].string().empty() ? "-" : clean(one["queue"].string())}, {.text = named(one)},
                       {.text = std::to_string(one["priority"].integer()), .right = true}, {.text = age(one["created"]), .style = Style::Dim, .right = true}, {.text = clean(one["waitsFor"].string()), .style = style}});
  }
  std::string out;
  if (!waiting.empty()) {
    waiting.insert(waiting.begin(), Row{title("#", true), title("QUEUE"), title("WAITING"), title("PRIO", true), title("AGE", true), title("WAITS FOR")});
    out += draw_rows(waiting, "", look);
  }
  if (!running.empty()) {
    running.insert(running.begin(), Row{title("QUEUE"), title("RUNNING"), title("PRIO", true), title("FOR", true), title("HAS")});
    out += (out.empty() ? "" : "\n") + draw_rows(running, "", look);
  }
  return out;
}

}  // namespace fairlead::cli
