// SPDX-License-Identifier: Apache-2.0
#include "governance/plan/explain_remedies.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <tuple>

#include "governance/plan/kueue_read.h"

namespace fairlead::governance {

using kube::Json;
using kube::ObjectKey;
using Place = Books::Place;

namespace {

const Json* object_of(const Books& books, const FieldChange& change) {
  if (change.kind == "Cohort") return books.cohort(change.key.name);
  if (change.kind == "LocalQueue") return books.local_queue(change.key);
  const auto queue = books.queue_view(change.key.name);
  return queue ? queue->object : nullptr;
}

// A fork in which the remedy is done; none: an object of it is not there.
std::optional<Books> done(const Books& books, const Remedy& remedy) {
  Books fork = books;
  for (const ObjectKey& key : remedy.ending) fork.set_workload(key, Json());
  for (const FieldChange& change : remedy.changes) {
    if (change.kind == "Workload") {
      const auto standing = fork.standing(change.key);
      if (!standing) return std::nullopt;
      Json object = changed(standing->object, change);
      object.child("metadata").set("resourceVersion", "18446744073709551615");  // later than any
      fork.set_workload(change.key, object);
      continue;
    }
    const Json* object = object_of(fork, change);
    if (object == nullptr) return std::nullopt;
    const Json next = changed(*object, change);
    if (change.kind == "ClusterQueue") fork.set_queue(change.key.name, next);
    else if (change.kind == "Cohort") fork.set_cohort(change.key.name, next);
    else fork.set_local_queue(change.key, next);
  }
  if (remedy.waits_until) fork.set_time(*remedy.waits_until);
  fork.decide();
  return fork;
}

bool has_quota(const Books& books, const ObjectKey& workload) {
  const auto standing = books.standing(workload);
  return standing && (standing->place == Place::Running || standing->place == Place::Promised);
}

// Where an object says a quota of the column: "spec.resourceGroups[0].flavors[1].resources[0]".
std::string field_of(const Json& object, const FlavorResource& what) {
  const auto& groups = object["spec"]["resourceGroups"].items();
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (std::size_t f = 0; f < groups[g]["flavors"].items().size(); ++f) {
      const Json& flavor = groups[g]["flavors"].items()[f];
      if (flavor["name"].string() != what.flavor) continue;
      for (std::size_t r = 0; r < flavor["resources"].items().size(); ++r)
        if (flavor["resources"].items()[r]["name"].string() == what.resource) return fmt::format("spec.resourceGroups[{}].flavors[{}].resources[{}]", g, f, r);
    }
  return "";
}

struct Step {  // of a path: a member, then places in arrays
  std::string member;
  std::vector<std::size_t> places;
};
std::vector<Step> steps_of(const std::string& path) {
  std::vector<Step> out;
  for (std::size_t at = 0; at <= path.size();) {
    const std::size_t end = std::min(path.find('.', at), path.size());
    std::string word = path.substr(at, end - at);
    Step step{.member = word.substr(0, word.find('[')), .places = {}};
    for (std::size_t open = word.find('['); open != std::string::npos; open = word.find('[', open + 1)) {
      std::size_t place = 0;
      std::from_chars(word.data() + open + 1, word.data() + word.size(), place);
      step.places.push_back(place);
    }
    out.push_back(std::move(step));
    at = end + 1;
  }
  return out;
}

class Finder {
 public:
  Finder(const Books& books, const ObjectKey& workload) : books_(books), workload_(workload) {}

  void endings(const std::vector<ObjectKey>& candidates) {
    std::size_t singles = 0;
    for (std::size_t i = 0; i < candidates.size() && i < 12 && singles < 5; ++i)
      if (keep({.waits_until = {}, .window = {}, .ending = {candidates[i]}, .changes = {}, .stops = {}})) ++singles;
    if (singles > 0 || candidates.size() < 2) return;
    // Together: as few as it takes, then without those that turn out not to be needed.
    for (std::size_t count = 2; count <= candidates.size(); count = count == candidates.size() ? count + 1 : std::min(candidates.size(), count + std::max<std::size_t>(1, count / 3))) {
      Remedy all{.waits_until = {}, .window = {}, .ending = {candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(count)}, .changes = {}, .stops = {}};
      if (!works(all)) continue;
      for (std::size_t i = all.ending.size(); i-- > 0 && all.ending.size() > 1;) {
        Remedy fewer{.waits_until = {}, .window = {}, .ending = all.ending, .changes = {}, .stops = {}};
        fewer.ending.erase(fewer.ending.begin() + static_cast<std::ptrdiff_t>(i));
        if (works(fewer)) all = std::move(fewer);
      }
      found_.push_back(std::move(all));
      return;
    }
  }

