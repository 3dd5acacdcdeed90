// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/size.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>

#include "base/encoding.h"
#include "slurm/plan/scale.h"

namespace fairlead::slurm {
namespace {

using kube::Json;

constexpr auto kLongestBackOff = std::chrono::hours(1);
constexpr std::size_t kMostTold = 5;
constexpr std::string_view kChecks = "nobody";  // whose jobs checks are (plan/checks.h): they look at workers that are there, and keep none
constexpr std::int64_t kTries = 64;

// What is remembered of a set, in status.autoscale.sets.
struct Memory {
  std::optional<int> size;
  std::map<int, Instant> missing, unused;  // since when a wanted worker has not come; since when nobody needs one
  std::optional<int> placed;               // so many came when not all did; until `until` there are no more
  std::optional<Instant> until;
  int attempts = 0;
};

std::optional<Instant> time_of(const Json& text) {
  const auto parsed = parse_time(text.string());
  return parsed ? std::optional<Instant>(*parsed) : std::nullopt;
}

Memory read_memory(const Json& from) {
  Memory out;
  if (const std::int64_t size = from["size"].integer(-1); size >= 0 && size <= api::kMaxSize) out.size = static_cast<int>(size);
  for (const auto& [name, into] : {std::pair("missing", &out.missing), std::pair("unused", &out.unused)})
    for (const auto& [ordinal, since] : from[name].members())
      if (const auto number = worker_ordinal(ordinal, ""); number && time_of(since)) into->emplace(*number, *time_of(since));
  out.until = time_of(from["tryAgainAt"]);
  if (const std::int64_t placed = from["placed"].integer(-1); placed >= 0) out.placed = static_cast<int>(std::min<std::int64_t>(placed, api::kMaxSize));
  if (!out.placed) out.until.reset();
  out.attempts = static_cast<int>(std::clamp<std::int64_t>(from["attempts"].integer(), 0, 100));
  return out;
}

Json print_memory(const std::string& name, const Memory& memory) {
  Json out = Json::object({{"name", name}, {"size", memory.size.value_or(0)}});
  for (const auto& [key, from] : {std::pair("missing", &memory.missing), std::pair("unused", &memory.unused)}) {
    if (from->empty()) continue;
    Json times = Json::object();
    for (const auto& [ordinal, since] : *from) times.set(std::to_string(ordinal), print_time(since));
    out.set(key, std::move(times));
  }
  if (memory.placed) out.set("placed", *memory.placed);
  if (memory.until) out.set("tryAgainAt", print_time(*memory.until));
  if (memory.attempts > 0) out.set("attempts", memory.attempts);
  return out;
}

const Json& memory_of(const Json& memory, const std::string& set) {
  static const Json kNone;
  for (const Json& one : memory["sets"].items())
    if (one["name"].string() == set) return one;
  return kNone;
}

bool fits(const SlurmRoom& wanted, const SlurmRoom& there) { return wanted.cpus <= there.cpus && wanted.memory <= there.memory && wanted.gpus <= there.gpus; }
SlurmRoom share(const SlurmRoom& all, std::int64_t of) { return {(all.cpus + of - 1) / of, (all.memory + of - 1) / of, (all.gpus + of - 1) / of}; }

// "a&b", "a|b" or "a". Nothing: counts and brackets, which are not understood here.
std::optional<bool> has_features(const SlurmNode& node, const std::string& wanted) {
  if (wanted.empty()) return true;
  if (wanted.find_first_of("[]()*") != std::string::npos) return std::nullopt;
  const bool any = wanted.find('|') != std::string::npos;
  if (any && wanted.find_first_of("&,") != std::string::npos) return std::nullopt;
  std::string list = wanted;
  std::replace(list.begin(), list.end(), ',', '&');
  for (const auto& one : split(list, any ? '|' : '&')) {
    const bool has = std::find(node.features.begin(), node.features.end(), one) != node.features.end();
    if (any && has) return true;
    if (!any && !has) return false;
  }
  return !any;
}

// Does it wait for workers, and for nothing else? "Priority" stands for what is behind such a job.
bool waits_for_workers(const SlurmQueued& job) {
  if (!job.reservation.empty() || job.user == kChecks) return false;
  const std::string& why = job.reason;
  return why == "Resources" || why == "Priority" || why == "ReqNodeNotAvail" || why.starts_with("ReqNodeNotAvail, UnavailableNodes") || why.starts_with("Nodes required for job are DOWN");
}
bool never_fits(const SlurmQueued& job) { return job.reason == "PartitionConfig" || job.reason == "BadConstraints" || job.reason == "PartitionNodeLimit"; }

// Tasks of an array that wait, by "7_[0-3,8%2]": how many at once. An array that Slurm's limit of its own tasks holds back has that as its reason.
int tasks_at_once(const std::string& id) {
  const auto open = id.find('['), close = id.find(']');
  if (open == id.npos || close == id.npos || close < open) return 1;
  std::string inside = id.substr(open + 1, close - open - 1);
  std::int64_t limit = kQueueLooked, count = 0;
  if (const auto percent = inside.find('%'); percent != inside.npos) {
    limit = worker_ordinal(std::string_view(inside).substr(percent + 1), "").value_or(1);
    inside.resize(percent);
  }
  for (const auto& range : split(inside, ',')) {
    const auto step = range.find(':');
    const auto dash = range.find('-');
    const auto from = worker_ordinal(std::string_view(range).substr(0, dash), "");
    const auto to = dash == range.npos ? from : worker_ordinal(std::string_view(range).substr(dash + 1, step == range.npos ? step : step - dash - 1), "");
    const auto by = step == range.npos ? std::optional<int>(1) : worker_ordinal(std::string_view(range).substr(step + 1), "");
    if (!from || !to || !by || *by < 1 || *to < *from) continue;  // "...": cut short by squeue
    count += (*to - *from) / *by + 1;
  }
  return static_cast<int>(std::clamp<std::int64_t>(std::min(count, limit), 1, kQueueLooked));
}

// A worker that jobs may be given to, or may be when it is there.
struct Place {
  std::size_t set = 0;
  int ordinal = 0;
  const SlurmNode* node = nullptr;
  int distance = 0;  // 0: serves; 1: wanted and on its way; 2: would have to come
  SlurmRoom free;
  bool mine = false;  // kept for a job that goes before
};

class Sizer {
 public:
  explicit Sizer(const SizeInput& in) : in_(in) {
    for (const SizeSet& set : in.sets) {
      memory_.push_back(read_memory(memory_of(in.memory, set.name)));
      Memory& one = memory_.back();
      one.size = set.rules ? size_in_force(set, in.memory) : set.size;
      if (one.until && in.now >= *one.until) one.until.reset();
    }
  }

