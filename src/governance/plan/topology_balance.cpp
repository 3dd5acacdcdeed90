// SPDX-License-Identifier: Apache-2.0
// Balanced placement (Kueue's alpha gate TASBalancedPlacement): the same number of slices on each domain, as far as it goes, within one domain above the preferred one.
#include <algorithm>
#include <cmath>
#include <map>

#include "governance/plan/topology_search.h"

namespace fairlead::governance {

// How a greedy placement would go: how many domains it needs and which come last, for these decide how even it can be.
TopologySearch::Greedy TopologySearch::try_greedy(const Domains& domains) const {
  Greedy greedy;
  std::int64_t slices = slices_asked();
  std::int32_t leaders = ask_.leaders;
  Domains rest = domains;
  if (leaders > 0) {
    Domains leading = sorted_led(domains);
    std::size_t next = 0;
    for (; leaders > 0 && next < leading.size() && room(leading[next]).leaders > 0; ++next) {
      ++greedy.used;
      greedy.last_led = leading[next];
      leaders -= room(leading[next]).leaders;
      slices -= room(leading[next]).led_slices;
    }
    if (leaders > 0) return {};
    rest.assign(leading.begin() + static_cast<long>(next), leading.end());
  }
  rest = sorted(std::move(rest));
  for (std::size_t next = 0; slices > 0 && next < rest.size() && room(rest[next]).slices > 0; ++next) {
    ++greedy.used;
    greedy.last = rest[next];
    slices -= room(rest[next]).slices;
  }
  if (slices > 0) return {};
  greedy.fits = true;
  return greedy;
}

void TopologySearch::clear(DomainId domain, bool leaders_only) {
  for (DomainRange range{domain, domain + 1};; range = tree_.descend(range)) {
    for (DomainId one = range.begin; one < range.end; ++one) {
      Room& has = room(one);
      if (!leaders_only) has = Room{.liking = has.liking};
      has.led_pods = has.led_slices = 0;
      has.leaders = 0;
    }
    if (range.size() == 0 || tree_.is_leaf(range.begin)) return;
  }
}

void TopologySearch::restore(DomainRange range, const std::vector<Room>& from) {
  for (;; range = tree_.descend(range)) {
    std::copy(from.begin() + range.begin, from.begin() + range.end, rooms_.begin() + range.begin);
    if (range.size() == 0 || tree_.is_leaf(range.begin)) return;
  }
}

// A domain with less than the threshold gets nothing; with a leader too little, it leads not.
void TopologySearch::prune(DomainId domain, std::int64_t threshold) {
  const Room& has = room(domain);
  if (has.slices < threshold) {
    clear(domain, false);
  } else if (ask_.leaders > 0 && has.leaders > 0 && has.led_slices < threshold) {
    clear(domain, true);
  }
}

bool TopologySearch::fits_pruned(const Domains& group, std::int64_t threshold, std::int64_t& used) {
  for (const DomainId child : children_of(group)) prune(child, threshold);
  for (const DomainId domain : group) {
    roll_up({domain, domain + 1}, ask_.level, false);
    prune(domain, threshold);
  }
  const Greedy greedy = try_greedy(group);
  used = greedy.used;
  return greedy.fits;
}

bool TopologySearch::choose_balanced(Domains& chosen, int& level) {
  std::vector<DomainRange> groups;
  if (ask_.level == 0) {
    groups.push_back(tree_.level(0));
  } else {
    const DomainRange above = tree_.level(ask_.level - 1);
    for (DomainId domain = above.begin; domain < above.end; ++domain) groups.push_back(tree_.children(domain));
  }

  const std::vector<Room> whole = rooms_;
  std::int64_t best = 0, best_used = 0;
  const DomainRange* best_group = nullptr;
  for (const DomainRange& range : groups) {
    const Domains group = all_of(range);
    const Greedy greedy = try_greedy(ask_.level < ask_.slice_level ? children_of(group) : group);
    if (!greedy.fits || greedy.used == 0) continue;
    std::int64_t threshold = slices_asked() / greedy.used;
    if (greedy.last_led != no_domain) threshold = std::min(threshold, room(greedy.last_led).led_slices);
    if (greedy.last != no_domain) threshold = std::min(threshold, room(greedy.last).slices);
    // Room for a leader in the last domain, if the first attempt leaves it none.
    const std::int64_t reserved = ask_.leaders > 0 && greedy.last != no_domain ? std::min(threshold, room(greedy.last).led_slices) : threshold;
    if (threshold < best) continue;
    std::int64_t used = 0;
    bool fits = fits_pruned(group, threshold, used);
    if (!fits && reserved < threshold && reserved > 0 && reserved >= best) {
      threshold = reserved;
      restore(range, whole);
      fits = fits_pruned(group, threshold, used);
    }
    restore(range, whole);
    if (fits && (threshold > best || (threshold == best && used < best_used))) {
      best = threshold;
      best_used = used;
      best_group = &range;
    }
  }
  if (best <= 0 || best_group == nullptr) return false;

  Domains group = all_of(*best_group);
  std::int64_t used = 0;
  fits_pruned(group, best, used);
  level = ask_.level;
  if (ask_.level < ask_.slice_level) {
    group = children_of(smallest_set(group, true));
    ++level;
  }
  if (place_evenly(group, best, chosen)) return true;
  rooms_ = whole;
  chosen.clear();
  return false;
}

double TopologySearch::entropy(DomainId domain) const {
  const DomainRange children = tree_.children(domain);
  std::int64_t total = 0;
  for (DomainId child = children.begin; child < children.end; ++child) total += room(child).pods;
  double sum = 0;
  for (DomainId child = children.begin; child < children.end; ++child) {
    if (room(child).pods <= 0) continue;
    const double part = static_cast<double>(room(child).pods) / static_cast<double>(total);
    sum -= part * std::log2(part);
  }
  return sum;
}

// Of the sets with as few domains as a greedy placement needs, one that holds everything with the least left over. Dynamic programming over
// (domains taken, leaders and pods still to place); of equal sets the first in the order of the domains.
TopologySearch::Domains TopologySearch::smallest_set(const Domains& domains, bool by_entropy) const {
  const Greedy greedy = try_greedy(domains);
  if (!greedy.fits) return {};
  Domains ordered = domains;
  std::sort(ordered.begin(), ordered.end());
  if (by_entropy) {
    std::map<DomainId, double> even;
    for (const DomainId domain : ordered) even[domain] = entropy(domain);
    std::stable_sort(ordered.begin(), ordered.end(), [&](DomainId a, DomainId b) {
      if (room(a).leaders != room(b).leaders) return room(a).leaders > room(b).leaders;
      if (room(a).led_slices != room(b).led_slices) return room(a).led_slices > room(b).led_slices;
      return even[a] > even[b];
    });
  }

  struct Link {  // a set, as its last member and the rest
    DomainId domain = no_domain;
    std::size_t rest = 0;
  };
  using Open = std::pair<std::int64_t, std::int64_t>;  // leaders, pods still to place
  std::vector<Link> links{{}};
  std::vector<std::map<Open, std::size_t>> taken(static_cast<std::size_t>(greedy.used) + 1);
  taken[0][{ask_.leaders, slices_asked() * ask_.slice_size}] = 0;
  for (const DomainId domain : ordered) {
    const Room& has = room(domain);
    for (std::size_t used = taken.size() - 1; used > 0; --used) {
      for (const auto& [open, set] : taken[used - 1]) {
        const auto& [leaders, pods] = open;
        if (leaders <= 0 && pods <= 0) continue;
        const auto add = [&, rest = set](std::int64_t new_leaders, std::int64_t new_pods) {
          const auto [slot, fresh] = taken[used].try_emplace({new_leaders, new_pods}, links.size());
          if (fresh) links.push_back({domain, rest});
        };
        if (leaders > 0 && has.leaders > 0) add(leaders - has.leaders, pods - has.led_pods);
        if (has.slices > 0) add(leaders, pods - has.pods);
      }
    }
  }
  const auto& done = taken.back();
  auto after = done.upper_bound({0, 0});
  if (after == done.begin()) return {};
  const auto& [open, set] = *--after;
  if (open.first != 0) return {};
  Domains out;
  for (std::size_t link = set; link != 0; link = links[link].rest) out.push_back(links[link].domain);
  std::reverse(out.begin(), out.end());
  return out;
}

bool TopologySearch::place_evenly(const Domains& domains, std::int64_t threshold, Domains& chosen) {
  const Domains set = smallest_set(domains, false);
  std::int64_t extra = slices_asked() - static_cast<std::int64_t>(set.size()) * threshold;
  if (set.empty() || extra < 0) return false;
  std::int32_t leaders = ask_.leaders;
  chosen = sorted_led(set);
  for (const DomainId domain : chosen) {
    Room& has = room(domain);
    std::int64_t more = 0;
    const bool leads = leaders > 0;
    if (leads) {
      more = std::min(has.led_slices - threshold, extra);
      --leaders;
    } else if (extra > 0) {
      more = std::min(has.slices - threshold, extra);
    }
    has.leaders = leads ? 1 : 0;
    has.slices = has.led_slices = threshold + more;
    has.pods = has.slices * ask_.slice_size;
    has.led_pods = has.pods - has.leaders;
    extra -= more;
  }
  return extra <= 0 && leaders <= 0;
}

}  // namespace fairlead::governance
