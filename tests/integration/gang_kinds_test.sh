#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# JobSets in a queue with JobSet's own controller, on the embedded engine without nodes: its definition comes when the server runs already; a set waits, runs, is taken back with its templates as they were, ends,
# and its Jobs, which have the queue's label too, are never queued themselves. The other kinds as far as their definitions go.
# The controller comes from `tests/peers/build.sh jobset`; where it was not built the test is skipped, but for FAIRLEAD_FULL=1.
#   gang_kinds_test.sh BUILD_DIR
set -euo pipefail
build=$(realpath "${1:?usage: gang_kinds_test.sh BUILD_DIR}")
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
peers=$top/tests/peers
# shellcheck source=tests/e2e/kubectl_lib.sh
. "$top/tests/e2e/kubectl_lib.sh"
programs=$("$peers/build.sh" --print jobset)
if [ ! -x "$programs/jobset" ] && [ "${FAIRLEAD_FULL:-0}" = 1 ]; then "$peers/build.sh" jobset > /dev/null; fi
[ -x "$programs/jobset" ] || { echo 'skipped: the controller of JobSets is not built (tests/peers/build.sh jobset)'; exit 77; }
kubectl=$(any_kubectl)
[ -n "$kubectl" ] || { echo 'skipped: there is no kubectl'; exit 77; }
command -v openssl > /dev/null || { echo 'skipped: there is no openssl'; exit 77; }

# shellcheck source=tests/lib.sh
. "$top/tests/lib.sh"
server=''
k() { "$kubectl" --request-timeout=20s "$@"; }
is() { # TEXT COMMAND...: it prints the text
  local text=$1
  shift
  [ "$("$@" 2> /dev/null)" = "$text" ]
}
workload_of() { k get workloads -o "jsonpath={.items[?(@.metadata.ownerReferences[0].name==\"$1\")].$2}"; }
condition_of() { workload_of "$1" "status.conditions[?(@.type==\"$2\")].$3"; }
count() { k get "$@" -o name | wc -l; }

