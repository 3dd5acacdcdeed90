// SPDX-License-Identifier: Apache-2.0
// YAML text: events from yaml-cpp, scalars resolved here as goyaml.v2 does (kubectl and the API server read YAML through it), written block style.
#include <fmt/format.h>
#include <simdjson.h>
#include <yaml-cpp/yaml.h>
#include <yaml-cpp/eventhandler.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <sstream>
#include <unordered_set>

#include "base/encoding.h"
#include "kube/json.h"
#include "kube/yaml_tags.h"

namespace fairlead::kube {

namespace {

constexpr std::size_t yaml_depth_limit = 200;
constexpr std::size_t alias_budget = std::size_t{4} << 20;   // bytes that aliases may add: against documents that explode

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

template <std::size_t N>
bool one_of(std::string_view text, const std::array<std::string_view, N>& words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

// Go's strconv.ParseInt / ParseUint with base 0; unsigned values above int64 become doubles as everywhere in Json.
std::optional<Json> parse_whole(std::string_view text) {
  bool minus = false;
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    minus = text[0] == '-';
    text.remove_prefix(1);
  }
  int base = 10;
  if (text.size() >= 2 && text[0] == '0') {
    const char mark = static_cast<char>(text[1] | 0x20);
    base = mark == 'x' ? 16 : mark == 'b' ? 2 : 8;
    text.remove_prefix(mark == 'x' || mark == 'b' || mark == 'o' ? 2 : 1);
  }
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  constexpr std::uint64_t top = std::uint64_t{1} << 63;
  if (value < top) return Json(minus ? -static_cast<std::int64_t>(value) : static_cast<std::int64_t>(value));
  if (minus) return value == top ? std::optional<Json>(Json(INT64_MIN)) : std::nullopt;
  return Json(static_cast<double>(value));
}

// [-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?
std::optional<Json> parse_fraction(std::string_view text) {
  std::size_t i = 0;
  const auto digits = [&] {
    const std::size_t from = i;
    while (i < text.size() && is_digit(text[i])) ++i;
    return i - from;
  };
  if (i < text.size() && (text[i] == '+' || text[i] == '-')) ++i;
  const std::size_t whole = digits();
  if (i < text.size() && text[i] == '.') {
    ++i;
    if (digits() == 0 && whole == 0) return std::nullopt;
  } else if (whole == 0) {
    return std::nullopt;
  }
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    if (i < text.size() && (text[i] == '+' || text[i] == '-')) ++i;
    if (digits() == 0) return std::nullopt;
  }
  if (i != text.size()) return std::nullopt;
  if (text[0] == '+') text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return Json(value);
}

// YYYY-M-D, alone or with a time: goyaml keeps these as text. Only the head decides; the rest could not be a number either.
bool looks_like_date(std::string_view text) { return text.size() > 4 && text[4] == '-' && std::all_of(text.begin(), text.begin() + 4, is_digit); }

// What an unquoted scalar means. Infinities and not-a-number have no JSON: they come back as doubles that the caller refuses.
Json resolve_plain(std::string_view text) {
  static constexpr std::array<std::string_view, 11> yes = {"y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"};
  static constexpr std::array<std::string_view, 11> no = {"n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"};
  static constexpr std::array<std::string_view, 5> nothing = {"", "~", "null", "Null", "NULL"};
  static constexpr std::array<std::string_view, 9> endless = {".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF", "-.inf", "-.Inf", "-.INF"};
  static constexpr std::array<std::string_view, 3> no_number = {".nan", ".NaN", ".NAN"};
  if (one_of(text, yes)) return true;
  if (one_of(text, no)) return false;
  if (one_of(text, nothing)) return nullptr;
  if (one_of(text, endless)) return HUGE_VAL;
  if (one_of(text, no_number)) return std::nan("");
  if (text[0] == '.') {
    if (auto number = parse_fraction(text)) return *number;
  } else if ((is_digit(text[0]) || text[0] == '+' || text[0] == '-') && !looks_like_date(text)) {
    std::string plain(text);
    std::erase(plain, '_');
    if (auto number = parse_whole(plain)) return *number;
    if (auto number = parse_fraction(plain)) return *number;
  }
  return text;
}

[[noreturn]] void refuse(const YAML::Mark& mark, const std::string& why) { throw YAML::ParserException(mark, why); }

bool valid_utf8(std::string_view text) { return simdjson::validate_utf8(text.data(), text.size()); }

// yaml-cpp 0.7 writes the escapes \N and \_ as the bare bytes 85 and A0 instead of their UTF-8. Nothing else in valid input leaves such bytes.
std::string with_whole_characters(const std::string& text) {
  if (valid_utf8(text)) return text;
  std::string out;
  int following = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte & 0xC0) == 0x80) {
      if (following == 0) {
        out += '\xC2';
      } else {
        --following;
      }
    } else {
      following = byte >= 0xF0 ? 3 : byte >= 0xE0 ? 2 : byte >= 0xC0 ? 1 : 0;
    }
    out += c;
  }
  return out;
}

