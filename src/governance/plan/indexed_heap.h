// SPDX-License-Identifier: Apache-2.0
// A binary heap of dense ids that knows where each of them is, so that one whose key has changed is put right in O(log n). The first is the least.
#pragma once
#include <cstdint>
#include <vector>

namespace fairlead::governance {

inline constexpr std::uint32_t not_in_heap = 0xffffffffU;

// `where` holds for each id its place, shared by all heaps that ids of one kind can be in (each in one of them at a time).
class IndexedHeap {
 public:
  bool empty() const { return items_.empty(); }
  std::uint32_t top() const { return items_.front(); }
  std::size_t size() const { return items_.size(); }

  // It is new, or its key has changed.
  template <class Less>
  void put(std::uint32_t id, std::vector<std::uint32_t>& where, const Less& less) {
    if (where[id] == not_in_heap) {
      where[id] = static_cast<std::uint32_t>(items_.size());
      items_.push_back(id);
    }
    if (!up(where[id], where, less)) down(where[id], where, less);
  }
  template <class Less>
  void remove(std::uint32_t id, std::vector<std::uint32_t>& where, const Less& less) {
    const std::uint32_t at = where[id];
    if (at == not_in_heap) return;
    where[id] = not_in_heap;
    const std::uint32_t last = items_.back();
    items_.pop_back();
    if (last == id) return;
    items_[at] = last;
    where[last] = at;
    if (!up(at, where, less)) down(at, where, less);
  }

 private:
  template <class Less>
  bool up(std::uint32_t at, std::vector<std::uint32_t>& where, const Less& less) {
    const std::uint32_t id = items_[at], from = at;
    for (; at != 0; at = (at - 1) / 2) {
      const std::uint32_t above = items_[(at - 1) / 2];
      if (!less(id, above)) break;
      items_[at] = above;
      where[above] = at;
    }
    items_[at] = id;
    where[id] = at;
    return at != from;
  }
  template <class Less>
  void down(std::uint32_t at, std::vector<std::uint32_t>& where, const Less& less) {
    const std::uint32_t id = items_[at], size = static_cast<std::uint32_t>(items_.size());
    while (2 * at + 1 < size) {
      std::uint32_t child = 2 * at + 1;
      if (child + 1 < size && less(items_[child + 1], items_[child])) ++child;
      if (!less(items_[child], id)) break;
      items_[at] = items_[child];
      where[items_[at]] = at;
      at = child;
    }
    items_[at] = id;
    where[id] = at;
  }

  std::vector<std::uint32_t> items_;
};

}  // namespace fairlead::governance
