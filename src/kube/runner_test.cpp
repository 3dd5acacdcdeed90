// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <atomic>
#include <condition_variable>
#include <latch>
#include <mutex>

#include "kube/controller.h"
#include "kube/scripted_api.h"

namespace fairlead::kube {
namespace {

using testing::Contains;
using testing::ElementsAre;

// What a controller saw, for the test's thread.
struct Record {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> calls;
  std::atomic<int> inside{0}, most_inside{0};
  bool started = false;

  void add(const std::string& call) {
    const std::lock_guard lock(mutex);
    calls.push_back(call);
    changed.notify_all();
  }
  std::vector<std::string> wait(std::size_t count) {
    std::unique_lock lock(mutex);
    changed.wait_for(lock, 20s, [&] { return calls.size() >= count; });
    return calls;
  }
};

class Recorder final : public Controller {
 public:
  Recorder(Record& record, std::string space, std::function<Result<Next>(const ObjectKey&, int)> answer)
      : record_(record), space_(std::move(space)), answer_(std::move(answer)) {}
  std::string name() const override { return "recorder"; }
  std::vector<Source> sources() const override { return {{resources::pods, space_, key_itself}}; }
  void start(const Caches& caches) override {
    pods_ = &caches.of(resources::pods);
    record_.started = true;
  }
  Result<Next> reconcile(const ObjectKey& key) override {
    const int inside = ++record_.inside;
    record_.most_inside = std::max<int>(record_.most_inside, inside);
    const auto object = pods_->get(key);
    record_.add(key.text() + (object ? "@" + version_of(*object) : " gone"));
    auto answer = answer_(key, ++calls_);
    --record_.inside;
    return answer;
  }

 private:
  Record& record_;
  const std::string space_;
  const std::function<Result<Next>(const ObjectKey&, int)> answer_;
  const Reader* pods_ = nullptr;
  std::atomic<int> calls_{0};
};

Result<Next> well(const ObjectKey&, int) { return Next{}; }

TEST(Runner, ReconcilesWhatIsThereAndWhatChanges) {
  const SystemClock clock;
  ScriptedApi api;
  api.put(test_object("n", "a", 2), 2);
  Record record;
  Runner runner(api, clock, 1);
  runner.add(std::make_unique<Recorder>(record, "", well));
  EXPECT_FALSE(runner.synced());
  runner.start();
  EXPECT_THAT(record.wait(1), ElementsAre("n/a@2"));
  EXPECT_TRUE(runner.synced());
  EXPECT_TRUE(record.started);
  api.event(EventType::Modified, test_object("n", "a", 3));
  EXPECT_THAT(record.wait(2), ElementsAre("n/a@2", "n/a@3"));
  api.event(EventType::Deleted, test_object("n", "a", 4));
  EXPECT_THAT(record.wait(3), ElementsAre("n/a@2", "n/a@3", "n/a gone"));
  runner.wake("recorder", {"n", "outside"});
  EXPECT_THAT(record.wait(4), Contains("n/outside gone"));
}

TEST(Runner, RetriesErrorsAndThrownOnes) {
  const SystemClock clock;
  ScriptedApi api;
  api.put(test_object("n", "a", 2), 2);
  Record record;
  Runner runner(api, clock, 1);
  runner.add(std::make_unique<Recorder>(record, "", [](const ObjectKey&, int call) -> Result<Next> {
    if (call == 1) return fail(Code::Unavailable, "not yet");
    if (call == 2) throw std::runtime_error("defect");
    if (call == 3) return fail(Code::Conflict, "stale");
    if (call == 4) return Next{1ms};
    return Next{};
  }));
  runner.start();
  EXPECT_EQ(record.wait(5).size(), 5U);
}

TEST(Runner, TellsASourceOnlyOfItsNamespace) {
  const SystemClock clock;
  ScriptedApi api;
  api.put(test_object("n", "a", 2), 2);
  api.put(test_object("m", "a", 3), 3);
  Record mine, all;
  Runner runner(api, clock, 1);
  runner.add(std::make_unique<Recorder>(mine, "m", well));
  runner.add(std::make_unique<Recorder>(all, "", well));
  runner.start();
  EXPECT_EQ(all.wait(2).size(), 2U);
  api.event(EventType::Added, test_object("n", "b", 4));
  api.event(EventType::Added, test_object("m", "b", 5));
  EXPECT_EQ(all.wait(4).size(), 4U);
  EXPECT_THAT(mine.wait(2), ElementsAre("m/a@3", "m/b@5"));
  EXPECT_EQ(api.lists(), 1);  // one informer for both
}

TEST(Runner, OneKeyIsOnOneThreadAtATime) {
  const SystemClock clock;
  ScriptedApi api;
  Record record;
  Runner runner(api, clock, 1, {.threads_per_controller = 8});
  runner.add(std::make_unique<Recorder>(record, "", well));
  runner.start();
  for (int i = 0; i < 2000; ++i) runner.wake("recorder", {"n", "a"});
  record.wait(1);
  runner.wake("recorder", {"n", "last"});
  for (std::size_t seen = 1;; ++seen) {
    if (const auto calls = record.wait(seen); std::ranges::find(calls, "n/last gone") != calls.end()) break;
    ASSERT_LT(seen, 3000U);
  }
  EXPECT_LE(record.most_inside, 2);  // a and last
}

// Keys that come at once go to as many threads as there are, and a key that comes back later to none that is busy.
TEST(Runner, AllThreadsWorkWhenThereIsEnoughToDo) {
  const SystemClock clock;
  ScriptedApi api;
  Record record;
  constexpr int threads = 4;
  std::latch together(threads);
  Runner runner(api, clock, 1, {.threads_per_controller = threads});
  runner.add(std::make_unique<Recorder>(record, "", [&](const ObjectKey& key, int) -> Result<Next> {
    if (key.name.starts_with("k")) together.arrive_and_wait();  // would never end with fewer threads
    return Next{};
  }));
  runner.start();
  runner.wake("recorder", {"n", "first"});
  record.wait(1);
  for (int i = 0; i < threads; ++i) runner.wake("recorder", {"n", "k" + std::to_string(i)});
  together.wait();
  EXPECT_GE(record.wait(5).size(), 5u);
}

TEST(Runner, StopsWhileTheApiIsAwayAndWhileWorkIsWaiting) {
  const SystemClock clock;
  {
    ScriptedApi api;
    for (int i = 0; i < 50; ++i) api.fail_next_list(Code::Unavailable);
    Record record;
    Runner runner(api, clock, 1);
    runner.add(std::make_unique<Recorder>(record, "", well));
    runner.start();
    EXPECT_FALSE(runner.synced());
  }
  ScriptedApi api;
  api.put(test_object("n", "a", 2), 2);
  Record record;
  Runner runner(api, clock, 1);
  runner.add(std::make_unique<Recorder>(record, "", [](const ObjectKey&, int) -> Result<Next> { return Next{1h}; }));
  runner.start();
  record.wait(1);
}

}  // namespace
}  // namespace fairlead::kube
