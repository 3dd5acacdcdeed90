// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/ec2.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/volume.h"
#include "api/volume_key.h"
#include "hyperpod/test_site.h"

namespace fairlead::hyperpod {
namespace {

using testing::HasSubstr;
using testing::Not;
using Form = std::vector<std::pair<std::string, std::string>>;

struct Ec2Face : testing::Test {
  TestSite site;
  Credentials ada = site.user("ada", {R"({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "ec2:*", "Resource": "*"}})"});
  void SetUp() override { ASSERT_TRUE(site.api.create(api::kVolumePools, Json::object({{"metadata", Json::object({{"name", "here"}})}, {"status", Json::object({{"limit", "100Gi"}, {"promised", "0"}, {"classes", Json::array({Json(api::kLocalFast), Json(api::kLocalManaged)})}, {"heard", print_time(site.clock.now())}})}}))); }
  TestSite::Said say(const char* action, Form form, const Credentials* who = nullptr) {
    form.insert(form.begin(), {"Action", action});
    return site.query(who != nullptr ? *who : ada, "ec2", "2016-11-15", form);
  }
  static std::string inside(const std::string& body, const std::string& name) {
    const auto from = body.find("<" + name + ">"), to = body.find("</" + name + ">");
    return from == std::string::npos || to == std::string::npos ? "" : body.substr(from + name.size() + 2, to - from - name.size() - 2);
  }
  // What the pool's daemon does.
  void world() {
    for (auto [key, volume] : std::map(site.api.all("volumes"))) {
      volume.set("status", Json::object({{"phase", "Available"}, {"sizeBytes", api::parse_volume_size(volume["spec"]["size"]).value()}, {"iops", api::parse_iops(volume["spec"]["iops"]).value()}, {"throughputBytes", api::parse_throughput(volume["spec"]["throughput"]).value()}}));
      ASSERT_TRUE(site.api.put(api::kVolumes, volume));
    }
    for (auto [key, snapshot] : std::map(site.api.all("snapshots"))) {
      snapshot.set("status", Json::object({{"phase", "Ready"}, {"sizeBytes", std::int64_t{2} << 30}, {"takenAt", "2026-11-27T12:00:00Z"}}));
      ASSERT_TRUE(site.api.put(api::kSnapshots, snapshot));
    }
  }
};

TEST_F(Ec2Face, AVolumeAndItsSnapshot) {
  const Form asked{{"AvailabilityZone", "here"}, {"Size", "2"}, {"VolumeType", "gp3"}, {"ClientToken", "pvc-1"}, {"TagSpecification.1.ResourceType", "volume"}, {"TagSpecification.1.Tag.1.Key", "CSIVolumeName"}, {"TagSpecification.1.Tag.1.Value", "pvc-1"}};
  auto said = say("CreateVolume", asked);
  ASSERT_EQ(said.status, 200) << said.body;
  const std::string id = inside(said.body, "volumeId");
  EXPECT_THAT(id, testing::MatchesRegex("vol-[0-9a-f]+"));
  EXPECT_EQ(inside(said.body, "status"), "creating");
  EXPECT_EQ(inside(said.body, "size"), "2");
  EXPECT_THAT(said.body, HasSubstr("<CreateVolumeResponse xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\"><requestId>"));
  EXPECT_EQ(inside(say("CreateVolume", asked).body, "volumeId"), id) << "one for each token";
  Form other = asked;
  other[1].second = "3";
  EXPECT_THAT(say("CreateVolume", other).body, HasSubstr("<Code>IdempotentParameterMismatch</Code>"));
  ASSERT_EQ(site.api.all("volumes").size(), 1u);
  EXPECT_EQ(site.api.get(api::kVolumes, {"", id}).value()["spec"]["tags"]["CSIVolumeName"].string(), "pvc-1");
  world();
  said = say("DescribeVolumes", {{"Filter.1.Name", "tag:CSIVolumeName"}, {"Filter.1.Value.1", "pvc-1"}, {"Filter.2.Name", "status"}, {"Filter.2.Value.1", "available"}});
  EXPECT_EQ(inside(said.body, "volumeId"), id) << said.body;
  EXPECT_THAT(say("DescribeVolumes", {{"Filter.1.Name", "tag:CSIVolumeName"}, {"Filter.1.Value.1", "pvc-2"}}).body, Not(HasSubstr("<volumeId>")));
  EXPECT_THAT(say("DescribeVolumes", {{"Filter.1.Name", "no-such"}, {"Filter.1.Value.1", "*"}}).body, Not(HasSubstr("<volumeId>")));
  said = say("CreateSnapshot", {{"VolumeId", id}, {"Description", "before <it>"}});
  const std::string snapshot = inside(said.body, "snapshotId");
  EXPECT_EQ(inside(said.body, "status"), "pending") << said.body;
  world();
  said = say("DescribeSnapshots", {{"SnapshotId.1", snapshot}});
  EXPECT_EQ(inside(said.body, "status"), "completed");
  EXPECT_EQ(inside(said.body, "description"), "before &lt;it&gt;");
  said = say("CreateVolume", {{"AvailabilityZone", "here"}, {"SnapshotId", snapshot}});
  EXPECT_EQ(inside(said.body, "snapshotId"), snapshot);
  EXPECT_EQ(inside(said.body, "size"), "2");
  EXPECT_THAT(say("CreateVolume", {{"AvailabilityZone", "here"}, {"SnapshotId", snapshot}, {"Size", "1"}}).body, HasSubstr("InvalidParameterValue"));
  EXPECT_EQ(say("DeleteSnapshot", {{"SnapshotId", snapshot}}).status, 200);
  EXPECT_EQ(say("DeleteVolume", {{"VolumeId", id}}).status, 200);
}

TEST_F(Ec2Face, GrowsAndTellsWhen) {
  const std::string id = inside(say("CreateVolume", {{"AvailabilityZone", "here"}, {"Size", "2"}}).body, "volumeId");
  world();
  auto said = say("ModifyVolume", {{"VolumeId", id}, {"Size", "5"}});
  EXPECT_EQ(inside(said.body, "modificationState"), "modifying") << said.body;
  EXPECT_EQ(inside(said.body, "targetSize"), "5");
  world();
  EXPECT_EQ(inside(say("DescribeVolumesModifications", {{"VolumeId.1", id}}).body, "modificationState"), "completed");
  EXPECT_THAT(say("ModifyVolume", {{"VolumeId", id}, {"Size", "4"}}).body, HasSubstr("cannot be smaller"));
  EXPECT_THAT(say("ModifyVolume", {{"VolumeId", id}, {"Iops", "4000"}}).body, HasSubstr("have no limits"));
}

TEST_F(Ec2Face, LimitsAreThoseOfAVolumeThatIsHeldToThem) {
  const auto made = say("CreateVolume", {{"AvailabilityZone", "here"}, {"Size", "2"}, {"Iops", "4000"}, {"Throughput", "250"}});
  const std::string id = inside(made.body, "volumeId");
  EXPECT_EQ(inside(made.body, "iops"), "4000") << made.body;
  EXPECT_EQ(inside(made.body, "throughput"), "250");
  EXPECT_EQ(site.api.get(api::kVolumes, {"", id}).value()["spec"]["class"].string(), api::kLocalManaged);
  world();
  const auto said = say("ModifyVolume", {{"VolumeId", id}, {"Iops", "8000"}, {"Size", "3"}});
  EXPECT_EQ(inside(said.body, "modificationState"), "modifying") << said.body;
  EXPECT_EQ(inside(said.body, "targetIops"), "8000");
  EXPECT_EQ(inside(said.body, "targetThroughput"), "250");
  EXPECT_EQ(inside(said.body, "targetSize"), "3");
  world();
  EXPECT_EQ(inside(say("DescribeVolumesModifications", {{"VolumeId.1", id}}).body, "modificationState"), "completed");
  EXPECT_EQ(inside(say("ModifyVolume", {{"VolumeId", id}, {"Throughput", "fast"}}).body, "Code"), "InvalidParameterValue");
}

TEST_F(Ec2Face, WhatIsEncryptedStaysSo) {
  const auto made = say("CreateVolume", {{"AvailabilityZone", "here"}, {"Size", "2"}, {"Encrypted", "true"}});
  EXPECT_EQ(inside(made.body, "encrypted"), "true") << made.body;
  const std::string id = inside(made.body, "volumeId");
  EXPECT_EQ(site.api.get(api::kVolumes, {"", id}).value()["spec"]["class"].string(), api::kLocalManaged);
  world();
  const std::string snapshot = inside(say("CreateSnapshot", {{"VolumeId", id}}).body, "snapshotId");
  world();
  for (auto [key, one] : std::map(site.api.all("snapshots"))) {
    one.child("status").set("key", "service");
    ASSERT_TRUE(site.api.put(api::kSnapshots, one));
  }
  EXPECT_EQ(inside(say("DescribeSnapshots", {{"SnapshotId.1", snapshot}}).body, "encrypted"), "true");
  EXPECT_EQ(inside(say("CreateVolume", {{"AvailabilityZone", "here"}, {"SnapshotId", snapshot}}).body, "encrypted"), "true");
}

TEST_F(Ec2Face, AVolumeIsCopiedWhereItIs) {
  const std::string id = inside(say("CreateVolume", {{"AvailabilityZone", "here"}, {"Size", "2"}}).body, "volumeId");
  EXPECT_EQ(inside(say("CopyVolumes", {{"SourceVolumeId", id}}).body, "Code"), "IncorrectState") << "it is being made";
  world();
  const Form asked{{"SourceVolumeId", id}, {"Size", "3"}, {"VolumeType", "gp3"}, {"ClientToken", "c"}, {"TagSpecification.1.ResourceType", "volume"}, {"TagSpecification.1.Tag.1.Key", "CSIVolumeName"}, {"TagSpecification.1.Tag.1.Value", "pvc-2"}};
  const auto said = say("CopyVolumes", asked);
  EXPECT_THAT(said.body, HasSubstr("<volumeSet><item><volumeId>vol-"));
  EXPECT_EQ(inside(said.body, "availabilityZone"), "here");
  const Json copy = site.api.get(api::kVolumes, {"", inside(said.body, "volumeId")}).value();
  EXPECT_EQ(copy["spec"]["source"]["volume"].string(), id);
  EXPECT_EQ(copy["spec"]["tags"]["CSIVolumeName"].string(), "pvc-2");
  EXPECT_EQ(say("CopyVolumes", asked).body.find("vol-"), said.body.find("vol-")) << "one for each token";
  EXPECT_EQ(site.api.all("volumes").size(), 2u);
  EXPECT_EQ(inside(say("CopyVolumes", {{"SourceVolumeId", id}, {"Size", "1"}}).body, "Code"), "InvalidParameterValue");
  EXPECT_EQ(inside(say("CopyVolumes", {{"SourceVolumeId", "vol-00000000"}}).body, "Code"), "InvalidVolume.NotFound");
  EXPECT_EQ(inside(say("CopyVolumes", {}).body, "Code"), "MissingParameter");
  const Credentials ben = site.user("ben", {R"({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "ec2:CreateVolume", "Resource": "*"}})"});
  EXPECT_EQ(inside(say("CopyVolumes", asked, &ben).body, "Code"), "UnauthorizedOperation");
}

TEST_F(Ec2Face, ACustomersKeyNeedsItsPermission) {
  const std::string id = "1234abcd-12ab-34cd-56ef-1234567890ab", arn = "arn:aws:kms:fairlead-1:111122223333:key/" + id;
  ASSERT_TRUE(site.api.create(api::kVolumeKeys, Json::object({{"metadata", Json::object({{"name", id}})}, {"spec", Json::object({{"aliases", Json::array({Json("alias/lab")})}})}})));
  const Form asked{{"AvailabilityZone", "here"}, {"Size", "2"}, {"Encrypted", "true"}, {"KmsKeyId", "alias/lab"}};
  EXPECT_THAT(say("CreateVolume", asked).body, HasSubstr("kms:GenerateDataKeyWithoutPlaintext"));
  const Credentials ben = site.user("ben", {R"({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "ec2:*", "Resource": "*"}, {"Effect": "Allow", "Action": "kms:GenerateDataKeyWithoutPlaintext", "Resource": "*", "Condition": {"StringEquals": {"kms:ViaService": "ec2.fairlead-1.amazonaws.com", "kms:RequestAlias": "alias/lab"}}}]})"});
  const auto made = say("CreateVolume", asked, &ben);
  EXPECT_EQ(inside(made.body, "kmsKeyId"), arn) << made.body;
  const std::string volume = inside(made.body, "volumeId");
  EXPECT_EQ(site.api.get(api::kVolumes, {"", volume}).value()["spec"]["key"].string(), id);
  world();
  const std::string snapshot = inside(say("CreateSnapshot", {{"VolumeId", volume}}).body, "snapshotId");
  world();
  for (auto [key, one] : std::map(site.api.all("snapshots"))) {
    one.child("status").set("key", id);
    ASSERT_TRUE(site.api.put(api::kSnapshots, one));
  }
  EXPECT_EQ(inside(say("DescribeSnapshots", {{"SnapshotId.1", snapshot}}).body, "kmsKeyId"), arn);
  EXPECT_THAT(say("CreateVolume", {{"AvailabilityZone", "here"}, {"SnapshotId", snapshot}}, &ben).body, HasSubstr("kms:ReEncryptFrom"));
  const Credentials cid = site.user("cid", {R"({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": ["ec2:*", "kms:ReEncrypt*"], "Resource": "*"}})"});
  EXPECT_EQ(inside(say("CreateVolume", {{"AvailabilityZone", "here"}, {"SnapshotId", snapshot}}, &cid).body, "kmsKeyId"), arn) << "copies keep their key";
  EXPECT_EQ(inside(say("CreateVolume", {{"AvailabilityZone", "here"}, {"SnapshotId", snapshot}, {"Encrypted", "true"}, {"KmsKeyId", "alias/aws/ebs"}}, &cid).body, "Code"), "UnsupportedOperation");
  Json key = site.api.get(api::kVolumeKeys, {"", id}).value();
  key.child("spec").set("enabled", false);
  ASSERT_TRUE(site.api.update(api::kVolumeKeys, key));
  EXPECT_EQ(inside(say("CreateVolume", {{"AvailabilityZone", "here"}, {"Size", "3"}, {"Encrypted", "true"}, {"KmsKeyId", arn}}, &ben).body, "Code"), "UnauthorizedOperation") << "not by that alias";
  EXPECT_EQ(inside(say("CreateVolume", asked, &ben).body, "Code"), "InvalidKMSKey.InvalidState");
}

TEST_F(Ec2Face, WhoHoldsAVolumeIsTold) {
  const std::string id = inside(say("CreateVolume", {{"AvailabilityZone", "here"}, {"Size", "2"}}).body, "volumeId");
  world();
  ASSERT_TRUE(site.api.put(api::kInstances, Json::object({{"metadata", Json::object({{"name", "i-00000000000000001"}, {"uid", "u"}})}, {"spec", Json::object({{"clusterUid", "c1"}})}, {"status", Json::object({{"node", "w1"}})}})));
  Json attachment = api::new_attachment(id, "here", "w1", false);
  attachment.child("spec").set("deviceName", "/dev/xvdf");
  attachment.set("status", Json::object({{"phase", "Attached"}}));
  ASSERT_TRUE(site.api.create(api::kAttachments, attachment));
  const auto said = say("DescribeVolumes", {{"VolumeId.1", id}});
  EXPECT_EQ(inside(said.body, "associatedResource"), arn_of(site.site, "cluster", entity_id("c1")) + "-i-00000000000000001") << said.body;
  EXPECT_EQ(inside(said.body, "device"), "/dev/xvdf");
  EXPECT_THAT(said.body, Not(HasSubstr("instanceId")));
  EXPECT_THAT(say("DeleteVolume", {{"VolumeId", id}}).body, HasSubstr("<Code>VolumeInUse</Code>"));
}

TEST_F(Ec2Face, WhatCannotBeIsRefusedInItsWords) {
  const auto code = [&](const char* action, Form form) { return inside(say(action, std::move(form)).body, "Code"); };
  EXPECT_EQ(code("CreateVolume", {{"Size", "2"}}), "MissingParameter");
  EXPECT_EQ(code("CreateVolume", {{"AvailabilityZone", "here"}}), "MissingParameter");
  EXPECT_EQ(code("CreateVolume", {{"AvailabilityZone", "there"}, {"Size", "2"}}), "InvalidZone.NotFound");
  EXPECT_EQ(code("CreateVolume", {{"AvailabilityZone", "here"}, {"Size", "200"}}), "InsufficientVolumeCapacity");
  for (const char* size : {"0", "-1", "x", "99999999999999999999", "65537"}) EXPECT_EQ(code("CreateVolume", {{"AvailabilityZone", "here"}, {"Size", size}}), "InvalidParameterValue") << size;
  EXPECT_EQ(code("CreateVolume", {{"AvailabilityZone", "here"}, {"Size", "2"}, {"KmsKeyId", "alias/mine"}}), "InvalidParameterDependency");
  EXPECT_EQ(code("CreateVolume", {{"AvailabilityZone", "here"}, {"Size", "2"}, {"KmsKeyId", "alias/mine"}, {"Encrypted", "true"}}), "NotFoundException");
  EXPECT_EQ(code("CreateVolume", {{"AvailabilityZone", "here"}, {"Size", "2"}, {"VolumeType", "gold"}}), "UnknownVolumeType");
  EXPECT_EQ(code("CreateVolume", {{"AvailabilityZone", "here"}, {"Size", "2"}, {"Iops", "5"}}), "InvalidParameterValue");
  EXPECT_EQ(code("CreateVolume", {{"AvailabilityZone", "here"}, {"Size", "2"}, {"DryRun", "true"}}), "DryRunOperation");
  EXPECT_EQ(code("DescribeVolumes", {{"VolumeId.1", "vol-00000000"}}), "InvalidVolume.NotFound");
  EXPECT_EQ(code("DeleteVolume", {}), "MissingParameter");
  EXPECT_EQ(code("DeleteSnapshot", {{"SnapshotId", "snap-00000000"}}), "InvalidSnapshot.NotFound");
  EXPECT_EQ(code("RunInstances", {}), "InvalidAction");
  const Credentials bob = site.user("bob", {R"({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "ec2:DescribeVolumes", "Resource": "*"}})"});
  EXPECT_EQ(say("DescribeVolumes", {}, &bob).status, 200);
  const auto denied = say("CreateVolume", {{"AvailabilityZone", "here"}, {"Size", "2"}}, &bob);
  EXPECT_EQ(inside(denied.body, "Code"), "UnauthorizedOperation");
  EXPECT_TRUE(site.api.all("volumes").empty());
  // Its driver is bound by a tag.
  const Credentials driver = site.user("driver", {R"({"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "ec2:DeleteVolume", "Resource": "*", "Condition": {"StringLike": {"ec2:ResourceTag/CSIVolumeName": "*"}}}})"});
  ASSERT_TRUE(site.api.create(api::kVolumes, api::new_volume("vol-01234567", {.pool = "here", .size = std::int64_t{1} << 30, .from_volume = {}, .from_snapshot = {}})));
  EXPECT_EQ(inside(say("DeleteVolume", {{"VolumeId", "vol-01234567"}}, &driver).body, "Code"), "UnauthorizedOperation");
}

