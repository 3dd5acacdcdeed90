// SPDX-License-Identifier: Apache-2.0
// JSON text: read by simdjson (DOM), written by appending.
#include <fmt/format.h>
#include <simdjson.h>

#include <charconv>
#include <cmath>
#include <cstring>
#include <memory>
#include <unordered_map>

#include "kube/json.h"

namespace fairlead::kube {

namespace {

// Builds our value from simdjson's, noting members that occur twice. The way to a value is kept only while duplicates are wanted.
class Builder {
 public:
  Builder(std::vector<std::string>* duplicates, bool escapes) : duplicates_(duplicates), escapes_(escapes) {}

  Json build(simdjson::dom::element element) {
    switch (element.type()) {
      case simdjson::dom::element_type::NULL_VALUE: return nullptr;
      case simdjson::dom::element_type::BOOL: return bool(element);
      case simdjson::dom::element_type::INT64: return std::int64_t(element);
      case simdjson::dom::element_type::UINT64: return static_cast<double>(std::uint64_t(element));
      case simdjson::dom::element_type::DOUBLE: return double(element);
      case simdjson::dom::element_type::STRING: return text(std::string_view(element));
      case simdjson::dom::element_type::ARRAY: return build_array(simdjson::dom::array(element));
      case simdjson::dom::element_type::OBJECT: return build_object(simdjson::dom::object(element));
    }
    return nullptr;
  }
  bool lone_surrogate() const { return lone_surrogate_; }

 private:
  // simdjson 3.0 lets an escaped low surrogate without its high half through; valid UTF-8 never has ED A0..BF.
  std::string text(std::string_view bytes) {
    for (std::size_t at = escapes_ ? bytes.find('\xED') : std::string_view::npos; at != std::string_view::npos; at = bytes.find('\xED', at + 1))
      if (at + 1 < bytes.size() && static_cast<unsigned char>(bytes[at + 1]) >= 0xA0) lone_surrogate_ = true;
    return std::string(bytes);
  }

  Json build_array(simdjson::dom::array array) {
    std::vector<Json> items;
    items.reserve(array.size());
    for (const auto item : array) {
      if (duplicates_) way_.push_back({{}, items.size()});
      items.push_back(build(item));
      if (duplicates_) way_.pop_back();
    }
    return Json::array(std::move(items));
  }

  Json build_object(simdjson::dom::object object) {
    std::vector<JsonMember> members;
    members.reserve(object.size());
    constexpr std::size_t index_from = 24;  // up to here a linear look is cheaper than an index
    const bool indexed = object.size() > index_from;
    std::unordered_map<std::string, std::size_t> index;
    for (const auto [raw_key, value] : object) {
      std::string key = text(raw_key);
      std::size_t place = members.size();
      if (indexed) {
        place = index.emplace(key, place).first->second;
      } else {
        for (std::size_t i = 0; i < members.size(); ++i)
          if (members[i].first == key) place = i;
      }
      if (duplicates_) {
        way_.push_back({raw_key, 0});
        if (place < members.size()) duplicates_->push_back(path());
      }
      if (place < members.size()) {
        members[place].second = build(value);
      } else {
        Json built = build(value);
        members.emplace_back(std::move(key), std::move(built));
      }
      if (duplicates_) way_.pop_back();
    }
    return Json::object(std::move(members));
  }

  struct Step {
    std::string_view name;  // without data: an item of a list
    std::size_t item;
  };
  std::string path() const {
    std::string out;
    for (const Step& step : way_) {
      if (step.name.data() == nullptr) out += fmt::format("[{}]", step.item);
      else out.append(out.empty() ? "" : ".").append(step.name);
    }
    return out;
  }

