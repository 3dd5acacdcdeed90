// SPDX-License-Identifier: GPL-3.0-or-later
#include "replay.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "base/encoding.h"
#include "base/fd.h"
#include "base/files.h"

namespace fairlead::companion {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

ManifestEntry file(const char* text) { return {.mode = 0644, .size = std::string_view(text).size(), .hash = text}; }
ManifestEntry folder() { return {.type = 'd', .mode = 0755}; }

// What becomes of one path, by what it was, is here, and is in the new image; "" is not there.
struct Case {
  const char *name, *path, *base, *mine, *theirs, *want;
};
class ReplayOf : public testing::TestWithParam<Case> {};
TEST_P(ReplayOf, OnePath) {
  const Case& c = GetParam();
  Manifest base, mine, theirs;
  if (*c.base) base[c.path] = file(c.base);
  if (*c.mine) mine[c.path] = file(c.mine);
  if (*c.theirs) theirs[c.path] = file(c.theirs);
  const auto plan = plan_replay(base, mine, theirs);
  std::string got;
  for (const auto& one : plan.remove) got += "remove " + one;
  for (const auto& one : plan.copy) got += "copy " + one;
  for (const auto& one : plan.merge) got += "merge " + one;
  for (const auto& one : plan.conflicts) got += one.why;
  if (plan.link_cache) got += "link cache";
  EXPECT_EQ(got, c.want);
}
INSTANTIATE_TEST_SUITE_P(Paths, ReplayOf,
                         testing::Values(Case{"untouched", "/a", "1", "1", "1", ""}, Case{"new_in_the_image", "/a", "", "", "1", ""}, Case{"changed_in_the_image", "/a", "1", "1", "2", ""},
                                         Case{"gone_from_the_image", "/a", "1", "1", "", ""}, Case{"added_here", "/a", "", "1", "", "copy /a"}, Case{"added_on_both_sides_alike", "/a", "", "1", "1", ""},
                                         Case{"added_on_both_sides", "/a", "", "1", "2", "added here and in the new image"}, Case{"changed_here", "/a", "1", "2", "1", "copy /a"},
                                         Case{"changed_alike", "/a", "1", "2", "2", ""}, Case{"changed_on_both_sides", "/a", "1", "2", "3", "changed here and in the new image"},
                                         Case{"changed_here_gone_there", "/a", "1", "2", "", "changed here, gone from the new image"}, Case{"removed_here", "/a", "1", "", "1", "remove /a"},
                                         Case{"removed_on_both_sides", "/a", "1", "", "", ""}, Case{"removed_here_changed_there", "/a", "1", "", "2", "removed here, changed in the new image"},
                                         Case{"people", "/etc/passwd", "1", "2", "3", "merge /etc/passwd"}, Case{"people_here_only", "/etc/passwd", "1", "2", "1", "merge /etc/passwd"},
                                         Case{"a_log_goes_on", "/var/log/dpkg.log", "1", "2", "3", "copy /var/log/dpkg.log"}, Case{"a_log_gone", "/var/log/dpkg.log", "1", "", "3", ""},
                                         Case{"byte_code_of_the_image", "/usr/lib/x/__pycache__/a.pyc", "1", "2", "3", ""}, Case{"byte_code_of_a_package", "/usr/lib/x/__pycache__/a.pyc", "", "2", "", "copy /usr/lib/x/__pycache__/a.pyc"},
                                         Case{"libraries", "/etc/ld.so.cache", "1", "2", "3", "link cache"}),
                         [](const auto& of) { return of.param.name; });

TEST(ReplayPlan, TakesFoldersApartFromWithin) {
  Manifest base{{"/d", folder()}, {"/d/x", file("1")}, {"/d/y", folder()}}, mine, theirs = base;
  EXPECT_THAT(plan_replay(base, mine, theirs).remove, ElementsAre("/d/y", "/d/x", "/d"));
  mine = {{"/d", {.type = 'l', .mode = 0777, .target = "e"}}};
  const auto plan = plan_replay(base, mine, theirs);
  EXPECT_THAT(plan.remove, ElementsAre("/d/y", "/d/x"));
  EXPECT_THAT(plan.copy, ElementsAre("/d"));
}

struct ReplayDone : testing::Test {
  std::string work;
  void SetUp() override {
    char name[] = "/dev/shm/fairlead-replay-XXXXXX";
    work = ::mkdtemp(name);
    for (const char* root : {"/old", "/new"}) ASSERT_TRUE(make_dirs(work + root + "/etc"));
    ASSERT_TRUE(make_dirs(work + "/base/etc"));
  }
  void TearDown() override { (void)remove_tree(work); }
  void write(const std::string& path, const std::string& text, mode_t mode = 0644) const {
    ASSERT_TRUE(make_dirs(work + path.substr(0, path.rfind('/'))));
    ASSERT_TRUE(write_file_atomically(work + path, text, mode));
  }
  std::string read(const std::string& path) const {
    auto text = read_file(work + path);
    return text ? *text : "absent";
  }
  Manifest scan(const std::string& root) const {
    const Fd fd(::open((work + root).c_str(), O_RDONLY | O_DIRECTORY));
    auto done = scan_tree(fd.get(), {});
    EXPECT_TRUE(done);
    return *done;
  }
  Replayed run(const Manifest& base) {
    const auto mine = scan("/old");
    auto done = replay(plan_replay(base, mine, scan("/new")), mine, {.from = work + "/old", .to = work + "/new", .from_name = "v1", .base_files = work + "/base", .link_cache = {}, .on_step = {}});
    EXPECT_TRUE(done) << done.error().message;
    return *done;
  }
};

TEST_F(ReplayDone, CarriesFilesFoldersLinksAndHardLinks) {
  write("/old/opt/tool/bin/run", "program", 04755);
  ASSERT_EQ(::link((work + "/old/opt/tool/bin/run").c_str(), (work + "/old/opt/tool/bin/run2").c_str()), 0);
  ASSERT_EQ(::symlink("run", (work + "/old/opt/tool/bin/link").c_str()), 0);
  ASSERT_EQ(::chmod((work + "/old/opt/tool").c_str(), 02775), 0);
  const auto done = run({{"/etc", scan("/old").at("/etc")}});
  EXPECT_EQ(read("/new/opt/tool/bin/link"), "program");
  struct stat one{}, other{};
  ASSERT_EQ(::stat((work + "/new/opt/tool/bin/run").c_str(), &one), 0);
  ASSERT_EQ(::stat((work + "/new/opt/tool/bin/run2").c_str(), &other), 0);
  EXPECT_EQ(one.st_ino, other.st_ino);
  EXPECT_EQ(one.st_mode & 07777, 04755U);
  ASSERT_EQ(::stat((work + "/new/opt/tool").c_str(), &one), 0);
  EXPECT_EQ(one.st_mode & 07777, 02775U);
  EXPECT_THAT(done.conflicts, IsEmpty());
}

TEST_F(ReplayDone, NeverWritesOverWhatTheNewImageChanged) {
  write("/old/etc/conf", "original");
  const auto base = scan("/old");
  write("/old/etc/conf", "of the user", 0600);
  write("/new/etc/conf", "of the new image");
  const auto done = run(base);
  EXPECT_EQ(read("/new/etc/conf"), "of the new image");
  EXPECT_EQ(read("/new/var/lib/fairlead/jail-conflicts/v1/etc/conf"), "of the user");
  EXPECT_THAT(read("/new/var/lib/fairlead/jail-conflicts/v1.txt"), HasSubstr("/etc/conf: changed here and in the new image\n"));
  EXPECT_THAT(done.conflicts, ElementsAre(Conflict{"/etc/conf", "changed here and in the new image"}));
  struct stat info{};
  ASSERT_EQ(::stat((work + "/new/var/lib/fairlead/jail-conflicts").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0700U);
}

TEST_F(ReplayDone, DoesNotFollowLinksOfEitherRoot) {
  // /lib is a folder in the old version and a link that leads out in the new one.
  write("/old/lib/mine.so", "library");
  write("/outside/x", "x");
  ASSERT_EQ(::symlink((work + "/outside").c_str(), (work + "/new/lib").c_str()), 0);
  const auto done = run({});
  EXPECT_FALSE(exists(work + "/outside/mine.so"));
  EXPECT_EQ(read("/new/var/lib/fairlead/jail-conflicts/v1/lib/mine.so"), "library");
  EXPECT_FALSE(done.conflicts.empty());
}

TEST_F(ReplayDone, MergesPeople) {
  write("/base/etc/passwd", "root:x:0:0\n");
  write("/old/etc/passwd", "root:x:0:0\n");
  const auto base = scan("/old");
  write("/old/etc/passwd", "root:x:0:0\nada:x:1000:1000\n");
  write("/new/etc/passwd", "root:x:0:0\nbus:x:101:101\n");
  const auto done = run(base);
  EXPECT_EQ(read("/new/etc/passwd"), "root:x:0:0\nbus:x:101:101\nada:x:1000:1000\n");
  EXPECT_THAT(done.records, ElementsAre("ada"));
  EXPECT_THAT(done.conflicts, IsEmpty());
}

// Descriptors run out, as they do for reasons of other programs: nothing is known of what is there then.
struct NoDescriptors {
  rlimit before{};
  NoDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &before);
    rlimit none = before;
    none.rlim_cur = 3;
    ::setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before); }
};

