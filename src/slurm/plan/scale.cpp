// SPDX-License-Identifier: Apache-2.0
#include "slurm/plan/scale.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <tuple>

namespace fairlead::slurm {
namespace {

using kube::Json;

constexpr auto kPoll = std::chrono::seconds(3), kSlowPoll = std::chrono::seconds(10);
constexpr auto kBetweenLooks = std::chrono::seconds(1);
constexpr auto kSecondLook = std::chrono::milliseconds(1100);  // after the first: so much later that it counts
constexpr auto kDownForGood = std::chrono::seconds(300);  // of a record that may be of somebody's own node

bool over(const Json& pod) {
  const std::string& phase = pod["status"]["phase"].string();
  return phase == "Failed" || phase == "Succeeded";
}
// On no machine: nothing of it can run anywhere. What a kubelet reports of the others may be late.
bool nowhere(const Json& pod) { return pod["spec"]["nodeName"].string().empty() && never_began(pod); }
bool ready(const Json& pod) { return !kube::deleting(pod) && kube::condition_is_true(pod, "Ready"); }

// What is remembered of a worker, in status.scaleDown.workers.
struct Entry {
  std::string uid, state;      // of its pod; state: design 006
  std::optional<Instant> since;          // when the operator first saw it beyond the size, by its own clock
  std::optional<Instant> drained_since;  // when it first saw that it gets no new jobs, without a break until now
  std::string drain;                     // which drain that was: when it was set, by the head's clock
  std::optional<Instant> seen;           // when Slurm first showed it empty, by the head's clock; since then at every look
  bool renewal = false;        // it waits to be made anew: that wait is none for a policy's deadline
  void wanted() { since.reset(), drained_since.reset(), seen.reset(); }  // all waiting begins anew
};

std::map<int, Entry> read_entries(const Json& memory, const std::string& prefix) {
  std::map<int, Entry> out;
  const auto time = [](const Json& text) -> std::optional<Instant> {
    auto parsed = parse_time(text.string());
    if (!parsed) return std::nullopt;
    return *parsed;
  };
  for (const Json& from : memory["workers"].items())
    if (const auto ordinal = worker_ordinal(from["name"].string(), prefix))
      out[*ordinal] = {from["uid"].string(), from["state"].string(), time(from["since"]), time(from["drainedSince"]), from["drainSet"].string(), time(from["emptySeen"]), from["renewal"].boolean()};
  return out;
}

Json entry_json(std::string name, const Entry& entry) {
  Json out = Json::object({{"name", std::move(name)}, {"state", entry.state}});
  if (!entry.uid.empty()) out.set("uid", entry.uid);
  if (entry.since) out.set("since", print_time(*entry.since));
  if (entry.drained_since) out.set("drainedSince", print_time(*entry.drained_since));
  if (!entry.drain.empty()) out.set("drainSet", entry.drain);
  if (entry.renewal) out.set("renewal", true);
  if (entry.seen) out.set("emptySeen", print_micro_time(*entry.seen));
  return out;
}

class Scaler {
 public:
  explicit Scaler(const ScaleInput& in) : in_(in), old_(read_entries(in.memory, in.prefix)) {
    // One edit since the last plan cannot have wanted a worker that was beyond the size before it and is after it; two can.
    const std::int64_t planned = in.memory["plannedGeneration"].integer(in.generation);
    if (in.generation < planned || in.generation > planned + 1)
      for (auto& [ordinal, entry] : old_) entry.wanted();
  }

  ScalePlan run() {
    plan_.ordinals = choose();
    wanted_.insert(plan_.ordinals.begin(), plan_.ordinals.end());
    std::set<int> all = wanted_;
    for (const auto& [ordinal, pod] : in_.pods) all.insert(ordinal);
    for (const auto& [ordinal, entry] : old_) all.insert(ordinal);
    if (in_.view)
      for (const auto& [name, node] : in_.view->nodes)
        if (const auto ordinal = worker_ordinal(name, in_.prefix)) all.insert(*ordinal);
    expect();
    choose_renewals();
    for (const int ordinal : all) {
      if (wanted_.contains(ordinal) && !renewals_.contains(ordinal)) returning(ordinal);
      else leaving(ordinal);
    }
    name_waiting_jobs();
    remember();
    return std::move(plan_);
  }

