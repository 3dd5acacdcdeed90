// SPDX-License-Identifier: Apache-2.0
#include "apiserver/watch_stream.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "apiserver/api_test_kit.h"

namespace fairlead::apiserver {
namespace {

using testing_kit::Api;
using testing_kit::RecordedExchange;
using testing_kit::RecordedStream;
const std::string maps = "/api/v1/namespaces/default/configmaps";

std::string config_map(const std::string& name) { return fmt::format(R"({{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{}"}}}})", name); }

std::vector<kube::Json> events(const std::string& text) {
  std::vector<kube::Json> out;
  for (const std::string& line : split(text, '\n')) {
    if (line.empty()) continue;
    auto parsed = kube::parse_json(line);
    EXPECT_TRUE(parsed) << line;
    if (parsed) out.push_back(std::move(*parsed));
  }
  return out;
}
std::vector<std::string> types(const std::string& text) {
  std::vector<std::string> out;
  for (const kube::Json& event : events(text)) out.push_back(event["type"].string());
  return out;
}
bool lines(const std::string& text, std::size_t count) { return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) >= count; }

TEST(WatchStream, TellsWhatHappensInOrder) {
  Api api;
  ASSERT_EQ(api.ask("POST", maps, config_map("before")).status, 201);
  auto stream = api.send("GET", maps + "?watch=true")->wait_stream();
  ASSERT_NE(stream, nullptr);
  ASSERT_EQ(api.ask("POST", maps, config_map("after")).status, 201);
  ASSERT_EQ(api.ask("DELETE", maps + "/before").status, 200);
  ASSERT_TRUE(stream->wait_for([](const std::string& text) { return lines(text, 3); }));
  EXPECT_THAT(types(stream->text()), testing::ElementsAre("ADDED", "ADDED", "DELETED"));
  EXPECT_EQ(events(stream->text())[2]["object"]["metadata"]["name"].string(), "before");
}

TEST(WatchStream, GoesOnFromAVersionWithoutAGap) {
  Api api;
  ASSERT_EQ(api.ask("POST", maps, config_map("one")).status, 201);
  const std::string version = api.json("GET", maps)["metadata"]["resourceVersion"].string();
  ASSERT_EQ(api.ask("POST", maps, config_map("two")).status, 201);
  auto stream = api.send("GET", maps + "?watch=true&resourceVersion=" + version)->wait_stream();
  ASSERT_NE(stream, nullptr);
  ASSERT_TRUE(stream->wait_for([](const std::string& text) { return lines(text, 1); }));
  EXPECT_EQ(events(stream->text())[0]["object"]["metadata"]["name"].string(), "two");
}

TEST(WatchStream, EndsInTimeWithABookmark) {
  Api api;
  ASSERT_EQ(api.ask("POST", maps, config_map("one")).status, 201);
  auto exchange = api.send("GET", maps + "?watch=true&allowWatchBookmarks=true&timeoutSeconds=1");
  auto stream = exchange->wait_stream();
  ASSERT_NE(stream, nullptr);
  ASSERT_TRUE(stream->wait_for([](const std::string& text) { return lines(text, 2); }));
  const auto seen = events(stream->text());
  EXPECT_EQ(seen.back()["type"].string(), "BOOKMARK");
  EXPECT_EQ(seen.back()["object"]["kind"].string(), "ConfigMap");
  EXPECT_GE(std::stoll(seen.back()["object"]["metadata"]["resourceVersion"].string()), std::stoll(seen.front()["object"]["metadata"]["resourceVersion"].string()));
  stream.reset();
  EXPECT_TRUE(exchange->wait_ended());
}

TEST(WatchStream, MarksTheEndOfInitialEvents) {
  Api api;
  ASSERT_EQ(api.ask("POST", maps, config_map("one")).status, 201);
  auto stream = api.send("GET", maps + "?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")->wait_stream();
  ASSERT_NE(stream, nullptr);
  ASSERT_TRUE(stream->wait_for([](const std::string& text) { return lines(text, 2); }));
  const auto seen = events(stream->text());
  EXPECT_EQ(seen[0]["type"].string(), "ADDED");
  EXPECT_EQ(seen[1]["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"].string(), "true");
}

