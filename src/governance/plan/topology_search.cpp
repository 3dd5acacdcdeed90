// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/topology_search.h"

#include <algorithm>
#include <limits>

namespace fairlead::governance {
namespace {

constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();

}  // namespace

void TopologySearch::roll_up() {
  if (!tree_.empty()) roll_up(tree_.level(0), 0, true);
}

void TopologySearch::roll_up(DomainRange range, int level, bool inner) {
  std::vector<DomainRange> ranges{range};
  while (!tree_.is_leaf(ranges.back().begin)) ranges.push_back(tree_.descend(ranges.back()));
  for (std::size_t down = ranges.size(); down-- > 0;) {
    const int at = level + static_cast<int>(down);
    for (DomainId domain = ranges[down].begin; domain < ranges[down].end; ++domain) sum_children(domain, at, inner);
  }
}

// A domain holds a leader where a child does; then what it holds beside the leader is the sum less what the leader costs in the child where it costs least.
void TopologySearch::sum_children(DomainId domain, int level, bool inner) {
  Room& sum = room(domain);
  if (tree_.is_leaf(domain)) {
    if (level == ask_.slice_level) {
      sum.slices = sum.pods / ask_.slice_size;
      sum.led_slices = sum.led_pods / ask_.slice_size;
    }
    return;
  }
  const std::int64_t whole = inner && static_cast<std::size_t>(level) + 1 < ask_.inner.size() ? ask_.inner[static_cast<std::size_t>(level) + 1] : 0;
  const auto rounded = [whole](std::int64_t pods) { return whole > 0 ? pods / whole * whole : pods; };
  sum = {};
  std::int64_t pods_lost = most, slices_lost = most;
  const DomainRange children = tree_.children(domain);
  for (DomainId child = children.begin; child < children.end; ++child) {
    const Room& part = room(child);
    const std::int64_t pods = rounded(part.pods);
    sum.pods += pods;
    sum.slices += part.slices;
    sum.liking += part.liking;
    sum.leaders = std::max(sum.leaders, part.leaders);
    if (ask_.leaders == 0 || part.leaders > 0) {
      pods_lost = std::min(pods_lost, pods - rounded(part.led_pods));
      slices_lost = std::min(slices_lost, part.slices - part.led_slices);
    }
  }
  const bool leads = pods_lost != most;
  sum.led_pods = leads ? sum.pods - pods_lost : 0;
  sum.led_slices = leads ? sum.slices - slices_lost : 0;
  if (level == ask_.slice_level) {
    sum.slices = sum.pods / ask_.slice_size;
    sum.led_slices = sum.led_pods / ask_.slice_size;
  }
}

// Those that can lead, then the liked, then by room: most slices first (least, where the least free is wanted), of these the fewest pods, so that little is left over.
bool TopologySearch::before_led(DomainId a, DomainId b) const {
  const Room &one = room(a), &two = room(b);
  if (one.leaders != two.leaders) return one.leaders > two.leaders;
  if (ask_.by_liking && one.liking != two.liking) return one.liking > two.liking;
  if (one.led_slices != two.led_slices) return ask_.least_free ? one.led_slices < two.led_slices : one.led_slices > two.led_slices;
  if (one.led_pods != two.led_pods) return one.led_pods < two.led_pods;
  return a < b;
}

bool TopologySearch::before(DomainId a, DomainId b) const {
  const Room &one = room(a), &two = room(b);
  if (ask_.by_liking && one.liking != two.liking) return one.liking > two.liking;
  if (one.slices != two.slices) return ask_.least_free ? one.slices < two.slices : one.slices > two.slices;
  if (one.pods != two.pods) return one.pods < two.pods;
  return a < b;
}

TopologySearch::Domains TopologySearch::sorted_led(Domains domains) const {
  std::sort(domains.begin(), domains.end(), [this](DomainId a, DomainId b) { return before_led(a, b); });
  return domains;
}

TopologySearch::Domains TopologySearch::sorted(Domains domains) const {
  std::sort(domains.begin(), domains.end(), [this](DomainId a, DomainId b) { return before(a, b); });
  return domains;
}

TopologySearch::Domains TopologySearch::children_of(const Domains& domains) const {
  Domains out;
  for (const DomainId domain : domains) {
    const DomainRange range = tree_.children(domain);
    for (DomainId child = range.begin; child < range.end; ++child) out.push_back(child);
  }
  return out;
}

TopologySearch::Domains TopologySearch::all_of(DomainRange range) {
  Domains out;
  out.reserve(static_cast<std::size_t>(range.size()));
  for (DomainId domain = range.begin; domain < range.end; ++domain) out.push_back(domain);
  return out;
}

// The first, in the order given, with the least room that still suffices; the first of all if none does. Less liked ones are not looked at.
DomainId TopologySearch::tightest(const DomainId* begin, const DomainId* end, std::int64_t needed, std::int32_t leaders, Unit unit) const {
  DomainId best = *begin;
  std::int64_t least = most;
  for (const DomainId* one = begin; one != end; ++one) {
    const Room& has = room(*one);
    if (ask_.by_liking && has.liking != room(*begin).liking) break;
    if (has.leaders < leaders) continue;
    const std::int64_t holds = unit == Unit::Slices ? (leaders > 0 ? has.led_slices : has.slices) : (leaders > 0 ? has.led_pods : has.pods);
    if (holds >= needed && holds < least) {
      least = holds;
      best = *one;
    }
  }
  return best;
}

// The one domain that holds everything, without sorting a level of thousands; no_domain: none. Not where liking matters.
DomainId TopologySearch::single(DomainRange range) const {
  DomainId best = no_domain;
  for (DomainId domain = range.begin; domain < range.end; ++domain) {
    const Room& has = room(domain);
    if (has.leaders < ask_.leaders || has.led_slices < slices_asked()) continue;
    if (best == no_domain) {
      best = domain;
      continue;
    }
    const Room& held = room(best);
    if (has.led_slices != held.led_slices ? has.led_slices < held.led_slices : before_led(domain, best)) best = domain;
  }
  return best;
}

std::optional<Shortage> TopologySearch::choose(Domains& chosen, int& level) {
  const auto fits = [this](DomainId domain) { return room(domain).led_slices >= slices_asked() && room(domain).leaders >= ask_.leaders; };
  for (level = ask_.level;; --level) {
    const DomainRange range = tree_.level(level);
    if (range.size() == 0) return Shortage{.kind = Shortage::Kind::NoDomains, .level = level};
    if (!ask_.by_liking) {
      if (const DomainId one = single(range); one != no_domain) {
        chosen = {one};
        return std::nullopt;
      }
    } else {
      const Domains domains = sorted_led(all_of(range));
      const auto first = std::find_if(domains.begin(), domains.end(), fits);
      const bool take = first != domains.end() && (first == domains.begin() || ask_.least_free || ask_.required);
      if (take) {
        const DomainId* from = domains.data() + (first - domains.begin());
        chosen = {ask_.least_free ? *from : tightest(from, domains.data() + domains.size(), slices_asked(), ask_.leaders, Unit::Slices)};
        return std::nullopt;
      }
    }
    if (ask_.required) {
      const Domains domains = sorted_led(all_of(range));
      return Shortage{.level = level, .fit = ask_.least_free ? room(domains.back()).pods : room(domains.front()).slices};
    }
    if (level == 0 || ask_.unconstrained) return spread(range, level, chosen);
  }
}

// The leader's domain first, then as few others as possible (or the least free).
std::optional<Shortage> TopologySearch::spread(DomainRange range, int level, Domains& chosen) {
  std::int64_t slices = slices_asked();
  std::int32_t leaders = ask_.leaders;
  Domains domains = leader_first(sorted_led(all_of(range)), slices, leaders, Unit::Slices);
  std::size_t next = 0;
  for (; leaders > 0 && next < domains.size() && room(domains[next]).leaders > 0; ++next) {
    DomainId domain = domains[next];
    if (!ask_.least_free && room(domain).led_slices >= slices) {
      domain = tightest(domains.data() + next, domains.data() + domains.size(), slices, leaders, Unit::Slices);
    }
    chosen.push_back(domain);
    leaders -= room(domain).leaders;
    slices -= room(domain).led_slices;
  }
  if (leaders > 0) return Shortage{.level = level, .fit = ask_.leaders - leaders};

  // Without leaders both orders are one.
  if (ask_.leaders > 0) domains = sorted(Domains(domains.begin() + static_cast<long>(next), domains.end()));
  for (next = 0; slices > 0 && next < domains.size(); ++next) {
    DomainId domain = domains[next];
    if (!ask_.least_free && room(domain).slices >= slices) {
      domain = tightest(domains.data() + next, domains.data() + domains.size(), slices, 0, Unit::Slices);
    }
    chosen.push_back(domain);
    slices -= room(domain).slices;
  }
  if (slices > 0) return Shortage{.level = level, .fit = slices_asked() - slices};
  return std::nullopt;
}

// A leader takes room. The sums above assumed that it sits where it costs least, so one that costs too much for what is left may not be its place.
TopologySearch::Domains TopologySearch::leader_first(Domains domains, std::int64_t needed, std::int32_t leaders, Unit unit) const {
  if (leaders == 0 || domains.size() < 2) return domains;
  std::int64_t all = 0;
  for (const DomainId domain : domains) all += unit == Unit::Slices ? room(domain).slices : room(domain).pods;
  for (auto one = domains.begin(); one != domains.end(); ++one) {
    const Room& has = room(*one);
    const std::int64_t cost = unit == Unit::Slices ? has.slices - has.led_slices : has.pods - has.led_pods;
    if (has.leaders < leaders || all - cost < needed) continue;
    std::rotate(domains.begin(), one, one + 1);
    break;
  }
  return domains;
}

bool TopologySearch::distribute(Domains domains, std::int64_t count, std::int32_t leaders, std::int64_t size, Unit unit, Domains& given) {
  const bool slices = unit == Unit::Slices;
  if (!slices) size = 1;
  std::int64_t left = count / size;
  domains = leader_first(std::move(domains), left, leaders, unit);
  const auto plain = [&](DomainId domain) -> std::int64_t& { return slices ? room(domain).slices : room(domain).pods; };
  const auto led = [&](DomainId domain) -> std::int64_t& { return slices ? room(domain).led_slices : room(domain).led_pods; };
  const auto give = [&](DomainId domain, std::int64_t units, std::int32_t with_leaders) {
    plain(domain) = units;
    room(domain).pods = units * size;
    room(domain).leaders = with_leaders;
    given.push_back(domain);
  };
  for (std::size_t i = 0; i < domains.size(); ++i) {
    DomainId domain = domains[i];
    const auto tighter = [&] { return tightest(domains.data() + i, domains.data() + domains.size(), left, leaders, unit); };
    if (leaders > 0) {
      if (led(domain) >= left && room(domain).leaders >= leaders) {
        if (!ask_.least_free) domain = tighter();
        give(domain, left, leaders);
        return true;
      }
      led(domain) = std::min(led(domain), left);
      const std::int32_t placed = std::min(room(domain).leaders, leaders);
      left -= led(domain);
      leaders -= placed;
      give(domain, led(domain), placed);
      continue;
    }
    if (plain(domain) >= left) {
      if (!ask_.least_free) domain = tighter();
      give(domain, left, 0);
      return true;
    }
    left -= plain(domain);
    give(domain, plain(domain), 0);
  }
  return false;
}

// From the chosen domains down to leaves, with as few domains as possible on each level.
std::optional<Shortage> TopologySearch::descend(Domains chosen, int level, bool balanced, Domains& leaves) {
  const Shortage lost{.kind = Shortage::Kind::Unplaceable, .level = level};
  Domains now;
  if (!distribute(std::move(chosen), ask_.count, ask_.leaders, ask_.slice_size, Unit::Slices, now)) return lost;
  const int last = tree_.depth() - 1;
  // Above the level of slices all domains are one pool: which parent holds how many does not matter yet.
  for (; !balanced && level < std::min(last, ask_.slice_level); ++level) {
    Domains next;
    if (!distribute(sorted(children_of(now)), ask_.count, ask_.leaders, ask_.slice_size, Unit::Slices, next)) return lost;
    now = std::move(next);
  }
  // From there on each parent's share goes to its own children.
  for (; level < last; ++level) {
    const std::int64_t size = level < ask_.slice_level ? ask_.slice_size : std::max<std::int64_t>(1, ask_.inner[static_cast<std::size_t>(level) + 1]);
    Domains next;
    for (const DomainId domain : now) {
      Domains children = sorted(all_of(tree_.children(domain)));
      if (size > 1) {
        for (const DomainId child : children) {
          room(child).slices = room(child).pods / size;
          room(child).led_slices = room(child).led_pods / size;
        }
      }
      const Unit unit = size > 1 ? Unit::Slices : Unit::Pods;
      if (!distribute(std::move(children), room(domain).pods, room(domain).leaders, size, unit, next)) return lost;
    }
    now = std::move(next);
  }
  leaves = std::move(now);
  std::sort(leaves.begin(), leaves.end());
  return std::nullopt;
}

std::optional<Shortage> TopologySearch::place(std::vector<DomainId>& leaves) {
  Domains chosen;
  int level = 0;
  if (ask_.balanced && !ask_.required && !ask_.unconstrained && !tree_.empty()) {
    const std::vector<Room> whole = rooms_;
    if (choose_balanced(chosen, level) && !descend(std::move(chosen), level, true, leaves)) return std::nullopt;
    rooms_ = whole;
    chosen.clear();
    leaves.clear();
  }
  if (const auto shortage = choose(chosen, level)) return shortage;
  return descend(std::move(chosen), level, false, leaves);
}

}  // namespace fairlead::governance
