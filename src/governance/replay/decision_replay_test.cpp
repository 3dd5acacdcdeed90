// SPDX-License-Identifier: Apache-2.0
// Books with a record: what it says is decided again, byte for byte; what was changed in it is found; and with a record begun anew nothing that holds quota loses it.
#include "governance/replay/decision_replay.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <thread>

#include "base/files.h"
#include "base/rng.h"
#include "base/test_rounds.h"
#include "governance/decision_log.h"
#include "governance/plan/decision_record.h"
#include "governance/plan/explain_lab.h"

namespace fairlead::governance {
namespace {

using kube::Json;
using kube::ObjectKey;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Place = Books::Place;

const Instant start = *parse_time("2026-11-23T00:00:00Z");

// A random site with an API that takes what the books write, and people and jobs that do something.
class Recorded {
 public:
  explicit Recorded(std::uint64_t seed) : rng_(seed) {
    books_.record(start);
    const Lab lab = Lab::random(seed);
    for (const Json& object : lab.objects()) {
      objects_[{object["kind"].string(), kube::key_of(object)}] = object;
      tell_books(books_, object["kind"].string(), kube::key_of(object), object);
    }
    settle();
  }
  void step() {
    now_ += 10s;
    std::vector<ObjectKey> works, queues;
    for (const auto& [id, object] : objects_) {
      if (id.first == "Workload") works.push_back(id.second);
      if (id.first == "ClusterQueue") queues.push_back(id.second);
    }
    const std::uint64_t what = rng_.below(10);
    if (what < 4 || works.empty()) {
      submit(queues[rng_.below(queues.size())].name);
    } else if (what < 6) {
      const ObjectKey& key = works[rng_.below(works.size())];
      objects_.erase({"Workload", key});
      books_.set_workload(key, Json());
    } else if (what < 8) {  // those that were told to stop have stopped
      for (const ObjectKey& key : works)
        if (Json object = objects_.at({"Workload", key}); kube::condition_is_true(object, "Evicted")) {
          tell_stopped(object, now_);
          put(std::move(object));
        }
    } else if (what < 9) {
      const ObjectKey& key = queues[rng_.below(queues.size())];
      Json& queue = objects_.at({"ClusterQueue", key});
      queue.child("spec").child("resourceGroups").items()[0].child("flavors").items()[0].child("resources").items()[0].set("nominalQuota", static_cast<std::int64_t>(rng_.below(10)));
      books_.set_queue(key.name, queue);
    } else {
      Json object = objects_.at({"Workload", works[rng_.below(works.size())]});
      object.child("spec").set("active", !object["spec"]["active"].boolean(true));
      put(std::move(object));
    }
    settle();
  }
  std::string take() { return books_.take_record(); }
  Books& books() { return books_; }
  Instant now() const { return now_; }
  void settle() {
    books_.record(now_);
    for (int round = 0; round < 30; ++round) {
      books_.decide();
      const auto changed = books_.take_changed();
      if (changed.workloads.empty()) return;
      for (const ObjectKey& key : changed.workloads)
        if (auto write = books_.write_of(key, now_)) put(std::move(write->object));
    }
  }

