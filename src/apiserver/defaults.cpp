// SPDX-License-Identifier: Apache-2.0
#include "apiserver/defaults.h"

#include <algorithm>

#include "apiserver/admission_priority.h"
#include "apiserver/policy_kinds.h"
#include "apiserver/claim_controller.h"
#include "apiserver/kinds/resources.h"
#include "apiserver/rbac_kinds.h"
#include "apiserver/workload_kinds.h"
#include "base/encoding.h"
#include "kube/selector.h"

namespace fairlead::apiserver {

using kube::Json;

namespace {

void set_default(Json& object, const char* field, Json value) {
  if (!object.is_object()) return;
  Json& member = object.child(field);
  if (member.is_null()) member = std::move(value);
}

// An existing object member, or nothing.
Json* object_at(Json& parent, std::string_view field) {
  Json* found = parent.find(field);
  return found && found->is_object() ? found : nullptr;
}

template <class F>
void each_object(Json& parent, std::string_view list, F&& visit) {
  Json* found = parent.find(list);
  if (!found || !found->is_array()) return;
  for (Json& item : found->items())
    if (item.is_object()) visit(item);
}

void default_probe(Json& container, const char* name) {
  Json* probe = object_at(container, name);
  if (!probe) return;
  set_default(*probe, "timeoutSeconds", 1);
  set_default(*probe, "periodSeconds", 10);
  set_default(*probe, "successThreshold", 1);
  set_default(*probe, "failureThreshold", 3);
  if (Json* http = object_at(*probe, "httpGet")) {
    set_default(*http, "path", "/");
    set_default(*http, "scheme", "HTTP");
  }
}

bool tag_is_latest(const std::string& image) {
  if (image.find('@') != std::string::npos) return false;
  const auto colon = image.rfind(':');
  const auto slash = image.rfind('/');
  if (colon == std::string::npos || (slash != std::string::npos && colon < slash)) return true;
  return image.substr(colon + 1) == "latest";
}

void default_field_refs(Json& env) {
  if (Json* from = object_at(env, "valueFrom"))
    if (Json* field = object_at(*from, "fieldRef")) set_default(*field, "apiVersion", "v1");
}

void default_container(Json& container) {
  set_default(container, "imagePullPolicy", tag_is_latest(container["image"].string()) ? "Always" : "IfNotPresent");
  set_default(container, "terminationMessagePath", "/dev/termination-log");
  set_default(container, "terminationMessagePolicy", "File");
  set_default(container, "resources", Json::object());
  each_object(container, "ports", [](Json& port) { set_default(port, "protocol", "TCP"); });
  each_object(container, "env", default_field_refs);
  for (const char* probe : {"livenessProbe", "readinessProbe", "startupProbe"}) default_probe(container, probe);
  Json* resources = object_at(container, "resources");
  Json* limits = resources ? object_at(*resources, "limits") : nullptr;
  if (!limits) return;
  const Json most = *limits;
  Json& requests = resources->child("requests");
  if (requests.is_null()) requests = Json::object();
  if (!requests.is_object()) return;
  for (const auto& [name, value] : most.members())
    if (!requests.has(name)) requests.set(name, value);
}

void default_volume(Json& volume) {
  if (volume.has("name") && volume.members().size() == 1) volume.set("emptyDir", Json::object());
  for (const char* kind : {"configMap", "secret", "projected", "downwardAPI"})
    if (Json* source = object_at(volume, kind)) set_default(*source, "defaultMode", 420);
  if (Json* host = object_at(volume, "hostPath")) set_default(*host, "type", "");
  const auto default_items = [](Json& source) {
    each_object(source, "items", [](Json& item) {
      if (Json* field = object_at(item, "fieldRef")) set_default(*field, "apiVersion", "v1");
    });
  };
  if (Json* downward = object_at(volume, "downwardAPI")) default_items(*downward);
  if (Json* projected = object_at(volume, "projected")) {
    each_object(*projected, "sources", [&](Json& source) {
      if (Json* downward = object_at(source, "downwardAPI")) default_items(*downward);
      if (Json* token = object_at(source, "serviceAccountToken")) set_default(*token, "expirationSeconds", 3600);
    });
  }
}

void default_tolerations(Json& spec) {
  Json& tolerations = spec.child("tolerations");
  if (tolerations.is_null()) tolerations = Json::array();
  if (!tolerations.is_array()) return;
  for (const char* key : {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}) {
    const auto& all = tolerations.items();
    const bool there = std::any_of(all.begin(), all.end(), [&](const Json& one) {
      const std::string& effect = one["effect"].string();
      return (one["key"].string() == key || (one["key"].string().empty() && one["operator"].string() == "Exists")) && (effect.empty() || effect == "NoExecute");
    });
    if (!there) tolerations.push(Json::object({{"key", key}, {"operator", "Exists"}, {"effect", "NoExecute"}, {"tolerationSeconds", 300}}));
  }
}

// What the API fills in, in pods and in pod templates alike.
void default_pod_spec(Json& spec) {
  if (spec["hostNetwork"].boolean()) {
    const auto same_port = [](Json& container) {
      each_object(container, "ports", [](Json& port) {
        if (port["hostPort"].integer() == 0 && port["containerPort"].integer() != 0) port.set("hostPort", port["containerPort"]);
      });
    };
    each_object(spec, "containers", same_port);
    each_object(spec, "initContainers", same_port);
  }
  each_object(spec, "volumes", default_volume);
  each_object(spec, "containers", default_container);
  each_object(spec, "initContainers", default_container);
  set_default(spec, "restartPolicy", "Always");
  set_default(spec, "terminationGracePeriodSeconds", 30);
  if (spec["terminationGracePeriodSeconds"].integer() < 0) spec.set("terminationGracePeriodSeconds", 1);
  set_default(spec, "dnsPolicy", "ClusterFirst");
  set_default(spec, "securityContext", Json::object());
  set_default(spec, "schedulerName", "default-scheduler");
}

void default_pod(Json& pod) {
  Json* spec = object_at(pod, "spec");
  if (!spec) return;
  default_pod_spec(*spec);
  set_default(*spec, "serviceAccountName", (*spec)["serviceAccount"].string_or("default"));
  set_default(*spec, "serviceAccount", (*spec)["serviceAccountName"]);
  set_default(*spec, "enableServiceLinks", true);
  default_tolerations(*spec);
}

// BestEffort: nobody asks for anything; Guaranteed: everybody has equal requests and limits of CPU and memory; else Burstable.
std::string qos_class(const Json& spec) {
  bool any = false, guaranteed = true;
  for (const char* list : {"containers", "initContainers"}) {
    for (const Json& container : spec[list].items()) {
      const Json& resources = container["resources"];
      for (const char* name : {"cpu", "memory"}) {
        const Json* request = resources["requests"].find(name);
        const Json* limit = resources["limits"].find(name);
        if (request || limit) any = true;
        const auto asked = request ? kube::Quantity::from_json(*request) : Result<kube::Quantity>(fail(Code::NotFound, ""));
        const auto most = limit ? kube::Quantity::from_json(*limit) : Result<kube::Quantity>(fail(Code::NotFound, ""));
        if (!asked || !most || !(*asked == *most)) guaranteed = false;
      }
    }
  }
  if (!any) return "BestEffort";
  return guaranteed ? "Guaranteed" : "Burstable";
}

void default_service(Json& service) {
  Json& spec = service.child("spec");
  if (spec.is_null()) spec = Json::object();
  if (!spec.is_object()) return;
  each_object(spec, "ports", [](Json& port) {
    set_default(port, "protocol", "TCP");
    set_default(port, "targetPort", port["port"]);
  });
  if (spec["clusterIP"].string() == "None") spec.set("clusterIPs", Json::array({"None"}));
  set_default(spec, "type", "ClusterIP");
  set_default(spec, "sessionAffinity", "None");
  if (spec["sessionAffinity"].string() == "None") spec.erase("sessionAffinityConfig");
  if (spec["sessionAffinity"].string() == "ClientIP") {
    if (std::as_const(spec)["sessionAffinityConfig"].is_null()) spec.set("sessionAffinityConfig", Json::object());
    if (Json* config = object_at(spec, "sessionAffinityConfig")) {
      if (std::as_const(*config)["clientIP"].is_null()) config->set("clientIP", Json::object());
      if (Json* client = object_at(*config, "clientIP")) set_default(*client, "timeoutSeconds", 10800);
    }
  }
  if (spec["type"].string() == "NodePort" || spec["type"].string() == "LoadBalancer") set_default(spec, "externalTrafficPolicy", "Cluster");
  if (spec["clusterIP"].string() == "None") {
    // Without ranges of service addresses there are headless services in IPv4 only. Who names the endpoints himself may name such of both families.
    const bool open = spec["selector"].members().empty();
    set_default(spec, "ipFamilyPolicy", open && spec["ipFamilies"].items().size() != 1 ? "RequireDualStack" : "SingleStack");
    if (spec["ipFamilyPolicy"].string() == "SingleStack") set_default(spec, "ipFamilies", Json::array({"IPv4"}));
    else if (open) set_default(spec, "ipFamilies", Json::array({"IPv4", "IPv6"}));
  }
  set_default(spec, "internalTrafficPolicy", "Cluster");
}

// Nothing is placed on a new node before its agent has said that it is ready; then the life-cycle controller takes the taint away.
void taint_until_ready(Json& node) {
  Json& taints = node.child("spec").child("taints");
  if (taints.is_null()) taints = Json::array();
  if (!taints.is_array()) return;
  for (const Json& taint : taints.items())
    if (taint["key"].string() == "node.kubernetes.io/not-ready" && taint["effect"].string() == "NoSchedule") return;
  taints.push(Json::object({{"key", "node.kubernetes.io/not-ready"}, {"effect", "NoSchedule"}}));
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

void default_crd(Json& crd) {
  Json* spec = object_at(crd, "spec");
  if (!spec) return;
  if (Json* names = object_at(*spec, "names")) {
    const std::string kind = (*names)["kind"].string();
    if ((*names)["singular"].string().empty()) names->set("singular", lower(kind));
    if ((*names)["listKind"].string().empty() && !kind.empty()) names->set("listKind", kind + "List");
  }
  set_default(*spec, "conversion", Json::object({{"strategy", "None"}}));
  if (!spec->find("conversion")->is_object() || !(*spec)["conversion"]["webhook"]["clientConfig"]["service"].is_object()) return;
  set_default(spec->child("conversion").child("webhook").child("clientConfig").child("service"), "port", 443);
}

bool is(const kube::Resource& resource, const kube::Resource& other) { return resource.group == other.group && resource.plural == other.plural; }

}  // namespace

void merge_string_data(Json& secret) {
  const Json* text = secret.find("stringData");
  if (!text) return;
  const Json given = *text;
  secret.erase("stringData");
  if (!given.is_object()) return;
  Json& data = secret.child("data");
  if (!data.is_object()) data = Json::object();
  for (const auto& [key, value] : given.members()) data.set(key, base64(value.string()));
}

void default_pod_template(Json& pod_template) {
  if (Json* spec = object_at(pod_template, "spec")) default_pod_spec(*spec);
}

void apply_defaults(const kube::Resource& resource, Json& object) {
  namespace r = kube::resources;
  if (is_workload(resource)) return default_workload(resource, object);
  if (is(resource, r::crds)) return default_crd(object);
  if (resource.group == rbac_resources::roles.group) return default_rbac(resource, object);
  if (resource.group == priority_classes.group) return default_priority_class(object);
  if (is_policy_kind(resource)) return default_policy(resource, object);
  if (!resource.group.empty()) return;
  if (is(resource, r::pods)) return default_pod(object);
  if (is(resource, r::services)) return default_service(object);
  if (is(resource, r::secrets)) {
    merge_string_data(object);
    if (object["type"].string().empty()) object.set("type", "Opaque");
  }
  if (is(resource, r::claims)) {
    if (Json* spec = object_at(object, "spec")) set_default(*spec, "volumeMode", "Filesystem");
  }
  if (is(resource, r::namespaces)) {
    Json& labels = object.child("metadata").child("labels");
    if (labels.is_null()) labels = Json::object();
    if (labels.is_object()) labels.set("kubernetes.io/metadata.name", kube::name_of(object));
  }
  if (is(resource, r::events)) {
    set_default(object, "reportingComponent", "");
    set_default(object, "reportingInstance", "");
  }
}

void set_initial_state(const kube::Resource& resource, Json& object) {
  namespace r = kube::resources;
  if (is_workload(resource)) return set_initial_workload(resource, object);
  if (!resource.group.empty()) return;
  if (is(resource, r::pods)) {
    object.set("status", Json::object({{"phase", "Pending"}, {"qosClass", qos_class(object["spec"])}}));
    if (!object["spec"]["schedulingGates"].items().empty())
      object.child("status").set("conditions", Json::array({Json::object({{"type", "PodScheduled"}, {"status", "False"}, {"lastProbeTime", nullptr}, {"lastTransitionTime", nullptr},
                                                                          {"reason", "SchedulingGated"}, {"message", "Scheduling is blocked due to non-empty scheduling gates"}})}));
  }
  if (is(resource, r::services)) object.set("status", Json::object({{"loadBalancer", Json::object()}}));
  if (is(resource, r::claims)) {
    object.set("status", Json::object({{"phase", "Pending"}}));
    kube::add_finalizer(object, claim_finalizer);  // it is not removed under the pods that use it
  }
  if (is(resource, workloads::quotas)) object.set("status", Json::object({}));
  if (is(resource, r::nodes)) taint_until_ready(object);
  if (is(resource, r::namespaces)) {
    object.set("spec", Json::object({{"finalizers", Json::array({"kubernetes"})}}));
    object.set("status", Json::object({{"phase", "Active"}}));
  }
}

}  // namespace fairlead::apiserver
