#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The companion's node commands on a real slurmctld and a real dynamic slurmd: what they print, what they do, and what they refuse to do.
#   slurm_nodes_test.sh BUILD_DIR   (as root)
set -euo pipefail
build=$(realpath "${1:?usage: slurm_nodes_test.sh BUILD_DIR}")
top=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/slurm_machine.sh
. "$(dirname "$0")/../slurm_machine.sh"
own_machine "$0" "$build"
make_machine "$build"
# Workers as the operator makes them: they register themselves.
sed -i '/^NodeName=/d; /^PartitionName=/d' "$root/etc/slurm/slurm.conf"
cat >> "$root/etc/slurm/slurm.conf" << 'TEXT'
MaxNodeCount=64
TreeWidth=65533
SlurmctldParameters=enable_configless,cloud_reg_addrs
NodeSet=worker Feature=worker
PartitionName=main Nodes=worker Default=YES MaxTime=INFINITE State=UP
TEXT
companion() { inside /opt/fairlead/bin/fairlead-slurm "$@"; }
refused() { # STATUS TEXT COMMAND...
  local want=$1 text=$2 status=0 out
  shift 2
  out=$(companion "$@" 2>&1) || status=$?
  [[ $status == "$want" && $out == *"$text"* ]] || fail "$*: wanted status $want and \"$text\", got $status: $out"
}
# PYTHON EXPRESSION over v (the whole answer), n (worker-0), j (job id -> job)
seen() {
  companion nodes --port 6818 > "$work/nodes.log" || return 1
  python3 - "$work/nodes.log" "$1" << 'PYTHON'
import json, sys
v = json.load(open(sys.argv[1]))
n = {node["name"]: node for node in v["nodes"]}.get("worker-0", {})
j = {job["id"]: job for job in v["jobs"]}
sys.exit(0 if v["answered"] and eval(sys.argv[2]) else 1)
PYTHON
}

refused 4 'does not answer' nodes
start_controller
seen 'v["nodes"] == [] and v["jobs"] == []' || fail 'a Slurm without nodes'
inside slurmd -D -Z -N worker-0 --conf 'CPUs=4 Feature=worker' > "$work/slurmd.log" 2>&1 &
slurmd=$!
until_true 30 'worker-0 is idle' seen 'n.get("state", [""])[0] == "IDLE" and n["cpus"] == 0'
ok 'silence is told apart from a Slurm without nodes; a registered worker is listed'

# Checks as jobs (docs/design/014): run as nobody, once for each run; whoever gives a job such a name makes no check of it.
checks() { # PYTHON EXPRESSION over j (job id -> job) of check u1
  companion check-look u1 > "$work/checks.log" || return 1
  python3 -c 'import json, sys; j = {job["id"]: job for job in json.load(open(sys.argv[1]))["jobs"]}; sys.exit(0 if eval(sys.argv[2]) else 1)' "$work/checks.log" "$1"
}
submit() { companion check-run u1 "$1" 5 worker-0 | sed -nE 's/.*"id":"([0-9]+)".*/\1/p'; } # RUN, script from stdin
check=$(printf '#!/bin/sh\n[ "$(id -un)" = nobody ] || exit 127\nexit 3\n' | submit 100)
until_true 30 'the check has failed' checks "j['$check']['state'] == 'FAILED' and j['$check']['exit'] == 3 and j['$check']['requested'] == ['worker-0'] and j['$check']['run'] == '100'"
[ "$(printf '#!/bin/sh\n' | submit 100)" = "$check" ] || fail 'a second job of the same run'
forged=$(inside sbatch --parsable -o /dev/null -J fairlead-check-u1-100 --wrap 'exit 3')
waiting=$(printf '#!/bin/sh\n#SBATCH --begin=now+1hour\n' | submit 101)
checks "set(j) == {'$check', '$waiting'} and j['$waiting']['state'] == 'PENDING'" || fail "a job of root counts as a check: $(cat "$work/checks.log")"
refused 3 'none of this check' check-cancel u1 "$forged"
refused 3 'none of this check' check-cancel u2 "$waiting"
companion check-cancel u1 "$waiting"
checks "j['$waiting']['state'] == 'CANCELLED'" || fail "not cancelled: $(cat "$work/checks.log")"
[[ $(printf 'no script\n' | companion check-run u1 102 5 worker-0) == *'"node":"worker-0","error":"'* ]] || fail 'what sbatch refuses is not told'
echo hidden-words > "$root/run/secret" && chmod 600 "$root/run/secret"
for line in --uid=0 --bbf=/run/secret --export-file=/run/secret; do
  out=$(printf '#!/bin/sh\n#SBATCH %s\n#SBATCH --begin=now+1hour\n' "$line" | companion check-run u1 103 5 worker-0)
  [[ $out == *'"error":'* && $out != *hidden-words* ]] || fail "a script with $line: $out $(inside scontrol show jobs)"
