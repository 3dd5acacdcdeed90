#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# For tests with hosts that join: to be sourced, with the build folder as $1. The script runs in a network of its own from here on, with a link "lan" on which the server (10.44.0.1) and hosts are.
# Hosts are machines made of namespaces (host_init.sh), which boot, reboot and lose their power; what lies below $work is a file system that all of them share.

set -euo pipefail
build=$(realpath "${1:?usage: $(basename "$0") BUILD_DIR}")
top=$(cd "$(dirname "$0")/../.." && pwd)
[ "$(id -u)" = 0 ] || { echo 'skipped: needs root'; exit 77; }
# A network of its own: the server's addresses are nobody else's.
if [ -z "${FAIRLEAD_HOSTS_INSIDE:-}" ]; then
  images=${FAIRLEAD_IMAGES_DIR:-/var/lib/fairlead/images}
  [ -d "$images/busybox" ] || "$top/images/build.sh" "$top/images/busybox" "$images" > /dev/null 2>&1 || { echo 'the image busybox could not be built' >&2; exit 1; }
  FAIRLEAD_HOSTS_INSIDE=$images exec unshare --net --mount "$0" "$build"
fi
images=$FAIRLEAD_HOSTS_INSIDE
cd "$top"
# shellcheck source=tests/lib.sh
. tests/lib.sh

group=fairlead-hosts-$$
declare -A keeper=()
# A host's life, boot after boot: its link is made anew each time, as its network namespace is.
live() { # NAME ADDRESS
  local name=$1 address=$2 dir=$work/$1 first
  while [ ! -e "$dir/off" ]; do
    if [ -e "$dir/no-power" ]; then
      read -rt 0.1 <> <(:) || true
      continue
    fi
    unshare --net --mount --pid --uts --ipc --fork --kill-child bash "$top/tests/e2e/host_init.sh" "$dir" "$name" "$build/bin/fairlead-agent" >> "$work/$name.log" 2>&1 &
    first=$!
    until [ "$(readlink "/proc/$first/ns/net" 2> /dev/null)" != "$(readlink /proc/self/ns/net)" ] || ! kill -0 "$first" 2> /dev/null; do read -rt 0.05 <> <(:) || true; done
    ip link add "up-$name" type veth peer name eth0 netns "$first"
    ip link set "up-$name" master lan up
    nsenter -t "$first" -n sh -c "ip addr add $address/24 dev eth0 && ip link set eth0 up && ip route add default via 10.44.0.1"
    echo "$first" > "$dir/first"
    wait "$first" || true
    ip link delete "up-$name" 2> /dev/null || true
    # What a reboot takes away.
    find /sys/fs/cgroup -depth -type d -path "*/$group-$name*" -exec rmdir {} + 2> /dev/null || true
  done
}
power_on() {
  mkdir -p "$work/$1/state" "$work/$1/etc"
  cp -al "$images" "$work/$1/state/images"
  live "$1" "$2" > /dev/null 2>> "$work/$1.log" &
  keeper[$1]=$!
  wait_until 20 "host $1 boots" test -e "$work/$1/up"
}
# A board for a host, by Redfish over HTTPS on 127.0.0.1:PORT, user admin, password in $work/NAME/bmc-password. $work/NAME/bmc-lies: it says Off, and does nothing.
board() { # NAME PORT
  local dir=$work/$1
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "/CN=board of $1" -keyout "$dir/bmc.key" -out "$dir/bmc.crt" 2> /dev/null
  echo "word-of-$1" > "$dir/bmc-password"
  cat > "$dir/board.sh" << SH
#!/bin/sh
end() { kill -KILL \$(pgrep -P "\$(cat '$dir/first')") 2> /dev/null || true; }
echo "\$1" >> '$dir/bmc.log'
[ ! -e '$dir/bmc-lies' ] || { [ "\$1" != state ] || exit 1; exit 0; }
case \$1 in
state) ! test -e '$dir/no-power' ;;
On) rm -f '$dir/no-power' ;;
ForceOff | GracefulShutdown) touch '$dir/no-power'; end ;;
ForceRestart) end ;;
esac
SH
  chmod 755 "$dir/board.sh"
  start "board-$1.log" "$build/bin/fairlead-bmc" --listen "127.0.0.1:$2" --certificate "$dir/bmc.crt" --key "$dir/bmc.key" --password-file "$dir/bmc-password" "$dir/board.sh"
  wait_until 10 "the board of $1 answers" grep -q serving "$work/board-$1.log"
}
inner() { pgrep -P "$(cat "$work/$1/first")"; }
# A command on a host.
at() {
  local name=$1
  shift
  nsenter -t "$(inner "$name")" -n -m -p -u -i "$@"
}
places() { echo --config-dir "$work/$1/etc" --state-dir "$work/$1/state" --run-dir /run/fairlead-agent --boot-id-file /run/boot-id --cdi-dir "$work/$1/cdi" --cgroup "/$group-$1"; }
join() { # NAME TOKEN OPTION...
  local name=$1 token=$2
  shift 2
  # shellcheck disable=SC2046
  at "$name" "$build/bin/fairlead-agent" join - $(places "$name") --reboot-command "touch $work/$name/reboot" --no-start "$@" <<< "$token"
}
before_end() {
  local name pid
  # A server that `fairlead up` started is nobody's child.
  pid=$(cat "$work/state/run/server.pid" 2> /dev/null || true)
  [ -z "$pid" ] || ! tr '\0' ' ' < "/proc/$pid/cmdline" 2> /dev/null | grep -qF "$work/state" || ! kill "$pid" 2> /dev/null || for _ in $(seq 100); do gone "$pid" || read -rt 0.1 <> <(:) || true; done
  [ ! -s "$work/state/run/server.log" ] || cp "$work/state/run/server.log" "$work/up.log"
  for name in "${!keeper[@]}"; do touch "$work/$name/off"; done
  for name in "${!keeper[@]}"; do
    kill -KILL "$(inner "$name" 2> /dev/null)" 2> /dev/null || true
    wait "${keeper[$name]}" 2> /dev/null || true
    find /sys/fs/cgroup -depth -type d -path "*/$group-$name*" -exec rmdir {} + 2> /dev/null || true
  done
  keeper=()
  for name in a b c; do [ ! -s "$work/$name/agent.log" ] || cp "$work/$name/agent.log" "$work/agent-$name.log"; done
}