  enum class Raise { Borrow, Lend, Nominal };
  // Limits are raised by what is missing, one after the other, as far as this kind of limit is what stands in the way.
  void limits(Raise raise) {
    Remedy remedy;
    for (int round = 0; round < 8; ++round) {
      const auto fork = done_or_stop(remedy);
      if (!fork) return;
      if (has_quota(*fork, workload_)) break;
      const auto standing = fork->standing(workload_);
      if (!standing || standing->place != Place::Waiting) return;
      const EngineWait wait = fork->engine().wait(standing->class_id);
      if ((wait.rule != EngineWait::Rule::Short && wait.rule != EngineWait::Rule::ExceedsMax) || wait.column == no_column) return;
      if (!raise_for(*fork, standing->what->queue, wait, raise, remedy)) return;
    }
    for (std::size_t i = remedy.changes.size(); i-- > 0 && remedy.changes.size() > 1;) {
      Remedy fewer = remedy;
      fewer.changes.erase(fewer.changes.begin() + static_cast<std::ptrdiff_t>(i));
      if (works(fewer)) remedy = std::move(fewer);
    }
    if (!remedy.changes.empty()) keep(std::move(remedy));
  }

  // The mildest other rule with which it could pre-empt.
  void policies() {
    const auto standing = books_.standing(workload_);
    const auto queue = standing ? books_.queue_view(standing->what->queue) : std::nullopt;
    if (!queue) return;
    const auto rule = [&](const char* field, const std::vector<const char*>& rules, const char* otherwise) {
      const std::string now = (*queue->object)["spec"]["preemption"].at(field).string_or(otherwise);
      auto at = std::find_if(rules.begin(), rules.end(), [&](const char* one) { return now == one; });
      if (at == rules.end()) return;
      for (++at; at != rules.end(); ++at)
        if (keep({.waits_until = {}, .window = {}, .ending = {}, .changes = {{"ClusterQueue", {"", queue->spec->name}, std::string("spec.preemption.") + field, Json(now), Json(*at), ""}}, .stops = {}})) return;
    };
    rule("withinClusterQueue", {"Never", "LowerPriority", "LowerOrNewerEqualPriority"}, "Never");
    rule("reclaimWithinCohort", {"Never", "LowerPriority", "Any"}, "Never");
    rule("borrowWithinCohort.policy", {"Never", "LowerPriority"}, "Never");
  }

  // The first change of quotas by the clock after which it has its own.
  void windows() {
    const auto standing = books_.standing(workload_);
    if (!standing) return;
    int tries = 16;
    Books ahead = books_;
    for (auto at = ahead.changes_at(); at && --tries >= 0; at = ahead.changes_at()) {
      ahead.set_time(*at);
      const auto queue = ahead.queue_view(standing->what->queue);
      if (keep({.waits_until = at, .window = queue ? queue->window : "", .ending = {}, .changes = {}, .stops = {}})) return;
    }
  }

