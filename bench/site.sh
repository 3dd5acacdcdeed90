#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures a running site: pod start, idle memory of the programs, and Slurm inside it beside a bare Slurm without us, in one run.
# usage: site.sh BUILD_DIR   (as root; makes a site of its own and removes it)
set -euo pipefail
build=${1:?usage: site.sh BUILD_DIR}
top=$(cd "$(dirname "$0")/.." && pwd)
fairlead=$(realpath "$build/bin/fairlead")
work=$(mktemp -d /var/tmp/fairlead-bench-XXXXXX)
export FAIRLEAD_STATE_DIR=$work/site NO_COLOR=1
lab=
clean_up() {
  [ -z "$lab" ] || kill "$lab" 2> /dev/null || true
  "$fairlead" down --yes --purge > /dev/null 2>&1 || true
  rm -rf "$work"
}
trap clean_up EXIT
store=/var/lib/fairlead/images
for name in busybox slurm; do "$top/images/build.sh" "$top/images/$name" "$store" > "$work/image.log" 2>&1 || { cat "$work/image.log" >&2; exit 1; }; done
mkdir -p "$FAIRLEAD_STATE_DIR/images"
cp -al "$store"/* "$FAIRLEAD_STATE_DIR/images/"

begin=$EPOCHREALTIME
"$fairlead" up -f "$top/examples/demo.yaml" --port 16444 --node-range 10.89.0.0/16 --pod-range 10.90.0.0/16 > "$work/up.log" 2>&1 || { cat "$work/up.log" >&2; exit 1; }
awk -v a="$begin" -v b="$EPOCHREALTIME" 'BEGIN { printf "{\"bench\":\"cluster_up\",\"what\":\"nothing to a Slurm cluster of 4 nodes, image cached\",\"seconds\":%.1f}\n", b - a }'
"$build/bin/pod_start_probe" "$("$fairlead" kubeconfig)" head-0 50

read -rt 20 <> <(:) || true   # idle
rss() { awk '/VmRSS/ {printf "%.1f", $2 / 1024}' "/proc/$1/status"; }
echo "{\"bench\":\"idle_rss_mb\",\"fairlead-server\":$(rss "$(cat "$FAIRLEAD_STATE_DIR/run/server.pid")"),\"fairlead-agent\":$(rss "$(pgrep -f "fairlead-agent run --config $FAIRLEAD_STATE_DIR/nodes/worker-0/agent.json")")}"

# The same script inside the cluster and on a bare Slurm of the same image, slurm.conf and worker size.
cat > "$work/measure.sh" <<'TEXT'
set -eu
now() { date +%s%N; }
a=$(now); for i in $(seq 100); do sbatch -Q --hold --output=/dev/null --wrap true; done > /dev/null; b=$(now)
scancel --state=PENDING
serial=$((100 * 1000000000 / (b - a)))
times=''
for i in $(seq 25); do a=$(now); srun --nodes=1 --ntasks=1 true; b=$(now); times="$times $(((b - a) / 100000))"; done
sorted=$(printf '%s\n' $times | sort -n)
median=$(echo "$sorted" | sed -n 13p)
max=$(echo "$sorted" | tail -n 1)
echo "{\"bench\":\"slurm\",\"where\":\"$1\",\"sbatch_per_s\":$serial,\"srun_n1_median_ms\":$((median / 10)).$((median % 10)),\"srun_n1_max_ms\":$((max / 10)).$((max % 10))}"
TEXT
"$fairlead" exec -i -n demo login-0 -- sh -s "in the cluster" < "$work/measure.sh"

image=$store/slurm/22.05/rootfs
"$fairlead" exec -n demo controller-0 -c slurmctld -- cat /etc/slurm/slurm.conf | sed -E 's/^SlurmctldHost=.*/SlurmctldHost=bare/; s/^(ProctrackType)=.*/\1=proctrack\/linuxproc/; s/^(TaskPlugin)=.*/\1=task\/none/; s/^(JobAcctGatherType)=.*/\1=jobacct_gather\/linux/; s/^GresTypes.*//; s/^SlurmctldParameters=.*//; s/^NodeSet=.*/NodeName=bare CPUs=1 RealMemory=2048 Feature=worker/; s/Nodes=worker/Nodes=bare/' > "$work/slurm.conf"
"$fairlead" down --yes > /dev/null 2>&1
cat > "$work/bare.sh" <<TEXT
set -eu
hostname bare
ip link set lo up
ip link add bare0 type bridge && ip addr add 10.91.0.1/24 dev bare0 && ip link set bare0 up
mkdir -p $work/layer && mount -t tmpfs layer $work/layer && mkdir $work/layer/{up,wk,root}
mount -t overlay overlay -o lowerdir=$image,upperdir=$work/layer/up,workdir=$work/layer/wk $work/layer/root
r=$work/layer/root
mount -t proc proc \$r/proc; mount --bind /dev \$r/dev; mount --rbind /sys \$r/sys; mount -t tmpfs run \$r/run
printf '127.0.0.1 localhost\n10.91.0.1 bare\n' > \$r/etc/hosts
cp $work/slurm.conf \$r/etc/slurm/slurm.conf; cp $work/measure.sh \$r/measure.sh
mkdir -p \$r/run/munge \$r/run/slurm
exec chroot \$r sh -euc '
chown munge: /run/munge; chown slurm: /run/slurm
head -c 1024 /dev/urandom > /etc/munge/munge.key; chown munge: /etc/munge/munge.key; chmod 400 /etc/munge/munge.key
setpriv --reuid munge --regid munge --clear-groups munged
slurmctld; slurmd
for i in \$(seq 200); do sinfo -h -t idle -o %n 2> /dev/null | grep -q bare && break; sleep 0.1; done
sh /measure.sh "bare Slurm"'
TEXT
unshare --net --mount --uts --pid --fork --kill-child bash "$work/bare.sh" 2> "$work/bare.log" || { cat "$work/bare.log" >&2; exit 1; }
