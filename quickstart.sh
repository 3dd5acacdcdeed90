#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# From nothing to a training job on a Slurm cluster, with one command. May be run again at any time: what is done already is not done twice.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
locale=${LC_ALL-} # of the compilers: a compiler cache keeps what they made in one language apart from another
export LC_ALL=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

usage() {
  cat <<'TEXT'
usage: sudo ./quickstart.sh [OPTIONS]
  (nothing)            install what is missing, build, start the cluster "demo", train a small GPT on two nodes
  --down               remove all that was started (images and installed packages stay)
  --yes                do not ask before packages are installed
  --state-dir DIR      where the site lives (default /var/lib/fairlead)
  --port N             port of its API (default 6443)
  --node-range NET     addresses of its nodes, a /16 (default 10.77.0.0/16)
  --pod-range NET      addresses of its pods, a /16 (default 10.78.0.0/16)
  --service-range NET  addresses of its services (default 10.79.0.0/16)
  --steps N            train for N steps (default: all of them)
  --help
TEXT
}

action=up ask=yes state_dir=${FAIRLEAD_STATE_DIR:-/var/lib/fairlead} up_options=() job_options='' port=6443
need_value() { (($2 > 1)) || { echo "quickstart.sh: $1 needs a value; see --help" >&2; exit 2; }; }
while (($#)); do
  case $1 in
    --down) action=down ;;
    --yes | -y) ask=no ;;
    --state-dir) need_value "$1" $#; state_dir=$2; shift ;;
    --port) need_value "$1" $#; { [[ $2 =~ ^[1-9][0-9]{0,4}$ ]] && (($2 <= 65535)); } || { echo "quickstart.sh: --port needs a number from 1 to 65535" >&2; exit 2; }; port=$2; up_options+=("$1" "$2"); shift ;;
    --node-range | --pod-range | --service-range) need_value "$1" $#; up_options+=("$1" "$2"); shift ;;
    --steps) need_value "$1" $#; [[ $2 =~ ^[0-9]+$ ]] || { echo "quickstart.sh: --steps needs a number" >&2; exit 2; }; job_options="--steps $2"; shift ;;
    -h | --help) usage; exit 0 ;;
    *) echo "quickstart.sh: unknown option $1; see --help" >&2; exit 2 ;;
  esac
  shift
done
readonly build=${FAIRLEAD_BUILD_DIR:-build/release} user=ada login=demo/login-0
programs=(fairlead fairlead-server fairlead-agent fairlead-volumes fairlead-disk fairlead-slurm)
fairlead() { "$build/bin/fairlead" "$@" --state-dir "$state_dir"; }
# With a command behind --, options must come before it.
on_login() { "$build/bin/fairlead" exec --state-dir "$state_dir" "$@"; }

# ---- telling

