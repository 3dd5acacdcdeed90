#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Three heads in place of one, under a running job: then the pod of whichever serves is deleted, and its slurmctld killed, and nothing that was confirmed is lost.
. "$(dirname "$0")/lib.sh"

condition() { kd get slurmcluster demo -o "jsonpath={.status.conditions[?(@.type==\"$1\")].$2}"; }
active() { kd get endpointslice demo-controller-active -o 'jsonpath={.endpoints[0].targetRef.name}'; }
term() { kd get endpointslice demo-controller-active -o 'jsonpath={.metadata.annotations.fairlead\.dev/term}'; }
later_term() { local now; now=$(term) && ((now > $1)); }
submits() { login timeout 8 sbatch -H --parsable -o /dev/null -J "$1" --wrap true; }
confirmed=()
submit() { local id; until_true 60 "a submission ($1)" bash -c "$(declare -f submits login kd k); submits $1 > '$SCENARIO_WORK/id'"; id=$(tr -d '[:space:]' < "$SCENARIO_WORK/id"); confirmed+=("$id $1"); }

# Administrators are told: a receiver beside the server, which refuses the first post.
told=$SCENARIO_WORK/told
rm -rf "$told" && mkdir "$told"
python3 "$top/tests/notify_receiver.py" "$told" scenario-45-hmac-key --fail 1 &
receiver=$!
trap 'kill "$receiver" 2> /dev/null || true' EXIT
until_true 20 'the receiver listens' test -s "$told/ports"
kd create secret generic alarm --from-literal=hmac=scenario-45-hmac-key > /dev/null
kd label secret alarm fairlead.dev/notifications=true > /dev/null
kd apply -f - > /dev/null << TEXT
apiVersion: fairlead.dev/v1alpha1
kind: NotificationTopic
metadata: {name: operators}
spec:
  channels: [{name: hook, webhook: {url: "http://127.0.0.1:$(cut -d ' ' -f 1 "$told/ports")/hook", insecureHTTP: true, hmacSecret: {name: alarm, key: hmac}}}]
TEXT
kd patch slurmcluster demo --type=merge -p '{"spec":{"extensions":{"notifications":[{"topic":"operators"}]}}}' > /dev/null
is_told() { # TYPE HEAD: by a good post, once
  [ "$(grep '"status": 204, "signed": true' "$told/posts" | grep "\"type\": \"$1\", \"head\": \"$2\"" | grep -o '"id": "[^"]*"' | sort -u | wc -l)" -ge 1 ]
}

