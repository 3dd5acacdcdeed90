// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/ledger.h"

#include <gtest/gtest.h>

#include <memory>

#include "base/rng.h"
#include "base/test_rounds.h"
#include "governance/plan/reference_model.h"

namespace fairlead::governance {
namespace {

const FlavorResource gpu{"h100", "gpu"};

NodeSpec queue(std::string name, std::string parent, Amount nominal, Amount borrow = unlimited, Amount lend = unlimited) {
  return {.name = std::move(name), .parent = std::move(parent), .leaf = true, .quotas = {{gpu, {nominal, borrow, lend}}}};
}
NodeSpec cohort(std::string name, std::string parent, Amount nominal = 0, Amount borrow = unlimited, Amount lend = unlimited) {
  return {.name = std::move(name), .parent = std::move(parent), .leaf = false, .quotas = {{gpu, {nominal, borrow, lend}}}};
}

TEST(Ledger, TheExampleOfTwoTeams) {  // A has 6 and uses 2, B has 5 and uses 4: B can have 5 more of the 11
  Ledger ledger({queue("a", "all", 6), queue("b", "all", 5)});
  const NodeId a = ledger.leaf("a"), b = ledger.leaf("b");
  ledger.add(a, 0, 2);
  ledger.add(b, 0, 4);
  EXPECT_EQ(ledger.available(b, 0), 5);
  EXPECT_EQ(ledger.borrow_level(b, 0, 1).height, 0);
  EXPECT_EQ(ledger.borrow_level(b, 0, 4).height, 1);
  // At the default limit of half its own it may borrow 2 of 5: the job of 4 waits. With 60 % it is placed.
  for (const auto& [limit, want] : {std::pair<Amount, Amount>{2, 3}, {3, 4}}) {
    Ledger limited({queue("a", "all", 6), queue("b", "all", 5, limit)});
    limited.add(limited.leaf("a"), 0, 2);
    limited.add(limited.leaf("b"), 0, 4);
    EXPECT_EQ(limited.available(limited.leaf("b"), 0), want) << "borrow limit " << limit;
  }
}

TEST(Ledger, WhatIsNotLentIsSeenByTheOwnerAlone) {
  Ledger ledger({queue("lend-a", "lend", 3, unlimited, 2), queue("lend-b", "lend", 2, unlimited, 2)});
  const NodeId a = ledger.leaf("lend-a"), b = ledger.leaf("lend-b");
  ledger.add(b, 0, 2);
  EXPECT_EQ(ledger.available(b, 0), 2);
  EXPECT_EQ(ledger.potential(a, 0), 5);
  EXPECT_EQ(ledger.local(a, 0), 1);
}

TEST(Ledger, LimitsOfCohortsHoldInTheTree) {
  Ledger ledger({cohort("r", ""), cohort("c", "r", 2, unlimited, 1), queue("q", "c", 0), queue("s", "r", 0)});
  const NodeId q = ledger.leaf("q"), s = ledger.leaf("s");
  EXPECT_EQ(ledger.available(q, 0), 2);
  EXPECT_EQ(ledger.available(s, 0), 1);
  ledger.add(s, 0, 1);
  EXPECT_EQ(ledger.available(q, 0), 1);
}

TEST(Ledger, AvailableIsNegativeAfterACut) {
  Ledger ledger({queue("q", "", 4)});
  ledger.add(0, 0, 7);
  EXPECT_EQ(ledger.available(0, 0), -3);
}

TEST(Ledger, SharesFollowWeightAndNothingBorrowsMoreThanAWeightOfZero) {
  NodeSpec a = queue("a", "all", 0), b = queue("b", "all", 0), c = queue("c", "all", 9);
  a.weight = 2;
  Ledger ledger({a, b, c});
  ledger.add(ledger.leaf("a"), 0, 2);
  ledger.add(ledger.leaf("b"), 0, 2);
  EXPECT_EQ(ledger.share(ledger.leaf("a")).rounded(), 112);
  EXPECT_EQ(ledger.share(ledger.leaf("b")).rounded(), 223);
  a.weight = b.weight = 0;
  Ledger zero({a, b, c});
  zero.add(zero.leaf("a"), 0, 2);
  EXPECT_TRUE(zero.share(zero.leaf("a")).infinite());
  EXPECT_FALSE(zero.share(zero.leaf("b")).infinite());  // borrows nothing
  zero.add(zero.leaf("b"), 0, 1);
  EXPECT_GT(compare(zero.share(zero.leaf("a")), zero.share(zero.leaf("b"))), 0);
  EXPECT_LT(compare(zero.share(zero.leaf("c")), zero.share(zero.leaf("b"))), 0);
}

TEST(Ledger, ACycleOfCohortsIsInactiveAndOthersGoOn) {
  Ledger ledger({cohort("x", "y", 5), cohort("y", "z", 5), cohort("z", "x", 5), queue("in", "y", 5), queue("out", "w", 5), cohort("self", "self", 3), queue("own", "self", 2)});
  EXPECT_FALSE(ledger.active(ledger.leaf("in")));
  EXPECT_FALSE(ledger.active(ledger.leaf("own")));
  EXPECT_TRUE(ledger.active(ledger.leaf("out")));
  EXPECT_EQ(ledger.available(ledger.leaf("in"), 0), 0);
  EXPECT_EQ(ledger.available(ledger.leaf("out"), 0), 5);
}

TEST(Ledger, HugeAmountsSaturate) {
  Ledger ledger({queue("a", "all", unlimited), queue("b", "all", unlimited - 1), queue("c", "all", 3, unlimited, 1)});
  const NodeId b = ledger.leaf("b");
  EXPECT_EQ(ledger.available(b, 0), unlimited);
  ledger.add(b, 0, unlimited - 5);
  ledger.add(b, 0, unlimited - 5);
  EXPECT_EQ(ledger.usage(b, 0), unlimited);
  EXPECT_EQ(ledger.available(ledger.leaf("c"), 0), 2);  // unlimited - unlimited, and its own two
}

TEST(Ledger, ANegativeQuotaIsNone) {
  Ledger ledger({queue("q", "", -4)});
  EXPECT_EQ(ledger.potential(0, 0), 0);
}

struct RandomTree {
  std::vector<NodeSpec> specs;
  std::vector<std::unique_ptr<reference::Node>> nodes;
  std::vector<reference::Node*> leaves;
  std::vector<reference::Key> keys;
};

RandomTree random_tree(Rng& rng) {
  RandomTree tree;
  const std::vector<FlavorResource> all{{"one", "cpu"}, {"two", "cpu"}, {"one", "gpu"}, {"two", "gpu"}};
  const std::size_t cohorts = 1 + rng.below(5), queues = 1 + rng.below(6);
  for (std::size_t i = 0; i < cohorts + queues; ++i) {
    auto node = std::make_unique<reference::Node>();
    NodeSpec spec{.leaf = i >= cohorts, .weight = static_cast<double>(rng.below(4))};
    node->name = spec.name = (spec.leaf ? "q" : "c") + std::to_string(i);
    node->weight = spec.weight;
    if (i > 0 && (spec.leaf || rng.below(6) != 0)) {
      node->parent = tree.nodes[rng.below(std::min(i, cohorts))].get();
      node->parent->children.push_back(node.get());
      spec.parent = node->parent->name;
    }
    for (const FlavorResource& column : all) {
      if (rng.below(3) == 0) continue;
      Limits limits{.nominal = static_cast<Amount>(rng.below(12))};
      if (rng.below(2) == 0) limits.borrow = static_cast<Amount>(rng.below(8));
      if (rng.below(2) == 0) limits.lend = static_cast<Amount>(rng.below(8));
      spec.quotas.emplace_back(column, limits);
      node->quotas[{column.flavor, column.resource}] = limits;
    }
    if (spec.leaf) tree.leaves.push_back(node.get());
    tree.specs.push_back(std::move(spec));
    tree.nodes.push_back(std::move(node));
  }
  for (const FlavorResource& column : all) tree.keys.emplace_back(column.flavor, column.resource);
  return tree;
}

void expect_same(const Ledger& ledger, const RandomTree& tree, std::uint64_t seed) {
  for (const auto& node : tree.nodes) {
    const NodeId id = node->name[0] == 'q' ? ledger.leaf(node->name) : ledger.cohort(node->name);
    for (const reference::Key& key : tree.keys) {
      const Column c = ledger.column(id, key.first, key.second);
      if (c == no_column) {
        ASSERT_EQ(node->potential(key), 0);
        continue;
      }
      ASSERT_EQ(ledger.subtree(id, c), node->subtree(key)) << "seed " << seed;
      ASSERT_EQ(ledger.usage(id, c), node->usage(key)) << "seed " << seed << " " << node->name;
      ASSERT_EQ(ledger.available(id, c), node->available(key)) << "seed " << seed << " " << node->name;
      ASSERT_EQ(ledger.potential(id, c), node->potential(key)) << "seed " << seed << " " << node->name;
    }
    ASSERT_DOUBLE_EQ(ledger.share(id).ratio, node->ratio(tree.keys)) << "seed " << seed << " " << node->name;
  }
}

TEST(LedgerProperty, AgreesWithTheSlowModelAndTrialsLeaveNoTrace) {
  const int rounds = test_rounds(400, 1'000'000);
  for (int round = 0; round < rounds; ++round) {
    const std::uint64_t seed = 0x6c656467 + static_cast<std::uint64_t>(round);
    Rng rng(seed);
    RandomTree tree = random_tree(rng);
    Ledger ledger(tree.specs);
    const auto change = [&](bool both) {
      reference::Node* leaf = tree.leaves[rng.below(tree.leaves.size())];
      const reference::Key& key = tree.keys[rng.below(tree.keys.size())];
      const Column c = ledger.column(ledger.leaf(leaf->name), key.first, key.second);
      if (c == no_column) return;
      Amount& held = leaf->held[key];
      if (held > 0 && rng.below(2) == 0) {
        const Amount less = 1 + static_cast<Amount>(rng.below(static_cast<std::uint64_t>(held)));
        ledger.remove(ledger.leaf(leaf->name), c, less);
        if (both) held -= less;
      } else {
        const Amount more = static_cast<Amount>(rng.below(6));
        ledger.add(ledger.leaf(leaf->name), c, more);
        if (both) held += more;
      }
    };
    for (int step = 0; step < 12; ++step) {
      change(true);
      if (rng.below(3) == 0) {
        Ledger::Trial outer(ledger);
        change(false);
        Ledger::Trial inner(ledger);
        change(false);
      }
      if (rng.below(4) == 0) {
        Ledger::Trial kept(ledger);
        change(true);
        kept.keep();
      }
    }
    expect_same(ledger, tree, seed);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace fairlead::governance
