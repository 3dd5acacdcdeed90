// SPDX-License-Identifier: Apache-2.0
#include "api/join.h"

#include <gmock/gmock.h>

#include "api/machine.h"
#include "base/encoding.h"

namespace fairlead::api {
namespace {

using kube::Json;
using testing::HasSubstr;
using testing::Not;

const std::string kSecret(64, 'a');
JoinToken token() { return {.servers = {"https://10.0.0.1:6443", "https://10.0.0.2:6443"}, .ca_pem = "-----BEGIN CERTIFICATE-----\n" + base64(std::string(70, 'x')).substr(0, 64) + "\n" + base64(std::string(70, 'x')).substr(64) + "\n-----END CERTIFICATE-----\n", .name = "gpu-07", .secret = kSecret}; }
JoinRequest request() {
  return {.name = "gpu-07", .secret = kSecret, .signing_request = "PEM", .facts = {.cpus = 192, .memory_mib = 2'097'152, .devices = {{"nvidia.com/gpu", 8}}, .devices_text = "8 x NVIDIA H100", .address = "10.0.0.7", .os = "Debian", .kernel = "6.1", .architecture = "x86_64", .version = "0.1.0"}};
}

TEST(JoinToken, IsOneWordAndMeansTheSameWhenReadAgain) {
  const std::string text = print_join_token(token());
  EXPECT_EQ(text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."), std::string::npos);
  const auto again = parse_join_token(" " + text + "\n");
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(*again, token());
}

TEST(JoinToken, WhatIsNoneIsRefusedWithoutBeingRepeated) {
  const std::string text = print_join_token(token());
  const auto but = [](auto change) {
    JoinToken other = token();
    change(other);
    return print_join_token(other);
  };
  for (const std::string& bad : {std::string(), std::string("flj1."), std::string("flj2.abc"), text.substr(0, text.size() / 2), text + "!", "flj1." + std::string(20'000, 'A'), but([](JoinToken& t) { t.servers.clear(); }), but([](JoinToken& t) { t.servers = {"http://10.0.0.1"}; }),
                                 but([](JoinToken& t) { t.ca_pem.clear(); }), but([](JoinToken& t) { t.name = "../x"; }), but([](JoinToken& t) { t.secret = "short"; }), but([](JoinToken& t) { t.servers = {"https://a\nb"}; })}) {
    const auto read = parse_join_token(bad);
    ASSERT_FALSE(read) << bad;
    EXPECT_THAT(read.error().message, HasSubstr("fairlead node add"));
    EXPECT_THAT(read.error().message, Not(HasSubstr(bad.size() > 20 ? bad.substr(5, 20) : std::string("flj1.A"))));
  }
}

TEST(JoinRequest, MeansTheSameWhenReadAgain) {
  const auto again = parse_join_request(print_join_request(request()));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(*again, request());
  EXPECT_EQ(capacity_of(request().facts), (std::map<std::string, std::string>{{"cpu", "192"}, {"memory", "2097152Mi"}, {"nvidia.com/gpu", "8"}}));
}

TEST(JoinRequest, EachFieldThatIsMissingOrWrongIsNamed) {
  const Json good = *kube::parse_json(print_join_request(request()));
  struct Row {
    const char *path, *field;
    Json value;
  };
  for (const Row& row : std::vector<Row>{{"", "name", nullptr}, {"", "name", "a/b"}, {"", "name", std::string(64, 'a')}, {"", "name", 7}, {"", "secret", nullptr}, {"", "secret", "abc"}, {"", "secret", std::string(64, 'G')}, {"", "request", nullptr}, {"", "request", std::string(20'000, 'x')}, {"", "facts", nullptr},
                                        {"", "facts", "x"}, {"facts", "cpus", nullptr}, {"facts", "cpus", 0}, {"facts", "cpus", -1}, {"facts", "cpus", "4"}, {"facts", "cpus", 1'000'000}, {"facts", "memoryMiB", 0}, {"facts", "address", nullptr}, {"facts", "address", "a\nb"}, {"facts", "os", std::string(300, 'x')},
                                        {"facts", "devices", Json::array()}, {"facts", "devices", Json::object({{"nvidia.com/gpu", 0}})}, {"facts", "devices", Json::object({{"cpu", 1}})}}) {
    Json bad = good;
    (*row.path == '\0' ? bad : bad.child(row.path)).set(row.field, row.value);
    const auto read = parse_join_request(kube::print_json(bad));
    ASSERT_FALSE(read) << row.field << " " << kube::print_json(row.value);
    EXPECT_THAT(read.error().message, HasSubstr(row.field));
  }
  for (const char* const bad : {"", "[]", "7", "{", "{}"}) EXPECT_FALSE(parse_join_request(bad));
}

TEST(JoinAnswer, MeansTheSameWhenReadAgain) {
  const JoinAnswer answer{.certificate = "C", .ca_pem = "A", .pod_cidr = "10.78.3.0/24", .cluster_domain = "cluster.local", .pods_range = "10.78.0.0/16", .volumes_dir = "/v", .companion_dir = "/b", .labels = {{"a", "b"}}, .taints = Json::array({Json::object({{"key", "k"}})})};
  const auto again = parse_join_answer(print_join_answer(answer));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(*again, answer);
  JoinAnswer bad = answer;
  bad.volumes_dir = "relative";
  EXPECT_FALSE(parse_join_answer(print_join_answer(bad)));
}

TEST(HostMachine, IsReadWithItsTokenAndItsHost) {
  const Machine machine = read_machine(*kube::parse_json(R"({"metadata": {"name": "gpu-07"}, "spec": {"host": {"instanceType": "ml.p5.48xlarge", "join": {"tokenHash": "ab", "expires": "2026-01-02T03:04:05Z"}}},
    "status": {"index": 3, "podCIDR": "10.78.3.0/24", "address": "10.0.0.7", "host": {"key": "k", "token": "t", "address": "10.0.0.7", "joined": "2026-01-02T03:00:00Z"}, "reboot": {"id": "r", "phase": "Rebooting", "was": {"boot": "b"}}}})"));
  EXPECT_THAT(machine.problems, testing::IsEmpty());
  ASSERT_TRUE(machine.spec.host);
  EXPECT_EQ(machine.spec.host->instance_type, "ml.p5.48xlarge");
  EXPECT_EQ(machine.spec.host->token_hash, "ab");
  EXPECT_EQ(*machine.spec.host->token_expires, *parse_time("2026-01-02T03:04:05Z"));
  EXPECT_EQ(machine.host, (HostRecord{.key = "k", .token_hash = "t", .address = "10.0.0.7", .joined = "2026-01-02T03:00:00Z"}));
  EXPECT_EQ(machine.reboot.boot, "b");
  EXPECT_EQ(machine.seat.pod_cidr, "10.78.3.0/24");
}

TEST(HostMachine, WhatIsNotOursIsRefused) {
  const auto problems = [](const char* spec) { return read_machine(*kube::parse_json(std::string(R"({"metadata": {"name": "a"}, "spec": )") + spec + "}")).problems; };
  EXPECT_THAT(problems(R"({"host": {}})"), testing::IsEmpty());
  EXPECT_THAT(problems(R"({"host": {}, "power": "Off"})"), testing::ElementsAre(HasSubstr("spec.power")));
  EXPECT_THAT(problems(R"({"host": {}, "link": "Cut"})"), testing::ElementsAre(HasSubstr("spec.link")));
  EXPECT_THAT(problems(R"({"host": {}, "local": {}})"), testing::ElementsAre(HasSubstr("one of them")));
  EXPECT_THAT(problems(R"({"host": {"instanceType": "ml.none"}})"), testing::ElementsAre(HasSubstr("ml.none")));
  EXPECT_THAT(problems("{}"), testing::ElementsAre(HasSubstr("spec.local")));
}

}  // namespace
}  // namespace fairlead::api
