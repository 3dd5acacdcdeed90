// SPDX-License-Identifier: Apache-2.0
// The process that reaches Ceph, by scripts that behave as one may. A real one: volume_pool_test.cpp.
#include "volumes/store_process.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"
#include "base/rng.h"
#include "volumes/rbd_pool.h"

namespace fairlead::volumes {
namespace {

using blocks::Words;
using testing::HasSubstr;
using namespace std::chrono_literals;

class StoreProcessTest : public testing::Test {
 protected:
  ~StoreProcessTest() override { EXPECT_TRUE(remove_tree(folder_)); }
  // `body`: of a shell script; $starts counts them.
  CephPlace place(const std::string& body) {
    EXPECT_TRUE(make_dirs(folder_));
    const std::string path = folder_ + "/store";
    EXPECT_TRUE(write_file_durably(path, "#!/bin/sh\necho . >> " + folder_ + "/starts\nstarts=$(wc -l < " + folder_ + "/starts)\n" + body, 0700));
    return {.program = path, .conf = "", .user = "u", .pool = "p", .space = "s", .host = "h"};
  }
  const std::string folder_ = testing::TempDir() + "fairlead-store-" + random_uuid();
};
constexpr const char* ready = "echo 0 ok 00000000-0000-4000-8000-000000000001\n";

TEST_F(StoreProcessTest, AnswersAreOfTheirQuestions) {
  const auto store = StoreProcess::start(place(std::string(ready) + "while read -r n verb rest; do echo $n goes; echo $n ok $verb $rest; done\n"));
  ASSERT_TRUE(store) << store.error().message;
  EXPECT_EQ((*store)->pool_id(), "00000000-0000-4000-8000-000000000001");
  EXPECT_EQ((*store)->ask({"look", "a b"}).value(), (Words{"look", "a b"}));
  EXPECT_EQ((*store)->ask({"ids"}).value(), (Words{"ids"}));
}

TEST_F(StoreProcessTest, WhyItDoesNotStartIsTold) {
  EXPECT_EQ(StoreProcess::start(place("echo 0 Conflict another%20has%20it\n")).error(), (Error{Code::Conflict, "another has it"}));
  EXPECT_EQ(StoreProcess::start(place("exit 3\n")).error().code, Code::Unavailable);
  EXPECT_EQ(StoreProcess::start(place("echo nonsense\nexec sleep 100\n")).error().code, Code::Unavailable);
}

// What was asked for may be done, or not: it is asked of the next one, which shuts this one out.
TEST_F(StoreProcessTest, OneThatDiesOrIsSilentIsFollowedByAnother) {
  const auto store = StoreProcess::start(place(std::string(ready) + "while read -r n verb rest; do [ $starts -gt 1 ] || [ $verb != die ] || exit; [ $starts -gt 2 ] || [ $verb != hang ] || exec sleep 100; echo $n ok $starts; done\n"));
  ASSERT_TRUE(store) << store.error().message;
  EXPECT_EQ((*store)->ask({"look"}).value(), (Words{"1"}));
  EXPECT_EQ((*store)->ask({"die"}).error().code, Code::Unavailable);
  EXPECT_EQ((*store)->ask({"look"}).value(), (Words{"2"}));
  EXPECT_THAT((*store)->ask({"hang"}, 300ms).error().message, HasSubstr("does not answer"));
  EXPECT_EQ((*store)->ask({"hang"}).value(), (Words{"3"}));
}

// Nothing but an answer comes of it, though the signal of a pipe without a reader ends programs.
TEST_F(StoreProcessTest, OneThatHearsNothingIsFollowedByAnother) {
  const auto store = StoreProcess::start(place("[ $starts -gt 1 ] || exec 0<&-\n" + std::string(ready) + "[ $starts -gt 1 ] || exec sleep 100\nread -r n rest; echo $n ok heard; read -r n\n"));
  ASSERT_TRUE(store) << store.error().message;
  EXPECT_EQ((*store)->ask({"look"}).error().code, Code::Unavailable);
  EXPECT_EQ((*store)->ask({"look"}).value(), (Words{"heard"}));
}

TEST_F(StoreProcessTest, AnotherPoolUnderTheSameNameIsNone) {
  const auto store = StoreProcess::start(place("echo 0 ok $starts\nread -r n rest\n"));
  ASSERT_TRUE(store) << store.error().message;
  EXPECT_EQ((*store)->ask({"look"}).error().code, Code::Unavailable);
  EXPECT_THAT((*store)->ask({"look"}).error().message, HasSubstr("another id"));
}

TEST(Room, IsWhatCephSays) {
  const std::string json = R"({"pools": [{"name": "other", "stats": {"stored": 1, "max_avail": 2}}, {"name": "p", "stats": {"stored": 100, "max_avail": 900}}, {"name": "silent", "stats": {"stored": 0, "max_avail": 0}}]})";
  EXPECT_EQ(read_room(json, "p", 0)->size, 1000);
  EXPECT_EQ(read_room(json, "p", 0)->free, 900);
  EXPECT_EQ(read_room(json, "p", 500)->size, 500);
  EXPECT_EQ(read_room(json, "p", 500)->free, 500);
  EXPECT_THAT(read_room(json, "silent", 0).error().message, HasSubstr("ceph-mgr"));
  EXPECT_EQ(read_room(json, "none", 0).error().code, Code::Unavailable);
  EXPECT_EQ(read_room("{", "p", 0).error().code, Code::Unavailable);
}

TEST(Host, IsTheSameForEverAndOneProcesss) {
  const std::string folder = testing::TempDir() + "fairlead-host-" + random_uuid();
  std::string id;
  {
    const auto host = claim_host(folder);
    ASSERT_TRUE(host) << host.error().message;
    id = host->id;
    EXPECT_EQ(claim_host(folder).error().code, Code::Conflict);
  }
  EXPECT_EQ(claim_host(folder)->id, id);
  ASSERT_TRUE(write_file_durably(folder + "/pool.id", "x", 0600));
  EXPECT_EQ(claim_host(folder).error().code, Code::Invalid);
  EXPECT_TRUE(remove_tree(folder));
}

}  // namespace
}  // namespace fairlead::volumes
