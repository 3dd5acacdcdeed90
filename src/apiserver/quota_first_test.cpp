// SPDX-License-Identifier: Apache-2.0
// A namespace gets its first quota while writes are under way, or loses its last; and what is read of it while others go on.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "apiserver/kinds/resources.h"
#include "apiserver/quota_ledger.h"
#include "apiserver/registry_test_kit.h"

namespace fairlead::apiserver::test {
namespace {

TEST(WritesUnderWay, ThoseThatBeganAreWaitedForAndNoOthers) {
  WritesUnderWay writes;
  std::vector<std::string> said;
  const auto say = [&](const char* what) { return [&said, what] { said.push_back(what); }; };
  writes.after_those_begun(say("idle"));
  EXPECT_EQ(said, std::vector<std::string>{"idle"});
  const auto a = writes.begin(), b = writes.begin();
  writes.after_those_begun(say("a and b"));
  const auto c = writes.begin();
  writes.after_those_begun(say("a, b and c"));
  const auto d = writes.begin();
  writes.end(c), writes.end(a);
  EXPECT_EQ(said.size(), 1u) << "b is under way";
  writes.end(b);
  EXPECT_EQ(said, (std::vector<std::string>{"idle", "a and b", "a, b and c"})) << "in order, and nobody waits for d";
  writes.end(d);
  writes.after_those_begun(say("idle again"));
  EXPECT_EQ(said.back(), "idle again");
}

// Holds writes of some keys back until they are let through; all else is the memory store's.
class HeldStore final : public Store {
 public:
  void hold(std::string part) { part_ = std::move(part); }
  void let_through() {
    std::vector<std::pair<Write, Done>> held;
    {
      const std::scoped_lock lock(mutex_);
      part_.clear();
      held.swap(held_);
    }
    for (auto& [write, done] : held) below_->write(std::move(write), std::move(done));
  }
  std::size_t held() const {
    const std::scoped_lock lock(mutex_);
    return held_.size();
  }
  std::function<void()> on_range;

  void write(Write write, Done done) override {
    {
      const std::scoped_lock lock(mutex_);
      if (!part_.empty() && write.key.find(part_) != std::string::npos) {
        held_.emplace_back(std::move(write), std::move(done));
        return;
      }
    }
    below_->write(std::move(write), std::move(done));
  }
  std::optional<Entry> get(const std::string& key) const override { return below_->get(key); }
  Result<Range> range(const std::string& prefix, const std::string& after, std::size_t limit, Revision at) const override {
    auto out = below_->range(prefix, after, limit, at);
    if (on_range && prefix == "/core/configmaps/default/") on_range();
    return out;
  }
  Revision revision() const override { return below_->revision(); }
  Result<std::unique_ptr<Subscription>> watch(const std::string& prefix, Revision from, StoreWatcher watcher) override { return below_->watch(prefix, from, std::move(watcher)); }

 private:
  std::unique_ptr<Store> below_ = make_memory_store();
  mutable std::mutex mutex_;
  std::string part_;
  std::vector<std::pair<Write, Done>> held_;
};

class Answer {
 public:
  Reply reply() {
    return [this](Result<Written> result) { result_ = std::move(result); };
  }
  bool is_there() const { return result_.has_value(); }
  const Result<Written>& get() const { return *result_; }

