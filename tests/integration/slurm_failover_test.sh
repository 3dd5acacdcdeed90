#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Three heads and a witness, and two and a witness, with the real slurmctld: whatever happens to the head that serves, another one does, what was confirmed is there under its id, no id is given twice, what runs runs on.
#   slurm_failover_test.sh BUILD_DIR   (as root)     FAIRLEAD_ROUNDS: of each kind (8, of three that are variants of others 3, with two heads 4)     FAIRLEAD_FAULTS: which, one after the other on one cluster (all, on several)
#   FAIRLEAD_FULL=1: 200 rounds of each (with two heads 100), on clusters of 50 rounds and one fault, four at once: an hour of two cores
#   FAIRLEAD_ACCOUNTING: with slurmdbd and its database beside the heads also where the fault is another
#   FAIRLEAD_TIMES: a file for a line "fault seconds confirmed-before-it lost twice ended both" of each round; both: confirmations that were asked of the head that served before, after another one had started its slurmctld; with two
#   heads the fault is "two-heads-FAULT"
set -euo pipefail
build=$(realpath "${1:?usage: slurm_failover_test.sh BUILD_DIR}")
# A round is mostly waiting: several clusters, each with machines of its own, fit into the time of one.
if [ -z "${FAIRLEAD_FAULTS:-}${FAIRLEAD_TEST_INSIDE:-}" ]; then
  declare -A running=()
  logs=$(mktemp -d /var/tmp/fairlead-failover-XXXXXX)
  clean_up() { local pid; for pid in "${!running[@]}"; do kill -KILL -- "-$pid" 2> /dev/null || true; done; rm -rf --one-file-system "$logs"; }
  trap clean_up EXIT
  clusters=() # HEADS ROUNDS FAULTS; no number of rounds: the sample
  if [ -z "${FAIRLEAD_FULL:-}" ]; then
    at_once=7 clusters=('3 - kill again planned freeze' '3 - hang island mute' '3 - cut node' '3 - burst two' '3 - database' '2 - kill node cut planned')
  else
    at_once=4
    for _ in 1 2 3 4; do
      for fault in kill again two hang cut island node burst database; do clusters+=("3 50 $fault"); done
      clusters+=('3 5 planned freeze mute' '2 25 kill' '2 25 node' '2 25 cut' '2 5 planned')
    done
  fi
  [ -z "${FAIRLEAD_TIMES:-}" ] || : > "$FAIRLEAD_TIMES"
  status=0
  await_one() {
    local pid code=0 log
    wait -n -p pid "${!running[@]}" || code=$?
    log=${running[$pid]}
    unset "running[$pid]"
    cat "$log"
    [ -z "${FAIRLEAD_TIMES:-}" ] || sed "s/^/${log##*/}/; s/^3-[0-9]*//; s/^2-[0-9]*/two-heads-/" "$log.times" >> "$FAIRLEAD_TIMES"
    [ "$code" = 0 ] || status=$code
  }
  for i in "${!clusters[@]}"; do
    read -r heads rounds faults <<< "${clusters[i]}"
    log=$logs/$heads-$i
    : > "$log.times"
    [ "$rounds" = - ] && rounds=${FAIRLEAD_ROUNDS:-}
    FAIRLEAD_HEAD_COUNT=$heads FAIRLEAD_ROUNDS=$rounds FAIRLEAD_FAULTS=$faults FAIRLEAD_TIMES=$log.times FAIRLEAD_MACHINES=$logs setsid bash "$0" "$build" > "$log" 2>&1 &
    running[$!]=$log
    ((${#running[@]} < at_once)) || await_one
  done
  while ((${#running[@]} > 0)); do await_one; done
  exit "$status"
fi
# shellcheck source=tests/slurm_machine.sh
. "$(dirname "$0")/../slurm_machine.sh"
own_machine "$0" "$build"
# shellcheck source=tests/slurm_heads.sh
. "$(dirname "$0")/../slurm_heads.sh"
rounds_of() { # KIND
  local sample=8
  [ "$heads" = 3 ] || sample=4
  [[ " freeze mute planned " != *" $1 "* ]] || sample=3
  echo "${FAIRLEAD_ROUNDS:-$sample}"
}
read -ra faults <<< "${FAIRLEAD_FAULTS:-kill again two hang freeze mute cut island node burst planned database}"
times=${FAIRLEAD_TIMES:-$work/times}

make_machine "$build"
accounting=''
if [[ -n ${FAIRLEAD_ACCOUNTING:-} || " ${faults[*]} " == *' database '* ]]; then
  # shellcheck source=tests/slurm_database.sh
  . "$(dirname "$0")/../slurm_database.sh"
  accounting=yes
  prepare_database "$build"
  start_accounting
fi
make_heads "$build"
until_true 60 'a head serves' active
start_running_jobs
ok "$heads heads and a witness: head $(active) serves"

# A client that knows nothing but the head that served: what that one still confirms must be there as well.
submit_to() { # HEAD NAME
  local n=0 began conf=/etc/slurm/only-$1.conf
  sed "s/^SlurmctldHost=.*/SlurmctldHost=ctl(10.99.0.$((11 + $1)))/" "$root/etc/slurm/slurm.conf" > "$root$conf"
  while [ -e "$work/submitting" ]; do
    n=$((n + 1))
    (
      began=$EPOCHREALTIME
      id=$(SLURM_CONF=$conf timeout 6 chroot "$root" sbatch -H --parsable -o /dev/null -J "$2-n$n" --wrap true 2> /dev/null) || exit 0
      echo "0 $2-n$n $id" >> "$work/confirmed"
      echo "$began" >> "$work/asked-old"
    ) &
    read -rt 0.1 <> <(:) || true
  done
  wait
}

check() { # WHAT
  local i count=0
  [ -z "$gone" ] || fail "$1: confirmed and gone: $gone"
  [ -z "$twice" ] || fail "$1: ids were given out twice: $twice"
  [ -z "$ended" ] || fail "$1: jobs that do not run any more: $ended"
  for ((i = 0; i < heads; ++i)); do [ -z "$(daemons_of "$i")" ] || count=$((count + 1)); done
  [ "$count" = 1 ] || fail "$1: $count heads have a slurmctld"
  [ "$both" = 0 ] || fail "$1: $both submissions were confirmed by the head of before when another one had begun"
}
# The last term that the shared storage knows: one more for each head that begins; a slurmctld that is started again in place stays in its own.
term() { find "$shared/terms" -mindepth 1 -maxdepth 1 -name '[0-9]*' -printf '%f\n' | sort -n | tail -n 1; }
term_after() { (($(term) > $1)) && active; } # TERM: who serves in a later one
forget() {
  inside squeue -h -t pending -o %i | xargs -r chroot "$root" scancel
  total=$((total + $(wc -l < "$work/confirmed")))
  cut -d' ' -f2- "$work/confirmed" >> "$work/ever"
  : > "$work/confirmed"
}
total=0
serves() { timeout 5 chroot "$root" scontrol ping | grep -q 'is UP'; }
all_vote() { local i; for ((i = 0; i < heads; ++i)); do in_head "$i" /opt/fairlead/bin/fairlead-slurm status 2> /dev/null | grep -q . || return 1; done; }

# Of each job that was confirmed in this round, and of those that run, sacct has one record, as it was called and ended.
accounted() {
  { awk '{ print $3 "|" $2 "|CANCELLED" }' "$work/round"; printf '%s|running|RUNNING\n' "${running[@]}"; } | sort > "$work/expected"
  inside sacct -a -X -D -n -P -o jobid,jobname,state -j "$(cut -d'|' -f1 "$work/expected" | paste -sd,)" | sed -E 's/(CANCELLED) by.*/\1/; s/\|running-[123]\|/|running|/' | sort > "$work/recorded"
  diff "$work/expected" "$work/recorded"
}

all_daemons() { local i; for ((i = 0; i < heads; ++i)); do daemons_of "$i"; done; }
other_daemon() { local pid; for pid in $(all_daemons); do [[ " ${1//$'\n'/ } " == *" $pid "* ]] || return 0; done; return 1; }

begin_test_fault() { # KIND HEAD
  case $1 in
    again) # at once the next one, wherever it is started (in place, as a rule)
      daemons_of "$2" | signal_all KILL
      until_true 5 'a new slurmctld' grep_in . all_daemons
      all_daemons | signal_all KILL ;;
    two) # two heads in a row: slurmctld and companion of the one that serves, then of the one that serves after it. Times are from the second.
      local before second
      before=$(term)
      { companion_of "$2"; daemons_of "$2"; } | signal_all KILL
      until_true 30 'a head serves in a new term' term_after "$before"
      second=$(cat "$work/last.log")
      before=$(term)
      old+=$'\n'$(daemons_of "$second")
      at=$EPOCHREALTIME
      { companion_of "$second"; daemons_of "$second"; } | signal_all KILL
      until_true 30 'and another one after it' term_after "$before" ;;
    freeze) { companion_of "$2"; daemons_of "$2"; } | signal_all STOP ;;
    mute) companion_of "$2" | signal_all STOP ;;
    island)
      ip link set "h$2" down
      nsenter -t "${init[$2]}" -m mount -t tmpfs -o ro nothing "$work/head-$2/var/spool/slurmctld" ;;
    database) # slurmdbd and its database are gone, and two heads in a row: others begin without them
      kill_accounting
      begin_test_fault two "$2" ;;
    planned) in_head "$2" /opt/fairlead/bin/fairlead-slurm step-down > "$work/last.log" ;;
    *) begin_fault "$@" ;;
  esac
}
end_fault() { # KIND HEAD PIDS
  case $1 in
    hang | freeze | mute) signal_all CONT <<< "$3" ;;
    cut) ip link set "h$2" up ;;
    island)
      nsenter -t "${init[$2]}" -m umount "$work/head-$2/var/spool/slurmctld"
      ip link set "h$2" up ;;
    database) start_accounting ;;
    node | burst)
      wait "${head_job[$2]}" 2> /dev/null || true
      start_head "$2" ;;
  esac
}

