// SPDX-License-Identifier: Apache-2.0
#include "fleet/host_socket.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <future>

#include "base/clock.h"
#include "base/files.h"
#include "fleet/fake_host.h"
#include "kube/json.h"

namespace fairlead::fleet {
namespace {

using testing::HasSubstr;

// A host whose nodes need a certificate, as the real one's do.
class CertifiedHost final : public LocalHost {
 public:
  CertifiedHost(FakeHost& fake, std::function<Result<http::KeyPair>(const http::CertificateRequest&)> issue, std::vector<std::string>& keys, std::string asks_for)
      : fake_(fake), issue_(std::move(issue)), keys_(keys), asks_for_(std::move(asks_for)) {}
  Result<void> ready() override { return fake_.ready(); }
  Result<Observation> observe(const std::string& name, const api::Seat& seat) override { return fake_.observe(name, seat); }
  Result<ProcessIdentity> start(const api::Machine& machine) override {
    auto pair = issue_({.common_name = "system:node:" + (asks_for_.empty() ? machine.name : asks_for_), .organizations = {}, .dns_names = {machine.name}, .ip_addresses = {machine.seat.address}});
    if (!pair) return std::unexpected(std::move(pair.error()));
    keys_.push_back(pair->key_pem);
    return fake_.start(machine);
  }
  Result<void> connect(const std::string& name, const api::Seat& seat) override { return fake_.connect(name, seat); }
  Result<void> set_link(const api::Seat& seat, api::Link link) override { return fake_.set_link(seat, link); }
  Result<void> kill(const std::string& name) override { return fake_.kill(name); }
  Result<void> stop(const std::string& name, std::chrono::milliseconds grace) override { return fake_.stop(name, grace); }
  Result<void> remove(const std::string& name, const api::Seat& seat) override { return fake_.remove(name, seat); }
  void watch_exits(std::function<void(const std::string&)> callback) override { fake_.watch_exits(std::move(callback)); }

 private:
  FakeHost& fake_;
  std::function<Result<http::KeyPair>(const http::CertificateRequest&)> issue_;
  std::vector<std::string>& keys_;
  const std::string asks_for_;
};

class HostSocket : public testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/fairlead-machines-XXXXXX";
    dir_ = ::mkdtemp(pattern);
    serve();
    remote_ = make_remote_host({.socket = socket(),
                                .ranges = ranges_,
                                .api_port = 7443,
                                .ca_pem = "the site's certificate",
                                .issue = [this](const http::CertificateRequest& request) -> Result<http::KeyPair> {
                                  issued_.push_back(request.common_name + " " + request.ip_addresses.at(0));
                                  return http::KeyPair{.certificate_pem = "certificate", .key_pem = "key of " + request.common_name};
                                },
                                .on_address = [this](const std::string& address) -> Result<void> {
                                  addresses_.push_back(address);
                                  return {};
                                }});
  }
  void TearDown() override {
    remote_.reset();
    service_.reset();
    EXPECT_FALSE(exists(socket()));
    EXPECT_TRUE(remove_tree(dir_));
  }
  std::string socket() const { return dir_ + "/machines.sock"; }
  void serve() {
    auto service = MachinesService::start({.socket = socket(), .user = ::geteuid(), .group = ::getegid(), .make_host = [this](const SiteFacts& site, auto issue) {
                                             sites_.push_back(site);
                                             return std::make_unique<CertifiedHost>(fake_, std::move(issue), keys_, asks_for_);
                                           }});
    ASSERT_TRUE(service) << service.error().message;
    service_ = std::move(*service);
  }
  api::Machine machine(const std::string& name, int index) {
    api::Machine out;
    out.name = name;
    out.seat = seat_of(ranges_, index);
    out.spec.capacity = {{"cpu", "1"}, {"memory", "256Mi"}};
    out.spec.labels = {{"example.com/pool", "gpu"}};
    return out;
  }
  const Ranges ranges_ = *parse_ranges("10.177.0.0/16", "10.178.0.0/16");
  SystemClock clock_;
  FakeHost fake_{clock_};
  std::string dir_, asks_for_;
  std::vector<std::string> issued_, addresses_, keys_;
  std::vector<SiteFacts> sites_;
  std::unique_ptr<MachinesService> service_;
  std::unique_ptr<LocalHost> remote_;
};

