// SPDX-License-Identifier: GPL-3.0-or-later
// A new version of the shared root beside the old one, and the way back.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "base/files.h"
#include "populate.h"
#include "versions.h"

namespace fairlead::companion {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Renew : testing::Test {
  std::string work, image, volume;
  void SetUp() override {
    char name[] = "/dev/shm/fairlead-renew-XXXXXX";
    work = ::mkdtemp(name);
    image = work + "/image";
    for (const char* folder : {"/bin", "/etc", "/home", "/root", "/proc", "/usr/lib", "/var/lib/dpkg/info"}) ASSERT_TRUE(make_dirs(image + folder));
    write(image + "/bin/sh", "a shell");
    write(image + "/etc/passwd", "root:x:0:0::/root:/bin/sh\n");
    write(image + "/etc/motd", "welcome to one");
    write(image + "/etc/issue", "one");
    write(image + "/var/lib/dpkg/status", "Package: sh\nArchitecture: amd64\nVersion: 1\n\n");
    write(image + "/var/lib/dpkg/lock-frontend", "");
    for (int i = 0; i < 4; ++i) write(image + "/usr/lib/" + std::to_string(i), "library");
    fresh();
  }
  void TearDown() override { (void)remove_tree(work); }

  // Version v1 as people left it, and the image of v2.
  void fresh() {
    volume = work + "/volume";
    (void)remove_tree(volume);
    ASSERT_TRUE(make_dirs(volume));
    write(image + "/etc/issue", "one");
    write(image + "/var/lib/dpkg/status", "Package: sh\nArchitecture: amd64\nVersion: 1\n\n");
    const auto done = populate(options("v1", false));
    ASSERT_TRUE(done) << done.error().message;
    const std::string root = volume + "/versions/v1";
    write(root + "/etc/passwd", "root:x:0:0::/root:/bin/sh\nada:x:1000:1000::/home/ada:/bin/sh\n");
    write(root + "/var/lib/dpkg/status", "Package: sh\nArchitecture: amd64\nVersion: 1\n\nPackage: jq\nArchitecture: amd64\nVersion: 7\n\n");
    write(root + "/var/lib/dpkg/info/jq.list", "/usr/bin/jq");
    ASSERT_TRUE(make_dirs(root + "/usr/bin"));
    write(root + "/usr/bin/jq", "jq");
    write(root + "/etc/motd", "welcome from ada");
    write(root + "/etc/issue", "mine");
    ASSERT_EQ(::unlink((root + "/usr/lib/3").c_str()), 0);
    write(image + "/etc/issue", "two");
    write(image + "/var/lib/dpkg/status", "Package: sh\nArchitecture: amd64\nVersion: 2\n\n");
  }
  static void write(const std::string& path, const std::string& text) {
    const auto done = write_file_atomically(path, text, 0644);
    ASSERT_TRUE(done) << done.error().message;
  }
  PopulateOptions options(const char* version, bool renew = true) const {
    PopulateOptions out{.volume = volume, .source = image, .version = version, .leave_out = {"/proc"}, .on_step = {}};
    out.renew = renew;
    out.wait_for_packages = std::chrono::milliseconds(0);
    return out;
  }
  std::string text_of(const std::string& path) const {
    auto text = read_file(volume + "/" + path);
    return text ? *text : "absent";
  }
  std::string current() const {
    const Fd fd(::open(volume.c_str(), O_RDONLY | O_DIRECTORY));
    const auto root = find_root(fd.get());
    return root ? root->version : root.error().message;
  }
  // What new steps would enter: the old version untouched, or the new one with all that belongs into it.
  std::string state() const {
    const std::string version = current(), root = "versions/" + version;
    const bool users = text_of(root + "/etc/passwd").find("ada:") != std::string::npos, packages = text_of(root + "/var/lib/dpkg/status").find("Package: jq") != std::string::npos && text_of(root + "/usr/bin/jq") == "jq" &&
                                                                                                    text_of(root + "/var/lib/dpkg/info/jq.list") == "/usr/bin/jq";
    const bool changed = text_of(root + "/etc/motd") == "welcome from ada" && text_of(root + "/usr/lib/3") == "absent" && text_of(root + "/usr/lib/2") == "library";
    if (!users || !packages || !changed) return "half " + version;
    if (version == "v1") return text_of(root + "/etc/issue") == "mine" ? "old" : "half v1";
    const bool kept = text_of(root + "/etc/issue") == "two" && text_of(root + "/var/lib/fairlead/jail-conflicts/v1/etc/issue") == "mine" && text_of(root + "/var/lib/dpkg/status").find("Version: 2") != std::string::npos;
    return kept ? "new" : "half " + version;
  }
};

TEST_F(Renew, CarriesOverWhatPeopleChanged) {
  const auto done = populate(options("v2"));
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(state(), "new");
  EXPECT_EQ(done->from, "v1");
  EXPECT_TRUE(done->built);
  EXPECT_THAT(done->replayed.records, ElementsAre("ada", "jq:amd64"));
  ASSERT_EQ(done->replayed.conflicts.size(), 1U);
  EXPECT_EQ(done->replayed.conflicts[0].path, "/etc/issue");
  EXPECT_THAT(done->versions, ElementsAre("v1", "v2"));
  // The old one is as it was.
  EXPECT_EQ(text_of("versions/v1/etc/issue"), "mine");
}

// A run that was killed, or whose flip failed: what people do until the next one is in the version that serves.
TEST_F(Renew, AVersionThatNeverServedIsBuiltAnew) {
  auto dying = options("v2");
  dying.on_step = [&] {
    if (exists(volume + "/versions/v2")) ::kill(::getpid(), SIGKILL);
  };
  const pid_t child = ::fork();
  if (child == 0) ::_exit(populate(dying) ? 0 : 1);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  ASSERT_EQ(current(), "v1");
  write(volume + "/versions/v1/usr/bin/late", "late");
  const auto done = populate(options("v2"));
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_TRUE(done->built);
  EXPECT_EQ(state(), "new");
  EXPECT_EQ(text_of("versions/v2/usr/bin/late"), "late");
  // Where nothing is known of it, it is left alone.
  ASSERT_TRUE(make_dirs(volume + "/versions/v3"));
  const auto refused = populate(options("v3"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::Invalid);
  EXPECT_EQ(current(), "v2");
  EXPECT_TRUE(exists(volume + "/versions/v3"));
}

// Killed between the link and the note: the next run notes it, also one for another version.
TEST_F(Renew, WhatServesIsNotedByTheNextRun) {
  ASSERT_TRUE(populate(options("v2")));
  write(volume + "/.fairlead-jail.history", "v1\n");
  write(unserved_path(volume, "v2"), "");
  write(volume + "/versions/v2/etc/motd", "later");
  ASSERT_TRUE(populate(options("v1")));
  EXPECT_THAT(*read_history(volume), ElementsAre("v2", "v1"));
  const auto again = populate(options("v2"));
  ASSERT_TRUE(again);
  EXPECT_FALSE(again->built);
  EXPECT_EQ(text_of("versions/v2/etc/motd"), "later");
}

// Every node has them mounted, also before the first user came.
TEST_F(Renew, EmptyHomesStayTheSameFolders) {
  struct stat before[2] = {}, after[2] = {};
  ASSERT_EQ(::stat((volume + "/home").c_str(), &before[0]), 0);
  ASSERT_EQ(::stat((volume + "/root").c_str(), &before[1]), 0);
  ASSERT_TRUE(populate(options("v2")));
  ASSERT_EQ(::stat((volume + "/home").c_str(), &after[0]), 0);
  ASSERT_EQ(::stat((volume + "/root").c_str(), &after[1]), 0);
  EXPECT_EQ(before[0].st_ino, after[0].st_ino);
  EXPECT_EQ(before[1].st_ino, after[1].st_ino);
}

TEST_F(Renew, TheWayBackIsAFlip) {
  ASSERT_TRUE(populate(options("v2")));
  write(volume + "/versions/v2/etc/motd", "later");
  const auto back = populate(options("v1"));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_FALSE(back->built);
  EXPECT_EQ(state(), "old");
  const auto again = populate(options("v2"));
  ASSERT_TRUE(again);
  EXPECT_EQ(text_of("versions/v2/etc/motd"), "later");
  EXPECT_EQ(current(), "v2");
}

TEST_F(Renew, WhatWasCarriedOnceIsCarriedOn) {
  ASSERT_TRUE(populate(options("v2")));
  write(image + "/etc/issue", "three");
  const auto done = populate(options("v3"));
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_THAT(text_of("versions/v3/etc/passwd"), HasSubstr("ada:"));
  EXPECT_EQ(text_of("versions/v3/usr/bin/jq"), "jq");
  EXPECT_EQ(text_of("versions/v3/etc/issue"), "three");  // people had the image's in v2
  EXPECT_EQ(text_of("versions/v3/var/lib/fairlead/jail-conflicts/v1/etc/issue"), "mine");
  EXPECT_THAT(done->replayed.conflicts, IsEmpty());
}

TEST_F(Renew, OldVersionsGoWhenNobodyUsesThem) {
  ASSERT_TRUE(note_use(volume, "worker-0", {"v1"}));
  auto wanted = options("v2");
  wanted.nodes = {"worker-0"};
  ASSERT_TRUE(populate(wanted));
  wanted.version = "v3";
  auto done = populate(wanted);
  ASSERT_TRUE(done);
  EXPECT_THAT(done->removed, IsEmpty());
  EXPECT_THAT(done->kept, ElementsAre("v1: worker-0 uses it"));
  ASSERT_TRUE(note_use(volume, "worker-0", {"v3"}));
  wanted.version = "v4";
  done = populate(wanted);
  ASSERT_TRUE(done);
  EXPECT_THAT(done->removed, ElementsAre("v1", "v2"));
  EXPECT_THAT(*list_dir(volume + "/versions"), ElementsAre("v3", "v4"));
  EXPECT_THAT(*list_dir(volume + "/.fairlead-jail.manifests"), ElementsAre("v3", "v3.base", "v3.carried", "v4", "v4.base", "v4.carried"));
}

// A job of the old version wrote its result there, after all was carried over.
TEST_F(Renew, WhatIsInAnOldVersionAloneIsKept) {
  ASSERT_TRUE(populate(options("v2")));
  write(volume + "/versions/v1/usr/lib/0", "written anew");
  write(volume + "/versions/v1/usr/result", "of a job");
  ASSERT_TRUE(make_dirs(volume + "/versions/v1/var/log"));
  write(volume + "/versions/v1/var/log/dpkg.log", "a log");
  auto done = populate(options("v3"));
  ASSERT_TRUE(done);
  EXPECT_THAT(done->kept, ElementsAre("v1: 2 files in it were written after another version came: /usr/lib/0, /usr/result"));
  EXPECT_THAT(done->removed, IsEmpty());
  EXPECT_EQ(text_of("versions/v1/usr/result"), "of a job");
  // What was changed in a version that was taken back, too: nobody carried it anywhere.
  write(volume + "/versions/v3/etc/motd", "of v3");
  ASSERT_TRUE(populate(options("v2")));
  auto none = options("v2b");
  none.keep = 0;
  done = populate(none);
  ASSERT_TRUE(done);
  EXPECT_THAT(done->kept, ElementsAre(HasSubstr("v1: 2 files"), HasSubstr("v3: 1 files in it were written after another version came: /etc/motd")));
  EXPECT_THAT(done->removed, ElementsAre("v2"));
  // Nothing is known of it: an earlier program's.
  ASSERT_EQ(::unlink(carried_path(volume, "v3").c_str()), 0);
  none.version = "v4";
  done = populate(none);
  ASSERT_TRUE(done);
  EXPECT_THAT(done->kept, Contains("v3: it is not known what was written in it alone"));
}

TEST_F(Renew, WaitsForPackagesThatAreBeingInstalled) {
  const Fd lock(::open((volume + "/versions/v1/var/lib/dpkg/lock-frontend").c_str(), O_RDWR));
  struct flock whole{};
  whole.l_type = F_WRLCK;
  ASSERT_EQ(::fcntl(lock.get(), F_OFD_SETLK, &whole), 0);
  const auto done = populate(options("v2"));
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Code::Unavailable);
  EXPECT_THAT(done.error().message, HasSubstr("lock-frontend"));
  EXPECT_EQ(state(), "old");
  EXPECT_THAT(*list_dir(volume + "/versions"), ElementsAre("v1"));  // what was copied is gone again
  whole.l_type = F_UNLCK;
  ASSERT_EQ(::fcntl(lock.get(), F_OFD_SETLK, &whole), 0);
  ASSERT_TRUE(populate(options("v2")));
  EXPECT_EQ(state(), "new");
}

// Who waited for the locks of the old version gets them when the new one is current, and must be told then already.
TEST_F(Renew, WhoLivesInAnOldVersionIsTold) {
  const auto told = [&](const std::string& version) { return exists(volume + "/versions/" + version + kReplaced); };
  auto watched = options("v2");
  int flipped = 0;
  watched.on_step = [&] {
    if (current() != "v2" || told("v1")) return;
    ++flipped;
    const Fd lock(::open((volume + "/versions/v1/var/lib/dpkg/lock-frontend").c_str(), O_RDWR));
    struct flock whole{};
    whole.l_type = F_WRLCK;
    EXPECT_NE(::fcntl(lock.get(), F_OFD_SETLK, &whole), 0) << "free before anybody was told";
  };
  ASSERT_TRUE(populate(watched));
  EXPECT_GT(flipped, 0);
  EXPECT_TRUE(told("v1"));
  EXPECT_FALSE(told("v2"));
  EXPECT_THAT(text_of("versions/v1" + std::string(kReplaced)), HasSubstr("version v1 of the shared root, and v2 has taken its place"));
  ASSERT_TRUE(populate(options("v1")));
  EXPECT_FALSE(told("v1"));
  EXPECT_TRUE(told("v2"));
  // Not a file of people's, to be carried over.
  ASSERT_TRUE(populate(options("v3")));
  EXPECT_FALSE(told("v3"));
}

// The script of adduser as it is, with other paths.
TEST_F(Renew, AdduserRefusesInAnOldVersion) {
  for (const char* folder : {"/usr/sbin", "/usr/bin", "/etc/dpkg/dpkg.cfg.d"}) ASSERT_TRUE(make_dirs(image + folder));
  write(image + "/usr/sbin/adduser", "x");
  write(image + "/usr/bin/flock", "x");
  ASSERT_TRUE(populate(options("v2")));
  EXPECT_THAT(text_of("versions/v2/etc/dpkg/dpkg.cfg.d/fairlead-jail"), HasSubstr("\npre-invoke=if [ -e /var/lib/fairlead/jail-replaced ]; then"));
  std::string script = text_of("versions/v2/usr/local/sbin/adduser");
  for (const auto& [from, to] : {std::pair<std::string, std::string>{"/var/lib/fairlead", volume + "/versions/v2/var/lib/fairlead"}, {"/usr/sbin/adduser", "echo"}})
    for (std::size_t at = 0; (at = script.find(from, at)) != script.npos; at += to.size()) script.replace(at, from.size(), to);
  write(work + "/script", script);
  const std::string run = "sh " + work + "/script --gecos 'a b' ada > " + work + "/out 2>&1";
  const auto said = [&] { return *read_file(work + "/out"); };
  EXPECT_EQ(std::system(run.c_str()), 0);
  EXPECT_EQ(said(), "--gecos a b ada\n");
  ASSERT_TRUE(populate(options("v1")));
  EXPECT_NE(std::system(run.c_str()), 0);
  EXPECT_THAT(said(), HasSubstr("version v2 of the shared root, and v1 has taken its place"));
}

TEST_F(Renew, NothingIsWrittenWhereThereIsNoRoom) {
  ASSERT_TRUE(make_dirs(volume + "/versions/v2.tmp/usr"));  // of a run that was killed
  write(volume + "/versions/v1/usr/bin/big", std::string(3 << 20, 'x'));
  auto small = options("v2");
  small.free_bytes = [] { return 3ULL << 20; };
  int steps = 0;
  small.on_step = [&] { ++steps; };
  const auto done = populate(small);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Code::Exhausted);
  EXPECT_THAT(done.error().message, HasSubstr("has 3 MiB free, and version v2 needs 4 MiB (1 MiB of the image, 4 MiB that people added, a tenth more); nothing was written"));
  EXPECT_EQ(steps, 1) << "the unfinished one was removed, and no more";
  EXPECT_EQ(state(), "old");
  EXPECT_THAT(*list_dir(volume + "/versions"), ElementsAre("v1"));
  small.free_bytes = [] { return 4ULL << 20; };
  ASSERT_TRUE(populate(small));
}

