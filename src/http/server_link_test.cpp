// SPDX-License-Identifier: Apache-2.0
// The link without a connection: wakes are counted and carried out by hand.
#include "http/server_link.h"

#include <gmock/gmock.h>

namespace fairlead::http {
namespace {

struct Owner final : LinkOwner {
  void poke(bool abort_now) override { (abort_now ? aborts : pokes)++; }
  int pokes = 0, aborts = 0;
};

struct LinkTest : testing::Test {
  Owner owner;
  std::vector<std::shared_ptr<Link>> posted;
  std::shared_ptr<Link> link = std::make_shared<Link>([this](std::shared_ptr<Link> who) { posted.push_back(std::move(who)); }, owner, 10);
  void run_posted() {
    for (const auto& who : std::exchange(posted, {})) who->woken();
  }
};
Buffer bytes(const char* text) { return std::make_shared<const std::string>(text); }

TEST_F(LinkTest, OnlyASleeperIsWokenAndOnlyOnce) {
  link->answer(Response{});
  EXPECT_TRUE(posted.empty());  // the coroutine has not looked yet: it will find the answer
  EXPECT_TRUE(std::holds_alternative<Response>(link->take_answer()));
  EXPECT_EQ(link->take_answer().index(), 0u);  // now it sleeps
  link->answer(Response{});
  link->finish();
  ASSERT_EQ(posted.size(), 1u);
  run_posted();
  EXPECT_EQ(owner.pokes, 1);
}

TEST_F(LinkTest, WhoReadsTooSlowlyIsCutAndNothingMoreIsQueued) {
  EXPECT_TRUE(link->write(bytes("12345")));
  EXPECT_TRUE(link->write(bytes("67890")));
  EXPECT_EQ(link->waiting(), 10u);
  EXPECT_FALSE(link->write(bytes("!")));
  EXPECT_FALSE(link->open());
  EXPECT_FALSE(link->write(bytes("2")));
  run_posted();
  EXPECT_EQ(owner.aborts, 1);
  EXPECT_TRUE(link->take_batch().pieces.empty());
}

TEST_F(LinkTest, BytesCountUntilTheyAreSent) {
  link->write(bytes("1234"));
  link->write(bytes("56"));
  const Link::Batch batch = link->take_batch();
  EXPECT_EQ(batch.pieces.size(), 2u);
  EXPECT_EQ(batch.bytes, 6u);
  EXPECT_FALSE(batch.finished);
  EXPECT_EQ(link->waiting(), 6u);
  EXPECT_FALSE(link->write(bytes("12345")));
  link->sent(batch.bytes);
  EXPECT_EQ(link->waiting(), 0u);
}

TEST_F(LinkTest, WhatIsFinishedTakesNoMore) {
  link->write(bytes("1"));
  link->finish();
  EXPECT_FALSE(link->write(bytes("2")));
  const Link::Batch batch = link->take_batch();
  EXPECT_EQ(batch.pieces.size(), 1u);
  EXPECT_TRUE(batch.finished);
}

TEST_F(LinkTest, TheEndTellsOnceAndIsToldAtOnceLater) {
  int closed = 0, late = 0;
  link->set_on_close([&] { ++closed; });
  link->end();
  link->end();
  EXPECT_EQ(closed, 1);
  link->set_on_close([&] { ++late; });
  link->start([](std::string) {}, [&] { ++late; });
  EXPECT_EQ(late, 2);
  EXPECT_FALSE(link->write(bytes("1")));
  link->abort();
  link->answer(Response{});
  EXPECT_TRUE(posted.empty());
}

TEST_F(LinkTest, AWakeThatComesBehindTheEndDoesNothing) {
  link->abort();
  ASSERT_EQ(posted.size(), 1u);
  link->end();
  run_posted();
  EXPECT_EQ(owner.aborts + owner.pokes, 0);
}

TEST_F(LinkTest, MessagesReachWhoReads) {
  std::vector<std::string> got;
  link->deliver("lost: nobody reads yet");
  EXPECT_FALSE(link->started());
  link->start([&](std::string message) { got.push_back(std::move(message)); }, [] {});
  EXPECT_TRUE(link->started());
  link->deliver("1");
  link->forget_callbacks();
  link->deliver("2");
  EXPECT_THAT(got, testing::ElementsAre("1"));
}

TEST_F(LinkTest, ADroppedExchangeAnswers500) {
  make_exchange(link, {}).reset();
  const Answer answer = link->take_answer();
  ASSERT_TRUE(std::holds_alternative<Response>(answer));
  EXPECT_EQ(std::get<Response>(answer).status, 500);
}

TEST_F(LinkTest, TheFirstAnswerCounts) {
  const auto exchange = make_exchange(link, {});
  exchange->respond({.status = 201});
  exchange->respond({.status = 202});
  EXPECT_EQ(std::get<Response>(link->take_answer()).status, 201);
  EXPECT_EQ(link->take_answer().index(), 0u);
}

TEST_F(LinkTest, OnlyWhatWasAskedForIsUpgraded) {
  const auto plain = make_exchange(link, {});
  EXPECT_EQ(plain->accept_websocket("v5").error().code, Code::Invalid);
  EXPECT_EQ(plain->accept_upgrade("SPDY/3.1", {}).error().code, Code::Invalid);
  const auto other = make_exchange(link, {.upgrade = "h2c"});
  EXPECT_EQ(other->accept_upgrade("SPDY/3.1", {}).error().message, "the request does not ask for an upgrade to SPDY/3.1");
  plain->respond({});
  other->respond({});
  link->take_answer();
  const auto spdy = make_exchange(link, {.upgrade = "spdy/3.1"});
  const auto socket = spdy->accept_upgrade("SPDY/3.1", {{"X-A", "1"}});
  ASSERT_TRUE(socket);
  const Answer answer = link->take_answer();
  ASSERT_TRUE(std::holds_alternative<UpgradeStart>(answer));
  EXPECT_EQ(std::get<UpgradeStart>(answer).protocol, "SPDY/3.1");
}

TEST_F(LinkTest, ADroppedStreamEndsTheBodyAndForgetsItsCallback) {
  int closed = 0;
  const auto exchange = make_exchange(link, {});
  auto stream = exchange->stream(200, {});
  stream->on_close([&] { ++closed; });
  stream->write(bytes("1"));
  stream.reset();
  EXPECT_TRUE(link->take_batch().finished);
  link->end();
  EXPECT_EQ(closed, 0);
}

}  // namespace
}  // namespace fairlead::http
