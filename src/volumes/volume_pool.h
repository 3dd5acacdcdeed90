// SPDX-License-Identifier: Apache-2.0
// A pool with its journal: what was answered holds, whoever dies when (docs/design/069-volume-pool.md).
#pragma once
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "volumes/hosts.h"
#include "volumes/journal.h"
#include "volumes/plan/ledger.h"
#include "volumes/plan/steps.h"
#include "volumes/pool.h"

namespace fairlead::volumes {

inline constexpr const char* kItself = "its own pool";  // as a node, while the pool works on a volume; no node is called so

struct Attachment {
  std::string device;
  std::int64_t generation = 0;
};

// Thread-safe; of one id one operation after the other, and nobody waits for another's copy. Errors: those of the Ledger, of the steps, and Unavailable when the journal cannot be written, after which only a new one can be opened.
// An operation that could not be carried through goes on when it is asked for again, and at the next open().
class VolumePool {
 public:
  // Reads the journal and carries through or undoes what had begun. What cannot go on now (a device that is used) stays under way. Invalid: the journal is another pool's.
  // hosts: further machines on which volumes may be shown; borrowed, and none: there are none.
  static Result<std::unique_ptr<VolumePool>> open(Pool& pool, std::unique_ptr<JournalFile> journal, Hosts* hosts = nullptr);

  // owner: for whom it is, in the caller's words; what is there for another is Exists.
  // source: a volume or a snapshot whose content it begins with. managed: shown by an engine of its own, with these limits; Unsupported: there are none here. key: encrypted by it, which takes an engine.
  Result<void> create(const std::string& id, std::int64_t size, const std::string& source = "", const std::string& owner = "", const std::optional<Limits>& managed = {}, const std::string& key = "");
  Result<void> set_limits(const std::string& id, const Limits& limits);  // hold when it returns, also for what waits; Unsupported: it has no engine
  Result<void> take_snapshot(const std::string& id, const std::string& of, const std::string& owner = "");
  Result<void> grow(const std::string& id, std::int64_t size);
  Result<void> remove(const std::string& id, const std::string& owner = "");  // a volume or a snapshot; what is not there is gone. owner: only if it is for that one
  Result<void> give(const std::string& id, const std::string& owner);         // it is for another from here on
  // host: the further machine on which the node is; empty: this one. There both are asked for, and Unavailable until it is so; an attachment that is on its way is given up by detach().
  Result<Attachment> attach(const std::string& id, const std::string& node, bool read_only = false, const std::string& host = "");
  // force: of what is on a further machine: whether that answers or not, it is shut out, and the volume is nobody's.
  Result<void> detach(const std::string& id, const std::string& node, std::int64_t generation, bool force = false);
  // Attaches it for writing for itself (kItself) while `work` does something to it, and detaches it again; after a death that is made good by the next open(). Conflict: somebody has it, or it is done just now. Errors of the work's too.
  Result<void> settle(const std::string& id, const std::function<Result<void>(const std::string& id)>& work);

  std::map<std::string, Entry> entries() const;
  std::optional<Entry> entry(const std::string& id) const;
  // What shows it: where it is shown. Of several machines the one that is worst: unknown, without an engine, or else the first.
  Result<Sight> look(const std::string& id);
  Result<Sight> look_at_files(const std::string& id) { return pool_.look_at_files(id); }
  Result<std::optional<EngineSeen>> engine(const std::string& id, const std::string& host);  // empty: on this machine
  std::vector<Asked> asked_of(const std::string& host) const;  // by what is known now, without names
  bool has_engines() { return pool_.has_engines(); }
  bool is_distributed() { return pool_.is_distributed(); }
  struct Space {
    std::int64_t size = 0, free = 0, limit = 0, promised = 0;  // bytes
  };
  Result<Space> space();
  const std::string& id() const { return ledger_.pool(); }
  std::size_t under_way() const;
  bool is_coming(const std::string& id) const;                  // an attachment to a node is on its way
  std::optional<Intent> changing(const std::string& id) const;  // Grow or Limit, that has not come about
  // Of encrypted ones: those whose keys are closed by an older version of the key that closes them are closed anew, `most` of them at most. How many are left, as far as that is known; errors of the keyring.
  Result<std::size_t> rewrap(std::size_t most);
  // Unavailable: the journal could not be written once. What is known here may be less than what is on disk: nothing is to be decided on it, and a new one has to be opened.
  Result<void> usable() const;

 private:
  VolumePool(Pool& pool, std::string id, Hosts* hosts) : pool_(pool), hosts_(hosts), ledger_(std::move(id)) {}
  Result<std::int64_t> limit();
  // What touches files and devices runs without the lock, and holds the id's turn.
  class Turn;
  using Lock = std::unique_lock<std::mutex>;
  Result<void> check_new(Lock& lock, const std::string& id);
  // The decision is of this moment: the lock was not let go since.
  Result<void> carry_out(Lock& lock, const Ledger::Begun& begun);
  Result<void> go_on(Lock& lock, const Intent& intent);
  // On one of its machines: the device by which it has come about there, if there is one. An error after which it is under way no more: it was undone.
  Result<std::string> go_on_at(Lock& lock, const Intent& intent, const std::string& host, bool& begun);
  Result<void> finish(Lock& lock, const std::string& id, std::optional<What> what = {});  // what is under way of it; with `what`: on this machine
  Result<void> take(const Intent& intent, const Next& next, const std::optional<Asked>& there);
  Result<void> write(const kube::Json& record);
  // Of volumes on further machines.
  std::vector<Asked> asked(const std::string& id) const;                                // under the lock
  std::optional<Asked> asked_at(const std::string& id, const std::string& host) const;  // the same
  std::string host_at(const std::string& id, const std::string& node) const;            // the same: where a node has it, or is about to; empty: the pool's own machine
  std::vector<std::string> hosts_of(const Intent& intent) const;                        // the same: where it is carried out
  Result<Sight> see(const std::string& id, const std::optional<Asked>& there);          // without it
  Result<void> ask_to_show(const Asked& there);                                         // the same
  Result<void> lives(const std::string& host);
  Result<void> detach_there(Lock& lock, const std::string& id, const std::string& node, std::int64_t generation, const Asked& there);
  Result<void> let_go(const std::string& id, const std::string& node, const Intent* coming);
  Result<void> force_off(Lock& lock, const std::string& id, const std::string& node, const Asked& there);

  mutable std::mutex mutex_;
  std::condition_variable turn_;
  std::map<std::string, std::int64_t> wrapped_;  // by id: the version of its key by which it was seen to be closed
  std::set<std::string> busy_;      // ids whose turn somebody has
  std::set<std::string> settling_;  // ids on which the pool works itself
  std::map<std::string, std::set<std::string>> leaving_;  // by id: further machines to which an attachment is on its way that is not wanted any more
  Pool& pool_;
  Hosts* const hosts_;
  Ledger ledger_;
  std::unique_ptr<Journal> journal_;
};

}  // namespace fairlead::volumes
