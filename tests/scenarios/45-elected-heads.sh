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
submit before
kd patch slurmcluster demo --type=merge -p '{"spec":{"slurmNodes":{"controller":{"size":3}}}}' > /dev/null
until_true 180 'three heads, of which one serves' same True condition HAReady status
until_true 60 'the configuration is in force' same True condition ConfigApplied status
submit three
for pod in 'login-0 sshd' 'worker-0 slurmd' 'controller-0 slurmctld' 'controller-1 slurmctld' 'controller-2 slurmctld'; do
  until_true 30 "scontrol ping on $pod" says 'is UP' kd exec "${pod% *}" -c "${pod#* }" -- scontrol ping
done
same RUNNING job_state "$job" || fail 'the job does not run any more'
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
until_true 120 'three heads again' same True condition HAReady status
note "its pod deleted: $(active) serves"
until_true 30 'that it serves no more is told' is_told PrimaryOff "$old"
until_true 30 'that another does is told' is_told PrimaryOn "$(active)"
until_true 30 'that it is back is told' is_told BackupReady "$old"
until_true 30 'every event is delivered' same True condition NotificationsDelivered status
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

kd exec "$(active)" -c slurmctld -- pkill -9 slurmctld || fail 'kill slurmctld'
submit killed
until_true 60 'srun' login srun --nodes=1 hostname
note 'its slurmctld killed: submissions and steps go on'

until_true 30 'squeue' login squeue -h -t all -o '%i %j'
there=$(cat "$SCENARIO_WORK/last")
for one in "${confirmed[@]}"; do grep -qx "$one" <<< "$there" || fail "confirmed and gone: $one"; done
until_true 30 'the job runs on' same RUNNING job_state "$job"
login scancel -u root
kd patch slurmcluster demo --type=merge -p '{"spec":{"slurmNodes":{"controller":{"size":1}}}}' > /dev/null
until_true 30 'one head in place of three is refused' same False condition SpecValid status
kd patch slurmcluster demo --type=merge -p '{"spec":{"slurmNodes":{"controller":{"size":3}}}}' > /dev/null
until_true 30 'the cluster goes on' same True condition SpecValid status
note 'nothing was lost, the job ran on; going back to one head is refused'
