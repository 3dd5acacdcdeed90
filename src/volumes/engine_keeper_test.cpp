// SPDX-License-Identifier: Apache-2.0
#include "volumes/engine_keeper.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/fd.h"
#include "base/files.h"

namespace fairlead::volumes {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(EngineOrders, AreReadAsTheyAreWritten) {
  const std::vector<std::string> order{"serve", "--file", "/a b/\n", ""};
  EXPECT_EQ(*read_order(print_order(order)), order);
  EXPECT_THAT(*read_order(std::string("serve\0", 6)), ElementsAre("serve"));
}
TEST(EngineOrders, AreForEnginesAlone) {
  for (const std::string& wrong : {std::string(), std::string("serve"), std::string("stop\0", 5), std::string("\0", 1), std::string("\0serve\0", 7), "serve" + std::string(80, '\0')}) EXPECT_FALSE(read_order(wrong)) << wrong;
}

// What it starts is a script that notes what it was given, and leaves a child behind as an engine does.
struct Keeping : testing::Test {
  Keeping() {
    char name[] = "/tmp/fairlead-keeper-XXXXXX";
    folder = ::mkdtemp(name);
    socket = folder + "/s";
    EXPECT_TRUE(write_file_atomically(folder + "/engine", "#!/bin/sh\nif [ \"$2\" = bad ]; then echo 'it does not like this' >&2; exit 3; fi\necho \"$2 $(cat)\" > " + folder + "/got\nsleep 60 < /dev/null > /dev/null 2>&1 &\necho $! > " + folder + "/pid\n", 0700));
  }
  ~Keeping() override {
    end_engine();
    keeper.reset();
    EXPECT_TRUE(remove_tree(folder));
  }
  void start() {
    auto begun = EngineKeeper::start(socket, folder + "/engine");
    ASSERT_TRUE(begun) << begun.error().message;
    keeper = std::move(*begun);
  }
  void end_engine() {
    if (const auto pid = read_file(folder + "/pid", 64_KiB)) ::kill(static_cast<pid_t>(std::atoi(pid->c_str())), SIGKILL), ::unlink((folder + "/pid").c_str());
  }
  bool comes_to(bool keeps) const {
    for (int i = 0; i < 200 && keeper->keeps() != keeps; ++i) std::this_thread::sleep_for(10ms);
    return keeper->keeps() == keeps;
  }
  std::string folder, socket;
  std::unique_ptr<EngineKeeper> keeper;
};

TEST_F(Keeping, StartsAndKeeps) {
  start();
  EXPECT_FALSE(keeper->keeps());
  const auto done = ask_keeper(socket, {"serve", "one"}, 10s, "the key");
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(*read_file(folder + "/got", 64_KiB), "one the key\n");
  EXPECT_TRUE(keeper->keeps()) << "it is this process' child now";
  end_engine();
  EXPECT_TRUE(comes_to(false)) << "and is reaped by it";
}

TEST_F(Keeping, TellsWhatWasSaid) {
  start();
  const auto bad = ask_keeper(socket, {"serve", "bad"}, 10s);
  ASSERT_FALSE(bad);
  EXPECT_THAT(bad.error().message, HasSubstr("it exited with 3: it does not like this"));
  EXPECT_THAT(ask_keeper(socket, {"stop"}, 10s).error().message, HasSubstr("engines are started here, and nothing else"));
  EXPECT_TRUE(comes_to(false));
  ASSERT_TRUE(remove_tree(folder + "/engine"));
  EXPECT_THAT(ask_keeper(socket, {"serve", "one"}, 10s).error().message, HasSubstr("/engine"));
}

TEST_F(Keeping, IsOneAtATimeAndComesAgainAfterADeath) {
  EXPECT_FALSE(keeper_answers(socket));
  EXPECT_EQ(ask_keeper(socket, {"serve"}, 1s).error().code, Code::Unavailable);
  start();
  EXPECT_TRUE(keeper_answers(socket));
  EXPECT_EQ(EngineKeeper::start(socket, folder + "/engine").error().code, Code::Conflict);
  keeper->close();
  EXPECT_FALSE(keeper_answers(socket));
  // One that was killed leaves its socket.
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, socket.c_str(), socket.size() + 1);
  Fd left(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(left.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  left.reset();
  ASSERT_TRUE(exists(socket));
  keeper.reset();
  start();
  EXPECT_TRUE(keeper_answers(socket));
}

TEST_F(Keeping, IsForItsOwnerAndOutlivesNonsense) {
  start();
  struct stat about {};
  ASSERT_EQ(::stat(socket.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0700u & 0777u & ~0077u);
  // Orders without streams, and connections that say nothing.
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, socket.c_str(), socket.size() + 1);
  for (const std::string& words : {std::string(), std::string("serve\0", 6), std::string(1000, 'x')}) {
    const Fd to(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::connect(to.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    if (words.empty()) continue;
    ASSERT_EQ(::send(to.get(), words.data(), words.size(), MSG_NOSIGNAL), static_cast<ssize_t>(words.size()));
    char answer[16];
    EXPECT_LE(::recv(to.get(), answer, sizeof answer, 0), 0) << "no answer is one: the connection ends";
  }
  EXPECT_TRUE(ask_keeper(socket, {"serve", "one"}, 10s, "k"));
}

TEST_F(Keeping, StartsManyAtOnce) {
  start();
  std::vector<std::jthread> all;
  std::atomic<int> done{0};
  for (int i = 0; i < 12; ++i)
    all.emplace_back([&] {
      const auto bad = ask_keeper(socket, {"serve", "bad"}, 20s);
      if (!bad && bad.error().message.find("exited with 3") != std::string::npos) ++done;
    });
  all.clear();
  EXPECT_EQ(done, 12);
  EXPECT_TRUE(comes_to(false));
}

}  // namespace
}  // namespace fairlead::volumes
