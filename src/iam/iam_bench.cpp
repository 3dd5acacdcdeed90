// SPDX-License-Identifier: Apache-2.0
// Decisions per second of a caller with 1,000 statements: one for each cluster (plain ARNs, found by the index), one for each team (found by how they begin), with conditions and variables, and with patterns that no index helps.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "iam/decide.h"

namespace {

using namespace fairlead;
using namespace fairlead::iam;

void measure(const char* what, const std::string& statements, const char* resource) {
  auto policy = read_policy(fmt::format(R"({{"Version":"2012-10-17","Statement":[{}]}})", statements), PolicyKind::Identity);
  if (!policy) {
    fmt::print(stderr, "{}\n", policy.error().message);
    std::exit(1);
  }
  const Bundle bundle({{"bench", std::move(*policy)}}, PolicyKind::Identity);
  const Attached attached{.identity = &bundle};
  constexpr int rounds = 20'000, times = 5;
  double best = 1e18;
  std::size_t allowed = 0;
  for (int t = 0; t < times; ++t) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < rounds; ++i) {
      // A call as a request makes it: its keys are made anew.
      Call call{.caller = {.type = Caller::Type::User, .arn = "arn:aws:iam::111122223333:user/ada", .role_arn = {}, .account = "111122223333"}, .action = "sagemaker:DescribeCluster", .resource = fmt::format(fmt::runtime(resource), i % 1000), .resource_account = {}, .keys = {}};
      call.keys.set("aws:SourceIp", {"10.1.2.3"});
      fill_keys(call);
      allowed += decide(call, attached).allowed();
    }
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  fmt::print("{:<56} {:>10.0f} decisions/s  {:6.2f} us each  ({} of {} allowed)\n", what, rounds / best, best / rounds * 1e6, allowed / times, rounds);
}

std::string repeat(const char* form) {
  std::string out;
  for (int i = 0; i < 1000; ++i) out += fmt::format("{}{}", i == 0 ? "" : ",", fmt::format(fmt::runtime(form), i));
  return out;
}

}  // namespace

int main() {
  measure("1,000 statements, each names a cluster", repeat(R"({{"Effect":"Allow","Action":"sagemaker:DescribeCluster","Resource":"arn:aws:sagemaker:us-east-1:111122223333:cluster/c{}"}})"), "arn:aws:sagemaker:us-east-1:111122223333:cluster/c{}");
  measure("1,000 statements, each for an action of its own", repeat(R"({{"Effect":"Allow","Action":["sagemaker:Do{0}","sagemaker:DescribeCluster{0}"],"Resource":"*"}})"), "arn:aws:sagemaker:us-east-1:111122223333:cluster/c{}");
  measure("1,000 statements, sagemaker:Describe* on a team's clusters", repeat(R"({{"Effect":"Allow","Action":"sagemaker:Describe*","Resource":"arn:aws:sagemaker:us-east-1:111122223333:cluster/team{}-*"}})"), "arn:aws:sagemaker:us-east-1:111122223333:cluster/team{}-a");
  measure("the same, with a range of addresses and a variable", repeat(R"({{"Effect":"Allow","Action":"sagemaker:Describe*","Resource":"arn:aws:sagemaker:*:${{aws:PrincipalAccount}}:cluster/team{}-*","Condition":{{"IpAddress":{{"aws:SourceIp":"10.0.0.0/8"}}}}}})"), "arn:aws:sagemaker:us-east-1:111122223333:cluster/team{}-a");
  measure("the same action, open at the front: cluster/*-team", repeat(R"({{"Effect":"Allow","Action":"sagemaker:Describe*","Resource":"arn:aws:sagemaker:us-east-1:111122223333:cluster/*-team{}"}})"), "arn:aws:sagemaker:us-east-1:111122223333:cluster/a-team{}");
  return 0;
}
