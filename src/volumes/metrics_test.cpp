// SPDX-License-Identifier: Apache-2.0
#include "volumes/metrics.h"

#include <gmock/gmock.h>

#include "base/clock.h"
#include "volumes/fake_pool.h"
#include "volumes/memory_journal.h"

namespace fairlead::volumes {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(PoolMetrics, TellThePoolAndEachEngine) {
  FakePool pool;
  MemoryDisk disk;
  auto volumes = VolumePool::open(pool, std::make_unique<MemoryJournal>(disk)).value();
  ASSERT_TRUE(volumes->create("plain", 1 << 20));
  ASSERT_TRUE(volumes->create("held", 1 << 20, "", "", Limits{.iops = 500, .bytes_per_second = 0}));
  ASSERT_TRUE(volumes->create("idle", 1 << 20, "", "", Limits()));
  for (const char* id : {"plain", "held"}) ASSERT_TRUE(volumes->attach(id, "w0"));
  pool.engines["held"].reads = 7;
  pool.engines["held"].waited_ns = 1'500'000'000;
  const SystemClock clock;
  const std::string text = print_pool_metrics(*volumes, "here", clock);
  EXPECT_THAT(text, HasSubstr("fairlead_pool_volumes{pool=\"here\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("# TYPE fairlead_volume_read_operations_total counter\nfairlead_volume_read_operations_total{pool=\"here\",volume=\"held\",node=\"w0\"} 7\n"));
  EXPECT_THAT(text, HasSubstr("fairlead_volume_throttled_seconds_total{pool=\"here\",volume=\"held\",node=\"w0\"} 1.5\n"));
  EXPECT_THAT(text, HasSubstr("fairlead_volume_iops_limit{pool=\"here\",volume=\"held\",node=\"w0\"} 500\n"));
  EXPECT_THAT(text, HasSubstr("fairlead_volume_engine_up{pool=\"here\",volume=\"held\",node=\"w0\"} 1\n"));
  EXPECT_THAT(text, Not(HasSubstr("volume=\"plain\""))) << "it has none";
  EXPECT_THAT(text, Not(HasSubstr("volume=\"idle\""))) << "it is not attached";
  pool.engines.erase("held");
  EXPECT_THAT(print_pool_metrics(*volumes, "here", clock), HasSubstr("fairlead_volume_engine_up{pool=\"here\",volume=\"held\",node=\"w0\"} 0\n"));
}

}  // namespace
}  // namespace fairlead::volumes
