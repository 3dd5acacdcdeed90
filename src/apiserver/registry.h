// SPDX-License-Identifier: Apache-2.0
// The API's semantics over a Store, without HTTP: kinds, create, update, patch, delete with finalizers, lists, watches. The HTTP face (api_handler.h) and the
// in-process KubeApi (local_api.h) both speak to this, so they cannot differ.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apiserver/scale.h"
#include "apiserver/store/store.h"
#include "base/clock.h"
#include "http/message.h"
#include "kube/kube_api.h"
#include "kube/object.h"
#include "kube/type_table.h"

namespace fairlead::apiserver {

struct User;    // who asks (auth_types.h)
class Schema;  // a CRD's structural schema (schema.h)
struct AuditNotes;  // what else the audit log is told (audit.h)
struct QuotaUse;   // what is used of a ResourceQuota (quota_ledger.h)
struct ConversionHook;  // a CRD's webhook (conversion.h)
class Converter;

// A column of `kubectl get`. `path` is a JSONPath as in additionalPrinterColumns; built-in kinds compute some cells in code instead.
struct Column {
  std::string name, type = "string", format, description;
  int priority = 0;  // 0: always; above: -o wide
  std::string path;
  std::function<kube::Json(const kube::Json& object, Instant now)> cell;  // used if set
};

// What is served under one group, version and plural. Immutable.
struct Kind {
  kube::Resource resource;
  std::string list_kind, singular;
  std::vector<std::string> short_names, categories;
  bool status_subresource = false;
  std::vector<std::string> subresources;          // others by name: "binding", "eviction", "log", "exec", "attach"
  const kube::Type* type = nullptr;               // built-in kinds
  std::shared_ptr<const Schema> schema;           // kinds from a CRD
  kube::Json open_api;                            // of a CRD: its openAPIV3Schema as given
  std::vector<Column> columns;
  std::vector<std::string> selectable_fields;     // beside metadata.name and metadata.namespace
  std::vector<std::string> unquoted_fields;       // those of them that are numbers or booleans
  std::optional<ScalePaths> scale;                // of a CRD with the scale subresource
  bool storage = true;                            // false: a further served version of a CRD
  std::string storage_version;                    // of a CRD
  std::shared_ptr<const Schema> storage_schema;   // of a CRD whose objects are converted, where `storage` is false
  std::shared_ptr<const ConversionHook> conversion;  // null: versions differ in their names alone
  bool converts = false;                          // its objects may have to be converted by the webhook: whoever reads or watches waits for it
};
// Snapshot of everything served; a new one is published when a CRD comes, changes or goes.
struct KindTable {
  std::uint64_t generation = 0;
  std::vector<std::shared_ptr<const Kind>> kinds;  // sorted by group, version, plural
  std::shared_ptr<const Kind> find(std::string_view group, std::string_view version, std::string_view plural) const;
};

enum class FieldValidation { Ignore, Warn, Strict };
struct WriteContext {
  std::string user;            // who asks: for audit and events
  std::shared_ptr<const User> requester;  // null: the server itself, which needs no admission of its rights
  bool dry_run = false;
  FieldValidation validation = FieldValidation::Warn;
  std::string field_manager;   // who owns what is written; empty: by the user agent
  std::string user_agent;
  bool force = false;          // apply: takes over fields that others own
  std::shared_ptr<AuditNotes> notes;  // null: nobody audits
  std::vector<std::string> duplicates;  // members that stood twice in the body (kube::ParseOptions::duplicates): reported as `validation` says
};

struct Object {
  http::Buffer bytes;  // whole JSON, kind and resourceVersion inside
  Revision revision = 0;
};
struct Written {
  Object object;
  bool created = false;                // 201 instead of 200
  bool removed = false;                // a delete that is complete (no finalizer held it, no grace)
  std::vector<std::string> warnings;   // for Warning: headers
};
using Reply = std::function<void(Result<Written>)>;

// An object among many: its bytes are not joined before somebody needs them so.
struct Listed {
  Value value;
  Revision revision = 0;
};
struct ListQuery {
  std::string label_selector, field_selector;
  std::int64_t limit = 0;
  std::string continue_token;
  std::string resource_version, resource_version_match;  // "", "0", "N"; "", "Exact", "NotOlderThan"
};
struct ListPage {
  std::vector<Listed> objects;
  Revision revision = 0;
  std::string continue_token;
  std::int64_t remaining = 0;
};
struct WatchQuery {
  std::string label_selector, field_selector;
  std::string resource_version;
  bool initial_events = false;  // sendInitialEvents: ADDED for all, then a bookmark annotated k8s.io/initial-events-end
  bool lines = true;            // false: RegistryEvent::line is not needed
};
struct RegistryEvent {
  kube::EventType type;
  Object object;  // for Bookmark: kind, apiVersion and resourceVersion only
  // The event as a line of a JSON watch, `{"type":"ADDED","object":{...}}\n`, made once and shared by all watchers of this event. Null unless asked for.
  http::Buffer line;
  bool initial_end = false;
  Value value = {};  // of ADDED and MODIFIED: the object as the store holds it, for who keeps it
  std::optional<Error> failure = std::nullopt;  // the watch is over: an object could not be converted. Nothing else is set
};
// One version of each kind: the stored one where it is served.
std::vector<std::shared_ptr<const Kind>> one_of_each(const KindTable& table);

struct RegistryOptions {
  std::string secret_key;  // 32 bytes: Secrets are sealed with AES-256-GCM before they reach the store; empty: refused to hold Secrets
  std::string cluster_domain = "cluster.local";
  std::vector<std::string> service_ranges;  // of service addresses, one of each family: "10.79.0.0/16", "fd00:79::/112"; empty: services are headless
  std::function<std::string(std::size_t)> random;  // bytes for uids, name suffixes and nonces; empty: the kernel's. The simulation gives a seeded one.
  std::shared_ptr<const Converter> converter;  // who asks the webhooks of CRDs; null: by HTTPS
};

// Asked about each create and update between defaults and validation, also again when somebody else's write came first. May change the object. Must not block.
struct AdmissionCall {
  const kube::Resource& resource;
  std::string space;
  std::string_view subresource;
  const WriteContext& context;
  const kube::Json* old = nullptr;  // null: a create
};
class Admission {
 public:
  virtual ~Admission() = default;
  // Forbidden in Kubernetes' words: `pods "x" is forbidden: ...`.
  virtual Result<void> admit(const AdmissionCall& call, kube::Json& object) const = 0;
};

// Thread-safe. Errors carry the message that a Kubernetes user knows, e.g. NotFound `pods "x" not found`, Exists `pods "x" already exists`,
// Conflict `Operation cannot be fulfilled on pods "x": the object has been modified; please apply your changes to the latest version and try again`,
// Invalid `Pod "x" is invalid: spec.containers: Required value` (422; other messages of Invalid are 400), Unsupported with what is not served and what to do.
// A kind that is gone from kinds() meanwhile gives NotFound. The store must outlive the registry; its destructor waits for unanswered writes.
class Registry {
 public:
  // Loads CRDs from the store, makes the standard namespaces (default, kube-system, kube-public, kube-node-lease).
  static Result<std::unique_ptr<Registry>> open(Store& store, const Clock& clock, RegistryOptions options);
  virtual ~Registry() = default;

