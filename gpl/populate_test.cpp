// SPDX-License-Identifier: GPL-3.0-or-later
#include "populate.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "base/files.h"
#include "versions.h"

namespace fairlead::companion {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::UnorderedElementsAre;

struct Populate : testing::Test {
  std::string work, image, volume;
  void SetUp() override {
    char name[] = "/dev/shm/fairlead-populate-XXXXXX";
    work = ::mkdtemp(name);
    image = work + "/image";
    for (const char* folder : {"/bin", "/etc", "/home/demo", "/root", "/proc/1", "/usr/lib"}) ASSERT_TRUE(make_dirs(image + folder));
    write(image + "/bin/sh", "a shell");
    write(image + "/etc/passwd", "root:x:0:0::/root:/bin/sh\nslurm:x:64030:64030::/:/bin/false\n");
    write(image + "/etc/group", "root:x:0:\n");
    write(image + "/etc/shadow", "root:*:1::::::\n");
    write(image + "/root/.profile", "of root");
    ASSERT_EQ(::symlink("../run/resolv.conf", (image + "/etc/resolv.conf").c_str()), 0);
    for (int i = 0; i < 8; ++i) write(image + "/usr/lib/" + std::to_string(i), "library");
    fresh_volume();
  }
  void TearDown() override { (void)remove_tree(work); }
  void fresh_volume() {
    volume = work + "/volume";
    (void)remove_tree(volume);
    ASSERT_TRUE(make_dirs(volume));
  }
  static void write(const std::string& path, const std::string& text) {
    const auto done = write_file_atomically(path, text, 0644);
    ASSERT_TRUE(done) << done.error().message;
  }
  PopulateOptions options() const { return {.volume = volume, .source = image, .version = "v1", .leave_out = {"/proc"}, .on_step = {}}; }
  std::string text_of(const std::string& path) const {
    auto text = read_file(volume + "/" + path);
    return text ? *text : "absent";
  }
  // What new steps would enter: a whole root or nothing.
  std::string state() const {
    const Fd fd(::open(volume.c_str(), O_RDONLY | O_DIRECTORY));
    const auto root = find_root(fd.get());
    if (!root) return root.error().code == Code::NotFound ? "none" : "broken: " + root.error().message;
    for (int i = 0; i < 8; ++i)
      if (text_of(root->path + "/usr/lib/" + std::to_string(i)) != "library") return "half";
    if (text_of("root/.profile") != "of root") return "root's files are gone";
    if (text_of(root->path + "/bin/sh") != "a shell" || !exists(volume + "/" + root->path + "/home") || !exists(volume + "/" + root->path + "/var/spool/slurmd")) return "half";
    return "whole";
  }
};

TEST_F(Populate, FillsAnEmptyVolume) {
  ASSERT_TRUE(make_dirs(volume + "/lost+found"));
  const auto done = populate(options());
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_TRUE(done->made);
  EXPECT_EQ(done->root.path, "versions/v1");
  EXPECT_EQ(state(), "whole");
  EXPECT_THAT(*list_dir(volume), UnorderedElementsAre(".fairlead-jail", ".fairlead-jail.history", ".fairlead-jail.lock", ".fairlead-jail.manifests", "current", "home", "lost+found", "root", "versions"));
  EXPECT_THAT(*list_dir(volume + "/versions"), ElementsAre("v1"));
  EXPECT_THAT(*list_dir(volume + "/home"), ElementsAre("demo"));
  EXPECT_THAT(*list_dir(volume + "/versions/v1/proc"), IsEmpty());
  EXPECT_EQ(text_of("versions/v1/etc/resolv.conf"), "");  // a place to mount upon, and no link
}

TEST_F(Populate, IsDoneOnce) {
  ASSERT_TRUE(populate(options()));
  write(volume + "/versions/v1/etc/motd", "changed by a user");
  auto again = options();
  again.version = "v2";  // a new version comes on request only
  const auto done = populate(again);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_FALSE(done->made);
  EXPECT_EQ(done->root.version, "v1");
  EXPECT_EQ(text_of("versions/v1/etc/motd"), "changed by a user");
  EXPECT_THAT(*list_dir(volume + "/versions"), ElementsAre("v1"));
}

TEST_F(Populate, AdoptsARootThatIsThere) {
  ASSERT_TRUE(make_dirs(volume + "/bin"));
  ASSERT_TRUE(make_dirs(volume + "/etc"));
  ASSERT_TRUE(make_dirs(volume + "/versions/mine"));  // the user's own: means nothing without our marker
  write(volume + "/bin/sh", "their shell");
  write(volume + "/etc/passwd", "their users");
  const auto done = populate(options());
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(done->root.layout, Layout::Adopted);
  EXPECT_EQ(done->root.path, ".");
  EXPECT_EQ(text_of("bin/sh"), "their shell");
  EXPECT_EQ(text_of("etc/passwd"), "their users");
  EXPECT_THAT(*list_dir(volume), UnorderedElementsAre(".fairlead-jail", ".fairlead-jail.lock", "bin", "etc", "versions"));
  const auto again = populate(options());
  ASSERT_TRUE(again);
  EXPECT_EQ(again->root.layout, Layout::Adopted);
}

TEST_F(Populate, RefusesWhatIsNeitherEmptyNorARoot) {
  write(volume + "/data.tar", "precious");
  const auto done = populate(options());
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Code::Invalid);
  EXPECT_THAT(done.error().message, HasSubstr("data.tar"));
  EXPECT_THAT(*list_dir(volume), UnorderedElementsAre(".fairlead-jail.lock", "data.tar"));
}

