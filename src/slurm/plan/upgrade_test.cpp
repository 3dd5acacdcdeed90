// SPDX-License-Identifier: Apache-2.0
#include "base/test_rounds.h"
#include "slurm/plan/upgrade.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>

namespace fairlead::slurm {
namespace {

using kube::Json;

const std::vector<std::string> kReleases = {"20.02", "20.11", "21.08", "22.05", "23.02", "23.11", "24.05", "24.11", "25.05", "25.11", "26.05"};
Version v(const std::string& text) { return *read_version(text); }
Version of_image(const std::string& image) { return v(image.substr(image.find(':') + 1)); }
std::string image(const std::string& release, int patch = 1) { return fmt::format("slurm:{}.{}", release, patch); }

struct Row { const char* words; const char* version; };
class ReadVersion : public testing::TestWithParam<Row> {};
TEST_P(ReadVersion, Reads) {
  const auto version = read_version(GetParam().words);
  EXPECT_EQ(version ? version->text() : "none", GetParam().version);
}
INSTANTIATE_TEST_SUITE_P(Words, ReadVersion, testing::Values(Row{"slurm-wlm 22.05.8", "22.05.8"}, Row{"slurm 24.11.5-1\n", "24.11.5"}, Row{"slurm 26.05.0-0rc1", "26.05.0"}, Row{"20.11.9", "20.11.9"}, Row{"", "none"}, Row{"sh: slurmctld: not found", "none"},
                                                             Row{"v1.22.05.8", "none"}, Row{"22.5.8", "none"}, Row{"22.13.8", "none"}, Row{"22.00.8", "none"}, Row{"22.05", "none"}, Row{"22.05.", "none"}, Row{"22.05.99999", "none"},
                                                             Row{"glibc 2.36 slurm 23.02.0", "23.02.0"}, Row{"22.05.-8", "none"}));

TEST(Releases, AcceptTwoBeforeAndFrom2411OnThree) {
  EXPECT_TRUE(accepts(v("23.11.0"), v("22.05.8")));
  EXPECT_FALSE(accepts(v("24.05.0"), v("22.05.8")));
  EXPECT_TRUE(accepts(v("24.11.0"), v("23.02.0")));
  EXPECT_FALSE(accepts(v("24.11.0"), v("22.05.8")));
  EXPECT_TRUE(accepts(v("25.11.0"), v("24.05.0")));
  EXPECT_FALSE(accepts(v("22.05.8"), v("23.02.0")));
  EXPECT_TRUE(accepts(v("22.05.1"), v("22.05.8")));
  EXPECT_FALSE(accepts(v("31.05.0"), v("26.05.0"))) << "a release that is not known";
  EXPECT_TRUE(accepts(v("31.05.0"), v("31.05.7")));
}

TEST(Releases, TheWayIsShortestAndEachStepOfItIsPossible) {
  EXPECT_EQ(way(v("22.05.8"), v("24.11.5")), (std::vector<std::string>{"23.11", "24.11"}));
  EXPECT_EQ(way(v("22.05.8"), v("23.11.1")), (std::vector<std::string>{"23.11"}));
  EXPECT_TRUE(way(v("24.11.0"), v("22.05.0")).empty());
  for (std::size_t from = 0; from < kReleases.size(); ++from)
    for (std::size_t to = from + 1; to < kReleases.size(); ++to) {
      const auto steps = way(v(kReleases[from] + ".0"), v(kReleases[to] + ".0"));
      ASSERT_FALSE(steps.empty());
      EXPECT_EQ(steps.back(), kReleases[to]);
      // Breadth first, for the fewest.
      std::vector<int> distance(kReleases.size(), 99);
      distance[from] = 0;
      for (std::size_t i = from; i < kReleases.size(); ++i)
        for (std::size_t j = i + 1; j < kReleases.size(); ++j)
          if (accepts(v(kReleases[j] + ".0"), v(kReleases[i] + ".0"))) distance[j] = std::min(distance[j], distance[i] + 1);
      EXPECT_EQ(static_cast<int>(steps.size()), distance[to]) << kReleases[from] << " to " << kReleases[to];
      std::string at = kReleases[from];
      for (const auto& step : steps) {
        EXPECT_TRUE(accepts(v(step + ".0"), v(at + ".0"))) << at << " to " << step;
        at = step;
      }
    }
}

// A cluster whose pods are made as the plan says.
struct World {
  struct Kind {
    Part part;
    std::string name, wanted;
    std::vector<UpgradePod> pods;
  };
  std::vector<Kind> kinds;
  std::vector<UpgradePeer> peers;
  Json memory;
  Backup backup = Backup::Fresh;
  bool without_backup = false, heads_wanted = false;
  std::map<std::string, std::string> mute;  // images that do not tell their version, and what comes instead
  std::map<std::string, std::string> in_force;
  std::vector<std::string> asked;
  std::optional<kube::Condition> condition;
  unsigned looks = 0;