Json resolve(const YAML::Mark& mark, const std::string& tag, const std::string& text) {
  constexpr std::string_view yaml_tag = "tag:yaml.org,2002:";
  const std::string_view kind = std::string_view(tag).starts_with(yaml_tag) ? std::string_view(tag).substr(yaml_tag.size()) : std::string_view();
  if (kind == "binary") {
    std::string packed = text;
    std::erase_if(packed, [](char c) { return c == '\n' || c == ' ' || c == '\r' || c == '\t'; });
    auto bytes = parse_base64(packed);
    if (!bytes) refuse(mark, "!!binary value is not base64");
    if (!valid_utf8(*bytes)) refuse(mark, "!!binary value is not UTF-8 text");
    return *std::move(bytes);
  }
  const bool typed = kind == "int" || kind == "float" || kind == "bool" || kind == "null" || kind == "timestamp";
  if (tag != "?" && !typed) return text;  // quoted, !!str, or a tag of somebody's own
  Json value = resolve_plain(text);
  if (value.type() == Json::Type::Double && !std::isfinite(value.number())) refuse(mark, fmt::format("JSON has no number `{}`", text));
  if (!typed) return value;
  if (kind == "float" && value.is_number()) return value.number();
  const bool fits = (kind == "int" && value.is_number() && value.number() == std::trunc(value.number())) || (kind == "bool" && value.is_bool()) ||
                    (kind == "null" && value.is_null()) || (kind == "timestamp" && value.is_string());
  if (!fits) refuse(mark, fmt::format("cannot read `{}` as !!{}", text, kind));
  return value;
}

// Builds one value a document out of yaml-cpp's events.
class Reader final : public YAML::EventHandler {
 public:
  Reader(std::string_view text, const YamlTagged& tagged) : text_(text), tagged_(tagged) {}
  std::vector<Json> documents;

