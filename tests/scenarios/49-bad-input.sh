#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Mistakes in a cluster that runs, with the real daemons: each is told in a condition with a remedy, put back it is over, and meanwhile the same pods run the same job.
. "$(dirname "$0")/lib.sh"

condition() { kd get slurmcluster demo -o "jsonpath={.status.conditions[?(@.type==\"$1\")].$2}"; }
spec() { kd patch slurmcluster demo --type=json -p "$1" > /dev/null || fail "the API refuses $1"; }
uids() { kd get pods -l 'fairlead.dev/slurm-role in (controller,worker,login)' -o 'jsonpath={range .items[*]}{.metadata.name} {.metadata.uid}{"\n"}{end}' | grep -vE '^(odd|ahead|behind)-' | sort; }
untouched() { same "$before" uids || fail "$1: pods were made anew: $(uids)"; same RUNNING job_state "$job" || fail "$1: the job does not run any more"; }
key() { kd get secret demo-munge -o 'jsonpath={.data.munge\.key}'; }
put_key() { kd patch secret demo-munge --type=merge -p "{\"data\":{\"munge.key\":\"$1\"}}" > /dev/null; }
joined() { login sinfo -h -N -o '%N %t' | awk -v of="$1-" 'index($1, of) == 1 && $2 ~ /idle|mix/'; } # NODESET
runs_jobs() { says worker- login srun -N1 hostname || fail 'no new job runs'; }
good_key=$(key)
job=''
clean_up() {
  local status=$?
  trap - EXIT
  [ $status = 0 ] || { kd get slurmcluster demo -o 'jsonpath={range .status.conditions[*]}{.type}={.status} {.reason}: {.message}{"\n"}{end}'; kd get pods; } >&2 || true
  put_key "$good_key" || status=1
  kd delete nodeset odd ahead behind --ignore-not-found --timeout=120s > /dev/null || status=1
  kd delete pvc for-one of-class --ignore-not-found --wait=false > /dev/null || status=1
  k delete storageclass for-one --ignore-not-found > /dev/null || status=1
  [ -z "$job" ] || login scancel "$job" || true
  exit "$status"
}
trap clean_up EXIT

same True condition SpecValid status || fail 'the cluster is not well before'
until_true 180 'no head is to be renewed' at_rest
job=$(login sbatch --parsable -N1 -o /dev/null --wrap 'sleep 10000' | tr -d '[:space:]')
until_true 60 'a job runs' same RUNNING job_state "$job"
before=$(uids)
[ -n "$before" ] || fail 'there are no pods'

# Clocks: those of two munges are ten minutes apart from all others. Why the two workers do not join is asked a while after they came, so what is told of them is looked at further down.
node_set ahead 1 '' '' slurm:22.05-ahead
node_set behind 1 '' '' slurm:22.05-behind

# In the resource.
spec '[{"op":"add","path":"/spec/slurmNodes/worker/volumes/jailSubMounts","value":[{"name":"data","mountPath":"/data","volumeSourceName":"jail"}]},{"op":"add","path":"/spec/slurmNodes/login/volumes/jailSubMounts","value":[{"name":"data","mountPath":"/elsewhere","volumeSourceName":"jail"}]}]'
until_true 60 'paths that differ are told with both' says 'at /elsewhere on login nodes and at /data on workers; give both the same path' condition SpecValid message
spec '[{"op":"remove","path":"/spec/slurmNodes/worker/volumes/jailSubMounts"},{"op":"remove","path":"/spec/slurmNodes/login/volumes/jailSubMounts"}]'
until_true 60 'the resource is good again' same True condition SpecValid status
untouched 'paths that differ'

kd apply -f - > /dev/null << 'YAML'
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: for-one}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
YAML
for claim in for-one nowhere; do
  spec "[{\"op\":\"add\",\"path\":\"/spec/volumeSources/-\",\"value\":{\"name\":\"more\",\"persistentVolumeClaim\":{\"claimName\":\"$claim\"}}},{\"op\":\"add\",\"path\":\"/spec/slurmNodes/worker/volumes/jailSubMounts\",\"value\":[{\"name\":\"data\",\"mountPath\":\"/data\",\"volumeSourceName\":\"more\"}]}]"
  case $claim in
    for-one) until_true 60 'a claim for one pod is told' says 'claim for-one is shared by several pods but is not ReadWriteMany; make it with accessModes' condition VolumesReady message ;;
    nowhere) until_true 60 'a claim that is not there is told' says 'claim nowhere is not there; create it' condition VolumesReady message ;;
  esac
  same ClaimUnfit condition VolumesReady reason || fail "the reason is $(condition VolumesReady reason)"
  pause 5
  untouched "claim $claim"
  last=$(($(kd get slurmcluster demo -o json | python3 -c 'import json, sys; print(len(json.load(sys.stdin)["spec"]["volumeSources"]))') - 1))
  spec "[{\"op\":\"remove\",\"path\":\"/spec/slurmNodes/worker/volumes/jailSubMounts\"},{\"op\":\"remove\",\"path\":\"/spec/volumeSources/$last\"}]"
  until_true 60 'the volumes are fit again' same True condition VolumesReady status
done
note 'paths that differ, a claim for one pod, a claim that is not there: told, and nothing was touched'