done
refused 3 '0 may be' check-drain worker-0 0 'fairlead: check gpu: 1 of 1'
companion check-comment worker-0 '[p] fairlead: check gpu failed'
companion check-comment worker-0 '[p] fairlead: check gpu passed'
[[ $(inside scontrol -o show node worker-0) == *' Comment=[p] fairlead: check gpu passed'* ]] || fail "comment: $(inside scontrol -o show node worker-0)"
inside scontrol update nodename=worker-0 comment='ask ada'
refused 3 'of somebody else: ask ada' check-comment worker-0 'fairlead: check gpu failed'
companion check-drain worker-0 1 '[p] fairlead: check gpu: 1 of 1'
seen '"DRAIN" in n["state"] and n["reason"] == "[p] fairlead: check gpu: 1 of 1"' || fail "drained: $(cat "$work/nodes.log")"
refused 3 'was drained by root: [p] fairlead: check' undrain worker-0
inside scontrol update nodename=worker-0 reason='ada has it'
companion check-drain worker-0 5 'fairlead: check gpu: 2 of 2'
seen 'n["reason"] == "ada has it"' || fail "a person's reason: $(cat "$work/nodes.log")"
inside scontrol update nodename=worker-0 state=undrain
until_true 30 'worker-0 is in service again' seen '"DRAIN" not in n["state"] and "NOT_RESPONDING" not in n["state"] and n["cpus"] == 0'
ok 'checks run as nobody, once for a run; their drains and comments leave what people set'

