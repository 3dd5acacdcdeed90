#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# No job id is ever given twice, be it one that was seen and never saved: slurmctld and its companion are killed while the state cannot be saved, and an older state is put back. And a submission that is repeated with its key
# makes no second job: by clients that try again until they are answered, two at a time, while the controller is killed again and again.
# Proof that this test can fail: without the mark the id that was seen is given again, without keys the same clients make more jobs than they asked for.
#   slurm_ids_test.sh BUILD_DIR   (as root)     FAIRLEAD_FULL=1: 100 kills under clients with keys
set -euo pipefail
build=$(realpath "${1:?usage: slurm_ids_test.sh BUILD_DIR}")
# shellcheck source=tests/slurm_machine.sh
. "$(dirname "$0")/../slurm_machine.sh"
own_machine "$0" "$build"
kills=6
[ -z "${FAIRLEAD_FULL:-}" ] || kills=100
make_machine "$build"
submit() { inside timeout 15 sbatch -H --parsable -o /dev/null "$@"; }
highest_seen() { inside squeue -h -t all -r -o %A | sort -n | tail -n 1; }
mark() { sed -E 's/^fairlead-ids 1 next 0*([0-9]+) .*/\1/' "$state/fairlead-ids"; }
# From now on no save succeeds, so that nothing is confirmed, but jobs are seen.
no_saves() { until_true 10 'no save is under way' mkdir "$state/job_state.new"; }
saves() { rmdir "$state/job_state.new"; }
seen() { inside squeue -h -t all -o %j | grep -qx "$1"; }
# The whole head is lost: nobody is left to say what slurmctld came to.
lose_head() {
  kill -STOP "$controller"
  kill_controller
}
# slurmctld dies under its companion, which ends with it (it would be started anew in place had it lived for ten seconds).
lose_daemon() {
  pkill -KILL -P "$controller"
  wait "$controller" || true
}

# ---- ids that were seen and never saved
start_controller FAIRLEAD_DURABLE_LIMIT_MS=1500
last=$(submit --wrap true)
no_saves
submit -J unsaved --wrap true > /dev/null 2>&1 && fail 'a submission was confirmed that could not be saved'
submit -J unsaved-tasks -a 1-3 --wrap true > /dev/null 2>&1 && fail 'an array was confirmed that could not be saved'
until_true 10 'the job is seen' seen unsaved
seen=$(highest_seen)
((seen > last)) || fail "job $seen is not behind $last"
lose_head
saves
start_controller
next=$(submit --wrap true)
((next > seen)) || fail "job $seen was seen, and after a crash id $next is given"
((next - seen <= 1000)) || fail "the ids jump from $seen to $next"
ok "ids up to $seen were seen and never saved; after the loss of the head the next one is $next"

before=$next
lose_daemon
start_controller
next=$(submit --wrap true)
((next == before + 1)) || fail "slurmctld died in place and the ids jump from $before to $next"
no_saves
submit -J unsaved-in-place --wrap true > /dev/null 2>&1 &
until_true 10 'the job is seen' seen unsaved-in-place
seen=$(highest_seen)
lose_daemon
saves
start_controller
next=$(submit --wrap true)
((next == seen + 1)) || fail "job $seen was seen, slurmctld died in place, and then comes $next"
ok "slurmctld died and its companion did not: no id twice ($seen was seen, then came $next), and no gap"

stop_controller() { # in order
  kill "$controller"
  wait "$controller" || true
}
stop_controller
[ "$(mark)" = $((next + 1)) ] || fail "stopped in order after job $next, the mark is $(mark)"
start_controller
after=$(submit --wrap true)
((after == next + 1)) || fail "stopped in order, and the ids jump from $next to $after"
ok 'stopped in order: no gap'

# ---- an older state is put back
cp "$state/job_state" "$work/older"
for n in 1 2 3 4 5; do last=$(submit --wrap true); done
stop_controller
cp "$work/older" "$state/job_state"
rm -f "$state/job_state.old"
start_controller
next=$(submit --wrap true)
((next > last)) || fail "an older state was put back, and id $next is given again"
stop_controller
rm -f "$state"/job_state* "$state/fairlead-saved"
start_controller
last=$next
next=$(submit --wrap true)
((next > last)) || fail "the saved state is gone, and id $next is given again"
ok 'an older state, and no state at all: no id twice'

