#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What a fault of the controller costs: our elected heads (docs/design/005) beside stock Slurm with its own backup mode, in one run, with the same faults, clients and method.
set -euo pipefail
usage() {
  cat << 'TEXT'
usage: slurm_failover.sh BUILD_DIR [--rounds N] [--faults "kill hang node cut burst"] [--slow N] [--ours FILE] [--json FILE]   (as root)

Ours: three heads and a witness, as tests/integration/slurm_failover_test.sh makes them. Stock: two SlurmctldHost with one StateSaveLocation, SlurmctldTimeout=4, anew for each round. Both: the same image, slurm.conf otherwise,
network namespaces, one slurmd with three running jobs, and a new sbatch each 0.1 s (a burst: seven), each with a limit of 6 s, from before the fault until after it.

  --rounds N     rounds of each fault, of each kind of controller (3)
  --faults LIST  kill: slurmctld is killed; hang: it is stopped; node: its whole machine is gone; cut: its link is gone, the storage is not; burst: node, in a burst of submissions
  --slow N       N rounds more of stock Slurm with SlurmctldTimeout=120, its default, for kill alone: one takes 150 s and more (0)
  --ours FILE    what a long run of tests/integration/slurm_failover_test.sh wrote as FAIRLEAD_TIMES, which may go on beside this one, instead of rounds of ours; all of its faults are in the table
  --json FILE    a line of JSON for each round, too

seconds: from the fault to the end of the longest time without a confirmation; a fault that stock Slurm has not survived in 60 s (SlurmctldTimeout=120: 300 s) is "never". Lost: jobs that were confirmed and are not there by their
unique name afterwards. Given twice: ids with two names. Ended: running jobs that do not run any more. Nothing starts a stock daemon again, as Slurm's own unit files do not.
TEXT
}
here=$(cd "$(dirname "$0")" && pwd)

# Within a round of its own: one fault of a fresh pair of stock daemons; a line "FAULT SECONDS CONFIRMED-BEFORE-IT LOST TWICE ENDED" to RESULT.
takes_over() { grep -q 'Running as primary controller' "$work/head-1.log"; }
tried_for() { # SECONDS COMMAND...
  local end=$((SECONDS + $1))
  until "${@:2}" > "$work/last.log" 2>&1; do
    ((SECONDS < end)) || return 1
    read -rt 0.05 <> <(:) || true
  done
}
stock_round() { # BUILD_DIR FAULT ROUND TIMEOUT LIMIT RESULT
  local fault=$2 round=$3 limit=$5 result=$6 old at from took=never
  stock=$4
  # shellcheck source=tests/slurm_heads.sh
  . "$here/../tests/slurm_heads.sh"
  make_machine "$1"
  make_heads "$1"
  start_running_jobs
  read -rt 6 <> <(:) || true # the running jobs are saved, which stock slurmctld does once in 5 s at most, and the standby has asked the other one
  begin_submitting "$fault" "$round"
  old=$(daemons_of 0)
  at=$EPOCHREALTIME from=$SECONDS
  begin_fault "$fault" 0
  if tried_for "$limit" takes_over && tried_for $((limit - SECONDS + from)) confirmed_after "$(awk -v t="$EPOCHREALTIME" 'BEGIN { printf "%.6f", t + 0.02 }')"; then took=$(longest_silence "$at"); fi
  # What never was taken over is healed, so that there is somebody to ask.
  case $fault in
    hang) signal_all CONT <<< "$old" ;;
    cut) ip link set h0 up ;;
  esac
  read -rt 0.7 <> <(:) || true
  end_submitting
  until_true 60 'somebody serves' timeout 5 chroot "$root" squeue -h
  count_losses
  echo "$fault $took $(confirmed_before "$at")$(losses)" >> "$result"
}
if [ "${1:-}" = --stock-round ]; then
  # shellcheck source=tests/slurm_machine.sh
  . "$here/../tests/slurm_machine.sh"
  own_machine "$here/$(basename "$0")" "$@"
  stock_round "${@:2}"
  exit
fi

build='' rounds=3 slow=0 json='' ours='' faults='kill hang node cut burst'
while (($#)); do
  case $1 in
    --help | -h) usage; exit ;;
    --rounds) rounds=${2:?--rounds N}; shift ;;
    --slow) slow=${2:?--slow N}; shift ;;
    --faults) faults=${2:?--faults LIST}; shift ;;
    --ours) ours=${2:?--ours FILE}; shift ;;
    --json) json=${2:?--json FILE}; shift ;;
    -*) usage >&2; exit 2 ;;
    *) build=$(realpath "$1") ;;
  esac
  shift