if [[ -t 2 && -z ${NO_COLOR:-} && ${TERM:-} != dumb ]]; then live=yes bold=$'\e[1m' dim=$'\e[2m' green=$'\e[32m' red=$'\e[31m' cyan=$'\e[36m' plain=$'\e[0m'; else live=no bold='' dim='' green='' red='' cyan='' plain=''; fi
now() { printf '%s' "${EPOCHREALTIME/./}"; }                       # microseconds
seconds_since() { local us=$(($(now) - $1)); printf '%d.%d' $((us / 1000000)) $((us / 100000 % 10)); }
whole_start=$(now) phase_names=() phase_seconds=() step_title='' step_start=0
heading() { printf '\n%s%s%s\n' "$bold" "$1" "$plain" >&2; }
begin() {
  step_title=$1 step_start=$(now)
  if [[ $live == yes ]]; then printf '  %s…%s %s' "$cyan" "$plain" "$1" >&2; fi
}
show() { [[ $live == no ]] || printf '\r\e[K  %s…%s %-42s  %s%-8s  %s%s' "$cyan" "$plain" "$step_title" "$dim" "$(seconds_since "$step_start") s" "${1:0:$((${COLUMNS:-100} - 60))}" "$plain" >&2; }
end() {
  local spent
  spent=$(seconds_since "$step_start")
  [[ $live == no ]] || printf '\r\e[K' >&2
  printf '  %s✓%s %-42s  %s%-8s%s  %s\n' "$green" "$plain" "$step_title" "$dim" "$spent s" "$plain" "${1:-}" >&2
  phase_names+=("$step_title") phase_seconds+=("$spent") step_title=''
}
record() { phase_names+=("$1") phase_seconds+=("$(seconds_since "$2")"); }
die() {
  if [[ -n $step_title ]]; then
    [[ $live == no ]] || printf '\r\e[K' >&2
    printf '  %s✗%s %s\n' "$red" "$plain" "$step_title" >&2
  fi
  printf '%squickstart:%s %s\n' "$red" "$plain" "$1" >&2
  exit 1
}
work='' child=''  # child: what works in the background; nothing of it outlives this script
clean_up() {
  if [[ -n $child ]] && kill -0 "$child" 2> /dev/null; then
    printf 'quickstart: waiting until what it began has ended\n' >&2
    kill -TERM "$child" 2> /dev/null || true
    wait "$child" 2> /dev/null || true
  fi
  [[ -z $work ]] || rm -rf "$work"
}
trap clean_up EXIT
trap 'die "interrupted; run it again to go on, or with --down to remove what was started"' INT TERM

# ---- may it run here? All reasons at once, each with what to do; nothing has been made yet.

((EUID == 0)) || die "not root: packages are installed and namespaces, links and cgroups are made, so run it with sudo: sudo ./quickstart.sh"

if [[ $action == down ]]; then
  if [[ ! -x $build/bin/fairlead ]]; then
    [[ -d $state_dir/run || -d $state_dir/nodes ]] || { echo "Nothing to do: nothing was built here and no site is in $state_dir." >&2; exit 0; }
    die "a site is in $state_dir but $build/bin/fairlead is not built: run ./quickstart.sh once more, then --down"
  fi
  heading "Taking the demo down"
  fairlead down --yes || die "not everything could be removed; run it again, the lines above say what is left"
  exit 0
fi

work=$(mktemp -d /tmp/fairlead-quickstart-XXXXXX)
exec 9> /run/fairlead-quickstart.lock
flock -n 9 || die "another quickstart runs on this machine, or what a killed one had begun (apt, the compiler) is still at work: wait until it is done"