secrets=$(kd get slurmcluster demo -o 'jsonpath={.spec.secrets}')
spec '[{"op":"add","path":"/spec/secrets","value":{"sshdKeysName":"nowhere"}}]'
until_true 60 'a Secret that is missing is told' says 'Secret nowhere (named in spec.secrets.sshdKeysName) is not there: make it, or leave the field empty' condition CommonAvailable message
same ObjectMissing condition CommonAvailable reason || fail "the reason is $(condition CommonAvailable reason)"
untouched 'a missing Secret'
if [ -n "$secrets" ]; then spec "[{\"op\":\"add\",\"path\":\"/spec/secrets\",\"value\":$secrets}]"; else spec '[{"op":"remove","path":"/spec/secrets"}]'; fi
until_true 60 'all is there again' same True condition CommonAvailable status
note 'a Secret that is missing: told, and nothing was touched'

# A storage class that offers no volume for many: whoever provides it leaves the claim as it is.
k apply -f - > /dev/null << 'YAML'
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: for-one}
provisioner: example.com/none
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: of-class, namespace: demo}
spec: {accessModes: [ReadWriteMany], storageClassName: for-one, resources: {requests: {storage: 1Gi}}}
YAML
node_set odd 1 '{persistentVolumeClaim: {claimName: of-class}}'
until_true 90 'a claim without a volume is told with its class' says 'claim of-class has no volume (storage class for-one)' condition VolumesReady message
says 'ReadWriteMany, which not every storage class offers' condition VolumesReady message || fail "VolumesReady: $(condition VolumesReady message)"
same ClaimPending condition VolumesReady reason || fail "the reason is $(condition VolumesReady reason)"
untouched 'a storage class without ReadWriteMany'
kd delete nodeset odd --timeout=120s > /dev/null || fail 'the NodeSet stays'
kd delete pvc of-class --wait=false > /dev/null || fail 'the claim stays'
k delete storageclass for-one > /dev/null
until_true 60 'the volumes are fit once more' same True condition VolumesReady status
note 'a storage class without volumes for many: told, and nothing was touched'

# What the two with other clocks say by now.
words() { says "munge there says of the head's credential: $1 head's): the clocks of its machine and the head's are more than five minutes apart: let chrony" condition WorkersAvailable message; }
until_true 150 'a clock ahead is told' words 'Expired credential (its clock is about 10 minutes ahead of the'
until_true 60 'a clock behind is told' words 'Rewound credential (its clock is about 10 minutes behind the'
same ClocksApart condition WorkersAvailable reason || fail "the reason is $(condition WorkersAvailable reason)"
for set in ahead behind; do is_empty joined $set || fail 'a worker with another clock has joined'; done
runs_jobs
untouched 'clocks that differ'
kd delete nodeset ahead behind --timeout=120s > /dev/null || fail 'the NodeSets stay'
until_true 60 'the workers are well again' same True condition WorkersAvailable status
note 'clocks that differ: told with the words of munge and by how much, and nothing was touched'

# Workers of one kind alone with an image without Slurm.
node_set odd 1 '' busybox:1
without_slurm() { same ImageWithoutSlurm condition WorkersAvailable reason || same VersionUnknown condition Upgraded reason; }
until_true 120 'an image without Slurm is told' without_slurm
told="$(condition Upgraded message) $(condition WorkersAvailable message)"
[[ $told == *busybox:1* || $told == *'use an image that has Slurm'* ]] || fail "what is wrong with the image is not told: $told"
is_empty joined odd || fail 'a worker without Slurm has joined'
runs_jobs
untouched 'an image without Slurm'
kd delete nodeset odd --timeout=120s > /dev/null || fail 'the NodeSet stays'
well_again() { same True condition WorkersAvailable status && [[ $(condition Upgraded reason) != VersionUnknown ]]; }
until_true 90 'the cluster is well again' well_again
note 'an image without Slurm for one kind of workers: told, and nothing was touched'

# Another munge key: what runs goes on with the one that it began with, and a worker that is made now does not join.
put_key "$(head -c 1024 /dev/urandom | base64 -w 0)"
until_true 60 'another key is told' says 'Put the old key back' condition KeysMatch message
same KeyChanged condition KeysMatch reason || fail "the reason is $(condition KeysMatch reason)"
node_set odd 1
until_true 60 'its pod runs' same Running kd get pod odd-0 -o 'jsonpath={.status.phase}'
until_true 150 "munge's own words are told" says "munge there says of the head's credential: Invalid credential" condition WorkersAvailable message
is_empty joined odd || fail 'a worker with another key has joined'
says 'odd-0: Running, made with another munge key than the head' condition WorkersAvailable message || fail 'why the worker does not join is not told'
runs_jobs
untouched 'another munge key'
put_key "$good_key"
kd delete pod odd-0 --wait=false > /dev/null
until_true 60 'the old key is in its place' same True condition KeysMatch status
until_true 180 'the worker joins with it' same idle login sinfo -h -N -n odd-0 -o %t
untouched 'the old key again'
kd delete nodeset odd --timeout=120s > /dev/null || fail 'the NodeSet stays'
note 'another munge key: told, what runs goes on, and a worker that has it joins when the old one is back'
