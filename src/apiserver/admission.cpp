// SPDX-License-Identifier: Apache-2.0
#include "apiserver/admission.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "apiserver/admission_priority.h"
#include "apiserver/rbac_kinds.h"
#include "apiserver/registry_names.h"
#include "base/encoding.h"

namespace fairlead::apiserver {

using kube::Json;
namespace r = kube::resources;

namespace {

constexpr const char* token_folder = "/var/run/secrets/kubernetes.io/serviceaccount";
constexpr std::string_view token_volume_prefix = "kube-api-access-";
constexpr const char* mirror_annotation = "kubernetes.io/config.mirror";

bool same(const kube::Resource& a, const kube::Resource& b) { return a.plural == b.plural && a.group == b.group; }

// The pod's wish before the account's; without either it is mounted.
bool automounts(const Json& pod, const Json& account) {
  for (const Json* wish : {&pod["spec"]["automountServiceAccountToken"], &account["automountServiceAccountToken"]}) {
    if (wish->is_bool()) return wish->boolean();
  }
  return true;
}

// Of the uid, which is new and by chance: a simulation that gives the same uids gives the same names. A pod that was read and is created anew has such a volume already.
std::string token_volume_name(const Json& pod) {
  for (const Json& volume : pod["spec"]["volumes"].items())
    if (volume["name"].string().starts_with(token_volume_prefix)) return volume["name"].string();
  constexpr std::string_view letters = "bcdfghjklmnpqrstvwxz2456789";
  std::string out(token_volume_prefix);
  const std::string bytes = sha256(kube::uid_of(pod));
  for (const char byte : bytes.substr(0, 5)) out += letters[static_cast<unsigned char>(byte) % letters.size()];
  return out;
}

Json token_volume(const std::string& name) {
  Json sources = Json::array();
  sources.push(Json::object({{"serviceAccountToken", Json::object({{"expirationSeconds", 3607}, {"path", "token"}})}}));
  Json certificate = Json::array();
  certificate.push(Json::object({{"key", "ca.crt"}, {"path", "ca.crt"}}));
  sources.push(Json::object({{"configMap", Json::object({{"name", "kube-root-ca.crt"}, {"items", std::move(certificate)}})}}));
  Json space = Json::array();
  space.push(Json::object({{"path", "namespace"}, {"fieldRef", Json::object({{"apiVersion", "v1"}, {"fieldPath", "metadata.namespace"}})}}));
  sources.push(Json::object({{"downwardAPI", Json::object({{"items", std::move(space)}})}}));
  return Json::object({{"name", name}, {"projected", Json::object({{"sources", std::move(sources)}, {"defaultMode", 420}})}});
}

// Mounts it in each container that has nothing there; true if any needed it.
bool mount_token(Json& spec, const std::string& volume) {
  bool any = false;
  for (const char* list : {"initContainers", "containers"}) {
    Json* containers = spec.find(list);
    if (containers == nullptr || !containers->is_array()) continue;
    for (Json& container : containers->items()) {
      if (!container.is_object()) continue;
      const auto& mounts = std::as_const(container)["volumeMounts"].items();
      if (std::any_of(mounts.begin(), mounts.end(), [](const Json& mount) { return mount["mountPath"].string() == token_folder; })) continue;
      Json& all = container.child("volumeMounts");
      if (!all.is_array()) all = Json::array();
      all.push(Json::object({{"name", volume}, {"readOnly", true}, {"mountPath", token_folder}}));
      any = true;
    }
  }
  return any;
}

}  // namespace

bool is_mirror_pod(const Json& pod) { return pod["metadata"]["annotations"].has(mirror_annotation); }

std::string mirror_pod_refusal(const Json& pod) {
  const Json& spec = pod["spec"];
  if (spec["nodeName"].string().empty()) return "must set spec.nodeName if mirror pod annotation is set";
  for (const Json& volume : spec["volumes"].items())
    for (const Json& source : volume["projected"]["sources"].items())
      if (source["serviceAccountToken"].is_object()) return "a mirror pod may not use ServiceAccountToken volume projections";
  return "";
}

void apply_service_account(Json& pod, const Json& account) {
  Json* spec = pod.find("spec");
  if (spec == nullptr || !spec->is_object()) return;
  const std::string name = token_volume_name(pod);
  if (automounts(pod, account) && mount_token(*spec, name)) {
    Json& volumes = spec->child("volumes");
    if (!volumes.is_array()) volumes = Json::array();
    const auto& all = std::as_const(volumes).items();
    if (std::none_of(all.begin(), all.end(), [&](const Json& volume) { return volume["name"].string() == name; })) volumes.push(token_volume(name));
  }
  if ((*spec)["imagePullSecrets"].items().empty() && !account["imagePullSecrets"].items().empty()) spec->set("imagePullSecrets", account["imagePullSecrets"]);
}

std::optional<Json> AccessAdmission::find(const kube::Resource& resource, const kube::ObjectKey& key) const {
  const auto kind = registry_.kinds()->find(resource.group, resource.version, resource.plural);
  const auto object = kind ? registry_.get(*kind, key) : Result<Object>(fail(Code::NotFound, ""));
  if (!object) return std::nullopt;
  auto parsed = kube::parse_json(*object->bytes);
  if (!parsed) return std::nullopt;
  return std::move(*parsed);
}

std::vector<Json> AccessAdmission::default_classes() const {
  const auto kind = registry_.kinds()->find(priority_classes.group, priority_classes.version, priority_classes.plural);
  std::vector<Json> out;
  const auto page = registry_.list(*kind, "", {});
  if (!page) return out;
  for (const Listed& object : page->objects) {
    const http::Buffer bytes = object.value.bytes();
    if (bytes->find("\"globalDefault\":true") == std::string::npos) continue;
    if (auto parsed = kube::parse_json(*bytes)) out.push_back(std::move(*parsed));
  }
  return out;
}

Result<void> AccessAdmission::admit(const AdmissionCall& call, Json& object) const {
  const kube::Resource& resource = call.resource;
  const bool create = call.old == nullptr;
  if (const User* user = call.context.requester.get(); user != nullptr && same(resource, r::nodes)) {
    if (const std::string node = user->node(); !node.empty()) {
      if (call.subresource.empty() || create)
        if (auto done = check_node_write(node, call.old, object); !done) return forbidden(resource, kube::name_of(object), done.error().message);
      if (check_node_)
        if (auto done = check_node_(*user, call.old, object); !done) return forbidden(resource, kube::name_of(object), done.error().message);
    }
  }
  if (!call.subresource.empty()) return {};
  if (same(resource, r::pods)) {
    if (create) return admit_pod(call, object);
    // What the admission of the create filled in need not be sent again.
    Json* spec = object.find("spec");
    for (const char* field : {"priority", "preemptionPolicy"}) {
      const Json& kept = (*call.old)["spec"][field];
      if (spec != nullptr && spec->is_object() && std::as_const(*spec)[field].is_null() && !kept.is_null()) spec->set(field, kept);
    }
    return {};
  }
  if (resource.group == rbac_group) return admit_rbac(call, object);
  if (same(resource, priority_classes)) return admit_priority_class(call, object);
  if (same(resource, r::admission_policies) || same(resource, r::admission_policy_bindings)) return admit_policy(call, object);
  return {};
}

Result<void> AccessAdmission::admit_pod(const AdmissionCall& call, Json& pod) const {
  const std::string& name = kube::name_of(pod);
  if (!std::as_const(pod)["spec"].is_object()) return {};
  const bool mirror = is_mirror_pod(pod);
  if (const std::string why = mirror ? mirror_pod_refusal(pod) : ""; !why.empty()) return forbidden(r::pods, name, why);
  const std::string account_name = std::as_const(pod)["spec"]["serviceAccountName"].string_or("default");
  const auto account = find(r::service_accounts, {call.space, account_name});
  if (!account)
    return forbidden(r::pods, name, fmt::format("error looking up service account {}/{}: serviceaccount \"{}\" not found", call.space, account_name, account_name));
  if (!mirror) apply_service_account(pod, *account);
  // As by a mutating webhook: after the account's defaults, before anything is judged.
  if (!mirror && equip_pod_) equip_pod_(call.space, *account, pod, [this](const kube::Resource& resource, const kube::ObjectKey& key) { return find(resource, key); });

  const std::string class_name = std::as_const(pod)["spec"]["priorityClassName"].string();
  const auto named = class_name.empty() ? std::nullopt : find(priority_classes, {"", class_name});
  const std::vector<Json> defaults = class_name.empty() ? default_classes() : std::vector<Json>();
  if (auto done = admit_pod_priority(pod, named ? &*named : nullptr, choose_default(defaults)); !done) return forbidden(r::pods, name, done.error().message);
  return {};
}

Result<void> AccessAdmission::admit_priority_class(const AdmissionCall& call, const Json& object) const {
  if (!object["globalDefault"].boolean()) return {};
  const std::vector<Json> defaults = default_classes();
  const Json* there = choose_default(defaults);
  if (there == nullptr || (call.old != nullptr && kube::name_of(*there) == kube::name_of(object))) return {};
  return forbidden(priority_classes, kube::name_of(object), fmt::format("PriorityClass {} is already marked as default. Only one default can exist", kube::name_of(*there)));
}

// Who writes a policy is told by it what stands in its parameters: he has to be allowed to read them, as in Kubernetes.
Result<void> AccessAdmission::admit_policy(const AdmissionCall& call, const Json& object) const {
  const User* user = call.context.requester.get();
  if (user == nullptr || user->in(masters_group)) return {};
  const bool binding = same(call.resource, r::admission_policy_bindings);
  const Json& spec = object["spec"];
  const Json* before = call.old == nullptr ? nullptr : &(*call.old)["spec"];
  const Json& ref = spec["paramRef"];
  if (before != nullptr && (binding ? (*before)["paramRef"] == ref && (*before)["policyName"] == spec["policyName"] : (*before)["paramKind"] == spec["paramKind"])) return {};
  if (binding && ref.is_null()) return {};
  const auto policy = binding ? find(r::admission_policies, {"", spec["policyName"].string()}) : std::nullopt;
  const Json of = !binding ? spec["paramKind"] : policy ? (*policy)["spec"]["paramKind"] : Json();
  if (of.is_null()) return {};
  const std::string &version = of["apiVersion"].string(), &kind = of["kind"].string();
  Attributes asks{.verb = "get", .group = version.find('/') == std::string::npos ? "" : version.substr(0, version.find('/')), .resource = "*", .name = binding ? ref["name"].string_or("*") : "*"};
  if (binding) asks.space = ref["namespace"].string();
  for (const auto& one : registry_.kinds()->kinds)
    if (one->resource.api_version() == version && one->resource.kind == kind) asks.resource = one->resource.plural;
  if (access_.authorize(*user, asks).allowed) return {};
  return forbidden(call.resource, kube::name_of(object), binding ? fmt::format("user {} does not have \"get\" permission on the object referenced by paramRef", user->name)
                                                                 : fmt::format("user {} must have \"get\" permission on all objects of the referenced paramKind (kind={}, apiVersion={})", user->name, kind, version));
}

Result<void> AccessAdmission::admit_rbac(const AdmissionCall& call, const Json& object) const {
  const User* user = call.context.requester.get();
  if (user == nullptr) return {};  // the server itself
  if (!call.resource.kind.ends_with("Binding")) return access_.may_grant(*user, call.resource, {call.space, kube::name_of(object)}, call.old, object);
  if (call.old != nullptr && (*call.old)["roleRef"] == object["roleRef"] && (*call.old)["subjects"] == object["subjects"]) return {};
  return access_.may_bind(*user, object);
}

}  // namespace fairlead::apiserver
