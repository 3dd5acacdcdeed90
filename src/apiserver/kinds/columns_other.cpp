// SPDX-License-Identifier: Apache-2.0
// The columns of claims, services and events.
#include <fmt/format.h>

#include "apiserver/columns.h"
#include "apiserver/kinds/kinds.h"

namespace fairlead::apiserver {

using kube::Json;

namespace {

Column column(std::string name, std::function<Json(const Json&, Instant)> cell, int priority = 0) {
  return {.name = std::move(name), .priority = priority, .cell = std::move(cell)};
}

std::string access_modes(const Json& modes) {
  std::string text;
  for (const Json& mode : modes.items()) {
    std::string_view brief = mode.string();
    if (brief == "ReadWriteOnce") brief = "RWO";
    if (brief == "ReadOnlyMany") brief = "ROX";
    if (brief == "ReadWriteMany") brief = "RWX";
    if (brief == "ReadWriteOncePod") brief = "RWOP";
    text.append(text.empty() ? "" : ",").append(brief);
  }
  return text;
}

std::string ports(const Json& service) {
  std::string text;
  for (const Json& port : service["spec"]["ports"].items())
    text += fmt::format("{}{}{}/{}", text.empty() ? "" : ",", port["port"].integer(), port["nodePort"].integer() > 0 ? fmt::format(":{}", port["nodePort"].integer()) : "", port["protocol"].string());
  return text.empty() ? "<none>" : text;
}

std::string selector(const Json& labels) {
  std::string text;
  for (const auto& [key, value] : labels.members()) text += fmt::format("{}{}={}", text.empty() ? "" : ",", key, value.string());
  return text.empty() ? "<none>" : text;
}

std::string ago(const Json& time, Instant now) {
  const auto parsed = parse_time(time.string());
  return parsed ? print_age(now - *parsed) : "<unknown>";
}

std::string event_object(const Json& event) {
  std::string kind = event["involvedObject"]["kind"].string();
  for (char& c : kind) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return kind + "/" + event["involvedObject"]["name"].string();
}

const Json& event_first(const Json& event) { return event["firstTimestamp"].is_null() ? event["eventTime"] : event["firstTimestamp"]; }

const Json& event_last(const Json& event) {
  if (event["series"].is_object()) return event["series"]["lastObservedTime"];
  return event["lastTimestamp"].is_null() ? event_first(event) : event["lastTimestamp"];
}

Json event_count(const Json& event) {
  if (event["series"].is_object()) return Json(event["series"]["count"].integer());
  return Json(std::max<std::int64_t>(event["count"].integer(), 1));
}

}  // namespace

std::vector<Column> claim_columns() {
  return {
      name_column(),
      column("Status", [](const Json& o, Instant) { return kube::deleting(o) ? Json("Terminating") : o["status"]["phase"]; }),
      column("Volume", [](const Json& o, Instant) { return Json(o["spec"]["volumeName"].string()); }),
      column("Capacity", [](const Json& o, Instant) { return Json(o["status"]["capacity"]["storage"].string()); }),
      column("Access Modes", [](const Json& o, Instant) { return Json(access_modes(o["status"]["accessModes"])); }),
      column("StorageClass", [](const Json& o, Instant) { return Json(o["spec"]["storageClassName"].string()); }),
      column("VolumeAttributesClass", [](const Json& o, Instant) { return Json(o["spec"]["volumeAttributesClassName"].string_or("<unset>")); }),
      age_column(),
      column("VolumeMode", [](const Json& o, Instant) { return o["spec"]["volumeMode"]; }, 1),
  };
}

std::vector<Column> service_columns() {
  return {
      name_column(),
      column("Type", [](const Json& o, Instant) { return o["spec"]["type"]; }),
      column("Cluster-IP", [](const Json& o, Instant) { return o["spec"]["clusterIP"]; }),
      column("External-IP", [](const Json&, Instant) { return Json("<none>"); }),
      column("Port(s)", [](const Json& o, Instant) { return Json(ports(o)); }),
      age_column(),
      column("Selector", [](const Json& o, Instant) { return Json(selector(o["spec"]["selector"])); }, 1),
  };
}

std::vector<Column> event_columns() {
  Column name = name_column();  // last, and only where more is asked for
  name.priority = 1;
  return {
      column("Last Seen", [](const Json& o, Instant now) { return Json(ago(event_last(o), now)); }),
      column("Type", [](const Json& o, Instant) { return o["type"]; }),
      column("Reason", [](const Json& o, Instant) { return o["reason"]; }),
      column("Object", [](const Json& o, Instant) { return Json(event_object(o)); }),
      column("Subobject", [](const Json& o, Instant) { return Json(o["involvedObject"]["fieldPath"].string()); }, 1),
      column("Source", [](const Json& o, Instant) {
        const std::string component = o["source"]["component"].string_or(o["reportingComponent"].string());
        const std::string host = o["source"]["host"].string_or(o["reportingInstance"].string());
        return Json(host.empty() ? component : component + ", " + host);
      }, 1),
      column("Message", [](const Json& o, Instant) { return Json(o["message"].string()); }),
      column("First Seen", [](const Json& o, Instant now) { return Json(ago(event_first(o), now)); }, 1),
      column("Count", [](const Json& o, Instant) { return event_count(o); }, 1),
      std::move(name),
  };
}

}  // namespace fairlead::apiserver
