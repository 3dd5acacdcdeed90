// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/login_renewal.h"

#include <gmock/gmock.h>

namespace fairlead::slurm {
namespace {

using kube::Json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using namespace std::chrono_literals;

constexpr Instant kNow{std::chrono::seconds(1'800'000'000)};
const Sessions kNobody{}, kAda{3, {"ada"}};

LoginPod login(int n, std::optional<Sessions> sessions, bool renew = true, bool ready = true) { return {"login-" + std::to_string(n), "u" + std::to_string(n), true, ready, renew, std::move(sessions)}; }

TEST(LoginRenewal, NothingIsDoneUnlessItIsWanted) {
  const auto plan = plan_login_renewal({login(0, kNobody, false)}, Json(), kNow);
  EXPECT_EQ(plan.end, "");
  EXPECT_TRUE(plan.memory.is_null());
  EXPECT_FALSE(plan.look_again);
}

TEST(LoginRenewal, EndsWhatTwoLooksFoundEmpty) {
  auto plan = plan_login_renewal({login(0, kNobody)}, Json(), kNow);
  EXPECT_EQ(plan.end, "") << "one look";
  ASSERT_TRUE(plan.look_again);
  EXPECT_EQ(plan_login_renewal({login(0, kNobody)}, plan.memory, kNow + 1s).end, "") << "too early";
  EXPECT_EQ(plan_login_renewal({login(0, kNobody)}, plan.memory, kNow - 1h).end, "") << "a clock that was set back";
  EXPECT_EQ(plan_login_renewal({login(0, kNobody)}, plan.memory, kNow + 5s).end, "login-0");
  LoginPod other = login(0, kNobody);
  other.uid = "another";
  EXPECT_EQ(plan_login_renewal({other}, plan.memory, kNow + 5s).end, "") << "another pod was seen empty";
  // Somebody came in between.
  auto busy = plan_login_renewal({login(0, kAda)}, plan.memory, kNow + 5s);
  EXPECT_EQ(busy.end, "");
  EXPECT_TRUE(busy.memory.is_null());
  EXPECT_THAT(busy.notes, ElementsAre(HasSubstr("when nobody is logged in; there are ada")));
  EXPECT_EQ(plan_login_renewal({login(0, kNobody)}, busy.memory, kNow + 6s).end, "") << "it begins anew";
}

TEST(LoginRenewal, UnknownIsSomebody) {
  const auto plan = plan_login_renewal({login(0, std::nullopt)}, Json::object({{"uid", "u0"}, {"emptySince", print_time(kNow - 1h)}}), kNow);
  EXPECT_EQ(plan.end, "");
  EXPECT_THAT(plan.notes, ElementsAre(HasSubstr("it does not say who is")));
}

TEST(LoginRenewal, OneAtATimeTheEmptyFirst) {
  const Json seen = Json::object({{"uid", "u2"}, {"emptySince", print_time(kNow - 5s)}});
  auto plan = plan_login_renewal({login(0, kAda), login(1, kNobody), login(2, kNobody)}, seen, kNow);
  EXPECT_EQ(plan.end, "login-2");
  EXPECT_THAT(plan.notes, ElementsAre(HasSubstr("login-2 is made anew for other mounts: nobody"), HasSubstr("login-1 is made anew for other mounts after the others"), HasSubstr("login-0 is made anew for other mounts when nobody")));
  plan = plan_login_renewal({login(0, kAda), login(1, kNobody), login(2, std::nullopt, false, false)}, Json(), kNow);
  EXPECT_EQ(plan.end, "");
  EXPECT_TRUE(plan.memory.is_null());
  EXPECT_THAT(plan.notes, ElementsAre(HasSubstr("login-1 is made anew for other mounts when login-2 is ready"), HasSubstr("login-0 is made anew for other mounts when login-2 is ready")));
  LoginPod away{.name = "login-2"};
  EXPECT_THAT(plan_login_renewal({login(1, kNobody), away}, Json(), kNow).notes, ElementsAre(HasSubstr("when login-2 is ready")));
}

TEST(LoginRenewal, AnswersAreRead) {
  EXPECT_EQ(read_sessions(R"({"processes":3,"people":["ada"]})"), kAda);
  EXPECT_EQ(read_sessions(R"({"processes":0,"people":[]})"), kNobody);
  for (const char* bad : {"", "{}", "[]", R"({"processes":-1,"people":[]})", R"({"processes":0})", R"({"processes":1,"people":["a b"]})", R"({"processes":1,"people":[""]})", R"({"processes":"0","people":[]})"})
    EXPECT_FALSE(read_sessions(bad)) << bad;
  EXPECT_FALSE(read_sessions(R"({"processes":0,"people":[")" + std::string(70'000, 'x') + R"("]})"));
}

}  // namespace
}  // namespace fairlead::slurm
