// SPDX-License-Identifier: Apache-2.0
// resource.Quantity: grammar, rounding and canonical text of k8s.io/apimachinery/pkg/api/resource.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "kube/selector.h"

namespace fairlead::kube {

namespace {

__extension__ typedef __int128 Wide;

constexpr Wide nano = 1'000'000'000;
constexpr Wide top_binary = Wide(INT64_MAX) * nano;
constexpr std::size_t most_digits = 38;  // of a value in nano units


struct Suffix {
  bool binary = false;
  bool exponent = false;  // written as e3
  int power = 0;          // of ten, or of two
};

std::optional<Suffix> read_suffix(std::string_view text) {
  static constexpr std::string_view decimal = "num kMGTPE", binary = "KMGTPE";
  if (text.empty()) return Suffix{};
  if (text.size() == 1 && text[0] != ' ') {
    if (const auto at = decimal.find(text[0]); at != std::string_view::npos) return Suffix{.power = static_cast<int>(at) * 3 - 9};
  }
  if (text.size() == 2 && text[1] == 'i') {
    if (const auto at = binary.find(text[0]); at != std::string_view::npos) return Suffix{.binary = true, .power = (static_cast<int>(at) + 1) * 10};
  }
  if (text.size() > 1 && (text[0] == 'e' || text[0] == 'E')) {
    text.remove_prefix(text[1] == '+' ? 2 : 1);
    int power = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), power);
    if (!text.empty() && error == std::errc() && end == text.data() + text.size() && power > -1'000'000 && power < 1'000'000) return Suffix{.exponent = true, .power = power};
  }
  return std::nullopt;
}

// whole.part * 10^power in nano units, away from zero; nullopt: too large.
std::optional<Wide> decimal_nanos(std::string_view whole, std::string_view part, int power) {
  std::string digits = std::string(whole) + std::string(part);
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
  if (digits.empty()) return Wide(0);
  const long shift = 9L + power - static_cast<long>(part.size());
  bool rest = false;
  if (shift < 0) {
    const std::size_t cut = std::min(digits.size(), static_cast<std::size_t>(-shift));
    rest = digits.find_first_not_of('0', digits.size() - cut) != std::string::npos;
    digits.resize(digits.size() - cut);
  } else {
    if (digits.size() + static_cast<std::size_t>(shift) > most_digits) return std::nullopt;
    digits.append(static_cast<std::size_t>(shift), '0');
  }
  if (digits.size() > most_digits) return std::nullopt;
  Wide value = 0;
  for (const char c : digits) value = value * 10 + (c - '0');
  return value + (rest ? 1 : 0);
}

// whole.part * 2^power in nano units, away from zero, cut to int64.
Wide binary_nanos(std::string_view whole, std::string_view part, int power) {
  const Wide unit = (Wide(1) << power) * nano;
  Wide count = 0;
  for (const char c : whole) {
    count = count * 10 + (c - '0');
    if (count > (Wide(INT64_MAX) >> power)) return top_binary;
  }
  Wide below = 0;  // digit by digit from the last: floors nest exactly
  bool rest = false;
  for (auto digit = part.rbegin(); digit != part.rend(); ++digit) {
    const Wide sum = unit * (*digit - '0') + below;
    rest = rest || sum % 10 != 0;
    below = sum / 10;
  }
  return std::min(count * unit + below + (rest ? 1 : 0), top_binary);
}

std::string wide_text(Wide value) {
  if (value == 0) return "0";
  std::string out;
  const bool minus = value < 0;
  for (; value != 0; value /= 10) out.insert(out.begin(), static_cast<char>('0' + static_cast<int>(minus ? -(value % 10) : value % 10)));
  return minus ? "-" + out : out;
}

std::int64_t scaled(Wide nanos, Wide by) {
  const Wide rest = nanos % by;
  const Wide value = nanos / by + (rest > 0 ? 1 : rest < 0 ? -1 : 0);
  return value > INT64_MAX ? INT64_MAX : value < INT64_MIN ? INT64_MIN : static_cast<std::int64_t>(value);
}

constexpr const char* wrong_format = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

}  // namespace

