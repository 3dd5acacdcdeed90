// SPDX-License-Identifier: Apache-2.0
#include "node/volumes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/encoding.h"
#include "base/files.h"
#include "node/config.h"
#include "node/control/route_controller.h"
#include "node/images.h"
#include "node/node_fixture.h"

namespace fairlead::node {
namespace {
using kube::Json;
using testing::ElementsAre;
using testing::HasSubstr;

Json parse(const char* text) { return *kube::parse_json(text); }

// Of claims that are bound to the volume "v" with this folder, or this source.
VolumeSources sources(const std::string& folder = "/nowhere", const char* source = nullptr) {
  VolumeSources out;
  out.objects.config_map = [](const std::string& name) -> Result<Json> {
    if (name != "conf") return fail(Code::NotFound, "configmap \"" + name + "\" not found");
    return parse(R"({"data": {"a": "1", "b": "2", "..evil": "x"}})");
  };
  out.objects.secret = [](const std::string& name) -> Result<Json> {
    if (name != "hidden") return fail(Code::NotFound, "secret \"" + name + "\" not found");
    return Json::object({{"data", Json::object({{"k", base64("s")}})}});
  };
  out.claim = [](const std::string& name) -> Result<Json> {
    Json claim = parse(R"({"metadata": {"namespace": "a", "uid": "u1"}, "spec": {"volumeName": "v"}, "status": {"phase": "Bound"}})");
    claim.child("metadata").set("name", name);
    return claim;
  };
  out.volume = [folder, source](const std::string& name) -> Result<Json> {
    if (name != "v") return fail(Code::NotFound, "persistentvolume \"" + name + "\" not found");
    Json spec = Json::object({{"claimRef", parse(R"({"namespace": "a", "name": "c", "uid": "u1"})")}, {"hostPath", Json::object({{"path", folder}})}});
    if (source != nullptr) {
      spec.erase("hostPath");
      spec.set(source, Json::object({{"path", folder}}));
    }
    return Json::object({{"metadata", Json::object({{"name", name}})}, {"spec", std::move(spec)}});
  };
  out.node = []() -> Result<Json> { return parse(R"({"metadata": {"name": "n1"}})"); };
  return out;
}

std::vector<std::string> paths(const char* volume) {
  auto files = volume_files(parse(R"({"metadata": {"name": "p", "labels": {"a": "b"}}})"), parse(volume), sources());
  if (!files) return {"error: " + files.error().message};
  std::vector<std::string> out;
  for (const VolumeFile& file : *files) out.push_back(fmt::format("{}={} {:o}", file.path, file.bytes, file.mode));
  return out;
}

TEST(VolumeFiles, ComeFromObjects) {
  EXPECT_THAT(paths(R"({"configMap": {"name": "conf"}})"), ElementsAre("a=1 644", "b=2 644"));
  EXPECT_THAT(paths(R"({"configMap": {"name": "conf", "defaultMode": 256, "items": [{"key": "a", "path": "x/y", "mode": 511}]}})"),
              ElementsAre("x/y=1 777"));
  EXPECT_THAT(paths(R"({"secret": {"secretName": "hidden", "defaultMode": 256}})"), ElementsAre("k=s 400"));
  EXPECT_THAT(
      paths(R"({"projected": {"sources": [{"configMap": {"name": "conf"}}, {"secret": {"name": "hidden", "items": [{"key": "k", "path": "a"}]}},
                        {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}}]}})"),
      ElementsAre("a=s 644", "b=2 644", "labels=a=\"b\" 644"));
  EXPECT_THAT(paths(R"({"configMap": {"name": "none", "optional": true}})"), testing::IsEmpty());
  EXPECT_THAT(paths(R"({"configMap": {"name": "none"}})"), ElementsAre(HasSubstr("not found")));
  EXPECT_THAT(paths(R"({"configMap": {"name": "conf", "items": [{"key": "zz", "path": "x"}]}})"),
              ElementsAre(HasSubstr("non-existent config key: zz")));
  EXPECT_THAT(paths(R"({"configMap": {"name": "conf", "items": [{"key": "a", "path": "../x"}]}})"), ElementsAre(HasSubstr("leads out")));
}

class VolumesTest : public NodeTest {};