  void OnDocumentStart(const YAML::Mark& mark) override {
    // Documents after the first start with ---. yaml-cpp also starts one at whatever is left over, and never gets past what fits nowhere.
    if (!first_ && text_.substr(static_cast<std::size_t>(mark.pos), 3) != "---") refuse(mark, "this does not belong here");
    first_ = false;
    stack_.clear();
    anchors_.clear();
    root_ = nullptr;
  }
  void OnDocumentEnd() override {
    if (!root_.is_null()) documents.push_back(std::move(root_));
    root_ = nullptr;
  }
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    // yaml-cpp reads a last line `foo` in a block map as `foo: null`, with the mark of the key.
    if (!stack_.empty() && stack_.back().block && stack_.back().key && stack_.back().key_at == mark.pos) refuse(mark, fmt::format("no ':' after \"{}\"", *stack_.back().key));
    add(mark, anchor, nullptr, 8, "");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& raw) override {
    std::string text = with_whole_characters(raw);
    if (tag == "?") text.resize(text.find_last_not_of(" \t") + 1);  // yaml-cpp leaves a blank of `[a  , b]`
    if (at_key() && tag == "?" && text == "<<") {
      stack_.back().key = "<<";
      stack_.back().merging = true;
      stack_.back().key_at = mark.pos;
      return;
    }
    const bool key = at_key();
    Json value = resolve(mark, tag, text);
    if (own_tag(tag)) {
      if (key) refuse(mark, fmt::format("a key cannot have the tag {}", tag));
      value = made_of(mark, tag, std::move(value));
    }
    add(mark, anchor, std::move(value), text.size() + 16, text);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) refuse(mark, "an anchor's value contains itself");
    spent_on_aliases_ += found->second.cost;
    if (spent_on_aliases_ > alias_budget) refuse(mark, "aliases expand this document beyond all measure");
    add(mark, 0, found->second.value, found->second.cost, "");
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, Json::array(), false);
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value style) override {
    open(mark, tag, anchor, Json::object(), style == YAML::EmitterStyle::Block);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapEnd() override { close(); }

 private:
  struct Frame {
    Json value;
    YAML::Mark mark;
    std::string tag;
    YAML::anchor_t anchor = 0;
    std::size_t cost = 16;
    bool block = false;              // a map in block style
    int key_at = -1;                 // where its latest key stands
    std::optional<std::string> key;  // of an object: waiting for its value
    bool merging = false;            // that key is <<
    std::unordered_set<std::string> keys;
    std::vector<Json> merged;
  };
  struct Anchored {
    Json value;
    std::size_t cost;
  };

  bool at_key() const { return !stack_.empty() && stack_.back().value.is_object() && !stack_.back().key; }

  bool own_tag(const std::string& tag) const { return tagged_ && tag.size() > 1 && tag[0] == '!' && tag[1] != '!'; }
  Json made_of(const YAML::Mark& mark, const std::string& tag, Json value) const {
    auto made = tagged_(tag, std::move(value));
    if (!made) refuse(mark, made.error().message);
    return std::move(*made);
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, Json value, bool block) {
    if (at_key()) refuse(mark, "a map or list cannot be a key");
    if (stack_.size() >= yaml_depth_limit) refuse(mark, fmt::format("nested deeper than {} levels", yaml_depth_limit));
    Frame frame;
    frame.value = std::move(value);
    frame.mark = mark;
    frame.tag = tag;
    frame.anchor = anchor;
    frame.block = block;
    stack_.push_back(std::move(frame));
  }

  void close() {
    Frame frame = std::move(stack_.back());
    stack_.pop_back();
    for (const Json& from : frame.merged)
      for (const auto& [key, value] : from.members())
        if (frame.keys.insert(key).second) frame.value.members().emplace_back(key, value);
    if (own_tag(frame.tag)) frame.value = made_of(frame.mark, frame.tag, std::move(frame.value));
    add(frame.mark, frame.anchor, std::move(frame.value), frame.cost, "");
  }

  void add(const YAML::Mark& mark, YAML::anchor_t anchor, Json value, std::size_t cost, const std::string& text) {
    if (anchor) anchors_.insert_or_assign(anchor, Anchored{value, cost});
    if (stack_.empty()) {
      root_ = std::move(value);
      return;
    }
    Frame& frame = stack_.back();
    frame.cost += cost;
    if (frame.value.is_array()) {
      frame.value.push(std::move(value));
    } else if (!frame.key) {
      frame.key = key_text(mark, value, text);
      frame.key_at = mark.pos;
    } else if (frame.merging) {
      merge(mark, frame, std::move(value));
    } else {
      if (!frame.keys.insert(*frame.key).second) refuse(mark, fmt::format("key \"{}\" occurs twice in one map", *frame.key));
      frame.value.members().emplace_back(std::move(*frame.key), std::move(value));
      frame.key.reset();
    }
  }

  // As goyaml.v2: a value from a list's earlier map wins, and the map's own keys win over all.
  static void merge(const YAML::Mark& mark, Frame& frame, Json value) {
    frame.key.reset();
    frame.merging = false;
    if (value.is_object()) {
      frame.merged.push_back(std::move(value));
      return;
    }
    if (!value.is_array()) refuse(mark, "<< wants a map or a list of maps");
    for (Json& one : value.items()) {
      if (!one.is_object()) refuse(mark, "<< wants a map or a list of maps");
      frame.merged.push_back(std::move(one));
    }
  }

  static std::string key_text(const YAML::Mark& mark, const Json& value, const std::string& text) {
    switch (value.type()) {
      case Json::Type::String: return value.string();
      case Json::Type::Bool: return value.boolean() ? "true" : "false";
      case Json::Type::Int:
      case Json::Type::Double: return print_json(value);
      default: refuse(mark, fmt::format("`{}` cannot be a key", value.is_null() ? "null" : text));
    }
  }

  std::string_view text_;
  const YamlTagged& tagged_;
  bool first_ = true;
  Json root_;
  std::vector<Frame> stack_;
  std::map<YAML::anchor_t, Anchored> anchors_;
  std::size_t spent_on_aliases_ = 0;
};

