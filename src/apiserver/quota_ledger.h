// SPDX-License-Identifier: Apache-2.0
// What the objects of each namespace with ResourceQuotas use, and the room that writes under way have been given. It follows the store; a decision and its reservation are one step under
// the namespace's lock, so writes at once never get together what only one of them may. Nothing is kept of namespaces without a quota.
//
// A namespace's first quota comes in three steps. From the first on, writes of the namespace hold room, though nothing limits them yet. Writes that looked before that hold none: they are
// waited for. Then the quota is written. So whatever was let in without it is either stored before it, and counted, or holds its room.
//
// An object's place (its store key) is charged with the largest of what is stored there and what writes under way would store there: one of these is what it will be, whichever write wins.
// Kinds are counted only where a quota of the namespace names them. They are read from the store, once, by the first write or question after a quota came or changed its spec. Other writes of
// the namespace wait for that; the store's events and other namespaces do not.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <shared_mutex>
#include <string>

#include "apiserver/quota_plan.h"
#include "apiserver/quota_under_way.h"
#include "apiserver/store/store.h"
#include "base/clock.h"
#include "kube/object.h"

namespace fairlead::apiserver {

struct QuotaUse {
  kube::Json used;               // status.used
  std::optional<Instant> until;  // when it changes by time alone
};

// Thread-safe. `store` and `clock` must outlive it and every ticket.
class QuotaLedger {
 public:
  QuotaLedger(Store& store, const Clock& clock) : store_(store), clock_(clock) {}
  // Before the first write: reads the quotas and follows the store from there. Errors as the store's.
  Result<void> follow();

  // Keeps the room of one write, or that it is under way. To be let go of when the store has answered it: what it wrote was counted by then. Not under a lock: a quota may be waiting for it.
  using Ticket = std::shared_ptr<void>;
  struct Ask {
    const kube::Resource& resource;
    const std::string& space;  // "": none
    const std::string& store_key;
    const kube::Json* old;     // null: a create
    const kube::Json& next;
    bool dry_run;              // is asked and keeps nothing
  };
  // Null: there is nothing to keep. Forbidden: why not, without the object's name. Other codes: what is used cannot be read, so nothing that grows is let in.
  // Without a quota in the namespace: two short locks and an allocation, and a look into a map where others have quotas.
  Result<Ticket> admit(const Ask& ask);

  // Whether an update of this kind can take more than the object has.
  static bool grows(const kube::Resource& resource) { return is_looked_into(resource); }

  // To be asked before a ResourceQuota of this namespace is written. Calls `then` when it may be: now, or on the thread that ends the last of the writes that hold no room. The ticket is to be
  // let go of when the store has answered.
  void expect(const std::string& space, std::function<void(Ticket)> then);

  // nullopt: no such quota.
  Result<std::optional<QuotaUse>> use(const kube::ObjectKey& quota);
  // Of how many namespaces something is kept.
  std::size_t spaces() const;

 private:
  struct Held {
    Revision revision = 0;                     // of what is stored
    std::optional<Measured> stored;
    std::map<std::uint64_t, Measured> under_way;
  };
  struct Line {
    Quota quota;
    Usage stored, taken;                       // of the objects that are there; with the writes under way
  };
  struct Change {
    Revision revision = 0;
    std::optional<Measured> stored;
  };
  struct Space {
    explicit Space(std::string its_name) : name(std::move(its_name)) {}
    const std::string name;
    // Guarded by the ledger's mutex.
    int expected = 0;      // quotas that may come: it stays
    bool settled = false;  // no write is under way that did not see it

    std::mutex loading;  // of whoever reads the kinds; taken before the next
    std::mutex mutex;    // guards the following; held for as long as memory takes, never while something is read
    std::map<std::string, Line> lines;         // by the quota's name
    std::atomic<bool> limited{false};          // there are any; set under the mutex
    std::set<std::string, std::less<>> kinds;  // that they count (counted_kind)
    std::uint64_t changes = 0;                 // of the lines
    bool loaded = false;
    Revision loaded_at = 0;                    // or, while it is read, as of when
    std::optional<std::map<std::string, Change>> meanwhile;  // while it is read: what came after that
    std::map<std::string, Held, std::less<>> held;
    std::set<std::pair<Instant, std::string>> ending;  // pods that stop counting, by when
    std::uint64_t last_ticket = 0;
  };
  struct Reservation;

  std::shared_ptr<Space> space_of(std::string_view name) const;
  std::shared_ptr<Space> enter_expected(std::string_view name);
  void leave_expected(const std::shared_ptr<Space>& space);
  void forget_if_empty(const std::shared_ptr<Space>& space);
  void on_event(const StoreEvent& event);
  void on_quota(std::string_view space, const std::string& name, const Value& value);
  static void change_quota(Space& space, const std::string& name, std::optional<Quota> quota);
  Result<void> load(Space& space) const;
  // The following under its mutex. Loads it where it must be, without the lock meanwhile; pods whose time is over count no more.
  Result<void> make_current(Space& space, std::unique_lock<std::mutex>& lock) const;
  static void put(Space& space, const std::string& key, Revision revision, std::optional<Measured> measured);
  static void add_up(Space& space, const Held& held, bool in);
  static Usage place_charge(const Quota& quota, const Held& held);

  Store& store_;
  const Clock& clock_;
  std::atomic<bool> any_{false};
  WritesUnderWay under_way_;         // all that a quota could count
  mutable std::shared_mutex mutex_;  // guards spaces_; never taken under a Space's
  std::map<std::string, std::shared_ptr<Space>, std::less<>> spaces_;
  std::unique_ptr<Subscription> watch_;
};

}  // namespace fairlead::apiserver