// What is told where no device is shown; with one it is tried by tests/e2e/volumes_test.sh.
TEST_F(VolumesTest, ABlockDeviceIsForVolumeDevicesOfPodsThatHaveIt) {
  struct Case {
    const char *name, *mode, *attachment, *want;
  };
  const Volumes volumes(root_ + "/pods", root_ + "/volumes");
  const Json pod = parse(R"({"metadata": {"name": "p", "namespace": "a", "uid": "pod-1"}, "spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "e", "emptyDir": {}}]}})");
  for (const Case& row : {Case{"a_file_system", "Filesystem", "", "has volumeMode Filesystem, but is specified in volumeDevices"}, Case{"not_attached", "Block", "", "volume t-no-such is not attached to this node yet"},
                          Case{"on_its_way", "Block", R"({"status": {"phase": "Attaching"}})", "not attached to this node yet"}, Case{"ending", "Block", R"({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Attached"}})", "not attached to this node yet"},
                          Case{"another_pods_alone", "Block", R"({"metadata": {"annotations": {"fairlead.dev/for-pod": "pod-2"}}, "status": {"phase": "Attached"}})", "uses the ReadWriteOncePod access mode and is already in use by another pod"},
                          Case{"shown_by_nothing", "Block", R"({"metadata": {"annotations": {"fairlead.dev/for-pod": "pod-1"}}, "status": {"phase": "Attached"}})", "no device of this machine shows volume t-no-such"}}) {
    SCOPED_TRACE(row.name);
    VolumeSources from = sources();
    from.volume = [&row](const std::string& name) -> Result<Json> {
      Json out = parse(R"({"spec": {"claimRef": {"namespace": "a", "name": "c", "uid": "u1"}, "csi": {"driver": "csi.fairlead.dev", "volumeHandle": "t-no-such"}}})");
      out.child("metadata").set("name", name);
      out.child("spec").set("volumeMode", row.mode);
      return out;
    };
    from.attachment = [&row](const std::string&) -> Result<Json> { return row.attachment[0] == '\0' ? Result<Json>(fail(Code::NotFound, "none")) : Result<Json>(parse(row.attachment)); };
    const auto devices = volumes.devices(pod, parse(R"({"name": "m", "volumeDevices": [{"name": "v", "devicePath": "/dev/xvda"}]})"), from, 0, 0);
    ASSERT_FALSE(devices);
    EXPECT_THAT(devices.error().message, HasSubstr(row.want));
    const auto mounts = volumes.mounts(pod, parse(R"({"name": "m", "volumeMounts": [{"name": "v", "mountPath": "/v"}]})"), from);
    EXPECT_EQ(mounts.has_value(), row.mode != std::string("Block"));
    EXPECT_THAT(mounts ? "" : mounts.error().message, HasSubstr(mounts ? "" : "has volumeMode Block, but is specified in volumeMounts"));
    EXPECT_THAT(volumes.prepare(pod, from).error().message, HasSubstr(row.mode == std::string("Block") ? row.want : "not attached to this node yet"));
    EXPECT_THAT(volumes.devices(pod, parse(R"({"name": "m", "volumeDevices": [{"name": "e", "devicePath": "/dev/xvda"}]})"), from, 0, 0).error().message, HasSubstr("is no claim"));
  }
  EXPECT_TRUE(volumes.devices(pod, parse(R"({"name": "m"})"), sources(), 0, 0)->empty());
}

TEST_F(VolumesTest, PublishingSwapsAllFilesAtOnce) {
  const std::string folder = root_ + "/v";
  ASSERT_TRUE(make_dirs(folder));
  const auto content = [](const std::string& text) {
    return std::vector<VolumeFile>{{.path = "d/one", .bytes = text}, {.path = "two", .bytes = text, .mode = 0400}};
  };
  EXPECT_TRUE(*publish_files(folder, content("0")));
  EXPECT_FALSE(*publish_files(folder, content("0")));
  // A reader that opens ..data once sees files of one version only.
  std::atomic<bool> stop{false};
  std::atomic<int> mixed{0}, reads{0};
  std::jthread reader([&] {
    while (!stop) {
      const Fd now(::open((folder + "/..data").c_str(), O_PATH | O_DIRECTORY));
      auto one = open_beneath(fmt::format("/proc/self/fd/{}", now.get()), "d/one", O_RDONLY),
           two = open_beneath(fmt::format("/proc/self/fd/{}", now.get()), "two", O_RDONLY);
      if (!one || !two) continue;  // an old version that is being removed
      char a[8] = {}, b[8] = {};
      if (::read(one->get(), a, 8) < 0 || ::read(two->get(), b, 8) < 0 || std::string(a) != b) ++mixed;
      ++reads;
    }
  });
  for (int i = 1; i < 300 || reads < 20; ++i) ASSERT_TRUE(publish_files(folder, content(std::to_string(i % 1000))));
  stop = true;
  reader.join();
  EXPECT_EQ(mixed, 0);
  ASSERT_TRUE(publish_files(folder, {{.path = "two", .bytes = "x"}}));
  EXPECT_FALSE(exists(folder + "/d"));
  EXPECT_EQ(*read_file(folder + "/two"), "x");
  EXPECT_EQ(list_dir(folder)->size(), 3U);  // ..data, its version, two
}

