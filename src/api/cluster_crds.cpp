// SPDX-License-Identifier: Apache-2.0
#include "api/cluster.h"
#include "api/crds.h"

namespace fairlead::api {
namespace {

constexpr const char* kClusterCrd = R"yaml(
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: clusters.fairlead.dev}
spec:
  group: fairlead.dev
  scope: Cluster
  names: {plural: clusters, singular: cluster, kind: Cluster, listKind: ClusterList}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Status, type: string, jsonPath: .status.phase}
    - {name: Running, type: string, jsonPath: .status.summary}
    - {name: Namespace, type: string, priority: 1, jsonPath: .status.namespace}
    - {name: Message, type: string, jsonPath: .status.message}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        type: object
        description: A cluster of instance groups, as CreateCluster of HyperPod's API asks for it. Made by that API, or by hand.
        required: [spec]
        properties:
          spec:
            type: object
            required: [instanceGroups]
            properties:
              clusterName: {type: string, maxLength: 63, pattern: "^[a-zA-Z0-9](-*[a-zA-Z0-9])*$", description: "As it was given, where that is not the object's name."}
              orchestrator:
                type: object
                description: One of the two; none is Slurm.
                properties:
                  slurm: {type: object, x-kubernetes-preserve-unknown-fields: true}
                  eks: {type: object, x-kubernetes-preserve-unknown-fields: true}
              nodeProvisioningMode: {type: string, enum: [Continuous], description: "Continuous: each group for itself, and what is there is used. Without it all instances come, or none."}
              nodeRecovery: {type: string, enum: [Automatic, None]}
              clusterRole: {type: string}
              vpcConfig: {type: object, x-kubernetes-preserve-unknown-fields: true}
              instanceGroups:
                type: array
                minItems: 1
                maxItems: 100
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [instanceGroupName]
                items:
                  type: object
                  required: [instanceGroupName, instanceType, instanceCount]
                  x-kubernetes-preserve-unknown-fields: true
                  properties:
                    instanceGroupName: {type: string, pattern: "^[a-zA-Z0-9](-*[a-zA-Z0-9])*$", maxLength: 63}
                    instanceType: {type: string}
                    instanceCount: {type: integer, minimum: 0, maximum: 6758}
                    minInstanceCount: {type: integer, minimum: 0, maximum: 6758}
                    executionRole: {type: string}
                    trainingPlanArn: {type: string, maxLength: 2048, description: "The TrainingPlan out of which its machines come: its ARN, or its name."}
                    slurmConfig:
                      type: object
                      properties:
                        nodeType: {type: string, enum: [Controller, Login, Compute]}
                        partitionNames: {type: array, maxItems: 1, items: {type: string, pattern: "^[a-zA-Z0-9](-*[a-zA-Z0-9])*$", maxLength: 1024}}
                    lifeCycleConfig:
                      type: object
                      description: Scripts that each machine of the group runs once, as root, before it is in use.
                      required: [sourceS3Uri]
                      properties:
                        sourceS3Uri: {type: string, maxLength: 1024, description: "The folder of the scripts: s3://BUCKET/PREFIX."}
                        onCreate: {type: string, maxLength: 128, description: A file below it; runs before Slurm is on the machine.}
                        onInitComplete: {type: string, maxLength: 128, description: A file below it; runs once Slurm is on the machine.}
                    instanceStorageConfigs:
                      type: array
                      maxItems: 4
                      description: A volume of each node, at /opt/sagemaker; where Kubernetes orchestrates.
                      items:
                        type: object
                        x-kubernetes-preserve-unknown-fields: true
                        properties:
                          ebsVolumeConfig:
                            type: object
                            x-kubernetes-preserve-unknown-fields: true
                            properties: {volumeSizeInGB: {type: integer, minimum: 1, maximum: 16384}, volumeKmsKeyId: {type: string, maxLength: 2048, description: "Key by which it is encrypted, in a pool of block volumes that the machine reaches: id, ARN or alias; without one it is a file of the machine's own disk."}}
                    onStartDeepHealthChecks: {type: array, maxItems: 2, items: {type: string, enum: [InstanceStress, InstanceConnectivity]}, description: A machine is in use once it has passed them.}
                    kubernetesConfig:
                      type: object
                      description: Labels and taints of nodes that Kubernetes orchestrates.
                      properties:
                        labels: {type: object, additionalProperties: {type: string}}
                        taints:
                          type: array
                          items: {type: object, required: [key, effect], properties: {key: {type: string}, value: {type: string}, effect: {type: string, enum: [NoSchedule, PreferNoSchedule, NoExecute]}}}
                    issued: {type: integer, minimum: 0, maximum: 50000000, description: How many numbers of nodes were given out; kept by the API.}
                    retired: {type: string, description: "Numbers of the nodes that are to go, e.g. 1-3,7."}
              softwareUpdate:
                type: object
                description: Machines are made anew and prepared again, group by group, each once it is empty. A new id asks for it once.
                required: [id]
                properties:
                  id: {type: string, minLength: 1, maxLength: 64}
                  by: {type: string, maxLength: 600}
                  instanceGroups: {type: array, maxItems: 100, items: {type: string, maxLength: 63}, description: "Groups that are updated; none: all."}
                  deploymentConfig:
                    type: object
                    properties:
                      rollingUpdatePolicy:
                        type: object
                        properties:
                          maximumBatchSize:
                            type: object
                            description: Instances of a group that are updated at a time. Not given, all are.
                            required: [type, value]
                            properties: &size
                              type: {type: string, enum: [INSTANCE_COUNT, CAPACITY_PERCENTAGE]}
                              value: {type: integer, minimum: 1, maximum: 1000000}
                          rollbackMaximumBatchSize:
                            type: object
                            description: The same of a rollback.
                            required: [type, value]
                            properties: *size
                      waitIntervalInSeconds: {type: integer, minimum: 0, maximum: 3600, description: "Between batches; where there are alarms, after the last one, too."}
                      autoRollbackConfiguration:
                        type: array
                        maxItems: 10
                        description: Alarms. While one fires, or an instance fails, the update is rolled back; while one cannot be read, no further batch begins.
                        items: {type: object, required: [alarmName], properties: {alarmName: {type: string, minLength: 1, maxLength: 255}}}
              additions:
                type: array
                description: What BatchAddClusterNodes asked for in the last eight hours, by token.
                items: {type: object, x-kubernetes-preserve-unknown-fields: true}
          status:
            type: object
            properties:
              phaseSince: {type: string, format: date-time}
              phase: {type: string, description: "ClusterStatus: Creating, InService, Updating, SystemUpdating, RollingBack, Failed, Deleting."}
              softwareUpdate:
                type: object
                description: The last one.
                properties:
                  id: {type: string}
                  phase: {type: string, description: "InProgress, Succeeded, RollbackInProgress, RollbackComplete, Failed."}
                  message: {type: string, description: "Why it failed, or what it waits for."}
                  reason: {type: string, description: Why it is rolled back.}
                  rollbackBegan: {type: string, format: date-time}
                  before: {type: array, items: {type: object, properties: {instanceGroupName: {type: string}, lifeCycleConfig: {type: object, x-kubernetes-preserve-unknown-fields: true}, own: {type: object, x-kubernetes-preserve-unknown-fields: true}}}, description: "By what machines of its groups had been prepared, and their lifeCycleConfig when it began."}
                  lifted: {type: array, items: {type: object, properties: {instanceGroupName: {type: string}, lifeCycleConfig: {type: object, x-kubernetes-preserve-unknown-fields: true}, insteadOf: {type: object, x-kubernetes-preserve-unknown-fields: true}}}, description: "Of scripts, what it took away when it began."}
                  began: {type: string, format: date-time}
                  ended: {type: string, format: date-time}
                  earlier: {type: array, items: {type: string}, description: Ids of those before; none of them is asked for again.}
                  instanceGroups:
                    type: array
                    items: {type: object, properties: {instanceGroupName: {type: string}, status: {type: string, description: "SoftwareUpdateStatus: Pending, InProgress, Succeeded, RollbackInProgress, RollbackComplete, Failed."}, updated: {type: integer}, of: {type: integer}}}
              scripts:
                type: array
                description: "Groups that were rolled back: by what their machines are prepared as long as their lifeCycleConfig is that of insteadOf, or until their software is updated."
                items: {type: object, properties: {instanceGroupName: {type: string}, lifeCycleConfig: {type: object, x-kubernetes-preserve-unknown-fields: true}, insteadOf: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
              message: {type: string}
              summary: {type: string, description: "Instances that run, of those that are to be there."}
              namespace: {type: string, description: "Of what is made for it."}
              observedGeneration: {type: integer}
              began: {type: string, format: date-time, description: Of the operation that is under way.}
              beganGeneration: {type: integer}
              served: {type: boolean, description: It was InService once.}
              good: {type: object, x-kubernetes-preserve-unknown-fields: true, description: The last spec that was InService.}
              slurmConfigHash: {type: string, description: Of the configuration that Slurm runs with.}
              mode: {type: string, description: Of provisioning; Continuous stays so.}
              failed: {type: object, properties: {generation: {type: integer}, message: {type: string}, at: {type: string, format: date-time}, done: {type: boolean}}, description: "The change that is taken back; done: it has been."}
              instanceGroups:
                type: array
                items:
                  type: object
                  properties:
                    instanceGroupName: {type: string}
                    status: {type: string}
                    current: {type: integer}
                    target: {type: integer}
                    issued: {type: integer}
                    retired: {type: string}
                    message: {type: string}
                    since: {type: string, format: date-time}
                    reservation: {type: string, description: "Of a group with a training plan: InForce, or Missing, and why in message."}
                    minimum:
                      type: object
                      description: "What comes of minInstanceCount: since when instances lack, what it goes back to, and when it was given up."
                      properties: {min: {type: integer}, target: {type: integer}, good: {type: integer}, goodMin: {type: integer}, since: {type: string, format: date-time}, held: {type: boolean}, rolledBack: {type: string, format: date-time}, message: {type: string}}
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

constexpr const char* kInstanceCrd = R"yaml(
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: instances.fairlead.dev}
spec:
  group: fairlead.dev
  scope: Cluster
  names: {plural: instances, singular: instance, kind: Instance, listKind: InstanceList}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Cluster, type: string, jsonPath: .spec.cluster}
    - {name: Group, type: string, jsonPath: .spec.instanceGroupName}
    - {name: Number, type: integer, jsonPath: .spec.number}
    - {name: Type, type: string, jsonPath: .spec.instanceType}
    - {name: Status, type: string, jsonPath: .status.phase}
    - {name: Node, type: string, priority: 1, jsonPath: .status.node}
    - {name: Message, type: string, jsonPath: .status.message}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        type: object
        description: A machine while a cluster has it. Made by the cluster's controller; to delete one replaces it.
        required: [spec]
        properties:
          spec:
            type: object
            required: [cluster, clusterUid, instanceGroupName, number, instanceType]
            properties:
              cluster: {type: string}
              clusterUid: {type: string}
              instanceGroupName: {type: string}
              number: {type: integer, minimum: 1, description: Of the node in its group.}
              attempt: {type: integer, minimum: 1, description: Of the machines that this node has had.}
              nodeLogicalId: {type: string}
              instanceType: {type: string}
              reboot: &request {type: object, required: [id], properties: {id: {type: string, minLength: 1, maxLength: 64}, by: {type: string, maxLength: 600}}, description: A new id asks for it once.}
              replace: *request
              replaces: {type: string, maxLength: 64, description: The request by which it came into the place of another.}
              healthCheck: {type: object, required: [id], properties: {id: {type: string, minLength: 1, maxLength: 64}, by: {type: string, maxLength: 600}, checks: {type: array, maxItems: 2, items: {type: string, enum: [InstanceStress, InstanceConnectivity]}, description: "Not given: InstanceStress."}}, description: A new id asks for it once.}
          status:
            type: object
            properties:
              phaseSince: {type: string, format: date-time}
              phase: {type: string, description: "InstanceStatus: Pending, Running, Failure, SystemUpdating, DeepHealthCheckInProgress, ShuttingDown."}
              message: {type: string}
              node: {type: string, description: Its Node; written before anything is done with it.}
              made: {type: boolean, description: The machine was made for it.}
              address: {type: string}
              address6: {type: string}
              slurmNode: {type: string}
              lifecycle:
                type: object
                description: What its scripts came to.
                properties:
                  onCreate: &script {type: object, properties: {phase: {type: string, description: "Succeeded, Failed."}, exitCode: {type: integer}, message: {type: string}, at: {type: string, format: date-time}, sum: {type: string, description: Of the files that it ran with.}}}
                  onInitComplete: *script
                  config: {type: object, x-kubernetes-preserve-unknown-fields: true, description: "lifeCycleConfig that it runs by, whatever its group's becomes; empty: none."}
                  lost: {type: object, properties: {count: {type: integer}, at: {type: string, format: date-time}, pod: {type: string}}, description: Pods of scripts of which nobody knows what became of them.}
              runningSince: {type: string, format: date-time}
              slurmAction: {type: string, description: "Id of the last request by a reason in Slurm that was answered."}
              healthCheck: {type: object, properties: {answered: {type: string, description: The last request that came to an end before.}, failed: {type: boolean, description: It had failed when this one began.}, id: {type: string, description: "Of the request; start: of the check before it is in use."}, stage: {type: string, description: "Emptying, Checking, Passed, Failed."}, at: {type: string, format: date-time}, message: {type: string, description: What was found.}, checks: {type: array, maxItems: 2, items: {type: string}}, lost: {type: integer}, pod: {type: string}, meeting: {type: object, properties: {since: {type: string, format: date-time}, round: {type: string}, members: {type: array, maxItems: 32, items: {type: string}}, tried: {type: string, description: What it says of the links that it tried.}, over: {type: boolean, description: It came to nothing.}, again: {type: integer}, why: {type: string}}, description: With whom its links are tried.}}, description: Of its last deep health check.}
              reboot: {type: object, properties: {id: {type: string}, stage: {type: string}, message: {type: string}}}
              software: {type: object, properties: {id: {type: string}, stage: {type: string, description: "Emptying, Renewing, Preparing, Done."}, at: {type: string, format: date-time}, machine: {type: string}, node: {type: string}, updated: {type: string, format: date-time}, before: {type: string}}, description: "Of its last software update. At: when it came to this stage; machine and node: uids of those that go; updated: when it was, the last time; before: the id of the update before."}
)yaml";

