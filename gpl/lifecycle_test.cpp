// SPDX-License-Identifier: GPL-3.0-or-later
#include "lifecycle.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "base/encoding.h"
#include "base/files.h"

namespace fairlead::companion {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// A root of its own with the programs of this machine in it; each run is a process of its own, since it enters that root for good.
struct Lifecycle : testing::Test {
  std::string work, root;
  std::map<std::string, std::string> files;
  LifecycleOptions options;

  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "root alone may enter another root";
    char name[] = "/dev/shm/fairlead-lifecycle-XXXXXX";
    work = ::mkdtemp(name);
    root = work + "/root";
    for (const char* dir : {"/usr", "/dev", "/tmp", "/etc", "/root"}) ASSERT_TRUE(make_dirs(root + dir));
    ASSERT_EQ(::chmod((root + "/tmp").c_str(), 01777), 0);
    for (const char* link : {"bin", "lib", "lib64", "sbin"}) ASSERT_EQ(::symlink(fmt::format("usr/{}", link).c_str(), (root + "/" + link).c_str()), 0);
    ASSERT_TRUE(write_file_atomically(root + "/dev/null", "", 0666));
    for (const char* dir : {"/source", "/config"}) ASSERT_TRUE(make_dirs(work + dir));
    ASSERT_TRUE(write_file_atomically(work + "/word", "", 0644));
    put_config("cluster.json", R"({"ClusterName":"ml","SlurmConfig":{"PrimaryControllerIp":"10.0.0.1"}})");
    put_config("controller.json", R"({"ClusterName":"ml","SlurmConfig":{"PrimaryControllerIp":""}})");
    put_config("head.json", R"([{"CustomerIpAddress":"10.0.0.1"}])");
    put_config("gpu.json", "[]");
    put_config("provisioning_parameters.json", R"({"version":"1.0.0"})");
    options = {.source = work + "/source", .config = work + "/config", .root = root, .instance = "i-1", .script = "on_create.sh", .folder = "/tmp/sagemaker-x/some/prefix", .life_cycle_config = "{\"OnCreate\":\"on_create.sh\"}", .groups = {{"head", "ml.c5.large", {"head.json"}}, {"gpu", "ml.g5.xlarge", {"gpu.json"}}}, .last_word = work + "/word"};
  }
  void TearDown() override {
    if (!work.empty()) (void)remove_tree(work);
  }
  void put_config(const std::string& name, const std::string& text) const { ASSERT_TRUE(write_file_atomically(work + "/config/" + name, text, 0644)); }
  void script(const std::string& text) { files["on_create.sh"] = "#!/bin/sh\n" + text + "\n"; }

