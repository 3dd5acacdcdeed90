// SPDX-License-Identifier: Apache-2.0
// Label selectors ("a=b,c!=d,e in (x,y),f notin (z),g,!h"), field selectors ("spec.nodeName=x,status.phase!=Failed"), LabelSelector objects and quantities.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kube/json.h"

namespace fairlead::kube {

using Labels = std::map<std::string, std::string>;

class LabelSelector {
 public:
  static Result<LabelSelector> parse(std::string_view text);      // "" matches everything
  // metav1.LabelSelector {matchLabels, matchExpressions}; {} matches everything, null nothing, as in Kubernetes.
  static Result<LabelSelector> from_object(const Json& selector);
  bool matches(const Labels& labels) const;
  bool matches(const Json& labels_object) const;
  bool empty() const { return terms_.empty(); }
  std::string text() const;

 private:
  friend struct LabelSelectorParser;
  enum class Op { In, NotIn, Exists, DoesNotExist, GreaterThan, LessThan };
  struct Term {
    std::string key;
    Op op;
    std::vector<std::string> values;
  };
  std::vector<Term> terms_;
};

class FieldSelector {
 public:
  static Result<FieldSelector> parse(std::string_view text);  // =, ==, != ; \, \= \\ escaped
  struct Term {
    std::string field, value;
    bool equal = true;
  };
  const std::vector<Term>& terms() const { return terms_; }
  // The value of a field is read as a string ("" if absent; booleans as true/false).
  bool matches(const Json& object) const;

 private:
  std::vector<Term> terms_;
};

// resource.Quantity: "100m", "1.5", "2Gi", "1e3". Kept exact in nano units within +-1e38 (more is Invalid); below a nano unit it is rounded away from
// zero, and binary ones above 2^63-1 are cut to that, as apimachinery does.
class Quantity {
 public:
  static Result<Quantity> parse(std::string_view text);
  static Result<Quantity> from_json(const Json& value);  // a string or a number
  std::int64_t value() const;        // rounded away from zero to whole units, saturating (bytes, counts)
  std::int64_t milli_value() const;  // rounded away from zero to thousandths, saturating (CPU)
  std::string text() const;          // canonical form in the suffix family it was written in
  static Quantity count(std::int64_t units);
  Quantity whole() const;            // rounded up to units
  Quantity capped() const;           // within +-(2^63-1) units: ten thousand million of those can be added up
  // Sums keep the suffix family of the left side, and take that of the right one while they are zero, as apimachinery's.
  Quantity& operator+=(const Quantity& other);
  Quantity& operator-=(const Quantity& other);
  bool is_zero() const { return nanos_ == 0; }
  bool is_negative() const { return nanos_ < 0; }
  friend bool operator==(const Quantity& a, const Quantity& b) { return a.nanos_ == b.nanos_; }
  friend auto operator<=>(const Quantity& a, const Quantity& b) { return a.nanos_ <=> b.nanos_; }

 private:
  __int128 nanos_ = 0;
  enum class Format { Decimal, Binary, Exponent } format_ = Format::Decimal;
};

// Names: RFC 1123 label and subdomain, label keys and values, as apimachinery checks them. The message is what Kubernetes users know; empty: fine.
std::string check_dns_label(std::string_view text);
std::string check_dns_subdomain(std::string_view text);
std::string check_label_key(std::string_view text);
std::string check_label_value(std::string_view text);

}  // namespace fairlead::kube
