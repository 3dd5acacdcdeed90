// SPDX-License-Identifier: Apache-2.0
// Label and field selectors with the grammar and the messages of k8s.io/apimachinery (labels and fields packages).
#include "kube/selector.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>

namespace fairlead::kube {

namespace {

enum class Token { End, Identifier, In, NotIn, Equals, NotEquals, Greater, Less, Not, Comma, Open, Closed, Error };
struct Scanned {
  Token token;
  std::string text;
};

std::vector<Scanned> scan(std::string_view input) {
  const auto special = [](char c) { return std::string_view("=!(),><").find(c) != std::string_view::npos; };
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  std::vector<Scanned> tokens;
  for (std::size_t i = 0; i < input.size();) {
    if (blank(input[i])) {
      ++i;
      continue;
    }
    std::size_t end = i;
    if (special(input[i])) {
      const std::string_view two = input.substr(i, 2);
      end = i + (two == "==" || two == "!=" ? 2 : 1);
    } else {
      while (end < input.size() && !special(input[end]) && !blank(input[end])) ++end;
    }
    const std::string text(input.substr(i, end - i));
    const Token token = text == "=" || text == "==" ? Token::Equals : text == "!=" ? Token::NotEquals : text == "!" ? Token::Not : text == "(" ? Token::Open
                        : text == ")" ? Token::Closed : text == "," ? Token::Comma : text == ">" ? Token::Greater : text == "<" ? Token::Less
                        : text == "in" ? Token::In : text == "notin" ? Token::NotIn : Token::Identifier;
    tokens.push_back({token, text});
    i = end;
  }
  tokens.push_back({Token::End, ""});
  return tokens;
}

std::optional<std::int64_t> whole_number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || text.starts_with('+') || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string value_as_text(const Json& value) {
  if (value.is_string()) return value.string();
  if (value.is_bool() || value.is_number()) return print_json(value);
  return "";
}

}  // namespace

// Recursive descent over the scanned tokens; where a value is wanted, "in" and "notin" are ordinary words.
struct LabelSelectorParser {
  using Op = LabelSelector::Op;
  std::vector<Scanned> tokens;
  std::size_t at = 0;

  explicit LabelSelectorParser(std::string_view text) : tokens(scan(text)) {}

  Token look() const { return as_value(tokens[at].token); }
  const std::string& word() const { return tokens[at].text; }
  static Token as_value(Token token) { return token == Token::In || token == Token::NotIn ? Token::Identifier : token; }
  Scanned take() {
    const Scanned token = tokens[at];
    if (token.token != Token::End) ++at;
    return token;
  }

  static Result<LabelSelector::Term> checked(std::string key, Op op, std::vector<std::string> values) {
    if (const std::string wrong = check_label_key(key); !wrong.empty()) return fail(Code::Invalid, fmt::format("key: Invalid value: \"{}\": {}", key, wrong));
    if ((op == Op::In || op == Op::NotIn) && values.empty()) return fail(Code::Invalid, "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty");
    if ((op == Op::Exists || op == Op::DoesNotExist) && !values.empty())
      return fail(Code::Invalid, "values: Invalid value: values set must be empty for exists and does not exist");
    for (std::size_t i = 0; i < values.size(); ++i) {
      if ((op == Op::GreaterThan || op == Op::LessThan) && !whole_number(values[i]))
        return fail(Code::Invalid, fmt::format("values[{}]: Invalid value: \"{}\": for 'Gt', 'Lt' operators, the value must be an integer", i, values[i]));
      if (const std::string wrong = check_label_value(values[i]); !wrong.empty())
        return fail(Code::Invalid, fmt::format("values[{}][{}]: Invalid value: \"{}\": {}", i, key, values[i], wrong));
    }
    return LabelSelector::Term{std::move(key), op, std::move(values)};
  }

  Result<std::vector<std::string>> list() {
    const Scanned open = take();
    if (open.token != Token::Open) return fail(Code::Invalid, fmt::format("found '{}' expected: '('", open.text));
    std::set<std::string> values;
    bool value_wanted = true;
    while (true) {
      const Scanned token = take();
      const Token kind = as_value(token.token);
      if (kind == Token::Identifier && value_wanted) {
        values.insert(token.text);
        value_wanted = false;
      } else if (kind == Token::Comma) {
        if (value_wanted) values.insert("");
        value_wanted = true;
      } else if (kind == Token::Closed) {
        if (value_wanted) values.insert("");
        return std::vector<std::string>(values.begin(), values.end());
      } else {
        return fail(Code::Invalid, fmt::format("found '{}', expected: ',' or ')'", token.text));
      }
    }
  }