TEST(WatchStream, SpeaksTablesWithColumnsOnce) {
  Api api;
  ASSERT_EQ(api.ask("POST", maps, config_map("one")).status, 201);
  ASSERT_EQ(api.ask("POST", maps, config_map("two")).status, 201);
  auto stream = api.send("GET", maps + "?watch=true", "", {{"Accept", "application/json;as=Table;v=v1;g=meta.k8s.io"}})->wait_stream();
  ASSERT_NE(stream, nullptr);
  ASSERT_TRUE(stream->wait_for([](const std::string& text) { return lines(text, 2); }));
  const auto seen = events(stream->text());
  EXPECT_EQ(seen[0]["object"]["kind"].string(), "Table");
  EXPECT_GT(seen[0]["object"]["columnDefinitions"].items().size(), 0u);
  EXPECT_EQ(seen[1]["object"]["columnDefinitions"].items().size(), 0u);
  EXPECT_EQ(seen[1]["object"]["rows"].items().at(0)["cells"].items().at(0).string(), "two");
}

TEST(WatchStream, RefusesAVersionThatIsGoneWith410) {
  Api api;
  api.store = make_memory_store({.events = 4});
  auto opened = Registry::open(*api.store, api.clock, {.secret_key = std::string(32, 'k')});
  ASSERT_TRUE(opened);
  auto handler = ApiHandler::make(**opened, api.clock, {.tokens = {{sha256("admin-token"), "admin", {"system:masters"}}}});
  std::swap(api.handler, handler);
  for (int i = 0; i < 20; ++i) ASSERT_EQ(api.ask("POST", maps, config_map(fmt::format("c{}", i))).status, 201);
  const auto response = api.ask("GET", maps + "?watch=true&resourceVersion=2");
  EXPECT_EQ(response.status, 410);
  EXPECT_THAT(response.body, testing::HasSubstr("\"reason\":\"Expired\""));
  api.handler.reset();
}

class Hub : public testing::Test {
 protected:
  WatchPlan plan() {
    WatchPlan out{.kind = api.registry->kinds()->find("", "v1", "configmaps"), .space = "default"};
    out.query.resource_version = std::to_string(api.registry->revision());
    return out;
  }
  Api api;
};

TEST_F(Hub, AClientThatLeavesIsForgotten) {
  WatchHub hub(*api.registry, api.clock);
  auto exchange = std::make_shared<RecordedExchange>();
  hub.open(plan(), exchange);
  EXPECT_EQ(hub.size(), 1u);
  exchange->wait_stream()->client_leaves();
  EXPECT_TRUE(exchange->wait_ended());
  EXPECT_EQ(hub.size(), 0u);
}

TEST_F(Hub, ASlowClientIsFedAtItsPaceAndCutWhenHopeless) {
  WatchHub hub(*api.registry, api.clock, {.window = 1 << 10, .backlog = 64 << 10});
  auto exchange = std::make_shared<RecordedExchange>();
  hub.open(plan(), exchange);
  auto stream = exchange->wait_stream();
  stream->get_stuck();
  for (int i = 0; i < 20; ++i) ASSERT_EQ(api.ask("POST", maps, config_map(fmt::format("slow{}", i))).status, 201);
  EXPECT_FALSE(lines(stream->text(), 20));  // the rest waits here, not in the connection
  stream->get_unstuck();
  EXPECT_TRUE(stream->wait_for([](const std::string& text) { return lines(text, 20); }));
  stream->get_stuck();
  for (int i = 0; i < 1'000; ++i) ASSERT_EQ(api.ask("POST", maps, config_map(fmt::format("more{}", i))).status, 201);
  stream.reset();
  EXPECT_TRUE(exchange->wait_ended());
}

TEST_F(Hub, BookmarksNeverRunAheadOfEvents) {
  // Every bookmark promises that all up to it was told: no later event may bear an older version.
  WatchHub hub(*api.registry, api.clock, {.bookmark_every = std::chrono::milliseconds(1)});
  auto exchange = std::make_shared<RecordedExchange>();
  WatchPlan with = plan();
  with.bookmarks = true;
  hub.open(std::move(with), exchange);
  auto other = std::make_shared<RecordedExchange>();
  hub.open(plan(), other);
  auto stream = exchange->wait_stream();
  for (int i = 0; i < 300; ++i) ASSERT_EQ(api.ask("POST", maps, config_map(fmt::format("c{}", i))).status, 201);
  ASSERT_TRUE(stream->wait_for([](const std::string& text) { return std::count(text.begin(), text.end(), '\n') > 300; }));
  std::int64_t last = 0;
  for (const kube::Json& event : events(stream->text())) {
    const std::int64_t version = std::stoll(event["object"]["metadata"]["resourceVersion"].string());
    if (event["type"].string() == "BOOKMARK") {
      EXPECT_GE(version, last);
    } else {
      EXPECT_GT(version, last);
    }
    last = version;
  }
}

}  // namespace
}  // namespace fairlead::apiserver
