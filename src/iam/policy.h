// SPDX-License-Identifier: Apache-2.0
// Policy documents in the grammar of AWS IAM (docs.aws.amazon.com, "Grammar of the IAM JSON policy language"), read once into values. Pure. docs/design/048-iam-policies.md.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/result.h"

namespace fairlead::iam {

enum class Effect : std::uint8_t { Allow, Deny };
// What a document is attached to: an identity (it names no principal), or a resource such as a key or a role's trust (it has to).
enum class PolicyKind : std::uint8_t { Identity, Resource };

struct Principal {
  enum class Type : std::uint8_t { Everyone, Aws, Service, Federated, Canonical };
  Type type = Type::Everyone;
  std::string value;  // Aws: an ARN, or the twelve digits of an account; Service: "ec2.amazonaws.com"
  friend bool operator==(const Principal&, const Principal&) = default;
};

enum class Compare : std::uint8_t { StringEquals, StringEqualsIgnoreCase, StringLike, NumericEquals, NumericLessThan, NumericLessThanEquals, NumericGreaterThan, NumericGreaterThanEquals, DateEquals, DateLessThan, DateLessThanEquals, DateGreaterThan, DateGreaterThanEquals, Bool, Binary, IpAddress, Arn, Null };
enum class Quantifier : std::uint8_t { One, ForAllValues, ForAnyValue };
struct Condition {
  std::string operation;  // as it is written: "ForAnyValue:StringNotLikeIfExists"
  Compare compare = Compare::StringEquals;
  bool negated = false, if_exists = false;
  Quantifier quantifier = Quantifier::One;
  std::string key, lookup;  // as it is written; in lower case, as it is looked up
  std::vector<std::string> values;
  friend bool operator==(const Condition&, const Condition&) = default;
};

struct Statement {
  std::string sid;
  Effect effect = Effect::Deny;
  bool not_principals = false, not_actions = false, not_resources = false;  // NotPrincipal, NotAction, NotResource
  std::vector<Principal> principals;         // of documents of resources
  std::vector<std::string> actions, resources;
  std::vector<Condition> conditions;
  friend bool operator==(const Statement&, const Statement&) = default;
};

struct Policy {
  std::string id;
  bool variables = false;  // Version 2012-10-17: ${...} stands for a value of the request
  std::vector<Statement> statements;
  friend bool operator==(const Policy&, const Policy&) = default;
};

inline constexpr std::size_t most_policy_bytes = 256 << 10, most_statements = 5'000;
// Invalid: the element, what stands there and what is expected. Whatever is not in the grammar is refused: a document that is only half understood must not decide. Actions that nobody knows are not refused (real documents have them).
Result<Policy> read_policy(std::string_view json, PolicyKind kind);

// `pattern` with * (any characters) and ? (one, of UTF-8). O(text x text) at worst: a pattern that asks for more than the text has is refused at once.
bool glob_matches(std::string_view pattern, std::string_view text);
std::string lower(std::string_view text);  // of ASCII
bool is_account(std::string_view text);    // twelve digits
// A field of an ARN, counted from 0: 4 is the account, 5 the resource, with all that follows. Empty where there is none.
std::string_view arn_field(std::string_view arn, int field);

// glob_matches on units of any width, of which two are the wildcards. One star at a time: what fails goes back to the last.
template <class Unit>
bool match_units(std::basic_string_view<Unit> pattern, std::string_view text, Unit star, Unit one) {
  if (pattern.size() > text.size()) {
    std::size_t wanted = 0;
    for (const Unit c : pattern) wanted += c != star;
    if (wanted > text.size()) return false;
  }
  std::size_t p = 0, t = 0, back = pattern.npos, from = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == star) {
      back = p++, from = t;
    } else if (p < pattern.size() && pattern[p] == one) {
      ++p, ++t;
      while (t < text.size() && (static_cast<unsigned char>(text[t]) & 0xC0) == 0x80) ++t;  // one character, however many bytes
    } else if (p < pattern.size() && pattern[p] == static_cast<Unit>(static_cast<std::make_unsigned_t<Unit>>(static_cast<unsigned char>(text[t])))) {
      ++p, ++t;
    } else if (back != pattern.npos) {
      p = back + 1, t = ++from;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == star) ++p;
  return p == pattern.size();
}

}  // namespace fairlead::iam
