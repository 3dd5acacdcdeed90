// SPDX-License-Identifier: Apache-2.0
// Text to tree. Grammar and precedence: cel-spec, doc/langdef.md, "Syntax".
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "cel/cel_node.h"

namespace fairlead::cel {

namespace {

constexpr int deepest = 100;
constexpr std::array<std::string_view, 21> reserved{"as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "package", "namespace", "return", "var", "void", "while", "true", "false", "null", "in"};
constexpr std::array<std::string_view, 12> type_names{"bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint", "google.protobuf.Timestamp", "google.protobuf.Duration"};

void put_utf8(std::string& out, std::uint32_t point) {
  if (point < 0x80) {
    out += static_cast<char>(point);
  } else if (point < 0x800) {
    out += static_cast<char>(0xC0u | (point >> 6u));
    out += static_cast<char>(0x80u | (point & 0x3Fu));
  } else if (point < 0x10000) {
    out += static_cast<char>(0xE0u | (point >> 12u));
    out += static_cast<char>(0x80u | ((point >> 6u) & 0x3Fu));
    out += static_cast<char>(0x80u | (point & 0x3Fu));
  } else {
    out += static_cast<char>(0xF0u | (point >> 18u));
    out += static_cast<char>(0x80u | ((point >> 12u) & 0x3Fu));
    out += static_cast<char>(0x80u | ((point >> 6u) & 0x3Fu));
    out += static_cast<char>(0x80u | (point & 0x3Fu));
  }
}

struct Token {
  enum class Kind : std::uint8_t { End, Name, Literal, Sign };
  Kind kind = Kind::End;
  std::string text;  // Name, Sign
  Value value;       // Literal
  std::size_t at = 0;
};

using NodePtr = std::shared_ptr<const Node>;
using Made = std::shared_ptr<Node>;

class Parser {
 public:
  Parser(std::string_view text, const std::set<std::string>& variables) : text_(text), variables_(variables) {}

  Result<NodePtr> parse() {
    if (text_.size() > longest_text) return error(0, fmt::format("an expression has at most {} bytes", longest_text));
    NodePtr root;
    if (next() && (root = expression(0)) && token_.kind != Token::Kind::End) (void)oops(token_.at, "the end of the expression is expected");
    if (!problem_.empty()) return error(problem_at_, problem_);
    return root;
  }

 private:
  std::unexpected<Error> error(std::size_t at, const std::string& what) const {
    const std::string_view before = text_.substr(0, std::min(at, text_.size()));
    const auto line = static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n'));
    const std::size_t start = before.rfind('\n');
    return wrong(fmt::format("ERROR: {}:{}: {}", line + 1, (start == std::string_view::npos ? at : at - start - 1) + 1, what));
  }
  bool oops(std::size_t at, std::string what) {
    if (problem_.empty()) problem_ = std::move(what), problem_at_ = at;
    return false;
  }
  NodePtr no(std::size_t at, std::string what) {
    (void)oops(at, std::move(what));
    return nullptr;
  }

  // ---- tokens
  static bool letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
  static bool digit(char c) { return c >= '0' && c <= '9'; }
  char ahead(std::size_t by = 0) const { return at_ + by < text_.size() ? text_[at_ + by] : '\0'; }

  bool next() {
    while (at_ < text_.size()) {
      if (const char c = text_[at_]; c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f') ++at_;
      else if (c == '/' && ahead(1) == '/') at_ = std::min(text_.size(), text_.find('\n', at_));
      else break;
    }
    token_ = {};
    token_.at = at_;
    if (at_ >= text_.size()) return true;
    const char c = text_[at_];
    if (digit(c) || (c == '.' && digit(ahead(1)))) return number();
    if (c == '"' || c == '\'') return quoted(false, false);
    if (letter(c)) {
      bool raw = false, bytes = false;
      std::size_t prefix = 0;
      for (; prefix < 2 && (ahead(prefix) == 'r' || ahead(prefix) == 'R' || ahead(prefix) == 'b' || ahead(prefix) == 'B'); ++prefix) {
        bool& flag = ahead(prefix) == 'r' || ahead(prefix) == 'R' ? raw : bytes;
        if (flag) break;
        flag = true;
      }
      if (prefix > 0 && (ahead(prefix) == '"' || ahead(prefix) == '\'')) {
        at_ += prefix;
        return quoted(raw, bytes);
      }
      while (at_ < text_.size() && (letter(text_[at_]) || digit(text_[at_]))) token_.text += text_[at_++];
      token_.kind = Token::Kind::Name;
      return true;
    }
    token_.kind = Token::Kind::Sign;
    for (const std::string_view two : {"==", "!=", "<=", ">=", "&&", "||"})
      if (text_.substr(at_, 2) == two) {
        token_.text = two;
        at_ += 2;
        return true;
      }
    if (std::string_view("+-*/%<>!?:,.()[]{}").find(c) == std::string_view::npos) return oops(at_, fmt::format("unexpected character \"{}\"", c));
    token_.text = std::string(1, c);
    ++at_;
    return true;
  }

  bool number() {
    token_.kind = Token::Kind::Literal;
    const std::size_t from = at_;
    const char* const end = text_.data() + text_.size();
    if (ahead() == '0' && (ahead(1) == 'x' || ahead(1) == 'X')) {
      std::uint64_t value = 0;
      const auto [stop, code] = std::from_chars(text_.data() + at_ + 2, end, value, 16);
      if (code != std::errc{}) return oops(from, "a hexadecimal number is expected");
      at_ = static_cast<std::size_t>(stop - text_.data());
      return whole(from, value);
    }
    std::size_t stop = at_;
    bool fraction = false;
    while (stop < text_.size() && digit(text_[stop])) ++stop;
    if (stop + 1 < text_.size() && text_[stop] == '.' && digit(text_[stop + 1])) {
      fraction = true;
      for (++stop; stop < text_.size() && digit(text_[stop]);) ++stop;
    }
    if (stop < text_.size() && (text_[stop] == 'e' || text_[stop] == 'E')) {
      std::size_t exponent = stop + 1;
      if (exponent < text_.size() && (text_[exponent] == '+' || text_[exponent] == '-')) ++exponent;
      if (exponent < text_.size() && digit(text_[exponent])) {
        fraction = true;
        for (stop = exponent; stop < text_.size() && digit(text_[stop]);) ++stop;
      }
    }
    at_ = stop;
    if (!fraction) {
      std::uint64_t value = 0;
      if (std::from_chars(text_.data() + from, text_.data() + stop, value).ec != std::errc{}) return oops(from, "the number is too large");
      return whole(from, value);
    }
    double value = 0;
    std::string digits(text_.substr(from, stop - from));
    if (digits.front() == '.') digits.insert(0, "0");
    if (std::from_chars(digits.data(), digits.data() + digits.size(), value).ec != std::errc{}) return oops(from, "the number is too large");
    token_.value = Value(value);
    return true;
  }
  bool whole(std::size_t from, std::uint64_t value) {
    if (ahead() == 'u' || ahead() == 'U') {
      ++at_;
      token_.value = Value(value);
      return true;
    }
    // -9223372036854775808 is a sign and a number that is one too large.
    if (value == 1ull << 63u && minus_before_) token_.value = Value(INT64_MIN);
    else if (value > INT64_MAX) return oops(from, "the number is too large");
    else token_.value = Value(static_cast<std::int64_t>(value));
    return true;
  }

  bool quoted(bool raw, bool bytes) {
    const std::size_t from = at_;
    const char mark = text_[at_];
    const std::string three(3, mark);
    const bool long_one = text_.substr(at_, 3) == three;
    at_ += long_one ? 3 : 1;
    std::string out;
    while (true) {
      if (at_ >= text_.size()) return oops(from, "the text has no end");
      if (long_one ? text_.substr(at_, 3) == three : text_[at_] == mark) break;
      const char c = text_[at_++];
      if (!long_one && (c == '\n' || c == '\r')) return oops(from, "the text has no end");
      if (c != '\\' || raw) {
        out += c;
        continue;
      }
      if (!escape(out, bytes)) return false;
    }
    at_ += long_one ? 3 : 1;
    token_.kind = Token::Kind::Literal;
    token_.value = bytes ? Value(Bytes{std::move(out)}) : Value(std::move(out));
    return true;
  }
  bool escape(std::string& out, bool bytes) {
    const std::size_t from = at_ - 1;
    const char c = ahead();
    ++at_;
    constexpr std::string_view names = "abfnrtv\\?\"'`", values = "\a\b\f\n\r\t\v\\?\"'`";
    if (const auto found = names.find(c); c != '\0' && found != std::string_view::npos) {
      out += values[found];
      return true;
    }
    const auto code = [&](std::size_t start, std::size_t digits, int base) -> std::optional<std::uint32_t> {
      std::uint32_t value = 0;
      if (start + digits > text_.size()) return std::nullopt;
      const char *first = text_.data() + start, *last = first + digits;
      const auto [stop, error] = std::from_chars(first, last, value, base);
      if (error != std::errc{} || stop != last) return std::nullopt;
      at_ = start + digits;
      return value;
    };
    std::optional<std::uint32_t> value;
    bool byte = false;
    if (c == 'x' || c == 'X') value = code(at_, 2, 16), byte = true;
    else if (c == 'u' && !bytes) value = code(at_, 4, 16);
    else if (c == 'U' && !bytes) value = code(at_, 8, 16);
    else if (c >= '0' && c <= '3') value = code(at_ - 1, 3, 8), byte = true;
    if (!value || *value > 0x10FFFF || (*value >= 0xD800 && *value <= 0xDFFF)) return oops(from, "an escape sequence is expected, such as \\n or \\u00e9");
    if (byte && bytes) out += static_cast<char>(*value);
    else put_utf8(out, *value);
    return true;
  }

  bool sign(std::string_view text) const { return token_.kind == Token::Kind::Sign && token_.text == text; }
  bool expect(std::string_view text) {
    if (!sign(text)) return oops(token_.at, fmt::format("\"{}\" is expected", text));
    return next();
  }

  // ---- the tree
  static Made make(Node::Kind kind, std::vector<NodePtr> children = {}) {
    auto out = std::make_shared<Node>();
    out->kind = kind, out->children = std::move(children);
    return out;
  }
  static NodePtr make_binary(Node::Op op, NodePtr a, NodePtr b) {
    Made out = make(Node::Kind::Binary, {std::move(a), std::move(b)});
    out->op = op;
    return out;
  }

  NodePtr expression(int depth) {
    if (depth > deepest) return no(token_.at, "the expression is too deep");
    NodePtr test = either(depth);
    if (!test || !sign("?")) return test;
    if (!next()) return nullptr;
    NodePtr yes = either(depth + 1);
    if (!yes || !expect(":")) return nullptr;
    NodePtr otherwise = expression(depth + 1);
    return otherwise ? make(Node::Kind::Choice, {test, yes, otherwise}) : nullptr;
  }
  NodePtr either(int depth) {
    NodePtr left = both(depth);
    while (left && sign("||")) {
      if (!next()) return nullptr;
      NodePtr right = both(depth);
      if (!right || !longer()) return nullptr;
      left = make(Node::Kind::Or, {left, right});
    }
    return left;
  }
  NodePtr both(int depth) {
    NodePtr left = relation(depth);
    while (left && sign("&&")) {
      if (!next()) return nullptr;
      NodePtr right = relation(depth);
      if (!right || !longer()) return nullptr;
      left = make(Node::Kind::And, {left, right});
    }
    return left;
  }
  NodePtr relation(int depth) {
    NodePtr left = sum(depth);
    while (left) {
      std::optional<Node::Op> op;
      if (token_.kind == Token::Kind::Name && token_.text == "in") op = Node::Op::In;
      for (const auto& [text, one] : {std::pair{"==", Node::Op::Equal}, {"!=", Node::Op::NotEqual}, {"<=", Node::Op::LessEqual}, {">=", Node::Op::GreaterEqual}, {"<", Node::Op::Less}, {">", Node::Op::Greater}})
        if (sign(text)) op = one;
      if (!op) return left;
      if (!next()) return nullptr;
      NodePtr right = sum(depth);
      if (!right || !longer()) return nullptr;
      left = make_binary(*op, left, right);
    }
    return left;
  }
  NodePtr sum(int depth) {
    NodePtr left = product(depth);
    while (left && (sign("+") || sign("-"))) {
      const Node::Op op = sign("+") ? Node::Op::Add : Node::Op::Subtract;
      if (!next()) return nullptr;
      NodePtr right = product(depth);
      if (!right || !longer()) return nullptr;
      left = make_binary(op, left, right);
    }
    return left;
  }
  NodePtr product(int depth) {
    NodePtr left = unary(depth);
    while (left && (sign("*") || sign("/") || sign("%"))) {
      const Node::Op op = sign("*") ? Node::Op::Multiply : sign("/") ? Node::Op::Divide : Node::Op::Modulo;
      if (!next()) return nullptr;
      NodePtr right = unary(depth);
      if (!right || !longer()) return nullptr;
      left = make_binary(op, left, right);
    }
    return left;
  }
  // A row of operators is as deep as it is long.
  bool longer() { return ++links_ <= 500 || oops(token_.at, "the expression is too long"); }

  NodePtr unary(int depth) {
    if (depth > deepest) return no(token_.at, "the expression is too deep");
    if (sign("!")) {
      if (!next()) return nullptr;
      NodePtr of = unary(depth + 1);
      return of ? make(Node::Kind::Not, {of}) : nullptr;
    }
    if (sign("-")) {
      minus_before_ = true;
      const bool read = next();
      minus_before_ = false;
      if (!read) return nullptr;
      if (token_.kind == Token::Kind::Literal && token_.value.get<std::int64_t>() != nullptr && *token_.value.get<std::int64_t>() == INT64_MIN) return member(depth);
      NodePtr of = unary(depth + 1);
      return of ? make(Node::Kind::Negate, {of}) : nullptr;
    }
    return member(depth);
  }

  NodePtr member(int depth) {
    NodePtr out = primary(depth);
    while (out && (sign(".") || sign("["))) {
      if (!longer()) return nullptr;
      if (sign("[")) {
        const std::size_t at = token_.at;
        if (!next()) return nullptr;
        if (sign("?")) return no(at, "optional values are not supported");
        NodePtr index = expression(depth + 1);
        if (!index || !expect("]")) return nullptr;
        out = make(Node::Kind::Index, {out, index});
        continue;
      }
      if (!next()) return nullptr;
      if (sign("?")) return no(token_.at, "optional values are not supported");
      if (token_.kind != Token::Kind::Name) return no(token_.at, "the name of a field is expected");
      const Token name = token_;
      if (!next()) return nullptr;
      if (sign("(")) {
        out = call(name, out, depth);
        continue;
      }
      Made select = make(Node::Kind::Select, {out});
      select->name = unescaped(name.text);
      out = select;
    }
    return out;
  }
  // Names of fields that are no names of the language, as Kubernetes escapes them.
  static std::string unescaped(const std::string& name) {
    std::string out;
    for (std::size_t at = 0; at < name.size();) {
      bool found = false;
      for (const auto& [escape, text] : {std::pair<std::string_view, std::string_view>{"__underscores__", "__"}, {"__dot__", "."}, {"__dash__", "-"}, {"__slash__", "/"}})
        if (name.compare(at, escape.size(), escape) == 0) {
          out += text;
          at += escape.size();
          found = true;
          break;
        }
      if (!found) out += name[at++];
    }
    if (out.size() > 4 && out.starts_with("__") && out.ends_with("__"))
      if (const std::string word = out.substr(2, out.size() - 4); std::find(reserved.begin(), reserved.end(), word) != reserved.end()) return word;
    return out;
  }

  NodePtr primary(int depth) {
    const Token token = token_;
    if (token.kind == Token::Kind::Literal) {
      if (!next()) return nullptr;
      Made out = make(Node::Kind::Literal);
      out->literal = token.value;
      return out;
    }
    if (token.kind == Token::Kind::Name) return name(depth);
    if (sign(".")) {  // the root of all names
      if (!next()) return nullptr;
      if (token_.kind != Token::Kind::Name) return no(token_.at, "a name is expected");
      return name(depth);
    }
    if (sign("(")) {
      if (!next()) return nullptr;
      NodePtr out = expression(depth + 1);
      return out && expect(")") ? out : nullptr;
    }
    if (sign("[")) {
      if (!next()) return nullptr;
      Made out = make(Node::Kind::MakeList);
      return list("]", out->children, depth) ? out : nullptr;
    }
    if (sign("{")) {
      if (!next()) return nullptr;
      Made out = make(Node::Kind::MakeMap);
      while (!sign("}")) {
        if (sign("?")) return no(token_.at, "optional values are not supported");
        NodePtr key = expression(depth + 1);
        if (!key || !expect(":")) return nullptr;
        NodePtr value = expression(depth + 1);
        if (!value) return nullptr;
        out->children.push_back(std::move(key)), out->children.push_back(std::move(value));
        if (!sign(",")) break;
        if (!next()) return nullptr;
      }
      return expect("}") ? out : nullptr;
    }
    return no(token.at, token.kind == Token::Kind::End ? "the expression ends too soon" : fmt::format("unexpected \"{}\"", token.text));
  }

  bool list(std::string_view end, std::vector<NodePtr>& into, int depth) {
    while (!sign(end)) {
      if (sign("?")) return oops(token_.at, "optional values are not supported");
      NodePtr one = expression(depth + 1);
      if (!one) return false;
      into.push_back(std::move(one));
      if (!sign(",")) break;
      if (!next()) return false;
    }
    return expect(end);
  }

  NodePtr name(int depth) {
    Token token = token_;
    if (!next()) return nullptr;
    Made out = make(Node::Kind::Literal);
    if (token.text == "true" || token.text == "false") {
      out->literal = Value(token.text == "true");
      return out;
    }
    if (token.text == "null") return out;
    if (std::find(reserved.begin(), reserved.end(), token.text) != reserved.end()) return no(token.at, fmt::format("\"{}\" is a word of the language", token.text));
    if (sign("(")) return call(token, nullptr, depth);
    // Functions with a name of two parts.
    if (sign(".") && token.text == "sets" && !known(token.text)) {
      if (!next()) return nullptr;
      token.text += "." + token_.text;
      if (token_.kind != Token::Kind::Name || !next() || !sign("(")) return no(token.at, fmt::format("undeclared reference to '{}'", token.text));
      return call(token, nullptr, depth);
    }
    // Variables with a name of two parts.
    if (!known(token.text) && sign(".") && is_group(token.text)) {
      if (!next()) return nullptr;
      if (token_.kind != Token::Kind::Name) return no(token_.at, "the name of a field is expected");
      const Token member = token_;
      token.text += "." + member.text;
      if (!variables_.contains(token.text)) return no(member.at, fmt::format("undefined field '{}'", member.text));
      if (!next()) return nullptr;
    }
    if (!known(token.text) && token.text == "google") {
      for (const char* part : {"protobuf", ""}) {
        if (!sign(".") || !next() || token_.kind != Token::Kind::Name || (*part != '\0' && token_.text != part)) return no(token.at, "undeclared reference to 'google'");
        token.text += "." + token_.text;
        if (!next()) return nullptr;
      }
    }
    if (!known(token.text)) {
      if (const auto type = std::find(type_names.begin(), type_names.end(), token.text); type != type_names.end()) {
        out->literal = Value(Type{*type});
        return out;
      }
      return no(token.at, fmt::format("undeclared reference to '{}'", token.text));
    }
    out->kind = Node::Kind::Name;
    out->name = token.text;
    return out;
  }
  // Are there variables "NAME.something"?
  bool is_group(const std::string& name) const {
    const auto at = variables_.lower_bound(name + ".");
    return at != variables_.end() && at->starts_with(name + ".");
  }
  bool known(const std::string& name) const { return variables_.contains(name) || std::find(locals_.begin(), locals_.end(), name) != locals_.end(); }

  // Behind the name, at "(".
  NodePtr call(const Token& name, NodePtr receiver, int depth) {
    if (!next()) return nullptr;
    if (receiver == nullptr && name.text == "has") return has(name, depth);
    if (receiver != nullptr)
      for (const auto& [text, macro] : {std::pair{"all", Node::Macro::All}, {"exists", Node::Macro::Exists}, {"exists_one", Node::Macro::ExistsOne}, {"map", Node::Macro::Each}, {"filter", Node::Macro::Filter}})
        if (name.text == text) return fold(name, macro, std::move(receiver), depth);
    const bool method = receiver != nullptr;
    Made out = make(Node::Kind::Call);
    if (receiver) out->children.push_back(std::move(receiver));
    if (!list(")", out->children, depth)) return nullptr;
    out->function = find_function(name.text, method);
    if (out->function == nullptr) return no(name.at, fmt::format("undeclared reference to '{}'", name.text));
    const std::size_t given = out->children.size() - (method ? 1 : 0);
    if (given < out->function->least || given > out->function->most) return no(name.at, fmt::format("found no matching overload for '{}' with {} arguments", name.text, given));
    if (out->function->has_pattern) {
      const std::size_t at = out->function->least + (method ? 0 : -1);
      const NodePtr& pattern = out->children[std::min(at, out->children.size() - 1)];
      if (const auto* text = pattern->kind == Node::Kind::Literal ? pattern->literal.get<std::string>() : nullptr; text != nullptr) {
        out->pattern = make_pattern(*text);
        if (!out->pattern) return no(name.at, fmt::format("invalid regular expression \"{}\"", *text));
      }
    }
    return out;
  }
  NodePtr has(const Token& name, int depth) {
    NodePtr of = expression(depth + 1);
    if (!of || !expect(")")) return nullptr;
    if (of->kind == Node::Kind::Name && of->name.find('.') != std::string::npos) {  // it is declared
      Made there = make(Node::Kind::Literal);
      there->literal = Value(true);
      return there;
    }
    if (of->kind != Node::Kind::Select) return no(name.at, "invalid argument to has() macro");
    Made out = make(Node::Kind::Has, of->children);
    out->name = of->name;
    return out;
  }
  NodePtr fold(const Token& name, Node::Macro macro, NodePtr over, int depth) {
    if (token_.kind != Token::Kind::Name) return no(token_.at, "the name of a variable is expected");
    Made out = make(Node::Kind::Fold, {std::move(over)});
    out->macro = macro, out->name = token_.text;
    if (std::find(reserved.begin(), reserved.end(), out->name) != reserved.end()) return no(token_.at, fmt::format("\"{}\" is a word of the language", out->name));
    if (!next() || !expect(",")) return nullptr;
    locals_.push_back(out->name);
    const bool read = list(")", out->children, depth);
    locals_.pop_back();
    if (!read) return nullptr;
    if (out->children.size() != 2 && !(macro == Node::Macro::Each && out->children.size() == 3)) return no(name.at, fmt::format("found no matching overload for '{}' with {} arguments", name.text, out->children.size()));
    return out;
  }

  std::string_view text_;
  const std::set<std::string>& variables_;
  std::size_t at_ = 0;
  Token token_;
  std::vector<std::string> locals_;
  bool minus_before_ = false;
  int links_ = 0;
  std::string problem_;
  std::size_t problem_at_ = 0;
};

bool names(const Node& node, std::string_view variable) {
  if (node.kind == Node::Kind::Name && node.name == variable) return true;
  return std::any_of(node.children.begin(), node.children.end(), [&](const NodePtr& child) { return names(*child, variable); });
}

}  // namespace

Program::Program(std::string text, std::shared_ptr<const Node> root) : text_(std::move(text)), root_(std::move(root)) {}
Program::~Program() = default;
Program::Program(Program&&) noexcept = default;
Program& Program::operator=(Program&&) noexcept = default;

Result<Program> Program::compile(std::string_view text, const std::set<std::string>& variables) {
  auto root = Parser(text, variables).parse();
  if (!root) return std::unexpected(std::move(root.error()));
  return Program(std::string(text), std::move(*root));
}

bool Program::uses(std::string_view variable) const { return names(*root_, variable); }

}  // namespace fairlead::cel
