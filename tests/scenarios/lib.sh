# SPDX-License-Identifier: Apache-2.0
# Sourced by each scenario.
set -euo pipefail
: "${KUBECONFIG:?}" "${SCENARIO_KUBECTL:?}" "${SCENARIO_FAIRLEAD:?}" "${SCENARIO_SITE:?}" "${SCENARIO_WORK:?}"
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
scenario_began=$EPOCHREALTIME
k() { "$SCENARIO_KUBECTL" "$@"; }
kd() { k -n demo "$@"; }
f() { COLUMNS=160 "$SCENARIO_FAIRLEAD" "$@" --kubeconfig "$KUBECONFIG"; }
note() { printf '%7.1f s  ok %s\n' "$(awk -v a="$scenario_began" -v b="$EPOCHREALTIME" 'BEGIN { print b - a }')" "$*"; }
fail() {
  local other=
  [ ! -s "$SCENARIO_WORK/other" ] || other=" ($(head -c 400 "$SCENARIO_WORK/other" | tr '\n' ' '))"
  echo "FAIL: $*$other" >&2
  [ -s "$SCENARIO_WORK/first-failure" ] || echo "$*" > "$SCENARIO_WORK/first-failure" # run.sh asks why
  exit 1
}
pause() { read -rt "$1" <> <(:) || true; }
until_true() { # SECONDS WHAT COMMAND...
  local limit=$1 what=$2 end asked
  shift 2
  end=$((SECONDS + limit * ${FAIRLEAD_PATIENCE:-2}))
  while asked=${EPOCHREALTIME/[.,]/} && ! "$@" > "$SCENARIO_WORK/last" 2>&1; do
    ((SECONDS < end)) || fail "not within $limit s: $what ($(tail -n 3 "$SCENARIO_WORK/last" | tr '\n' ' '))"
    # What takes a while to ask is asked less often: the machine has better to do.
    asked=$((${EPOCHREALTIME/[.,]/} - asked)) && pause "$((asked < 500000 ? 1 : asked < 2500000 ? asked / 500000 : 5))"
  done
}
# A command on the login node. The kubelet's connection may be young: what could not be carried there is asked again, what ran and failed is not.
login() { kd exec login-0 -c sshd -- "$@"; }
# What a check wanted and got: `fail` tells it, too.
differs() { echo "wanted \"$1\", got: $2" | tee "$SCENARIO_WORK/other" && return 1; }
says() { # TEXT COMMAND...: the output has the text
  local text=$1 out
  shift
  out=$("$@" 2>&1) && [[ $out == *"$text"* ]] && : > "$SCENARIO_WORK/other" || differs "$text" "$out"
}
same() { # TEXT COMMAND...: the output is the text
  local text=$1 out
  shift
  out=$("$@" 2> /dev/null) && [[ $out == "$text" ]] && : > "$SCENARIO_WORK/other" || differs "$text" "$out"
}
is_empty() { # COMMAND...: it succeeds and prints nothing
  local out
  out=$("$@" 2>&1) && [[ -z $out ]] || { echo "left: $out"; return 1; }
}
# The columns in which kubectl shows a kind.
columns() { kd get "$1" | awk 'NR == 1 { $1 = $1; print }'; }
# No head of the cluster is to be renewed: an earlier step may have changed what they are started with, and that goes one after the other.
at_rest() {
  local look words
  for look in 1 2; do
    words=$(kd get slurmcluster demo -o 'jsonpath={.status.conditions[?(@.type=="ControllersAvailable")].message}')
    [[ $words =~ ^([0-9]+)\ of\ ([0-9]+)\ ready$ ]] && [ "${BASH_REMATCH[1]}" = "${BASH_REMATCH[2]}" ] || { echo "$words"; return 1; }
    same True kd get slurmcluster demo -o 'jsonpath={.status.conditions[?(@.type=="ConfigApplied")].status}' || return 1
    [ $look = 2 ] || pause 2
  done
}
idle_workers() { login sinfo -h -N -o '%N %t' | awk '$2 == "idle" { n++ } END { print n + 0 }'; }
job_state() { login scontrol show job "$1" | sed -nE 's/.*JobState=([A-Z_]+).*/\1/p' | head -n 1; }
losses() { sed -nE 's/.*step +[0-9]+\/[0-9]+ +loss ([0-9.]+).*/\1/p' "$1"; }