  std::vector<std::string>* duplicates_;
  const bool escapes_;  // without any no surrogate can be there: raw bytes were checked
  std::vector<Step> way_;
  bool lone_surrogate_ = false;
};

// Neither an int64 nor a uint64. Digits without leading zeros, as JSON has them.
bool outside_64_bits(std::string_view digits, bool negative) {
  const std::string_view most = negative ? "9223372036854775808" : "18446744073709551615";
  return digits.size() != most.size() ? digits.size() > most.size() : digits > most;
}

// simdjson refuses integers outside 64 bits; with an exponent they are doubles. Called only after such a refusal. The others stay what they are: a double would round them.
std::string with_big_integers_as_doubles(std::string_view text) {
  std::string out;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      out += c;
      if (c == '\\' && i + 1 < text.size()) out += text[++i];
      if (c == '"') in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    if (c < '0' || c > '9') {
      out += c;
      continue;
    }
    std::size_t end = i;
    bool whole = true;
    while (end < text.size() && ((text[end] >= '0' && text[end] <= '9') || std::string_view(".eE+-").find(text[end]) != std::string_view::npos)) {
      whole = whole && text[end] >= '0' && text[end] <= '9';
      ++end;
    }
    out += text.substr(i, end - i);
    if (whole && outside_64_bits(text.substr(i, end - i), i > 0 && text[i - 1] == '-')) out += "e0";
    i = end - 1;
  }
  return out;
}

// A parser keeps its buffers between calls (they are most of the cost for small bodies), unless a huge body made them huge.
std::unique_ptr<simdjson::dom::parser>& parser_of_this_thread() {
  thread_local std::unique_ptr<simdjson::dom::parser> parser;
  if (!parser || parser->capacity() > (std::size_t{1} << 20)) parser = std::make_unique<simdjson::dom::parser>();
  return parser;
}

Result<Json> build_from(simdjson::dom::parser& parser, std::string_view text, const ParseOptions& options, simdjson::error_code& error) {
  simdjson::dom::element root;
  error = parser.parse(text.data(), text.size()).get(root);
  if (error) return fail(Code::Invalid, fmt::format("invalid JSON: {}", simdjson::error_message(error)));
  Builder builder(options.duplicates, text.find('\\') != std::string_view::npos);
  Json built = builder.build(root);
  if (builder.lone_surrogate()) return fail(Code::Invalid, "invalid JSON: an escaped surrogate without its other half");
  return built;
}

void append_utf8_or_replacement(std::string& out, std::string_view text, std::size_t& i) {
  const auto byte = [&](std::size_t at) { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u; };
  const auto follows = [&](std::size_t at) { return (byte(at) & 0xC0u) == 0x80u; };
  const unsigned first = byte(i), second = byte(i + 1);
  std::size_t length = 0;
  if (first >= 0xC2 && first <= 0xDF && follows(i + 1)) length = 2;
  if (first >= 0xE0 && first <= 0xEF && follows(i + 1) && follows(i + 2) && !(first == 0xE0 && second < 0xA0) && !(first == 0xED && second >= 0xA0)) length = 3;
  if (first >= 0xF0 && first <= 0xF4 && follows(i + 1) && follows(i + 2) && follows(i + 3) && !(first == 0xF0 && second < 0x90) && !(first == 0xF4 && second >= 0x90))
    length = 4;
  if (length == 0) {
    out += "\xEF\xBF\xBD";
    ++i;
    return;
  }
  out += text.substr(i, length);
  i += length;
}

void append_number(std::string& out, double number) {
  if (!std::isfinite(number)) {  // JSON has no such number
    out += "null";
    return;
  }
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, number).ptr;
  out.append(buffer, end);
}

void append_whole(std::string& out, std::int64_t number) {
  char buffer[24];
  out.append(buffer, std::to_chars(buffer, buffer + sizeof buffer, number).ptr);
}

