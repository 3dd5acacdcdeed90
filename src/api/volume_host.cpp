// SPDX-License-Identifier: Apache-2.0
#include "api/volume_host.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "api/crds.h"
#include "api/volume.h"

namespace fairlead::api {

using kube::Json;

namespace {

constexpr const char* kHostCrd = R"yaml(
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: volumehosts.fairlead.dev}
spec:
  group: fairlead.dev
  scope: Cluster
  names: {plural: volumehosts, singular: volumehost, kind: VolumeHost, listKind: VolumeHostList}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Pool, type: string, jsonPath: .spec.pool}
    - {name: Host, type: string, jsonPath: .spec.host}
    - {name: Heard, type: date, jsonPath: .status.heard}
    - {name: Volumes, type: string, jsonPath: ".status.volumes[*].id"}
    - {name: Nodes, type: string, priority: 1, jsonPath: .spec.nodeSelector}
    - {name: Message, type: string, jsonPath: .status.message}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        type: object
        description: A further machine on which volumes of a pool in Ceph are shown; made by fairlead-volumes host there.
        required: [spec]
        x-kubernetes-validations:
        - {rule: "self.metadata.name == self.spec.pool + '.' + self.spec.host", message: "metadata.name: POOL.HOST is expected"}
        properties:
          spec:
            type: object
            required: [pool, host]
            x-kubernetes-validations:
            - {rule: "self.pool == oldSelf.pool && self.host == oldSelf.host", message: "a machine stays that of its pool: make another"}
            properties:
              pool: {type: string, minLength: 1, maxLength: 63}
              host: {type: string, minLength: 1, maxLength: 63}
              nodeSelector: {type: string, maxLength: 1000, description: "Labels of the Nodes on it, as kubectl -l takes them. Left out: the Node with the machine's name."}
              poolID: {type: string, description: Of the pool whose daemon asks.}
              volumes:
                type: array
                description: What the pool's daemon asks.
                items:
                  type: object
                  required: [id, generation]
                  properties:
                    id: {type: string, minLength: 1, maxLength: 63}
                    generation: {type: integer, format: int64, minimum: 1}
                    gone: {type: boolean, description: It is to be taken away.}
                    readOnly: {type: boolean}
                    encrypted: {type: boolean}
                    sizeBytes: {type: integer, format: int64, minimum: 0}
                    iops: {type: integer, format: int64, minimum: 0}
                    throughputBytes: {type: integer, format: int64, minimum: 0}
                    deviceNames: {type: array, description: "Links to its device.", items: {type: string, maxLength: 32}}
          status:
            type: object
            properties:
              id: {type: string, description: "Of the machine, which lasts as long as its folder."}
              poolID: {type: string, description: Of whose volumes it tells.}
              heard: {type: string, format: date-time}
              message: {type: string}
              volumes:
                type: array
                items:
                  type: object
                  properties:
                    id: {type: string}
                    generation: {type: integer, format: int64}
                    asked: {type: string, description: "Shown or Gone: that this is the answer to."}
                    device: {type: string}
                    deviceBytes: {type: integer, format: int64}
                    used: {type: boolean}
                    engine: {type: string, description: Serves or Failed.}
                    sizeBytes: {type: integer, format: int64}
                    iops: {type: integer, format: int64}
                    throughputBytes: {type: integer, format: int64}
                    counts: {type: array, description: "Reads, writes, bytes read and written, and nanoseconds waited for limits, since the engine began.", items: {type: integer, format: int64}}
                    message: {type: string}
                    deviceNames:
                      type: array
                      items:
                        type: object
                        properties:
                          name: {type: string}
                          message: {type: string, description: "Why it is not this volume's."}
)yaml";

bool is_good(const std::string& id, std::int64_t generation) { return is_volume_name(id) && generation > 0; }

}  // namespace

Json volume_host_crd() { return parse_crd(kHostCrd); }
std::string volume_host_name(std::string_view pool, std::string_view host) { return fmt::format("{}.{}", pool, host); }

Json new_volume_host(const std::string& pool, const std::string& host, const std::string& node_selector) {
  Json spec = Json::object({{"pool", pool}, {"host", host}});
  if (!node_selector.empty()) spec.set("nodeSelector", node_selector);
  return Json::object({{"apiVersion", kVolumeHosts.api_version()}, {"kind", kVolumeHosts.kind}, {"metadata", Json::object({{"name", volume_host_name(pool, host)}})}, {"spec", std::move(spec)}});
}