  SizePlan run() {
    if (std::none_of(in_.sets.begin(), in_.sets.end(), [](const auto& set) { return set.rules.has_value(); })) return {};
    if (!in_.view) {
      tell(false, "SlurmSilent", "Slurm does not say what waits; every number stays as it is");
    } else if (!in_.view->has_queue) {
      tell(false, "QueueUnknown", "the companion in the head is of a version before this one and does not tell what waits; every number stays as it is");
    } else {
      for (std::size_t i = 0; i < in_.sets.size(); ++i)
        if (in_.sets[i].rules) note_missing(i);
      plan_queue();
      for (std::size_t i = 0; i < in_.sets.size(); ++i)
        if (in_.sets[i].rules) choose(i);
    }
    return finish();
  }

 private:
  std::string worker(std::size_t set, int ordinal) const { return fmt::format("{}-{}", in_.sets[set].name, ordinal); }
  const SlurmNode* node(std::size_t set, int ordinal) const {
    const auto found = in_.view->nodes.find(worker(set, ordinal));
    return found == in_.view->nodes.end() ? nullptr : &found->second;
  }
  static bool ours(const SlurmNode& of) { return of.has("DRAIN") && !of.failing() && of.reason.starts_with(kScaleDownReason); }
  static bool serves(const SlurmNode& of) { return !of.has("DOWN") && !of.has("NOT_RESPONDING") && !of.has("FUTURE") && (!of.drained() || ours(of)); }
  static bool busy(const SlurmNode& of) { return of.cpus > 0 || of.has("ALLOCATED") || of.has("MIXED") || of.has("COMPLETING"); }

