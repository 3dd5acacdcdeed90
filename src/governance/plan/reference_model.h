// SPDX-License-Identifier: Apache-2.0
// Test code only: the arithmetic of quota trees once more, slow and obvious, from maps and recursion; everything is computed anew from the leaves at each question.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "governance/plan/ledger.h"

namespace fairlead::governance::reference {

using Key = std::pair<std::string, std::string>;  // flavor, resource
using Amounts = std::map<Key, Amount>;

struct Node {
  std::string name;
  Node* parent = nullptr;
  std::vector<Node*> children;
  double weight = 1;
  std::map<Key, Limits> quotas;
  Amounts held;  // of a leaf

  Amount nominal(const Key& k) const { auto at = quotas.find(k); return at == quotas.end() ? 0 : at->second.nominal; }
  Amount subtree(const Key& k) const {
    Amount sum = nominal(k);
    for (const Node* child : children) sum += child->subtree(k) - child->local(k);
    return sum;
  }
  Amount local(const Key& k) const {
    auto at = quotas.find(k);
    if (at == quotas.end() || at->second.lend == unlimited) return 0;
    return std::max<Amount>(0, subtree(k) - at->second.lend);
  }
  Amount usage(const Key& k) const {
    auto at = held.find(k);
    Amount sum = at == held.end() ? 0 : at->second;
    for (const Node* child : children) sum += std::max<Amount>(0, child->usage(k) - child->local(k));
    return sum;
  }
  Amount available(const Key& k) const {
    if (parent == nullptr) return subtree(k) - usage(k);
    Amount above = parent->available(k);
    auto at = quotas.find(k);
    if (at != quotas.end() && at->second.borrow != unlimited)
      above = std::min(above, subtree(k) - local(k) - std::max<Amount>(0, usage(k) - local(k)) + at->second.borrow);
    return std::max<Amount>(0, local(k) - usage(k)) + above;
  }
  Amount potential(const Key& k) const {
    if (parent == nullptr) return subtree(k);
    const Amount most = local(k) + parent->potential(k);
    auto at = quotas.find(k);
    return at == quotas.end() || at->second.borrow == unlimited ? most : std::min(most, subtree(k) + at->second.borrow);
  }
  bool names(const Key& k) const {
    if (quotas.contains(k)) return true;
    for (const Node* child : children)
      if (child->names(k)) return true;
    return false;
  }
  // Thousandths of the lendable, before the weight.
  double ratio(const std::vector<Key>& keys) const {
    if (parent == nullptr) return 0;
    std::map<std::string, Amount> borrowed, lendable;
    for (const Key& k : keys) {
      lendable[k.second] += parent->potential(k);
      if (names(k)) borrowed[k.second] += std::max<Amount>(0, usage(k) - subtree(k));
    }
    double most = 0;
    for (const auto& [resource, amount] : borrowed)
      if (amount > 0 && lendable[resource] > 0) most = std::max(most, static_cast<double>(amount) * 1000.0 / static_cast<double>(lendable[resource]));
    return most;
  }
};

}  // namespace fairlead::governance::reference
