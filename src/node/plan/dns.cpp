// SPDX-License-Identifier: Apache-2.0
#include "node/plan/dns.h"

#include <arpa/inet.h>

#include <algorithm>

#include "base/encoding.h"

namespace fairlead::node {
namespace {

constexpr std::size_t header_size = 12;
constexpr std::uint32_t ttl_seconds = 5;

std::uint16_t get16(std::string_view packet, std::size_t at) {
  return static_cast<std::uint16_t>(static_cast<unsigned char>(packet[at]) << 8 | static_cast<unsigned char>(packet[at + 1]));
}
void put16(std::string& out, unsigned value) {
  out += static_cast<char>(value >> 8 & 255);
  out += static_cast<char>(value & 255);
}
void put32(std::string& out, std::uint32_t value) {
  put16(out, value >> 16);
  put16(out, value & 0xffff);
}

bool is_six(const std::string& address) { return address.find(':') != std::string::npos; }

// The address as it goes over the wire, 4 or 16 bytes; empty: none.
std::string wire_address(const std::string& text) {
  char bytes[16];
  if (::inet_pton(is_six(text) ? AF_INET6 : AF_INET, text.c_str(), bytes) != 1) return {};
  return {bytes, is_six(text) ? 16U : 4U};
}

std::string header(const DnsQuestion& question, unsigned code, std::size_t answers, bool truncated) {
  std::string out;
  put16(out, question.id);
  // QR, AA, the RD of the question.
  put16(out, 0x8400U | (truncated ? 0x0200U : 0U) | (question.flags & 0x0100U) | code);
  put16(out, 1);
  put16(out, static_cast<unsigned>(answers));
  put16(out, 0);
  put16(out, question.edns ? 1 : 0);
  return out;
}

}  // namespace

Result<DnsQuestion> parse_dns_query(std::string_view packet) {
  if (packet.size() < header_size) return fail(Code::Invalid, "too short");
  DnsQuestion out{.id = get16(packet, 0), .flags = get16(packet, 2), .name = {}, .wire = {}};
  if ((out.flags & 0x8000U) != 0) return fail(Code::Invalid, "not a query");
  if ((out.flags & 0x7800U) != 0) return fail(Code::Invalid, "not a standard query");
  if (get16(packet, 4) != 1) return fail(Code::Invalid, "not one question");
  std::size_t at = header_size;
  while (true) {
    if (at >= packet.size()) return fail(Code::Invalid, "the name is cut off");
    const auto size = static_cast<unsigned char>(packet[at++]);
    if (size == 0) break;
    // A question has nothing before it that a pointer could mean.
    if (size > 63) return fail(Code::Invalid, "a compressed name in the question");
    if (at + size > packet.size()) return fail(Code::Invalid, "a label is cut off");
    if (!out.name.empty()) out.name += '.';
    for (std::size_t i = at; i < at + size; ++i) {
      const char c = packet[i];
      // A dot inside a label would make two names look alike.
      if (c == '.' || static_cast<unsigned char>(c) < 33 || static_cast<unsigned char>(c) > 126)
        return fail(Code::Invalid, "a name that is not a host's");
      out.name += c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    }
    at += size;
    if (out.name.size() > 253) return fail(Code::Invalid, "the name is too long");
  }
  if (at + 4 > packet.size()) return fail(Code::Invalid, "the question is cut off");
  out.type = get16(packet, at);
  out.type_class = get16(packet, at + 2);
  out.wire = std::string(packet.substr(header_size, at + 4 - header_size));
  // An OPT record (RFC 6891) has the root as its name and type 41; where it is not the first additional record it is not looked for.
  const std::size_t after = at + 4;
  out.edns = get16(packet, 6) == 0 && get16(packet, 8) == 0 && get16(packet, 10) > 0 && after + 11 <= packet.size() && packet[after] == 0 &&
             get16(packet, after + 1) == 41;
  return out;
}

std::string print_dns_answer(const DnsQuestion& question, const DnsAnswer& answer, std::size_t limit) {
  const unsigned code = answer.kind == DnsAnswer::Kind::NoSuchName ? 3 : answer.kind == DnsAnswer::Kind::Refused ? 5 : 0;
  const std::size_t fixed = header_size + question.wire.size() + (question.edns ? 11 : 0);
  std::string records;
  std::size_t count = 0;
  bool truncated = false;
  for (const std::string& address : answer.addresses) {
    const std::string bytes = wire_address(address);
    if (bytes.empty()) continue;
    if (fixed + records.size() + 12 + bytes.size() > limit) {
      truncated = true;
      break;
    }
    put16(records, 0xc000U | header_size);  // the name of the question
    put16(records, is_six(address) ? dns_aaaa : dns_a);
    put16(records, 1);
    put32(records, ttl_seconds);
    put16(records, static_cast<unsigned>(bytes.size()));
    records += bytes;
    ++count;
  }
  if (!answer.pointer.empty()) {
    std::string host;
    for (const std::string& label : split(answer.pointer, '.')) (host += static_cast<char>(label.size())) += label;
    host += '\0';
    if (fixed + 12 + host.size() > limit) {
      truncated = true;
    } else {
      put16(records, 0xc000U | header_size);
      put16(records, dns_ptr);
      put16(records, 1);
      put32(records, ttl_seconds);
      put16(records, static_cast<unsigned>(host.size()));
      records += host;
      ++count;
    }
  }
  std::string out = header(question, code, count, truncated) + question.wire + records;
  if (question.edns) {
    out += '\0';
    put16(out, 41);
    put16(out, 1232);
    put32(out, 0);
    put16(out, 0);
  }
  return out;
}

std::string print_dns_error(std::string_view packet) {
  if (packet.size() < header_size || (get16(packet, 2) & 0x8000U) != 0) return {};
  std::string out;
  put16(out, get16(packet, 0));
  put16(out, 0x8001U);  // format error
  out.append(8, '\0');
  return out;
}

namespace {

constexpr std::string_view reverse_four = ".in-addr.arpa", reverse_six = ".ip6.arpa";

// "4.3.2.1.in-addr.arpa" (RFC 1035 section 3.5) means 1.2.3.4, "1.0. ... .d.f.ip6.arpa" (RFC 3596 section 2.5) the address with these nibbles. As on the wire; empty: none.
std::string address_of_reverse(const std::string& name) {
  if (name.ends_with(reverse_four)) {
    const auto parts = split(std::string_view(name).substr(0, name.size() - reverse_four.size()), '.');
    return parts.size() == 4 ? wire_address(parts[3] + "." + parts[2] + "." + parts[1] + "." + parts[0]) : "";
  }
  const auto parts = split(std::string_view(name).substr(0, name.size() - reverse_six.size()), '.');
  if (parts.size() != 32) return {};
  std::string text;
  for (std::size_t i = 32; i-- > 0;) {
    if (parts[i].size() != 1) return {};
    text += parts[i];
    if (i % 4 == 0 && i > 0) text += ':';
  }
  return wire_address(text);
}

DnsAnswer resolve_address(const DnsQuestion& question, const DnsNames& names) {
  using Kind = DnsAnswer::Kind;
  const std::string wanted = address_of_reverse(question.name);
  if (wanted.empty()) return {.kind = Kind::NoSuchName};
  const DnsPods all = names.pods("");
  for (const DnsPod& pod : *all) {
    const bool its_own = std::any_of(pod.addresses.begin(), pod.addresses.end(), [&](const std::string& one) { return wire_address(one) == wanted; });
    if (!its_own || pod.hostname.empty() || pod.subdomain.empty() || !names.service(pod.space, pod.subdomain)) continue;
    DnsAnswer out{.kind = Kind::Found};
    if (question.type == dns_ptr || question.type == 255) out.pointer = pod.hostname + "." + pod.subdomain + "." + pod.space + ".svc." + names.domain;
    return out;
  }
  return {.kind = Kind::NoSuchName};
}

}  // namespace

DnsAnswer resolve_name(const DnsQuestion& question, const DnsNames& names) {
  using Kind = DnsAnswer::Kind;
  if (question.name.ends_with(reverse_four) || question.name.ends_with(reverse_six)) return resolve_address(question, names);
  const std::string suffix = "." + names.domain;
  if (question.name != names.domain && !question.name.ends_with(suffix)) return {.kind = Kind::Refused};
  const DnsAnswer none{.kind = Kind::NoSuchName};
  if (question.name == names.domain || question.name == "svc" + suffix) return {.kind = Kind::Found};
  const auto parts = split(question.name.substr(0, question.name.size() - suffix.size()), '.');
  // [hostname, service, ns, "svc"], [service, ns, "svc"]
  if (parts.size() < 3 || parts.size() > 4 || parts.back() != "svc") return none;
  const std::string& space = parts[parts.size() - 2];
  const std::string& name = parts[parts.size() - 3];
  const auto service = names.service(space, name);
  if (!service) return none;
  DnsAnswer out{.kind = Kind::Found};
  if (!service->addresses.empty() && parts.size() == 3) {
    out.addresses = service->addresses;
  } else {
    const DnsPods all = names.pods(space);
    for (const DnsPod& pod : *all) {
      const bool selected = !service->selector.empty() && std::all_of(service->selector.begin(), service->selector.end(), [&](const auto& want) {
        return std::find(pod.labels.begin(), pod.labels.end(), want) != pod.labels.end();
      });
      if (!selected || pod.addresses.empty() || (!pod.ready && !service->not_ready_too)) continue;
      if (parts.size() == 4 && (pod.hostname != parts[0] || pod.subdomain != name)) continue;
      out.addresses.insert(out.addresses.end(), pod.addresses.begin(), pod.addresses.end());
    }
    std::sort(out.addresses.begin(), out.addresses.end());
    if (parts.size() == 4 && out.addresses.empty()) return none;
  }
  // Of another type, or of the other family alone: the name exists all the same.
  std::erase_if(out.addresses, [&](const std::string& one) { return question.type != 255 && question.type != (is_six(one) ? dns_aaaa : dns_a); });
  return out;
}

}  // namespace fairlead::node
