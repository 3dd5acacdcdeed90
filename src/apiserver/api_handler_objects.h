// SPDX-License-Identifier: Apache-2.0
// Requests about objects: from the URL, query and body to the Registry, and its answers back in the form that the client reads.
#pragma once
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "apiserver/auth_types.h"
#include "apiserver/limits.h"
#include "apiserver/negotiate.h"
#include "apiserver/proxy.h"
#include "apiserver/registry.h"
#include "apiserver/routes.h"
#include "apiserver/status.h"
#include "apiserver/watch_stream.h"
#include "http/server.h"

namespace fairlead::apiserver {

// One request under way.
struct Call {
  http::Request request;
  std::shared_ptr<http::Exchange> exchange;
  Route route;
  User user;
  Limits::Ticket ticket;                  // counts it while it waits for an answer
  std::shared_ptr<const User> real_user;  // who acts as `user`; null: nobody does
  std::shared_ptr<AuditNotes> notes;      // null: nobody audits
  std::string verb;
  Form form = Form::Json;
  bool pretty = false;
  std::optional<std::chrono::seconds> longest_watch;
  std::string_view query(std::string_view name) const { return http::find(request.target.query, name); }
  StatusDetails about() const { return {.name = route.name, .group = route.group, .kind = route.plural}; }
  void refuse(const Error& error) const;  // a Status with details of the resource asked for
  void refuse(const Status& status) const;  // in YAML where that was asked for
  void answer(int status, const kube::Json& json) const;
};

// How many writes wait for the store: drain() waits for them, since their replies use the connections.
class InFlight {
 public:
  class Token {
   public:
    explicit Token(InFlight& owner) : owner_(&owner) { owner.change(1); }
    Token(const Token&) = delete;
    Token& operator=(const Token&) = delete;
    ~Token() { owner_->change(-1); }

   private:
    InFlight* owner_;
  };
  std::shared_ptr<Token> begin() { return std::make_shared<Token>(*this); }
  bool wait_until_none(std::chrono::milliseconds limit);

 private:
  void change(int by);
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};

class Objects {
 public:
  Objects(Registry& registry, const Clock& clock, WatchHub& watches, Proxy& proxy, InFlight& in_flight)
      : registry_(registry), clock_(clock), watches_(watches), proxy_(proxy), in_flight_(in_flight) {}
  // Authorized calls only. `body` is parsed already where authorization needed it.
  void handle(std::shared_ptr<Call> call, std::shared_ptr<const Kind> kind, std::optional<Body> body);

 private:
  using CallPtr = std::shared_ptr<Call>;
  using KindPtr = std::shared_ptr<const Kind>;
  void get(const CallPtr& call, const KindPtr& kind);
  void list(const CallPtr& call, const KindPtr& kind);
  void watch(const CallPtr& call, const KindPtr& kind);
  void subresource_get(const CallPtr& call, const KindPtr& kind);
  void write(const CallPtr& call, const KindPtr& kind, std::optional<Body> body);
  void remove(const CallPtr& call, const KindPtr& kind, std::optional<Body> body);
  void remove_all(const CallPtr& call, const KindPtr& kind, std::optional<Body> body);
  Reply reply(const CallPtr& call, const KindPtr& kind);

  Registry& registry_;
  const Clock& clock_;
  WatchHub& watches_;
  Proxy& proxy_;
  InFlight& in_flight_;
};

// Answers with one object in the form asked for. Also used for what holds no objects.
void respond_object(const Call& call, const Kind& kind, int status, const Object& object, const std::vector<std::string>& warnings, Instant now);
Result<ListQuery> parse_list_query(const Call& call);
Result<WatchQuery> parse_watch_query(const Call& call, Revision current);
// Invalid: `PatchOptions.meta.k8s.io "" is invalid: ...`, a 422. `apply`: a server-side apply, which must name its manager.
Result<WriteContext> parse_write_context(const Call& call, bool apply = false);
// From the body and the query; the body wins. `dry_run` is set if the body asks for it.
Result<kube::DeleteOptions> parse_delete_options(const Call& call, const kube::Json& body, bool& dry_run);

}  // namespace fairlead::apiserver
