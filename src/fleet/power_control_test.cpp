// SPDX-License-Identifier: Apache-2.0
// One suite for the fake, for Redfish against our own service, and for IPMI by ipmitool against OpenIPMI's simulated board; and what only one of them has.
#include "fleet/power_control.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <fstream>
#include <optional>
#include <thread>

#include "base/encoding.h"
#include "base/files.h"
#include "base/process.h"
#include "fleet/fake_power.h"
#include "fleet/ipmi.h"
#include "fleet/redfish.h"
#include "fleet/redfish_service.h"
#include "http/test_site.h"

namespace fairlead::fleet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// A board and the way to it.
class Board {
 public:
  virtual ~Board() = default;
  virtual PowerControl& control() = 0;
  virtual BmcAccess access() = 0;
  virtual std::vector<PowerAction> told() = 0;
};

class FakeBoard final : public Board {
 public:
  FakeBoard() { power_.board("b"); }
  PowerControl& control() override { return power_; }
  BmcAccess access() override { return {.bmc = {.host = "b", .secret = "s"}, .user = "admin", .password = "secret"}; }
  std::vector<PowerAction> told() override { return power_.board("b").told; }

 private:
  FakePower power_;
};

class RedfishBoard final : public Board {
 public:
  explicit RedfishBoard(std::vector<std::string> systems = {"1"}, std::vector<std::string> types = {"On", "ForceOff", "GracefulShutdown", "ForceRestart"}) {
    RedfishServiceOptions options{.tls = site_.files()};
    options.tls.client_ca.clear();
    options.password = "secret";
    options.systems = std::move(systems);
    options.reset_types = std::move(types);
    options.state = [this](const std::string&) -> Result<PowerState> { return state_; };
    options.reset = [this](const std::string& system, const std::string& type) -> Result<void> {
      if (!broken.empty()) return fail(Code::Internal, broken);
      words.push_back(system + " " + type);
      state_ = type == "ForceOff" || type == "GracefulShutdown" || type == "PushPowerButton" ? PowerState::Off : PowerState::On;
      return {};
    };
    service_ = std::move(*RedfishService::open(std::move(options)));
  }
  PowerControl& control() override { return *control_; }
  BmcAccess access() override { return {.bmc = {.host = "127.0.0.1", .port = service_->port(), .secret = "s", .server_key = key()}, .user = "admin", .password = "secret"}; }
  std::string key() const { return *http::fingerprint_of_certificate(site_.server.certificate_pem); }
  const http::TestSite& site() const { return site_; }
  std::vector<PowerAction> told() override {
    std::vector<PowerAction> out;
    for (const std::string& word : words)
      for (const PowerAction action : {PowerAction::On, PowerAction::ForceOff, PowerAction::GracefulShutdown, PowerAction::ForceRestart})
        if (word.ends_with(std::string(" ") + name(action))) out.push_back(action);
    return out;
  }
  std::vector<std::string> words;
  std::string broken;

 private:
  const http::TestSite site_;
  PowerState state_ = PowerState::On;
  std::unique_ptr<RedfishService> service_;
  std::unique_ptr<PowerControl> control_ = make_power_control();
};