  // Which workers stay, before Slurm is asked: strict ones follow from the size.
  std::vector<int> choose() const {
    if (in_.rules.strict_ordinals) return first(in_.size);
    std::vector<int> current = remembered();
    const auto size = static_cast<std::size_t>(in_.size);
    std::vector<int> leaving;  // may come back: their pods are there
    for (const auto& [ordinal, pod] : in_.pods)
      if (std::find(current.begin(), current.end(), ordinal) == current.end() && !kube::deleting(*pod) && !over(*pod)) leaving.push_back(ordinal);
    if (in_.view && current.size() + leaving.size() > size) return best_of(std::move(current), leaving, size);
    // Without Slurm only those go that never ran.
    for (auto at = current.end(); current.size() > size && at != current.begin();)
      if (--at; never_ran(*at)) at = current.erase(at);
    for (const int ordinal : leaving)
      if (current.size() < size) current.push_back(ordinal);
    for (int i = 0; current.size() < size; ++i)
      if (std::find(current.begin(), current.end(), i) == current.end()) current.push_back(i);
    std::sort(current.begin(), current.end());
    return current;
  }

 private:
  std::string worker(int ordinal) const { return fmt::format("{}{}", in_.prefix, ordinal); }
  static std::vector<int> first(int size) {
    std::vector<int> out;
    for (int i = 0; i < size; ++i) out.push_back(i);
    return out;
  }

  std::vector<int> remembered() const {
    std::vector<int> out;
    const Json& list = in_.memory["ordinals"];
    if (list.is_array()) {
      for (const Json& one : list.items())
        if (one.integer(-1) >= 0) out.push_back(static_cast<int>(one.integer()));
    } else if (in_.pods.empty()) {
      return first(in_.size);
    } else {
      for (const auto& [ordinal, pod] : in_.pods)
        if (!old_.contains(ordinal)) out.push_back(ordinal);
    }
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
  }

  const Json* pod(int ordinal) const {
    const auto found = in_.pods.find(ordinal);
    return found == in_.pods.end() ? nullptr : found->second;
  }
  const SlurmNode* node(int ordinal) const {
    if (!in_.view) return nullptr;
    const auto found = in_.view->nodes.find(worker(ordinal));
    return found == in_.view->nodes.end() ? nullptr : &found->second;
  }
  bool never_ran(int ordinal) const {
    const Json* its = pod(ordinal);
    return its ? !kube::deleting(*its) && nowhere(*its) : !in_.taken.contains(ordinal);
  }

  // The victims first: those that are named; out of service and empty; idle; busy, the shortest time left first. Who leaves already stays a victim among equals, then the highest ordinal.
  std::vector<int> best_of(std::vector<int> current, const std::vector<int>& leaving, std::size_t size) const {
    using Rank = std::tuple<int, int, std::chrono::nanoseconds, int, int>;
    std::vector<Rank> pool;
    const auto rank = [&](int ordinal, bool leaves) {
      const Json* its = pod(ordinal);
      const SlurmNode* of = node(ordinal);
      const bool empty = !of || is_empty(*in_.view, *of);
      const bool out_of_service = !its || !ready(*its) || !of || of->drained() || of->has("DOWN") || of->has("NOT_RESPONDING");
      auto left = std::chrono::nanoseconds::zero();
      if (of)
        for (const SlurmJob* job : in_.view->jobs_on(of->name)) left = std::max(left, job->end ? *job->end - in_.view->at : std::chrono::nanoseconds::max());
      pool.emplace_back(in_.first.contains(ordinal) ? -1 : !empty ? 2 : out_of_service ? 0 : 1, leaves ? 0 : 1, left, -ordinal, ordinal);
    };
    for (const int ordinal : current) rank(ordinal, false);
    for (const int ordinal : leaving) rank(ordinal, true);
    std::sort(pool.begin(), pool.end());
    std::vector<int> out;
    for (auto at = pool.end() - static_cast<std::ptrdiff_t>(size); at != pool.end(); ++at) out.push_back(std::get<4>(*at));
    std::sort(out.begin(), out.end());
    return out;
  }

