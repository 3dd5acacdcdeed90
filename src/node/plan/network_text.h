// SPDX-License-Identifier: Apache-2.0
// Parts of nftables' language, made of objects' text only after it was checked.
#pragma once
#include <arpa/inet.h>
#include <fmt/format.h>

#include <optional>
#include <set>
#include <string>

#include "kube/json.h"

namespace fairlead::node {

enum class Family { V4, V6 };
inline constexpr Family families[] = {Family::V4, Family::V6};
inline const char* word(Family family) { return family == Family::V4 ? "ip" : "ip6"; }
inline const char* type_of(Family family) { return family == Family::V4 ? "ipv4_addr" : "ipv6_addr"; }
inline const char* digit(Family family) { return family == Family::V4 ? "4" : "6"; }
inline const char* loopback(Family family) { return family == Family::V4 ? "127.0.0.0/8" : "::1"; }

// The address as the kernel prints it, or nothing if it is none of this family.
inline std::optional<std::string> address(const std::string& text, Family family) {
  unsigned char bytes[16];
  char out[INET6_ADDRSTRLEN];
  const int af = family == Family::V4 ? AF_INET : AF_INET6;
  if (::inet_pton(af, text.c_str(), bytes) != 1 || ::inet_ntop(af, bytes, out, sizeof out) == nullptr) return std::nullopt;
  return std::string(out);
}

// Of a port of a container, service or policy.
inline std::optional<std::string> protocol(const kube::Json& port) {
  const std::string& name = port["protocol"].string();
  if (name.empty() || name == "TCP") return "tcp";
  if (name == "UDP") return "udp";
  if (name == "SCTP") return "sctp";
  return std::nullopt;
}

inline bool is_port(std::int64_t number) { return number >= 1 && number <= 65535; }

inline std::string join(const std::set<std::string>& items) {
  std::string out;
  for (const std::string& item : items) out += (out.empty() ? "" : ", ") + item;
  return out;
}

}  // namespace fairlead::node