  int run() {
    std::string manifest;
    int part = 0;
    for (const auto& [path, bytes] : files) {
      std::string keys;
      for (std::size_t at = 0; at < bytes.size(); at += 7) {  // in parts
        const std::string key = fmt::format("part-{:05}", part++);
        EXPECT_TRUE(write_file_atomically(work + "/source/" + key, bytes.substr(at, 7), 0400));
        keys += (keys.empty() ? "" : ",") + key;
      }
      manifest += fmt::format("{} {} {} {}\n", hex(sha256(bytes)), bytes.size(), keys.empty() ? "-" : keys, path);
    }
    EXPECT_TRUE(write_file_atomically(work + "/source/manifest", manifest, 0400));
    const pid_t child = ::fork();
    if (child == 0) {
      const int out = ::open((work + "/out").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
      if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 || ::mount("/usr", (root + "/usr").c_str(), nullptr, MS_BIND, nullptr) != 0 || ::mount("/dev/null", (root + "/dev/null").c_str(), nullptr, MS_BIND, nullptr) != 0 || ::dup2(out, 1) != 1) ::_exit(99);
      ::_exit(run_lifecycle(options));
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string text(const std::string& path) const { return read_file(work + path).value_or("(none)"); }
};

TEST_F(Lifecycle, AScriptFindsWhatItIsPromised) {
  script("pwd; id -u; . ./utils/lib.sh; hello; cat $SAGEMAKER_RESOURCE_CONFIG_PATH /opt/ml/config/life_cycle_config.json; echo; cmp provisioning_parameters.json /opt/ml/config/provisioning_parameters.json && ls -d /opt/sagemaker_cluster; echo to stderr >&2; ls -l utils/empty");
  files["utils/lib.sh"] = "hello() { echo \"from a file of $HOME\"; }\n";
  files["utils/empty"] = "";
  EXPECT_EQ(run(), 0) << text("/word");
  EXPECT_THAT(text("/out"), AllOf(HasSubstr("/tmp/sagemaker-x/some/prefix\n0\nfrom a file of /root\n"),
                                  HasSubstr(R"({"ClusterConfig":{"ClusterName":"ml","SlurmConfig":{"PrimaryControllerIp":"10.0.0.1"}},"InstanceGroups":[{"Name":"head","InstanceType":"ml.c5.large","Instances":[{"CustomerIpAddress":"10.0.0.1"}]},{"Name":"gpu","InstanceType":"ml.g5.xlarge","Instances":[]}]})"),
                                  HasSubstr("{\"OnCreate\":\"on_create.sh\"}\n/opt/sagemaker_cluster\n"), HasSubstr("to stderr\n"), HasSubstr("-rwxr-xr-x")));
  EXPECT_THAT(text("/out"), StartsWith(text("/root/var/log/provision/provisioning.log")));
  EXPECT_EQ(text("/word"), "");
}

TEST_F(Lifecycle, OfOneThatFailsTheLastLinesAreTold) {
  script("seq 1 2000; printf 'no \\033[31mroute\\377\\n' >&2; exit 3");
  EXPECT_EQ(run(), 3);
  EXPECT_THAT(text("/word"), AllOf(HasSubstr("it ended with 3:\n...\n"), EndsWith("1999\n2000\nno  [31mroute?")));
  EXPECT_LT(text("/word").size(), 2100U);
  script("kill -SEGV $$");
  EXPECT_EQ(run(), 128 + SIGSEGV);
  EXPECT_THAT(text("/word"), HasSubstr("it was ended by signal 11 (Segmentation fault)"));
}

TEST_F(Lifecycle, OneThatHangsIsEndedWithAllThatItStarted) {
  options.limit = std::chrono::seconds(1);
  script("sleep 1000 & echo $! > /root/pid; echo before; sleep 1000");
  EXPECT_EQ(run(), 124);
  EXPECT_THAT(text("/word"), HasSubstr("it did not end within 1 s and was ended:\nbefore"));
  const std::string pid(trim(text("/root/root/pid")));
  for (int i = 0; i < 100 && exists("/proc/" + pid); ++i) ::usleep(20'000);  // until init has reaped it
  EXPECT_FALSE(exists("/proc/" + pid)) << text("/root/root/pid");
}

TEST_F(Lifecycle, WhatWritesOnInTheBackgroundHoldsNothingUp) {
  script("while :; do date; sleep 0.05; done & echo done");
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(text("/out"), HasSubstr("done\n"));
}

TEST_F(Lifecycle, OthersThanTheFetchedAreNotRun) {
  script("echo never");
  options.sum = hex(sha256("another manifest"));
  EXPECT_EQ(run(), 125);
  EXPECT_THAT(text("/word"), HasSubstr("their Secret was replaced"));
}

TEST_F(Lifecycle, ItsFilesAreGoneAfterwards) {
  script("echo a secret > note");
  EXPECT_EQ(run(), 0);
  EXPECT_FALSE(exists(root + options.folder));
}

TEST_F(Lifecycle, WhatItLeavesInTheBackgroundHoldsNothingUp) {
  script("sleep 1000 & echo done");
  const auto before = std::chrono::steady_clock::now();
  EXPECT_EQ(run(), 0);
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(500));
  EXPECT_THAT(text("/out"), HasSubstr("done\n"));
}

TEST_F(Lifecycle, WhatIsNoScriptIsToldInWordsThatHelp) {
  files["on_create.sh"] = "echo hello\n";
  EXPECT_EQ(run(), 125);
  EXPECT_THAT(text("/word"), HasSubstr("it does not begin with #!"));
  EXPECT_FALSE(exists(root + options.folder)) << "nothing of it is left";
  files["on_create.sh"] = "#!/bin/sh\r\necho hello\r\n";
  EXPECT_EQ(run(), 125);
  EXPECT_THAT(text("/word"), HasSubstr("CR LF"));
  files["on_create.sh"] = "#!/opt/none/python3 -u\n";
  EXPECT_EQ(run(), 125);
  EXPECT_THAT(text("/word"), HasSubstr("its interpreter /opt/none/python3 is not here"));
  files.erase("on_create.sh");
  files["other"] = "x";
  EXPECT_EQ(run(), 125);
  EXPECT_THAT(text("/word"), HasSubstr("there is no such file"));
}

TEST_F(Lifecycle, ChangedFilesAreNotRun) {
  script("echo never");
  ASSERT_EQ(run(), 0);
  files.clear();
  ASSERT_TRUE(write_file_atomically(work + "/source/part-00000", "#!/bin/", 0400));
  ASSERT_TRUE(write_file_atomically(work + "/source/manifest", fmt::format("{} 7 part-00000 on_create.sh\n", hex(sha256("#!/bin/sh\n"))), 0400));
  const std::string manifest = text("/source/manifest");
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::unshare(CLONE_NEWNS) != 0 ? 99 : run_lifecycle(options));
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 125);
  EXPECT_THAT(text("/word"), HasSubstr("on_create.sh: its checksum is not the one"));
}

