// SPDX-License-Identifier: Apache-2.0
#include "cli/policy_picture.h"

#include <gtest/gtest.h>

namespace fairlead::cli {
namespace {

TEST(PolicyPicture, TheDecisionThenEachStatement) {
  const auto view = kube::parse_json(R"({"action":"s3:GetObject","resource":"arn:aws:s3:::b/x","decision":"explicitDeny","reason":"denied by b.json, statement 2","statements":[
    {"from":"identity","document":"a.json","statement":1,"sid":"Read\u001b[2J","effect":"Allow","verdict":"applies"},
    {"from":"boundary","document":"b.json","statement":2,"effect":"Deny","verdict":"applies","detail":"it cannot be told"},
    {"from":"resource","document":"c.json","statement":1,"effect":"Allow","verdict":"otherAction","detail":"it is about other actions"}]})");
  ASSERT_TRUE(view);
  EXPECT_EQ(draw_simulation(*view, {.width = 20, .color = false, .unicode = false}),
            "denied  s3:GetObject on arn:aws:s3:::b/x\n"
            "        denied by b.json, statement 2 (a Deny wins over every Allow)\n"
            "        * Allow  a.json, statement Read [2J: applies\n"
            "        * Deny   b.json, statement 2 (boundary): applies: it cannot be told\n"
            "        - Allow  c.json, statement 1 (of the resource): it is about other actions\n");
}

}  // namespace
}  // namespace fairlead::cli