: > "$times"
for fault in "${faults[@]}"; do
  rounds=$(rounds_of "$fault")
  for ((round = 1; round <= rounds; ++round)); do
    until_true 30 "$fault $round: a head serves" active
    until_true 30 "$fault $round: all heads vote" all_vote
    until_true 10 "$fault $round: slurmctld answers" serves
    read -rt 1.2 <> <(:) || true # voters that are new are silent for a second
    head=$(active) || fail "$fault $round: nobody serves"
    begin_submitting "$fault" "$round"
    old=$(daemons_of "$head")
    pids=$old$'\n'$(companion_of "$head")
    : > "$work/asked-old"
    submit_to "$head" "old-$fault-$round" &
    old_client=$!
    at=$EPOCHREALTIME
    begin_test_fault "$fault" "$head"
    until_true 30 "$fault $round: another slurmctld" other_daemon "$old"
    begun=$EPOCHREALTIME
    again_here=$(daemons_of "$head" | sort | comm -13 <(sort <<< "$old") -) # started again in place: it may confirm
    until_true 30 "$fault $round: a submission is confirmed by it" confirmed_after "$(awk -v t="$EPOCHREALTIME" 'BEGIN { printf "%.6f", t + 0.02 }')"
    took=$(longest_silence "$at")
    case $fault in mute | cut | island) read -rt 1 <> <(:) || true ;; esac # long enough for two that serve to harm one another
    end_fault "$fault" "$head" "$pids"
    read -rt 0.7 <> <(:) || true
    end_submitting
    wait "$old_client" || true
    until_true 20 "$fault $round: one slurmctld" serves
    until_true 5 "$fault $round: the other one is gone" bash -c "[ \$(pgrep -xc slurmctld) -le 2 ]"
    count_losses
    both=0
    [ -n "$again_here" ] || [ "$(active)" = "$head" ] || both=$(awk -v t="$begun" '$1 > t { ++n } END { print n + 0 }' "$work/asked-old")
    echo "$fault $took $(confirmed_before "$at")$(losses) $both" >> "$times"
    check "$fault $round"
    cp "$work/confirmed" "$work/round"
    forget
    [ -z "$accounting" ] || until_true 60 "$fault $round: a record of each job, once" accounted
  done
  summary=$(awk -v f="$fault" '$1 == f { print $2 }' "$times" | sort -n | awk '{ v[NR] = $1 } END { printf "n=%d p50=%.2f s p99=%.2f s worst=%.2f s", NR, v[int((NR + 1) / 2)], v[int(NR * 0.99 + 0.999)], v[NR] }')
  ok "$fault: $summary; $total confirmed so far, none lost, no id twice, 3 jobs run on"
done
