// SPDX-License-Identifier: Apache-2.0
#include "node/plan/dns.h"

#include <gmock/gmock.h>

#include "base/encoding.h"

namespace fairlead::node {
namespace {
using testing::ElementsAre;
using testing::IsEmpty;
using Kind = DnsAnswer::Kind;

std::string query(const std::string& name, std::uint16_t type = dns_a, bool edns = false) {
  std::string out{"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00", 11};
  out += edns ? '\1' : '\0';
  for (const std::string& label : split(name, '.')) out += static_cast<char>(label.size()) + label;
  out += std::string{"\0\0", 2} + static_cast<char>(type) + std::string{"\0\1", 2};
  if (edns) out += std::string{"\0\0\x29\x10\0\0\0\0\0\0\0", 11};
  return out;
}

DnsNames names() {
  return {.domain = "cluster.local",
          .service = [](const std::string& space, const std::string& name) -> std::optional<DnsService> {
            if (space != "ns") return std::nullopt;
            if (name == "peers") return DnsService{.space = space, .name = name, .selector = {{"app", "x"}}};
            if (name == "all")
              return DnsService{.space = space, .name = name, .selector = {{"app", "x"}}, .not_ready_too = true};
            if (name == "open") return DnsService{.space = space, .name = name, .selector = {}};
            if (name == "both") return DnsService{.space = space, .name = name, .addresses = {"10.79.0.5", "fd00:79::5"}};
            return std::nullopt;
          },
          .pods =
              [](const std::string&) {
                return std::make_shared<const std::vector<DnsPod>>(std::vector<DnsPod>{
                    {.space = "ns", .name = "b", .hostname = "b", .subdomain = "peers", .addresses = {"10.0.0.2"}, .labels = {{"app", "x"}}, .ready = true},
                    {.space = "ns", .name = "a", .hostname = "a", .subdomain = "peers", .addresses = {"10.0.0.1", "fd00:78::1"}, .labels = {{"app", "x"}}, .ready = true},
                    {.space = "ns", .name = "c", .hostname = "c", .subdomain = "peers", .addresses = {"10.0.0.3"}, .labels = {{"app", "x"}}, .ready = false},
                    {.space = "ns", .name = "d", .hostname = "d", .subdomain = "peers", .addresses = {"10.0.0.4"}, .labels = {{"app", "y"}}, .ready = true},
                    {.space = "ns", .name = "e", .hostname = "e", .subdomain = "peers", .addresses = {}, .labels = {{"app", "x"}}, .ready = true}});
              }};
}

struct Case {
  const char* name;
  const char* asked;
  Kind kind;
  std::vector<std::string> addresses = {};
  std::uint16_t type = dns_a;
};
class Resolve : public testing::TestWithParam<Case> {};
TEST_P(Resolve, Gives) {
  const auto question = parse_dns_query(query(GetParam().asked, GetParam().type));
  ASSERT_TRUE(question);
  const DnsAnswer answer = resolve_name(*question, names());
  EXPECT_EQ(answer.kind, GetParam().kind);
  EXPECT_EQ(answer.addresses, GetParam().addresses);
}
INSTANTIATE_TEST_SUITE_P(Names, Resolve,
                         testing::Values(Case{"the_ready_pods_of_a_service", "peers.ns.svc.cluster.local", Kind::Found, {"10.0.0.1", "10.0.0.2"}},
                                         Case{"all_if_it_says_so", "all.ns.svc.cluster.local", Kind::Found, {"10.0.0.1", "10.0.0.2", "10.0.0.3"}},
                                         Case{"one_pod", "a.peers.ns.svc.cluster.local", Kind::Found, {"10.0.0.1"}},
                                         Case{"case_does_not_matter", "A.Peers.NS.svc.Cluster.Local", Kind::Found, {"10.0.0.1"}},
                                         Case{"not_a_pod_that_is_not_ready", "c.peers.ns.svc.cluster.local", Kind::NoSuchName},
                                         Case{"not_a_pod_of_another_service", "d.peers.ns.svc.cluster.local", Kind::NoSuchName},
                                         Case{"not_under_another_subdomain", "a.all.ns.svc.cluster.local", Kind::NoSuchName},
                                         Case{"a_service_without_selector_has_no_pods", "open.ns.svc.cluster.local", Kind::Found},
                                         Case{"no_such_service", "nobody.ns.svc.cluster.local", Kind::NoSuchName},
                                         Case{"no_such_namespace", "peers.other.svc.cluster.local", Kind::NoSuchName},
                                         Case{"the_name_exists_without_an_ipv6_address", "b.peers.ns.svc.cluster.local", Kind::Found, {}, dns_aaaa},
                                         Case{"those_of_the_pods_that_have_one", "peers.ns.svc.cluster.local", Kind::Found, {"fd00:78::1"}, dns_aaaa},
                                         Case{"one_address_of_a_service", "both.ns.svc.cluster.local", Kind::Found, {"10.79.0.5"}},
                                         Case{"and_the_other", "both.ns.svc.cluster.local", Kind::Found, {"fd00:79::5"}, dns_aaaa},
                                         Case{"both_for_any", "both.ns.svc.cluster.local", Kind::Found, {"10.79.0.5", "fd00:79::5"}, 255},
                                         Case{"the_domain_itself", "cluster.local", Kind::Found},
                                         Case{"too_long_a_name", "x.a.peers.ns.svc.cluster.local", Kind::NoSuchName},
                                         Case{"the_world_is_refused", "example.com", Kind::Refused},
                                         Case{"also_when_it_looks_alike", "evilcluster.local", Kind::Refused}),
                         [](const auto& row) { return row.param.name; });

TEST(Dns, AnAnswerCarriesIdQuestionAndAddresses) {
  const auto question = parse_dns_query(query("a.b", dns_a, true));
  ASSERT_TRUE(question);
  EXPECT_TRUE(question->edns);
  const std::string answer = print_dns_answer(*question, {.kind = Kind::Found, .addresses = {"1.2.3.4"}}, 512);
  EXPECT_EQ(answer.substr(0, 2), "\x12\x34");
  EXPECT_EQ(hex(answer.substr(2, 10)), "85000001000100000001");
  EXPECT_NE(answer.find(std::string("\x00\x04\x01\x02\x03\x04", 6)), std::string::npos);
}

TEST(Dns, AnAddressOfVersion6IsARecordOfItsOwnType) {
  const auto question = parse_dns_query(query("a.b", dns_aaaa));
  ASSERT_TRUE(question);
  const std::string answer = print_dns_answer(*question, {.kind = Kind::Found, .addresses = {"fd00:78::1"}}, 512);
  EXPECT_TRUE(hex(answer).ends_with("c00c001c0001000000050010fd000078000000000000000000000001")) << hex(answer);
}

TEST(Dns, WhatDoesNotFitIsCutAndMarked) {
  const auto question = parse_dns_query(query("a.b"));
  const DnsAnswer many{.kind = Kind::Found, .addresses = std::vector<std::string>(100, "10.0.0.1")};
  const std::string cut = print_dns_answer(*question, many, 512), whole = print_dns_answer(*question, many, 65535);
  EXPECT_LE(cut.size(), 512U);
  EXPECT_TRUE(cut[2] & 2);
  EXPECT_FALSE(whole[2] & 2);
  EXPECT_GT(whole.size(), 1600U);
}

TEST(Dns, BadPacketsAreInvalid) {
  const std::string good = query("a.b");
  for (std::size_t size = 0; size < good.size(); ++size) EXPECT_FALSE(parse_dns_query(good.substr(0, size))) << size;
  std::string pointer = good;
  pointer[12] = '\xc0';
  EXPECT_FALSE(parse_dns_query(pointer));
  std::string answer = good;
  answer[2] = '\x80';
  EXPECT_FALSE(parse_dns_query(answer));
  EXPECT_THAT(print_dns_error(answer), IsEmpty());
  EXPECT_EQ(print_dns_error(pointer).size(), 12U);
  std::string dot = query("ab");
  dot[13] = '.';
  EXPECT_FALSE(parse_dns_query(dot));
}

TEST(Dns, AnAddressGivesThePodsName) {
  const auto ask = [](const std::string& name, std::uint16_t type) { return resolve_name(*parse_dns_query(query(name, type)), names()); };
  EXPECT_EQ(ask("2.0.0.10.in-addr.arpa", dns_ptr).pointer, "b.peers.ns.svc.cluster.local");
  EXPECT_EQ(ask("2.0.0.10.in-addr.arpa", dns_a).pointer, "");
  EXPECT_EQ(ask("9.0.0.10.in-addr.arpa", dns_ptr).kind, Kind::NoSuchName);
  EXPECT_EQ(ask("0.10.in-addr.arpa", dns_ptr).kind, Kind::NoSuchName);
  const std::string six = "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.7.0.0.0.0.d.f.ip6.arpa";
  EXPECT_EQ(ask(six, dns_ptr).pointer, "a.peers.ns.svc.cluster.local");
  EXPECT_EQ(ask("2" + six.substr(1), dns_ptr).kind, Kind::NoSuchName);
  EXPECT_EQ(ask(six.substr(2), dns_ptr).kind, Kind::NoSuchName);
  const auto question = *parse_dns_query(query("2.0.0.10.in-addr.arpa", dns_ptr));
  const std::string packet = print_dns_answer(question, resolve_name(question, names()), 512);
  EXPECT_EQ(static_cast<int>(packet[7]), 1);  // one answer
  EXPECT_TRUE(packet.ends_with(std::string("\1b\5peers\2ns\3svc\7cluster\5local\0", 30))) << hex(packet);
  EXPECT_EQ(static_cast<int>(print_dns_answer(question, resolve_name(question, names()), 60)[2] & 2), 2);  // does not fit: truncated
}

}  // namespace
}  // namespace fairlead::node