TEST_F(Ec2Face, ConditionsAndSnapshotsAreAskedAsInAws) {
  const std::string id = inside(say("CreateVolume", {{"AvailabilityZone", "here"}, {"Size", "2"}}).body, "volumeId");
  world();
  const std::string snapshot = inside(say("CreateSnapshot", {{"VolumeId", id}, {"TagSpecification.1.ResourceType", "snapshot"}, {"TagSpecification.1.Tag.1.Key", "team"}, {"TagSpecification.1.Tag.1.Value", "red"}}).body, "snapshotId");
  world();
  const auto of = [&](const char* name, const char* statements) { return site.user(name, {fmt::format(R"({{"Version": "2012-10-17", "Statement": [{}]}})", statements)}); };
  const auto code = [&](const Credentials& who, Form form) { return inside(say("CreateVolume", std::move(form), &who).body, "Code"); };
  const Credentials sized = of("sized", R"({"Effect": "Allow", "Action": "ec2:CreateVolume", "Resource": "*"}, {"Effect": "Deny", "Action": "ec2:CreateVolume", "Resource": "*", "Condition": {"NumericGreaterThan": {"ec2:VolumeSize": "10"}}})");
  EXPECT_EQ(code(sized, {{"AvailabilityZone", "here"}, {"Size", "11"}}), "UnauthorizedOperation");
  EXPECT_EQ(code(sized, {{"AvailabilityZone", "here"}, {"Size", "10"}}), "");
  const Credentials encrypts = of("encrypts", R"({"Effect": "Allow", "Action": "ec2:CreateVolume", "Resource": "*"}, {"Effect": "Deny", "Action": "ec2:CreateVolume", "Resource": "*", "Condition": {"Bool": {"ec2:Encrypted": "false"}}})");
  EXPECT_EQ(code(encrypts, {{"AvailabilityZone", "here"}, {"Size", "1"}}), "UnauthorizedOperation");
  EXPECT_EQ(code(sized, {{"AvailabilityZone", "here"}, {"Size", "1"}, {"TagSpecification.1.ResourceType", "volume"}, {"TagSpecification.1.Tag.1.Key", "a"}, {"TagSpecification.1.Tag.1.Value", "b"}}), "UnauthorizedOperation") << "tags are a permission of their own";
  // A snapshot is somebody's: who may make volumes may not read each of them, nor learn which there are.
  const Credentials blue = of("blue", R"({"Effect": "Allow", "Action": "ec2:CreateVolume", "Resource": "arn:aws:ec2:*:*:volume/*"}, {"Effect": "Allow", "Action": "ec2:CreateVolume", "Resource": "arn:aws:ec2:*::snapshot/*", "Condition": {"StringEquals": {"ec2:ResourceTag/team": "blue"}}})");
  EXPECT_EQ(code(blue, {{"AvailabilityZone", "here"}, {"SnapshotId", snapshot}}), "UnauthorizedOperation");
  EXPECT_EQ(code(blue, {{"AvailabilityZone", "here"}, {"SnapshotId", "snap-00000000"}}), "UnauthorizedOperation");
  const Credentials red = of("red", R"({"Effect": "Allow", "Action": "ec2:CreateVolume", "Resource": "arn:aws:ec2:*:*:volume/*"}, {"Effect": "Allow", "Action": "ec2:CreateVolume", "Resource": "arn:aws:ec2:*::snapshot/*", "Condition": {"StringEquals": {"ec2:ResourceTag/team": "red"}}})");
  EXPECT_EQ(code(red, {{"AvailabilityZone", "here"}, {"SnapshotId", snapshot}}), "");
  // Many stars cost nobody his thread.
  EXPECT_EQ(say("DescribeVolumes", {{"Filter.1.Name", "availability-zone"}, {"Filter.1.Value.1", std::string(100, '*') + "x" + std::string(100, '*') + "y"}}).status, 200);
}

TEST_F(Ec2Face, PagesGoOnWhereTheyStopped) {
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(site.api.create(api::kVolumes, api::new_volume(fmt::format("v{}", i), {.pool = "here", .size = std::int64_t{1} << 30, .from_volume = {}, .from_snapshot = {}})));
  auto said = say("DescribeVolumes", {{"MaxResults", "2"}});
  EXPECT_EQ(inside(said.body, "nextToken"), "v1");
  ASSERT_TRUE(site.api.remove(api::kVolumes, {"", "v1"}));
  said = say("DescribeVolumes", {{"MaxResults", "10"}, {"NextToken", "v1"}});
  EXPECT_THAT(said.body, HasSubstr(api::ec2_id("v2", "vol-")));
  EXPECT_EQ(inside(said.body, "nextToken"), "");
  EXPECT_THAT(say("DescribeAvailabilityZones", {}).body, HasSubstr("<zoneName>here</zoneName><zoneId>here</zoneId><zoneState>available</zoneState>"));
}

}  // namespace
}  // namespace fairlead::hyperpod
