// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>

#include "agent/host_duty.h"
#include "agent/host_facts.h"
#include "agent/join.h"
#include "base/files.h"
#include "http/pki.h"
#include "http/server.h"
#include "kube/tiny_api.h"

namespace fairlead::agent {
namespace {

using kube::Json;
using testing::ElementsAre;
using testing::HasSubstr;

class Host : public testing::Test {
 protected:
  Host() {
    char name[] = "/tmp/fairlead-host-XXXXXX";
    root_ = ::mkdtemp(name);
  }
  ~Host() override { (void)remove_tree(root_); }
  void put(const std::string& path, const std::string& text, mode_t mode = 0644) {
    ASSERT_TRUE(make_dirs(root_ + path.substr(0, path.rfind('/'))));
    ASSERT_TRUE(write_file_atomically(root_ + path, text, mode));
  }
  std::string root_;
};

TEST_F(Host, TellsWhatItHas) {
  put("/proc/meminfo", "MemTotal:       16303428 kB\nMemFree: 1 kB\n");
  put("/etc/os-release", "NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n");
  for (const char* const card : {"0000:01:00.0", "0000:02:00.0"}) put(std::string("/proc/driver/nvidia/gpus/") + card + "/information", "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ: 1\n");
  for (const char* const device : {"/dev/neuron0", "/dev/neuron1", "/dev/neuron10", "/dev/neuronx", "/dev/null0"}) put(device, "");
  put("/cdi/nvidia.json", R"({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{"name": "0"}, {"name": "1"}, {"name": "all"}]})");
  const auto facts = look_at_host("10.0.0.7", {.root = root_, .path = {}, .cdi_dirs = {root_ + "/cdi"}});
  ASSERT_TRUE(facts) << facts.error().message;
  EXPECT_EQ(facts->memory_mib, 15'921);
  EXPECT_GE(facts->cpus, 1);
  EXPECT_EQ(facts->os, "Debian GNU/Linux 12 (bookworm)");
  // What pods cannot get does not count.
  EXPECT_EQ(facts->devices, (std::map<std::string, std::int64_t>{{"nvidia.com/gpu", 2}}));
  EXPECT_EQ(facts->devices_text, "2 x NVIDIA H100 80GB HBM3, 3 x AWS Neuron (which no CDI file names)");
  EXPECT_EQ(look_at_host("10.0.0.7", {.root = root_, .path = {}})->devices_text, "2 x NVIDIA H100 80GB HBM3 (which no CDI file names), 3 x AWS Neuron (which no CDI file names)");
  EXPECT_EQ(facts->address, "10.0.0.7");
}

TEST_F(Host, WithoutItsFilesNothingIsMadeUp) {
  EXPECT_FALSE(look_at_host("10.0.0.7", {.root = root_, .path = {}}));
  put("/proc/meminfo", "nothing\n");
  EXPECT_FALSE(look_at_host("10.0.0.7", {.root = root_, .path = {}}));
}

TEST_F(Host, WhatItLacksIsNamedWithARemedy) {
  put("/proc/filesystems", "nodev\ttmpfs\n");
  std::vector<std::string> lacks;
  for (const Lack& one : what_host_lacks({.root = root_, .path = {"/bin"}})) lacks.push_back(one.what + ": " + one.remedy);
  EXPECT_THAT(lacks, ElementsAre(HasSubstr("crun"), HasSubstr("apt install conmon"), HasSubstr("nftables"), HasSubstr("ptp"), HasSubstr("host-local"), HasSubstr("overlay"), HasSubstr("no cgroups")));
  for (const char* const program : {"/bin/crun", "/bin/conmon", "/bin/nft", "/usr/lib/cni/ptp", "/usr/lib/cni/host-local"}) put(program, "#!/bin/sh\n", 0755);
  put("/proc/filesystems", "nodev\toverlay\n");
  put("/sys/fs/cgroup/cgroup.controllers", "cpu\n");
  EXPECT_TRUE(what_host_lacks({.root = root_, .path = {"/bin"}}).empty());
  put("/sys/fs/cgroup/unified/cgroup.procs", "1\n");
  ASSERT_EQ(what_host_lacks({.root = root_, .path = {"/bin"}}).size(), 1U);
}

TEST(Renewal, IsDueWhenTwoThirdsAreOver) {
  const Instant begin = *parse_time("2026-01-01T00:00:00Z"), end = begin + 24h * 90;
  EXPECT_FALSE(renewal_is_due(begin, end, begin + 24h * 59));
  EXPECT_TRUE(renewal_is_due(begin, end, begin + 24h * 61));
  EXPECT_TRUE(renewal_is_due(begin, end, end + 24h));
}

// A site's door: what it answers is the test's.
class Joining : public Host {
 protected:
  void SetUp() override {
    ca_ = *http::make_ca("ca", SystemClock().now());
    const auto pair = *http::issue(ca_, {.common_name = "server", .ip_addresses = {"127.0.0.1"}, .server = true}, SystemClock().now());
    put("/server.crt", pair.certificate_pem);
    put("/server.key", pair.key_pem, 0600);
    auto server = http::Server::start({.address = "127.0.0.1", .port = 0, .unix_socket = {}, .tls = http::TlsFiles{.certificate = root_ + "/server.crt", .key = root_ + "/server.key", .client_ca = {}}, .connection_limit = 10},
                                      [this](http::Request request, std::shared_ptr<http::Exchange> exchange) { exchange->respond(answer_(request)); });
    ASSERT_TRUE(server) << server.error().message;
    server_ = std::move(*server);
    options_.token = {.servers = {"https://127.0.0.1:" + std::to_string(server_->port())}, .ca_pem = ca_.certificate_pem, .name = "a", .secret = std::string(64, 'a')};
    options_.address = "10.0.0.7";
    options_.places = {.config_dir = root_ + "/etc", .state_dir = root_ + "/state", .run_dir = root_ + "/run"};
    options_.patience = 0ms;
  }
  http::Response accept(const http::Request& request) {
    const auto asked = api::parse_join_request(request.body);
    keys_.push_back(*http::fingerprint_of_request(asked->signing_request));
    api::JoinAnswer out{.certificate = *http::sign(ca_, asked->signing_request, {.common_name = "system:node:a", .client = true}, SystemClock().now()), .ca_pem = ca_.certificate_pem, .pod_cidr = "10.78.3.0/24", .cluster_domain = "cluster.local", .pods_range = "10.78.0.0/16", .volumes_dir = "/v", .companion_dir = "/b", .labels = {{"rack", "r1"}}};
    return {.status = 200, .headers = {}, .body = api::print_join_answer(out)};
  }
  static http::Response refuse(int status, const char* why) { return {.status = status, .headers = {}, .body = kube::print_json(Json::object({{"message", why}}))}; }
  std::vector<std::string> files() { return exists(root_ + "/etc") ? *list_dir(root_ + "/etc") : std::vector<std::string>{}; }

  http::KeyPair ca_;
  std::function<http::Response(const http::Request&)> answer_ = [this](const http::Request& request) { return accept(request); };
  std::vector<std::string> keys_;
  std::unique_ptr<http::Server> server_;
  JoinOptions options_;
  SystemClock clock_;
};

TEST_F(Joining, WritesAConfigurationThatTheAgentReads) {
  const auto joined = join(options_, clock_);
  ASSERT_TRUE(joined) << joined.error().message;
  EXPECT_EQ(joined->pod_cidr, "10.78.3.0/24");
  const auto config = node::read_node_config(options_.places.config());
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->node_name, "a");
  EXPECT_EQ(config->node_ip, "10.0.0.7");
  EXPECT_EQ(config->volumes_dir, "/v");
  EXPECT_EQ(config->companion_dir, "/b");
  EXPECT_EQ(config->labels.at("rack"), "r1");
  EXPECT_TRUE(config->joined);
  EXPECT_TRUE(config->masquerade);
  struct stat about {};
  ASSERT_EQ(::stat(options_.places.key().c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600U);
  EXPECT_EQ(*http::fingerprint_of_key(*read_file(options_.places.key())), keys_.at(0));
  // Again: it is as it was, and nobody is asked. As another machine: no.
  answer_ = [](const http::Request&) -> http::Response { ADD_FAILURE(); return {}; };
  const auto again = join(options_, clock_);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_TRUE(again->before);
  options_.token.name = "b";
  EXPECT_EQ(join(options_, clock_).error().code, Code::Exists);
}

TEST_F(Joining, WhoseAnswerWasLostAsksAgainByTheSameKey) {
  answer_ = [this](const http::Request& request) {
    (void)accept(request);
    return refuse(503, "in a moment");
  };
  EXPECT_EQ(join(options_, clock_).error().code, Code::Unavailable);
  EXPECT_THAT(files(), ElementsAre("node.key.new"));
  answer_ = [this](const http::Request& request) { return accept(request); };
  ASSERT_TRUE(join(options_, clock_));
  EXPECT_EQ(keys_.at(0), keys_.at(1));
  // Installed anew: by another key.
  options_.again = true;
  ASSERT_TRUE(join(options_, clock_));
  EXPECT_NE(keys_.at(2), keys_.at(1));
}

TEST_F(Joining, WhoWasRefusedKeepsNothing) {
  answer_ = [](const http::Request&) { return refuse(409, "this token was used before"); };
  const auto joined = join(options_, clock_);
  EXPECT_EQ(joined.error().code, Code::Conflict);
  EXPECT_EQ(joined.error().message, "this token was used before");
  EXPECT_TRUE(files().empty());
}

TEST_F(Joining, WhoWasRefusedKeepsWhatWorked) {
  ASSERT_TRUE(join(options_, clock_));
  const std::string key = *read_file(options_.places.key());
  options_.again = true;
  answer_ = [](const http::Request&) { return refuse(401, "this token is not known here"); };
  EXPECT_EQ(join(options_, clock_).error().code, Code::Unauthorized);
  EXPECT_EQ(*read_file(options_.places.key()), key);
  EXPECT_FALSE(exists(options_.places.next_key()));
  // Recorded there, lost on the way; then an older token is tried, then the right one again: by the key that was recorded.
  answer_ = [this](const http::Request& request) {
    (void)accept(request);
    return refuse(500, "lost");
  };
  EXPECT_FALSE(join(options_, clock_));
  answer_ = [](const http::Request&) { return refuse(401, "this token is not known here"); };
  EXPECT_FALSE(join(options_, clock_));
  answer_ = [this](const http::Request& request) { return accept(request); };
  ASSERT_TRUE(join(options_, clock_));
  EXPECT_EQ(keys_.at(1), keys_.at(2));
  EXPECT_EQ(*http::fingerprint_of_key(*read_file(options_.places.key())), keys_.at(2));
}

TEST_F(Joining, AKeyThatWaitsIsNoLeaveToTakeAnotherSitesPlace) {
  ASSERT_TRUE(join(options_, clock_));
  options_.again = true;
  answer_ = [](const http::Request&) { return refuse(503, "in a moment"); };
  EXPECT_FALSE(join(options_, clock_));
  ASSERT_TRUE(exists(options_.places.next_key()));
  options_.again = false;
  options_.token.name = "elsewhere";
  answer_ = [this](const http::Request& request) { return accept(request); };
  EXPECT_EQ(join(options_, clock_).error().code, Code::Exists);
  options_.token.name = "a";
  EXPECT_TRUE(join(options_, clock_));
}

TEST_F(Joining, CutOffAnywhereItIsFinishedTheNextTime) {
  ASSERT_TRUE(join(options_, clock_));
  const auto same = [&] {
    const auto key = read_file(options_.places.key()), certificate = read_file(options_.places.certificate());
    return key && certificate && *http::fingerprint_of_key(*key) == *http::fingerprint_of_certificate(*certificate);
  };
  EXPECT_TRUE(same());
  // All but the last step: nobody is asked.
  ASSERT_EQ(::rename(options_.places.key().c_str(), options_.places.next_key().c_str()), 0);
  const std::size_t asked = keys_.size();
  ASSERT_TRUE(join(options_, clock_));
  EXPECT_EQ(keys_.size(), asked);
  EXPECT_TRUE(same());
  // Before the configuration was written.
  ASSERT_EQ(::rename(options_.places.key().c_str(), options_.places.next_key().c_str()), 0);
  ASSERT_EQ(::unlink(options_.places.config().c_str()), 0);
  ASSERT_TRUE(join(options_, clock_));
  EXPECT_EQ(keys_.back(), keys_.front());
  EXPECT_TRUE(same());
  EXPECT_FALSE(exists(options_.places.next_key()));
}

TEST_F(Joining, AGroupThatIsNotItsOwnIsRefusedBeforeAnythingIsReplaced) {
  for (const char* const group : {"/", "/a/../b", "/a/", "a"}) {
    options_.places.cgroup_parent = group;
    EXPECT_FALSE(join(options_, clock_)) << group;
    EXPECT_FALSE(exists(options_.places.certificate()));
  }
}

TEST_F(Joining, OneAgentAtATime) {
  auto first = lock_agent(root_ + "/run");
  ASSERT_TRUE(first);
  EXPECT_EQ(lock_agent(root_ + "/run").error().code, Code::Conflict);
  first->reset();
  EXPECT_TRUE(lock_agent(root_ + "/run"));
}

TEST_F(Joining, ADryRunAsksNobody) {
  answer_ = [](const http::Request&) -> http::Response { ADD_FAILURE(); return {}; };
  options_.dry_run = true;
  ASSERT_TRUE(join(options_, clock_));
  EXPECT_TRUE(files().empty());
}

TEST_F(Joining, AServerOfAnotherAuthorityIsNotTrusted) {
  answer_ = [](const http::Request&) -> http::Response { ADD_FAILURE(); return {}; };
  options_.token.ca_pem = http::make_ca("another", clock_.now())->certificate_pem;
  EXPECT_THAT(join(options_, clock_).error().message, HasSubstr("not trusted"));
}

TEST_F(Joining, AnAnswerThatIsNoneIsRefused) {
  for (const char* const body : {"", "[]", "{}", "{\"certificate\": \"x\"}"}) {
    answer_ = [body](const http::Request&) { return http::Response{.status = 200, .headers = {}, .body = body}; };
    EXPECT_EQ(join(options_, clock_).error().code, Code::Internal) << body;
    EXPECT_FALSE(exists(options_.places.config()));
  }
  answer_ = [](const http::Request&) { return http::Response{.status = 500, .headers = {}, .body = "<html>"}; };
  EXPECT_THAT(join(options_, clock_).error().message, HasSubstr("answered 500"));
}

TEST_F(Joining, RenewsByTheCertificateThatItHas) {
  ASSERT_TRUE(join(options_, clock_));
  const auto config = *node::read_node_config(options_.places.config());
  const std::string before = *read_file(config.cert_file);
  answer_ = [this](const http::Request& request) {
    EXPECT_EQ(request.target.path, api::kRenewPath);
    const std::string asked = (*kube::parse_json(request.body))["request"].string();
    return http::Response{.status = 200, .headers = {}, .body = kube::print_json(Json::object({{"certificate", *http::sign(ca_, asked, {.common_name = "system:node:a", .client = true}, SystemClock().now())}}))};
  };
  ASSERT_TRUE(renew_certificate(config));
  EXPECT_NE(*read_file(config.cert_file), before);
  // Of another key, or none: the one that is there stays.
  const std::string good = *read_file(config.cert_file);
  answer_ = [this](const http::Request&) { return http::Response{.status = 200, .headers = {}, .body = kube::print_json(Json::object({{"certificate", ca_.certificate_pem}}))}; };
  EXPECT_EQ(renew_certificate(config).error().code, Code::Invalid);
  answer_ = [](const http::Request&) { return refuse(401, "its machine is not of this site any more"); };
  EXPECT_EQ(renew_certificate(config).error().code, Code::Unauthorized);
  EXPECT_EQ(*read_file(config.cert_file), good);
}

class Duty : public Host {
 protected:
  void certificate(Instant begin, std::chrono::hours valid) {
    const auto ca = *http::make_ca("ca", begin);
    put("/node.crt", http::issue(ca, {.common_name = "a", .client = true, .valid = valid}, begin)->certificate_pem);
  }
  void machine(const std::string& phase, const std::string& boot) {
    api_.all("machines")[{"", "a"}] = Json::object({{"metadata", Json::object({{"name", "a"}})}, {"status", Json::object({{"reboot", Json::object({{"id", "r"}, {"phase", phase}, {"began", "2026-02-28T23:50:00Z"}, {"was", Json::object({{"boot", boot}})}})}})}});
  }
  std::unique_ptr<HostDuty> duty() {
    node::NodeConfig config;
    config.node_name = "a";
    config.cert_file = root_ + "/node.crt";
    return std::make_unique<HostDuty>(api_, clock_, config, "boot-1", HostDutyPorts{.renew = [this]() -> Result<void> { ++renewals_; if (fresh_) certificate(*fresh_, 24h * 90); return renewable_ ? Result<void>() : fail(Code::Unavailable, "no"); }, .restart = [this] { ++restarts_; }, .reboot = [this]() -> Result<void> { ++reboots_; return {}; }});
  }
  // The thread's own first round.
  template <class Condition>
  static bool comes(const Condition& condition) {
    for (int i = 0; i < 2'000 && !condition(); ++i) ::usleep(1'000);
    return condition();
  }
  ManualClock clock_{*parse_time("2026-03-01T00:00:00Z")};
  kube::TinyApi api_;
  bool renewable_ = true;
  std::optional<Instant> fresh_;  // when the new certificate begins; none: it stays the old one
  std::atomic<int> renewals_{0}, restarts_{0}, reboots_{0};
};

TEST_F(Duty, RenewsInTimeAndStartsAnew) {
  certificate(clock_.now() - 24h * 61, 24h * 90);
  fresh_ = clock_.now();
  const auto running = duty();
  EXPECT_TRUE(comes([this] { return restarts_ == 1; }));
  EXPECT_EQ(renewals_, 1);
}

TEST_F(Duty, WhatIsNotDueOrNotPossibleRestartsNothing) {
  certificate(clock_.now() - 24h, 24h * 90);
  { const auto running = duty(); EXPECT_FALSE(comes([this] { return renewals_ > 0 || restarts_ > 0; })); }
  certificate(clock_.now() - 24h * 89, 24h * 90);
  renewable_ = false;
  const auto running = duty();
  EXPECT_TRUE(comes([this] { return renewals_ == 1; }));
  EXPECT_EQ(restarts_, 0);
}

TEST_F(Duty, ByAWrongClockItDoesNotStartAnewAllTheTime) {
  certificate(clock_.now() - 24h * 80, 24h * 90);
  fresh_ = clock_.now() - 24h * 70;  // the server's now
  const auto running = duty();
  EXPECT_TRUE(comes([this] { return renewals_ == 1; }));
  EXPECT_FALSE(comes([this] { return restarts_ > 0; }));
}

TEST_F(Duty, RebootsIfItsOwnBootIsNamed) {
  machine("Rebooting", "boot-1");
  const auto running = duty();
  EXPECT_TRUE(comes([this] { return reboots_ == 1; }));
}

TEST(RebootOrder, MeansThisBootAloneAndIsForgottenAfterAWhile) {
  const Instant now = *parse_time("2026-03-01T00:00:00Z");
  const auto order = [](const char* phase, const char* boot, const char* began = "2026-02-28T23:59:00Z") { return Json::object({{"status", Json::object({{"reboot", Json::object({{"phase", phase}, {"began", began}, {"was", Json::object({{"boot", boot}})}})}})}}); };
  EXPECT_TRUE(is_to_reboot(order("Rebooting", "b1"), "b1", now));
  EXPECT_FALSE(is_to_reboot(order("Rebooting", "b0"), "b1", now));
  EXPECT_FALSE(is_to_reboot(order("Done", "b1"), "b1", now));
  EXPECT_FALSE(is_to_reboot(order("Refused", "b1"), "b1", now));
  EXPECT_FALSE(is_to_reboot(order("Rebooting", ""), "", now));
  EXPECT_FALSE(is_to_reboot(order("Rebooting", "b1", "2026-02-28T23:30:00Z"), "b1", now));
  EXPECT_FALSE(is_to_reboot(order("Rebooting", "b1", ""), "b1", now));
  EXPECT_FALSE(is_to_reboot(Json::object(), "b1", now));
}

}  // namespace
}  // namespace fairlead::agent