done
[ -n "$build" ] || { usage >&2; exit 2; }
((EUID == 0)) || { echo 'slurm_failover.sh: run it as root' >&2; exit 1; }

results=$(mktemp -d /var/tmp/fairlead-bench-XXXXXX)
while :; do cut -d' ' -f1 /proc/loadavg >> "$results/load"; read -rt 5 <> <(:) || true; done &
sampler=$!
clean_up() { kill "$sampler" 2> /dev/null || true; wait "$sampler" 2> /dev/null || true; rm -rf "$results"; }
trap clean_up EXIT
collect() { sed "s/^/$1 /" "$results/part" >> "$results/all"; rm -f "$results/part"; } # WHO
run_stock() { # TIMEOUT FAULT ROUND LIMIT
  "$BASH" "$here/$(basename "$0")" --stock-round "$build" "$2" "$3" "$1" "$4" "$results/part" > "$results/log" 2>&1 || { cat "$results/log" >&2; exit 1; }
  sed "s/^/stock-$1 /" "$results/part" >&2
  collect "stock-$1"
}

echo "machine: $(nproc) cores, $(awk '/MemTotal/ {printf "%.0f GiB", $2 / 1048576}' /proc/meminfo), $(uname -sr)"
echo "commit:  $(git -C "$here" rev-parse --short HEAD 2> /dev/null || echo unknown), $(date -u '+%Y-%m-%d %H:%M') UTC"
if [ -z "$ours" ]; then
  FAIRLEAD_ROUNDS=$rounds FAIRLEAD_FAULTS=$faults FAIRLEAD_TIMES=$results/part "$BASH" "$here/../tests/integration/slurm_failover_test.sh" "$build" >&2
  collect ours
fi
for fault in $faults; do for ((round = 1; round <= rounds; ++round)); do run_stock 4 "$fault" "$round" 60; done; done
for ((round = 1; round <= slow; ++round)); do run_stock 120 kill "$round" 300; done
if [ -n "$ours" ]; then
  cp "$ours" "$results/part"
  collect ours
fi
for fault in $(cut -d' ' -f2 "$results/all" | sort -u); do [[ " $faults " == *" $fault "* ]] || faults+=" $fault"; done
echo "load:    $(sort -n "$results/load" | awk '{ v[NR] = $1 } END { printf "%s to %s, median %s", v[1], v[NR], v[int((NR + 1) / 2)] }') (this benchmark's own included)"
echo

# One row for each fault: times in order, sums of the rest.
awk -v faults="$faults" -v json="$json" '
  function name(who) { return who == "ours" ? "elected heads" : "stock, SlurmctldTimeout=" substr(who, 7) }
  function limit(who) { return who == "stock-4" ? 60 : 300 }
  function shown(who, v) { return v >= 1e9 ? "never in " limit(who) " s" : sprintf("%.2f", v) }
  function row(who, fault,    k, i, j, v, t) {
    k = who SUBSEP fault
    if (!(k in n)) return
    for (i = 1; i <= n[k]; ++i) v[i] = times[k, i]
    for (i = 2; i <= n[k]; ++i) for (j = i; j > 1 && v[j - 1] > v[j]; --j) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
    printf "| %s | %s | %d | %s | %s | %s | %d | %d | %d | %d of %d |\n", fault, name(who), n[k], shown(who, v[int((n[k] + 1) / 2)]), shown(who, v[int(n[k] * 0.99 + 0.999)]), shown(who, v[n[k]]), confirmed[k], lost[k], twice[k], ended[k], 3 * n[k]
  }
  {
    k = $1 SUBSEP $2
    times[k, ++n[k]] = $3 == "never" ? 1e9 : $3
    confirmed[k] += $4; lost[k] += $5; twice[k] += $6; ended[k] += $7
    if (json != "") printf "{\"bench\":\"slurm_failover\",\"controller\":\"%s\",\"fault\":\"%s\",\"round\":%d,\"seconds\":%s,\"confirmed_before\":%d,\"lost\":%d,\"ids_twice\":%d,\"running_ended\":%d}\n", name($1), $2, n[k], $3 == "never" ? "null" : $3, $4, $5, $6, $7 > json
  }
  END {
    print "| fault | controller | rounds | median, s | 99 %, s | worst, s | confirmed before the fault | of these lost | ids given twice | running jobs ended |"
    print "|---|---|---|---|---|---|---|---|---|---|"
    count = split(faults, list, " ")
    for (f = 1; f <= count; ++f) { row("ours", list[f]); row("stock-4", list[f]); row("stock-120", list[f]) }
  }' "$results/all"
