// SPDX-License-Identifier: Apache-2.0
// Functions: the standard ones of cel-spec, and of Kubernetes' libraries strings (cel-go ext/strings.go), lists, regex (k8s.io/apiserver/pkg/cel/library) and sets (cel-go ext/sets.go). Places in texts count characters.
#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/encoding.h"
#include "cel/cel_duration.h"
#include "cel/cel_node.h"

namespace fairlead::cel {

namespace {

using Arguments = std::vector<Value>;

Value list_of(List list) { return std::shared_ptr<const List>(std::make_shared<List>(std::move(list))); }

// Where each character begins, and the end.
std::vector<std::size_t> starts(std::string_view text) {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < text.size(); ++i)
    if ((static_cast<unsigned char>(text[i]) & 0xC0u) != 0x80u) out.push_back(i);
  out.push_back(text.size());
  return out;
}

const std::string* text_at(const Arguments& all, std::size_t i) { return i < all.size() ? all[i].get<std::string>() : nullptr; }
const std::int64_t* whole_at(const Arguments& all, std::size_t i) { return i < all.size() ? all[i].get<std::int64_t>() : nullptr; }

// ---- standard
Result<Value> size_of(Machine& /*machine*/, const Node& /*node*/, const Arguments& all) {
  const Value& of = all[0];
  if (const auto* text = of.get<std::string>()) return Value(static_cast<std::int64_t>(code_points(*text)));
  if (const auto* bytes = of.get<Bytes>()) return Value(static_cast<std::int64_t>(bytes->data.size()));
  if (of.is_list() || of.is_map()) return Value(static_cast<std::int64_t>(of.size()));
  return no_overload();
}

template <class Test>
Result<Value> on_texts(const Arguments& all, const Test& test) {
  const auto *text = text_at(all, 0), *other = text_at(all, 1);
  if (text == nullptr || other == nullptr) return no_overload();
  return Value(test(*text, *other));
}
Result<Value> contains(Machine& machine, const Node& /*node*/, const Arguments& all) {
  if (const std::string* text = text_at(all, 0); text != nullptr && !machine.spend(text->size() / 8)) return too_dear();
  return on_texts(all, [](const std::string& a, const std::string& b) { return a.find(b) != std::string::npos; });
}
Result<Value> starts_with(Machine& /*machine*/, const Node& /*node*/, const Arguments& all) {
  return on_texts(all, [](const std::string& a, const std::string& b) { return a.starts_with(b); });
}
Result<Value> ends_with(Machine& /*machine*/, const Node& /*node*/, const Arguments& all) {
  return on_texts(all, [](const std::string& a, const std::string& b) { return a.ends_with(b); });
}

// The pattern of a call; null: it is none.
std::shared_ptr<const re2::RE2> pattern_of(Machine& machine, const Node& node, const Value& argument) {
  if (node.pattern) return node.pattern;
  const std::string* text = argument.get<std::string>();
  return text == nullptr || !machine.spend(100 + text->size()) ? nullptr : make_pattern(*text);
}
Result<Value> matches(Machine& machine, const Node& node, const Arguments& all) {
  const std::string* text = text_at(all, 0);
  if (text == nullptr || text_at(all, 1) == nullptr) return no_overload();
  const auto pattern = pattern_of(machine, node, all[1]);
  if (!pattern) return machine.budget < 0 ? Result<Value>(too_dear()) : Result<Value>(wrong("invalid regular expression"));
  if (!machine.spend(text->size() / 8)) return too_dear();
  return Value(re2::RE2::PartialMatch(*text, *pattern));
}

template <class Number>
std::optional<Number> number_of(const std::string& text) {
  Number out{};
  const char *first = text.data(), *last = first + text.size();
  if (first != last && *first == '+') ++first;
  const auto [stop, error] = std::from_chars(first, last, out);
  if (error != std::errc{} || stop != last || text.empty()) return std::nullopt;
  return out;
}

Result<Value> to_int(Machine& /*machine*/, const Node& /*node*/, const Arguments& all) {
  const Value& of = all[0];
  if (of.get<std::int64_t>() != nullptr) return of;
  if (const auto* x = of.get<std::uint64_t>()) return *x > INT64_MAX ? Result<Value>(wrong("integer overflow")) : Result<Value>(Value(static_cast<std::int64_t>(*x)));
  if (const auto* x = of.get<double>()) return !(*x > -9223372036854775808.0 && *x < 9223372036854775808.0) ? Result<Value>(wrong("integer overflow")) : Result<Value>(Value(static_cast<std::int64_t>(*x)));
  if (const auto* x = of.get<Instant>()) return Value(std::int64_t{std::chrono::floor<std::chrono::seconds>(*x).time_since_epoch().count()});
  if (const auto* x = of.get<std::string>()) {
    const auto value = number_of<std::int64_t>(*x);
    return value ? Result<Value>(Value(*value)) : Result<Value>(wrong("type conversion error from 'string' to 'int'"));
  }
  return no_overload();
}
Result<Value> to_uint(Machine& /*machine*/, const Node& /*node*/, const Arguments& all) {
  const Value& of = all[0];
  if (of.get<std::uint64_t>() != nullptr) return of;
  if (const auto* x = of.get<std::int64_t>()) return *x < 0 ? Result<Value>(wrong("unsigned integer overflow")) : Result<Value>(Value(static_cast<std::uint64_t>(*x)));
  if (const auto* x = of.get<double>()) return !(*x > -1 && *x < 18446744073709551616.0) ? Result<Value>(wrong("unsigned integer overflow")) : Result<Value>(Value(static_cast<std::uint64_t>(*x)));
  if (const auto* x = of.get<std::string>()) {
    const auto value = number_of<std::uint64_t>(*x);
    return value ? Result<Value>(Value(*value)) : Result<Value>(wrong("type conversion error from 'string' to 'uint'"));
  }
  return no_overload();
}
Result<Value> to_double(Machine& /*machine*/, const Node& /*node*/, const Arguments& all) {
  const Value& of = all[0];
  if (of.get<double>() != nullptr) return of;
  if (const auto* x = of.get<std::int64_t>()) return Value(static_cast<double>(*x));
  if (const auto* x = of.get<std::uint64_t>()) return Value(static_cast<double>(*x));
  if (const auto* x = of.get<std::string>()) {
    const auto value = number_of<double>(*x);
    return value ? Result<Value>(Value(*value)) : Result<Value>(wrong("type conversion error from 'string' to 'double'"));
  }
  return no_overload();
}
Result<Value> to_bool(Machine& /*machine*/, const Node& /*node*/, const Arguments& all) {
  const Value& of = all[0];
  if (of.get<bool>() != nullptr) return of;
  const std::string* text = of.get<std::string>();
  if (text == nullptr) return no_overload();
  for (const char* yes : {"1", "t", "T", "true", "TRUE", "True"})
    if (*text == yes) return Value(true);
  for (const char* no : {"0", "f", "F", "false", "FALSE", "False"})
    if (*text == no) return Value(false);
  return wrong("type conversion error from 'string' to 'bool'");
}

// As Go prints it with %g: the fewest digits that tell it, with an exponent below 1e-4 and from 1e6 on.
std::string text_of(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  std::array<char, 64> room{};
  const auto scientific = std::to_chars(room.data(), room.data() + room.size(), value, std::chars_format::scientific);
  const std::string text(room.data(), scientific.ptr);
  const std::string_view exponent = std::string_view(text).substr(text.find('e') + 1);
  int power = 0;
  std::from_chars(exponent.data() + (exponent.front() == '+' ? 1 : 0), exponent.data() + exponent.size(), power);
  if (power < -4 || power >= 6) return text;
  const auto plain = std::to_chars(room.data(), room.data() + room.size(), value, std::chars_format::fixed);
  return {room.data(), plain.ptr};
}
Result<Value> to_text(Machine& /*machine*/, const Node& /*node*/, const Arguments& all) {
  const Value& of = all[0];
  if (of.get<std::string>() != nullptr) return of;
  if (const auto* x = of.get<bool>()) return Value(std::string(*x ? "true" : "false"));
  if (const auto* x = of.get<std::int64_t>()) return Value(fmt::format("{}", *x));
  if (const auto* x = of.get<std::uint64_t>()) return Value(fmt::format("{}", *x));
  if (const auto* x = of.get<double>()) return Value(text_of(*x));
  if (const auto* x = of.get<Bytes>()) return simdjson::validate_utf8(x->data) ? Result<Value>(Value(x->data)) : Result<Value>(wrong("invalid UTF-8 in bytes, cannot convert to string"));
  if (const auto* x = of.get<Instant>()) {
    const auto seconds = std::chrono::floor<std::chrono::seconds>(*x);
    std::string out = print_time(seconds), rest = *x == seconds ? "" : fmt::format(".{:09d}", (*x - seconds).count());
    while (rest.ends_with('0')) rest.pop_back();
    return Value(out.substr(0, out.size() - 1) + rest + "Z");
  }
  if (const auto* x = of.get<Nanoseconds>()) return Value(print_seconds(*x));
  return no_overload();
}
Result<Value> to_bytes(Machine& /*machine*/, const Node& /*node*/, const Arguments& all) {
  if (all[0].get<Bytes>() != nullptr) return all[0];
  const std::string* text = text_at(all, 0);
  return text == nullptr ? Result<Value>(no_overload()) : Result<Value>(Value(Bytes{*text}));
}
Result<Value> to_timestamp(Machine& /*machine*/, const Node& /*node*/, const Arguments& all) {
  if (all[0].get<Instant>() != nullptr) return all[0];
  if (const auto* seconds = whole_at(all, 0)) return std::abs(*seconds) > 9'223'372'036 ? Result<Value>(wrong("timestamp overflow")) : Result<Value>(Value(Instant(std::chrono::seconds(*seconds))));
  const std::string* text = text_at(all, 0);
  if (text == nullptr) return no_overload();
  const auto time = parse_time(*text);
  return time ? Result<Value>(Value(*time)) : Result<Value>(wrong("type conversion error from 'string' to 'google.protobuf.Timestamp'"));
}
Result<Value> to_duration(Machine& /*machine*/, const Node& /*node*/, const Arguments& all) {
  if (all[0].get<Nanoseconds>() != nullptr) return all[0];
  const std::string* text = text_at(all, 0);
  if (text == nullptr) return no_overload();
  const auto duration = parse_duration(*text);
  return duration ? Result<Value>(Value(*duration)) : Result<Value>(wrong("type conversion error from 'string' to 'google.protobuf.Duration'"));
}
Result<Value> type_of(Machine& /*machine*/, const Node& /*node*/, const Arguments& all) { return Value(Type{all[0].type()}); }
Result<Value> same(Machine& /*machine*/, const Node& /*node*/, const Arguments& all) { return all[0]; }

// ---- times
Result<Value> part_of_time(Machine& /*machine*/, const Node& node, const Arguments& all) {
  const std::string_view what = node.function->name;
  if (const auto* duration = all[0].get<Nanoseconds>()) {
    if (all.size() > 1) return no_overload();
    if (what == "getHours") return Value(std::int64_t{std::chrono::duration_cast<std::chrono::hours>(*duration).count()});
    if (what == "getMinutes") return Value(std::int64_t{std::chrono::duration_cast<std::chrono::minutes>(*duration).count()});
    if (what == "getSeconds") return Value(std::int64_t{std::chrono::duration_cast<std::chrono::seconds>(*duration).count()});
    if (what == "getMilliseconds") return Value(std::int64_t{std::chrono::duration_cast<std::chrono::milliseconds>(*duration).count()});  // all of it, as cel-go has it
    return no_overload();
  }
  const Instant* found = all[0].get<Instant>();
  if (found == nullptr) return no_overload();
  __int128 nanos = found->time_since_epoch().count();
  if (all.size() > 1) {
    const std::string* zone = text_at(all, 1);
    if (zone == nullptr) return no_overload();
    std::string_view text = *zone;
    if (text != "UTC" && text != "Z") {
      const bool west = text.starts_with('-');
      if (west || text.starts_with('+')) text.remove_prefix(1);
      if (text.size() != 5 || text[2] != ':') return wrong(fmt::format("the time zone \"{}\" is not known here; UTC and offsets such as +02:00 are", zone->substr(0, 40)));
      const auto hours = number_of<int>(std::string(text.substr(0, 2))), minutes = number_of<int>(std::string(text.substr(3)));
      if (!hours || !minutes || *hours > 23 || *minutes > 59 || *hours < 0 || *minutes < 0) return wrong("invalid time zone");
      nanos += (west ? -1 : 1) * __int128{*hours * 60 + *minutes} * 60'000'000'000;
    }
  }
  const Instant time{Nanoseconds(static_cast<std::int64_t>(std::clamp<__int128>(nanos, INT64_MIN, INT64_MAX)))};
  const auto day = std::chrono::floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const auto of_day = time - day;
  if (what == "getFullYear") return Value(std::int64_t{static_cast<int>(date.year())});
  if (what == "getMonth") return Value(std::int64_t{static_cast<unsigned>(date.month())} - 1);
  if (what == "getDate") return Value(std::int64_t{static_cast<unsigned>(date.day())});
  if (what == "getDayOfMonth") return Value(std::int64_t{static_cast<unsigned>(date.day())} - 1);
  if (what == "getDayOfWeek") return Value(std::int64_t{std::chrono::weekday(day).c_encoding()});
  if (what == "getDayOfYear") return Value(std::int64_t{(day - std::chrono::sys_days(date.year() / 1 / 1)).count()});
  if (what == "getHours") return Value(std::int64_t{std::chrono::floor<std::chrono::hours>(of_day).count()});
  if (what == "getMinutes") return Value(std::int64_t{std::chrono::floor<std::chrono::minutes>(of_day).count() % 60});
  if (what == "getSeconds") return Value(std::int64_t{std::chrono::floor<std::chrono::seconds>(of_day).count() % 60});
  return Value(std::int64_t{std::chrono::floor<std::chrono::milliseconds>(of_day).count() % 1'000});
}

// ---- strings
Result<Value> char_at(Machine& machine, const Node& /*node*/, const Arguments& all) {
  const auto *text = text_at(all, 0);
  const auto *at = whole_at(all, 1);
  if (text == nullptr || at == nullptr) return no_overload();
  if (!machine.spend(text->size() / 8)) return too_dear();
  const auto places = starts(*text);
  if (*at < 0 || static_cast<std::size_t>(*at) >= places.size()) return wrong(fmt::format("index out of range: {}", *at));
  const auto i = static_cast<std::size_t>(*at);
  return Value(i + 1 == places.size() ? std::string() : text->substr(places[i], places[i + 1] - places[i]));
}

// Lists have functions of these names, too.
Result<Value> in_list(Machine& machine, const Arguments& all, bool last) {
  if (all.size() != 2) return no_overload();
  std::int64_t found = -1;
  for (std::size_t i = 0; i < all[0].size(); ++i) {
    if (!machine.spend()) return too_dear();
    if (!equal(all[0].at(i), all[1])) continue;
    found = static_cast<std::int64_t>(i);
    if (!last) break;
  }
  return Value(found);
}
Result<Value> index_of(Machine& machine, const Node& node, const Arguments& all) {
  const bool last = node.function->name == "lastIndexOf";
  if (all[0].is_list()) return in_list(machine, all, last);
  const auto *text = text_at(all, 0), *part = text_at(all, 1);
  const auto* from = whole_at(all, 2);
  if (text == nullptr || part == nullptr || (all.size() > 2 && from == nullptr)) return no_overload();
  if (!machine.spend(text->size())) return too_dear();
  const auto places = starts(*text);
  const auto characters = static_cast<std::int64_t>(places.size()) - 1;
  if (from != nullptr && (*from < 0 || *from > characters)) return wrong(fmt::format("index out of range: {}", *from));
  std::size_t found = 0;
  if (last) found = text->rfind(*part, from == nullptr ? std::string::npos : places[static_cast<std::size_t>(*from)]);
  else found = text->find(*part, from == nullptr ? 0 : places[static_cast<std::size_t>(*from)]);
  if (found == std::string::npos) return Value(std::int64_t{-1});
  return Value(static_cast<std::int64_t>(std::lower_bound(places.begin(), places.end(), found) - places.begin()));
}
Result<Value> join(Machine& machine, const Node& /*node*/, const Arguments& all) {
  const std::string none;
  const std::string* between = all.size() > 1 ? text_at(all, 1) : &none;
  if (!all[0].is_list() || between == nullptr) return no_overload();
  std::string out;
  for (std::size_t i = 0; i < all[0].size(); ++i) {
    const Value item = all[0].at(i);
    const std::string* text = item.get<std::string>();
    if (text == nullptr) return no_overload();
    if (!machine.spend(1 + (text->size() + between->size()) / 8)) return too_dear();
    if (i > 0) out += *between;
    out += *text;
  }
  return Value(std::move(out));
}
Result<Value> change_case(Machine& /*machine*/, const Node& node, const Arguments& all) {
  const std::string* text = text_at(all, 0);
  if (text == nullptr) return no_overload();
  std::string out = *text;
  const bool up = node.function->name == "upperAscii";
  for (char& c : out)
    if (up ? c >= 'a' && c <= 'z' : c >= 'A' && c <= 'Z') c = static_cast<char>(up ? c - 32 : c + 32);
  return Value(std::move(out));
}
Result<Value> replace(Machine& machine, const Node& /*node*/, const Arguments& all) {
  const auto *text = text_at(all, 0), *old = text_at(all, 1), *with = text_at(all, 2);
  const auto* limit = whole_at(all, 3);
  if (text == nullptr || old == nullptr || with == nullptr || (all.size() > 3 && limit == nullptr)) return no_overload();
  std::int64_t left = limit == nullptr || *limit < 0 ? INT64_MAX : *limit;
  std::string out;
  std::size_t at = 0;
  while (left > 0) {
    if (!machine.spend(1 + with->size() / 8)) return too_dear();
    std::size_t found = 0;
    if (old->empty()) {  // before each character and at the end
      found = at;
    } else if (found = text->find(*old, at); found == std::string::npos) {
      break;
    }
    out += text->substr(at, found - at);
    out += *with;
    --left;
    at = found + old->size();
    if (!old->empty()) continue;
    if (at >= text->size()) return Value(std::move(out));
    std::size_t end = at + 1;
    while (end < text->size() && (static_cast<unsigned char>((*text)[end]) & 0xC0u) == 0x80u) ++end;
    out += text->substr(at, end - at);
    at = end;
  }
  return Value(out + text->substr(at));
}
Result<Value> split_text(Machine& machine, const Node& /*node*/, const Arguments& all) {
  const auto *text = text_at(all, 0), *between = text_at(all, 1);
  const auto* limit = whole_at(all, 2);
  if (text == nullptr || between == nullptr || (all.size() > 2 && limit == nullptr)) return no_overload();
  if (!machine.spend(text->size())) return too_dear();
  const std::size_t most = limit == nullptr || *limit < 0 ? SIZE_MAX : static_cast<std::size_t>(*limit);
  List out;
  if (most == 0) return list_of(std::move(out));
  std::size_t at = 0;
  if (between->empty()) {
    const auto places = starts(*text);
    for (std::size_t i = 0; i + 1 < places.size(); ++i) {
      if (out.size() + 1 == most) {
        out.emplace_back(text->substr(places[i]));
        return list_of(std::move(out));
      }
      out.emplace_back(text->substr(places[i], places[i + 1] - places[i]));
    }
    return list_of(std::move(out));
  }
  while (out.size() + 1 < most) {
    const std::size_t found = text->find(*between, at);
    if (found == std::string::npos) break;
    out.emplace_back(text->substr(at, found - at));
    at = found + between->size();
  }
  out.emplace_back(text->substr(at));
  return list_of(std::move(out));
}
Result<Value> substring(Machine& machine, const Node& /*node*/, const Arguments& all) {
  const auto* text = text_at(all, 0);
  const auto *from = whole_at(all, 1), *to = whole_at(all, 2);
  if (text == nullptr || from == nullptr || (all.size() > 2 && to == nullptr)) return no_overload();
  if (!machine.spend(text->size() / 8)) return too_dear();
  const auto places = starts(*text);
  const auto characters = static_cast<std::int64_t>(places.size()) - 1;
  const std::int64_t end = to == nullptr ? characters : *to;
  if (*from < 0 || *from > characters || end > characters || end < *from) return wrong(fmt::format("index out of range: {}", *from < 0 || *from > characters ? *from : end));
  return Value(text->substr(places[static_cast<std::size_t>(*from)], places[static_cast<std::size_t>(end)] - places[static_cast<std::size_t>(*from)]));
}
Result<Value> trim(Machine& /*machine*/, const Node& /*node*/, const Arguments& all) {
  const std::string* text = text_at(all, 0);
  if (text == nullptr) return no_overload();
  const auto space = [](std::string_view character) {
    constexpr std::array<std::string_view, 25> spaces{"\t", "\n", "\v", "\f", "\r", " ", "\u0085", "\u00a0", "\u1680", "\u2000", "\u2001", "\u2002", "\u2003", "\u2004", "\u2005", "\u2006", "\u2007", "\u2008", "\u2009", "\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"};
    return std::find(spaces.begin(), spaces.end(), character) != spaces.end();
  };
  const auto places = starts(*text);
  std::size_t first = 0, last = places.size() - 1;
  const auto character = [&](std::size_t i) { return std::string_view(*text).substr(places[i], places[i + 1] - places[i]); };
  while (first < last && space(character(first))) ++first;
  while (last > first && space(character(last - 1))) --last;
  return Value(text->substr(places[first], places[last] - places[first]));
}

// ---- regex
Result<Value> find_text(Machine& machine, const Node& node, const Arguments& all) {
  const bool every = node.function->name == "findAll";
  const std::string* text = text_at(all, 0);
  const auto* limit = whole_at(all, 2);
  if (text == nullptr || text_at(all, 1) == nullptr || (all.size() > 2 && limit == nullptr)) return no_overload();
  const auto pattern = pattern_of(machine, node, all[1]);
  if (!pattern) return machine.budget < 0 ? Result<Value>(too_dear()) : Result<Value>(wrong("invalid regular expression"));
  List out;
  std::size_t last_end = std::string::npos;
  for (std::size_t at = 0; at <= text->size();) {
    if (limit != nullptr && *limit >= 0 && static_cast<std::int64_t>(out.size()) >= *limit) break;
    if (!machine.spend(1 + text->size() / 8)) return too_dear();
    re2::StringPiece found;
    if (!pattern->Match(*text, at, text->size(), re2::RE2::UNANCHORED, &found, 1)) break;
    const auto end = static_cast<std::size_t>(found.data() - text->data()) + found.size();
    if (!found.empty() || end != last_end) out.emplace_back(std::string(found.data(), found.size()));  // nothing, right behind a match, is none (as in Go)
    if (!every) break;
    last_end = end;
    at = found.empty() ? end + 1 : end;
  }
  if (every) return list_of(std::move(out));
  return out.empty() ? Value(std::string()) : out.front();
}

// ---- lists and sets
Result<Value> over_list(Machine& machine, const Node& node, const Arguments& all) {
  const Value& list = all[0];
  const std::string_view what = node.function->name;
  if (!list.is_list()) return no_overload();
  if (!machine.spend(list.size())) return too_dear();
  if (what == "isSorted") {
    for (std::size_t i = 1; i < list.size(); ++i) {
      const auto order = compare(list.at(i - 1), list.at(i));
      if (!order) return no_overload();
      if (*order > 0) return Value(false);
    }
    return Value(true);
  }
  if (list.size() == 0) return what == "sum" ? Result<Value>(Value(std::int64_t{0})) : Result<Value>(wrong(fmt::format("{} called on empty list", what)));
  Value out = list.at(0);
  for (std::size_t i = 1; i < list.size(); ++i) {
    const Value item = list.at(i);
    if (what == "sum") {
      auto sum = binary(machine, Node::Op::Add, out, item);
      if (!sum) return sum;
      out = std::move(*sum);
      continue;
    }
    const auto order = compare(item, out);
    if (!order) return no_overload();
    if (what == "min" ? *order < 0 : *order > 0) out = item;
  }
  return out;
}
Result<Value> over_sets(Machine& machine, const Node& node, const Arguments& all) {
  const Value &a = all[0], &b = all[1];
  if (!a.is_list() || !b.is_list()) return no_overload();
  const auto has = [&](const Value& in, const Value& item) {
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (!machine.spend()) return false;
      if (equal(in.at(i), item)) return true;
    }
    return false;
  };
  const auto all_in = [&](const Value& items, const Value& in) {
    for (std::size_t i = 0; i < items.size(); ++i)
      if (!has(in, items.at(i))) return false;
    return true;
  };
  bool out = false;
  if (node.function->name == "sets.contains") out = all_in(b, a);
  else if (node.function->name == "sets.equivalent") out = all_in(b, a) && all_in(a, b);
  else
    for (std::size_t i = 0; i < a.size() && !out; ++i) out = has(b, a.at(i));
  if (machine.budget < 0) return too_dear();
  return Value(out);
}

constexpr std::array functions{
    Function{"size", false, 1, 1, size_of}, Function{"size", true, 0, 0, size_of},
    Function{"contains", true, 1, 1, contains}, Function{"startsWith", true, 1, 1, starts_with}, Function{"endsWith", true, 1, 1, ends_with},
    Function{"matches", true, 1, 1, matches, true}, Function{"matches", false, 2, 2, matches, true},
    Function{"int", false, 1, 1, to_int}, Function{"uint", false, 1, 1, to_uint}, Function{"double", false, 1, 1, to_double}, Function{"bool", false, 1, 1, to_bool}, Function{"string", false, 1, 1, to_text},
    Function{"bytes", false, 1, 1, to_bytes}, Function{"timestamp", false, 1, 1, to_timestamp}, Function{"duration", false, 1, 1, to_duration}, Function{"type", false, 1, 1, type_of}, Function{"dyn", false, 1, 1, same},
    Function{"getFullYear", true, 0, 1, part_of_time}, Function{"getMonth", true, 0, 1, part_of_time}, Function{"getDate", true, 0, 1, part_of_time}, Function{"getDayOfMonth", true, 0, 1, part_of_time},
    Function{"getDayOfWeek", true, 0, 1, part_of_time}, Function{"getDayOfYear", true, 0, 1, part_of_time}, Function{"getHours", true, 0, 1, part_of_time}, Function{"getMinutes", true, 0, 1, part_of_time},
    Function{"getSeconds", true, 0, 1, part_of_time}, Function{"getMilliseconds", true, 0, 1, part_of_time},
    Function{"charAt", true, 1, 1, char_at}, Function{"indexOf", true, 1, 2, index_of}, Function{"lastIndexOf", true, 1, 2, index_of}, Function{"join", true, 0, 1, join},
    Function{"lowerAscii", true, 0, 0, change_case}, Function{"upperAscii", true, 0, 0, change_case}, Function{"replace", true, 2, 3, replace}, Function{"split", true, 1, 2, split_text},
    Function{"substring", true, 1, 2, substring}, Function{"trim", true, 0, 0, trim},
    Function{"find", true, 1, 1, find_text, true}, Function{"findAll", true, 1, 2, find_text, true},
    Function{"isSorted", true, 0, 0, over_list}, Function{"sum", true, 0, 0, over_list}, Function{"min", true, 0, 0, over_list}, Function{"max", true, 0, 0, over_list},
    Function{"sets.contains", false, 2, 2, over_sets}, Function{"sets.equivalent", false, 2, 2, over_sets}, Function{"sets.intersects", false, 2, 2, over_sets},
};

}  // namespace

const Function* find_function(std::string_view name, bool method) {
  for (const Function& one : functions)
    if (one.name == name && one.method == method) return &one;
  return nullptr;
}

}  // namespace fairlead::cel