TEST_F(Populate, RefusesAMarkerOfALaterVersion) {
  write(volume + "/.fairlead-jail", "snapshots\n");
  const auto done = populate(options());
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message, HasSubstr("snapshots"));
  EXPECT_FALSE(exists(volume + "/versions"));
}

TEST_F(Populate, TakesOverUsersAndHomesOfAClusterWithoutAJail) {
  ASSERT_TRUE(make_dirs(volume + "/etc"));
  ASSERT_TRUE(make_dirs(volume + "/home/ada"));
  write(volume + "/home/ada/note", "hers");
  write(volume + "/etc/passwd", "ada:x:1000:1000::/home/ada:/bin/bash\n");
  write(volume + "/etc/group", "ada:x:1000:\n");
  write(volume + "/etc/shadow", "ada:!:1::::::\n");
  write(volume + "/etc/gshadow", "ada:!::\n");
  const auto done = populate(options());
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_THAT(done->users, ElementsAre("ada"));
  EXPECT_EQ(text_of("home/ada/note"), "hers");
  EXPECT_THAT(text_of("versions/v1/etc/passwd"), HasSubstr("slurm:x:64030:64030::/:/bin/false\nada:x:1000:1000::/home/ada:/bin/bash\n"));
  EXPECT_THAT(text_of("versions/v1/etc/group"), HasSubstr("ada:x:1000:\n"));
  EXPECT_THAT(text_of("versions/v1/etc/shadow"), HasSubstr("ada:!"));
  EXPECT_EQ(text_of("etc/passwd"), "ada:x:1000:1000::/home/ada:/bin/bash\n");  // pods of before still read it
}

