// SPDX-License-Identifier: Apache-2.0
#include "cel/cel.h"

#include <gmock/gmock.h>

#include <chrono>
#include <limits>

#include "cel/cel_duration.h"

namespace fairlead::cel {
namespace {

using kube::Json;
using testing::HasSubstr;

// What an expression comes to, as text: of strings the text itself, or "error: ..." and "wrong: ..." if it does not run or is none.
std::string shown(const Value& value) {
  if (const auto* x = value.get<bool>()) return *x ? "true" : "false";
  if (const auto* x = value.get<std::int64_t>()) return std::to_string(*x);
  if (const auto* x = value.get<std::uint64_t>()) return std::to_string(*x) + "u";
  if (const auto* x = value.get<double>()) return kube::print_json(Json(*x)) + "d";
  if (const auto* x = value.get<std::string>()) return *x;
  if (const auto* x = value.get<Bytes>()) return "b:" + x->data;
  if (const auto* x = value.get<Instant>()) return print_time(*x);
  if (const auto* x = value.get<Nanoseconds>()) return print_seconds(*x);
  if (const auto* x = value.get<Type>()) return "type " + std::string(x->name);
  std::string out;
  if (value.is_list()) {
    for (std::size_t i = 0; i < value.size(); ++i) out += (i == 0 ? "" : ", ") + shown(value.at(i));
    return "[" + out + "]";
  }
  if (value.is_map()) {
    for (std::size_t i = 0; i < value.size(); ++i) out += (i == 0 ? "" : ", ") + shown(value.entry(i).first) + ": " + shown(value.entry(i).second);
    return "{" + out + "}";
  }
  return "null";
}
const Json self = *kube::parse_json(R"({"name":"train","replicas":3,"ratio":2,"text":"häuser","flags":[true,false],"labels":{"a":"1","b-c":"2"},"ports":[{"name":"x","port":80},{"name":"y","port":443}],"nothing":null,"at":"2026-11-24T10:30:15.25Z","for":"90m","namespace":"n"})");

std::string run(const std::string& text, std::int64_t budget = usual_budget) {
  auto program = Program::compile(text, {"self", "oldSelf"});
  if (!program) return "wrong: " + program.error().message;
  auto value = program->run({{"self", Value::of_json(self)}}, budget);
  return value ? shown(*value) : "error: " + value.error().message;
}

struct Case {
  const char *text, *want;
};
void PrintTo(const Case& one, std::ostream* out) { *out << one.text; }
class Cel : public testing::TestWithParam<Case> {};
TEST_P(Cel, ComesTo) { EXPECT_EQ(run(GetParam().text), GetParam().want); }

// The rules of cel-spec, doc/langdef.md, and of the libraries.
INSTANTIATE_TEST_SUITE_P(Numbers, Cel, testing::Values(
    Case{"1 + 2 * 3", "7"}, Case{"(1 + 2) * 3", "9"}, Case{"7 / 2", "3"}, Case{"-7 / 2", "-3"}, Case{"-7 % 3", "-1"}, Case{"7u / 2u", "3u"}, Case{"0x10", "16"}, Case{"1.5e2", "150d"}, Case{".5 + 1.0", "1.5d"}, Case{"-2", "-2"}, Case{"--2", "2"},
    Case{"9223372036854775807 + 1", "error: integer overflow"}, Case{"-9223372036854775808", "-9223372036854775808"}, Case{"-9223372036854775808 / -1", "error: integer overflow"}, Case{"-(-9223372036854775808)", "error: integer overflow"},
    Case{"9223372036854775808", "wrong: ERROR: 1:1: the number is too large"}, Case{"18446744073709551615u + 1u", "error: unsigned integer overflow"}, Case{"0u - 1u", "error: unsigned integer overflow"}, Case{"1 / 0", "error: division by zero"},
    Case{"1 % 0", "error: modulus by zero"}, Case{"1.0 / 0.0 > 5", "true"}, Case{"1 + 1.0", "error: no such overload"}, Case{"1 == 1.0", "true"}, Case{"1 == 1u", "true"}, Case{"2 > 1.5", "true"}, Case{"-1 < 1u", "true"}, Case{"9007199254740993 == 9007199254740992.0", "false"},
    Case{"9223372036854775807 < 9223372036854775808.0", "true"}, Case{"int(3.9)", "3"}, Case{"int(-3.9)", "-3"}, Case{"int('12')", "12"}, Case{"int('12x')", "error: type conversion error from 'string' to 'int'"}, Case{"int(1e30)", "error: integer overflow"},
    Case{"uint(-1)", "error: unsigned integer overflow"}, Case{"double('1.5')", "1.5d"}, Case{"double(2)", "2d"}, Case{"string(2.0)", "2"}, Case{"string(-5)", "-5"}, Case{"bool('true')", "true"}, Case{"type(1) == int", "true"}, Case{"type(1u) == int", "false"},
    Case{"string(1000000.0)", "1e+06"}, Case{"string(0.00001)", "1e-05"}, Case{"string(123456.5)", "123456.5"}, Case{"string(1234567.5)", "1.2345675e+06"}, Case{"string(-0.0)", "-0"}, Case{"string(1.0 / 0.0)", "+Inf"},
    Case{"type([]) == list && type({}) == map && type(null) == null_type", "true"}, Case{"type(type(1)) == type", "true"}));

INSTANTIATE_TEST_SUITE_P(Logic, Cel, testing::Values(
    Case{"true || 1 / 0 == 1", "true"}, Case{"1 / 0 == 1 || true", "true"}, Case{"1 / 0 == 1 || false", "error: division by zero"}, Case{"false && 1 / 0 == 1", "false"}, Case{"1 / 0 == 1 && false", "false"}, Case{"true && true && false", "false"},
    Case{"true || 5", "true"}, Case{"false || 5", "error: no such overload"}, Case{"!true", "false"}, Case{"!!true", "true"}, Case{"!5", "error: no such overload"}, Case{"true ? 1 : 1 / 0", "1"}, Case{"false ? 1 : true ? 2 : 3", "2"}, Case{"5 ? 1 : 2", "error: no such overload"},
    Case{"1 < 2 && 2 <= 2 && 3 >= 3 && 'a' < 'b' && false < true", "true"}, Case{"1 < 'a'", "error: no such overload"}, Case{"1 == 'a'", "false"}, Case{"null == null", "true"}, Case{"[1, 2.0] == [1.0, 2]", "true"}, Case{"{'a': 1} == {'a': 1.0}", "true"},
    Case{"{'a': [1]} != {'a': [2]}", "true"}, Case{"1 in [2, 1.0]", "true"}, Case{"'a' in {'a': 1}", "true"}, Case{"1 in 5", "error: no such overload"}, Case{"{1: 2, 1u: 3}", "error: insert failed: key already exists"}, Case{"{1.5: 2}", "error: unsupported key type"}));

INSTANTIATE_TEST_SUITE_P(Texts, Cel, testing::Values(
    Case{"'it''s'", "wrong: ERROR: 1:5: the end of the expression is expected"}, Case{R"('a\'b\n\u00e9\x41\101')", "a'b\n\u00e9AA"}, Case{R"(r'a\n')", "a\\n"}, Case{"'''a'b''' + \"\"\"c\"d\"\"\"", "a'bc\"d"}, Case{R"(b'\xff' == b'\377')", "true"}, Case{R"('\q')", "wrong: ERROR: 1:2: an escape sequence is expected, such as \\n or \\u00e9"},
    Case{"'abc", "wrong: ERROR: 1:1: the text has no end"}, Case{"size('h\u00e4user')", "6"}, Case{"size(b'h\u00e4')", "3"}, Case{"'h\u00e4user'.substring(1, 3)", "\u00e4u"}, Case{"'abc'.substring(3)", ""}, Case{"'abc'.substring(2, 1)", "error: index out of range: 1"}, Case{"'abc'.charAt(1)", "b"}, Case{"'abc'.charAt(3)", ""},
    Case{"'h\u00e4h\u00e4'.indexOf('\u00e4')", "1"}, Case{"'h\u00e4h\u00e4'.lastIndexOf('\u00e4')", "3"}, Case{"'abab'.indexOf('a', 1)", "2"}, Case{"'abab'.indexOf('x')", "-1"}, Case{"['a', 'b'].join('-')", "a-b"}, Case{"['a', 1].join()", "error: no such overload"}, Case{"' a '.trim()", "a"}, Case{"'Ab'.lowerAscii() + 'Ab'.upperAscii()", "abAB"},
    Case{"'aaa'.replace('a', 'b', 2)", "bba"}, Case{"'ab'.replace('', '-')", "-a-b-"}, Case{"'a,b,c'.split(',')", "[a, b, c]"}, Case{"'a,b,c'.split(',', 2)", "[a, b,c]"}, Case{"'abc'.split('')", "[a, b, c]"}, Case{"'abc'.contains('b') && 'abc'.startsWith('ab') && 'abc'.endsWith('c')", "true"},
    Case{"'abc123'.matches('[a-c]+[0-9]+$')", "true"}, Case{"matches('abc', '^b')", "false"}, Case{"'a'.matches('(')", "wrong: ERROR: 1:5: invalid regular expression \"(\""}, Case{"'a'.matches('(' + '')", "error: invalid regular expression"}, Case{"'abc123'.find('[0-9]+')", "123"}, Case{"'a1b22'.findAll('[0-9]+')", "[1, 22]"},
    Case{"'abc'.findAll('')", "[, , , ]"}, Case{"'aXbX'.findAll('X*')", "[, X, X]"}, Case{R"('\u00a0a\u2003'.trim())", "a"}, Case{"'abab'.lastIndexOf('a', 1)", "0"}, Case{"'abc'.indexOf('', 3)", "3"}, Case{"'ab'.replace('', '-', 1)", "-ab"}, Case{"string(b'abc')", "abc"}, Case{R"(string(b'\xff'))", "error: invalid UTF-8 in bytes, cannot convert to string"}, Case{"'abc'.size()", "3"}));

INSTANTIATE_TEST_SUITE_P(Lists, Cel, testing::Values(
    Case{"[1, 2] + [3]", "[1, 2, 3]"}, Case{"[1, 2][1]", "2"}, Case{"[1][1]", "error: index out of bounds: 1"}, Case{"[1][-1]", "error: index out of bounds: -1"}, Case{"{'a': 1}.a", "1"}, Case{"{'a': 1}['b']", "error: no such key: b"}, Case{"size([1, 2]) + size({'a': 1})", "3"},
    Case{"[1, 2, 3].all(x, x > 0)", "true"}, Case{"[1, 0, 3].all(x, 3 / x > 0)", "error: division by zero"}, Case{"[0, -1].all(x, 3 / x > 0)", "false"}, Case{"[0, 1].exists(x, 3 / x > 0)", "true"}, Case{"[1, 2, 2].exists_one(x, x == 2)", "false"}, Case{"[1, 2].map(x, x * 2)", "[2, 4]"}, Case{"[1, 2, 3].map(x, x > 1, x * 2)", "[4, 6]"},
    Case{"[1, 2, 3].filter(x, x != 2)", "[1, 3]"}, Case{"{'a': 1, 'b': 2}.all(k, k < 'c')", "true"}, Case{"{'a': 1, 'b': 2}.filter(k, k == 'b')", "[b]"}, Case{"[1, 2].map(x, [3, 4].map(y, x * y))", "[[3, 4], [6, 8]]"}, Case{"[1].all(x, x)", "error: no such overload"}, Case{"5.all(x, true)", "error: no such overload"},
    Case{"[1, 2].isSorted() && ![2, 1].isSorted()", "true"}, Case{"[1, 2].sum() + [4, 3].min() + [4, 3].max()", "10"}, Case{"[].sum()", "0"}, Case{"[].min()", "error: min called on empty list"}, Case{"[1, 2, 1].indexOf(1) + [1, 2, 1].lastIndexOf(1)", "2"},
    Case{"sets.contains([1, 2], [2]) && sets.equivalent([1, 2], [2, 1, 1]) && sets.intersects([1], [1, 2]) && !sets.intersects([1], [])", "true"}));

INSTANTIATE_TEST_SUITE_P(Times, Cel, testing::Values(
    Case{"timestamp('2026-11-24T10:30:15.25Z').getHours()", "10"}, Case{"timestamp('2026-11-24T10:30:15.25Z').getMilliseconds()", "250"}, Case{"timestamp('2026-11-24T10:30:15Z').getMonth()", "10"}, Case{"timestamp('2026-11-24T23:30:15Z').getDate('+01:00')", "25"}, Case{"timestamp('2026-11-24T10:30:15Z').getDayOfWeek()", "2"},
    Case{"timestamp('2026-11-24T10:30:15Z').getDayOfYear()", "327"}, Case{"timestamp('2026-11-24T10:30:15Z').getHours('Europe/Paris')", "error: the time zone \"Europe/Paris\" is not known here; UTC and offsets such as +02:00 are"}, Case{"timestamp('2026-11-24T10:00:00Z') + duration('90m')", "2026-11-24T11:30:00Z"},
    Case{"timestamp('2026-11-24T10:00:00Z') - timestamp('2026-11-24T09:00:00Z') == duration('1h')", "true"}, Case{"duration('123.321s').getMilliseconds()", "123321"}, Case{"string(timestamp('2026-11-24T10:30:15.25Z'))", "2026-11-24T10:30:15.25Z"}, Case{"duration('1h30m').getMinutes()", "90"}, Case{"duration('1.5s') < duration('2s')", "true"}, Case{"string(duration('1h0.5s'))", "3600.5s"}, Case{"duration('1 hour')", "error: type conversion error from 'string' to 'google.protobuf.Duration'"},
    Case{"timestamp('soon')", "error: type conversion error from 'string' to 'google.protobuf.Timestamp'"}, Case{"int(timestamp('1970-01-01T00:00:05Z'))", "5"}, Case{"type(duration('1s')) == google.protobuf.Duration", "true"}, Case{"duration('2562047h') + duration('2562047h')", "error: duration overflow"}));

INSTANTIATE_TEST_SUITE_P(Objects, Cel, testing::Values(
    Case{"self.replicas <= 3", "true"}, Case{"has(self.name) && !has(self.missing)", "true"}, Case{"has(self.nothing)", "true"}, Case{"self.missing", "error: no such key: missing"}, Case{"self.name.size() == 5", "true"}, Case{"self.ports.exists(p, p.port == 443 && p.name == 'y')", "true"}, Case{"self.ports.map(p, p.port).sum()", "523"},
    Case{"self.labels['b-c']", "2"}, Case{"self.labels.b__dash__c", "2"}, Case{"self.__namespace__", "n"}, Case{"self.labels.all(k, self.labels[k].matches('^[0-9]$'))", "true"}, Case{"self.ports.all(p, self.ports.exists_one(q, q.name == p.name))", "true"}, Case{"self.flags[0] && !self.flags[1]", "true"}, Case{"self.nothing == null", "true"},
    Case{"has(self.name.x)", "error: no such overload"}, Case{"self == self", "true"}, Case{"self.ports[0] == {'name': 'x', 'port': 80}", "true"}, Case{"'name' in self", "true"}, Case{"oldSelf", "error: no such attribute: oldSelf"}));

INSTANTIATE_TEST_SUITE_P(Mistakes, Cel, testing::Values(
    Case{"", "wrong: ERROR: 1:1: the expression ends too soon"}, Case{"self.", "wrong: ERROR: 1:6: the name of a field is expected"}, Case{"foo", "wrong: ERROR: 1:1: undeclared reference to 'foo'"}, Case{"self.foo(1)", "wrong: ERROR: 1:6: undeclared reference to 'foo'"}, Case{"1 +\n  bar", "wrong: ERROR: 2:3: undeclared reference to 'bar'"},
    Case{"size(1, 2)", "wrong: ERROR: 1:1: found no matching overload for 'size' with 2 arguments"}, Case{"has(self)", "wrong: ERROR: 1:1: invalid argument to has() macro"}, Case{"[1].all(x)", "wrong: ERROR: 1:10: \",\" is expected"}, Case{"self.?a", "wrong: ERROR: 1:6: optional values are not supported"},
    Case{"1 = 1", "wrong: ERROR: 1:3: unexpected character \"=\""}, Case{"[1].all(x, x > 0) && x", "wrong: ERROR: 1:22: undeclared reference to 'x'"}, Case{"quantity('1Gi')", "wrong: ERROR: 1:1: undeclared reference to 'quantity'"}, Case{"for", "wrong: ERROR: 1:1: \"for\" is a word of the language"}, Case{"1 // a remark", "1"}));

TEST(CelProgram, EndsAndIsBounded) {
  EXPECT_THAT(run("[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, [1,2,3,4,5,6,7,8,9,10].all(f, true))))))"), HasSubstr("cost limit exceeded"));
  std::string doubled = "'0123456789'";
  for (int i = 0; i < 60; ++i) doubled = "[" + doubled + "].map(x, x + x)[0]";
  EXPECT_THAT(run(doubled), HasSubstr("cost limit exceeded"));
  EXPECT_THAT(run(std::string(1'000, '(') + "1" + std::string(1'000, ')')), HasSubstr("too deep"));
  EXPECT_THAT(run(std::string(1'000, '!') + "true"), HasSubstr("too deep"));
  EXPECT_THAT(run(std::string(20'000, ' ') + "1"), HasSubstr("at most 16384 bytes"));
  std::string row = "1";
  for (int i = 0; i < 2'000; ++i) row += "+1";
  EXPECT_THAT(run(row), HasSubstr("too long"));
  std::int64_t budget = 100;
  const auto program = Program::compile("1 + 1", {});
  ASSERT_TRUE(program);
  ASSERT_TRUE(program->run({}, budget));
  EXPECT_EQ(budget, 97);
}

// The schema knows what JSON does not.
TEST(CelProgram, ShapesTellTypes) {
  struct Fields : Shape {
    Kind kind = Kind::Plain;
    std::map<std::string, const Shape*, std::less<>> members;
    const Shape* items = nullptr;
    Kind shape_kind() const override { return kind; }
    const Shape* shape_of(std::string_view member) const override {
      const auto found = members.find(member);
      return found == members.end() ? nullptr : found->second;
    }
    const Shape* shape_of_items() const override { return items; }
  };
  Fields number, time, duration, root;
  number.kind = Shape::Kind::Double, time.kind = Shape::Kind::Timestamp, duration.kind = Shape::Kind::Duration;
  root.members = {{"ratio", &number}, {"at", &time}, {"for", &duration}};
  for (const auto& [text, want] : std::vector<std::pair<const char*, const char*>>{{"self.ratio / 4.0", "0.5d"}, {"self.replicas / 2", "1"}, {"self.at + self.__for__", "2026-11-24T12:00:15.250Z"}, {"self.at.getMinutes()", "30"}, {"self.name + '!'", "train!"}}) {
    auto program = Program::compile(text, {"self"});
    ASSERT_TRUE(program) << text << program.error().message;
    std::int64_t budget = usual_budget;
    auto value = program->run({{"self", Value::of_json(self, &root)}}, budget);
    ASSERT_TRUE(value) << text << value.error().message;
    EXPECT_EQ(shown(*value).substr(0, 19), std::string(want).substr(0, 19)) << text;
  }
}

TEST(CelProgram, SaysWhatItUses) {
  EXPECT_TRUE(Program::compile("self.a == oldSelf.a", {"self", "oldSelf"})->uses("oldSelf"));
  EXPECT_FALSE(Program::compile("self.oldSelf == 1", {"self", "oldSelf"})->uses("oldSelf"));
}

TEST(CelDuration, IsReadAsGoReadsIt) {
  EXPECT_EQ(parse_duration("1h30m5.5s")->count(), 5'405'500'000'000);
  EXPECT_EQ(parse_duration("-1.5ms")->count(), -1'500'000);
  EXPECT_EQ(parse_duration("0")->count(), 0);
  EXPECT_EQ(parse_duration("2562047h47m16.854775807s")->count(), std::numeric_limits<std::int64_t>::max());
  for (const char* bad : {"", "5", "h", "1 h", "1.2.3s", "1d", "2562048h", "99999999999999999999999999999999999999999h", "-", ".s"}) EXPECT_FALSE(parse_duration(bad)) << bad;
}

}  // namespace
}  // namespace fairlead::cel
