// SPDX-License-Identifier: Apache-2.0
#include "api/volume_key.h"

#include <gmock/gmock.h>

#include "api/volume.h"

namespace fairlead::api {
namespace {

using kube::Json;
using testing::HasSubstr;

VolumeKey read(const char* spec) { return read_volume_key(Json::object({{"metadata", Json::object({{"name", "mine"}, {"uid", "u"}})}, {"spec", kube::parse_json(spec).value()}})); }

TEST(VolumeKeys, OpenUntilTheyAreClosed) {
  EXPECT_TRUE(read("{}").opens());
  EXPECT_STREQ(read("{}").state(), "Enabled");
  EXPECT_EQ(why_closed(read("{}")), "");
  for (const char* closed : {R"({"enabled": false})", R"({"enabled": "yes"})", R"({"enabled": null})", R"({"enabled": 1})"}) {
    EXPECT_FALSE(read(closed).opens()) << closed;
    EXPECT_STREQ(read(closed).state(), "Disabled");
    EXPECT_THAT(why_closed(read(closed)), HasSubstr("is disabled"));
  }
  for (const char* pending : {R"({"deletionDate": "2027-01-01T00:00:00Z"})", R"({"deletionDate": "soon", "enabled": true})"}) {
    EXPECT_FALSE(read(pending).opens()) << pending;
    EXPECT_STREQ(read(pending).state(), "PendingDeletion");
  }
  EXPECT_FALSE(read("{}").grants);
  EXPECT_TRUE(read(R"({"grants": "Required"})").grants);
  EXPECT_TRUE(read(R"({"grants": "Sometimes"})").grants) << "what is not understood asks for them";
  EXPECT_EQ(read(R"({"version": -3})").version, 1);
}

TEST(VolumeKeys, IdsAreThoseOfKms) {
  const std::string id = "1234abcd-12ab-34cd-56ef-1234567890ab";
  EXPECT_EQ(key_id(id), id);
  EXPECT_TRUE(is_key_id(key_id("service")));
  EXPECT_NE(key_id("service"), key_id("mine"));
  EXPECT_FALSE(is_key_id("1234ABCD-12ab-34cd-56ef-1234567890ab"));
  EXPECT_FALSE(is_key_id(""));
}

TEST(VolumeKeys, AGrantIsOfOneVolumeAndKeyAsLongAsItsAttachmentIsThere) {
  Json attachment = new_attachment("data", "here", "w0", false);
  EXPECT_FALSE(read_grant(attachment));
  set_grant(attachment, "mine", "arn:aws:iam::111122223333:user/ada");
  ASSERT_TRUE(read_grant(attachment));
  EXPECT_EQ(read_grant(attachment)->id.size(), 64u);
  EXPECT_TRUE(is_granted({attachment}, "data", "mine"));
  EXPECT_FALSE(is_granted({attachment}, "data", "other"));
  EXPECT_FALSE(is_granted({attachment}, "other", "mine"));
  EXPECT_FALSE(is_granted({}, "data", "mine"));
  Json going = attachment;
  going.child("metadata").set("deletionTimestamp", "2026-01-01T00:00:00Z");
  EXPECT_FALSE(is_granted({going}, "data", "mine"));
  for (const char* revoked : {"true", "yes", ""}) {
    Json taken = attachment;
    taken.child("metadata").set("annotations", Json::object({{kGrantRevokedNote, revoked}}));
    EXPECT_FALSE(is_granted({taken}, "data", "mine")) << revoked;
  }
}

}  // namespace
}  // namespace fairlead::api