// ---- Writing ----

// Text that stays itself without quotes, for goyaml, yaml-cpp and YAML 1.2 readers alike: a narrow set on purpose.
bool plain_is_safe(std::string_view text) {
  if (text.empty() || text.size() > 200 || text.back() == ' ' || text.back() == ':') return false;
  const auto word = [](char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '/' || c == '.'; };
  if (!word(text[0]) || text.starts_with("...")) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (word(c) || c == '-' || c == '+' || c == '@' || c == '=' || c == '(' || c == ')' || c == ';') continue;
    if (c == ' ' && text[i + 1] != ' ') continue;
    if (c == ':' && text[i + 1] != ' ' && text[i + 1] != ':') continue;
    return false;
  }
  // Dates and base-60 numbers of other YAML 1.1 readers.
  if (is_digit(text[0]) && std::all_of(text.begin(), text.end(), [](char c) { return is_digit(c) || std::string_view(":._-+eETZxo ").find(c) != std::string_view::npos; })) return false;
  return resolve_plain(text).is_string();
}

// A literal block keeps lines as they are; anything a reader could see differently is quoted instead.
bool block_is_safe(std::string_view text) {
  if (text.find('\n') == std::string_view::npos || text.front() == ' ' || text.front() == '\n' || text.ends_with("\n\n") || !valid_utf8(text)) return false;
  char before = '\n';
  for (const char c : text) {
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == '\x7f' || static_cast<unsigned char>(c) >= 0x80) return false;
    if (c == '\n' && (before == ' ' || before == '\t')) return false;  // trailing blanks are invisible
    if (c == '\t' && before == '\n') return false;
    before = c;
  }
  return before != ' ' && before != '\t';
}

// JSON's quoting, with what YAML 1.1 calls a line break or unprintable escaped too.
void append_quoted(std::string& out, std::string_view text) {
  std::string json;
  append_json_string(json, text);
  for (std::size_t i = 0; i < json.size();) {
    const auto byte = static_cast<unsigned char>(json[i]);
    const auto next = i + 1 < json.size() ? static_cast<unsigned char>(json[i + 1]) : 0u;
    const std::string_view three = std::string_view(json).substr(i, 3);
    if (byte == 0x7f) {
      out += "\\u007f";
      i += 1;
    } else if (byte == 0xC2 && next < 0xA0) {  // C1 controls, among them NEL
      out += fmt::format("\\u{:04x}", next);
      i += 2;
    } else if (three == "\xE2\x80\xA8" || three == "\xE2\x80\xA9" || three == "\xEF\xBB\xBF" || three == "\xEF\xBF\xBE" || three == "\xEF\xBF\xBF") {
      out += three[0] == '\xE2' ? (three[2] == '\xA8' ? "\\u2028" : "\\u2029") : three[1] == '\xBB' ? "\\ufeff" : three[2] == '\xBE' ? "\\ufffe" : "\\uffff";
      i += 3;
    } else {
      out += json[i++];
    }
  }
}