 private:
  std::optional<Result<Written>> result_;
};

struct HeldWorld : World {
  HeldWorld() : World({}, std::make_unique<HeldStore>()) {}
  HeldStore& held() const { return static_cast<HeldStore&>(*store); }
  void begin(Answer& answer, const std::string& plural, std::string_view yaml) { registry->create({}, *kind(plural), "default", json(yaml), answer.reply()); }
  static std::string map(const std::string& name) { return fmt::format("{{metadata: {{name: {}}}}}", name); }
  std::size_t maps() const { return api->list(kube::resources::config_maps, "default")->items.size(); }
};

// The last write that fits is let in once only, also if it was under way before the quota came.
TEST(FirstQuota, CountsWhatIsUnderWay) {
  HeldWorld world;
  world.held().hold("/configmaps/default/early");
  Answer early, quota;
  world.begin(early, "configmaps", HeldWorld::map("early"));
  ASSERT_EQ(world.held().held(), 1u);
  world.begin(quota, "resourcequotas", "{metadata: {name: q}, spec: {hard: {configmaps: 1}}}");
  // Whenever the quota is answered: from then on it holds.
  if (!quota.is_there()) world.held().let_through();
  ASSERT_TRUE(quota.is_there());
  world.must(quota.get());
  const auto late = world.create("configmaps", HeldWorld::map("late"));
  world.held().let_through();
  world.must(early.get());
  EXPECT_EQ(world.maps(), 1u);
  EXPECT_EQ(message_of(late), "configmaps \"late\" is forbidden: exceeded quota: q, requested: configmaps=1, used: configmaps=1, limited: configmaps=1");
}

TEST(FirstQuota, WaitsForThoseBeforeAndCountsThoseAfter) {
  HeldWorld world;
  world.held().hold("/configmaps/default/held");
  Answer before, quota, second, after;
  world.begin(before, "configmaps", HeldWorld::map("held-before"));
  world.begin(quota, "resourcequotas", "{metadata: {name: q}, spec: {hard: {configmaps: 2}}}");
  world.begin(second, "resourcequotas", "{metadata: {generateName: q-}, spec: {hard: {count/configmaps: 2}}}");
  EXPECT_FALSE(quota.is_there() || second.is_there());
  world.begin(after, "configmaps", HeldWorld::map("held-after"));
  world.held().let_through();
  world.must(before.get()), world.must(quota.get()), world.must(second.get()), world.must(after.get());
  EXPECT_FALSE(world.create("configmaps", HeldWorld::map("third"))) << "both are there";

  // The same with what came after still under way: it holds its room, and the quota does not wait for it.
  HeldWorld other;
  other.held().hold("/configmaps/default/held-before");
  Answer first, quota_of_other;
  other.begin(first, "configmaps", HeldWorld::map("held-before"));
  other.begin(quota_of_other, "resourcequotas", "{metadata: {name: q}, spec: {hard: {configmaps: 2}}}");
  Answer behind;
  other.begin(behind, "configmaps", HeldWorld::map("behind"));
  EXPECT_TRUE(behind.is_there()) << "nobody waits for a quota";
  EXPECT_FALSE(quota_of_other.is_there());
  other.held().let_through();
  EXPECT_TRUE(quota_of_other.is_there());
  other.held().hold("/configmaps/default/held");
  EXPECT_EQ(message_of(other.create("configmaps", HeldWorld::map("c"))), "configmaps \"c\" is forbidden: exceeded quota: q, requested: configmaps=1, used: configmaps=2, limited: configmaps=2");
}

TEST(FirstQuota, KeepsRoomFromBeforeItWasWritten) {
  HeldWorld world;
  Answer before, quota, after;
  world.held().hold("/configmaps/default/held-1");
  world.begin(before, "configmaps", HeldWorld::map("held-1"));
  world.begin(quota, "resourcequotas", "{metadata: {name: q}, spec: {hard: {configmaps: 2}}}");
  world.held().let_through();
  ASSERT_TRUE(quota.is_there());
  world.held().hold("/configmaps/default/held-2");
  world.begin(after, "configmaps", HeldWorld::map("held-2"));
  EXPECT_FALSE(world.create("configmaps", HeldWorld::map("third"))) << "one is there and one is under way";
  world.held().let_through();
  EXPECT_EQ(world.maps(), 2u);
}

TEST(FirstQuota, AnUpdateUnderWayCountsToo) {
  HeldWorld world;
  world.must(world.create("services", "{metadata: {name: s}, spec: {ports: [{name: a, port: 1}]}}"));
  world.held().hold("/services/default/s");
  Answer update, quota;
  world.registry->patch({}, *world.kind("services"), {"default", "s"}, "", kube::PatchType::Merge, json("{spec: {type: NodePort}}"), update.reply());
  ASSERT_EQ(world.held().held(), 1u);
  world.begin(quota, "resourcequotas", "{metadata: {name: q}, spec: {hard: {services.nodeports: 1}}}");
  EXPECT_FALSE(quota.is_there());
  world.held().let_through();
  world.must(update.get()), world.must(quota.get());
  EXPECT_FALSE(world.create("services", "{metadata: {name: t}, spec: {type: NodePort, ports: [{name: a, port: 1}]}}"));
}

// Beside creates of many threads: once it is answered, nothing is let in beyond it.
TEST(FirstQuota, HoldsFromItsAnswerOn) {
  for (int round = 0; round < 30; ++round) {
    World world;
    constexpr std::size_t limit = 20;
    std::atomic<bool> answered{false};
    std::atomic<int> late{0};
    {
      std::vector<std::jthread> threads;
      for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&, t] {
          for (int i = 0; i < 12; ++i) {
            const bool began_late = answered;
            const auto made = world.create("configmaps", fmt::format("{{metadata: {{name: m-{}-{}}}}}", t, i));
            if (made && began_late) ++late;
          }
        });
      }
      threads.emplace_back([&] {
        world.must(world.create("resourcequotas", fmt::format("{{metadata: {{name: q}}, spec: {{hard: {{configmaps: {}}}}}}}", limit)));
        answered = true;
      });
    }
    const std::size_t there = world.api->list(kube::resources::config_maps, "default")->items.size();
    if (late > 0) {
      EXPECT_LE(there, limit) << round;
    }
    const auto use = world.registry->quota_use({"default", "q"});
    ASSERT_TRUE(use && *use);
    EXPECT_EQ(print_json((*use)->used), fmt::format(R"({{"configmaps":"{}"}})", there)) << round;
  }
}