TEST_F(Renew, RefusesWhatItCannotTellApart) {
  ASSERT_EQ(::unlink(manifest_path(volume, "v1").c_str()), 0);
  auto done = populate(options("v2"));
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Code::Invalid);
  EXPECT_EQ(state(), "old");
  write(manifest_path(volume, "v1"), "fairlead-manifest 1\nend 3\n");
  EXPECT_FALSE(populate(options("v2")));
  EXPECT_EQ(state(), "old");
  EXPECT_FALSE(populate(options("../v2")));
}

TEST_F(Renew, AnAdoptedRootHasNoVersions) {
  volume = work + "/adopted";
  ASSERT_TRUE(make_dirs(volume + "/bin"));
  ASSERT_TRUE(make_dirs(volume + "/etc"));
  write(volume + "/bin/sh", "x");
  write(volume + "/etc/passwd", "x");
  const auto done = populate(options("v2"));
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, Code::Invalid);
  EXPECT_FALSE(exists(volume + "/versions"));
}

// SIGKILL before every single change: steps enter the old version or the whole new one, and another run completes it.
TEST_F(Renew, MayBeKilledAtEveryStep) {
  int steps = 0, old = 0;
  bool completed = false;
  for (; !completed; ++steps) {
    ASSERT_LT(steps, 500);
    fresh();
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto dying = options("v2");
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
    }
    const std::string after = state();
    old += after == "old" ? 1 : 0;
    EXPECT_TRUE(after == "old" || after == "new") << "killed before step " << steps << ": " << after;
    const auto done = populate(options("v2"));
    ASSERT_TRUE(done) << "killed before step " << steps << ": " << done.error().message;
    EXPECT_EQ(state(), "new") << "killed before step " << steps;
    EXPECT_THAT(*list_dir(volume + "/versions"), ElementsAre("v1", "v2"));
  }
  EXPECT_GT(old, 60);
}

