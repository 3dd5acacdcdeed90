// SPDX-License-Identifier: Apache-2.0
#include "api/team_crds.h"

#include "api/crds.h"

namespace fairlead::api {
namespace {

constexpr const char* kConfigCrd = R"yaml(
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: schedulerconfigs.fairlead.dev}
spec:
  group: fairlead.dev
  scope: Cluster
  names: {plural: schedulerconfigs, singular: schedulerconfig, kind: SchedulerConfig, listKind: SchedulerConfigList, shortNames: [schedcfg]}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Accepted, type: string, jsonPath: ".status.conditions[?(@.type==\"Accepted\")].status"}
    - {name: FairShare, type: string, jsonPath: .spec.fairShare}
    - {name: Idle, type: string, jsonPath: .spec.idleResourceSharing}
    - {name: Message, type: string, priority: 1, jsonPath: ".status.conditions[?(@.type==\"Accepted\")].message"}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        type: object
        description: How teams share the machines that nobody uses, and which priorities their jobs may name. One is in force, the oldest.
        required: [spec]
        properties:
          spec:
            type: object
            properties:
              priorityClasses:
                type: array
                maxItems: 10
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items:
                  type: object
                  required: [name, weight]
                  properties:
                    name: {type: string, pattern: "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", maxLength: 40, description: "Jobs name it NAME-priority in label kueue.x-k8s.io/priority-class."}
                    weight: {type: integer, minimum: 0, maximum: 100, description: "Higher goes first."}
              fairShare: {type: string, enum: [Enabled, Disabled], default: Enabled, description: "Enabled: queues carry the weights of their teams, and who has borrowed less for its weight goes first. Disabled: they carry none, and higher priorities may take what lower ones borrowed."}
              fairShareHistory:
                type: object
                required: [halfLifeSeconds]
                description: Who has used more than its part lately weighs less for a while, at every level of the tree. Needs fairShare Enabled. Left out, weights are as they are written.
                properties:
                  halfLifeSeconds: {type: integer, format: int64, minimum: 60, maximum: 31536000, description: "What was used so long ago counts half. A week is 604800."}
                  strength: {type: integer, format: int32, minimum: 0, maximum: 100, default: 3, description: "Who has used nothing lately weighs 1 + strength times its weight; who has used just its part weighs as written; 0 changes nothing."}
              unqueuedWork: {type: string, enum: [Refuse, Warn, Allow], default: Refuse, description: "Jobs and pods in the namespace of a team that name no queue. Refuse: they are not taken, as in HyperPod. Warn: they are, with a warning. Allow: they run beside the quotas."}
              controllerNamespaces:
                type: array
                maxItems: 50
                x-kubernetes-list-type: set
                items: {type: string, pattern: "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", maxLength: 63}
                description: "Namespaces of the controllers of Jobs, JobSets, PyTorchJobs, MPIJobs and HyperPodPyTorchJobs: what their service accounts make for such an object in the namespace of a team needs no queue of its own. Left out: kube-system, jobset-system, kubeflow, mpi-operator, aws-hyperpod."
              idleResourceSharing: {type: string, enum: [Enabled, Disabled], default: Disabled, description: "Enabled: what no team reserved may be borrowed by all, within their limits."}
              preemption:
                type: object
                properties:
                  minRunSeconds: {type: integer, format: int64, minimum: 0, maximum: 31536000, description: "A job is not pre-empted before it has run for so long, whoever wants its quota. Left out, or 0: at any time."}
                  victims: {type: string, enum: [LatestStart, LeastLostWork], default: LatestStart, description: "Who of equal priority is pre-empted first. LatestStart: who started last, as in Kueue. LeastLostWork: who has saved its work last, as annotations fairlead.dev/checkpointed-at and fairlead.dev/checkpoint-every tell; without them, who started last."}
              reservation:
                type: object
                required: [afterSeconds]
                description: Who stands first in its queue and has waited so long gets what is given back, until it has all that it needs. Left out, smaller jobs may pass a large one for ever.
                properties:
                  afterSeconds: {type: integer, format: int64, minimum: 1, maximum: 31536000}
                  holdSeconds: {type: integer, format: int64, minimum: 1, maximum: 31536000, description: "Then it is given up, and others have their turn for afterSeconds. As afterSeconds, if it is left out."}
              waitForPodsReady:
                type: object
                description: All or nothing. A job whose pods are not all ready in time is stopped, gives its quota back and stands in line again later. Left out, nobody has to be ready in time.
                properties:
                  timeoutSeconds: {type: integer, format: int64, minimum: 1, maximum: 31536000, default: 300, description: "From its admission."}
                  recoveryTimeoutSeconds: {type: integer, format: int64, minimum: 0, maximum: 31536000, description: "From the loss of a pod of a job that ran. 0 does not watch it. timeoutSeconds, if it is left out."}
                  requeuingStrategy:
                    type: object
                    properties:
                      backoffLimitCount: {type: integer, format: int32, minimum: 0, description: "Tries after the first; then the job is deactivated. Left out, there is no end."}
                      backoffBaseSeconds: {type: integer, format: int32, minimum: 0, default: 60, description: "How long it is out of line the first time; doubled each time."}
                      backoffMaxSeconds: {type: integer, format: int32, minimum: 0, default: 3600}
          status:
            type: object
            x-kubernetes-preserve-unknown-fields: true
)yaml";

