// SPDX-License-Identifier: Apache-2.0
// Creating objects, and what all writes share: decoding what a client sent, the form that reaches the store, the loop of read, decide, compare-and-write.
#include "apiserver/registry_write.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "apiserver/crd.h"
#include "apiserver/defaults.h"
#include "apiserver/kinds/resources.h"
#include "apiserver/schema.h"
#include "apiserver/warnings.h"

namespace fairlead::apiserver {

using kube::Json;

namespace {

constexpr int name_attempts = 8;
// Each failed attempt means that somebody else's write came through: the whole makes progress, and a writer that keeps losing is only unlucky. With four busy writers on one
// object one of them was seen to lose 64 times in a row; the bound is there for a defect, not for luck.
constexpr int write_attempts = 10'000;

// Members of spec that our defaults fill in, but Kubernetes' allocators and admission do: they are nobody's.
class ServerFields {
 public:
  ServerFields(const kube::Resource& resource, const Json& body) {
    if (!resource.group.empty() || (resource.plural != "pods" && resource.plural != "services")) return;
    for (const char* name : {"tolerations", "clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"})
      if (!body["spec"].has(name)) names_.push_back(name);
    if (!body["spec"].has("serviceAccountName") && !body["spec"].has("serviceAccount")) names_.insert(names_.end(), {"serviceAccountName", "serviceAccount"});
  }
  void hide(Json& body) {
    Json* spec = body.find("spec");
    if (names_.empty() || spec == nullptr || !spec->is_object()) return;
    for (const char* name : names_) {
      Json* value = spec->find(name);
      if (value == nullptr) continue;
      aside_.emplace_back(name, std::move(*value));
      spec->erase(name);
    }
  }
  void show(Json& body) {
    for (auto& [name, value] : aside_) body.child("spec").set(name, std::move(value));
  }

