// SPDX-License-Identifier: Apache-2.0
// Update, patch and the posts to subresources: what becomes of the current object.
#include <fmt/format.h>

#include <algorithm>

#include "apiserver/crd.h"
#include "apiserver/defaults.h"
#include "apiserver/kinds/resources.h"
#include "apiserver/quota_kinds.h"
#include "apiserver/registry_write.h"
#include "apiserver/schema.h"
#include "apiserver/status.h"
#include "apiserver/warnings.h"
#include "kube/patch.h"

namespace fairlead::apiserver {

using kube::Json;

namespace {

// What only the server writes: taken from the current object, whatever was sent.
void keep_system_fields(const Json& current, Json& next) {
  Json& metadata = next.child("metadata");
  for (const char* field : {"uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds", "generateName"}) {
    if (const Json* kept = current["metadata"].find(field)) metadata.set(field, *kept);
    else metadata.erase(field);
  }
}

void keep_member(const Json& current, Json& next, const char* name) {
  if (const Json* kept = current.find(name)) next.set(name, *kept);
  else next.erase(name);
}

bool spec_changed(const Kind& kind, const Json& current, const Json& next) {
  if (!kind.schema) return !(current["spec"] == next["spec"]);
  Json before = current, after = next;  // everything but metadata and, where it is a subresource, status
  for (Json* one : {&before, &after}) {
    one->erase("metadata");
    if (kind.status_subresource) one->erase("status");
  }
  return !(before == after);
}

const http::Buffer& success_status() {
  static const auto bytes = std::make_shared<const std::string>(
      print_json(Json::object({{"kind", "Status"}, {"apiVersion", "v1"}, {"metadata", Json::object()}, {"status", "Success"}, {"code", 201}})));
  return bytes;
}

bool mentions_managed_fields(const Json& patch) {
  if (patch.is_object()) return patch["metadata"].has("managedFields");
  for (const Json& step : patch.items()) {
    const std::string &path = step["path"].string(), &from = step["from"].string();
    const auto touches = [](const std::string& pointer) { return pointer == "/metadata" || pointer.starts_with("/metadata/managedFields"); };
    if (touches(path) || touches(from) || path.empty()) return true;
  }
  return false;
}

// What Go's JSON reader calls it.
const char* go_name(const Json& value) {
  return value.is_array() ? "array" : value.is_string() ? "string" : value.is_number() ? "number" : value.is_bool() ? "bool" : "value";
}

// A post's answer is a Status, not the object.
Reply as_status(Reply reply) {
  return [reply = std::move(reply)](Result<Written> done) {
    if (done) {
      done->object.bytes = success_status();
      done->created = true;
    }
    reply(std::move(done));
  };
}

}  // namespace

Result<Decision> EmbeddedRegistry::complete(const Kind& kind, Json next, std::vector<std::string> warnings) const {
  Decision out{Decision::What::Put, Json(), std::move(warnings)};
  const bool held = !next["metadata"]["finalizers"].items().empty() || (is_namespace(kind.resource) && !next["spec"]["finalizers"].items().empty()) ||
                    (is_pod(kind.resource) && next["metadata"]["deletionGracePeriodSeconds"].integer() > 0);
  if (kube::deleting(next) && !held) {
    if (auto empty = nothing_inside(kind.resource, next); !empty) return std::unexpected(std::move(empty.error()));
    out.what = Decision::What::Remove;
    out.next = std::move(next);  // as it was last: for the answer alone
    return out;
  }
  out.next = std::move(next);
  return out;
}

Result<Decision> EmbeddedRegistry::decide_scale(const WriteContext& context, const Kind& kind, const CurrentObject& now, const Json& scale) const {
  const kube::ObjectKey key = kube::key_of(now.object);
  if (const std::string& name = kube::name_of(scale); !name.empty() && name != key.name)
    return fail(Code::Invalid, fmt::format("the name of the object ({}) does not match the name on the URL ({})", name, key.name));
  if (const std::string& version = kube::version_of(scale); !version.empty() && version != std::to_string(now.revision)) return modified(kind.resource, key.name);
  auto next = with_scale(now.object, scale, *kind.scale);
  if (!next) return std::unexpected(std::move(next.error()));
  auto decision = decide_change(context, kind, "", now.object, now.revision, std::move(*next));
  if (decision)
    if (auto asked = ask_policies(context, kind, "scale", now.object, *decision); !asked) return std::unexpected(std::move(asked.error()));
  if (decision && decision->what == Decision::What::Put) decision->managed = track(context, kind, "scale", now, decision->next, Json());
  return decision;
}

Result<Decision> EmbeddedRegistry::decide_update(const WriteContext& context, const Kind& kind, const std::string& subresource, const CurrentObject& now, Json body) const {
  if (subresource == "scale") return decide_scale(context, kind, now, body);
  Json sent;
  if (Json* metadata = body.find("metadata"); metadata != nullptr && metadata->is_object()) {
    if (Json* managed = metadata->find("managedFields")) {
      sent = std::move(*managed);
      metadata->erase("managedFields");
    }
  }
  auto decision = decide_change(context, kind, subresource, now.object, now.revision, std::move(body));
  if (decision)
    if (auto asked = ask_policies(context, kind, subresource, now.object, *decision); !asked) return std::unexpected(std::move(asked.error()));
  // Also of one that goes with this write: the answer shows it as it was last.
  const bool written = decision && decision->what != Decision::What::Keep && decision->next.is_object();
  if (written) decision->managed = track(context, kind, subresource, now, decision->next, sent);
  return decision;
}

Result<Decision> EmbeddedRegistry::decide_change(const WriteContext& context, const Kind& kind, const std::string& subresource, const Json& current, Revision revision,
                                                 Json body) const {
  const kube::Resource& resource = kind.resource;
  const kube::ObjectKey key = kube::key_of(current);
  if (auto fits = fit_key(kind, key, body); !fits) return std::unexpected(std::move(fits.error()));
  auto warnings = decode(context, kind, body);
  if (!warnings) return std::unexpected(std::move(warnings.error()));
  if (const std::string& version = kube::version_of(body); !version.empty() && version != std::to_string(revision)) return modified(resource, key.name);
  if (const std::string& uid = kube::uid_of(body); !uid.empty() && uid != kube::uid_of(current))
    return cannot_fulfil(resource, key.name, fmt::format("Precondition failed: UID in precondition: {}, UID in object meta: {}", uid, kube::uid_of(current)));
  if (subresource == "status") {
    auto decided = decide_status(kind, current, std::move(body), std::move(*warnings));
    // Of what is told about things, only what nodes tell of themselves is asked about: others believe their addresses.
    if (!decided || !same_resource(resource, kube::resources::nodes)) return decided;
    if (auto admitted = admit({resource, key.space, subresource, context, &current}, decided->next); !admitted) return std::unexpected(std::move(admitted.error()));
    return decided;
  }
  if (subresource == "finalize") return decide_finalize(kind, current, body);

  keep_system_fields(current, body);
  if (kind.status_subresource) keep_member(current, body, "status");
  if (is_namespace(resource)) keep_member(current, body, "spec");
  apply_defaults(resource, body);
  if (kind.type) kube::add_zeros(body, *kind.type);
  if (auto admitted = admit({resource, key.space, subresource, context, &current}, body); !admitted) return std::unexpected(std::move(admitted.error()));
  FieldErrors errors;
  assign(resource, body, &current, errors);
  if (kind.schema) {
    kind.schema->apply_defaults(body);
    kind.schema->validate(body, errors, &current);
  }
  check_metadata(resource, body, errors);
  check_metadata_change(current, body, errors);
  check_object(resource, body, errors);
  check_change(resource, current, body, errors);
  if (!errors.empty()) return errors.error(resource, key.name);
  if (counts_generations(kind) && spec_changed(kind, current, body))
    body.child("metadata").set("generation", current["metadata"]["generation"].integer() + 1);
  for (std::string& warning : object_warnings(resource, body)) warnings->push_back(std::move(warning));
  if (resource == kube::resources::admission_policies) set_policy_status(body);
  if (is_crd(resource)) {
    set_crd_status(body, others_than(key.name), clock_.now());
    for (std::string& warning : crd_warnings(body)) warnings->push_back(std::move(warning));
  }
  return complete(kind, std::move(body), std::move(*warnings));
}

Result<Decision> EmbeddedRegistry::decide_status(const Kind& kind, const Json& current, Json body, std::vector<std::string> warnings) const {
  Json next = current;
  keep_member(body, next, "status");
  // Who writes a pod's status need not know its class.
  if (is_pod(kind.resource) && next["status"].is_object() && !next["status"].has("qosClass")) next.child("status").set("qosClass", current["status"]["qosClass"]);
  if (kind.type) kube::add_zeros(next, *kind.type);
  FieldErrors errors;
  if (kind.schema) {
    kind.schema->apply_defaults(next);
    kind.schema->validate(next, errors, &current);
  }
  if (workloads::is(kind.resource, workloads::quotas)) check_quota_status(next, errors);
  if (!errors.empty()) return errors.error(kind.resource, kube::name_of(current));
  return Decision{Decision::What::Put, std::move(next), std::move(warnings)};
}

Result<Decision> EmbeddedRegistry::decide_finalize(const Kind& kind, const Json& current, const Json& body) const {
  Json next = current;
  Json& spec = next.child("spec");
  if (!spec.is_object()) spec = Json::object();
  keep_member(body["spec"], spec, "finalizers");
  return complete(kind, std::move(next), {});
}

Result<Decision> EmbeddedRegistry::decide_bind(const kube::ObjectKey& key, Json& current, const Json& body) const {
  const kube::Resource pods{"", "v1", "pods/binding", "Binding", true};  // as refusals call it
  const Json& target = body["target"];
  FieldErrors errors;
  if (const std::string& kind = target["kind"].string(); !kind.empty() && kind != "Node") errors.unsupported_value("target.kind", kind, {"Node", "<empty>"});
  if (target["name"].string().empty()) errors.required("target.name");
  if (!errors.empty()) return errors.error({"", "v1", "bindings", "Binding", true}, key.name);
  if (const std::string& uid = kube::uid_of(body); !uid.empty() && uid != kube::uid_of(current))
    return cannot_fulfil(pods, key.name, fmt::format("Precondition failed: UID in precondition: {}, UID in object meta: {}", uid, kube::uid_of(current)));
  if (kube::deleting(current)) return cannot_fulfil(pods, key.name, fmt::format("pod {} is being deleted, cannot be assigned to a host", key.name));
  if (const std::string& node = current["spec"]["nodeName"].string(); !node.empty())
    return cannot_fulfil(pods, key.name, fmt::format("pod {} is already assigned to node \"{}\"", key.name, node));
  Json next = std::move(current);
  next.child("spec").set("nodeName", target["name"]);
  for (const auto& [name, value] : body["metadata"]["annotations"].members()) next.child("metadata").child("annotations").set(name, value);
  Json& conditions = next.child("status").child("conditions");
  if (!conditions.is_array()) conditions = Json::array();
  const Json scheduled = Json::object({{"type", "PodScheduled"}, {"status", "True"}, {"lastTransitionTime", print_time(clock_.now())}});
  std::erase_if(conditions.items(), [](const Json& one) { return one["type"].string() == "PodScheduled"; });
  conditions.push(scheduled);
  return Decision{.what = Decision::What::Put, .next = std::move(next), .warnings = {}, .surely = true};
}

void EmbeddedRegistry::update(const WriteContext& context, const Kind& kind, const kube::ObjectKey& key, const std::string& subresource, Json body, Reply reply) {
  const auto served = current(kind);
  const bool known = served && (subresource.empty() || (subresource == "status" && served->status_subresource) || (subresource == "finalize" && is_namespace(served->resource)) || (subresource == "scale" && served->scale));
  if (!known) return reply(not_served());
  const bool unconditional = kube::version_of(body).empty();
  mutate(context, *served, key, unconditional, [this, context, served, subresource, unconditional, body = std::move(body)](const CurrentObject& now) mutable {
    if (unconditional) return decide_update(context, *served, subresource, now, body);
    return decide_update(context, *served, subresource, now, std::move(body));  // is never tried again
  }, std::move(reply));
}

void EmbeddedRegistry::patch(const WriteContext& context, const Kind& kind, const kube::ObjectKey& key, const std::string& subresource, kube::PatchType type, Json patch, Reply reply) {
  const auto served = current(kind);
  const bool known = served && (subresource.empty() || (subresource == "status" && served->status_subresource) || (subresource == "finalize" && is_namespace(served->resource)) || (subresource == "scale" && served->scale));
  if (!known) return reply(not_served());
  if (type == kube::PatchType::Strategic && !served->type && subresource != "scale")
    return reply(fail(Code::Unsupported, "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json"));
  if (type == kube::PatchType::Merge && patch.is_null()) return reply(fail(Code::Invalid, "Invalid JSON Patch"));
  if (type != kube::PatchType::JsonPatch && !patch.is_object())
    return reply(fail(Code::Invalid, fmt::format("error decoding patch: json: cannot unmarshal {} into Go value of type map[string]interface {{}}", go_name(patch))));
  if (type == kube::PatchType::JsonPatch && !patch.is_array()) return reply(fail(Code::Invalid, "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"));
  const bool conditional = type != kube::PatchType::JsonPatch && !patch["metadata"]["resourceVersion"].string().empty();
  mutate(context, *served, key, !conditional, [this, context, served, subresource, type, patch = std::move(patch)](const CurrentObject& now) -> Result<Decision> {
    Result<Json> next = Json();
    Json base = now.object;
    if (subresource == "scale") {
      auto scale = scale_of(now.object, *served->scale);
      if (!scale) return std::unexpected(std::move(scale.error()));
      base = std::move(*scale);
    }
    // Few patches speak of them; for the others they need not be there.
    if (mentions_managed_fields(patch) && !now.managed.empty())
      if (auto managed = kube::parse_json(now.managed)) base.child("metadata").set("managedFields", std::move(*managed));
    if (type == kube::PatchType::Merge) next = kube::merge_patch(std::move(base), patch);
    if (type == kube::PatchType::JsonPatch) next = kube::json_patch(std::move(base), patch);
    if (type == kube::PatchType::Strategic) next = kube::strategic_merge(std::move(base), patch, kube::TypeTable::builtin(), subresource == "scale" ? kube::TypeTable::builtin().find_kind("autoscaling/v1", "Scale") : served->type);
    if (!next) return fail(Code::Invalid, fmt::format("{}: {}", rejected_patch, next.error().message));
    return decide_update(context, *served, subresource, now, std::move(*next));
  }, std::move(reply));
}

void EmbeddedRegistry::post(const WriteContext& context, const Kind& kind, const kube::ObjectKey& key, const std::string& subresource, Json body, Reply reply) {
  if (!is_pod(kind.resource) || (subresource != "binding" && subresource != "eviction")) return reply(not_served());
  const std::string_view wanted = subresource == "binding" ? "Binding" : "Eviction";
  if (const std::string& sent = body["kind"].string(); !sent.empty() && sent != wanted)
    return reply(fail(Code::Invalid, fmt::format("{} in version \"{}\" cannot be handled as a {}", sent, body["apiVersion"].string(), wanted)));
  if (const std::string& name = kube::name_of(body); !name.empty() && name != key.name)
    return reply(fail(Code::Invalid, fmt::format("name in URL does not match name in {} object: {}", wanted, name)));
  auto asked = ask_policies({context, kind, "CREATE", subresource, key, &body, nullptr});
  if (!asked) return reply(std::unexpected(std::move(asked.error())));
  if (!asked->empty())
    reply = [warnings = std::move(*asked), reply = std::move(reply)](Result<Written> done) {
      if (done) done->warnings.insert(done->warnings.end(), warnings.begin(), warnings.end());
      reply(std::move(done));
    };
  if (subresource == "binding") {
    return mutate(context, kind, key, true, [this, key, body = std::move(body)](const CurrentObject& now) { return decide_bind(key, now.object, body); }, as_status(std::move(reply)));
  }
  const Json& sent = body["deleteOptions"];
  kube::DeleteOptions options;
  if (sent["gracePeriodSeconds"].is_number()) options.grace_seconds = sent["gracePeriodSeconds"].integer();
  options.uid = sent["preconditions"]["uid"].string();
  options.resource_version = sent["preconditions"]["resourceVersion"].string();
  WriteContext evicting = context;
  evicting.dry_run = evicting.dry_run || !sent["dryRun"].items().empty();
  evict(evicting, kind, key, options, as_status(std::move(reply)));
}

}  // namespace fairlead::apiserver
