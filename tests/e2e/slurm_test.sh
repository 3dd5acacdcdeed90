#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A real Slurm cluster through its whole day: it comes up from one resource, the walk-through's commands work, users are known everywhere, memory limits hold; server, agent and
# slurmctld are killed while a training job runs over two nodes and lose nothing; a worker's power is cut and the job runs again from its checkpoint; down leaves nothing.
# usage: slurm_test.sh BUILD_DIR   (as root; a site of its own with ranges of its own)
set -euo pipefail
build=${1:?usage: slurm_test.sh BUILD_DIR}
slurm_images=(slurm mariadb)
# shellcheck source=tests/e2e/slurm_site_lib.sh
. "$(dirname "$0")/slurm_site_lib.sh"

# Where the host has cgroup v1, steps are confined by it; elsewhere the demo's own setting stays and that one check is left out.
site=$work/demo.yaml
confined=no
cp "$top/examples/demo.yaml" "$site"
if [ -d /sys/fs/cgroup/memory ]; then
  sed -i 's/cgroupVersion: v2/cgroupVersion: v1/' "$site"
  confined=yes
fi
/usr/bin/python3 - "$site" << 'PYTHON'
import sys
text = open(sys.argv[1]).read()
mark = "  extensions:\n"
assert text.count(mark) == 1
exporter = """    exporter: {enabled: true, k8sNodeFilterName: login, collectionInterval: 2s, exporter: {image: "slurm:22.05", resources: {cpu: 100m, memory: 128Mi}}, munge: {resources: {cpu: 100m, memory: 64Mi}}, volumes: {jail: {volumeSourceName: jail}}}\n"""
open(sys.argv[1], "w").write(text.replace(mark, exporter + mark))
PYTHON
run up -f "$site" --port 16443 --node-range 10.87.0.0/16 --pod-range 10.88.0.0/16 > "$work/up.log" 2>&1 || { cat "$work/up.log" >&2; fail "up"; }
note "a head, two workers and a login node came up"
run up -f "$site" > "$work/again.log" 2>&1 || { cat "$work/again.log" >&2; fail "up again"; }
grep -q '8 unchanged' "$work/again.log" || fail "a second up changed something: $(cat "$work/again.log")"
note "a second up changes nothing"

