#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two login nodes: people reach both and meet the same host keys; what one has, the other has; other mounts come to one after the other, so that one is always there; the second goes when somebody says so.
. "$(dirname "$0")/lib.sh"

size() { kd patch slurmcluster demo --type=merge -p "{\"spec\":{\"slurmNodes\":{\"login\":{\"size\":$1}}}}" > /dev/null; }
mounts() { kd patch slurmcluster demo --type=merge -p "{\"spec\":{\"slurmNodes\":{\"login\":{\"volumes\":{\"jailSubMounts\":$1}}}}}" > /dev/null; }
told() { kd get slurmcluster demo -o 'jsonpath={.status.conditions[?(@.type=="LoginAvailable")].message}'; }
uid() { kd get pod "$1" -o 'jsonpath={.metadata.uid}'; }
on() { local pod=$1; shift; kd exec "$pod" -c sshd -- "$@"; }
ready() { kd get pods -l fairlead.dev/slurm-role=login -o 'jsonpath={range .items[*]}{.status.conditions[?(@.type=="Ready")].status} {end}' | grep -o True | wc -l; }
before=$(kd get slurmcluster demo -o 'jsonpath={.spec.slurmNodes.login.volumes.jailSubMounts}')
clean_up() {
  local status=$?
  trap - EXIT
  [ $status = 0 ] || { told; kd get pods; } >&2 || true
  size 1 || status=1
  mounts "${before:-null}" || status=1
  kd delete pod login-1 --ignore-not-found --wait=false > /dev/null || status=1
  exit "$status"
}
trap clean_up EXIT

first=$(uid login-0)
size 2
until_true 120 'two login nodes' same '2 of 2 ready' told
same "$first" uid login-0 || fail 'the first login node was made anew'
keys() { on "$1" ssh-keyscan -t rsa,ecdsa,ed25519 127.0.0.1 2> /dev/null | sort; }
[ "$(keys login-0 | wc -l)" = 3 ] || fail "host keys of login-0: $(keys login-0)"
[ "$(keys login-0)" = "$(keys login-1)" ] || fail 'the two have different host keys: people would be warned'
for pod in login-0 login-1; do
  until_true 30 "ssh on $pod answers people" says 'SSH-2.0' python3 -c 'import socket, sys; print(socket.create_connection((sys.argv[1], 22), timeout=10).recv(64).decode())' "$(kd get pod "$pod" -o 'jsonpath={.status.podIP}')"
  until_true 60 "srun from $pod" on "$pod" srun -N1 true
done
[ "$(kd get endpointslices -l kubernetes.io/service-name=demo-login-svc -o 'jsonpath={range .items[*].endpoints[*]}{.targetRef.name}{"\n"}{end}' | sort -u | tr '\n' ' ')" = 'login-0 login-1 ' ] || fail 'the Service does not lead to both'
job=$(on login-0 sbatch --parsable -o /dev/null --wrap 'sleep 10000' | tr -d '[:space:]')
until_true 60 'a job submitted on one is seen on the other' same "$job" on login-1 squeue -h -j "$job" -t RUNNING -o %i
on login-1 scancel "$job" || fail 'it cannot be cancelled there'
note 'two login nodes: both are reached, with the same host keys, and show the same cluster'

second=$(uid login-1)
mounts '[{"name":"both","mountPath":"/mnt/both","volumeSourceName":"jail","subPath":"home/both"}]'
least=2
followed() {
  local now
  now=$(ready)
  ((now >= least)) || least=$now
  [ "$(uid login-0 2> /dev/null)" != "$first" ] && [ "$(uid login-1 2> /dev/null)" != "$second" ] && [ "$now" = 2 ]
}
until_true 300 'both have the new mount' followed
((least >= 1)) || fail 'for a moment there was no login node'
until_true 60 'a note by one' on login-0 sh -c 'echo here > /mnt/both/note'
until_true 60 'is read by the other' same here on login-1 cat /mnt/both/note
note "other mounts came to one after the other; at least $least was ready at any time"

# Fewer: who is in the second one is not thrown out.
mounts "${before:-null}"
least=2 first=$(uid login-0) second=$(uid login-1)
until_true 300 'both are without it' followed
second=$(uid login-1)
size 1
until_true 60 'the second is kept, and it is told' says 'login-1 are beyond the size and kept' told
same "$second" uid login-1 || fail 'it was ended'
kd delete pod login-1 > /dev/null
pause 5
is_empty kd get pod login-1 --ignore-not-found -o name || fail 'it was made anew'
until_true 60 'one login node' same '1 of 1 ready' told
on login-0 rm -rf /home/both
note 'the second stays until somebody says so, and does not come back'