job=$(login sbatch --parsable -o /dev/null --wrap 'sleep 10000' | tr -d '[:space:]')
until_true 60 'the job runs' same RUNNING job_state "$job"
# A job that runs on goes on to start steps: what srun needs to know of the worker is not in Slurm's saved state.
steps_go_on() { until_true 60 "a step in the job that runs on ($1)" login timeout 20 srun --jobid="$job" --overlap -n1 true; }
steps_go_on before
# Commands that speak to slurmd themselves find it, too, from a login node and from another worker.
login sh -c "nohup srun --jobid=$job --overlap -n1 -J ticks sh -c 'while echo tick; do sleep 1; done' > /dev/null 2>&1 &"
reaches() { # POD CONTAINER
  kd exec "$1" -c "$2" -- sh -c "step=\$(squeue -s -h -j $job -o '%i %j' | sed -n 's/ ticks\$//p' | head -n 1)
    [ -n \"\$step\" ] && timeout 10 sattach \"\$step\" | grep -m 1 tick && timeout 20 sbcast --jobid=$job -f /etc/hostname /tmp/sent-from-$1 && timeout 20 sstat -n -j $job.batch -o jobid"
}
workers_are_found() { for pod in 'login-0 sshd' 'worker-0 slurmd' 'worker-1 slurmd'; do until_true 60 "sattach, sbcast and sstat on ${pod% *} ($1)" reaches "${pod% *}" "${pod#* }"; done; }
workers_are_found before
submit before
kd patch slurmcluster demo --type=merge -p '{"spec":{"slurmNodes":{"controller":{"size":3}}}}' > /dev/null
until_true 180 'three heads, of which one serves' same True condition HAReady status
until_true 60 'the configuration is in force' same True condition ConfigApplied status
submit three
for pod in 'login-0 sshd' 'worker-0 slurmd' 'controller-0 slurmctld' 'controller-1 slurmctld' 'controller-2 slurmctld'; do
  until_true 30 "scontrol ping on $pod" says 'is UP' kd exec "${pod% *}" -c "${pod#* }" -- scontrol ping
done
same RUNNING job_state "$job" || fail 'the job does not run any more'
steps_go_on three
note "one head became three: $(active) serves, and every role reaches it"
for head in controller-0 controller-1 controller-2; do
  if [ "$head" = "$(active)" ]; then until_true 30 'that one serves is told' is_told PrimaryOn "$head"
  else until_true 30 "that $head stands by is told" is_told BackupReady "$head"; fi
done

now=$(term)
old=$(active)
kd delete pod "$(active)" --wait=false > /dev/null
until_true 60 'another head serves' later_term "$now"
submit deleted
steps_go_on deleted
until_true 120 'three heads again' same True condition HAReady status
note "its pod deleted: $(active) serves"
until_true 30 'that it serves no more is told' is_told PrimaryOff "$old"
until_true 30 'that another does is told' is_told PrimaryOn "$(active)"
until_true 30 'that it is back is told' is_told BackupReady "$old"
until_true 30 'every event is delivered' same True condition NotificationsDelivered status
same 'NAME DELIVERED WAITING LAST AGE' columns notificationtopics || fail "columns of NotificationTopics: $(columns notificationtopics)"
same 'NAME TOPIC EVENT CLUSTER HEAD FROM TO DELIVERY AGE' columns notifications || fail "columns of Notifications: $(columns notifications)"
[ -z "$(grep -o '"status": 204.*"id": "[^"]*"' "$told/posts" | grep -o '"id": .*' | sort | uniq -d)" ] || fail 'an event came twice although nothing failed'
note 'administrators were told of each change, once'

# A key that needs a restart: another head takes over with it.
now=$(term)
until_true 60 'the configuration is in force there' same True condition ConfigApplied status
kd patch slurmcluster demo --type=merge -p '{"spec":{"customSlurmConfig":"MaxNodeCount=700"}}' > /dev/null
until_true 150 'another head serves with the changed configuration' later_term "$now"
until_true 60 'it is in force' bash -c "$(declare -f login kd k); login scontrol show config | grep -Eq '^MaxNodeCount += 700'"
until_true 60 'on every node' same True condition ConfigApplied status
submit rolled
note 'a key that needs a restart came in force by a planned change of heads'

kills() { kd exec "$(active)" -c slurmctld -- pkill -9 slurmctld; } # whoever serves by then: heads may change under us
until_true 60 'slurmctld is killed' kills
submit killed
until_true 60 'srun' login srun --nodes=1 hostname
steps_go_on killed
workers_are_found killed
note 'its slurmctld killed: submissions and steps go on'

# A saved state that no head can read: none begins without it, the condition says which file and what to do, and put back it serves as before.
until_true 60 'every head is ready' same True condition HAReady status
empties_the_state() {
  kd exec "$(active)" -c slurmctld -- sh -c 'cd /run/slurm/state && { [ ! -s job_state ] || cp -p job_state /var/spool/slurmctld/.kept; } && : > job_state && pkill -9 slurmctld' > /dev/null 2>&1 || true
  same StateUnreadable condition HAReady reason
}
until_true 120 'the condition of heads that do not start' empties_the_state
[[ $(condition HAReady message) =~ ^'no head serves; controller-'.': slurmctld would begin without what it saved in '.*'/job_state: it is empty'.*'; nothing is begun without it'.*'restore a set' ]] || fail "HAReady: $(condition HAReady message)"
puts_back() {
  kd exec controller-0 -c slurmctld -- sh -c 'for term in /var/spool/slurmctld/terms/*/; do [ -s "$term/job_state" ] || cp -p /var/spool/slurmctld/.kept "$term/job_state"; done' > /dev/null 2>&1 || true
  same True condition HAReady status
}
until_true 120 'a head serves again' puts_back
kd exec controller-0 -c slurmctld -- rm /var/spool/slurmctld/.kept
submit put-back
note 'a state that cannot be read starts no head, and the condition tells it'

until_true 30 'squeue' login squeue -h -t all -o '%i %j'
there=$(cat "$SCENARIO_WORK/last")
for one in "${confirmed[@]}"; do grep -qx "$one" <<< "$there" || fail "confirmed and gone: $one"; done
until_true 30 'the job runs on' same RUNNING job_state "$job"

# Two heads and a witness, then one, then three again: under the running job, whoever serves.
heads_are() { # SIZE REASON
  kd patch slurmcluster demo --type=merge -p "{\"spec\":{\"slurmNodes\":{\"controller\":{\"size\":$1}}}}" > /dev/null
  until_true 240 "size $1: $2" same "$2" condition HAReady reason
  until_true 60 'the configuration is in force' same True condition ConfigApplied status
  submit "size-$1"
}
witness() { kd get pod controller-2 -o 'jsonpath={.spec.containers[*].name}'; }
told_of() { grep '"status": 204, "signed": true' "$told/posts" | grep -c "\"type\": \"$1\", \"head\": \"controller-2\"" || true; }
more_is_told() { (($(told_of "$1") > $2)); } # TYPE BEFORE
heads_are 2 Ready
until_true 120 'a witness in place of the third head' same witness witness
until_true 120 'two heads and a witness' says 'heads and their witness are ready' condition HAReady message
until_true 60 'the witness is known to be ready' same Standby kd get slurmcluster demo -o 'jsonpath={.status.notifications.heads.witness.state}'
ready=$(told_of BackupReady) lost=$(told_of BackupLost)
kd delete pod controller-2 --wait=false > /dev/null
until_true 60 'that the witness is lost is told' more_is_told BackupLost "$lost"
until_true 120 'that it is back is told' more_is_told BackupReady "$ready"
until_true 60 'two heads and a witness again' says 'heads and their witness are ready' condition HAReady message
note 'administrators were told of the loss of the witness'
now=$(term)
kd delete pod "$(active)" --wait=false > /dev/null
until_true 60 'of two heads the other serves' later_term "$now"
submit two
steps_go_on two
until_true 120 'two heads again' same True condition HAReady status
heads_are 1 OneHead
is_alone() { [ "$(kd get pods -l fairlead.dev/slurm-role=controller -o name)" = pod/controller-0 ]; }
until_true 120 'one pod' is_alone
heads_are 3 Ready
until_true 60 'srun' login srun --nodes=1 hostname
until_true 30 'squeue' login squeue -h -t all -o '%i %j'
there=$(cat "$SCENARIO_WORK/last")
for one in "${confirmed[@]}"; do grep -qx "$one" <<< "$there" || fail "confirmed and gone: $one"; done
[ -z "$(printf '%s\n' "${confirmed[@]%% *}" | sort | uniq -d)" ] || fail 'an id was given twice'
until_true 30 'the job runs on' same RUNNING job_state "$job"
steps_go_on last
# Its steps began when controller-0 was the only head, and know no other: what they say there reaches whoever serves.
if [ "$(active)" = controller-0 ]; then
  now=$(term)
  kd delete pod controller-0 --wait=false > /dev/null
  until_true 60 'a head that they do not know serves' later_term "$now"
  until_true 120 'controller-0 stands by' same True condition HAReady status
fi
[ "$(active)" != controller-0 ] || fail 'controller-0 serves again'
login scancel -u root
until_true 60 'the job has ended, and its steps were heard' same CANCELLED job_state "$job"
until_true 60 'its node is free' is_empty login squeue -h -t CG
note 'two heads and a witness, one head, three again: nothing was lost, the job ran on'