TEST_F(VolumesTest, ATokenBelongsToTheOnlyUserAndTheFsGroup) {
  const std::string folder = root_ + "/t";
  ASSERT_TRUE(make_dirs(folder));
  const auto told = [&](std::int64_t owner, std::int64_t group) {
    EXPECT_TRUE(publish_files(folder, {{.path = "token", .bytes = "x", .mode = 0600, .owner = owner}}, group));
    struct stat info{};
    EXPECT_EQ(::stat((folder + "/token").c_str(), &info), 0);
    return fmt::format("{}:{} {:o}", info.st_uid, info.st_gid, info.st_mode & 07777U);
  };
  EXPECT_EQ(told(7, -1), "7:0 600");
  EXPECT_EQ(told(0, 9), "0:9 640");
  EXPECT_EQ(told(7, 9), "7:9 640");
}

TEST_F(VolumesTest, ClaimsAndSubPathsStayInTheirFolder) {
  ASSERT_TRUE(make_dirs(root_ + "/volumes/ns/u1"));
  ASSERT_TRUE(make_dirs(root_ + "/outside"));
  ASSERT_EQ(::symlink((root_ + "/outside").c_str(), (root_ + "/volumes/ns/u1/link").c_str()), 0);
  const Volumes volumes(root_ + "/pods", root_ + "/volumes");
  const Json pod = parse(R"({"metadata": {"uid": "u"}, "spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}})");
  const auto mounts = [&](const std::string& folder, const char* mount) {
    return volumes.mounts(pod, Json::object({{"name", "m"}, {"volumeMounts", Json::array({parse(mount)})}}), sources(root_ + "/volumes/" + folder));
  };
  const auto plain = mounts("ns/u1", R"({"name": "v", "mountPath": "/data", "readOnly": true})");
  ASSERT_TRUE(plain) << plain.error().message;
  EXPECT_EQ((*plain)[0].source, root_ + "/volumes/ns/u1");
  EXPECT_THAT((*plain)[0].options, ElementsAre("rbind", "ro", "rprivate"));
  EXPECT_FALSE(mounts("../outside", R"({"name": "v", "mountPath": "/data"})"));
  EXPECT_FALSE(mounts("ns/u1/link", R"({"name": "v", "mountPath": "/data"})"));
  EXPECT_FALSE(mounts("ns/u2", R"({"name": "v", "mountPath": "/data"})"));
  const auto sub = mounts("ns/u1", R"({"name": "v", "mountPath": "/data", "subPath": "a/b"})");
  ASSERT_TRUE(sub) << sub.error().message;
  EXPECT_TRUE(exists(root_ + "/volumes/ns/u1/a/b"));
  EXPECT_TRUE(*is_mount_point((*sub)[0].source));
  EXPECT_EQ(mounts("ns/u1", R"({"name": "v", "mountPath": "/data", "subPath": "link"})").error().code, Code::Forbidden);
  EXPECT_FALSE(mounts("ns/u1", R"({"name": "v", "mountPath": "/data", "subPath": "../u2"})"));
}

TEST_F(VolumesTest, AVolumeOfThePodsOwnIsNoOnesElse) {
  const Volumes volumes(root_ + "/pods", root_ + "/volumes");
  const Json pod = parse(R"({"metadata": {"uid": "u", "name": "train"}, "spec": {"volumes": [{"name": "cache", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]}})");
  VolumeSources of = sources(root_ + "/volumes");
  std::string asked;
  const auto with_owner = [&](const char* uid) {
    of.claim = [&asked, uid](const std::string& name) -> Result<Json> {
      asked = name;
      return Json::object({{"metadata", Json::object({{"ownerReferences", Json::array({Json::object({{"kind", "Pod"}, {"uid", uid}, {"controller", true}})})}})}});
    };
    return volumes.prepare(pod, of).error().message;
  };
  EXPECT_THAT(with_owner("another"), HasSubstr("was not made for this pod"));
  EXPECT_EQ(asked, "train-cache");
  EXPECT_THAT(with_owner("u"), Not(HasSubstr("was not made for this pod"))) << "its own, which is bound to nothing yet";
}