// The same when an old version is taken away, and on the way back.
TEST_F(Renew, MayBeKilledWhileOldVersionsGo) {
  for (int steps = 0;; ++steps) {
    ASSERT_LT(steps, 50);
    fresh();
    ASSERT_TRUE(populate(options("v2")));
    ASSERT_TRUE(populate(options("v3")));  // v1 is gone, v2 before it stays
    auto dying = options("v2");
    dying.keep = 0;
    const pid_t child = ::fork();
    if (child == 0) {
      int left = steps;
      dying.on_step = [&left] {
        if (left-- == 0) ::kill(::getpid(), SIGKILL);
      };
      ::_exit(populate(dying) ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    const std::string after = current();
    EXPECT_TRUE(after == "v2" || after == "v3") << after;
    EXPECT_EQ(state(), "new") << steps;
    auto whole = options("v2");
    whole.keep = 0;
    ASSERT_TRUE(populate(whole));
    EXPECT_EQ(state(), "new");
    EXPECT_THAT(*list_dir(volume + "/versions"), ElementsAre("v2"));
    EXPECT_THAT(*list_dir(volume + "/.fairlead-jail.manifests"), ElementsAre("v2", "v2.base", "v2.carried"));
    if (WIFEXITED(status)) break;
  }
}

}  // namespace
}  // namespace fairlead::companion
