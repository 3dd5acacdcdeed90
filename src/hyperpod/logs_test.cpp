// SPDX-License-Identifier: Apache-2.0
#include "hyperpod/logs.h"

#include <gmock/gmock.h>

#include <set>

#include "api/network_ways.h"
#include "hyperpod/sigv4.h"
#include "hyperpod/test_site.h"

namespace fairlead::hyperpod {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

std::vector<LogLine> lines_of(std::string_view text, std::size_t piece = 1 << 30) {
  std::vector<LogLine> out;
  LogLines lines;
  const LogLines::Take take = [&](LogLine&& line) { return out.push_back(std::move(line)), true; };
  for (std::size_t at = 0; at < text.size(); at += piece) lines.add(text.substr(at, piece), take);
  lines.end(take);
  return out;
}

TEST(LogEvents, EachLineHasAPlaceThatComesOfItsTimeAndItsTurn) {
  const std::string text = "2026-01-02T03:04:05.000000001Z one\n2026-01-02T03:04:05.000000001Z \n2026-01-02T04:04:05.000000002+01:00 three\r\nno time at all\n2026-01-02T03:04:04Z earlier\nlast";
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, std::size_t{1 << 30}}) {
    const auto lines = lines_of(text, piece);
    ASSERT_EQ(lines.size(), 6U) << piece;
    const Instant at = *parse_time("2026-01-02T03:04:05.000000001Z");
    EXPECT_EQ(lines[0].place, (LogPlace{at, 0}));
    EXPECT_EQ(lines[0].text, "one");
    EXPECT_EQ(lines[1].place, (LogPlace{at, 1}));
    EXPECT_EQ(lines[1].text, "");
    EXPECT_EQ(lines[2].place, (LogPlace{at + 1ns, 0}));
    EXPECT_EQ(lines[2].text, "three");
    EXPECT_EQ(lines[3].text, "no time at all");
    EXPECT_EQ(lines[4].place, (LogPlace{at + 1ns, 2}));  // time does not go back
    EXPECT_EQ(lines[5].text, "last");
  }
}

