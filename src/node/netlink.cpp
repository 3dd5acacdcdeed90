// SPDX-License-Identifier: Apache-2.0
#include "node/netlink.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "base/fd.h"

namespace fairlead::node {
namespace {

// Free for local use: below 256, not in /etc/iproute2/rt_protos.
constexpr unsigned char our_protocol = 213;

class Message {
 public:
  Message(std::uint16_t type, std::uint16_t flags) : bytes_(sizeof(nlmsghdr)) {
    header().nlmsg_type = type;
    header().nlmsg_flags = static_cast<std::uint16_t>(flags | NLM_F_REQUEST);
    header().nlmsg_seq = 1;
  }
  nlmsghdr& header() { return *reinterpret_cast<nlmsghdr*>(bytes_.data()); }
  template <class T>
  void body(const T& value) {
    append(&value, sizeof value);
  }
  void attribute(unsigned short type, const void* data, std::size_t size) {
    const rtattr head{.rta_len = static_cast<unsigned short>(RTA_LENGTH(size)), .rta_type = type};
    append(&head, sizeof head);
    if (size > 0) append(data, size);
  }
  void attribute(unsigned short type, const std::string& text) { attribute(type, text.c_str(), text.size() + 1); }
  template <class T>
  void value(unsigned short type, const T& value) {
    attribute(type, &value, sizeof value);
  }
  // A nested attribute: from here to close().
  std::size_t nest(unsigned short type) {
    const std::size_t at = bytes_.size();
    attribute(type, nullptr, 0);
    return at;
  }
  void close(std::size_t at) { reinterpret_cast<rtattr*>(bytes_.data() + at)->rta_len = static_cast<unsigned short>(bytes_.size() - at); }
  const std::vector<char>& finish() {
    header().nlmsg_len = static_cast<std::uint32_t>(bytes_.size());
    return bytes_;
  }

 private:
  void append(const void* data, std::size_t size) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + NLMSG_ALIGN(size));
    std::memcpy(bytes_.data() + at, data, size);
  }
  std::vector<char> bytes_;
};

// Sends, and hands every answer to `each` until the kernel says that it is done.
Result<void> talk(Message message, const std::string& doing, const std::function<void(const nlmsghdr&)>& each = {}) {
  const Fd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!fd) return fail_errno(errno, doing);
  const auto& bytes = message.finish();
  if (::send(fd.get(), bytes.data(), bytes.size(), 0) < 0) return fail_errno(errno, doing);
  alignas(nlmsghdr) char buffer[32 * 1024];
  while (true) {
    const ssize_t n = ::recv(fd.get(), buffer, sizeof buffer, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return fail_errno(errno, doing);
    auto left = static_cast<unsigned>(n);
    for (auto* header = reinterpret_cast<nlmsghdr*>(buffer); NLMSG_OK(header, left); header = NLMSG_NEXT(header, left)) {
      if (header->nlmsg_type == NLMSG_DONE) return {};
      if (header->nlmsg_type == NLMSG_ERROR) {
        const auto* error = reinterpret_cast<const nlmsgerr*>(NLMSG_DATA(header));
        if (error->error == 0) return {};
        return fail_errno(-error->error, doing);
      }
      if (each) each(*header);
    }
  }
}

struct Range {
  unsigned char family = AF_INET;
  unsigned char bits = 32;
  std::array<unsigned char, 16> address{};
  std::size_t size() const { return family == AF_INET6 ? 16 : 4; }
};
Result<Range> parse_range(const std::string& text) {
  Range out;
  const auto slash = text.find('/');
  const std::string base = text.substr(0, slash);
  if (base.find(':') != std::string::npos) out.family = AF_INET6, out.bits = 128;
  if (::inet_pton(out.family, base.c_str(), out.address.data()) != 1) return fail(Code::Invalid, "\"" + text + "\" is not an address or range");
  if (slash != std::string::npos) {
    char* end = nullptr;
    const long bits = std::strtol(text.c_str() + slash + 1, &end, 10);
    if (*end != '\0' || end == text.c_str() + slash + 1 || bits < 0 || bits > out.bits) return fail(Code::Invalid, "\"" + text + "\" is not a range");
    out.bits = static_cast<unsigned char>(bits);
  }
  return out;
}

