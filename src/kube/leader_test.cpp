// SPDX-License-Identifier: Apache-2.0
#include "kube/leader.h"

#include <gmock/gmock.h>

#include "kube/fenced_api.h"
#include "kube/scripted_api.h"

namespace fairlead::kube {
namespace {

using testing::HasSubstr;

const ObjectKey kLease{"fairlead", "fairlead-server"};
const Instant kNow{std::chrono::seconds(1'800'000'000)};

Json lease(const std::string& holder, int epoch, const std::string& renewed = "2027-01-15T08:00:00.000000Z", int seconds = 15) {
  return Json::object({{"metadata", Json::object({{"name", kLease.name}, {"namespace", kLease.space}, {"resourceVersion", "7"}})},
                       {"spec", Json::object({{"holderIdentity", holder}, {"leaseTransitions", epoch}, {"leaseDurationSeconds", seconds}, {"renewTime", renewed}, {"acquireTime", "then"}})}});
}
LeaderStep look(const Json& at, Candidate candidate, std::chrono::nanoseconds monotonic) { return step_leader(at, std::move(candidate), kLease, {}, kNow, monotonic); }
Candidate me() { return {.identity = "me"}; }
Candidate leader(int epoch, std::chrono::nanoseconds proved_at) { return {.identity = "me", .epoch = epoch, .proved_at = proved_at}; }

TEST(LeaderStep, EveryState) {
  const Candidate watching = look(lease("you", 4), me(), 100s).candidate;  // first seen at 100 s
  struct Row {
    const char* name;
    Json lease;
    Candidate candidate;
    std::chrono::nanoseconds at;
    LeaderMove move;
    int epoch;  // written
  };
  const Row rows[] = {
      {"no lease", Json(), me(), 1s, LeaderMove::Take, 1},
      {"given back", lease("", 4), me(), 1s, LeaderMove::Take, 5},
      {"somebody's, just seen", lease("you", 4), me(), 1000s, LeaderMove::Wait, 0},
      {"somebody's, silent for less than its duration", lease("you", 4), watching, 114s, LeaderMove::Wait, 0},
      {"somebody's, silent for its duration", lease("you", 4), watching, 115s, LeaderMove::Take, 5},
      {"somebody's, renewed meanwhile", lease("you", 4, "2027-01-15T08:00:09.000000Z"), watching, 115s, LeaderMove::Wait, 0},
      {"another's meanwhile", lease("he", 5), watching, 200s, LeaderMove::Wait, 0},
      {"its own longer duration counts", lease("you", 4, "2027-01-15T08:00:00.000000Z", 60), watching, 130s, LeaderMove::Wait, 0},
      {"ours by a write whose answer was lost", lease("me", 4), me(), 1s, LeaderMove::Take, 5},
      {"ours", lease("me", 4), leader(4, 100s), 105s, LeaderMove::Renew, 4},
      {"ours, but not proved in time", lease("me", 4), leader(4, 100s), 110s, LeaderMove::Lost, 0},
      {"taken while we led", lease("you", 5), leader(4, 100s), 102s, LeaderMove::Lost, 0},
      {"taken and given to us again", lease("me", 6), leader(4, 100s), 102s, LeaderMove::Lost, 0},
      {"deleted while we led", Json(), leader(4, 100s), 102s, LeaderMove::Lost, 0},
  };
  for (const Row& row : rows) {
    const LeaderStep step = look(row.lease, row.candidate, row.at);
    EXPECT_EQ(step.move, row.move) << row.name << ": " << step.why;
    EXPECT_EQ(step.lease["spec"]["leaseTransitions"].integer(), row.epoch) << row.name;
    if (step.move == LeaderMove::Take || step.move == LeaderMove::Renew) {
      EXPECT_EQ(step.lease["spec"]["holderIdentity"].string(), "me") << row.name;
      EXPECT_EQ(version_of(step.lease), version_of(row.lease)) << row.name << ": decided on what was read";
      EXPECT_EQ(step.lease["spec"]["renewTime"].string(), print_micro_time(kNow));
    }
    if (step.move == LeaderMove::Renew) {
      EXPECT_EQ(step.lease["spec"]["acquireTime"].string(), "then");
    }
  }
}

TEST(LeaderStep, AHolderMayDoubtBeforeOthersMayTake) {
  const LeaderTimes times;
  EXPECT_LT(times.deadline, times.lease);
  EXPECT_TRUE(leads(leader(1, 100s), times, 109s));
  EXPECT_FALSE(leads(leader(1, 100s), times, 110s));
  EXPECT_FALSE(leads(me(), times, 0s));
}

// One Lease with the server's rules of versions, and whatever else is written.
class LeaseApi final : public BareApi {
 public:
  Result<Json> get(const Resource&, const ObjectKey&) override {
    const std::lock_guard lock(mutex_);
    if (away_) return fail(Code::Unavailable, "away");
    if (lease_.is_null()) return fail(Code::NotFound, "none");
    return lease_;
  }
  Result<Json> create(const Resource& resource, const Json& object) override {
    const std::lock_guard lock(mutex_);
    if (resource != resources::leases) return keep(object);
    if (!lease_.is_null()) return fail(Code::Exists, "there");
    return store(object);
  }
  Result<Json> update(const Resource& resource, const Json& object) override {
    const std::lock_guard lock(mutex_);
    if (resource != resources::leases) return keep(object);
    if (away_) return fail(Code::Unavailable, "away");
    if (version_of(object) != version_of(lease_)) return fail(Code::Conflict, "stale");
    return store(object);
  }
  Result<Json> update_status(const Resource&, const Json& object) override { return keep(object); }
  Result<Json> patch(const Resource&, const ObjectKey&, PatchType, const Json& patch, const std::string&) override { return keep(patch); }
  Result<Json> apply(const Resource&, const Json& object, const ApplyOptions&) override { return keep(object); }
  Result<Json> post(const Resource&, const ObjectKey&, const std::string&, const Json& body) override { return keep(body); }
  Result<void> remove(const Resource&, const ObjectKey&, const DeleteOptions&) override {
    ++writes;
    return {};
  }
  Result<ExecResult> exec(const ObjectKey&, const std::string&, const std::vector<std::string>&, const std::string&, std::chrono::milliseconds) override {
    ++writes;
    return ExecResult{};
  }
  void go_away(bool away) {
    const std::lock_guard lock(mutex_);
    away_ = away;
  }
  Json now() {
    const std::lock_guard lock(mutex_);
    return lease_;
  }
  int writes = 0;
  Json last;

 private:
  Result<Json> keep(const Json& object) {
    ++writes;
    last = object;
    return object;
  }
  Result<Json> store(const Json& object) {
    lease_ = object;
    lease_.child("metadata").set("resourceVersion", std::to_string(++version_));
    return lease_;
  }
  std::mutex mutex_;
  Json lease_;
  int version_ = 0;
  bool away_ = false;
};

struct Heard {
  std::mutex mutex;
  std::condition_variable changed;
  std::int64_t epoch = 0;
  std::string lost;
  template <class Done>
  bool wait(Done done) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, 20s, done);
  }
};
std::unique_ptr<Leader> candidate(KubeApi& api, const Clock& clock, Heard& heard, const std::string& name, LeaderTimes times = {.lease = 2s, .deadline = 1s, .retry = 5ms}) {
  return std::make_unique<Leader>(
      api, clock, LeaderOptions{.lease = kLease, .identity = name, .times = times},
      [&heard](std::int64_t epoch) {
        const std::lock_guard lock(heard.mutex);
        heard.epoch = epoch;
        heard.changed.notify_all();
      },
      [&heard](const std::string& why) {
        const std::lock_guard lock(heard.mutex);
        heard.lost = why;
        heard.changed.notify_all();
      });
}

TEST(Leader, OneLeadsAndGivesBackWhenItGoes) {
  LeaseApi api;
  const SystemClock clock;
  Heard first, second;
  auto a = candidate(api, clock, first, "a");
  ASSERT_TRUE(first.wait([&] { return first.epoch == 1; }));
  EXPECT_EQ(*a->epoch(), 1);
  auto b = candidate(api, clock, second, "b");
  EXPECT_FALSE(b->epoch());
  a.reset();
  ASSERT_TRUE(second.wait([&] { return second.epoch == 2; }));
  EXPECT_EQ(api.now()["spec"]["holderIdentity"].string(), "b");
  EXPECT_EQ(first.lost, "");
}

TEST(Leader, WithoutTheApiItStopsBelieving) {
  LeaseApi api;
  const SystemClock clock;
  Heard heard;
  auto a = candidate(api, clock, heard, "a", {.lease = 100ms, .deadline = 50ms, .retry = 5ms});
  ASSERT_TRUE(heard.wait([&] { return heard.epoch == 1; }));
  api.go_away(true);
  ASSERT_TRUE(heard.wait([&] { return !heard.lost.empty(); }));
  EXPECT_FALSE(a->epoch());
  api.go_away(false);
  a.reset();
  EXPECT_EQ(api.now()["spec"]["holderIdentity"].string(), "a") << "what it does not hold provably is not its to give back";
}

TEST(FencedApi, LetsNothingThroughWithoutProof) {
  LeaseApi api;
  FencedApi fenced(api, []() -> Result<std::int64_t> { return fail(Code::Unavailable, "lost"); });
  Json object = test_object("n", "x", 3);
  object.child("metadata").set("uid", "u");
  const auto refused = [](const auto& outcome) { return !outcome && outcome.error().message == "lost"; };
  EXPECT_TRUE(refused(fenced.create(resources::pods, object)));
  EXPECT_TRUE(refused(fenced.update(resources::pods, object)));
  EXPECT_TRUE(refused(fenced.update_status(resources::pods, object)));
  EXPECT_TRUE(refused(fenced.patch(resources::pods, {"n", "x"}, PatchType::Merge, object)));
  EXPECT_TRUE(refused(fenced.apply(resources::pods, object)));
  EXPECT_TRUE(refused(fenced.post(resources::pods, {"n", "x"}, "binding", object)));
  EXPECT_TRUE(refused(fenced.remove(resources::pods, {"n", "x"}, {.uid = "u", .resource_version = "3"})));
  EXPECT_TRUE(refused(fenced.exec({"n", "x"}, "c", {"true"}, "", 1s)));
  EXPECT_EQ(api.writes, 0);
}

TEST(FencedApi, EveryWriteSaysWhatItWasDecidedOn) {
  LeaseApi api;
  FencedApi fenced(api, []() -> Result<std::int64_t> { return 9; });
  Json bare = Json::object({{"metadata", Json::object({{"name", "x"}, {"namespace", "n"}})}});
  Json versioned = test_object("n", "x", 3);
  const auto invalid = [](const auto& outcome) { return !outcome && outcome.error().code == Code::Invalid; };
  EXPECT_TRUE(invalid(fenced.update(resources::pods, bare)));
  EXPECT_TRUE(invalid(fenced.update_status(resources::pods, bare)));
  EXPECT_TRUE(invalid(fenced.patch(resources::pods, {"n", "x"}, PatchType::Merge, Json::object({{"status", Json::object()}}))));
  EXPECT_TRUE(invalid(fenced.patch(resources::pods, {"n", "x"}, PatchType::JsonPatch, Json::array({Json::object({{"op", "remove"}, {"path", "/spec"}})}))));
  EXPECT_TRUE(invalid(fenced.apply(resources::pods, bare)));
  EXPECT_TRUE(invalid(fenced.post(resources::pods, {"n", "x"}, "eviction", Json::object())));
  EXPECT_TRUE(invalid(fenced.remove(resources::pods, {"n", "x"}, {})));
  EXPECT_TRUE(invalid(fenced.remove(resources::pods, {"n", "x"}, {.uid = "u"})));
  EXPECT_TRUE(invalid(fenced.create(resources::pods, Json::object({{"metadata", Json::object({{"generateName", "x-"}, {"namespace", "n"}})}}))));
  EXPECT_EQ(api.writes, 0);

  EXPECT_TRUE(fenced.create(resources::pods, bare));
  EXPECT_EQ(annotations_of(api.last)[kEpochAnnotation], "9");
  EXPECT_TRUE(fenced.update(resources::pods, versioned));
  EXPECT_TRUE(fenced.update_status(resources::pods, versioned));
  EXPECT_TRUE(fenced.patch(resources::pods, {"n", "x"}, PatchType::Merge, versioned));
  EXPECT_TRUE(fenced.patch(resources::pods, {"n", "x"}, PatchType::JsonPatch, Json::array({Json::object({{"op", "test"}, {"path", "/metadata/uid"}, {"value", "u"}})})));
  EXPECT_TRUE(fenced.apply(resources::pods, versioned));
  EXPECT_TRUE(fenced.post(resources::pods, {"n", "x"}, "eviction", Json::object({{"deleteOptions", Json::object({{"preconditions", Json::object({{"uid", "u"}})}})}})));
  EXPECT_TRUE(fenced.remove(resources::pods, {"n", "x"}, {.uid = "u", .resource_version = "3"}));
  EXPECT_EQ(api.writes, 8);
  // But a question, of which nothing is kept, and which is as it was asked.
  EXPECT_FALSE(fenced.create(resources::pods, Json::object({{"metadata", Json::object({{"generateName", "x-"}})}})));
  const Resource reviews{"authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", false};
  EXPECT_TRUE(fenced.create(reviews, Json::object({{"kind", "SelfSubjectReview"}})));
  EXPECT_EQ(api.writes, 9);
}

}  // namespace
}  // namespace fairlead::kube