TEST_F(ReplayDone, OnlyWhatIsGoneIsLeftOut) {
  write("/old/etc/passwd", "root:x:0:0\n");
  write("/base/etc/passwd", "root:x:0:0\n");
  write("/new/etc/passwd", "root:x:0:0\n");
  const auto base = scan("/old");
  write("/old/etc/mine", "of the user");
  write("/old/etc/passwd", "root:x:0:0\nada:x:1000:1000\n");
  const auto mine = scan("/old"), theirs = scan("/new");
  const auto plan = plan_replay(base, mine, theirs);
  ASSERT_THAT(plan.copy, ElementsAre("/etc/mine"));
  ASSERT_THAT(plan.merge, ElementsAre("/etc/passwd"));
  const auto attempt = [&](int step) {
    std::unique_ptr<NoDescriptors> none;
    int steps = 0;
    return replay(plan, mine, {.from = work + "/old", .to = work + "/new", .from_name = "v1", .base_files = work + "/base", .link_cache = {}, .on_step = [&] {
                                 none.reset();
                                 if (steps++ == step) none = std::make_unique<NoDescriptors>();
                               }});
  };
  for (const int step : {0, 1}) {  // the copy, the merge
    const auto done = attempt(step);
    ASSERT_FALSE(done) << "step " << step;
    EXPECT_EQ(done.error().code, Code::Exhausted);
  }
  ASSERT_EQ(::unlink((work + "/base/etc/passwd").c_str()), 0);
  EXPECT_FALSE(attempt(-1));
  write("/base/etc/passwd", "root:x:0:0\n");
  const auto done = attempt(-1);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(read("/new/etc/passwd"), "root:x:0:0\nada:x:1000:1000\n");
  EXPECT_EQ(read("/new/etc/mine"), "of the user");
}

TEST_F(ReplayDone, AFolderReplacedByTheUserIsReplaced) {
  write("/old/srv/d/x", "1");
  write("/new/srv/d/x", "1");
  for (const char* root : {"/old", "/new"}) ASSERT_EQ(::chmod((work + root + "/srv").c_str(), 0755), 0);
  const auto base = scan("/old");
  ASSERT_TRUE(remove_tree(work + "/old/srv/d"));
  ASSERT_EQ(::symlink("/data", (work + "/old/srv/d").c_str()), 0);
  EXPECT_THAT(run(base).conflicts, IsEmpty());
  char target[64] = {};
  EXPECT_GT(::readlink((work + "/new/srv/d").c_str(), target, sizeof target - 1), 0);
  EXPECT_STREQ(target, "/data");
}

}  // namespace
}  // namespace fairlead::companion
