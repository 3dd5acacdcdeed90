#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A Slurm cluster moves to another namespace by an encrypted file: an export that is aborted changes nothing; after the hand-over the target has the queue, the ids and the records, and the source never runs again.
# usage: slurm_move_test.sh BUILD_DIR   (as root; a site of its own with ranges of its own)
set -euo pipefail
build=${1:?usage: slurm_move_test.sh BUILD_DIR}
slurm_images=(slurm mariadb)
# shellcheck source=tests/e2e/slurm_site_lib.sh
. "$(dirname "$0")/slurm_site_lib.sh"
told_pods=(controller-0 worker-0 login-0 demo-backup-0)

# Two clusters side by side: one worker each, and room for two heads and two databases.
site=$work/demo.yaml
sed -e 's/^      size: 2/      size: 1/' -e 's/local: {cpu: "2", memory: 2Gi}/local: {cpu: "4", memory: 6Gi}/' \
  -e 's/^  slurmNodes:/&\n    accounting: {enabled: true, k8sNodeFilterName: no-gpu, slurmdbd: {image: "slurm:22.05", resources: {cpu: 100m, memory: 256Mi}}, munge: {resources: {cpu: 50m, memory: 64Mi}}, mariadbOperator: {enabled: true, image: "mariadb:10.11", resources: {cpu: 100m, memory: 384Mi}, storage: {size: 1Gi}}}/' \
  -e 's/^    bindCores: .*/&\n    backup: {interval: 1h, parts: [state, database], volumeClaimTemplateSpec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 2Gi}}}}/' "$top/examples/demo.yaml" > "$site"