std::string print(unsigned char family, const void* address) {
  char text[INET6_ADDRSTRLEN];
  return ::inet_ntop(family, address, text, sizeof text);
}

const rtattr* find_attribute(const nlmsghdr& header, const void* first, unsigned short type) {
  auto left = static_cast<int>(header.nlmsg_len - (static_cast<const char*>(first) - reinterpret_cast<const char*>(&header)));
  for (const auto* one = static_cast<const rtattr*>(first); RTA_OK(one, left); one = RTA_NEXT(one, left))
    if (one->rta_type == type) return one;
  return nullptr;
}

}  // namespace

Result<void> set_link_up(const std::string& link) {
  ifinfomsg body{};
  body.ifi_index = static_cast<int>(::if_nametoindex(link.c_str()));
  if (body.ifi_index == 0) return fail(Code::NotFound, "raise link " + link + ": there is none");
  body.ifi_flags = body.ifi_change = IFF_UP;
  Message message(RTM_NEWLINK, NLM_F_ACK);
  message.body(body);
  return talk(std::move(message), "raise link " + link);
}

Result<void> ensure_bridge(const std::string& link, const std::string& address) {
  auto range = parse_range(address);
  if (!range) return std::unexpected(std::move(range.error()));
  if (::if_nametoindex(link.c_str()) == 0) {
    Message message(RTM_NEWLINK, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL);
    message.body(ifinfomsg{});
    message.attribute(IFLA_IFNAME, link);
    const std::size_t info = message.nest(IFLA_LINKINFO);
    message.attribute(IFLA_INFO_KIND, std::string("bridge"));
    message.close(info);
    if (auto made = talk(std::move(message), "make bridge " + link); !made && made.error().code != Code::Exists) return made;
  }
  ifaddrmsg body{};
  body.ifa_family = range->family;
  body.ifa_prefixlen = range->bits;
  // A bridge without ports has no carrier: without this its address would never count.
  if (range->family == AF_INET6) body.ifa_flags = IFA_F_NODAD;
  body.ifa_index = ::if_nametoindex(link.c_str());
  Message message(RTM_NEWADDR, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL);
  message.body(body);
  message.attribute(IFA_LOCAL, range->address.data(), range->size());
  message.attribute(IFA_ADDRESS, range->address.data(), range->size());
  if (auto added = talk(std::move(message), "give " + link + " the address " + address); !added && added.error().code != Code::Exists) return added;
  return set_link_up(link);
}

Result<void> drop_address(const std::string& link, const std::string& address) {
  auto range = parse_range(address);
  if (!range) return std::unexpected(std::move(range.error()));
  ifaddrmsg body{};
  body.ifa_family = range->family;
  body.ifa_prefixlen = range->bits;
  body.ifa_index = ::if_nametoindex(link.c_str());
  if (body.ifa_index == 0) return {};
  Message message(RTM_DELADDR, NLM_F_ACK);
  message.body(body);
  message.attribute(IFA_LOCAL, range->address.data(), range->size());
  const auto own = own_addresses();
  if (own && range->family == AF_INET && !own->contains(address.substr(0, address.find('/')))) return {};
  return talk(std::move(message), "take the address " + address + " from " + link);
}

Result<std::string> address_of(const std::string& link) {
  const unsigned index = ::if_nametoindex(link.c_str());
  if (index == 0) return fail(Code::NotFound, "there is no link " + link);
  std::string out;
  Message message(RTM_GETADDR, NLM_F_DUMP);
  ifaddrmsg body{};
  body.ifa_family = AF_INET;
  message.body(body);
  auto done = talk(std::move(message), "read the addresses of " + link, [&](const nlmsghdr& header) {
    const auto* one = static_cast<const ifaddrmsg*>(NLMSG_DATA(&header));
    if (header.nlmsg_type != RTM_NEWADDR || one->ifa_index != index || !out.empty()) return;
    if (const rtattr* local = find_attribute(header, IFA_RTA(one), IFA_LOCAL)) out = print(AF_INET, RTA_DATA(local));
  });
  if (!done) return std::unexpected(std::move(done.error()));
  return out;
}

