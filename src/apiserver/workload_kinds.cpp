// SPDX-License-Identifier: Apache-2.0
#include "apiserver/workload_kinds.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "apiserver/columns.h"
#include "apiserver/go_text.h"
#include "apiserver/kinds/resources.h"
#include "kube/selector.h"

namespace fairlead::apiserver {

using kube::Json;
using workloads::is;

namespace {

void set_default(Json& object, const char* field, Json value) {
  Json& member = object.child(field);
  if (member.is_null()) member = std::move(value);
}

Json& object_child(Json& parent, std::string_view field) {
  Json& child = parent.child(field);
  if (!child.is_object()) child = Json::object();
  return child;
}

// Its pods carry the Job's uid and name; so does the Job itself unless it has labels of its own.
void label_job(Json& job) {
  const std::string uid = kube::uid_of(job), name = kube::name_of(job);
  const bool bare = job["metadata"]["labels"].members().empty() || job["metadata"]["labels"] == job["spec"]["template"]["metadata"]["labels"];
  Json& labels = object_child(object_child(object_child(object_child(job, "spec"), "template"), "metadata"), "labels");
  for (const auto& [key, value] : {std::pair<std::string_view, const std::string&>{workloads::job_uid_label, uid}, {"controller-uid", uid}, {workloads::job_name_label, name}, {"job-name", name}})
    if (!value.empty() && labels[key].is_null()) labels.set(key, value);
  if (!bare) return;
  const Json copy = labels;
  object_child(job, "metadata").set("labels", copy);
}

void default_job(Json& job) {
  Json* spec = job.find("spec");
  if (!spec || !spec->is_object()) return;
  if ((*spec)["completions"].is_null() && (*spec)["parallelism"].is_null()) spec->set("completions", 1);
  set_default(*spec, "parallelism", 1);
  set_default(*spec, "backoffLimit", 6);
  set_default(*spec, "completionMode", "NonIndexed");
  set_default(*spec, "suspend", false);
  set_default(*spec, "podReplacementPolicy", "TerminatingOrFailed");
  set_default(*spec, "manualSelector", false);
  default_pod_template(object_child(*spec, "template"));
  // One with a generated name gets it only now.
  if ((*spec)["selector"]["matchLabels"][workloads::job_uid_label].string() == kube::uid_of(job) && !(*spec)["manualSelector"].boolean() && !kube::uid_of(job).empty()) label_job(job);
}

void default_slice(Json& slice) {
  for (const char* list : {"ports", "endpoints"}) {
    Json* found = slice.find(list);
    if (!found || !found->is_array()) continue;
    for (Json& item : found->items()) {
      if (!item.is_object()) continue;
      if (std::string_view(list) == "ports") {
        set_default(item, "name", "");
        set_default(item, "protocol", "TCP");
      }
    }
  }
}

void default_network_policy(Json& policy) {
  Json* spec = policy.find("spec");
  if (!spec || !spec->is_object()) return;
  if (Json& types = spec->child("policyTypes"); types.is_null()) {
    types = Json::array({"Ingress"});
    if (!(*spec)["egress"].items().empty()) types.push("Egress");
  }
  for (const char* list : {"ingress", "egress"}) {
    Json* rules = spec->find(list);
    if (!rules || !rules->is_array()) continue;
    for (Json& rule : rules->items()) {
      Json* ports = rule.is_object() ? rule.find("ports") : nullptr;
      if (!ports || !ports->is_array()) continue;
      for (Json& port : ports->items())
        if (port.is_object()) set_default(port, "protocol", "TCP");
    }
  }
}

// --- rules ---

void check_count(const std::string& path, const Json& value, FieldErrors& errors) {
  if (!value.is_null() && value.integer() < 0) errors.invalid(path, value, "must be greater than or equal to 0");
}

void check_selector(const std::string& path, const Json& selector, FieldErrors& errors) {
  if (selector.is_null()) return;
  if (auto made = kube::LabelSelector::from_object(selector); !made) errors.invalid(path, selector, made.error().message);
}

void check_job(const Json& job, FieldErrors& errors) {
  const Json& spec = job["spec"];
  if (!spec.is_object()) return errors.required("spec");
  const auto selector = kube::LabelSelector::from_object(spec["selector"]);
  // What only its own pods have: nobody else's may be selected.
  const Json own = Json::object({{std::string(workloads::job_uid_label), kube::uid_of(job)}, {"controller-uid", kube::uid_of(job)}, {std::string(workloads::job_name_label), kube::name_of(job)},
                                 {"job-name", kube::name_of(job)}});
  if (!spec["manualSelector"].boolean() && selector && !selector->matches(own)) errors.invalid_as("spec.selector", go_label_selector(spec["selector"]), "`selector` not auto-generated");
  for (const char* field : {"parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"}) check_count(fmt::format("spec.{}", field), spec[field], errors);
  for (const auto& [field, remedy] : {std::pair{"podFailurePolicy", "use backoffLimit"}, {"successPolicy", "use completions"}, {"backoffLimitPerIndex", "use backoffLimit"},
                                      {"maxFailedIndexes", "use backoffLimit"}, {"managedBy", "leave it out: the job controller manages jobs"}})
    if (spec.has(field)) errors.not_supported_here(fmt::format("spec.{}", field), remedy);
  const std::string& mode = spec["completionMode"].string();
  if (mode != "NonIndexed" && mode != "Indexed") errors.unsupported_value("spec.completionMode", mode, {"NonIndexed", "Indexed"});
  if (mode == "Indexed" && spec["completions"].is_null()) errors.required("spec.completions", "when completion mode is Indexed");
  if (mode == "Indexed" && spec["parallelism"].integer() > 100'000) errors.invalid("spec.parallelism", spec["parallelism"], "must be less than or equal to 100000 when completion mode is Indexed");
  if (const std::string& policy = spec["podReplacementPolicy"].string(); policy != "TerminatingOrFailed" && policy != "Failed")
    errors.unsupported_value("spec.podReplacementPolicy", policy, {"Failed", "TerminatingOrFailed"});
  if (mode == "Indexed" && kube::name_of(job).size() > 0 && spec["completions"].integer() > 0) {
    const std::string host = fmt::format("{}-{}", kube::name_of(job), spec["completions"].integer() - 1);
    if (const auto why = kube::check_dns_label(host); !why.empty()) errors.invalid("metadata.name", kube::name_of(job), fmt::format("will not able to create pod with invalid DNS label: {}", host));
  }

  if (spec["selector"].is_null()) errors.required("spec.selector");
  check_selector("spec.selector", spec["selector"], errors);
  const Json& labels = spec["template"]["metadata"]["labels"];
  if (selector && !selector->matches(labels)) errors.invalid_as("spec.template.metadata.labels", go_string_map(labels), "`selector` does not match template `labels`");

  FieldErrors of_pod;
  check_pod(spec["template"], of_pod);
  for (const std::string& text : of_pod.texts()) errors.add("spec.template." + text);
  const std::string& restart = spec["template"]["spec"]["restartPolicy"].string();
  if (restart.empty() || restart == "Always") errors.required("spec.template.spec.restartPolicy", "valid values: \"OnFailure\", \"Never\"");
}

void check_job_change(const Json& old, const Json& next, FieldErrors& errors) {
  const Json &before = old["spec"], &after = next["spec"];
  for (const char* field : {"selector", "completionMode", "manualSelector", "podReplacementPolicy"})
    if (!(before[field] == after[field])) errors.invalid(fmt::format("spec.{}", field), after[field], "field is immutable");
  if (!(before["completions"] == after["completions"])) {
    // An Indexed job may grow and shrink as a whole.
    const bool elastic = after["completionMode"].string() == "Indexed" && after["completions"] == after["parallelism"];
    if (!elastic) errors.invalid("spec.completions", after["completions"], "field is immutable");
  }
  Json allowed = before["template"];
  // Where a suspended job that never started goes, may still be changed (queueing systems do).
  if (before["suspend"].boolean() && old["status"]["startTime"].is_null()) {
    Json& spec = allowed.child("spec");
    for (const char* field : {"nodeSelector", "tolerations", "schedulingGates"}) {
      if (after["template"]["spec"].has(field)) spec.set(field, after["template"]["spec"][field]);
      else spec.erase(field);
    }
    if (after["template"]["spec"]["affinity"].has("nodeAffinity")) spec.child("affinity").set("nodeAffinity", after["template"]["spec"]["affinity"]["nodeAffinity"]);
    if (after["template"]["metadata"].is_object()) allowed.set("metadata", after["template"]["metadata"]);
  }
  if (!(allowed == after["template"])) errors.invalid("spec.template", after["template"], "field is immutable");
}

void check_budget(const Json& budget, FieldErrors& errors) {
  const Json& spec = budget["spec"];
  if (spec.has("minAvailable") && spec.has("maxUnavailable")) errors.invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set");
  for (const char* field : {"minAvailable", "maxUnavailable"}) {
    const Json& value = spec[field];
    const std::string path = fmt::format("spec.{}", field);
    if (value.is_string()) {
      const std::string& text = value.string();
      const bool percent = text.size() >= 2 && text.size() <= 4 && text.back() == '%' && std::all_of(text.begin(), text.end() - 1, [](unsigned char c) { return std::isdigit(c) != 0; });
      if (!percent) errors.invalid_as(path, go_int_or_string(value), "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')");
      else if (std::stoi(text) > 100) errors.invalid_as(path, go_int_or_string(value), "must not be greater than 100%");
    } else {
      check_count(path, value, errors);
    }
  }
  check_selector("spec.selector", spec["selector"], errors);
  if (const std::string& policy = spec["unhealthyPodEvictionPolicy"].string(); !policy.empty() && policy != "IfHealthyBudget" && policy != "AlwaysAllow")
    errors.unsupported_value("spec.unhealthyPodEvictionPolicy", policy, {"AlwaysAllow", "IfHealthyBudget"});
}

void check_slice(const Json& slice, FieldErrors& errors) {
  const std::string& type = slice["addressType"].string();
  if (type.empty()) errors.required("addressType");
  else if (type != "IPv4" && type != "IPv6" && type != "FQDN") errors.unsupported_value("addressType", type, {"FQDN", "IPv4", "IPv6"});
  if (slice["endpoints"].items().size() > 1'000) errors.too_many("endpoints", slice["endpoints"].items().size(), 1'000);
  for (std::size_t i = 0; i < slice["endpoints"].items().size(); ++i)
    if (slice["endpoints"].items()[i]["addresses"].items().empty()) errors.required(fmt::format("endpoints[{}].addresses", i), "must contain at least 1 address");
  for (std::size_t i = 0; i < slice["ports"].items().size(); ++i) {
    const Json& protocol = slice["ports"].items()[i]["protocol"];
    if (const std::string& text = protocol.string(); text != "TCP" && text != "UDP" && text != "SCTP") errors.unsupported_value(fmt::format("ports[{}].protocol", i), protocol, {"SCTP", "TCP", "UDP"});
  }
}

void check_network_policy(const Json& policy, FieldErrors& errors) {
  const Json& spec = policy["spec"];
  check_selector("spec.podSelector", spec["podSelector"], errors);
  for (const Json& type : spec["policyTypes"].items())
    if (type.string() != "Ingress" && type.string() != "Egress") errors.unsupported_value("spec.policyTypes", type, {"Egress", "Ingress"});
  for (const auto& [list, peers] : {std::pair{"ingress", "from"}, std::pair{"egress", "to"}}) {
    for (std::size_t i = 0; i < spec[list].items().size(); ++i) {
      const Json& rule = spec[list].items()[i];
      for (std::size_t j = 0; j < rule[peers].items().size(); ++j) {
        const Json& peer = rule[peers].items()[j];
        const std::string at = fmt::format("spec.{}[{}].{}[{}]", list, i, peers, j);
        check_selector(at + ".podSelector", peer["podSelector"], errors);
        check_selector(at + ".namespaceSelector", peer["namespaceSelector"], errors);
        if (peer.has("ipBlock") && peer.members().size() > 1) errors.forbidden(at, "may not specify both ipBlock and another peer");
        if (peer.members().empty()) errors.required(at, "must specify a peer");
        if (peer.has("ipBlock") && peer["ipBlock"]["cidr"].string().empty()) errors.required(at + ".ipBlock.cidr");
      }
      for (std::size_t j = 0; j < rule["ports"].items().size(); ++j) {
        const Json& port = rule["ports"].items()[j];
        const std::string at = fmt::format("spec.{}[{}].ports[{}]", list, i, j);
        const std::string& protocol = port["protocol"].string();
        if (protocol != "TCP" && protocol != "UDP" && protocol != "SCTP") errors.unsupported_value(at + ".protocol", protocol, {"SCTP", "TCP", "UDP"});
        if (port["port"].is_number() && (port["port"].integer() < 1 || port["port"].integer() > 65535)) errors.invalid(at + ".port", port["port"], "must be between 1 and 65535, inclusive");
        if (port.has("endPort") && (!port["port"].is_number() || port["endPort"].integer() < port["port"].integer()))
          errors.invalid(at + ".endPort", port["endPort"], "must be greater than or equal to `port`");
      }
    }
  }
}

void check_class(const Json& storage, FieldErrors& errors) {
  if (storage["provisioner"].string().empty()) errors.required("provisioner");
  if (const std::string& policy = storage["reclaimPolicy"].string(); policy != "Delete" && policy != "Retain") errors.unsupported_value("reclaimPolicy", policy, {"Delete", "Retain"});
  if (const std::string& mode = storage["volumeBindingMode"].string(); mode != "Immediate" && mode != "WaitForFirstConsumer")
    errors.unsupported_value("volumeBindingMode", mode, {"Immediate", "WaitForFirstConsumer"});
}

void check_attributes_class(const Json& attributes, FieldErrors& errors) {
  if (const std::string& driver = attributes["driverName"].string(); driver.empty()) errors.required("driverName");
  else if (const auto why = kube::check_dns_subdomain(driver); !why.empty()) errors.invalid("driverName", driver, why);
  if (attributes["parameters"].members().empty()) errors.required("parameters", "must contain at least one key/value pair");
  for (const auto& [key, value] : attributes["parameters"].members())
    if (key.empty()) errors.invalid("parameters", key, "field can not be empty.");
}

void check_volume_object(const Json& volume, FieldErrors& errors) {
  const Json& spec = volume["spec"];
  if (spec["accessModes"].items().empty()) errors.required("spec.accessModes");
  const auto size = kube::Quantity::from_json(spec["capacity"]["storage"]);
  if (spec["capacity"]["storage"].is_null()) errors.required("spec.capacity");
  else if (!size || size->value() <= 0) errors.invalid("spec.capacity[storage]", spec["capacity"]["storage"], "must be greater than zero");
  const bool csi = spec.has("csi");
  if (!spec.has("hostPath") && !csi) errors.not_supported_here("spec", "volumes of the embedded engine are directories (hostPath) and volumes of csi.fairlead.dev: use one of them, or let a claim make one");
  else if (spec.has("hostPath") && csi) errors.forbidden("spec.csi", "may not specify more than 1 volume type");
  else if (csi && spec["csi"]["driver"].string() != "csi.fairlead.dev") errors.not_supported_here("spec.csi.driver", "csi.fairlead.dev is what there is");
  else if (csi && spec["csi"]["volumeHandle"].string().empty()) errors.required("spec.csi.volumeHandle");
  else if (!csi && spec["hostPath"]["path"].string().empty()) errors.required("spec.hostPath.path");
  if (const std::string& policy = spec["persistentVolumeReclaimPolicy"].string(); policy != "Delete" && policy != "Retain")
    errors.unsupported_value("spec.persistentVolumeReclaimPolicy", policy, {"Delete", "Retain"});
  if (const std::string& mode = spec["volumeMode"].string(); mode != "Filesystem" && mode != "Block") errors.unsupported_value("spec.volumeMode", mode, {"Block", "Filesystem"});
  else if (mode == "Block" && !csi) errors.not_supported_here("spec.volumeMode", "directories are no block devices: use Filesystem");
  if (spec.has("nodeAffinity") && !csi) errors.not_supported_here("spec.nodeAffinity", "directories are the same on every node");
}

// --- columns ---

Column column(std::string name, std::function<Json(const Json&, Instant)> cell, int priority = 0, std::string type = "string") {
  return {.name = std::move(name), .type = std::move(type), .priority = priority, .cell = std::move(cell)};
}

std::string job_status(const Json& job) {
  for (const char* type : {"Complete", "Failed"})
    if (kube::condition_is_true(job, type)) return type;
  if (kube::deleting(job)) return "Terminating";
  for (const char* type : {"Suspended", "FailureTarget", "SuccessCriteriaMet"})
    if (kube::condition_is_true(job, type)) return type;
  return "Running";
}

std::string job_completions(const Json& job) {
  const std::int64_t succeeded = job["status"]["succeeded"].integer(), parallelism = job["spec"]["parallelism"].integer(1);
  if (!job["spec"]["completions"].is_null()) return fmt::format("{}/{}", succeeded, job["spec"]["completions"].integer());
  return parallelism > 1 ? fmt::format("{}/1 of {}", succeeded, parallelism) : fmt::format("{}/1", succeeded);
}

std::string job_duration(const Json& job, Instant now) {
  const auto start = parse_time(job["status"]["startTime"].string());
  if (!start) return "";
  const auto end = parse_time(job["status"]["completionTime"].string());
  return print_age((end ? *end : now) - *start);
}

Json joined(const Json& list, const char* field) {
  std::vector<std::string> out;
  for (const Json& item : list.items()) out.push_back(item[field].string());
  return Json(fmt::format("{}", fmt::join(out, ",")));
}

std::string slice_ports(const Json& slice) {
  const auto& ports = slice["ports"].items();
  if (ports.empty()) return "<unset>";
  std::vector<std::string> out;
  for (const Json& port : ports) out.push_back(port["port"].is_null() ? "*" : std::to_string(port["port"].integer()));
  if (out.size() <= 3) return fmt::format("{}", fmt::join(out, ","));
  const std::size_t more = out.size() - 3;
  out.resize(3);
  return fmt::format("{} + {} more...", fmt::join(out, ","), more);
}

std::string slice_endpoints(const Json& slice) {
  std::vector<std::string> out;
  for (const Json& endpoint : slice["endpoints"].items())
    for (const Json& address : endpoint["addresses"].items()) out.push_back(address.string());
  if (out.empty()) return "<unset>";
  if (out.size() <= 3) return fmt::format("{}", fmt::join(out, ","));
  const std::size_t more = out.size() - 3;
  out.resize(3);
  return fmt::format("{} + {} more...", fmt::join(out, ","), more);
}

Json or_na(const Json& value) { return value.is_null() ? Json("N/A") : value.is_string() ? value : Json(std::to_string(value.integer())); }

std::string modes(const Json& list) {
  static const std::vector<std::pair<std::string_view, std::string_view>> brief{{"ReadWriteOnce", "RWO"}, {"ReadOnlyMany", "ROX"}, {"ReadWriteMany", "RWX"}, {"ReadWriteOncePod", "RWOP"}};
  std::vector<std::string> out;
  for (const auto& [name, text] : brief)
    if (std::any_of(list.items().begin(), list.items().end(), [&](const Json& mode) { return mode.string() == name; })) out.emplace_back(text);
  return fmt::format("{}", fmt::join(out, ","));
}

std::string selector_text(const Json& selector) {
  const auto made = kube::LabelSelector::from_object(selector);
  return !made || made->empty() ? "<none>" : made->text();
}

}  // namespace

bool is_workload(const kube::Resource& resource) {
  for (const kube::Resource* one : {&workloads::jobs, &workloads::endpoint_slices, &workloads::budgets, &workloads::network_policies, &workloads::storage_classes, &workloads::attributes_classes, &workloads::volumes})
    if (is(resource, *one)) return true;
  return false;
}

void default_workload(const kube::Resource& resource, Json& object) {
  if (is(resource, workloads::jobs)) return default_job(object);
  if (is(resource, workloads::endpoint_slices)) return default_slice(object);
  if (is(resource, workloads::network_policies)) return default_network_policy(object);
  if (is(resource, workloads::storage_classes)) {
    set_default(object, "reclaimPolicy", "Delete");
    set_default(object, "volumeBindingMode", "Immediate");
  }
  if (is(resource, workloads::volumes)) {
    Json& spec = object_child(object, "spec");
    set_default(spec, "persistentVolumeReclaimPolicy", "Retain");
    set_default(spec, "volumeMode", "Filesystem");
    if (Json* host = spec.find("hostPath"); host && host->is_object()) set_default(*host, "type", "");
  }
}

void set_initial_workload(const kube::Resource& resource, Json& object) {
  if (is(resource, workloads::jobs)) {
    object.set("status", Json::object());
    Json* spec = object.find("spec");
    if (!spec || !spec->is_object() || (*spec)["manualSelector"].boolean()) return;
    Json& chosen = object_child(object_child(*spec, "selector"), "matchLabels");
    if (!chosen.has(workloads::job_uid_label)) chosen.set(workloads::job_uid_label, kube::uid_of(object));
    label_job(object);
  }
  if (is(resource, workloads::budgets)) object.set("status", Json::object({{"disruptionsAllowed", 0}, {"currentHealthy", 0}, {"desiredHealthy", 0}, {"expectedPods", 0}}));
  if (is(resource, workloads::volumes)) object.set("status", Json::object({{"phase", "Pending"}}));
}

void check_workload(const kube::Resource& resource, const Json& object, FieldErrors& errors) {
  if (is(resource, workloads::jobs)) return check_job(object, errors);
  if (is(resource, workloads::budgets)) return check_budget(object, errors);
  if (is(resource, workloads::endpoint_slices)) return check_slice(object, errors);
  if (is(resource, workloads::network_policies)) return check_network_policy(object, errors);
  if (is(resource, workloads::storage_classes)) return check_class(object, errors);
  if (is(resource, workloads::attributes_classes)) return check_attributes_class(object, errors);
  if (is(resource, workloads::volumes)) return check_volume_object(object, errors);
}

void check_workload_change(const kube::Resource& resource, const Json& old, const Json& next, FieldErrors& errors) {
  if (is(resource, workloads::jobs)) return check_job_change(old, next, errors);
  if (is(resource, workloads::endpoint_slices) && !(old["addressType"] == next["addressType"])) errors.invalid("addressType", next["addressType"], "field is immutable");
  if (is(resource, workloads::storage_classes)) {
    if (!(old["parameters"] == next["parameters"])) errors.forbidden("parameters", "updates to parameters are forbidden.");
    if (!(old["provisioner"] == next["provisioner"])) errors.forbidden("provisioner", "updates to provisioner are forbidden.");
    if (!(old["reclaimPolicy"] == next["reclaimPolicy"])) errors.forbidden("reclaimPolicy", "updates to reclaimPolicy are forbidden.");
    if (!(old["volumeBindingMode"] == next["volumeBindingMode"])) errors.invalid("volumeBindingMode", next["volumeBindingMode"], "field is immutable");
  }
  if (is(resource, workloads::attributes_classes)) {
    if (!(old["driverName"] == next["driverName"])) errors.forbidden("driverName", "updates to driverName are forbidden.");
    if (!(old["parameters"] == next["parameters"])) errors.forbidden("parameters", "updates to parameters are forbidden.");
  }
  if (is(resource, workloads::volumes) && (!(old["spec"]["hostPath"] == next["spec"]["hostPath"]) || !(old["spec"]["csi"] == next["spec"]["csi"])))
    errors.forbidden("spec.persistentvolumesource", "spec.persistentvolumesource is immutable after creation");
}

std::vector<Column> workload_columns(const kube::Resource& resource) {
  if (is(resource, workloads::jobs))
    return {name_column(),
            column("Status", [](const Json& o, Instant) { return Json(job_status(o)); }),
            column("Completions", [](const Json& o, Instant) { return Json(job_completions(o)); }),
            column("Duration", [](const Json& o, Instant now) { return Json(job_duration(o, now)); }),
            age_column(),
            column("Containers", [](const Json& o, Instant) { return joined(o["spec"]["template"]["spec"]["containers"], "name"); }, 1),
            column("Images", [](const Json& o, Instant) { return joined(o["spec"]["template"]["spec"]["containers"], "image"); }, 1),
            column("Selector", [](const Json& o, Instant) { return Json(selector_text(o["spec"]["selector"])); }, 1)};
  if (is(resource, workloads::endpoint_slices))
    return {name_column(), column("AddressType", [](const Json& o, Instant) { return o["addressType"]; }), column("Ports", [](const Json& o, Instant) { return Json(slice_ports(o)); }),
            column("Endpoints", [](const Json& o, Instant) { return Json(slice_endpoints(o)); }), age_column()};
  if (is(resource, workloads::budgets))
    return {name_column(), column("Min Available", [](const Json& o, Instant) { return or_na(o["spec"]["minAvailable"]); }),
            column("Max Unavailable", [](const Json& o, Instant) { return or_na(o["spec"]["maxUnavailable"]); }),
            column("Allowed Disruptions", [](const Json& o, Instant) { return Json(o["status"]["disruptionsAllowed"].integer()); }, 0, "integer"), age_column()};
  if (is(resource, workloads::network_policies))
    return {name_column(), column("Pod-Selector", [](const Json& o, Instant) { return Json(selector_text(o["spec"]["podSelector"])); }), age_column()};
  if (is(resource, workloads::storage_classes))
    return {column("Name", [](const Json& o, Instant) {
              const bool standard = o["metadata"]["annotations"][workloads::default_class_annotation].string() == "true";
              return Json(kube::name_of(o) + (standard ? " (default)" : ""));
            }),
            column("Provisioner", [](const Json& o, Instant) { return o["provisioner"]; }), column("ReclaimPolicy", [](const Json& o, Instant) { return o["reclaimPolicy"]; }),
            column("VolumeBindingMode", [](const Json& o, Instant) { return o["volumeBindingMode"]; }),
            column("AllowVolumeExpansion", [](const Json& o, Instant) { return Json(o["allowVolumeExpansion"].boolean()); }, 0, "boolean"), age_column()};
  if (is(resource, workloads::attributes_classes)) return {name_column(), column("DriverName", [](const Json& o, Instant) { return o["driverName"]; }), age_column()};
  return {name_column(),
          column("Capacity", [](const Json& o, Instant) { return Json(o["spec"]["capacity"]["storage"].string()); }),
          column("Access Modes", [](const Json& o, Instant) { return Json(modes(o["spec"]["accessModes"])); }),
          column("Reclaim Policy", [](const Json& o, Instant) { return o["spec"]["persistentVolumeReclaimPolicy"]; }),
          column("Status", [](const Json& o, Instant) { return kube::deleting(o) ? Json("Terminating") : o["status"]["phase"]; }),
          column("Claim", [](const Json& o, Instant) {
            const Json& claim = o["spec"]["claimRef"];
            return Json(claim.is_null() ? std::string() : claim["namespace"].string() + "/" + claim["name"].string());
          }),
          column("StorageClass", [](const Json& o, Instant) { return Json(o["spec"]["storageClassName"].string()); }),
          column("VolumeAttributesClass", [](const Json& o, Instant) { return Json(o["spec"]["volumeAttributesClassName"].string_or("<unset>")); }),
          column("Reason", [](const Json& o, Instant) { return Json(o["status"]["reason"].string()); }),
          age_column(),
          column("VolumeMode", [](const Json& o, Instant) { return o["spec"]["volumeMode"]; }, 1)};
}

}  // namespace fairlead::apiserver
