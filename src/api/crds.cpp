// SPDX-License-Identifier: Apache-2.0
#include "api/crds.h"

#include "api/cluster.h"
#include "api/identity_crds.h"
#include "api/pod_identity.h"
#include "api/queue_crds.h"
#include "api/stack.h"
#include "api/team_crds.h"
#include "api/training_crd.h"
#include "api/network_interface.h"
#include "api/training_plan.h"
#include "api/volume.h"
#include "api/volume_host.h"
#include "api/volume_key.h"

namespace fairlead::api {

using kube::Json;

namespace {

constexpr const char* kMachineCrd = R"yaml(
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: machines.fairlead.dev}
spec:
  group: fairlead.dev
  scope: Cluster
  names: {plural: machines, singular: machine, kind: Machine, listKind: MachineList, shortNames: [mc]}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Phase, type: string, jsonPath: .status.phase}
    - {name: Power, type: string, jsonPath: .spec.power}
    - {name: Link, type: string, jsonPath: .spec.link}
    - {name: Address, type: string, jsonPath: .status.address}
    - {name: Type, type: string, priority: 1, jsonPath: .spec.host.instanceType}
    - {name: CPU, type: string, jsonPath: .spec.local.cpu}
    - {name: Memory, type: string, jsonPath: .spec.local.memory}
    - {name: Pid, type: integer, priority: 1, jsonPath: .status.pid}
    - {name: Pods, type: string, priority: 1, jsonPath: .status.podCIDR}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        type: object
        description: A node that Fairlead brings up itself.
        required: [spec]
        properties:
          spec:
            type: object
            x-kubernetes-validations:
            - {rule: "has(self.local) != has(self.host)", message: "one of local and host is needed"}
            - {rule: "has(self.host) == has(oldSelf.host)", message: "a machine stays local, or a host: delete it and make another"}
            - {rule: "!has(self.host) || !has(self.link) || self.link == 'Connected'", message: "the link of a host is not ours to cut"}
            - {rule: "!has(self.host) || has(self.host.bmc) || !has(self.power) || self.power == 'On'", message: "the power of a host is ours to switch only by its BMC (spec.host.bmc)"}
            properties:
              host:
                type: object
                description: A host that joins by a token (fairlead node add).
                properties:
                  instanceType: {type: string, maxLength: 64, description: "The ml.* type that it is to be; it joins if it has what that has."}
                  address: {type: string, format: ipv4, description: "At which it is to be; without, the one from which it asks."}
                  gone: {type: boolean, description: "An administrator's word that nothing of it runs any more: a machine that is deleted waits for that while pods are bound to it."}
                  shutdownSeconds: {type: integer, minimum: 0, maximum: 3600, description: "Before its power is cut its system is asked to end, and has so long for that."}
                  bmc:
                    type: object
                    description: The controller on its board by which its power is switched.
                    required: [address, secret]
                    properties:
                      address: {type: string, maxLength: 300, description: "https://ADDRESS (Redfish) or ipmi://ADDRESS."}
                      system: {type: string, maxLength: 300, description: "Of several systems behind one Redfish service, which: its Id, or its path."}
                      secret: {type: string, maxLength: 253, description: "A Secret in the server's namespace, with username and password."}
                      certificateAuthority: {type: string, maxLength: 16384, description: "PEM: whom its certificate has to be signed by."}
                      check: {type: string, maxLength: 64, description: "Another word: it is asked at once whether it answers."}
                      key: {type: string, pattern: "^[0-9a-f]{64}$", description: "In place of that: SHA-256 of its certificate's public key, in hex."}
                  join:
                    type: object
                    description: The token that was given out last; written by fairlead node add.
                    properties:
                      tokenHash: {type: string, pattern: "^[0-9a-f]{64}$", description: "SHA-256 of its secret, in hex."}
                      expires: {type: string, format: date-time}
              local:
                type: object
                description: A node on this machine, in namespaces of its own; how much it declares to have.
                properties:
                  cpu: {x-kubernetes-int-or-string: true, description: "Cores, e.g. 2 or 500m."}
                  memory: {x-kubernetes-int-or-string: true, description: "e.g. 4Gi; also the limit of its pods together."}
                  resources:
                    type: object
                    description: Extended resources such as nvidia.com/gpu.
                    additionalProperties: {x-kubernetes-int-or-string: true}
              labels:
                type: object
                description: Labels of its Node.
                additionalProperties: {type: string}
              taints:
                type: array
                description: Taints of its Node.
                items:
                  type: object
                  required: [key, effect]
                  properties:
                    key: {type: string}
                    value: {type: string}
                    effect: {type: string, enum: [NoSchedule, PreferNoSchedule, NoExecute]}
              power: {type: string, enum: ["On", "Off"], default: "On", description: "Off is a power cut: everything on it is killed."}
              link: {type: string, enum: [Connected, Cut], default: Connected, description: "Cut takes its network away; it runs on."}
              reboot:
                type: object
                description: A new id stops it, and starts it anew; once for each id.
                required: [id]
                properties:
                  id: {type: string, minLength: 1, maxLength: 64}
                  by: {type: string, maxLength: 600, description: Who asked.}
                  why: {type: string, maxLength: 600}
          status:
            type: object
            properties:
              phase: {type: string}
              node: {type: string, description: Its Node.}
              address: {type: string}
              podCIDR: {type: string}
              addresses: {type: array, items: {type: string}, description: "Of both families, where the site has both; IPv4 first."}
              podCIDRs: {type: array, items: {type: string}}
              index: {type: integer}
              pid: {type: integer, description: Its first process as seen from this machine.}
              startTicks: {type: integer, description: Start time of that process in ticks since boot.}
              startedAt: {type: string, format: date-time}
              starts: {type: integer, description: How often it was started.}
              reboot:
                type: object
                description: The last request that was taken up.
                properties:
                  id: {type: string}
                  by: {type: string}
                  phase: {type: string, description: "Rebooting, Done or Refused."}
                  message: {type: string}
                  was: {type: object, properties: {pid: {type: integer}, startTicks: {type: integer}, boot: {type: string}, silent: {type: boolean}}, description: "The first process that was to end; of a host its boot."}
                  began: {type: string, format: date-time}
                  ended: {type: string, format: date-time}
              reboots:
                type: array
                description: The last ones.
                items: {type: object, properties: {id: {type: string}, at: {type: string, format: date-time}}}
              labels: {type: object, additionalProperties: {type: string}, description: Those that its Node was given. Of a host.}
              nodeUID: {type: string, description: That Node.}
              power:
                type: object
                description: "Of a host with a BMC: what that says, and what was sent to it."
                properties:
                  state: {type: string, description: "On, Off, Changing or Unknown."}
                  want: {type: string, description: What was begun last.}
                  since: {type: string, format: date-time}
                  done: {type: boolean}
                  act: {type: string, description: What was sent last.}
                  acted: {type: string, format: date-time}
                  tries: {type: integer}
                  offSince: {type: string, format: date-time}
                  offLease: {type: string, description: When its agent had reported last at that moment.}
                  offLooked: {type: string, format: date-time}
                  disbelieved: {type: boolean, description: Its agent has reported although it says Off.}
                  restartBegan: {type: string, format: date-time}
                  failed: {type: string, description: Why the last that was sent was not taken.}
                  board: {type: string, description: Which BMC all this is of.}
                  proven: {type: boolean, description: "It is off, and its agent has reported nothing since: nothing runs there."}
                  restart: {type: string, description: The last request to reboot that was carried out by the BMC.}
                  restarts: {type: integer}
                  generation: {type: integer, description: Of the Machine that this was decided on.}
                  message: {type: string}
              host:
                type: object
                description: The host that joined.
                properties:
                  key: {type: string, description: "SHA-256 of its public key: certificates of another count no more."}
                  token: {type: string, description: Hash of the token by which it came.}
                  address: {type: string}
                  joined: {type: string, format: date-time}
                  facts: {type: object, x-kubernetes-preserve-unknown-fields: true, description: What it said that it has.}
              observedGeneration: {type: integer}
              conditions:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [type]
                items:
                  type: object
                  required: [type, status]
                  properties:
                    type: {type: string}
                    status: {type: string}
                    reason: {type: string}
                    message: {type: string}
                    lastTransitionTime: {type: string, format: date-time}
                    observedGeneration: {type: integer}
)yaml";

