// SPDX-License-Identifier: Apache-2.0
#include "api/training_crd.h"

#include "api/crds.h"
#include "kube/object.h"

namespace fairlead::api {

using kube::Json;

namespace {

// Fields: sagemaker-hyperpod 3.12 (training/config/hyperpod_pytorch_job_unified_config.py) and hyperpod-elastic-agent 1.1 (faultOnMatch). Its clients refuse a status with other members.
constexpr const char* kCrd = R"yaml(
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: hyperpodpytorchjobs.sagemaker.amazonaws.com
  labels: {app.kubernetes.io/part-of: fairlead}
spec:
  group: sagemaker.amazonaws.com
  scope: Namespaced
  names: {plural: hyperpodpytorchjobs, singular: hyperpodpytorchjob, kind: HyperPodPyTorchJob, listKind: HyperPodPyTorchJobList, shortNames: [hppj]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Running, type: string, jsonPath: ".status.conditions[?(@.type==\"Running\")].status"}
    - {name: Completed, type: string, jsonPath: ".status.conditions[?(@.type==\"Completed\")].status"}
    - {name: Failed, type: string, jsonPath: ".status.conditions[?(@.type==\"Failed\")].status"}
    - {name: Restarts, type: integer, jsonPath: .status.restartCount}
    - {name: Fault, type: string, priority: 1, jsonPath: ".status.conditions[?(@.type==\"Faulted\")].message"}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        type: object
        description: A training job over several nodes, whose processes begin anew in their pods when one of them fails.
        required: [spec]
        properties:
          spec:
            type: object
            required: [replicaSpecs]
            properties:
              nprocPerNode: {x-kubernetes-int-or-string: true, description: "Processes of a node: a number, gpu, cpu, or auto (the accelerators that its container asks for, else 1). In the environment as NPROC_PER_NODE and PET_NPROC_PER_NODE."}
              replicaSpecs:
                type: array
                minItems: 1
                maxItems: 18
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items:
                  type: object
                  required: [name, template]
                  properties:
                    name: {type: string, minLength: 1, maxLength: 63, pattern: "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}
                    replicas: {type: integer, minimum: 1, maximum: 10000, default: 1, description: Nodes.}
                    maxReplicas: {type: integer, minimum: 1, maximum: 10000, description: "As elasticPolicy.maxReplicas, where that is not given."}
                    spares: {type: integer, minimum: 0, maximum: 10000, description: "Pods beside them that are ready to take the place of one that fails. They count in quotas."}
                    template: {type: object, x-kubernetes-preserve-unknown-fields: true, description: "The pod. It is restarted by the job alone: restartPolicy is Never."}
              elasticPolicy:
                type: object
                description: "The job moves between sizes by itself: it grows by pods that find room (in a queue each asks for quota of its own, and gives it back alone), and goes on with those that are left. For one replicaSpec, with an agent (hyperpodrun)."
                properties:
                  minReplicas: {type: integer, minimum: 1, maximum: 10000}
                  maxReplicas: {type: integer, minimum: 1, maximum: 10000}
                  replicaIncrementStep: {type: integer, minimum: 1, maximum: 10000, description: "Sizes are minReplicas, minReplicas + step ... Not given: 1."}
                  replicaDiscreteValues: {type: array, maxItems: 1000, items: {type: integer, minimum: 1}, description: "These sizes alone."}
                  scalingTimeoutInSeconds: {type: integer, minimum: 0, description: "Pods that joined are up so long before it grows. Not given: 60."}
                  gracefulShutdownTimeoutInSeconds: {type: integer, minimum: 0, description: "Processes get SIGUSR1, and so long to write down where they are."}
                  faultyScaleDownTimeoutInSeconds: {type: integer, minimum: 0, description: "After a fault it waits so long for pods that are gone. Not given: 30."}
              runPolicy:
                type: object
                properties:
                  suspend: {type: boolean, description: "Its pods are taken away until it is taken back; of a job in a queue the queue sets it."}
                  cleanPodPolicy: {type: string, enum: [None, All, OnlyComplete], description: "Which pods go when the job has ended. Not given: None, so that their logs can be read; what still runs is ended in any case."}
                  jobMaxRetryCount: {type: integer, minimum: 0, description: "Of all restarts. Given alone, nothing else limits them."}
                  restartPolicy:
                    type: object
                    properties:
                      evalPeriodSeconds: {type: integer, minimum: 1, description: "Window in which restarts are counted, from the job's start. Not given: 21600."}
                      numRestartBeforeFullJobRestart: {type: integer, minimum: 0, description: "Restarts within a window before all pods are made anew. Not given: 3."}
                      maxFullJobRestarts: {type: integer, minimum: 0, description: "Of these within a window before the job has failed. Not given: 1."}
                      maxNumRepeatOffendersToAvoid: {type: integer, minimum: 0, description: Kept.}
                      scaleUpSnoozeTimeInSeconds: {type: integer, minimum: 0, description: "An elastic job runs so long before it grows."}
                  startupDeadlineSeconds: {type: integer, minimum: 0, description: "From its start until it runs for the first time."}
                  faultDeadlineSeconds: {type: integer, minimum: 0, description: "From a fault until it runs again."}
                  activeDeadlineSeconds: {type: integer, minimum: 1, description: "From its start; forecasts read it, too."}
                  ttlSecondsAfterFinished: {type: integer, minimum: -1, description: "So long after its end the job is deleted; -1, 0 (which hyp writes when it is given none) or not given: never."}
                  workloadMode: {type: string, description: Kept.}
                  logMonitoringConfiguration:
                    type: array
                    maxItems: 64
                    description: "Rules by which the agent in each pod finds a job that hangs or is slow, in the logs of the node's first process."
                    items:
                      type: object
                      required: [name, logPattern]
                      properties:
                        name: {type: string, minLength: 1, maxLength: 128}
                        logPattern: {type: string, minLength: 1, maxLength: 4096, description: "Regular expression of Python; its group is the metric."}
                        expectedStartCutOffInSeconds: {type: integer, minimum: 0}
                        expectedRecurringFrequencyInSeconds: {type: integer, minimum: 0}
                        metricThreshold: {type: integer}
                        operator: {type: string, enum: [gt, gteq, lt, lteq, eq]}
                        metricEvaluationDataPoints: {type: integer, minimum: 1}
                        stopPattern: {type: string, maxLength: 4096}
                        faultOnMatch: {type: boolean}
          status:
            type: object
            x-kubernetes-preserve-unknown-fields: true
)yaml";

}  // namespace

Json training_crd() { return parse_crd(kCrd); }
bool is_training_crd(const Json& crd) { return kube::name_of(crd) == kTrainingCrd; }
bool is_our_training_crd(const Json& crd) {
  const auto labels = kube::labels_of(crd);
  const auto part = labels.find("app.kubernetes.io/part-of");
  return is_training_crd(crd) && part != labels.end() && part->second == "fairlead";
}

}  // namespace fairlead::api