run up -f "$site" --port 16443 --node-range 10.87.0.0/16 --pod-range 10.88.0.0/16 > "$work/up.log" 2>&1 || { cat "$work/up.log" >&2; fail "up"; }
of() { local space=$1; shift; run get slurmclusters -n "$space" demo -o json | python3 -c 'import json, sys
print(" ".join(c["status"] + " " + c["reason"] for c in json.load(sys.stdin)["status"]["conditions"] if c["type"] == sys.argv[1]))' "$@"; }
is() { [ "$(of "$1" "$2")" = "$3" ]; }
until_true 240 'accounting is available' is demo AccountingAvailable 'True Ready'
until_true 240 'the first set' is demo BackupFresh 'True Fresh'
note 'a cluster with accounting and sets'

there() { run exec -n moved login-0 -- "$@"; }
state() { "$1" scontrol show job "$2" | sed -nE 's/.*JobState=([A-Z_]+).*/\1/p' | head -n 1; }
in_state() { [ "$(state "$1" "$2")" = "$3" ]; }
ended=$(login sbatch --parsable -o /dev/null --wrap true | tr -d '[:space:]')
until_true 60 'a job has ended' in_state login "$ended" COMPLETED
until_true 60 'accounting knows it' bash -c "'$fairlead' exec -n demo login-0 -- sacct -n -X -j $ended -o State | grep -q COMPLETED"
# What administrators of accounting made: accounts, users, their limits.
login sacctmgr -i add account physics description=physics fairshare=7 > /dev/null
login sacctmgr -i add user nobody account=physics maxjobs=3 > /dev/null
associations() { "$1" sacctmgr -nP show associations cluster=demo format=Account,User,Fairshare,MaxJobs | sort; }
before=$(associations login)
[[ $before == *'physics||7|'* && $before == *'physics|nobody|'*'|3'* ]] || fail "associations: $before"
held=$(login sbatch --parsable -H -o /dev/null --wrap true | tr -d '[:space:]')
running=$(login sbatch --parsable --requeue -o /dev/null --wrap 'sleep 45' | tr -d '[:space:]')
until_true 60 'a job runs' in_state login "$running" RUNNING

printf 'correct horse battery\n' > "$work/phrase"
printf 'something else\n' > "$work/other"
export_it() { run slurm export demo -n demo --passphrase-file "$work/phrase" "$@"; }
expect 'what runs cannot move' "jobs run ($running)" export_it --to "$work/a"
expect 'a dry run tells what would travel' 'secret/demo-munge' export_it --dry-run
[ ! -e "$work/a" ] || fail 'a refused export left a file'

export_it --requeue-running --to "$work/a" > "$work/said" 2>&1 || fail "the export: $(cat "$work/said")"
down() { ! login timeout 5 squeue > /dev/null 2>&1; }
down || fail 'slurmctld runs in the middle of an export'
is demo BackupFresh 'False Exporting' || until_true 60 'the condition tells it' is demo BackupFresh 'False Exporting'
expect 'the export is aborted' 'its code is destroyed' export_it --abort
until_true 90 'the source runs again' bash -c "'$fairlead' exec -n demo login-0 -- scontrol ping | grep -q 'is UP'"
in_state login "$held" PENDING || fail 'the held job did not stay'
expect 'there is no code any more' 'no export of this cluster' export_it --hand-over
note 'aborted: the source runs on'
last=$(login sbatch --parsable -H -o /dev/null --wrap true | tr -d '[:space:]')
login scancel "$last"

again() { export_it --requeue-running --to "$work/b"; }
again > "$work/said" 2>&1 || fail "the second export: $(cat "$work/said")"
grep -q 'correct horse\|munge' "$work/b" && fail 'the file can be read'
[ "$(stat -c %a "$work/b")" = 600 ] || fail 'others may read the file'
note 'exported again'

import_it() { run slurm import "$@"; }
expect 'a prompt that is interrupted leaves the terminal as it was' 'it echoes' python3 "$top/tests/terminal.py" 24x80 '<assphrase' $'>\x03' -- \
  bash -c 'trap : INT; "$0" slurm import "$1" -n moved; if stty -a | grep -q " echo "; then echo it echoes; fi' "$fairlead" "$work/b"
expect 'another passphrase' 'does not open the export' import_it "$work/b" -n moved --passphrase-file "$work/other"
import_it "$work/b" -n moved --passphrase-file "$work/phrase" > "$work/said" 2>&1 || fail "the import: $(cat "$work/said")"
note "imported: $(tail -n 1 "$work/said")"
until_true 120 'a head is there and waits' bash -c "'$fairlead' logs -n moved controller-0 -c slurmctld | grep -q 'slurmctld is kept from running'"
printf '%064d\n' 0 > "$work/none"
expect 'another code does not open it' 'not the code' import_it "$work/b" -n moved --code-file "$work/none"
expect 'the export of before is another one' 'is not of this import' import_it "$work/a" -n moved --passphrase-file "$work/phrase"

export_it --hand-over --code-file "$work/code" > "$work/said" 2>&1 || fail "the hand-over: $(cat "$work/said")"
[ "$(stat -c %a "$work/code")" = 600 ] || fail 'others may read the code'
[ "$(export_it --hand-over)" = "$(cat "$work/code")" ] || fail 'the code is not told again'
expect 'no way back' 'never runs here again' export_it --abort
run delete pod -n demo controller-0 > /dev/null 2>&1 || true
import_it "$work/b" -n moved --code-file "$work/code" > "$work/said" 2>&1 || fail "the opening: $(cat "$work/said")"
note 'handed over and opened'

until_true 120 'the queue is there' in_state there "$held" PENDING
until_true 240 "job $running runs with its id" in_state there "$running" COMPLETED
there scontrol release "$held"
until_true 120 "job $held runs with its id" in_state there "$held" COMPLETED
fresh=$(there sbatch --parsable -o /dev/null --wrap true | tr -d '[:space:]')
((fresh > last && fresh < last + 100)) || fail "the next id is $fresh, and the last one was $last"
until_true 120 'a new job runs' in_state there "$fresh" COMPLETED
until_true 60 'accounting knows the jobs of before' bash -c "'$fairlead' exec -n moved login-0 -- sacct -n -X -j $ended,$held -o JobID,State | grep -c COMPLETED | grep -qx 2"
[ "$(associations there)" = "$before" ] || fail "the associations: $(associations there), and they were: $before"
secret() { run get secrets -n "$1" demo-munge -o json | python3 -c 'import json, sys; print(json.load(sys.stdin)["data"])'; }
[ "$(secret demo)" = "$(secret moved)" ] || fail 'the munge key is another one'
note "the queue, ids ($fresh follows $last), records and associations are there"
down || fail 'the source schedules'
is demo BackupFresh 'False Moved' || until_true 60 'the source says that it is gone' is demo BackupFresh 'False Moved'
until_true 60 'the head of the source waits' bash -c "'$fairlead' logs -n demo controller-0 -c slurmctld | grep -q 'kept from running'"
down || fail 'the source schedules after its head was made anew'
note 'the source never runs again'
echo "$passed checks passed"
