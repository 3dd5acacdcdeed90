// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/gres.h"

#include <gmock/gmock.h>

#include "api/node_set.h"
#include "slurm/plan/objects.h"
#include "slurm/plan/render.h"

namespace fairlead::slurm {
namespace {

using kube::Json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

api::SlurmCluster cluster(int gpus) {
  api::SlurmCluster out;
  out.name = "demo";
  out.space = "lab";
  out.has_workers = true;
  out.worker.size = 4;
  out.worker.main.resources["nvidia.com/gpu"] = std::to_string(gpus);
  return out;
}
api::SlurmCluster with_set(int gpus, std::vector<std::string> lines) {
  api::SlurmCluster out = cluster(gpus);
  api::WorkerSet set;
  set.name = "big";
  set.gres = std::move(lines);
  out.sets.push_back(set);
  return out;
}

std::map<std::string, Json> pods_of(const api::SlurmCluster& cluster, const std::vector<int>& ordinals) {
  std::map<std::string, Json> out;
  for (const int i : ordinals) out["worker-" + std::to_string(i)] = desired_pod(cluster, Role::Worker, i, {});
  return out;
}

TEST(Gres, WorkersThatRunKeepTheLinesThatTheyWereMadeWith) {
  const auto before = cluster(4), after = cluster(8);
  auto pods = pods_of(before, {1, 2, 10});
  EXPECT_EQ(render_gres(before, running_gres(before, pods, "")), "Name=gpu File=/dev/nvidia[0-3]\n") << "nothing changes, nothing is named";
  pods["worker-2"] = desired_pod(after, Role::Worker, 2, {});
  const auto running = running_gres(after, pods, render_gres(before, {}));
  EXPECT_THAT(running, ElementsAre(Pair("worker-1", "Name=gpu File=/dev/nvidia[0-3]\n"), Pair("worker-10", "Name=gpu File=/dev/nvidia[0-3]\n")));
  EXPECT_EQ(render_gres(after, running),
            "NodeName=worker-[1,10] Name=gpu File=/dev/nvidia[0-3]\n"
            "NodeName=worker-[0,2-9,11-9999] Name=gpu File=/dev/nvidia[0-7]\n");
  // When they are gone the file is as it would have been.
  pods.erase("worker-1");
  pods["worker-10"].set("status", Json::object({{"phase", "Failed"}}));
  EXPECT_EQ(render_gres(after, running_gres(after, pods, render_gres(after, running))), "Name=gpu File=/dev/nvidia[0-7]\n");
}

TEST(Gres, OfPodsFromBeforeTheMountedFileTells) {
  const auto before = with_set(4, {"Name=gpu File=/dev/a"}), after = with_set(8, {"Name=gpu File=/dev/a"});
  auto pods = pods_of(before, {0, 1});
  for (auto& [name, pod] : pods) pod.child("metadata").child("annotations").erase(kGres);
  const std::string mounted = render_gres(before, {});
  EXPECT_EQ(mounted, "NodeName=worker-[0-9999] Name=gpu File=/dev/nvidia[0-3]\nNodeName=big-[0-9999] Name=gpu File=/dev/a\n");
  EXPECT_THAT(running_gres(before, pods, mounted), IsEmpty());
  const auto once = running_gres(after, pods, mounted);
  EXPECT_THAT(once, ElementsAre(Pair("worker-0", "Name=gpu File=/dev/nvidia[0-3]\n"), Pair("worker-1", "Name=gpu File=/dev/nvidia[0-3]\n")));
  EXPECT_EQ(running_gres(after, pods, render_gres(after, once)), once) << "and still when that is mounted";
  EXPECT_THAT(running_gres(after, pods, render_gres(cluster(4), {})), ElementsAre(Pair("worker-0", testing::_), Pair("worker-1", testing::_))) << "lines without names are everybody's";
}

TEST(Gres, PodsOfOthersAndOtherKindsKeepNothing) {
  auto pods = pods_of(cluster(4), {0});
  pods["worker-0"].child("metadata").child("labels").set(kClusterLabel, "another");
  pods["worker-x"] = pods["worker-99999"] = pods["worker"] = desired_pod(cluster(4), Role::Worker, 1, {});
  EXPECT_THAT(running_gres(cluster(8), pods, ""), IsEmpty());
}

TEST(Gres, TheAnnotationIsNoPartOfTheTemplateAndNobodyElsesToSet) {
  auto lines = with_set(0, {"Name=gpu File=/dev/a"}), others = with_set(0, {"Name=gpu File=/dev/b"});
  others.sets[0].annotations[kGres] = "Name=gpu File=/dev/c\n";
  const auto pod = [](const api::SlurmCluster& of) { return desired_pod(api::worker_views(of).at(1), Role::Worker, 0, {}); };
  EXPECT_EQ(pod(lines)["metadata"]["annotations"][kTemplateHash], pod(others)["metadata"]["annotations"][kTemplateHash]);
  EXPECT_EQ(pod(others)["metadata"]["annotations"][kGres].string(), "Name=gpu File=/dev/b\n");
}

}  // namespace
}  // namespace fairlead::slurm