TEST_F(Lifecycle, AFolderInTmpThatSomebodyElseMadeIsRefused) {
  script("echo never");
  ASSERT_TRUE(make_dirs(root + "/tmp/sagemaker-x"));
  ASSERT_EQ(::chown((root + "/tmp/sagemaker-x").c_str(), 1000, 1000), 0);
  EXPECT_EQ(run(), 125);
  EXPECT_THAT(text("/word"), HasSubstr("/tmp/sagemaker-x is not a folder that root alone can change"));
  EXPECT_TRUE(exists(root + "/tmp/sagemaker-x"));
  ASSERT_TRUE(remove_tree(root + "/tmp/sagemaker-x"));
  ASSERT_EQ(::symlink("/etc", (root + "/tmp/sagemaker-x").c_str()), 0);
  EXPECT_EQ(run(), 125);
  EXPECT_FALSE(exists(root + "/etc/some"));
}

TEST_F(Lifecycle, FilesOfAnEarlierRunAreGone) {
  script("ls");
  files["old"] = "x";
  EXPECT_EQ(run(), 0);
  files.erase("old");
  EXPECT_EQ(run(), 0);
  EXPECT_THAT(text("/out"), AllOf(HasSubstr("on_create.sh"), Not(HasSubstr("old"))));
}

TEST_F(Lifecycle, AControllerReadsNoAddressOfAnother) {
  script("cat /opt/ml/config/resource_config.json");
  options.controller = options.shared_root = true;
  EXPECT_EQ(run(), 0) << text("/word");
  EXPECT_THAT(text("/out"), HasSubstr(R"("PrimaryControllerIp":"")"));
  // The nodes that share its root read the address.
  EXPECT_THAT(text("/root/opt/ml/config/resource_config.json"), HasSubstr(R"("PrimaryControllerIp":"10.0.0.1")"));
  EXPECT_THAT(text("/root/var/log/provision/i-1/provisioning.log"), HasSubstr("ClusterConfig"));
}

TEST_F(Lifecycle, NodesThatShareARootInstallOneAfterTheOther) {
  // In the place of the wrapped program one that sees whether another is at it.
  script("sed -i 's:/usr/bin/apt-get:/root/install:' /run/fairlead/one-at-a-time/apt-get\nprintf '#!/bin/sh\\nmkdir /root/busy || exit 9\\nsleep 0.2\\nrmdir /root/busy\\n' > /root/install; chmod 755 /root/install\n"
         "command -v apt-get; for i in 1 2 3; do apt-get install -y x & all=\"$all $!\"; done; for pid in $all; do wait $pid || exit 1; done");
  options.shared_root = true;
  EXPECT_EQ(run(), 0) << text("/word");
  EXPECT_THAT(text("/out"), HasSubstr("/run/fairlead/one-at-a-time/apt-get\n"));
}