 private:
  std::vector<const char*> names_;
  std::vector<kube::JsonMember> aside_;
};

http::Buffer without_revision(const Template& plain) {
  // A dry run has no revision: `"metadata":{"resourceVersion":"",` becomes `"metadata":{`.
  constexpr std::string_view member = "\"resourceVersion\":\"";
  std::string text = plain.before.substr(0, plain.before.size() - member.size());
  std::string_view after = plain.after;
  after.remove_prefix(after.starts_with("\",") ? 2 : 1);
  return std::make_shared<const std::string>(text.append(after));
}

std::unexpected<Error> over_quota(const kube::Resource& resource, std::string_view name, Error error) {
  if (error.code != Code::Forbidden) return std::unexpected(std::move(error));
  return forbidden(resource, name, error.message);
}

}  // namespace

Result<void> EmbeddedRegistry::fit_key(const Kind& kind, const kube::ObjectKey& key, Json& body) const {
  if (!body.is_object()) return fail(Code::Invalid, "the body must be a JSON object");
  const kube::Resource& resource = kind.resource;
  const std::string& version = body["apiVersion"].string();
  if (!version.empty() && version != resource.api_version())
    return fail(Code::Invalid, fmt::format("the API version in the data ({}) does not match the expected API version ({})", version, resource.api_version()));
  const std::string& sent_kind = body["kind"].string();
  if (!sent_kind.empty() && sent_kind != resource.kind && kind.schema)
    return fail(Code::Invalid, fmt::format("{}.{} \"{}\" is invalid: kind: Invalid value: {}: must be {}", sent_kind, resource.group, body["metadata"]["name"].string(),
                                           kube::print_json(sent_kind), resource.kind));
  if (!sent_kind.empty() && sent_kind != resource.kind)
    return fail(Code::Invalid, fmt::format("{} in version \"{}\" cannot be handled as a {}", sent_kind, resource.version, resource.kind));
  Json& metadata = body.child("metadata");
  if (metadata.is_null()) metadata = Json::object();
  if (!metadata.is_object()) return fail(Code::Invalid, "unable to decode: metadata must be an object");
  const std::string& space = metadata["namespace"].string();
  if (resource.namespaced && key.space.empty()) return fail(Code::Invalid, "an empty namespace may not be set when a resource name is provided");
  if (!space.empty() && space != key.space) return fail(Code::Invalid, "the namespace of the provided object does not match the namespace sent on the request");
  if (resource.namespaced) metadata.set("namespace", key.space);
  else metadata.erase("namespace");
  const std::string& name = metadata["name"].string();
  if (!key.name.empty() && !name.empty() && name != key.name)
    return fail(Code::Invalid, fmt::format("the name of the object ({}) does not match the name on the URL ({})", name, key.name));
  if (!key.name.empty()) metadata.set("name", key.name);
  return {};
}

Result<std::vector<std::string>> EmbeddedRegistry::decode(const WriteContext& context, const Kind& kind, Json& body) const {
  std::vector<std::string> complaints;
  for (const std::string& path : context.duplicates) complaints.push_back(fmt::format("duplicate field \"{}\"", path));
  if (kind.type) {
    if (const auto wrong = kube::type_errors(body, *kind.type); !wrong.empty())
      return fail(Code::Invalid, fmt::format("{} in version \"{}\" cannot be handled as a {}: {}", kind.resource.kind, kind.resource.version, kind.resource.kind, wrong.front()));
    if (context.validation != FieldValidation::Ignore)
      for (const std::string& path : kube::unknown_fields(body, *kind.type)) complaints.push_back(fmt::format("unknown field \"{}\"", path));
    prune_to_type(body, *kind.type);
    kube::drop_zeros(body, *kind.type);
  } else if (kind.schema) {
    for (const std::string& path : kind.schema->prune(body)) complaints.push_back(fmt::format("unknown field \"{}\"", path));
  }
  if (auto cleaned = clean_metadata(body); !cleaned) return std::unexpected(std::move(cleaned.error()));
  if (context.validation == FieldValidation::Ignore) complaints.clear();
  if (context.validation == FieldValidation::Strict && !complaints.empty())
    return fail(Code::Invalid, fmt::format("{} in version \"{}\" cannot be handled as a {}: strict decoding error: {}", kind.resource.kind, kind.resource.version, kind.resource.kind,
                                           fmt::join(complaints, ", ")));
  return complaints;
}

Result<void> EmbeddedRegistry::admit_into(const kube::Resource& resource, const std::string& space, const std::string& name) const {
  if (!resource.group.empty()) {
    const std::scoped_lock lock(kinds_mutex_);
    if (terminating_.contains(resource_text(resource))) return forbidden(resource, name, "create not allowed while custom resource definition is terminating");
  }
  if (!resource.namespaced) return {};
  const auto entry = store_.get(store_key(kube::resources::namespaces, {"", space}));
  if (!entry) return not_found(kube::resources::namespaces, space);
  if (Peek(*entry->value.bytes()).field("metadata.deletionTimestamp"))
    return forbidden(resource, name, fmt::format("unable to create new content in namespace {} because it is being terminated", space));
  return {};
}

void EmbeddedRegistry::set_admission(const Admission* admission) {
  const std::unique_lock lock(admission_mutex_);
  admission_ = admission;
}

Result<void> EmbeddedRegistry::admit(const AdmissionCall& call, Json& object) const {
  const std::shared_lock lock(admission_mutex_);
  return admission_ == nullptr ? Result<void>() : admission_->admit(call, object);
}

bool EmbeddedRegistry::needs_default_account(const Kind& kind, const std::string& space, const Json& body) const {
  if (!is_pod(kind.resource)) return false;
  {
    const std::shared_lock lock(admission_mutex_);
    if (admission_ == nullptr) return false;
  }
  const Json& spec = body["spec"];
  const std::string& name = spec["serviceAccountName"].string().empty() ? spec["serviceAccount"].string() : spec["serviceAccountName"].string();
  return (name.empty() || name == "default") && !store_.get(store_key(kube::resources::service_accounts, {space, "default"}));
}

Result<std::vector<std::string>> EmbeddedRegistry::prepare_new(const WriteContext& context, const Kind& kind, const std::string& space, Json& body,
                                                               std::optional<std::string>& managed) const {
  const kube::Resource& resource = kind.resource;
  if (auto fits = fit_key(kind, {space, ""}, body); !fits) return std::unexpected(std::move(fits.error()));
  auto warnings = decode(context, kind, body);
  if (!warnings) return warnings;
  Json& metadata = body.child("metadata");
  if (!metadata["resourceVersion"].string().empty()) return fail(Code::Invalid, "resourceVersion should not be set on objects to be created");
  for (const char* field : {"resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds"}) metadata.erase(field);
  metadata.set("uid", new_uid());
  metadata.set("creationTimestamp", print_time(clock_.now()));
  if (counts_generations(kind)) metadata.set("generation", 1);

  ServerFields server_fields(resource, body);
  apply_defaults(resource, body);
  if (kind.type) kube::add_zeros(body, *kind.type);
  if (kind.schema) {
    if (kind.status_subresource) body.erase("status");
    kind.schema->apply_defaults(body);
  }
  // Before the server's own additions: those are nobody's.
  if (!managed) {
    server_fields.hide(body);
    managed = managed_of_new(body, kind.type, Shape::of(kind), field_writer(context, kind, "", clock_.now()));
    server_fields.show(body);
  }
  set_initial_state(resource, body);
  if (auto admitted = admit_into(resource, space, kube::name_of(body)); !admitted) return std::unexpected(std::move(admitted.error()));
  if (auto admitted = admit({resource, space, "", context, nullptr}, body); !admitted) return std::unexpected(std::move(admitted.error()));
  FieldErrors errors;
  assign(resource, body, nullptr, errors);
  if (errors.empty()) {  // what cannot be assigned is told alone
    if (kind.schema) kind.schema->validate(body, errors);
    check_metadata(resource, body, errors);
    check_object(resource, body, errors);
  }
  if (!errors.empty()) {
    if (addresses_) addresses_->forget(kube::uid_of(body));
    return errors.error(resource, kube::name_of(body));
  }
  for (std::string& warning : object_warnings(resource, body)) warnings->push_back(std::move(warning));
  if (resource == kube::resources::admission_policies) set_policy_status(body);
  if (is_crd(resource)) {
    body.erase("status");
    set_crd_status(body, others_than(kube::name_of(body)), clock_.now());
    for (std::string& warning : crd_warnings(body)) warnings->push_back(std::move(warning));
  }
  return warnings;
}

Result<Template> EmbeddedRegistry::stored_form(const Kind& kind, const std::string& key, Template plain) const {
  if (!sealed(kind.resource)) return plain;
  if (!seal_) return fail(Code::Unsupported, "Secrets need a key: the server was started without one");
  return seal_->close(key, plain);
}

struct EmbeddedRegistry::Creation {
  WriteContext context;
  std::shared_ptr<const Kind> kind;
  Json body;
  std::vector<std::string> warnings;
  std::optional<std::string> managed;
  Reply reply;
  Gate::Ticket container, under_way;
  int attempts = 0;
  bool generated = false;  // the name is the server's choice
  QuotaLedger::Ticket expected = nullptr;  // of a ResourceQuota: from here on its namespace is counted
};

void EmbeddedRegistry::create(const WriteContext& context, const Kind& kind, const std::string& space, Json body, Reply reply) {
  create_as(context, kind, space, std::move(body), std::nullopt, std::move(reply));
}

void EmbeddedRegistry::create_as(const WriteContext& context, const Kind& kind, const std::string& space, Json body, std::optional<std::string> managed, Reply reply) {
  const auto served = current(kind);
  if (!served) return reply(not_served());
  if (needs_default_account(*served, space, body)) {
    const auto accounts = kinds()->find("", "v1", kube::resources::service_accounts.plural);
    Json account = Json::object({{"metadata", Json::object({{"name", "default"}, {"namespace", space}})}});
    auto then = [this, context, served, space, body = std::move(body), managed = std::move(managed), reply = std::move(reply), under_way = writes_.enter("create")](Result<Written>) mutable {
      create_prepared(context, served, space, std::move(body), std::move(managed), std::move(reply));
    };
    return create_prepared({.user = "system:apiserver"}, accounts, space, std::move(account), std::nullopt, std::move(then));
  }
  create_prepared(context, served, space, std::move(body), std::move(managed), std::move(reply));
}

void EmbeddedRegistry::create_prepared(const WriteContext& context, const std::shared_ptr<const Kind>& served, const std::string& space, Json body, std::optional<std::string> managed,
                                       Reply reply) {
  auto creation = std::make_shared<Creation>(Creation{context, served, std::move(body), {}, std::move(managed), std::move(reply), {}, writes_.enter("create")});
  // First inside, then the look at the container: whoever removes the container looks the other way round.
  if (served->resource.namespaced) creation->container = gate_.enter("namespace/" + space);
  else if (!served->resource.group.empty()) creation->container = gate_.enter("crd/" + resource_text(served->resource));
  auto prepared = prepare_new(context, *served, space, creation->body, creation->managed);
  if (!prepared) return creation->reply(std::unexpected(std::move(prepared.error())));
  creation->warnings = std::move(*prepared);
  creation->reply = forgetting(served->resource, creation->body, context.dry_run, std::move(creation->reply));
  if (kube::name_of(creation->body).empty()) generate_name(*creation);
  const kube::ObjectKey key{space, creation->generated ? std::string() : kube::name_of(creation->body)};
  const auto go_on = [this, creation, key] {
    auto asked = ask_policies({creation->context, *creation->kind, "CREATE", "", key, &creation->body, nullptr});
    if (!asked) return creation->reply(std::unexpected(std::move(asked.error())));
    for (std::string& warning : *asked) creation->warnings.push_back(std::move(warning));
    submit_now(creation);
  };
  if (!waits_for_others(*served)) return go_on();
  if (!waiting_.post(go_on)) creation->reply(too_many_wait(*creation->kind));
}

void EmbeddedRegistry::submit(std::shared_ptr<Creation> creation) {
  if (!creation->kind->converts) return submit_now(std::move(creation));
  if (!waiting_.post([this, creation] { submit_now(creation); })) creation->reply(too_many_wait(*creation->kind));
}

void EmbeddedRegistry::generate_name(Creation& creation) const {
  constexpr std::size_t base_limit = 58;  // with the suffix: 63, a DNS label
  Json& metadata = creation.body.child("metadata");
  metadata.set("name", metadata["generateName"].string().substr(0, base_limit) + name_suffix());
  apply_defaults(creation.kind->resource, creation.body);  // a namespace's label repeats its name
  creation.generated = true;
}

void EmbeddedRegistry::submit_now(std::shared_ptr<Creation> creation) {
  const kube::Resource& resource = creation->kind->resource;
  if (workloads::is(resource, workloads::quotas) && !creation->context.dry_run && !creation->expected) {
    return quotas_.expect(kube::space_of(creation->body), [this, creation](QuotaLedger::Ticket expected) {
      creation->expected = std::move(expected);
      submit_now(creation);
    });
  }
  const bool generate = creation->generated;
  if (creation->attempts > 0) generate_name(*creation);
  ++creation->attempts;
  std::string key = store_key(resource, kube::key_of(creation->body));
  auto forms = forms_of(*creation->kind, creation->body, creation->managed ? std::string_view(*creation->managed) : std::string_view());
  if (!forms) return creation->reply(std::unexpected(std::move(forms.error())));
  std::string name = kube::name_of(creation->body);
  const bool dry_run = creation->context.dry_run;
  // The last of all checks, as in Kubernetes: what is refused otherwise takes no room.
  auto room = quotas_.admit({resource, kube::space_of(creation->body), key, nullptr, creation->body, dry_run});
  if (!room) return creation->reply(over_quota(resource, name, std::move(room.error())));
  std::shared_ptr<const Template> plain_text;  // what the answer is made of, where the store has something else or nothing
  if (forms->shown) plain_text = std::make_shared<const Template>(std::move(*forms->shown));
  else if (dry_run || sealed(resource)) plain_text = std::make_shared<const Template>(forms->stored);
  auto form = stored_form(*creation->kind, key, std::move(forms->stored));
  if (!form) return creation->reply(std::unexpected(std::move(form.error())));
  if (dry_run) {
    if (store_.get(key)) return creation->reply(already_exists(resource, name));
    return creation->reply(Written{.object = {without_revision(*plain_text), 0}, .created = true, .warnings = std::move(creation->warnings)});
  }
  // While it waits for its commit it is bytes: a tree is kept only of what may need another name.
  if (!generate) creation->body = Json();
  store_.write({std::move(key), Revision{0}, std::move(*form)}, [this, creation, plain_text, name = std::move(name), generate, room = std::move(*room)](Result<Entry> done) mutable {
    const kube::Resource& of = creation->kind->resource;
    room.reset();  // before the answer: who learns that it came to nothing may try again at once
    creation->expected.reset();
    if (done) {
      const auto plain_bytes = plain_text ? std::make_shared<const std::string>(join(*plain_text, done->revision)) : done->value.bytes();
      return creation->reply(Written{.object = {plain_bytes, done->revision}, .created = true, .warnings = std::move(creation->warnings)});
    }
    const bool clash = done.error().code == Code::Exists || done.error().code == Code::Conflict;
    if (clash && generate && creation->attempts < name_attempts) return submit(creation);
    if (clash) return creation->reply(already_exists(of, name));
    creation->reply(pass(std::move(done.error()), fmt::format("create {} \"{}\"", resource_text(of), name)));
  });
}

struct EmbeddedRegistry::Mutation {
  WriteContext context;
  std::shared_ptr<const Kind> kind;
  kube::ObjectKey key;
  std::string store_key;
  bool retry;
  Decide decide;
  Reply reply;
  Gate::Ticket under_way;
  int attempts = 0;
};

void EmbeddedRegistry::mutate(const WriteContext& context, const Kind& kind, const kube::ObjectKey& key, bool retry, Decide decide, Reply reply) {
  const auto served = current(kind);
  if (!served) return reply(not_served());
  auto mutation = std::make_shared<Mutation>(Mutation{context, served, key, store_key(served->resource, key), retry, std::move(decide), std::move(reply), writes_.enter("change")});
  begin(std::move(mutation));
}

void EmbeddedRegistry::begin(std::shared_ptr<Mutation> mutation) {
  // Another attempt would be made on the thread of the store: policies take their time.
  const bool again = mutation->attempts > 0 && any_policies_.load(std::memory_order_acquire);
  if (!again && !waits_for_others(*mutation->kind)) return attempt(std::move(mutation));
  if (!waiting_.post([this, mutation] { attempt(mutation); })) mutation->reply(too_many_wait(*mutation->kind));
}

// Of updates only what a spec says can take more of a quota; what is told about an object (status) is counted as it is.
Result<QuotaLedger::Ticket> EmbeddedRegistry::may_grow(const Mutation& mutation, const Json& current, const Decision& decision) const {
  const kube::Resource& resource = mutation.kind->resource;
  if (decision.what != Decision::What::Put || decision.surely || !QuotaLedger::grows(resource) || current["spec"] == decision.next["spec"]) return QuotaLedger::Ticket();
  auto room = quotas_.admit({resource, mutation.key.space, mutation.store_key, &current, decision.next, mutation.context.dry_run});
  if (!room) return over_quota(resource, mutation.key.name, std::move(room.error()));
  return room;
}

void EmbeddedRegistry::attempt(std::shared_ptr<Mutation> mutation) {
  const Kind& kind = *mutation->kind;
  const kube::Resource& resource = kind.resource;
  const auto entry = mutation->key.name.empty() ? std::nullopt : store_.get(mutation->store_key);
  if (!entry) return mutation->reply(not_found(resource, mutation->key.name));
  const auto value = plain(kind, mutation->store_key, entry->value, entry->revision);
  if (!value) return mutation->reply(std::unexpected(value.error()));
  const http::Buffer bytes = value->bytes();
  const std::string_view managed = managed_fields_of(*bytes);
  auto current = kube::parse_json(without_managed_fields(*bytes));
  if (!current) return mutation->reply(fail(Code::Internal, fmt::format("the stored {} \"{}\" cannot be read: {}", resource_text(resource), mutation->key.name, current.error().message)));
  auto decision = mutation->decide({*current, entry->revision, managed});
  if (!decision) return mutation->reply(std::unexpected(std::move(decision.error())));

  const Object now{bytes, entry->revision};
  if (decision->what == Decision::What::Put) decision->next.child("metadata").erase("resourceVersion");
  if (decision->what == Decision::What::Put && !decision->surely) {
    current->child("metadata").erase("resourceVersion");
    if (decision->next == *current && (!decision->managed || *decision->managed == managed)) decision->what = Decision::What::Keep;
  }
  if (decision->what == Decision::What::Keep) return mutation->reply(Written{.object = now, .warnings = std::move(decision->warnings)});

  auto room = may_grow(*mutation, *current, *decision);
  if (!room) return mutation->reply(std::unexpected(std::move(room.error())));
  Write write{mutation->store_key, entry->revision, std::nullopt};
  Template text;
  const bool removing = decision->what == Decision::What::Remove;
  const std::string_view owned = decision->managed ? std::string_view(*decision->managed) : managed;
  std::shared_ptr<const Template> plain_text;  // what the answer is made of, where the store has something else or nothing
  if (removing) {
    if (decision->next.is_object()) text = canonical(decision->next, resource, owned);
  } else {
    auto forms = forms_of(kind, decision->next, owned);
    if (!forms) return mutation->reply(std::unexpected(std::move(forms.error())));
    text = std::move(forms->stored);
    if (forms->shown) plain_text = std::make_shared<const Template>(std::move(*forms->shown));
  }
  if (!plain_text && (removing || sealed(resource) || mutation->context.dry_run)) plain_text = std::make_shared<const Template>(text);
  if (!removing) {
    auto form = stored_form(kind, mutation->store_key, std::move(text));
    if (!form) return mutation->reply(std::unexpected(std::move(form.error())));
    write.value = std::move(*form);
  }
  if (mutation->context.dry_run) {
    const Object shown = removing ? now : Object{std::make_shared<const std::string>(join(*plain_text, entry->revision)), entry->revision};
    return mutation->reply(Written{.object = shown, .removed = removing, .warnings = std::move(decision->warnings)});
  }
  ++mutation->attempts;
  store_.write(std::move(write), [this, mutation, plain_text, removing, last = removing ? bytes : nullptr, warnings = std::move(decision->warnings), room = std::move(*room)](Result<Entry> done) mutable {
    const kube::Resource& of = mutation->kind->resource;
    room.reset();
    if (done) {
      Written written{.object = {nullptr, done->revision}, .removed = removing, .warnings = std::move(warnings)};
      if (removing) written.object.bytes = std::make_shared<const std::string>(plain_text->before.empty() ? with_revision(*last, done->revision) : join(*plain_text, done->revision));
      else written.object.bytes = plain_text ? std::make_shared<const std::string>(join(*plain_text, done->revision)) : done->value.bytes();
      return mutation->reply(std::move(written));
    }
    const Code code = done.error().code;
    if (code == Code::Conflict && mutation->retry && mutation->attempts < write_attempts) return begin(mutation);
    if (code == Code::Conflict) return mutation->reply(modified(of, mutation->key.name));
    if (code == Code::NotFound) return mutation->reply(not_found(of, mutation->key.name));
    mutation->reply(pass(std::move(done.error()), fmt::format("write {} \"{}\"", resource_text(of), mutation->key.name)));
  });
}

}  // namespace fairlead::apiserver