TEST_F(HostSocket, AWholeLife) {
  const auto node = machine("worker-0", 3);
  ASSERT_TRUE(remote_->ready());
  ASSERT_TRUE(remote_->ready());
  EXPECT_THAT(addresses_, testing::ElementsAre("10.177.0.1"));
  const auto started = remote_->start(node);
  ASSERT_TRUE(started) << started.error().message;
  EXPECT_THAT(issued_, testing::ElementsAre("system:node:worker-0 10.177.1.3"));
  EXPECT_THAT(keys_, testing::ElementsAre("key of system:node:worker-0"));
  ASSERT_TRUE(remote_->connect(node.name, node.seat));
  EXPECT_EQ(remote_->observe(node.name, node.seat)->wire, Wire::Up);
  ASSERT_TRUE(remote_->set_link(node.seat, api::Link::Cut));
  const auto seen = remote_->observe(node.name, node.seat);
  ASSERT_TRUE(seen);
  EXPECT_EQ(*seen, *fake_.observe(node.name, node.seat));
  EXPECT_EQ(seen->process, *started);
  EXPECT_EQ(seen->wire, Wire::Cut);
  ASSERT_TRUE(remote_->kill(node.name));
  EXPECT_FALSE(remote_->observe(node.name, node.seat)->process);
  ASSERT_TRUE(remote_->stop(node.name, std::chrono::milliseconds(5)));
  ASSERT_TRUE(remote_->remove(node.name, node.seat));
  EXPECT_EQ(*remote_->observe(node.name, node.seat), Observation{});
  ASSERT_EQ(sites_.size(), 1U);
  EXPECT_EQ(sites_[0], (SiteFacts{.node_range = "10.177.0.0/16", .pod_range = "10.178.0.0/16", .api_port = 7443, .ca_pem = "the site's certificate"}));
}

TEST_F(HostSocket, ErrorsKeepTheirCode) {
  const auto outcome = remote_->connect("worker-0", seat_of(ranges_, 1));
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code, Code::Unavailable);
  EXPECT_EQ(outcome.error(), fake_.connect("worker-0", seat_of(ranges_, 1)).error());
}

TEST_F(HostSocket, NoCertificateForAnotherNamesNode) {
  service_.reset();
  asks_for_ = "somebody-else";
  serve();
  const auto started = remote_->start(machine("worker-0", 3));
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().code, Code::Forbidden);
  EXPECT_TRUE(issued_.empty());
}

TEST_F(HostSocket, TellsOfAnEndAndOfThoseThatItMissed) {
  std::promise<std::string> first, second;
  remote_->watch_exits([&, times = 0](const std::string& name) mutable {
    if (++times == 1) first.set_value(name);
    if (times == 2) second.set_value(name);
  });
  const auto node = machine("worker-0", 1);
  ASSERT_TRUE(remote_->start(node));
  // Until the watching connection stands, an end would go unheard; it is one of the calls that made the host.
  auto told = first.get_future();
  for (int i = 0; i < 400 && told.wait_for(std::chrono::milliseconds(25)) != std::future_status::ready; ++i) {
    if (fake_.observe(node.name, node.seat)->process) fake_.crash(node.name);
    else ASSERT_TRUE(fake_.start(node));
  }
  ASSERT_EQ(told.wait_for(std::chrono::seconds(0)), std::future_status::ready);
  EXPECT_EQ(told.get(), "worker-0");

  service_.reset();  // the helper goes away; the node ends meanwhile
  EXPECT_THAT(remote_->observe(node.name, node.seat).error().message, HasSubstr("systemctl start fairlead-machines"));
  serve();
  auto again = second.get_future();
  ASSERT_EQ(again.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_EQ(again.get(), "worker-0");
}

TEST_F(HostSocket, OnlyOneServes) {
  const auto second = MachinesService::start({.socket = socket(), .user = 0, .group = 0, .make_host = {}});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::Exists);
  EXPECT_TRUE(remote_->ready());
}

