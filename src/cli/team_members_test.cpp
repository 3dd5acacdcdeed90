// SPDX-License-Identifier: Apache-2.0
#include "cli/team_members.h"

#include <gmock/gmock.h>

namespace fairlead::cli {
namespace {

using kube::Json;

TEST(TeamMembers, AreReadAsPeopleWriteThem) {
  const auto read = [](const std::string& text) {
    const auto subject = read_subject(text);
    return subject ? kube::print_json(*subject) : subject.error().message;
  };
  EXPECT_EQ(read("ada"), R"({"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"ada"})");
  EXPECT_EQ(read("oidc:ada@example.org"), R"({"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"oidc:ada@example.org"})");
  EXPECT_EQ(read("group:interns"), R"({"kind":"Group","apiGroup":"rbac.authorization.k8s.io","name":"interns"})");
  EXPECT_EQ(read("serviceaccount:ci/runner"), R"({"kind":"ServiceAccount","namespace":"ci","name":"runner"})");
  EXPECT_EQ(read("sa:ci/runner"), read("serviceaccount:ci/runner"));
  for (const char* bad : {"", "group:", "user:", "serviceaccount:runner", "serviceaccount:/runner", "serviceaccount:ci/", "serviceaccount:a/b/c", "a\nb"}) EXPECT_FALSE(read_subject(bad)) << bad;
  for (const char* text : {"ada", "group:interns", "serviceaccount:ci/runner", "user:group:odd"}) EXPECT_EQ(text_of_subject(*read_subject(text)), text);
}

TEST(TeamMembers, AreAddedAndTakenAwayOnce) {
  Json binding = kube::parse_yaml("{subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: eve}]}")->at(0);
  std::string told;
  const auto tell = [&](const Json& subject, bool news) { told += text_of_subject(subject) + (news ? "+ " : "= "); };
  const auto ada = *read_subject("ada"), eve = *read_subject("eve"), group = *read_subject("group:ada");
  EXPECT_TRUE(change_members(binding, {ada, eve, group, ada}, true, tell));
  EXPECT_EQ(told, "ada+ eve= group:ada+ ada= ");
  EXPECT_EQ(binding["subjects"].items().size(), 3U);
  EXPECT_FALSE(change_members(binding, {ada}, true, tell));
  told.clear();
  EXPECT_TRUE(change_members(binding, {ada, *read_subject("nobody")}, false, tell));
  EXPECT_EQ(told, "ada+ nobody= ");
  EXPECT_EQ(binding["subjects"].items().size(), 2U);
  Json empty = Json::object();
  EXPECT_FALSE(change_members(empty, {ada}, false, tell));
  EXPECT_TRUE(change_members(empty, {ada}, true, tell)) << "a binding without subjects has no such field";
}

}  // namespace
}  // namespace fairlead::cli
