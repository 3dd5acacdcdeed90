// SPDX-License-Identifier: Apache-2.0
#include "apiserver/auth_impersonation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

namespace fairlead::apiserver {
namespace {

std::string needed(const Impersonation& wanted) {
  std::vector<std::string> out;
  for (const Attributes& a : wanted.needed) out.push_back(fmt::format("{}{}{} {}{}", a.resource, a.subresource.empty() ? "" : "/", a.subresource, a.space.empty() ? "" : a.space + ":", a.name));
  return fmt::format("{}", fmt::join(out, ", "));
}

TEST(AuthImpersonation, HeadersSayWhoAndWhatIsNeeded) {
  struct Row {
    http::Headers headers;
    const char *needed, *user, *groups;
  };
  for (const Row& row : {
           Row{{{"Impersonate-User", "eve"}}, "users eve", "eve", "system:authenticated"},
           Row{{{"impersonate-user", "eve"}, {"Impersonate-Group", "a"}, {"Impersonate-Group", "b"}}, "users eve, groups a, groups b", "eve", "a,b,system:authenticated"},
           Row{{{"Impersonate-User", "system:serviceaccount:team:bot"}}, "serviceaccounts team:bot", "system:serviceaccount:team:bot",
               "system:serviceaccounts,system:serviceaccounts:team,system:authenticated"},
           Row{{{"Impersonate-User", "system:serviceaccount:team:bot"}, {"Impersonate-Group", "a"}}, "serviceaccounts team:bot, groups a", "system:serviceaccount:team:bot",
               "a,system:authenticated"},
           Row{{{"Impersonate-User", "system:serviceaccount:team"}}, "users system:serviceaccount:team", "system:serviceaccount:team", "system:authenticated"},
           Row{{{"Impersonate-User", "system:anonymous"}}, "users system:anonymous", "system:anonymous", "system:unauthenticated"},
           Row{{{"Impersonate-User", "eve"}, {"Impersonate-Group", "system:unauthenticated"}}, "users eve, groups system:unauthenticated", "eve", "system:unauthenticated"},
           Row{{{"Impersonate-User", "eve"}, {"Impersonate-Uid", "7"}, {"Impersonate-Extra-Scopes%2fx", "view"}}, "users eve, uids 7, userextras/scopes/x view", "eve",
               "system:authenticated"},
       }) {
    const auto parsed = parse_impersonation(row.headers);
    ASSERT_TRUE(parsed && *parsed);
    EXPECT_EQ(needed(**parsed), row.needed);
    EXPECT_EQ((*parsed)->user.name, row.user);
    EXPECT_EQ(fmt::format("{}", fmt::join((*parsed)->user.groups, ",")), row.groups);
  }
}

TEST(AuthImpersonation, WithoutHeadersNobodyIsImpersonated) {
  const auto parsed = parse_impersonation({{"Accept", "x"}, {"If-Match", "y"}});
  ASSERT_TRUE(parsed);
  EXPECT_FALSE(*parsed);
}

TEST(AuthImpersonation, AGroupNeedsAUser) {
  for (const http::Headers& headers : {http::Headers{{"Impersonate-Group", "system:masters"}}, http::Headers{{"Impersonate-Uid", "1"}}, http::Headers{{"Impersonate-Extra-a", "b"}},
                                       http::Headers{{"Impersonate-User", ""}}, http::Headers{{"Impersonate-Everything", "1"}}}) {
    EXPECT_FALSE(parse_impersonation(headers));
  }
}

}  // namespace
}  // namespace fairlead::apiserver