wrong=()
object() { wrong+=("$1"); }
check_system() {
  local id='' version='' name=''
  [[ -r /etc/os-release ]] && { id=$(. /etc/os-release && echo "${ID:-}"); version=$(. /etc/os-release && echo "${VERSION_ID:-}"); name=$(. /etc/os-release && echo "${PRETTY_NAME:-$ID}"); }
  [[ $id == debian && ( $version == 12 || -z $version ) ]] || object "this machine runs ${name:-an unknown system}, not Debian 12: use a Debian 12 machine (a virtual one is fine), or install the packages of tools/packages.txt by hand and start with \`fairlead up\`"
  case $(uname -m) in x86_64 | aarch64) ;; *) object "the processor is $(uname -m): Fairlead runs on x86_64 and aarch64" ;; esac
  local memory_mb
  memory_mb=$(awk '/^MemTotal/ {print int($2 / 1024)}' /proc/meminfo)
  ((memory_mb >= 3400)) || object "too little memory: $memory_mb MB in this machine, 3400 MB needed (8 GB is comfortable): use a larger machine"
  local at=$state_dir need_mb=500 free_mb
  while [[ ! -d $at ]]; do at=$(dirname "$at"); done
  [[ -f $state_dir/images/slurm/22.05/image.json ]] || need_mb=$((need_mb + 4000))
  free_mb=$(($(df --output=avail --block-size=1000000 -- "$at" | tail -n 1)))        # a number: df pads it with blanks
  ((free_mb >= need_mb)) || object "too little disk: $free_mb MB free where $state_dir is, $need_mb MB needed: make room, or choose a folder on a larger disk with --state-dir"
  if [[ ! -x $build/bin/fairlead ]]; then
    free_mb=$(($(df --output=avail --block-size=1000000 -- . | tail -n 1)))
    ((free_mb >= 1500)) || object "too little disk: $free_mb MB free in $PWD, 1500 MB needed to build: make room"
  fi
}
missing_packages() {
  local package _
  while read -r package _; do
    case $package in '' | '#'*) continue ;; esac
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2> /dev/null) == installed ]] || echo "$package"
  done < tools/packages.txt
}
# Can what apt would ask be reached? Its own sources and proxy decide; a mirror on disk needs no network.
check_network() {
  local uri proxy address
  # shellcheck disable=SC2016
  uri=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2> /dev/null | head -n 1) || true
  [[ -n $uri ]] || uri=http://deb.debian.org/debian
  [[ $uri == http* ]] || return 0
  proxy=$(apt-config dump 2> /dev/null | sed -nE 's/^Acquire::https?::Proxy "(.+)";/\1/p' | grep -v DIRECT | head -n 1) || true
  address=$(sed -E 's#^[a-z]+://([^@/]*@)?([^/]+).*#\2#' <<< "${proxy:-$uri}")
  local host=${address%%:*} tcp_port=80
  [[ ${proxy:-$uri} != https* ]] || tcp_port=443
  [[ $address != *:* ]] || tcp_port=${address##*:}
  timeout 10 bash -c "exec 3<> /dev/tcp/$host/$tcp_port" 2> /dev/null || object "no network: $host (from where packages come) cannot be reached: connect this machine, or set a proxy for apt"
}
# Inodes of listening sockets that keep 127.0.0.1 from being bound: on that address or on all of them, also through IPv6.
port_sockets() {
  awk -v port="$(printf '%04X' "$port")" '
    $4 == "0A" && split($2, at, ":") == 2 && at[2] == port &&
      (at[1] == "0100007F" || at[1] ~ /^0+$/ || at[1] == "0000000000000000FFFF00000100007F") { print $10 }' /proc/net/tcp /proc/net/tcp6 2> /dev/null || true
}
# "nginx (process 12)", found by the socket among everyone's descriptors.
port_holder() {
  local pid
  pid=$(find /proc/[0-9]*/fd -maxdepth 1 -lname "socket:\\[$1\\]" -print -quit 2> /dev/null | cut -d/ -f3) || true
  if [[ -n $pid ]]; then printf '%s (process %s)' "$(cat "/proc/$pid/comm" 2> /dev/null || echo 'a program')" "$pid"; else printf 'another program'; fi
}
server_runs() { local pid; pid=$(cat "$state_dir/run/server.pid" 2> /dev/null) && grep -qs fairlead-server "/proc/$pid/comm"; }