TEST_F(VolumesTest, AClaimIsWhereItsVolumeIsOnAnyCluster) {
  ASSERT_TRUE(make_dirs(root_ + "/disk", 0755));
  const Volumes volumes(root_ + "/pods", root_ + "/volumes");
  const Json pod = parse(R"({"metadata": {"uid": "u"}, "spec": {"securityContext": {"fsGroup": 4321}, "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}})");
  const auto said = [&](const Result<void>& done) { return done ? "" : done.error().message; };
  const auto group = [&] {
    struct stat info{};
    EXPECT_EQ(::stat((root_ + "/disk").c_str(), &info), 0);
    return info.st_gid;
  };
  EXPECT_EQ(said(volumes.prepare(pod, sources(root_ + "/disk", "hostPath"))), "");
  EXPECT_EQ(group(), 0U) << "a hostPath is the node's";
  EXPECT_EQ(said(volumes.prepare(pod, sources(root_ + "/disk", "local"))), "");
  EXPECT_EQ(group(), 4321U);
  EXPECT_THAT(said(volumes.prepare(pod, sources("/x", "nfs"))), testing::AllOf(HasSubstr("persistentvolumeclaim \"c\""), HasSubstr("does not mount (nfs)")));
  EXPECT_THAT(said(volumes.prepare(pod, sources(root_ + "/none", "local"))), HasSubstr("does not exist on this node"));
  ASSERT_TRUE(write_file_atomically(root_ + "/file", "", 0600));
  EXPECT_THAT(said(volumes.prepare(pod, sources(root_ + "/file", "local"))), HasSubstr("is not a directory"));
}

TEST(VolumeFiles, TokensAreAskedForByAudienceAndLife) {
  VolumeSources with = sources();
  with.token = [](const std::string& audience, std::int64_t seconds) -> Result<std::string> { return fmt::format("{}/{}", audience, seconds); };
  const Json pod = parse(R"({"metadata": {"name": "p"}, "spec": {}})"), grouped = parse(R"({"spec": {"securityContext": {"fsGroup": 7}}})");
  const Json volume = parse(R"({"projected": {"defaultMode": 292, "sources": [{"serviceAccountToken": {"path": "token"}},
      {"serviceAccountToken": {"path": "vault/token", "audience": "vault", "expirationSeconds": 600}}]}})");
  auto files = volume_files(pod, volume, with);
  ASSERT_TRUE(files) << files.error().message;
  EXPECT_THAT(*files, ElementsAre(VolumeFile{.path = "token", .bytes = "/3600", .mode = 0444},
                                  VolumeFile{.path = "vault/token", .bytes = "vault/600", .mode = 0444}));
  EXPECT_EQ(volume_files(grouped, volume, with)->at(0).mode, 0600U);  // and the group may read it where it is published
  const auto owner = [&](const char* spec) {
    const auto of = volume_files(Json::object({{"spec", parse(spec)}}), volume, with);
    return fmt::format("{} {:o}", of->at(0).owner, of->at(0).mode);
  };
  EXPECT_EQ(owner(R"({"securityContext": {"runAsUser": 7}, "containers": [{"name": "a"}, {"name": "b", "securityContext": {"runAsUser": 7}}]})"), "7 600");
  EXPECT_EQ(owner(R"({"securityContext": {"runAsUser": 7}, "containers": [{"name": "a"}, {"name": "b", "securityContext": {"runAsUser": 8}}]})"), "0 444");
  EXPECT_EQ(owner(R"({"containers": [{"name": "a", "securityContext": {"runAsUser": 7}}], "initContainers": [{"name": "i"}]})"), "0 444");
  EXPECT_FALSE(volume_files(pod, parse(R"({"projected": {"sources": [{"serviceAccountToken": {"path": "../token"}}]}})"), with));
  with.token = [](const std::string&, std::int64_t) -> Result<std::string> { return fail(Code::Unavailable, "not now"); };
  EXPECT_EQ(volume_files(pod, volume, with).error().code, Code::Unavailable);
}

