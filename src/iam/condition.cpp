// SPDX-License-Identifier: Apache-2.0
#include "iam/condition.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/clock.h"

namespace fairlead::iam {

namespace {

constexpr char16_t any_text = 0x100, any_one = 0x101;

char16_t unit(char c) { return static_cast<unsigned char>(c); }
char16_t fold(char16_t c) { return c >= u'A' && c <= u'Z' ? static_cast<char16_t>(c - u'A' + u'a') : c; }

std::optional<double> read_number(std::string_view text) {
  double out = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(out)) return std::nullopt;
  return out;
}

// A date of ISO 8601, with or without time, or seconds since 1970.
std::optional<Instant> read_date(std::string_view text) {
  if (!text.empty() && text.size() <= 10 && text.find_first_not_of("0123456789") == text.npos) {
    std::int64_t seconds = 0;
    std::from_chars(text.data(), text.data() + text.size(), seconds);
    if (text.size() > 4) return Instant{std::chrono::seconds(std::min<std::int64_t>(seconds, 9'000'000'000))};  // nanoseconds end in 2262; four digits are a year
  }
  std::string whole(text);  // W3C's forms of ISO 8601: what is left out is the first
  if (whole.size() == 4) whole += "-01";
  if (whole.size() == 7) whole += "-01";
  if (whole.size() == 10) whole += "T00:00:00Z";
  if (whole.size() >= 17 && whole[13] == ':' && whole[16] != ':') whole.insert(16, ":00");
  if (whole.size() > 4 && whole[4] == '-' && whole.substr(0, 4) > "2200" && whole.find_first_not_of("0123456789") == 4) return Instant{std::chrono::seconds(9'000'000'000)};  // "never"
  auto out = parse_time(whole);
  if (!out) return std::nullopt;
  return *out;
}

struct Range {
  int family = 0;
  std::array<unsigned char, 16> bytes{};
  int bits = 0;
};
std::optional<Range> read_range(std::string_view text) {
  Range out;
  const std::size_t slash = text.find('/');
  const std::string address(text.substr(0, slash));
  if (address.size() != std::strlen(address.c_str())) return std::nullopt;
  for (const int family : {AF_INET, AF_INET6})
    if (::inet_pton(family, address.c_str(), out.bytes.data()) == 1) out.family = family;
  if (out.family == 0) return std::nullopt;
  if (out.family == AF_INET6 && slash == text.npos && std::all_of(out.bytes.begin(), out.bytes.begin() + 10, [](unsigned char c) { return c == 0; }) && out.bytes[10] == 0xff && out.bytes[11] == 0xff) {  // ::ffff:10.0.0.1
    out.family = AF_INET;
    std::copy(out.bytes.begin() + 12, out.bytes.end(), out.bytes.begin());
  }
  const int most = out.family == AF_INET ? 32 : 128;
  out.bits = most;
  if (slash != text.npos) {
    const std::string_view bits = text.substr(slash + 1);
    const auto [end, error] = std::from_chars(bits.data(), bits.data() + bits.size(), out.bits);
    if (error != std::errc() || end != bits.data() + bits.size() || bits.empty() || out.bits < 0 || out.bits > most) return std::nullopt;
  }
  return out;
}
bool within(const Range& inner, const Range& outer) {
  if (inner.family != outer.family || inner.bits < outer.bits) return false;
  for (int bit = 0; bit < outer.bits; ++bit)
    if (((inner.bytes[static_cast<std::size_t>(bit / 8)] ^ outer.bytes[static_cast<std::size_t>(bit / 8)]) >> (7 - bit % 8) & 1) != 0) return false;
  return true;
}

template <class T>
bool compares(Compare how, const T& given, const T& wanted) {
  switch (how) {
    case Compare::NumericLessThan:
    case Compare::DateLessThan: return given < wanted;
    case Compare::NumericLessThanEquals:
    case Compare::DateLessThanEquals: return given <= wanted;
    case Compare::NumericGreaterThan:
    case Compare::DateGreaterThan: return given > wanted;
    case Compare::NumericGreaterThanEquals:
    case Compare::DateGreaterThanEquals: return given >= wanted;
    default: return given == wanted;
  }
}

Truth said(bool yes) { return yes ? Truth::Yes : Truth::No; }

template <class Read>
Truth compare_read(Compare how, Read read, std::string_view given, std::string_view wanted) {
  const auto a = read(given), b = read(wanted);
  return !a || !b ? Truth::Unknown : said(compares(how, *a, *b));
}

// One value of the request, one of the policy.
Truth compare_one(const Condition& condition, std::string_view given, const std::string& wanted, const Keys& keys, bool variables) {
  if (condition.compare == Compare::Arn) return given.starts_with("arn:") && std::count(given.begin(), given.end(), ':') >= 5 ? arn_matches(wanted, given, keys, variables) : Truth::Unknown;
  const Expanded expanded = expand(wanted, keys, variables);
  if (!expanded.pattern) return expanded.unknown ? Truth::Unknown : Truth::No;
  switch (condition.compare) {
    case Compare::StringEquals:
    case Compare::Binary: return said(expanded.pattern->equals(given));
    case Compare::StringEqualsIgnoreCase: return said(expanded.pattern->equals(given, true));
    case Compare::StringLike: return said(expanded.pattern->matches(given));
    case Compare::Bool: {
      const std::string a = lower(given), b = lower(expanded.pattern->text());
      return (a != "true" && a != "false") || (b != "true" && b != "false") ? Truth::Unknown : said(a == b);
    }
    case Compare::IpAddress: {
      const auto inner = read_range(given), outer = read_range(expanded.pattern->text());
      return !inner || !outer || given.find('/') != given.npos ? Truth::Unknown : said(within(*inner, *outer));
    }
    case Compare::DateEquals:
    case Compare::DateLessThan:
    case Compare::DateLessThanEquals:
    case Compare::DateGreaterThan:
    case Compare::DateGreaterThanEquals: return compare_read(condition.compare, read_date, given, expanded.pattern->text());
    default: return compare_read(condition.compare, read_number, given, expanded.pattern->text());
  }
}

// One value of the request: is it (not) one of the policy's?
Truth judge_value(const Condition& condition, std::string_view given, const Keys& keys, bool variables) {
  Truth best = Truth::No;
  bool lacking = false;
  for (const std::string& wanted : condition.values) {
    best = std::max(best, compare_one(condition, given, wanted, keys, variables));
    if (condition.negated && variables && wanted.find("${") != wanted.npos && !expand(wanted, keys, true).pattern) lacking = true;
  }
  if (lacking && best == Truth::No) return Truth::Unknown;  // "not equal to something that has no value" says nothing
  return condition.negated ? opposite(best) : best;
}

// Keys of requests, in lower case; with a slash or dot at the end: what begins so. Sources: "AWS global condition context keys" and the tables of "Actions, resources, and condition keys" of the services that Fairlead speaks for.
constexpr std::string_view known_keys[] = {
    "aws:calledvia", "aws:calledviafirst", "aws:calledvialast", "aws:currenttime", "aws:ec2instancesourceprivateipv4", "aws:ec2instancesourcevpc", "aws:epochtime", "aws:federatedprovider", "aws:multifactorauthage", "aws:multifactorauthpresent", "aws:principalaccount",
    "aws:principalarn", "aws:principalisawsservice", "aws:principalorgid", "aws:principalorgpaths", "aws:principalservicename", "aws:principalservicenameslist", "aws:principaltag/", "aws:principaltype", "aws:referer", "aws:requestedregion", "aws:requesttag/", "aws:resourceaccount",
    "aws:resourceorgid", "aws:resourceorgpaths", "aws:resourcetag/", "aws:securetransport", "aws:sourceaccount", "aws:sourcearn", "aws:sourceidentity", "aws:sourceip", "aws:sourceowner", "aws:sourceorgid", "aws:sourceorgpaths", "aws:sourcevpc", "aws:sourcevpce", "aws:tagkeys",
    "aws:tokenissuetime", "aws:useragent", "aws:userid", "aws:username", "aws:viaawsservice", "aws:vpcsourceip",
    "cloudwatch:namespace", "ec2:attribute/", "ec2:availabilityzone", "ec2:createaction", "ec2:encrypted", "ec2:instancetype", "ec2:kmskeyid", "ec2:parentsnapshot", "ec2:parentvolume", "ec2:region", "ec2:resourcetag/", "ec2:snapshotid", "ec2:volumeid", "ec2:volumeiops", "ec2:volumesize", "ec2:volumethroughput", "ec2:volumetype",
    "eks:accessentrytype", "eks:accessscope", "eks:clustername", "eks:namespaces", "eks:policyarn", "eks:principalarn", "eks:kubernetesgroups", "eks:username",
    "iam:awsservicename", "iam:passedtoservice", "iam:permissionsboundary", "iam:policyarn", "iam:associatedresourcearn", "iam:resourcetag/",
    "kms:bypasspolicylockoutsafetycheck", "kms:calleraccount", "kms:encryptioncontext:", "kms:encryptioncontextkeys", "kms:encryptionalgorithm", "kms:granteeprincipal", "kms:grantconstrainttype", "kms:grantisforawsresource", "kms:grantoperations", "kms:keyorigin", "kms:keyspec", "kms:keyusage",
    "kms:multiregion", "kms:requestalias", "kms:resourcealiases", "kms:retiringprincipal", "kms:viaservice",
    "s3:authtype", "s3:delimiter", "s3:existingobjecttag/", "s3:max-keys", "s3:prefix", "s3:requestobjecttag/", "s3:resourceaccount", "s3:signatureage", "s3:signatureversion", "s3:tlsversion", "s3:versionid", "s3:x-amz-acl", "s3:x-amz-content-sha256", "s3:x-amz-server-side-encryption",
    "sagemaker:instancetypes", "sagemaker:imagearns", "sagemaker:resourcetag/", "sagemaker:volumekmskey", "sagemaker:vpcsecuritygroupids", "sagemaker:vpcsubnets", "sagemaker:taggingaction", "sagemaker:enableremotedebug",
    "secretsmanager:name", "secretsmanager:resource/", "secretsmanager:resourcetag/", "secretsmanager:secretid", "secretsmanager:versionid", "secretsmanager:versionstage",
    "sns:endpoint", "sns:protocol", "sts:awsservicename", "sts:externalid", "sts:rolesessionname", "sts:sourceidentity", "sts:transitivetagkeys", "sts:durationseconds"};

}  // namespace

void Keys::set(std::string_view key, std::vector<std::string> values) {
  if (values.empty()) values_.erase(lower(key));
  else values_.insert_or_assign(lower(key), std::move(values));
}

void Keys::set_default(std::string_view key, std::string value) { values_.try_emplace(lower(key), std::vector{std::move(value)}); }

const std::vector<std::string>* Keys::find(const std::string& lookup) const {
  const auto at = values_.find(lookup);
  return at == values_.end() ? nullptr : &at->second;
}

bool in_every_call(std::string_view lookup) {
  for (const std::string_view one : {"aws:currenttime", "aws:epochtime", "aws:principalarn", "aws:resourceaccount", "aws:securetransport", "aws:viaawsservice"})
    if (lookup == one) return true;
  return false;
}

bool known_key(std::string_view lookup) {
  // Of identity providers: "oidc.eks.us-east-1.amazonaws.com/id/x:sub".
  if (const std::size_t colon = lookup.rfind(':'); colon != lookup.npos && lookup.substr(0, colon).find('.') != lookup.npos && (lookup.substr(colon) == ":aud" || lookup.substr(colon) == ":sub" || lookup.substr(colon) == ":amr")) return true;
  return std::any_of(std::begin(known_keys), std::end(known_keys), [&](std::string_view one) {
    const bool family = one.back() == '/' || one.back() == ':';
    return family ? lookup.starts_with(one) && lookup.size() > one.size() : lookup == one;
  });
}

Pattern Pattern::literal(std::string_view text) {
  Pattern out;
  for (const char c : text) out.units_.push_back(c == '*' ? any_text : c == '?' ? any_one : unit(c));
  return out;
}

std::string Pattern::text() const {
  std::string out;
  for (const char16_t c : units_) out += c == any_text ? '*' : c == any_one ? '?' : static_cast<char>(c);
  return out;
}

bool Pattern::equals(std::string_view text, bool without_case) const {
  if (text.size() != units_.size()) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char16_t want = units_[i] == any_text ? u'*' : units_[i] == any_one ? u'?' : units_[i];
    if (without_case ? fold(want) != fold(unit(text[i])) : want != unit(text[i])) return false;
  }
  return true;
}

bool Pattern::matches(std::string_view text) const { return match_units<char16_t>(units_, text, any_text, any_one); }

Expanded expand(std::string_view text, const Keys& keys, bool variables) {
  if (!variables || text.find("${") == text.npos) return {Pattern::literal(text), false};
  Pattern out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.substr(at).starts_with("${") ? text.find('}', at) : text.npos;
    if (end == text.npos) {
      out.units_ += Pattern::literal(text.substr(at++, 1)).units_;
      continue;
    }
    std::string_view inside = text.substr(at + 2, end - at - 2);
    at = end + 1;
    if (inside == "*" || inside == "?" || inside == "$") {
      out.units_.push_back(unit(inside.front()));
      continue;
    }
    std::optional<std::string_view> otherwise;
    if (const std::size_t comma = inside.find(','); comma != inside.npos) {
      std::string_view rest = inside.substr(comma + 1);
      while (rest.starts_with(' ')) rest.remove_prefix(1);
      while (rest.ends_with(' ')) rest.remove_suffix(1);
      if (rest.size() < 2 || rest.front() != '\'' || rest.back() != '\'') return {std::nullopt, true};
      otherwise = rest.substr(1, rest.size() - 2);
      inside = inside.substr(0, comma);
    }
    const std::string lookup = lower(inside);
    const std::vector<std::string>* values = keys.find(lookup);
    if (values == nullptr && !known_key(lookup)) return {std::nullopt, true};
    if (values != nullptr && (values->size() != 1 || values->front().size() > most_value_bytes)) return {std::nullopt, true};  // which of them?
    if (values == nullptr && in_every_call(lookup)) return {std::nullopt, true};
    if (values == nullptr && !otherwise) return {std::nullopt, false};
    if (out.units_.size() > 65'536) return {std::nullopt, true};
    for (const char c : values != nullptr ? std::string_view(values->front()) : *otherwise) out.units_.push_back(unit(c));
  }
  return {std::move(out), false};
}

namespace {

// A text with variables. Where one cannot be told, what stands before it has to fit all the same.
Truth matches_expanded(std::string_view pattern, std::string_view text, const Keys& keys) {
  const Expanded expanded = expand(pattern, keys, true);
  if (expanded.pattern) return said(expanded.pattern->matches(text));
  return expanded.unknown && glob_matches(std::string(pattern.substr(0, pattern.find("${"))) + "*", text) ? Truth::Unknown : Truth::No;
}

}  // namespace

Truth arn_matches(std::string_view pattern, std::string_view arn, const Keys& keys, bool variables) {
  if (pattern == "*") return Truth::Yes;
  if (arn.size() > most_value_bytes) return Truth::Unknown;
  if (!arn.starts_with("arn:")) {  // only a pattern that begins with a variable could still be meant
    if (!pattern.starts_with("${")) return Truth::No;
    const Expanded whole = expand(pattern, keys, variables);
    return whole.pattern ? said(whole.pattern->equals(arn)) : whole.unknown ? Truth::Unknown : Truth::No;
  }
  // A pattern that begins with a variable stands for a whole ARN.
  if (pattern.starts_with("${")) {
    const Expanded whole = expand(pattern, keys, variables);
    return whole.pattern ? said(whole.pattern->matches(arn)) : whole.unknown ? Truth::Unknown : Truth::No;
  }
  Truth out = Truth::Yes;
  for (int field = 0; field < 6; ++field) {
    // The end of this field: a colon that is in no variable. The last field has the rest.
    std::size_t end = 0;
    bool inside = false;
    for (; end < pattern.size(); ++end) {
      if (variables && pattern.substr(end).starts_with("${")) inside = true;
      if (pattern[end] == '}') inside = false;
      if (field < 5 && pattern[end] == ':' && !inside) break;
    }
    const std::string_view want = pattern.substr(0, end);
    const std::size_t colon = field < 5 ? arn.find(':') : arn.npos;
    if (field < 5 && colon == arn.npos) return Truth::No;  // not a whole ARN
    const std::string_view given = arn.substr(0, colon);
    const bool ends = end >= pattern.size();
    if (!variables || want.find("${") == want.npos) {
      out = both(out, said(glob_matches(want, given)));
    } else {
      out = both(out, matches_expanded(want, given, keys));
    }
    if (out == Truth::No || ends) return out;  // fields that are left out are any
    pattern.remove_prefix(end + 1);
    if (field < 5) arn.remove_prefix(colon + 1);
  }
  return out;
}

Truth arn_matches_widely(std::string_view pattern, std::string_view arn, const Keys& keys, bool variables) {
  const Truth narrow = arn_matches(pattern, arn, keys, variables);
  if (narrow == Truth::Yes || !arn.starts_with("arn:") || arn.size() > most_value_bytes) return narrow;
  return std::max(narrow, variables ? matches_expanded(pattern, arn, keys) : said(glob_matches(pattern, arn)));
}

Truth judge(const Condition& condition, const Keys& keys, bool variables) {
  const std::vector<std::string>* given = keys.find(condition.lookup);
  if (given == nullptr && (!known_key(condition.lookup) || in_every_call(condition.lookup))) return Truth::Unknown;
  if (condition.values.empty()) return Truth::Unknown;
  if (given != nullptr && (given->size() > most_values || std::any_of(given->begin(), given->end(), [](const std::string& value) { return value.size() > most_value_bytes; }))) return Truth::Unknown;
  // For what asks about all or any of a key's values, and whether it is there, an empty text is no value.
  if (given != nullptr && (condition.quantifier != Quantifier::One || condition.compare == Compare::Null) && std::all_of(given->begin(), given->end(), [](const std::string& value) { return value.empty(); })) given = nullptr;
  if (condition.compare == Compare::Null) {
    bool yes = false;
    for (const std::string& value : condition.values) yes = yes || (lower(value) == "true") == (given == nullptr);
    return said(yes);
  }
  if (given == nullptr) {
    if (condition.if_exists || condition.quantifier == Quantifier::ForAllValues) return Truth::Yes;
    return said(condition.negated && condition.quantifier == Quantifier::One);
  }
  Truth least = Truth::Yes, most = Truth::No;
  for (const std::string& value : *given) {
    if (value.empty() && condition.quantifier != Quantifier::One) continue;
    const Truth one = judge_value(condition, value, keys, variables);
    least = std::min(least, one), most = std::max(most, one);
  }
  if (condition.quantifier == Quantifier::ForAllValues) return least;
  if (condition.quantifier == Quantifier::ForAnyValue) return most;
  return least == most ? least : Truth::Unknown;  // several values, and the policy does not say which of them it means
}

std::string_view expected_value(Compare compare, std::string_view value) {
  if ((compare == Compare::Bool || compare == Compare::Null) && lower(value) != "true" && lower(value) != "false") return value.find("${") != value.npos && compare == Compare::Bool ? "" : "true or false";
  if (value.find("${") != value.npos) return {};
  switch (compare) {
    case Compare::NumericEquals:
    case Compare::NumericLessThan:
    case Compare::NumericLessThanEquals:
    case Compare::NumericGreaterThan:
    case Compare::NumericGreaterThanEquals: return read_number(value) ? "" : "a number";
    case Compare::DateEquals:
    case Compare::DateLessThan:
    case Compare::DateLessThanEquals:
    case Compare::DateGreaterThan:
    case Compare::DateGreaterThanEquals: return read_date(value) ? "" : "a time such as 2026-01-31T12:00:00Z, or seconds since 1970,";
    case Compare::IpAddress: return read_range(value) ? "" : "an address or range such as 10.0.0.0/8 or 2001:db8::/32";
    case Compare::Arn: return value == "*" || value.starts_with("arn:") ? "" : "an ARN or \"*\"";
    default: return {};
  }
}

}  // namespace fairlead::iam