  // Of those that are to be made anew, whose turn it is: who has begun, then the empty ones, then the busy ones, the shortest time left first. Those that have not come back yet count, so that what does not start stops the rest;
  // who waits for a long job holds up no empty one.
  void choose_renewals() {
    using Rank = std::tuple<bool, bool, std::chrono::nanoseconds, int>;
    std::vector<Rank> pool;
    std::size_t room = std::max<std::size_t>(1, wanted_.size() / 10), room_for_empty = room;
    const auto take = [&](bool busy) {
      room -= std::min<std::size_t>(room, 1);
      if (!busy) room_for_empty -= std::min<std::size_t>(room_for_empty, 1);
    };
    for (const int ordinal : wanted_) {
      const Json* its = pod(ordinal);
      if (in_.renew.contains(ordinal) && its) {
        const Entry* before = remembered_entry(ordinal);
        const bool begun = before && before->since && before->uid == kube::uid_of(*its);
        const SlurmNode* of = node(ordinal);
        if (!begun && (!of || !ready(*its)) && !in_.moved.contains(ordinal)) continue;  // nobody knows what runs there; or it has troubles of its own
        auto left = std::chrono::nanoseconds::zero();
        if (of)
          for (const SlurmJob* job : in_.view->jobs_on(of->name)) left = std::max(left, job->end ? *job->end - in_.view->at : std::chrono::nanoseconds::max());
        pool.emplace_back(!begun, !of || !is_empty(*in_.view, *of), left, ordinal);
      } else if (const SlurmNode* of = node(ordinal); (of && is_ours(*of)) || (!in_.view && remembered_entry(ordinal))) {
        take(false);
      }
    }
    std::sort(pool.begin(), pool.end());
    std::vector<std::string> waiting;
    for (const auto& [not_begun, busy, left, ordinal] : pool) {
      if (in_.together.contains(ordinal)) {
        renewals_.insert(ordinal);
      } else if (!not_begun || (busy ? room > 0 && waiting.empty() : room_for_empty > 0)) {
        renewals_.insert(ordinal);
        take(busy);
      } else waiting.push_back(worker(ordinal));
    }
    if (const std::size_t rest = waiting.size() > 5 ? waiting.size() - 5 : 0; !waiting.empty()) {
      if (rest) waiting.resize(5);
      plan_.notes.push_back(fmt::format("{}{} {}{} when others have come back", fmt::join(waiting, ", "), rest ? fmt::format(" and {} more", rest) : "", waiting.size() == 1 ? "is made anew" : "are made anew", in_.moved.empty() ? " for other mounts" : ""));
    }
  }
  const char* is_beyond(int ordinal) const { return !renewals_.contains(ordinal) ? "is beyond the size" : in_.moved.contains(ordinal) ? "is to be made anew, since its machine is to be empty" : "is to be made anew for other mounts"; }

  static bool is_ours(const SlurmNode& of) { return of.has("DRAIN") && !of.failing() && of.reason.starts_with(kScaleDownReason); }

  Entry* remembered_entry(int ordinal) {
    const auto found = old_.find(ordinal);
    return found == old_.end() ? nullptr : &found->second;
  }
  void keep(int ordinal, Entry entry, std::string state, std::string note) {
    if (entry.state != state) entry.state = std::move(state);
    if (!note.empty()) plan_.notes.push_back(std::move(note));
    next_[ordinal] = std::move(entry);
  }
  void tell(NodeVerb verb, int ordinal, std::vector<std::string> arguments = {}) { plan_.steps.push_back(TellSlurm{verb, worker(ordinal), std::move(arguments)}); }
  void drain(int ordinal) { tell(NodeVerb::Drain, ordinal, {fmt::format("{} of {} generation {}{}", kScaleDownReason, in_.cluster_uid.substr(0, 8), in_.generation, !renewals_.contains(ordinal) ? "" : in_.moved.contains(ordinal) ? ", its machine is to be empty" : ", made anew for other mounts")}); }

