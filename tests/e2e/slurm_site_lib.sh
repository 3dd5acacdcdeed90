#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# For scripts that try a Slurm cluster on a site of local machines with the real programs; to be sourced, with `set -euo pipefail` in force and $build, the folder with the built programs. Runs the script again in a network
# and with mounts of its own: what another site, or a killed run, left on this machine is not in the way. There it has the folder $work and an empty site in it with the image of Slurm, which `run` speaks to; both go however
# the script ends. Of a failure $told_pods (names) are told beside the status. $slurm_images (names, only slurm): the images that it needs.

# shellcheck disable=SC2154
# (of the variables, $build comes from the script)
fairlead=$(realpath "$build/bin/fairlead")
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
if [ -z "${FAIRLEAD_TEST_INSIDE:-}" ]; then
  for image in "${slurm_images[@]:-slurm}"; do
    out=$("$top/images/build.sh" "$top/images/$image" /var/lib/fairlead/images 2>&1) || { printf '%s\n' "$out" "FAIL: image $image was not built" >&2; exit 1; }
  done
  export FAIRLEAD_TEST_INSIDE=1
  exec unshare --net --mount --propagation private bash "$0" "$build"
fi
ip link set lo up
work=$(mktemp -d "/var/tmp/fairlead-$(basename "$0" .sh | tr _ -)-XXXXXX")
export FAIRLEAD_STATE_DIR=$work/site NO_COLOR=1
told_pods=(controller-0 worker-0 worker-1 login-0)

run() { "$fairlead" "$@"; }
passed=0
started=$EPOCHREALTIME
since() { awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }'; }
note() { passed=$((passed + 1)); printf '%6.1f s  ok %s\n' "$(since "$started")" "$*"; }
fail() {
  local pod
  echo "FAIL: $*" >&2
  run status >&2 || true
  run get slurmclusters -n demo demo -o yaml | sed -n '/^status/,$p' >&2 || true
  tail -n 20 "$FAIRLEAD_STATE_DIR/run/server.log" >&2 || true
  for pod in "${told_pods[@]}"; do run logs -n demo "$pod" --all-containers --prefix --tail 15 >&2 || true; done
  [ -z "${FAIRLEAD_TEST_STOP:-}" ] || read -r -p "stopped: $FAIRLEAD_STATE_DIR " < /dev/tty
  exit 1
}
clean_up() {
  local status=$?
  trap - EXIT
  run down --yes --purge > "$work/down.log" 2>&1 || { cat "$work/down.log" >&2; status=1; }
  rm -rf --one-file-system "$work"
  exit "$status"
}
trap clean_up EXIT
# until_true SECONDS WHAT COMMAND...: tries a condition until it holds; every try asks anew. What the last one printed is in $work/last.
until_true() {
  local limit=$1 what=$2 end
  shift 2
  end=$((SECONDS + limit * ${FAIRLEAD_PATIENCE:-2}))
  until "$@" > "$work/last" 2>&1; do
    ((SECONDS < end)) || { cat "$work/last" >&2; fail "not within $limit s: $what"; }
    read -rt 0.2 <> <(:) || true
  done
}
login() { run exec -n demo login-0 -- "$@"; }
worker() { local name=$1; shift; run exec -n demo "$name" -c slurmd -- "$@"; }
# expect WHAT TEXT COMMAND...: it prints that.
expect() {
  local what=$1 text=$2 out
  shift 2
  out=$("$@" 2>&1 | grep -vE '^srun: job [0-9]+ (queued and waiting for resources|has been allocated resources)' || true) # said where the job before has not quite gone
  [[ $out == *"$text"* ]] || fail "$what: wanted \"$text\", got: $out"
  note "$what"
}
# The image is cached in the default store; a folder of hard links spares a second build.
mkdir -p "$FAIRLEAD_STATE_DIR/images"
for image in "${slurm_images[@]:-slurm}"; do cp -al "/var/lib/fairlead/images/$image" "$FAIRLEAD_STATE_DIR/images/"; done
# shellcheck source=tests/e2e/slim_image.sh
. "$top/tests/e2e/slim_image.sh"
