// SPDX-License-Identifier: Apache-2.0
// Names of objects and labels. Rules and wording: k8s.io/apimachinery/pkg/util/validation, which users know from kubectl.
#include <fmt/format.h>

#include "base/encoding.h"
#include "kube/selector.h"

namespace fairlead::kube {

namespace {

constexpr std::string_view label_rule =
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
constexpr std::string_view subdomain_rule =
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for "
    "validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
constexpr std::string_view name_rule =
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
constexpr std::string_view value_rule =
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or "
    "'12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

bool lower_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }
bool letter_or_digit(char c) { return lower_or_digit(c) || (c >= 'A' && c <= 'Z'); }

// The end characters by one rule, those between by that rule or one of `more`.
bool well_formed(std::string_view text, bool (*ends)(char), std::string_view more) {
  if (text.empty() || !ends(text.front()) || !ends(text.back())) return false;
  for (const char c : text)
    if (!ends(c) && more.find(c) == std::string_view::npos) return false;
  return true;
}

bool is_subdomain(std::string_view text) {
  for (const std::string& label : split(text, '.'))
    if (!well_formed(label, lower_or_digit, "-")) return false;
  return true;
}

void add(std::string& all, std::string_view prefix, std::string_view message) {
  if (!all.empty()) all += "; ";
  all.append(prefix).append(message);
}
void check_length(std::string& all, std::string_view prefix, std::string_view text, std::size_t limit) {
  if (text.size() > limit) add(all, prefix, fmt::format("must be no more than {} characters", limit));
}

}  // namespace

std::string check_dns_label(std::string_view text) {
  std::string wrong;
  check_length(wrong, "", text, 63);
  if (!well_formed(text, lower_or_digit, "-")) add(wrong, "", is_subdomain(text) ? "must not contain dots" : label_rule);
  return wrong;
}

std::string check_dns_subdomain(std::string_view text) {
  std::string wrong;
  check_length(wrong, "", text, 253);
  if (!is_subdomain(text)) add(wrong, "", subdomain_rule);
  return wrong;
}

std::string check_label_key(std::string_view text) {
  std::string wrong;
  const auto slash = text.find('/');
  if (slash != std::string_view::npos && text.find('/', slash + 1) != std::string_view::npos)
    return fmt::format("a qualified name {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')", name_rule);
  if (slash == 0) {
    add(wrong, "prefix part ", "must be non-empty");
  } else if (slash != std::string_view::npos) {
    const std::string_view prefix = text.substr(0, slash);
    check_length(wrong, "prefix part ", prefix, 253);
    if (!is_subdomain(prefix)) add(wrong, "prefix part ", subdomain_rule);
  }
  const std::string_view name = slash == std::string_view::npos ? text : text.substr(slash + 1);
  if (name.empty()) add(wrong, "name part ", "must be non-empty");
  check_length(wrong, "name part ", name, 63);
  if (!well_formed(name, letter_or_digit, "-_.")) add(wrong, "name part ", name_rule);
  return wrong;
}

std::string check_label_value(std::string_view text) {
  std::string wrong;
  check_length(wrong, "", text, 63);
  if (!text.empty() && !well_formed(text, letter_or_digit, "-_.")) add(wrong, "", value_rule);
  return wrong;
}

}  // namespace fairlead::kube
