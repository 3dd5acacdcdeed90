// SPDX-License-Identifier: Apache-2.0
// What LocalHost promises, on both adapters. The real one needs root; its node is a shell in namespaces of its own that honours node-init's contract.
#include "fleet/local_host.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <future>

#include "base/files.h"
#include "fleet/cgroups.h"
#include "fleet/fake_host.h"
#include "fleet/processes.h"
#include "fleet/site.h"
#include "fleet/teardown.h"

namespace fairlead::fleet {
namespace {

using testing::IsEmpty;

// node-init's contract in a few lines: namespaces of its own, a first process that stays, its identity in init.json. It stays as long as the test holds the other end of "alive": a
// test that crashes leaves nothing.
constexpr const char* kNodeInit = R"sh(#!/bin/bash
set -e
dir=$(dirname "$3") alive=$(dirname "$0")/alive
exec 9>/dev/null
setsid unshare --pid --net --mount --uts --ipc --fork --kill-child bash -c 'exec -a fairlead-agent cat "$0"' "$alive" node-init --config "$3" >/dev/null 2>&1 &
outer=$!
for _ in $(seq 500); do
  inner=$(cat /proc/$outer/task/$outer/children 2>/dev/null | tr -d ' ')
  [ -n "$inner" ] && break
  read -rt 0.01 <> <(:) || true
done
ticks=$(sed 's/.*) //' /proc/$inner/stat | cut -d' ' -f20)
echo "{\"pid\": $inner, \"start_ticks\": $ticks}" >"$dir/init.json"
)sh";

// Both families where the machine that tests has both.
Ranges test_ranges() {
  return exists("/proc/net/ipv6_route") ? *parse_ranges("10.177.0.0/16,fd00:177::/64", "10.178.0.0/16,fd00:178::/56") : *parse_ranges("10.177.0.0/16", "10.178.0.0/16");
}

struct Host {
  virtual ~Host() = default;
  virtual LocalHost& host() = 0;
  virtual void crash(const std::string& name) = 0;  // its first process ends by itself
};

struct FakeOne final : Host {
  SystemClock clock;
  FakeHost fake{clock};
  LocalHost& host() override { return fake; }
  void crash(const std::string& name) override { fake.crash(name); }
};

struct RealOne final : Host {
  RealOne() {
    char pattern[] = "/tmp/fairlead-fleet-XXXXXX";
    dir = ::mkdtemp(pattern);
    EXPECT_TRUE(write_file_atomically(dir + "/fairlead-agent", kNodeInit, 0755));
    EXPECT_EQ(::mkfifo((dir + "/alive").c_str(), 0600), 0);
    alive = Fd(::open((dir + "/alive").c_str(), O_RDWR | O_CLOEXEC));
    EXPECT_TRUE(alive);
    EXPECT_TRUE(make_dirs(dir + "/site/run"));
    real = make_local_host({.state_dir = dir + "/site",
                            .agent_program = dir + "/fairlead-agent",
                            .ranges = test_ranges(),
                            .ca_pem = "test",
                            .issue = [](const http::CertificateRequest&) -> Result<http::KeyPair> { return http::KeyPair{.certificate_pem = "c", .key_pem = "k"}; }});
  }
  ~RealOne() override {
    real.reset();
    auto done = teardown_site(dir + "/site", {.keep_images = false});
    EXPECT_TRUE(done) << (done ? "" : done.error().message);
    EXPECT_THAT(site_leftovers(dir + "/site"), IsEmpty());
    EXPECT_FALSE(exists(dir + "/site"));
    EXPECT_TRUE(remove_tree(dir));
  }
  LocalHost& host() override { return *real; }
  void crash(const std::string& name) override {
    const auto seen = real->observe(name, {});
    ASSERT_TRUE(seen && seen->process);
    ASSERT_TRUE(kill_process(*seen->process, std::chrono::seconds(10)));
  }
  std::string dir;
  Fd alive;
  std::unique_ptr<LocalHost> real;
};

class LocalHostPromises : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam() && ::geteuid() != 0) GTEST_SKIP() << "needs root";
    if (GetParam())
      world_ = std::make_unique<RealOne>();
    else
      world_ = std::make_unique<FakeOne>();
  }
  api::Machine machine(const std::string& name, int index) {
    api::Machine out;
    out.name = name;
    out.seat = seat_of(test_ranges(), index);
    out.spec.capacity = {{"cpu", "1"}, {"memory", "256Mi"}};
    return out;
  }
  Observation look(const api::Machine& of) {
    auto seen = world_->host().observe(of.name, of.seat);
    EXPECT_TRUE(seen) << (seen ? "" : seen.error().message);
    return seen ? *seen : Observation{};
  }
  std::unique_ptr<Host> world_;
};

#define EXPECT_WORKS(call)                                              \
  do {                                                                  \
    const auto outcome = (call);                                        \
    EXPECT_TRUE(outcome) << (outcome ? "" : outcome.error().message);   \
  } while (false)