constexpr const char* kQuotaCrd = R"yaml(
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: computequotas.fairlead.dev}
spec:
  group: fairlead.dev
  scope: Cluster
  names: {plural: computequotas, singular: computequota, kind: ComputeQuota, listKind: ComputeQuotaList, shortNames: [cquota]}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Team, type: string, jsonPath: .spec.teamName}
    - {name: Weight, type: integer, jsonPath: .spec.fairShareWeight}
    - {name: Accepted, type: string, jsonPath: ".status.conditions[?(@.type==\"Accepted\")].status"}
    - {name: Reason, type: string, jsonPath: ".status.conditions[?(@.type==\"Accepted\")].reason"}
    - {name: Short, type: string, jsonPath: ".status.conditions[?(@.type==\"CapacityShort\")].status"}
    - {name: Message, type: string, priority: 1, jsonPath: ".status.conditions[?(@.type==\"Accepted\")].message"}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        type: object
        description: What a team may use of the cluster's machines at any time, what of it others may borrow, and what it may borrow from them.
        required: [spec]
        properties:
          spec:
            type: object
            required: [teamName]
            properties:
              teamName: {type: string, pattern: "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", maxLength: 40, description: "Its namespace is hyperpod-ns-NAME. Does not change."}
              fairShareWeight: {type: integer, minimum: 0, maximum: 100, default: 0, description: "Among teams that borrow. 0 is always last."}
              computeQuotaResources: &amounts
                type: array
                maxItems: 15
                items:
                  type: object
                  required: [instanceType]
                  description: count, or some of the others; what is not said follows pro rata of the instance.
                  properties:
                    instanceType: {type: string, minLength: 1, maxLength: 63, description: "The label node.kubernetes.io/instance-type of its nodes."}
                    count: {type: integer, minimum: 0, maximum: 1000000, description: Whole machines.}
                    accelerators: {type: integer, minimum: 0, maximum: 10000000}
                    vCpu: {type: number, minimum: 0}
                    memoryInGiB: {type: number, minimum: 0}
                    acceleratorPartition:
                      type: object
                      required: [type, count]
                      properties:
                        type: {type: string, pattern: "^mig-[1-9]g\\.[0-9]{1,3}gb$"}
                        count: {type: integer, minimum: 0, maximum: 10000000}
              schedule:
                type: array
                maxItems: 16
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                description: "Hours at which the team has other amounts of the instance types that a window names. The first window that holds counts. At no time of the week may all teams together have more than there is."
                items:
                  type: object
                  required: [name, computeQuotaResources]
                  properties:
                    name: {type: string, minLength: 1, maxLength: 63}
                    days: {type: array, minItems: 1, maxItems: 7, items: {type: string, enum: [Mon, Tue, Wed, Thu, Fri, Sat, Sun]}, description: "On which it begins; every day, if left out."}
                    from: {type: string, pattern: "^([01][0-9]|2[0-3]):[0-5][0-9]$", description: "00:00, if left out."}
                    to: {type: string, pattern: "^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$", description: "At or before `from` it is on the next day. The end of the day, if left out."}
                    utcOffset: {type: string, pattern: "^(Z|[+-](0[0-9]|1[0-4]):[0-5][0-9])$", description: "Of these days and hours, such as +01:00; UTC, if left out. Without summer time."}
                    computeQuotaResources: *amounts
              resourceSharingConfig:
                type: object
                properties:
                  strategy: {type: string, enum: [Lend, DontLend, LendAndBorrow], default: LendAndBorrow}
                  borrowLimit: {type: integer, minimum: 0, maximum: 10000, default: 50, description: Per cent of what the team itself has.}
                  absoluteBorrowLimits: *amounts
              preemptTeamTasks: {type: string, enum: [Never, LowerPriority], default: LowerPriority, description: "Whether a job of the team may take the place of one of the team with lower priority."}
              activationState: {type: string, enum: [Enabled, Disabled], default: Enabled, description: "Disabled: no job of the team is started; what runs goes on."}
          status:
            type: object
            x-kubernetes-preserve-unknown-fields: true
)yaml";