 private:
  void submit(const std::string& queue) {
    const int number = 1000 + ++made_;
    auto object = kube::parse_yaml(fmt::format("{{kind: Workload, metadata: {{name: n{0}, namespace: lab, uid: 00000000-0000-0000-0000-{0:012d}, creationTimestamp: '{1}'}}, spec: {{queueName: {2}, priority: {3}, podSets: [{{name: main, count: {5}, template: {{spec: "
                                               "{{containers: [{{name: c, resources: {{requests: {{cpu: {4}}}}}}}]}}}}}}]}}}}", number, print_time(now_), queue, rng_.below(4), 1 + rng_.below(4), 1 + rng_.below(2)));
    put(std::move(object->at(0)));
  }
  void put(Json object) {
    object.child("metadata").set("resourceVersion", std::to_string(100'000 + ++version_));
    const ObjectKey key = kube::key_of(object);
    objects_[{"Workload", key}] = object;
    books_.set_workload(key, object);
  }

  Rng rng_;
  Books books_;
  std::map<std::pair<std::string, ObjectKey>, Json> objects_;
  Instant now_ = start;
  int made_ = 0;
  std::uint64_t version_ = 0;
};

std::vector<std::string> told(const std::string& log) {
  std::vector<std::string> out;
  for (const CaseOutcome& one : replay_decisions(log)) out.push_back(one.kind == CaseOutcome::Kind::Passed ? "ok" : one.kind == CaseOutcome::Kind::Skipped ? "skip " + one.detail : one.detail);
  return out;
}

TEST(DecisionLog, IsDecidedAgainByteForByte) {
  std::size_t decided = 0;
  for (std::uint64_t seed = 0; seed < test_rounds<std::uint64_t>(100, 5'000); ++seed) {
    Recorded site(seed);
    for (int i = 0; i < 40; ++i) site.step();
    const std::string log = decision_log_header(start) + site.take();
    EXPECT_THAT(told(log), ElementsAre("ok")) << "seed " << seed;
    for (std::size_t at = log.find("[\"Preempted\""); at != std::string::npos; at = log.find("[\"Preempted\"", at + 1)) ++decided;
  }
  EXPECT_GT(decided, 10U);
}

TEST(DecisionLog, WithARecordBegunAnewWhatHoldsQuotaKeepsIt) {
  for (std::uint64_t seed = 0; seed < test_rounds<std::uint64_t>(100, 5'000); ++seed) {
    Recorded site(seed);
    for (int i = 0; i < 15; ++i) site.step();
    (void)site.take();
    std::map<ObjectKey, Place> before;
    for (const ObjectKey& key : site.books().workloads()) before[key] = site.books().standing(key)->place;
    site.books().fill_anew();
    site.settle();
    for (const auto& [key, place] : before) {
      const auto standing = site.books().standing(key);
      ASSERT_TRUE(standing);
      if (place == Place::Running || place == Place::Stopping) { EXPECT_THAT(standing->place, testing::AnyOf(Place::Running, Place::Stopping)) << "seed " << seed << ' ' << key.name; }
      if (place == Place::Stopping) { EXPECT_EQ(standing->place, Place::Stopping) << "seed " << seed << ' ' << key.name; }
      if (place == Place::Out) { EXPECT_EQ(standing->place, Place::Out) << "seed " << seed << ' ' << key.name; }
    }
    for (int i = 0; i < 25; ++i) site.step();
    EXPECT_THAT(told(decision_log_header(site.now()) + site.take()), ElementsAre("ok")) << "seed " << seed;
  }
}

TEST(DecisionLog, AnotherDecisionIsFoundAndNamed) {
  Recorded site(3);
  for (int i = 0; i < 40; ++i) site.step();
  const std::string lines = site.take(), log = decision_log_header(start) + lines;
  std::string other = log;
  const auto at = other.find("[\"Admitted\"");
  ASSERT_NE(at, std::string::npos);
  other.replace(at, 11, "[\"Promised\"");
  ASSERT_EQ(told(other).size(), 1U);
  EXPECT_THAT(told(other)[0], HasSubstr("decision 1 was [\"Promised\""));
  EXPECT_THAT(told(other)[0], HasSubstr("lab/"));
  // Parts are judged each by itself.
  EXPECT_THAT(told(other + log), ElementsAre(HasSubstr("was [\"Promised\""), "ok"));
  // An event that was left out shows.
  const auto drop = log.find("{\"e\":\"config\"", log.find("{\"e\":\"drain\""));
  if (drop != std::string::npos) { EXPECT_THAT(told(log.substr(0, drop) + log.substr(log.find('\n', drop) + 1)), Not(ElementsAre("ok"))); }
}

TEST(DecisionLog, ALineThatACrashCutShortIsPassedOver) {
  Recorded site(5);
  for (int i = 0; i < 5; ++i) site.step();
  const std::string log = decision_log_header(start) + site.take();
  for (std::size_t size = 0; size < log.size(); size += 1 + size / 20) EXPECT_THAT(told(log.substr(0, size)), testing::Each(std::string("ok"))) << size;
}

TEST(DecisionLog, ALineThatNoLogHasFailsItsPartAlone) {
  const std::string header = decision_log_header(start, "fairlead-server 1 on a");
  const auto problem = [&](const std::string& text) { return told(text).at(0); };
  EXPECT_THAT(problem("{\"log\":\"fairlead decisions\",\"version\":2}\n"), HasSubstr("version 2"));
  EXPECT_THAT(problem(header + "not json\n"), HasSubstr("line 2: it cannot be read"));
  EXPECT_THAT(problem(header + "{\"e\":\"leave\",\"job\":0}\n"), HasSubstr("line 2: config comes first"));
  const std::string config = header + "{\"e\":\"config\",\"spec\":{\"nodes\":[],\"queues\":[]}}\n";
  EXPECT_THAT(problem(config + "{\"e\":\"leave\",\"job\":0}\n"), HasSubstr("line 3: job: 0 is not with the engine"));
  EXPECT_THAT(problem(config + "{\"e\":\"submit\",\"job\":0,\"class\":0}\n"), HasSubstr("class: 0 was not defined"));
  EXPECT_THAT(problem(config + "{\"e\":\"jump\",\"job\":0}\n"), HasSubstr("job: 0"));
  EXPECT_THAT(problem(header + "{\"e\":\"config\",\"spec\":{\"nodes\":[{\"name\":\"a\"}]}}\n"), HasSubstr("spec.nodes"));
  // A page that a power cut left empty in the middle.
  const auto outcomes = replay_decisions(config + std::string(100, '\0') + "\n" + config + "{\"e\":\"drain\",\"at\":\"x\",\"decided\":[]}\n");
  ASSERT_EQ(outcomes.size(), 2U);
  EXPECT_EQ(outcomes[0].kind, CaseOutcome::Kind::Failed);
  EXPECT_EQ(outcomes[0].id, "2026-11-23T00:00:00Z by fairlead-server 1 on a (lines 1-3)");
  EXPECT_EQ(outcomes[1].kind, CaseOutcome::Kind::Passed) << outcomes[1].detail;
  EXPECT_EQ(outcomes[1].id, "2026-11-23T00:00:00Z by fairlead-server 1 on a (lines 4-6)");
}

// The end of a file that somebody cut off, or that was emptied under us.
TEST(DecisionLog, WhatBeginsInTheMiddleIsSkippedUpToTheNextPart) {
  Recorded site(5);
  for (int i = 0; i < 5; ++i) site.step();
  const std::string log = decision_log_header(start) + site.take();
  const std::string whole_lines = log.substr(log.find("{\"e\":\"class\"")), cut = log.substr(log.size() / 2);
  for (const std::string& tail : {whole_lines, cut}) {
    EXPECT_TRUE(is_decision_log(tail));
    EXPECT_THAT(told(tail), ElementsAre(HasSubstr("begins in the middle")));
    EXPECT_THAT(told(tail + log), ElementsAre(HasSubstr("begins in the middle"), "ok"));
  }
  EXPECT_FALSE(is_decision_log("{\"kind\": \"unit-table\", \"cases\": []}\n"));
}

// Lines dropped, doubled and in another order, other digits: refused, or replayed with a difference or without, and never the end of the program.
TEST(DecisionLog, AnythingInItIsRefusedOrReplayed) {
  for (std::uint64_t seed = 0; seed < test_rounds<std::uint64_t>(300, 3'000); ++seed) {
    Recorded site(seed % 20);
    for (int i = 0; i < 8; ++i) site.step();
    std::vector<std::string> lines;
    const std::string text = site.take();
    for (std::size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) lines.push_back(text.substr(at, text.find('\n', at) + 1 - at));
    Rng rng(seed);
    for (std::uint64_t change = 0; change <= rng.below(4) && !lines.empty(); ++change) {
      const std::size_t at = rng.below(lines.size()), other = rng.below(lines.size());
      switch (rng.below(4)) {
        case 0: lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(at)); break;
        case 1: lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(other), std::string(lines[at])); break;
        case 2: std::swap(lines[at], lines[other]); break;
        default:
          for (char& one : lines[at])
            if (one >= '0' && one <= '9' && rng.below(3) == 0) one = static_cast<char>('0' + rng.below(10));
      }
    }
    std::string log = decision_log_header(start);
    for (const std::string& line : lines) log += line;
    (void)replay_decisions(log);
  }
}

TEST(DecisionLog, HoldsNothingOfAPodBeyondWhatIsDecidedOn) {
  Books books;
  books.record(start);
  Lab lab;
  lab.queue("q", "4");
  lab.work("w", "q", "2", 0, "", ", nodeSelector: {secret: label-value}");
  lab.at("Workload", "w").child("metadata").child("annotations").set("token", "hunter2");
  Json& container = lab.at("Workload", "w").child("spec").child("podSets").items()[0].child("template").child("spec").child("containers").items()[0];
  container.set("env", Json::array({Json::object({{"name", "PASSWORD"}, {"value", "hunter2"}})})).set("args", Json::array({"hunter2"})).set("image", "private/image");
  for (const Json& object : lab.objects()) tell_books(books, object["kind"].string(), kube::key_of(object), object);
  books.decide();
  const std::string lines = books.take_record();
  EXPECT_THAT(lines, HasSubstr("lab/w"));
  for (const char* word : {"hunter2", "PASSWORD", "private/image", "label-value"}) EXPECT_THAT(lines, Not(HasSubstr(word)));
}

// ---- the file

class LogFile : public testing::Test {
 protected:
  LogFile() : folder_(testing::TempDir() + "fairlead-decisions-" + random_uuid()) { EXPECT_TRUE(make_dirs(folder_)); }
  ~LogFile() override { (void)remove_tree(folder_); }
  std::string text(const std::string& name) { return read_file(folder_ + "/" + name).value_or(""); }
  const std::string folder_, path_ = folder_ + "/decisions.log";
};

using Then = DecisionSink::Then;

// Until the file is open, or cannot be.
void await(DecisionLogFile& log) {
  while (!log.ready() && log.problem().empty()) std::this_thread::yield();
}
void await_ready(DecisionLogFile& log) {
  while (!log.ready()) std::this_thread::yield();
}

TEST_F(LogFile, GrowsAndBeginsAnew) {
  DecisionLogFile log({.path = path_, .limit = Bytes{30}, .write = {}});
  EXPECT_EQ(log.append("before a part\n"), Then::Off);
  await(log);
  ASSERT_TRUE(log.ready()) << log.problem();
  EXPECT_EQ(log.begin("begin\n"), Then::GoOn);
  log.flush();
  EXPECT_EQ(log.append("0123456789\n"), Then::GoOn);
  log.flush();
  EXPECT_EQ(log.append("0123456789\n"), Then::GoOn);
  log.flush();
  EXPECT_EQ(log.append("0123456789\n"), Then::BeginAnew);
  EXPECT_EQ(log.begin("a\n"), Then::GoOn);
  EXPECT_EQ(log.append("b\n"), Then::GoOn) << "how large the file is then is known later";
  log.flush();
  EXPECT_EQ(text("decisions.log"), "a\nb\n");
  EXPECT_EQ(text("decisions.log.1"), "begin\n0123456789\n0123456789\n0123456789\n");
  struct stat about {};
  ASSERT_EQ(::stat(path_.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 07777, 0600U);
}

// However often a server starts, and whatever waits: what stands on the disk is bounded.
TEST_F(LogFile, NeverTakesMoreThanFourTimesItsLimit) {
  Rng rng(1);
  constexpr std::int64_t limit = 1'000;
  for (int starts = 0; starts < 60; ++starts) {
    DecisionLogFile log({.path = path_, .limit = Bytes{limit}, .retry = 0ns, .write = {}});
    const auto lines = [&](std::uint64_t most) { return std::string(rng.below(most), 'x') + "\n"; };
    await_ready(log);
    Then then = log.begin(lines(700));
    for (int i = 0; i < 20; ++i) {
      if (rng.below(2) == 0) log.flush();
      then = then == Then::GoOn ? log.append(lines(rng.below(3) == 0 ? 1'500 : 100)) : log.begin(lines(700));
    }
    log.flush();
    for (const char* name : {"decisions.log", "decisions.log.1"}) EXPECT_LE(static_cast<std::int64_t>(text(name).size()), 2 * limit) << name;
  }
  EXPECT_EQ(list_dir(folder_)->size(), 2U);
}

// Before the disk has taken the new part, too: how large the file will be is known.
TEST_F(LogFile, SaysThatItIsLargeWhileABeginWaits) {
  ASSERT_TRUE(write_file_atomically(path_, std::string(899, 'x') + "\n", 0600));
  std::mutex disk;
  std::unique_lock hangs(disk);
  const auto write = [&](int fd, const void* bytes, std::size_t size) -> ssize_t {
    const std::scoped_lock lock(disk);
    return ::write(fd, bytes, size);
  };
  DecisionLogFile log({.path = path_, .limit = Bytes{1'000}, .retry = 0ns, .write = write});
  await_ready(log);
  EXPECT_EQ(log.begin(std::string(49, 'b') + "\n"), Then::GoOn);
  EXPECT_EQ(log.append(std::string(899, 'a') + "\n"), Then::BeginAnew);
  hangs.unlock();
  log.flush();
  EXPECT_EQ(text("decisions.log").size(), 1'850U);
}

TEST_F(LogFile, WhatAloneTakesMoreThanHalfOfItsLimitIsRefused) {
  ASSERT_TRUE(write_file_atomically(path_, "kept\n", 0600));
  DecisionLogFile log({.path = path_, .limit = Bytes{20}, .write = {}});
  await_ready(log);
  EXPECT_EQ(log.begin("0123456789\n"), Then::Off);
  EXPECT_THAT(log.problem(), HasSubstr("more than half of its limit"));
  EXPECT_FALSE(log.ready());
  EXPECT_EQ(log.append("b\n"), Then::Off);
  log.flush();
  EXPECT_EQ(text("decisions.log"), "kept\n");
}

TEST_F(LogFile, IsRepairedWhenItIsOpened) {
  for (const auto& [was, is] : {std::pair<std::string, std::string>{"a\nb\ncut", "a\nb\n"}, {"cut", ""}, {"", ""}, {"a\n", "a\n"}, {"a\n" + std::string(200'000, 'x'), "a\n"}, {"a\n" + std::string(5'000, '\0'), "a\n"}}) {
    ASSERT_TRUE(write_file_atomically(path_, was, 0644));
    DecisionLogFile log({.path = path_, .limit = 1_MiB, .write = {}});
    await_ready(log);
    EXPECT_EQ(log.begin("next\n"), Then::GoOn);
    log.flush();
    EXPECT_EQ(text("decisions.log"), is + "next\n");
    struct stat about {};
    ASSERT_EQ(::stat(path_.c_str(), &about), 0);
    EXPECT_EQ(about.st_mode & 07777, 0600U) << "as it was it could be read by others";
  }
}

TEST_F(LogFile, HasOneWriterAndIsNoOtherFile) {
  const auto problem = [](const std::string& path) {
    DecisionLogFile log({.path = path, .limit = 1_MiB, .write = {}});
    await(log);
    EXPECT_FALSE(log.ready());
    EXPECT_EQ(log.begin("a\n"), Then::Off);
    return log.problem();
  };
  {
    DecisionLogFile first({.path = path_, .limit = 1_MiB, .write = {}});
    await_ready(first);
    EXPECT_THAT(problem(path_), HasSubstr("another process writes it"));
  }
  EXPECT_NE(problem(folder_), "");
  EXPECT_NE(problem(folder_ + "/none/decisions.log"), "");
  ASSERT_EQ(::symlink("decisions.log", (folder_ + "/link").c_str()), 0);
  EXPECT_NE(problem(folder_ + "/link"), "");
  ASSERT_EQ(::mkfifo((folder_ + "/pipe").c_str(), 0600), 0);
  EXPECT_NE(problem(folder_ + "/pipe"), "");
  if (::geteuid() == 0) {
    ASSERT_TRUE(write_file_atomically(folder_ + "/foreign", "", 0600));
    ASSERT_EQ(::chown((folder_ + "/foreign").c_str(), 12'345, 12'345), 0);
    EXPECT_THAT(problem(folder_ + "/foreign"), HasSubstr("another user"));
  }
}

// Off, with whole lines; and on again once there is room.
TEST_F(LogFile, AFullDiskSwitchesItOffForAWhile) {
  std::atomic<std::int64_t> room = 16;
  const auto write = [&](int fd, const void* bytes, std::size_t size) -> ssize_t {
    if (room == 0) return errno = ENOSPC, -1;
    const ssize_t wrote = ::write(fd, bytes, std::min(size, static_cast<std::size_t>(room.load())));
    room -= wrote;
    return wrote;
  };
  DecisionLogFile log({.path = path_, .limit = 1_MiB, .retry = 0ns, .write = write});
  await_ready(log);
  EXPECT_EQ(log.begin("0123456789\n"), Then::GoOn);
  log.flush();
  EXPECT_EQ(log.append("0123456789\n"), Then::GoOn) << "that it was lost is seen later";
  log.flush();
  EXPECT_EQ(log.append("lost\n"), Then::Off);
  EXPECT_EQ(text("decisions.log"), "0123456789\n");
  room = 1'000;
  await_ready(log);
  EXPECT_EQ(log.append("of no part\n"), Then::Off);
  EXPECT_EQ(log.begin("again\n"), Then::GoOn);
  log.flush();
  EXPECT_EQ(text("decisions.log"), "0123456789\nagain\n");
  EXPECT_EQ(log.problem(), "");
}

TEST_F(LogFile, ADiskThatHangsHoldsUpNobody) {
  std::mutex disk;
  std::unique_lock hangs(disk);
  std::atomic<bool> writes = false;
  const auto write = [&](int fd, const void* bytes, std::size_t size) -> ssize_t {
    writes = true;
    const std::scoped_lock lock(disk);
    return ::write(fd, bytes, size);
  };
  DecisionLogFile log({.path = path_, .limit = Bytes{100}, .retry = 0ns, .write = write});
  await_ready(log);
  EXPECT_EQ(log.begin("begin\n"), Then::GoOn);
  while (!writes) std::this_thread::yield();
  int taken = 0;
  while (log.append("0123456789\n") != Then::Off) ASSERT_LT(++taken, 10) << "what waits has a bound";
  EXPECT_THAT(log.problem(), HasSubstr("does not keep up"));
  EXPECT_FALSE(log.ready());
  EXPECT_EQ(log.begin("begin\n"), Then::Off);
  hangs.unlock();
  await_ready(log);
  EXPECT_EQ(log.begin("again\n"), Then::GoOn);
  log.flush();
  EXPECT_EQ(text("decisions.log"), "begin\nagain\n");
}

// Somebody deletes it, or moves it away: another is begun.
TEST_F(LogFile, AFileThatIsTakenAwayIsBegunAnew) {
  DecisionLogFile log({.path = path_, .limit = 1_MiB, .retry = 0ns, .write = {}});
  await_ready(log);
  EXPECT_EQ(log.begin("a\n"), Then::GoOn);
  log.flush();
  ASSERT_EQ(::unlink(path_.c_str()), 0);
  EXPECT_EQ(log.append("b\n"), Then::GoOn);
  log.flush();
  await_ready(log);
  EXPECT_EQ(log.append("c\n"), Then::Off);
  EXPECT_EQ(log.begin("d\n"), Then::GoOn);
  log.flush();
  EXPECT_EQ(text("decisions.log"), "d\n");
}

}  // namespace
}  // namespace fairlead::governance