  // The second look, so much later than the first, that shows the same.
  bool seen_twice(Entry& entry, std::chrono::seconds between = kBetweenLooks) const {
    if (entry.seen && in_.view->at >= *entry.seen + between) return true;
    if (!entry.seen || in_.view->at < *entry.seen) entry.seen = in_.view->at;
    return false;
  }

  // A wanted worker: what is left of a scale-down of ours is taken back, and nothing else is touched.
  void returning(int ordinal) {
    Entry* before = remembered_entry(ordinal);
    Entry entry = before ? *before : Entry{};
    entry.wanted();
    if (!in_.view) {
      if (before) keep(ordinal, std::move(entry), "Returning", "");
      return;
    }
    const SlurmNode* of = node(ordinal);
    if (!of || !is_ours(*of)) return;
    const Json* its = pod(ordinal);
    if (its && ready(*its) && of->answers) tell(NodeVerb::Undrain, ordinal);
    keep(ordinal, std::move(entry), "Returning", fmt::format("{} is wanted again and takes jobs when its slurmd answers", worker(ordinal)));
  }

  void leaving(int ordinal) {
    const Json* its = pod(ordinal);
    Entry* before = remembered_entry(ordinal);
    if (!its) return in_.taken.contains(ordinal) ? taken(ordinal, before) : record(ordinal, before);
    Entry entry = before && before->state != "Found" && before->uid == kube::uid_of(*its) ? *before : Entry{};  // of another pod nothing counts
    if (const bool renewal = renewals_.contains(ordinal); entry.renewal != renewal) {
      entry.wanted();
      entry.renewal = renewal;
    }
    if (!entry.since) entry.since = in_.now;
    entry.uid = kube::uid_of(*its);
    if (kube::deleting(*its)) return keep(ordinal, std::move(entry), "Ending", fmt::format("{} is ending", worker(ordinal)));
    const SlurmNode* of = node(ordinal);
    // Kubernetes alone proves no more than that a pod is on no machine. That one is Pending or over it says of lost and half-started ones, too: Slurm must agree.
    if (!of && nowhere(*its)) {
      plan_.steps.push_back(EndPod{ordinal, fmt::format("it {} and never ran", is_beyond(ordinal))});
      return keep(ordinal, std::move(entry), "Ending", "");
    }
    const std::string state = entry.state == "Drained" || entry.state == "Unregistered" ? entry.state : "Draining";
    if (!in_.view) return keep(ordinal, std::move(entry), state, fmt::format("{} {} and kept: Slurm does not say what runs there", worker(ordinal), is_beyond(ordinal)));
    if (!of) return unregistered(ordinal, *its, std::move(entry));
    if (!of->drained()) {
      entry.seen.reset();
      entry.drained_since.reset();
      drain(ordinal);
      soon_ = soon_ || (entry.state != "Draining" && is_empty(*in_.view, *of));  // the first time: an order that is refused is not repeated faster
      return keep(ordinal, std::move(entry), "Draining", fmt::format("{} is being drained", worker(ordinal)));
    }
    if (!entry.drained_since || entry.drain != of->since) entry.drained_since = in_.now;  // another drain: jobs may have begun before it
    entry.drain = of->since;
    if (is_empty(*in_.view, *of)) return proven(ordinal, std::move(entry), "Drained", "is drained and empty");
    entry.seen.reset();
    waiting(ordinal, *of, std::move(entry));
  }