f() { FAIRLEAD_STATE_DIR=$work/state "$build/bin/fairlead" "$@"; }
# says WHAT STATUS TEXT COMMAND...
says() {
  local what=$1 want=$2 text=$3 status=0
  shift 3
  "$@" < /dev/null > "$work/out" 2>&1 || status=$?
  [ "$status" = "$want" ] && { [ -z "$text" ] || grep -qF -- "$text" "$work/out"; } || fail "$what: status $status, not $want with \"$text\""
  echo "ok    $what"
}
answers() { # TEXT COMMAND...
  local text=$1 out
  shift
  out=$("$@" 2>&1 < /dev/null) && [[ $out == *"$text"* ]] || { echo "wanted \"$text\", got: $out"; return 1; }
}
field() { f get "$1" "$2" -o json | python3 -c 'import json, sys; value = json.load(sys.stdin)
for key in sys.argv[1].split("."): value = value.get(key, "") if isinstance(value, dict) else ""
print(value)' "$3"; }
is() { [[ $(field "$1" "$2" "$3") == "$4" ]]; }
has() { [[ $(field "$1" "$2" "$3") == *"$4"* ]]; }
token_of() { f node add "$@" -o json | python3 -c 'import json, sys; print(json.load(sys.stdin)["token"])'; }
ready() { f get nodes | grep -qE "^$1 +Ready"; }

ip link set lo up
ip link add lan type bridge
ip addr add 10.44.0.1/24 dev lan
ip link set lan up
listen() { start server.log "$build/bin/fairlead-server" --state-dir "$work/state" "$@" --listen 0.0.0.0:6443 --advertise-address 10.44.0.1 --node-range 10.187.0.0/16 --pod-range 10.188.0.0/16 --service-range 10.189.0.0/16; server=$last; wait_until 30 'the server serves' grep -q ' serving ' "$work/server.log"; }
