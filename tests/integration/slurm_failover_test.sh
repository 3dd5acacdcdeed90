#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Three heads and a witness with the real slurmctld: whatever happens to the head that serves, another one does, what was confirmed is there under its id, no id is given twice, what runs runs on.
#   slurm_failover_test.sh BUILD_DIR   (as root)     FAIRLEAD_ROUNDS: of each kind (2; with FAIRLEAD_FULL=1 200)     FAIRLEAD_FAULTS: which (all)     FAIRLEAD_TIMES: a file for the times
set -euo pipefail
build=$(realpath "${1:?usage: slurm_failover_test.sh BUILD_DIR}")
# shellcheck source=tests/slurm_machine.sh
. "$(dirname "$0")/../slurm_machine.sh"
own_machine "$0" "$build"
# shellcheck source=tests/slurm_heads.sh
. "$(dirname "$0")/../slurm_heads.sh"
rounds=${FAIRLEAD_ROUNDS:-2}
[ -z "${FAIRLEAD_FULL:-}" ] || rounds=${FAIRLEAD_ROUNDS:-200}
read -ra faults <<< "${FAIRLEAD_FAULTS:-kill again hang freeze mute cut island node burst planned}"
times=${FAIRLEAD_TIMES:-$work/times}

make_machine "$build"
make_heads "$build"
until_true 60 'a head serves' active
inside slurmd -D > "$work/slurmd.log" 2>&1 &
until_true 60 'the node is there' grep_in '^idle$' timeout 5 chroot "$root" sinfo -h -o %T
running=()
for n in 1 2 3; do running+=("$(inside sbatch --parsable -o /dev/null -n 1 -J "running-$n" --wrap 'sleep 100000')"); done
until_true 30 'the jobs run' grep_in '^3$' bash -c "chroot '$root' squeue -h -t running | wc -l"
ok "$heads heads and a witness: head $(active) serves"

# A new client each tenth of a second, each with six seconds: what is confirmed is a line "time name id".
: > "$work/confirmed"
: > "$work/ever"
submit_for_ever() {
  local n=0
  while [ -e "$work/submitting" ]; do
    n=$((n + 1))
    ( id=$(timeout 6 chroot "$root" sbatch -H --parsable -o /dev/null -J "$1-n$n" --wrap true 2> /dev/null) && echo "$EPOCHREALTIME $1-n$n $id" >> "$work/confirmed" ) &
    read -rt 0.1 <> <(:) || true
  done
  wait
}
begin_submitting() { : > "$work/submitting"; submit_for_ever "$1" & submitter=$!; }
end_submitting() { rm -f "$work/submitting"; wait "$submitter" || true; }
confirmed_after() { awk -v t="$1" '$1 > t { print $1; exit }' <(sort -n "$work/confirmed") | grep .; }

check() { # WHAT
  local gone twice i count=0
  chroot "$root" squeue -h -t all -o '%j %i' | sort > "$work/there"
  gone=$(cut -d' ' -f2- "$work/confirmed" | sort | comm -23 - "$work/there")
  [ -z "$gone" ] || fail "$1: confirmed and gone: $gone"
  twice=$(cut -d' ' -f3 "$work/confirmed" | sort - "$work/ever" | uniq -d)
  [ -z "$twice" ] || fail "$1: ids were given out twice: $twice"
  for id in "${running[@]}"; do [ "$(chroot "$root" squeue -h -j "$id" -o %T)" = RUNNING ] || fail "$1: job $id does not run any more"; done
  for ((i = 0; i < heads; ++i)); do [ -z "$(daemons_of "$i")" ] || count=$((count + 1)); done
  [ "$count" = 1 ] || fail "$1: $count heads have a slurmctld"
}
forget() {
  inside squeue -h -t pending -o %i | xargs -r chroot "$root" scancel
  total=$((total + $(wc -l < "$work/confirmed")))
  cut -d' ' -f3 "$work/confirmed" >> "$work/ever"
  : > "$work/confirmed"
}
total=0
serves() { timeout 5 chroot "$root" scontrol ping | grep -q 'is UP'; }
all_vote() { local i; for ((i = 0; i < heads; ++i)); do in_head "$i" /opt/fairlead/bin/fairlead-slurm status 2> /dev/null | grep -q . || return 1; done; }