TEST_P(LocalHostPromises, AWholeLife) {
  LocalHost& host = world_->host();
  const auto node = machine("worker-0", 3);
  EXPECT_WORKS(host.ready());
  EXPECT_WORKS(host.ready());
  EXPECT_EQ(look(node), Observation{});

  EXPECT_WORKS(host.start(node));
  Observation seen = look(node);
  ASSERT_TRUE(seen.process);
  EXPECT_TRUE(seen.leftovers);
  EXPECT_TRUE(seen.started_at);
  EXPECT_EQ(seen.wire, Wire::None);

  EXPECT_WORKS(host.connect(node.name, node.seat));
  EXPECT_EQ(look(node).wire, Wire::Up);
  EXPECT_WORKS(host.set_link(node.seat, api::Link::Cut));
  EXPECT_EQ(look(node).wire, Wire::Cut);
  EXPECT_WORKS(host.set_link(node.seat, api::Link::Connected));
  EXPECT_EQ(look(node).wire, Wire::Up);
  EXPECT_WORKS(host.connect(node.name, node.seat));  // again: a new link in place of the old one
  EXPECT_EQ(look(node).wire, Wire::Up);

  EXPECT_WORKS(host.kill(node.name));
  EXPECT_WORKS(host.kill(node.name));
  seen = look(node);
  EXPECT_FALSE(seen.process);
  EXPECT_EQ(seen.wire, Wire::None);
  EXPECT_TRUE(seen.started_at);

  const auto first = host.start(node);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_WORKS(host.connect(node.name, node.seat));
  EXPECT_EQ(look(node).wire, Wire::Up);

  EXPECT_WORKS(host.stop(node.name, std::chrono::milliseconds(200)));
  EXPECT_WORKS(host.remove(node.name, node.seat));
  EXPECT_WORKS(host.remove(node.name, node.seat));
  EXPECT_EQ(look(node), Observation{});
}

TEST_P(LocalHostPromises, ADeadNodeCannotBeConnected) {
  const auto node = machine("worker-0", 1);
  EXPECT_WORKS(world_->host().ready());
  const auto outcome = world_->host().connect(node.name, node.seat);
  ASSERT_FALSE(outcome);
  EXPECT_EQ(outcome.error().code, Code::Unavailable);
}

TEST_P(LocalHostPromises, TellsOfAnEnd) {
  LocalHost& host = world_->host();
  std::promise<std::string> told;
  host.watch_exits([&, once = false](const std::string& name) mutable {
    if (!std::exchange(once, true)) told.set_value(name);
  });
  const auto node = machine("worker-0", 1);
  EXPECT_WORKS(host.ready());
  EXPECT_WORKS(host.start(node));
  look(node);
  world_->crash(node.name);
  auto future = told.get_future();
  ASSERT_EQ(future.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_EQ(future.get(), "worker-0");
}

TEST_P(LocalHostPromises, NodesReachOneAnotherUnlessCut) {
  if (!GetParam()) GTEST_SKIP() << "packets only on the real one";
  LocalHost& host = world_->host();
  const auto one = machine("a", 1), two = machine("b", 2);
  EXPECT_WORKS(host.ready());
  for (const auto& node : {one, two}) {
    EXPECT_WORKS(host.start(node));
    EXPECT_WORKS(host.connect(node.name, node.seat));
  }
  const auto from = look(one).process;
  ASSERT_TRUE(from);
  // TCP to a closed port: refused means reached, a time-out means cut.
  const auto reach = [&](const std::string& address) {
    auto output = run({.argv = {"nsenter", "--net=/proc/" + std::to_string(from->pid) + "/ns/net", "timeout", "2", "bash", "-c", "exec 3<>/dev/tcp/" + address + "/9"},
                       .environment = {}, .working_directory = {}}, std::chrono::seconds(10));
    return output && output->err.find("refused") != std::string::npos;
  };
  const auto six = [&](const char* address) { return two.seat.address6.empty() || reach(address); };
  EXPECT_TRUE(reach("10.177.1.2"));
  EXPECT_TRUE(reach("10.177.0.1"));  // this machine
  EXPECT_TRUE(six("fd00:177::102"));
  EXPECT_TRUE(six("fd00:177::1"));
  EXPECT_WORKS(host.set_link(two.seat, api::Link::Cut));
  EXPECT_FALSE(reach("10.177.1.2"));
  EXPECT_TRUE(reach("10.177.0.1"));
  EXPECT_WORKS(host.set_link(two.seat, api::Link::Connected));
  EXPECT_TRUE(reach("10.177.1.2"));
  EXPECT_TRUE(six("fd00:177::102"));
}

INSTANTIATE_TEST_SUITE_P(Fleet, LocalHostPromises, testing::Bool(), [](const auto& row) { return row.param ? "real" : "fake"; });

}  // namespace
}  // namespace fairlead::fleet