# ---- objects that several scenarios make

# A claim for many pods, with a volume behind it.
shared_claim() { # NAMESPACE NAME SIZE
  $SCENARIO_PROVIDE "$@"
  k apply -f - > /dev/null << YAML
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: $2, namespace: $1}
spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: $3}}}
YAML
}
# A SlurmCluster in the namespace of its name: a head, workers, a login node. Where it is to differ is said before the name: `workers=2 memory=384Mi small_cluster NAME`.
small_cluster() { # NAME
  local folder='emptyDir: {}' none='{enabled: false}' unbound='{bindCores: false}'
  local jail=${jail:-$folder} state=${state:-$folder} more=${more:-} accounting=${accounting:-$none} workers=${workers:-1} memory=${memory:-256Mi} login=${login:-login} extensions=${extensions:-$unbound}
  k apply -f - > /dev/null << YAML
apiVersion: slurm.nebius.ai/v1
kind: SlurmCluster
metadata: {name: $1, namespace: $1}
spec:
  k8sNodeFilters:
  - {name: gpu, nodeSelector: {example.com/pool: gpu}}
  - {name: cpu, nodeSelector: {example.com/pool: cpu}}
  - {name: login, nodeSelector: {example.com/pool: login}}
  volumeSources: [{name: jail, $jail}, {name: state, $state}]
  $more
  slurmNodes:
    accounting: $accounting
    controller: {size: 1, k8sNodeFilterName: cpu, slurmctld: {image: "slurm:22.05", resources: {cpu: 100m, memory: 256Mi}}, munge: {resources: {cpu: 20m, memory: 48Mi}}, volumes: {spool: {volumeSourceName: state}, jail: {volumeSourceName: jail}}}
    worker: {size: $workers, k8sNodeFilterName: gpu, slurmd: {image: "slurm:22.05", resources: {cpu: 100m, memory: $memory}}, munge: {resources: {cpu: 20m, memory: 48Mi}}, volumes: {jail: {volumeSourceName: jail}}}
    login: {size: 1, k8sNodeFilterName: $login, sshd: {image: "slurm:22.05", resources: {cpu: 100m, memory: 256Mi}}, munge: {resources: {cpu: 20m, memory: 48Mi}}, volumes: {jail: {volumeSourceName: jail}}}
  extensions: $extensions
YAML
}
# More workers of the demo, as a NodeSet.
node_set() { # NAME REPLICAS [SPOOL [IMAGE [MUNGE'S IMAGE]]]
  local spool='{emptyDir: {}}' image=${4:-slurm:22.05} munge=${5:-slurm:22.05}
  [ -z "${3:-}" ] || spool=$3
  kd apply -f - > /dev/null << YAML
apiVersion: slurm.nebius.ai/v1alpha1
kind: NodeSet
metadata: {name: $1}
spec:
  clusterName: demo
  replicas: $2
  nodeSelector: {example.com/pool: gpu}
  slurmd:
    image: {repository: ${image%:*}, tag: "${image#*:}"}
    resources: {cpu: 100m, memory: 256Mi}
    volumes: {jail: {persistentVolumeClaim: {claimName: jail-pvc}}, spool: $spool, sharedMemorySize: 64Mi}
  munge: {image: {repository: ${munge%:*}, tag: "${munge#*:}"}, resources: {cpu: 20m, memory: 48Mi}}
YAML
}
# A Job that waits in a queue of its namespace, and then sleeps.
queued_job() { # NAMESPACE NAME CPU [LABELS [QUEUE]]
  k -n "$1" create -f - > /dev/null << YAML
apiVersion: batch/v1
kind: Job
metadata: {name: $2, labels: {kueue.x-k8s.io/queue-name: ${5:-queue}${4:+, $4}}}
spec:
  suspend: true
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 0
      containers: [{name: work, image: 'busybox:1', imagePullPolicy: IfNotPresent, command: [sleep, "1000"], resources: {requests: {cpu: $3}}}]
YAML
}
held() { same "$3" k -n "$1" get job "$2" -o 'jsonpath={.spec.suspend}'; } # NAMESPACE JOB true|false
of_queue() { k get clusterqueue "$1" -o "jsonpath={.status.$2}"; }