TEST_F(VolumesTest, AClaimIsGivenToTheFsGroupWithoutFollowingLinks) {
  ASSERT_TRUE(make_dirs(root_ + "/volumes/c/sub", 0755));
  ASSERT_TRUE(write_file_atomically(root_ + "/volumes/c/sub/file", "x", 0600));
  ASSERT_TRUE(write_file_atomically(root_ + "/outside", "x", 0600));
  ASSERT_EQ(::symlink((root_ + "/outside").c_str(), (root_ + "/volumes/c/link").c_str()), 0);
  const Volumes volumes(root_ + "/pods", root_ + "/volumes");
  const auto pod = [](const char* policy) {
    Json out = parse(R"({"metadata": {"uid": "u"}, "spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}})");
    out.child("spec").set("securityContext", Json::object({{"fsGroup", 4321}, {"fsGroupChangePolicy", policy}}));
    return out;
  };
  const auto look = [&](const char* path) {
    struct stat info{};
    EXPECT_EQ(::lstat((root_ + path).c_str(), &info), 0);
    return fmt::format("{} {:o}", info.st_gid, info.st_mode & 07777U);
  };
  const VolumeSources there = sources(root_ + "/volumes/c");
  auto prepared = volumes.prepare(pod("Always"), there);
  ASSERT_TRUE(prepared) << prepared.error().message;
  EXPECT_EQ(look("/volumes/c"), "4321 2775");
  EXPECT_EQ(look("/volumes/c/sub"), "4321 2775");
  EXPECT_EQ(look("/volumes/c/sub/file"), "4321 660");
  EXPECT_EQ(look("/outside"), "0 600");
  // The folder is right: what is inside is not looked at again, unless it is to be.
  ASSERT_EQ(::chown((root_ + "/volumes/c/sub/file").c_str(), 0, 0), 0);
  ASSERT_TRUE(volumes.prepare(pod("OnRootMismatch"), there));
  EXPECT_EQ(look("/volumes/c/sub/file"), "0 660");
  ASSERT_TRUE(volumes.prepare(pod("Always"), there));
  EXPECT_EQ(look("/volumes/c/sub/file"), "4321 660");
}

TEST_F(VolumesTest, SubPathExpressionsAreExpanded) {
  ASSERT_TRUE(make_dirs(root_ + "/volumes/c", 0755));
  const Volumes volumes(root_ + "/pods", root_ + "/volumes");
  const Json pod = parse(R"({"metadata": {"uid": "u"}, "spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}})");
  const auto mounts = [&](const char* expression, const char* value) {
    return volumes.mounts(
        pod,
        Json::object(
            {{"name", "m"}, {"volumeMounts", Json::array({Json::object({{"name", "v"}, {"mountPath", "/d"}, {"subPathExpr", expression}})})}}),
        sources(root_ + "/volumes/c"), {{"NAME", value}});
  };
  auto mounted = mounts("logs/$(NAME)", "p-0");
  ASSERT_TRUE(mounted) << mounted.error().message;
  EXPECT_TRUE(exists(root_ + "/volumes/c/logs/p-0"));
  EXPECT_FALSE(mounts("$(OTHER)", "x"));
  EXPECT_FALSE(mounts("$(NAME)", "../../etc"));
  EXPECT_TRUE(mounts("$(NAME)", "a..b"));
  EXPECT_TRUE(unmount_below(root_ + "/pods"));
}

TEST_F(VolumesTest, DiskThatIsUsedBeyondALimitIsNamed) {
  const Volumes volumes(root_ + "/pods", root_ + "/volumes");
  const Json pod = parse(
      R"({"metadata": {"uid": "u"}, "spec": {"containers": [{"name": "m", "resources": {"limits": {"ephemeral-storage": "1Mi"}}}], "volumes": [{"name": "e", "emptyDir": {}}]}})");
  const std::string logs = root_ + "/logs/p";
  ASSERT_TRUE(make_dirs(logs + "/m"));
  ASSERT_TRUE(make_dirs(root_ + "/pods/u/containers/m/0/upper"));
  ASSERT_TRUE(make_dirs(root_ + "/pods/u/volumes/e"));
  EXPECT_EQ(volumes.over_limit(pod, logs), "");
  ASSERT_TRUE(write_file_atomically(root_ + "/pods/u/volumes/e/x", std::string(700 << 10, 'x'), 0644));
  EXPECT_EQ(volumes.over_limit(pod, logs), "");
  ASSERT_TRUE(write_file_atomically(root_ + "/pods/u/containers/m/0/upper/x", std::string(700 << 10, 'x'), 0644));
  EXPECT_THAT(volumes.over_limit(pod, logs), HasSubstr("exceeds the total limit of containers 1048576"));
  ASSERT_TRUE(write_file_atomically(logs + "/m/0.log", std::string(700 << 10, 'x'), 0644));
  EXPECT_EQ(volumes.over_limit(pod, logs), "Container m exceeded its local ephemeral storage limit \"1Mi\".");
}