  // Somebody's work, and not a check alone.
  bool works(const SlurmNode& of) const {
    const auto jobs = in_.view->jobs_on(of.name);
    return busy(of) && (jobs.empty() || std::any_of(jobs.begin(), jobs.end(), [](const auto* job) { return job->user != kChecks; }));
  }

  std::set<int> wanted_now(std::size_t set) const {
    std::set<int> out;
    if (!in_.sets[set].strict && !in_.sets[set].current.empty()) out.insert(in_.sets[set].current.begin(), in_.sets[set].current.end());
    else
      for (int i = 0; i < *memory_[set].size; ++i) out.insert(i);
    return out;
  }

  // Workers that were asked for and do not come: what could not be placed in time is given back, and tried again later.
  void note_missing(std::size_t i) {
    Memory& memory = memory_[i];
    const auto& rules = *in_.sets[i].rules;
    std::map<int, Instant> missing;
    int serving = 0;
    bool late = false;
    for (const int ordinal : wanted_now(i)) {
      const SlurmNode* of = node(i, ordinal);
      // One that a person drained is there: it is not placement that it lacks.
      if (of && in_.sets[i].ready.contains(ordinal) && (serves(*of) || of->drained())) {
        ++serving;
        continue;
      }
      const auto before = memory.missing.find(ordinal);
      const Instant since = before == memory.missing.end() || before->second > in_.now ? in_.now : before->second;
      missing[ordinal] = since;
      late = late || in_.now >= since + rules.place_within;
    }
    if (missing.empty() && memory.placed && serving > *memory.placed) memory.attempts = 0, memory.placed.reset();
    memory.missing = std::move(missing);
    if (!late || memory.until || *memory.size <= rules.min) return;
    auto wait = std::chrono::duration_cast<std::chrono::nanoseconds>(rules.place_within);
    for (int n = 0; n < memory.attempts && wait < kLongestBackOff; ++n) wait *= 2;
    memory.placed = std::max(rules.min, serving);
    memory.until = in_.now + std::min<std::chrono::nanoseconds>(wait, kLongestBackOff);
    memory.attempts = std::min(memory.attempts + 1, 100);
    given_back_.insert(i);
  }

  int most(std::size_t set) const {
    const auto& one = in_.sets[set];
    if (!one.rules) return one.size;
    return memory_[set].until ? std::min(one.rules->max, std::max(*memory_[set].placed, one.rules->min)) : one.rules->max;
  }

  void find_places() {
    for (std::size_t i = 0; i < in_.sets.size(); ++i) {
      const auto wanted = wanted_now(i);
      const int bound = in_.sets[i].rules ? in_.sets[i].rules->max : api::kMaxSize;
      for (auto at = in_.view->nodes.lower_bound(in_.sets[i].name + "-"); at != in_.view->nodes.end() && at->first.starts_with(in_.sets[i].name + "-"); ++at) {
        const auto ordinal = worker_ordinal(at->first, in_.sets[i].name + "-");
        const SlurmNode& of = at->second;
        if (!ordinal || *ordinal >= bound || (of.drained() && !ours(of)) || (!in_.sets[i].rules && !wanted.contains(*ordinal))) continue;
        const bool there = serves(of) && in_.sets[i].ready.contains(*ordinal);
        SlurmRoom free = of.total;
        free.cpus -= of.given.cpus, free.memory -= of.given.memory, free.gpus -= of.given.gpus;
        places_.push_back({i, *ordinal, &of, there && wanted.contains(*ordinal) ? 0 : wanted.contains(*ordinal) || there ? 1 : 2, free, false});
      }
    }
    std::sort(places_.begin(), places_.end(), [](const Place& a, const Place& b) { return std::tie(a.distance, a.set, a.ordinal) < std::tie(b.distance, b.set, b.ordinal); });
  }