// OpenIPMI's simulated board, asked by the real ipmitool.
class IpmiBoard final : public Board {
 public:
  IpmiBoard() {
    const std::string script = folder_.write("board.sh", fmt::format(R"SH(#!/bin/sh
shift
while [ $# -gt 0 ]; do
  case "$1" in
  get) shift; [ "$1" = power ] && echo "power:$(cat {0}/power)" || echo "$1:0" ;;
  set) [ "$2" != power ] || {{ echo "$3" > {0}/power; echo "power $3" >> {0}/told; }}
       [ "$2" != shutdown ] || {{ echo 0 > {0}/power; echo shutdown >> {0}/told; }}
       [ "$2" != reset ] || echo reset >> {0}/told
       shift 2 ;;
  check) shift ;;
  esac
  shift
done
)SH", folder_.path()));
    ::chmod(script.c_str(), 0755);
    folder_.write("power", "1\n");
    folder_.write("lan.conf", fmt::format(R"(name "board"
set_working_mc 0x20
  startlan 1
    addr 127.0.0.1 {0}
    priv_limit admin
    allowed_auths_callback none md2 md5 straight
    allowed_auths_user none md2 md5 straight
    allowed_auths_operator none md2 md5 straight
    allowed_auths_admin none md2 md5 straight
    guid a123456789abcdefa123456789abcdef
  endlan
  chassis_control "{1} 0x20"
  user 1 true "" "none" user 10 none md2 md5 straight
  user 2 true "admin" "secret" admin 10 none md2 md5 straight
)", kPort, script));
    folder_.write("board.emu", "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02\nmc_enable 0x20\n");
    auto child = Child::start({.argv = {"ipmi_sim", "-c", folder_.path() + "/lan.conf", "-f", folder_.path() + "/board.emu", "-s", folder_.path(), "-n"}, .die_with_parent = true});
    if (child) board_.emplace(std::move(*child));
    for (int i = 0; board_ && i < 100 && !control_->state(access()); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  bool there() const { return board_.has_value(); }
  PowerControl& control() override { return *control_; }
  BmcAccess access() override { return {.bmc = {.kind = api::Bmc::Kind::Ipmi, .host = "127.0.0.1", .port = kPort, .secret = "s"}, .user = "admin", .password = "secret"}; }
  std::vector<PowerAction> told() override {
    std::vector<PowerAction> out;
    const auto said = read_file(folder_.path() + "/told");
    for (const std::string& line : split(said ? *said : "", '\n'))
      if (line == "power 0") out.push_back(PowerAction::ForceOff);
      else if (line == "power 1") out.push_back(PowerAction::On);
      else if (line == "reset") out.push_back(PowerAction::ForceRestart);
      else if (line == "shutdown") out.push_back(PowerAction::GracefulShutdown);
    return out;
  }

 private:
  static constexpr unsigned short kPort = 19'623;
  const http::TestFolder folder_;
  std::optional<Child> board_;
  std::unique_ptr<PowerControl> control_ = make_power_control();
};

template <class T>
class AnyPowerControl : public testing::Test {
 protected:
  void SetUp() override {
    if constexpr (std::is_same_v<T, IpmiBoard>)
      if (!board_.there()) GTEST_SKIP() << "ipmi_sim is not installed (package openipmi)";
  }
  T board_;
};
using Boards = testing::Types<FakeBoard, RedfishBoard, IpmiBoard>;
TYPED_TEST_SUITE(AnyPowerControl, Boards);

TYPED_TEST(AnyPowerControl, SwitchesAndTells) {
  PowerControl& control = this->board_.control();
  const BmcAccess access = this->board_.access();
  const auto state = [&] { return control.state(access); };
  ASSERT_TRUE(state()) << state().error().message;
  EXPECT_EQ(*state(), PowerState::On);
  EXPECT_TRUE(control.act(access, PowerAction::ForceRestart));
  EXPECT_EQ(*state(), PowerState::On);
  EXPECT_TRUE(control.act(access, PowerAction::ForceOff));
  EXPECT_EQ(*state(), PowerState::Off);
  EXPECT_TRUE(control.act(access, PowerAction::On));
  EXPECT_EQ(*state(), PowerState::On);
  EXPECT_TRUE(control.act(access, PowerAction::GracefulShutdown));
  EXPECT_EQ(*state(), PowerState::Off);
  EXPECT_THAT(this->board_.told(), ElementsAre(PowerAction::ForceRestart, PowerAction::ForceOff, PowerAction::On, PowerAction::GracefulShutdown));
}

TYPED_TEST(AnyPowerControl, LetsNobodyElseIn) {
  BmcAccess access = this->board_.access();
  access.password = "wrong";
  const Code refused = access.bmc.kind == api::Bmc::Kind::Ipmi ? Code::Unavailable : Code::Unauthorized;
  EXPECT_EQ(this->board_.control().state(access).error().code, refused);
  EXPECT_EQ(this->board_.control().act(access, PowerAction::ForceOff).error().code, refused);
  EXPECT_THAT(this->board_.control().state(access).error().message, Not(HasSubstr("wrong")));
  EXPECT_TRUE(this->board_.told().empty());
}

TYPED_TEST(AnyPowerControl, SaysThatItDoesNotAnswer) {
  BmcAccess access = this->board_.access();
  access.bmc.host = "127.0.0.2";
  access.bmc.port = 1;
  EXPECT_EQ(this->board_.control().state(access).error().code, Code::Unavailable);
}

TEST(Redfish, TrustsNobodyUnlessItIsSaidWhomAndTellsTheKey) {
  RedfishBoard board;
  BmcAccess access = board.access();
  access.bmc.server_key.clear();
  const auto said = board.control().state(access);
  ASSERT_FALSE(said);
  EXPECT_THAT(said.error().message, testing::AllOf(HasSubstr(board.key()), HasSubstr("--key")));
  access.bmc.server_key = std::string(64, '1');
  EXPECT_THAT(board.control().state(access).error().message, HasSubstr("not the one that is trusted"));
  access.bmc.server_key.clear();
  access.bmc.ca_pem = board.site().ca.certificate_pem;
  EXPECT_TRUE(board.control().state(access));
}

TEST(Redfish, OfSeveralSystemsNoneIsGuessed) {
  RedfishBoard board({"left", "right"});
  BmcAccess access = board.access();
  EXPECT_THAT(board.control().act(access, PowerAction::ForceOff).error().message, HasSubstr("several systems"));
  access.bmc.system = "middle";
  EXPECT_EQ(board.control().state(access).error().code, Code::NotFound);
  access.bmc.system = "right";
  EXPECT_TRUE(board.control().act(access, PowerAction::ForceOff));
  access.bmc.system = "/redfish/v1/Systems/left";
  EXPECT_TRUE(board.control().act(access, PowerAction::On));
  EXPECT_THAT(board.words, ElementsAre("right ForceOff", "left On"));
}

TEST(Redfish, TakesTheWordThatTheBoardKnows) {
  RedfishBoard board({"1"}, {"On", "PowerCycle", "PushPowerButton"});
  EXPECT_TRUE(board.control().act(board.access(), PowerAction::ForceRestart));
  EXPECT_TRUE(board.control().act(board.access(), PowerAction::GracefulShutdown));
  EXPECT_TRUE(board.control().act(board.access(), PowerAction::ForceOff));  // it is off
  EXPECT_TRUE(board.control().act(board.access(), PowerAction::On));
  const auto said = board.control().act(board.access(), PowerAction::ForceOff);
  EXPECT_EQ(said.error().code, Code::Unsupported);
  EXPECT_THAT(said.error().message, HasSubstr("takes no ForceOff (On, PowerCycle, PushPowerButton)"));
  EXPECT_THAT(board.words, ElementsAre("1 PowerCycle", "1 PushPowerButton", "1 On"));
}

TEST(Redfish, TellsWhatTheBoardSaysOfAnError) {
  RedfishBoard board;
  board.broken = "The power supply\nis missing.";
  EXPECT_THAT(board.control().act(board.access(), PowerAction::ForceOff).error().message, testing::AllOf(HasSubstr("answered 500"), HasSubstr("The power supply is missing.")));
}

TEST(Redfish, AnswersThatAreNoneAreErrors) {
  for (const char* const body : {"", "[]", "{", "{}", R"({"Systems": "x"})", R"({"Systems": {"@odata.id": "https://elsewhere/"}})", R"({"Systems": {"@odata.id": "//elsewhere/x"}})", R"({"Systems": {"@odata.id": "/\\elsewhere"}})", R"({"Systems": {"@odata.id": "/a\r\nX: y"}})"}) EXPECT_FALSE(read_redfish_root(body)) << body;
  EXPECT_EQ(*read_redfish_root(R"({"Systems": {"@odata.id": "/redfish/v1/Systems"}})"), "/redfish/v1/Systems");
  EXPECT_FALSE(read_redfish_members(R"({"Members": {}})"));
  EXPECT_FALSE(read_redfish_members(R"({"Members": [{"@odata.id": 7}]})"));
  EXPECT_THAT(*read_redfish_members(R"({"Members": [{"@odata.id": "/redfish/v1/Systems/1/"}]})"), ElementsAre("/redfish/v1/Systems/1"));
  EXPECT_FALSE(read_redfish_system(R"({"PowerState": "Fine"})"));
  EXPECT_FALSE(read_redfish_system(R"({"PowerState": "On", "Actions": {"#ComputerSystem.Reset": {"target": "https://elsewhere/"}}})"));
  EXPECT_EQ(read_redfish_system(R"({"PowerState": "PoweringOff"})")->state, PowerState::Changing);
}

// In place of ipmitool: how it is asked.
TEST(Ipmi, AsksByIpmitoolWithoutShowingThePassword) {
  const http::TestFolder folder;
  const std::string program = folder.write("ipmitool", "#!/bin/sh\necho \"$@\" >> " + folder.path() + "/asked\nread -r password < /proc/self/fd/3\n[ \"$password\" = pass ] || { echo 'Error: Unable to establish IPMI v2 / RMCP+ session' >&2; exit 1; }\necho 'Chassis Power is on'\n");
  ::chmod(program.c_str(), 0755);
  const auto control = make_ipmi_control(program);
  BmcAccess access{.bmc = {.kind = api::Bmc::Kind::Ipmi, .host = "10.0.9.7", .port = 623, .secret = "s"}, .user = "admin", .password = "pass"};
  const auto state = control->state(access);
  ASSERT_TRUE(state) << state.error().message;
  EXPECT_EQ(*state, PowerState::On);
  EXPECT_TRUE(control->act(access, PowerAction::ForceOff));
  const std::string asked = *read_file(folder.path() + "/asked");
  EXPECT_THAT(asked, HasSubstr("-I lanplus -H 10.0.9.7 -p 623 -U admin"));
  EXPECT_THAT(asked, HasSubstr("chassis power off"));
  EXPECT_THAT(asked, Not(HasSubstr("pass ")));
  access.password = "else";
  EXPECT_THAT(control->state(access).error().message, HasSubstr("Unable to establish"));
  access.password = std::string(21, 'x');
  EXPECT_EQ(control->state(access).error().code, Code::Invalid);
  EXPECT_THAT(make_ipmi_control("/nowhere/ipmitool")->state({.bmc = access.bmc, .user = "a", .password = "b"}).error().message, HasSubstr("apt install ipmitool"));
  EXPECT_FALSE(read_ipmi_status("Chassis Power is"));
  EXPECT_EQ(*read_ipmi_status("Chassis Power is off\n"), PowerState::Off);
}

}  // namespace
}  // namespace fairlead::fleet
