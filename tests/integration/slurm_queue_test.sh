#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Jobs for workers that are not there yet, on a real slurmctld (docs/design/016): expected workers let jobs wait, a slurmd that registers takes them, and what the queue asks for is read.
#   slurm_queue_test.sh BUILD_DIR   (as root)
set -euo pipefail
build=$(realpath "${1:?usage: slurm_queue_test.sh BUILD_DIR}")
# shellcheck source=tests/slurm_machine.sh
. "$(dirname "$0")/../slurm_machine.sh"
own_machine "$0" "$build"
make_machine "$build"
sed -i '/^NodeName=/d; /^PartitionName=/d' "$root/etc/slurm/slurm.conf"
cat >> "$root/etc/slurm/slurm.conf" << 'TEXT'
MaxNodeCount=64
TreeWidth=65533
GresTypes=gpu
SlurmdTimeout=0
SlurmctldParameters=enable_configless,cloud_reg_addrs
NodeSet=worker Feature=worker
PartitionName=main Nodes=worker Default=YES MaxTime=INFINITE State=UP
TEXT
companion() { inside /opt/fairlead/bin/fairlead-slurm "$@"; }
# PYTHON EXPRESSION over v (the whole answer), n (node -> record), q (job id -> job that waits)
seen() {
  companion nodes --port 6818 --queue 100 > "$work/nodes.log" || return 1
  python3 - "$work/nodes.log" "$1" << 'PYTHON'
import json, sys
v = json.load(open(sys.argv[1]))
n = {node["name"]: node for node in v["nodes"]}
q = {job["id"]: job for job in v["queue"]}
sys.exit(0 if v["answered"] and eval(sys.argv[2]) else 1)
PYTHON
}
submit() { inside sbatch --parsable -o /dev/null "$@" --wrap 'sleep 2'; }
definition='CPUs=2 Boards=1 SocketsPerBoard=2 CoresPerSocket=1 ThreadsPerCore=1 RealMemory=256 Feature=worker'

start_controller
early=$(submit -N 2)
until_true 30 'a job waits while there is no node' seen "n == {} and q['$early']['reason'] == 'PartitionConfig'"
for i in 0 1; do companion expect "worker-$i" "$definition"; done
companion expect worker-2 "$definition Gres=gpu:1"
companion expect worker-0 "$definition"  # again: nothing
seen 'len(n) == 3 and n["worker-2"]["total"] == {"cpus": 2, "memory": 256, "gpus": 1} and all(x["state"][0] == "DOWN" and x["total"]["cpus"] == 2 and x["partitions"] == ["main"] and x["reason"] == "fairlead: comes when a job needs it" for x in n.values())' || fail 'expected workers'
two=$(submit -N 2 -n 4)
gpu=$(submit -N 1 --gres=gpu:1 -x worker-0)
held=$(submit -H)
later=$(submit -b now+1hour)
after=$(submit -d "afterok:$two")
array=$(submit -a 0-3%2)
large=$(submit -N 4)
tall=$(submit -n 8 -N 1)
alone=$(submit --exclusive -N 1)
until_true 30 'the jobs wait for workers' seen "q['$two']['reason'].startswith('ReqNodeNotAvail, UnavailableNodes') and q['$two']['nodes'] == 2 and q['$two']['room']['cpus'] == 4"
until_true 90 'reasons of jobs that wait for something else' seen "q['$alone']['exclusive'] and q['$large']['reason'] == 'PartitionNodeLimit' and q['$tall']['reason'] == 'PartitionConfig' and q['$gpu']['room']['gpus'] == 1 and q['$gpu']['excluded'] == ['worker-0'] and q['$held']['reason'] == 'JobHeldUser' and q['$later']['reason'] == 'BeginTime' and q['$after']['reason'] == 'Dependency'"
seen "'${array}_[0-3%2]' in q" || fail 'the array'
ok 'expected workers let jobs wait, each for its own reason'

inside scontrol reconfigure
sleep 1
seen 'len(n) == 3 and all(x["state"][0] == "DOWN" for x in n.values())' || fail 'expected workers after a reconfigure'
kill_controller
start_controller
seen 'len(n) == 3 and all(x["state"][0] == "DOWN" for x in n.values()) and len(q) == 10' || fail 'expected workers after a restart'
ok 'they stay through a reconfigure and a restart'

inside scontrol update nodename=worker-1 nodeaddr=10.99.0.1  # a worker says where it is before its slurmd starts (gpl/past.cpp)
inside slurmd -D -Z -N worker-1 --conf "$definition" > "$work/slurmd.log" 2>&1 &
until_true 30 'worker-1 serves' seen "n['worker-1']['state'][0] in ('IDLE', 'ALLOCATED', 'MIXED') and n['worker-0']['state'][0] == 'DOWN'"
until_true 60 'a job runs there' seen "not {'$alone', '$early'} <= set(q) or n['worker-1']['cpus'] > 0"
companion expect worker-1 "$definition"
seen "n['worker-1']['state'][0] != 'DOWN'" || fail 'a worker that serves was set down'
ok 'a worker that registers takes its place'

# Defined otherwise: the record is made anew, unless somebody has it.
companion expect worker-0 "${definition/RealMemory=256/RealMemory=128}"
seen "n['worker-0']['total']['memory'] == 128 and n['worker-0']['state'][0] == 'DOWN' and n['worker-1']['total']['memory'] == 256" || fail 'a new definition'
inside scontrol update nodename=worker-2 state=down reason='ada has it'
companion expect worker-2 "${definition/RealMemory=256/RealMemory=128}"
seen "n['worker-2']['total']['memory'] == 256 and n['worker-2']['reason'] == 'ada has it'" || fail 'a node of a person was made anew'
ok 'a new definition is taken over; what a person set stays'