expect "srun on two nodes sees one mock GPU each" "GPU 0: Fairlead Mock GPU" login srun --nodes=2 --gres=gpu:1 nvidia-smi -L
expect "salloc as the walk-through types it" "worker-" login salloc --nodes=1 --ntasks=1 --mem=1G --time=00:20:00 --gres=gpu:1 srun hostname
[ "$confined" = no ] || expect "a step beyond its memory is killed and told so" "Out Of Memory" login srun --nodes=1 --mem=100 python3 -c 'bytearray(300 << 20)'
expect "adduser makes a user of the whole cluster" "known on every node" login adduser ada
expect "every worker knows her" $'ada\nada' login su - ada -c 'srun --nodes=2 whoami'
expect "her home is shared" "from the worker" login su - ada -c 'srun --nodes=1 sh -c "echo from the worker > ~/note"; cat ~/note'
expect "scontrol ping on a worker reaches the head" "is UP" run exec -n demo worker-0 -c slurmd -- scontrol ping
expect "the site's own key logs in" "login-0" run ssh demo hostname
[ "$(run get slurmclusters -n demo demo -o json | python3 -c 'import json, sys
print([c["status"] for c in json.load(sys.stdin)["status"]["conditions"] if c["type"] == "FieldsIgnored"][0])')" = False ] || fail "the demo names a field that has no effect"
note "every field of the demo has its effect"

# The metrics of the workers, by their names, from a process without rights; no job and no session reaches them.
metrics() { run exec -n demo exporter-0 -c exporter -- python3 -c 'import urllib.request; print(urllib.request.urlopen("http://127.0.0.1:8080/metrics", timeout=5).read().decode())'; }
knows_them() { metrics > "$work/metrics" && grep -q '^slurm_node_info{.*"worker-0"' "$work/metrics" && grep -q '^slurm_node_info{.*"worker-1"' "$work/metrics" && grep -q '^slurm_job_info{.*"ada"' "$work/metrics"; }
until_true 30 "the exporter knows both workers and ada's job" knows_them
rights() { run exec -n demo exporter-0 -c exporter -- grep -E '^(Uid|CapPrm|CapEff):' /proc/1/status | tr -s '\n\t ' ' '; }
[ "$(rights)" = 'Uid: 65534 65534 65534 65534 CapPrm: 0000000000000000 CapEff: 0000000000000000 ' ] || fail "the exporter's rights: $(rights)"
expect "metrics of both workers, closed to sessions" "refused" login python3 -c 'import socket, sys; socket.create_connection((sys.argv[1], 8080), timeout=5)' "$(run get pods -n demo exporter-0 -o json | python3 -c 'import json, sys; print(json.load(sys.stdin)["status"]["podIP"])')"

# Four heads: refused before anything is touched.
sed '/    controller:/,/size: 1/ s/size: 1/size: 4/' "$site" > "$work/four-heads.yaml"
run apply -f "$work/four-heads.yaml" > /dev/null
until_true 20 "the refusal of four heads" bash -c "'$fairlead' get slurmclusters -n demo demo -o yaml | grep -q '1 to 3 are possible'"
run apply -f "$site" > /dev/null
note "four heads are refused with the number"

# A worker's pod made anew has another address. Its end was confirmed, so its job runs again on it, without Slurm's delay, and Slurm follows the address.
uid() { run get pods -n demo worker-1 -o json 2> /dev/null | python3 -c 'import json, sys; print(json.load(sys.stdin)["metadata"]["uid"])'; }
before=$(uid)
job=$(login sbatch --parsable -o /dev/null -w worker-1 --wrap 'sleep 1000' | tr -d '[:space:]')
until_true 30 "a job on worker-1" bash -c "'$fairlead' exec -n demo login-0 -- squeue -h -j $job -o %T | grep -qx RUNNING"
run delete pod -n demo worker-1 --timeout 60 > /dev/null || fail "delete does not end though another pod has the name"
[ "$(uid)" != "$before" ] || fail "the pod is the same"
until_true 90 "its job runs again" bash -c "'$fairlead' exec -n demo login-0 -- scontrol -o show job $job | grep 'JobState=RUNNING' | grep -q 'Restarts=1 '"
until_true 60 "a step on it" login timeout 8 srun --immediate=5 -w worker-1 --overlap --jobid "$job" hostname
login scancel "$job"
until_true 60 "worker-1 is idle" bash -c "'$fairlead' exec -n demo login-0 -- sinfo -h -N -n worker-1 -o %T | grep -qx idle"
note "the pod of a busy worker was deleted: its job runs again on the next one"

# The job: two nodes, checkpoints every 25 steps.
login sh -c 'mkdir -p /home/lab' && tar -C "$top/examples" -c train-gpt | run exec -i -n demo login-0 -- tar -C /home/lab -x
job=$(login sh -c 'cd /home/lab/train-gpt && sbatch --parsable train.sbatch --steps 140 --print-every 10' | tr -d '[:space:]')
out=/home/lab/train-gpt/train-gpt-$job.out
until_true 120 "the first loss line" login grep -q 'step   10/' "$out"
note "job $job trains over two nodes"

kill -9 "$(cat "$FAIRLEAD_STATE_DIR/run/server.pid")"
run up -f "$site" > "$work/after-kill.log" 2>&1 || { cat "$work/after-kill.log" >&2; fail "up after a killed server"; }
agent=$(pgrep -f "fairlead-agent run --config $FAIRLEAD_STATE_DIR/nodes/worker-0/agent.json")
kill -9 "$agent"
until_true 30 "a new agent on worker-0" bash -c "pgrep -f 'fairlead-agent run --config $FAIRLEAD_STATE_DIR/nodes/worker-0/agent.json' | grep -vx $agent"
run exec -n demo controller-0 -c slurmctld -- pkill -9 slurmctld
until_true 60 "slurmctld answers after it was killed" bash -c "'$fairlead' exec -n demo login-0 -- scontrol ping | grep -q 'is UP'"
[ "$(login squeue -h -j "$job" -o '%T')" = RUNNING ] || fail "the job does not run any more after server, agent and slurmctld were killed: $(login squeue -h)"
[ "$(run get pods -n demo worker-0 -o json | python3 -c 'import json,sys; print(sum(c["restartCount"] for c in json.load(sys.stdin)["status"]["containerStatuses"]))')" = 0 ] || fail "worker-0 was restarted"
note "killed server, agent and slurmctld: everything adopted, the job runs on"

until_true 120 "a checkpoint" login sh -c "ls /home/lab/train-gpt/checkpoints/$job | grep -q 'step-.*pt'"
run node kill worker-1 > /dev/null || fail "node kill"
run node heal worker-1 > /dev/null || fail "node heal"
until_true 60 "Slurm requeues the job" bash -c "'$fairlead' exec -n demo login-0 -- squeue -h -j $job -o %T | grep -q PENDING"
note "a power cut on worker-1: the job went back into the queue"
# A worker that came back stays out for a minute. Meanwhile accounting is switched on in the running cluster: two slurmdbd and a database.
sed -i -e 's/^  slurmNodes:/&\n    accounting: {enabled: true, k8sNodeFilterName: no-gpu, slurmdbd: {image: "slurm:22.05", resources: {cpu: 100m, memory: 256Mi}}, munge: {resources: {cpu: 50m, memory: 64Mi}}, mariadbOperator: {enabled: true, image: "mariadb:10.11", resources: {cpu: 100m, memory: 384Mi}, storage: {size: 1Gi}}}/' \
  -e 's/^    bindCores: .*/&\n    accounting: {replicas: 2, backup: {interval: 30s, keep: 100}}/' "$site"
run apply -f "$site" > /dev/null
condition_is() { run get slurmclusters -n demo demo -o json | python3 -c 'import json, sys
sys.exit(0 if any(c["type"] == sys.argv[1] and c["status"] == "True" for c in json.load(sys.stdin)["status"]["conditions"]) else 1)' "$1"; }
until_true 90 "accounting is available" condition_is AccountingAvailable
until_true 60 "the head knows of it" condition_is ConfigApplied
note "accounting is switched on"
until_true 240 "the job starts again" login grep -q 'start 2' "$out"
until_true 120 "it resumes from its checkpoint" login grep -qi 'resum' "$out"
note "it resumes from its checkpoint"
until_true 240 "the job completes" bash -c "'$fairlead' exec -n demo login-0 -- scontrol show job $job | grep -q JobState=COMPLETED"
login cat "$out" > "$work/out"
python3 - "$work/out" <<'PY' || fail "the loss did not fall: $(cat "$work/out")"
import re, sys
losses = [float(m) for m in re.findall(r"step\s+\d+/\d+\s+loss ([0-9.]+)", open(sys.argv[1]).read())]
final = re.search(r"final loss ([0-9.]+)", open(sys.argv[1]).read())
sys.exit(0 if final and len(losses) >= 5 and losses[0] - float(final.group(1)) > 1.0 else 1)
PY
note "the job completed and its loss fell"

# What is killed loses no record and makes none twice.
submit() { login sbatch --parsable -o /dev/null --wrap "sleep $1" | tr -d '[:space:]'; }
database() { run exec -n demo demo-acct-db-0 -c mariadb -- "$@"; }
backups() { run exec -n demo demo-acct-db-0 -c backup -- /opt/fairlead/bin/fairlead-slurm "$@"; }
records=("$job")
for _ in 1 2; do records+=("$(submit 3)"); done
# shellcheck disable=SC2016
database sh -c 'kill -9 "$(cat /run/mysqld/mysqld.pid)"'
records+=("$(submit 0)")
run exec -n demo accounting-0 -c slurmdbd -- pkill -KILL slurmdbd
records+=("$(submit 0)")
run exec -n demo controller-0 -c slurmctld -- pkill -KILL slurmctld
until_true 60 "slurmctld answers without accounting" bash -c "'$fairlead' exec -n demo login-0 -- scontrol ping | grep -q 'is UP'"
records+=("$(submit 0)")
recorded() { [ "$(login sacct -a -X -n -P -o jobid,state,end -j "$(IFS=,; echo "${records[*]}")" | sed 's/|20[0-9:T-]*$/|ended/' | sort)" = "$(printf '%s|COMPLETED|ended\n' "${records[@]}" | sort)" ]; }
until_true 120 "a record of each job, once" recorded
note "database, slurmdbd and slurmctld were killed while jobs ran and were submitted: sacct has each of them once, and the one that began before accounting did"
[ "$(database mariadb --no-defaults --socket=/run/mysqld/mysqld.sock -N -e "SELECT COUNT(*) FROM mysql.global_priv WHERE user = 'slurm' AND JSON_VALUE(priv, '\$.ssl_type') = 1; SELECT variable_value > 0 FROM information_schema.global_status WHERE variable_name = 'Ssl_finished_accepts'" | tr '\n' ' ')" = "1 1 " ] || fail "slurmdbd's login is not by TLS alone"
password=$(run get secrets -n demo demo-acct-db -o json | python3 -c 'import base64, json, sys; print(base64.b64decode(json.load(sys.stdin)["data"]["password"]).decode())')
[ "${#password}" -ge 40 ] || fail "no password was made"
for pod in accounting-0:slurmdbd demo-acct-db-0:mariadb demo-acct-db-0:backup; do
  if run logs -n demo "${pod%:*}" -c "${pod#*:}" | grep -qF "$password"; then fail "the log of $pod holds the password"; fi
done
printf '%s' "$password" > "$work/password"
if grep -aqsF -f "$work/password" /proc/[0-9]*/cmdline; then fail "a command line holds the password"; fi
note "slurmdbd speaks to its database by TLS alone, and its password is in no log and no command line"
until_true 60 "a backup that was read back" condition_is BackupFresh
old=$(backups list-backups | tail -n 1 | cut -d' ' -f1)
records=("$(submit 0)")
until_true 60 "one more record" recorded
said=$(backups restore-accounting "$old" 2>&1) && fail "a restore lost what is newer than the backup"
[[ $said == *'would be lost; nothing was changed'* ]] || fail "the refusal says: $said"
recorded || fail "the refusal lost a record"
# What a restore left that was interrupted may hold the newest records.
sql() { database mariadb --no-defaults --socket=/run/mysqld/mysqld.sock -N -e "$1"; }
sql "CREATE DATABASE fairlead_replaced; CREATE TABLE fairlead_replaced.left_behind (id INT)"
said=$(backups restore-accounting "$old" --force 2>&1) && fail "a restore drops what an interrupted one left"
[[ $said == *'1 tables are in database fairlead_replaced'* ]] || fail "that refusal says: $said"
sql "DROP DATABASE fairlead_replaced"
note "the database is backed up; a restore that would lose records is refused"
backups restore-accounting "$old" --force > "$work/restored" 2>&1 || fail "restore: $(cat "$work/restored")"
kept=$(sed -n 's/^what is replaced is kept in //p' "$work/restored")
[ -n "$kept" ] || fail "what a restore replaced is not kept: $(cat "$work/restored")"
[ "$(sql "SELECT COUNT(*) FROM slurm_acct_db.demo_job_table WHERE id_job = ${records[0]}")" = 0 ] || fail "the restore brought nothing back"
# By force: slurmdbd may have taken something down since.
backups restore-accounting "$kept" --force > "$work/restored" 2>&1 || fail "restore of what was replaced: $(cat "$work/restored")"
until_true 30 "the record of what was replaced" recorded
note "a restore brings back an older state, and what it replaced as well"

# One worker less without strict ordinals: the idle one goes, though the busy one has the higher number.
resized() { # STRICT POLICY: the site with one worker
  sed -e '/^    worker:/,/size: 2/ s/size: 2/size: 1/' -e "s/^    bindCores: .*/&\n    scaleDown: {strictOrdinals: $1, policy: $2, after: 1s}/" "$site" > "$work/smaller.yaml"
  [ "$(grep -cE '^      size: 1$|scaleDown' "$work/smaller.yaml")" = 4 ] || fail "the smaller site was not made"
  run apply -f "$work/smaller.yaml" > /dev/null
}
slurm_has() { [ "$(login sinfo -h -N -o %N | tr '\n' ' ')" = "$1 " ]; }
long=$(login sbatch --parsable -o /dev/null -w worker-1 --wrap 'sleep 1000' | tr -d '[:space:]')
until_true 60 "the long job runs" bash -c "'$fairlead' exec -n demo login-0 -- squeue -h -j $long -o %T | grep -qx RUNNING"
resized false wait
until_true 90 "worker-0 is gone from Slurm" slurm_has worker-1
if run get pods -n demo worker-0 > /dev/null 2>&1; then fail "the pod of worker-0 is still there"; fi
[ "$(login squeue -h -j "$long" -o '%T %N')" = "RUNNING worker-1" ] || fail "the long job does not run any more: $(login squeue -h)"
note "without strict ordinals the idle worker goes, the busy one stays"
# With strict ordinals worker-1 has to go; its job may run for a second more, and goes back into the queue.
resized true requeue
until_true 120 "worker-1 is gone from Slurm, and worker-0 is back" slurm_has worker-0
[ "$(login squeue -h -j "$long" -o '%T')" = PENDING ] || fail "the long job is not in the queue: $(login squeue -h)"
until_true 60 "the condition names the job that insists on worker-1" bash -c "'$fairlead' get slurmclusters -n demo demo -o yaml | grep -q 'job $long of root asks for worker-1'"
login scancel "$long"
note "with a deadline the jobs of a worker that leaves go back into the queue"

run down --yes --purge > "$work/down.log" 2>&1 || { cat "$work/down.log" >&2; fail "down"; }
id=$(printf '%s' "$FAIRLEAD_STATE_DIR" | sha256sum | cut -c1-6)
left=$(pgrep -af "$FAIRLEAD_STATE_DIR" || true; ip -o link show "fl$id" 2> /dev/null || true; find /sys/fs/cgroup -maxdepth 2 -name "fairlead-$id" 2> /dev/null; grep -F "$FAIRLEAD_STATE_DIR" /proc/self/mounts || true)
[ -z "$left" ] || fail "down left something: $left"
note "down left nothing"
trap - EXIT
rm -rf "$work"
echo "$passed passed, 0 failed"