# ---- the range begins anew
sed -i '$a FirstJobId=100\nMaxJobId=1100' "$root/etc/slurm/slurm.conf"
stop_controller
rm -f "$state"/job_state* "$state/fairlead-ids" "$state/fairlead-saved"
start_controller
id=$(submit --wrap true)
((id == 100)) || fail "FirstJobId=100, and the first one is $id"
inside scancel -u root
for to in 590 1000 1098; do # less than half of the range at a time: what is farther ahead is behind
  stop_controller
  inside /opt/fairlead/bin/fairlead-slurm ids --at-least $to | grep -q "\"mark\":$to" || fail 'the mark was not raised'
  start_controller
  ((to == 1098)) || submit --wrap true > /dev/null
done
ids=()
for n in 1 2 3 4; do ids+=("$(submit --wrap true)"); done
[ "${ids[*]}" = '1098 1099 101 102' ] || fail "at the end of the range: ${ids[*]}"
lose_head
start_controller
next=$(submit --wrap true)
((next > ids[3] && next < 1000)) || fail "after the range began anew and a crash, ${ids[*]} is followed by $next"
ok "behind MaxJobId comes FirstJobId, crashes included (${ids[*]}, then $next)"
inside scancel -u root
stop_controller
sed -i '/^FirstJobId\|^MaxJobId/d' "$root/etc/slurm/slurm.conf"

# ---- a damaged mark is not passed over, and this test can fail
echo broken > "$state/fairlead-ids"
chroot "$root" /opt/fairlead/bin/fairlead-slurm controller > "$work/damaged.log" 2>&1 && fail 'slurmctld was started with a damaged mark'
grep -q 'fairlead-slurm ids --at-least' "$work/damaged.log" || fail 'what to do about a damaged mark is not said'
inside /opt/fairlead/bin/fairlead-slurm ids --at-least 5000 > /dev/null
start_controller FAIRLEAD_DURABLE_LIMIT_MS=1500
last=$(submit --wrap true)
((last >= 5000)) || fail "raised to 5000, and $last is given"
no_saves
submit -J again --wrap true > /dev/null 2>&1 || true
until_true 10 'the job is seen' seen again
seen=$(highest_seen)
lose_head
saves
rm "$state/fairlead-ids"
start_controller
next=$(submit --wrap true)
((next <= seen)) || fail 'without the mark nothing was given twice: this test proves nothing'
ok "a damaged mark is refused with the remedy; without a mark id $next is given again"

# ---- a key: one job, however often it is submitted
stop_controller
start_controller
inside scancel -u root
printf '#!/bin/sh\necho "$@"\n' > "$root/root/job.sh"
keyed() { local key=$1; shift; inside timeout 30 sbatch -H --parsable -o /dev/null --comment="submit-key=$key" "$@"; }
count_of() { inside squeue -h -t all -o %j | grep -cx "$1" || true; }
first=$(keyed k1 -J one /root/job.sh a)
[ "$(keyed k1 -J one /root/job.sh a)" = "$first" ] || fail 'the same submission with the same key has another id'
[ "$(keyed k2 -J one /root/job.sh a)" != "$first" ] || fail 'another key has the same id'
for other in '/root/job.sh b' '-a 1-3 /root/job.sh a'; do
  # shellcheck disable=SC2086 # words
  keyed k1 -J one $other > "$work/other" 2>&1 && fail "the same key, but $other: confirmed"
  grep -q "submit-key=k1 is that of job $first" "$work/other" || fail "the same key, but $other: $(cat "$work/other")"
done
keyed 'k$1' -J one /root/job.sh > "$work/other" 2>&1 && fail 'a key that is none was taken'
grep -q '1 to 128 letters' "$work/other" || fail "a key that is none: $(cat "$work/other")"
inside useradd -m someone
theirs=$(inside setpriv --reuid someone --regid someone --clear-groups sbatch -H --parsable -o /dev/null --chdir /tmp --comment=submit-key=k1 -J theirs --wrap 'true') || fail 'the same key of another user is refused'
[ "$theirs" != "$first" ] || fail 'the same key of another user is the same job'
array=$(keyed k3 -J array -a 1-4 --wrap true)
[ "$(keyed k3 -J array -a 1-4 --wrap true)" = "$array" ] || fail 'an array with the same key has another id'
het() { inside timeout 30 sbatch -H --parsable -o /dev/null --comment=submit-key=k4 -J het -n 1 : -n 1 /root/job.sh; }
together=$(het) || fail 'a heterogeneous job'
[ "$(het)" = "$together" ] || fail 'a heterogeneous job with the same key has another id'
keyed k5 -p nowhere -J refused --wrap true > /dev/null 2>&1 && fail 'a partition that is not there'
free=$(keyed k5 -J refused --wrap true) || fail 'a key whose submission was refused is not free'
[ "$(count_of one)" = 2 ] && [ "$(count_of het)" = 2 ] || fail "there are $(count_of one) and $(count_of het) jobs"
lose_head
head -c 700 /dev/zero >> "$state/fairlead-keys" # what a file system may show behind the last that was synced
start_controller
behind=$(keyed k6 -J behind --wrap true) # its line comes behind them
lose_head
start_controller
for again in "$behind:keyed k6 -J behind --wrap true" "$first:keyed k1 -J one /root/job.sh a" "$array:keyed k3 -J array -a 1-4 --wrap true" "$together:het" "$free:keyed k5 -J refused --wrap true"; do
  [ "$(${again#*:})" = "${again%%:*}" ] || fail "after a crash another id: $again"
