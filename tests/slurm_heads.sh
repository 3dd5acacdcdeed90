#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Several heads with the real munged and slurmctld under our companion, each in namespaces of its own, and beside them the machine of tests/slurm_machine.sh as client, worker and witness. To be sourced after
# tests/slurm_machine.sh and `own_machine`. All heads share $shared; 10.99.0.10 is the one address of whoever serves: the script that a companion tells of its role moves it, as a cloud's or a cluster's network would.
# shellcheck disable=SC2154 # $work and $root are of tests/slurm_machine.sh
# With $accounting set before, they keep records in what tests/slurm_database.sh makes. With $stock set before, they are two heads of stock Slurm with its own backup mode instead: plain slurmctld, no companion but the one
# of munged, $stock seconds of SlurmctldTimeout, and the ordinary list of both in slurm.conf.
stock=${stock:-}
heads=${stock:+2}
heads=${heads:-${FAIRLEAD_HEAD_COUNT:-3}}
shared=$work/shared
declare -A init=()     # head -> first process of its namespaces
declare -A head_job=() # head -> our child

make_heads() { # BUILD_DIR
  local i
  ip link add br0 type bridge
  ip addr add 10.99.0.1/24 dev br0
  ip link set br0 up
  echo 1 > /proc/sys/net/ipv4/ip_forward
  mkdir -p "$shared" "$work/fabric"
  chmod 755 "$work" "$shared"
  mkfifo "$work/fabric/events"
  head -c 32 /dev/urandom > "$work/quorum.key"
  chmod 600 "$work/quorum.key"
  cp "$root/etc/slurm/slurm.conf" "$work/slurm.conf"
  if [ -n "$stock" ]; then
    sed -i -e "s/^SlurmctldHost=.*/SlurmctldHost=h0(10.99.0.11)\nSlurmctldHost=h1(10.99.0.12)\nSlurmctldTimeout=$stock/" "$work/slurm.conf"
  else
    sed -i -e 's/^SlurmctldHost=.*/SlurmctldHost=ctl(10.99.0.10)/' -e 's,^StateSaveLocation=.*,StateSaveLocation=/run/slurm/state,' "$work/slurm.conf"
  fi
  sed -i 's/^ClusterName=.*/ClusterName=heads/' "$work/slurm.conf"
  sed -i 's/^NodeName=.*/NodeName=head NodeAddr=10.99.0.1 CPUs=64 State=UNKNOWN/' "$work/slurm.conf"
  echo 'MinJobAge=86400' >> "$work/slurm.conf"
  if [ -n "${accounting:-}" ]; then
    sed -i '/^AccountingStorage/d' "$work/slurm.conf"
    accounting_lines >> "$work/slurm.conf"
  fi
  cp "$work/slurm.conf" "$root/etc/slurm/slurm.conf"
  if [ -z "$stock" ]; then make_quorum "$1"; fi
  for ((i = 0; i < heads; ++i)); do
    start_head "$i"
    [ -z "$stock" ] || until_true 30 "head $i answers" grep_in "at h$i is UP" timeout 5 chroot "$root" scontrol ping # the first one serves, the second one stands by
  done
}
make_quorum() { # BUILD_DIR
  cat > "$work/address" << 'TEXT'
#!/bin/sh
# take|drop TERM
echo "$1 $FAIRLEAD_VOTER $2" > /run/fabric/events
i=0
while [ ! -e "/run/fabric/done-$1-$FAIRLEAD_VOTER-$2" ] && [ $i -lt 40 ]; do sleep 0.01; i=$((i + 1)); done
TEXT
  chmod 755 "$work/address"
  move_address &
  voters_of() { local list='' n; for ((n = 0; n < heads; ++n)); do list+="10.99.0.$((11 + n)):6821,"; done; echo "${list%,}"; }
  quorum=(FAIRLEAD_SLURM_CLUSTER=heads "FAIRLEAD_HEADS=$(voters_of)" FAIRLEAD_WITNESSES=10.99.0.1:6821)
  env "${quorum[@]}" FAIRLEAD_VOTER="$heads" FAIRLEAD_QUORUM_KEY="$work/quorum.key" "$1/bin/fairlead-slurm" witness > "$work/witness.log" 2>&1 &
}
# What a cluster's network does: a take is a route to that head.
move_address() {
  local what head term
  while read -r what head term; do
    if [ "$what" = take ]; then
      nsenter -t "$(cat "$work/init-$head")" -n ip addr replace 10.99.0.10/32 dev lo 2> /dev/null || true
      ip route replace 10.99.0.10/32 via "10.99.0.$((11 + head))" 2> /dev/null || true
      ip neigh flush dev br0 2> /dev/null || true
    else
      nsenter -t "$(cat "$work/init-$head")" -n ip addr del 10.99.0.10/32 dev lo 2> /dev/null || true
    fi
    : > "$work/fabric/done-$what-$head-$term"
  done <> "$work/fabric/events"
}