TEST(LogEvents, LongLinesAreSeveralEventsOfWholeCharacters) {
  std::string text = "2026-01-02T03:04:05Z ";
  while (text.size() < 2 * kMostEventBytes) text += "\xE2\x82\xAC";
  const auto lines = lines_of(text + "\n2026-01-02T03:04:06Z next\n", 1000);
  ASSERT_EQ(lines.size(), 4U);
  std::string all;
  for (std::size_t i = 0; i < 3; ++i) {
    all += lines[i].text;
    EXPECT_LE(lines[i].text.size(), kMostEventBytes);
    EXPECT_EQ(lines[i].text.find("\xEF\xBF\xBD"), std::string::npos);
  }
  EXPECT_EQ(all, text.substr(21));
  EXPECT_EQ(lines[3].text, "next");
  EXPECT_EQ(as_utf8("a\xFF\xC3\xA4\xE2\x82"), "a\xEF\xBF\xBD\xC3\xA4\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(LogEvents, PlacesAreReadAgain) {
  const LogPlace place{*parse_time("2026-01-02T03:04:05.000000001Z"), 7};
  EXPECT_EQ(read_place(write_place(place)), place);
  for (const char* bad : {"", ".", "1", "1.", ".1", "1.1x", "1.-2", "9999999999999999999999.1"}) EXPECT_FALSE(read_place(bad)) << bad;
}

struct PatternCase {
  const char *pattern, *text;
  bool matches;
};
TEST(LogEvents, PatternsOfTerms) {
  for (const PatternCase& one : std::initializer_list<PatternCase>{{"", "x", true}, {" ", "x", true}, {"ERROR", "an ERROR here", true}, {"ERROR", "an error here", false}, {"ERROR lost", "ERROR: it is lost", true}, {"ERROR lost", "ERROR", false}, {"\"two words\"", "of two words", true},
                                                                   {"\"two words\"", "two  words", false}, {"?ERROR ?WARN", "WARN", true}, {"?ERROR ?WARN", "INFO", false}, {"ERROR -debug", "ERROR debug", false}, {"-debug", "ERROR", true}, {"-\"exit 0\"", "exit 0", false}, {"\"a\\\"b\"", "a\"b", true}}) {
    const auto pattern = read_filter_pattern(one.pattern);
    ASSERT_TRUE(pattern) << one.pattern;
    EXPECT_EQ(pattern->matches(one.text), one.matches) << one.pattern << " on " << one.text;
  }
  for (const auto& [bad, why] : std::initializer_list<std::pair<std::string, const char*>>{{"{ $.level = \"x\" }", "JSON"}, {"[ip, user]", "fields"}, {"%a.b%", "regular expressions"}, {"?a b", "beside"}, {"a.b", "double quotes"}, {"\"open", "not closed"}, {"-", "empty"}, {std::string(1025, 'a'), "1,024"}})
    EXPECT_THAT(read_filter_pattern(bad).error().message, HasSubstr(why)) << bad;
}

struct Logs : testing::Test {
  TestSite site;
  Credentials root = site.user("root", {everything});
  std::map<std::string, std::string> printed;  // by POD/CONTAINER, "/previous" behind it
  std::set<std::string> broken;                // nodes that do not answer
  std::map<std::string, Code> failing;         // by POD/CONTAINER: what is said of this log
  std::set<std::string> endless;               // POD/CONTAINER whose log is not read to its end in time
  std::vector<std::string> asked;
  Json made, instance;
  std::string group;

  Logs() {
    site.logs = [this](const Json& pod, const kube::PodLogQuery& query, std::chrono::milliseconds, const std::function<bool(std::string_view)>& take) -> Result<void> {
      asked.push_back(kube::name_of(pod) + "/" + query.container);
      if (broken.contains(pod["spec"]["nodeName"].string())) return fail(Code::Unavailable, "no route to host");
      if (const auto code = failing.find(asked.back()); code != failing.end()) return fail(code->second, "said the node");
      const auto found = printed.find(kube::name_of(pod) + "/" + query.container + (query.previous ? "/previous" : ""));
      if (found == printed.end()) return fail(Code::Invalid, "container is waiting to start");
      for (const std::string& line : split(found->second, '\n')) {
        if (line.empty()) continue;
        const auto time = parse_time(line.substr(0, line.find(' ')));
        if (query.since && time && *time < *query.since) continue;
        if (!take(line + "\n")) return {};
      }
      if (endless.contains(asked.back())) return fail(Code::Unavailable, "its log was not read to its end in time");
      return {};
    };
    made = *site.api.create(api::kClusters, Json::object({{"metadata", Json::object({{"name", "ml"}, {"generation", 1}})}, {"spec", *kube::parse_json(R"({"clusterName": "ml", "instanceGroups": []})")}}));
    site.index.put(made);
    group = "/aws/sagemaker/Clusters/ml/" + api::entity_id(kube::uid_of(made));
    instance = add_instance("i-0123456789abcdef0", "gpu");
  }
  Json add_instance(const std::string& id, const std::string& of) {
    return *site.api.create(api::kInstances, Json::object({{"metadata", Json::object({{"name", id}})}, {"spec", Json::object({{"cluster", "ml"}, {"clusterUid", kube::uid_of(made)}, {"instanceGroupName", of}})}}));
  }
  // A pod of an instance, as src/fleet makes it.
  void script(const Json& of, const std::string& suffix, const std::string& started, const std::string& finished = "", const std::string& node = "m0", Json notes = Json::object()) {
    Json state = finished.empty() ? Json::object({{"running", Json::object({{"startedAt", started}})}}) : Json::object({{"terminated", Json::object({{"startedAt", started}, {"finishedAt", finished}})}});
    Json owner = kube::owner_reference(of);
    owner.set("kind", "Instance");
    Json pod = Json::object({{"metadata", Json::object({{"name", kube::name_of(of) + suffix}, {"namespace", "cluster-ml"}, {"labels", Json::object({{api::kLifecycleLabel, kube::name_of(of)}, {api::kSlurmClusterLabel, "ml"}, {api::kSlurmRoleLabel, api::kScriptRole}})}, {"annotations", std::move(notes)}, {"ownerReferences", Json::array({std::move(owner)})}})},
                             {"spec", Json::object({{"nodeName", node}, {"containers", Json::array({Json::object({{"name", "lifecycle"}})})}})},
                             {"status", Json::object({{"containerStatuses", Json::array({Json::object({{"name", "lifecycle"}, {"state", std::move(state)}})})}})}});
    ASSERT_TRUE(site.api.create(kube::resources::pods, pod));
  }
  void event(const std::string& name, const std::string& kind, const std::string& time, const std::string& words, const std::string& failure = "", const std::string& id = "i-0123456789abcdef0") {
    ASSERT_TRUE(site.api.create(api::kClusterEvents, Json::object({{"metadata", Json::object({{"name", name}, {"namespace", "cluster-ml"}})}, {"spec", Json::object({{"clusterUid", kube::uid_of(made)}, {"kind", kind}, {"time", time}, {"description", words}, {"instanceGroupName", "gpu"}, {"instanceId", id}, {"metadata", failure.empty() ? Json::object() : Json::object({{"failureMessage", failure}})}})}})));
  }
  TestSite::Said ask(const std::string& operation, Json input, const Credentials* who = nullptr) {
    http::Request of = site.request("x", kube::print_json(input));
    for (auto& [name, value] : of.headers)
      if (name == "X-Amz-Target") value = "Logs_20140328." + operation;
    sign_request(of, who == nullptr ? root : *who, "fairlead-1", "logs", site.clock.now());
    return site.send(std::move(of));
  }
  Json of_group(Json more = Json::object()) {
    Json out = Json::object({{"logGroupName", group}});
    for (const auto& [name, value] : more.members()) out.set(name, value);
    return out;
  }
  static std::vector<std::string> messages(const TestSite::Said& said) {
    std::vector<std::string> out;
    for (const Json& event : said.json["events"].items()) out.push_back(event["message"].string());
    return out;
  }
  static std::string ten(int from = 0, const char* word = "line") {
    std::string out;
    for (int i = from; i < from + 10; ++i) out += fmt::format("2026-11-25T10:00:{:02}.5Z {} {}\n", i, word, i);
    return out;
  }
  const std::string stream = "LifecycleConfig/gpu/i-0123456789abcdef0";
};

TEST_F(Logs, EachClusterIsAGroup) {
  site.cluster("lab", "demo");
  auto said = ask("DescribeLogGroups", Json::object({{"limit", 1}}));
  ASSERT_EQ(said.status, 200) << said.body;
  ASSERT_EQ(said.json["logGroups"].items().size(), 1U);
  EXPECT_THAT(said.json["logGroups"].items()[0]["logGroupName"].string(), HasSubstr("/aws/sagemaker/Clusters/demo/"));
  said = ask("DescribeLogGroups", Json::object({{"limit", 1}, {"nextToken", said.json["nextToken"]}}));
  ASSERT_EQ(said.json["logGroups"].items().size(), 1U) << said.body;
  EXPECT_EQ(said.json["logGroups"].items()[0]["arn"].string(), "arn:aws:logs:fairlead-1:111122223333:log-group:" + group + ":*");
  EXPECT_FALSE(said.json.has("nextToken"));
  EXPECT_EQ(ask("DescribeLogGroups", Json::object({{"logGroupNamePrefix", group}})).json["logGroups"].items().size(), 1U);
  EXPECT_EQ(ask("DescribeLogGroups", Json::object({{"logGroupNamePattern", "CLUSTERS/M"}})).json["logGroups"].items().size(), 1U);
  EXPECT_EQ(ask("DescribeLogGroups", Json::object({{"logGroupNamePrefix", "/aws/lambda"}})).json["logGroups"].items().size(), 0U);
  EXPECT_EQ(ask("DescribeLogGroups", Json::object({{"nextToken", "what"}})).code, "InvalidParameterException");
  EXPECT_THAT(ask("DescribeLogGroups", Json::object({{"logGroupIdentifiers", Json::array({Json("a")})}})).message, HasSubstr("logGroupIdentifiers is not served"));
  EXPECT_EQ(ask("DescribeLogGroups", Json::object({{"includeLinkedAccounts", false}})).status, 200);
  EXPECT_EQ(ask("PutLogEvents", Json::object()).code, "UnknownOperationException");
  EXPECT_EQ(site.audit.back()["eventSource"].string(), "logs.amazonaws.com");
}

TEST_F(Logs, StreamsAreThoseOfInstancesAndOfSlurm) {
  script(instance, "-on-create", "2026-11-25T10:00:00Z", "2026-11-25T10:01:00Z");
  script(instance, "-deep-health-check", "2026-11-25T10:02:00Z", "", "m0", Json::object({{"fairlead.dev/health-check", "start"}}));
  // Anybody may give a pod such a name and label; its owner cannot be made up.
  Json other = add_instance("i-0123456789abcdef1", "gpu");
  other.child("metadata").set("uid", "made-up");
  script(other, "-on-create", "2026-11-25T10:00:00Z");
  ASSERT_TRUE(site.api.create(kube::resources::pods, *kube::parse_json(R"({"metadata": {"name": "controller-0", "namespace": "cluster-ml", "labels": {"fairlead.dev/slurm-cluster": "ml", "fairlead.dev/slurm-role": "controller"}}, "spec": {"nodeName": "m0", "containers": [{"name": "slurmctld"}, {"name": "munge"}]}, "status": {}})")));
  site.clock.advance(1s);
  const auto said = ask("DescribeLogStreams", of_group());
  ASSERT_EQ(said.status, 200) << said.body;
  std::vector<std::string> names;
  for (const Json& one : said.json["logStreams"].items()) names.push_back(one["logStreamName"].string());
  EXPECT_THAT(names, ElementsAre("DeepHealthCheckResults/i-0123456789abcdef0", stream, "Slurm/controller-0/munge", "Slurm/controller-0/slurmctld"));
  EXPECT_EQ(said.json["logStreams"].items()[1]["arn"].string(), "arn:aws:logs:fairlead-1:111122223333:log-group:" + group + ":log-stream:" + stream);
  EXPECT_EQ(said.json["logStreams"].items()[1]["lastEventTimestamp"].integer(), 1795600862000);
  EXPECT_FALSE(said.json["logStreams"].items()[0].has("lastEventTimestamp"));  // it goes on
  EXPECT_EQ(ask("DescribeLogStreams", of_group(Json::object({{"logStreamNamePrefix", "Slurm/"}, {"limit", 1}}))).json["logStreams"].items().size(), 1U);
  const auto latest = ask("DescribeLogStreams", of_group(Json::object({{"orderBy", "LastEventTime"}, {"descending", true}, {"limit", 1}})));
  EXPECT_EQ(latest.json["logStreams"].items()[0]["logStreamName"].string(), "DeepHealthCheckResults/i-0123456789abcdef0");
  EXPECT_EQ(ask("DescribeLogStreams", of_group(Json::object({{"orderBy", "LastEventTime"}, {"logStreamNamePrefix", "a"}}))).code, "InvalidParameterException");
  EXPECT_EQ(ask("DescribeLogStreams", Json::object({{"logGroupName", "/aws/sagemaker/Clusters/other/" + api::entity_id(kube::uid_of(made))}})).code, "ResourceNotFoundException");
  EXPECT_EQ(ask("DescribeLogStreams", Json::object({{"logGroupIdentifier", "arn:aws:logs:fairlead-1:111122223333:log-group:" + group + ":*"}})).status, 200);
  EXPECT_EQ(ask("DescribeLogStreams", Json::object({{"logGroupIdentifier", "arn:aws:logs:fairlead-1:999922223333:log-group:" + group}})).code, "ResourceNotFoundException");
}

TEST_F(Logs, TokensGoForwardAndBackAndAreTheSameAtTheEnds) {
  script(instance, "-on-create", "2026-11-25T10:00:00Z", "2026-11-25T10:00:09Z");
  script(instance, "-on-init-complete", "2026-11-25T10:00:10Z");
  printed["i-0123456789abcdef0-on-create/lifecycle"] = ten();
  printed["i-0123456789abcdef0-on-init-complete/lifecycle"] = ten(10, "init");
  const auto get = [&](Json more) {
    more.set("logStreamName", stream);
    return ask("GetLogEvents", of_group(std::move(more)));
  };
  auto said = get(Json::object({{"startFromHead", true}, {"limit", 8}}));
  ASSERT_EQ(said.status, 200) << said.body;
  EXPECT_THAT(messages(said), ElementsAre("line 0", "line 1", "line 2", "line 3", "line 4", "line 5", "line 6", "line 7"));
  EXPECT_EQ(said.json["events"].items()[0]["timestamp"].integer(), 1795600800500);
  said = get(Json::object({{"limit", 8}, {"nextToken", said.json["nextForwardToken"]}}));
  EXPECT_THAT(messages(said), ElementsAre("line 8", "line 9", "init 10", "init 11", "init 12", "init 13", "init 14", "init 15"));
  // Back from here.
  EXPECT_THAT(messages(get(Json::object({{"limit", 2}, {"nextToken", said.json["nextBackwardToken"]}}))), ElementsAre("line 6", "line 7"));
  said = get(Json::object({{"limit", 8}, {"nextToken", said.json["nextForwardToken"]}}));
  EXPECT_THAT(messages(said), ElementsAre("init 16", "init 17", "init 18", "init 19"));
  const std::string end = said.json["nextForwardToken"].string();
  said = get(Json::object({{"nextToken", end}}));
  EXPECT_THAT(messages(said), IsEmpty());
  EXPECT_EQ(said.json["nextForwardToken"].string(), end);  // by which clients know that it is the end
  // More comes.
  printed["i-0123456789abcdef0-on-init-complete/lifecycle"] += "2026-11-25T10:00:19.5Z of the same moment\n2026-11-25T10:00:30Z later\n";
  EXPECT_THAT(messages(get(Json::object({{"nextToken", end}}))), ElementsAre("of the same moment", "later"));
  // Without a word the latest ones, in the order of their times.
  said = get(Json::object({{"limit", 3}}));
  EXPECT_THAT(messages(said), ElementsAre("init 19", "of the same moment", "later"));
  said = get(Json::object({{"nextToken", said.json["nextBackwardToken"]}}));
  EXPECT_EQ(messages(said).size(), 19U);
  const std::string begin = said.json["nextBackwardToken"].string();
  said = get(Json::object({{"nextToken", begin}}));
  EXPECT_THAT(messages(said), IsEmpty());
  EXPECT_EQ(said.json["nextBackwardToken"].string(), begin);
  // A window: its end is not in it.
  EXPECT_THAT(messages(get(Json::object({{"startFromHead", true}, {"startTime", 1795600802500}, {"endTime", 1795600804500}}))), ElementsAre("line 2", "line 3"));
  EXPECT_THAT(messages(get(Json::object({{"startTime", 1795600802500}, {"endTime", 1795600804500}, {"limit", 1}}))), ElementsAre("line 3"));
  EXPECT_EQ(get(Json::object({{"nextToken", "f/1.0/else"}})).code, "InvalidParameterException");
  EXPECT_EQ(get(Json::object({{"limit", 10001}})).code, "InvalidParameterException");
  EXPECT_EQ(get(Json::object({{"startTime", 2}, {"endTime", 1}})).code, "InvalidParameterException");
  EXPECT_THAT(get(Json::object({{"unmask", true}})).message, HasSubstr("unmask is not served"));
  EXPECT_EQ(ask("GetLogEvents", of_group(Json::object({{"logStreamName", "LifecycleConfig/gpu/i-none"}}))).code, "ResourceNotFoundException");
}

TEST_F(Logs, APageIsAMebibyteAndAllPagesAreTheWhole) {
  script(instance, "-on-create", "2026-11-25T10:00:00Z");
  std::string text;
  for (int i = 0; i < 300; ++i) text += fmt::format("2026-11-25T10:00:{:02}Z {:05} {}\n", i / 60, i, std::string(10'000, 'x'));
  printed["i-0123456789abcdef0-on-create/lifecycle"] = text;
  for (const bool back : {false, true}) {
    std::set<std::string> seen;
    Json more = Json::object({{"logStreamName", stream}, {"startFromHead", !back}});
    for (int pages = 0; pages < 10; ++pages) {
      const auto said = ask("GetLogEvents", of_group(more));
      ASSERT_LT(said.body.size(), 1'200'000U);
      const auto some = messages(said);
      if (some.empty()) break;
      for (const std::string& one : some) EXPECT_TRUE(seen.insert(one.substr(0, 5)).second) << one.substr(0, 5);
      more.set("nextToken", said.json[back ? "nextBackwardToken" : "nextForwardToken"]);
    }
    EXPECT_EQ(seen.size(), 300U);
  }
}

TEST_F(Logs, FilterInterleavesStreamsByTheirTimes) {
  const Json second = add_instance("i-0123456789abcdef2", "cpu");
  script(instance, "-on-create", "2026-11-25T10:00:00Z");
  script(second, "-on-create", "2026-11-25T10:00:05Z", "", "m1");
  printed["i-0123456789abcdef0-on-create/lifecycle"] = ten();
  printed["i-0123456789abcdef2-on-create/lifecycle"] = ten(5, "cpu");
  auto said = ask("FilterLogEvents", of_group(Json::object({{"limit", 7}, {"interleaved", true}})));
  ASSERT_EQ(said.status, 200) << said.body;
  EXPECT_THAT(messages(said), ElementsAre("line 0", "line 1", "line 2", "line 3", "line 4", "cpu 5", "line 5"));
  EXPECT_EQ(said.json["events"].items()[5]["logStreamName"].string(), "LifecycleConfig/cpu/i-0123456789abcdef2");
  std::set<std::string> ids;
  std::vector<std::string> all;
  Json more = Json::object({{"limit", 3}});
  for (int pages = 0; pages < 12; ++pages) {
    said = ask("FilterLogEvents", of_group(more));
    for (const Json& event : said.json["events"].items()) {
      EXPECT_TRUE(ids.insert(event["eventId"].string()).second);
      all.push_back(event["message"].string());
    }
    if (!said.json.has("nextToken")) break;
    more.set("nextToken", said.json["nextToken"]);
  }
  EXPECT_EQ(all.size(), 20U);
  EXPECT_EQ(all.back(), "cpu 14");
  // As `aws logs tail --follow` asks: from the newest line on, whose id it knows.
  said = ask("FilterLogEvents", of_group(Json::object({{"startTime", 1795600814500}})));
  EXPECT_THAT(messages(said), ElementsAre("cpu 14"));
  EXPECT_TRUE(ids.contains(said.json["events"].items()[0]["eventId"].string()));
  EXPECT_THAT(messages(ask("FilterLogEvents", of_group(Json::object({{"filterPattern", "cpu -14"}, {"startTime", 1795600812000}})))), ElementsAre("cpu 12", "cpu 13"));
  EXPECT_THAT(messages(ask("FilterLogEvents", of_group(Json::object({{"logStreamNamePrefix", "LifecycleConfig/cpu"}, {"endTime", 1795600806500}})))), ElementsAre("cpu 5", "cpu 6"));
  EXPECT_EQ(messages(ask("FilterLogEvents", of_group(Json::object({{"logStreamNames", Json::array({Json(stream)})}, {"filterPattern", ""}})))).size(), 10U);
  EXPECT_EQ(ask("FilterLogEvents", of_group(Json::object({{"logStreamNames", Json::array({Json("none")})}}))).code, "ResourceNotFoundException");
  EXPECT_THAT(ask("FilterLogEvents", of_group(Json::object({{"filterPattern", "{ $.a = 1 }"}}))).message, HasSubstr("JSON"));
  EXPECT_EQ(ask("FilterLogEvents", of_group(Json::object({{"filterPattern", "x"}, {"nextToken", more["nextToken"]}}))).code, "InvalidParameterException");
  EXPECT_EQ(ask("FilterLogEvents", of_group(Json::object({{"filterPattern", "x"}, {"colour", "red"}}))).code, "InvalidParameterException");
}

TEST_F(Logs, ManyStreamsAreReadAHundredAtATime) {
  for (int i = 0; i < 230; ++i) {
    const std::string id = fmt::format("i-{:017x}", i);
    script(add_instance(id, "big"), "-on-create", "2026-11-25T10:00:00Z", i == 7 ? "2026-11-25T10:00:01Z" : "");
    printed[id + "-on-create/lifecycle"] = fmt::format("2026-11-25T10:00:05Z {}\n", i);
  }
  std::set<std::string> seen;
  Json more = Json::object({{"startTime", 1795600804000}, {"limit", 60}});
  int pages = 0;
  for (; pages < 20; ++pages) {
    asked.clear();
    const auto said = ask("FilterLogEvents", of_group(more));
    ASSERT_EQ(said.status, 200) << said.body;
    EXPECT_LE(asked.size(), 100U);
    for (const std::string& one : messages(said)) EXPECT_TRUE(seen.insert(one).second);
    if (!said.json.has("nextToken")) break;
    more.set("nextToken", said.json["nextToken"]);
  }
  EXPECT_EQ(pages, 4);
  EXPECT_EQ(seen.size(), 229U);  // what had ended before is not looked at
  EXPECT_FALSE(seen.contains("7"));
}

TEST_F(Logs, APageEndsWhereReadingTakesLong) {
  for (int i = 0; i < 5; ++i) {
    const std::string id = fmt::format("i-{:017x}", i);
    script(add_instance(id, "slow"), "-on-create", "2026-11-25T10:00:00Z");
    printed[id + "-on-create/lifecycle"] = fmt::format("2026-11-25T10:00:05Z {}a\n2026-11-25T10:00:06Z {}b\n", i, i);
  }
  auto step = 9s;
  site.logs = [this, &step, quick = site.logs](const Json& pod, const kube::PodLogQuery& query, std::chrono::milliseconds limit, const std::function<bool(std::string_view)>& take) {
    site.clock.advance(step);
    return quick(pod, query, limit, take);
  };
  // Two streams, then the clock says that it is enough: the next page goes on with those that were not read.
  auto said = ask("FilterLogEvents", of_group());
  EXPECT_THAT(messages(said), ElementsAre("0a", "1a", "0b", "1b"));
  said = ask("FilterLogEvents", of_group(Json::object({{"nextToken", said.json["nextToken"]}})));
  EXPECT_THAT(messages(said), ElementsAre("2a", "3a", "2b", "3b"));
  // A page that was cut by its size has to read the same streams again, and says so where it cannot.
  said = ask("FilterLogEvents", of_group(Json::object({{"limit", 1}})));
  EXPECT_THAT(messages(said), ElementsAre("0a"));
  step = 31s;
  EXPECT_EQ(ask("FilterLogEvents", of_group(Json::object({{"limit", 1}, {"nextToken", said.json["nextToken"]}}))).code, "ServiceUnavailableException");
  step = 1s;
  EXPECT_THAT(messages(ask("FilterLogEvents", of_group(Json::object({{"limit", 1}, {"nextToken", said.json["nextToken"]}})))), ElementsAre("1a"));
}

TEST_F(Logs, ANodeThatDoesNotAnswerIsToldAndHidesNoOther) {
  const Json second = add_instance("i-0123456789abcdef2", "cpu");
  script(instance, "-on-create", "2026-11-25T10:00:00Z");
  script(instance, "-on-init-complete", "2026-11-25T10:00:20Z");
  script(second, "-on-create", "2026-11-25T10:00:05Z", "", "m1");
  printed["i-0123456789abcdef2-on-create/lifecycle"] = ten(5, "cpu");
  broken.insert("m0");
  auto said = ask("FilterLogEvents", of_group());
  ASSERT_EQ(said.status, 200) << said.body;
  EXPECT_EQ(messages(said).size(), 11U);
  EXPECT_THAT(messages(said).front(), HasSubstr("[fairlead] the log of pod cluster-ml/i-0123456789abcdef0-on-create on node m0 cannot be read now: no route to host"));
  EXPECT_EQ(said.json["searchedLogStreams"].items()[0]["logStreamName"].string(), stream);
  EXPECT_FALSE(said.json["searchedLogStreams"].items()[0]["searchedCompletely"].boolean(true));
  // A pattern has no line to tell it by.
  EXPECT_THAT(ask("FilterLogEvents", of_group(Json::object({{"filterPattern", "cpu"}}))).message, AllOf(HasSubstr("no route to host. Ask the same again, or leave " + stream + " out by logStreamNames")));
  EXPECT_EQ(ask("FilterLogEvents", of_group(Json::object({{"filterPattern", "cpu"}}))).code, "ServiceUnavailableException");
  EXPECT_EQ(messages(ask("FilterLogEvents", of_group(Json::object({{"filterPattern", "cpu"}, {"logStreamNamePrefix", "LifecycleConfig/cpu"}})))).size(), 10U);
  // Asked for alone it is no empty log.
  EXPECT_EQ(ask("FilterLogEvents", of_group(Json::object({{"logStreamNames", Json::array({Json(stream)})}}))).code, "ServiceUnavailableException");
  said = ask("GetLogEvents", of_group(Json::object({{"logStreamName", stream}})));
  EXPECT_EQ(said.code, "ServiceUnavailableException");
  EXPECT_EQ(said.status, 503);
  EXPECT_THAT(said.message, HasSubstr("no route to host"));
}

TEST_F(Logs, AWalkLosesNoLineOfANodeThatIsAwayForAWhile) {
  const Json second = add_instance("i-0123456789abcdef2", "cpu");
  script(instance, "-on-create", "2026-11-25T10:00:00Z");
  script(second, "-on-create", "2026-11-25T10:00:05Z", "", "m1");
  printed["i-0123456789abcdef0-on-create/lifecycle"] = ten();
  printed["i-0123456789abcdef2-on-create/lifecycle"] = ten(5, "cpu");
  auto said = ask("FilterLogEvents", of_group(Json::object({{"limit", 4}})));
  Json more = Json::object({{"limit", 4}, {"nextToken", said.json["nextToken"]}});
  broken.insert("m0");
  said = ask("FilterLogEvents", of_group(more));
  EXPECT_EQ(said.code, "ServiceUnavailableException") << said.body;
  broken.clear();
  EXPECT_THAT(messages(ask("FilterLogEvents", of_group(more))), ElementsAre("line 4", "cpu 5", "line 5", "cpu 6"));
}

TEST_F(Logs, WhatCannotBeReadIsToldOnAFullPageToo) {
  const Json second = add_instance("i-0123456789abcdef2", "cpu"), third = add_instance("i-0123456789abcdef3", "net");
  script(second, "-on-create", "2026-11-25T10:00:00Z", "", "m1");
  script(instance, "-on-create", "2026-11-25T10:01:00Z");  // later than all that the page has
  script(third, "-on-create", "2026-11-25T10:01:00Z", "", "m2");
  printed["i-0123456789abcdef2-on-create/lifecycle"] = ten(0, "cpu");
  printed["i-0123456789abcdef3-on-create/lifecycle"] = "2026-11-25T10:02:00Z net\n";
  broken.insert("m0");
  auto said = ask("FilterLogEvents", of_group(Json::object({{"limit", 4}})));
  EXPECT_THAT(messages(said), ElementsAre("cpu 0", "cpu 1", "cpu 2", HasSubstr("[fairlead] the log of pod cluster-ml/i-0123456789abcdef0-on-create")));
  // It was told: the others go on, all of them.
  std::vector<std::string> rest;
  for (int pages = 0; pages < 5 && said.json.has("nextToken"); ++pages) {
    said = ask("FilterLogEvents", of_group(Json::object({{"limit", 4}, {"nextToken", said.json["nextToken"]}})));
    ASSERT_EQ(said.status, 200) << said.body;
    EXPECT_FALSE(said.json["searchedLogStreams"].items()[0]["searchedCompletely"].boolean(true));
    for (std::string& one : messages(said)) rest.push_back(std::move(one));
  }
  EXPECT_THAT(rest, ElementsAre("cpu 3", "cpu 4", "cpu 5", "cpu 6", "cpu 7", "cpu 8", "cpu 9", "net"));
  // More of them than a page has room for, one after the other.
  broken.insert("m2");
  rest.clear();
  Json more = Json::object({{"limit", 1}});
  for (int pages = 0; pages < 20; ++pages) {
    said = ask("FilterLogEvents", of_group(more));
    ASSERT_EQ(said.status, 200) << said.body;
    ASSERT_EQ(messages(said).size(), 1U);
    rest.push_back(messages(said)[0]);
    if (!said.json.has("nextToken")) break;
    more.set("nextToken", said.json["nextToken"]);
  }
  ASSERT_EQ(rest.size(), 12U);
  EXPECT_THAT(rest[0], HasSubstr("abcdef0-on-create on node m0"));
  EXPECT_THAT(rest[1], HasSubstr("abcdef3-on-create on node m2"));
  EXPECT_EQ(rest[2], "cpu 0");
  EXPECT_EQ(rest[11], "cpu 9");
}

TEST_F(Logs, OneLogThatCannotBeReadHidesNoOtherOfItsNode) {
  const Json second = add_instance("i-0123456789abcdef2", "cpu");
  script(instance, "-on-create", "2026-11-25T10:00:00Z");
  script(second, "-on-create", "2026-11-25T10:00:00Z");  // on the same node, read first
  printed["i-0123456789abcdef0-on-create/lifecycle"] = ten();
  printed["i-0123456789abcdef2-on-create/lifecycle"] = "2026-11-25T10:00:00Z much\n";
  const std::string first = "i-0123456789abcdef2-on-create/lifecycle";
  for (const Code code : {Code::Internal, Code::Forbidden, Code::Exhausted}) {
    failing[first] = code;
    const auto said = ask("FilterLogEvents", of_group());
    EXPECT_EQ(messages(said).size(), 11U) << said.body;
    EXPECT_EQ(said.json["searchedLogStreams"].items().size(), 1U);
  }
  failing.clear();
  endless.insert(first);
  EXPECT_THAT(messages(ask("FilterLogEvents", of_group())), AllOf(testing::Contains("line 9"), testing::Contains("much"), testing::Contains(HasSubstr("not read to its end in time"))));
  // Who cannot be reached is not waited for again.
  endless.clear(), broken.insert("m0"), asked.clear();
  EXPECT_EQ(ask("FilterLogEvents", of_group()).code, "ServiceUnavailableException");
  EXPECT_EQ(asked.size(), 1U);
}

TEST_F(Logs, ALogThatIsNotThereAnyMoreIsNoEmptyLog) {
  ASSERT_TRUE(site.api.create(kube::resources::pods, *kube::parse_json(R"({"metadata": {"name": "w-0", "namespace": "cluster-ml", "labels": {"fairlead.dev/slurm-cluster": "ml", "fairlead.dev/slurm-role": "worker"}}, "spec": {"nodeName": "m0", "containers": [{"name": "slurmd"}]},
    "status": {"containerStatuses": [{"name": "slurmd", "state": {"running": {"startedAt": "2026-11-25T10:01:00Z"}}, "lastState": {"terminated": {"startedAt": "2026-11-25T10:00:00Z", "finishedAt": "2026-11-25T10:00:50Z"}}}]}})")));
  printed["w-0/slurmd"] = "2026-11-25T10:01:00.5Z again\n";
  const std::string gone = "[fairlead] the log of pod cluster-ml/w-0, container slurmd (its run before), is not there any more: container is waiting to start";
  auto said = ask("GetLogEvents", of_group(Json::object({{"logStreamName", "Slurm/w-0/slurmd"}, {"startFromHead", true}})));
  EXPECT_THAT(messages(said), ElementsAre(gone, "again"));
  EXPECT_THAT(messages(ask("GetLogEvents", of_group(Json::object({{"logStreamName", "Slurm/w-0/slurmd"}, {"nextToken", said.json["nextForwardToken"]}})))), IsEmpty());
  said = ask("FilterLogEvents", of_group());
  EXPECT_THAT(messages(said), ElementsAre(gone, "again"));
  EXPECT_FALSE(said.json["searchedLogStreams"].items()[0]["searchedCompletely"].boolean(true));
  EXPECT_THAT(messages(ask("FilterLogEvents", of_group(Json::object({{"startTime", 1795600860000}})))), ElementsAre("again"));
  failing["w-0/slurmd"] = Code::NotFound;  // since it was listed
  EXPECT_THAT(messages(ask("GetLogEvents", of_group(Json::object({{"logStreamName", "Slurm/w-0/slurmd"}})))), ElementsAre(HasSubstr("(its run before), is not there any more: said the node"), HasSubstr("container slurmd, is not there any more: said the node")));
}

TEST_F(Logs, OfWhatIsGoneIsToldWhatWasKept) {
  event("e1", "LifecycleScript", "2026-11-25T09:00:00Z", "Lifecycle script OnCreate of instance i-0123456789abcdef0 of group gpu failed with exit status 7", "on_create.sh: no route to the licence server\nbye");
  event("e2", "LifecycleScript", "2026-11-25T09:00:00Z", "of another", "", "i-0123456789abcdeff");
  event("e3", "DeepHealthCheckPassed", "2026-11-25T09:30:00Z", "Instance has passed");
  event("e4", "ScalingStarted", "2026-11-25T09:30:00Z", "no log");
  auto said = ask("GetLogEvents", of_group(Json::object({{"logStreamName", stream}})));
  ASSERT_EQ(said.status, 200) << said.body;
  EXPECT_THAT(messages(said), ElementsAre("[fairlead] its pod is not there; what events tell:", HasSubstr("failed with exit status 7:"), "on_create.sh: no route to the licence server", "bye"));
  EXPECT_THAT(messages(ask("GetLogEvents", of_group(Json::object({{"logStreamName", "DeepHealthCheckResults/i-0123456789abcdef0"}})))), ElementsAre(HasSubstr("[fairlead]"), "Instance has passed"));
  EXPECT_EQ(ask("DescribeLogStreams", of_group()).json["logStreams"].items().size(), 3U);  // the instance of the second is gone, too
  // Of a machine that was prepared again: what was before, then the log that is there.
  script(instance, "-on-create", "2026-11-25T10:00:00Z");
  for (const auto& [key, pod] : site.api.all("pods")) ASSERT_TRUE(site.api.patch(kube::resources::pods, key, kube::PatchType::Merge, Json::object({{"metadata", Json::object({{"creationTimestamp", "2026-11-25T10:00:00Z"}})}})));
  printed["i-0123456789abcdef0-on-create/lifecycle"] = ten();
  event("e5", "LifecycleScript", "2026-11-25T10:00:10Z", "has run");
  said = ask("GetLogEvents", of_group(Json::object({{"logStreamName", stream}})));
  EXPECT_EQ(messages(said).size(), 14U) << said.body;
  EXPECT_EQ(messages(said).back(), "line 9");
}

TEST_F(Logs, OfARestartedContainerBothRuns) {
  ASSERT_TRUE(site.api.create(kube::resources::pods, *kube::parse_json(R"({"metadata": {"name": "w-0", "namespace": "cluster-ml", "labels": {"fairlead.dev/slurm-cluster": "ml", "fairlead.dev/slurm-role": "worker"}}, "spec": {"nodeName": "m0", "containers": [{"name": "slurmd"}]},
    "status": {"containerStatuses": [{"name": "slurmd", "state": {"running": {"startedAt": "2026-11-25T10:01:00Z"}}, "lastState": {"terminated": {"startedAt": "2026-11-25T10:00:00Z", "finishedAt": "2026-11-25T10:00:50Z"}}}]}})")));
  printed["w-0/slurmd"] = "2026-11-25T10:01:00Z again\n";
  printed["w-0/slurmd/previous"] = "2026-11-25T10:00:00Z first\n";
  EXPECT_THAT(messages(ask("GetLogEvents", of_group(Json::object({{"logStreamName", "Slurm/w-0/slurmd"}})))), ElementsAre("first", "again"));
}

TEST_F(Logs, WhoMayIsDecidedByTheArnsOfGroupsAndStreams) {
  script(instance, "-on-create", "2026-11-25T10:00:00Z");
  printed["i-0123456789abcdef0-on-create/lifecycle"] = ten();
  const auto user = [&](const std::string& name, const std::string& action, const std::string& resource) { return site.user(name, {fmt::format(R"({{"Version": "2012-10-17", "Statement": {{"Effect": "Allow", "Action": "{}", "Resource": "{}"}}}})", action, resource)}); };
  const Credentials reader = user("reader", "logs:*", "arn:aws:logs:fairlead-1:111122223333:log-group:" + group + ":*");
  EXPECT_EQ(ask("FilterLogEvents", of_group(), &reader).status, 200);
  EXPECT_EQ(ask("DescribeLogStreams", of_group(), &reader).status, 200);
  EXPECT_EQ(ask("GetLogEvents", of_group(Json::object({{"logStreamName", stream}})), &reader).status, 200);
  EXPECT_EQ(ask("DescribeLogGroups", Json::object(), &reader).code, "AccessDeniedException");
  const Credentials lister = user("lister", "logs:DescribeLogGroups", "arn:aws:logs:*:111122223333:log-group:*");
  EXPECT_EQ(ask("DescribeLogGroups", Json::object(), &lister).status, 200);
  // There or not, who may not is told the same.
  const auto there = ask("FilterLogEvents", of_group(), &lister), none = ask("FilterLogEvents", Json::object({{"logGroupName", "/aws/sagemaker/Clusters/none/abcdefabcdef"}}), &lister);
  EXPECT_EQ(there.code, "AccessDeniedException");
  EXPECT_EQ(none.code, "AccessDeniedException");
  const Credentials one = user("one", "logs:GetLogEvents", "arn:aws:logs:fairlead-1:111122223333:log-group:" + group + ":log-stream:LifecycleConfig/gpu/*");
  EXPECT_EQ(ask("GetLogEvents", of_group(Json::object({{"logStreamName", stream}})), &one).status, 200);
  EXPECT_EQ(ask("GetLogEvents", of_group(Json::object({{"logStreamName", "Slurm/x/y"}})), &one).code, "AccessDeniedException");
  EXPECT_EQ(ask("FilterLogEvents", of_group(), &one).code, "AccessDeniedException");
}

}  // namespace
}  // namespace fairlead::hyperpod