done
ok 'a key is that of one job of its user, of arrays and heterogeneous jobs too, through a crash'
inside scancel -u root
inside scancel -u someone
until_true 30 'no job waits' nothing_in inside squeue -h

# Two at a time
for n in 1 2 3 4 5 6 7 8; do keyed both -J both --wrap true >> "$work/both" & pids[n]=$!; done
for n in 1 2 3 4 5 6 7 8; do wait "${pids[n]}" || fail 'one of eight with the same key was refused'; done
[ "$(sort -u "$work/both" | wc -l)" = 1 ] && [ "$(count_of both)" = 1 ] || fail "eight at once with the same key: $(sort -u "$work/both" | tr '\n' ' '), $(count_of both) jobs"
ok 'eight at once with the same key: one job'

# A state that cannot be saved: the answer is not sent, and with the key it is had later.
no_saves
keyed late -J late --wrap true > /dev/null 2>&1 && fail 'confirmed without being saved'
saves
late=$(inside /opt/fairlead/bin/fairlead-slurm submit --key late -H -o /dev/null -J late --wrap true) || fail 'the same submission again'
[ "$(count_of late)" = 1 ] || fail "$(count_of late) jobs for one key"
ok "an answer that was lost is had again: job $late"

# ---- clients that try until they are answered, while the controller is killed
clients=()
: > "$work/answered"
: > "$work/burst.run"
client() { # NAME KEY?
  local n=0 id
  while [ -e "$work/burst.run" ]; do
    n=$((n + 1))
    if [ "$2" = key ]; then id=$(inside /opt/fairlead/bin/fairlead-slurm submit --for 60 --key "$1-$n" -H -o /dev/null -J "$1-$n" --wrap true 2>> "$work/clients.log") || { echo "$1-$n refused" >> "$work/refused"; continue; }
    else until id=$(inside timeout 10 sbatch -H --parsable -o /dev/null -J "$1-$n" --wrap true 2> /dev/null); do read -rt 0.2 <> <(:) || true; done; fi
    echo "$1-$n $id" >> "$work/answered"
  done
}
burst_of() { # KEY? KILLS
  local n
  for n in 1 2 3 4 5 6; do client "$1-$n" "$1" & clients+=($!); done
  for ((n = 0; n < $2; ++n)); do
    read -rt 0.8 <> <(:) || true
    lose_head
    start_controller
  done
  rm "$work/burst.run"
  wait "${clients[@]}" || true
}
burst_of key "$kills"
[ ! -e "$work/refused" ] || fail "refused: $(head -n 3 "$work/refused") $(tail -n 5 "$work/clients.log")"
inside squeue -h -t all -o '%j %i' | grep '^key-' | sort > "$work/there"
sort "$work/answered" | diff - "$work/there" || fail 'what was answered and what is there differ'
answered=$(wc -l < "$work/answered")
((answered > kills)) || fail "only $answered submissions"
ok "$answered submissions with keys through $kills kills: one job each, under the id that was told"
clients=()
twice=0
for ((n = 0; n < 5 && twice == 0; ++n)); do # without keys a client that had no answer makes a second one
  : > "$work/burst.run"
  burst_of "plain$n" 4
  twice=$(inside squeue -h -t all -o %j | grep "^plain$n-" | sort | uniq -d | wc -l)
  clients=()
done
((twice > 0)) || fail 'without keys no client made a second job: this test proves nothing'
ok "without keys the same clients made $twice jobs more than they asked for"