TEST_F(VolumesTest, MemoryAndSecretVolumesAreTmpfsAndHostPathsAreChecked) {
  const Volumes volumes(root_ + "/pods", root_ + "/volumes");
  const auto prepare = [&](const char* list) {
    return volumes.prepare(Json::object({{"metadata", Json::object({{"uid", "u"}})},
                                         {"spec", Json::object({{"volumes", parse(list)}, {"securityContext", Json::object({{"fsGroup", 55}})}})}}),
                           sources());
  };
  ASSERT_TRUE(prepare(
      R"([{"name": "m", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}, {"name": "s", "secret": {"secretName": "hidden", "defaultMode": 256}}, {"name": "d", "emptyDir": {}}])"));
  ASSERT_TRUE(prepare(R"([{"name": "m", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}])"));
  const std::string here = root_ + "/pods/u/volumes/";
  EXPECT_TRUE(*is_mount_point(here + "m"));
  EXPECT_TRUE(*is_mount_point(here + "s"));
  EXPECT_FALSE(*is_mount_point(here + "d"));
  EXPECT_EQ(write_file_atomically(here + "m/big", std::string(2 << 20, 'x'), 0600).error().code, Code::Exhausted);
  struct stat info{};
  ASSERT_EQ(::stat((here + "s/k").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0440U);
  EXPECT_EQ(info.st_gid, 55U);
  ASSERT_EQ(::stat((here + "d").c_str(), &info), 0);
  EXPECT_EQ(info.st_gid, 55U);
  EXPECT_THAT(prepare(R"([{"name": "h", "hostPath": {"path": "/etc/passwd", "type": "Directory"}}])").error().message,
              HasSubstr("is not a directory"));
  EXPECT_TRUE(prepare(
      R"([{"name": "h", "hostPath": {"path": "/etc", "type": "Directory"}}, {"name": "f", "hostPath": {"path": "/etc/passwd", "type": "File"}}])"));
}

TEST(EtcFiles, NamesServersAndSearches) {
  const Json pod = parse(
      R"({"metadata": {"name": "p", "namespace": "ns"}, "spec": {"hostname": "h", "subdomain": "s", "hostAliases": [{"ip": "1.2.3.4", "hostnames": ["x", "y"]}],
                             "dnsConfig": {"nameservers": ["9.9.9.9"], "searches": ["more"], "options": [{"name": "ndots", "value": "2"}]}}})");
  const DnsConfig dns{.server = "10.1.0.1", .domain = "cluster.local", .node_resolv = "nameserver 8.8.8.8\nsearch home\n"};
  const EtcFiles files = make_etc_files(pod, "10.1.0.2", "n1", dns);
  EXPECT_EQ(files.hostname, "h\n");
  EXPECT_THAT(files.hosts, testing::AllOf(HasSubstr("10.1.0.2\th.s.ns.svc.cluster.local\th\n"), HasSubstr("1.2.3.4\tx\ty\n")));
  EXPECT_EQ(files.resolv,
            "nameserver 10.1.0.1\nnameserver 9.9.9.9\nsearch ns.svc.cluster.local svc.cluster.local cluster.local more\noptions ndots:2\n");
  Json host = pod;
  host.child("spec").set("hostNetwork", true);
  host.child("spec").erase("dnsConfig");
  EXPECT_EQ(make_etc_files(host, "10.0.0.1", "n1", dns).resolv, "nameserver 8.8.8.8\nsearch home\n");
  EXPECT_EQ(make_etc_files(host, "10.0.0.1", "n1", dns).hostname, "n1\n");
}

TEST(ImageNames, AreLocalOnes) {
  EXPECT_EQ(*parse_image_name("slurm:22.05"), (ImageName{"slurm", "22.05"}));
  EXPECT_EQ(*parse_image_name("localhost/slurm"), (ImageName{"slurm", "latest"}));
  EXPECT_TRUE(parse_image_name("docker.io:5000/library/busybox:1")->from_registry);
  // An image of a registry is there only if it was imported under that very name.
  EXPECT_EQ(find_image(images_dir(), "docker.io/library/busybox:1").error().code, Code::NotFound);
  for (const char* bad : {"a//b", "../b:1", "a/../b", "x@sha256:00", "../x:1", "x:..", "", ":1", "-x:1"})
    EXPECT_EQ(parse_image_name(bad).error().code, Code::Invalid) << bad;
}

