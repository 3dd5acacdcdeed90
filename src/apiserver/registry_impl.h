// SPDX-License-Identifier: Apache-2.0
// The Registry over a Store. Reading is in registry_read.cpp and registry_watch.cpp, writing in registry_write.cpp (create), registry_change.cpp (update, patch,
// post), registry_apply.cpp (server-side apply, managedFields) and registry_remove.cpp, the kinds in registry_kinds.cpp, other versions in registry_convert.cpp,
// admission policies in registry_policy.cpp.
#pragma once
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <set>
#include <shared_mutex>

#include "apiserver/registry.h"
#include "apiserver/conversion_client.h"
#include "apiserver/policy.h"
#include "apiserver/quota_ledger.h"
#include "apiserver/registry_bytes.h"
#include "apiserver/registry_names.h"
#include "apiserver/registry_select.h"
#include "apiserver/seal.h"
#include "apiserver/service_addresses.h"
#include "apiserver/validation.h"
#include "apiserver/waiting_threads.h"

namespace fairlead::apiserver {

// Counts what is under way under a name: creates in a namespace, creates of a CRD's kind, all writes. A container goes away only when nothing is under way in it.
class Gate {
 public:
  using Ticket = std::shared_ptr<void>;  // leaves when the last copy goes
  Ticket enter(const std::string& name);
  bool busy(const std::string& name) const;
  void wait_until_idle();

 private:
  mutable std::mutex mutex_;
  std::condition_variable idle_;
  std::map<std::string, int> inside_;
};

// An event's bytes, made once for all watchers of one version of a kind.
struct EncodedEvent {
  std::mutex mutex;
  Value kept;                        // what the watchers may keep: after, as the store holds it
  http::Buffer after, before, gone;  // plain, in this version; `gone` is before with the event's revision
  http::Buffer lines[3];             // of after as ADDED, after as MODIFIED, gone as DELETED
};
class EncodedEvents {
 public:
  std::shared_ptr<EncodedEvent> of(Revision revision, const std::string& api_version);

 private:
  static constexpr std::size_t slots = 256;
  struct Slot {
    Revision revision = 0;
    std::string api_version;
    std::shared_ptr<EncodedEvent> event;
  };
  std::mutex mutex_;
  std::vector<Slot> ring_{slots};
};

// What one write turns out to be.
struct Decision {
  enum class What { Keep, Put, Remove } what = What::Keep;
  kube::Json next;                    // of Put, without managedFields
  std::vector<std::string> warnings;
  std::optional<std::string> managed = std::nullopt;  // managedFields from now on, as JSON ("": none); nullopt: as they were
  bool surely = false;  // it changes something: nobody compares, so the object that it is based on may be taken over
};
// What a decision is based on: the object without managedFields, and these as JSON.
struct CurrentObject {
  kube::Json& object;
  Revision revision = 0;
  std::string_view managed;
};

class EmbeddedRegistry final : public Registry {
 public:
  EmbeddedRegistry(Store& store, const Clock& clock, RegistryOptions options, std::optional<Seal> seal);
  ~EmbeddedRegistry() override;
  Result<void> start();

  std::shared_ptr<const KindTable> kinds() const override;
  Result<Object> get(const Kind& kind, const kube::ObjectKey& key) const override;
  Result<ListPage> list(const Kind& kind, const std::string& space, const ListQuery& query) const override;
  Result<std::unique_ptr<Subscription>> watch(const Kind& kind, const std::string& space, const WatchQuery& query, std::function<void(const RegistryEvent&)> sink) override;
  Revision revision() const override { return store_.revision(); }
  Result<std::optional<QuotaUse>> quota_use(const kube::ObjectKey& quota) const override;
  void set_admission(const Admission* admission) override;
  void create(const WriteContext& context, const Kind& kind, const std::string& space, kube::Json body, Reply reply) override;
  void update(const WriteContext& context, const Kind& kind, const kube::ObjectKey& key, const std::string& subresource, kube::Json body, Reply reply) override;
  void patch(const WriteContext& context, const Kind& kind, const kube::ObjectKey& key, const std::string& subresource, kube::PatchType type, kube::Json patch, Reply reply) override;
  void apply(const WriteContext& context, const Kind& kind, const kube::ObjectKey& key, const std::string& subresource, kube::Json configuration, Reply reply) override;
  void remove(const WriteContext& context, const Kind& kind, const kube::ObjectKey& key, const kube::DeleteOptions& options, Reply reply) override;
  void post(const WriteContext& context, const Kind& kind, const kube::ObjectKey& key, const std::string& subresource, kube::Json body, Reply reply) override;

