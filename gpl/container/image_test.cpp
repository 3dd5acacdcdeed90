// SPDX-License-Identifier: GPL-3.0-or-later
#include "image.h"

#include <gmock/gmock.h>

#include "json.h"

namespace fairlead::companion {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(ImageNames, AreLayoutsOrOfRegistries) {
  struct Row {
    std::string text, path, tag, reference, refused;
  };
  for (const Row& row : std::vector<Row>{{.text = "oci:/srv/images", .path = "/srv/images"},
                                        {.text = "oci:/srv/images:v1", .path = "/srv/images", .tag = "v1"},
                                        {.text = "oci:rel/images:v1", .path = "rel/images", .tag = "v1"},
                                        {.text = "/srv/a:b/c", .path = "/srv/a:b/c"},
                                        {.text = "/srv/a:1.2", .path = "/srv/a", .tag = "1.2"},
                                        {.text = "./here", .path = "./here"},
                                        {.text = "ubuntu", .reference = "ubuntu"},
                                        {.text = "docker://ubuntu:22.04", .reference = "ubuntu:22.04"},
                                        {.text = "nvcr.io#nvidia/pytorch:24.01-py3", .reference = "nvcr.io/nvidia/pytorch:24.01-py3"},
                                        {.text = "localhost:5000#a/b@sha256:00", .reference = "localhost:5000/a/b@sha256:00"},
                                        {.text = "me@nvcr.io#a", .refused = "skopeo login"},
                                        {.text = "#a", .refused = "no registry"},
                                        {.text = "", .refused = "no image"},
                                        {.text = "-a", .refused = "no name of an image"},
                                        {.text = "a b", .refused = "no name of an image"},
                                        {.text = "a@md5:1", .refused = "only a digest"},
                                        {.text = "dockerd://a", .refused = "use oci:PATH"},
                                        {.text = "oci:", .refused = "no folder"},
                                        {.text = "oci:/a:", .refused = "after the last"}}) {
    const auto name = parse_image_name(row.text);
    if (!row.refused.empty()) {
      ASSERT_FALSE(name) << row.text;
      EXPECT_THAT(name.error().message, HasSubstr(row.refused)) << row.text;
      continue;
    }
    ASSERT_TRUE(name) << row.text;
    EXPECT_EQ(name->path, row.path) << row.text;
    EXPECT_EQ(name->tag, row.tag) << row.text;
    EXPECT_EQ(name->reference, row.reference) << row.text;
  }
}

TEST(Mounts, AreReadAsPyxisReadsThem) {
  auto mounts = parse_mount_specs("/data,/a:/b,/c:/d:ro+rprivate,./here:/work:noexec+bind");
  ASSERT_TRUE(mounts);
  EXPECT_THAT(*mounts, ElementsAre(MountSpec{.from = "/data", .to = "/data"}, MountSpec{.from = "/a", .to = "/b"}, MountSpec{.from = "/c", .to = "/d", .read_only = true},
                                   MountSpec{.from = "./here", .to = "/work", .no_exec = true, .recursive = false}));
  for (const auto& [text, why] : std::vector<std::pair<std::string, std::string>>{
           {"/a:", "is not SRC:DST"}, {":/b", "is not SRC:DST"}, {"/a:/b:ro:x", "is not SRC:DST"}, {"a:/b", "begins with / or ."}, {"/a:b", "absolute path"}, {"/a://", "whole image"}, {"/a:/b:rx", "the flag \"rx\""}, {"/a:/b,", "is not SRC:DST"}}) {
    auto read = parse_mount_specs(text);
    ASSERT_FALSE(read) << text;
    EXPECT_THAT(read.error().message, HasSubstr(why)) << text;
  }
}

const std::string kDigest = "sha256:" + std::string(64, 'a');

TEST(Manifests, AreReadAndBounded) {
  auto read = parse_image_manifest(R"({"schemaVersion":2,"config":{"digest":")" + kDigest + R"(","size":7},"layers":[{"mediaType":"x","digest":")" + kDigest + R"(","size":9}]})");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->config.size, 7u);
  ASSERT_EQ(read->layers.size(), 1u);
  EXPECT_EQ(read->layers[0].hex(), std::string(64, 'a'));
  for (const std::string bad : {"", "{}", R"({"config":{},"layers":[]})", R"({"config":{"digest":"sha256:../../x","size":1},"layers":[]})"}) EXPECT_FALSE(parse_image_manifest(bad)) << bad;
  EXPECT_FALSE(parse_image_manifest(R"({"config":{"digest":")" + kDigest + R"(","size":-7},"layers":[]})"));
}

TEST(Indexes, TheImageOfTheTagAndThePlatformIsChosen) {
  const Platform here{"linux", "amd64"};
  const ImagePart plain{.digest = kDigest, .tag = "v1"}, arm{.digest = kDigest, .os = "linux", .architecture = "arm64", .tag = "v1"}, amd{.digest = kDigest, .size = 1, .os = "linux", .architecture = "amd64", .tag = "v1"}, other{.digest = kDigest, .size = 2, .tag = "v2"};
  EXPECT_EQ(*choose({plain}, "", here), plain);
  EXPECT_EQ(*choose({arm, amd}, "v1", here), amd);
  EXPECT_EQ(*choose({plain, other}, "v2", here), other);
  EXPECT_THAT(choose({plain, other}, "", here).error().message, HasSubstr("name one of the tags: v1, v2"));
  EXPECT_THAT(choose({plain}, "v3", here).error().message, HasSubstr("no tag \"v3\"; there are: v1"));
  EXPECT_THAT(choose({arm}, "", here).error().message, HasSubstr("it is for linux/arm64; this node is linux/amd64"));
}

TEST(Configs, TheImageSetsVariablesButNotWhoATaskIs) {
  auto config = parse_image_config(R"({"os":"linux","architecture":"amd64","config":{"WorkingDir":"/w","Env":["A=1","B=x=y","bad","=x","SLURM_PROCID=7","PMIX_RANK=1",5]}})");
  ASSERT_TRUE(config);
  EXPECT_EQ(config->working_directory, "/w");
  EXPECT_THAT(container_environment(*config, {}), ElementsAre("A=1", "B=x=y"));
  EXPECT_THAT(container_environment(*config, {"A"}), ElementsAre("B=x=y"));
  EXPECT_FALSE(fits(*config, {"linux", "arm64"}));
}

TEST(Accounts, TheUserIsAddedUnlessKnown) {
  EXPECT_EQ(with_account("root:x:0:0\n", "ada:x:1000:1000"), "root:x:0:0\nada:x:1000:1000\n");
  EXPECT_EQ(with_account("app:x:1000:1000", "ada:x:1000:1000"), "app:x:1000:1000");
  EXPECT_EQ(with_account("", "ada:x:1000:"), "ada:x:1000:\n");
}

TEST(Json, IsReadOrRefused) {
  auto read = read_json(R"( {"a":[1,true,null,{"b":"\u00e4\ud83d\ude00\n"}],"a":2} )");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->find("a")->items[3].text_of("b"), "\u00e4\U0001F600\n");
  for (const std::string bad : {"", "{", "{\"a\"}", "[1,]", "\"\\x\"", "\"\\ud800\"", "1 2", "\"a\nb\"", "tru"}) EXPECT_FALSE(read_json(bad)) << bad;
  EXPECT_FALSE(read_json(std::string(100, '[') + std::string(100, ']')));
}

}  // namespace
}  // namespace fairlead::companion