TEST_F(Lifecycle, ItFindsItselfByTheAddressThatItHas) {
  script("cat /opt/ml/config/resource_config.json");
  put_config("gpu.json", R"([{"InstanceName":"gpu-1","InstanceId":"i-12","AgentIpAddress":"10.0.0.2","CustomerIpAddress":"10.0.0.2"}])");
  put_config("gpu2.json", R"([{"InstanceName":"gpu-2","InstanceId":"i-1","AgentIpAddress":"10.0.0.3","CustomerIpAddress":"10.0.0.3"}])");
  options.groups[1].files = {"gpu.json", "gpu2.json"};
  options.shared_root = true;
  options.address = "10.9.0.7";
  EXPECT_EQ(run(), 0) << text("/word");
  EXPECT_THAT(text("/out"), AllOf(HasSubstr(R"("InstanceId":"i-12","AgentIpAddress":"10.0.0.2","CustomerIpAddress":"10.0.0.2")"), HasSubstr(R"("InstanceId":"i-1","AgentIpAddress":"10.0.0.3","CustomerIpAddress":"10.9.0.7")")));
  EXPECT_THAT(text("/root/opt/ml/config/resource_config.json"), Not(HasSubstr("10.9.0.7")));
}

TEST(LifecycleManifest, AnythingElseIsRefused) {
  const std::string sum(64, 'a');
  const auto one = read_manifest(sum + " 12 part-00000,part-00001 utils/a b.sh\n" + sum + " 0 - empty\n");
  ASSERT_TRUE(one) << one.error().message;
  ASSERT_EQ(one->size(), 2U);
  EXPECT_EQ(one->front().path, "utils/a b.sh");
  EXPECT_EQ(one->front().parts.size(), 2U);
  EXPECT_TRUE(one->back().parts.empty());
  for (const std::string& bad : {sum, sum + " 1 part-0 x", sum.substr(1) + " 1 part-0 x\n", sum + " x part-0 x\n", sum + " 1 ../x x\n", sum + " 1 , x\n", sum + " 1 part-0 ../x\n", sum + " 1 part-0 /x\n", sum + " 1 part-0 a//b\n", sum + " 1 part-0 \n"}) EXPECT_FALSE(read_manifest(bad)) << bad;
}

TEST(LifecycleOptions, WhatIsMissingIsNamed) {
  std::map<std::string, std::string> all{{"FAIRLEAD_INSTANCE", "i-1"}, {"FAIRLEAD_SCRIPT", "a/b.sh"}, {"FAIRLEAD_SCRIPT_FOLDER", "/tmp/b/p"}, {"FAIRLEAD_SCRIPT_LIMIT", "60"}, {"FAIRLEAD_GROUP_FILES", "head=ml.c5.large=a.json;gpu=ml.g5.xlarge=b.json,c.json"}};
  ASSERT_TRUE(lifecycle_options(all));
  EXPECT_EQ(lifecycle_options(all)->groups[1].files, (std::vector<std::string>{"b.json", "c.json"}));
  for (const auto& [name, bad] : std::map<std::string, std::vector<std::string>>{{"FAIRLEAD_INSTANCE", {"", "..", "a/b"}}, {"FAIRLEAD_SCRIPT", {"", "/x", "../x"}}, {"FAIRLEAD_SCRIPT_FOLDER", {"", "/etc", "/tmp/", "/tmp/../etc"}}, {"FAIRLEAD_SCRIPT_LIMIT", {"x", "0", "-1", "99999999"}}, {"FAIRLEAD_GROUP_FILES", {"head", "head=x", "head=x=../y", "he\"ad=x=y", "head=x=y,"}}})
    for (const std::string& value : bad) {
      auto changed = all;
      changed[name] = value;
      const auto done = lifecycle_options(changed);
      ASSERT_FALSE(done) << name << "=" << value;
      EXPECT_THAT(done.error().message, HasSubstr(name));
    }
}

}  // namespace
}  // namespace fairlead::companion
