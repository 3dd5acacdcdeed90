// SPDX-License-Identifier: Apache-2.0
// The port to a Kubernetes API. Controllers speak to this and do not know whether the embedded engine or a real
// kube-apiserver is behind it. Adapters: RestApi (rest_client.h), apiserver::LocalApi (in process), sim.
#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "kube/at_rest.h"
#include "kube/json.h"
#include "kube/object.h"

namespace fairlead::kube {

struct ListOptions {
  std::string label_selector, field_selector;  // Kubernetes syntax; empty: all
  std::int64_t limit = 0;                      // 0: all
  std::string continue_token;
  std::string resource_version;                // "" latest; "0" any
};
struct List {
  std::vector<Json> items;
  std::string resource_version;
  std::string continue_token;
  std::vector<AtRest> at_rest = {};  // the items as the engine keeps them, one for each; empty: it has no such form
};

struct WatchOptions {
  std::string label_selector, field_selector;
  std::string resource_version;  // exclusive start; "" : first ADDED for all that is there
  bool bookmarks = true;
};
enum class EventType { Added, Modified, Deleted, Bookmark };
struct WatchEvent {
  EventType type;
  Json object;  // for Bookmark only metadata.resourceVersion counts
  AtRest at_rest = {};  // the same as the engine keeps it; none: it has no such form
};
// One reader; close() from any thread ends a blocked next().
class Watch {
 public:
  virtual ~Watch() = default;
  // The next event; nullopt: nothing within `limit`. Expired: too old, list again. Unavailable: ended, watch again from the last version seen.
  virtual Result<std::optional<WatchEvent>> next(std::chrono::milliseconds limit) = 0;
  virtual void close() = 0;
};

enum class PatchType { Merge, JsonPatch, Strategic, Apply /* only by KubeApi::apply */ };
struct ApplyOptions {
  std::string field_manager = "fairlead";  // who owns the fields that the object names
  bool force = false;                      // takes fields over from other managers; else Conflict with their names
  bool dry_run = false;
  std::string subresource;                 // "status", or empty
};
struct DeleteOptions {
  std::optional<std::int64_t> grace_seconds;
  std::string uid, resource_version;  // preconditions; empty: none. Conflict if they do not hold.
  enum class Propagation { Background, Foreground, Orphan } propagation = Propagation::Background;
};

struct ExecResult {
  int exit_code = 0;
  std::string out, err;
};

// Thread-safe, blocking. Errors: NotFound, Exists (create), Conflict (stale resourceVersion, precondition), Invalid (422, 400),
// Forbidden, Unauthorized, Exhausted (429, 507: try later), Unavailable (no answer: the outcome of a write is then unknown), Unsupported.
class KubeApi {
 public:
  virtual ~KubeApi() = default;
  virtual Result<Json> get(const Resource& resource, const ObjectKey& key) = 0;
  virtual Result<List> list(const Resource& resource, const std::string& space /* "" : all */, const ListOptions& options = {}) = 0;
  virtual Result<std::unique_ptr<Watch>> watch(const Resource& resource, const std::string& space, const WatchOptions& options) = 0;
  virtual Result<Json> create(const Resource& resource, const Json& object) = 0;  // namespace and name from its metadata
  // Replaces it. The object's resourceVersion, if not empty, must be the current one.
  virtual Result<Json> update(const Resource& resource, const Json& object) = 0;
  virtual Result<Json> update_status(const Resource& resource, const Json& object) = 0;  // only status is taken
  virtual Result<Json> patch(const Resource& resource, const ObjectKey& key, PatchType type, const Json& patch, const std::string& subresource = "") = 0;
  // Server-side apply: what the object names is made so and owned by the manager; what the same manager named before and does not name now is removed.
  // Creates it if it is not there. Conflict: a field belongs to another manager (not force), or resourceVersion, if given, is not the current one.
  virtual Result<Json> apply(const Resource& resource, const Json& object, const ApplyOptions& options = {}) {
    (void)object, (void)options;
    return fail(Code::Unsupported, "apply " + resource.plural + ": this API does not serve it");
  }
  // POST to a subresource: pods/binding, pods/eviction.
  virtual Result<Json> post(const Resource& resource, const ObjectKey& key, const std::string& subresource, const Json& body) = 0;
  virtual Result<void> remove(const Resource& resource, const ObjectKey& key, const DeleteOptions& options = {}) = 0;
  // Runs a command in a container to its end (no terminal). Unavailable: the outcome is unknown. Unsupported: it wrote more than 1 MiB to either output; it may still run.
  virtual Result<ExecResult> exec(const ObjectKey& pod, const std::string& container, const std::vector<std::string>& command, const std::string& input,
                                  std::chrono::milliseconds limit) = 0;
};

}  // namespace fairlead::kube
