// SPDX-License-Identifier: Apache-2.0
// One suite for all that is called an agent: the fake, the fake behind HTTP, and a program, where FAIRLEAD_AGENT names its command line (tests/integration/training_agent_test.sh: the stand-in of scenarios, and hyperpodrun itself).
// The program is started as COMMAND --server-host=127.0.0.1 --server-port=PORT --nnodes=1 --nproc-per-node=1 SCRIPT..., where SCRIPT is a training that a file ends.
#include "training/agents.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/process.h"
#include "http/server.h"
#include "http/test_site.h"
#include "training/fake_agents.h"

namespace fairlead::training {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

struct World {
  virtual ~World() = default;
  virtual Agents& agents() = 0;
  virtual AgentAt at() = 0;
  virtual void fail() = 0;
  virtual void complete() = 0;
  virtual void began() {}  // the processes of an attempt are there
};

struct FakeWorld : World {
  FakeAgents fake;
  FakeWorld() { fake.all[{"10.0.0.1", 8080}] = {}; }
  Agents& agents() override { return fake; }
  AgentAt at() override { return {"10.0.0.1", 8080}; }
  void fail() override { fake.fault(at()); }
  void complete() override { fake.complete(at()); }
};

// The fake, by its words.
struct HttpWorld : World {
  FakeAgents fake;
  std::unique_ptr<http::Server> server;
  std::unique_ptr<Agents> http = make_http_agents(AgentReach::AlsoLocal);
  AgentAt inside{"10.0.0.1", 8080};
  HttpWorld() {
    fake.all[inside] = {};
    server = std::move(*http::Server::start({}, [this](http::Request request, const std::shared_ptr<http::Exchange>& exchange) { exchange->respond(serve(request)); }));
  }
  http::Response serve(const http::Request& request) {
    if (fake.all.at(inside).state == AgentState::Shutdown) return {.status = 503};
    if (request.method == "GET" && request.target.path == "/status") {
      const auto said = fake.status({inside})[0];
      kube::Json body = kube::Json::object({{"status", std::string(name(said->state))}, {"transitions", kube::Json::object({})}, {"agent_version", "fake"}});
      if (!said->reason.empty()) body.set("reason", said->reason);
      if (!said->message.empty()) body.set("message", said->message);
      if (!said->attempt.empty()) body.set("ipversion", said->attempt);
      return {.status = 200, .body = kube::print_json(body)};
    }
    Agents::Order order{.at = inside};
    if (request.target.path == "/start") {
      const auto body = kube::parse_json(request.body);
      if (!body || (*body)["master_addr"].string().empty()) return {.status = 422};
      order.start = {.rank = static_cast<int>((*body)["rank"].integer()), .nodes = static_cast<int>((*body)["nnodes"].integer()), .restarts = static_cast<int>((*body)["faultCount"].integer()), .attempt = (*body)["ipVersion"].string()};
    } else if (request.target.path == "/stop") {
      order.what = Agents::Order::What::Stop;
    } else if (request.target.path == "/shutdown") {
      order.what = Agents::Order::What::Shutdown;
    } else {
      return {.status = 404};
    }
    (void)fake.tell({order});
    return {.status = 200};
  }
  Agents& agents() override { return *http; }
  AgentAt at() override { return {"127.0.0.1", server->port()}; }
  void fail() override { fake.fault(inside); }
  void complete() override { fake.complete(inside); }
};

struct ProgramWorld : World {
  http::TestFolder folder;
  std::unique_ptr<Agents> http = make_http_agents(AgentReach::AlsoLocal);
  std::optional<Child> child;
  unsigned short port = static_cast<unsigned short>(20'000 + ::getpid() % 10'000);
  explicit ProgramWorld(const std::string& command) {
    const std::string script = folder.write("train.py",
                                            "import os, sys, time\n"
                                            "print('attempt', os.environ['TORCHELASTIC_RESTART_COUNT'], 'rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'], flush=True)\n"
                                            "open(sys.argv[1] + '/began', 'w').close()\n"
                                            "while True:\n"
                                            "    if os.path.exists(sys.argv[1] + '/fail'): sys.exit(3)\n"
                                            "    if os.path.exists(sys.argv[1] + '/complete'): sys.exit(0)\n"
                                            "    time.sleep(0.1)\n");
    Command start;
    std::istringstream words(command);
    for (std::string word; words >> word;)
      if (word != "SCRIPT") start.argv.push_back(word);
      else for (const std::string& one : {script, folder.path()}) start.argv.push_back(one);
    for (std::string& word : start.argv)
      if (const auto cut = word.find("PORT"); cut != std::string::npos) word.replace(cut, 4, std::to_string(port));
    std::map<std::string, std::string> environment;
    for (char** one = environ; *one != nullptr; ++one) {
      const std::string pair = *one;
      environment[pair.substr(0, pair.find('='))] = pair.substr(pair.find('=') + 1);
    }
    environment["NNODES"] = "1";
    environment["NPROC_PER_NODE"] = "1";
    start.environment = environment;
    start.stdout_fd = start.stderr_fd = 2;
    start.die_with_parent = true;
    auto started = Child::start(start);
    if (!started) throw std::runtime_error(started.error().message);
    child.emplace(std::move(*started));
  }
  ~ProgramWorld() override {
    (void)child->signal(SIGTERM);
    (void)child->wait(std::chrono::seconds(10));
  }
  Agents& agents() override { return *http; }
  AgentAt at() override { return {"127.0.0.1", port}; }
  void fail() override { std::ofstream(folder.path() + "/fail").flush(); }
  void complete() override { std::ofstream(folder.path() + "/complete").flush(); }
  void began() override {
    for (int i = 0; i < 600 && !std::filesystem::exists(folder.path() + "/began"); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    ASSERT_TRUE(std::filesystem::exists(folder.path() + "/began"));
    for (const char* file : {"/began", "/fail", "/complete"}) std::filesystem::remove(folder.path() + file);
  }
};

struct Kind {
  const char* name;
  std::unique_ptr<World> (*make)();
};
class AgentSuite : public testing::TestWithParam<Kind> {
 public:
  AgentReport wait_for(AgentState state) {
    AgentReport last;
    for (int i = 0; i < 600; ++i) {
      if (const auto said = world->agents().status({world->at()})[0]) {
        last = *said;
        if (said->state == state) return last;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(GetParam().make == nullptr ? 100 : 20));
    }
    ADD_FAILURE() << "never " << name(state) << ", last " << name(last.state) << " " << last.message;
    return last;
  }
  void tell(Agents::Order order) {
    order.at = world->at();
    const auto done = world->agents().tell({order})[0];
    ASSERT_TRUE(done) << done.error().message;
  }
  StartOrder first{.rank = 0, .nodes = 1, .restarts = 0, .attempt = "abc-0x1", .master_address = "127.0.0.1", .master_port = 29500, .addresses = std::make_shared<const std::vector<std::string>>(1, "127.0.0.1")};
  std::unique_ptr<World> world;
};

TEST_P(AgentSuite, ALife) {
  const char* const command = std::getenv("FAIRLEAD_AGENT");
  if (GetParam().make != nullptr) world = GetParam().make();
  else if (command == nullptr) GTEST_SKIP() << "FAIRLEAD_AGENT names no program";
  else world = std::make_unique<ProgramWorld>(command);

  EXPECT_EQ(wait_for(AgentState::Ready).attempt, "");
  tell({.what = Agents::Order::What::Start, .start = first});
  EXPECT_EQ(wait_for(AgentState::Running).attempt, "abc-0x1") << "it says what it was started with";
  world->began();
  world->fail();
  const AgentReport fault = wait_for(AgentState::Faulted);
  EXPECT_EQ(fault.attempt, "abc-0x1");
  EXPECT_EQ(fault.reason, "WorkerCrash");
  EXPECT_THAT(fault.message, HasSubstr("exited with code"));
  EXPECT_EQ(fault.message.find('\n'), std::string::npos);
  tell({.what = Agents::Order::What::Stop});
  (void)wait_for(AgentState::Ready);
  StartOrder second = first;
  second.restarts = 1;
  second.attempt = "abc-1x1";
  second.master_port = 29501;
  second.rules = kube::Json::array({kube::Json::object({{"name", "Start"}, {"logPattern", "attempt"}, {"expectedStartCutOffInSeconds", 300}})});
  tell({.what = Agents::Order::What::Start, .start = second});
  EXPECT_EQ(wait_for(AgentState::Running).attempt, "abc-1x1");
  world->began();
  // Out of the middle, too.
  tell({.what = Agents::Order::What::Stop, .stop = {.graceful = false, .timeout_seconds = 5}});
  EXPECT_EQ(wait_for(AgentState::Ready).attempt, "abc-1x1") << "ready, whatever it did before";
  second.attempt = "abc-2x1";
  tell({.what = Agents::Order::What::Start, .start = second});
  world->began();
  world->complete();
  EXPECT_EQ(wait_for(AgentState::Completed).attempt, "abc-2x1");
  tell({.what = Agents::Order::What::Shutdown});
  for (int i = 0; i < 300; ++i) {
    const auto said = world->agents().status({world->at()})[0];
    if (!said || said->state == AgentState::Shutdown) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  ADD_FAILURE() << "it does not leave";
}

INSTANTIATE_TEST_SUITE_P(, AgentSuite,
                         testing::Values(Kind{"Fake", [] { return std::unique_ptr<World>(std::make_unique<FakeWorld>()); }}, Kind{"FakeOverHttp", [] { return std::unique_ptr<World>(std::make_unique<HttpWorld>()); }}, Kind{"Program", nullptr}),
                         [](const auto& kind) { return kind.param.name; });

TEST(HttpAgents, WhatAnswersIsNotAlwaysAnAgent) {
  const std::vector<std::pair<int, std::string>> answers{{200, "hello"}, {200, "{}"}, {200, R"({"status":"RUNNING"})"}, {404, R"({"status":"running"})"}, {302, ""}, {200, std::string(200, '[')}, {200, R"({"status":{"a":1}})"}, {200, R"({"status":"running"})"}, {200, std::string(70'000, ' ') + R"({"status":"ready","agent_version":"1","transitions":{}})"}};
  std::size_t at = 0;
  auto server = http::Server::start({}, [&](http::Request, const std::shared_ptr<http::Exchange>& exchange) { exchange->respond({.status = answers[at].first, .headers = {}, .body = answers[at].second, .parts = {}}); });
  ASSERT_TRUE(server);
  const auto agents = make_http_agents(AgentReach::AlsoLocal);
  for (; at < answers.size(); ++at) {
    const auto said = agents->status({{"127.0.0.1", (*server)->port()}})[0];
    ASSERT_FALSE(said) << at;
    EXPECT_EQ(said.error().code, Code::Invalid) << at << " " << said.error().message;
  }
  server->reset();
  const auto nobody = agents->status({{"127.0.0.1", 1}})[0];
  ASSERT_FALSE(nobody);
  EXPECT_EQ(nobody.error().code, Code::Unavailable);
}

TEST(HttpAgents, WhatIsNoAddressOfAPodIsNotAsked) {
  const auto agents = make_http_agents();
  for (const char* address : {"127.0.0.1", "127.1.2.3", "0.0.0.0", "169.254.169.254", "224.0.0.1", "::1", "::", "fe80::1", "::ffff:127.0.0.1", "localhost", "metadata.internal", ""}) {
    const auto said = agents->status({{address, 1}})[0];
    ASSERT_FALSE(said);
    EXPECT_EQ(said.error().code, Code::Invalid) << address;
  }
}

TEST(HttpAgents, ManyAreAskedSideBySide) {
  std::atomic<int> asked{0};
  auto server = http::Server::start({.threads = 8}, [&](http::Request, const std::shared_ptr<http::Exchange>& exchange) {
    ++asked;
    exchange->respond({.status = 200, .headers = {}, .body = R"({"status":"ready","agent_version":"1","transitions":{}})", .parts = {}});
  });
  ASSERT_TRUE(server);
  const auto agents = make_http_agents(AgentReach::AlsoLocal);
  const std::vector<AgentAt> all(100, {"127.0.0.1", (*server)->port()});
  for (const auto& one : agents->status(all)) EXPECT_EQ(one->state, AgentState::Ready);
  EXPECT_EQ(asked, 100);
}

TEST(AgentWire, WhatAContainerSaysIsCut) {
  const auto said = parse_agent_report(kube::print_json(kube::Json::object({{"status", "faulted"}, {"agent_version", "1.1.3"}, {"transitions", kube::Json::object({})}, {"reason", std::string(5000, 'r')}, {"message", "a\nb\x1b[31m" + std::string(3000, 'm')}, {"ipversion", std::string(500, 'v')}})));
  ASSERT_TRUE(said);
  EXPECT_LE(said->reason.size(), 1027u);
  EXPECT_THAT(said->message, StartsWith("a b [31mmm"));
  EXPECT_LE(said->message.size(), 1027u);
  EXPECT_EQ(said->attempt, "?");
}

}  // namespace
}  // namespace fairlead::training