constexpr const char* kClusterEventCrd = R"yaml(
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: clusterevents.fairlead.dev}
spec:
  group: fairlead.dev
  scope: Namespaced
  names: {plural: clusterevents, singular: clusterevent, kind: ClusterEvent, listKind: ClusterEventList}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    additionalPrinterColumns:
    - {name: Time, type: date, jsonPath: .spec.time}
    - {name: Level, type: string, jsonPath: .spec.level}
    - {name: Kind, type: string, jsonPath: .spec.kind}
    - {name: Description, type: string, jsonPath: .spec.description}
    - {name: Failure, type: string, jsonPath: .spec.metadata.failureMessage}
    schema:
      openAPIV3Schema:
        type: object
        description: Something that happened to a cluster, one of its groups or instances. Made by the cluster's controller, in the cluster's namespace; the newest 500 of 90 days are kept.
        required: [spec]
        properties:
          spec:
            type: object
            required: [clusterUid, resourceType, level, kind, time]
            properties:
              clusterUid: {type: string}
              resourceType: {type: string, enum: [Cluster, InstanceGroup, Instance]}
              level: {type: string, enum: [Info, Warn, Error]}
              kind: {type: string}
              time: {type: string, format: date-time}
              description: {type: string}
              instanceGroupName: {type: string}
              instanceId: {type: string}
              nodeLogicalId: {type: string}
              metadata:
                type: object
                properties:
                  failureMessage: {type: string}
                  lcsExecutionState: {type: string, description: Of a lifecycle script.}
                  clusterStatus: {type: string, description: What the cluster is now.}
                  repairAction: {type: string, description: "Reboot, Replace: what its health, or somebody by its health, had done."}
                  healthReason: {type: string, description: Who or what asked for that.}
                  instanceCount: {type: integer}
                  targetCount: {type: integer}
                  minCount: {type: integer}
)yaml";

}  // namespace

kube::Json cluster_event_crd() { return parse_crd(kClusterEventCrd); }
kube::Json cluster_crd() { return parse_crd(kClusterCrd); }
kube::Json instance_crd() { return parse_crd(kInstanceCrd); }

}  // namespace fairlead::api