heading "Fairlead quickstart"
begin "look at this machine"
check_system
mapfile -t missing < <(missing_packages)
if ((${#missing[@]})) || [[ ! -f $state_dir/images/slurm/22.05/image.json ]]; then check_network; fi
if ! server_runs && socket=$(port_sockets | head -n 1) && [[ -n $socket ]]; then object "port $port is taken by $(port_holder "$socket"): stop that program, or choose another port with --port"; fi
if ((${#wrong[@]} == 1)); then die "${wrong[0]}"; fi
if ((${#wrong[@]})); then
  [[ $live == no ]] || printf '\r\e[K' >&2
  printf '  - %s\n' "${wrong[@]}" >&2
  die "this machine is not ready, for the reasons above"
fi
end "$(nproc) cores, $(awk '/^MemTotal/ {printf "%.0f", $2 / 1048576}' /proc/meminfo) GB memory"

# ---- packages

begin "packages"
if ((${#missing[@]})); then
  if [[ $ask == yes && -t 0 ]]; then
    printf '\r\e[K  These Debian packages are missing: %s\n  Install them? [Y/n] ' "${missing[*]}" >&2
    read -r answer
    [[ $answer == '' || $answer == [yY]* ]] || die "nothing was changed"
  fi
  tools/install-packages.sh tools/packages.txt > "$work/packages.log" 2>&1 &
  child=$!
  while kill -0 "$child" 2> /dev/null; do
    line=$(grep '^waiting: ' "$work/packages.log" | tail -n 1) || true
    show "${line:-installing ${#missing[@]} packages}"
    sleep 0.3
  done
  installed=0
  wait "$child" || installed=$?
  child=''
  ((installed == 0)) || die "installing packages failed: $(grep -E '^E:|^quickstart|^install-packages' "$work/packages.log" | tail -n 1)"
  end "installed ${#missing[@]}"
else
  end "all are there"
fi

# ---- programs

begin "build the programs"
if [[ ! -f $build/CMakeCache.txt ]]; then
  cmake --preset release -DFAIRLEAD_TESTS=OFF > "$work/build.log" 2>&1 || { tail -n 15 "$work/build.log" >&2; die "cmake does not like this machine; the lines above say why"; }
fi
free_mb=$(awk '/^MemAvailable/ {print int($2 / 1024)}' /proc/meminfo)
jobs=$((free_mb / 1500)) && ((jobs >= 1)) || jobs=1
((jobs <= $(nproc))) || jobs=$(nproc)
# The build tool itself is our child and hears of an end; a cmake in between would not tell it.
env -u LC_ALL ${locale:+"LC_ALL=$locale"} NINJA_STATUS='[%f/%t] ' ninja -C "$build" -j "$jobs" "${programs[@]}" > "$work/build.log" 2>&1 &
child=$! told=0
while kill -0 "$child" 2> /dev/null; do
  line=$(grep -aoE '^\[[0-9]+/[0-9]+\]' "$work/build.log" 2> /dev/null | tail -n 1) || true
  show "${line:-starting}"
  if [[ $live == no && -n $line ]] && (($(now) - step_start > (told + 1) * 30000000)); then told=$((told + 1)); echo "    building $line" >&2; fi
  sleep 0.3
done
built=0
wait "$child" || built=$?
child=''
if ((built != 0)); then
  grep -aE 'error|FAILED' "$work/build.log" | head -n 15 >&2 || tail -n 15 "$work/build.log" >&2
  die "the build failed; the lines above say where"
fi
if grep -aq 'no work to do' "$work/build.log"; then end 'nothing to do'; else end "$build/bin"; fi

# ---- node image

begin "node image slurm:22.05"
"$build/bin/fairlead" image build slurm --state-dir "$state_dir" > "$work/image.path" 2> "$work/image.log" &
child=$!
told=''
while kill -0 "$child" 2> /dev/null; do
  line=$(tail -n 1 "$work/image.log" 2> /dev/null) || true
  show "$line"
  step=$(grep -aE '^step [0-9]+/' "$work/image.log" 2> /dev/null | tail -n 1) || true
  if [[ $live == no && -n $step && $step != "$told" ]]; then told=$step; echo "    $step" >&2; fi
  sleep 0.3
done
built=0
wait "$child" || built=$?
child=''
((built == 0)) || { message=$(tail -n 1 "$work/image.log"); die "${message#image build: }"; }
if grep -q 'up to date' "$work/image.log"; then end 'is there'; else end "$(tail -n 1 "$work/image.log")"; fi

# ---- cluster

heading "Cluster demo"
cluster_start=$(now)
fairlead up -f examples/demo.yaml ${up_options[@]+"${up_options[@]}"} || die "the cluster did not come up; the line above says why. Run this again to go on, or with --down to remove what was started"
record "cluster ready" "$cluster_start"

# ---- the job

heading "Training a small GPT on two nodes"
begin "user $user and examples/train-gpt"
on_login "$login" -- sh -c "getent passwd $user > /dev/null || adduser $user > /dev/null" < /dev/null > "$work/user.log" 2>&1 || die "user $user could not be made on the login node: $(tail -n 1 "$work/user.log")"
tar -C examples -cf - train-gpt | on_login -i "$login" -- runuser -l "$user" -c 'tar -xf - --no-same-owner' > "$work/copy.log" 2>&1 || die "examples/train-gpt could not be copied to the login node: $(tail -n 1 "$work/copy.log")"
end "in the shared home"

job_start=$(now)
begin "sbatch train.sbatch"
# shellcheck disable=SC2016
job=$(on_login "$login" -- runuser -l "$user" -c 'squeue --noheader --user=$USER --name=train-gpt --states=RUNNING,PENDING --format=%i | head -n 1' < /dev/null) || die "Slurm does not answer on the login node; see \`$build/bin/fairlead status\`"
job=${job//[^0-9]/}
if [[ -n $job ]]; then
  end "job $job of an earlier run goes on"
else
  job=$(on_login "$login" -- runuser -l "$user" -c "cd train-gpt && sbatch --parsable train.sbatch $job_options" < /dev/null 2> "$work/sbatch.log") || die "sbatch refused the job: $(tail -n 1 "$work/sbatch.log")"
  job=${job//[^0-9]/}
  [[ -n $job ]] || die "sbatch gave no job id: $(tail -n 1 "$work/sbatch.log")"
  end "job $job"
fi

# One connection: the output as it grows, until Slurm says that the job has ended; then its state and nodes.
# shellcheck disable=SC2016
follow='job=$1; cd train-gpt
state() { squeue --noheader --job="$job" --states=all --format=%T 2> /dev/null; }
( while :; do case $(state) in COMPLETED | FAILED | CANCELLED | TIMEOUT | NODE_FAIL | OUT_OF_MEMORY | BOOT_FAIL | DEADLINE) break ;; esac; sleep 1; done ) &
tail -n +1 -s 0.3 -F --pid=$! "train-gpt-$job.out" 2> /dev/null
echo "@state $(state) $(squeue --noheader --job="$job" --states=all --format=%N)"'
first_loss='' final_loss='' last_loss='' state='' nodes=''
while IFS= read -r line; do
  case $line in
    '@state '*) read -r _ state nodes <<< "$line" ;;
    *'final loss'*) final_loss=$(grep -oE '[0-9]+\.[0-9]+' <<< "${line#*final loss}" | head -n 1); printf '  %s\n' "$line" >&2 ;;
    *loss*)
      if [[ -z $first_loss ]]; then
        first_loss=$(seconds_since "$whole_start")
        record "job's first loss line" "$job_start"
        train_start=$(now)
      fi
      last_loss=$(sed -nE 's/.*loss[ =:]+([0-9]+\.[0-9]+).*/\1/p' <<< "$line")
      printf '  %s\n' "$line" >&2 ;;
    *) printf '  %s%s%s\n' "$dim" "$line" "$plain" >&2 ;;
  esac
done < <(on_login "$login" -- runuser -l "$user" -c "bash -c '${follow//\'/\'\\\'\'}' follow $job" < /dev/null)
[[ -z ${train_start:-} ]] || record "training" "$train_start"
[[ $state == COMPLETED ]] || die "job $job ended as ${state:-unknown (the connection to the login node broke)}: see \`$build/bin/fairlead run cat /home/$user/train-gpt/train-gpt-$job.out\`"

# ---- summary

heading "Done in $(seconds_since "$whole_start") s"
printf '  %-24s %s\n' "job" "$job ($state)" "nodes" "$nodes" "final loss" "${final_loss:-$last_loss}" "first loss line after" "$first_loss s" >&2
printf '\n  %sseconds per phase%s\n' "$dim" "$plain" >&2
for i in "${!phase_names[@]}"; do printf '    %-42s %8s\n' "${phase_names[i]}" "${phase_seconds[i]}" >&2; done
suffix=''
[[ $state_dir == /var/lib/fairlead ]] || suffix=" --state-dir $state_dir"
cat >&2 <<TEXT

  ${bold}Next${plain}
    log in        sudo $build/bin/fairlead ssh$suffix
    look around   sudo $build/bin/fairlead status -w$suffix
    tear down     sudo ./quickstart.sh --down$suffix
TEXT