TEST(NodeConfigs, AreCheckedFieldByField) {
  const std::string good =
      R"({"node_name": "n", "node_ip": "10.0.0.1", "pod_cidr": "10.1.0.0/24", "api_server": "https://x", "ca_file": "a", "cert_file": "b", "key_file": "c", "node_dir": "/n",
    "images_dir": "/i", "volumes_dir": "/v", "cgroup_parent": "/g", "capacity": {"cpu": "2", "nvidia.com/gpu": "1"}, "taints": [], "labels": {"a": "b"}, "fabric_interface": "eth0"})";
  const auto config = parse_node_config(good);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->run_dir, "/n/run");
  EXPECT_EQ(config->capacity.at("nvidia.com/gpu"), "1");
  EXPECT_THAT(parse_node_config("{}").error().message, HasSubstr("missing"));
  EXPECT_THAT(parse_node_config(R"({"node_name": 3})").error().message, HasSubstr("node_name"));
  EXPECT_THAT(parse_node_config(R"({"colour": "x"})").error().message, HasSubstr("colour"));
  EXPECT_THAT(parse_node_config(R"({"capacity": {"cpu": "many"}})").error().message, HasSubstr("capacity.cpu"));
  // The second family: whole or not at all.
  EXPECT_EQ(config->node_ips(), "10.0.0.1");
  EXPECT_EQ(config->pod_cidrs(), (std::vector<std::string>{"10.1.0.0/24"}));
  const auto with = [&](const std::string& more) { return parse_node_config("{" + more + ", " + good.substr(1)); };
  const auto both = with(R"("node_ip6": "fd00:77::103", "pod_cidr6": "fd00:78:0:3::/64")");
  ASSERT_TRUE(both) << both.error().message;
  EXPECT_EQ(both->node_ips(), "10.0.0.1,fd00:77::103");
  EXPECT_EQ(both->pod_cidrs(), (std::vector<std::string>{"10.1.0.0/24", "fd00:78:0:3::/64"}));
  EXPECT_THAT(with(R"("node_ip6": "fd00:77::103")").error().message, HasSubstr("both families need both"));
  EXPECT_THAT(with(R"("node_ip6": "10.0.0.2", "pod_cidr6": "fd00::/64")").error().message, HasSubstr("node_ip6"));
  EXPECT_THAT(with(R"("node_ip6": "fd00:77::103", "pod_cidr6": "fd00::/56")").error().message, HasSubstr("pod_cidr6"));
}

TEST_F(VolumesTest, RoutesFollowTheNodes) {
  const std::vector<Json> nodes{
      parse(
          R"({"metadata": {"name": "me"}, "spec": {"podCIDR": "10.9.1.0/24"}, "status": {"addresses": [{"type": "InternalIP", "address": "10.8.0.1"}]}})"),
      parse(
          R"({"metadata": {"name": "other"}, "spec": {"podCIDR": "10.9.2.0/24"}, "status": {"addresses": [{"type": "InternalIP", "address": "10.8.0.2"}]}})"),
      parse(R"({"metadata": {"name": "new"}, "spec": {}, "status": {}})")};
  const std::vector<Json> both{
      parse(
          R"({"metadata": {"name": "both"}, "spec": {"podCIDR": "10.9.3.0/24", "podCIDRs": ["10.9.3.0/24", "fd00:9:0:3::/64"]},
              "status": {"addresses": [{"type": "InternalIP", "address": "10.8.0.3"}, {"type": "InternalIP", "address": "fd00:8::103"}, {"type": "Hostname", "address": "both"}]}})"),
      // Pods of a family that the node itself has no address of cannot be reached.
      parse(
          R"({"metadata": {"name": "half"}, "spec": {"podCIDRs": ["10.9.4.0/24", "fd00:9:0:4::/64"]}, "status": {"addresses": [{"type": "InternalIP", "address": "10.8.0.4"}]}})")};
  EXPECT_EQ(wanted_routes(both, "me"), (Routes{{"10.9.3.0/24", "10.8.0.3"}, {"10.9.4.0/24", "10.8.0.4"}, {"fd00:9:0:3::/64", "fd00:8::103"}}));
  EXPECT_TRUE(is_within("10.9.3.0/24", "10.9.0.0/16"));
  EXPECT_TRUE(is_within("10.9.0.0/16", "10.9.0.0/16"));
  for (const char* const elsewhere : {"10.10.3.0/24", "10.8.0.0/14", "fd00:9:0:3::/64", "", "10.9.3.0", "10.9.3.0/99"}) EXPECT_FALSE(is_within(elsewhere, "10.9.0.0/16")) << elsewhere;
  const Routes wanted = wanted_routes(nodes, "me");
  EXPECT_EQ(wanted, (Routes{{"10.9.2.0/24", "10.8.0.2"}}));
  // In the kernel of this test's own network namespace.
  ASSERT_TRUE(ensure_bridge("rt0", "10.8.0.1/24"));
  ASSERT_TRUE(ensure_bridge("rt0", "10.8.0.1/24"));
  EXPECT_EQ(*address_of("rt0"), "10.8.0.1");
  ASSERT_TRUE(set_route("10.9.2.0/24", "10.8.0.2"));
  EXPECT_EQ(*our_routes(), wanted);
  ASSERT_TRUE(set_route("10.9.2.0/24", "10.8.0.3"));
  EXPECT_EQ(*our_routes(), (Routes{{"10.9.2.0/24", "10.8.0.3"}}));
  ASSERT_TRUE(delete_route("10.9.2.0/24"));
  ASSERT_TRUE(delete_route("10.9.2.0/24"));
  EXPECT_TRUE(our_routes()->empty());
  EXPECT_FALSE(set_route("nonsense", "10.8.0.3"));
  EXPECT_FALSE(set_route("10.9.2.0/24", "fd00:8::2"));
  if (!exists("/proc/net/ipv6_route")) return;
  ASSERT_TRUE(route_ipv6());
  ASSERT_TRUE(ensure_bridge("rt0", "fd00:8::1/64"));
  ASSERT_TRUE(ensure_bridge("rt0", "fd00:8::1/64"));
  EXPECT_EQ(*address_of("rt0"), "10.8.0.1");
  ASSERT_TRUE(set_route("fd00:9:0:2::/64", "fd00:8::2"));
  ASSERT_TRUE(set_route("fd00:9:0:2::/64", "fd00:8::3"));
  ASSERT_TRUE(set_route("10.9.2.0/24", "10.8.0.2"));
  EXPECT_EQ(*our_routes(), (Routes{{"10.9.2.0/24", "10.8.0.2"}, {"fd00:9:0:2::/64", "fd00:8::3"}}));
  ASSERT_TRUE(delete_route("fd00:9:0:2::/64"));
  ASSERT_TRUE(delete_route("fd00:9:0:2::/64"));
  ASSERT_TRUE(delete_route("10.9.2.0/24"));
  EXPECT_TRUE(our_routes()->empty());
}

