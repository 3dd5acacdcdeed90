// SPDX-License-Identifier: Apache-2.0
#include "apiserver/table_path.h"

#include <fmt/format.h>

#include <charconv>

#include "base/encoding.h"

namespace fairlead::apiserver {

struct PathParser {
  std::string_view text;
  std::size_t at = 0;
  std::vector<TablePath::Step> steps;

  bool done() const { return at >= text.size(); }
  char peek() const { return done() ? '\0' : text[at]; }
  std::unexpected<Error> stop(std::string_view wanted) const { return fail(Code::Invalid, fmt::format("JSONPath {}: {} expected at position {}", text, wanted, at)); }

  // A name up to the next . or [; a backslash takes the next character as it is ("a\.b").
  std::string name() {
    std::string out;
    while (!done() && peek() != '.' && peek() != '[') {
      if (peek() == '\\' && at + 1 < text.size()) ++at;
      out += text[at++];
    }
    return out;
  }

  Result<std::string> quoted() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') return stop("a quoted text");
    std::string out;
    for (++at; !done() && peek() != quote; ++at) {
      if (peek() == '\\' && at + 1 < text.size()) ++at;
      out += text[at];
    }
    if (done()) return stop("a closing quote");
    ++at;
    return out;
  }

  void skip_spaces() {
    while (peek() == ' ') ++at;
  }

  Result<void> filter() {  // after "[?("
    TablePath::Step step{.what = TablePath::Step::What::Filter};
    skip_spaces();
    if (peek() != '@') return stop("@");
    ++at;
    while (peek() == '.') {
      ++at;
      std::string part;
      while (!done() && std::string_view(".=!)[ ").find(peek()) == std::string_view::npos) part += text[at++];
      step.left.push_back(std::move(part));
    }
    skip_spaces();
    if (peek() == ')') {
      step.exists = true;
    } else {
      const std::string_view op = text.substr(at, 2);
      if (op != "==" && op != "!=") return stop("== or !=");
      step.equal = op == "==";
      at += 2;
      skip_spaces();
      if (peek() == '\'' || peek() == '"') {
        auto value = quoted();
        if (!value) return std::unexpected(std::move(value.error()));
        step.right = std::move(*value);
      } else {
        const std::size_t end = text.find(')', at);
        auto value = kube::parse_json(trim(text.substr(at, end == std::string_view::npos ? end : end - at)));
        if (!value) return stop("a value");
        step.right = std::move(*value);
        at = end == std::string_view::npos ? text.size() : end;
      }
      skip_spaces();
    }
    if (text.substr(at, 2) != ")]") return stop(")]");
    at += 2;
    steps.push_back(std::move(step));
    return {};
  }

  Result<void> bracket() {
    ++at;
    if (text.substr(at, 2) == "?(") {
      at += 2;
      return filter();
    }
    TablePath::Step step;
    if (peek() == '\'' || peek() == '"') {
      auto member = quoted();
      if (!member) return std::unexpected(std::move(member.error()));
      step.member = std::move(*member);
    } else if (peek() == '*') {
      ++at;
      step.what = TablePath::Step::What::All;
    } else {
      step.what = TablePath::Step::What::Index;
      const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), step.index);
      if (error != std::errc()) return stop("an index");
      at = static_cast<std::size_t>(end - text.data());
    }
    if (peek() != ']') return stop("]");
    ++at;
    steps.push_back(std::move(step));
    return {};
  }

  Result<void> run() {
    while (!done()) {
      if (peek() == '[') {
        if (auto fine = bracket(); !fine) return fine;
        continue;
      }
      if (peek() == '.') ++at;
      if (peek() == '[') continue;
      if (done()) break;
      if (peek() == '*') {
        ++at;
        steps.push_back({.what = TablePath::Step::What::All});
        continue;
      }
      std::string member = name();
      if (member.empty()) return stop("a name");
      steps.push_back({.what = TablePath::Step::What::Member, .member = std::move(member)});
    }
    return {};
  }
};

Result<TablePath> TablePath::parse(std::string_view text) {
  std::string_view inner = trim(text);
  if (inner.size() >= 2 && inner.front() == '{' && inner.back() == '}') inner = trim(inner.substr(1, inner.size() - 2));
  if (!inner.empty() && inner.front() == '$') inner.remove_prefix(1);
  PathParser parser{.text = inner, .at = 0, .steps = {}};
  if (auto fine = parser.run(); !fine) return std::unexpected(std::move(fine.error()));
  TablePath path;
  path.steps_ = std::move(parser.steps);
  return path;
}

std::vector<const kube::Json*> TablePath::find(const kube::Json& object) const {
  std::vector<const kube::Json*> now{&object}, next;
  for (const Step& step : steps_) {
    next.clear();
    for (const kube::Json* value : now) {
      if (step.what == Step::What::Member) {
        if (const kube::Json* member = value->find(step.member)) next.push_back(member);
      } else if (step.what == Step::What::Index) {
        const auto count = static_cast<std::int64_t>(value->items().size());
        const std::int64_t index = step.index < 0 ? count + step.index : step.index;
        if (index >= 0 && index < count) next.push_back(&value->items()[static_cast<std::size_t>(index)]);
      } else if (step.what == Step::What::All) {
        for (const kube::Json& item : value->items()) next.push_back(&item);
        for (const auto& [key, member] : value->members()) next.push_back(&member);
      } else {
        for (const kube::Json& item : value->items()) {
          const kube::Json* found = &item;
          for (const std::string& part : step.left) {
            if (found != nullptr) found = found->find(part);
          }
          const bool take = step.exists ? found != nullptr : (found != nullptr && *found == step.right) == step.equal;
          if (take) next.push_back(&item);
        }
      }
    }
    std::swap(now, next);
  }
  return now;
}

}  // namespace fairlead::apiserver