# A check is tried on a worker that nobody may use (docs/design/022).
trial=fairlead-check-0123456789abcdef then='[p] fairlead: check gpu: 1 of 1; then its machine is rebooted'
trials() { # PYTHON EXPRESSION over e (empty), t (node -> reservation), n (worker-0)
  companion check-look u1 worker-0 > "$work/checks.log" || return 1
  python3 -c 'import json, sys; v = json.load(open(sys.argv[1])); e = v["empty"]; t = {one["node"]: one["reservation"] for one in v["trials"]}; n = {one["name"]: one for one in v["nodes"]}["worker-0"]; sys.exit(0 if eval(sys.argv[2]) else 1)' "$work/checks.log" "$1"
}
trials 'e == [] and t == {}' || fail "in service, and called empty: $(cat "$work/checks.log")"
busy=$(inside sbatch --parsable -o /dev/null -n 1 --wrap 'sleep 1000')
until_true 30 'a job runs' seen "j['$busy']['state'] == 'RUNNING'"
refused 3 'in service' check-try worker-0 "$trial" "$then"
companion check-drain worker-0 1 "$then"
trials 'e == [] and "DRAIN" in n["state"]' || fail "empty with a job: $(cat "$work/checks.log")"
inside scontrol suspend "$busy"
trials 'e == []' || fail "empty with a suspended job: $(cat "$work/checks.log")"
inside scancel "$busy"
until_true 30 'nothing is on it' trials 'e == ["worker-0"]'
inside sbatch --parsable -o /dev/null -J later -w worker-0 -n 1 --wrap 'sleep 1000' > "$work/later"
refused 3 'by somebody else' check-try worker-0 "$trial" '[p] fairlead: check gpu: another'
companion check-try worker-0 "$trial" "$then"
companion check-try worker-0 "$trial" "$then"
trials "t == {'worker-0': '$trial'} and 'DRAIN' not in n['state'] and e == []" || fail "not tried: $(cat "$work/checks.log")"
refused 3 '1 may be' check-drain worker-0 1 'fairlead: check other: 1 of 1'
try() { printf '#!/bin/sh\nexit %s\n' "$2" | companion check-run u1 "$1" 5 --reservation "$trial" worker-0 | sed -nE 's/.*"id":"([0-9]+)".*/\1/p'; }
tried=$(try 9000000001 3)
until_true 60 'the check has failed under the reservation' checks "j['$tried']['state'] == 'FAILED' and j['$tried']['exit'] == 3"
[ "$(inside squeue -h -j "$(cat "$work/later")" -o %T)" = PENDING ] || fail "a user's job came to a worker that is tried"
companion check-settle worker-0 "$trial" "$then" '[p] fairlead: check gpu: failed again'
companion check-settle worker-0 "$trial" "$then" '[p] fairlead: check gpu: failed again'
trials 't == {} and "DRAIN" in n["state"] and n["reason"] == "[p] fairlead: check gpu: failed again"' || fail "failed again: $(cat "$work/checks.log")"
inside scontrol update nodename=worker-0 reason="$then"
companion check-try worker-0 "$trial" "$then"
tried=$(try 9000000002 0)
until_true 60 'the check has passed under the reservation' checks "j['$tried']['state'] == 'COMPLETED'"
companion check-settle worker-0 "$trial" "$then" -
trials 't == {} and "DRAIN" not in n["state"]' || fail "passed: $(cat "$work/checks.log")"
until_true 60 'the job that waited runs' seen "j['$(cat "$work/later")']['state'] == 'RUNNING'"
inside scancel "$(cat "$work/later")"
until_true 30 'nothing runs' seen 'n["cpus"] == 0 and n["state"][0] == "IDLE"'
# Nobody waits for the result any more: Slurm keeps a reservation in which a job runs, so its job is cancelled first.
companion check-drain worker-0 1 "$then"
companion check-try worker-0 "$trial" "$then"
tried=$(printf '#!/bin/sh\nsleep 1000\n' | companion check-run u1 9000000003 5 --reservation "$trial" worker-0 | sed -nE 's/.*"id":"([0-9]+)".*/\1/p')
until_true 60 'the try runs' checks "j['$tried']['state'] == 'RUNNING'"
! companion check-settle worker-0 "$trial" "$then" '[p] fairlead: check gpu: was not tried' > "$work/settle.log" 2>&1 || fail 'a reservation went from below a job'
companion check-cancel u1 "$tried"
settled() { companion check-settle worker-0 "$trial" "$then" '[p] fairlead: check gpu: was not tried' && trials 't == {} and n["reason"] == "[p] fairlead: check gpu: was not tried"'; }
until_true 60 'the reservation goes, the worker is drained' settled
inside scontrol update nodename=worker-0 state=undrain
until_true 30 'worker-0 is in service after it' seen '"DRAIN" not in n["state"] and "NOT_RESPONDING" not in n["state"] and n["cpus"] == 0'
# What a person sets in the meantime stays; only the reservation goes.
companion check-drain worker-0 1 "$then"
companion check-try worker-0 "$trial" "$then"
inside scontrol update nodename=worker-0 state=drain reason='ada has it'
companion check-settle worker-0 "$trial" "$then" '[p] fairlead: check gpu: failed again'
trials 't == {} and n["reason"] == "ada has it"' || fail "a person's drain: $(cat "$work/checks.log")"
companion check-settle worker-0 - "$then" -
trials '"DRAIN" in n["state"]' || fail 'a drain of a person was lifted'
inside scontrol update nodename=worker-0 state=undrain
until_true 30 'worker-0 is in service once more' seen '"DRAIN" not in n["state"] and "NOT_RESPONDING" not in n["state"] and n["cpus"] == 0'
ok 'a check is tried under a reservation on a worker that nobody else can use; what follows is repeated without harm'

