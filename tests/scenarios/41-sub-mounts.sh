#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A sub-mount is added to a running cluster and taken away again: idle workers are made anew for it, busy ones when their jobs are over, and no job ends for it; a login node when nobody is in it.
. "$(dirname "$0")/lib.sh"

mounts() { kd patch slurmcluster demo --type=merge -p "{\"spec\":{\"slurmNodes\":{\"worker\":{\"volumes\":{\"jailSubMounts\":$1}}}}}" > /dev/null; }
on_login() { kd patch slurmcluster demo --type=merge -p "{\"spec\":{\"slurmNodes\":{\"login\":{\"volumes\":{\"jailSubMounts\":$1}}}}}" > /dev/null; }
before=''
uid() { kd get pod "$1" -o 'jsonpath={.metadata.uid}'; }
message() { kd get slurmcluster demo -o 'jsonpath={.status.conditions[?(@.type=="WorkersAvailable")].message}'; }
renewed() { local now; now=$(uid "$1" 2> /dev/null) && [ -n "$now" ] && [ "$now" != "$2" ]; }
clean_up() {
  local status=$?
  trap - EXIT
  [ $status = 0 ] || { message; login sinfo -N -o '%N %T %E'; kd get pods; } >&2 || true
  login touch /home/sub-on /home/leave 2> /dev/null || true
  mounts null || status=1
  on_login "${before:-null}" || status=1
  exit "$status"
}
trap clean_up EXIT

workers=$(kd get slurmcluster demo -o 'jsonpath={.spec.slurmNodes.worker.size}')
until_true 60 'the workers are idle' same "$workers" idle_workers
login rm -f /home/sub-on
idle=$(uid worker-0) busy=$(uid worker-1)
job=$(login sbatch --parsable -o /dev/null -w worker-1 -t 30 --wrap 'until [ -e /mnt/jail/home/sub-on ]; do sleep 1; done' | tr -d '[:space:]')
until_true 60 'the job runs on worker-1' same RUNNING job_state "$job"
login_uid=$(uid login-0)
mounts '[{"name":"extra","mountPath":"/mnt/extra","volumeSourceName":"jail","subPath":"home/extra"}]'
until_true 180 'the idle worker is made anew' renewed worker-0 "$idle"
until_true 180 'it is in service again' same idle login sinfo -h -N -n worker-0 -o %t
login srun -w worker-0 sh -c 'grep -q " /mnt/extra " /proc/mounts && echo here > /mnt/extra/note' || fail 'the mount is not on the idle worker'
same here login srun -w worker-0 cat /mnt/jail/home/extra/note || fail 'it is another volume'
until_true 120 'the condition names the job' says "worker-1 is drained and waits for job $job" message
same "$busy" uid worker-1 || fail 'the busy worker was made anew'
same RUNNING job_state "$job" || fail "the job does not run any more: $(job_state "$job")"
note 'an idle worker has the new mount, and a busy one waits for its job'
login touch /home/sub-on
until_true 180 'the other worker is made anew' renewed worker-1 "$busy"
same COMPLETED job_state "$job" || fail "the job did not end by itself: $(job_state "$job")"
until_true 240 'all workers are idle' same "$workers" idle_workers
same here login srun -w worker-1 cat /mnt/extra/note || fail 'the mount is not on the other worker'
same "$login_uid" uid login-0 || fail 'the login node was made anew'
note 'when the job had ended by itself, the other one followed'

# The login node has somebody who left a program behind; when that has ended, it follows.
login_message() { kd get slurmcluster demo -o 'jsonpath={.status.conditions[?(@.type=="LoginAvailable")].message}'; }
before=$(kd get slurmcluster demo -o 'jsonpath={.spec.slurmNodes.login.volumes.jailSubMounts}')
login sh -c 'rm -f /home/leave; (until [ -e /home/leave ]; do sleep 1; done) > /dev/null 2>&1 < /dev/null &'
on_login '[{"name":"extra","mountPath":"/mnt/extra","volumeSourceName":"jail","subPath":"home/extra"}]'
until_true 120 'the condition names who is there' says 'login-0 is made anew for other mounts when nobody is logged in; there are root' login_message
pause 12
same "$login_uid" uid login-0 || fail 'a login node was made anew while somebody was in it'
kd exec login-0 -c sshd -- touch /home/leave
until_true 180 'the login node is made anew' renewed login-0 "$login_uid"
until_true 120 'it is ready' kd wait --for=condition=Ready pod/login-0 --timeout=5s
same here login cat /mnt/extra/note || fail 'the mount is not on the login node'
login rm -f /home/leave
login_uid=$(uid login-0)
on_login "${before:-null}"
until_true 180 'the login node is made anew without it' renewed login-0 "$login_uid"
until_true 120 'it is ready again' kd wait --for=condition=Ready pod/login-0 --timeout=5s
note 'the login node followed when nobody was in it, and no sooner'

idle=$(uid worker-0) busy=$(uid worker-1)
mounts null
until_true 180 'worker-0 is made anew without it' renewed worker-0 "$idle"
until_true 240 'and worker-1' renewed worker-1 "$busy"
until_true 240 'all workers are idle again' same "$workers" idle_workers
for worker in worker-0 worker-1; do
  same 0 login srun -w "$worker" sh -c 'grep -c " /mnt/extra " /proc/mounts || true' || fail "the mount is still on $worker"
done
same here login cat /home/extra/note || fail 'what was written there is gone'
login rm -rf /home/extra /home/sub-on
note 'taken away, the mount leaves the workers, and what it holds stays'