struct Refused {
  const char* name;
  const char* field;
  kube::Json value;
};
class WireRefuses : public testing::TestWithParam<Refused> {};
TEST_P(WireRefuses, What) {
  {
    // Of two families: the seat follows from the ranges, unless the machine is from before.
    HostRequest both{.call = HostCall::Connect, .site = {.node_range = "10.77.0.0/16,fd00:77::/64", .pod_range = "10.78.0.0/16,fd00:78::/56", .api_port = 6443, .ca_pem = "c"}};
    both.machine.name = "a";
    both.machine.seat = seat_of(*parse_ranges(both.site.node_range, both.site.pod_range), 3);
    auto told = parse_request(print_request(both));
    ASSERT_TRUE(told) << told.error().message;
    EXPECT_EQ(told->site, both.site);
    EXPECT_EQ(told->machine.seat, both.machine.seat);
    both.machine.seat = seat_of(Ranges{}, 3);
    told = parse_request(print_request(both));
    ASSERT_TRUE(told) << told.error().message;
    EXPECT_EQ(told->machine.seat, both.machine.seat);
  }
  HostRequest good{.call = HostCall::Start, .site = {.node_range = "10.77.0.0/16", .pod_range = "10.78.0.0/16", .api_port = 6443, .ca_pem = "c"}};
  good.machine.name = "worker-0";
  good.machine.seat.index = 1;
  good.machine.spec.capacity = {{"cpu", "1"}, {"memory", "1Gi"}};
  const std::string text = print_request(good);
  ASSERT_TRUE(parse_request(text));
  auto json = *kube::parse_json(text);
  if (std::string_view(GetParam().field).starts_with("site."))
    json.child("site").set(GetParam().field + 5, GetParam().value);
  else
    json.set(GetParam().field, GetParam().value);
  const auto parsed = parse_request(kube::print_json(json));
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().code, Code::Invalid);
}
INSTANTIATE_TEST_SUITE_P(Wire, WireRefuses,
                         testing::Values(Refused{"a_path_as_name", "name", "../../etc"}, Refused{"no_name", "name", ""}, Refused{"a_slash", "name", "a/b"}, Refused{"a_number_as_name", "name", 7},
                                         Refused{"no_seat", "seat", 0}, Refused{"a_seat_too_high", "seat", 255}, Refused{"a_negative_seat", "seat", -1},
                                         Refused{"another_call", "call", "reboot"}, Refused{"a_range_that_is_none", "site.nodes", "everything"},
                                         Refused{"a_small_range", "site.pods", "10.78.0.0/30"}, Refused{"port_0", "site.port", 0}, Refused{"no_certificate", "site.ca", ""},
                                         Refused{"no_spec", "spec", nullptr}, Refused{"grace_for_ever", "grace_ms", 1'000'000'000}),
                         [](const auto& row) { return row.param.name; });

TEST(Wire, AnswersComeBackAsTheyWere) {
  const Observation running{.leftovers = true, .process = ProcessIdentity{.pid = 7, .start_ticks = 99}, .started_at = Instant(std::chrono::nanoseconds(1'700'000'000'123'456'789)), .wire = Wire::Up};
  for (const Observation& seen : {Observation{}, running}) {
    const auto back = parse_answer(print_answer(seen));
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_TRUE(*back == seen);
  }
  const auto error = parse_answer(print_answer(fail(Code::Exhausted, "no room")));
  ASSERT_FALSE(error);
  EXPECT_EQ(error.error(), (Error{Code::Exhausted, "no room"}));
}

}  // namespace
}  // namespace fairlead::fleet