  Result<LabelSelector::Term> requirement() {
    const bool absent = look() == Token::Not;
    if (absent) take();
    const Scanned key = take();
    if (as_value(key.token) != Token::Identifier) return fail(Code::Invalid, fmt::format("found '{}', expected: identifier", key.text));
    // It has no path yet; Kubernetes says so.
    if (const std::string wrong = check_label_key(key.text); !wrong.empty()) return fail(Code::Invalid, fmt::format("<nil>: Invalid value: \"{}\": {}", key.text, wrong));
    if (absent) return LabelSelector::Term{key.text, Op::DoesNotExist, {}};
    if (look() == Token::End || look() == Token::Comma) return LabelSelector::Term{key.text, Op::Exists, {}};

    const Scanned op = take();
    if (op.token == Token::In || op.token == Token::NotIn) {
      auto values = list();
      if (!values) return std::unexpected(std::move(values.error()));
      return checked(key.text, op.token == Token::In ? Op::In : Op::NotIn, *std::move(values));
    }
    const auto meaning = op.token == Token::Equals      ? std::optional(Op::In)
                         : op.token == Token::NotEquals ? std::optional(Op::NotIn)
                         : op.token == Token::Greater   ? std::optional(Op::GreaterThan)
                         : op.token == Token::Less      ? std::optional(Op::LessThan)
                                                        : std::nullopt;
    if (!meaning) return fail(Code::Invalid, fmt::format("found '{}', expected: in, notin, =, ==, !=, gt, lt", op.text));
    if (look() == Token::End || look() == Token::Comma) return checked(key.text, *meaning, {""});
    const Scanned value = take();
    if (as_value(value.token) != Token::Identifier) return fail(Code::Invalid, fmt::format("found '{}', expected: identifier", value.text));
    return checked(key.text, *meaning, {value.text});
  }