constexpr const char* kSlurmClusterCrd =
#include "api/slurm_cluster_crd.inc"
    ;

constexpr const char* kNodeSetCrd =
#include "api/node_set_crd.inc"
    ;
constexpr const char* kActiveCheckCrd =
#include "api/active_check_crd.inc"
    ;

}  // namespace

Json parse_crd(const char* yaml) {
  auto parsed = kube::parse_yaml(yaml);
  INVARIANT(parsed && parsed->size() == 1);
  return std::move(parsed->front());
}

Json machine_crd() { return parse_crd(kMachineCrd); }

std::vector<Json> crds() {
  std::vector<Json> all;
  all.push_back(machine_crd());
  for (const char* text : {kSlurmClusterCrd, kNodeSetCrd, kActiveCheckCrd}) {
    auto parsed = kube::parse_json(text);
    INVARIANT(parsed.has_value());
    all.push_back(std::move(*parsed));
  }
  all.push_back(notification_topic_crd());
  all.push_back(notification_crd());
  for (Json& crd : team_crds()) all.push_back(std::move(crd));
  all.push_back(identity_crd());
  all.push_back(managed_policy_crd());
  all.push_back(cluster_crd());
  all.push_back(instance_crd());
  all.push_back(cluster_event_crd());
  all.push_back(training_plan_crd());
  all.push_back(network_interface_crd());
  for (Json& crd : volume_crds()) all.push_back(std::move(crd));
  all.push_back(volume_key_crd());
  all.push_back(volume_host_crd());
  all.push_back(stack_crd());
  all.push_back(pod_identity::association_crd());
  all.push_back(training_crd());
  for (Json& crd : queue_crds()) all.push_back(std::move(crd));
  return all;
}

}  // namespace fairlead::api