struct LedgerWorld {
  LedgerWorld() { EXPECT_TRUE(ledger.follow().has_value()); }
  void put(const std::string& key, std::string_view yaml) { EXPECT_TRUE(store.write_and_wait({key, std::nullopt, canonical(json(yaml), workloads::quotas, "")}).has_value()); }
  void drop(const std::string& key) { EXPECT_TRUE(store.write_and_wait({key, std::nullopt, std::nullopt}).has_value()); }
  Result<QuotaLedger::Ticket> admit(const std::string& name, const Json* old = nullptr) {
    const std::string space = "team", key = "/core/configmaps/team/" + name;
    const Json next = json("{}");
    return ledger.admit({kube::resources::config_maps, space, key, old, next, false});
  }
  static constexpr const char* quota_key = "/core/resourcequotas/team/q";
  ManualClock clock{*parse_time("2026-01-01T00:00:00Z")};
  HeldStore store;
  QuotaLedger ledger{store, clock};
};

TEST(QuotaLedger, KeepsNothingOfNamespacesWithoutAQuota) {
  LedgerWorld world;
  auto free = world.admit("a");
  EXPECT_EQ(world.ledger.spaces(), 0u);
  free->reset();
  // A quota that comes to nothing.
  QuotaLedger::Ticket expected;
  world.ledger.expect("team", [&](QuotaLedger::Ticket ticket) { expected = std::move(ticket); });
  ASSERT_TRUE(expected);
  auto held = world.admit("b");
  EXPECT_EQ(world.ledger.spaces(), 1u);
  expected.reset();
  EXPECT_EQ(world.ledger.spaces(), 1u) << "room is held there";
  held->reset();
  EXPECT_EQ(world.ledger.spaces(), 0u);
  // One that goes while a write is under way.
  world.put(world.quota_key, "{metadata: {name: q, namespace: team}, spec: {hard: {configmaps: 1}}}");
  auto within = world.admit("c");
  ASSERT_TRUE(within.has_value());
  EXPECT_FALSE(world.admit("d"));
  world.drop(world.quota_key);
  EXPECT_EQ(world.ledger.spaces(), 1u);
  within->reset();
  EXPECT_EQ(world.ledger.spaces(), 0u);
}

// What is stored, changed and removed while the first load reads is in it, once; and the store's events do not wait for it.
TEST(QuotaLedger, ReadsWhileOthersWrite) {
  LedgerWorld world;
  world.put("/core/configmaps/default/old", "{metadata: {name: old}}");
  world.put("/core/configmaps/default/goes", "{metadata: {name: goes}}");
  world.put("/core/resourcequotas/default/q", "{metadata: {name: q, namespace: default}, spec: {hard: {configmaps: 4}}}");
  int reads = 0;
  world.store.on_range = [&] {
    if (++reads > 1) return;
    world.put("/core/configmaps/default/new", "{metadata: {name: new}}");  // would never return if its event waited
    world.drop("/core/configmaps/default/goes");
    world.put("/core/configmaps/default/old", "{metadata: {name: old, labels: {a: b}}}");
  };
  const auto used = [&] { return print_json((*world.ledger.use({"default", "q"}))->used); };
  EXPECT_EQ(used(), R"({"configmaps":"2"})");
  EXPECT_EQ(reads, 1);
  world.put("/core/configmaps/default/last", "{metadata: {name: last}}");
  EXPECT_EQ(used(), R"({"configmaps":"3"})");
  // The quota itself changes while it is read: read again.
  world.put("/core/resourcequotas/default/q", "{metadata: {name: q, namespace: default}, spec: {hard: {configmaps: 5}}}");
  reads = 0;
  world.store.on_range = [&] {
    if (++reads == 1) world.put("/core/resourcequotas/default/q", "{metadata: {name: q, namespace: default}, spec: {hard: {configmaps: 6, pods: 1}}}");
  };
  EXPECT_EQ(used(), R"({"configmaps":"3","pods":"0"})");
  EXPECT_EQ(reads, 2);
}

}  // namespace
}  // namespace fairlead::apiserver::test