// SIGKILL before every single change: what is current is whole or not there, and another run completes it.
TEST_F(Populate, MayBeKilledAtEveryStep) {
  int steps = 0, without = 0;
  bool completed = false;
  for (; !completed; ++steps) {
    ASSERT_LT(steps, 500);
    fresh_volume();
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto dying = options();
      int left = steps;
      dying.on_step = [&left] {
        if (left-- == 0) ::kill(::getpid(), SIGKILL);
      };
      ::_exit(populate(dying) ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    completed = WIFEXITED(status);
    if (completed) {
      EXPECT_EQ(WEXITSTATUS(status), 0);
    } else {
      const std::string after = state();
      without += after == "none" ? 1 : 0;
      EXPECT_TRUE(after == "none" || after == "whole") << "killed before step " << steps << ": " << after;
    }
    const auto done = populate(options());
    ASSERT_TRUE(done) << "killed before step " << steps << ": " << done.error().message;
    EXPECT_EQ(done->root.layout, Layout::Versions);
    EXPECT_EQ(state(), "whole") << "killed before step " << steps;
    EXPECT_THAT(*list_dir(volume + "/versions"), ElementsAre("v1"));
    EXPECT_THAT(*read_history(volume), ElementsAre("v1"));
  }
  EXPECT_GT(without, 30);  // each entry of the image and each step around
}

TEST(PopulateAccounts, AddsPeopleThatAreNotThere) {
  std::vector<std::string> taken;
  EXPECT_EQ(merged_accounts("root:x:0:0", "ada:x:1000:1000::/:/x\nroot:x:0:0\nsys:x:3:3\nnobody:x:65534:65534\nbad:x:10x:1\nshort:x\nada:x:1001:1\n", Accounts::Numbered, taken),
            "root:x:0:0\nada:x:1000:1000::/:/x\n");
  EXPECT_THAT(taken, ElementsAre("ada"));
  EXPECT_EQ(merged_accounts("root:*:\n", "ada:!:\nother:!:\n", Accounts::Named, taken), "root:*:\nada:!:\n");
}

TEST(PopulateMounts, ReadsMountPoints) {
  EXPECT_THAT(mount_points("22 1 0:20 / / rw - overlay overlay rw\n23 22 0:21 / /proc rw - proc proc rw\n24 22 0:22 / /mnt/a\\040b\\134c rw shared:1 - tmpfs t rw\nshort\n"), UnorderedElementsAre("/proc", "/mnt/a b\\c"));
}

struct JailPaths : Populate {};

TEST_F(JailPaths, StayInTheJail) {
  const std::string root = work + "/jail";
  ASSERT_TRUE(make_dirs(root + "/etc"));
  ASSERT_TRUE(make_dirs(work + "/outside"));
  ASSERT_EQ(::symlink("../../../../../../../../outside", (root + "/up").c_str()), 0);
  ASSERT_EQ(::symlink((work + "/outside").c_str(), (root + "/absolute").c_str()), 0);
  const Fd fd(::open(root.c_str(), O_RDONLY | O_DIRECTORY));
  EXPECT_FALSE(open_in_root(fd.get(), "/up", O_PATH));
  EXPECT_FALSE(open_in_root(fd.get(), "/absolute", O_PATH));
  EXPECT_TRUE(mount_point(fd.get(), "/var/spool/slurmd", Kind::Folder));
  EXPECT_TRUE(mount_point(fd.get(), "/var/spool/slurmd", Kind::Folder));
  EXPECT_TRUE(mount_point(fd.get(), "/etc/hosts", Kind::File));
  EXPECT_FALSE(mount_point(fd.get(), "/absolute/here", Kind::Folder));  // leads nowhere inside
  EXPECT_FALSE(exists(work + "/outside/here"));
}

// A file system that does not answer is no reason to take mounts down: an error is not "another file".
TEST_F(JailPaths, AreTheSameOrNotOrUnknown) {
  char name[] = "/dev/shm/fairlead-same-XXXXXX";
  const std::string at = ::mkdtemp(name);
  ASSERT_TRUE(make_dirs(at + "/a"));
  ASSERT_EQ(::symlink("a", (at + "/link").c_str()), 0);
  ASSERT_EQ(::symlink("loop", (at + "/loop").c_str()), 0);
  EXPECT_TRUE(*same_file(at + "/a", at + "/link"));
  EXPECT_FALSE(*same_file(at, at + "/link"));
  EXPECT_FALSE(*same_file(at, at + "/absent"));
  EXPECT_FALSE(same_file(at, at + "/loop"));
  EXPECT_FALSE(same_file(at + "/loop", at));
  (void)remove_tree(at);
}

TEST_F(JailPaths, CurrentLeadsToAVersionOrNowhere) {
  ASSERT_TRUE(populate(options()));
  const Fd fd(::open(volume.c_str(), O_RDONLY | O_DIRECTORY));
  for (const char* target : {"/etc", "versions/../..", "versions/v1.tmp", "versions/", "versions/v1/usr"}) {
    ASSERT_EQ(::unlinkat(fd.get(), "current", 0), 0);
    ASSERT_EQ(::symlinkat(target, fd.get(), "current"), 0);
    const auto root = find_root(fd.get());
    ASSERT_FALSE(root) << target;
    EXPECT_EQ(root.error().code, Code::Invalid) << target;
  }
  EXPECT_THAT("a-1", testing::Truly(is_version_name));
  for (const char* bad : {"", "-a", "A", "a.tmp", "a/b", ".."}) EXPECT_THAT(bad, Not(testing::Truly(is_version_name)));
}

}  // namespace
}  // namespace fairlead::companion