  void unregistered(int ordinal, const Json& its, Entry entry) {
    entry.drained_since.reset();
    if (!ready(its)) return proven(ordinal, std::move(entry), "Unregistered", "is not ready, and Slurm does not know it");
    entry.seen.reset();
    keep(ordinal, std::move(entry), "Draining", fmt::format("{} {} and kept: it is ready, but Slurm does not know it", worker(ordinal), is_beyond(ordinal)));
  }

  void proven(int ordinal, Entry entry, const char* state, const char* words) {
    if (entry.state != state) entry.seen.reset();  // both looks must show the same
    if (seen_twice(entry)) plan_.steps.push_back(EndPod{ordinal, fmt::format("it {}, and Slurm showed it empty twice", is_beyond(ordinal))});
    else soon_ = true;
    keep(ordinal, std::move(entry), state, fmt::format("{} {}", worker(ordinal), words));
  }

  void waiting(int ordinal, const SlurmNode& of, Entry entry) {
    std::vector<std::string> jobs, ids;
    for (const SlurmJob* job : in_.view->jobs_on(of.name)) {
      jobs.push_back(fmt::format("{} of {} ({})", job->id, job->user, job->end ? "until " + print_time(*job->end) : "without a time limit"));
      if (job->state != "COMPLETING") ids.push_back(job->id);
    }
    std::string note = fmt::format("{} is drained{} and waits for {}", worker(ordinal), is_ours(of) ? "" : fmt::format(" by {} ({})", of.by, of.reason),
                                   jobs.empty() ? "its last job to end" : fmt::format("{} {}", jobs.size() == 1 ? "job" : "jobs", fmt::join(jobs, ", ")));
    // Of a node that its owner expects to fail the jobs are the owner's matter, too.
    // Other mounts end no job, whatever the policy.
    if (in_.rules.policy != api::SlurmScaleDown::Policy::Wait && !jobs.empty() && !of.failing() && (!renewals_.contains(ordinal) || in_.moved.contains(ordinal))) {
      // Nobody waits for a worker that could still be given jobs: these would be ended minutes old.
      const Instant deadline = std::max(*entry.since, *entry.drained_since) + in_.rules.after;
      const bool requeue = in_.rules.policy == api::SlurmScaleDown::Policy::Requeue;
      note += fmt::format(", which {} {} {}", jobs.size() == 1 ? "is" : "are", requeue ? "put back into the queue at" : "cancelled at", print_time(deadline));
      if (in_.now >= deadline && !ids.empty()) tell(requeue ? NodeVerb::Requeue : NodeVerb::Cancel, ordinal, std::move(ids));
    }
    keep(ordinal, std::move(entry), "Draining", std::move(note));
  }

  // Whose the pod is cannot be told, so neither can what runs there.
  void taken(int ordinal, Entry* before) {
    if (before) keep(ordinal, Entry{}, "Found", fmt::format("{} is a pod without the label or the owner of this cluster: what Slurm knows of it is left as it is", worker(ordinal)));
  }

  // No Pod object is there.
  // "CPUs=4 ... RealMemory=1024": of a worker that was defined otherwise, the record is made anew.
  void read_definition() {
    const auto value = [&](std::string_view key) -> std::int64_t {
      const auto at = in_.definition.find(key);
      return at == std::string::npos ? -1 : worker_ordinal(std::string_view(in_.definition).substr(at + key.size(), in_.definition.find(' ', at) - at - key.size()), "").value_or(-1);
    };
    room_ = {value("CPUs="), value("RealMemory="), 0};
    has_room_ = room_.cpus > 0 && room_.memory > 0 && in_.view && in_.view->has_queue;
  }

