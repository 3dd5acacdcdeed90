# SPDX-License-Identifier: Apache-2.0
# Sourced by each scenario.
set -euo pipefail
: "${KUBECONFIG:?}" "${SCENARIO_KUBECTL:?}" "${SCENARIO_SITE:?}" "${SCENARIO_WORK:?}"
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
scenario_began=$EPOCHREALTIME
k() { "$SCENARIO_KUBECTL" "$@"; }
kd() { k -n demo "$@"; }
note() { printf '%7.1f s  ok %s\n' "$(awk -v a="$scenario_began" -v b="$EPOCHREALTIME" 'BEGIN { print b - a }')" "$*"; }
fail() {
  echo "FAIL: $*" >&2
  exit 1
}
pause() { read -rt "$1" <> <(:) || true; }
until_true() { # SECONDS WHAT COMMAND...
  local limit=$1 what=$2 end
  shift 2
  end=$((SECONDS + limit))
  until "$@" > "$SCENARIO_WORK/last" 2>&1; do
    ((SECONDS < end)) || fail "not within $limit s: $what ($(tail -n 3 "$SCENARIO_WORK/last" | tr '\n' ' '))"
    pause 1
  done
}
# A command on the login node. The kubelet's connection may be young: what could not be carried there is asked again, what ran and failed is not.
login() { kd exec login-0 -c sshd -- "$@"; }
says() { # TEXT COMMAND...: the output has the text
  local text=$1 out
  shift
  out=$("$@" 2>&1) && [[ $out == *"$text"* ]] || { echo "wanted \"$text\", got: $out"; return 1; }
}
same() { # TEXT COMMAND...: the output is the text
  local text=$1 out
  shift
  out=$("$@" 2> /dev/null) && [[ $out == "$text" ]] || { echo "wanted \"$text\", got: $out"; return 1; }
}
is_empty() { # COMMAND...: it succeeds and prints nothing
  local out
  out=$("$@" 2>&1) && [[ -z $out ]] || { echo "left: $out"; return 1; }
}
idle_workers() { login sinfo -h -N -o '%N %t' | awk '$2 == "idle" { n++ } END { print n + 0 }'; }
job_state() { login scontrol show job "$1" | sed -nE 's/.*JobState=([A-Z_]+).*/\1/p' | head -n 1; }
losses() { sed -nE 's/.*step +[0-9]+\/[0-9]+ +loss ([0-9.]+).*/\1/p' "$1"; }