  // The places for one job (or a part of one that begins together with the others), at most as many workers as there may be; empty: none.
  enum class By { Free, Total };
  std::vector<std::size_t> fit(const SlurmQueued& job, By by, bool back_off, bool& understood) const {
    std::vector<std::size_t> able;
    std::map<std::size_t, int> used, more;
    for (std::size_t i = 0; i < in_.sets.size(); ++i) used[i] = static_cast<int>(kept_[i].size());
    for (std::size_t i = 0; i < places_.size(); ++i) {
      const Place& place = places_[i];
      const SlurmNode& of = *place.node;
      if (place.mine) continue;
      if (!job.partitions.empty() && std::none_of(job.partitions.begin(), job.partitions.end(), [&](const auto& one) { return std::find(of.partitions.begin(), of.partitions.end(), one) != of.partitions.end(); })) continue;
      if (std::find(job.excluded.begin(), job.excluded.end(), of.name) != job.excluded.end()) continue;
      const auto has = has_features(of, job.features);
      if (!has) understood = false;
      if (!has || !*has) continue;
      able.push_back(i);
    }
    const auto required = [&](std::size_t i) { return std::find(job.requested.begin(), job.requested.end(), places_[i].node->name) != job.requested.end(); };
    std::stable_partition(able.begin(), able.end(), required);
    // With fewer the share of each is too large for any of them; how much larger the number must be where workers differ is tried within reason.
    SlurmRoom most_of;
    for (const std::size_t i : able) {
      const SlurmRoom& one = places_[i].node->total;
      most_of = {std::max(most_of.cpus, one.cpus), std::max(most_of.memory, one.memory), std::max(most_of.gpus, one.gpus)};
    }
    std::int64_t count = std::max(1, job.nodes);
    for (const auto member : {&SlurmRoom::cpus, &SlurmRoom::memory, &SlurmRoom::gpus}) {
      if (job.room.*member == 0) continue;
      if (most_of.*member == 0) return {};
      count = std::max(count, (job.room.*member + most_of.*member - 1) / (most_of.*member));
    }
    for (const std::int64_t first = count; count < first + kTries && count <= static_cast<std::int64_t>(able.size()); ++count) {
      const SlurmRoom each = share(job.room, count);
      std::vector<std::size_t> out;
      more.clear();
      for (const std::size_t i : able) {
        const Place& place = places_[i];
        if (static_cast<std::int64_t>(out.size()) == count) break;
        if (!fits(each, by == By::Free ? place.free : place.node->total)) continue;
        if (by == By::Free && job.exclusive && place.free != place.node->total) continue;
        if (place.distance > 0 && back_off && in_.sets[place.set].rules && !kept_[place.set].contains(place.ordinal)) {
          const int there = in_.sets[place.set].strict ? place.ordinal : used[place.set] + more[place.set];
          if (there >= most(place.set)) continue;
          ++more[place.set];
        }
        out.push_back(i);
      }
      const bool all = std::all_of(job.requested.begin(), job.requested.end(), [&](const auto& name) { return std::any_of(out.begin(), out.end(), [&](std::size_t i) { return places_[i].node->name == name; }); });
      if (static_cast<std::int64_t>(out.size()) == count && all) return out;
      if (job.room.cpus <= count && job.room.memory <= count && job.room.gpus <= count) break;  // shares do not get smaller
    }
    return {};
  }

  void take(const SlurmQueued& job, const std::vector<std::size_t>& where, bool whole) {
    const SlurmRoom each = share(job.room, static_cast<std::int64_t>(where.size()));
    for (const std::size_t i : where) {
      Place& place = places_[i];
      place.free.cpus -= each.cpus, place.free.memory -= each.memory, place.free.gpus -= each.gpus;
      if (job.exclusive) place.free = {};
      place.mine = place.mine || whole;
      kept_[place.set].insert(place.ordinal);
    }
  }

