// SPDX-License-Identifier: Apache-2.0
// Nodes of several machines that read one volume.
#include "volumes/plan/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kube/json.h"

namespace fairlead::volumes {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// A volume that has what is said of it: "n on m2 reads", of the pool's own machine without "on".
struct Ledgers : testing::Test {
  Ledger ledger{"p"};
  void SetUp() override { take(ledger.create("v", 1 << 20, "", "", std::int64_t{1} << 40, Limits())); }
  void take(const Ledger::Begun& begun, bool undone = false, const std::string& device = "") {
    ASSERT_TRUE(begun) << begun.error().message;
    ASSERT_TRUE(*begun);
    begin(begun);
    ASSERT_TRUE(ledger.apply(Ledger::end_of(**begun, undone, device)));
  }
  void begin(const Ledger::Begun& begun) {
    ASSERT_TRUE(begun && *begun) << (begun ? "it is so" : begun.error().message);
    ASSERT_TRUE(ledger.apply(Ledger::record_of(**begun)));
  }
  void end(const std::string& node, const std::string& device = "") {
    for (const auto& [number, one] : std::map(ledger.under_way()))
      if (one.node == node) { ASSERT_TRUE(ledger.apply(Ledger::end_of(one, false, device))); }
  }
  Ledger::Begun attach(const std::string& node, const std::string& host, bool read_only = true) const { return ledger.attach("v", node, read_only, false, host); }
  Ledger::Begun detach(const std::string& node) const { return ledger.detach("v", node, entry().nodes.at(node)); }
  const Entry& entry() const { return ledger.entries().at("v"); }
  // As a daemon that begins anew has it.
  void again() {
    Ledger other("p");
    ASSERT_TRUE(other.apply(ledger.snapshot()));
    ASSERT_EQ(other.entries(), ledger.entries());
    ASSERT_EQ(other.under_way(), ledger.under_way());
  }
};

TEST_F(Ledgers, EachMachineHasAPlaceAndEachAttachmentAGeneration) {
  take(attach("a", "m2"), false, "/dev/loop1");
  take(attach("a2", "m2"), false, "/dev/loop1");
  take(attach("b", "m3"), false, "/dev/loop7");
  take(attach("here", ""), false, "/dev/loop2");
  EXPECT_EQ(entry().places, (std::map<std::string, Place>{{"", {.shown = 0, .device = "/dev/loop2"}}, {"m2", {.shown = 1, .device = "/dev/loop1"}}, {"m3", {.shown = 3, .device = "/dev/loop7"}}}));
  EXPECT_EQ(entry().nodes, (std::map<std::string, std::int64_t>{{"a", 1}, {"a2", 2}, {"b", 3}, {"here", 4}}));
  EXPECT_EQ(entry().host_of("a2") + entry().host_of("b") + entry().host_of("here"), "m2m3");
  EXPECT_EQ(entry().holders("m2"), "a, a2");
  again();
  // The first to come may be the first to go.
  EXPECT_EQ((*detach("a"))->what, What::Leave);
  take(detach("a"));
  EXPECT_EQ((*detach("a2"))->what, What::Detach) << "the last on its machine";
  take(detach("a2"));
  EXPECT_FALSE(entry().places.contains("m2"));
  EXPECT_TRUE(entry().read_only);
  again();
  take(detach("here"));
  again();
  EXPECT_EQ(ledger.snapshot()["entries"]["v"]["host"].string(), "m3") << "one place as it always was written";
  take(detach("b"));
  EXPECT_FALSE(entry().attached() || entry().read_only);
  EXPECT_THAT(entry().places, IsEmpty());
  EXPECT_THAT(entry().hosts, IsEmpty());
  take(attach("b", "m3", false));
  EXPECT_EQ(entry().nodes.at("b"), 5) << "none is used twice";
}

TEST_F(Ledgers, NobodyWritesBesideThoseWhoReadEvenOnTheirWay) {
  struct Row {
    const char* what;
    bool first_reads, second_reads, over;  // over: the first has come about
    const char* why;                       // why the second is refused; empty: it is not
  };
  int number = 0;
  for (const Row& row : {Row{"two read", true, true, true, ""}, Row{"two are to read", true, true, false, ""}, Row{"one writes beside one that reads", true, false, true, "is attached to"}, Row{"beside one that is to read", true, false, false, "under way"},
                         Row{"one reads beside one that writes", false, true, true, "is attached to"}, Row{"beside one that is to write", false, true, false, "under way"}, Row{"two write", false, false, true, "is attached to"}, Row{"two are to write", false, false, false, "under way"}}) {
    SCOPED_TRACE(row.what);
    const std::string first = "a" + std::to_string(++number), second = "b" + std::to_string(number);
    begin(attach(first, "m2", row.first_reads));
    if (row.over) end(first);
    const auto comes = attach(second, "m3", row.second_reads);
    EXPECT_EQ(comes.has_value(), *row.why == 0);
    if (!comes) { EXPECT_THAT(comes.error().message, HasSubstr(row.why)); }
    if (comes) take(comes);
    if (!row.over) end(first);
    again();
    for (const std::string& node : {first, second})
      if (entry().nodes.contains(node)) take(detach(node));
    ASSERT_FALSE(entry().attached());
  }
}

TEST_F(Ledgers, MachinesThatReadDoNotWaitForOneAnother) {
  begin(attach("a", "m2"));
  begin(attach("b", "m3"));
  EXPECT_NE(ledger.under_way().begin()->second.generation, ledger.under_way().rbegin()->second.generation);
  EXPECT_EQ((*attach("a", "m2"))->generation, 1) << "the same is gone on with";
  EXPECT_EQ(attach("a2", "m2").error().code, Code::Conflict) << "of one machine one after the other";
  EXPECT_EQ(ledger.set_limits("v", {.iops = 5}).error().code, Code::Conflict);
  EXPECT_EQ(ledger.grow("v", 2 << 20, std::int64_t{1} << 40).error().code, Code::Conflict);
  again();
  end("b", "/dev/loop1");
  EXPECT_EQ(entry().nodes, (std::map<std::string, std::int64_t>{{"b", 2}}));
  begin(detach("b"));
  begin(attach("c", "m4"));
  end("c");
  end("a");
  EXPECT_EQ(entry().nodes_on("m2"), (std::set<std::string>{"a"}));
  EXPECT_EQ(attach("b", "m3").error().code, Code::Conflict) << "it is going";
  end("b");
  EXPECT_EQ(entry().holders(), "a, c");
  // By force, whatever else goes on.
  begin(detach("c"));
  const auto forced = ledger.detach_by_force("v", "a");
  ASSERT_TRUE(forced);
  ASSERT_TRUE(ledger.apply(Ledger::record_of(*forced)) && ledger.apply(Ledger::end_of(*forced, false)));
  EXPECT_EQ(entry().holders(), "c");
  end("c");
  EXPECT_FALSE(entry().attached());
}

// A journal of before there were several places.
TEST_F(Ledgers, OnePlaceIsReadAsItWasWritten) {
  ASSERT_TRUE(ledger.apply(*kube::parse_json(R"({"pool": "p", "last": 9, "entries": {"v": {"size": 4096, "there": true, "readOnly": true, "node": "a", "device": "/dev/loop1", "generation": 5, "nodes": {"a": 4, "a2": 5}, "host": "m2", "shown": 4}}, "underWay": [{"begin": 8, "what": "leave", "id": "v", "node": "a2", "generation": 5}]})")));
  EXPECT_EQ(entry().places, (std::map<std::string, Place>{{"m2", {.shown = 4, .device = "/dev/loop1"}}}));
  EXPECT_EQ(entry().host_of("a2"), "m2");
  again();
  end("a2");
  ASSERT_TRUE(ledger.apply(*kube::parse_json(R"({"begin": 10, "what": "detach", "id": "v", "node": "a", "generation": 4})")));
  end("a");
  EXPECT_FALSE(entry().attached());
}

}  // namespace
}  // namespace fairlead::volumes