constexpr const char* kInquiryCrd = R"yaml(
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: inquiries.fairlead.dev}
spec:
  group: fairlead.dev
  scope: Namespaced
  names: {plural: inquiries, singular: inquiry, kind: Inquiry, listKind: InquiryList}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Answered, type: string, jsonPath: ".status.conditions[?(@.type==\"Answered\")].status"}
    - {name: Reason, type: string, jsonPath: ".status.conditions[?(@.type==\"Answered\")].reason"}
    - {name: Message, type: string, priority: 1, jsonPath: ".status.conditions[?(@.type==\"Answered\")].message"}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        type: object
        description: A question to task governance, as a command of fairlead asks it. Answered once, in status.answer, and deleted after ttlSeconds.
        required: [spec]
        properties:
          spec:
            type: object
            oneOf:
            - required: [explain]
            - required: [eta]
            - required: [whatIf]
            - required: [queue]
            - required: [quota]
            properties:
              ttlSeconds: {type: integer, format: int32, minimum: 0, maximum: 3600, default: 300, description: "How long the answer is kept."}
              explain:
                type: object
                description: Why a job waits, or who could take what one that runs has.
                required: [workload]
                properties:
                  workload: &workload {type: string, minLength: 1, maxLength: 320, description: "job/NAME, workload/NAME, pod/NAME or slurm/CLUSTER/JOB, of this namespace."}
              eta:
                type: object
                description: When a job starts, as a range.
                required: [workload]
                properties:
                  workload: *workload
              whatIf:
                type: object
                description: What a change would do. Nothing of it is done.
                properties:
                  changes:
                    type: array
                    maxItems: 200
                    description: Objects as JSON, each merged into the one of its name, or new.
                    items: {type: string, minLength: 2, maxLength: 131072}
                  without:
                    type: array
                    maxItems: 200
                    description: KIND/NAME of what is left out.
                    items: {type: string, minLength: 1, maxLength: 320}
              queue:
                type: object
                description: Which workloads of this namespace wait, at which place.
                properties:
                  queue: {type: string, maxLength: 253, description: "Only of this ClusterQueue, LocalQueue or team."}
                  all: {type: boolean, description: "Those that run, too."}
              quota:
                type: object
                description: Who has what.
                properties:
                  name: {type: string, maxLength: 253, description: "Only this queue, cohort or team."}
          status:
            type: object
            properties:
              observedGeneration: {type: integer, format: int64}
              conditions:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [type]
                items:
                  type: object
                  required: [type, status, reason, message, lastTransitionTime]
                  properties:
                    type: {type: string}
                    status: {type: string, enum: ["True", "False", Unknown]}
                    reason: {type: string}
                    message: {type: string}
                    lastTransitionTime: {type: string, format: date-time}
                    observedGeneration: {type: integer, format: int64}
              answer: {type: object, x-kubernetes-preserve-unknown-fields: true, description: "As the command prints it with -o json."}
)yaml";

}  // namespace

std::vector<kube::Json> team_crds() { return {parse_crd(kConfigCrd), parse_crd(kQuotaCrd), parse_crd(kInquiryCrd)}; }

namespace teams {
const kube::Resource configs{"fairlead.dev", "v1alpha1", "schedulerconfigs", "SchedulerConfig", false};
const kube::Resource quotas{"fairlead.dev", "v1alpha1", "computequotas", "ComputeQuota", false};
const kube::Resource inquiries{"fairlead.dev", "v1alpha1", "inquiries", "Inquiry", true};
}  // namespace teams

}  // namespace fairlead::api
