#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Notifications by the real server and real receivers: a channel that fails comes through later, a dead one holds up nobody, and a server that is killed between an event and its delivery
# delivers it, under the same id, when it is back.
#   notify_test.sh BUILD_DIR
set -euo pipefail
build=$(realpath "${1:?usage: notify_test.sh BUILD_DIR}")
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/lib.sh
. "$top/tests/lib.sh"
say() { printf 'ok  %s\n' "$*"; }
f() { "$build/bin/fairlead" --kubeconfig "$admin" "$@" 2>&1; }
key=0123456789abcdef-test
got=$work/got
mkdir "$got"

# receive OPTION...: a receiver on the ports it had before, if it had some.
receiver=''
receive() {
  rm -f "$got/ports"
  start receiver.log python3 "$top/tests/notify_receiver.py" "$got" "$key" "$@"
  receiver=$last
  wait_until 20 'the receiver listens' test -s "$got/ports"
  read -r http smtp < "$got/ports"
}
# counts FILE FILTER: how many of its records the filter holds for.
counts() { python3 - "$got/$1" "$2" << 'TEXT'
import json, os, sys
records = [json.loads(line) for line in open(sys.argv[1])] if os.path.exists(sys.argv[1]) else []
print(sum(1 for r in records if eval(sys.argv[2], {}, r)))
TEXT
}
is() { [ "$(counts "$2" "$3")" "$1" "$4" ]; }   # is OPERATOR FILE FILTER NUMBER
delivery() { f get notifications -n default -o json | python3 -c '
import json, sys
for one in json.load(sys.stdin)["items"]:
    for d in one.get("status", {}).get("deliveries", []):
        print(one["spec"]["event"]["id"], d["target"], d["state"])'; }
delivered() { delivery | grep -q "^$1 $2 Delivered"; }

receive --fail 2
serve --notify-local
cat > "$work/topic.yaml" << TEXT
apiVersion: v1
kind: Secret
metadata: {name: keys, namespace: default, labels: {fairlead.dev/notifications: "true"}, annotations: {fairlead.dev/host: 127.0.0.1}}
stringData: {hmac: "$key", url: "http://127.0.0.1:$http/from-secret?token=T0PSECRET"}
---
apiVersion: fairlead.dev/v1alpha1
kind: NotificationTopic
metadata: {name: operators, namespace: default}
spec:
  channels:
  - name: hook
    webhook: {url: "http://127.0.0.1:$http/hook", insecureHTTP: true, hmacSecret: {name: keys, key: hmac}}
  - name: chat
    sns: {urlFrom: {name: keys, key: url}, insecureHTTP: true, hmacSecret: {name: keys, key: hmac}}
  - name: mail
    email: {server: 127.0.0.1, port: $smtp, tls: None, from: fairlead@example.com, to: [ops@example.com, boss@example.com]}
  - name: dead
    timeoutSeconds: 2
    webhook: {url: "https://127.0.0.1:1/", hmacSecret: {name: keys, key: hmac}}
TEXT
f apply -f "$work/topic.yaml" > "$work/out" || fail 'apply the topic'

# --- what would be sent ---
f notify test operators --dry-run > "$work/out" || fail 'notify test --dry-run'
grep -q '^To: <boss@example.com>' "$work/out" || fail 'the dry run shows no mail'
[ ! -e "$got/posts" ] || fail 'the dry run sent something'

# --- the first attempts: mail comes through, the others fail, and it is said ---
if f notify test operators -o json > "$work/out"; then fail 'a test with a dead channel succeeds'; fi
python3 - "$work/out" << 'TEXT' || fail 'notify test -o json'
import json, sys
answer = json.load(open(sys.argv[1]))
by = {d["target"]: d for d in answer["deliveries"]}
assert answer["delivered"] is False and answer["withdrawn"] is True
assert by["mail/ops@example.com"]["delivered"] and by["mail/boss@example.com"]["delivered"]
assert "503" in by["hook"]["reason"] and "503" in by["chat"]["reason"] and "T0PSECRET" not in by["chat"]["reason"]
assert "dead" in by and not by["dead"]["delivered"]
TEXT
say 'a test tells of each channel what came of it, and is withdrawn'

# --- an event of its own, written as the server writes it: one refusal is left for each path, then it comes ---
event() { cat << TEXT
apiVersion: fairlead.dev/v1alpha1
kind: Notification
metadata: {name: $1.operators, namespace: default}
spec:
  topic: operators
  event: {id: $1, type: BackupLost, time: "2026-01-02T03:04:05Z", cluster: {namespace: default, name: demo, uid: u}, head: controller-1, oldState: Standby, newState: "Off", redundancy: {ready: 2, wanted: 3}, cause: a test, nextStep: None.}
TEXT
}
first=evt-$(printf '1%.0s' {1..32}) second=evt-$(printf '2%.0s' {1..32})
event "$first" | f apply -f - > "$work/out" || fail 'apply an event'
wait_until 30 'the webhook has come through' delivered "$first" hook
wait_until 30 'the SNS-style document has come through' delivered "$first" chat
is -eq posts "id == '$first' and status == 204 and signed" 2 || fail 'not one good post by each channel'
is -ge posts "id == '$first' and status == 503" 2 || fail 'nothing was refused before'
is -eq mails "id == '$first'" 2 || fail 'not one mail for each recipient'
wait_until 20 'the dead channel is told of' sh -c "'$build/bin/fairlead' --kubeconfig '$admin' get notificationtopic operators -n default -o json | grep -q 'dead: 127.0.0.1:1'"
say 'refused posts come through later, the dead channel holds up nobody'

# --- killed between the event and its delivery ---
stop "$receiver" || true
event "$second" | f apply -f - > "$work/out" || fail 'apply an event'
tried() { f get notifications -n default -o json | python3 -c "
import json, sys
items = [i for i in json.load(sys.stdin)['items'] if i['spec']['event']['id'] == '$second']
sys.exit(0 if items and all(d['attempts'] > 0 for d in items[0].get('status', {}).get('deliveries', [{'attempts': 0}])) else 1)"; }
wait_until 30 'every channel was tried' tried
kill -9 "$server"
wait "$server" 2> /dev/null || true
server=''
receive --http-port "$http" --smtp-port "$smtp"
is -eq posts "id == '$second'" 0 || fail 'it was delivered too early'
serve --notify-local
wait_until 60 'the webhook has come through' delivered "$second" hook
wait_until 60 'the SNS-style document has come through' delivered "$second" chat
wait_until 60 'the mail has come through' delivered "$second" mail/boss@example.com
is -ge posts "id == '$second' and status == 204 and signed" 2 || fail 'it was not delivered'
is -eq posts "id == '$first' and status == 204" 2 || fail 'what had been delivered was sent again'
say 'a server killed between event and delivery delivers it under the same id, and nothing twice that it had written down'

! grep -E "T0PSECRET|$key" "$work/server.log" || fail 'a secret is in the log'
f get notificationtopic,notifications -n default -o json > "$work/all" || f get notifications -n default -o json > "$work/all"
! grep -E "T0PSECRET|$key" "$work/all" || fail 'a secret is in an object'
say 'no secret is in the log nor in an object'
