// SPDX-License-Identifier: Apache-2.0
#include "http/proxy.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "base/encoding.h"

namespace fairlead::http {
namespace {

struct Address {
  std::array<unsigned char, 16> bytes{};
  int bits = 0;  // 32 or 128
};

std::optional<Address> parse_address(std::string_view text) {
  Address out;
  const std::string copy(text);
  if (::inet_pton(AF_INET, copy.c_str(), out.bytes.data()) == 1) {
    out.bits = 32;
    return out;
  }
  if (::inet_pton(AF_INET6, copy.c_str(), out.bytes.data()) != 1) return std::nullopt;
  out.bits = 128;
  return out;
}

bool same_prefix(const Address& a, const Address& b, int prefix) {
  if (a.bits != b.bits) return false;
  for (int i = 0; i < prefix; ++i) {
    const auto at = static_cast<std::size_t>(i / 8);
    const int mask = 0x80 >> (i % 8);
    if ((a.bytes[at] & mask) != (b.bytes[at] & mask)) return false;
  }
  return true;
}

bool is_loopback(std::string_view host) {
  if (host == "localhost") return true;
  const auto address = parse_address(host);
  if (!address) return false;
  if (address->bits == 32) return address->bytes[0] == 127;
  return *address->bytes.rbegin() == 1 && std::all_of(address->bytes.begin(), address->bytes.end() - 1, [](unsigned char byte) { return byte == 0; });
}

template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  Number out{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return out;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& one : out)
    if (one >= 'A' && one <= 'Z') one = static_cast<char>(one - 'A' + 'a');
  return out;
}

// Takes ":port" or "[host]:port" apart; a bare IPv6 address has no port.
std::string_view cut_port(std::string_view entry, std::string_view& port) {
  if (entry.starts_with('[')) {
    const auto end = entry.find(']');
    if (end == std::string_view::npos) return entry;
    if (end + 1 < entry.size() && entry[end + 1] == ':') port = entry.substr(end + 2);
    return entry.substr(1, end - 1);
  }
  const auto colon = entry.find(':');
  if (colon == std::string_view::npos || entry.find(':', colon + 1) != std::string_view::npos) return entry;
  port = entry.substr(colon + 1);
  return entry.substr(0, colon);
}

bool excludes(std::string_view entry, const std::string& host, unsigned short port) {
  if (const auto slash = entry.find('/'); slash != std::string_view::npos) {
    const auto network = parse_address(entry.substr(0, slash)), address = parse_address(host);
    const auto prefix = parse_number<int>(entry.substr(slash + 1));
    return network && address && prefix && *prefix >= 0 && *prefix <= network->bits && same_prefix(*network, *address, *prefix);
  }
  std::string_view wanted_port;
  std::string name(cut_port(entry, wanted_port));
  if (!wanted_port.empty() && parse_number<unsigned short>(wanted_port) != port) return false;
  if (const auto wanted = parse_address(name)) {
    const auto address = parse_address(host);
    return address && same_prefix(*wanted, *address, wanted->bits);
  }
  if (name.starts_with("*.")) name.erase(0, 1);
  if (name.empty()) return false;
  if (name[0] != '.') {
    if (name == host) return true;
    name.insert(0, ".");
  }
  return host.ends_with(name);
}

std::string decode_percent(std::string_view text) { return percent_decode(text).value_or(std::string(text)); }  // as it is if it is malformed

}  // namespace

Result<Proxy> parse_proxy(std::string_view url) {
  std::string_view rest = url;
  if (const auto scheme = rest.find("://"); scheme != std::string_view::npos) {
    if (rest.substr(0, scheme) != "http") return fail(Code::Unsupported, fmt::format("a proxy by {}:// is not supported: give an http:// one", rest.substr(0, scheme)));
    rest.remove_prefix(scheme + 3);
  }
  rest = rest.substr(0, rest.find('/'));
  Proxy out;
  if (const auto at = rest.rfind('@'); at != std::string_view::npos) {
    const std::string_view who = rest.substr(0, at);
    const auto colon = std::min(who.find(':'), who.size());
    out.authorization = "Basic " + base64(decode_percent(who.substr(0, colon)) + ":" + decode_percent(who.substr(std::min(colon + 1, who.size()))));
    rest.remove_prefix(at + 1);
  }
  std::string_view port;
  const bool has_port = rest.starts_with('[') ? rest.find("]:") != std::string_view::npos : std::count(rest.begin(), rest.end(), ':') == 1;
  out.host = std::string(cut_port(rest, port));
  if (has_port) {
    const auto number = parse_number<unsigned short>(port);
    if (!number || *number == 0) return fail(Code::Invalid, "the proxy's port is not a number");
    out.port = *number;
  }
  if (out.host.empty() || out.host.find_first_of(" \r\n\t[]") != std::string::npos) return fail(Code::Invalid, "the proxy's URL names no host");
  return out;
}

std::string choose_proxy(const ProxySettings& settings, bool tls, std::string_view host, unsigned short port) {
  const std::string& proxy = tls ? settings.https : settings.http;
  const std::string name = lower(host);
  if (proxy.empty() || is_loopback(name)) return "";
  for (const std::string& part : split(settings.none, ',')) {
    const std::string entry = lower(trim(part));
    if (entry == "*") return "";
    if (!entry.empty() && excludes(entry, name, port)) return "";
  }
  return proxy;
}

}  // namespace fairlead::http
