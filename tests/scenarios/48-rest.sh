#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# slurmrestd by token: turned on while a job runs; nobody is served without a good token; a user's job is that user's; who may reach it is named; a new key ends old tokens; turned off again.
. "$(dirname "$0")/lib.sh"

space=portal
rest() { kd patch slurmcluster demo --type=merge -p "{\"spec\":{\"slurmNodes\":{\"rest\":$1}}}" > /dev/null; }
condition() { kd get slurmcluster demo -o "jsonpath={.status.conditions[?(@.type==\"$1\")].$2}"; }
job=''
clean_up() {
  local status=$?
  trap - EXIT
  [ $status = 0 ] || { condition RestAvailable message; echo; kd logs rest-0 --tail=10; kd logs controller-0 -c slurmctld --tail=15; } >&2 || true
  [ -z "$job" ] || login scancel "$job" || true
  rest null || status=1
  k delete namespace "$space" --timeout=120s > /dev/null || status=1
  exit "$status"
}
trap clean_up EXIT

login id resty > /dev/null 2>&1 || login adduser --disabled-password --gecos '' resty > /dev/null
workers=$(kd get pods -l fairlead.dev/slurm-role=worker -o 'jsonpath={.items[*].metadata.uid}')
job=$(login sbatch --parsable -o /dev/null --wrap 'sleep 1000' | tr -d '[:space:]')
until_true 60 'a job runs' same RUNNING job_state "$job"
rest '{"enabled":true,"size":2,"k8sNodeFilterName":"login","rest":{"image":"slurm:22.05"}}'
until_true 240 'slurmrestd answers' same True condition RestAvailable status
until_true 120 'both of them' says '2 of 2 ready' condition RestAvailable message
until_true 60 'the configuration is in force' same True condition ConfigApplied status
same RUNNING job_state "$job" || fail 'the job does not run any more'
same "$workers" kd get pods -l fairlead.dev/slurm-role=worker -o 'jsonpath={.items[*].metadata.uid}' || fail 'workers were made anew'
login scancel "$job"
job=''
note 'turned on while a job runs, which runs on'

same 65534 kd exec rest-0 -- sh -c 'for p in /proc/[0-9]*; do [ "$(cat $p/comm)" = slurmrestd ] && stat -c %u $p; done; true' || fail 'slurmrestd is not nobody'
is_empty kd get pod rest-0 -o 'jsonpath={.spec.volumes[*].secret}' || fail 'slurmrestd has a Secret'
note 'slurmrestd is nobody, and knows no secret'

token() { kd exec controller-0 -c slurmctld -- scontrol token username="$1" lifespan="$2" | sed -n 's/^SLURM_JWT=//p'; }
# HOST USER METHOD PATH BODY; the token comes by stdin, as whoever is on the machine can read arguments. Prints the status and the body.
client='
import sys, urllib.request, urllib.error
token, (host, user, method, path, body) = sys.stdin.read().strip(), sys.argv[1:6]
question = urllib.request.Request("http://" + host + ":6820" + path, method=method, data=body.encode() or None)
if token: question.add_header("X-SLURM-USER-TOKEN", token)
if user: question.add_header("X-SLURM-USER-NAME", user)
if body: question.add_header("Content-Type", "application/json")
try:
    answer = urllib.request.urlopen(question, timeout=10)
except urllib.error.HTTPError as error:
    answer = error
print(answer.status, answer.read().decode())
'
ask() { # METHOD PATH BODY; the token by stdin, in the name of $as
  kd exec -i login-0 -c sshd -- python3 -c "$client" demo-rest-svc.demo.svc.cluster.local "${as-resty}" "$1" "$2" "${3:-}"
}
good=$(token resty 600)
[[ $good == *.*.* ]] || fail 'no token is given'
ask_with_good() { ask "$@" <<< "$good"; }
until_true 60 'a user asks' says '200 ' ask_with_good GET /slurm/v0.0.38/ping
# The token by stdin. A question that got no answer, as connections end, is asked again; the first answer counts, whatever it is.
answered() { # METHOD PATH BODY: prints it
  local out token try
  token=$(cat)
  for try in 1 2 3 4 5; do
    if out=$(ask "$@" <<< "$token" 2> "$SCENARIO_WORK/rest"); then
      printf '%s\n' "$out"
      return
    fi
    echo "try $try: $(tail -n 1 "$SCENARIO_WORK/rest")" >&2
    pause 2
  done
  return 1
}
says '"ping"' answered GET /slurm/v0.0.38/ping <<< "$good" || fail 'ping'
for as in '' resty root; do says '401 ' answered GET /slurm/v0.0.38/ping <<< '' || fail "who has no token is not refused (name: $as)"; done
as=''
says '401 ' answered GET /slurm/v0.0.38/ping <<< "$good" || fail 'a token without the name of its user'
as=resty
submit='{"script":"#!/bin/bash\nid -un\nsleep 300\n","job":{"name":"by-rest","current_working_directory":"/tmp","standard_output":"/dev/null","environment":{"PATH":"/usr/bin:/bin"},"nodes":[1,1],"tasks":1}}'
# The token by stdin: nothing is submitted with it. slurmrestd may end the connection before it has read the body, which the client sees as a reset instead of an answer: where it serves others then, that is a refusal, too.
refused() {
  local out try
  if out=$(answered POST /slurm/v0.0.38/job/submit "$submit"); then
    why="answered: $out"
    [[ $out =~ ^[45][0-9][0-9]\  ]] || return 1
  else
    why="no answer, and others get none either: $(tail -n 1 "$SCENARIO_WORK/rest")"
    as=resty says '200 ' answered GET /slurm/v0.0.38/ping <<< "$(token resty 60)" > /dev/null || return 1
  fi
  for try in 1 2 3; do
    if out=$(login squeue -h -n by-rest 2> "$SCENARIO_WORK/rest"); then
      why="a job is in the queue: $out"
      [ -z "$out" ]
      return
    fi
    why="the queue cannot be seen: $(tail -n 1 "$SCENARIO_WORK/rest")"
    pause 2
  done
  return 1
}
refused <<< '' || fail "without a token a job is submitted ($why)"
refused <<< "${good%?????}AAAAA" || fail "a token with another signature counts ($why)"
as=root
refused <<< '' || fail "the name of root without a token counts ($why)"
refused <<< "$good" || fail "a token counts for root ($why)"
# Of another key: {"alg":"HS256"}.{"exp":4102444800,"sun":"root"} signed with 64 zeros.
foreign=$(login python3 -c 'import base64, hashlib, hmac; e = lambda b: base64.urlsafe_b64encode(b).rstrip(b"="); t = e(b"{\"alg\":\"HS256\",\"typ\":\"JWT\"}") + b"." + e(b"{\"exp\":4102444800,\"sun\":\"root\"}"); print((t + b"." + e(hmac.new(bytes(64), t, hashlib.sha256).digest())).decode())')
refused <<< "$foreign" || fail "a token of another key counts ($why)"
refused <<< "$(login python3 -c 'import base64; e = lambda b: base64.urlsafe_b64encode(b).rstrip(b"=").decode(); print(e(b"{\"alg\":\"none\"}") + "." + e(b"{\"exp\":4102444800,\"sun\":\"root\"}") + ".")')" || fail "a token without a signature counts ($why)"
as=resty
short=$(token resty 1)
pause 3
refused <<< "$short" || fail "a token that has expired counts ($why)"
note 'without a token, and with a forged, foreign, unsigned or expired one, or that of another, nothing is done'

