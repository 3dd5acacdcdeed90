// SPDX-License-Identifier: Apache-2.0
// An explanation as `fairlead explain -o json` prints it, and as the picture is drawn from.
#include "governance/plan/explain.h"
#include "governance/plan/kueue_read.h"
#include "governance/plan/views.h"

namespace fairlead::governance {

using kube::Json;
using kube::ObjectKey;

namespace {

Json named(const ObjectKey& key) { return Json::object({{"namespace", key.space}, {"name", key.name}}); }
Json names(const Explanation& it, const std::vector<ObjectKey>& keys) {
  Json out = Json::array();
  for (const ObjectKey& key : keys) {
    Json one = named(key);
    if (const auto owner = it.owners.find(key); owner != it.owners.end()) one.set("owner", owner->second);
    out.push(std::move(one));
  }
  return out;
}

Json changes(const std::vector<FieldChange>& list) {
  Json out = Json::array();
  for (const FieldChange& change : list) {
    Json one = Json::object({{"kind", change.kind}, {"name", change.key.name}});
    if (!change.key.space.empty()) one.set("namespace", change.key.space);
    one.set("field", change.field).set("from", change.from).set("to", change.to);
    if (!change.about.empty()) one.set("about", change.about);
    out.push(std::move(one));
  }
  return out;
}

Json holder(const Holder& one, const std::string& resource) {
  Json out = named(one.workload);
  if (!one.owner.empty()) out.set("owner", one.owner);
  out.set("queue", one.queue).set("priority", one.priority).set("amount", amount_text(resource, one.amount));
  if (one.borrowed > 0) out.set("borrowed", amount_text(resource, one.borrowed));
  if (one.stopping) out.set("stopping", true);
  return out;
}

const char* state(const Explanation& it) { return it.finished ? "Finished" : state_text(it.place); }

}  // namespace

Json to_json(const Explanation& it) {
  Json out = named(it.workload);
  if (!it.owner.empty()) out.set("owner", it.owner);
  out.set("queue", it.queue).set("priority", it.priority).set("state", state(it));
  if (it.position > 0) out.set("position", std::int64_t{it.position});
  if (!it.reason.empty()) out.set("reason", it.reason);
  if (!it.message.empty()) out.set("message", it.message);
  if (!it.waits_for.empty()) out.set("waitsFor", it.waits_for);
  if (!it.pods.empty()) out.set("pods", it.pods);
  if (it.safe) out.set("safe", true);
  if (it.safe_until) out.set("safeUntil", print_time(*it.safe_until));
  if (!it.missing.empty()) {
    Json list = Json::array();
    for (const Missing& one : it.missing) {
      const auto text = [&](Amount amount) { return Json(amount == unlimited ? std::string("unlimited") : amount_text(one.resource, amount)); };
      Json limit = Json::object({{"kind", one.limit_kind}, {"name", one.limit_of}, {"field", one.limit_field}, {"amount", text(one.limit)}});
      Json entry = Json::object({{"flavor", one.flavor}, {"resource", one.resource}, {"asked", text(one.asked)}, {"available", text(one.available)}, {"missing", text(one.missing)}, {"never", one.never}, {"limit", std::move(limit)}});
      if (!one.kept.empty()) {
        Json kept = Json::array();
        for (const Missing::Kept& by : one.kept) kept.push(Json::object({{"kind", by.kind}, {"name", by.name}, {"amount", text(by.amount)}}));
        entry.set("notLent", std::move(kept));
      }
      list.push(std::move(entry));
    }
    out.set("missing", std::move(list));
  }
  if (!it.ahead.empty()) out.set(it.strict ? "ahead" : "keptFor", names(it, it.ahead));
  if (!it.holders.empty()) {
    Json list = Json::array();
    for (const Holder& one : it.holders) list.push(holder(one, it.missing.empty() ? it.held : it.missing.front().resource));
    out.set("heldBy", std::move(list));
    if (it.more_holders > 0) out.set("heldByMore", static_cast<std::int64_t>(it.more_holders));
  }
  if (it.wrong) out.set("wrong", changes({*it.wrong}).items().front());
  if (!it.remedies.empty()) {
    Json list = Json::array();
    for (const Remedy& one : it.remedies) {
      Json entry = Json::object();
      if (one.waits_until) entry.set("waitsUntil", print_time(*one.waits_until)).set("window", one.window);
      if (!one.ending.empty()) entry.set("ending", names(it, one.ending));
      if (!one.changes.empty()) entry.set("changes", changes(one.changes));
      if (!one.stops.empty()) entry.set("stops", names(it, one.stops));
      list.push(std::move(entry));
    }
    out.set("wouldStartIt", std::move(list));
  }
  if (!it.has.empty()) {
    Json list = Json::array();
    for (const Holder& one : it.has) {
      const std::string resource = one.owner.substr(0, one.owner.find(" in "));
      Json entry = Json::object({{"resource", resource}, {"flavor", one.owner.substr(resource.size() + 4)}, {"amount", amount_text(resource, one.amount)}});
      entry.set("borrowed", amount_text(resource, one.borrowed));
      list.push(std::move(entry));
    }
    out.set("has", std::move(list));
  }
  if (!it.takers.empty()) {
    Json list = Json::array();
    for (const Taker& one : it.takers) {
      Json entry = Json::object({{"queue", one.queue}, {"forItsOwnQuota", one.own_quota}});
      if (one.above) entry.set("priorityAbove", *one.above);
      list.push(std::move(entry));
    }
    out.set("couldBeTakenBy", std::move(list));
  }
  return out;
}

}  // namespace fairlead::governance
