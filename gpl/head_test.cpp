// SPDX-License-Identifier: GPL-3.0-or-later
// The parts of an elected head that need no Slurm: terms of the state, when a daemon is hung, what the probe is told, the page of the lease.
#include <gmock/gmock.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <mutex>
#include <thread>

#include "base/files.h"
#include "head.h"
#include "lease_page.h"
#include "probe.h"
#include "terms.h"

namespace fairlead::companion {
namespace {
using namespace std::chrono_literals;
using testing::HasSubstr;

class Terms : public testing::Test {
 protected:
  Terms() {
    char name[] = "/tmp/fairlead-terms-XXXXXX";
    volume_ = ::mkdtemp(name);
  }
  ~Terms() override {
    auto removed = remove_tree(volume_);
    EXPECT_TRUE(removed);
  }
  Result<Term> take(const std::string& who = "h0") { return take_term(volume_, who, ::getuid(), ::getgid()); }
  void write(const std::string& path, const std::string& text = "x") { std::ofstream(volume_ + "/" + path) << text; }
  std::string read(const std::string& path) { return read_file(volume_ + "/" + path).value_or("none"); }
  bool there(const std::string& path) { return exists(volume_ + "/" + path); }
  std::string volume_;
};

TEST_F(Terms, EachTakesTheWholeStateToItsOwnPath) {
  auto first = take("h0");
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ(first->number, 1U);
  EXPECT_EQ(first->path, volume_ + "/terms/1");
  write("terms/1/job_state", "jobs");
  write("terms/1/job_state.new", "half");
  auto second = take("h1");
  ASSERT_TRUE(second);
  EXPECT_EQ(second->number, 2U);
  EXPECT_EQ(read("terms/2/job_state"), "jobs");
  EXPECT_FALSE(there("terms/2/job_state.new")) << "an earlier daemon may still write to it";
  EXPECT_THAT(read("terms/2/fairlead-holder"), HasSubstr("term 2 h1"));
  EXPECT_EQ(still_there(*first), false);
  EXPECT_EQ(still_there(*second), true);
}

TEST_F(Terms, OfManyAtOnceEachGetsItsOwnNumberAndOneIsLast) {
  std::vector<std::uint64_t> taken;
  std::mutex mutex;
  {
    std::vector<std::jthread> heads;
    for (int head = 0; head < 4; ++head)
      heads.emplace_back([&] {
        for (int i = 0; i < 50; ++i)
          if (auto term = take()) {
            const std::lock_guard lock(mutex);
            taken.push_back(term->number);
          }
      });
  }
  std::sort(taken.begin(), taken.end());
  EXPECT_EQ(std::adjacent_find(taken.begin(), taken.end()), taken.end());
  EXPECT_EQ(list_dir(volume_ + "/terms")->size(), 1U);
}

TEST_F(Terms, WhoWaitedBeyondItsLeaseTakesNothing) {
  ASSERT_TRUE(take());
  auto late = take_term(volume_, "h1", ::getuid(), ::getgid(), [] { return false; });
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, Code::Conflict);
  EXPECT_TRUE(there("terms/1"));
}

// Killed between any two renames: called again it goes on.
TEST_F(Terms, TheStateOfAHeadThatWasAloneMovesIn) {
  for (const char* name : {"job_state", "node_state", "clustername"}) write(name, name);
  ASSERT_TRUE(make_dirs(volume_ + "/hash.1/job.1"));
  ASSERT_TRUE(make_dirs(volume_ + "/terms/0"));
  ASSERT_EQ(::rename((volume_ + "/node_state").c_str(), (volume_ + "/terms/0/node_state").c_str()), 0);  // as far as one came
  auto term = take();
  ASSERT_TRUE(term) << term.error().message;
  EXPECT_EQ(read("terms/1/job_state"), "job_state");
  EXPECT_EQ(read("terms/1/node_state"), "node_state");
  EXPECT_TRUE(there("terms/1/hash.1/job.1"));
  EXPECT_FALSE(there("job_state"));
  write("job_state", "of somebody");  // later: nobody's business
  ASSERT_TRUE(take());
  EXPECT_EQ(read("terms/2/job_state"), "job_state");
}

TEST_F(Terms, NothingIsStartedEmptyWhereThereWasState) {
  auto term = take();
  ASSERT_TRUE(term);
  EXPECT_EQ(mark_saved(volume_, *term), false);
  ASSERT_TRUE(take()) << "nothing was saved yet: the marker is not set";
  write("terms/2/job_state");
  EXPECT_EQ(mark_saved(volume_, {2, volume_ + "/terms/2"}), true);
  ASSERT_TRUE(remove_tree(volume_ + "/terms/2/job_state"));
  auto without = take();
  ASSERT_FALSE(without);
  EXPECT_EQ(without.error().code, Code::Invalid);
  EXPECT_THAT(without.error().message, HasSubstr("restore it from a backup"));
  EXPECT_TRUE(there("terms/2")) << "left as it was";
  ASSERT_TRUE(remove_tree(volume_ + "/terms"));
  EXPECT_THAT(take().error().message, HasSubstr("holds none now"));
  write("job_state.old");  // a save that was interrupted: Slurm reads that one
  EXPECT_TRUE(take());
}

TEST(Probe, BusyIsNotHung) {
  struct Case { Silence silence; bool hung; };
  const Case cases[] = {
      {{.since_answer = 900ms, .answered_ever = true}, false},
      {{.since_answer = 1100ms, .answered_ever = true}, true},
      {{.since_answer = 1100ms, .answered_ever = true, .stopped = true, .runnable = false}, true},
      {{.since_answer = 3s, .answered_ever = true, .runnable = true}, false},
      {{.since_answer = 3s, .answered_ever = true, .processor = 1s}, false},
      {{.since_answer = 3s, .answered_ever = true, .processor = 100ms}, true},
      {{.since_answer = 11s, .answered_ever = true, .processor = 11s}, true},
      {{.since_answer = 11s, .answered_ever = true, .processor = 11s, .times_killed = 1}, false},
      {{.since_answer = 1000s, .answered_ever = true, .runnable = true, .times_killed = 9}, true},
      {{.since_answer = 20s}, false},  // starting
      {{.since_answer = 31s}, true},
      {{.since_answer = 100s, .runnable = true}, false},
  };
  for (const Case& one : cases) EXPECT_EQ(is_hung(one.silence), one.hung) << one.silence.since_answer.count();
}

TEST(Probe, AsksThisMachine) {
  const std::string conf = "# SlurmctldHost=no\nClusterName=c\n slurmctldhost = ctl (10.0.0.1)\nSlurmctldHostX=1\nSlurmUser=slurm";
  EXPECT_EQ(controller_name(conf), "ctl");
  EXPECT_EQ(controller_name("ClusterName=c\n"), "");
  const std::string own = own_address_conf(conf);
  EXPECT_THAT(own, HasSubstr("SlurmctldHost=ctl(127.0.0.1)\n"));
  EXPECT_THAT(own, testing::Not(HasSubstr("10.0.0.1")));
  EXPECT_THAT(own, HasSubstr("SlurmctldHostX=1\n"));
}

TEST(Probe, SeesAProcessThatIsStopped) {
  auto child = Child::start({.argv = {"sleep", "100"}});
  ASSERT_TRUE(child);
  ASSERT_TRUE(child->signal(SIGSTOP));
  for (int i = 0; i < 500 && !look_at_process(child->pid()).value().stopped; ++i) std::this_thread::sleep_for(2ms);
  EXPECT_TRUE(look_at_process(child->pid())->stopped);
  ASSERT_TRUE(child->signal(SIGCONT));
  for (int i = 0; i < 500 && look_at_process(child->pid()).value().stopped; ++i) std::this_thread::sleep_for(2ms);
  EXPECT_FALSE(look_at_process(child->pid())->stopped);
  EXPECT_FALSE(look_at_process(0x3fffffff));
}

TEST(LeasePage, IsAFileThatAnyoneMayRead) {
  char name[] = "/tmp/fairlead-lease-XXXXXX";
  const std::string folder = ::mkdtemp(name), path = folder + "/lease";
  auto page = LeasePage::create(path);
  ASSERT_TRUE(page);
  page->set(boot_time() + 5s);
  auto bytes = read_file(path);
  ASSERT_TRUE(bytes);
  ASSERT_EQ(bytes->size(), 16U);
  EXPECT_EQ(bytes->substr(0, 8), "FLLEASE1");
  page->set(quorum::Time::min());
  EXPECT_EQ(read_file(path)->substr(8), std::string(8, '\0'));
  ASSERT_TRUE(remove_tree(folder));
}

TEST(HeadOptions, SayWhatIsWrong) {
  std::map<std::string, std::string> environment = {{"FAIRLEAD_HEADS", "a:1,b:1"}, {"FAIRLEAD_WITNESSES", "w:1"}};
  EXPECT_THAT(head_options(environment).error().message, HasSubstr("FAIRLEAD_VOTER must be a number below 3"));
  environment["FAIRLEAD_VOTER"] = "3";
  EXPECT_FALSE(head_options(environment));
  environment["FAIRLEAD_VOTER"] = "2";
  EXPECT_THAT(head_options(environment).error().message, HasSubstr("FAIRLEAD_QUORUM_KEY"));
  char name[] = "/tmp/fairlead-key-XXXXXX";
  const std::string folder = ::mkdtemp(name);
  std::ofstream(folder + "/key") << "0123456789abcdef";
  environment["FAIRLEAD_QUORUM_KEY"] = folder + "/key";
  auto options = head_options(environment);
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->heads, 2U);
  EXPECT_EQ(options->voters.size(), 3U);
  EXPECT_EQ(options->relay_port, 0) << "nothing is passed on where it is not asked for";
  for (const auto& [text, port] : {std::pair("6817", 6817), std::pair("0", -1), std::pair("65536", -1), std::pair("x", -1)}) {
    environment["FAIRLEAD_RELAY_PORT"] = text;
    options = head_options(environment);
    EXPECT_EQ(options ? options->relay_port : -1, port) << text;
  }
  environment.erase("FAIRLEAD_RELAY_PORT");
  environment["FAIRLEAD_LEASE_MS"] = "10";
  EXPECT_FALSE(head_options(environment));
  ASSERT_TRUE(remove_tree(folder));
}

}  // namespace
}  // namespace fairlead::companion