  // Components of one job ("7+0", "7+1") and tasks of an array that wait.
  void plan_queue() {
    find_places();
    kept_.assign(in_.sets.size(), {});
    for (const Place& place : places_)
      if (works(*place.node) && serves(*place.node)) kept_[place.set].insert(place.ordinal);
    const auto& queue = in_.view->queue;
    std::set<std::string> blocked;  // partitions whose first job waits for workers that are busy: nobody behind it is to keep it from them
    for (std::size_t i = 0; i < queue.size(); ++i) {
      std::vector<const SlurmQueued*> parts = {&queue[i]};
      if (const auto plus = queue[i].id.find('+'); plus != std::string::npos) {
        if (i > 0 && queue[i - 1].id.starts_with(queue[i].id.substr(0, plus + 1))) continue;
        for (std::size_t j = i + 1; j < queue.size() && queue[j].id.starts_with(queue[i].id.substr(0, plus + 1)); ++j) parts.push_back(&queue[j]);
      }
      if (never_fits(queue[i])) {
        too_large_.push_back(named(queue[i]));
        continue;
      }
      if (!std::all_of(parts.begin(), parts.end(), [](const auto* part) { return waits_for_workers(*part); })) continue;
      for (int task = tasks_at_once(queue[i].id); task > 0; --task)
        if (!plan_job(parts, blocked)) break;
    }
  }

  bool plan_job(const std::vector<const SlurmQueued*>& parts, std::set<std::string>& blocked) {
    bool understood = true;
    // All of it or nothing: what was taken for the parts before is given back.
    const auto all = [&](By by, bool back_off, bool whole) {
      const auto places = places_;
      const auto kept = kept_;
      for (const auto* part : parts) {
        const auto where = fit(*part, by, back_off, understood);
        if (where.empty()) {
          places_ = places, kept_ = kept;
          return false;
        }
        take(*part, where, whole);
      }
      return true;
    };
    const auto before = kept_;
    if (all(By::Free, true, false)) return note_growth(*parts.front(), before), true;
    const std::string partition = fmt::format("{}", fmt::join(parts.front()->partitions, ","));
    // The first one of a partition gets all that it needs beside what is busy, or smaller jobs would keep it waiting for ever: Slurm holds nothing back for a job whose workers are not there.
    if (!blocked.contains(partition) && all(By::Total, true, true)) {
      blocked.insert(partition);
      return note_growth(*parts.front(), before), false;
    }
    if (blocked.contains(partition)) return false;
    const auto places = places_;
    const auto kept = kept_;
    const bool later = all(By::Total, false, false);
    places_ = places, kept_ = kept;
    if (later) held_back_.push_back(named(*parts.front()));
    else if (!understood) unread_.push_back(named(*parts.front()));
    else too_large_.push_back(named(*parts.front()));
    return false;
  }

  static std::string named(const SlurmQueued& job) { return fmt::format("job {} of {} ({} node{}, {} CPUs{})", job.id, job.user, job.nodes, job.nodes == 1 ? "" : "s", job.room.cpus, job.room.gpus > 0 ? fmt::format(", {} GPUs", job.room.gpus) : ""); }

  void note_growth(const SlurmQueued& job, const std::vector<std::set<int>>& before) {
    for (std::size_t i = 0; i < kept_.size(); ++i) {
      if (!in_.sets[i].rules) continue;
      const auto wanted = wanted_now(i);
      for (const int ordinal : kept_[i])
        if (!before[i].contains(ordinal) && !(wanted.contains(ordinal) && in_.sets[i].ready.contains(ordinal))) {
          coming_.push_back(named(job));
          return;
        }
    }
  }

