// SPDX-License-Identifier: Apache-2.0
// Conditions of policies, judged on what is known of a request. Pure. Rules: docs.aws.amazon.com, "IAM JSON policy elements: Condition operators" and "... variables and tags".
#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "iam/policy.h"

namespace fairlead::iam {

// Unknown never permits: as part of an Allow it counts as No, as part of a Deny as Yes.
enum class Truth : std::uint8_t { No, Unknown, Yes };
inline Truth both(Truth a, Truth b) { return a < b ? a : b; }
inline Truth opposite(Truth of) { return of == Truth::Unknown ? of : of == Truth::Yes ? Truth::No : Truth::Yes; }

// Condition keys of one request with their values. A key without a value is not there.
class Keys {
 public:
  void set(std::string_view key, std::vector<std::string> values);       // empty: takes it away
  void set_default(std::string_view key, std::string value);             // unless it is there
  const std::vector<std::string>* find(const std::string& lookup) const; // by its name in lower case; nullptr: not there

 private:
  std::map<std::string, std::vector<std::string>> values_;  // by name in lower case
};

// Is this (in lower case) a key that requests may have? A key that is neither known nor in the request is a slip of the pen or a rule that nobody here can judge: Unknown, whatever the operator.
bool known_key(std::string_view lookup);
// One that every call has (when, over what, in whose account): where its value is not given it is Unknown, not missing.
bool in_every_call(std::string_view lookup);

// Longer values of a call, and more of one key, are not compared: Unknown.
inline constexpr std::size_t most_value_bytes = 2048, most_values = 256;

// A text of a policy with its variables replaced by values of the request, ready to be compared. A value stands for itself: a * that comes from a variable is a star, not a wildcard.
class Pattern {
 public:
  // No variables: `variables` is false, or there are none in the text.
  static Pattern literal(std::string_view text);
  bool matches(std::string_view text) const;  // * and ? of the policy's author are wildcards
  bool equals(std::string_view text, bool without_case = false) const;   // they are characters
  std::string text() const;

 private:
  friend struct Expanded expand(std::string_view, const Keys&, bool);
  std::u16string units_;  // a byte each; from 0x100 on wildcards
};
struct Expanded {
  std::optional<Pattern> pattern;
  bool unknown = false;  // no pattern, and it is not even known whether there should be one; else a variable has no value: nothing matches
};
// ${key}, ${key, 'otherwise'}, ${*}, ${?}, ${$}.
Expanded expand(std::string_view text, const Keys& keys, bool variables);

// The six fields of an ARN are compared one by one, so that * never reaches over a colon before the resource; a field that the pattern leaves out is *. `arn` "*" (a call about no resource) matches "*" alone.
Truth arn_matches(std::string_view pattern, std::string_view arn, const Keys& keys, bool variables);
// ... and as one text too: AWS lets a * at the end of a field of a Resource reach over colons. For what takes away (Deny with Resource, Allow with NotResource); what gives is matched the narrow way.
Truth arn_matches_widely(std::string_view pattern, std::string_view arn, const Keys& keys, bool variables);

Truth judge(const Condition& condition, const Keys& keys, bool variables);

// What a value of this operator has to be, where `value` is not that; empty: it is well formed, or has a variable.
std::string_view expected_value(Compare compare, std::string_view value);

}  // namespace fairlead::iam