  // Of a kind that `converts`, get, list and watch block until its webhook has answered (conversion_limit).
  virtual std::shared_ptr<const KindTable> kinds() const = 0;
  virtual Result<Object> get(const Kind& kind, const kube::ObjectKey& key) const = 0;
  virtual Result<ListPage> list(const Kind& kind, const std::string& space, const ListQuery& query) const = 0;
  // `sink` is called in revision order, first from within this call (past events), later on the store's publishing thread (of a kind that `converts`, on one thread after the other): it must not block.
  virtual Result<std::unique_ptr<Subscription>> watch(const Kind& kind, const std::string& space, const WatchQuery& query, std::function<void(const RegistryEvent&)> sink) = 0;
  virtual Revision revision() const = 0;
  // nullopt: no such ResourceQuota. It is what creates are judged by, without those under way. Of `count/` only kinds that are served in namespaces, as in Kubernetes.
  virtual Result<std::optional<QuotaUse>> quota_use(const kube::ObjectKey& quota) const = 0;
  // Null: none. Returns when the one before is not running and will not be called again. With one, a pod's account "default" is made when it is first needed.
  virtual void set_admission(const Admission* admission) = 0;

  // Writes answer through `reply`, once, on any thread, when the change is durable (or refused). The body's apiVersion and kind must fit.
  virtual void create(const WriteContext& context, const Kind& kind, const std::string& space, kube::Json body, Reply reply) = 0;
  virtual void update(const WriteContext& context, const Kind& kind, const kube::ObjectKey& key, const std::string& subresource, kube::Json body, Reply reply) = 0;
  // Retried inside on a concurrent change unless the patch names a resourceVersion.
  virtual void patch(const WriteContext& context, const Kind& kind, const kube::ObjectKey& key, const std::string& subresource, kube::PatchType type, kube::Json patch, Reply reply) = 0;
  // Server-side apply: makes the object if it is not there. Conflict names the managers of fields with other values and these fields; `context.force` takes them over.
  virtual void apply(const WriteContext& context, const Kind& kind, const kube::ObjectKey& key, const std::string& subresource, kube::Json configuration, Reply reply) = 0;
  virtual void remove(const WriteContext& context, const Kind& kind, const kube::ObjectKey& key, const kube::DeleteOptions& options, Reply reply) = 0;
  virtual void post(const WriteContext& context, const Kind& kind, const kube::ObjectKey& key, const std::string& subresource, kube::Json body, Reply reply) = 0;
};

}  // namespace fairlead::apiserver