  // The size of one set: what is needed, and what is there and was needed until a moment ago.
  void choose(std::size_t i) {
    const SizeSet& set = in_.sets[i];
    const auto& rules = *set.rules;
    Memory& memory = memory_[i];
    const bool given_back = given_back_.contains(i);
    std::set<int> stay = kept_[i];
    std::map<int, Instant> unused;
    for (const int ordinal : wanted_now(i)) {
      if (stay.contains(ordinal)) continue;
      const SlurmNode* of = node(i, ordinal);
      const bool runs = of && set.ready.contains(ordinal) && (busy(*of) || !in_.view->jobs_on(of->name).empty());
      const auto before = memory.unused.find(ordinal);
      const Instant since = before == memory.unused.end() || before->second > in_.now ? in_.now : before->second;
      if (runs) {
        stay.insert(ordinal);
        if (!works(*of)) unused[ordinal] = since;
      } else if (!given_back && in_.now < since + rules.idle && !(memory.until && !set.ready.contains(ordinal))) {
        stay.insert(ordinal);
        unused[ordinal] = since;
      }
    }
    int size = set.strict ? (stay.empty() ? 0 : *stay.rbegin() + 1) : static_cast<int>(stay.size());
    size = std::clamp(size, rules.min, rules.max);
    // Those that stay only since one behind them does keep what is known of them.
    for (const auto& [ordinal, since] : memory.unused)
      if (ordinal < size && !kept_[i].contains(ordinal)) unused.emplace(ordinal, since);
    memory.unused = std::move(unused);
    std::erase_if(memory.missing, [&](const auto& one) { return set.strict && one.first >= size; });
    if (set.strict)
      for (int ordinal = *memory.size; ordinal < size; ++ordinal)
        if (const SlurmNode* of = node(i, ordinal); !of || !serves(*of) || !set.ready.contains(ordinal)) memory.missing.emplace(ordinal, in_.now);
    memory.size = size;
  }

  void tell(bool well, std::string reason, std::string message) {
    plan_.well = well, plan_.reason = std::move(reason), plan_.message = std::move(message);
  }
  static std::string list(const std::vector<std::string>& names) {
    const std::size_t shown = std::min(names.size(), kMostTold);
    return fmt::format("{}{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "), names.size() > shown ? fmt::format(" and {} more", names.size() - shown) : "");
  }

  SizePlan finish() {
    Json sets = Json::array();
    std::vector<std::string> lines;
    bool placed = true;
    for (std::size_t i = 0; i < in_.sets.size(); ++i) {
      const SizeSet& set = in_.sets[i];
      if (!set.rules) continue;
      const Memory& memory = memory_[i];
      plan_.sizes[set.name] = *memory.size;
      sets.push(print_memory(set.name, memory));
      lines.push_back(fmt::format("{}: {} workers ({} to {})", set.name, *memory.size, set.rules->min, set.rules->max));
      if (memory.until) {
        placed = false;
        lines.push_back(fmt::format("not all workers of {} came within {} s, and what was made in vain is given back; more than {} are tried again at {}", set.name, std::chrono::duration_cast<std::chrono::seconds>(set.rules->place_within).count(), *memory.placed,
                                    print_time(*memory.until)));
      }
    }
    if (!coming_.empty()) lines.push_back("workers come for " + list(coming_));
    if (!held_back_.empty()) lines.push_back("until then wait " + list(held_back_));
    if (!too_large_.empty()) lines.push_back(fmt::format("no number within the bounds lets these begin: {}; raise max, or ask for less (scontrol update jobid=N numnodes=M; scontrol release N if Slurm holds it)", list(too_large_)));
    if (!unread_.empty()) lines.push_back("not understood, so no worker comes for it: the features of " + list(unread_));
    if (plan_.reason.empty()) tell(placed && too_large_.empty(), !placed ? "NotPlaced" : !too_large_.empty() ? "JobsTooLarge" : "FollowsTheQueue", "");
    lines.insert(lines.begin(), plan_.message);
    std::erase(lines, "");
    plan_.message = fmt::format("{}", fmt::join(lines, "; "));
    plan_.memory = Json::object({{"sets", std::move(sets)}});
    return std::move(plan_);
  }

  const SizeInput& in_;
  std::vector<Memory> memory_;
  std::vector<Place> places_;
  std::vector<std::set<int>> kept_;  // by set: workers that jobs have or are to have
  std::set<std::size_t> given_back_;
  std::vector<std::string> coming_, held_back_, too_large_, unread_;
  SizePlan plan_;
};

}  // namespace

int size_in_force(const SizeSet& set, const Json& memory) {
  if (!set.rules) return set.size;
  if (const auto size = read_memory(memory_of(memory, set.name)).size) return std::clamp(*size, set.rules->min, set.rules->max);
  return std::clamp(set.pods.empty() ? 0 : *set.pods.rbegin() + 1, set.rules->min, set.rules->max);
}

SizePlan plan_size(const SizeInput& input) { return Sizer(input).run(); }

}  // namespace fairlead::slurm