  // A priority above all that hold what it needs, and all that wait before it.
  void priority(const std::vector<ObjectKey>& candidates) {
    const auto standing = books_.standing(workload_);
    if (!standing) return;
    std::int64_t most = standing->spec->priority;
    for (const ObjectKey& key : candidates)
      if (const auto other = books_.standing(key)) most = std::max(most, other->spec->priority);
    if (most >= 1'000'000'000) return;
    keep({.waits_until = {}, .window = {}, .ending = {}, .changes = {{"Workload", workload_, "spec.priority", Json(standing->spec->priority), Json(most + 1), ""}}, .stops = {}});
  }

  std::vector<Remedy> take() { return std::move(found_); }

 private:
  std::optional<Books> done_or_stop(const Remedy& remedy) {
    if (--forks_ < 0) return std::nullopt;
    return done(books_, remedy);
  }
  bool works(Remedy& remedy) { return --forks_ >= 0 && helps(books_, workload_, remedy); }
  bool keep(Remedy remedy) {
    if (!works(remedy)) return false;
    found_.push_back(std::move(remedy));
    return true;
  }

  // One limit of the fork, by what is missing there. False: it is not a limit of this kind that is in the way.
  bool raise_for(const Books& fork, const std::string& queue, const EngineWait& wait, Raise raise, Remedy& remedy) const {
    const Ledger& ledger = fork.engine().ledger();
    const NodeId leaf = ledger.leaf(queue);
    if (leaf == no_node) return false;
    const FlavorResource& what = ledger.name(leaf, wait.column);
    if (raise == Raise::Nominal) return set(fork, leaf, what, "nominalQuota", plus(ledger.limits(leaf, wait.column).nominal, wait.missing), remedy);
    const NodeId node = wait.rule == EngineWait::Rule::ExceedsMax ? leaf : wait.node;
    if (ledger.has_parent(node) && ledger.limits(node, wait.column).borrow != unlimited) {
      const Amount to = plus(ledger.limits(node, wait.column).borrow, wait.missing);
      // Raised before and still in the way by as much: it is not this limit.
      return set(fork, node, what, "borrowingLimit", to, remedy);
    }
    if (raise == Raise::Borrow || wait.rule == EngineWait::Rule::ExceedsMax) return false;
    // Who keeps most for itself below.
    NodeId keeper = no_node;
    Amount most = 0;
    const auto look = [&](const auto& self, NodeId cohort) -> void {
      for (const NodeId child : ledger.children(cohort)) {
        if (const Amount idle = ledger.local_available(child, wait.column); child != leaf && ledger.limits(child, wait.column).lend != unlimited && idle > most) most = idle, keeper = child;
        if (!ledger.is_leaf(child)) self(self, child);
      }
    };
    if (!ledger.is_leaf(node)) look(look, node);
    if (keeper == no_node) return false;
    return set(fork, keeper, what, "lendingLimit", plus(ledger.limits(keeper, wait.column).lend, std::min(most, wait.missing)), remedy);
  }

  bool set(const Books& fork, NodeId node, const FlavorResource& what, const char* limit, Amount to, Remedy& remedy) const {
    const Ledger& ledger = fork.engine().ledger();
    FieldChange change{.kind = ledger.is_leaf(node) ? "ClusterQueue" : "Cohort", .key = {"", ledger.name(node)}, .field = "", .from = {}, .to = Json(amount_text(what.resource, to)), .about = fmt::format("{} in {}", what.resource, what.flavor)};
    const Json* object = object_of(books_, change);
    const std::string field = object == nullptr || to == unlimited ? "" : field_of(*object, what);
    if (field.empty()) return false;
    change.field = field + "." + limit;
    const auto before = std::find_if(remedy.changes.begin(), remedy.changes.end(), [&](const FieldChange& one) { return one.kind == change.kind && one.key == change.key && one.field == change.field; });
    if (before != remedy.changes.end()) {
      before->to = change.to;
      return true;
    }
    const Json& now = *object;
    const Json* at = &now;
    for (const Step& step : steps_of(change.field)) {
      at = &(*at)[step.member];
      for (const std::size_t place : step.places) at = &at->items().at(place);
    }
    change.from = *at;
    remedy.changes.push_back(std::move(change));
    return true;
  }

  const Books& books_;
  const ObjectKey& workload_;
  std::vector<Remedy> found_;
  int forks_ = 96;
};

}  // namespace

Json changed(Json object, const FieldChange& change) {
  Json* at = &object;
  for (const Step& step : steps_of(change.field)) {
    at = &at->child(step.member);
    for (const std::size_t place : step.places) {
      if (!at->is_array() || at->items().size() <= place) return object;
      at = &at->items()[place];
    }
  }
  *at = change.to;
  return object;
}

bool helps(const Books& books, const ObjectKey& workload, Remedy& remedy) {
  const auto fork = done(books, remedy);
  if (!fork || !has_quota(*fork, workload)) return false;
  remedy.stops.clear();
  for (const ObjectKey& key : books.workloads()) {
    const auto before = books.standing(key), after = fork->standing(key);
    if (before && after && before->place == Place::Running && after->place != Place::Running) remedy.stops.push_back(key);
  }
  return true;
}

std::vector<Remedy> find_remedies(const Books& books, const ObjectKey& workload, const std::vector<ObjectKey>& candidates) {
  Finder finder(books, workload);
  finder.limits(Finder::Raise::Borrow);
  finder.limits(Finder::Raise::Nominal);
  finder.limits(Finder::Raise::Lend);
  finder.windows();
  finder.policies();
  finder.priority(candidates);
  finder.endings(candidates);
  // What happens by itself comes first.
  std::vector<Remedy> out = finder.take();
  std::stable_sort(out.begin(), out.end(), [](const Remedy& a, const Remedy& b) { return std::tuple(!a.waits_until, a.ending.empty()) < std::tuple(!b.waits_until, b.ending.empty()); });
  // Raising what others lend may have come down to raising what it borrows.
  const auto same = [](const Remedy& a, const Remedy& b) {
    return a.waits_until == b.waits_until && a.ending == b.ending && a.changes.size() == b.changes.size() &&
           std::equal(a.changes.begin(), a.changes.end(), b.changes.begin(), [](const FieldChange& x, const FieldChange& y) { return x.kind == y.kind && x.key == y.key && x.field == y.field && x.to == y.to; });
  };
  for (std::size_t i = out.size(); i-- > 0;)
    for (std::size_t j = 0; j < i; ++j)
      if (same(out[i], out[j])) {
        out.erase(out.begin() + static_cast<std::ptrdiff_t>(i));
        break;
      }
  return out;
}

}  // namespace fairlead::governance