Result<std::set<std::string>> own_addresses() {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return fail_errno(errno, "read this machine's addresses");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owned(all, ::freeifaddrs);
  std::set<std::string> out;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    char text[INET_ADDRSTRLEN] = "";
    if (::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr, text, sizeof text) != nullptr) out.insert(text);
  }
  return out;
}

Result<void> route_ipv4() {
  const std::string path = "/proc/sys/net/ipv4/ip_forward";
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd || ::write(fd.get(), "1", 1) != 1) return fail_errno(errno, "set " + path);
  return {};
}

Result<void> route_ipv6() {
  for (const auto& [setting, value] : {std::pair("all/disable_ipv6", "0"), {"default/disable_ipv6", "0"}, {"all/accept_dad", "0"}, {"default/accept_dad", "0"}, {"all/forwarding", "1"}}) {
    const std::string path = std::string("/proc/sys/net/ipv6/conf/") + setting;
    const Fd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (!fd || ::write(fd.get(), value, 1) != 1) return fail_errno(errno, "set " + path);
  }
  return {};
}

Result<Routes> our_routes() {
  Routes out;
  for (const unsigned char family : {AF_INET, AF_INET6}) {
    Message message(RTM_GETROUTE, NLM_F_DUMP);
    rtmsg body{};
    body.rtm_family = family;
    message.body(body);
    auto done = talk(std::move(message), "read routes", [&](const nlmsghdr& header) {
      const auto* one = static_cast<const rtmsg*>(NLMSG_DATA(&header));
      if (header.nlmsg_type != RTM_NEWROUTE || one->rtm_family != family || one->rtm_protocol != our_protocol || one->rtm_table != RT_TABLE_MAIN) return;
      const rtattr* to = find_attribute(header, RTM_RTA(one), RTA_DST);
      const rtattr* by = find_attribute(header, RTM_RTA(one), RTA_GATEWAY);
      if (to == nullptr || by == nullptr) return;
      out[fmt::format("{}/{}", print(family, RTA_DATA(to)), one->rtm_dst_len)] = print(family, RTA_DATA(by));
    });
    if (!done && family == AF_INET) return std::unexpected(std::move(done.error()));  // a kernel without IPv6 has no such routes
  }
  return out;
}

Result<void> set_route(const std::string& range, const std::string& gateway) {
  auto to = parse_range(range), by = parse_range(gateway);
  if (!to) return std::unexpected(std::move(to.error()));
  if (!by) return std::unexpected(std::move(by.error()));
  if (to->family != by->family) return fail(Code::Invalid, "route " + range + " by " + gateway + ": they are of different families");
  rtmsg body{};
  body.rtm_family = to->family;
  body.rtm_dst_len = to->bits;
  body.rtm_table = RT_TABLE_MAIN;
  body.rtm_protocol = our_protocol;
  body.rtm_scope = RT_SCOPE_UNIVERSE;
  body.rtm_type = RTN_UNICAST;
  Message message(RTM_NEWROUTE, NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE);
  message.body(body);
  message.attribute(RTA_DST, to->address.data(), to->size());
  message.attribute(RTA_GATEWAY, by->address.data(), by->size());
  return talk(std::move(message), "route " + range + " by " + gateway);
}

Result<void> delete_route(const std::string& range) {
  auto to = parse_range(range);
  if (!to) return std::unexpected(std::move(to.error()));
  rtmsg body{};
  body.rtm_family = to->family;
  body.rtm_dst_len = to->bits;
  body.rtm_table = RT_TABLE_MAIN;
  body.rtm_protocol = our_protocol;
  body.rtm_scope = RT_SCOPE_NOWHERE;
  Message message(RTM_DELROUTE, NLM_F_ACK);
  message.body(body);
  message.attribute(RTA_DST, to->address.data(), to->size());
  auto done = talk(std::move(message), "delete the route to " + range);
  if (!done && done.error().code == Code::NotFound) return {};
  return done;
}

}  // namespace fairlead::node
