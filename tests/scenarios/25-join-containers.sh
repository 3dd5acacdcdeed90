#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A person at a terminal and a pipe join containers: kubectl run -it, attach.
. "$(dirname "$0")/lib.sh"

# kubectl tells a size one larger first, so that programs draw anew.
status=0
out=$("$top/tests/terminal.py" 33x91 '<command prompt|/ #' '>' '</ # ' \
  ">while ! stty size | grep -q '33 91'; do sleep 0.1; done; echo si''zed" '<sized' '#40x100' \
  ">while ! stty size | grep -q '40 100'; do sleep 0.1; done; echo re''sized" '<resized' '>exit 3' \
  -- "$SCENARIO_KUBECTL" run -it --rm --restart=Never join-terminal --image=busybox:1 -- sh 2>&1) || status=$?
[[ $status == 3 ]] || fail "run -it: status $status: $out"
note 'a terminal in a pod of its own, seen at two sizes'

out=$(printf 'one\ntwo' | k run -i --rm --restart=Never --quiet join-pipe --image=busybox:1 -- sha256sum 2>&1) || fail "run -i: $out"
[[ $out == *"$(printf 'one\ntwo' | sha256sum)"* ]] || fail "run -i: $out"
note 'a pipe, and its end, reach a pod of its own'

k run join-listener --image=busybox:1 --restart=Never --stdin --leave-stdin-open --attach=false --command -- sh -c 'while read line; do echo "got $line"; done' > /dev/null
k wait pod/join-listener --for=condition=Ready --timeout=60s > /dev/null
heard() { local out; out=$(echo "$1" | timeout 3 "$SCENARIO_KUBECTL" attach -i join-listener 2> /dev/null) || true; [[ $out == *"got $1"* ]]; }
until_true 30 'the listener hears' heard first
until_true 30 'the listener hears another client' heard second
k delete pod join-listener --grace-period=1 > /dev/null
note 'clients come and go, the container stays'
