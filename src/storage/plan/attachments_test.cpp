// SPDX-License-Identifier: Apache-2.0
#include "storage/plan/attachments.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/volume.h"

namespace fairlead::storage {
namespace {

using kube::Json;

// "NAME@NODE", older ones first; + reads, ! alone.
Wish wish(const std::string& text, int age) {
  const auto at = text.find('@');
  const std::string name = text.substr(0, at), node = text.substr(at + 1, text.find_first_of("+!") - at - 1);
  return {.pod = Json::object({{"metadata", Json::object({{"name", name}, {"namespace", "team"}, {"uid", "u-" + name}, {"creationTimestamp", fmt::format("2026-11-27T12:00:{:02}Z", age)}})}, {"spec", Json::object({{"nodeName", node}})}}), .read_only = text.ends_with('+'), .alone = text.ends_with('!')};
}
// "NODE", + reads, ~ is ending, * is somebody's, =POD is that pod's alone.
Json attachment(std::string text) {
  const auto end = text.find_first_of("+~*=");
  Json out = api::new_attachment("v", "here", text.substr(0, end), text.find('+') != text.npos);
  if (text.find('*') == text.npos) out.child("metadata").set("labels", Json::object({{api::kForPods, "true"}}));
  if (text.find('~') != text.npos) out.child("metadata").set("deletionTimestamp", "2026-11-27T12:01:00Z");
  if (const auto of = text.find('='); of != text.npos) out.child("metadata").set("annotations", Json::object({{api::kForPod, "u-" + text.substr(of + 1)}}));
  return out;
}

struct Case {
  const char* name;
  std::vector<std::string> pods, there;
  const char *remove, *make, *waits;
  const char* why = "";
};
class Attachments : public testing::TestWithParam<Case> {};
TEST_P(Attachments, FollowThePods) {
  const Case& row = GetParam();
  std::vector<Wish> wishes;
  for (const std::string& one : row.pods) wishes.push_back(wish(one, static_cast<int>(wishes.size())));
  std::vector<Json> there;
  for (const std::string& one : row.there) there.push_back(attachment(one));
  const AttachPlan plan = plan_attachments("pv", wishes, there);
  std::string remove, make, waits, why;
  const auto add = [](std::string& to, const std::string& text) { to += (to.empty() ? "" : " ") + text; };
  for (const Json& one : plan.remove) add(remove, one["spec"]["node"].string());
  for (const auto& one : plan.make) add(make, one.node + (one.read_only ? "+" : "") + (one.pod.empty() ? "" : "=" + one.pod.substr(2)));
  for (const auto& one : plan.tell) add(waits, kube::name_of(one.pod)), why += one.message + "; ";
  EXPECT_EQ(remove, row.remove);
  EXPECT_EQ(make, row.make);
  EXPECT_EQ(waits, row.waits);
  EXPECT_THAT(why, testing::HasSubstr(row.why));
  std::reverse(wishes.begin(), wishes.end());
  const AttachPlan again = plan_attachments("pv", wishes, there);
  EXPECT_EQ(again.make, plan.make) << "whatever the order";
}
INSTANTIATE_TEST_SUITE_P(
    All, Attachments,
    testing::Values(
        Case{"nothing", {}, {}, "", "", ""},
        Case{"one_pod", {"a@n0"}, {}, "", "n0", ""},
        Case{"two_pods_of_a_node", {"a@n0", "b@n0"}, {}, "", "n0", ""},
        Case{"the_older_one_first", {"a@n1", "b@n0"}, {}, "", "n1", "b", "it is attached to node n1, and one node at a time has it"},
        Case{"who_has_it_keeps_it", {"a@n1", "b@n0"}, {"n0"}, "", "", "a"},
        Case{"nobody_needs_it", {}, {"n0"}, "n0", "", ""},
        Case{"somebody_elses_stays", {"a@n1"}, {"n0*"}, "", "", "a"},
        Case{"it_ends_first", {"a@n1"}, {"n0~"}, "", "", "a"},
        Case{"its_own_is_ending", {"a@n0"}, {"n0~"}, "", "", ""},
        Case{"from_node_to_node", {"a@n1"}, {"n0"}, "n0", "", "a"},
        Case{"readers_anywhere", {"a@n1+", "b@n0+", "c@n0+"}, {}, "", "n1+ n0+", ""},
        Case{"another_reader", {"a@n1+", "b@n0+"}, {"n1+"}, "", "n0+", ""},
        Case{"a_reader_goes", {"a@n1+"}, {"n1+", "n0+"}, "n0", "", ""},
        Case{"a_writer_waits_for_readers", {"a@n1+", "b@n0"}, {"n1+"}, "", "", "b", "it is attached to node n1 read-only, and who writes has it alone"},
        Case{"on_their_node_too", {"a@n1+", "b@n1"}, {"n1+"}, "", "", "b", "who writes has it alone"},
        Case{"readers_wait_for_a_writer", {"a@n1+", "b@n0", "c@n2+"}, {"n0"}, "", "", "a c", "it is attached to node n0, and one node at a time has it"},
        Case{"a_writer_before_readers", {"b@n0", "a@n1+"}, {}, "", "n0", "a"},
        Case{"readers_before_a_writer", {"a@n1+", "b@n0", "c@n2+"}, {}, "", "n1+ n2+", "b"},
        Case{"who_writes_needs_another", {"b@n0"}, {"n0+"}, "n0", "", "b", "read-only"},
        Case{"one_pod_alone", {"a@n0!", "b@n0!"}, {}, "", "n0=a", "b", "uses the ReadWriteOncePod access mode and is already in use by pod \"a\""},
        Case{"the_one_that_has_it", {"a@n0!", "b@n0!"}, {"n0=b"}, "", "", "a", "in use by pod \"b\""},
        Case{"the_next_waits_till_it_is_free", {"b@n0!"}, {"n0=a"}, "n0", "", "b", "in use by a pod that is ending"},
        Case{"and_has_it_then", {"b@n0!"}, {}, "", "n0=b", ""}),
    [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace fairlead::storage