  // The plain bytes of a stored value in the kind's version. Also for events.
  Result<Value> plain(const Kind& kind, const std::string& store_key, const Value& stored, Revision revision) const;

 private:
  friend class RegistryWatch;
  using Decide = std::function<Result<Decision>(const CurrentObject& now)>;
  struct Creation;
  struct Mutation;

  // Conversion (registry_convert.cpp).
  struct Forms {
    Template stored;
    std::optional<Template> shown;  // in the client's version, where that is another
  };
  Result<std::vector<kube::Json>> convert(const Kind& kind, const std::string& to, const std::vector<kube::Json>& objects) const;
  Result<void> in_version(const Kind& kind, std::vector<Value>& values) const;
  Result<std::vector<Value>> plain_all(const Kind& kind, const std::vector<Entry>& entries) const;
  Result<Forms> forms_of(const Kind& kind, const kube::Json& object, std::string_view managed) const;
  static std::unexpected<Error> too_many_wait(const Kind& kind);
  Result<Endpoint> endpoint_of(const std::string& space, const std::string& name, unsigned short port) const;

  // Kinds.
  void publish(std::map<std::string, std::vector<std::shared_ptr<const Kind>>> from_crds, std::set<std::string> terminating);
  void on_crd(const StoreEvent& event);
  std::shared_ptr<const Kind> current(const Kind& kind) const;  // as served now; null: gone
  KindTable others_than(const std::string& crd) const;

  // What clients send, made fit: frame, metadata, types, unknown and duplicate members, pruning. Gives warnings.
  Result<std::vector<std::string>> decode(const WriteContext& context, const Kind& kind, kube::Json& body) const;
  Result<void> fit_key(const Kind& kind, const kube::ObjectKey& key, kube::Json& body) const;
  Result<void> admit(const AdmissionCall& call, kube::Json& object) const;
  // What policies say of a request that passed everything else; gives warnings.
  struct Ask {
    const WriteContext& context;
    const Kind& kind;
    std::string_view operation, subresource;
    const kube::ObjectKey& key;
    const kube::Json *object, *old;  // null: none
  };
  Result<std::vector<std::string>> ask_policies(const Ask& ask) const;
  Result<void> ask_policies(const WriteContext& context, const Kind& kind, const std::string& subresource, const kube::Json& old, Decision& decision) const;  // of an update
  Result<void> follow_policies();
  void on_policy(const StoreEvent& event, bool binding);
  class PolicyLookup;
  // A new pod names the account "default" and its namespace lacks it.
  bool needs_default_account(const Kind& kind, const std::string& space, const kube::Json& body) const;
  Result<void> admit_into(const kube::Resource& resource, const std::string& space, const std::string& name) const;
  // `managed`: managedFields of the new object, filled in unless it holds some already.
  Result<std::vector<std::string>> prepare_new(const WriteContext& context, const Kind& kind, const std::string& space, kube::Json& body, std::optional<std::string>& managed) const;
  void create_as(const WriteContext& context, const Kind& kind, const std::string& space, kube::Json body, std::optional<std::string> managed, Reply reply);
  void create_prepared(const WriteContext& context, const std::shared_ptr<const Kind>& served, const std::string& space, kube::Json body, std::optional<std::string> managed, Reply reply);
  bool waits_for_others(const Kind& kind) const;  // to convert it, or what policies look at
  void submit(std::shared_ptr<Creation> creation);
  void submit_now(std::shared_ptr<Creation> creation);
  void generate_name(Creation& creation) const;