  Result<std::vector<LabelSelector::Term>> parse() {
    std::vector<LabelSelector::Term> terms;
    while (look() != Token::End) {
      if (look() != Token::Identifier && look() != Token::Not) return fail(Code::Invalid, fmt::format("found '{}', expected: !, identifier, or 'end of string'", word()));
      auto term = requirement();
      if (!term) return pass(std::move(term.error()), "unable to parse requirement");
      terms.push_back(*std::move(term));
      if (look() == Token::End) break;
      if (look() != Token::Comma) return fail(Code::Invalid, fmt::format("found '{}', expected: ',' or 'end of string'", word()));
      take();
      if (look() != Token::Identifier && look() != Token::Not) return fail(Code::Invalid, fmt::format("found '{}', expected: identifier after ','", word()));
    }
    return terms;
  }
};

Result<LabelSelector> LabelSelector::parse(std::string_view text) {
  auto terms = LabelSelectorParser(text).parse();
  if (!terms) return std::unexpected(std::move(terms.error()));
  LabelSelector selector;
  selector.terms_ = *std::move(terms);
  return selector;
}

Result<LabelSelector> LabelSelector::from_object(const Json& selector) {
  LabelSelector made;
  if (selector.is_null()) {  // no selector selects nothing, an empty one everything
    made.terms_.push_back({"", Op::In, {}});
    return made;
  }
  if (!selector.is_object()) return fail(Code::Invalid, "a label selector must be an object");
  for (const auto& [key, value] : selector["matchLabels"].members()) {
    if (!value.is_string()) return fail(Code::Invalid, fmt::format("matchLabels[{}]: expected string", key));
    auto term = LabelSelectorParser::checked(key, Op::In, {value.string()});
    if (!term) return pass(std::move(term.error()), "matchLabels");
    made.terms_.push_back(*std::move(term));
  }
  for (const Json& expression : selector["matchExpressions"].items()) {
    const std::string& word = expression["operator"].string();
    const auto op = word == "In"             ? std::optional(Op::In)
                    : word == "NotIn"        ? std::optional(Op::NotIn)
                    : word == "Exists"       ? std::optional(Op::Exists)
                    : word == "DoesNotExist" ? std::optional(Op::DoesNotExist)
                                             : std::nullopt;
    if (!op) return fail(Code::Invalid, fmt::format("\"{}\" is not a valid label selector operator", word));
    std::vector<std::string> values;
    for (const Json& value : expression["values"].items()) values.push_back(value.string());
    auto term = LabelSelectorParser::checked(expression["key"].string(), *op, std::move(values));
    if (!term) return pass(std::move(term.error()), "matchExpressions");
    made.terms_.push_back(*std::move(term));
  }
  return made;
}

bool LabelSelector::matches(const Labels& labels) const {
  return std::all_of(terms_.begin(), terms_.end(), [&](const Term& term) {
    const auto label = labels.find(term.key);
    const bool there = label != labels.end();
    const auto listed = [&] { return std::find(term.values.begin(), term.values.end(), label->second) != term.values.end(); };
    switch (term.op) {
      case Op::In: return there && listed();
      case Op::NotIn: return !there || !listed();
      case Op::Exists: return there;
      case Op::DoesNotExist: return !there;
      case Op::GreaterThan:
      case Op::LessThan: {
        const auto have = there ? whole_number(label->second) : std::nullopt;
        const auto bound = whole_number(term.values.front());
        return have && bound && (term.op == Op::GreaterThan ? *have > *bound : *have < *bound);
      }
    }
    return false;
  });
}

bool LabelSelector::matches(const Json& labels_object) const {
  if (terms_.empty()) return true;
  Labels labels;
  for (const auto& [key, value] : labels_object.members())
    if (value.is_string()) labels.insert_or_assign(key, value.string());
  return matches(labels);
}

std::string LabelSelector::text() const {
  std::string out;
  for (const Term& term : terms_) {
    if (!out.empty()) out += ',';
    const bool one = term.values.size() == 1;
    switch (term.op) {
      case Op::In: out += one ? fmt::format("{}={}", term.key, term.values[0]) : fmt::format("{} in ({})", term.key, fmt::join(term.values, ",")); break;
      case Op::NotIn: out += one ? fmt::format("{}!={}", term.key, term.values[0]) : fmt::format("{} notin ({})", term.key, fmt::join(term.values, ",")); break;
      case Op::Exists: out += term.key; break;
      case Op::DoesNotExist: out += "!" + term.key; break;
      case Op::GreaterThan: out += fmt::format("{}>{}", term.key, term.values[0]); break;
      case Op::LessThan: out += fmt::format("{}<{}", term.key, term.values[0]); break;
    }
  }
  return out;
}

Result<FieldSelector> FieldSelector::parse(std::string_view text) {
  FieldSelector selector;
  std::size_t at = 0;
  while (at < text.size()) {
    std::size_t end = at;  // of this term: the next comma that is not escaped
    while (end < text.size() && text[end] != ',') end += text[end] == '\\' ? 2 : 1;
    end = std::min(end, text.size());
    const std::string_view term = text.substr(at, end - at);
    at = end + 1;
    if (term.empty()) continue;

    const std::size_t equals = term.find('=');
    if (equals == std::string_view::npos) return fail(Code::Invalid, fmt::format("invalid selector: '{}'; can't understand '{}'", text, term));
    Term made;
    made.equal = !(equals > 0 && term[equals - 1] == '!');
    made.field = std::string(term.substr(0, equals - (made.equal ? 0 : 1)));
    std::size_t i = equals + 1;
    if (made.equal && i < term.size() && term[i] == '=') ++i;
    for (; i < term.size(); ++i) {
      char c = term[i];
      if (c == '=' || c == ',') return fail(Code::Invalid, fmt::format("invalid field selector: unescaped character in value: {}", c));
      if (c == '\\') {
        ++i;
        if (i == term.size() || std::string_view("\\,=").find(term[i]) == std::string_view::npos)
          return fail(Code::Invalid, fmt::format("invalid field selector: invalid escape sequence: \\{}", i == term.size() ? std::string_view() : term.substr(i, 1)));
        c = term[i];
      }
      made.value += c;
    }
    selector.terms_.push_back(std::move(made));
  }
  return selector;
}

bool FieldSelector::matches(const Json& object) const {
  return std::all_of(terms_.begin(), terms_.end(), [&](const Term& term) { return (value_as_text(object.at(term.field)) == term.value) == term.equal; });
}

}  // namespace fairlead::kube
