// SPDX-License-Identifier: Apache-2.0
#include "notify/plan/permit.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

#include "kube/object.h"

namespace fairlead::notify {

using kube::Json;

namespace {

using Bytes4 = std::array<unsigned char, 4>;
using Bytes16 = std::array<unsigned char, 16>;

bool near(const Bytes4& a) { return a[0] == 0 || a[0] == 127 || (a[0] == 169 && a[1] == 254) || a[0] >= 224; }

// The IPv4 address that translators and tunnels make of this one. RFC 4291 sections 2.5.2, 2.5.5; RFC 6052 section 2.1; RFC 3056 section 2.
std::optional<Bytes4> wrapped(const Bytes16& a) {
  const auto at = [&](std::size_t i) { return Bytes4{a[i], a[i + 1], a[i + 2], a[i + 3]}; };
  const bool zeros = std::all_of(a.begin(), a.begin() + 10, [](unsigned char c) { return c == 0; });
  if (zeros && ((a[10] == 0xff && a[11] == 0xff) || (a[10] == 0 && a[11] == 0))) return at(12);  // :: and ::1 are such, too
  if (a[0] == 0x00 && a[1] == 0x64 && a[2] == 0xff && a[3] == 0x9b) return at(12);
  if (a[0] == 0x20 && a[1] == 0x02) return at(2);
  return std::nullopt;
}

bool near(const Bytes16& a) {
  if (const auto inner = wrapped(a)) return near(*inner);
  return (a[0] == 0xfe && (a[1] & 0xc0) == 0x80) || a[0] == 0xff;
}

}  // namespace

Result<void> may_connect(std::string_view address) {
  const std::string digits(address.substr(0, address.find('%')));
  Bytes4 four{};
  Bytes16 six{};
  const bool is_near = ::inet_pton(AF_INET, digits.c_str(), four.data()) == 1 ? near(four) : ::inet_pton(AF_INET6, digits.c_str(), six.data()) != 1 || near(six);
  if (is_near) return fail(Code::Forbidden, "its address is loopback or link-local, where nothing is sent unless fairlead-server runs with --notify-local");
  return {};
}

Result<void> meant_for_notifications(const Json& secret) {
  const Json* label = secret["metadata"]["labels"].find(kMeantFor);
  if (label && label->string() == "true") return {};
  const std::string& name = kube::name_of(secret);
  return fail(Code::Forbidden, fmt::format("Secret {} lacks the label {}=true, without which no topic may use it: kubectl -n {} label secret {} {}=true", name, kMeantFor, kube::space_of(secret), name, kMeantFor));
}

Result<void> meant_for_host(const Json& secret, const std::string& host) {
  const Json* only = secret["metadata"]["annotations"].find(kOnlyHost);
  if (!only) return {};
  const std::string& wanted = only->string();
  const bool same = !host.empty() && std::equal(host.begin(), host.end(), wanted.begin(), wanted.end(), [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); });
  if (same) return {};
  return fail(Code::Forbidden, fmt::format("Secret {} is for another host: its annotation {} is \"{}\"", kube::name_of(secret), kOnlyHost, wanted.substr(0, 100)));
}

}  // namespace fairlead::notify