says '"job_id"' ask POST /slurm/v0.0.38/job/submit "$submit" <<< "$good" || fail 'a job is not submitted'
until_true 60 'it runs as the user' same 'resty RUNNING' login squeue -h -n by-rest -o '%u %T'
job=$(login squeue -h -n by-rest -o %i)
says '"job_state": "RUNNING"' ask GET "/slurm/v0.0.38/job/$job" <<< "$good" || fail 'its state is not told'
other=$(token nobody 600)
for as in nobody resty; do
  ask DELETE "/slurm/v0.0.38/job/$job" <<< "$other" > /dev/null || true
  same RUNNING job_state "$job" || fail "another user ends it in the name of $as"
done
says '200 ' ask DELETE "/slurm/v0.0.38/job/$job" <<< "$good" || fail 'its owner cannot end it'
until_true 30 'it ends' same CANCELLED job_state "$job"
job=''
note 'a job is submitted, seen and ended by its user, and by no other'

k create namespace "$space" > /dev/null
k -n "$space" apply -f - > /dev/null << 'YAML'
apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: "slurm:22.05", command: [sleep, "100000"]}]
YAML
k -n "$space" wait --for=condition=Ready pod/client --timeout=120s > /dev/null || fail 'a pod of another namespace'
from_outside() { k -n "$space" exec -i client -- python3 -c "$client" demo-rest-svc.demo.svc.cluster.local resty GET /slurm/v0.0.38/ping '' <<< "$good"; }
if from_outside > "$SCENARIO_WORK/rest" 2>&1; then fail 'a namespace without the label reaches it'; fi
k label namespace "$space" fairlead.dev/slurm-rest=allowed > /dev/null
until_true 30 'the namespace is allowed to' says '200 ' from_outside
if kd exec -i worker-0 -c slurmd -- python3 -c "$client" "$(kd get pod rest-0 -o 'jsonpath={.status.podIP}')" resty GET /slurm/v0.0.38/ping '' <<< "$good" > "$SCENARIO_WORK/rest" 2>&1; then fail 'a worker reaches it'; fi
note 'who may reach it is named, and nobody else does'

heads() { kd get pods -l fairlead.dev/slurm-role=controller -o 'jsonpath={range .items[*]}{.metadata.uid}{"\n"}{end}'; }
heads > "$SCENARIO_WORK/heads"
[ -s "$SCENARIO_WORK/heads" ] || fail 'no head is listed'
kd delete secret demo-rest-jwt-key > /dev/null
# Each of them: one that is still of before serves with the old key, should it be the one that takes over.
renewed() { heads > "$SCENARIO_WORK/heads-now" && [ -s "$SCENARIO_WORK/heads-now" ] && ! grep -qxFf "$SCENARIO_WORK/heads" "$SCENARIO_WORK/heads-now"; }
until_true 180 'every head is made anew, with the new key' renewed
until_true 180 'all of them serve' at_rest
until_true 60 'a new token counts' bash -c "$(declare -f token ask says kd k refused is_empty login); client='$client'; t=\$(token resty 600); says '200 ' ask GET /slurm/v0.0.38/jobs <<< \"\$t\""
refused <<< "$good" || fail "a token of the old key counts ($why)"
note 'with a new key old tokens are void'

rest '{"enabled":false}'
until_true 120 'its pods go' is_empty kd get pods -l fairlead.dev/slurm-role=rest -o name
is_empty kd get service demo-rest-svc --ignore-not-found -o name || fail 'its Service stays'
until_true 180 'the heads are renewed' at_rest
until_true 150 'slurmctld takes no tokens any more' bash -c "$(declare -f login kd k); ! login scontrol show config | grep -q '^AuthAltTypes.*jwt' && login scontrol ping | grep -q UP"
note 'turned off, it goes'