  // Jobs can wait for workers only that Slurm knows. A few at a time: each is three calls in the head.
  void expect() {
    if (!in_.view || !in_.view->has_queue) return;  // an older companion in the head knows of none
    read_definition();
    constexpr int kAtOnce = 16;
    int missing = 0;
    for (int ordinal = 0; ordinal < in_.expected && missing < kAtOnce; ++ordinal) {
      const SlurmNode* of = node(ordinal);
      // Begun and not finished: it is neither to be used nor down.
      const bool half = of && (of->has("FUTURE") || (of->pod.empty() && of->has("NOT_RESPONDING") && !of->has("DOWN") && !of->drained() && is_empty(*in_.view, *of)));
      const bool stale = of && !half && ordinal >= in_.size && (of->drained() || of->has("DOWN")) && is_empty(*in_.view, *of) && has_room_ && (of->total.cpus != room_.cpus || of->total.memory != room_.memory);
      if ((of && !half && !stale) || in_.pods.contains(ordinal) || in_.taken.contains(ordinal)) continue;
      ++missing;
      tell(NodeVerb::Expect, ordinal, {in_.definition});
    }
    if (missing > 0) plan_.look_again = kPoll;
  }

  void record(int ordinal, Entry* before) {
    if (!in_.view) {
      if (before) keep(ordinal, *before, before->state == "Found" ? "Found" : "RecordLeft", fmt::format("whether Slurm has forgotten {} is not known yet", worker(ordinal)));
      return;
    }
    const SlurmNode* of = node(ordinal);
    if (!of) return;  // done
    // It stays for jobs to wait for; a drain of ours is taken back when a worker of that name is there again. Until then nobody gives it work.
    if (ordinal < in_.expected && is_empty(*in_.view, *of) && (of->drained() || of->has("DOWN"))) return;
    Entry entry = before ? *before : Entry{.state = "Found"};
    const bool found = entry.state == "Found";
    const bool ours = of->has("DRAIN") && (is_ours(*of) || !found);
    if (!is_empty(*in_.view, *of)) {
      entry.seen.reset();
      return keep(ordinal, std::move(entry), found ? "Found" : "RecordLeft", fmt::format("{} has no pod, but Slurm still counts jobs there; its record is deleted when Slurm has ended them", worker(ordinal)));
    }
    // Somebody may run a node of such a name: a moment's silence is no reason to take it away.
    if (!ours && (of->has("DOWN") || (!found && of->has("NOT_RESPONDING")))) {
      if (seen_twice(entry, found ? kDownForGood : kBetweenLooks)) tell(NodeVerb::Forget, ordinal);
      return keep(ordinal, std::move(entry), found ? "Found" : "RecordLeft", fmt::format("the record of {} is deleted{}", worker(ordinal), found ? " when Slurm has called it down for five minutes" : ""));
    }
    if (ours) {
      tell(NodeVerb::Forget, ordinal);
      return keep(ordinal, std::move(entry), "RecordLeft", fmt::format("the record of {} is being deleted", worker(ordinal)));
    }
    entry.seen.reset();
    if (!found && !of->drained()) drain(ordinal);  // nobody may give it work: its pod is gone
    keep(ordinal, std::move(entry), found ? "Found" : "RecordLeft", found ? fmt::format("{} is in Slurm without a pod; its record is deleted when Slurm has called it down for five minutes", worker(ordinal)) : "");
  }

  // Slurm deletes a record also while a pending job insists on it; the job then waits for ever.
  void name_waiting_jobs() {
    if (!in_.view) return;
    std::vector<std::string> lines;
    for (const auto& job : in_.view->jobs) {
      if (!job.nodes.empty()) continue;
      for (const auto& name : job.requested) {
        const auto ordinal = worker_ordinal(name, in_.prefix);
        if (!ordinal || wanted_.contains(*ordinal) || *ordinal < in_.expected) continue;
        lines.push_back(fmt::format("job {} of {} asks for {}, which is taken away: `scontrol update jobid={} reqnodelist=` lets it run elsewhere, `scancel {}` ends it", job.id, job.user, name, job.id, job.id));
        break;
      }
    }
    std::sort(lines.begin(), lines.end());
    const std::size_t rest = lines.size() > 5 ? lines.size() - 5 : 0;
    if (rest) lines.resize(5);
    plan_.jobs = fmt::format("{}{}", fmt::join(lines, "; "), rest ? fmt::format("; and {} more", rest) : "");
  }