array=$(inside sbatch --parsable -o /dev/null -a 1-2 -t 10 --wrap 'sleep 1000')
single=$(inside sbatch --parsable -o /dev/null -w worker-0 --wrap 'sleep 1000')
inside srun -Q -n 1 sleep 1000 > "$work/srun.log" 2>&1 &
until_true 30 'four jobs run' seen 'n["cpus"] == 4 and len(j) == 4'
seen "j['${array}_1']['nodes'] == ['worker-0'] and j['${array}_2']['end'] and 'end' not in j['$single'] and j['$single']['requested'] == ['worker-0']" || fail "jobs: $(cat "$work/nodes.log")"
# The figures for Prometheus, with the names, types and labels that dashboards ask for.
inside /opt/fairlead/bin/fairlead-slurm exporter --port 8080 --interval 1 > "$work/exporter.log" 2>&1 &
metrics() { curl -sf --max-time 5 http://10.99.0.1:8080/metrics > "$work/metrics" && grep -q "^slurm_job_info{job_id=\"$single\"" "$work/metrics"; }
until_true 20 'metrics of the four jobs' metrics
python3 "$top/tests/exporter_check.py" "$work/metrics" slurm_node_info slurm_node_cpus_allocated slurm_node_memory_free_bytes slurm_node_partition slurm_job_info slurm_node_job slurm_job_duration_seconds slurm_job_memory_bytes \
  slurm_controller_rpc_calls_total slurm_controller_rpc_user_duration_seconds_total slurm_controller_server_thread_count > "$work/check.log" 2>&1 || fail 'the metrics are not those of the list'
grep -q '^slurm_node_cpus_allocated{node_name="worker-0"} 4$' "$work/metrics" || fail 'CPUs that are given'
grep -q "^slurm_node_job{job_id=\"$single\",node_name=\"worker-0\"," "$work/metrics" || fail 'the job on its node'
ok 'metrics have the names, types and labels of the list, and say what Slurm says'
interactive=$(inside squeue -h -n sleep -o %i)
refused 3 'in service' cancel worker-0 "$single"
refused 3 'not empty' forget worker-0
refused 3 'no node worker-9' drain worker-9 x
refused 0 '' forget worker-9
refused 2 'usage' drain worker-0
seen 'len(j) == 4 and "DRAIN" not in n["state"]' || fail 'something was done'
ok 'jobs are listed with nodes and end; nothing is done to a worker in service'

companion drain worker-0 'fairlead: scale-down of 12345678 generation 3'
companion drain worker-0 'another reason'
seen 'n["reason"] == "fairlead: scale-down of 12345678 generation 3" and n["by"] == "root" and "DRAIN" in n["state"] and n["slurmd"]' || fail "drained: $(cat "$work/nodes.log")"
companion undrain worker-0
until_true 30 'worker-0 is in service' seen '"DRAIN" not in n["state"] and "NOT_RESPONDING" not in n["state"]'
seen 'len(j) == 4' || fail 'a job is gone'
inside scontrol update nodename=worker-0 state=drain reason='disk State=IDLE [x@y]'
companion drain worker-0 'fairlead: scale-down of 12345678 generation 3'
refused 3 'was drained by root: disk' undrain worker-0
seen 'n["reason"].startswith("disk") and "slurmd" not in n' || fail "a person's drain: $(cat "$work/nodes.log")"
ok 'a drain of ours is taken back, one of a person is neither overwritten nor undone'
inside scontrol update nodename=worker-0 state=undrain
inside scontrol update nodename=worker-0 state=fail reason='fan 3'
refused 3 'set to fail by root: fan 3' drain worker-0 'fairlead: scale-down'
seen '"FAIL" in n["state"] and "DRAIN" not in n["state"] and n["reason"] == "fan 3"' || fail "failing: $(cat "$work/nodes.log")"
inside scontrol update nodename=worker-0 state=drain reason='disk'
ok 'a node that somebody set to fail stays as it is'
companion nodes --nodes 'worker-[1-9]' > "$work/nodes.log"
grep -q '"name":"worker-0"' "$work/nodes.log" || fail 'a node is not listed'
! grep '"id":' "$work/nodes.log" || fail 'jobs of other nodes are listed'

companion requeue worker-0 "${array}_1"
until_true 30 'one task is back in the queue' seen "'${array}_1' not in j or j['${array}_1']['nodes'] == []"
seen "j['${array}_2']['state'] == 'RUNNING' and j['$single']['state'] == 'RUNNING'" || fail 'more than that task was requeued'
refused 1 'Only batch jobs' requeue worker-0 "$interactive"
companion cancel worker-0 "${array}_2" "$single" "$interactive" 99999
until_true 60 'worker-0 is empty' seen 'n["state"][0] == "IDLE" and n["cpus"] == 0 and not any(job["nodes"] for job in v["jobs"])'
ok 'exactly the named jobs are requeued or cancelled; what cannot be requeued is told'

inside scontrol update nodename=worker-0 state=undrain
until_true 30 'its ping is answered' seen '"NOT_RESPONDING" not in n["state"]'  # with ReturnToService=2 an answer brings a node that is DOWN back
inside scontrol update nodename=worker-0 state=down reason='loose cable'
companion drain worker-0 'fairlead: scale-down of 12345678 generation 4'
seen '"DRAIN" in n["state"] and n["reason"] == "loose cable" and "slurmd" not in n' || fail "down: $(cat "$work/nodes.log")"
refused 3 'loose cable' undrain worker-0
ok 'whoever set a node down keeps the reason, and the drain'

for state in fail drain down; do
  inside scontrol update nodename=worker-0 state=resume 2> /dev/null || true
  inside scontrol update nodename=worker-0 state=$state reason='Action:Reboot'
  refused 3 'Action:Reboot' lift worker-0 'Action:Replace'
  companion lift worker-0 'Action:Reboot'
  seen 'not {"FAIL", "DRAIN", "DOWN"} & set(n["state"])' || fail "not lifted from $state: $(cat "$work/nodes.log")"
  companion lift worker-0 'Action:Reboot'
done
inside scontrol update nodename=worker-0 state=down reason='loose cable'
inside scontrol update nodename=worker-0 state=drain reason='loose cable'
ok 'a state that was set for a reason is lifted for exactly this one'

# As when its pod is gone: a dynamic slurmd that is still there answers a ping by registering, and so is back.
pkill -KILL -P "$slurmd"
wait "$slurmd" 2> /dev/null || true
named=$(inside sbatch --parsable -o /dev/null -w worker-0 --wrap true)
companion forget worker-0
seen "n == {} and j['$named']['requested'] == ['worker-0'] and j['$named']['nodes'] == []" || fail "forgotten: $(cat "$work/nodes.log")"
companion forget worker-0
ok 'the record is deleted; a job that insists on it is still listed'

# A worker as its container runs it, which ends with all that it started.
mkdir -p "$root/etc/fairlead/slurm"
cp "$root/etc/slurm/slurm.conf" "$root/etc/fairlead/slurm/"
echo '10.99.0.1 worker-1' >> "$root/etc/hosts"
start_worker() { # [POD-UID MACHINE]
  root=$root pod=${1:-} on=${2:-} unshare --mount --uts --pid --fork --kill-child --propagation private bash -c '
    hostname worker-1
    mount -t proc proc "$root/proc"
    for own in etc/slurm run/slurm var/spool/slurmd; do mount -t tmpfs own "$root/$own"; done
    exec chroot "$root" env FAIRLEAD_CONF_SERVER=10.99.0.1:6817 "FAIRLEAD_POD_UID=$pod" "FAIRLEAD_MACHINE=$on" "FAIRLEAD_NODE_DEFINITION=CPUs=2 Feature=worker" /opt/fairlead/bin/fairlead-slurm worker' >> "$work/worker.log" 2>&1 &
  worker=$!
}
start_worker
until_true 30 'worker-1 is idle' seen '{"name": "worker-1", "state": ["IDLE", "DYNAMIC_NORM"], "cpus": 0} in v["nodes"]'
job=$(inside sbatch --parsable -o /dev/null --wrap 'sleep 1000')
until_true 30 'its job runs' seen "j['$job']['nodes'] == ['worker-1'] and j['$job']['state'] == 'RUNNING'"
inside scontrol update nodename=worker-1 state=drain reason='disk 2'
{ kill -KILL "$worker" && wait "$worker" || true; } 2> /dev/null
start_worker
until_true 60 'worker-1 is back and its job is not' seen "'$job' not in j and [node['reason'] for node in v['nodes'] if set(node['state']) == {'IDLE', 'DRAIN', 'DYNAMIC_NORM'}] == ['disk 2']"
[ "$(inside squeue -h -j "$job" -o %T)" = PENDING ] || fail "its job is not back in the queue: $(inside squeue)"
grep -q 'told the head' "$work/worker.log" || fail 'the worker did not tell of its restart'
refused 3 'was drained by root: disk 2' undrain worker-1
ok 'a worker that restarts while it is drained keeps the reason: the drain stays whose it was'

# Proof of death: nothing is done on a doubtful one; on a good one the job runs again without Slurm's delay of two minutes.
inside scancel "$job"
inside scontrol update nodename=worker-1 state=resume
until_true 30 'worker-1 is in service' seen '{"name": "worker-1", "state": ["IDLE", "DYNAMIC_NORM"], "cpus": 0} in v["nodes"]'
job=$(inside sbatch --parsable -o /dev/null --wrap 'sleep 1000')
until_true 30 'a job runs' seen "j['$job']['nodes'] == ['worker-1'] and j['$job']['state'] == 'RUNNING'"
refused 3 'nothing is known of it' died worker-1 2026-01-01T00:00:00Z 'died: long ago'
refused 2 'usage' died worker-1 yesterday 'died: long ago'
seen "j['$job']['state'] == 'RUNNING'" || fail 'a job was lost to a doubtful death'
{ kill -KILL "$worker" && wait "$worker" || true; } 2> /dev/null
killed=$EPOCHREALTIME
companion died worker-1 - 'died: its machine is off' > "$work/died.log"
grep -q "worker-1 is down; lost with it: $job" "$work/died.log" || fail "died: $(cat "$work/died.log")"
companion died worker-1 - 'died: its machine is off'
seen '[node["reason"] for node in v["nodes"] if "DOWN" in node["state"]] == ["fairlead: the worker died: its machine is off"]' || fail "down: $(cat "$work/nodes.log")"
start_worker
until_true 45 'the job runs again' seen "j['$job']['nodes'] == ['worker-1'] and j['$job']['state'] == 'RUNNING'"
inside scontrol -o show job "$job" | grep -q 'Restarts=1' || fail 'it is not the same job'
ok "a job whose worker died runs again: $(python3 -c "print(f'{$EPOCHREALTIME - $killed:.1f}')") s after its death"

# Deleted by force while its machine is cut off: the worker made in its place must not speak for it.
whose() { seen "[(node.get('pod'), node.get('machine')) for node in v['nodes'] if node['name'] == 'worker-1'] == [('$1', '$2')]"; }
inside scancel "$job"
{ kill -KILL "$worker" && wait "$worker" || true; } 2> /dev/null
start_worker u1 m1
until_true 60 'Slurm knows whose slurmd it is' whose u1 m1
job=$(inside sbatch --parsable -o /dev/null --wrap 'sleep 1000')
until_true 60 'a job runs' seen "j['$job']['nodes'] == ['worker-1'] and j['$job']['state'] == 'RUNNING'"
first=$worker
: > "$work/worker.log"
start_worker u2 m2
until_true 30 'it waits' grep_in 'another pod had this node' cat "$work/worker.log"
refused 3 "another one's (fairlead:u1@m1)" died worker-1 - 'died: its container ended' u2@
refused 3 "another one's" died worker-1 - 'died: machine m2 is off' @m2
refused 2 'usage' died worker-1 - 'died: machine m2 is off' m2
seen "j['$job']['nodes'] == ['worker-1'] and j['$job']['state'] == 'RUNNING'" || fail 'the job of a pod that may live was lost'
! grep -q 'told the head' "$work/worker.log" || fail 'it spoke for the other pod'
{ kill -KILL "$first" && wait "$first" || true; } 2> /dev/null
companion died worker-1 - 'died: machine m1 is off' u1@m1
until_true 45 'the job runs in the pod that waited' seen "j['$job']['nodes'] == ['worker-1'] and j['$job']['state'] == 'RUNNING'"
until_true 30 'Slurm knows its pod' whose u2 m2
ok 'a worker made while the one before it may live waits for the proof of its end'