Json to_json(const AskedVolume& asked) {
  Json out = Json::object({{"id", asked.id}, {"generation", asked.generation}});
  if (!asked.show) return out.set("gone", true), out;
  if (asked.read_only) out.set("readOnly", true);
  if (asked.encrypted) out.set("encrypted", true);
  for (const auto& [key, value] : {std::pair("sizeBytes", asked.size), {"iops", asked.iops}, {"throughputBytes", asked.throughput}})
    if (value > 0) out.set(key, value);
  if (!asked.names.empty()) {
    Json names = Json::array();
    for (const std::string& one : asked.names) names.push(one);
    out.set("deviceNames", std::move(names));
  }
  return out;
}

Json to_json(const ToldVolume& told) {
  Json out = Json::object({{"id", told.id}, {"generation", told.generation}});
  if (told.heard) out.set("asked", told.show ? "Shown" : "Gone");
  if (!told.device.empty()) out.set("device", told.device).set("deviceBytes", told.device_size);
  if (told.used) out.set("used", *told.used);
  if (told.engine) {
    out.set("engine", told.failed ? "Failed" : "Serves").set("sizeBytes", told.engine_size);
    if (told.iops > 0) out.set("iops", told.iops);
    if (told.throughput > 0) out.set("throughputBytes", told.throughput);
    Json counts = Json::array();
    for (const std::int64_t one : {told.reads, told.writes, told.read_bytes, told.written_bytes, told.waited_ns}) counts.push(one);
    out.set("counts", std::move(counts));
  }
  if (!told.message.empty()) out.set("message", told.message);
  if (!told.names.empty()) {
    Json names = Json::array();
    for (const ToldName& one : told.names) {
      Json name = Json::object({{"name", one.name}});
      if (!one.message.empty()) name.set("message", one.message);
      names.push(std::move(name));
    }
    out.set("deviceNames", std::move(names));
  }
  return out;
}

VolumeHostFacts read_volume_host(const Json& object) {
  const Json &spec = object["spec"], &status = object["status"];
  VolumeHostFacts out{.name = kube::name_of(object), .pool = spec["pool"].string(), .host = spec["host"].string(), .node_selector = spec["nodeSelector"].string(), .pool_id = spec["poolID"].string(), .id = status["id"].string(), .told_pool_id = status["poolID"].string(), .heard = status["heard"].string(), .asked = {}, .told = {}};
  std::set<std::pair<std::string, std::int64_t>> known;
  for (const Json& one : spec["volumes"].items()) {
    AskedVolume asked{.id = one["id"].string(), .generation = one["generation"].integer(), .show = !one["gone"].boolean(), .read_only = one["readOnly"].boolean(), .encrypted = one["encrypted"].boolean(), .size = one["sizeBytes"].integer(), .iops = one["iops"].integer(), .throughput = one["throughputBytes"].integer()};
    if (!is_good(asked.id, asked.generation) || asked.size < 0 || asked.iops < 0 || asked.throughput < 0 || !known.emplace(asked.id, asked.generation).second) continue;
    for (const Json& name : one["deviceNames"].items())
      if (is_device_name(name.string())) asked.names.push_back(name.string());
    std::sort(asked.names.begin(), asked.names.end());
    asked.names.erase(std::unique(asked.names.begin(), asked.names.end()), asked.names.end());
    if (!asked.show) asked = {.id = asked.id, .generation = asked.generation, .show = false};
    out.asked.push_back(std::move(asked));
  }
  known.clear();
  for (const Json& one : status["volumes"].items()) {
    const std::string &asked = one["asked"].string(), &engine = one["engine"].string();
    ToldVolume told{.id = one["id"].string(), .generation = one["generation"].integer(), .heard = asked == "Shown" || asked == "Gone", .show = asked != "Gone", .device = one["device"].string(), .device_size = one["deviceBytes"].integer(), .used = {}, .engine = !engine.empty(), .failed = engine == "Failed", .engine_size = one["sizeBytes"].integer(), .iops = one["iops"].integer(), .throughput = one["throughputBytes"].integer(), .message = one["message"].string()};
    if (one.has("used")) told.used = one["used"].boolean();
    const auto& counts = one["counts"].items();
    std::int64_t* const into[]{&told.reads, &told.writes, &told.read_bytes, &told.written_bytes, &told.waited_ns};
    for (std::size_t i = 0; i < std::size(into) && i < counts.size(); ++i) *into[i] = counts[i].integer();
    for (const Json& name : one["deviceNames"].items())
      if (is_device_name(name["name"].string())) told.names.push_back({.name = name["name"].string(), .message = name["message"].string()});
    if (is_good(told.id, told.generation) && known.emplace(told.id, told.generation).second) out.told.push_back(std::move(told));
  }
  return out;
}

}  // namespace fairlead::api