# A machine: its first process makes the container's root and starts the companions anew when they end, as an agent does.
start_head() { # NUMBER
  local i=$1 image=/var/lib/fairlead/images/slurm
  cat > "$work/head-$i.sh" << TEXT
set -eu
r=$work/head-$i
mkdir -p "\$r" "$work/over-$i"
mount -t tmpfs over "$work/over-$i"
mkdir "$work/over-$i"/{upper,work}
mount -t overlay -o "lowerdir=$image/$(ls "$image" | head -n 1)/rootfs,upperdir=$work/over-$i/upper,workdir=$work/over-$i/work" overlay "\$r"
mount --rbind /proc "\$r/proc"; mount --rbind /dev "\$r/dev"; mount --rbind /sys "\$r/sys"
mount -t tmpfs run "\$r/run"
mkdir -p "\$r"/{opt/fairlead/bin,etc/fairlead/munge,etc/fairlead/quorum,etc/slurm,var/spool/slurmctld,run/slurm,run/fabric,var/log/slurm}
mount --bind "$shared" "\$r/var/spool/slurmctld"
mount --bind "$work/fabric" "\$r/run/fabric"
cp "$root/opt/fairlead/bin/fairlead-slurm" "\$r/opt/fairlead/bin/"
cp "$root/etc/fairlead/munge/munge.key" "\$r/etc/fairlead/munge/"
cp "$work/slurm.conf" "$root/etc/slurm/cgroup.conf" "\$r/etc/slurm/"
printf '127.0.0.1 localhost\n10.99.0.10 ctl\n10.99.0.1 head\n10.99.0.$((11 + i)) h$i\n' > "\$r/etc/hosts"
hostname h$i
ip link set lo up
until ip link show eth0 > /dev/null 2>&1; do read -rt 0.02 <> <(:) || true; done
ip addr add 10.99.0.$((11 + i))/24 dev eth0
ip link set eth0 up
ip route add default via 10.99.0.1
while :; do chroot "\$r" /opt/fairlead/bin/fairlead-slurm munge >> "$work/munge-$i.log" 2>&1 || true; read -rt 0.2 <> <(:) || true; done &
TEXT
  if [ -n "$stock" ]; then
    cat >> "$work/head-$i.sh" << TEXT
chroot "\$r" chown slurm: /run/slurm /var/log/slurm /var/spool/slurmctld
until chroot "\$r" munge -n > /dev/null 2>&1; do read -rt 0.1 <> <(:) || true; done
chroot "\$r" slurmctld -D >> "$work/head-$i.log" 2>&1 || true
wait
TEXT
  else
    cat >> "$work/head-$i.sh" << TEXT
cp "$work/address" "\$r/opt/fairlead/address"
cp "$work/quorum.key" "\$r/etc/fairlead/quorum/key"
while :; do
  status=0
  env ${quorum[*]} FAIRLEAD_VOTER=$i FAIRLEAD_QUORUM_KEY=/etc/fairlead/quorum/key FAIRLEAD_ADDRESS_PROGRAM=/opt/fairlead/address chroot "\$r" /opt/fairlead/bin/fairlead-slurm controller >> "$work/head-$i.log" 2>&1 || status=\$?
  echo "companion ended with \$status" >> "$work/head-$i.log"
  read -rt 0.3 <> <(:) || true
done
TEXT
  fi
  unshare --net --mount --pid --uts --fork --kill-child --mount-proc --propagation private bash "$work/head-$i.sh" > "$work/start-$i.log" 2>&1 &
  head_job[$i]=$!
  until_true 10 "head $i has a first process" pgrep -P "${head_job[$i]}"
  init[$i]=$(pgrep -P "${head_job[$i]}")
  echo "${init[$i]}" > "$work/init-$i"
  ip link del "h$i" 2> /dev/null || true
  ip link add "h$i" type veth peer name eth0 netns "${init[$i]}"
  ip link set "h$i" master br0 up
}
in_head() { nsenter -t "${init[$1]}" -m -p -n -u chroot "$work/head-$1" "${@:2}"; }
# Processes of a head, by the numbers that they have here.
pids_in() { # HEAD NAME
  local ns pid
  ns=$(readlink "/proc/${init[$1]}/ns/pid") || return 0
  for pid in $(pgrep -x "$2" || true); do [ "$(readlink "/proc/$pid/ns/pid" 2> /dev/null)" != "$ns" ] || echo "$pid"; done
}
daemons_of() { # HEAD: slurmctld itself, without its script runner
  local pid
  for pid in $(pids_in "$1" slurmctld); do ! grep -q scriptd "/proc/$pid/comm" 2> /dev/null || continue; echo "$pid"; done
}
signal_all() { local pid; while read -r pid; do kill "-$1" "$pid" 2> /dev/null || true; done; } # SIGNAL: what comes in, one number a line
companion_of() { local pid; for pid in $(pids_in "$1" fairlead-slurm); do ! tr '\0' ' ' < "/proc/$pid/cmdline" 2> /dev/null | grep -q ' controller $' || echo "$pid"; done; }
# The number of the head that serves; nothing: none does, by what the heads say.
active() {
  local i
  for ((i = 0; i < heads; ++i)); do
    [ -d "/proc/${init[$i]}" ] || continue
    if timeout 2 nsenter -t "${init[$i]}" -m chroot "$work/head-$i" /opt/fairlead/bin/fairlead-slurm status 2> /dev/null | grep -q '"role":"active"'; then echo "$i"; return; fi
  done
  return 1
}

