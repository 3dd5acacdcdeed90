#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A root key in a TPM (swtpm, by the example that comes with the package): the state folder opens with this TPM, and with no other.
#   root_key_test.sh BUILD_DIR
set -euo pipefail
build=$(realpath "${1:?usage: root_key_test.sh BUILD_DIR}")
cd "$(dirname "$0")/../.."
# shellcheck source=tests/lib.sh
. tests/lib.sh
for program in swtpm tpm2_unseal; do command -v "$program" > /dev/null || { echo "skipped: $program is not installed (swtpm, tpm2-tools)"; exit 77; }; done

tpm() { # NAME: a TPM with its own seeds
  mkdir -p "$work/$1"
  start "$1.log" swtpm socket --tpm2 --tpmstate "dir=$work/$1" --server "type=unixio,path=$work/$1/socket" --ctrl "type=unixio,path=$work/$1/socket.ctrl" --flags startup-clear
  tpms[$1]=$last
  wait_until 10 "$1 answers" test -S "$work/$1/socket"
  export TPM2TOOLS_TCTI=swtpm:path=$work/$1/socket
}
declare -A tpms=()
install -m 755 examples/root-key/tpm2 "$work/holder"
fairlead() { "$build/bin/fairlead" "$@" --state-dir "$work/state"; }
word() { fairlead get secret mine -o json | python3 -c 'import base64, json, sys; print(base64.b64decode(json.load(sys.stdin)["data"]["word"]).decode())'; }
refused() { # WHAT TEXT OPTION...
  local what=$1 text=$2 status=0
  shift 2
  "$build/bin/fairlead-server" --state-dir "$work/state" --listen 127.0.0.1:0 "$@" < /dev/null > "$work/out" 2>&1 || status=$?
  [ "$status" != 0 ] && grep -qF -- "$text" "$work/out" || fail "$what: status $status, without \"$text\""
  echo "ok    $what"
}

serve --aws-listen off
fairlead apply -f - > /dev/null <<< '{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "mine"}, "stringData": {"word": "open-sesame"}}'
stop_server || fail 'the server did not end well'

tpm ours
serve --aws-listen off --root-key-command "$work/holder"
[ "$(word)" = open-sesame ] || fail 'the Secret of before is lost'
for key in secrets ca tokens; do head -c 21 "$work/state/pki/$key.key" | grep -q 'fairlead sealed key 1' || fail "$key.key is open"; done
! grep -q PRIVATE "$work/state/pki/ca.key" || fail 'the key of the authority is open'
echo 'ok    a site comes under a TPM with all that it has'
kill -9 "$server"
wait "$server" 2> /dev/null || true
server=''
serve --aws-listen off --root-key-command "$work/holder"
[ "$(word)" = open-sesame ] || fail 'the Secret is lost after kill -9'
stop_server || fail 'the server did not end well'
echo 'ok    and starts with it after kill -9'

refused 'without its TPM' 'say by --root-key-command' --aws-listen off
stop "${tpms[ours]}" || true
refused 'with a TPM that does not answer' 'root key:' --aws-listen off --root-key-command "$work/holder"
tpm theirs
refused 'with the TPM of another machine' 'root key:' --aws-listen off --root-key-command "$work/holder"
stop "${tpms[theirs]}" || true

rm -f "$work/ours/socket" "$work/ours/socket.ctrl"
tpm ours
mv "$work/holder" "$work/holder-of-before"
printf '#!/bin/sh\ncase $1 in wrap) rev ;; unwrap) rev ;; esac\n' > "$work/holder"
chmod 755 "$work/holder"
serve --aws-listen off --root-key-command "$work/holder" --old-root-key-command "$work/holder-of-before"
stop_server || fail 'the server did not end well'
stop "${tpms[ours]}" || true
serve --aws-listen off --root-key-command "$work/holder"
[ "$(word)" = open-sesame ] || fail 'the Secret is lost with another holder'
echo 'ok    another holder takes the place of the TPM, which is not needed any more'
