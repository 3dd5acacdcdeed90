// SPDX-License-Identifier: Apache-2.0
#include "blocks/disk_control.h"

#include <gmock/gmock.h>

namespace fairlead::blocks {
namespace {

using testing::HasSubstr;

TEST(DiskControl, RequestsAreOneLine) {
  for (const DiskRequest& one : {DiskRequest{}, DiskRequest{.what = DiskRequest::Do::Limit, .limits = {.iops = 5, .bytes_per_second = 1 << 30}}, DiskRequest{.what = DiskRequest::Do::Grow, .limits = {}}, DiskRequest{.what = DiskRequest::Do::Stop, .limits = {}}}) {
    const auto read = read_disk_request(print(one));
    ASSERT_TRUE(read) << print(one);
    EXPECT_EQ(*read, one);
  }
  for (const char* const bad : {"", "halt\n", "limit\n", "limit iops=1\n", "limit iops=1 throughput=-1\n", "limit iops=1 iops=2 throughput=3\n", "limit iops=99999999999999999999 throughput=1\n", "limit iops= throughput=1\n", "stop now\n", "limit iops=1 throughput=1 more=1\n"}) EXPECT_FALSE(read_disk_request(bad)) << bad;
}

TEST(DiskControl, AnswersAreStatusesOrErrors) {
  const DiskStatus status{.pid = 7, .size = 1 << 30, .limits = {.iops = 3, .bytes_per_second = 4}, .reads = 1, .writes = 2, .read_bytes = 3, .written_bytes = 4, .waited_ns = 5, .failed = true};
  const auto read = read_disk_answer(print(status));
  ASSERT_TRUE(read);
  EXPECT_EQ(*read, status);
  DiskStatus by_ublk = status;
  by_ublk.ublk = 3;
  EXPECT_EQ(read_disk_answer(print(by_ublk)).value(), by_ublk);
  const auto error = read_disk_answer(print_disk_error({Code::Conflict, "it is\nopen"}));
  EXPECT_EQ(error.error().code, Code::Conflict);
  EXPECT_EQ(error.error().message, "it is open");
  EXPECT_LE(print_disk_error({Code::Internal, std::string(4000, 'x')}).size(), kDiskLine);
  EXPECT_EQ(read_disk_answer("gibberish\n").error().code, Code::Internal);
  EXPECT_THAT(read_disk_answer("ok pid=1\n").error().message, HasSubstr("does not say its size"));
}

TEST(DiskControl, NobodyThereIsNotFound) {
  EXPECT_EQ(ask_disk(testing::TempDir() + "no-such-socket", {}).error().code, Code::NotFound);
  EXPECT_EQ(ask_disk("/" + std::string(200, 'x'), {}).error().code, Code::Invalid);
}

}  // namespace
}  // namespace fairlead::blocks