# The machine's slurmd, and three jobs that run for as long as the cluster is there.
start_running_jobs() {
  inside slurmd -D > "$work/slurmd.log" 2>&1 &
  until_true 60 'the node is there' grep_in '^idle$' timeout 5 chroot "$root" sinfo -h -o %T
  running=()
  local n
  # Tried again, as a user would: on a busy machine the first head may lose its lease while it starts.
  for n in 1 2 3; do
    until_true 30 "job running-$n" inside timeout 8 sbatch --parsable -o /dev/null -n 1 -J "running-$n" --wrap 'sleep 100000'
    running+=("$(cat "$work/last.log")")
  done
  until_true 30 'the jobs run' grep_in '^3$' bash -c "chroot '$root' squeue -h -t running | wc -l"
}

# A new client each tenth of a second, each with six seconds: what is confirmed is a line "time name id".
: > "$work/confirmed"
: > "$work/ever" # "name id" of what was confirmed in earlier rounds
submit_for_ever() {
  local n=0
  while [ -e "$work/submitting" ]; do
    n=$((n + 1))
    ( id=$(timeout 6 chroot "$root" sbatch -H --parsable -o /dev/null -J "$1-n$n" --wrap true 2> /dev/null) && echo "$EPOCHREALTIME $1-n$n $id" >> "$work/confirmed" ) &
    read -rt 0.1 <> <(:) || true
  done
  wait
}
# A fault comes when some are confirmed: ten of one line of clients; of a burst, seven lines of them, sixty.
begin_submitting() { # FAULT ROUND
  local n before=10 lines=1
  if [ "$1" = burst ]; then before=60 lines=7; fi
  : > "$work/submitting"
  clients=()
  for ((n = 0; n < lines; ++n)); do submit_for_ever "$1-$2-$n" & clients+=($!); done
  until_true 20 "$before submissions" confirmed_at_least $before
}
end_submitting() { rm -f "$work/submitting"; wait "${clients[@]}" || true; }
confirmed_at_least() { (($(wc -l < "$work/confirmed") >= $1)); }
confirmed_before() { awk -v t="$1" '$1 > 0 && $1 <= t { ++n } END { print n + 0 }' "$work/confirmed"; } # TIME: how many
confirmed_after() { awk -v t="$1" '$1 > t { print $1; exit }' <(sort -n "$work/confirmed") | grep .; }
# From the fault at this time to the end of the longest time without a confirmation, in seconds.
longest_silence() { sort -n "$work/confirmed" | awk -v t="$1" '{ if ($1 > t) { gap = $1 - (last > t ? last : t); if (gap > worst) { worst = gap; end = $1 } } last = $1 } END { printf "%.3f", end - t }'; }
# What the controller that serves now says: $gone, $twice and $ended are a line for each job that was confirmed and is not there by its unique name and id, id that has two names, and job that does not run any more.
count_losses() {
  local id
  chroot "$root" squeue -h -t all -o '%j %i' | sort > "$work/there"
  gone=$(cut -d' ' -f2- "$work/confirmed" | sort | comm -23 - "$work/there")
  twice=$(cut -d' ' -f2- "$work/confirmed" | sort -u - "$work/there" "$work/ever" | cut -d' ' -f2 | sort | uniq -d)
  ended=''
  for id in "${running[@]}"; do [ "$(chroot "$root" squeue -h -j "$id" -o %T 2> /dev/null)" = RUNNING ] || ended+=$id$'\n'; done
}
losses() { local kind; for kind in "$gone" "$twice" "$ended"; do printf ' %d' "$(grep -c . <<< "$kind" || true)"; done; } # " LOST TWICE ENDED"

begin_fault() { # KIND HEAD
  case $1 in
    kill) daemons_of "$2" | signal_all KILL ;;
    hang) daemons_of "$2" | signal_all STOP ;;
    cut) ip link set "h$2" down ;;
    node | burst) kill -KILL "${init[$2]}" ;;
    *) fail "no such fault: $1" ;;
  esac
}