Result<Quantity> Quantity::parse(std::string_view text) {
  std::size_t at = 0;
  const auto digits = [&] {
    const std::size_t from = at;
    while (at < text.size() && text[at] >= '0' && text[at] <= '9') ++at;
    return text.substr(from, at - from);
  };
  if (text.empty()) return fail(Code::Invalid, wrong_format);
  const bool minus = text[0] == '-';
  if (minus || text[0] == '+') ++at;
  const std::string_view whole = digits();
  std::string_view part;
  if (at < text.size() && text[at] == '.') {
    ++at;
    part = digits();
  }
  const std::size_t suffix_at = at;
  while (at < text.size() && std::string_view("eEinumkKMGTP").find(text[at]) != std::string_view::npos) ++at;
  if (at < text.size() && (text[at] == '-' || text[at] == '+')) ++at;
  digits();
  if (at != text.size()) return fail(Code::Invalid, wrong_format);
  if (whole.empty() && part.empty()) return fail(Code::Invalid, wrong_format);  // apimachinery reads "Mi" as zero; nobody means that
  const auto suffix = read_suffix(text.substr(suffix_at));
  if (!suffix) return fail(Code::Invalid, "unable to parse quantity's suffix");

  Quantity quantity;
  quantity.format_ = suffix->binary ? Format::Binary : suffix->exponent ? Format::Exponent : Format::Decimal;
  if (suffix->binary) {
    quantity.nanos_ = binary_nanos(whole, part, suffix->power);
    if (quantity.nanos_ < nano) quantity.format_ = Format::Decimal;
  } else {
    const auto nanos = decimal_nanos(whole, part, suffix->power);
    if (!nanos) return fail(Code::Invalid, fmt::format("quantity {} is out of range", text.substr(0, 80)));
    quantity.nanos_ = *nanos;
  }
  if (minus) quantity.nanos_ = -quantity.nanos_;
  return quantity;
}

Result<Quantity> Quantity::from_json(const Json& value) {
  if (value.is_string()) return parse(value.string());
  if (value.is_number()) return parse(print_json(value));
  return fail(Code::Invalid, "a quantity must be a string or a number");
}

std::int64_t Quantity::value() const { return scaled(nanos_, nano); }
std::int64_t Quantity::milli_value() const { return scaled(nanos_, nano / 1000); }

Quantity Quantity::count(std::int64_t units) {
  Quantity out;
  out.nanos_ = Wide(units) * nano;
  return out;
}

Quantity Quantity::whole() const {
  Quantity out = *this;
  const Wide rest = nanos_ % nano;
  if (rest != 0) out.nanos_ += rest > 0 ? nano - rest : -rest;
  return out;
}

Quantity Quantity::capped() const {
  Quantity out = *this;
  out.nanos_ = std::clamp(nanos_, -top_binary, top_binary);
  return out;
}

Quantity& Quantity::operator+=(const Quantity& other) {
  if (nanos_ == 0) format_ = other.format_;
  nanos_ += other.nanos_;
  return *this;
}

Quantity& Quantity::operator-=(const Quantity& other) {
  if (nanos_ == 0) format_ = other.format_;
  nanos_ -= other.nanos_;
  return *this;
}

std::string Quantity::text() const {
  if (nanos_ == 0) return "0";
  const bool small = nanos_ > -1024 * nano && nanos_ < 1024 * nano;
  if (format_ == Format::Binary && !small && nanos_ % nano == 0) {
    Wide amount = nanos_ / nano;
    std::size_t times = 0;
    for (; amount % 1024 == 0 && times < 6; ++times) amount /= 1024;
    static constexpr std::string_view suffixes[] = {"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};
    return wide_text(amount) + std::string(suffixes[times]);
  }
  Wide amount = nanos_;
  int exponent = -9;
  // No suffix above E, so that one keeps its zeros.
  while (amount % 1000 == 0 && (exponent < 18 || format_ == Format::Exponent)) {
    amount /= 1000;
    exponent += 3;
  }
  if (format_ == Format::Exponent) return wide_text(amount) + (exponent == 0 ? "" : fmt::format("e{}", exponent));
  static constexpr std::string_view suffixes[] = {"n", "u", "m", "", "k", "M", "G", "T", "P", "E"};
  return wide_text(amount) + std::string(suffixes[(exponent + 9) / 3]);
}

}  // namespace fairlead::kube