all_daemons() { local i; for ((i = 0; i < heads; ++i)); do daemons_of "$i"; done; }
other_daemon() { local pid; for pid in $(all_daemons); do [[ " ${1//$'\n'/ } " == *" $pid "* ]] || return 0; done; return 1; }

begin_fault() { # KIND HEAD
  local pid
  case $1 in
    kill) daemons_of "$2" | signal_all KILL ;;
    again) # at once the next one, wherever it is started: another head takes over
      daemons_of "$2" | signal_all KILL
      until_true 5 'a new slurmctld' grep_in . all_daemons
      all_daemons | signal_all KILL ;;
    hang) daemons_of "$2" | signal_all STOP ;;
    freeze) { companion_of "$2"; daemons_of "$2"; } | signal_all STOP ;;
    mute) companion_of "$2" | signal_all STOP ;;
    cut) ip link set "h$2" down ;;
    island)
      ip link set "h$2" down
      nsenter -t "${init[$2]}" -m mount -t tmpfs -o ro nothing "$work/head-$2/var/spool/slurmctld" ;;
    node | burst) kill -KILL "${init[$2]}" ;;
    planned) in_head "$2" /opt/fairlead/bin/fairlead-slurm step-down > "$work/last.log" ;;
  esac
}
end_fault() { # KIND HEAD PIDS
  case $1 in
    hang | freeze | mute) signal_all CONT <<< "$3" ;;
    cut) ip link set "h$2" up ;;
    island)
      nsenter -t "${init[$2]}" -m umount "$work/head-$2/var/spool/slurmctld"
      ip link set "h$2" up ;;
    node | burst)
      wait "${head_job[$2]}" 2> /dev/null || true
      start_head "$2" ;;
  esac
}

: > "$times"
for fault in "${faults[@]}"; do
  for ((round = 1; round <= rounds; ++round)); do
    until_true 30 "$fault $round: a head serves" active
    until_true 30 "$fault $round: all heads vote" all_vote
    until_true 10 "$fault $round: slurmctld answers" serves
    read -rt 1.2 <> <(:) || true # voters that are new are silent for a second
    head=$(active) || fail "$fault $round: nobody serves"
    begin_submitting "$fault-$round"
    clients=()
    if [ "$fault" = burst ]; then for n in 1 2 3 4 5 6; do submit_for_ever "$fault-$round-$n" & clients+=($!); done; fi
    until_true 10 'a submission' grep_in . cat "$work/confirmed"
    old=$(daemons_of "$head")
    pids=$old$'\n'$(companion_of "$head")
    at=$EPOCHREALTIME
    begin_fault "$fault" "$head"
    until_true 30 "$fault $round: another slurmctld" other_daemon "$old"
    until_true 30 "$fault $round: a submission is confirmed by it" confirmed_after "$(awk -v t="$EPOCHREALTIME" 'BEGIN { printf "%.6f", t + 0.02 }')"
    # From the fault to the end of the longest time without a confirmation.
    took=$(sort -n "$work/confirmed" | awk -v t="$at" '{ if ($1 > t) { gap = $1 - (last > t ? last : t); if (gap > worst) { worst = gap; end = $1 } } last = $1 } END { printf "%.3f", end - t }')
    end_fault "$fault" "$head" "$pids"
    read -rt 0.7 <> <(:) || true
    end_submitting
    [ ${#clients[@]} = 0 ] || wait "${clients[@]}" || true
    until_true 20 "$fault $round: one slurmctld" serves
    until_true 5 "$fault $round: the other one is gone" bash -c "[ \$(pgrep -xc slurmctld) -le 2 ]"
    check "$fault $round"
    echo "$fault $took" >> "$times"
    forget
  done
  summary=$(awk -v f="$fault" '$1 == f { print $2 }' "$times" | sort -n | awk '{ v[NR] = $1 } END { printf "n=%d p50=%.2f s p99=%.2f s worst=%.2f s", NR, v[int((NR + 1) / 2)], v[int(NR * 0.99 + 0.999)], v[NR] }')
  ok "$fault: $summary; $total confirmed so far, none lost, no id twice, 3 jobs run on"
done