serve
export KUBECONFIG=$admin
k apply -f - > /dev/null << 'YAML'
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: pool}
spec: {nodeLabels: {example.com/pool: cpu}, tolerations: [{key: pool, operator: Exists}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: team}
spec:
  namespaceSelector: {}
  preemption: {withinClusterQueue: LowerPriority}
  resourceGroups: [{coveredResources: [cpu], flavors: [{name: pool, resources: [{name: cpu, nominalQuota: 6}]}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: queue, namespace: default}
spec: {clusterQueue: team}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: pressing}
value: 90
YAML

# Five pods of a cpu each: a driver and twice two workers. What JobSet's webhook would fill in is said.
job_set() { # NAME [LABELS]
  k create -f - > /dev/null << YAML
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: $1, labels: {kueue.x-k8s.io/queue-name: queue${2:+, $2}}}
spec:
  suspend: true
  network: {enableDNSHostnames: false}
  successPolicy: {operator: All}
  startupPolicy: {startupPolicyOrder: AnyOrder}
  replicatedJobs:
  - name: driver
    template: {metadata: {labels: {kueue.x-k8s.io/queue-name: queue}}, spec: {completionMode: Indexed, parallelism: 1, completions: 1, template: {metadata: {labels: {app: train}}, spec: {restartPolicy: OnFailure, containers: [{name: c, image: 'busybox:1', resources: {requests: {cpu: 1}}}]}}}}
  - name: workers
    replicas: 2
    template: {metadata: {labels: {kueue.x-k8s.io/queue-name: queue}}, spec: {completionMode: Indexed, parallelism: 2, completions: 2, template: {metadata: {labels: {app: train}}, spec: {restartPolicy: OnFailure, containers: [{name: c, image: 'busybox:1', resources: {requests: {cpu: 1}}}]}}}}
YAML
}
pods_of() { k get pods -l "jobset.sigs.k8s.io/jobset-name=$1" -o name; }
template_of() { k get jobset "$1" -o 'jsonpath={.spec.replicatedJobs[1].template.spec.template}'; }
suspended() { is "$2" k get jobset "$1" -o 'jsonpath={.spec.suspend}'; }
has_pods() { [ "$(pods_of "$1" | wc -l)" = "$2" ]; }


k apply --server-side -f "$programs/jobsets.yaml" > "$work/out" 2>&1 || fail 'the definition of JobSets'
openssl req -x509 -newkey rsa:2048 -nodes -keyout "$work/tls.key" -out "$work/tls.crt" -days 30 -subj /CN=localhost > "$work/out" 2>&1 || fail 'no certificate'
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
cat > "$work/jobset.yaml" << YAML
apiVersion: config.jobset.x-k8s.io/v1alpha1
kind: Configuration
leaderElection: {leaderElect: false}
internalCertManagement: {enable: false}
webhook: {host: 127.0.0.1, port: $port, certDir: $work}
health: {healthProbeBindAddress: "0"}
metrics: {bindAddress: "0"}
YAML
start jobset.log "$programs/jobset" --config "$work/jobset.yaml"
controller=$last

job_set one
wait_until 60 'a kind that was defined later is served' suspended one false
wait_until 30 'its pods are there' has_pods one 5
workload_of one metadata.name | grep -q '^jobset-one-.....$' || fail 'the name of its Workload'
is 'driver workers' workload_of one 'spec.podSets[*].name' || fail 'pod sets are the replicated jobs'
is '1 4' workload_of one 'spec.podSets[*].count' || fail 'counts of pods'
is cpu k get pods -o 'jsonpath={.items[4].spec.nodeSelector.example\.com/pool}' || fail 'pods go to the nodes of the flavor'
echo 'ok a JobSet is let go to its flavor'

job_set two
wait_until 30 'the second has a Workload' is False condition_of two QuotaReserved status
suspended two true || fail 'the second runs beyond the quota'
job_set three 'kueue.x-k8s.io/priority-class: pressing'
wait_until 60 'one with a higher priority takes the quota' suspended three false
wait_until 30 'the other is held' suspended one true
wait_until 30 'and its pods are gone' has_pods one 0
wait_until 30 'its template is as it was' bash -c "! '$kubectl' get jobset one -o 'jsonpath={.spec.replicatedJobs[*].template.spec.template}' | grep -E 'nodeSelector|tolerations|podset'"
template_of one | grep -q '"app":"train"' || fail 'labels of its own are kept'
wait_until 30 'pods of the third' has_pods three 5
[ "$(count workloads)" = 3 ] || fail 'Jobs of JobSets are queued themselves'
[ "$(count jobs)" -ge 6 ] || fail 'there are no Jobs of JobSets'
echo 'ok it is taken back for one with a higher priority'

for pod in $(pods_of three); do k patch "$pod" --subresource=status --type=merge -p '{"status":{"phase":"Succeeded"}}' > /dev/null; done
wait_until 60 'its end is the end of its Workload' is Succeeded condition_of three Finished reason
wait_until 30 'the next one runs' suspended one false
wait_until 30 'on its flavor' has_pods one 5
echo 'ok it ends, and the next one runs'

k delete jobset one two three > /dev/null
wait_until 60 'Workloads go with their JobSets' is '' k get workloads -o name
wait_until 30 'nothing has quota' is 0 k get clusterqueue team -o 'jsonpath={.status.flavorsUsage[0].resources[0].total}'
stop "$controller" || true

# Kinds whose controllers are not here: definitions as wide as can be.
define() { # GROUP VERSION PLURAL KIND
  k apply -f - > /dev/null << YAML
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: $3.$1}
spec:
  group: $1
  scope: Namespaced
  names: {plural: $3, singular: ${3%s}, kind: $4}
  versions: [{name: $2, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
YAML
}
define sagemaker.amazonaws.com v1 hyperpodpytorchjobs HyperPodPyTorchJob
define kubeflow.org v1 pytorchjobs PyTorchJob
define kubeflow.org v2beta1 mpijobs MPIJob
wait_until 20 'the definitions are served' k get hyperpodpytorchjobs,pytorchjobs,mpijobs
template='{spec: {containers: [{name: c, image: "busybox:1", resources: {requests: {cpu: 1}}}]}}'
k create -f - > /dev/null << YAML
apiVersion: sagemaker.amazonaws.com/v1
kind: HyperPodPyTorchJob
metadata: {name: hyper, labels: {kueue.x-k8s.io/queue-name: queue}}
spec: {runPolicy: {suspend: true}, replicaSpecs: [{name: pods, replicas: 2, spares: 1, template: $template}]}
---
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: torch, labels: {kueue.x-k8s.io/queue-name: queue}}
spec: {pytorchReplicaSpecs: {Master: {replicas: 1, template: $template}}}
---
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: mpi, labels: {kueue.x-k8s.io/queue-name: queue}}
spec: {runPolicy: {suspend: true}, mpiReplicaSpecs: {Launcher: {replicas: 1, template: $template}, Worker: {replicas: 1, template: $template}}}
YAML
wait_until 60 'a HyperPodPyTorchJob is let go' is false k get hyperpodpytorchjob hyper -o 'jsonpath={.spec.runPolicy.suspend}'
is 3 workload_of hyper 'spec.podSets[0].count' || fail 'spares count'
wait_until 60 'a PyTorchJob is let go' is False k get pytorchjob torch -o 'go-template={{if eq .spec.runPolicy.suspend false}}False{{end}}'
wait_until 60 'an MPIJob is let go' is cpu k get mpijob mpi -o 'jsonpath={.spec.mpiReplicaSpecs.Worker.template.spec.nodeSelector.example\.com/pool}'
k patch hyperpodpytorchjob hyper --subresource=status --type=merge -p '{"status":{"conditions":[{"type":"Failed","status":"True","message":"out of restarts"}]}}' > /dev/null
wait_until 30 'a HyperPodPyTorchJob that has failed' is 'Failed out of restarts' k get workloads -o 'jsonpath={range .items[?(@.metadata.ownerReferences[0].name=="hyper")].status.conditions[?(@.type=="Finished")]}{.reason} {.message}{end}'
k patch mpijob mpi --type=merge -p '{"spec":{"mpiReplicaSpecs":{"Worker":{"replicas":-1}}}}' > /dev/null
wait_until 30 'an MPIJob that was spoilt is held' is true k get mpijob mpi -o 'jsonpath={.spec.runPolicy.suspend}'
wait_until 30 'and told' bash -c "'$kubectl' get events -o 'jsonpath={.items[*].message}' | grep -q 'spec.mpiReplicaSpecs\[Worker\].replicas: a number of pods is expected'"
echo 'ok HyperPodPyTorchJob, PyTorchJob and MPIJob'
k delete crd mpijobs.kubeflow.org pytorchjobs.kubeflow.org hyperpodpytorchjobs.sagemaker.amazonaws.com > /dev/null
wait_until 90 'Workloads go with the definitions of their owners' is '' k get workloads -o name
! grep -E ' (error|fatal) ' "$work/server.log" || fail 'the server logs errors'
stop_server || fail 'the server does not end as it should'
echo 'ok definitions go, and the server goes on'