void append_indented(std::string& out, const Json& value, int spaces, int level) {
  const auto line = [&](int at) { out.append(1, '\n').append(static_cast<std::size_t>(at) * static_cast<std::size_t>(spaces), ' '); };
  if (value.is_array() && !value.items().empty()) {
    out += '[';
    bool first = true;
    for (const Json& item : value.items()) {
      if (!first) out += ',';
      first = false;
      line(level + 1);
      append_indented(out, item, spaces, level + 1);
    }
    line(level);
    out += ']';
  } else if (value.is_object() && !value.members().empty()) {
    out += '{';
    bool first = true;
    for (const auto& [key, member] : value.members()) {
      if (!first) out += ',';
      first = false;
      line(level + 1);
      append_json_string(out, key);
      out += ": ";
      append_indented(out, member, spaces, level + 1);
    }
    line(level);
    out += '}';
  } else {
    append_json(out, value);
  }
}

}  // namespace

Result<Json> parse_json(std::string_view text, const ParseOptions& options) {
  if (text.data() == nullptr) text = "";  // simdjson copies from where the text is, also nothing
  auto& parser = parser_of_this_thread();
  if (parser->max_depth() != options.depth_limit || parser->capacity() < text.size()) {
    if (const auto error = parser->allocate(std::max<std::size_t>(text.size(), 4096), options.depth_limit))
      return fail(Code::Exhausted, fmt::format("read JSON of {} bytes: {}", text.size(), simdjson::error_message(error)));
  }
  simdjson::error_code error = simdjson::SUCCESS;
  auto built = build_from(*parser, text, options, error);
  if (error == simdjson::NUMBER_ERROR) {
    const std::string retry = with_big_integers_as_doubles(text);
    if (retry.size() != text.size()) return build_from(*parser, retry, options, error);
  }
  return built;
}

namespace {
// How many bytes from `start` on stand in a JSON string as they are. Eight at a time: nearly all text is plain.
std::size_t plain_run(std::string_view text, std::size_t start) {
  constexpr std::uint64_t ones = 0x0101010101010101, tops = 0x8080808080808080;
  std::size_t at = start;
  for (; at + 8 <= text.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + at, sizeof word);
    const std::uint64_t quote = word ^ (ones * '"'), backslash = word ^ (ones * '\\');
    // A borrow may mark a byte too much, never one too few: then the bytes are looked at one by one.
    if ((word | ((word - ones * 0x20) & ~word) | ((quote - ones) & ~quote) | ((backslash - ones) & ~backslash)) & tops) break;
  }
  for (; at < text.size(); ++at) {
    const auto c = static_cast<unsigned char>(text[at]);
    if (c < 0x20 || c >= 0x80 || c == '"' || c == '\\') break;
  }
  return at - start;
}
}  // namespace

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  for (std::size_t i = 0; i < text.size();) {
    if (const std::size_t plain = plain_run(text, i); plain > 0) {
      out.append(text.data() + i, plain);
      i += plain;
      continue;
    }
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x80) {
      append_utf8_or_replacement(out, text, i);
      continue;
    }
    ++i;
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default: out += fmt::format("\\u{:04x}", c);
    }
  }
  out += '"';
}

void append_json(std::string& out, const Json& value) {
  switch (value.type()) {
    case Json::Type::Null: out += "null"; break;
    case Json::Type::Bool: out += value.boolean() ? "true" : "false"; break;
    case Json::Type::Int: append_whole(out, value.integer()); break;
    case Json::Type::Double: append_number(out, value.number()); break;
    case Json::Type::String: append_json_string(out, value.string()); break;
    case Json::Type::Array: {
      out += '[';
      bool first = true;
      for (const Json& item : value.items()) {
        if (!first) out += ',';
        first = false;
        append_json(out, item);
      }
      out += ']';
      break;
    }
    case Json::Type::Object: {
      out += '{';
      bool first = true;
      for (const auto& [key, member] : value.members()) {
        if (!first) out += ',';
        first = false;
        append_json_string(out, key);
        out += ':';
        append_json(out, member);
      }
      out += '}';
      break;
    }
  }
}

std::string print_json(const Json& value) {
  std::string out;
  append_json(out, value);
  return out;
}

std::string print_json_indented(const Json& value, int spaces) {
  std::string out;
  append_indented(out, value, spaces, 0);
  return out;
}

}  // namespace fairlead::kube