  explicit World(const std::string& image) {
    kinds = {{Part::Records, "slurmdbd", image, {}}, {Part::Heads, "slurmctld", image, {}}, {Part::Workers, "worker", image, {}}, {Part::Workers, "gpu", image, {}}, {Part::Login, "login", image, {}}, {Part::Exporter, "exporter", image, {}}};
    for (Kind& kind : kinds)
      for (int i = 0; i < (kind.part == Part::Heads ? 3 : kind.part == Part::Exporter ? 1 : 2); ++i) kind.pods.push_back({fmt::format("{}-{}", kind.name, i), image, true});
    look();
  }
  void want(const std::string& image) {
    for (Kind& kind : kinds) kind.wanted = image;
  }
  Kind& kind(const std::string& name) {
    return *std::find_if(kinds.begin(), kinds.end(), [&](const Kind& one) { return one.name == name; });
  }
  // Plans once; images that it asks for answer in the next look.
  void look() {
    UpgradeInput in{.kinds = {}, .peers = peers, .memory = memory, .answers = {}, .backup = backup, .without_backup = without_backup, .heads_wanted = heads_wanted, .now = Instant{} + std::chrono::hours(1)};
    for (const Kind& kind : kinds) in.kinds.push_back({kind.part, kind.name, kind.wanted, kind.pods});
    for (const std::string& image : asked) in.answers[image] = mute.contains(image) ? mute[image] : "slurm-wlm " + image.substr(image.find(':') + 1);
    const UpgradePlan plan = plan_upgrade(in);
    if (++looks % 16 == 0) { EXPECT_EQ(plan.memory, plan_upgrade(in).memory) << "equal input, equal plan"; }
    memory = plan.memory;
    in_force = plan.images;
    asked = plan.ask;
    if (plan.condition) condition = plan.condition;
  }
  void settle() {
    for (int i = 0, quiet = 0; i < 200 && quiet < 3; ++i) {
      look();
      ++quiet;
      for (Kind& kind : kinds)
        for (UpgradePod& pod : kind.pods) {
          if (!pod.ready) pod.ready = true, quiet = 0;
          else if (pod.image != in_force[kind.name]) {
            pod = {pod.name, in_force[kind.name], false};
            quiet = 0;
            break;
          }
        }
    }
  }
  bool all_run(const std::string& image) const {
    return std::all_of(kinds.begin(), kinds.end(), [&](const Kind& kind) { return std::all_of(kind.pods.begin(), kind.pods.end(), [&](const UpgradePod& pod) { return pod.image == image; }); });
  }
  std::string said() const { return condition ? fmt::format("{} {}: {}", condition->status, condition->reason, condition->message) : "nothing"; }
  // Whoever is spoken to understands who speaks.
  std::string broken() const {
    const auto speaks = [](Part to, Part from) { return to < from && to <= Part::Heads; };
    for (const Kind& to : kinds)
      for (const Kind& from : kinds)
        if (speaks(to.part, from.part))
          for (const UpgradePod& a : to.pods)
            for (const UpgradePod& b : from.pods)
              if (!accepts(of_image(a.image), of_image(b.image))) return fmt::format("{} ({}) does not understand {} ({})", a.name, a.image, b.name, b.image);
    return "";
  }
};

TEST(Upgrade, ANewClusterAsksNothingAndSaysNothing) {
  World world(image("22.05"));
  EXPECT_TRUE(world.asked.empty());
  EXPECT_EQ(world.said(), "nothing");
  EXPECT_EQ(world.in_force["slurmctld"], image("22.05"));
}

TEST(Upgrade, ImagesOfTheirOwnForEachKindAreNoReasonToAsk) {
  World world(image("22.05"));
  world.kind("login").wanted = "login:22.05.1";
  for (UpgradePod& pod : world.kind("login").pods) pod.image = "login:22.05.1";
  world.memory = Json();
  world.look();
  EXPECT_TRUE(world.asked.empty());
}

TEST(Upgrade, AnotherImageOfTheSameVersionCountsForAllAtOnce) {
  World world("old:22.05.8");
  world.want("new:22.05.8");
  world.look();
  EXPECT_EQ(world.asked, (std::vector<std::string>{"new:22.05.8", "old:22.05.8"}));
  for (const auto& [kind, image] : world.in_force) EXPECT_EQ(image, "old:22.05.8") << kind << " while the version is asked";
  world.look();
  for (const auto& [kind, image] : world.in_force) EXPECT_EQ(image, "new:22.05.8") << kind;
  world.settle();
  EXPECT_TRUE(world.all_run("new:22.05.8"));
  EXPECT_EQ(world.said(), "True Done: every pod runs the version of Slurm that the resource names: slurmctld 22.05.8");
}

TEST(Upgrade, EveryPairOfReleasesEitherArrivesInOrderOrIsRefusedAndStays) {
  const auto kSeeds = test_rounds<unsigned>(1, 20);
  unsigned arrived = 0, refused = 0;
  for (const auto& from : kReleases)
    for (const auto& to : kReleases)
      for (unsigned seed = 0; seed < kSeeds; ++seed) {
        World world(image(from));
        const std::string goal = image(to, 2);
        world.want(goal);
        std::mt19937 chance(seed);
        const bool possible = accepts(v(to + ".2"), v(from + ".1"));
        Version written = v(from + ".1");  // by whom the saved state was written last
        for (int step = 0; step < 200; ++step) {
          world.look();
          if (chance() % 50 == 0) world.memory = Json(), world.condition.reset();  // the resource was made anew from a file
          auto& kind = world.kinds[chance() % world.kinds.size()];
          auto& pod = kind.pods[chance() % kind.pods.size()];
          const unsigned what = chance() % 10;
          if (!pod.ready) pod.ready = what < 5;
          else if (pod.image != world.in_force[kind.name] ? what < 6 : what == 0) pod = {pod.name, world.in_force[kind.name], false};  // renewed, or died and made anew
          if (kind.part == Part::Heads && pod.ready) {
            const Version now = of_image(pod.image);
            if (!now.earlier_release(written)) {
              ASSERT_TRUE(accepts(now, written)) << from << " to " << to << " seed " << seed;
              written = now;
            }
          }
          ASSERT_EQ(world.broken(), "") << from << " to " << to << " seed " << seed << " step " << step << ": " << world.said();
        }
        world.settle();
        if (possible) {
          ASSERT_TRUE(world.all_run(goal)) << from << " to " << to << " seed " << seed << ": " << world.said();
          EXPECT_TRUE(!world.condition || world.condition->status == "True") << world.said();
          ++arrived;
        } else {
          EXPECT_TRUE(std::all_of(world.kinds[0].pods.begin(), world.kinds[0].pods.end(), [&](const auto& pod) { return pod.image == image(from); })) << from << " to " << to;
          EXPECT_TRUE(std::all_of(world.kinds[1].pods.begin(), world.kinds[1].pods.end(), [&](const auto& pod) { return pod.image == image(from); })) << from << " to " << to;
          EXPECT_EQ(world.condition->reason, "Refused") << from << " to " << to;
          ++refused;
        }
      }
  EXPECT_EQ(arrived, kSeeds * (11 + 10 + 9 + 4));  // itself, one and two back for all, three back from 24.11 on
  EXPECT_EQ(refused, kSeeds * (121 - 34));
}

TEST(Upgrade, TooFarIsRefusedWithTheWay) {
  World world(image("22.05", 8));
  world.want(image("24.11", 5));
  world.settle();
  EXPECT_EQ(world.said(), "False Refused: slurmdbd: 24.11 does not read what 22.05 has written; go by 23.11, then 24.11; slurmctld: 24.11 does not read what 22.05 has written; go by 23.11, then 24.11; what runs goes on as it is");
}

TEST(Upgrade, WithoutABackupTheRecordsAreNotConverted) {
  World world(image("22.05"));
  world.want(image("23.02"));
  world.backup = Backup::Stale;
  world.settle();
  EXPECT_TRUE(world.all_run(image("22.05")));
  EXPECT_NE(world.said().find("BackupFresh"), std::string::npos) << world.said();
  world.without_backup = true;
  world.settle();
  EXPECT_TRUE(world.all_run(image("23.02"))) << world.said();
}

TEST(Upgrade, APatchLevelNeedsNoBackupAndMayGoBack) {
  World world(image("22.05", 8));
  world.backup = Backup::Stale;
  for (const int patch : {9, 8}) {
    world.want(image("22.05", patch));
    world.settle();
    EXPECT_TRUE(world.all_run(image("22.05", patch))) << world.said();
  }
}

// Its records go to another cluster's slurmdbd.
TEST(Upgrade, HeadsAreNeverNewerThanTheSlurmdbdThatTheyShare) {
  World world(image("22.05"));
  world.kinds.erase(world.kinds.begin());
  world.peers = {{Part::Records, "slurmdbd of lab/demo", image("22.05"), true}};
  world.memory = Json();
  world.look();
  EXPECT_TRUE(world.asked.empty());
  world.want(image("23.02"));
  world.settle();
  EXPECT_TRUE(world.all_run(image("22.05")));
  EXPECT_EQ(world.said(), "False Refused: slurmctld: slurmdbd of lab/demo is 22.05, and takes no records of 23.02: that cluster is upgraded first; what runs goes on as it is");
  // It has the later one now, and is not back yet.
  world.peers[0] = {Part::Records, "slurmdbd of lab/demo", image("23.02"), false};
  world.settle();
  EXPECT_TRUE(world.all_run(image("22.05")));
  EXPECT_NE(world.said().find("slurmctld (22.05.1) waits: slurmdbd of lab/demo is not available"), std::string::npos) << world.said();
  world.peers[0].ready = true;
  world.settle();
  EXPECT_TRUE(world.all_run(image("23.02"))) << world.said();
  EXPECT_EQ(world.said().substr(0, 10), "True Done:");
  // Of a patch level nobody else is asked.
  world.peers[0].ready = false;
  world.want(image("23.02", 7));
  world.settle();
  EXPECT_TRUE(world.all_run(image("23.02", 7))) << world.said();
}

TEST(Upgrade, ASlurmdbdThatOthersShareUnderstandsThem) {
  World world(image("23.02"));
  world.peers = {{Part::Heads, "cluster field/tent", image("21.08"), true}};
  world.want(image("23.11"));
  world.settle();
  EXPECT_NE(world.said().find("slurmdbd: 23.11 does not understand 21.08 of cluster field/tent, which keeps its records here"), std::string::npos) << world.said();
  EXPECT_TRUE(world.all_run(image("23.02")));
  world.peers[0].image = image("22.05");
  world.settle();
  EXPECT_TRUE(world.all_run(image("23.11"))) << world.said();
}

TEST(Upgrade, HeadsWaitUntilSlurmdbdIsReady) {
  World world(image("22.05"));
  world.want(image("23.02"));
  world.look();
  world.look();
  EXPECT_EQ(world.in_force["slurmdbd"], image("23.02"));
  EXPECT_EQ(world.in_force["slurmctld"], image("22.05"));
  for (UpgradePod& pod : world.kind("slurmdbd").pods) pod.image = image("23.02");
  world.kind("slurmdbd").pods[1].ready = false;
  world.look();
  EXPECT_EQ(world.in_force["slurmctld"], image("22.05"));
  EXPECT_NE(world.said().find("slurmctld (22.05.1) waits: slurmdbd-1 is not ready"), std::string::npos) << world.said();
  world.kind("slurmdbd").pods[1].ready = true;
  world.look();
  EXPECT_EQ(world.in_force["slurmctld"], image("23.02"));
}

TEST(Upgrade, PutBackBeforeTheFirstStepNothingHasHappened) {
  World world(image("22.05"));
  world.want(image("23.02"));
  world.look();
  world.want(image("22.05"));
  world.settle();
  EXPECT_TRUE(world.all_run(image("22.05")));
  EXPECT_EQ(world.condition->status, "True") << world.said();
}

TEST(Upgrade, ThereIsNoWayBackForRecordsAndHeads) {
  World world(image("22.05"));
  world.want(image("23.02"));
  world.settle();
  ASSERT_TRUE(world.all_run(image("23.02")));
  world.want(image("22.05"));
  world.settle();
  EXPECT_TRUE(std::all_of(world.kinds[1].pods.begin(), world.kinds[1].pods.end(), [](const auto& pod) { return pod.image == image("23.02"); }));
  EXPECT_NE(world.said().find("22.05 cannot read what 23.02 has written"), std::string::npos) << world.said();
}

TEST(Upgrade, WorkersMayGoBackToWhatHeadsUnderstand) {
  World world(image("23.02"));
  world.kind("worker").wanted = image("22.05");
  world.settle();
  EXPECT_EQ(world.kind("worker").pods[0].image, image("22.05")) << world.said();
  world.kind("worker").wanted = image("20.11");
  world.settle();
  EXPECT_EQ(world.kind("worker").pods[0].image, image("22.05"));
  EXPECT_NE(world.said().find("23.02 does not understand 20.11"), std::string::npos) << world.said();
}

TEST(Upgrade, WorkersAloneAreNeverNewerThanTheirHeads) {
  World world(image("22.05"));
  world.kind("worker").wanted = image("23.02");
  world.settle();
  EXPECT_TRUE(world.all_run(image("22.05")));
  EXPECT_NE(world.said().find("worker: it would be 23.02 and slurmdbd 22.05: name an image of 23.02 or later for slurmdbd, too"), std::string::npos) << world.said();
}

TEST(Upgrade, AnImageThatDoesNotTellItsVersionHoldsEverything) {
  World world(image("22.05"));
  world.mute["web:1"] = "sh: 1: slurmctld: not found";
  world.want("web:1");
  world.settle();
  EXPECT_TRUE(world.all_run(image("22.05")));
  EXPECT_EQ(world.said(), "Unknown VersionUnknown: the image web:1 does not tell its version of Slurm: sh: 1: slurmctld: not found; what runs goes on as it is");
}

TEST(Upgrade, AReleaseThatIsNotKnownIsRefused) {
  World world(image("26.05"));
  world.want(image("31.05"));
  world.settle();
  EXPECT_TRUE(world.all_run(image("26.05")));
  EXPECT_NE(world.said().find("release 31.05 is not known to this version of Fairlead, whose newest is 26.05"), std::string::npos) << world.said();
  World ahead(image("31.05", 1));
  ahead.want(image("31.05", 2));
  ahead.settle();
  EXPECT_TRUE(ahead.all_run(image("31.05", 2))) << "a patch level of one that is not known";
}

TEST(Upgrade, WorkersWithoutPodsWaitForTheirHeadsToo) {
  World world(image("22.05"));
  world.kind("worker").pods.clear();
  world.want(image("23.02"));
  world.look();
  world.look();
  EXPECT_EQ(world.in_force["slurmctld"], image("22.05"));
  EXPECT_EQ(world.in_force["worker"], image("22.05")) << "or its next pod would be newer than the heads";
  world.settle();
  EXPECT_EQ(world.in_force["worker"], image("23.02")) << world.said();
  world.mute["gone:1"] = "no such image";
  world.memory.child("images").set("worker", "gone:1");
  world.look();
  world.look();
  EXPECT_EQ(world.in_force["worker"], image("23.02")) << "what nobody runs any more is not asked for: " << world.said();
}

TEST(Upgrade, HeadsWithoutPodsAreStillRememberedByWhatTheyWrote) {
  World world(image("22.05"));
  world.kind("slurmctld").pods.clear();
  world.want(image("24.11"));
  world.settle();
  EXPECT_EQ(world.in_force["slurmctld"], image("22.05"));
}

// A key of slurm.conf that a later release has: nothing waits for the answer, and it is kept.
TEST(Upgrade, WhichSlurmTheHeadsHaveIsLearntForOthers) {
  World world("slurm:24.05.3");
  EXPECT_TRUE(world.asked.empty()) << "nobody wants to know";
  world.heads_wanted = true;
  world.look();
  EXPECT_EQ(world.asked, std::vector<std::string>{"slurm:24.05.3"});
  EXPECT_FALSE(world.condition) << "it is no upgrade";
  world.look();
  EXPECT_TRUE(world.asked.empty());
  EXPECT_EQ(world.memory["versions"]["slurm:24.05.3"].string(), "24.05.3");
  world.heads_wanted = false;
  world.look();
  EXPECT_EQ(world.memory["versions"]["slurm:24.05.3"].string(), "24.05.3");
  World silent("slurm:24.05.3");
  silent.heads_wanted = true;
  silent.mute["slurm:24.05.3"] = "sh: slurmctld: not found";
  for (int i = 0; i < 3; ++i) silent.look();
  EXPECT_EQ(silent.asked, std::vector<std::string>{"slurm:24.05.3"}) << "again and again, as version_pods_to_end() paces it";
}

}  // namespace
}  // namespace fairlead::slurm