  void remember() {
    plan_.memory = Json::object();
    if (in_.view) plan_.memory.set("generation", in_.generation);
    else if (in_.memory.has("generation")) plan_.memory.set("generation", in_.memory["generation"]);
    if (!in_.rules.strict_ordinals) {
      Json list = Json::array();
      for (const int ordinal : plan_.ordinals) list.push(ordinal);
      plan_.memory.set("ordinals", std::move(list));
    }
    Json workers = Json::array();
    bool fast = false;
    for (const auto& [ordinal, entry] : next_) {
      workers.push(entry_json(worker(ordinal), entry));
      fast = fast || entry.state != "Found";
    }
    const bool jobs_wait = plan_.jobs ? !plan_.jobs->empty() : in_.jobs_wait;
    // A Slurm that does not answer is not asked all the time.
    if (soon_ && in_.view) plan_.look_again = kSecondLook;
    else if ((fast || plan_.look_again) && in_.view) plan_.look_again = kPoll;
    else if (!next_.empty() || jobs_wait || (!in_.view && needs_look(in_))) plan_.look_again = kSlowPoll;
    if (next_.empty()) return;
    plan_.memory.set("plannedGeneration", in_.generation);
    plan_.memory.set("workers", std::move(workers));
  }

  const ScaleInput& in_;
  std::map<int, Entry> old_, next_;
  std::set<int> wanted_, renewals_;
  bool soon_ = false;  // what a look just showed, or what was just ordered, is looked at again at once
  SlurmRoom room_;
  bool has_room_ = false;
  ScalePlan plan_;
};

}  // namespace

std::string_view text(NodeVerb verb) {
  switch (verb) {
    case NodeVerb::Drain: return "drain";
    case NodeVerb::Undrain: return "undrain";
    case NodeVerb::Forget: return "forget";
    case NodeVerb::Requeue: return "requeue";
    case NodeVerb::Cancel: return "cancel";
    case NodeVerb::Died: return "died";
    case NodeVerb::Expect: return "expect";
    case NodeVerb::Lift: return "lift";
  }
  return "";
}

std::optional<int> worker_ordinal(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  const std::string_view number = name.substr(prefix.size());
  if (number.empty() || number.size() > 8 || number.find_first_not_of("0123456789") != number.npos || (number.size() > 1 && number[0] == '0')) return std::nullopt;
  int out = 0;
  for (const char digit : number) out = out * 10 + (digit - '0');
  return out;
}

bool never_began(const Json& pod) {
  if (pod["status"]["phase"].string_or("Pending") != "Pending") return false;
  const auto& containers = pod["status"]["containerStatuses"].items();
  return std::none_of(containers.begin(), containers.end(), [](const Json& one) {
    return one["state"]["running"].is_object() || one["state"]["terminated"].is_object() || one["lastState"]["terminated"].is_object() || one["started"].boolean() || one["restartCount"].integer() > 0;
  });
}

std::string nodes_of_interest(const ScaleInput& input) {
  // Who may leave is chosen by the jobs of all, where any worker may.
  if (!input.renew.empty()) return "";
  const int from = input.interest >= 0 ? std::min(input.interest, input.size) : input.size;
  return input.rules.strict_ordinals && from < api::kMaxSize ? fmt::format("{}[{}-{}]", input.prefix, from, api::kMaxSize) : std::string();
}

bool needs_look(const ScaleInput& input) {
  if (input.look_due || input.jobs_wait || !input.renew.empty() || input.memory["generation"].integer(-1) != input.generation || !input.memory["workers"].items().empty()) return true;
  const auto ordinals = Scaler(input).choose();
  if (ordinals.size() != static_cast<std::size_t>(std::max(0, input.size))) return true;
  return std::any_of(input.pods.begin(), input.pods.end(), [&](const auto& one) { return std::find(ordinals.begin(), ordinals.end(), one.first) == ordinals.end(); });
}

ScalePlan plan_scale(const ScaleInput& input) { return Scaler(input).run(); }

}  // namespace fairlead::slurm