void append_text(std::string& out, std::string_view text) {
  if (plain_is_safe(text)) {
    out += text;
  } else {
    append_quoted(out, text);
  }
}

void append_block(std::string& out, std::string_view text, std::size_t indent) {
  out += text.back() == '\n' ? "|" : "|-";
  if (text.back() == '\n') text.remove_suffix(1);
  for (const std::string& line : split(text, '\n')) {
    out += '\n';
    if (!line.empty()) out.append(indent, ' ').append(line);
  }
  out += '\n';
}

bool is_tree(const Json& value) { return (value.is_object() && !value.members().empty()) || (value.is_array() && !value.items().empty()); }

// Everything but a tree, with the end of its line. `indent` is that of a block's lines.
void append_leaf(std::string& out, const Json& value, std::size_t indent) {
  if (value.is_string() && !value.string().empty() && indent > 0 && block_is_safe(value.string())) {
    append_block(out, value.string(), indent);
    return;
  }
  if (value.is_string()) {
    append_text(out, value.string());
  } else {
    append_json(out, value);
  }
  out += '\n';
}

// The lines of a tree. `first_indented`: the caller already stands at `indent` ("- " was written).
void append_tree(std::string& out, const Json& value, std::size_t indent, bool first_indented) {
  const auto start_line = [&] {
    if (!first_indented) out.append(indent, ' ');
    first_indented = false;
  };
  for (const Json& item : value.items()) {
    start_line();
    out += "- ";
    if (is_tree(item)) {
      append_tree(out, item, indent + 2, true);
    } else {
      append_leaf(out, item, indent + 2);
    }
  }
  for (const auto& [key, member] : value.members()) {
    start_line();
    std::string name;
    append_text(name, key);
    if (name.size() > 900) {  // an implicit key ends within 1024 characters
      out += "? " + name + "\n";
      out.append(indent, ' ') += ": ";
      if (is_tree(member)) {
        append_tree(out, member, indent + 2, true);
      } else {
        append_leaf(out, member, indent + 2);
      }
      continue;
    }
    out += name + ":";
    if (is_tree(member)) {
      out += '\n';
      append_tree(out, member, member.is_array() ? indent : indent + 2, false);
    } else {
      out += ' ';
      append_leaf(out, member, indent + 2);
    }
  }
}

}  // namespace

Result<std::vector<Json>> parse_yaml(std::string_view text) { return parse_tagged_yaml(text, nullptr); }

Result<std::vector<Json>> parse_tagged_yaml(std::string_view text, const YamlTagged& tagged) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  if (!valid_utf8(text)) return fail(Code::Invalid, "invalid YAML: not UTF-8");
  if (const auto zero = text.find('\0'); zero != std::string_view::npos)
    return fail(Code::Invalid, fmt::format("invalid YAML: line {}: a zero byte", std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(zero), '\n') + 1));
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    Reader reader(text, tagged);
    while (parser.HandleNextDocument(reader)) {
    }
    return std::move(reader.documents);
  } catch (const YAML::Exception& error) {
    return fail(Code::Invalid, fmt::format("line {}, column {}: {}", error.mark.line + 1, error.mark.column + 1, error.msg));
  } catch (const std::exception& error) {  // yaml-cpp asserts some things by standard exceptions
    return fail(Code::Invalid, fmt::format("invalid YAML: {}", error.what()));
  }
}

std::string print_yaml(const Json& value) {
  std::string out;
  if (is_tree(value)) {
    append_tree(out, value, 0, false);
  } else {
    append_leaf(out, value, 0);
  }
  return out;
}

}  // namespace fairlead::kube
