#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A Slurm cluster with three heads, made from one resource: whichever of them dies, is switched off or asked to step down, another serves, commands on every role reach it, the running job runs on, what was confirmed is there.
#   slurm_heads_test.sh BUILD_DIR   (as root; a site of its own in a network of its own)
set -euo pipefail
build=${1:?usage: slurm_heads_test.sh BUILD_DIR}
# shellcheck source=tests/e2e/slurm_site_lib.sh
. "$(dirname "$0")/slurm_site_lib.sh"
told_pods=(controller-0 controller-1 controller-2)
head_of() { run exec -n demo "controller-$1" -c slurmctld -- "${@:2}"; }
condition() { # TYPE STATUS
  [ "$(run get slurmclusters -n demo demo -o json | python3 -c 'import json, sys
print([c["status"] for c in json.load(sys.stdin)["status"]["conditions"] if c["type"] == sys.argv[1]][0])' "$1")" = "$2" ]
}
active() { run get endpointslices -n demo demo-controller-active -o json | python3 -c 'import json, sys
slice = json.load(sys.stdin)
print(slice["endpoints"][0]["targetRef"]["name"][-1], slice["metadata"]["annotations"]["fairlead.dev/term"])'; }
served_by_another() { local now; now=$(active) && [ "${now%% *}" != "$1" ]; }
submitted() { timeout 8 "$fairlead" exec -n demo login-0 -- timeout 6 sbatch -H --parsable -o /dev/null -J "$1" --wrap true > "$work/id" && { tr -d '[:space:]' < "$work/id"; echo " $1"; } >> "$work/confirmed"; }
all_there() {
  until_true 30 'squeue' login squeue -h -t all -o '%i %j'
  sort "$work/last" > "$work/there"
  [ -z "$(sort "$work/confirmed" | comm -23 - "$work/there")" ] || fail "confirmed and gone: $(sort "$work/confirmed" | comm -23 - "$work/there")"
  [ -z "$(cut -d' ' -f1 "$work/confirmed" | sort | uniq -d)" ] || fail "ids were given out twice"
  grep -q "^$job " "$work/there" || fail "job $job is gone"
  until_true 30 'the state of the job' login squeue -h -j "$job" -o %T
  [ "$(cat "$work/last")" = RUNNING ] || fail "job $job does not run any more: $(cat "$work/last")"
}

# The demo with two more machines for heads, and one worker.
site=$work/site.yaml
{
  for n in 1 2; do printf 'apiVersion: fairlead.dev/v1alpha1\nkind: Machine\nmetadata: {name: head-%s}\nspec:\n  local: {cpu: "2", memory: 2Gi}\n  labels: {example.com/pool: cpu}\n---\n' $n; done
  sed -e '/    controller:/,/size: 1/ s/size: 1/size: 3/' -e '/    worker:/,/size: 2/ s/size: 2/size: 1/' "$top/examples/demo.yaml"
} > "$site"
# The machines first: heads that find one machine alone are placed together.
awk 'BEGIN { RS = "---\n"; ORS = "---\n" } /kind: Machine/' "$site" > "$work/machines.yaml"
for file in "$work/machines.yaml" "$site"; do
  run up -f "$file" --port 16443 --node-range 10.91.0.0/16 --pod-range 10.92.0.0/16 > "$work/up.log" 2>&1 || { cat "$work/up.log" >&2; fail "up"; }
done
until_true 60 'HAReady' condition HAReady True
[ "$(run get pods -n demo -o json | python3 -c 'import json, sys
print(len({p["spec"]["nodeName"] for p in json.load(sys.stdin)["items"] if p["metadata"]["name"].startswith("controller-")}))')" = 3 ] || fail 'the heads are not on three nodes'
read -r head term <<< "$(active)"
note "three heads on three nodes came up; head $head serves, term $term"

for role in 'login-0 sshd' 'worker-0 slurmd' 'controller-0 slurmctld' 'controller-1 slurmctld' 'controller-2 slurmctld'; do
  read -r pod container <<< "$role"
  until_true 20 "scontrol ping on $pod" bash -c "'$fairlead' exec -n demo $pod -c $container -- scontrol ping | grep -q 'is UP'"
  run exec -n demo "$pod" -c "$container" -- scontrol show config > "$work/config" || fail "scontrol show config on $pod"
  grep -q '^SlurmctldHost\[0\].*= controller(demo-controller-active' "$work/config" || fail "$pod sees another controller: $(grep SlurmctldHost "$work/config")"
done
note 'scontrol ping and show config on login node, worker and every head reach it'

job=$(login sbatch --parsable -o /dev/null --wrap 'sleep 10000' | tr -d '[:space:]')
until_true 60 'the job runs' bash -c "'$fairlead' exec -n demo login-0 -- squeue -h -j $job -o %T | grep -qx RUNNING"
: > "$work/confirmed"
submitted before || fail 'a submission'

head_of "$head" pkill -9 slurmctld
at=$EPOCHREALTIME
until_true 30 'a submission after slurmctld was killed' submitted killed
note "slurmctld killed: a submission is confirmed after $(since "$at") s"
all_there

# The command waits until the cluster has noticed, the heads do not.
machine=$(run get pods -n demo "controller-$head" -o json | python3 -c 'import json, sys; print(json.load(sys.stdin)["spec"]["nodeName"])')
at=$EPOCHREALTIME
run node kill "$machine" > "$work/node-kill.log" 2>&1 &
kill_job=$!
until_true 30 'another head serves' served_by_another "$head"
note "the machine of head $head switched off: head $(active | cut -d' ' -f1) has the address after $(since "$at") s"
until_true 30 'a submission after a machine was switched off' submitted off
note "a submission is confirmed after $(since "$at") s"
all_there
wait "$kill_job" || fail 'node kill'
run node heal "$machine" > /dev/null || fail 'node heal'
until_true 120 'HAReady again' condition HAReady True

read -r head term <<< "$(active)"
at=$EPOCHREALTIME
run failover demo --dry-run | grep -q "controller-$head of Slurm cluster demo would step down" || fail 'failover --dry-run'
[ "$(active)" = "$head $term" ] || fail 'failover --dry-run changed who serves'
at=$EPOCHREALTIME
run failover > "$work/failover" || fail 'failover'
until_true 30 'a submission after a planned change' submitted planned
note "$(cat "$work/failover"); a submission is confirmed after $(since "$at") s"
served_by_another "$head" || fail 'failover changed nothing'
all_there

# The API server is away, then slow, while a client inside the cluster goes on submitting: nobody is moved, nothing is lost. A machine that is busy with other things may cost a lease of its own, so that one of three times counts.
stall=6
[ -z "${FAIRLEAD_FULL:-}" ] || stall=60
pause() { read -rt "$1" <> <(:) || true; }
client() { # NAME: a client that submits until /home/NAME.stop is there, and writes down what was confirmed
  login setsid -f bash -c 'for ((i = 0;; ++i)); do
    [ ! -e "/home/$0.stop" ] || break
    if id=$(timeout 8 sbatch -H --parsable -o /dev/null -J "$0$i" --wrap true 2> /dev/null); then echo "$id $0$i" >> "/home/$0.confirmed"; fi
    sleep 0.3
  done; touch "/home/$0.done"' "$1" > /dev/null 2>&1 < /dev/null
}
client_ends() { # NAME: its list joins the others
  login touch "/home/$1.stop"
  until_true 30 'the client ends' login test -e "/home/$1.done"
  login cat "/home/$1.confirmed" > "$work/of-client"
  cat "$work/of-client" >> "$work/confirmed"
}
for try in 1 2 3; do
  read -r head term <<< "$(active)"
  server=$(cat "$FAIRLEAD_STATE_DIR/run/server.pid")
  client "away$try-"
  until_true 20 'the client submits' login test -s "/home/away$try-.confirmed"
  kill -STOP "$server"
  pause "$stall"
  kill -CONT "$server"
  for ((n = 0; n < stall / 6; ++n)); do  # slow: 5 s of each 6
    pause 1
    kill -STOP "$server"
    pause 5
    kill -CONT "$server"
  done
  until_true 30 'the API answers again' active
  kill -9 "$server"
  run up -f "$site" > "$work/again.log" 2>&1 || { cat "$work/again.log" >&2; fail 'up after a killed server'; }
  client_ends "away$try-"
  (($(wc -l < "$work/of-client") > stall)) || fail "only $(wc -l < "$work/of-client") submissions were confirmed while the API server was away"
  [ "$(active)" != "$head $term" ] || break
  ((try < 3)) || fail "the head was changed although only the API server was away: $(active), it was $head $term"
done
submitted server || fail 'a submission'
all_there
note "the API server stopped for $stall s, slow for as long, then killed: the same head serves in the same term, $(wc -l < "$work/of-client") submissions meanwhile, none lost"

# It is away just when another head takes over, and comes back in the midst: the heads need it for the address alone.
read -r head term <<< "$(active)"
client takeover
until_true 20 'the client submits' login test -s /home/takeover.confirmed
head_of "$head" setsid -f bash -c 'for i in 1 2 3; do pkill -9 slurmctld; sleep 0.7; done' > /dev/null 2>&1 < /dev/null
kill -9 "$(cat "$FAIRLEAD_STATE_DIR/run/server.pid")"
run up -f "$site" > "$work/again.log" 2>&1 || { cat "$work/again.log" >&2; fail 'up after a killed server'; }
until_true 60 'another head has the address' served_by_another "$head"
until_true 30 'a submission after the takeover' submitted takeover
client_ends takeover
all_there
note "slurmctld killed again and again while the API server was killed, too: head $(active | cut -d' ' -f1) took over, nothing was lost"

# What would endanger the state is refused before anything is touched.
uids() { run get pods -n demo -o json | python3 -c 'import json, sys
print(sorted(p["metadata"]["uid"] for p in json.load(sys.stdin)["items"]))'; }
before=$(uids)
for size in 0 4; do
  sed "/    controller:/,/size: 3/ s/size: 3/size: $size/" "$site" > "$work/other.yaml"
  run apply -f "$work/other.yaml" > /dev/null
  until_true 20 "the refusal of $size heads" condition SpecValid False
  run apply -f "$site" > /dev/null
  until_true 20 'the spec is valid again' condition SpecValid True
done
[ "$(uids)" = "$before" ] || fail 'a refused change replaced pods'
note 'a change to 0 or 4 heads is refused and touches nothing'
echo "$passed passed, 0 failed"