  // What becomes of the object, and of its managedFields.
  Result<Decision> decide_update(const WriteContext& context, const Kind& kind, const std::string& subresource, const CurrentObject& now, kube::Json body) const;
  Result<Decision> decide_apply(const WriteContext& context, const Kind& kind, const std::string& subresource, const CurrentObject& now, const kube::Json& configuration) const;
  void apply_new(const WriteContext& context, const Kind& kind, const kube::ObjectKey& key, const kube::Json& configuration, int attempts, Reply reply);
  void apply_again(const WriteContext& context, const Kind& kind, const kube::ObjectKey& key, const std::string& subresource, std::shared_ptr<const kube::Json> configuration, int attempts,
                   Reply reply);
  // managedFields after a write by an updating manager; `sent` is what the client gave as metadata.managedFields (null: nothing). nullopt: as they were.
  std::optional<std::string> track(const WriteContext& context, const Kind& kind, const std::string& subresource, const CurrentObject& now, const kube::Json& next, const kube::Json& sent) const;
  Result<Decision> decide_scale(const WriteContext& context, const Kind& kind, const CurrentObject& now, const kube::Json& scale) const;
  // The object alone.
  Result<Decision> decide_change(const WriteContext& context, const Kind& kind, const std::string& subresource, const kube::Json& current, Revision revision, kube::Json body) const;
  Result<Decision> decide_status(const Kind& kind, const kube::Json& current, kube::Json body, std::vector<std::string> warnings) const;
  Result<Decision> decide_finalize(const Kind& kind, const kube::Json& current, const kube::Json& body) const;
  Result<Decision> decide_bind(const kube::ObjectKey& key, kube::Json& current, const kube::Json& body) const;
  Result<Decision> decide_remove(const Kind& kind, const kube::Json& current, Revision revision, const kube::DeleteOptions& options) const;
  // Removes it instead if it is being deleted and nothing holds it any more.
  Result<Decision> complete(const Kind& kind, kube::Json next, std::vector<std::string> warnings) const;
  // What the server chooses (registry_assign.cpp); `old`: null for a new one.
  void assign(const kube::Resource& resource, kube::Json& object, const kube::Json* old, FieldErrors& errors) const;
  Reply forgetting(const kube::Resource& resource, const kube::Json& object, bool dry_run, Reply reply) const;
  Result<void> follow_services();
  Result<std::optional<kube::Json>> budget_of(const kube::ObjectKey& key, const kube::Json& pod) const;
  void evict(const WriteContext& context, const Kind& kind, const kube::ObjectKey& key, const kube::DeleteOptions& options, Reply reply);
  void remove_unasked(const WriteContext& context, const Kind& kind, const kube::ObjectKey& key, const kube::DeleteOptions& options, Reply reply);
  Result<void> nothing_inside(const kube::Resource& resource, const kube::Json& container) const;

  void mutate(const WriteContext& context, const Kind& kind, const kube::ObjectKey& key, bool retry, Decide decide, Reply reply);
  void begin(std::shared_ptr<Mutation> mutation);  // attempt, where it may wait
  void attempt(std::shared_ptr<Mutation> mutation);
  Result<QuotaLedger::Ticket> may_grow(const Mutation& mutation, const kube::Json& current, const Decision& decision) const;

  Result<Template> stored_form(const Kind& kind, const std::string& store_key, Template plain) const;
  bool sealed(const kube::Resource& resource) const { return resource.group.empty() && resource.plural == kube::resources::secrets.plural; }
  std::string random(std::size_t count) const;
  std::string new_uid() const;
  std::string name_suffix() const;

  Store& store_;
  const Clock& clock_;
  const RegistryOptions options_;
  const std::optional<Seal> seal_;
  const std::vector<std::shared_ptr<const Kind>> builtin_;
  mutable QuotaLedger quotas_{store_, clock_};
  mutable EncodedEvents events_;
  mutable Gate gate_;     // "namespace/x", "crd/plural.group"
  mutable Gate writes_;   // everything unanswered
  mutable std::mutex random_mutex_;

  mutable std::mutex kinds_mutex_;  // guards the following
  std::shared_ptr<const KindTable> table_;
  std::map<std::string, std::vector<std::shared_ptr<const Kind>>> from_crds_;
  std::set<std::string> terminating_;  // CRDs by name

  mutable std::shared_mutex admission_mutex_;  // held shared while it is asked: it does not block
  const Admission* admission_ = nullptr;

  mutable std::mutex policies_mutex_;
  std::shared_ptr<const PolicySet> policies_;   // never null once they are followed
  std::atomic<bool> any_policies_{false};       // there are policies and bindings
  std::atomic<bool> policies_wait_{false};      // some of them has parameters, which may have to be converted

  std::unique_ptr<ServiceAddresses> addresses_;  // null: only headless services
  std::unique_ptr<Subscription> crd_watch_, service_watch_, policy_watch_, binding_watch_;
  std::shared_ptr<const Converter> converter_;
  WaitingThreads waiting_{16, 1'000};  // the last: what runs there uses all of the above
};

}  // namespace fairlead::apiserver