TEST(Cgroups, LimitsAreWrittenForBothVersions) {
  const Limits limits{.cpu_shares = 512, .cpu = MilliCpu{1500}, .memory = 64_MiB, .pids = 100};
  EXPECT_THAT(cgroup_writes(CgroupVersion::V1, limits),
              ElementsAre(CgroupWrite{"cpu", "cpu.shares", "512"}, CgroupWrite{"cpu", "cpu.cfs_period_us", "100000"},
                          CgroupWrite{"cpu", "cpu.cfs_quota_us", "150000"}, CgroupWrite{"memory", "memory.limit_in_bytes", "67108864"},
                          CgroupWrite{"pids", "pids.max", "100"}));
  EXPECT_THAT(cgroup_writes(CgroupVersion::V2, limits), ElementsAre(CgroupWrite{"", "cpu.weight", "20"}, CgroupWrite{"", "cpu.max", "150000 100000"},
                                                                    CgroupWrite{"", "memory.max", "67108864"}, CgroupWrite{"", "pids.max", "100"}));
  EXPECT_TRUE(cgroup_writes(CgroupVersion::V1, {}).empty());
}

// The real version 2 hierarchy, mounted where only this test sees it. Which controllers it offers depends on the machine.
TEST_F(VolumesTest, TheSecondVersionsTreeIsMadeEnteredAndRemoved) {
  const std::string mount = root_ + "/cgroup2";
  ASSERT_TRUE(make_dirs(mount));
  ASSERT_EQ(::mount("cgroup2", mount.c_str(), "cgroup2", 0, nullptr), 0);
  auto tree = CgroupTree::open(mount);
  ASSERT_TRUE(tree);
  EXPECT_EQ(tree->version(), CgroupVersion::V2);
  const std::string path = cgroup() + "/pod1/main";
  ASSERT_TRUE(tree->make(path, {}));
  ASSERT_TRUE(tree->make(path, {}));
  auto child = Child::start({.argv = {"sleep", "600"}});
  ASSERT_TRUE(child);
  ASSERT_TRUE(tree->enter(path, child->pid()));
  EXPECT_THAT(*read_file(mount + path + "/cgroup.procs"), HasSubstr(std::to_string(child->pid())));
  EXPECT_EQ(tree->oom_kills(path), 0);
  (void)tree->remove(cgroup());  // kills; the group is busy until the process is gone
  EXPECT_EQ((*child->wait(std::chrono::seconds(10)))->code, 137);
  EXPECT_TRUE(tree->remove(cgroup()));
  EXPECT_FALSE(exists(mount + cgroup()));
  EXPECT_FALSE(tree->make("/../x", {}));
}

}  // namespace
}  // namespace fairlead::node
