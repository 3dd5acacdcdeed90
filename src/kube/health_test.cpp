// SPDX-License-Identifier: Apache-2.0
#include "kube/health.h"

#include <gmock/gmock.h>

#include "http/client.h"

namespace fairlead::kube {
namespace {

using testing::HasSubstr;

TEST(Health, AnswersTheThreeQuestions) {
  bool ready = false;
  const auto server = serve_health("127.0.0.1", 0, {.ready = [&]() -> Result<void> { return ready ? Result<void>() : fail(Code::Unavailable, "the caches are not filled"); },
                                                    .metrics = [] { return print_metrics(4, {{"slurm-cluster", {.reconciles = 7, .failures = 2, .waiting = 1}}}); }});
  ASSERT_TRUE(server) << server.error().message;
  const auto client = *http::Client::make({.host = "127.0.0.1", .port = (*server)->port(), .tls = false});
  const auto ask = [&](const char* path, const char* method = "GET") {
    auto answer = client->request({.method = method, .target = path});
    return answer ? std::to_string(answer->status) + " " + answer->body : answer.error().message;
  };
  EXPECT_EQ(ask("/healthz"), "200 ok\n");
  EXPECT_EQ(ask("/readyz"), "503 the caches are not filled\n");
  ready = true;
  EXPECT_EQ(ask("/readyz"), "200 ok\n");
  EXPECT_THAT(ask("/metrics"), testing::AllOf(HasSubstr("fairlead_leader 1\n"), HasSubstr("fairlead_leader_epoch 4\n"),
                                              HasSubstr("fairlead_controller_reconciles_total{controller=\"slurm-cluster\"} 7\n")));
  EXPECT_THAT(ask("/api/v1/pods"), HasSubstr("404"));
  EXPECT_THAT(ask("/healthz", "DELETE"), HasSubstr("405"));
}

}  // namespace
}  // namespace fairlead::kube
