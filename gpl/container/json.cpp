// SPDX-License-Identifier: GPL-3.0-or-later
#include "json.h"

#include <fmt/format.h>

#include <algorithm>

namespace fairlead::companion {
namespace {

constexpr int kDeepest = 32;

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  Result<JsonValue> whole() {
    JsonValue out;
    if (!value(out, 0) || (skip(), at_ != bytes_.size())) return fail(Code::Invalid, fmt::format("no JSON at byte {}", at_));
    return out;
  }

 private:
  void skip() {
    while (at_ < bytes_.size() && (bytes_[at_] == ' ' || bytes_[at_] == '\n' || bytes_[at_] == '\t' || bytes_[at_] == '\r')) ++at_;
  }
  bool take(char wanted) {
    skip();
    if (at_ >= bytes_.size() || bytes_[at_] != wanted) return false;
    ++at_;
    return true;
  }
  bool word(std::string_view wanted, JsonValue& out, JsonValue::Kind kind) {
    if (!bytes_.substr(at_).starts_with(wanted)) return false;
    at_ += wanted.size();
    out.kind = kind;
    out.text = wanted;
    return true;
  }

  bool value(JsonValue& out, int depth) {
    if (depth > kDeepest) return false;
    skip();
    if (at_ >= bytes_.size()) return false;
    switch (bytes_[at_]) {
      case '{': return object(out, depth);
      case '[': return list(out, depth);
      case '"': out.kind = JsonValue::Kind::Text; return text(out.text);
      case 't': return word("true", out, JsonValue::Kind::Bool);
      case 'f': return word("false", out, JsonValue::Kind::Bool);
      case 'n': return word("null", out, JsonValue::Kind::Null);
      default: return number(out);
    }
  }

  bool number(JsonValue& out) {
    const std::size_t end = bytes_.find_first_not_of("+-.0123456789eE", at_);
    out.kind = JsonValue::Kind::Number;
    out.text = bytes_.substr(at_, end == std::string_view::npos ? end : end - at_);
    at_ += out.text.size();
    return !out.text.empty();
  }

  bool list(JsonValue& out, int depth) {
    out.kind = JsonValue::Kind::List;
    ++at_;
    if (take(']')) return true;
    do {
      if (!value(out.items.emplace_back(), depth + 1)) return false;
    } while (take(','));
    return take(']');
  }

  bool object(JsonValue& out, int depth) {
    out.kind = JsonValue::Kind::Object;
    ++at_;
    if (take('}')) return true;
    do {
      skip();
      if (!text(out.names.emplace_back()) || !take(':') || !value(out.items.emplace_back(), depth + 1)) return false;
    } while (take(','));
    return take('}');
  }

  bool hex4(std::uint32_t& out) {
    if (bytes_.size() - at_ < 4) return false;
    out = 0;
    for (int i = 0; i < 4; ++i) {
      const char c = bytes_[at_++];
      const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
      if (digit < 0) return false;
      out = out * 16 + static_cast<std::uint32_t>(digit);
    }
    return true;
  }

  static void append_utf8(std::string& out, std::uint32_t point) {
    const auto byte = [&](std::uint32_t value) { out += static_cast<char>(value); };
    if (point < 0x80) return byte(point);
    if (point < 0x800) byte(0xc0 | (point >> 6));
    else {
      if (point < 0x10000) byte(0xe0 | (point >> 12));
      else byte(0xf0 | (point >> 18)), byte(0x80 | ((point >> 12) & 0x3f));
      byte(0x80 | ((point >> 6) & 0x3f));
    }
    byte(0x80 | (point & 0x3f));
  }

  bool escape(std::string& out) {
    if (at_ >= bytes_.size()) return false;
    const char c = bytes_[at_++];
    if (c == 'u') {
      std::uint32_t point = 0, low = 0;
      if (!hex4(point)) return false;
      if (point >= 0xd800 && point < 0xdc00 && bytes_.substr(at_).starts_with("\\u")) {
        at_ += 2;
        if (!hex4(low) || low < 0xdc00 || low > 0xdfff) return false;
        point = 0x10000 + ((point - 0xd800) << 10) + (low - 0xdc00);
      }
      if (point >= 0xd800 && point < 0xe000) return false;
      append_utf8(out, point);
      return true;
    }
    const std::string_view from = "\"\\/bfnrt", to = "\"\\/\b\f\n\r\t";
    const auto which = from.find(c);
    if (which == std::string_view::npos) return false;
    out += to[which];
    return true;
  }

  bool text(std::string& out) {
    if (at_ >= bytes_.size() || bytes_[at_++] != '"') return false;
    while (at_ < bytes_.size()) {
      const char c = bytes_[at_++];
      if (c == '"') return true;
      if (static_cast<unsigned char>(c) < 0x20) return false;
      if (c != '\\') out += c;
      else if (!escape(out)) return false;
    }
    return false;
  }

  std::string_view bytes_;
  std::size_t at_ = 0;
};

}  // namespace

const JsonValue* JsonValue::find(std::string_view name) const {
  const auto found = std::find(names.begin(), names.end(), name);
  return found == names.end() ? nullptr : &items[static_cast<std::size_t>(found - names.begin())];
}

std::string_view JsonValue::text_of(std::string_view name) const {
  const JsonValue* found = find(name);
  return found && found->kind == Kind::Text ? std::string_view(found->text) : std::string_view();
}

Result<JsonValue> read_json(std::string_view bytes) { return Reader(bytes).whole(); }

}  // namespace fairlead::companion
