// SPDX-License-Identifier: Apache-2.0
#include "volumes/keyring.h"

#include <gmock/gmock.h>

#include "api/volume.h"
#include "api/volume_key.h"
#include "kube/tiny_api.h"

namespace fairlead::volumes {
namespace {

using kube::Json;
using testing::HasSubstr;

struct Keys : testing::Test {
  kube::TinyApi api;
  std::unique_ptr<Keyring> keyring = api_keyring(api);
  void key(const std::string& name, Json spec) { ASSERT_TRUE(api.create(api::kVolumeKeys, Json::object({{"metadata", Json::object({{"name", name}})}, {"spec", std::move(spec)}}))); }
  void change(const std::string& name, const char* field, Json value) {
    Json object = *api.get(api::kVolumeKeys, {"", name});
    object.child("spec").set(field, std::move(value));
    ASSERT_TRUE(api.update(api::kVolumeKeys, object));
  }
  Json secret(const std::string& name) { return api.get(kube::resources::secrets, {kKeySpace, name}).value(); }
};

TEST_F(Keys, MaterialIsMadeWhenAnObjectsKeyIsFirstUsed) {
  EXPECT_EQ(keyring->wrap("mine", "a", "secret").error().code, Code::NotFound) << "nobody asked for such a key";
  key("mine", Json::object());
  const auto wrapped = keyring->wrap("mine", "a", "secret");
  ASSERT_TRUE(wrapped) << wrapped.error().message;
  EXPECT_EQ(keyring->unwrap(*wrapped, "a").value(), "secret");
  EXPECT_FALSE(keyring->unwrap(*wrapped, "b")) << "it is of something else";
  EXPECT_EQ(secret("mine")["metadata"]["annotations"][api::kKeyObjectNote].string(), kube::uid_of(*api.get(api::kVolumeKeys, {"", "mine"})));
}

// By the chart the namespace is there before, and a pool may make none.
TEST(KeysOfAPod, AreMadeInANamespaceThatIsThere) {
  struct Narrow final : kube::TinyApi {
    Result<Json> create(const kube::Resource& resource, const Json& object) override {
      if (resource.plural == "namespaces") return fail(Code::Forbidden, "namespaces is forbidden");
      if (resource.plural == "secrets" && !there) return fail(Code::NotFound, "namespaces \"fairlead-volume-keys\" not found");
      return TinyApi::create(resource, object);
    }
    bool there = false;
  } api;
  const auto keyring = api_keyring(api);
  ASSERT_TRUE(api.create(api::kVolumeKeys, Json::object({{"metadata", Json::object({{"name", "mine"}})}, {"spec", Json::object()}})));
  EXPECT_THAT(keyring->wrap("mine", "a", "secret").error().message, HasSubstr("make namespace fairlead-volume-keys: namespaces is forbidden"));
  api.there = true;
  const auto wrapped = keyring->wrap("mine", "a", "secret");
  ASSERT_TRUE(wrapped) << wrapped.error().message;
  EXPECT_EQ(keyring->unwrap(*wrapped, "a").value(), "secret");
}

TEST_F(Keys, AClosedKeyOpensNothingAndSaysWhy) {
  key("mine", Json::object());
  const Wrapped wrapped = keyring->wrap("mine", "a", "secret").value();
  change("mine", "enabled", false);
  EXPECT_EQ(keyring->unwrap(wrapped, "a").error().code, Code::Forbidden);
  EXPECT_THAT(keyring->unwrap(wrapped, "a").error().message, HasSubstr("key mine is disabled"));
  EXPECT_EQ(keyring->wrap("mine", "a", "secret").error().code, Code::Forbidden);
  EXPECT_EQ(keyring->current("mine").value(), 1) << "what there is may be asked";
  change("mine", "enabled", "true");
  EXPECT_EQ(keyring->unwrap(wrapped, "a").error().code, Code::Forbidden) << "what is not understood closes";
  change("mine", "enabled", true);
  EXPECT_TRUE(keyring->unwrap(wrapped, "a"));
  change("mine", "deletionDate", "2027-01-01T00:00:00Z");
  EXPECT_THAT(keyring->unwrap(wrapped, "a").error().message, HasSubstr("waits for its deletion (2027-01-01T00:00:00Z)"));
}

TEST_F(Keys, WithoutItsObjectAKeyStaysClosed) {
  key("mine", Json::object());
  const Wrapped wrapped = keyring->wrap("mine", "a", "secret").value();
  ASSERT_TRUE(api.remove(api::kVolumeKeys, {"", "mine"}));
  EXPECT_EQ(keyring->unwrap(wrapped, "a").error().code, Code::Forbidden);
  key("mine", Json::object());
  EXPECT_THAT(keyring->unwrap(wrapped, "a").error().message, HasSubstr("the VolumeKey of key mine is gone")) << "another one of its name is another key";
}

TEST_F(Keys, AHigherVersionThatIsAskedForIsMadeOnce) {
  key("mine", Json::object());
  const Wrapped old = keyring->wrap("mine", "a", "secret").value();
  change("mine", "version", 3);
  EXPECT_EQ(keyring->current("mine").value(), 3);
  const Json first = secret("mine");
  EXPECT_EQ(api_keyring(api)->current("mine").value(), 3);
  EXPECT_EQ(secret("mine"), first) << "another daemon makes no other";
  EXPECT_EQ(keyring->wrap("mine", "a", "secret")->version, 3);
  EXPECT_EQ(keyring->unwrap(old, "a").value(), "secret") << "older ones open still";
}

TEST_F(Keys, AVolumeIsServedByAGrantWhereTheKeyAsksForThem) {
  key("mine", Json::object({{"grants", "Required"}}));
  key("loose", Json::object());
  EXPECT_TRUE(keyring->may_serve("loose", "data"));
  EXPECT_TRUE(keyring->may_serve(kServiceKey, "data"));
  EXPECT_EQ(keyring->may_serve("mine", "data").error().code, Code::Forbidden);
  Json attachment = api::new_attachment("data", "here", "w0", false);
  api::set_grant(attachment, "mine", "arn:aws:iam::111122223333:user/ada");
  ASSERT_TRUE(api.create(api::kAttachments, attachment));
  EXPECT_TRUE(keyring->may_serve("mine", "data"));
  EXPECT_FALSE(keyring->may_serve("mine", "other")) << "it is of one volume";
  attachment = *api.get(api::kAttachments, kube::key_of(attachment));
  attachment.child("metadata").set("annotations", Json::object({{api::kGrantRevokedNote, "true"}}));
  ASSERT_TRUE(api.update(api::kAttachments, attachment));
  EXPECT_EQ(keyring->may_serve("mine", "data").error().code, Code::Forbidden);
}

}  // namespace
}  // namespace fairlead::volumes
