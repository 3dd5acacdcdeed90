// SPDX-License-Identifier: Apache-2.0
// Real containers: crun, conmon, overlayfs, cgroups, CNI.
#include "node/oci_runtime.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/inotify.h>

#include <array>
#include <csignal>

#include "base/encoding.h"
#include "node/log_reader.h"
#include "node/node_fixture.h"

namespace fairlead::node {
namespace {
using namespace std::chrono_literals;
using testing::HasSubstr;

class OciRuntimeTest : public NodeTest {
 protected:
  void SetUp() override {
    NodeTest::SetUp();
    if (HasFatalFailure()) return;
    open_runtime();
  }
  std::string make_pod(const std::string& name) {
    const std::string uid = "uid-" + name;
    EXPECT_TRUE(runtime_->accept({.uid = uid, .space = "default", .name = name, .accepted = clock_.now()}));
    auto sandbox = runtime_->ensure_sandbox({.pod_uid = uid, .hostname = name, .limits = {.pids = 512}});
    EXPECT_TRUE(sandbox) << sandbox.error().message;
    return uid;
  }
  ContainerSpec shell(const std::string& uid, const std::string& script, int attempt = 0) {
    auto image = find_image(images_dir(), busybox());
    EXPECT_TRUE(image);
    ContainerSpec spec;
    spec.pod_uid = uid;
    spec.name = "main";
    spec.attempt = attempt;
    spec.id = container_id(uid, "main", attempt);
    spec.image = *image;
    spec.argv = {"/bin/sh", "-c", script};
    spec.env = {"PATH=/bin:/usr/bin"};
    spec.capabilities = {"CAP_CHOWN", "CAP_KILL", "CAP_SETGID", "CAP_SETUID"};
    return spec;
  }
  // Waits for the container's end by the folder that the agent watches.
  Attempt wait_for_end(const std::string& uid) {
    const Fd watch(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
    ::inotify_add_watch(watch.get(), runtime_->exits_dir().c_str(), IN_MOVED_TO | IN_CLOSE_WRITE);
    std::array<char, 4096> told{};
    for (int i = 0; i < 300; ++i) {
      auto seen = runtime_->look(uid);
      EXPECT_TRUE(seen) << seen.error().message;
      if (!seen) break;
      if (auto& latest = seen->containers["main"].latest; latest && latest->end) return *latest;
      pollfd ready{.fd = watch.get(), .events = POLLIN, .revents = 0};
      ::poll(&ready, 1, 100);
      while (::read(watch.get(), told.data(), told.size()) > 0) {}  // what was told is over: the next poll waits again
    }
    ADD_FAILURE() << "the container did not end";
    return {};
  }
  std::string log(const std::string& uid, int attempt = 0) {
    auto text = read_file(runtime_->log_path(runtime_->look(uid)->record, "main", attempt));
    return text ? *text : text.error().message;
  }
};

TEST_F(OciRuntimeTest, AContainerRunsToItsExitCodeWithItsLogAndMessage) {
  const std::string uid = make_pod("one");
  ASSERT_TRUE(runtime_->start(shell(uid, "hostname; id -u; echo why > /dev/termination-log; echo bad >&2; exit 7")));
  const Attempt attempt = wait_for_end(uid);
  ASSERT_TRUE(attempt.end);
  EXPECT_EQ(attempt.end->code, 7);
  EXPECT_EQ(attempt.end->reason, "Error");
  EXPECT_EQ(attempt.end->message, "why\n");
  EXPECT_TRUE(attempt.started);
  EXPECT_THAT(log(uid), testing::AllOf(HasSubstr(" stdout F one\n"), HasSubstr(" stdout F 0\n"), HasSubstr(" stderr F bad\n")));
}

TEST_F(OciRuntimeTest, PodsReachEachOtherAndShareNothingElse) {
  const std::string first = make_pod("first"), second = make_pod("second");
  const std::string ip = runtime_->look(first)->sandbox->ip;
  EXPECT_THAT(ip, testing::StartsWith("10.99.7."));
  EXPECT_EQ(runtime_->ensure_sandbox({.pod_uid = first, .hostname = "first"})->ip, ip);  // again: the same
  ASSERT_TRUE(runtime_->start(shell(first, "nc -l -p 4000 < /etc/hostname; echo served")));
  ASSERT_TRUE(runtime_->start(shell(second, "for i in $(seq 150); do nc " + ip + " 4000 -e true && exit 0; sleep 0.2; done; exit 1")));
  EXPECT_EQ(wait_for_end(second).end->code, 0) << log(second);
}

TEST_F(OciRuntimeTest, LimitsHoldAndAnOutOfMemoryKillIsTold) {
  const std::string uid = make_pod("hungry");
  ContainerSpec spec = shell(uid, "tail -c 200000000 /dev/zero > /dev/null");
  spec.limits = {.cpu_shares = 102, .cpu = MilliCpu{500}, .memory = 32_MiB, .pids = 20};
  ASSERT_TRUE(runtime_->start(spec));
  const Attempt attempt = wait_for_end(uid);
  EXPECT_EQ(attempt.end->reason, "OOMKilled");
  EXPECT_EQ(attempt.end->code, 137);
}

TEST_F(OciRuntimeTest, StopSignalsReachTheContainer) {
  const std::string uid = make_pod("polite");
  ASSERT_TRUE(runtime_->start(shell(uid, "trap 'exit 3' TERM; touch /ready; while true; do sleep 0.05; done")));
  ASSERT_TRUE(run_in_container(*runtime_, uid, "main", {"/bin/sh", "-c", "while ! test -e /ready; do sleep 0.02; done"}, 10s));
  ASSERT_TRUE(runtime_->signal(uid, "main", SIGTERM));
  EXPECT_EQ(wait_for_end(uid).end->code, 3);
  EXPECT_EQ(runtime_->signal(uid, "main", SIGTERM).error().code, Code::NotFound);
}

TEST_F(OciRuntimeTest, AnotherImageReplacesThatContainerAlone) {
  const std::string uid = make_pod("changed"), other_name = std::string("localhost/") + busybox();
  kube::Json pod = kube::Json::object({{"metadata", kube::Json::object({{"name", "changed"}, {"namespace", "default"}, {"uid", uid}})}});
  pod.set("spec", kube::Json::object({{"restartPolicy", "Never"}, {"containers", kube::Json::array()}}));
  for (const char* name : {"main", "other"}) {
    pod.child("spec").child("containers").push(kube::Json::object({{"name", name}, {"image", busybox()}}));
    ContainerSpec spec = shell(uid, "exec sleep 1000");
    spec.name = name;
    spec.id = container_id(uid, name, 0);
    ASSERT_TRUE(runtime_->start(spec));
  }
  const auto plan = [&] {
    auto here = runtime_->look(uid);
    PodSeen seen;
    seen.pod = pod;
    seen.sandbox = here->sandbox->id;
    for (const auto& [name, container] : here->containers) seen.containers[name].latest = container.latest;
    return plan_pod(seen, clock_.now()).actions;
  };
  EXPECT_TRUE(plan().empty());
  pod.child("spec").child("containers").items()[0].set("image", other_name);
  const std::vector<Action> stop = plan();
  ASSERT_EQ(stop.size(), 1u);
  ASSERT_TRUE(std::holds_alternative<BeginStop>(stop[0]));
  EXPECT_EQ(std::get<BeginStop>(stop[0]).name, "main");
  ASSERT_TRUE(runtime_->signal(uid, "main", SIGKILL));
  wait_for_end(uid);
  EXPECT_EQ(plan(), (std::vector<Action>{StartContainer{"main", 1, 0}}));

  ContainerSpec next = shell(uid, "exec sleep 1000", 1);
  next.image = *find_image(images_dir(), other_name);
  ASSERT_TRUE(runtime_->start(next));
  EXPECT_TRUE(plan().empty());
  auto here = runtime_->look(uid);
  EXPECT_EQ(here->containers["main"].latest->image, other_name);
  EXPECT_EQ(here->containers["other"].latest->number, 0);
  EXPECT_TRUE(here->containers["other"].latest->running());
}

TEST_F(OciRuntimeTest, ExecGivesOutputStatusAndATerminal) {
  const std::string uid = make_pod("target");
  ASSERT_TRUE(runtime_->start(shell(uid, "sleep 600")));
  auto output = run_in_container(*runtime_, uid, "main", {"/bin/sh", "-c", "echo out; echo err >&2; exit 5"}, 10s);
  ASSERT_TRUE(output) << output.error().message;
  EXPECT_EQ(output->exit.code, 5);
  EXPECT_EQ(output->out, "out\n");
  EXPECT_EQ(output->err, "err\n");

  auto late = run_in_container(*runtime_, uid, "main", {"sleep", "77"}, 300ms);
  ASSERT_FALSE(late);
  auto left = run_in_container(*runtime_, uid, "main", {"/bin/sh", "-c", "ps | grep -c '[s]leep 77'"}, 10s);
  EXPECT_EQ(left->out, "0\n");  // the command itself was killed, not only its waiter

  auto terminal =
      runtime_->exec(uid, "main", {.argv = {"/bin/sh", "-c", "test -t 0 && stty size && read x && echo got $x in $PATH on $TERM"}, .terminal = true});
  ASSERT_TRUE(terminal) << terminal.error().message;
  ASSERT_EQ(::write(terminal->terminal.get(), "abc\n", 4), 4);
  std::string seen;
  char chunk[256];
  for (ssize_t n; (n = ::read(terminal->terminal.get(), chunk, sizeof chunk)) > 0;) seen.append(chunk, static_cast<std::size_t>(n));
  EXPECT_THAT(seen, HasSubstr("got abc in /bin:/usr/bin on xterm"));
  EXPECT_EQ((*terminal->child.wait(10s))->code, 0);
}

TEST_F(OciRuntimeTest, AWrongCommandIsAStartErrorThatSaysWhy) {
  const std::string uid = make_pod("wrong");
  ContainerSpec spec = shell(uid, "");
  spec.argv = {"/no/such/program"};
  auto started = runtime_->start(spec);
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().code, Code::Invalid);
  EXPECT_THAT(started.error().message, HasSubstr("/no/such/program"));
  const Attempt attempt = *runtime_->look(uid)->containers["main"].latest;
  EXPECT_EQ(attempt.end->code, 128);
  EXPECT_EQ(attempt.end->reason, "StartError");
}

TEST_F(OciRuntimeTest, ANewProcessAdoptsARunningContainer) {
  const std::string uid = make_pod("kept");
  ASSERT_TRUE(runtime_->start(shell(uid, "touch /ready; sleep 600")));
  const Attempt before = *runtime_->look(uid)->containers["main"].latest;
  open_runtime();  // a second one, as after a restart
  const Attempt after = *runtime_->look(uid)->containers["main"].latest;
  EXPECT_EQ(before, after);
  EXPECT_TRUE(after.running());
  ASSERT_TRUE(runtime_->signal(uid, "main", SIGKILL));
  EXPECT_EQ(wait_for_end(uid).end->code, 137);
}

TEST_F(OciRuntimeTest, ForgettingLeavesNothing) {
  const std::string uid = make_pod("gone");
  ASSERT_TRUE(runtime_->start(shell(uid, "sleep 600")));
  ASSERT_TRUE(runtime_->forget(uid));
  ASSERT_TRUE(runtime_->forget(uid));
  EXPECT_THAT(*list_dir(root_ + "/node/pods"), testing::IsEmpty());
  EXPECT_THAT(*list_dir(root_ + "/run/pods"), testing::IsEmpty());
  EXPECT_THAT(*list_dir(root_ + "/run/containers"), testing::IsEmpty());
  EXPECT_THAT(*list_dir(root_ + "/run/crun"), testing::IsEmpty());
  EXPECT_THAT(*list_dir(root_ + "/run/exits"), testing::IsEmpty());
  EXPECT_THAT(*list_dir(root_ + "/logs"), testing::IsEmpty());
  EXPECT_FALSE(exists("/sys/fs/cgroup/memory" + cgroup() + "/pod" + uid));
  EXPECT_THAT(*list_dir(root_ + "/run/cni/pods"), testing::Not(testing::Contains(testing::StartsWith("10."))));
}

TEST_F(OciRuntimeTest, FullLogsMoveAsideAndNothingIsLost) {
  auto small = options();
  small.log_file_size = 20_KiB;
  runtime_ = std::move(*OciRuntime::open(small, clock_));
  const std::string uid = make_pod("chatty");
  ASSERT_TRUE(runtime_->start(shell(uid,
                                    "i=0; while [ $i -lt 300 ]; do echo line-$i-$(printf %060d 0); i=$((i+1)); done; touch /half; "
                                    "while ! test -e /go; do sleep 0.02; done; echo after; sleep 600")));
  ASSERT_TRUE(run_in_container(*runtime_, uid, "main", {"/bin/sh", "-c", "while ! test -e /half; do sleep 0.02; done; sleep 0.2"}, 20s));
  runtime_->rotate_logs();
  ASSERT_TRUE(run_in_container(*runtime_, uid, "main", {"touch", "/go"}, 10s));
  const std::string path = runtime_->log_path(runtime_->look(uid)->record, "main", 0);
  for (int i = 0; i < 200 && (!exists(path) || read_file(path)->find("after") == std::string::npos); ++i)
    ASSERT_TRUE(run_in_container(*runtime_, uid, "main", {"true"}, 10s));
  // The monitor splits a line where a read from the pipe ended: the reader puts it together again.
  std::string all;
  LogReader reader(path, {});
  for (auto piece = reader.next(); piece && !piece->empty(); piece = reader.next()) all += *piece;
  EXPECT_THAT(*read_file(path + ".1"), HasSubstr("line-0-"));
  for (int i = 0; i < 300; ++i) EXPECT_THAT(all, HasSubstr("line-" + std::to_string(i) + "-"));
  EXPECT_THAT(*read_file(path), HasSubstr("after"));
}

}  // namespace
}  // namespace fairlead::node
